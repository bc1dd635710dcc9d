package node

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"salvor/conductor/conductortest"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/metal"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/must"
)

// Every operation survives: crashes between any two writes, repeated actions, stale
// copies; and what fails ends in a named state, unlocked.

func TestSweepRescue(t *testing.T) {
	t.Parallel()
	args := metal.ProvisionArgs{RescuePassword: secret.New("let me in"), RescueKeys: []string{benchHostKey}}
	conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
		b := newBench(t, metal.Active)
		return b.world("rescue", func(t *testing.T) { must.OK(t, b.provision(metal.ToRescue, args)) }, func(t *testing.T) {
			n := b.noSecretLeft(t)
			if n.ProvisionState != metal.RescueFailed || n.LastError == "" {
				t.Errorf("state %s, error %q", n.ProvisionState, n.LastError)
			}
			if n.Plan != nil {
				t.Error("a boot plan is left")
			}
			if n.Rescue == nil || n.Rescue.SavedKnown && n.Rescue.Saved != (rescue.Boot{Device: "disk", Persistent: true}) {
				t.Errorf("the saved boot is lost: %+v", n.Rescue)
			}
			if b.agentUp || b.running == "ramdisk" || !b.networks["tenant"] || b.networks["rescuing"] || b.media != "" {
				t.Errorf("machine not put back: %s", b.picture(t))
			}
		})
	})
}

func TestSweepUnrescue(t *testing.T) {
	t.Parallel()
	conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
		b := newBench(t, metal.Rescue)
		b.running, b.device, b.credential = "ramdisk", rescue.Boot{}, "$5$x"
		change(t, b, func(n *metal.Node) {
			n.Rescue = &rescue.Session{SavedKnown: true, Saved: rescue.Boot{Device: "disk", Persistent: true}}
		})
		return b.world("unrescue", func(t *testing.T) { b.start(t, metal.Unrescue) }, func(t *testing.T) {
			n := b.noSecretLeft(t)
			if n.ProvisionState != metal.UnrescueFailed && n.ProvisionState != metal.Active {
				t.Errorf("state %s", n.ProvisionState)
			}
			if n.LastError == "" {
				t.Error("no word of what failed")
			}
			if n.Rescue == nil {
				t.Error("the session is lost: nobody knows the saved boot any more")
			}
		})
	})
}

// sweptOperations are the kinds of operations whose failure leaves no more than a state and an error.
var sweptOperations = []struct {
	kind   job.Kind
	from   metal.State
	verb   metal.Verb
	failed metal.State
}{
	{"manage", metal.Enroll, metal.Manage, metal.Enroll},
	{"provide", metal.Manageable, metal.Provide, metal.CleanFailed},
	{"clean", metal.Manageable, metal.Clean, metal.CleanFailed},
	{"adopt", metal.Manageable, metal.Adopt, metal.AdoptFailed},
	{"inspect", metal.Manageable, metal.Inspect, metal.InspectFailed},
	{"deploy", metal.Available, metal.Deploy, metal.DeployFailed},
	{"delete", metal.Active, metal.Delete, metal.Error},
}

// TestEveryOperationIsSwept: each kind of operation has a row of sweptOperations or a sweep of its own.
func TestEveryOperationIsSwept(t *testing.T) {
	swept := map[job.Kind]bool{"rescue": true, "unrescue": true, "service": true} // TestSweepRescue, TestSweepUnrescue, TestSweepRamdisk
	for _, c := range sweptOperations {
		swept[c.kind] = true
	}
	for _, o := range metal.Operations {
		if !swept[o.Kind] {
			t.Errorf("no sweep covers the operation %s", o.Kind)
		}
	}
}

func TestSweepOthers(t *testing.T) {
	t.Parallel()
	for _, c := range sweptOperations {
		t.Run(string(c.kind), func(t *testing.T) {
			conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
				b := newBench(t, c.from)
				return b.world(c.kind, func(t *testing.T) { b.start(t, c.verb) }, func(t *testing.T) {
					n := b.noSecretLeft(t)
					if n.ProvisionState != c.failed || n.LastError == "" {
						t.Errorf("state %s, error %q; want %s", n.ProvisionState, n.LastError, c.failed)
					}
				})
			})
		})
	}
}

