package node

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/fixture"
	"salvor/test/must"
)

// run starts a conductor on the bench until the test ends.
func (b *bench) run(t *testing.T) (stop func()) {
	t.Helper()
	r := must.Get(job.NewRunner(job.Config{
		Store: b.store, Definitions: b.con.Definitions(), Workers: 4, Log: b.con.Log, Die: func(why string) { panic(why) },
		Conductor: job.Conductor{ID: "c", Incarnation: uuid.NewString(), Hostname: "c", Groups: []string{""}, Description: json.RawMessage(`{}`)},
	}))(t)
	must.OK(t, r.Join(context.Background()))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(ctx, 0) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// until waits for a state of the unlocked node.
func (b *bench) until(t *testing.T, want metal.State) *metal.Node {
	t.Helper()
	return b.pokeUntil(t, want, func() {})
}

// pokeUntil is until, and pokes meanwhile.
func (b *bench) pokeUntil(t *testing.T, want metal.State, poke func()) (n *metal.Node) {
	t.Helper()
	fixture.PollActing(t, "the unlocked node is in "+string(want), poke, func() bool {
		n = b.stored(t)
		return n.ProvisionState == want && n.Reservation == ""
	}, b.picture)
	return n
}

func (b *bench) ask(t *testing.T, v metal.Verb) error {
	t.Helper()
	return b.nodes.Provision(context.Background(), b.node, v, string(v), metal.ProvisionArgs{RescuePassword: secret.New("let me in")}, record.Asker{User: "test"})
}

// waiting brings the bench into rescue wait.
func waiting(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, metal.Active)
	b.run(t)
	must.OK(t, b.ask(t, metal.ToRescue))
	b.until(t, metal.RescueWait)
	return b
}

var disk = rescue.Boot{Device: "disk", Persistent: true}

func newSession(saved rescue.Boot) *rescue.Session {
	return &rescue.Session{StartedAt: time.Now(), Saved: saved, SavedKnown: true}
}

func TestAbortLeavesTheNodeOff(t *testing.T) {
	t.Parallel()
	b := waiting(t)
	old, _ := b.store.Node(context.Background(), nil, b.node)
	must.OK(t, b.ask(t, metal.Abort))
	n := b.until(t, metal.RescueFailed)
	if n.PowerState != metal.PowerOff || b.power != metal.PowerOff {
		t.Errorf("power is %s, believed %s; want off", b.power, n.PowerState)
	}
	if !strings.Contains(n.LastError, "aborted") || n.Maintenance {
		t.Errorf("last_error %q, maintenance %v", n.LastError, n.Maintenance)
	}
	if !b.networks["tenant"] || b.networks["rescuing"] || b.media != "" || n.Plan != nil {
		t.Errorf("not put back: %s", b.picture(t))
	}
	err := b.nodes.Heartbeat(context.Background(), b.node, metal.Heartbeat{URL: "http://10.0.0.9:9999", Version: "x", Token: (&metal.Node{ID: b.node, BootNumber: old.BootNumber}).AgentToken(b.key)})
	if !problem.Is(err, problem.NotFound) {
		t.Errorf("the token of the aborted boot still counts: %v", err)
	}
	for _, target := range []metal.PowerTarget{metal.TurnOn, metal.Reboot} {
		err := b.nodes.SetPower(context.Background(), b.node, target, 0, record.Asker{})
		if !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "unrescue") {
			t.Errorf("%s in rescue failed: %v; want a conflict that names unrescue", target, err)
		}
	}
	must.OK(t, b.ask(t, metal.Unrescue))
	if n := b.until(t, metal.Active); n.Rescue != nil || b.running != "system" || b.device != disk {
		t.Errorf("own system not back: %s", b.picture(t))
	}
}

func TestReRescueKeepsTheSavedBoot(t *testing.T) {
	t.Parallel()
	b := waiting(t)
	must.OK(t, b.ask(t, metal.Abort))
	b.until(t, metal.RescueFailed)
	must.OK(t, b.ask(t, metal.ToRescue))
	b.until(t, metal.RescueWait)
	b.poke()
	n := b.until(t, metal.Rescue)
	if n.Rescue == nil || n.Rescue.Saved != disk {
		t.Fatalf("saved boot %+v, want %+v", n.Rescue, disk)
	}
	if b.credential == "" || b.agentUp {
		t.Errorf("rescue without its credential: %s", b.picture(t))
	}
}

