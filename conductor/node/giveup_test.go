package node

import (
	"context"
	"strings"
	"testing"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/test/must"
)

// refuse has the BMC refuse every order from now on; nil: it obeys again.
func (b *bench) refuse(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = err
}

// stored reads the bench's node.
func (b *bench) stored(t *testing.T) *metal.Node {
	t.Helper()
	n := must.Get(b.store.Node(context.Background(), nil, b.node))(t)
	return n
}

// isVoid proves that neither the boot files nor the token of a former boot count any more.
func (b *bench) isVoid(t *testing.T, former *metal.Node) {
	t.Helper()
	n := b.stored(t)
	if n.Plan != nil {
		t.Errorf("the boot files are still served at %s", n.Plan.Path)
	}
	beat := metal.Heartbeat{URL: "https://10.0.0.9:9999", Version: "salvor-agent/1", Token: former.AgentToken(b.key)}
	if err := b.nodes.Heartbeat(context.Background(), b.node, beat); err == nil {
		t.Errorf("in state %q a heartbeat with the former token is taken", n.ProvisionState)
	}
}

// isolated proves that a machine which may run a ramdisk is on no tenant network, marked with a fault that tells every cause.
func (b *bench) isolated(t *testing.T, n *metal.Node, causes ...string) {
	t.Helper()
	b.mu.Lock()
	tenant, running := b.networks[driver.Tenant], b.running
	b.mu.Unlock()
	if running != "ramdisk" || tenant {
		t.Errorf("the machine runs %q, on the tenant network: %t; want an isolated ramdisk", running, tenant)
	}
	if !n.Maintenance || !strings.HasSuffix(n.Fault, "abort failure") {
		t.Errorf("maintenance %t, fault %q; want a fault", n.Maintenance, n.Fault)
	}
	for _, cause := range causes {
		if !strings.Contains(n.MaintenanceReason, cause) {
			t.Errorf("maintenance_reason %q does not tell %q", n.MaintenanceReason, cause)
		}
	}
}

var refusal = problem.Invalidf("the BMC says no: 0xC7")

// TestAbortWhileTheBMCRefuses: the boot is void with the answer to the request, and a machine whose ramdisk could not be stopped stays
// off the tenant network.
func TestAbortWhileTheBMCRefuses(t *testing.T) {
	t.Parallel()
	b := waiting(t)
	former := b.stored(t)
	b.refuse(refusal)
	must.OK(t, b.ask(t, metal.Abort))
	b.isVoid(t, former)
	n := b.until(t, metal.RescueFailed)
	b.isVoid(t, former)
	b.isolated(t, n, `"power on"`, `"prepare the ramdisk"`, `"leave the tenant network"`, "0xC7")
	b.tells(t, `undo power on: failed: the BMC says no: 0xC7`)
	// Once the BMC obeys, the fault is taken back and the machine's own system boots.
	b.refuse(nil)
	must.OK(t, b.nodes.SetMaintenance(t.Context(), b.node, false, "", record.Asker{}))
	must.OK(t, b.ask(t, metal.Unrescue))
	b.until(t, metal.Active)
	if b.running != "system" || b.media != "" || !b.networks[driver.Tenant] || b.networks[driver.Rescuing] {
		t.Errorf("own system not back: %s", b.picture(t))
	}
}

// tells waits for an event with that text.
func (b *bench) tells(t *testing.T, text string) {
	t.Helper()
	events := must.Get(b.store.Events(t.Context(), job.Node(b.node), 0, 1000))(t)
	var all []string
	for _, e := range events {
		if e.Text == text {
			return
		}
		all = append(all, e.Text)
	}
	t.Errorf("no event %q in\n%s", text, strings.Join(all, "\n"))
}

// TestTimeoutWhileTheBMCRefuses: a ramdisk that is not heard in time may run all the same.
func TestTimeoutWhileTheBMCRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.con.RescueTimeout = 10 * time.Second // in it the BMC begins to refuse, also on a busy machine
	b.run(t)
	must.OK(t, b.ask(t, metal.ToRescue))
	b.until(t, metal.RescueWait)
	former := b.stored(t)
	b.refuse(refusal)
	n := b.until(t, metal.RescueFailed)
	b.isVoid(t, former)
	b.isolated(t, n, "0xC7")
}

