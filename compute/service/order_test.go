package service_test

import (
	"context"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
)

// order gives the server's host one with a secret, as a job does.
func (w *world) order(s *compute.Server, verb compute.Verb) string {
	w.t.Helper()
	o := compute.Order{ID: newID(), HostID: w.host.ID, BootID: "boot-1", ServerID: s.ID, Epoch: s.Epoch, Verb: verb, JobID: newID(), Action: "a",
		Args: []byte("{}"), Secret: secret.New(`{"hash":"$5$x"}`)}
	w.tx(func(tx job.Tx) error { _, err := w.store.InsertOrder(tx, &o); return err })
	return o.ID
}

// A host that comes back hours later must not do what nobody waits for any more, and no secret stays for it.
func TestNoOrderOutlivesItsJob(t *testing.T) {
	for name, end := range map[string]func(w *world, id string){
		"it failed": func(w *world, id string) { w.fail(id) },
		"its server was reset": func(w *world, id string) {
			w.run(w.jobs(id)[0], job.Waiting)
			w.act(id, compute.Act{Action: compute.ResetState, Reset: compute.Active}, admin)
		},
	} {
		w := newWorld(t)
		s := w.server(alice, compute.Active)
		w.act(s.ID, compute.Act{Action: compute.RebootHard}, alice)
		id := w.order(s, compute.SetPower)
		end(w, s.ID)
		o := must.Get(w.store.Order(w.ctx, nil, id))(w.t)
		if o.Result == nil || o.Result.ErrorKind != problem.Conflict.String() || !o.Secret.Empty() {
			t.Errorf("%s: the order is still there: %+v", name, o)
		}
		if now := w.read(s.ID); now.Epoch <= s.Epoch || now.Task != compute.NoTask || now.State != compute.Active {
			t.Errorf("%s: %+v", name, now)
		}
	}
}

func TestAResetLeavesNoVolumeBehind(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	vol := w.volume()
	reset := func(want compute.VolumeStatus, owner string, disks int) {
		t.Helper()
		w.run(w.jobs(s.ID)[0], job.Waiting)
		w.act(s.ID, compute.Act{Action: compute.ResetState, Reset: compute.Active}, admin)
		v := must.Get(w.Volumes.Get(w.ctx, vol.ID))(w.t)
		if now := w.read(s.ID); v.Status != want || v.ServerID != owner || len(now.Disks) != disks {
			t.Fatalf("%s of %q, disks %+v", v.Status, v.ServerID, now.Disks)
		}
	}
	w.act(s.ID, compute.Act{Action: compute.AttachVolume, VolumeID: vol.ID}, alice)
	reset(compute.VolumeError, "", 1) // the host may have taken it
	w.no(func() error {
		_, err := w.Volumes.Update(w.ctx, vol.ID, admin.Asker, func(v *compute.Volume) error { v.Status = compute.VolumeAvailable; return nil })
		return err
	}())
	w.act(s.ID, compute.Act{Action: compute.AttachVolume, VolumeID: vol.ID}, alice)
	w.endJobs(s.ID)
	w.tx(func(tx job.Tx) error {
		return w.Servers.Attached(w.ctx, tx, s.ID, compute.VolumeArgs{VolumeID: vol.ID, Device: "vdb"})
	})
	w.act(s.ID, compute.Act{Action: compute.DetachVolume, VolumeID: vol.ID}, alice)
	reset(compute.VolumeInUse, s.ID, 2)
}

func TestAResetOfAHalfMadeServerKeepsItsVolume(t *testing.T) {
	w := newWorld(t)
	vol := &compute.Volume{Name: "v", Project: "alice", SizeGiB: 4, Bootable: true, Portal: "10.0.0.1:3260", IQN: "iqn.2026-01.example:v"}
	w.no(w.Volumes.Create(w.ctx, vol, alice.Asker))
	s := w.create(alice, func(c *compute.Creation) {
		c.Image, c.Disks = "", []compute.DiskRequest{{VolumeID: vol.ID, BootIndex: 0}}
	})
	w.run(w.jobs(s.ID)[0], job.Waiting)
	w.act(s.ID, compute.Act{Action: compute.ResetState, Reset: compute.Errored}, admin)
	if v, err := w.Volumes.Get(w.ctx, vol.ID); err != nil || v.Status != compute.VolumeInUse || v.ServerID != s.ID {
		t.Fatalf("%+v %v", v, err)
	}
}

func TestAConsoleLeavesNothing(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	opened := func(ctx context.Context) *compute.Order {
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if open, err := w.store.OpenOrders(ctx, w.host.ID); err == nil && len(open) == 1 {
				return &open[0]
			}
		}
		return nil
	}
	gone := func(o *compute.Order) {
		t.Helper()
		_, err := w.store.Order(w.ctx, nil, o.ID)
		w.want(err, problem.NotFound)
	}
	for _, answered := range []bool{true, false} {
		ctx, stop := context.WithCancel(w.ctx)
		seen := make(chan *compute.Order, 1)
		go func() {
			o := opened(ctx)
			if o != nil && answered {
				_ = w.store.Do(w.ctx, func(tx job.Tx) error {
					_, err := w.store.FinishOrder(tx, o.ID, o.HostID, o.BootID, o.Epoch, compute.Result{Console: "login: "})
					return err
				})
			} else {
				stop() // who asked has gone away
			}
			seen <- o
		}()
		text, err := w.Servers.Console(ctx, s, 0)
		if answered && (err != nil || text != "login: ") || !answered && !problem.Is(err, problem.Unavailable) {
			t.Fatalf("%q %v", text, err)
		}
		gone(<-seen)
		stop()
	}
}

func TestAHostIsGivenSoManyOrdersAtOnce(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	const more = 5
	for range compute.MaxOpenOrders + more {
		w.order(s, compute.Look)
	}
	for _, want := range []int{compute.MaxOpenOrders, more} {
		if open, err := w.store.OpenOrders(w.ctx, w.host.ID); err != nil || len(open) != want {
			t.Fatalf("%d orders, want %d: %v", len(open), want, err)
		}
	}
}
