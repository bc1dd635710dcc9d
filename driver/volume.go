package driver

import (
	"context"
	"strings"

	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
)

// VolumeBoot is what a boot interface has beside Boot where it brings machines to their
// volumes. A plan given to it has a root. Every method may be repeated.
type VolumeBoot interface {
	// CheckVolumes tells, before anything is touched, whether this machine can boot from them; it may ask the BMC.
	CheckVolumes(ctx context.Context, n *metal.Node, v metal.VolumePlan) error
	// PlanVolumes makes the boot plan of a machine that asks us on its way to its volumes; nil where it finds them without us.
	PlanVolumes(n *metal.Node, ports []*metal.Port, v metal.VolumePlan, bootNumber int64) (*metal.BootPlan, error)
	// PrepareVolumes makes the root volume the machine's boot, for good.
	PrepareVolumes(ctx context.Context, n *metal.Node, v metal.VolumePlan) error
	// RefreshVolumes brings what the machine itself keeps of its volumes up to date and leaves its boot device
	// alone; nothing where it asks us at each boot.
	RefreshVolumes(ctx context.Context, n *metal.Node, v metal.VolumePlan) error
	// CleanUpVolumes has the machine forget volumes, credentials included, and the boot from them. Harmless when there is nothing.
	CleanUpVolumes(ctx context.Context, n *metal.Node) error
}

// BootsFrom is the boot device of a machine whose own adapter finds its root volume: firmware
// sees a fibre channel disk as a disk.
func BootsFrom(n *metal.Node) rescue.Boot {
	return rescue.Boot{Device: "disk", Mode: BootMode(n), Persistent: true}
}

// PlanVolumes makes the boot plan of a machine that gets a script which leads it to its volumes.
func (f BootFiles) PlanVolumes(n *metal.Node, ports []*metal.Port, bootNumber int64) (*metal.BootPlan, error) {
	if f.URL == "" {
		return nil, problem.Invalidf("boot plan of node %s: this conductor has no address that a machine can call: set [ramdisk]listen or [service_catalog]endpoint_override", n.ID)
	}
	plan := &metal.BootPlan{Method: metal.BootIPXE, Path: bootPath(), BootNumber: bootNumber, Persistent: true, Volumes: true, URL: strings.TrimRight(f.URL, "/"), FirmwareMode: BootMode(n)}
	plan.MACs = macsOf(ports)
	if len(plan.MACs) == 0 {
		return nil, problem.Invalidf("boot plan of node %s: it has no port with pxe_enabled, so its request cannot be told from others", n.ID)
	}
	return plan, nil
}
