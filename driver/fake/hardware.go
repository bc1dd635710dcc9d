package fake

import (
	"context"
	"maps"
	"net/url"
	"path"
	"slices"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
)

// StateKey is where in internal_info the machine that is not there keeps what it was told.
const StateKey = "fake"

// state reads what the machine was told under a key.
func state(n *metal.Node, key string) any {
	all, _ := n.InternalInfo[StateKey].(map[string]any)
	return all[key]
}

// saveState leaves it in the node for the caller to store; nil forgets it.
func saveState(n *metal.Node, key string, v any) {
	old, _ := n.InternalInfo[StateKey].(map[string]any)
	all := maps.Clone(old)
	if all == nil {
		all = map[string]any{}
	}
	if all[key] = v; v == nil {
		delete(all, key)
	}
	n.SetInternal(StateKey, all)
}

func stringMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// with is a copy with one entry changed.
func with(v any, key string, value any) map[string]any {
	m := maps.Clone(stringMap(v))
	if m == nil {
		m = map[string]any{}
	}
	m[key] = value
	return m
}

var (
	_ driver.BootModes     = Hardware{}
	_ driver.Indicators    = Hardware{}
	_ driver.NMI           = Hardware{}
	_ driver.VirtualMedia  = Hardware{}
	_ driver.Restarter     = Hardware{}
	_ driver.SoftRestarter = Hardware{}
	_ driver.StepRunner    = Hardware{}
	_ driver.BIOS          = BIOS{}
	_ driver.StepRunner    = BIOS{}
	_ driver.RAID          = RAID{}
	_ driver.StepRunner    = RAID{}
	_ driver.Firmware      = Firmware{}
	_ driver.StepRunner    = Firmware{}
	_ driver.Console       = Console{}
	_ driver.Vendor        = Vendor{}
)

// bootOverride is the boot that was set; false where none was.
func bootOverride(n *metal.Node) (rescue.Boot, bool) {
	set := stringMap(state(n, "boot"))
	device, _ := set["device"].(string)
	persistent, _ := set["persistent"].(bool)
	return rescue.Boot{Device: device, Persistent: persistent, Mode: driver.BootMode(n)}, set != nil
}

func keepBoot(n *metal.Node, b rescue.Boot) {
	saveState(n, "boot", map[string]any{"device": b.Device, "persistent": b.Persistent})
}

// Restart succeeds.
func (Hardware) Restart(ctx context.Context, n *metal.Node) error { return wait(ctx, n) }

// SoftRestart succeeds.
func (Hardware) SoftRestart(ctx context.Context, n *metal.Node) error { return wait(ctx, n) }

// InjectNMI succeeds.
func (Hardware) InjectNMI(ctx context.Context, n *metal.Node) error { return wait(ctx, n) }

// BootMode is the one of the record; uefi where it has none.
func (Hardware) BootMode(ctx context.Context, n *metal.Node) (string, error) {
	if n.BootMode == "" {
		return "uefi", wait(ctx, n)
	}
	return n.BootMode, wait(ctx, n)
}

// SetBootMode succeeds; the caller writes the record.
func (Hardware) SetBootMode(ctx context.Context, n *metal.Node, _ string) error { return wait(ctx, n) }

// SecureBoot is the one of the record.
func (Hardware) SecureBoot(ctx context.Context, n *metal.Node) (bool, error) {
	return n.SecureBoot != nil && *n.SecureBoot, wait(ctx, n)
}

// SetSecureBoot succeeds; the caller writes the record.
func (Hardware) SetSecureBoot(ctx context.Context, n *metal.Node, _ bool) error { return wait(ctx, n) }

// The indicators are those of Ironic's fake management: one of the chassis that only shows, one of the system that can be set.
var lamps = map[string]map[string]metal.Indicator{
	"chassis": {"led-0": {ReadOnly: true, States: []string{"off", "on"}}},
	"system":  {"led": {States: []string{"blinking", "off", "on"}}},
}

// Indicators lists the indicator lights.
func (Hardware) Indicators(ctx context.Context, n *metal.Node) (map[string]map[string]metal.Indicator, error) {
	return lamps, wait(ctx, n)
}

