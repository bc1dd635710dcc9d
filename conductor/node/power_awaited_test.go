package node

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/test/fixture"
	"salvor/test/must"
)

// busyOnce is a boot interface whose BMC is busy at the first preparation of a ramdisk.
type busyOnce struct {
	*bench
	refused *atomic.Bool
}

func (b busyOnce) PrepareRamdisk(ctx context.Context, n *metal.Node) error {
	if !b.refused.Swap(true) {
		return problem.Unavailablef("the BMC is busy")
	}
	return b.bench.PrepareRamdisk(ctx, n)
}

// TestBusyBMCBootsNoOwnSystem: the BMC of a machine that is never switched off is busy when its awaited ramdisk is prepared for a reboot. The
// next try prepares the ramdisk of the same boot before it restarts the machine, which would else start its own system.
func TestBusyBMCBootsNoOwnSystem(t *testing.T) {
	t.Parallel()
	for _, target := range []metal.PowerTarget{metal.Reboot, metal.SoftReboot} {
		b := newBench(t, metal.Active)
		b.bootsOnce = true
		change(t, b, func(n *metal.Node) { n.DisablePowerOff = true })
		b.run(t)
		must.OK(t, b.ask(t, metal.ToRescue))
		former := b.until(t, metal.RescueWait)
		busy := busyOnce{b, &atomic.Bool{}}
		b.con.drivers["bench"].Boot["bench"] = busy
		must.OK(t, b.nodes.SetPower(t.Context(), b.node, target, 0, record.Asker{}))
		n := b.until(t, metal.RescueWait)
		b.mu.Lock()
		running, device := b.running, b.device.Device
		b.mu.Unlock()
		if !busy.refused.Load() || n.BootNumber != former.BootNumber+1 || n.LastError != "" {
			t.Fatalf("%s: the BMC was busy: %v, boot %d after %d, error %q; want one new boot", target, busy.refused.Load(), n.BootNumber, former.BootNumber, n.LastError)
		}
		// The bench's soft restart restarts nothing; what the next start of the machine boots counts.
		if target == metal.Reboot && running != "ramdisk" || target == metal.SoftReboot && device != "cdrom" {
			t.Errorf("%s: the machine runs %q and boots %q next, want the ramdisk", target, running, device)
		}
	}
}

// refusingOnce is the power interface of a machine whose BMC refuses the first restart, or leaves it without an answer.
type refusingOnce struct {
	*bench
	refusal error
	asked   *atomic.Bool
}

func (r refusingOnce) Restart(ctx context.Context, n *metal.Node) error {
	if !r.asked.Swap(true) {
		return r.refusal
	}
	return r.bench.Restart(ctx, n)
}

// TestRefusedRestartIsGivenAgain: a restart that the BMC has surely not taken is given again; one that it may have taken is not.
func TestRefusedRestartIsGivenAgain(t *testing.T) {
	t.Parallel()
	busy := problem.Unavailablef("the BMC is busy")
	for _, c := range []struct {
		name     string
		refusal  error
		restarts int
	}{{"surely not taken", driver.NotTaken(busy), 1}, {"perhaps taken", busy, 0}} {
		b := newBench(t, metal.Active)
		change(t, b, func(n *metal.Node) { n.DisablePowerOff = true })
		b.con.drivers["bench"].Power["bench"] = refusingOnce{b, c.refusal, &atomic.Bool{}}
		b.run(t)
		must.OK(t, b.nodes.SetPower(t.Context(), b.node, metal.Reboot, 0, record.Asker{}))
		if n := b.ends(t); n.PowerState != metal.PowerOn || n.LastError != "" || b.gear.restarts != c.restarts {
			t.Errorf("a restart that was %s: power %q, %d further restarts, error %q; want %q, %d, none", c.name, n.PowerState, b.gear.restarts, n.LastError, metal.PowerOn, c.restarts)
		}
	}
}

