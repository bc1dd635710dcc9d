// Package drivertest is the contract of package driver as tests: one suite that
// every hardware type's interfaces go through, and a Redfish BMC to go through it
// against. It knows the contract and no driver.
package drivertest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
)

// Machine is one machine, off and with its BMC well, and the interfaces under test.
type Machine struct {
	Node       *metal.Node
	Power      driver.Power
	Management driver.Management
	Boot       driver.Boot // nil: the suite leaves boot out
	// Ramdisk is what Boot is asked to boot.
	Ramdisk driver.Ramdisk
	// On tells the machine's true power. Nil where the record is the machine, as with fake hardware.
	On func() bool
	// Break makes the BMC misbehave; false where this machine cannot. Nil: it never misbehaves.
	Break func(Fault) bool
	// Wrong are changes to the record that an operator must mend.
	Wrong map[string]func(*metal.Node)
	// Secrets may be in no error.
	Secrets []string
	// Parts are what not all hardware has; nil: it is left out.
	Parts *Parts
	// Log has the BMC log an event; nil: it cannot. Overheat has the sensor "Inlet Temp" read 99 °C, which is critical; nil: it has none.
	Log      func(Event)
	Overheat func()
	// Dial connects to a BMC in memory; nil: the BMC is on the network.
	Dial driver.DialFunc
	// Hidden: boot overrides cannot be read (fake hardware, ipmi_sim).
	Hidden bool
}

// Bound is how long an operation may take here, faults and all; tests give it as the deadline.
const Bound = 2 * time.Second

// RunInMemory is Run for a machine whose BMC is in memory: each part has a clock of its own.
func RunInMemory(t *testing.T, rig func(*testing.T) Machine) {
	runContract(func(name string, part func(*testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, part) })
	}, rig)
}

// Run proves the contract. rig makes a fresh machine for each part.
func Run(t *testing.T, rig func(*testing.T) Machine) {
	runContract(func(name string, part func(*testing.T)) { t.Run(name, part) }, rig)
}

// runContract proves the contract; in runs one part.
func runContract(in func(name string, part func(*testing.T)), rig func(*testing.T) Machine) {
	in("power", func(t *testing.T) { testPower(t, rig(t)) })
	in("soft off", func(t *testing.T) { testSoftOff(t, rig(t)) })
	in("boot device", func(t *testing.T) { testBootDevice(t, rig(t)) })
	in("ramdisk", func(t *testing.T) { testRamdisk(t, rig(t)) })
	in("event log", func(t *testing.T) { testEventLog(t, rig(t)) })
	in("health", func(t *testing.T) { testHealth(t, rig(t)) })
	in("parts", func(t *testing.T) { testParts(t, rig(t)) })
	in("gate", func(t *testing.T) { testGate(t, rig(t)) })
	in("wrong record", func(t *testing.T) { testWrong(t, rig(t)) })
	for _, f := range []Fault{Down, Silent, Busy, Rubbish, HangsUp, Elsewhere} {
		in(f.String(), func(t *testing.T) { testFault(t, rig(t), f) })
	}
	in("slow", func(t *testing.T) { testSlow(t, rig(t)) })
	in("liar", func(t *testing.T) { testLiar(t, rig(t)) })
}

// context ends after d. Operations reach a BMC in memory under it, and wait short pauses for another.
func (r Machine) context(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx := WithShortPauses(t.Context())
	if r.Dial != nil {
		ctx = driver.WithDial(t.Context(), r.Dial)
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	t.Cleanup(cancel)
	return ctx
}

// shorter is by how much WithShortPauses shortens a pause.
const shorter = 50

// WithShortPauses has a driver wait a fiftieth of each pause under the returned context. Deadlines stay as they are.
func WithShortPauses(ctx context.Context) context.Context {
	return driver.WithPause(ctx, func(ctx context.Context, d time.Duration) error {
		timer := time.NewTimer(d / shorter)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return nil
		}
	})
}

const generous = 30 * time.Second

