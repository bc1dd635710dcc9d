package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/conductor/conductortest"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/test/fixture"
	"salvor/test/must"
)

// neighbours adds servers to the source whose disks lie in the shared store; the later they are added, the sooner they go.
func (s *moveWorld) neighbours(t *testing.T, n int) []string {
	t.Helper()
	first, ids := s.now(t), []string{}
	s.tx(t, func(tx job.Tx) error {
		for i := range n {
			more := *first
			more.Record, more.Num = record.Record{ID: uuid.NewString()}, 0
			more.Name, more.GuestName = fmt.Sprint("n", i), fmt.Sprint("salvor-n", i)
			more.Metadata = map[string]string{compute.PriorityKey: fmt.Sprint(i)}
			if err := s.store.Servers().Insert(tx, &more); err != nil {
				return err
			}
			ids = append(ids, more.ID)
		}
		h, err := s.store.Hosts().Get(context.Background(), tx, s.host.ID)
		if err != nil {
			return err
		}
		h.UsedVCPUs, h.UsedRAM, h.UsedDisk = n+1, 512*(n+1), 3*(n+1)
		return s.store.Hosts().Save(tx, h)
	})
	return ids
}

func (s *moveWorld) movesOf(t *testing.T, f compute.MoveFilter) []*compute.Move {
	t.Helper()
	all := must.Get(s.services.Moves.List(context.Background(), f, record.Page{}))(t)
	return all
}

// TestAPlanOfMany: so many at a time, the most important first, each once, and no host is given more than it has.
func TestAPlanOfMany(t *testing.T) {
	t.Parallel()
	s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}, others: 3})
	const n, parallel = 23, 4
	s.neighbours(t, n)
	s.tx(t, func(tx job.Tx) error {
		for _, o := range s.others {
			h, err := s.store.Hosts().Get(context.Background(), tx, o.host.ID)
			if err != nil {
				return err
			}
			if h.Inventory.RAM = 8 * 512; o == s.others[0] {
				h.Inventory.RAM = 7 * 512 // one finds no place
			}
			if err := s.store.Hosts().Save(tx, h); err != nil {
				return err
			}
		}
		return nil
	})
	s.fence(t)
	p := s.plan(t, compute.PlanRequest{Parallel: parallel})
	s.runPlan(t, p)
	stop := s.conduct(t)
	defer stop()
	fixture.Poll(t, "the plan ends", func() bool {
		s.pokeAll()
		if open := s.movesOf(t, compute.MoveFilter{PlanID: p.ID, Open: true}); len(open) > parallel {
			t.Fatalf("%d move at a time", len(open))
		}
		p = must.Get(s.services.Plans.Get(context.Background(), p.ID))(t)
		return p.State != compute.PlanRunning
	}, s.whereabouts)
	if p.State != compute.PlanDone || p.OneMore || p.OneMoreWhy == "" {
		t.Errorf("plan %s, one more %v %q", p.State, p.OneMore, p.OneMoreWhy)
	}
	all := s.movesOf(t, compute.MoveFilter{PlanID: p.ID})
	slices.SortFunc(all, func(a, b *compute.Move) int { return int(a.Num - b.Num) })
	if len(all) != n {
		t.Fatalf("%d moves", len(all))
	}
	for i, m := range all {
		if m.ServerID != p.Items[i].ServerID || m.State != compute.MoveDone {
			t.Errorf("move %d: %+v", i, m)
		}
	}
	if last := p.Items[n]; last.Disposition != compute.Cannot || last.MoveID != "" || !strings.Contains(last.Why, "MiB of RAM free") {
		t.Errorf("who finds no place: %+v", last)
	}
	for i, o := range s.others {
		h := must.Get(s.store.Hosts().Get(context.Background(), nil, o.host.ID))(t)
		if h.UsedRAM != h.Inventory.RAM || i == 0 && h.UsedVCPUs != 7 {
			t.Errorf("host %s has %d of %d MiB in use", h.Name, h.UsedRAM, h.Inventory.RAM)
		}
	}
}

// TestACancelledPlan: what was begun comes to its end, nothing else begins.
func TestACancelledPlan(t *testing.T) {
	t.Parallel()
	s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
	s.neighbours(t, 5)
	s.fence(t)
	ctx := context.Background()
	p := s.plan(t, compute.PlanRequest{Parallel: 2})
	s.runPlan(t, p)
	stop := s.conduct(t)
	fixture.Poll(t, "two moves begin", func() bool { return len(s.movesOf(t, compute.MoveFilter{PlanID: p.ID})) >= 2 })
	must.Get(s.services.Plans.Cancel(ctx, p.ID, ops))(t)
	stop()
	s.workAll(t)
	now, err := s.services.Plans.Get(ctx, p.ID)
	if err != nil || now.State != compute.PlanCancelled || now.EndedAt.IsZero() {
		t.Errorf("plan %+v %v", now, err)
	}
	if all := s.movesOf(t, compute.MoveFilter{PlanID: p.ID}); len(all) > 4 || slices.ContainsFunc(all, func(m *compute.Move) bool { return m.State != compute.MoveDone }) {
		t.Errorf("%d moves: %+v", len(all), all)
	}
	if _, err := s.services.Plans.Run(ctx, p.ID, compute.PlanConsent{}, ops); !problem.Is(err, problem.Conflict) {
		t.Errorf("it runs again: %v", err)
	}
}

