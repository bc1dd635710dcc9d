package server

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/conductor/conductortest"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/test/fixture"
	"salvor/test/must"
)

var ops = compute.Who{Admin: true, Asker: record.Asker{User: "ops"}}

// plan drafts a plan for the source.
func (s *moveWorld) plan(t *testing.T, w compute.PlanRequest) *compute.Plan {
	t.Helper()
	w.Host = s.host.ID
	return planned(t, s.pokeAll, func() (*compute.Plan, error) {
		return s.services.Plans.Draft(context.Background(), w, ops)
	})
}

// planned makes a plan while the hosts that it asks answer.
func planned(t *testing.T, poke func(), ask func() (*compute.Plan, error)) *compute.Plan {
	t.Helper()
	done := make(chan struct{})
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for {
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
				poke()
			}
		}
	}()
	p, err := ask()
	close(done)
	<-answered
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (s *moveWorld) runPlan(t *testing.T, p *compute.Plan) {
	t.Helper()
	must.Get(s.services.Plans.Run(context.Background(), p.ID, compute.PlanConsent{}, ops))(t)
}

// TestSweepEvacuate: the plan of a host is worked off, whatever befalls its conductor.
func TestSweepEvacuate(t *testing.T) {
	t.Parallel()
	conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
		s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
		p := s.plan(t, compute.PlanRequest{})
		if len(p.Items) != 1 || p.Items[0].Disposition != compute.KeepDisk || p.Items[0].DestID == "" || !p.OneMore || !strings.Contains(p.Missing, "salvor fence") {
			t.Fatalf("plan %+v", p)
		}
		s.fence(t)
		ended := func(t *testing.T) *compute.Plan {
			s.workAll(t) // what the job left to the moves
			now := must.Get(s.services.Plans.Get(context.Background(), p.ID))(t)
			return now
		}
		w := s.sweepWorld(compute.JobEvacuate, func(t *testing.T) { s.runPlan(t, p) }, func(t *testing.T) {
			if now := ended(t); now.State == compute.PlanRunning || now.EndedAt.IsZero() {
				t.Errorf("plan %+v", now)
			}
		})
		w.Subject = compute.HostSubject(s.host.ID)
		w.Picture = func(t *testing.T) string {
			now := ended(t)
			return fmt.Sprintln(now.State, len(now.Items), now.Items[0].Problem, now.Items[0].MoveID != "") + s.whereabouts(t)
		}
		return w
	})
}

// TestNoReceiptNoMove: neither a plan nor one server goes anywhere before the host is proven to be off.
func TestNoReceiptNoMove(t *testing.T) {
	t.Parallel()
	s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
	ctx := context.Background()
	p := s.plan(t, compute.PlanRequest{})
	if _, err := s.services.Plans.Run(ctx, p.ID, compute.PlanConsent{}, ops); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "salvor fence") {
		t.Errorf("run: %v", err)
	}
	if _, err := s.services.Moves.Evacuate(ctx, s.server, compute.MoveRequest{}, ops); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "salvor fence") {
		t.Errorf("evacuate: %v", err)
	}
	if now := s.now(t); now.HostID != s.host.ID || now.Task != compute.NoTask || now.Epoch != 1 {
		t.Errorf("it was touched: %+v", now)
	}
	if _, err := s.services.Fences.Receipt(ctx, nil, s.host.ID); !problem.Is(err, problem.NotFound) {
		t.Errorf("a dry run fenced the host: %v", err)
	}
}

