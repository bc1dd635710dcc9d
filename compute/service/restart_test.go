package service_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/job"
	"salvor/problem"
	"salvor/test/must"
)

// seesPower has the world's host tell the power of one guest.
func (w *world) seesPower(id string, p compute.Power) compute.Renewed {
	w.t.Helper()
	out, err := w.Leases.Renew(w.ctx, w.host.ID, "01", compute.Renewal{BootID: "boot-1", HasGuests: true, Guests: []compute.Guest{{ID: id, Power: p}}})
	w.no(err)
	return out
}

// crashes has the host tell a crash and ends the job that starts the guest again; false: there was none.
func (w *world) crashes(id string) bool {
	w.t.Helper()
	w.pass(time.Minute)
	w.seesPower(id, compute.PowerCrashed)
	if len(w.jobs(id)) == 0 {
		return false
	}
	w.finish(id, func(s *compute.Server) {
		s.Settle(compute.PowerOn)
		s.Wanted = compute.PowerOn
	})
	w.pass(20 * time.Second)
	w.seesPower(id, compute.PowerOn)
	return true
}

func (w *world) timeline(id string) string {
	w.t.Helper()
	events := must.Get(w.store.Events(w.ctx, compute.Subject(id), 0, 100))(w.t)
	var all []string
	for _, e := range events {
		all = append(all, e.Severity+" "+e.Text)
	}
	return strings.Join(all, "\n")
}

func TestACrashedGuestIsStartedThreeTimesInTenMinutes(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	for try := 1; try <= 3; try++ {
		if !w.crashes(s.ID) {
			t.Fatalf("crash %d: it is not started again; server is %s, wanted %s", try, w.read(s.ID).State, w.read(s.ID).Wanted)
		}
		w.Services = service.New(w.store, w.store, service.Options{}, w.now) // the control plane starts anew and remembers the tries
	}
	if text := w.timeline(s.ID); !strings.Contains(text, "started again, try 2 of 3 in 10m0s") {
		t.Errorf("the timeline does not count the tries:\n%s", text)
	}
	if w.crashes(s.ID) {
		t.Fatal("a fourth try in ten minutes")
	}
	now := w.read(s.ID)
	if now.State != compute.Errored || now.Wanted == compute.PowerOn || now.Power != compute.PowerCrashed || now.Fault == nil {
		t.Fatalf("%s, wanted %s, power %s, fault %+v", now.State, now.Wanted, now.Power, now.Fault)
	}
	if !strings.Contains(now.Fault.Message, "3 times in 10m0s") || !strings.Contains(now.Fault.Message, "salvor server reboot --hard") {
		t.Error(now.Fault.Message)
	}
	if text := w.timeline(s.ID); !strings.Contains(text, "error active -> error") {
		t.Error(text)
	}
	why := compute.ServerSituation{Server: now, Host: w.host, Life: compute.HostLiveness{Up: true}, Operator: true}.Why()
	if text := why.Text("server", "vm", w.now()); !strings.Contains(text, "3 times in 10m0s") {
		t.Error(text)
	}
	// The remedy that the fault names is taken, and the tries begin anew.
	w.act(s.ID, compute.Act{Action: compute.RebootHard}, alice)
	w.finish(s.ID, func(s *compute.Server) {
		s.Settle(compute.PowerOn)
		s.Wanted = compute.PowerOn
	})
	if !w.crashes(s.ID) {
		t.Error("after a start by its owner it is not started again")
	}
}

func TestOldCrashesDoNotCount(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	for range 6 {
		if !w.crashes(s.ID) {
			t.Fatalf("it is %s: %v", w.read(s.ID).State, w.read(s.ID).Restarts)
		}
		w.pass(5 * time.Minute)
	}
	if n := len(w.read(s.ID).Restarts); n > 2 {
		t.Errorf("%d tries are kept, and two of them are within ten minutes", n)
	}
}