// TestFailureWhileTheBMCRefuses: the token of a rescue that failed is void before the BMC is asked.
func TestFailureWhileTheBMCRefuses(t *testing.T) {
	t.Parallel()
	b := waiting(t)
	former := b.stored(t)
	b.mu.Lock()
	b.broken, b.agentRefuses = refusal, true
	b.mu.Unlock()
	b.poke()
	n := b.until(t, metal.RescueFailed)
	b.isVoid(t, former)
	b.isolated(t, n, "0xC7")
}

// TestServiceWhileTheBMCRefuses: a service is given up as a rescue is.
func TestServiceWhileTheBMCRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.run(t)
	b.serve(t)
	b.until(t, metal.ServiceWait)
	former := b.stored(t)
	b.refuse(refusal)
	must.OK(t, b.ask(t, metal.Abort))
	b.isVoid(t, former)
	b.isolated(t, b.until(t, metal.ServiceFailed), `"start the ramdisk"`, `"leave the tenant network"`, "0xC7")
	// The next service knows that the former one's ramdisk is still set up there.
	b.refuse(nil)
	must.OK(t, b.nodes.SetMaintenance(t.Context(), b.node, false, "", record.Asker{}))
	b.serve(t)
	b.until(t, metal.ServiceWait)
	must.OK(t, b.ask(t, metal.Abort))
	b.until(t, metal.ServiceFailed)
	if b.media != "" || b.power != metal.PowerOff || !b.networks[driver.Tenant] || b.networks[driver.CleaningNet] {
		t.Errorf("not put back: %s", b.picture(t))
	}
}

// serve asks for a service that needs the ramdisk.
func (b *bench) serve(t *testing.T) {
	t.Helper()
	args := metal.ProvisionArgs{ServiceSteps: []byte(`[{"interface": "deploy", "step": "look", "args": {}, "priority": 10}]`)}
	must.OK(t, b.nodes.Provision(t.Context(), b.node, metal.Service, "service", args, record.Asker{}))
}

// TestTheNextOperationVoidsTheBoot: what ends a half-done rescue voids its boot with the request, while the BMC does not answer yet.
func TestTheNextOperationVoidsTheBoot(t *testing.T) {
	t.Parallel()
	for verb, from := range map[metal.Verb]metal.State{
		metal.Unrescue: metal.RescueFailed, metal.Delete: metal.RescueFailed, metal.ToRescue: metal.RescueFailed, metal.Service: metal.ServiceFailed,
	} {
		t.Run(string(verb), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, from)
			change(t, b, func(n *metal.Node) {
				n.BootNumber, n.Plan = 7, &metal.BootPlan{Method: metal.BootMedia, Path: "secret", BootNumber: 7, MACs: []string{"52:54:00:00:00:01"}}
			})
			former := b.stored(t)
			if verb == metal.Service {
				b.serve(t)
			} else if err := b.ask(t, verb); err != nil {
				t.Fatal(err)
			}
			b.isVoid(t, former) // no conductor runs
		})
	}
}

// TestAnAbortVoidsTheBoot at once, although the conductor of the job that booted the ramdisk may be dead.
func TestAnAbortVoidsTheBoot(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	must.OK(t, b.ask(t, metal.ToRescue))
	change(t, b, func(n *metal.Node) {
		n.BootNumber, n.Plan = 7, &metal.BootPlan{Method: metal.BootMedia, Path: "secret", BootNumber: 7, MACs: []string{"52:54:00:00:00:01"}}
	})
	former := b.stored(t)
	must.OK(t, b.ask(t, metal.Abort))
	b.isVoid(t, former) // no conductor runs
}

