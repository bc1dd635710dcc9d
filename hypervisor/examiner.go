package hypervisor

import "context"

// Examiner reads the disks of a guest that is off in a helper guest. The machine's own kernel never mounts them.
type Examiner interface {
	// RunHelper boots the kernel of d.Rescue beside the local disks of d, calls use while it runs, and ends the helper in every case. The helper
	// reads the disks only: it cannot write to them. It has no network and no console, and d.ChannelPath is its only way out. It is
	// another guest than d, in no list of guests, and it ends with the connection of this process.
	//
	// limited tells use whether control groups bound the helper's memory and CPU; without them only its size does. Unsupported: what d asks for
	// cannot be. Conflict: a disk is in use.
	RunHelper(ctx context.Context, d Domain, use func(ctx context.Context, limited bool) error) error
}
