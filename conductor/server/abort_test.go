package server

import (
	"context"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/conductor/conductortest"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/test/fixture"
	"salvor/test/must"
)

// abort asks for the abort of what goes on with the server.
func (h *testHost) abort(t *testing.T) error {
	t.Helper()
	_, err := h.services.Actions.Abort(context.Background(), h.server, compute.Who{Admin: true})
	return err
}

// lead is the open operation on the server; nil: there is none.
func (h *testHost) lead(t *testing.T) *job.Job {
	t.Helper()
	open := conductortest.OpenJobs(t, h.store, compute.Subject(h.server))
	return record.Lead(open)
}

// standsAt works with a host that answers, until the job is at an action, and then with one that is silent until the job waits for it.
func (h *testHost) standsAt(t *testing.T, action string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		open := h.openOrders() // before the job is read: none of them is of a later action
		j := h.lead(t)
		switch {
		case j == nil:
			t.Fatalf("the job has ended: %s", h.picture(t))
		case j.Action == action && (j.State == job.Waiting || j.WaitFor != ""):
			return
		case j.Action != action:
			h.answer(open)
		}
		if time.Now().After(end) {
			t.Fatalf("%s stands at %q, %s", j.Kind, j.Action, j.State)
		}
	}
}

// TestAbortOfASilentHost: whatever waits for a host that does not answer ends within 5 s of the abort. No order of it is open then, so that
// the host does nothing more of it, and the server is free.
func TestAbortOfASilentHost(t *testing.T) {
	t.Parallel()
	active := hostOptions{state: compute.Active}
	with := func(a compute.Act) func(*testing.T, *testHost) {
		return func(t *testing.T, h *testHost) { h.act(t, a) }
	}
	for name, c := range map[string]struct {
		hostOptions
		ask   func(*testing.T, *testHost)
		at    string
		state compute.VMState
	}{
		"create, disks": {hostOptions{new: true}, func(t *testing.T, h *testHost) { h.create(t) }, "prepare the disks", compute.Errored},
		"create, power": {hostOptions{new: true}, func(t *testing.T, h *testHost) { h.create(t) }, "power on", compute.Errored},
		"stop":          {active, with(compute.Act{Action: compute.Stop}), "", compute.Active},
		"delete":        {active, with(compute.Act{Action: compute.Delete}), "", compute.Errored},
		"attach":        {active, with(compute.Act{Action: compute.AttachVolume}), "", compute.Active},
		"rebuild": {active, func(t *testing.T, h *testHost) {
			h.act(t, compute.Act{Action: compute.Rebuild, Rebuild: &compute.RebuildArgs{ImageID: h.image}})
		}, "", compute.Active},
		"rescue":      {active, func(t *testing.T, h *testHost) { startRescue(t, h, false) }, "", compute.Active},
		"rescue, far": {active, func(t *testing.T, h *testHost) { startRescue(t, h, false) }, "power on", compute.Errored},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTestHost(t, c.hostOptions)
			stop := h.conduct(t)
			defer stop()
			if name == "attach" {
				h.act(t, compute.Act{Action: compute.AttachVolume, VolumeID: h.volume})
			} else {
				c.ask(t, h)
			}
			if c.at == "" {
				fixture.Poll(t, "the job waits", func() bool { j := h.lead(t); return j != nil && j.State == job.Waiting }, h.picture)
			} else {
				h.standsAt(t, c.at)
			}
			id, began := h.lead(t).ID, time.Now()
			must.OK(t, h.abort(t))
			for h.lead(t) != nil {
				if time.Since(began) > conductortest.AbortWithin {
					t.Fatalf("it goes on: %+v", h.lead(t))
				}
				time.Sleep(2 * time.Millisecond)
			}
			t.Logf("ended after %s", time.Since(began).Round(time.Millisecond))
			j, err := h.store.Job(context.Background(), nil, id)
			if err != nil || !strings.Contains(j.Problem, "aborted by request") {
				t.Errorf("%q: %v", j.Problem, err)
			}
			h.spotless(t)
			if s := h.now(t); s.State != c.state || s.Task != compute.NoTask || s.Fault == nil || !strings.Contains(s.Fault.Message, "aborted") {
				t.Errorf("%s", h.picture(t))
			}
			if err := h.abort(t); !problem.Is(err, problem.Conflict) {
				t.Errorf("an abort of nothing: %v", err)
			}
		})
	}
}

// TestAbortOfAMove: a destination that is silent holds nobody; the server is its source's again, or in error where it had attached.
func TestAbortOfAMove(t *testing.T) {
	t.Parallel()
	for action, state := range map[string]compute.VMState{"prepare the disks": compute.Active, "define the server": compute.Errored} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
			s.fence(t)
			s.evacuate(t)
			stop := s.conduct(t)
			defer stop()
			for end := time.Now().Add(30 * time.Second); ; time.Sleep(2 * time.Millisecond) {
				var open [][]compute.Order // before the job is read: none of them is of a later action
				for _, o := range s.others {
					open = append(open, o.openOrders())
				}
				j := s.lead(t)
				if j == nil || time.Now().After(end) {
					t.Fatalf("%+v: %s", j, s.whereabouts(t))
				}
				if j.Action == action && j.WaitFor != "" {
					break
				}
				for i, o := range s.others {
					if j.Action != action {
						o.answer(open[i])
					}
				}
			}
			began := time.Now()
			must.OK(t, s.abort(t))
			for s.lead(t) != nil {
				if time.Since(began) > conductortest.AbortWithin {
					t.Fatalf("it goes on: %+v", s.lead(t))
				}
				time.Sleep(2 * time.Millisecond)
			}
			t.Logf("ended after %s", time.Since(began).Round(time.Millisecond))
			if now := s.now(t); now.State != state || now.Task != compute.NoTask || s.lastMove(t).Going() {
				t.Errorf("%s", s.whereabouts(t))
			}
			for _, o := range s.others {
				if open, err := s.store.OpenOrders(context.Background(), o.host.ID); err != nil || len(open) > 0 {
					t.Errorf("open orders %v %v", open, err)
				}
			}
		})
	}
}
