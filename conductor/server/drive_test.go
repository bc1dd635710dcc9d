package server

import (
	"context"
	"slices"
	"testing"
	"time"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/hypervisor/fake"
	"salvor/job"
	"salvor/problem"
	"salvor/rescue"
	"salvor/test/must"
)

// witness is a hypervisor that remembers what it was asked.
type witness struct {
	*fake.Hypervisor
	did    []string
	domain hypervisor.Domain // the last that was defined
	bound  time.Duration     // that was left for it
	gone   bool              // the guest is on no host at all
}

func (w *witness) Of(context.Context, *compute.Host) (hypervisor.Hypervisor, error) { return w, nil }

func (w *witness) Define(ctx context.Context, d hypervisor.Domain) error {
	w.did, w.domain = append(w.did, "define"), d
	if at, ok := ctx.Deadline(); ok {
		w.bound = time.Until(at)
	}
	if w.gone && d.Adopted {
		return problem.NotFoundf("there is no such guest")
	}
	return w.Hypervisor.Define(ctx, d)
}

func (w *witness) Remove(ctx context.Context, id string) error {
	w.did = append(w.did, "remove")
	return w.Hypervisor.Remove(ctx, id)
}

// driven is a testHost on a node of a cluster, whose hypervisor is a witness.
func driven(t *testing.T) (*testHost, *witness) {
	h := newTestHost(t, hostOptions{kind: compute.GanetiHost, state: compute.Stopped, access: rescue.NoAccess})
	w := &witness{Hypervisor: h.hv}
	h.con.Hypervisors = w
	return h, w
}

// TestCreationHasTimeForDisks: where no agent prepares them, the definition makes them.
func TestCreationHasTimeForDisks(t *testing.T) {
	t.Parallel()
	h, w := driven(t)
	create := h.con.serverCreate()
	at := slices.IndexFunc(create.Actions, func(a job.Action) bool { return a.Name == "define the server" })
	if d := create.Actions[at].Deadline; d < diskErrand {
		t.Errorf("the definition is given up after %s", d)
	}
	create.Actions[at].Do(t.Context(), &job.Run{Job: job.Job{Subject: compute.Subject(h.server)}})
	if w.bound < diskErrand-time.Minute {
		t.Errorf("Ganeti's job is waited for %s only", w.bound)
	}
}

// TestAdoptedServersAreLetGoAsTheyCame: the instance stays when its row goes, and nobody else knows what a rescue replaced.
func TestAdoptedServersAreLetGoAsTheyCame(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		foreign, known bool
		gone           bool
		state          rescue.State
		want           []string
	}{
		"in rescue":             {foreign: true, known: true, state: rescue.Prepared, want: []string{"define", "remove"}},
		"a rescue failed":       {foreign: true, known: true, state: rescue.Failed, want: []string{"define", "remove"}},
		"gone from the cluster": {foreign: true, known: true, gone: true, state: rescue.Prepared, want: []string{"define", "remove"}},
		"nothing saved yet":     {foreign: true, state: rescue.Preparing, want: []string{"remove"}},
		"made here":             {known: true, state: rescue.Prepared, want: []string{"remove"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, w := driven(t)
			w.gone = c.gone
			h.tx(t, func(tx job.Tx) error {
				return h.services.Servers.Edit(t.Context(), tx, h.server, func(s *compute.Server) {
					s.Foreign, s.State = c.foreign, compute.Rescued
					s.Rescue = &rescue.Session{State: c.state, Source: &rescue.Source{Name: "finnix"}, SavedKnown: c.known, SavedSettings: map[string]string{"boot_order": "network"}}
				})
			})
			h.act(t, compute.Act{Action: compute.Delete})
			h.work(t)
			if !slices.Equal(w.did, c.want) {
				t.Errorf("it did %v, want %v", w.did, c.want)
			}
			if len(c.want) > 1 && (w.domain.Rescue != nil || w.domain.Restore["boot_order"] != "network") {
				t.Errorf("put back %+v", w.domain.Spec)
			}
			if s, err := h.store.Servers().Get(t.Context(), nil, h.server); err == nil && s.State != compute.Deleted {
				t.Errorf("it is %s", s.State)
			}
		})
	}
}

// roamer has all guests on other hosts than their rows say.
type roamer struct{ *witness }

func (roamer) Guests(context.Context) ([]compute.Guest, error) { return nil, nil }

func (r roamer) Guest(ctx context.Context, id string) (*compute.Guest, error) {
	all, err := r.witness.Guests(ctx)
	i := slices.IndexFunc(all, func(g compute.Guest) bool { return g.ID == id })
	if err != nil || i < 0 {
		return nil, problem.NotFoundf("there is no guest %s", id)
	}
	return &all[i], nil
}

// TestMovedGuestsAreLookedAt where they are: an instance that was failed over is rescued like any other. One that is nowhere is
// waited for: that it is off, or has no settings, nobody knows.
func TestMovedGuestsAreLookedAt(t *testing.T) {
	t.Parallel()
	h, w := driven(t)
	g := must.Get(h.con.guest(t.Context(), h.server))(t)
	found, err := lookAt(t.Context(), roamer{w}, g)
	if err != nil || found.Guest == nil || found.Guest.ID != h.server {
		t.Errorf("%+v %v", found, err)
	}
	g.server.ID = g.host.ID
	if _, err := lookAt(t.Context(), roamer{w}, g); !problem.Is(err, problem.Unavailable) {
		t.Errorf("one that is nowhere: %v", err)
	}
}
