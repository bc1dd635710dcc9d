package redfish

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"salvor/driver"
	"salvor/driver/drivertest"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/must"
)

// setting reads one BIOS setting.
func setting(t *testing.T, n *metal.Node, name string) metal.BIOSSetting {
	t.Helper()
	for _, s := range must.Get(BIOS{&Driver{}}.BIOSSettings(t.Context(), n))(t) {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no setting %s", name)
	return metal.BIOSSetting{}
}

// TestBIOSRegistryNames: the registry is found under another version than the one that the BIOS names, and under none (iDRAC9, GB200).
func TestBIOSRegistryNames(t *testing.T) {
	for _, c := range []struct{ named, member string }{
		{"BiosRegistry.1.0", "BiosRegistry"}, {"BiosRegistry.v1_0_3", "BiosRegistry.v1_0_0"}, {"BiosAttributeRegistry.v1_0_3", "BiosAttributeRegistry.v1_0_0"}, {"", "BiosAttributeRegistryG1.1.0.0"},
	} {
		f := &foreignBMC{show: func(path string, doc map[string]any) {
			switch {
			case strings.HasSuffix(path, "/Bios"):
				doc["AttributeRegistry"] = c.named
			case strings.HasSuffix(path, "/Registries"):
				doc["Members"] = []any{map[string]any{"@odata.id": path + "/Base.1.0"}, map[string]any{"@odata.id": path + "/" + c.member}}
			}
		}}
		f.rename = map[string]string{"/redfish/v1/Registries/" + c.member: "/redfish/v1/Registries/BiosRegistry"}
		if got := setting(t, startForeign(t, f), "Cores").AttributeType; got != "Integer" {
			t.Errorf("%+v: the type is %q", c, got)
		}
	}
}

// TestPasswordHashesAreHidden: whoever reads BIOS settings does not get the hash of the setup password.
func TestPasswordHashesAreHidden(t *testing.T) {
	const hash = "19D28380D5860B4D3E4A4A2A9D1F0C55"
	f := &foreignBMC{show: func(path string, doc map[string]any) {
		if attributes, ok := doc["Attributes"].(map[string]any); ok {
			attributes["SHA256SetupPassword"], attributes["SHA256SetupPasswordSalt"], attributes["PasswordStatus"] = hash, hash, "Unlocked"
		}
	}}
	n := startForeign(t, f)
	if v := setting(t, n, "SHA256SetupPassword").Value; v != nil {
		t.Errorf("the hash is %s", *v)
	}
	if v := setting(t, n, "SHA256SetupPasswordSalt").Value; v != nil {
		t.Errorf("the salt is %s", *v)
	}
	if v := setting(t, n, "PasswordStatus").Value; v == nil || *v != "Unlocked" {
		t.Errorf("the status is %v", v)
	}
}

// TestSecretSettings: a password is hidden by its name where no registry says what it is, and what is none stays readable.
func TestSecretSettings(t *testing.T) {
	for _, c := range []struct {
		name   string
		value  any
		secret bool
	}{
		{"AdminPassword", "Passw0rd", true}, {"UserPwd", "abcd1234", true}, {"ClientSecret", "x9", true}, {"AdminPassword", []any{"Passw0rd"}, true}, {"AdminPassword", map[string]any{"a": "b"}, true},
		{"PasswordStatus", "Unlocked", false}, {"AdminPasswordSet", true, false}, {"PasswordMinLength", 8.0, false}, {"PasswordPrompt", "Disabled", false}, {"BootMode", "Uefi", false},
	} {
		if shown := newBIOSSetting(c.name, c.value, biosAttribute{}).Value != nil; shown == c.secret {
			t.Errorf("%s=%v is shown: %t", c.name, c.value, shown)
		}
	}
}

// TestApplyTime: settings are handed over with the time at which the BMC applies them, and without where it refuses that.
func TestApplyTime(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		f := &foreignBMC{
			show: func(path string, doc map[string]any) {
				if strings.HasSuffix(path, "/Bios") {
					doc["@Redfish.Settings"].(map[string]any)["SupportedApplyTimes"] = []string{"OnReset", "AtMaintenanceWindowStart"}
				}
			},
			refuse: func(_, _ string, body map[string]any) (int, string, []string) {
				if refuses && body["@Redfish.SettingsApplyTime"] != nil {
					return 400, "Base.1.8.PropertyUnknown", []string{"ApplyTime"}
				}
				return 0, "", nil
			},
		}
		n := startForeign(t, f)
		step := metal.Step{Interface: "bios", Step: "apply_configuration", Args: metal.Object{"settings": []any{map[string]any{"name": "Cores", "value": "8"}}}}
		for range 2 { // the request, and the start
			must.Get(BIOS{&Driver{Locks: &driver.AddressLocks{}}}.RunStep(t.Context(), n, step))(t)
		}
		want := `PATCH /Systems/1/Bios/Settings {"@Redfish.SettingsApplyTime":{"ApplyTime":"OnReset"},"Attributes":{"Cores":8}}`
		if refuses {
			want = `PATCH /Systems/1/Bios/Settings {"Attributes":{"Cores":8}}`
		}
		if taken := f.taken(); len(taken) != 2 || taken[0] != want {
			t.Errorf("the BMC took %q, want %q first", taken, want)
		}
	}
}