// Indicator is what was set; off before.
func (Hardware) Indicator(ctx context.Context, n *metal.Node, component, name string) (string, error) {
	if _, ok := lamps[component][name]; !ok {
		return "", problem.NotFoundf("node %s: fake: no indicator %s@%s", n.ID, driver.Sanitize(name), driver.Sanitize(component))
	}
	if set, ok := stringMap(state(n, "indicators"))[name+"@"+component].(string); ok {
		return set, wait(ctx, n)
	}
	return "off", wait(ctx, n)
}

// SetIndicator sets an indicator light that can be set.
func (h Hardware) SetIndicator(ctx context.Context, n *metal.Node, component, name, to string) error {
	if _, err := h.Indicator(ctx, n, component, name); err != nil {
		return err
	}
	if indicator := lamps[component][name]; indicator.ReadOnly || !slices.Contains(indicator.States, to) {
		return problem.Invalidf("node %s: fake: indicator %s@%s cannot be set to %s", n.ID, name, component, driver.Sanitize(to))
	}
	saveState(n, "indicators", with(state(n, "indicators"), name+"@"+component, to))
	return nil
}

// drives are the virtual ones, with the words by which BMCs call what they take.
var drives = []struct {
	device string
	types  []string
}{{"cdrom", []string{"CD", "DVD"}}, {"disk", []string{"USBStick"}}, {"floppy", []string{"Floppy"}}}

// Media lists the drives.
func (Hardware) Media(ctx context.Context, n *metal.Node) ([]metal.Medium, error) {
	var out []metal.Medium
	for _, d := range drives {
		image, inserted := stringMap(state(n, "media"))[d.device].(string)
		out = append(out, metal.Medium{MediaTypes: d.types, Inserted: inserted, Image: image})
	}
	return out, wait(ctx, n)
}

// AttachMedium fills a drive.
func (Hardware) AttachMedium(ctx context.Context, n *metal.Node, m metal.MediumArgs) error {
	if err := wait(ctx, n); err != nil {
		return err
	}
	saveState(n, "media", with(state(n, "media"), m.DeviceType, metal.BareURL(m.ImageURL)))
	return nil
}

// DetachMedia empties the drives of the types, or all.
func (Hardware) DetachMedia(ctx context.Context, n *metal.Node, types []string) error {
	if err := wait(ctx, n); err != nil {
		return err
	}
	left := maps.Clone(stringMap(state(n, "media")))
	maps.DeleteFunc(left, func(device string, _ any) bool { return len(types) == 0 || slices.Contains(types, device) })
	saveState(n, "media", left)
	return nil
}

// Steps are those of a controller's own upkeep.
func (Hardware) Steps(context.Context, *metal.Node) ([]driver.Step, error) {
	return []driver.Step{{Interface: "management", Name: "clear_job_queue"}, {Interface: "management", Name: "reset_bmc"}}, nil
}

// RunStep succeeds.
func (h Hardware) RunStep(ctx context.Context, n *metal.Node, s metal.Step) (bool, error) {
	return run(ctx, n, h, s, func() error { return nil })
}

// run does a step that the runner offers.
func run(ctx context.Context, n *metal.Node, r driver.StepRunner, s metal.Step, do func() error) (bool, error) {
	offered, err := r.Steps(ctx, n)
	if err != nil {
		return false, err
	}
	if !slices.ContainsFunc(offered, func(o driver.Step) bool { return o.Interface == s.Interface && o.Name == s.Step }) {
		return false, problem.Invalidf("node %s: fake: no step %s.%s", n.ID, driver.Sanitize(s.Interface), driver.Sanitize(s.Step))
	}
	if err := wait(ctx, n); err != nil {
		return false, err
	}
	return false, do()
}

// BIOS has the settings that it was told.
type BIOS struct{}

// BIOSSettings lists them.
func (BIOS) BIOSSettings(ctx context.Context, n *metal.Node) ([]metal.BIOSSetting, error) {
	var out []metal.BIOSSetting
	for name, v := range stringMap(state(n, "bios")) {
		value, _ := v.(string)
		out = append(out, metal.BIOSSetting{Name: name, Value: &value})
	}
	return out, wait(ctx, n)
}

// Steps change and forget settings.
func (BIOS) Steps(context.Context, *metal.Node) ([]driver.Step, error) { return driver.BIOSSteps, nil }