func TestSweepPower(t *testing.T) {
	t.Parallel()
	for _, target := range []metal.PowerTarget{metal.TurnOff, metal.Reboot, metal.SoftReboot} {
		t.Run(string(target), func(t *testing.T) {
			conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
				b := newBench(t, metal.Active)
				return b.world("power", func(t *testing.T) {
					must.OK(t, b.nodes.SetPower(context.Background(), b.node, target, time.Minute, record.Asker{}))
				}, func(t *testing.T) {
					if n := b.noSecretLeft(t); n.TargetPower != "" || n.LastError == "" {
						t.Errorf("target %q, error %q", n.TargetPower, n.LastError)
					}
				})
			})
		})
	}
}

// TestSweepPowerInRescueWait: a command of a user reaches a machine whose rescue waits for its ramdisk. However the command is disturbed, the
// rescue goes on, and the machine never boots its own system.
func TestSweepPowerInRescueWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		target        metal.PowerTarget
		neverSwitched bool // disable_power_off
	}{
		{metal.TurnOn, false}, {metal.TurnOff, false}, {metal.SoftOff, false}, {metal.Reboot, false}, {metal.SoftReboot, false}, {metal.Reboot, true},
	} {
		t.Run(fmt.Sprintf("%s neverSwitched=%v", c.target, c.neverSwitched), func(t *testing.T) {
			conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
				b := newBench(t, metal.Active)
				b.bootsOnce = true
				change(t, b, func(n *metal.Node) { n.DisablePowerOff = c.neverSwitched })
				stop := b.run(t)
				must.OK(t, b.ask(t, metal.ToRescue))
				b.until(t, metal.RescueWait)
				stop()
				booted := b.systemOn
				check := func(t *testing.T) {
					n := b.noSecretLeft(t)
					if n.ProvisionState != metal.Rescue || n.TargetPower != "" || b.power != metal.PowerOn || b.running != "ramdisk" || b.systemOn != booted {
						t.Errorf("state %s, power %s to %q, runs %q, its own system booted %d times amid the rescue; want rescue, on, the ramdisk, 0",
							n.ProvisionState, b.power, n.TargetPower, b.running, b.systemOn-booted)
					}
				}
				w := b.world("power", func(t *testing.T) {
					must.OK(t, b.nodes.SetPower(context.Background(), b.node, c.target, time.Minute, record.Asker{}))
				}, check)
				w.Poke = func() { b.pokeAfter(t, "power") }
				w.Picture = func(t *testing.T) string { check(t); return b.picture(t) }
				return w
			})
		})
	}
}

// pokeAfter plays the outside once no job of the kind is open. Power sync looks at a machine that is off, a user switches a machine on that was
// switched off for good, and the agent of a machine that is on speaks.
func (b *bench) pokeAfter(t *testing.T, kind job.Kind) {
	var open []job.Job
	must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) (err error) {
		open, err = b.store.Unended(tx, job.Node(b.node))
		return err
	}))
	if slices.ContainsFunc(open, func(j job.Job) bool { return j.Kind == kind }) {
		return
	}
	b.mu.Lock()
	off := b.power == metal.PowerOff
	b.mu.Unlock()
	switch {
	case off && b.stored(t).PowerState == metal.PowerOff:
		must.OK(t, b.nodes.SetPower(context.Background(), b.node, metal.TurnOn, 0, record.Asker{}))
	case off:
		b.con.syncOnce(context.Background(), everyNode)
	default:
		b.poke()
	}
}

func change(t *testing.T, b *bench, fn func(*metal.Node)) {
	t.Helper()
	must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error { return b.nodes.Edit(context.Background(), tx, b.node, fn) }))
}
