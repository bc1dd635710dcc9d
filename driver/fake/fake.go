// Package fake is hardware that exists only as a node's record. It answers from the record and keeps no state of its own. So any number of
// nodes may be asked at once, and a conductor that restarts finds them unchanged. It must not know who stores the record.
package fake

import (
	"context"
	"strconv"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
)

// DelayKey is the driver_info key that makes every request take this many seconds, as a slow BMC would.
const DelayKey = "fake_delay"

// maxDelay keeps a record from parking the conductor's work.
const maxDelay = 60.0

// Hardware implements driver.Power, Management, Boot, Inspect, Network and Rescue.
type Hardware struct{}

var (
	_ driver.Power      = Hardware{}
	_ driver.Management = Hardware{}
	_ driver.Inspect    = Hardware{}
	_ driver.Boot       = Boot{}
	_ driver.Rescue     = Rescue{}
)

// wait is one request to the machine that is not there.
func wait(ctx context.Context, n *metal.Node) error {
	if err := driver.CheckLease(ctx); err != nil {
		return driver.Trouble(err)
	}
	text := n.Info(DelayKey)
	if text == "" {
		return nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds >= 0 && seconds <= maxDelay) {
		return problem.Invalidf("node %s: %s must be a number of seconds between 0 and %v", n.ID, DelayKey, maxDelay)
	}
	timer := time.NewTimer(time.Duration(seconds * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return driver.Trouble(ctx.Err())
	}
}

// PowerState is the one of the record.
func (Hardware) PowerState(ctx context.Context, n *metal.Node) (metal.Power, error) {
	return n.PowerState, wait(ctx, n)
}

// SetPower succeeds; the caller writes the record.
func (Hardware) SetPower(ctx context.Context, n *metal.Node, want metal.Power) error {
	if want != metal.PowerOn && want != metal.PowerOff {
		return problem.Unsupportedf("set power of node %s: fake: cannot be %q", n.ID, want)
	}
	return wait(ctx, n)
}

// SoftOff finds a system that obeys at once. The record in the caller's hand is all there is
// of the machine, so it is the one to show it: who watches for the end would wait in vain.
func (Hardware) SoftOff(ctx context.Context, n *metal.Node) error {
	if err := wait(ctx, n); err != nil {
		return err
	}
	n.PowerState = metal.PowerOff
	return nil
}

// BootDevices lists what Ironic's fake management lists.
func (Hardware) BootDevices(ctx context.Context, n *metal.Node) ([]string, error) {
	return []string{"pxe", "disk", "cdrom"}, wait(ctx, n)
}

// BootDevice is the boot that was set, else the one that the open rescue session saved, else the disk.
func (Hardware) BootDevice(ctx context.Context, n *metal.Node) (rescue.Boot, error) {
	if set, ok := bootOverride(n); ok {
		return set, wait(ctx, n)
	}
	if n.Rescue != nil && n.Rescue.SavedKnown {
		return n.Rescue.Saved, wait(ctx, n)
	}
	return rescue.Boot{Device: "disk", Persistent: true, Mode: driver.BootMode(n)}, wait(ctx, n)
}

// SetBootDevice takes what BootDevices lists.
func (Hardware) SetBootDevice(ctx context.Context, n *metal.Node, b rescue.Boot) error {
	switch b.Device {
	case "", "pxe", "disk", "cdrom":
		keepBoot(n, b)
		return wait(ctx, n)
	}
	return problem.Invalidf("set boot device of node %s: fake: unknown device %q", n.ID, driver.Sanitize(b.Device))
}

// Inspect finds nothing: there is no machine, and an invented fact would look like a real one.
func (Hardware) Inspect(ctx context.Context, n *metal.Node) (driver.Inspected, error) {
	return driver.Inspected{}, wait(ctx, n)
}

// Boot boots nothing, but its plans are real, so that what is rendered from a plan
// can be tried without hardware.
type Boot struct{ Files driver.BootFiles }

// Plan makes a plan for iPXE, and for virtual media if it has an ISO image to show.
func (b Boot) Plan(n *metal.Node, r driver.Ramdisk) (*metal.BootPlan, error) {
	if r.ISO != "" {
		return b.Files.Plan(n, r, metal.BootMedia)
	}
	return b.Files.Plan(n, r, metal.BootIPXE)
}

// PrepareRamdisk succeeds.
func (Boot) PrepareRamdisk(ctx context.Context, n *metal.Node) error { return wait(ctx, n) }

// CleanUpRamdisk succeeds.
func (Boot) CleanUpRamdisk(ctx context.Context, n *metal.Node) error { return wait(ctx, n) }

// PrepareInstance succeeds.
func (Boot) PrepareInstance(ctx context.Context, n *metal.Node, _ rescue.Boot) error {
	return wait(ctx, n)
}

// CheckVolumes finds every machine able.
func (Boot) CheckVolumes(ctx context.Context, n *metal.Node, _ metal.VolumePlan) error {
	return wait(ctx, n)
}

// PlanVolumes makes a plan for iPXE.
func (b Boot) PlanVolumes(n *metal.Node, ports []*metal.Port, _ metal.VolumePlan, bootNumber int64) (*metal.BootPlan, error) {
	return b.Files.PlanVolumes(n, ports, bootNumber)
}

// PrepareVolumes succeeds.
func (Boot) PrepareVolumes(ctx context.Context, n *metal.Node, _ metal.VolumePlan) error {
	return wait(ctx, n)
}

// RefreshVolumes succeeds.
func (Boot) RefreshVolumes(ctx context.Context, n *metal.Node, _ metal.VolumePlan) error {
	return wait(ctx, n)
}

// CleanUpVolumes succeeds.
func (Boot) CleanUpVolumes(ctx context.Context, n *metal.Node) error { return wait(ctx, n) }

// Rescue is done at once and boots nothing.
type Rescue struct{}

// NeedsRamdisk is false.
func (Rescue) NeedsRamdisk() bool { return false }

// Finalize has nothing to do.
func (Rescue) Finalize(ctx context.Context, n *metal.Node, _ driver.Agent, _ driver.Finalize) error {
	return wait(ctx, n)
}

// Deploy accepts the system that is there and pays no heed to heartbeats.
type Deploy struct{}

// Heartbeats is none.
func (Deploy) Heartbeats() string { return "" }

// NeedsImage is false.
func (Deploy) NeedsImage() bool { return false }

// BootsRamdisk is false.
func (Deploy) BootsRamdisk() bool { return false }