// TestMoveCompletesWhatWasWanted: what worked on the server when its host died is given up, and comes to its end at the destination.
func TestMoveCompletesWhatWasWanted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hostOptions
		act   compute.Act
		left  func(*compute.Server, *testHost) bool
		words string
	}{
		"stop": {hostOptions{state: compute.Active}, compute.Act{Action: compute.Stop}, func(s *compute.Server, h *testHost) bool {
			return s.State == compute.Stopped && s.Power == compute.PowerOff
		}, ""},
		"start":  {hostOptions{state: compute.Stopped}, compute.Act{Action: compute.Start}, func(s *compute.Server, h *testHost) bool { return s.State == compute.Active }, ""},
		"reboot": {hostOptions{state: compute.Active}, compute.Act{Action: compute.RebootHard}, func(s *compute.Server, h *testHost) bool { return s.State == compute.Active }, ""},
		"pause":  {hostOptions{state: compute.Active}, compute.Act{Action: compute.Pause}, func(s *compute.Server, h *testHost) bool { return s.State == compute.Active }, "paused"},
		"rescue": {hostOptions{state: compute.Active}, compute.Act{Action: compute.Rescue}, func(s *compute.Server, h *testHost) bool {
			return s.State == compute.Rescued && s.Rescue.State == rescue.Ready && s.Rescue.Saved.Power == "on" && h.copies
		}, ""},
		"attach": {hostOptions{state: compute.Active}, compute.Act{Action: compute.AttachVolume}, func(s *compute.Server, h *testHost) bool {
			g, _ := h.hv.State(s.ID)
			return s.State == compute.Active && len(s.Disks) == 3 && len(g.Defined.Disks) == 3
		}, ""},
		"rebuild": {hostOptions{state: compute.Active}, compute.Act{Action: compute.Rebuild}, func(s *compute.Server, h *testHost) bool {
			return s.State == compute.Active && h.disks["vda"] == s.ImageID && h.disks["vdb"] == "aged"
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newMoveWorld(t, moveOptions{hostOptions: c.hostOptions})
			c.act.VolumeID = s.volume
			if c.act.Action == compute.Rebuild {
				c.act.Rebuild = &compute.RebuildArgs{ImageID: s.image}
			}
			s.act(t, c.act)
			s.waits(t) // for the host, which answers no more
			s.fence(t)
			p := s.plan(t, compute.PlanRequest{})
			s.runPlan(t, p)
			s.workAll(t)
			now, m := s.now(t), s.lastMove(t)
			home := s.homeOf(now)
			if home == nil || !c.left(now, home) || now.Task != compute.NoTask || now.Fault != nil || m.State != compute.MoveDone || !strings.Contains(m.Words, c.words) {
				t.Errorf("left as\n%s", s.whereabouts(t))
			}
			if p, err := s.services.Plans.Get(context.Background(), p.ID); err != nil || p.State != compute.PlanDone || p.Items[0].MoveID != m.ID {
				t.Errorf("plan %+v %v", p, err)
			}
			for _, o := range append([]*testHost{s.testHost}, s.others...) {
				if open, err := s.store.OpenOrders(context.Background(), o.host.ID); err != nil || len(open) > 0 {
					t.Errorf("open orders at %s: %v %v", o.host.Name, open, err)
				}
			}
		})
	}
}

func (s *moveWorld) homeOf(row *compute.Server) *testHost {
	for _, o := range s.others {
		if o.host.ID == row.HostID {
			return o
		}
	}
	return nil
}

// TestDeletionNeedsNoDeadHost: it comes to its end, and a record says what the host is to destroy when it comes back.
func TestDeletionNeedsNoDeadHost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *moveWorld){
		"fenced":                func(t *testing.T, s *moveWorld) { s.fence(t) },
		"revoked":               func(t *testing.T, s *moveWorld) { s.say(t, compute.Service{Revoked: new(true)}) },
		"forced down":           func(t *testing.T, s *moveWorld) { s.say(t, compute.Service{ForcedDown: new(true)}) },
		"fenced while it waits": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active, volumes: true}})
			if lose != nil {
				lose(t, s)
			}
			s.act(t, compute.Act{Action: compute.Delete})
			if lose == nil {
				s.waits(t)
				s.fence(t)
			}
			s.workAll(t)
			row, m := s.now(t), s.lastMove(t)
			if row.State != compute.Deleted || m.State != compute.MoveDone || m.Clean != compute.CleanDisk || m.DestID != "" || m.SourceID != s.host.ID || m.Epoch != row.Epoch {
				t.Errorf("left as\n%s", s.whereabouts(t))
			}
			v, err := s.store.Volumes().Get(context.Background(), nil, s.volume)
			want := compute.VolumeAvailable
			if name == "revoked" || name == "forced down" {
				want = compute.VolumeError // nobody knows whether the host still writes to it
			}
			if err != nil || v.Status != want || v.ServerID != "" {
				t.Errorf("volume %+v %v", v, err)
			}
		})
	}
}

func (s *moveWorld) say(t *testing.T, v compute.Service) {
	t.Helper()
	must.Get(s.services.Hosts.SetService(context.Background(), s.host.ID, v, record.Asker{}))(t)
}

// TestDeletionOfWhatIsOnItsWay: the move ends, nothing is left at the destination, and the source is told to destroy what it has.
func TestDeletionOfWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
	s.fence(t)
	s.evacuate(t)
	s.waits(t)
	s.act(t, compute.Act{Action: compute.Delete})
	s.workAll(t)
	row, m := s.now(t), s.lastMove(t)
	if row.State != compute.Deleted || m.State != compute.MoveDone || m.Clean != compute.CleanDisk || len(s.disks) != 0 {
		t.Errorf("left as\n%s", s.whereabouts(t))
	}
}

