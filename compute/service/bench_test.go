package service_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/job"
	"salvor/store/storetest"
	"salvor/test/must"
)

// fleet is a store with hosts that have joined.
func fleet(b *testing.B, hosts int) (*service.Services, job.Transactor, []string) {
	b.Helper()
	st, _ := storetest.SQLite(b)
	s := service.New(st, st, service.Options{}, time.Now)
	ids := make([]string, hosts)
	must.OK(b, st.Do(b.Context(), func(tx job.Tx) error {
		for i := range ids {
			ids[i] = newID()
			h := &compute.Host{Name: fmt.Sprint("host-", i), Kind: compute.AgentHost, Inventory: compute.Inventory{VCPUs: 64, RAM: 1 << 20, Disk: 1 << 12, Stores: []compute.DiskStore{{Name: "local"}}}}
			h.ID = ids[i]
			if err := st.Hosts().Insert(tx, h); err != nil {
				return err
			}
		}
		return nil
	}))
	for _, id := range ids {
		must.Get(s.Leases.Renew(b.Context(), id, "01", compute.Renewal{BootID: "b", HasGuests: true}))(b)
	}
	return s, st, ids
}

// BenchmarkRenew: what 2,000 hosts ask of one process each two seconds, with the writing of their leases beside it.
func BenchmarkRenew(b *testing.B) {
	s, _, ids := fleet(b, 2000)
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Leases.RunLeases(ctx, func(err error) { b.Error(err) })
	}()
	b.ResetTimer()
	for i := range b.N {
		must.Get(s.Leases.Renew(b.Context(), ids[i%len(ids)], "01", compute.Renewal{BootID: "b"}))(b)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "renewals/s")
	stop()
	<-done
}

// BenchmarkPlace: servers made and placed among 2,000 hosts.
func BenchmarkPlace(b *testing.B) {
	s, st, _ := fleet(b, 2000)
	ctx := b.Context()
	f := &compute.Flavor{Name: "f", VCPUs: 1, RAM: 64, Disk: 1, Public: true}
	img := &compute.Image{Name: "i", Visibility: "public", Status: compute.ImageActive, DiskFormat: "raw"}
	for _, err := range []error{s.Flavors.Create(ctx, f, admin.Asker), s.Images.Create(ctx, img, admin.Asker)} {
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for range b.N {
		made := must.Get(s.Servers.Create(ctx, compute.Creation{Name: "vm", Flavor: f.ID, Image: img.ID}, admin))(b)
		must.OK(b, st.Do(ctx, func(tx job.Tx) error {
			_, _, err := s.Servers.Place(ctx, tx, made[0].ID, compute.CreateArgs{})
			return err
		}))
	}
}
