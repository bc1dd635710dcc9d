package service_test

import (
	"strings"
	"testing"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// stores gives a host disk stores of these sizes in GiB, named a, b, c in this order.
func (w *world) stores(h *compute.Host, sizes ...int) *compute.Host {
	w.t.Helper()
	w.tx(func(tx job.Tx) error {
		now, err := w.store.Hosts().Get(w.ctx, tx, h.ID)
		if err != nil {
			return err
		}
		now.Inventory.Stores, now.Inventory.Disk = nil, 0
		for i, size := range sizes {
			now.Inventory.Stores = append(now.Inventory.Stores, compute.DiskStore{Name: string(rune('a' + i)), Marker: h.ID + string(rune('a'+i)), SizeGiB: size, FreeGiB: size})
			now.Inventory.Disk += size
		}
		h = now
		return w.store.Hosts().Save(tx, now)
	})
	return h
}

// place gives a server that was asked for a host, and the error of that.
func (w *world) place(s *compute.Server) (err error) {
	_ = w.store.Do(w.ctx, func(tx job.Tx) error {
		_, _, err = w.Servers.Place(w.ctx, tx, s.ID, compute.CreateArgs{})
		return err
	})
	return err
}

// storesOf names the disk stores of a server's disks, in order.
func (w *world) storesOf(s *compute.Server) string {
	var names []string
	for _, d := range w.read(s.ID).Disks {
		names = append(names, d.Store)
	}
	return strings.Join(names, " ")
}

// TestDisksGoWhereThereIsRoom: each server has one disk of 2 GiB. The first store with room takes it, and a store whose server is gone has room
// again. No store takes a disk because the stores together have room.
func TestDisksGoWhereThereIsRoom(t *testing.T) {
	for _, c := range []struct {
		name  string
		sizes []int
		want  []string // the store of each server, "-": none has room
	}{
		{"a store of less than 1 GiB beside a large one", []int{0, 49}, []string{"b", "b"}},
		{"the first as long as it has room", []int{5, 3}, []string{"a", "a", "b", "-"}},
		{"together there is room, in none there is", []int{3, 3}, []string{"a", "b", "-"}},
		{"one store", []int{4}, []string{"a", "a", "-"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.stores(w.host, c.sizes...)
			var made []*compute.Server
			for i, want := range c.want {
				s := w.create(alice)
				made = append(made, s)
				err := w.place(s)
				if want == "-" {
					if !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "GiB of disk free, 2 needed") {
						t.Errorf("server %d: %v, want no valid host for want of disk", i, err)
					}
					continue
				}
				if err != nil || w.storesOf(s) != want {
					t.Fatalf("server %d: store %q, %v, want store %q", i, w.storesOf(s), err, want)
				}
			}
			w.tx(func(tx job.Tx) error { return w.Servers.Gone(w.ctx, tx, made[0].ID) })
			again := w.create(alice)
			if err := w.place(again); err != nil || w.storesOf(again) != c.want[0] {
				t.Errorf("after the first is gone: store %q, %v, want %q", w.storesOf(again), err, c.want[0])
			}
		})
	}
}

// TestAnotherHostHasTheRoom: a host whose stores have room only together is passed over for one with a store that has it.
func TestAnotherHostHasTheRoom(t *testing.T) {
	w := newWorld(t)
	w.stores(w.host, 1, 1, 1, 1)
	other := w.stores(w.join("host-b"), 0, 2)
	s := w.create(alice)
	w.no(w.place(s))
	if got := w.read(s.ID); got.HostID != other.ID || w.storesOf(s) != "b" {
		t.Errorf("host %s, store %q, want host %s, store b", got.HostID, w.storesOf(s), other.ID)
	}
}

// TestDisksOfOneServer may lie in several stores, and count against each other.
func TestDisksOfOneServer(t *testing.T) {
	w := newWorld(t)
	w.stores(w.host, 3, 9)
	s := w.create(alice)
	w.finish(s.ID, func(s *compute.Server) {
		s.Task = compute.Scheduling
		s.Disks = append(s.Disks, compute.Disk{Name: "vdb", BootIndex: -1, SizeGiB: 2}, compute.Disk{Name: "vdc", BootIndex: -1, SizeGiB: 1})
	})
	w.no(w.place(s))
	if got := w.storesOf(s); got != "a b a" {
		t.Errorf("the disks of 2, 2 and 1 GiB are in stores %q, want a b a", got)
	}
}