// TestOneOfTwoEvacuatesWins: the other is told that the server is being moved.
func TestOneOfTwoEvacuatesWins(t *testing.T) {
	t.Parallel()
	s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
	s.fence(t)
	errs := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := s.services.Moves.Evacuate(context.Background(), s.server, compute.MoveRequest{}, ops)
			errs <- err
		}()
	}
	a, b := <-errs, <-errs
	if a != nil {
		a, b = b, a
	}
	if a != nil || !problem.Is(b, problem.Conflict) {
		t.Errorf("%v and %v", a, b)
	}
	s.workAll(t)
	s.livesElsewhere(t, true)
}

// TestAnotherDestination: one that refuses, has another guest of that name or does not see the disk is replaced; a disk that is
// missing where its store is stops the move.
func TestAnotherDestination(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(t *testing.T, s *moveWorld, first *testHost)
		fails string
	}{
		"refuses": {func(t *testing.T, s *moveWorld, first *testHost) {
			first.refuse = func(v compute.Verb, _ *compute.Args) error {
				if v == compute.Prepare {
					return problem.Conflictf("the disk is full")
				}
				return nil
			}
		}, ""},
		"has the guest": {func(t *testing.T, s *moveWorld, first *testHost) {
			g, _ := s.hv.State(s.server)
			first.hv.Put(s.server, g)
		}, ""},
		"the disk is missing": {func(t *testing.T, s *moveWorld, first *testHost) { delete(s.disks, "vda") }, "not proven to be the server's"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
			c.spoil(t, s, s.others[0])
			s.fence(t)
			s.evacuate(t)
			s.workAll(t)
			row, m := s.now(t), s.lastMove(t)
			if c.fails != "" {
				if row.HostID != s.host.ID || row.State != compute.Active || !strings.Contains(m.Problem, c.fails) {
					t.Errorf("left as\n%s", s.whereabouts(t))
				}
				return
			}
			if row.HostID != s.others[1].host.ID || row.State != compute.Active || m.State != compute.MoveDone {
				t.Errorf("left as\n%s", s.whereabouts(t))
			}
		})
	}
}

// TestAReceiptThatIsClosedEndsItsMoves: who has not attached goes nowhere.
func TestAReceiptThatIsClosedEndsItsMoves(t *testing.T) {
	t.Parallel()
	s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
	s.fence(t)
	s.evacuate(t)
	s.waits(t)
	s.tx(t, func(tx job.Tx) error {
		r, err := s.services.Fences.Receipt(context.Background(), tx, s.host.ID)
		if err != nil {
			return err
		}
		r.ClosedAt, r.Closed = time.Now(), "contradicted"
		return s.store.Receipts().Save(tx, r)
	})
	s.workAll(t)
	s.undivided(t)
	if row := s.now(t); row.HostID != s.host.ID {
		t.Errorf("left as\n%s", s.whereabouts(t))
	}
}

// TestADestinationThatDies is replaced as long as nothing was attached there; later the server goes on from there, by a move of its own.
func TestADestinationThatDies(t *testing.T) {
	t.Parallel()
	s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
	s.fence(t)
	first := s.others[0]
	first.refuse = func(v compute.Verb, _ *compute.Args) error {
		if v == compute.Define {
			return problem.Unavailablef("the hypervisor is away")
		}
		return nil
	}
	s.evacuate(t)
	stop := s.conduct(t)
	fixture.PollActing(t, "the move is attached", first.poke, func() bool { return s.lastMove(t).State == compute.MoveAttached })
	stop()
	// The first destination falls silent and is fenced in its turn, the job waits for it.
	must.OK(t, s.store.SaveLeases(context.Background(), []compute.Lease{{HostID: first.host.ID, BootID: "boot-1", Renewals: 1, RenewedAt: time.Now()}}))
	s.tx(t, func(tx job.Tx) error {
		_, err := s.services.Fences.Give(context.Background(), tx, first.host.ID, []compute.Proof{{Evidence: compute.PowerCut, Text: "off"}}, "ops", "")
		return err
	})
	s.waits(t)
	former := s.lastMove(t)
	s.evacuate(t)
	s.others = s.others[1:]
	s.workAll(t)
	now := must.Get(s.services.Moves.Get(context.Background(), former.ID))(t)
	m := s.lastMove(t)
	s.livesElsewhere(t, true)
	if now.State != compute.MoveDone || now.Clean != compute.CleanGuest || !strings.Contains(now.Problem, m.ID) || m.SourceID != first.host.ID || m.State != compute.MoveDone {
		t.Errorf("former %+v, now %+v", now, m)
	}
}
