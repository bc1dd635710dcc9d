package agent

import (
	"context"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

// Deploy accepts a disk that already holds a system, or a ramdisk that is the
// system; a heartbeat makes the waiting operation go on. It is custom-agent and ramdisk.
type Deploy struct {
	// Ramdisk: the system is the ramdisk that instance_info names.
	Ramdisk bool
}

var _ driver.Deploy = Deploy{}

// Heartbeats is wait.
func (Deploy) Heartbeats() string { return "wait" }

// NeedsImage is false.
func (Deploy) NeedsImage() bool { return false }

// BootsRamdisk is true of ramdisk.
func (d Deploy) BootsRamdisk() bool { return d.Ramdisk }

// NoRescue is the rescue interface no-rescue.
type NoRescue struct{}

var _ driver.Rescue = NoRescue{}

// NeedsRamdisk is false.
func (NoRescue) NeedsRamdisk() bool { return false }

// Finalize is Unsupported.
func (NoRescue) Finalize(_ context.Context, n *metal.Node, _ driver.Agent, _ driver.Finalize) error {
	return problem.Unsupportedf("finalize rescue of node %s: its rescue interface is no-rescue", n.ID)
}
