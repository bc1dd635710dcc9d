// Package manual is hardware without a BMC: people press its buttons. The package cannot know the power state, so it refuses to report or
// set it instead of pretending. It assumes that people set the boot devices by hand beforehand (network first, then disk), as Ironic's noop
// management does.
package manual

import (
	"context"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
)

// Hardware implements driver.Power and driver.Management.
type Hardware struct{}

var (
	_ driver.Power      = Hardware{}
	_ driver.Management = Hardware{}
)

func refuse(op string, n *metal.Node) error {
	return problem.Unsupportedf("%s of node %s: manual-management has no BMC; someone must do it by hand", op, n.ID)
}

// PowerState is Unsupported.
func (Hardware) PowerState(_ context.Context, n *metal.Node) (metal.Power, error) {
	return metal.PowerUnknown, refuse("read power", n)
}

// SetPower is Unsupported.
func (Hardware) SetPower(_ context.Context, n *metal.Node, want metal.Power) error {
	return refuse("set "+string(want), n)
}

// SoftOff is Unsupported.
func (Hardware) SoftOff(_ context.Context, n *metal.Node) error { return refuse("soft power off", n) }

// BootDevices lists what a machine that was set up by hand boots from.
func (Hardware) BootDevices(context.Context, *metal.Node) ([]string, error) {
	return []string{"pxe", "disk"}, nil
}

// BootDevice knows of no override.
func (Hardware) BootDevice(_ context.Context, n *metal.Node) (rescue.Boot, error) {
	return rescue.Boot{Mode: driver.BootMode(n)}, nil
}

// SetBootDevice changes nothing and succeeds.
func (Hardware) SetBootDevice(context.Context, *metal.Node, rescue.Boot) error { return nil }