// TestASharedStoreHasTheRoomOfAllItsHosts: each server has one disk of 2 GiB. The servers of all hosts that share a store use its room, also where a host has
// another store beside it. A server on its way between two of these hosts uses the room once.
func TestASharedStoreHasTheRoomOfAllItsHosts(t *testing.T) {
	for name, c := range map[string]struct {
		size         int
		local, moves bool // the other host has a store of its own too; the server is on its way
		fits         bool
	}{
		"no room beside the other's server":           {size: 3},
		"room for both":                               {size: 4, fits: true},
		"no room, and the other has two stores":       {size: 3, local: true},
		"room, and the other has two stores":          {size: 4, local: true, fits: true},
		"room beside a server on its way":             {size: 4, moves: true, fits: true},
		"no room beside a server on its way":          {size: 3, moves: true},
		"room beside a server on its way, two stores": {size: 4, local: true, moves: true, fits: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			share := func(h *compute.Host, local bool) *compute.Host {
				h = w.stores(h, c.size)
				w.tx(func(tx job.Tx) error {
					now, err := w.store.Hosts().Get(w.ctx, tx, h.ID)
					if err != nil {
						return err
					}
					now.Inventory.Stores[0].Marker, now.Inventory.Stores[0].Shared = "the share", true
					if local {
						now.Inventory.Stores = append(now.Inventory.Stores, compute.DiskStore{Name: "local", Marker: h.ID, SizeGiB: 1})
						now.Inventory.Disk++
					}
					h = now
					return w.store.Hosts().Save(tx, now)
				})
				return h
			}
			share(w.host, c.local)
			there := w.server(alice, compute.Active)
			other := share(w.join("host-b"), false)
			if c.moves {
				w.tx(func(tx job.Tx) error {
					now, err := w.store.Hosts().Get(w.ctx, tx, other.ID)
					if err != nil {
						return err
					}
					now.Reserve(compute.NeedsOf(w.read(there.ID), ""))
					return w.store.Hosts().Save(tx, now)
				})
				w.tx(func(tx job.Tx) error {
					return w.store.Moves().Insert(tx, &compute.Move{Record: record.Record{ID: newID(), CreatedAt: w.now()}, ServerID: there.ID, SourceID: w.host.ID, DestID: other.ID,
						Kind: compute.LiveMigration, State: compute.MovePreparing, Disposition: compute.KeepDisk})
				})
			}
			s := w.create(alice)
			var err error
			_ = w.store.Do(w.ctx, func(tx job.Tx) error {
				_, _, err = w.Servers.Place(w.ctx, tx, s.ID, compute.CreateArgs{Host: other.ID})
				return err
			})
			if (err == nil) != c.fits || err != nil && !strings.Contains(err.Error(), "GiB of disk free, 2 needed") {
				t.Errorf("a shared store of %d GiB with a disk of 2 GiB of the other host: %v, want room for another one: %v", c.size, err, c.fits)
			}
		})
	}
}

// TestRebuildNeedsRoomInItsStore: the new root disk goes beside the old one, into the same store.
func TestRebuildNeedsRoomInItsStore(t *testing.T) {
	for size, fits := range map[int]bool{3: false, 4: true} {
		w := newWorld(t)
		w.stores(w.host, size, 49)
		s := w.server(alice, compute.Active)
		_, err := w.Actions.Act(w.ctx, s.ID, compute.Act{Action: compute.Rebuild, Rebuild: &compute.RebuildArgs{ImageID: w.image.ID}}, alice)
		if (err == nil) != fits || err != nil && !strings.Contains(err.Error(), "needs 2 GiB beside the old one") {
			t.Errorf("a store of %d GiB with the root disk of 2 GiB: %v, want accepted: %v", size, err, fits)
		}
	}
}

// TestReimageFindsAStore: a disk that is made anew at another host goes into a store of that host that is large enough.
func TestReimageFindsAStore(t *testing.T) {
	source := &compute.Host{Name: "vm1", Inventory: compute.Inventory{Stores: []compute.DiskStore{{Name: "a", Marker: "m1", SizeGiB: 50}}}}
	dest := &compute.Host{Name: "vm2", Kind: compute.AgentHost, Inventory: compute.Inventory{VCPUs: 9, RAM: 9999, Disk: 50,
		Stores: []compute.DiskStore{{Name: "a", Marker: "m2", SizeGiB: 1}, {Name: "b", Marker: "m3", SizeGiB: 49}, {Name: "c", Marker: "m1", SizeGiB: 50}}}}
	for size, want := range map[int]string{1: "a", 2: "b", 49: "b", 50: ""} {
		srv := &compute.Server{Disks: []compute.Disk{{Name: "vda", Store: "a", SizeGiB: size}}}
		filter := compute.NewDestinationFilter(srv, source, false)
		filter.Except = nil
		why := filter.Refusal(dest, true)
		if (why == "") != (want != "") {
			t.Errorf("%d GiB: refused by %q", size, why)
			continue
		}
		if got := compute.RelocateDisks(srv.Disks, source, dest, true)[0].Store; want != "" && got != want {
			t.Errorf("%d GiB: store %q, want %q", size, got, want)
		}
	}
}

// TestAMoveThatArrivesUsesItsStore: the record of a server that a move brings names the store of the host that it leaves, and the server counts
// in the store of the same marker.
func TestAMoveThatArrivesUsesItsStore(t *testing.T) {
	for _, arrives := range []bool{false, true} {
		w := newWorld(t)
		w.stores(w.host, 5)
		moving := w.server(alice, compute.Active)
		dest := w.stores(w.join("host-b"), 3, 49)
		w.tx(func(tx job.Tx) error {
			now, err := w.store.Hosts().Get(w.ctx, tx, dest.ID)
			if err != nil {
				return err
			}
			now.Inventory.Stores[0].Marker = w.host.ID + "a" // the hosts share it
			return w.store.Hosts().Save(tx, now)
		})
		want := "a"
		if arrives {
			want = "b"
			w.tx(func(tx job.Tx) error {
				return w.store.Moves().Insert(tx, &compute.Move{Record: record.Record{ID: newID(), CreatedAt: w.now()}, ServerID: moving.ID, SourceID: w.host.ID, DestID: dest.ID,
					Kind: compute.LiveMigration, State: compute.MovePreparing, Disposition: compute.KeepDisk})
			})
		}
		s := w.create(alice)
		w.tx(func(tx job.Tx) error {
			_, _, err := w.Servers.Place(w.ctx, tx, s.ID, compute.CreateArgs{Host: dest.ID})
			return err
		})
		if got := w.storesOf(s); got != want {
			t.Errorf("a server of 2 GiB arrives in the store of 3 GiB: %v; another one is in store %q, want %q", arrives, got, want)
		}
	}
}
