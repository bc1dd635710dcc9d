package netboot

import (
	"context"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
)

var _ driver.VolumeBoot = (*Boot)(nil)

// WithInitiator has the machine's own initiator bring it to iSCSI volumes.
func (b *Boot) WithInitiator(own driver.VolumeBoot) *Boot {
	b.own = own
	return b
}

// CheckVolumes holds a plan to what this boot method can do: iSCSI by an iPXE script or the machine's own
// initiator, fibre channel by its adapter.
func (b *Boot) CheckVolumes(ctx context.Context, n *metal.Node, v metal.VolumePlan) error {
	if b.own != nil {
		return b.own.CheckVolumes(ctx, n, v)
	}
	if v.Root.Type == metal.ISCSI && b.method != metal.BootIPXE {
		return problem.Invalidf("node %s: HTTP boot cannot start from an iSCSI volume; use the boot interface ipxe", n.ID)
	}
	return nil
}

// PlanVolumes has the machine ask for the script that attaches its iSCSI volumes.
func (b *Boot) PlanVolumes(n *metal.Node, ports []*metal.Port, v metal.VolumePlan, bootNumber int64) (*metal.BootPlan, error) {
	if b.own != nil || v.Root.Type != metal.ISCSI {
		return nil, nil
	}
	return b.files.PlanVolumes(n, ports, bootNumber)
}

// PrepareVolumes sets the network, or the disk that a fibre channel adapter shows, as the boot device for good.
func (b *Boot) PrepareVolumes(ctx context.Context, n *metal.Node, v metal.VolumePlan) error {
	if b.own != nil {
		return b.own.PrepareVolumes(ctx, n, v)
	}
	if v.Root.Type != metal.ISCSI {
		return b.set(ctx, n, driver.BootsFrom(n))
	}
	return b.set(ctx, n, rescue.Boot{Device: "pxe", Mode: driver.BootMode(n), Persistent: true})
}

// RefreshVolumes has nothing to do where a script is rendered from the targets when the machine asks.
func (b *Boot) RefreshVolumes(ctx context.Context, n *metal.Node, v metal.VolumePlan) error {
	if b.own != nil {
		return b.own.RefreshVolumes(ctx, n, v)
	}
	return nil
}

// CleanUpVolumes removes the override; only an initiator keeps volumes in the machine.
func (b *Boot) CleanUpVolumes(ctx context.Context, n *metal.Node) error {
	if b.own != nil {
		return b.own.CleanUpVolumes(ctx, n)
	}
	return b.set(ctx, n, rescue.Boot{})
}