// RunStep does one.
func (b BIOS) RunStep(ctx context.Context, n *metal.Node, s metal.Step) (bool, error) {
	return run(ctx, n, b, s, func() error {
		if s.Step == "factory_reset" {
			saveState(n, "bios", nil)
			return nil
		}
		wanted, err := driver.WantedSettings(s)
		if err != nil {
			return problem.Invalidf("node %s: fake: %w", n.ID, err)
		}
		next := stringMap(state(n, "bios"))
		for name, v := range wanted {
			next = with(next, name, metal.Text(v))
		}
		saveState(n, "bios", next)
		return nil
	})
}

// RAID has the volumes of the last configuration.
type RAID struct{}

// RAIDConfig lists them.
func (RAID) RAIDConfig(ctx context.Context, n *metal.Node) (metal.Object, error) {
	return stringMap(state(n, "raid")), wait(ctx, n)
}

// Steps make and remove volumes.
func (RAID) Steps(context.Context, *metal.Node) ([]driver.Step, error) { return driver.RAIDSteps, nil }

// RunStep does one.
func (r RAID) RunStep(ctx context.Context, n *metal.Node, s metal.Step) (bool, error) {
	return run(ctx, n, r, s, func() error {
		if s.Step == "delete_configuration" {
			saveState(n, "raid", nil)
			return nil
		}
		disks, err := driver.WantedDisks(n, s)
		if err != nil {
			return problem.Invalidf("node %s: fake: %w", n.ID, err)
		}
		saveState(n, "raid", map[string]any{"logical_disks": disks})
		return nil
	})
}

// Firmware of a machine that has a BIOS and a BMC.
type Firmware struct{}

// Components gives what was flashed, and 1.0 before.
func (Firmware) Components(ctx context.Context, n *metal.Node) ([]metal.FirmwareComponent, error) {
	var out []metal.FirmwareComponent
	for _, name := range []string{"bios", "bmc"} {
		version, ok := stringMap(state(n, "firmware"))[name].(string)
		if !ok {
			version = "1.0"
		}
		out = append(out, metal.FirmwareComponent{Component: name, InitialVersion: version, CurrentVersion: version})
	}
	return out, wait(ctx, n)
}

// Steps update the firmware.
func (Firmware) Steps(context.Context, *metal.Node) ([]driver.Step, error) {
	return driver.FirmwareSteps, nil
}

// RunStep takes the last part of the image's URL for its version.
func (f Firmware) RunStep(ctx context.Context, n *metal.Node, s metal.Step) (bool, error) {
	return run(ctx, n, f, s, func() error {
		updates, err := driver.WantedUpdates(s)
		if err != nil {
			return problem.Invalidf("node %s: fake: %w", n.ID, err)
		}
		next := stringMap(state(n, "firmware"))
		for _, u := range updates {
			if at, err := url.Parse(u.URL); err == nil {
				next = with(next, u.Component, path.Base(at.Path))
			}
		}
		saveState(n, "firmware", next)
		return nil
	})
}

// Console of a machine that says nothing.
type Console struct{}

// StartConsole succeeds.
func (Console) StartConsole(ctx context.Context, n *metal.Node) error { return wait(ctx, n) }

// StopConsole succeeds.
func (Console) StopConsole(ctx context.Context, n *metal.Node) error { return wait(ctx, n) }

// ConsoleInfo is empty: there is nothing to reach.
func (Console) ConsoleInfo(ctx context.Context, n *metal.Node) (metal.Object, error) {
	return metal.Object{}, wait(ctx, n)
}

// Vendor has the methods of Ironic's fake vendor, which say whether bar is kazoo.
type Vendor struct{}

// Methods describes them.
var Methods = map[string]metal.VendorMethod{
	"second_method":             {HTTPMethods: []string{"POST"}, Async: true, RequireExclusiveLock: true, Description: "Says whether bar is kazoo, to nobody."},
	"third_method_sync":         {HTTPMethods: []string{"POST"}, RequireExclusiveLock: true, Description: "Says whether bar is kazoo."},
	"fourth_method_shared_lock": {HTTPMethods: []string{"POST"}, Async: true, Description: "Says whether bar is kazoo, beside other work."},
}

// Call answers.
func (Vendor) Call(ctx context.Context, n *metal.Node, c metal.VendorCall) (any, error) {
	bar, ok := c.Args["bar"]
	if !ok {
		return nil, problem.Invalidf("node %s: fake: method %s lacks the argument bar", n.ID, driver.Sanitize(c.Method))
	}
	return bar == "kazoo", wait(ctx, n)
}
