package node

import (
	"context"
	"testing"

	"salvor/driver"
	"salvor/metal"
	"salvor/rescue"
	"salvor/test/must"
)

// keptMedia is a BMC that takes the medium in, fails then, and lets go of nothing.
type keptMedia struct{ badMedia }

func (keptMedia) CleanUpRamdisk(context.Context, *metal.Node) error { return refusal }

// lostBoot is a BMC that ejects the medium and does not take the machine's own boot device.
type lostBoot struct{ badMedia }

func (lostBoot) PrepareInstance(context.Context, *metal.Node, rescue.Boot) error { return refusal }

// TestAMachineThatCannotBePutBackStaysOff: where the medium stays in, or the machine's own boot device is not taken, the machine would
// boot the ramdisk that was given up, or who knows what.
func TestAMachineThatCannotBePutBackStaysOff(t *testing.T) {
	t.Parallel()
	for _, w := range ramdiskOperations {
		for what, boot := range map[string]func(*bench) driver.Boot{
			"medium": func(b *bench) driver.Boot { return keptMedia{badMedia{b}} },
			"device": func(b *bench) driver.Boot { return lostBoot{badMedia{b}} },
		} {
			t.Run(w.name+" "+what, func(t *testing.T) {
				t.Parallel()
				b := workingBench(t, w)
				b.con.drivers["bench"].Boot["bench"] = boot(b)
				booted := b.systemOn
				b.run(t)
				w.ask(t, b)
				n := b.until(t, w.failed)
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.power != metal.PowerOff || b.running != "" || b.systemOn != booted {
					t.Errorf("power %s, runs %q", b.power, b.running)
				}
				if !n.Maintenance || n.Fault == "" {
					t.Errorf("maintenance %v, fault %q: nobody is told", n.Maintenance, n.Fault)
				}
			})
		}
	}
}

// TestARescueAgainThatFailsStartsNothing: the machine was found in the ramdisk of the former rescue, not in its own system.
func TestARescueAgainThatFailsStartsNothing(t *testing.T) {
	t.Parallel()
	b := waiting(t)
	b.poke()
	b.until(t, metal.Rescue)
	b.mu.Lock()
	booted := b.systemOn
	b.refuses[driver.Rescuing] = refusal
	b.mu.Unlock()
	must.OK(t, b.ask(t, metal.ToRescue))
	n := b.until(t, metal.RescueFailed)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.power != metal.PowerOff || b.running != "" || b.systemOn != booted || n.PowerState != metal.PowerOff {
		t.Errorf("power %s, believed %s, runs %q", b.power, n.PowerState, b.running)
	}
	if n.Rescue == nil || n.Rescue.Saved != disk {
		t.Errorf("session %+v", n.Rescue)
	}
}
