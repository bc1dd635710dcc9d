package server

import (
	"context"
	"slices"
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

// migrate is a step of a live migration, as a host takes it.
func (h *testHost) migrate(ctx context.Context, o *compute.Order, a *compute.Args) (result compute.Result, err error) {
	switch o.Verb {
	case compute.MigrateBegin:
		result.Cookie, err = h.hv.Begin(ctx, o.ServerID)
	case compute.MigratePrepare:
		result.Cookie, result.Peer, err = h.hv.Prepare(ctx, domainOf(a.Spec), "192.0.2.1", a.Cookie)
	case compute.MigratePerform:
		result.Cookie, err = h.hv.Perform(ctx, o.ServerID, a.Peer, a.Cookie)
	case compute.MigrateFinish:
		result.Cookie, err = h.hv.Finish(ctx, domainOf(a.Spec), a.Cookie, a.Cancel)
	case compute.MigrateConfirm:
		err = h.hv.Confirm(ctx, o.ServerID, a.Cookie, a.Cancel)
	}
	return result, err
}

// migrationWorld is a moveWorld whose first host lives too.
type migrationWorld struct {
	*moveWorld
	t     *testing.T
	twice bool // the guest ran at two hosts at one time
}

func newMigrationWorld(t *testing.T, y moveOptions) *migrationWorld {
	t.Helper()
	l := &migrationWorld{moveWorld: newMoveWorld(t, y), t: t}
	lease := compute.Lease{HostID: l.host.ID, BootID: "boot-1", RenewedAt: time.Now().Add(time.Hour)}
	must.OK(t, l.store.SaveLeases(context.Background(), []compute.Lease{lease}))
	return l
}

// pokeEveryHost has every host carry its orders out, and sees that no two of them run the guest.
func (l *migrationWorld) pokeEveryHost() {
	for _, h := range l.testHosts() {
		h.poke()
		running := 0
		for _, o := range l.testHosts() {
			if g, there := o.hv.State(l.server); there && g.Power == compute.PowerOn {
				running++
			}
		}
		l.twice = l.twice || running > 1
	}
}

func (l *migrationWorld) testHosts() []*testHost { return append([]*testHost{l.testHost}, l.others...) }

func (l *migrationWorld) requestMigration(t *testing.T, w compute.MigrationRequest) {
	t.Helper()
	must.Get(l.services.Moves.Migrate(context.Background(), l.server, w, compute.Who{Admin: true}))(t)
}

// finish runs a conductor until nothing is left to be done on the server and its host.
func (l *migrationWorld) finish(t *testing.T) {
	t.Helper()
	stop := l.conduct(t)
	defer stop()
	l.untilEnded(t, l.pokeEveryHost, compute.Subject(l.server), compute.HostSubject(l.host.ID))
}

// at is the one host that has the guest; it must be the server's.
func (l *migrationWorld) at(t *testing.T) *testHost {
	t.Helper()
	var found []*testHost
	for _, h := range l.testHosts() {
		if _, there := h.hv.State(l.server); there {
			found = append(found, h)
		}
	}
	if len(found) != 1 || found[0].host.ID != l.now(t).HostID || l.twice {
		t.Fatalf("the guest is at %d hosts (twice at one time: %v):\n%s", len(found), l.twice, l.whereabouts(t))
	}
	return found[0]
}

// mute has hosts refuse a verb.
func (l *migrationWorld) mute(h *testHost, verbs ...compute.Verb) {
	h.refuse = func(v compute.Verb, a *compute.Args) error {
		if slices.Contains(verbs, v) && !a.Cancel {
			return problem.Unsupportedf("this host does not %s", v)
		}
		return nil
	}
}

// ways are those in which a server of a living host is moved.
var ways = map[string]struct {
	state compute.VMState
	bent  func(l *migrationWorld)
	kind  compute.MoveKind
	anew  bool
}{
	"live":  {state: compute.Active, kind: compute.LiveMigration},
	"off":   {state: compute.Stopped, kind: compute.Migration},
	"cold":  {state: compute.Active, kind: compute.Migration, anew: true, bent: func(l *migrationWorld) { l.mute(l.testHost, compute.MigrateBegin) }},
	"stuck": {state: compute.Active, kind: compute.Migration, anew: true, bent: func(l *migrationWorld) { l.mute(l.others[0], compute.MigrateFinish) }},
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	for name, c := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newMigrationWorld(t, moveOptions{hostOptions: hostOptions{state: c.state}})
			if c.bent != nil {
				c.bent(l)
			}
			before := l.now(t)
			l.requestMigration(t, compute.MigrationRequest{})
			if now := l.now(t); now.Task != compute.Migrating || now.HostID != before.HostID || now.Epoch != before.Epoch {
				t.Errorf("begun: task %q, host %s, epoch %d", now.Task, now.HostID, now.Epoch)
			}
			l.finish(t)
			home, now, m := l.at(t), l.now(t), l.lastMove(t)
			g, _ := home.hv.State(l.server)
			if home == l.testHost || now.State != c.state || now.Task != compute.NoTask || now.Power != before.Power || now.Epoch <= before.Epoch || now.Fault != nil {
				t.Errorf("moved:\n%s", l.whereabouts(t))
			}
			if m.Kind != c.kind || m.State != compute.MoveCompleted || (m.Words != "") != (name == "cold" || name == "stuck") {
				t.Errorf("move %+v", m)
			}
			if g.Defined.Epoch != now.Epoch || (c.state == compute.Active) != (g.Power == compute.PowerOn) || c.anew != (g.Starts == 1) {
				t.Errorf("guest %+v", g)
			}
			if g.Variables != "enrolled keys" {
				t.Errorf("the guest has the UEFI variables %q at its new host, want those that it had", g.Variables)
			}
		})
	}
}

