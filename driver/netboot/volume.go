package netboot

import (
	"context"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
)

var _ driver.VolumeBoot = (*Boot)(nil)

// CheckVolumes holds a plan to what this road can do: iSCSI by an iPXE script, fibre channel by
// the machine's own adapter.
func (b *Boot) CheckVolumes(_ context.Context, n *metal.Node, v metal.VolumePlan) error {
	if v.Root.Type == metal.ISCSI && b.road != metal.RoadIPXE {
		return problem.Invalidf("node %s: HTTP boot cannot start from an iSCSI volume; use the boot interface ipxe", n.ID)
	}
	return nil
}

// PlanVolumes has the machine ask for the script that attaches its iSCSI volumes.
func (b *Boot) PlanVolumes(n *metal.Node, ports []*metal.Port, v metal.VolumePlan, bootNumber int64) (*metal.BootPlan, error) {
	if v.Root.Type != metal.ISCSI {
		return nil, nil
	}
	return b.files.PlanVolumes(n, ports, bootNumber)
}

// PrepareVolumes sets the network, or the disk that a fibre channel adapter shows, as the boot device for good.
func (b *Boot) PrepareVolumes(ctx context.Context, n *metal.Node, v metal.VolumePlan) error {
	if v.Root.Type != metal.ISCSI {
		return b.set(ctx, n, driver.BootsFrom(n))
	}
	return b.set(ctx, n, rescue.Boot{Device: "pxe", Mode: driver.BootMode(n), Persistent: true})
}

// RefreshVolumes has nothing to do: the script is rendered from the targets when the machine asks.
func (b *Boot) RefreshVolumes(context.Context, *metal.Node, metal.VolumePlan) error { return nil }

// CleanUpVolumes removes the override; no volume is kept in the machine.
func (b *Boot) CleanUpVolumes(ctx context.Context, n *metal.Node) error {
	return b.set(ctx, n, rescue.Boot{})
}
