package node

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/conductor/conductortest"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/fixture"
	"salvor/test/must"
)

var everyNode = PowerSync{Interval: time.Nanosecond, Retries: 0, Force: true, Workers: 2, Groups: []string{""}}

func (b *bench) read(t *testing.T) *metal.Node {
	t.Helper()
	n := must.Get(b.store.Node(context.Background(), nil, b.node))(t)
	return n
}

func (b *bench) open(t *testing.T) []job.Job {
	t.Helper()
	return conductortest.OpenJobs(t, b.store, job.Node(b.node))
}

// TestPowerSyncBootsNoRescuedNode: its own disk would boot.
func TestPowerSyncBootsNoRescuedNode(t *testing.T) {
	t.Parallel()
	for _, state := range []metal.State{metal.Rescue, metal.RescueFailed, metal.UnrescueFailed} {
		b := newBench(t, state)
		b.power = metal.PowerOff
		b.con.syncOnce(context.Background(), everyNode)
		if open := b.open(t); len(open) > 0 {
			t.Errorf("%s: a %s job with %s would turn it on", state, open[0].Kind, open[0].Args)
		}
		if n := b.read(t); n.PowerState != metal.PowerOff || n.TargetPower != "" {
			t.Errorf("%s: power is shown as %q -> %q; the machine is off", state, n.PowerState, n.TargetPower)
		}
	}
}

// TestPowerSyncAssertsWhatIsWanted elsewhere.
func TestPowerSyncAssertsWhatIsWanted(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.power = metal.PowerOff
	b.con.syncOnce(context.Background(), everyNode)
	if open := b.open(t); len(open) != 1 || open[0].Kind != "power" {
		t.Fatalf("jobs %+v; want one that turns the machine on", open)
	}
	b.run(t)
	for end := time.Now().Add(time.Minute); b.read(t).TargetPower != "" && time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
	}
	if n := b.read(t); n.PowerState != metal.PowerOn || b.power != metal.PowerOn {
		t.Errorf("power %s, believed %s", b.power, n.PowerState)
	}
}

// TestPowerSyncPassesNodesThatItCannotRead: they must not stand first in line for ever.
func TestPowerSyncPassesNodesThatItCannotRead(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	delete(b.con.drivers, "bench")
	p := everyNode
	p.Interval = time.Hour
	if n := b.con.syncOnce(context.Background(), p); n != 1 {
		t.Fatalf("%d nodes were due", n)
	}
	if n := b.con.syncOnce(context.Background(), p); n != 0 {
		t.Errorf("%d nodes are due again at once", n)
	}
}

// TestPowerSyncBlamesNoBMCForOurLease: a request that we did not send says nothing about the machine.
func TestPowerSyncBlamesNoBMCForOurLease(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.con.Permission = &job.Permission{Alive: func() error { return problem.Unavailablef("the lease is running out") }}
	b.broken = problem.Unavailablef("request not sent")
	b.con.syncOnce(context.Background(), everyNode)
	if n := b.read(t); n.Maintenance {
		t.Errorf("maintenance: %s", n.MaintenanceReason)
	}
}

func TestPowerFailureComesAndGoes(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.broken = problem.Unavailablef("redfish: 503")
	b.con.syncOnce(context.Background(), everyNode)
	if n := b.read(t); !n.Maintenance || n.Fault != metal.PowerFailure {
		t.Fatalf("maintenance %v, fault %q", n.Maintenance, n.Fault)
	}
	b.broken = nil
	b.con.syncOnce(context.Background(), everyNode)
	if n := b.read(t); n.Maintenance || n.Fault != "" || n.MaintenanceReason != "" {
		t.Errorf("maintenance %v, fault %q: the BMC answers again", n.Maintenance, n.Fault)
	}
}