// Both ways of a server that runs survive: killed at any write, done twice, outdated, failed.
func TestSweepServerMigrate(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"live", "cold"} {
		c := ways[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
				l := newMigrationWorld(t, moveOptions{hostOptions: hostOptions{state: c.state}})
				if c.bent != nil {
					c.bent(l)
				}
				w := l.world(compute.JobMigrate, func(t *testing.T) { l.requestMigration(t, compute.MigrationRequest{}) }, func(t *testing.T) { l.unharmed(t, c.state) })
				w.Poke = l.pokeEveryHost
				w.Picture = func(t *testing.T) string {
					if l.twice {
						t.Error("the guest ran at two hosts at one time")
					}
					return l.whereabouts(t)
				}
				return w
			})
		})
	}
}

// unharmed checks what holds after a failure: the server is where its row says, as it was; or it was handed over, and is in error there
// or runs; nobody else runs it, and every place is counted once.
func (l *migrationWorld) unharmed(t *testing.T, state compute.VMState) {
	t.Helper()
	now, m := l.now(t), l.lastMove(t)
	if now.Task != compute.NoTask || m.Going() || l.twice {
		t.Errorf("task %q, move %s, twice %v", now.Task, m.State, l.twice)
	}
	back := now.HostID == l.host.ID
	if back && (now.State != state || m.State == compute.MoveDone) || !back && m.State != compute.MoveDone && m.State != compute.MoveCompleted {
		t.Errorf("after the failure:\n%s", l.whereabouts(t))
	}
	used := 0
	for _, h := range l.testHosts() {
		row := must.Get(l.store.Hosts().Get(context.Background(), nil, h.host.ID))(t)
		used += row.UsedVCPUs
		g, there := h.hv.State(l.server)
		if there && g.Power == compute.PowerOn && h.host.ID != now.HostID {
			t.Errorf("it runs at host %s:\n%s", row.Name, l.whereabouts(t))
		}
		if back && h == l.testHost && (!there || (g.Power == compute.PowerOn) != (state == compute.Active) || g.Starts > 1) {
			t.Errorf("at the source: %+v", g)
		}
	}
	if used != 1 {
		t.Errorf("%d places are taken:\n%s", used, l.whereabouts(t))
	}
	l.spotless(t)
}

// A server in rescue moves in its rescue: live with its session untouched, off with its rescue system begun and unlocked anew.
func TestMigrateInRescue(t *testing.T) {
	t.Parallel()
	for name, live := range map[string]bool{"live": true, "off": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newMigrationWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
			startRescue(t, l.testHost, false)
			l.finish(t)
			if !live {
				l.mute(l.testHost, compute.MigrateBegin)
			}
			before := l.now(t)
			l.requestMigration(t, compute.MigrationRequest{})
			l.finish(t)
			home, now := l.at(t), l.now(t)
			g, _ := home.hv.State(l.server)
			if now.State != compute.Rescued || now.Rescue == nil || now.Rescue.State != rescue.Ready || now.Rescue.Fingerprint != before.Rescue.Fingerprint {
				t.Errorf("session:\n%s", l.whereabouts(t))
			}
			if g.Runs == nil || g.Runs.Rescue == nil || g.Defined.Rescue == nil || !home.copies || (home.opened != "") == live {
				t.Errorf("guest:\n%s", l.whereabouts(t))
			}
		})
	}
}