func TestDeleteFromRescueWait(t *testing.T) {
	t.Parallel()
	b := waiting(t)
	must.OK(t, b.ask(t, metal.Delete))
	n := b.until(t, metal.Available)
	if n.Rescue != nil || n.Plan != nil || b.media != "" || b.networks["tenant"] || b.networks["rescuing"] {
		t.Errorf("left behind: %s", b.picture(t))
	}
}

func TestRescueTimesOut(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.con.RescueTimeout = time.Second
	b.run(t)
	must.OK(t, b.ask(t, metal.ToRescue))
	n := b.until(t, metal.RescueFailed)
	if !strings.Contains(n.LastError, "Timeout reached while waiting for rescue ramdisk callback") || b.power != metal.PowerOff {
		t.Errorf("last_error %q, power %s", n.LastError, b.power)
	}
}

func TestPowerAndPatchPassWhileWaiting(t *testing.T) {
	t.Parallel()
	b := waiting(t)
	must.OK(t, b.nodes.SetPower(context.Background(), b.node, metal.Reboot, 0, record.Asker{}))
	n := b.until(t, metal.RescueWait)
	if n.PowerState != metal.PowerOn {
		t.Errorf("power %s", n.PowerState)
	}
	b.poke()
	b.until(t, metal.Rescue)
}

// TestPowerCommandBootsTheRamdiskThatIsAwaited: the boot device of a ramdisk counts for one boot, and its token is told once. So a machine that a user
// reboots, or switches off and on, while its rescue waits gets a new boot of the ramdisk. Otherwise it would start its own system, and the rescue would
// wait until its time-out.
func TestPowerCommandBootsTheRamdiskThatIsAwaited(t *testing.T) {
	t.Parallel()
	for name, targets := range map[string][]metal.PowerTarget{
		"reboot": {metal.Reboot}, "soft reboot": {metal.SoftReboot}, "off and on": {metal.TurnOff, metal.TurnOn}, "on though it is on": {metal.TurnOn},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, metal.Active)
			b.bootsOnce = true
			b.run(t)
			must.OK(t, b.ask(t, metal.ToRescue))
			former := b.until(t, metal.RescueWait)
			for _, target := range targets {
				must.OK(t, b.nodes.SetPower(t.Context(), b.node, target, 0, record.Asker{}))
				b.until(t, metal.RescueWait)
			}
			n := b.stored(t)
			b.mu.Lock()
			running := b.running
			b.mu.Unlock()
			if running != "ramdisk" || n.LastError != "" {
				t.Fatalf("after %v: the machine runs %q (%s), want the ramdisk", targets, running, n.LastError)
			}
			if isNew := n.BootNumber > former.BootNumber; isNew != (name != "on though it is on") || n.Plan == nil || n.Plan.BootNumber != n.BootNumber {
				t.Errorf("after %v: boot %d with the plan %+v, before boot %d: a boot that begins anew has a number and a plan of its own", targets, n.BootNumber, n.Plan, former.BootNumber)
			}
			b.poke()
			b.until(t, metal.Rescue)
		})
	}
}

func TestHeartbeatDuringALockIsToldToComeAgain(t *testing.T) {
	t.Parallel()
	b := waiting(t)
	n := must.Get(b.store.Node(context.Background(), nil, b.node))(t)
	lock := &job.Job{Kind: "unknown", Class: job.Command, Subject: job.Node(b.node), Due: time.Now().Add(time.Hour)}
	must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error { return b.store.Insert(tx, lock) }))
	beat := metal.Heartbeat{URL: "http://10.0.0.9:9999", Version: "x", Token: (&metal.Node{ID: b.node, BootNumber: n.BootNumber}).AgentToken(b.key)}
	if err := b.nodes.Heartbeat(context.Background(), b.node, beat); !problem.Is(err, problem.Conflict) {
		t.Errorf("heartbeat of a locked node without agent: %v; want Conflict", err)
	}
}

