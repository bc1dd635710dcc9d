package ironic_test

import (
	"fmt"
	"testing"

	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/test/must"
)

// addNodes adds 1000 nodes as they look in life.
func (w *world) addNodes() {
	w.Helper()
	must.OK(w, w.store.Do(w.Context(), func(tx job.Tx) error {
		for i := range 1000 {
			n := &metal.Node{
				ID: fmt.Sprintf("11111111-2222-4333-8444-%012d", i), Name: fmt.Sprintf("rack-%d-unit-%d", i/40, i%40), Driver: "redfish", ProvisionState: metal.Active, CreatedAt: born, ProvisionedAt: born,
				DriverInfo:   metal.Object{"redfish_address": "https://bmc.example", "redfish_username": "admin", "redfish_password": "hush", "redfish_system_id": "/redfish/v1/Systems/1", "rescue_kernel": "http://k", "rescue_ramdisk": "http://r"},
				Properties:   metal.Object{"cpus": 64.0, "memory_mb": 262144.0, "local_gb": 900.0, "cpu_arch": "x86_64"},
				InstanceInfo: metal.Object{"image_url": "http://i", "root_gb": 900.0}, Extra: metal.Object{"rack": 7.0}, ResourceClass: "baremetal", Traits: []string{"CUSTOM_A"},
			}
			if err := w.store.InsertNode(tx, n); err != nil {
				return err
			}
			if err := w.store.SaveContact(tx, metal.Contact{NodeID: n.ID, AgentVersion: "9", HeartbeatAt: born}); err != nil {
				return err
			}
		}
		return nil
	}))
}

func benchmark(b *testing.B, path string) {
	w := newWorld(b)
	w.addNodes()
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		a := w.ask("GET", path, "1.82", "")
		if a.Status != 200 {
			b.Fatal(a.Body)
		}
		b.SetBytes(int64(len(a.Body)))
	}
}

func BenchmarkList1000(b *testing.B)      { benchmark(b, "/v1/nodes") }
func BenchmarkDetail1000(b *testing.B)    { benchmark(b, "/v1/nodes/detail") }
func BenchmarkGet(b *testing.B)           { benchmark(b, "/v1/nodes/rack-3-unit-3") }
func BenchmarkFields1000(b *testing.B)    { benchmark(b, "/v1/nodes?fields=uuid,name,provision_state") }
func BenchmarkLookupNothing(b *testing.B) { benchmark404(b, "/v1/lookup?addresses=52:54:00:00:00:01") }

func benchmark404(b *testing.B, path string) {
	w := newWorld(b)
	w.addNodes()
	b.ResetTimer()
	for b.Loop() {
		if a := w.ask("GET", path, "1.82", ""); a.Status != 404 {
			b.Fatal(a.Body)
		}
	}
}

// BenchmarkStoreList is the part of a list that is the store's.
func BenchmarkStoreList(b *testing.B) {
	w := newWorld(b)
	w.addNodes()
	for b.Loop() {
		must.Get(w.nodes.List(b.Context(), metal.NodeFilter{}, record.Page{Limit: 1000}))(b)
	}
}

// Heartbeats of one ramdisk: in a wait state each commits, elsewhere they are written together.
func BenchmarkHeartbeatAwaited(b *testing.B) { benchmarkHeartbeat(b, metal.RescueWait) }
func BenchmarkHeartbeatQuiet(b *testing.B)   { benchmarkHeartbeat(b, metal.Cleaning) }

func benchmarkHeartbeat(b *testing.B, state metal.State) {
	w := newWorld(b)
	n := w.booting(func(n *metal.Node) { n.ProvisionState = state })
	body := fmt.Sprintf(`{"callback_url": "https://192.0.2.9:9999", "agent_version": "9", "agent_token": %q}`, w.token(n))
	b.ResetTimer()
	for b.Loop() {
		if a := w.ask("POST", "/v1/heartbeat/"+n.ID, "1.62", body); a.Status != 202 {
			b.Fatal(a.Body)
		}
	}
}
