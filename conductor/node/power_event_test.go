package node

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/fixture"
	"salvor/test/must"
)

// novaEvents is a Nova that receives events of power.
type novaEvents struct {
	mu   sync.Mutex
	sent []string
	err  error // of the next event
}

func (f *novaEvents) SendPower(_ context.Context, server string, on bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.err; err != nil {
		f.err = nil
		return err
	}
	f.sent = append(f.sent, fmt.Sprint(server, " ", on))
	return nil
}

func (f *novaEvents) refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *novaEvents) received() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.sent, ", ")
}

// withNova makes a bench whose changes of power are sent.
func withNova(t *testing.T) (*bench, *novaEvents) {
	t.Helper()
	b, f := newBench(t, metal.Active), &novaEvents{}
	b.nodes = metal.NewNodes(b.store, b.store, b.key, metal.NewDirectory(b.store, time.Now, 0, 0), metal.Options{PowerEvents: true}, time.Now)
	b.con.Nodes, b.con.PowerEvents = b.nodes, f
	return b, f
}

// events lists the node's jobs that send its power and have not ended.
func (b *bench) events(t *testing.T) (out []job.Job) {
	t.Helper()
	for _, j := range must.Get(b.store.Unended(nil, job.Node(b.node)))(t) {
		if j.Kind == metal.JobPowerEvent {
			out = append(out, j)
		}
	}
	return out
}

// TestChangesOfPowerAreSentToNova: those that an operation makes and those that power sync finds, once for each change.
func TestChangesOfPowerAreSentToNova(t *testing.T) {
	t.Parallel()
	b, _ := withNova(t)
	edit := func(change func(*metal.Node)) {
		t.Helper()
		must.OK(t, b.store.Do(t.Context(), b.con.edit(t.Context(), b.node, change)))
	}
	edit(func(n *metal.Node) { n.PowerState = metal.PowerOff })
	if got := b.events(t); len(got) != 0 {
		t.Errorf("a node without an instance: %d events", len(got))
	}
	edit(func(n *metal.Node) { n.InstanceUUID = "a-server" })
	edit(func(n *metal.Node) { n.PowerState = metal.PowerOff })
	if got := b.events(t); len(got) != 0 {
		t.Errorf("no change of power: %d events", len(got))
	}
	edit(func(n *metal.Node) { n.PowerState = metal.PowerOn })
	if got := b.events(t); len(got) != 1 || got[0].Class != job.Background || got[0].Locks() {
		t.Fatalf("a change by an operation: %+v", got)
	}
	p := everyNode
	p.Force = false
	n := b.read(t)
	b.judged(t, p, n, powerReading{state: metal.PowerOff, health: n.Health})
	if got := b.events(t); len(got) != 2 {
		t.Errorf("a change that power sync found: %d events", len(got))
	}
	n = b.read(t)
	b.judged(t, p, n, powerReading{state: n.PowerState, health: n.Health})
	if got := b.events(t); len(got) != 2 {
		t.Errorf("a reading without a change: %d events", len(got))
	}
}

// TestPowerEvents: a Nova that is away gets the event later, with the power as it is then. A Nova that refuses it leaves a line in the
// node's history.
func TestPowerEvents(t *testing.T) {
	t.Parallel()
	b, f := withNova(t)
	change(t, b, func(n *metal.Node) { n.InstanceUUID = "a-server" })
	power := func(p metal.Power) {
		t.Helper()
		must.OK(t, b.store.Do(t.Context(), b.con.edit(t.Context(), b.node, func(n *metal.Node) { n.PowerState = p })))
	}
	f.refuse(problem.Unavailablef("no answer"))
	power(metal.PowerOff)
	b.run(t)
	fixture.Poll(t, "Nova is sent the power at the second try", func() bool { return f.received() == "a-server false" && len(b.events(t)) == 0 }, func(t *testing.T) string { return fmt.Sprintf("sent %q, jobs %+v", f.received(), b.events(t)) })

	f.refuse(problem.NotFoundf("no such server"))
	power(metal.PowerOn)
	fixture.Poll(t, "an event of a server that is not Nova's ends", func() bool { return len(b.events(t)) == 0 })
	history := func() string {
		out := ""
		for _, e := range must.Get(b.store.Latest(t.Context(), job.Node(b.node), 100))(t) {
			out += e.Severity + ": " + e.Text + "\n"
		}
		return out
	}
	if got := history(); strings.Contains(got, "Nova") {
		t.Errorf("the history tells of Nova, which has no such server: %s", got)
	}
	f.refuse(problem.Invalidf("refused (403)"))
	power(metal.PowerOff)
	fixture.Poll(t, "a refused event ends", func() bool { return len(b.events(t)) == 0 })
	if got := history(); !strings.Contains(got, "warning: Nova does not know") || !strings.Contains(got, "refused (403)") || !strings.Contains(got, "[nova]send_power_notifications") {
		t.Errorf("the history: %s", got)
	}
	if got := f.received(); got != "a-server false" {
		t.Errorf("sent %q", got)
	}
}

// TestAnOperationSendsNoPower: Nova, whose operation it is, would take its power off for one of the finished server. The power is sent when
// the operation has ended.
func TestAnOperationSendsNoPower(t *testing.T) {
	t.Parallel()
	b, f := withNova(t)
	change(t, b, func(n *metal.Node) { n.InstanceUUID, n.ProvisionState = "a-server", metal.DeployWait })
	change(t, b, func(n *metal.Node) { n.PowerState = metal.PowerOff })
	b.run(t)
	fixture.Poll(t, "the event waits for the operation", func() bool { all := b.events(t); return len(all) == 1 && all[0].WaitFor != "" })
	if got := f.received(); got != "" {
		t.Errorf("sent %q", got)
	}
	must.OK(t, b.store.Do(t.Context(), b.con.edit(t.Context(), b.node, func(n *metal.Node) { n.ProvisionState, n.PowerState = metal.Active, metal.PowerOn })))
	fixture.Poll(t, "the power is sent after the operation", func() bool { return len(b.events(t)) == 0 && strings.HasPrefix(f.received(), "a-server true") })
	if got := f.received(); strings.Contains(got, "false") {
		t.Errorf("sent %q", got)
	}
}

// TestAHeldDatabaseSendsNoPower: what a restored database holds may be old, so Nova is not sent it before the release. The event waits for
// the release without a deadline.
func TestAHeldDatabaseSendsNoPower(t *testing.T) {
	t.Parallel()
	b, f := withNova(t)
	change(t, b, func(n *metal.Node) { n.InstanceUUID = "a-server" })
	change(t, b, func(n *metal.Node) { n.PowerState = metal.PowerOff })
	var held atomic.Bool
	held.Store(true)
	b.con.Permission = &job.Permission{Held: func() error {
		if held.Load() {
			return problem.Unavailablef("the database is held")
		}
		return nil
	}}
	b.run(t)
	var waiting job.Job
	fixture.Poll(t, "the event was tried while the database is held", func() bool {
		all := b.events(t)
		if len(all) == 1 {
			waiting = all[0]
		}
		return waiting.Attempt > 0 || waiting.WaitFor != ""
	})
	if got := f.received(); got != "" {
		t.Errorf("sent %q", got)
	}
	if waiting.Deadline != 0 || waiting.OperationDeadline != 0 {
		t.Errorf("a hold that lasts loses the event: deadlines %d, %d", waiting.Deadline, waiting.OperationDeadline)
	}
	held.Store(false)
	fixture.Poll(t, "the event is sent after the release", func() bool { return f.received() == "a-server false" })
}