func requireNoError(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func testPower(t *testing.T, r Machine) {
	ctx := r.context(t, generous)
	if state, err := r.Power.PowerState(ctx, r.Node); err != nil || (r.On != nil && state != metal.PowerOff) {
		t.Fatalf("power of a machine that is off: %q, %v", state, err)
	}
	// Twice each: what is there already is success.
	for _, want := range []metal.Power{metal.PowerOff, metal.PowerOn, metal.PowerOn, metal.PowerOff, metal.PowerOff} {
		requireNoError(t, string(want), r.Power.SetPower(ctx, r.Node, want))
		if r.On == nil {
			continue
		}
		if r.On() != (want == metal.PowerOn) {
			t.Fatalf("%s returned before it was so", want)
		}
		if state, err := r.Power.PowerState(ctx, r.Node); err != nil || state != want {
			t.Fatalf("after %s: %q, %v", want, state, err)
		}
	}
	if err := r.Power.SetPower(ctx, r.Node, "rebooting"); !problem.Is(err, problem.Unsupported) {
		t.Errorf("power %q: %v, want unsupported", "rebooting", err)
	}
}

func testSoftOff(t *testing.T, r Machine) {
	ctx := r.context(t, generous)
	requireNoError(t, "power on", r.Power.SetPower(ctx, r.Node, metal.PowerOn))
	if err := r.Power.SoftOff(ctx, r.Node); err != nil && !problem.Is(err, problem.Unsupported) {
		t.Fatalf("soft off: %v", err)
	}
}

func testBootDevice(t *testing.T, r Machine) {
	ctx := r.context(t, generous)
	devices, err := r.Management.BootDevices(ctx, r.Node)
	requireNoError(t, "list", err)
	if !slices.Contains(devices, "pxe") || !slices.Contains(devices, "disk") {
		t.Fatalf("boot devices %q lack pxe or disk", devices)
	}
	for _, want := range []rescue.Boot{{Device: "pxe"}, {Device: "pxe"}, {Device: "disk", Persistent: true}, {Device: "cdrom"}, {}, {}} {
		if want.Device != "" && !slices.Contains(devices, want.Device) {
			continue
		}
		requireNoError(t, "set "+want.Device, r.Management.SetBootDevice(ctx, r.Node, want))
		got, err := r.Management.BootDevice(ctx, r.Node)
		requireNoError(t, "read", err)
		if !r.Hidden && (got.Device != want.Device || got.Persistent != want.Persistent) {
			t.Fatalf("set %+v, read %+v", want, got)
		}
	}
	if err := r.Management.SetBootDevice(ctx, r.Node, rescue.Boot{Device: "no such\nthing"}); !problem.Is(err, problem.Invalid) {
		t.Errorf("an unknown device: %v, want invalid", err)
	}
}

func testRamdisk(t *testing.T, r Machine) {
	if r.Boot == nil {
		return
	}
	ctx := r.context(t, generous)
	requireNoError(t, "clean up with nothing there", r.Boot.CleanUpRamdisk(ctx, r.Node))
	plan, err := r.Boot.Plan(r.Node, r.Ramdisk)
	requireNoError(t, "plan", err)
	again, err := r.Boot.Plan(r.Node, r.Ramdisk)
	requireNoError(t, "plan", err)
	if plan.Path == again.Path || len(plan.Path) < 32 {
		t.Errorf("paths %q and %q are not fresh and random", plan.Path, again.Path)
	}
	if plan.BootNumber != r.Ramdisk.BootNumber || plan.CarryToken != r.Ramdisk.CarryToken || plan.URL == "" || strings.HasSuffix(plan.URL, "/") {
		t.Errorf("plan %+v does not carry what was asked", plan)
	}
	for _, p := range r.Ramdisk.Params {
		if !slices.Contains(plan.Params, p) {
			t.Errorf("plan lacks parameter %q", p)
		}
	}
	n := r.Node.Clone()
	n.Plan = plan
	for range 2 {
		requireNoError(t, "prepare", r.Boot.PrepareRamdisk(ctx, n))
	}
	// A later boot's plan takes the place of the former's.
	n.Plan = again
	requireNoError(t, "prepare another", r.Boot.PrepareRamdisk(ctx, n))
	n.Plan = nil
	for range 2 {
		requireNoError(t, "clean up", r.Boot.CleanUpRamdisk(ctx, n))
	}
	for range 2 {
		requireNoError(t, "prepare instance", r.Boot.PrepareInstance(ctx, n, rescue.Boot{Device: "disk", Persistent: true}))
	}
	got, err := r.Management.BootDevice(ctx, n)
	if err != nil || (!r.Hidden && got.Device != "disk") {
		t.Errorf("after prepare instance: %+v, %v", got, err)
	}
}

func testGate(t *testing.T, r Machine) {
	if r.Break == nil {
		return
	}
	shut := problem.Unavailablef("too little of the lease is left")
	ctx := driver.WithGate(r.context(t, generous), func() error { return shut })
	if _, err := r.Power.PowerState(ctx, r.Node); !errors.Is(err, shut) || !problem.Is(err, problem.Unavailable) {
		t.Errorf("read power behind a shut gate: %v", err)
	}
	if err := r.Power.SetPower(ctx, r.Node, metal.PowerOn); !errors.Is(err, shut) {
		t.Errorf("set power behind a shut gate: %v", err)
	}
	if r.On != nil && r.On() {
		t.Error("an order went through a shut gate")
	}
}

func testWrong(t *testing.T, r Machine) {
	for name, change := range r.Wrong {
		n := r.Node.Clone()
		change(n)
		_, err := r.Power.PowerState(r.context(t, generous), n)
		if !problem.Is(err, problem.Invalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
		r.quiet(t, n, err)
	}
}

// operations are all that a BMC may be asked.
func (r Machine) operations() map[string]func(context.Context) error {
	n := r.Node
	ops := map[string]func(context.Context) error{
		"power state":     func(ctx context.Context) error { _, err := r.Power.PowerState(ctx, n); return err },
		"power on":        func(ctx context.Context) error { return r.Power.SetPower(ctx, n, metal.PowerOn) },
		"soft off":        func(ctx context.Context) error { return r.Power.SoftOff(ctx, n) },
		"boot device":     func(ctx context.Context) error { _, err := r.Management.BootDevice(ctx, n); return err },
		"set boot device": func(ctx context.Context) error { return r.Management.SetBootDevice(ctx, n, rescue.Boot{Device: "pxe"}) },
	}
	if r.Boot != nil {
		ops["clean up"] = func(ctx context.Context) error { return r.Boot.CleanUpRamdisk(ctx, n) }
	}
	maps.Copy(ops, r.evidenceOperations())
	maps.Copy(ops, r.partOperations())
	return ops
}

func testFault(t *testing.T, r Machine, f Fault) {
	if r.Break == nil || !r.Break(f) {
		return
	}
	for name, op := range r.operations() {
		const bound = Bound / 8
		began := time.Now()
		err := op(r.context(t, bound))
		if took := time.Since(began); took > bound+10*time.Second {
			t.Errorf("%s took %s, its deadline was %s", name, took, bound)
		}
		if !problem.Is(err, problem.Unavailable) {
			t.Errorf("%s: %v (%s), want unavailable", name, err, problem.KindOf(err))
		}
		r.quiet(t, r.Node, err)
	}
}

// testSlow: late is not wrong.
func testSlow(t *testing.T, r Machine) {
	if r.Break == nil || !r.Break(Slow) {
		return
	}
	for name, op := range r.operations() {
		requireNoError(t, name, op(r.context(t, generous)))
	}
}

func testLiar(t *testing.T, r Machine) {
	if r.Break == nil || !r.Break(Liar) {
		return
	}
	err := r.Power.SetPower(r.context(t, Bound), r.Node, metal.PowerOn) // in it the power is read at least once
	if !problem.Is(err, problem.Unavailable) || !strings.Contains(strings.ToLower(err.Error()), "off") {
		t.Errorf("power on by a liar: %v; want unavailable, saying what was read", err)
	}
	if state, err := r.Power.PowerState(r.context(t, generous), r.Node); err != nil || state != metal.PowerOff {
		t.Errorf("after it: %q, %v", state, err)
	}
	if r.Management == nil {
		return
	}
	if err := r.Management.SetBootDevice(r.context(t, Bound), r.Node, rescue.Boot{Device: "pxe"}); !problem.Is(err, problem.Unavailable) {
		t.Errorf("boot device of a liar: %v; want unavailable", err)
	}
}

// quiet proves that an error names the node and no secret, in one line.
func (r Machine) quiet(t *testing.T, n *metal.Node, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if !strings.Contains(err.Error(), n.ID) {
		t.Errorf("error names no node: %v", err)
	}
	if strings.ContainsAny(err.Error(), "\n\x00") || len(err.Error()) > 1000 {
		t.Errorf("error is no short line: %q", err)
	}
	for _, s := range append(r.Secrets, mediumSecret) {
		for e := err; e != nil; e = errors.Unwrap(e) {
			if strings.Contains(e.Error(), s) {
				t.Errorf("error tells a secret: %v", e)
			}
		}
	}
}