// plainPower is a power interface that can neither restart a machine nor ask its system to.
type plainPower struct{ driver.Power }

// TestPowerCommandThatCannotBeCarriedOut: a reboot that the driver cannot do leaves the awaited boot of the ramdisk as it is, so that its
// agent is still known.
func TestPowerCommandThatCannotBeCarriedOut(t *testing.T) {
	t.Parallel()
	for _, target := range []metal.PowerTarget{metal.Reboot, metal.SoftReboot} {
		b := newBench(t, metal.Active)
		b.bootsOnce = true
		b.run(t)
		must.OK(t, b.ask(t, metal.ToRescue))
		former := b.until(t, metal.RescueWait)
		change(t, b, func(n *metal.Node) { n.DisablePowerOff = true })
		b.con.drivers["bench"].Power["bench"] = plainPower{b}
		must.OK(t, b.nodes.SetPower(t.Context(), b.node, target, 0, record.Asker{}))
		n := b.until(t, metal.RescueWait)
		if n.LastError == "" || n.BootNumber != former.BootNumber {
			t.Fatalf("%s by a driver that cannot restart: error %q, boot %d; want an error, and boot %d", target, n.LastError, n.BootNumber, former.BootNumber)
		}
		b.poke()
		b.until(t, metal.Rescue)
	}
}

// TestMachineFoundOffBootsItsRamdiskAnew: a machine went off while its operation waits for its ramdisk. The boot device counted for the boot
// before, so salvor plans a new boot before it switches the machine on.
func TestMachineFoundOffBootsItsRamdiskAnew(t *testing.T) {
	t.Parallel()
	for _, w := range ramdiskOperations {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			b := workingBench(t, w)
			b.bootsOnce = true
			b.run(t)
			w.ask(t, b)
			var former metal.Node
			fixture.Poll(t, "the operation waits for its ramdisk", func() bool {
				former = *b.stored(t)
				return former.ProvisionState.Info().Phase == metal.WaitsForRamdisk
			})
			for range 2 { // it may happen again
				b.mu.Lock()
				b.power, b.running, b.agentUp = metal.PowerOff, "", false
				b.mu.Unlock()
				b.con.syncOnce(t.Context(), everyNode)
				fixture.Poll(t, "the machine is on again", func() bool {
					b.mu.Lock()
					defer b.mu.Unlock()
					return b.power == metal.PowerOn
				})
				n := b.stored(t)
				b.mu.Lock()
				running := b.running
				b.mu.Unlock()
				if running != "ramdisk" || n.BootNumber <= former.BootNumber {
					t.Fatalf("the machine runs %q by boot %d, before boot %d; want a new boot of the ramdisk", running, n.BootNumber, former.BootNumber)
				}
				former = *n
			}
		})
	}
}

// deafSystem is a machine whose system ignores that it is asked to shut down.
type deafSystem struct{ driver.Power }

func (deafSystem) SoftOff(context.Context, *metal.Node) error { return nil }

// TestSoftPowerOffIsIgnored: a system that does not shut down in time is left on, and the node says what forces it.
func TestSoftPowerOffIsIgnored(t *testing.T) {
	t.Parallel()
	for _, target := range []metal.PowerTarget{metal.SoftOff, metal.SoftReboot} {
		b := newBench(t, metal.Active)
		b.con.drivers["bench"].Power["bench"] = deafSystem{b}
		b.run(t)
		must.OK(t, b.nodes.SetPower(t.Context(), b.node, target, 50*time.Millisecond, record.Asker{}))
		b.ended(t)
		n := b.stored(t)
		b.mu.Lock()
		power := b.power
		b.mu.Unlock()
		if power != metal.PowerOn || n.TargetPower != "" || !strings.Contains(n.LastError, "did not shut down within 50ms; use power off to force it") {
			t.Errorf("%s: power %s, target %q, last error %q; want on, no target, and the command that forces it", target, power, n.TargetPower, n.LastError)
		}
	}
}
