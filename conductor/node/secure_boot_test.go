package node

import (
	"strings"
	"testing"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/must"
)

// TestSecureBootOfTheDeployedSystem is switched on before the system's first start, and off with the deletion if it was off before.
func TestSecureBootOfTheDeployedSystem(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asks        any
		before      bool
		within, end bool
	}{
		"asked for":    {`{"secure_boot": "true"}`, false, true, false},
		"in capitals":  {"secure_boot:True", false, true, false},
		"on already":   {"secure_boot:true", true, true, true},
		"not asked":    {"boot_mode:uefi", false, false, false},
		"on of itself": {nil, true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, metal.Available)
			b.ramdiskSystem = true
			b.gear.secure = c.before
			change(t, b, func(n *metal.Node) {
				n.InstanceInfo = metal.Object{"boot_iso": "http://images/live.iso", "capabilities": c.asks}
				n.SecureBoot = &c.before
			})
			b.con.drivers["bench"].Boot["bench"] = ofMethod{b, metal.BootMedia}
			b.run(t)
			b.start(t, metal.Deploy)
			n := b.until(t, metal.Active)
			if b.gear.secure != c.within || *n.SecureBoot != c.within || n.Plan.SecureBoot != c.within {
				t.Errorf("deployed: Secure Boot %t, shown %t, plan %+v", b.gear.secure, *n.SecureBoot, n.Plan)
			}
			must.OK(t, b.ask(t, metal.Delete))
			if n = b.until(t, metal.Available); b.gear.secure != c.end || *n.SecureBoot != c.end || n.InternalInfo[secureBootMark] != nil {
				t.Errorf("deleted: Secure Boot %t, shown %t, notes %v", b.gear.secure, *n.SecureBoot, n.InternalInfo)
			}
		})
	}
}

// TestSecureBootThatCannotBeSwitchedOn is refused by the check of a deployment, in one sentence.
func TestSecureBootThatCannotBeSwitchedOn(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Available)
	reasons := func(change func(*metal.Node)) string {
		n := b.stored(t)
		n.InstanceInfo = metal.Object{"capabilities": map[string]any{"secure_boot": "true"}}
		change(n)
		return metal.ReasonTexts(b.con.Preflight(t.Context(), n, []*metal.Port{{Address: "52:54:00:00:00:01"}}, metal.Operation{Kind: "deploy"}).Reasons)
	}
	if text := reasons(func(*metal.Node) {}); text != "" {
		t.Errorf("a machine that can: %s", text)
	}
	if text := reasons(func(n *metal.Node) { n.Properties = metal.Object{"capabilities": "boot_mode:bios"} }); !strings.Contains(text, "its boot mode is bios") {
		t.Errorf("in the mode bios: %s", text)
	}
	if text := reasons(func(n *metal.Node) { metal.KeepBMC(n, metal.BMC{ReadAt: time.Now()}) }); !strings.Contains(text, "its BMC shows no switch for it") {
		t.Errorf("a BMC without the switch: %s", text)
	}
	b.con.drivers["bench"].Management["bench"] = struct{ driver.Management }{b}
	if text := reasons(func(*metal.Node) {}); !strings.Contains(text, "its management interface cannot switch on: remove secure_boot") {
		t.Errorf("a driver without the switch: %s", text)
	}
	if text := metal.ReasonTexts(b.con.Preflight(t.Context(), b.stored(t), []*metal.Port{{Address: "52:54:00:00:00:01"}}, metal.Operation{Kind: "deploy"}).Reasons); text != "" {
		t.Errorf("without the wish: %s", text)
	}
}

// TestSecureBootStaysOnWhereNothingSwitchesItOff: the deletion goes on, for the machine is to be cleaned.
func TestSecureBootStaysOnWhereNothingSwitchesItOff(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	change(t, b, func(n *metal.Node) { n.SecureBoot = new(true); markInternal(n, secureBootMark, true) })
	b.gear.secure, b.gear.refuses = true, problem.Unsupportedf("no such switch")
	b.run(t)
	must.OK(t, b.ask(t, metal.Delete))
	if n := b.until(t, metal.Available); !*n.SecureBoot || n.InternalInfo[secureBootMark] != nil {
		t.Errorf("shown %t, notes %v", *n.SecureBoot, n.InternalInfo)
	}
}

// TestARebuildWithoutSecureBoot switches off what the former deployment switched on, and nothing else: the new system may be unsigned.
func TestARebuildWithoutSecureBoot(t *testing.T) {
	t.Parallel()
	for name, ours := range map[string]bool{"ours": true, "on of itself": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, metal.Active)
			b.ramdiskSystem = true
			b.gear.secure = true
			change(t, b, func(n *metal.Node) {
				n.InstanceInfo = metal.Object{"boot_iso": "http://images/live.iso"}
				n.SecureBoot = new(true)
				markInternal(n, secureBootMark, ours)
			})
			b.con.drivers["bench"].Boot["bench"] = ofMethod{b, metal.BootMedia}
			b.run(t)
			b.start(t, metal.Rebuild)
			n := b.until(t, metal.Active)
			if b.gear.secure == ours || *n.SecureBoot == ours || n.Plan == nil || n.Plan.SecureBoot == ours || n.InternalInfo[secureBootMark] != nil {
				t.Errorf("Secure Boot %t, shown %t, plan %+v, notes %v", b.gear.secure, *n.SecureBoot, n.Plan, n.InternalInfo)
			}
		})
	}
}
