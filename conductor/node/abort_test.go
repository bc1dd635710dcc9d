package node

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"salvor/conductor/conductortest"
	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/test/fixture"
	"salvor/test/must"
)

// busy brings a bench to a job that asks a BMC in vain.
type busy struct {
	name  string
	from  metal.State
	ask   func(t *testing.T, b *bench)
	state metal.State // after the abort
	// twice: the first abort begins to take the operation back, which asks the silent BMC once more.
	twice bool
}

func asks(v metal.Verb) func(*testing.T, *bench) {
	return func(t *testing.T, b *bench) {
		t.Helper()
		must.OK(t, b.ask(t, v))
	}
}

var busyKinds = []busy{
	{name: "verify", from: metal.Enroll, ask: asks(metal.Manage), state: metal.Enroll},
	{name: "adopt", from: metal.Manageable, ask: asks(metal.Adopt), state: metal.AdoptFailed},
	{name: "inspect", from: metal.Manageable, ask: asks(metal.Inspect), state: metal.InspectFailed},
	{name: "provide", from: metal.Manageable, ask: asks(metal.Provide), state: metal.CleanFailed},
	{name: "deploy", from: metal.Available, ask: asks(metal.Deploy), state: metal.DeployFailed, twice: true},
	{name: "rescuing", from: metal.Active, ask: asks(metal.ToRescue), state: metal.RescueFailed, twice: true},
	{name: "unrescuing", from: metal.Rescue, ask: asks(metal.Unrescue), state: metal.UnrescueFailed, twice: true},
	{name: "servicing", from: metal.Active, ask: func(t *testing.T, b *bench) { b.serve(t) }, state: metal.ServiceFailed, twice: true},
	{name: "deleting", from: metal.Active, ask: asks(metal.Delete), state: metal.Error},
	{name: "power", from: metal.Active, state: metal.Active, ask: func(t *testing.T, b *bench) {
		must.OK(t, b.nodes.SetPower(t.Context(), b.node, metal.TurnOff, 0, record.Asker{}))
	}},
	{name: "boot device", from: metal.Active, state: metal.Active, ask: func(t *testing.T, b *bench) { b.setDevice(t) }},
}

// begin makes a bench, breaks its BMC, and asks for the work.
func (k busy) begin(t *testing.T, breakBMC func(*bench)) *bench {
	t.Helper()
	b := newBench(t, k.from)
	breakBMC(b)
	if k.name == "provide" {
		change(t, b, func(n *metal.Node) {
			n.BootNumber, n.Plan = 1, &metal.BootPlan{Method: metal.BootMedia, Path: "left", BootNumber: 1}
		})
	}
	b.run(t)
	k.ask(t, b)
	return b
}

func (b *bench) setDevice(t *testing.T) {
	t.Helper()
	q := metal.Question{Class: job.Command, Kind: "set boot device", Part: "management", Args: metal.BootDeviceArgs{Boot: rescue.Boot{Device: "pxe"}}}
	must.Get(b.nodes.Ask(t.Context(), b.node, q, record.Asker{}))(t)
}

// inVain waits until the BMC was asked that often.
func (b *bench) inVain(t *testing.T, times int) {
	t.Helper()
	fixture.Poll(t, fmt.Sprintf("the BMC is asked %d times", times), func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.asked >= times
	})
}

// aborted asks for the abort and gives how long the node was locked after it.
func (b *bench) aborted(t *testing.T, k busy) (*metal.Node, time.Duration) {
	t.Helper()
	began := time.Now()
	if err := b.ask(t, metal.Abort); err != nil {
		t.Fatalf("abort: %v", err)
	}
	if k.twice {
		for end := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
			if n := b.stored(t); n.ProvisionState == k.state || time.Now().After(end) {
				break
			}
		}
		if err := b.ask(t, metal.Abort); err != nil && b.stored(t).Reservation != "" {
			t.Fatalf("abort what takes it back: %v", err)
		}
	}
	n := b.until(t, k.state)
	return n, time.Since(began)
}