func TestPasswordGoesOutWithTheFirstLookupOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.con.PasswordInLookup = true
	b.nodes = metal.NewNodes(b.store, b.store, b.key, metal.NewDirectory(b.store, time.Now, 0, 0), metal.Options{RestrictLookup: true, RescuePasswordInLookup: true}, time.Now)
	b.con.Nodes = b.nodes
	b.run(t)
	must.OK(t, b.ask(t, metal.ToRescue))
	b.until(t, metal.RescueWait)
	change(t, b, func(n *metal.Node) { n.ProvisionState = metal.Rescuing })
	if _, err := b.nodes.Lookup(context.Background(), b.node, nil, secret.Value{}, true); !problem.Is(err, problem.Conflict) {
		t.Fatalf("a lookup before the rescue waits: %v; want Conflict, or the hash would be lost", err)
	}
	change(t, b, func(n *metal.Node) { n.ProvisionState = metal.RescueWait })
	first, err := b.nodes.Lookup(context.Background(), "", []string{"52:54:00:00:00:01"}, secret.Value{}, true)
	if err != nil || first.Token.Empty() || !strings.HasPrefix(first.RescueHash.Reveal(), "$5$") {
		t.Fatalf("first lookup: %+v %v", first, err)
	}
	second, err := b.nodes.Lookup(context.Background(), "", []string{"52:54:00:00:00:01"}, secret.Value{}, true)
	if err != nil || !second.Token.Empty() || !second.RescueHash.Empty() {
		t.Fatalf("second lookup tells again: %v", err)
	}
	b.mu.Lock()
	b.agentUp = false // it has ended: it takes no command
	b.mu.Unlock()
	must.OK(t, b.nodes.Heartbeat(context.Background(), b.node, metal.Heartbeat{URL: "http://10.0.0.9:9999", Version: "own", Token: first.Token}))
	b.until(t, metal.Rescue)
	if b.finals != 0 {
		t.Error("the agent was sent a command")
	}
}

func TestAtTheDoor(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	for password, want := range map[string]problem.Kind{"": problem.Invalid, "  ": problem.Invalid, "a\nb": problem.Invalid, strings.Repeat("x", 2000): problem.Invalid} {
		err := b.nodes.Provision(context.Background(), b.node, metal.ToRescue, "rescue", metal.ProvisionArgs{RescuePassword: secret.New(password)}, record.Asker{})
		if problem.KindOf(err) != want {
			t.Errorf("password %q: %v", password, err)
		}
	}
	change(t, b, func(n *metal.Node) { n.Interfaces = map[string]string{"rescue": "none-such"} })
	if err := b.ask(t, metal.ToRescue); !problem.Is(err, problem.Invalid) {
		t.Errorf("no rescue interface: %v", err)
	}
	if n, _ := b.store.Node(context.Background(), nil, b.node); n.ProvisionState != metal.Active || n.Reservation != "" {
		t.Errorf("state changed to %s", n.ProvisionState)
	}
}

// TestFailedRescueShowsThePower: it failed after the machine was turned off and before a ramdisk was booted, so the machine is on again.
func TestFailedRescueShowsThePower(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.refuses["rescuing"] = problem.Invalidf("no such network")
	b.run(t)
	must.OK(t, b.ask(t, metal.ToRescue))
	n := b.until(t, metal.RescueFailed)
	if n.PowerState != metal.PowerOn || b.power != metal.PowerOn {
		t.Errorf("power is %s and shown as %s", b.power, n.PowerState)
	}
}

func TestFailedUnrescueShowsThePower(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Rescue)
	b.refuses["tenant"] = problem.Invalidf("no such network")
	b.run(t)
	must.OK(t, b.ask(t, metal.Unrescue))
	if n := b.until(t, metal.UnrescueFailed); n.PowerState != metal.PowerOff {
		t.Errorf("power is %s and shown as %s", b.power, n.PowerState)
	}
}