// A drain disables the host, moves what can be moved, and says of the rest why it stays; restored, the host takes its servers home.
func TestDrainAndRestore(t *testing.T) {
	t.Parallel()
	l := newMigrationWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
	ctx, admin := context.Background(), compute.Who{Admin: true, Asker: record.Asker{User: "ops"}}
	stay := *l.now(t)
	stay.ID, stay.Name, stay.GuestName, stay.Power, stay.Wanted, stay.State, stay.Num = "11111111-1111-4111-8111-111111111111", "paused", "salvor-paused", compute.PowerPaused, compute.PowerPaused, compute.Paused, 0
	l.tx(t, func(tx job.Tx) error { return l.store.Servers().Insert(tx, &stay) })
	p := l.drain(t)
	l.finish(t)
	home := l.at(t)
	p, err := l.services.Plans.Get(ctx, p.ID)
	if err != nil || p.State != compute.PlanPartly || home == l.testHost {
		t.Fatalf("plan %+v: %v", p, err)
	}
	for _, i := range p.Items {
		if (i.ServerID == stay.ID) == (i.Problem == "") {
			t.Errorf("item %+v", i)
		}
	}
	h, err := l.services.Hosts.Host(ctx, l.host.ID)
	if err != nil || !h.Disabled || h.DisabledReason != "drained by ops" {
		t.Errorf("host %+v: %v", h, err)
	}
	if h, err = l.services.Plans.Restore(ctx, l.host.ID, admin); err != nil || h.Disabled || h.DisabledReason != "" {
		t.Fatalf("restored %+v: %v", h, err)
	}
	if p, err = l.services.Plans.BringHome(ctx, l.host.ID, admin); err != nil || len(p.Items) != 1 || p.Items[0].ServerID != l.server || !p.Home() {
		t.Fatalf("home %+v: %v", p, err)
	}
	l.finish(t)
	if home := l.at(t); home != l.testHost {
		t.Errorf("not at home:\n%s", l.whereabouts(t))
	}
}

// A drained host that still has a server is no empty host, whatever kept the server there.
func TestDrainLeavesOneBehind(t *testing.T) {
	t.Parallel()
	l := newMigrationWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Stopped}, lone: true})
	ctx := context.Background()
	p, err := l.services.Plans.Drain(ctx, l.host.ID, compute.Who{Admin: true})
	if err != nil {
		t.Fatal(err)
	}
	l.finish(t)
	if p, err = l.services.Plans.Get(ctx, p.ID); err != nil || p.State != compute.PlanPartly || p.Items[0].Disposition != compute.Cannot || p.Home() {
		t.Errorf("plan %+v: %v", p, err)
	}
}

// A planned move gives way to the evacuation of its source, which died before it handed the server over.
func TestMigrationYields(t *testing.T) {
	t.Parallel()
	l := newMigrationWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
	l.prepares(t)
	l.renew(t)
	l.fence(t)
	l.evacuate(t)
	l.workAll(t)
	used := 0
	for _, h := range l.others {
		row := must.Get(l.store.Hosts().Get(context.Background(), nil, h.host.ID))(t)
		used += row.UsedVCPUs
	}
	l.livesElsewhere(t, true)
	if used != 1 {
		t.Errorf("places:\n%s", l.whereabouts(t))
	}
}

// prepares wishes a move, and has a conductor work on it until the source is asked for something.
func (l *migrationWorld) prepares(t *testing.T) {
	t.Helper()
	l.requestMigration(t, compute.MigrationRequest{})
	stop := l.conduct(t)
	defer stop()
	fixture.PollActing(t, "the source is asked for something", l.pokeAll, func() bool { return l.lastMove(t).State == compute.MovePreparing && l.asked(t) })
}

// asked tells whether the source has an order.
func (l *migrationWorld) asked(t *testing.T) bool {
	t.Helper()
	open := must.Get(l.store.HostsWithOrders(context.Background()))(t)
	return slices.Contains(open, l.host.ID)
}

// A deletion goes before a planned move that waits: the place is given back, and the destination is told to throw away what came.
func TestMigrationGivesWayToDeletion(t *testing.T) {
	t.Parallel()
	l := newMigrationWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
	l.prepares(t)
	l.act(t, compute.Act{Action: compute.Delete})
	l.finish(t)
	if now := l.now(t); now.State != compute.Deleted {
		t.Errorf("server %s, task %q", now.State, now.Task)
	}
	for _, h := range l.testHosts() {
		row, err := l.store.Hosts().Get(context.Background(), nil, h.host.ID)
		if err != nil || row.UsedVCPUs != 0 {
			t.Errorf("host %s: %d places taken: %v", row.Name, row.UsedVCPUs, err)
		}
	}
	owed, err := l.services.Moves.List(context.Background(), compute.MoveFilter{ServerID: l.server, Uncleaned: true}, record.Page{})
	if err != nil || len(owed) != 1 || owed[0].SourceID == l.host.ID || owed[0].Clean != compute.CleanGuest {
		t.Errorf("to be cleaned: %+v: %v", owed, err)
	}
}
