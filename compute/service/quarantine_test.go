package service_test

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

// storeOf gives a host one disk store.
func (w *world) storeOf(h *compute.Host, size int, s compute.DiskStore) {
	w.t.Helper()
	w.tx(func(tx job.Tx) error {
		now, err := w.store.Hosts().Get(w.ctx, tx, h.ID)
		if err != nil {
			return err
		}
		now.Inventory.Disk, now.Inventory.Stores = size, []compute.DiskStore{s}
		return w.store.Hosts().Save(tx, now)
	})
}

// TestRebuildNeedsRoomForBothDisks: the old disk is kept, so there is room beside it, or the request changes nothing.
func TestRebuildNeedsRoomForBothDisks(t *testing.T) {
	for what, c := range map[string]struct {
		size  int // of all stores
		store compute.DiskStore
		image int64 // its size
		fits  bool
	}{
		"room":                         {4, compute.DiskStore{SizeGiB: 4, FreeGiB: 4}, 1 << 20, true},
		"no room":                      {3, compute.DiskStore{SizeGiB: 3, FreeGiB: 3}, 1 << 20, false},
		"what is quarantined is used":  {4, compute.DiskStore{SizeGiB: 4, FreeGiB: 4, Quarantined: 1, QuarantinedGiB: 1}, 1 << 20, false},
		"others have filled the store": {4, compute.DiskStore{SizeGiB: 4, FreeGiB: 0}, 2 << 30, false},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			s := w.server(alice, compute.Active)
			c.store.Name, c.store.Marker = s.Disks[0].Store, newID()
			w.storeOf(w.host, c.size, c.store)
			img := *w.image
			img.ID, img.Name, img.Size = "", "other", c.image
			w.no(w.Images.Create(w.ctx, &img, admin.Asker))
			ask := func(discard bool) error {
				_, err := w.Actions.Act(w.ctx, s.ID, compute.Act{Action: compute.Rebuild, Rebuild: &compute.RebuildArgs{ImageID: img.ID, Discard: discard}}, alice)
				return err
			}
			before := w.read(s.ID)
			err := ask(false)
			if c.fits {
				w.no(err)
				return
			}
			w.want(err, problem.Conflict)
			if now := w.read(s.ID); now.Version != before.Version || len(w.jobs(s.ID)) != 0 || !strings.Contains(err.Error(), "--discard") {
				t.Errorf("%v; now %+v", err, now)
			}
			w.no(ask(true))
		})
	}
}

// TestQuarantineCountsAsUsed where servers are placed.
func TestQuarantineCountsAsUsed(t *testing.T) {
	h := &compute.Host{UsedDisk: 2, Inventory: compute.Inventory{VCPUs: 1, RAM: 1024, Disk: 10, Stores: []compute.DiskStore{{Name: "a", SizeGiB: 5, QuarantinedGiB: 3}, {Name: "b", SizeGiB: 5, QuarantinedGiB: 1}}}}
	for need, want := range map[int]string{4: "", 5: "4 GiB of disk free, 5 needed"} {
		if got := (&compute.Needs{VCPUs: 1, RAM: 1, Disk: need}).Refusal(h, true); got != want {
			t.Errorf("%d GiB: %q", need, got)
		}
	}
}

// TestOnlyADeletedServersDiskIsErased where its host comes back: every other one goes into quarantine.
func TestOnlyADeletedServersDiskIsErased(t *testing.T) {
	for what, c := range map[string]struct {
		disposition compute.Disposition
		deleted     bool
		erase       bool
	}{
		"re-imaged":             {compute.Reimage, false, false},
		"re-imaged and deleted": {compute.Reimage, true, false},
		"deleted":               {compute.Cannot, true, true},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			s, other := w.server(alice, compute.Active), w.join("host-b")
			w.pass(time.Minute)
			must.Get(w.fence(w.host, compute.PowerCut))(w.t)
			m := w.moved(s, w.host, other, compute.CleanDisk)
			w.tx(func(tx job.Tx) error {
				m.Disposition = c.disposition
				if err := w.store.Moves().Save(tx, m); err != nil || !c.deleted {
					return err
				}
				return w.Servers.Edit(w.ctx, tx, s.ID, func(s *compute.Server) { s.State = compute.Deleted })
			})
			w.pass(2 * time.Minute)
			w.renew(w.host, "boot-2")
			out := w.renew(w.host, "boot-2")
			if got := out.Clean[s.ID]; got.Do != compute.CleanDisk || got.Erase != c.erase {
				t.Errorf("%+v", out.Clean)
			}
			if out.Now.IsZero() {
				t.Error("the host is not told the time")
			}
		})
	}
}