// TestFailedReadingIsNoReading: the age of the power is that of the last reading that succeeded, and a refusal is no silence.
func TestFailedReadingIsNoReading(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	now := time.Now().UTC().Truncate(time.Second)
	b.con.Now = func() time.Time { return now }
	patient := everyNode
	patient.Retries = 5
	look := func(err error, want metal.BMCState, readAt time.Time) {
		t.Helper()
		b.broken = err
		now = now.Add(time.Minute)
		b.con.syncOnce(context.Background(), patient)
		contact := must.Get(b.store.Contact(context.Background(), nil, b.node))(t)
		if got := contact.BMCState(now.Add(-10 * time.Minute)); got != want || !contact.PowerReadAt.Equal(readAt) {
			t.Errorf("after the error %v: the BMC is %s, want %s; the power was read at %s, want %s", err, got, want, contact.PowerReadAt, readAt)
		}
	}
	read := now.Add(time.Minute)
	b.power = metal.PowerOff // differs from the wanted power, which is a reading all the same
	look(nil, metal.BMCAnswering, read)
	look(problem.Unavailablef("redfish: no route to host"), metal.BMCSilent, read)
	look(problem.Invalidf("the BMC refuses redfish_username or redfish_password"), metal.BMCRefusing, read)
	contact := must.Get(b.store.Contact(context.Background(), nil, b.node))(t)
	if got := contact.BMCState(now.Add(time.Second)); got != metal.BMCUnknown {
		t.Errorf("a failure that is old says %s, want %s", got, metal.BMCUnknown)
	}
}

// TestCleanedByHandGoesBackToManageable, and so does what is retired.
func TestCleanedByHandGoesBackToManageable(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Manageable)
	b.run(t)
	must.OK(t, b.ask(t, metal.Clean))
	b.until(t, metal.Manageable)
	must.OK(t, b.ask(t, metal.Provide))
	b.until(t, metal.Available)
}

func TestRetiredEndsInManageable(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	change(t, b, func(n *metal.Node) { n.Retired = true })
	b.run(t)
	must.OK(t, b.ask(t, metal.Delete))
	b.until(t, metal.Manageable)
}

// TestRebuildLeavesNoRescueBehind: the next rescue saves the boot anew.
func TestRebuildLeavesNoRescueBehind(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Error)
	b.media, b.networks["rescuing"] = "old", true
	change(t, b, func(n *metal.Node) {
		n.Rescue = newSession(disk)
		n.Plan, n.BootNumber = &metal.BootPlan{Path: uuid.NewString(), BootNumber: 1}, 1
	})
	b.run(t)
	must.OK(t, b.ask(t, metal.Rebuild))
	n := b.until(t, metal.Active)
	if n.Rescue != nil || n.Plan != nil || b.media != "" || b.networks["rescuing"] || b.running != "system" {
		t.Errorf("left behind: %s", b.picture(t))
	}
}

// syncOnce reads one batch of nodes that are due, and returns how many there were.
func (c *Conductor) syncOnce(ctx context.Context, p PowerSync) int {
	turns, stop := c.powers().readers(ctx, p)
	defer stop()
	due := c.powers().claimTurns(ctx, p, 2*p.Workers)
	for _, n := range due {
		turns <- n
	}
	return len(due)
}

// TestPowerReadingsAreAsOldAsTheirQuestion: an answer that comes late tells how it was when it was asked for.
func TestPowerReadingsAreAsOldAsTheirQuestion(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.power = metal.PowerOn
	var asked atomic.Int64
	now := b.con.Now
	b.con.Now = func() time.Time { at := now(); asked.Add(1); return at }
	b.mu.Lock() // the BMC does not answer
	done := make(chan int)
	go func() { done <- b.con.syncOnce(context.Background(), everyNode) }()
	fixture.Poll(t, "the BMC is asked", func() bool { return asked.Load() >= 2 })
	time.Sleep(2 * time.Millisecond)
	released := now()
	b.mu.Unlock()
	if n := <-done; n != 1 {
		t.Fatalf("%d nodes were read", n)
	}
	must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error {
		contact, err := b.store.Contact(context.Background(), tx, b.node)
		if err == nil && (contact.PowerReadAt.IsZero() || !contact.PowerReadAt.Before(released)) {
			t.Errorf("what was asked for before %s counts from %s", released, contact.PowerReadAt)
		}
		return err
	}))
}

// TestClaimsGrowWithTheReaders: a claim is a commit, so who reads fast takes many at once, and who waits for slow BMCs few.
func TestClaimsGrowWithTheReaders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		size, got int
		took      time.Duration
		want      int
	}{
		{16, 16, time.Millisecond, 32}, {200, 200, time.Millisecond, 256}, {256, 256, time.Second, 128}, {16, 16, time.Minute, 16}, {64, 5, time.Millisecond, 64},
	} {
		if size := claimNext(c.size, 16, c.got, c.took); size != c.want {
			t.Errorf("after %d of %d that took %s come %d, want %d", c.got, c.size, c.took, size, c.want)
		}
	}
	if size := claimNext(600, 600, 600, time.Millisecond); size != 600 {
		t.Errorf("many readers claim %d, want 600", size)
	}
}