// TestGivingUpSparesTheSystemsOwnBoot: the boot plan of a system that is a ramdisk, or lies on volumes, is no rescue's to void.
func TestGivingUpSparesTheSystemsOwnBoot(t *testing.T) {
	t.Parallel()
	for _, own := range []metal.BootPlan{{Persistent: true}, {Persistent: true, Volumes: true}} {
		b := newBench(t, metal.Active)
		own.Method, own.Path, own.BootNumber = metal.BootIPXE, "own", 3
		change(t, b, func(n *metal.Node) { n.BootNumber, n.Plan = 3, &own })
		b.refuse(refusal)
		b.run(t)
		must.OK(t, b.ask(t, metal.ToRescue))
		if n := b.until(t, metal.RescueFailed); n.Plan == nil || n.Plan.Path != "own" || n.BootNumber != 3 {
			t.Errorf("the system's own boot is gone: %+v", n.Plan)
		}
	}
}

// TestAFailedUndoKeepsTheOperatorsWords: why somebody put the node into maintenance is not overwritten.
func TestAFailedUndoKeepsTheOperatorsWords(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.con.GoOnInMaintenance = true
	b.run(t)
	must.OK(t, b.ask(t, metal.ToRescue))
	b.until(t, metal.RescueWait)
	must.OK(t, b.nodes.SetMaintenance(t.Context(), b.node, true, "fan 3 is swapped on Tuesday", record.Asker{}))
	b.untilWaits(t, metal.EndOfMaintenance)
	b.refuse(refusal)
	must.OK(t, b.ask(t, metal.Abort))
	n := b.until(t, metal.RescueFailed)
	if !n.Maintenance || n.MaintenanceReason != "fan 3 is swapped on Tuesday" || n.Fault != "rescue abort failure" {
		t.Errorf("maintenance %t %q, fault %q", n.Maintenance, n.MaintenanceReason, n.Fault)
	}
	if !strings.Contains(n.LastError, `"power on"`) || !strings.Contains(n.LastError, "0xC7") || !strings.Contains(n.LastError, "abort") {
		t.Errorf("last_error %q does not tell what could not be taken back", n.LastError)
	}
}

// TestUnrescueEjectsWhatARescueLeft: media that a failed rescue left in the machine are not left to boot (mutant C22).
func TestUnrescueEjectsWhatARescueLeft(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.RescueFailed)
	b.media, b.running, b.device = "left", "ramdisk", rescue.Boot{Device: "cdrom"}
	change(t, b, func(n *metal.Node) {
		n.BootNumber, n.Plan, n.Rescue = 7, &metal.BootPlan{Method: metal.BootMedia, Path: "left", BootNumber: 7}, newSession(disk)
	})
	former := b.stored(t)
	b.run(t)
	must.OK(t, b.ask(t, metal.Unrescue))
	b.until(t, metal.Active)
	b.isVoid(t, former)
	if b.media != "" || b.running != "system" || b.device != disk {
		t.Errorf("left behind: %s", b.picture(t))
	}
}

// TestRescueAgainWaitsForItsOwnBoot: the contact of a former rescue's agent is no answer of this one's (mutant C06).
func TestRescueAgainWaitsForItsOwnBoot(t *testing.T) {
	t.Parallel()
	b := waiting(t)
	b.poke()
	b.until(t, metal.Rescue)
	must.OK(t, b.ask(t, metal.ToRescue))
	b.until(t, metal.RescueWait)
	b.mu.Lock()
	finals := b.finals
	b.mu.Unlock()
	if finals != 1 {
		t.Fatalf("finalized %d times before the new boot was heard", finals)
	}
	b.poke()
	b.until(t, metal.Rescue)
	if b.finals != 2 || b.credential == "" {
		t.Errorf("finalized %d times: %s", b.finals, b.picture(t))
	}
}

// TestFirstFinalizeRefused: a connection that is refused at the first try has set no credential (mutant C07).
func TestFirstFinalizeRefused(t *testing.T) {
	t.Parallel()
	b := waiting(t)
	b.mu.Lock()
	b.agentLate = 2
	b.mu.Unlock()
	b.poke()
	b.until(t, metal.Rescue)
	if b.credential == "" || b.finals != 1 {
		t.Errorf("rescue without its credential: %s", b.picture(t))
	}
}
