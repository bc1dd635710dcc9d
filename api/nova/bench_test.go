package nova_test

import (
	"fmt"
	"testing"

	"salvor/compute"
	"salvor/job"
	"salvor/record"
	"salvor/rescue"
	"salvor/test/must"
)

// addServers adds 1000 servers as they look in life.
func (w *world) addServers() {
	w.Helper()
	f := must.Get(w.services.Flavors.Get(w.Context(), "1"))(w)
	must.OK(w, w.store.Do(w.Context(), func(tx job.Tx) error {
		for i := range 1000 {
			srv := &compute.Server{
				Record: record.Record{ID: fmt.Sprintf("11111111-2222-4333-8444-%012d", i), CreatedAt: born, UpdatedAt: born}, Name: fmt.Sprintf("web-%d", i), Project: projectA, User: "ann",
				HostID: hostOne, GuestName: fmt.Sprintf("instance-%08x", i), State: compute.Active, Power: compute.PowerOn, LaunchedAt: born, Flavor: *f, ImageID: imageOne,
				Metadata: map[string]string{"role": "web", "tier": "front"}, Tags: []string{"a", "b"}, KeyName: "mine", ConfigDrive: true, SecurityGroups: []string{"default"},
				NICs:  []compute.NIC{{ID: fmt.Sprintf("p%d", i), NetworkID: nothing, MAC: "52:54:00:00:00:01", Addresses: []string{fmt.Sprintf("10.0.%d.%d", i/250, i%250)}}},
				Disks: []compute.Disk{{Name: "vda", BootIndex: 0, Store: "local", SizeGiB: 1, ImageID: imageOne}, {Name: "vdb", BootIndex: -1, VolumeID: nothing}},
			}
			if i%10 == 0 {
				srv.State, srv.Rescue = compute.Rescued, &rescue.Session{State: rescue.Ready, StartedAt: born, Source: &rescue.Source{ImageID: 1, Name: "salvor"}}
			}
			if err := w.store.Servers().Insert(tx, srv); err != nil {
				return err
			}
		}
		return nil
	}))
}

func benchmark(b *testing.B, path, version string) {
	w := newWorld(b)
	w.addServers()
	b.ReportAllocs()
	for b.Loop() {
		b.SetBytes(int64(len(w.want(200, "GET", path, version, "").Body)))
	}
}

func BenchmarkDetail1000(b *testing.B) { benchmark(b, "/servers/detail", "2.87") }
func BenchmarkList1000(b *testing.B)   { benchmark(b, "/servers", "2.87") }
func BenchmarkFilter1000(b *testing.B) { benchmark(b, "/servers/detail?tags=a", "2.87") }
func BenchmarkGet(b *testing.B) {
	benchmark(b, "/servers/11111111-2222-4333-8444-000000000500", "2.87")
}

// BenchmarkCold1000 is a list of which nothing is kept.
func BenchmarkCold1000(b *testing.B) {
	w := newWorld(b)
	w.addServers()
	for b.Loop() {
		w.forget()
		w.want(200, "GET", "/servers/detail", "2.87", "")
	}
}

// BenchmarkRefusedCreate decodes the body of a creation, holds it to its schema and refuses what its network names.
func BenchmarkRefusedCreate(b *testing.B) {
	w := newWorld(b)
	body := `{"server": {"name": "web", "flavorRef": "1", "imageRef": "` + imageOne + `", "min_count": 2, "max_count": "3", "metadata": {"a": "b", "role": "web"}, "tags": ["a", "b"],
		"networks": [{"uuid": "` + nothing + `"}, {"uuid": "` + nothing + `", "fixed_ip": "192.0.2.1"}], "description": null, "config_drive": true,
		"block_device_mapping_v2": [{"source_type": "blank", "destination_type": "local", "volume_size": 2, "boot_index": -1}], "user_data": "aGVsbG8="}}`
	b.ReportAllocs()
	for b.Loop() {
		w.want(400, "POST", "/servers", "2.87", body)
	}
}