// TestARestoreThatIsGivenUp leaves no disk in the server's row that may still be in quarantine, and keeps one that is the server's.
func TestARestoreThatIsGivenUp(t *testing.T) {
	for action, disks := range map[string]int{"": 1, compute.RestoreFirst: 1, "define the server": 2} {
		for how, giveUp := range map[string]func(w *world, s *compute.Server) error{
			"reset": func(w *world, s *compute.Server) error {
				_, err := w.Actions.Act(w.ctx, s.ID, compute.Act{Action: compute.ResetState, Reset: compute.Active}, admin)
				return err
			},
			"evacuation": func(w *world, s *compute.Server) error {
				receipt := must.Get(w.fence(w.host, compute.PowerCut))(w.t)
				return w.store.Do(w.ctx, func(tx job.Tx) error {
					now, err := w.store.Servers().Get(w.ctx, tx, s.ID)
					if err != nil {
						return err
					}
					_, err = w.Moves.Begin(w.ctx, tx, now, &compute.Move{Disposition: compute.KeepDisk}, receipt, compute.MoveArgs{}, admin.Asker)
					return err
				})
			},
		} {
			t.Run(action+" "+how, func(t *testing.T) {
				w := newWorld(t)
				s := w.server(alice, compute.Stopped)
				used := w.hostRow(w.host).UsedDisk
				w.tx(func(tx job.Tx) error {
					h, err := w.store.Hosts().Get(w.ctx, tx, w.host.ID)
					if err != nil {
						return err
					}
					h.UsedDisk++
					return w.store.Hosts().Save(tx, h)
				})
				w.tx(func(tx job.Tx) error {
					if err := w.Servers.Edit(w.ctx, tx, s.ID, func(s *compute.Server) {
						s.Disks, s.Task = append(s.Disks, compute.Disk{Name: "vdb", BootIndex: -1, SizeGiB: 1}), compute.Attaching
					}); err != nil {
						return err
					}
					return w.store.Insert(tx, &job.Job{Kind: compute.JobRestoreDisk, Class: job.Operation, Subject: compute.Subject(s.ID), Action: action,
						Args: []byte(`{"quarantine": "q", "disk": "vdb"}`)})
				})
				w.run(w.jobs(s.ID)[0], job.Waiting)
				w.pass(time.Minute)
				w.no(giveUp(w, s))
				if now, host := w.read(s.ID), w.hostRow(w.host); len(now.Disks) != disks || host.UsedDisk != used+disks-1 {
					t.Errorf("disks %+v, the host uses %d, it was %d", now.Disks, host.UsedDisk, used)
				}
			})
		}
	}
}

