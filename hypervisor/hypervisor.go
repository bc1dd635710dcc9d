// Package hypervisor is the contract for what runs servers: libvirt on a VM host,
// Ganeti over its API. A hypervisor knows guests as they are; it knows no store, no job, no
// disk image and no other hypervisor.
package hypervisor

import (
	"context"
	"time"

	"salvor/compute"
	"salvor/secret"
)

// Domain is a guest to be defined: the spec, and where on this host its parts lie.
type Domain struct {
	compute.Spec
	// Paths are the files of the spec's local disks, by disk name, with their formats ("raw", "qcow2").
	Paths map[string]DiskFile
	// CHAP passwords by volume id.
	CHAP map[string]secret.Value
	// DrivePath is the config drive's ISO; empty: none.
	DrivePath string
	// Rescue files, if Spec.Rescue is set. RescueImage is an absolute path, or a URL where the hypervisor itself reads it.
	RescueImage, RescueRamdisk, RescueDrivePath string
	// RescueFormat of an ISO or disk: "raw" or "qcow2".
	RescueFormat string
	// Adopted: the guest was there before us. One that is gone is not made anew: it is problem.NotFound.
	Adopted bool
	// State is what came with the guest from another host; nil: nothing. Define uses it where this host has no guest of that UUID.
	State *compute.GuestState
	// AnyMachine: the guest may get another machine type than State names, where this host does not offer that.
	AnyMachine bool
	// ConsolePath is the file that the serial console is written to; ChannelPath the socket of the rescue channel; empty: none.
	ConsolePath, ChannelPath string
}

// DiskFile is a disk's file on this host.
type DiskFile struct{ Path, Format string }

// Power is a wish about a guest's power.
type Power struct {
	State compute.Power // PowerOn, PowerOff, PowerPaused or PowerSaved
	// Soft asks the guest's system first and waits for at most Within; then it is forced.
	Soft   bool
	Within time.Duration
	// Restart: off first, whatever it is.
	Restart bool
	// KeepSaved: a guest whose memory is saved to disk is not switched off, which would give the memory up. It is problem.Conflict then.
	KeepSaved bool
}

// Hypervisor drives the guests of one host. Every method reads first and repeats harmlessly;
// a hypervisor that does not answer is problem.Unavailable, a guest that is not there problem.NotFound.
type Hypervisor interface {
	// Inventory tells what the host has; stores, bridges and agent are filled in by who asks.
	Inventory(ctx context.Context) (compute.Inventory, error)
	// Guests lists all guests, ours and others.
	Guests(ctx context.Context) ([]compute.Guest, error)
	// Define makes the persistent definition what d says; a running guest gets it at its next start. A guest of the
	// same name or UUID that is none of ours is problem.Conflict.
	Define(ctx context.Context, d Domain) error
	// SetPower brings a guest to a power state, proved by a read-back; soft tells whether the guest's own shutdown was enough.
	SetPower(ctx context.Context, id string, p Power) (soft bool, err error)
	// Remove ends the guest and removes its definition; none is no error. It touches no disk.
	Remove(ctx context.Context, id string) error
}

// Finder finds guests where the hypervisor moves them by itself.
type Finder interface {
	// Guest tells of one of ours on whichever host it is; problem.NotFound if it is on none.
	Guest(ctx context.Context, id string) (*compute.Guest, error)
}

// Plugger changes the disks of a running guest.
type Plugger interface {
	// Plug attaches or detaches (on false) one disk of d, in the running guest and in the definition.
	Plug(ctx context.Context, d Domain, disk string, on bool) error
}

// Exporter gives what a guest would lose on its way to another host.
type Exporter interface {
	// Export gives the state of a guest. Conflict: the guest runs, and its firmware may still write; with running that is no matter, and a state that
	// changes amid the copy is problem.Unavailable.
	Export(ctx context.Context, id string, running bool) (*compute.GuestState, error)
}

// Watcher tells of changes as they happen.
type Watcher interface {
	// Watch sends the id of a guest each time that one begins, ends or changes, until ctx ends or the connection breaks.
	Watch(ctx context.Context, changed chan<- string) error
}

// Autostarter says whether a hypervisor starts guests by itself when the machine boots: those of ours never do.
type Autostarter interface {
	SetAutostart(ctx context.Context, id string, on bool) error
}

// Killer ends guests where what drives them hangs or is dead.
type Killer interface {
	// Kill ends at once, by their processes, all guests of ours on this machine, and those of ids. Only a process that is proven to be
	// such a guest's is ended. nil: none is left; problem.Unavailable: some is, or it cannot be known.
	Kill(ctx context.Context, ids []string) error
}

// Migrator brings a running guest over to another host of the same kind without its noticing. Each step is asked on the side that
// it names, in this order, and passes its cookie on to the next. A guest that has left, or come, is no error.
type Migrator interface {
	// Begin, on the source, says what the guest is.
	Begin(ctx context.Context, id string) (cookie []byte, err error)
	// Prepare, on the destination, listens at listen (an address) for the guest that d says; peer is where.
	Prepare(ctx context.Context, d Domain, listen string, cookie []byte) (answer []byte, peer string, err error)
	// Perform, on the source, sends the guest to peer; it runs on all the while.
	Perform(ctx context.Context, id, peer string, cookie []byte) (answer []byte, err error)
	// Finish, on the destination, lets the guest run there; with cancelled it throws away what came.
	Finish(ctx context.Context, d Domain, cookie []byte, cancelled bool) (answer []byte, err error)
	// Confirm, on the source, ends what is left there; with cancelled the guest goes on there.
	Confirm(ctx context.Context, id string, cookie []byte, cancelled bool) error
}

// Mover moves guests between the hosts of a cluster that knows them all.
type Mover interface {
	// SetOffline tells the cluster that the host of that name is dead (or is not any more). Who calls it has proven it.
	SetOffline(ctx context.Context, host string, offline bool) error
	// Reaches asks anew whether the host of that name answers the cluster. One that is offline is not asked: answers is false then.
	Reaches(ctx context.Context, host string) (answers, offline bool, err error)
	// Failover starts a guest whose host is offline on another one, to (empty: the cluster chooses), and tells where it is.
	Failover(ctx context.Context, id, to string) (host string, err error)
	// Migrate moves a guest of a living host: live, or off and on again.
	Migrate(ctx context.Context, id, to string, live bool) (host string, err error)
	// RenewMirrors gives the guests that had the mirror of a disk on this host, which is offline, another mirror elsewhere; false: none had.
	RenewMirrors(ctx context.Context) (bool, error)
}
