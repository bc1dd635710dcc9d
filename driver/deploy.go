package driver

import (
	"context"
	"encoding/json"

	"salvor/metal"
	"salvor/wire/agent"
)

// Deploy puts a system onto a node, or accepts the one that is there.
type Deploy interface {
	// Heartbeats says what a heartbeat means to it: "" nothing (the API warns), "wait" it makes the waiting operation go on.
	// One that waits for heartbeats can also clean and serve a node by its ramdisk.
	Heartbeats() string
	// NeedsImage tells whether instance_info must name an image that it writes; false: the disk already holds a system.
	NeedsImage() bool
	// BootsRamdisk tells whether the system is a ramdisk that instance_info names (kernel, ramdisk), booted each time.
	BootsRamdisk() bool
}

// Imager is a deploy interface that has the agent write an image.
type Imager interface {
	Deploy
	// LocalImage is the file of ours that has to be served to the machine, checked; empty where the image is at a URL or in Glance.
	// Invalid if the node may not be given it.
	LocalImage(n *metal.Node) (string, error)
	// Prepare makes the parameters of agent.PrepareImage. drive is the stored config drive, or nil. n.Plan is the boot of the ramdisk
	// that will fetch the image. Invalid: what is wrong with the record.
	Prepare(n *metal.Node, drive json.RawMessage) (agent.PrepareParams, error)
}

// Orders are the command doors of the agents in ramdisks.
type Orders interface {
	// Give hands a command to an agent and returns what it says at once: often that the command runs. ErrGone if nothing listens
	// (nothing was taken), Unavailable if it is not known whether it was taken or the agent is busy, Conflict if it was refused.
	Give(ctx context.Context, n *metal.Node, a Agent, name string, params any) (agent.Result, error)
	// List gives the commands that this agent has taken since it started, oldest first, without their outcomes.
	List(ctx context.Context, n *metal.Node, a Agent) ([]agent.Result, error)
	// Command gives the command with an id, which an earlier answer of this agent named. NotFound: the agent answers and does not know the id.
	Command(ctx context.Context, n *metal.Node, a Agent, id string) (agent.Result, error)
}

// RamdiskInspect is an inspect interface whose findings come from a ramdisk that calls back,
// and not from Inspect.
type RamdiskInspect interface {
	Inspect
	// CallsBack is true.
	CallsBack() bool
}
