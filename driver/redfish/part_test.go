package redfish

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"salvor/driver"
	"salvor/driver/drivertest"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/must"
)

func step(iface, name string, args metal.Object) metal.Step {
	return metal.Step{Interface: iface, Step: name, Args: args}
}

func wantTurbo(value any) metal.Step {
	return step("bios", "apply_configuration", metal.Object{"settings": []any{map[string]any{"name": "ProcTurbo", "value": value}}})
}

// Firmware that drops what it is given fails the step, once, instead of being booted for ever.
func TestDeafFirmware(t *testing.T) {
	bmc, _, n := machine(t)
	bmc.DropSettings()
	b := BIOS{&Driver{}}
	for _, on := range []bool{false, true} { // the request, and the start
		if wait, err := b.RunStep(t.Context(), n, wantTurbo("Disabled")); !wait || err != nil || bmc.On() != on {
			t.Fatalf("wait %t, %v, on %t", wait, err, bmc.On())
		}
	}
	if _, err := b.RunStep(t.Context(), n, wantTurbo("Disabled")); !problem.Is(err, problem.Conflict) {
		t.Fatalf("third call: %v, want conflict", err)
	}
	if wait, err := b.RunStep(t.Context(), n, wantTurbo("Disabled")); !wait || err != nil {
		t.Fatalf("asked anew: %t, %v", wait, err)
	}
	raw, _ := json.Marshal(n.InternalInfo)
	if strings.Contains(string(raw), "Disabled") {
		t.Errorf("a value, which may be a password, is kept: %s", raw)
	}
	if _, err := b.RunStep(t.Context(), n, step("bios", "apply_configuration", metal.Object{"settings": []any{map[string]any{"name": "No", "value": 1.0}}})); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "No") {
		t.Errorf("an unknown setting: %v", err)
	}
}

// A machine that must not be switched off is restarted for its settings.
func TestSettingsWithoutPowerOff(t *testing.T) {
	bmc, _, n := machine(t)
	bmc.SetOn(true)
	n.DisablePowerOff = true
	bmc.OnPower = func(on bool, _ drivertest.Override, _ string) { t.Errorf("power went %t", on) }
	b := BIOS{&Driver{}}
	for i, want := range []bool{true, true, false} {
		if wait, err := b.RunStep(t.Context(), n, wantTurbo("Disabled")); wait != want || err != nil {
			t.Fatalf("call %d: %t, %v", i, wait, err)
		}
	}
	if bmc.Restarts() != 1 {
		t.Errorf("%d restarts", bmc.Restarts())
	}
}

func TestSettingsShowTheRegistry(t *testing.T) {
	_, _, n := machine(t)
	all := must.Get(BIOS{&Driver{}}.BIOSSettings(t.Context(), n))(t)
	by := map[string]metal.BIOSSetting{}
	for _, s := range all {
		by[s.Name] = s
	}
	if s := by["BootMode"]; s.AttributeType != "Enumeration" || !slices.Equal(s.AllowableValues, []string{"Uefi", "Bios"}) || s.ReadOnly == nil || *s.ReadOnly {
		t.Errorf("BootMode: %+v", s)
	}
	if s := by["Cores"]; *s.Value != "4" || *s.LowerBound != 1 || *s.UpperBound != 64 {
		t.Errorf("Cores: %+v", s)
	}
	if s := by["AdminPassword"]; s.Value != nil || *s.MaxLength != 32 {
		t.Errorf("AdminPassword: %+v", s)
	}
}

// A volume that is slow to appear is not made twice.
func TestVolumeIsMadeOnce(t *testing.T) {
	bmc, _, n := machine(t)
	n.TargetRAID = metal.Object{"logical_disks": []any{map[string]any{"size_gb": 10.0, "raid_level": "5", "physical_disks": []any{"D1", "D2", "D3"}, "controller": "RAID1"}}}
	r := RAID{&Driver{}}
	create := step("raid", "create_configuration", nil)
	bmc.Break(drivertest.Liar)
	for range 3 {
		if wait, err := r.RunStep(drivertest.WithShortPauses(t.Context()), n, create); !wait || err != nil {
			t.Fatalf("%t, %v", wait, err)
		}
	}
	n.InternalInfo = nil
	bmc.Break(drivertest.None)
	for i, want := range []bool{true, false, false} {
		if wait, err := r.RunStep(drivertest.WithShortPauses(t.Context()), n, create); wait != want || err != nil {
			t.Fatalf("call %d: %t, %v", i, wait, err)
		}
	}
	if bmc.Volumes() != 1 {
		t.Errorf("%d volumes", bmc.Volumes())
	}
	n.TargetRAID = metal.Object{"logical_disks": []any{map[string]any{"size_gb": 10.0, "raid_level": "6"}}}
	if _, err := r.RunStep(drivertest.WithShortPauses(t.Context()), n, create); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "RAID level 6") {
		t.Errorf("too few disks: %v", err)
	}
}