// TestPagedList: a drive on the second page of a list is found.
func TestPagedList(t *testing.T) {
	f := &foreignBMC{show: func(path string, doc map[string]any) {
		list := "/redfish/v1/Managers/bmc/VirtualMedia"
		switch path {
		case list:
			doc["Members"], doc["Members@odata.nextLink"] = []any{map[string]any{"@odata.id": list + "/Floppy"}}, list+"/more"
		case list + "/more":
			doc["Members"] = []any{map[string]any{"@odata.id": list + "/Cd"}}
			delete(doc, "error")
		}
	}}
	f.rename = map[string]string{"/redfish/v1/Managers/bmc/VirtualMedia/more": "/redfish/v1/Managers/bmc/VirtualMedia"}
	b := must.Get((&Driver{}).DescribeBMC(t.Context(), startForeign(t, f)))(t)
	if strings.Join(b.Drives, " ") != "Floppy CD DVD" {
		t.Errorf("drives %q", b.Drives)
	}
}

// TestFactoryResetWaitsForTheFirmware: the settings count when the BMC shows others, the machine has passed POST or the time is over, not
// before.
func TestFactoryResetWaitsForTheFirmware(t *testing.T) {
	progress, attributes := "", map[string]any{"ProcTurbo": "Disabled"}
	late := true // the firmware has not come to its settings yet
	o, n := newOdd(t, func(o *odd, w http.ResponseWriter, method, path string) bool {
		switch {
		case method == http.MethodGet && strings.HasSuffix(path, "/Bios") && late:
			return answerJSON(w, http.StatusOK, map[string]any{"Attributes": attributes,
				"Actions": map[string]any{"#Bios.ResetBios": map[string]any{"target": path + "/Actions/Bios.ResetBios"}}})
		case method == http.MethodGet && path == drivertest.SystemPath && progress != "":
			return answerJSON(w, http.StatusOK, map[string]any{"PowerState": "On", "Bios": map[string]any{"@odata.id": path + "/Bios"}, "BootProgress": map[string]any{"LastState": progress}})
		}
		return false
	})
	b, step := BIOS{&Driver{}}, metal.Step{Interface: "bios", Step: "factory_reset"}
	run := func(want bool) {
		t.Helper()
		if wait, err := b.RunStep(t.Context(), n, step); err != nil || wait != want {
			t.Fatalf("wait %t, %v, internal %v", wait, err, n.InternalInfo)
		}
	}
	age := func(d time.Duration) {
		record := maps.Clone(n.InternalInfo[resetKey].(map[string]any))
		record["at"] = time.Now().Add(-d).UTC().Format(time.RFC3339)
		n.SetInternal(resetKey, record)
	}
	o.SetOn(true)
	run(true)
	run(true)
	attributes = nil // in POST
	run(true)
	late = false
	run(false)
	if len(n.InternalInfo) != 0 || !o.On() {
		t.Errorf("left %v, on %t", n.InternalInfo, o.On())
	}
	late = true
	run(true)
	attributes = map[string]any{"ProcTurbo": "Disabled"} // the request was made without them
	progress = "OSRunning"
	run(true) // of the former start
	age(2 * startWait)
	run(false)
	progress = ""
	run(true)
	run(true)
	age(2 * startWait)
	run(true)
	age(2 * resetWait)
	run(false)
}

// TestAStartWithoutItsRamdiskIsNotMade: where the preparation of a step's start fails, the next call of the step prepares it anew before it
// turns the machine on. The machine's own system would start on the network of the ramdisk.
func TestAStartWithoutItsRamdiskIsNotMade(t *testing.T) {
	for name, step := range map[string]metal.Step{
		"settings": {Interface: "bios", Step: "apply_configuration", Args: metal.Object{"settings": []any{map[string]any{"name": "ProcTurbo", "value": "Disabled"}}}},
		"reset":    {Interface: "bios", Step: "factory_reset"},
	} {
		t.Run(name, func(t *testing.T) {
			bmc, _, n := machine(t)
			bmc.SetOn(true)
			failures, prepared := 2, false
			ctx := driver.WithBeforeStart(t.Context(), func(context.Context) error {
				if failures--; failures >= 0 {
					return problem.Unavailablef("503")
				}
				prepared = true
				return nil
			})
			failed := 0
			for range 10 {
				wait, err := BIOS{&Driver{}}.RunStep(ctx, n, step)
				if err != nil {
					failed++
				}
				if bmc.On() && !prepared && failed > 0 {
					t.Fatalf("the machine is on after %d failures, and its ramdisk was not prepared", failed)
				}
				if err == nil && !wait {
					break
				}
			}
			if failed != 2 || !prepared || !bmc.On() {
				t.Errorf("%d failures, prepared %t, on %t", failed, prepared, bmc.On())
			}
		})
	}
}

// TestAStartThatWasCutOffIsNotRepeated: the conductor was killed after the machine was turned on for a step and before it noted that. The
// machine is not switched off in its POST.
func TestAStartThatWasCutOffIsNotRepeated(t *testing.T) {
	for name, step := range map[string]metal.Step{
		"settings": {Interface: "bios", Step: "apply_configuration", Args: metal.Object{"settings": []any{map[string]any{"name": "ProcTurbo", "value": "Disabled"}}}},
		"reset":    {Interface: "bios", Step: "factory_reset"},
	} {
		t.Run(name, func(t *testing.T) {
			bmc, _, n := machine(t)
			b, starts := BIOS{&Driver{}}, 0
			ctx := driver.WithBeforeStart(t.Context(), func(context.Context) error { starts++; return nil })
			stored := n
			for range 10 {
				stored = n.Clone()
				if wait, err := b.RunStep(ctx, n, step); err != nil || !wait {
					t.Fatal(wait, err)
				}
				if bmc.On() {
					break
				}
			}
			for range 10 {
				if wait, err := b.RunStep(ctx, stored, step); err != nil || !wait {
					must.OK(t, err)
					break
				}
			}
			if starts != 1 || !bmc.On() {
				t.Errorf("%d starts, on %t; want one", starts, bmc.On())
			}
		})
	}
}