// TestConsent: what loses data waits for a word, of which the owner reads; a group that never re-images has the last one.
func TestConsent(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, c := range map[string]struct {
		policy  compute.ReimagePolicy
		wish    compute.PlanRequest
		consent bool // with the run
		moved   bool
		state   compute.PlanState
	}{
		"unasked":        {"", compute.PlanRequest{}, false, false, compute.PlanPartly},
		"with the plan":  {"", compute.PlanRequest{ReimageAll: true}, false, true, compute.PlanDone},
		"with the run":   {"", compute.PlanRequest{}, true, true, compute.PlanDone},
		"always":         {compute.ReimageAlways, compute.PlanRequest{}, false, true, compute.PlanDone},
		"never":          {compute.ReimageNever, compute.PlanRequest{ReimageAll: true}, true, false, compute.PlanDone},
		"never, evacuee": {compute.ReimageNever, compute.PlanRequest{}, false, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}, lone: true})
			if c.policy != "" {
				must.OK(t, s.services.HostGroups.Create(ctx, &compute.HostGroup{Name: "g", Reimage: c.policy}, record.Asker{}))
				s.say(t, compute.Service{Group: new("g")})
			}
			s.fence(t)
			if c.state == "" {
				if _, err := s.services.Moves.Evacuate(ctx, s.server, compute.MoveRequest{}, ops); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "never re-images") {
					t.Errorf("evacuate: %v", err)
				}
				return
			}
			p := s.plan(t, c.wish)
			var consent []string
			if c.consent {
				consent = []string{s.server}
			}
			must.Get(s.services.Plans.Run(ctx, p.ID, compute.PlanConsent{Servers: consent}, ops))(t)
			s.workAll(t)
			row := s.now(t)
			if moved := row.HostID != s.host.ID; moved != c.moved {
				t.Errorf("left as\n%s", s.whereabouts(t))
			}
			if now, err := s.services.Plans.Get(ctx, p.ID); err != nil || now.State != c.state {
				t.Errorf("plan %+v %v", now, err)
			}
			s.reads(t, map[bool]string{true: "its data are lost", false: "it stays"}[c.moved])
		})
	}
}

// reads checks what the owner finds on the server's timeline.
func (s *moveWorld) reads(t *testing.T, text string) {
	t.Helper()
	events := must.Get(s.store.Latest(context.Background(), compute.Subject(s.server), 50))(t)
	if !slices.ContainsFunc(events, func(e job.Event) bool { return strings.Contains(e.Text, text) }) {
		t.Errorf("the owner reads nothing of %q: %+v", text, events)
	}
}

// TestAnUndoAtADeadHostIsNoHindrance: a rescue that failed, and cannot be taken back for its host died, keeps no server from moving.
func TestAnUndoAtADeadHostIsNoHindrance(t *testing.T) {
	t.Parallel()
	s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
	startRescue(t, s.testHost, false)
	s.refuse = func(v compute.Verb, a *compute.Args) error {
		if v == compute.SetPower && a.Power == compute.PowerOn {
			return problem.Conflictf("no memory")
		}
		return nil
	}
	stop := s.conduct(t)
	fixture.PollActing(t, "a job is undone", s.poke, func() bool {
		open := conductortest.OpenJobs(t, s.store, compute.Subject(s.server))
		return len(open) == 1 && open[0].State == job.Undoing
	}, s.whereabouts)
	stop()
	s.fence(t)
	p := s.plan(t, compute.PlanRequest{})
	s.runPlan(t, p)
	s.workAll(t)
	row, m := s.now(t), s.lastMove(t)
	if row.HostID == s.host.ID || row.Task != compute.NoTask || m.State != compute.MoveDone || row.State != compute.Active {
		t.Errorf("left as\n%s", s.whereabouts(t))
	}
	if row.Rescue != nil && row.Rescue.State != rescue.Ready {
		t.Errorf("session %+v", row.Rescue)
	}
}

// TestAHalfMadeServerIsMadeElsewhere: its disks need not be there, and it needs no consent.
func TestAHalfMadeServerIsMadeElsewhere(t *testing.T) {
	t.Parallel()
	for _, lone := range []bool{false, true} {
		t.Run(fmt.Sprint("lone ", lone), func(t *testing.T) {
			t.Parallel()
			s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Stopped}, lone: lone})
			clear(s.disks)
			s.tx(t, func(tx job.Tx) error {
				row, err := s.store.Servers().Get(context.Background(), tx, s.server)
				if err != nil {
					return err
				}
				row.State, row.Task, row.Power, row.Wanted, row.LaunchedAt = compute.Building, compute.Spawning, "", compute.PowerOn, time.Time{}
				if err := s.store.Servers().Save(tx, row); err != nil {
					return err
				}
				return s.store.Insert(tx, &job.Job{Kind: compute.JobCreate, Class: job.Operation, Subject: compute.Subject(s.server), Args: []byte("{}")})
			})
			s.waits(t)
			s.fence(t)
			p := s.plan(t, compute.PlanRequest{})
			s.runPlan(t, p)
			s.workAll(t)
			row := s.now(t)
			if home := s.homeOf(row); home == nil || row.State != compute.Active || home.disks["vda"] != s.image {
				t.Errorf("left as\n%s", s.whereabouts(t))
			}
		})
	}
}