// TestACrashedGuestIsLeftWhereItMayNotRun: what stands against a start of a guest stands against one after a crash.
func TestACrashedGuestIsLeftWhereItMayNotRun(t *testing.T) {
	for name, stands := range map[string]func(w *world, s *compute.Server){
		"its host is forced down": func(w *world, s *compute.Server) {
			yes := true
			must.Get(w.Hosts.SetService(w.ctx, w.host.ID, compute.Service{ForcedDown: &yes}, admin.Asker))(w.t)
		},
		"its host is fenced": func(w *world, s *compute.Server) {
			w.tx(func(tx job.Tx) error {
				h, err := w.store.Hosts().Get(w.ctx, tx, w.host.ID)
				if err != nil {
					return err
				}
				h.Fenced = true
				return w.store.Hosts().Save(tx, h)
			})
		},
		"it is moved": func(w *world, s *compute.Server) {
			w.tx(func(tx job.Tx) error {
				srv, err := w.store.Servers().Get(w.ctx, tx, s.ID)
				if err != nil {
					return err
				}
				_, err = w.Moves.Begin(w.ctx, tx, srv, &compute.Move{Kind: compute.Migration, Disposition: compute.KeepDisk}, nil, compute.MoveArgs{}, admin.Asker)
				return err
			})
		},
		"it lives elsewhere": func(w *world, s *compute.Server) {
			other := w.join("host-b")
			w.tx(func(tx job.Tx) error {
				return w.Servers.Edit(w.ctx, tx, s.ID, func(s *compute.Server) { s.HostID = other.ID })
			})
		},
		"an operation goes on": func(w *world, s *compute.Server) { w.act(s.ID, compute.Act{Action: compute.Reboot}, alice) },
		"it was stopped":       func(w *world, s *compute.Server) { w.act(s.ID, compute.Act{Action: compute.Stop}, alice) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.server(alice, compute.Active)
			w.seesPower(s.ID, compute.PowerOn)
			stands(w, s)
			w.pass(time.Minute)
			for range 2 {
				_, err := w.Leases.Renew(w.ctx, w.host.ID, "01", compute.Renewal{BootID: "boot-1", HasGuests: true, Guests: []compute.Guest{{ID: s.ID, Power: compute.PowerCrashed}}})
				if err != nil && !problem.Is(err, problem.Conflict) {
					t.Fatal(err)
				}
			}
			if slices.ContainsFunc(w.jobs(s.ID), func(j job.Job) bool { return j.Kind == compute.JobReconcile }) || len(w.read(s.ID).Restarts) != 0 {
				t.Errorf("it is started: %+v", w.jobs(s.ID))
			}
		})
	}
}

// TestACrashedRescueSystemBeginsAnew: a session is no reason to leave a crashed guest, and after three tries unrescue is the way out.
func TestACrashedRescueSystemBeginsAnew(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	w.act(s.ID, compute.Act{Action: compute.Rescue}, alice)
	ready := func(s *compute.Server) {
		s.State, s.Power, s.Wanted = compute.Rescued, compute.PowerOn, compute.PowerOn
	}
	w.finish(s.ID, ready)
	for range 3 {
		w.pass(time.Minute)
		w.seesPower(s.ID, compute.PowerCrashed)
		if jobs := w.jobs(s.ID); len(jobs) != 1 || jobs[0].Kind != compute.JobReconcile {
			t.Fatalf("%+v", jobs)
		}
		w.finish(s.ID, ready)
	}
	w.pass(time.Minute)
	w.seesPower(s.ID, compute.PowerCrashed)
	if now := w.read(s.ID); now.State != compute.Errored || !now.InSession() || len(w.jobs(s.ID)) != 0 {
		t.Fatalf("%s %+v", now.State, w.jobs(s.ID))
	}
	w.act(s.ID, compute.Act{Action: compute.Unrescue}, alice)
}
