package service_test

import (
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

// moved writes the record of a move that is done, as an evacuation leaves it.
func (w *world) moved(s *compute.Server, from, to *compute.Host, do compute.CleanUp) *compute.Move {
	w.t.Helper()
	m := &compute.Move{Record: record.Record{ID: newID()}, ServerID: s.ID, SourceID: from.ID, DestID: to.ID, Kind: compute.Evacuation,
		State: compute.MoveDone, Epoch: s.Epoch + 1, Clean: do}
	w.tx(func(tx job.Tx) error {
		if err := w.store.Moves().Insert(tx, m); err != nil {
			return err
		}
		return w.Servers.Edit(w.ctx, tx, s.ID, func(s *compute.Server) { s.HostID, s.Epoch = to.ID, s.Epoch+1 })
	})
	return m
}

// TestAReturnedHost is told what to do with each guest, is held until that is done and its plan has ended, and starts then what stayed.
func TestAReturnedHost(t *testing.T) {
	w := newWorld(t)
	gone, stays, stray := w.server(alice, compute.Active), w.server(bob, compute.Active), newID()
	other := w.join("host-b")
	w.pass(time.Minute)
	must.Get(w.fence(w.host, compute.PowerCut))(w.t)
	m := w.moved(gone, w.host, other, compute.CleanDisk)
	plan := &compute.Plan{Record: record.Record{ID: newID()}, HostID: w.host.ID, State: compute.PlanRunning}
	w.tx(func(tx job.Tx) error { return w.store.Plans().Insert(tx, plan) })
	w.pass(2 * time.Minute)
	all := guests(compute.Guest{ID: gone.ID, Ours: true, Power: compute.PowerOff}, compute.Guest{ID: stays.ID, Ours: true, Power: compute.PowerOff},
		compute.Guest{ID: stray, Ours: true}, compute.Guest{ID: "someone's", Name: "vm"})
	w.renew(w.host, "boot-2", all)
	out := w.renew(w.host, "boot-2")
	c := out.Clean[gone.ID]
	if !out.Hold || out.Resend || len(out.Clean) != 3 || c.Do != compute.CleanDisk || c.Epoch != gone.Epoch+1 || len(c.Spec.Disks) != 1 || c.Spec.Disks[0].File != gone.ID+"-vda" ||
		out.Clean[stays.ID].Do != compute.CleanKeep || out.Clean[stray].Do != compute.CleanAsk {
		t.Fatalf("%+v", out)
	}
	w.saw(w.host, "warning", "guest "+stray)
	told := func(c compute.Cleaned) func(*compute.Renewal) {
		return func(r *compute.Renewal) { r.Cleaned = []compute.Cleaned{c} }
	}
	for range 2 {
		w.renew(w.host, "boot-2", told(compute.Cleaned{ServerID: gone.ID, Epoch: c.Epoch, Error: "the disk is busy"}))
	}
	w.saw(w.host, "warning", "the disk is busy")
	w.renew(w.host, "boot-2", told(compute.Cleaned{ServerID: gone.ID, Epoch: c.Epoch - 1})) // of an older word
	if got, err := w.Moves.Get(w.ctx, m.ID); err != nil || got.State != compute.MoveDone || !strings.Contains(got.Problem, "busy") {
		t.Fatalf("%+v %v", got, err)
	}
	if out = w.renew(w.host, "boot-2", told(compute.Cleaned{ServerID: gone.ID, Epoch: c.Epoch})); !out.Hold {
		t.Fatalf("admitted while its plan runs: %+v", out)
	}
	if got, err := w.Moves.Get(w.ctx, m.ID); err != nil || got.State != compute.MoveCompleted || got.Problem != "" {
		t.Fatalf("%+v %v", got, err)
	}
	if len(w.jobs(stays.ID)) != 0 {
		t.Fatal("a job was begun on a host that is held")
	}
	plan.State = compute.PlanDone
	w.tx(func(tx job.Tx) error { return w.store.Plans().Save(tx, plan) })
	if out = w.renew(w.host, "boot-2"); out.Hold || !out.Resend {
		t.Fatalf("%+v", out)
	}
	w.renew(w.host, "boot-2", guests(compute.Guest{ID: stays.ID, Ours: true, Power: compute.PowerOff}))
	jobs := w.jobs(stays.ID)
	if row := w.hostRow(w.host); len(jobs) != 1 || jobs[0].Kind != compute.JobReconcile || row.BootID != "boot-2" || row.Fenced || row.Unseen || len(row.Strays) != 0 {
		t.Errorf("jobs %+v, host %+v", jobs, row)
	}
}

// A store that the destination sees holds the disk that the server lives on: no record has it removed.
func TestASharedDiskIsNoDiskThatGoes(t *testing.T) {
	w := newWorld(t)
	s, other, marker := w.server(alice, compute.Active), w.join("host-b"), newID()
	for _, h := range []*compute.Host{w.host, other} {
		inv := h.Inventory
		inv.Stores = []compute.DiskStore{{Name: "local", Marker: marker}}
		w.renew(h, "boot-1", func(r *compute.Renewal) { r.Inventory = &inv })
	}
	w.moved(s, w.host, other, compute.CleanDisk)
	w.pass(2 * time.Second)
	out := w.renew(w.host, "boot-1") // also a host that was never fenced
	if c := out.Clean[s.ID]; out.Hold || c.Do != compute.CleanDisk || len(c.Spec.Disks) != 0 {
		t.Errorf("%+v", out)
	}
}

// sees has a host tell of one disk store, of that marker.
func (w *world) sees(h *compute.Host, marker string) {
	w.t.Helper()
	inv := h.Inventory
	inv.Stores = []compute.DiskStore{{Name: "local", Marker: marker, SizeGiB: 100, FreeGiB: 100}}
	w.renew(h, "boot-1", func(r *compute.Renewal) { r.Inventory = &inv })
}

// A store that any other host sees is none that died with the source: what was written to it stays, unless its server was deleted.
func TestADiskThatAThirdHostSeesStays(t *testing.T) {
	w := newWorld(t)
	s, other, third, marker := w.server(alice, compute.Active), w.join("host-b"), w.join("host-c"), newID()
	w.sees(w.host, marker)
	w.sees(other, newID())
	w.sees(third, marker)
	w.moved(s, w.host, other, compute.CleanDisk)
	w.pass(2 * time.Second)
	if c := w.renew(w.host, "boot-1").Clean[s.ID]; c.Do != compute.CleanDisk || len(c.Spec.Disks) != 0 {
		t.Errorf("%+v", c)
	}
	w.tx(func(tx job.Tx) error {
		return w.Servers.Edit(w.ctx, tx, s.ID, func(s *compute.Server) { s.State = compute.Deleted })
	})
	w.pass(2 * time.Second)
	if c := w.renew(w.host, "boot-1").Clean[s.ID]; c.Do != compute.CleanDisk || len(c.Spec.Disks) != 1 {
		t.Errorf("deleted: %+v", c)
	}
}

// What was to be made anew by an older plan is not, once some host sees its disk.
func TestALostDiskComesInSight(t *testing.T) {
	w := newWorld(t)
	first, second, marker := w.server(alice, compute.Active), w.server(bob, compute.Active), newID()
	other, third := w.join("host-b"), w.join("host-c")
	w.sees(w.host, marker)
	w.sees(other, newID())
	w.pass(time.Minute)
	receipt, err := w.fence(w.host, compute.PowerCut)
	w.no(err)
	begin := func(s *compute.Server) (id string, err error) {
		err = w.store.Do(w.ctx, func(tx job.Tx) error {
			srv, err := w.store.Servers().Get(w.ctx, tx, s.ID)
			if err != nil {
				return err
			}
			m, err := w.Moves.Begin(w.ctx, tx, srv, &compute.Move{Disposition: compute.Reimage}, receipt, compute.MoveArgs{}, record.Asker{})
			if err == nil {
				id = m.ID
			}
			return err
		})
		return id, err
	}
	claim := func(id string) error {
		return w.store.Do(w.ctx, func(tx job.Tx) error {
			_, err := w.Moves.Claim(w.ctx, tx, id, compute.MoveArgs{}, nil)
			return err
		})
	}
	id, err := begin(first)
	w.no(err)
	w.sees(third, marker)
	w.renew(other, "boot-1")
	w.refuses(claim(id), "host-c sees", "make a new plan")
	_, err = begin(second)
	w.refuses(err, "host-c sees", "make a new plan")
	w.sees(third, newID())
	w.no(claim(id))
}

func TestForceDownIsNotTakenBackBeforeTheCleanUp(t *testing.T) {
	w := newWorld(t)
	s, other := w.server(alice, compute.Active), w.join("host-b")
	w.no(w.forceDown(w.host, true))
	m := w.moved(s, w.host, other, compute.CleanGuest)
	err := w.forceDown(w.host, false)
	w.want(err, problem.Invalid)
	if want := "Unable to force up host host-a as `done` evacuation migration records remain associated with the host. Ensure the compute service has been " +
		"restarted, allowing these records to move to `completed` before retrying this request."; err.Error() != want {
		t.Error(err)
	}
	w.renew(w.host, "boot-1", func(r *compute.Renewal) { r.Cleaned = []compute.Cleaned{{ServerID: s.ID, Epoch: m.Epoch}} })
	w.no(w.forceDown(w.host, false))
}

// A host of a cluster renews nothing: taking its force-down back admits it.
func TestAHostOfAClusterIsAdmittedByHand(t *testing.T) {
	w := newWorld(t)
	h := must.Get(w.Hosts.Ensure(w.ctx, newID(), "node1", compute.Inventory{}))(w.t)
	w.no(w.forceDown(h, true))
	r := must.Get(w.ensure(h))(w.t)
	w.no(w.forceDown(h, false))
	r = must.Get(w.store.Receipts().Get(w.ctx, nil, r.ID))(w.t)
	if r.Open() || r.Closed != "admitted" || w.hostRow(h).Fenced || !w.up(h) {
		t.Errorf("%+v", r)
	}
}

// A move that failed at its destination, after which another one brought the server on, leaves its source something to clean up.
func TestWhatASupersededMoveLeft(t *testing.T) {
	w := newWorld(t)
	s, other := w.server(alice, compute.Active), w.join("host-b")
	w.pass(time.Second)
	must.Get(w.fence(w.host, compute.PowerCut))(w.t)
	m := w.moved(s, w.host, other, compute.CleanGuest)
	m.State, m.Problem = compute.MoveFailed, "went on by move x"
	w.tx(func(tx job.Tx) error { return w.store.Moves().Save(tx, m) })
	w.pass(5 * time.Second)
	if out := w.renew(w.host, "boot-2"); !out.Hold || out.Clean[s.ID].Do != compute.CleanGuest {
		t.Errorf("%+v", out)
	}
}