func TestSubscriptions(t *testing.T) {
	bmc, _, n := machine(t)
	v := Vendor{&Driver{}}
	call := func(method string, args metal.Object) (any, error) {
		return v.Call(t.Context(), n, metal.VendorCall{Method: method, Args: args})
	}
	const token = "Bearer t0ken"
	subscription := metal.Object{"Destination": "https://events.invalid/x", "Context": "c", "HttpHeaders": []any{map[string]any{"Authorization": token}}}
	made, err := call("create_subscription", subscription)
	if err != nil || bmc.Subscriptions() != 1 {
		t.Fatal(made, err)
	}
	one := made.(map[string]any)
	if one["Destination"] != "https://events.invalid/x" || one["Protocol"] != "Redfish" || one["HttpHeaders"] != nil {
		t.Errorf("made %v", one)
	}
	all, err := call("get_all_subscriptions", nil)
	if err != nil || len(all.(map[string]any)["Members"].([]any)) != 1 {
		t.Errorf("all: %v, %v", all, err)
	}
	got, err := call("get_subscription", metal.Object{"id": one["Id"]})
	if err != nil || got.(map[string]any)["Context"] != "c" {
		t.Errorf("one: %v, %v", got, err)
	}
	subscription["Protocol"] = "Pigeon"
	if _, err := call("create_subscription", subscription); !problem.Is(err, problem.Invalid) || strings.Contains(err.Error(), token) {
		t.Errorf("a protocol that the BMC refuses: %v", err)
	}
	for method, args := range map[string]metal.Object{
		"delete_subscription": {}, "get_subscription": {"id": 7.0}, "create_subscription": {"Destination": "nowhere"}, "bogus": nil, "eject_vmedia": {"boot_device": "tape"},
	} {
		if _, err := call(method, args); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), n.ID) {
			t.Errorf("%s %v: %v, want invalid", method, args, err)
		}
	}
	if _, err := call("delete_subscription", metal.Object{"id": "E999"}); !problem.Is(err, problem.NotFound) {
		t.Errorf("delete none: %v", err)
	}
	if _, err := call("delete_subscription", metal.Object{"id": one["Id"]}); err != nil || bmc.Subscriptions() != 0 {
		t.Errorf("delete: %v, %d left", err, bmc.Subscriptions())
	}
	bmc.SetImage("http://images.invalid/a.iso")
	if _, err := call("eject_vmedia", metal.Object{"boot_device": "cd"}); err != nil || bmc.Image() != "" {
		t.Errorf("eject: %v, %q", err, bmc.Image())
	}
}

func TestUpkeep(t *testing.T) {
	bmc, _, n := machine(t)
	d := &Driver{}
	for _, name := range []string{"clear_job_queue", "reset_bmc"} {
		if wait, err := d.RunStep(t.Context(), n, step("management", name, nil)); wait || err != nil {
			t.Errorf("%s: %t, %v", name, wait, err)
		}
	}
	if bmc.Jobs() != 0 || bmc.ManagerResets() != 1 {
		t.Errorf("%d jobs left, %d resets", bmc.Jobs(), bmc.ManagerResets())
	}
}

func TestHealth(t *testing.T) {
	bmc, _, n := machine(t)
	for word, want := range map[string]string{"OK": "OK", "Warning": "Warning", "Critical": "Critical", "\x00<b>": "OK", "": "OK"} {
		bmc.SetHealth(word)
		if _, got, err := (&Driver{}).ReadPowerAndHealth(t.Context(), n); err != nil || got != want {
			t.Errorf("%q: %q, %v", word, got, err)
		}
	}
}

// What leaves the machine on is refused while it is off, and sent once.
func TestInterrupts(t *testing.T) {
	bmc, _, n := machine(t)
	d := &Driver{Locks: &driver.AddressLocks{}}
	if err := d.InjectNMI(t.Context(), n); !problem.Is(err, problem.Conflict) {
		t.Errorf("NMI of a machine that is off: %v", err)
	}
	bmc.SetOn(true)
	if err := d.InjectNMI(t.Context(), n); err != nil || bmc.Interrupts() != 1 {
		t.Errorf("NMI: %v, %d", err, bmc.Interrupts())
	}
	if err := d.Restart(t.Context(), n); err != nil || bmc.Restarts() != 1 {
		t.Errorf("restart: %v, %d", err, bmc.Restarts())
	}
}