// TestAbortOfARetry: whatever asks a BMC again and again is ended within 5 s, and the node is free.
func TestAbortOfARetry(t *testing.T) {
	t.Parallel()
	for _, k := range busyKinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			b := k.begin(t, func(b *bench) { b.refuse(problem.Unavailablef("nothing listens there")) })
			b.inVain(t, 3)
			k.twice = false // each undo gets one short try
			n, took := b.aborted(t, k)
			if took > conductortest.AbortWithin {
				t.Errorf("aborted after %s", took)
			} else {
				t.Logf("aborted after %s", took.Round(time.Millisecond))
			}
			if len(b.open(t)) != 0 || n.TargetPower != "" {
				t.Errorf("left: %+v", n)
			}
			if k.name != "boot device" && n.LastError == "" {
				t.Error("last_error tells nothing")
			}
		})
	}
}

// TestAbortOfASilence: an action that hangs in a BMC which takes connections and says nothing is cut off.
func TestAbortOfASilence(t *testing.T) {
	t.Parallel()
	for _, k := range busyKinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			b := k.begin(t, func(b *bench) {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.silent = true
			})
			b.inVain(t, 1)
			if _, took := b.aborted(t, k); took > conductortest.AbortWithin {
				t.Errorf("aborted after %s", took)
			}
		})
	}
}

// TestAbortOfAnUndoLeavesTheMachineIsolated: the second abort frees the node, and what was not proven is marked.
func TestAbortOfAnUndoLeavesTheMachineIsolated(t *testing.T) {
	t.Parallel()
	b := waiting(t)
	former := b.stored(t)
	b.mu.Lock()
	b.silent = true
	b.mu.Unlock()
	n, took := b.aborted(t, busy{state: metal.RescueFailed, twice: true})
	if took > conductortest.AbortWithin {
		t.Errorf("free after %s", took)
	}
	b.isVoid(t, former)
	b.isolated(t, n, `"power on" could not be taken back`)
}

// TestAbortOfAPowerCommandBesideARescue: both are given up, and the machine is not left in its ramdisk on the tenant network.
func TestAbortOfAPowerCommandBesideARescue(t *testing.T) {
	t.Parallel()
	b := waiting(t)
	former := b.stored(t)
	b.refuse(problem.Unavailablef("nothing listens there"))
	must.OK(t, b.nodes.SetPower(t.Context(), b.node, metal.Reboot, 0, record.Asker{}))
	b.inVain(t, 2)
	must.OK(t, b.ask(t, metal.Abort))
	b.refuse(nil)
	n := b.until(t, metal.RescueFailed)
	b.isVoid(t, former)
	if b.power != metal.PowerOff || !b.networks[driver.Tenant] || n.Maintenance {
		t.Errorf("not put back: %s", b.picture(t))
	}
}

// TestAbortOfARescueThatMustStayOn: a machine that must not be switched off goes on running its ramdisk, so it stays isolated.
func TestAbortOfARescueThatMustStayOn(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	change(t, b, func(n *metal.Node) { n.DisablePowerOff = true })
	b.run(t)
	must.OK(t, b.ask(t, metal.ToRescue))
	b.until(t, metal.RescueWait)
	former := b.stored(t)
	must.OK(t, b.ask(t, metal.Abort))
	n := b.until(t, metal.RescueFailed)
	b.isVoid(t, former)
	b.isolated(t, n, "not proven off")
}

// patch changes driver_info as a user does.
func (b *bench) patch(t *testing.T, key, value string) error {
	t.Helper()
	_, err := b.nodes.Update(t.Context(), b.node, record.Asker{}, func(n *metal.Node) error {
		if n.DriverInfo == nil {
			n.DriverInfo = metal.Object{}
		}
		n.DriverInfo[key] = value
		return nil
	})
	return err
}