// TestMaintenanceHoldsARescue: a ramdisk that calls meanwhile is heard when maintenance ends.
func TestMaintenanceHoldsARescue(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.con.GoOnInMaintenance = true
	b.run(t)
	must.OK(t, b.ask(t, metal.ToRescue))
	b.until(t, metal.RescueWait)
	ctx := context.Background()
	must.OK(t, b.nodes.SetMaintenance(ctx, b.node, true, "hands off", record.Asker{}))
	b.untilWaits(t, metal.EndOfMaintenance)
	b.poke()
	b.untilWaits(t, metal.EndOfMaintenance)
	must.OK(t, b.nodes.SetMaintenance(ctx, b.node, false, "", record.Asker{}))
	b.until(t, metal.Rescue)
}

func TestMaintenanceEndsARescueWhereNotAllowed(t *testing.T) {
	t.Parallel()
	b := waiting(t)
	must.OK(t, b.nodes.SetMaintenance(context.Background(), b.node, true, "hands off", record.Asker{}))
	if n := b.until(t, metal.RescueFailed); !strings.Contains(n.LastError, "maintenance") {
		t.Errorf("last_error %q", n.LastError)
	}
}

// untilWaits polls until the operation waits for what is named.
func (b *bench) untilWaits(t *testing.T, what string) {
	t.Helper()
	fixture.Poll(t, "one job waits without a bound for "+what, func() bool {
		open := b.open(t)
		return len(open) == 1 && open[0].State == job.Waiting && open[0].WaitFor == what && open[0].Deadline == 0
	}, b.picture)
}

// TestArgumentsHoldNoConfigDrive: it is full of the user's secrets.
func TestArgumentsHoldNoConfigDrive(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Available)
	err := b.nodes.Provision(context.Background(), b.node, metal.Deploy, "active", metal.ProvisionArgs{ConfigDrive: json.RawMessage(`"hush"`)}, record.Asker{})
	if err != nil {
		t.Fatal(err)
	}
	if open := b.open(t); strings.Contains(string(open[0].Args), "hush") {
		t.Errorf("args %s", open[0].Args)
	}
}

// TestPowerWithoutDriver: an order for a machine that nobody can give it to fails in words.
func TestPowerWithoutDriver(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	change(t, b, func(n *metal.Node) { n.Interfaces = map[string]string{"power": "none-such"} })
	b.run(t)
	must.OK(t, b.nodes.SetPower(context.Background(), b.node, metal.TurnOff, 0, record.Asker{}))
	if n := b.until(t, metal.Active); !strings.Contains(n.LastError, "no power interface") {
		t.Errorf("last_error %q", n.LastError)
	}
}

// TestFaultyAgentEndsTheRescue: an agent that answers the last command with errors of its own locks the node for some
// seconds, not until all tries are over; one that only stumbles is given the command again.
func TestFaultyAgentEndsTheRescue(t *testing.T) {
	t.Parallel()
	for faults, want := range map[int]metal.State{1: metal.Rescue, 1000: metal.RescueFailed} {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			b := waiting(t)
			b.mu.Lock()
			b.agentFaults = faults
			b.mu.Unlock()
			b.poke()
			n := b.until(t, want)
			if want == metal.RescueFailed && !strings.Contains(n.LastError, "500") {
				t.Errorf("last_error %q", n.LastError)
			}
		})
	}
}

// TestHeartbeatWithoutURLIsNotTheAgent: nothing can be sent there, so the rescue goes on waiting.
func TestHeartbeatWithoutURLIsNotTheAgent(t *testing.T) {
	t.Parallel()
	b := waiting(t)
	n := must.Get(b.store.Node(context.Background(), nil, b.node))(t)
	before := b.unended(t)
	beat := metal.Heartbeat{Version: "x", CA: benchCertificate(), Token: (&metal.Node{ID: b.node, BootNumber: n.BootNumber}).AgentToken(b.key)}
	must.OK(t, b.nodes.Heartbeat(context.Background(), b.node, beat))
	// The woken job has looked, and waits again.
	fixture.Poll(t, "the job waits", func() bool {
		now := b.unended(t)
		return len(now) == 1 && now[0].Fence > before[0].Fence && now[0].State == job.Waiting
	}, b.picture)
	b.poke()
	b.until(t, metal.Rescue)
}

func (b *bench) unended(t *testing.T) (jobs []job.Job) {
	t.Helper()
	must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) (err error) {
		jobs, err = b.store.Unended(tx, job.Node(b.node))
		return err
	}))
	return jobs
}