// TestADiskStaysInItsProject: a disk in quarantine is restored to a server of the project that its former server was of. Another project, or one that
// nobody knows, has to be allowed.
func TestADiskStaysInItsProject(t *testing.T) {
	for name, c := range map[string]struct {
		former  compute.Who
		gone    bool // nobody knows the former server any more
		allowed bool
		refused string // empty: it is restored
	}{
		"the same project": {former: alice}, "another project": {former: bob, refused: "another"}, "another project, allowed": {former: bob, allowed: true},
		"a server that is gone": {former: alice, gone: true, refused: "gone"}, "a server that is gone, allowed": {former: alice, gone: true, allowed: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s, former := w.server(alice, compute.Stopped), w.server(c.former, compute.Stopped).ID
			if c.gone {
				former = newID()
			}
			w.storeOf(w.host, 10, compute.DiskStore{Name: "local", Marker: newID(), SizeGiB: 10, FreeGiB: 9})
			marker := w.hostRow(w.host).Inventory.Stores[0].Marker
			stop := w.answerHosts([]string{w.host.ID}, func(string, compute.Args) compute.Result {
				return compute.Result{Quarantine: []compute.QuarantinedDisk{{ID: "d", Store: "local", Marker: marker, ServerID: former, Bytes: 1}}}
			})
			defer stop()
			_, _, err := w.Quarantine.RestoreDisk(w.ctx, w.host.ID, "d", s.ID, c.allowed, admin)
			if c.refused == "" {
				w.no(err)
				return
			}
			w.refuses(err, "--other-project", former)
			if now := w.read(s.ID); len(now.Disks) != 1 || len(w.jobs(s.ID)) != 0 {
				t.Errorf("after the refusal: want 1 disk and no job, got %d and %d", len(now.Disks), len(w.jobs(s.ID)))
			}
		})
	}
}

// TestQuarantineInPages: salvor asks the host for a page. The page is the same from an agent of the former release, which answers with
// all disks in any order. A disk is restored to no server of which another host reports a guest.
func TestQuarantineInPages(t *testing.T) {
	for name, pages := range map[string]bool{"an agent that knows pages": true, "an agent of the former release": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.server(alice, compute.Stopped)
			w.storeOf(w.host, 10, compute.DiskStore{Name: "local", Marker: newID(), SizeGiB: 10, FreeGiB: 9})
			marker := w.hostRow(w.host).Inventory.Stores[0].Marker
			stop := w.answerHosts([]string{w.host.ID}, func(_ string, args compute.Args) (r compute.Result) {
				for _, id := range []string{"c", "a", "e", "b", "d"} {
					if !pages || id > args.After && (args.Quarantine == "" || id == args.Quarantine) {
						r.Quarantine = append(r.Quarantine, compute.QuarantinedDisk{ID: id, Store: "local", Marker: marker, Bytes: 1})
					}
				}
				if pages && args.Limit > 0 {
					slices.SortFunc(r.Quarantine, func(x, y compute.QuarantinedDisk) int { return cmp.Compare(x.ID, y.ID) })
					r.Quarantine = r.Quarantine[:min(len(r.Quarantine), args.Limit)]
				}
				return r
			})
			defer stop()
			for _, c := range []struct {
				after string
				limit int
				want  string
			}{{"", 2, "ab"}, {"b", 2, "cd"}, {"d", 2, "e"}, {"e", 2, ""}, {"bb", 9, "cde"}, {"", 0, "abcde"}} {
				found := must.Get(w.Quarantine.List(w.ctx, w.host.ID, record.Page{Marker: c.after, Limit: c.limit}))(w.t)
				got := ""
				for _, d := range found {
					got += d.ID
				}
				if got != c.want {
					t.Errorf("%d after %q: %q, want %q", c.limit, c.after, got, c.want)
				}
			}
			_, err := w.Quarantine.List(w.ctx, w.host.ID, record.Page{Marker: strings.Repeat("x", 200)})
			w.want(err, problem.Invalid)
			_, _, err = w.Quarantine.RestoreDisk(w.ctx, w.host.ID, "f", s.ID, true, admin)
			w.want(err, problem.NotFound)
			other := w.join("host-b")
			w.renew(other, "boot-1", guests(runs(s, s.Epoch)))
			_, _, err = w.Quarantine.RestoreDisk(w.ctx, w.host.ID, "d", s.ID, true, admin)
			w.refuses(err, "may run already", "host-b")
			w.renew(other, "boot-1", guests())
			_, _, err = w.Quarantine.RestoreDisk(w.ctx, w.host.ID, "d", s.ID, true, admin)
			w.no(err)
			var args compute.RestoreDiskArgs
			w.no(json.Unmarshal(w.jobs(s.ID)[0].Args, &args))
			if args.Quarantine != "d" {
				t.Errorf("disk %q is restored", args.Quarantine)
			}
		})
	}
}