// TestMendedCredentialsWakeTheJob: what a job needs that tries again can be mended while it does, and it tries at once.
func TestMendedCredentialsWakeTheJob(t *testing.T) {
	t.Parallel()
	for _, k := range busyKinds {
		switch k.name {
		case "adopt", "inspect", "deploy", "unrescuing", "servicing", "deleting":
			continue // as others
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			b := k.begin(t, func(b *bench) { b.refuse(problem.Unavailablef("nothing listens there")) })
			b.inVain(t, 4)
			j := record.Lead(b.open(t))
			if err := b.patch(t, "bench_password", "right"); err != nil {
				t.Fatalf("credentials: %v", err)
			}
			err := b.patch(t, "bench_address", "https://right")
			if j.Advanced() != problem.Is(err, problem.Conflict) || !j.Advanced() && err != nil {
				t.Errorf("address, an action of %s has succeeded: %t: %v", j.Kind, j.Advanced(), err)
			}
			if _, err := b.nodes.Update(t.Context(), b.node, record.Asker{}, func(n *metal.Node) error { n.Description = "x"; return nil }); !problem.Is(err, problem.Conflict) {
				t.Errorf("what mends no BMC: %v; want Conflict", err)
			}
			b.mu.Lock()
			b.broken = nil
			asked := b.asked
			b.mu.Unlock()
			var due time.Time // when it would try again if nobody woke it
			if j := record.Lead(b.open(t)); j != nil {
				due = j.Due
			}
			if err := b.patch(t, "bench_username", "right"); err != nil && b.stored(t).Reservation != "" {
				t.Fatalf("credentials: %v", err)
			}
			began := time.Now()
			for {
				if j := record.Lead(b.open(t)); j == nil || j.Attempt == 0 {
					break
				}
				if time.Since(began) > time.Minute {
					t.Fatalf("not tried again: asked %d times", asked)
				}
				time.Sleep(2 * time.Millisecond)
			}
			if took := time.Since(began); took > 2*time.Second && time.Until(due) < time.Second {
				t.Errorf("tried again after %s", took)
			}
		})
	}
}

// TestMendedAddressBeforeAnyChange: checks that pass without the BMC do not keep the address of a dead one from being mended.
func TestMendedAddressBeforeAnyChange(t *testing.T) {
	t.Parallel()
	for _, k := range busyKinds {
		switch k.name {
		case "rescuing", "unrescuing", "deploy", "servicing":
		default:
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, k.from)
			b.refuse(problem.Unavailablef("nothing listens there"))
			b.run(t)
			k.ask(t, b)
			b.inVain(t, 3)
			if j := record.Lead(b.open(t)); j.Action != "power off" {
				t.Fatalf("at %q", j.Action)
			}
			if err := b.patch(t, "bench_address", "https://right"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestMendedCredentialsPassDuringTheFirstTry: the first try of a job hangs in its BMC. Its login can be mended, not its address, and the
// next try is made at once.
func TestMendedCredentialsPassDuringTheFirstTry(t *testing.T) {
	t.Parallel()
	for _, k := range busyKinds {
		switch k.name {
		case "verify", "power", "rescuing":
		default:
			continue // as others
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			b := k.begin(t, func(b *bench) {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.silent = true
			})
			b.inVain(t, 1)
			if j := record.Lead(b.open(t)); j == nil || j.Attempt != 0 {
				t.Fatalf("not in its first try: %+v", j)
			}
			if err := b.patch(t, "bench_password", "right"); err != nil {
				t.Errorf("credentials: %v", err)
			}
			if err := b.patch(t, "bench_address", "https://right"); !problem.Is(err, problem.Conflict) {
				t.Errorf("address: %v; want Conflict", err)
			}
			must.OK(t, b.ask(t, metal.Abort))
		})
	}
}

// busyMedia is a BMC that cannot insert the medium now, and may later.
type busyMedia struct{ *bench }

func (busyMedia) PrepareRamdisk(context.Context, *metal.Node) error {
	return problem.Unavailablef("the virtual drive is busy")
}

// TestTheAddressOfAChangedMachineStays: once an action of a job has succeeded, its retries go on with the same BMC. Otherwise the first machine
// would be left half changed, and another one would be booted.
func TestTheAddressOfAChangedMachineStays(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.con.drivers["bench"].Boot["bench"] = busyMedia{b}
	b.run(t)
	must.OK(t, b.ask(t, metal.ToRescue))
	for end := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		j := record.Lead(b.open(t))
		if j == nil || time.Now().After(end) {
			t.Fatalf("the rescue does not try again: %+v", j)
		}
		if j.Attempt > 0 {
			break
		}
	}
	if err := b.patch(t, "bench_address", "https://other"); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "of which actions have succeeded") {
		t.Errorf("address: %v", err)
	}
	if err := b.patch(t, "bench_password", "right"); err != nil {
		t.Errorf("credentials: %v", err)
	}
}
