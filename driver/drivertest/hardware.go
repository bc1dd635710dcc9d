package drivertest

import (
	"context"
	"maps"
	"slices"
	"testing"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

// Parts are the interfaces of the kinds that not all hardware has; nil ones are left
// out. Where a machine has Parts, what its Power and Management can do beside their duties is proved too.
type Parts struct {
	BIOS     driver.BIOS
	RAID     driver.RAID
	Firmware driver.Firmware
	Console  driver.Console
	Vendor   driver.Vendor
	// Setting is a setting of the firmware, and another value for it.
	Setting, Value string
}

// image is a medium that no boot of ours made; its credential may be told by nobody.
const (
	mediumSecret = "s3cr3t-medium"
	image        = "http://user:" + mediumSecret + "@images.invalid/a.iso?sig=" + mediumSecret
)

func testParts(t *testing.T, r Machine) {
	if r.Parts == nil {
		return
	}
	ctx := r.context(t, generous)
	requireNoError(t, "power on", r.Power.SetPower(ctx, r.Node, metal.PowerOn))
	testModes(t, r)
	testLamps(t, r)
	testMedia(t, r)
	if d, ok := r.Power.(driver.Restarter); ok {
		requireNoError(t, "restart", d.Restart(ctx, r.Node))
	}
	if d, ok := r.Power.(driver.SoftRestarter); ok {
		requireNoError(t, "soft restart", d.SoftRestart(ctx, r.Node))
	}
	if d, ok := r.Management.(driver.NMI); ok {
		requireNoError(t, "inject NMI", d.InjectNMI(ctx, r.Node))
	}
	if d, ok := r.Power.(driver.PowerAndHealth); ok {
		power, health, err := d.ReadPowerAndHealth(ctx, r.Node)
		if err != nil || power != metal.PowerOn || !slices.Contains([]string{"", "OK", "Warning", "Critical"}, health) {
			t.Errorf("vitals: %q, %q, %v", power, health, err)
		}
	}
	testSteps(t, r)
}

func testModes(t *testing.T, r Machine) {
	d, ok := r.Management.(driver.BootModes)
	if !ok {
		return
	}
	ctx, n := r.context(t, generous), r.Node
	for _, mode := range []string{"bios", "bios", "uefi"} {
		requireNoError(t, "set boot mode", d.SetBootMode(ctx, n, mode))
		n.BootMode = mode // the caller keeps it
		if now, err := d.BootMode(ctx, n); err != nil || now != mode {
			t.Errorf("set boot mode %s, read %q, %v", mode, now, err)
		}
	}
	for _, on := range []bool{true, true, false} {
		requireNoError(t, "set secure boot", d.SetSecureBoot(ctx, n, on))
		n.SecureBoot = &on
		if now, err := d.SecureBoot(ctx, n); err != nil || now != on {
			t.Errorf("set secure boot %t, read %t, %v", on, now, err)
		}
	}
}

func testLamps(t *testing.T, r Machine) {
	d, ok := r.Management.(driver.Indicators)
	if !ok {
		return
	}
	ctx, n := r.context(t, generous), r.Node
	all, err := d.Indicators(ctx, n)
	requireNoError(t, "list indicators", err)
	set := 0
	for component, lamps := range all {
		for name, indicator := range lamps {
			if indicator.ReadOnly {
				if err := d.SetIndicator(ctx, n, component, name, indicator.States[0]); !problem.Is(err, problem.Invalid) {
					t.Errorf("setting the read-only %s@%s: %v", name, component, err)
				}
				continue
			}
			for _, state := range indicator.States {
				requireNoError(t, "set indicator", d.SetIndicator(ctx, n, component, name, state))
				set++
				if now, err := d.Indicator(ctx, n, component, name); err != nil || now != state {
					t.Errorf("set %s@%s %s, read %q, %v", name, component, state, now, err)
				}
			}
			if err := d.SetIndicator(ctx, n, component, name, "purple"); !problem.Is(err, problem.Invalid) {
				t.Errorf("purple: %v", err)
			}
		}
	}
	if set == 0 {
		t.Error("no indicator could be set")
	}
	if _, err := d.Indicator(ctx, n, "system", "no such"); !problem.Is(err, problem.NotFound) {
		t.Errorf("an unknown indicator: %v", err)
	}
}

// listInsertedImages lists the images that are shown to the machine.
func listInsertedImages(ctx context.Context, t *testing.T, d driver.VirtualMedia, n *metal.Node) (images []string, filled int) {
	t.Helper()
	media, err := d.Media(ctx, n)
	requireNoError(t, "list media", err)
	for _, m := range media {
		if len(m.MediaTypes) == 0 {
			t.Errorf("a medium of no type: %+v", m)
		}
		if m.Inserted {
			filled++
			images = append(images, m.Image)
		}
	}
	return images, filled
}

func testMedia(t *testing.T, r Machine) {
	d, ok := r.Management.(driver.VirtualMedia)
	if !ok {
		return
	}
	ctx, n := r.context(t, generous), r.Node
	requireNoError(t, "detach with nothing there", d.DetachMedia(ctx, n, nil))
	for range 2 {
		requireNoError(t, "attach", d.AttachMedium(ctx, n, metal.MediumArgs{DeviceType: "cdrom", ImageURL: image}))
	}
	requireNoError(t, "attach a stick", d.AttachMedium(ctx, n, metal.MediumArgs{DeviceType: "disk", ImageURL: "http://images.invalid/b.img"}))
	images, _ := listInsertedImages(ctx, t, d, n)
	slices.Sort(images)
	if !slices.Equal(images, []string{"http://images.invalid/a.iso", "http://images.invalid/b.img"}) {
		t.Errorf("attached, shown %q", images)
	}
	requireNoError(t, "attach another", d.AttachMedium(ctx, n, metal.MediumArgs{DeviceType: "cdrom", ImageURL: "http://images.invalid/c.iso"}))
	requireNoError(t, "detach the stick", d.DetachMedia(ctx, n, []string{"disk", "floppy"}))
	if images, _ := listInsertedImages(ctx, t, d, n); !slices.Equal(images, []string{"http://images.invalid/c.iso"}) {
		t.Errorf("after another and no stick: %q", images)
	}
	for range 2 {
		requireNoError(t, "detach", d.DetachMedia(ctx, n, nil))
	}
	if _, filled := listInsertedImages(ctx, t, d, n); filled > 0 {
		t.Errorf("%d drives are filled after all", filled)
	}
	testMediaOfBoot(t, r, d)
}

// testMediaOfBoot: what a boot of ours has inserted is neither replaced nor ejected, nor its path shown.
func testMediaOfBoot(t *testing.T, r Machine, d driver.VirtualMedia) {
	if r.Boot == nil {
		return
	}
	ctx, n := r.context(t, generous), r.Node.Clone()
	var err error
	n.Plan, err = r.Boot.Plan(n, r.Ramdisk)
	requireNoError(t, "plan", err)
	if n.Plan.Method != metal.BootMedia {
		return
	}
	requireNoError(t, "prepare", r.Boot.PrepareRamdisk(ctx, n))
	if err := d.AttachMedium(ctx, n, metal.MediumArgs{DeviceType: "cdrom", ImageURL: image}); !problem.Is(err, problem.Conflict) {
		t.Errorf("attach over the ramdisk: %v, want conflict", err)
	} else {
		r.quiet(t, n, err)
	}
	requireNoError(t, "attach beside", d.AttachMedium(ctx, n, metal.MediumArgs{DeviceType: "disk", ImageURL: "http://images.invalid/b.img"}))
	requireNoError(t, "detach", d.DetachMedia(ctx, n, nil))
	images, filled := listInsertedImages(ctx, t, d, n)
	if filled != 1 || images[0] != "" {
		t.Errorf("the ramdisk's drive shows %q", images)
	}
	requireNoError(t, "clean up", r.Boot.CleanUpRamdisk(ctx, n))
}

// stepPolls bounds the calls of a step that is under way.
const stepPolls = 20

// run does a step to its end.
func (r Machine) run(t *testing.T, d driver.StepRunner, s metal.Step) {
	t.Helper()
	for range stepPolls {
		wait, err := d.RunStep(r.context(t, generous), r.Node, s)
		requireNoError(t, s.Interface+"."+s.Step, err)
		if !wait {
			return
		}
	}
	t.Errorf("%s.%s does not end", s.Interface, s.Step)
}

func testSteps(t *testing.T, r Machine) {
	ctx, p := r.context(t, generous), r.Parts
	runners := map[string]any{"management": r.Management, "bios": p.BIOS, "raid": p.RAID, "firmware": p.Firmware}
	for _, kind := range slices.Sorted(maps.Keys(runners)) {
		d, ok := runners[kind].(driver.StepRunner)
		if !ok {
			continue
		}
		steps, err := d.Steps(ctx, r.Node)
		requireNoError(t, "steps of "+kind, err)
		for _, s := range steps {
			if s.Interface != kind || s.Name == "" {
				t.Errorf("%s offers %s.%s", kind, s.Interface, s.Name)
			}
		}
		for _, s := range []metal.Step{{Interface: kind, Step: "no_such"}, {Interface: kind, Step: "apply_configuration", Args: metal.Object{"settings": "x"}}} {
			if _, err := d.RunStep(ctx, r.Node, s); !problem.Is(err, problem.Invalid) {
				t.Errorf("%s.%s: %v, want invalid", kind, s.Step, err)
			}
		}
	}
	testBIOS(t, r)
	testRAID(t, r)
	if p.Firmware != nil {
		found, err := p.Firmware.Components(ctx, r.Node)
		if err != nil || !slices.ContainsFunc(found, func(c metal.FirmwareComponent) bool { return c.Component == "bios" && c.CurrentVersion != "" }) {
			t.Errorf("firmware: %+v, %v", found, err)
		}
	}
}

func (r Machine) setting(t *testing.T, name string) string {
	t.Helper()
	all, err := r.Parts.BIOS.BIOSSettings(r.context(t, generous), r.Node)
	requireNoError(t, "read settings", err)
	for _, s := range all {
		if s.Name == name && s.Value != nil {
			return *s.Value
		}
	}
	return ""
}

func testBIOS(t *testing.T, r Machine) {
	d, ok := r.Parts.BIOS.(driver.StepRunner)
	if !ok {
		return
	}
	before := r.setting(t, r.Parts.Setting)
	apply := metal.Step{Interface: "bios", Step: "apply_configuration", Args: metal.Object{"settings": []any{map[string]any{"name": r.Parts.Setting, "value": r.Parts.Value}}}}
	for range 2 {
		r.run(t, d, apply)
		if now := r.setting(t, r.Parts.Setting); now != r.Parts.Value {
			t.Fatalf("%s is %q after it was applied", r.Parts.Setting, now)
		}
	}
	r.run(t, d, metal.Step{Interface: "bios", Step: "factory_reset"})
	if now := r.setting(t, r.Parts.Setting); now != before {
		t.Errorf("%s is %q after the factory reset, was %q", r.Parts.Setting, now, before)
	}
	if r.On != nil && !r.On() {
		t.Error("the machine is off after the steps")
	}
}

func testRAID(t *testing.T, r Machine) {
	d, ok := r.Parts.RAID.(driver.StepRunner)
	if !ok {
		return
	}
	volumes := func() int {
		config, err := r.Parts.RAID.RAIDConfig(r.context(t, generous), r.Node)
		requireNoError(t, "read volumes", err)
		disks, _ := config["logical_disks"].([]any)
		return len(disks)
	}
	create := metal.Step{Interface: "raid", Step: "create_configuration"}
	if _, err := d.RunStep(r.context(t, generous), r.Node, create); !problem.Is(err, problem.Invalid) {
		t.Errorf("create without a target: %v", err)
	}
	r.Node.TargetRAID = metal.Object{"logical_disks": []any{
		map[string]any{"size_gb": "MAX", "raid_level": "0", "volume_name": "data"}, map[string]any{"size_gb": 50.0, "raid_level": "1", "is_root_volume": true},
	}}
	for range 2 {
		r.run(t, d, create)
		if got := volumes(); got != 2 {
			t.Fatalf("%d volumes after create, want 2", got)
		}
	}
	r.run(t, d, metal.Step{Interface: "raid", Step: "delete_configuration"})
	if got := volumes(); got != 0 {
		t.Errorf("%d volumes after delete", got)
	}
}

// partOperations are what a BMC may be asked beside the duties of power and management.
func (r Machine) partOperations() map[string]func(context.Context) error {
	ops := map[string]func(context.Context) error{}
	if r.Parts == nil {
		return ops
	}
	n, p := r.Node, r.Parts
	if d, ok := r.Management.(driver.BootModes); ok {
		ops["secure boot"] = func(ctx context.Context) error { _, err := d.SecureBoot(ctx, n); return err }
	}
	if d, ok := r.Management.(driver.Indicators); ok {
		ops["indicators"] = func(ctx context.Context) error { _, err := d.Indicators(ctx, n); return err }
	}
	if d, ok := r.Management.(driver.VirtualMedia); ok {
		ops["attach"] = func(ctx context.Context) error {
			return d.AttachMedium(ctx, n, metal.MediumArgs{DeviceType: "cdrom", ImageURL: image})
		}
	}
	if p.BIOS != nil {
		ops["settings"] = func(ctx context.Context) error { _, err := p.BIOS.BIOSSettings(ctx, n); return err }
	}
	if p.RAID != nil {
		ops["volumes"] = func(ctx context.Context) error { _, err := p.RAID.RAIDConfig(ctx, n); return err }
	}
	if p.Firmware != nil {
		ops["firmware"] = func(ctx context.Context) error { _, err := p.Firmware.Components(ctx, n); return err }
	}
	return ops
}
