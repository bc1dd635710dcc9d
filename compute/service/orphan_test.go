package service_test

import (
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/record"
	"salvor/test/must"
)

// seesShared has a host tell of one shared disk store, by the host's own name for it.
func (w *world) seesShared(h *compute.Host, name, marker string) {
	w.t.Helper()
	inv := h.Inventory
	inv.Stores = []compute.DiskStore{{Name: name, Marker: marker, Shared: true, SizeGiB: 100, FreeGiB: 100}}
	w.renew(h, "boot-1", func(r *compute.Renewal) { r.Inventory = &inv })
}

// TestAnotherHostRemovesTheDisksOfALostOne: the disk in a shared store of a server that was deleted while its host was away is put into quarantine by
// another host of that store, once the host was fenced or removed as lost. A host that comes back then has its guest to remove, and no disk.
func TestAnotherHostRemovesTheDisksOfALostOne(t *testing.T) {
	fenced := func(w *world) { must.Get(w.fence(w.host, compute.PowerCut))(w.t) }
	lost := func(w *world) {
		w.no(w.forceDown(w.host, true))
		w.no(w.Hosts.Remove(w.ctx, w.host.ID, "burnt", admin.Asker))
	}
	for name, c := range map[string]struct {
		before func(w *world, s *compute.Server) // before the server is deleted
		gone   func(w *world)
		marker string // of the other host's store; empty: the same
		asked  bool
	}{
		"its host was fenced":                   {gone: fenced, asked: true},
		"its host was removed as lost":          {gone: lost, asked: true},
		"its host was forced down":              {gone: func(w *world) { w.no(w.forceDown(w.host, true)) }},
		"another host has another store":        {gone: fenced, marker: newID()},
		"the fenced host was heard":             {gone: func(w *world) { fenced(w); w.pass(10 * time.Second); w.renew(w.host, "boot-1") }},
		"the server lives on the other host":    {gone: fenced, before: func(w *world, s *compute.Server) { w.moved(s, w.host, w.join("host-c"), compute.CleanGuest) }},
		"the fence is of the history that went": {gone: func(w *world) { fenced(w); w.release() }},
	} {
		reports := func(c compute.Cleaned) func(*compute.Renewal) {
			return func(r *compute.Renewal) { r.Cleaned = []compute.Cleaned{c} }
		}
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s, other, marker := w.server(alice, compute.Active), w.join("host-b"), newID()
			w.seesShared(w.host, "local", marker)
			if c.marker == "" {
				c.marker = marker
			}
			w.seesShared(other, "pool", c.marker)
			if c.before != nil {
				c.before(w, s)
			}
			w.pass(time.Minute)
			w.renew(other, "boot-1")
			if c.before == nil {
				w.no(w.forceDown(w.host, true))
				w.tx(func(tx job.Tx) error { return w.Servers.GoneWithout(w.ctx, tx, s.ID) })
			}
			c.gone(w)
			w.pass(2 * time.Second)
			w.renew(other, "boot-1")
			w.pass(time.Minute)
			w.renew(other, "boot-1") // it lives
			w.pass(time.Second)
			got, isTold := w.renew(other, "boot-1").Clean[s.ID]
			if isTold != c.asked {
				t.Fatalf("the other host is told %+v, want that it is told something: %v", got, c.asked)
			}
			if !c.asked {
				return
			}
			if got.Do != compute.CleanOrphan || got.Erase || got.Spec == nil || len(got.Spec.Disks) != 1 || got.Spec.Disks[0].Store != "pool" || got.Spec.Disks[0].File != s.ID+"-vda" {
				t.Fatalf("the other host is told %+v, want it to put disk %s-vda of its store pool into quarantine", got, s.ID)
			}
			w.renew(other, "boot-1", reports(compute.Cleaned{ServerID: s.ID, Epoch: got.Epoch, Error: "its lease is renewed"}))
			if again := w.renew(other, "boot-1").Clean[s.ID]; again.Do != compute.CleanOrphan {
				t.Errorf("after a clean-up that failed the other host is told %+v, want the same again", again)
			}
			w.renew(other, "boot-1", reports(compute.Cleaned{ServerID: s.ID, Epoch: got.Epoch}))
			w.pass(time.Minute)
			if again, still := w.renew(other, "boot-1").Clean[s.ID]; still {
				t.Errorf("after the clean-up the other host is told %+v, want nothing", again)
			}
			left := must.Get(w.store.Moves().List(w.ctx, nil, compute.MoveFilter{SourceID: w.host.ID, Uncleaned: true}, record.Page{}))(t)
			if len(left) != 1 || left[0].Clean != compute.CleanGuest {
				t.Errorf("the host that is gone still has %+v, want its guest to be removed and no disk", left)
			}
		})
	}
}
