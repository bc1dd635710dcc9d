// Package compute holds the types and the rules of servers and hosts: properties, the order of states, which host takes a server,
// and which of its orders a host gets. It is pure: it knows no SQL, no hypervisor, no HTTP, and no node of the bare metal inventory.
// Package compute/service changes the records by these rules.
package compute

import (
	"time"

	"salvor/job"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
)

// VMState is what a server is, as Nova tells it.
type VMState string

const (
	Building  VMState = "building"
	Active    VMState = "active"
	Stopped   VMState = "stopped"
	Paused    VMState = "paused"
	Suspended VMState = "suspended"
	Rescued   VMState = "rescued" // a rescue session is open; Power tells whether it runs
	Errored   VMState = "error"
	Deleted   VMState = "deleted" // the row stays for a while, for whoever asks what became of it
)

// Task is what is being done to a server; empty: nothing. The names are Nova's.
type Task string

const (
	NoTask      Task = ""
	Scheduling  Task = "scheduling"
	Spawning    Task = "spawning"
	Starting    Task = "powering-on"
	Stopping    Task = "powering-off"
	Rebooting   Task = "rebooting"
	HardReboot  Task = "rebooting_hard"
	Pausing     Task = "pausing"
	Unpausing   Task = "unpausing"
	Suspending  Task = "suspending"
	Resuming    Task = "resuming"
	Rescuing    Task = "rescuing"
	Unrescuing  Task = "unrescuing"
	Rebuilding  Task = "rebuilding"
	Deleting    Task = "deleting"
	Attaching   Task = "attaching volume" // shown as none: Nova has no task for it
	Reconciling Task = "reconciling"      // shown as none
)

// Power is whether a guest runs.
type Power string

const (
	PowerUnknown Power = ""
	PowerOn      Power = "on"
	PowerOff     Power = "off"
	PowerPaused  Power = "paused"
	PowerSaved   Power = "suspended" // its memory is on disk
	PowerCrashed Power = "crashed"
)

// Server is what a user boots.
type Server struct {
	record.Record
	// Num is the number that Cyclades' clients name it by; the store gives it.
	Num  int64
	Name string
	// Project and User own it; both empty where nobody authenticates.
	Project, User string
	Description   string
	Zone          string // availability zone
	Tags          []string
	Metadata      map[string]string

	// HostID is where it lives; empty until it is placed. Epoch is raised each time that it gets a host.
	HostID string
	Epoch  int64
	// GuestName is its name at the hypervisor.
	GuestName string
	// Foreign: it was adopted, its disks are none of ours.
	Foreign bool

	State VMState
	Task  Task
	Power Power // as last seen, or as the last operation left it
	// Wanted is how it should be when nothing works on it; reconciliation mends what differs.
	Wanted Power
	// Restarts are the times of the latest starts after crashes; they bound how often a crashed guest is started again.
	Restarts []time.Time
	// Pause is why its guest stands still although the server should run. Resumes are the times of the latest tries to let it go on after an I/O error.
	Pause   GuestPause
	Resumes []time.Time
	// AwaitsRoom: the guest stands still because a file system of its disks was full. StandsStillSince is when it was last seen to stand still after it ran.
	AwaitsRoom       bool
	StandsStillSince time.Time
	Locked           bool
	LockedReason     string
	// LockedByAdmin: an administrator who does not own the server locked the server; only administrators unlock the server.
	LockedByAdmin bool
	Fault         *Fault
	// LaunchedAt is when it last began to run what it runs, rescue included; TerminatedAt when it was deleted.
	LaunchedAt, TerminatedAt time.Time

	// Flavor is the flavor as it was at creation.
	Flavor Flavor
	// ImageID is the image that it was made from; empty: from a volume. ImageProperties are copied at creation.
	ImageID         string
	ImageProperties map[string]string
	// OS and OSFamily choose its rescue image.
	OS, OSFamily string
	Firmware     Firmware

	KeyName, PublicKey string
	UserData           secret.Value // base64; sealed at rest
	ConfigDrive        bool
	SecurityGroups     []string

	NICs  []NIC
	Disks []Disk
	// Rescue is the open session, or the last one if it Failed; nil: none.
	Rescue *rescue.Session
	// Drift is what somebody else than salvor changed of its guest, as its host last told it.
	Drift []Drift
	// StateCopied: its host last told that a copy of its UEFI variables and its machine type lies beside its disk in a shared store.
	StateCopied bool
}

// Fault is why a server is in error.
type Fault struct {
	Code      int
	Message   string
	Details   string
	CreatedAt time.Time
}

// Firmware is what a guest starts with.
type Firmware string

const (
	BIOS Firmware = "bios"
	UEFI Firmware = "uefi"
)

// NIC is a server's interface; its addresses are its own for life.
type NIC struct {
	ID        string // port id of the Compute API
	NetworkID string
	Bridge    string // on the host
	MAC       string
	Addresses []string // without prefix length
}

// Disk is one of a server's disks, in the order in which the guest sees them.
type Disk struct {
	// Name is the target in the guest: "vda".
	Name string
	// BootIndex: 0 is booted from; -1 never.
	BootIndex int
	// VolumeID is set on volumes; a disk without one lies in a disk store of its host.
	VolumeID            string
	DeleteOnTermination bool
	// Store, SizeGiB and ImageID tell of a local disk: the store's name on the host, its size, and what it is made from (empty: nothing).
	Store   string
	SizeGiB int
	ImageID string
	// Initiators are the names by which storage was asked to let a bare machine in to the volume.
	Initiators []string `json:",omitempty"`
}

// ServerFilter narrows a list of servers; zero fields do not narrow.
type ServerFilter struct {
	Project, User, HostID, Name, NameContains string
	State                                     VMState
	States                                    []VMState
	FlavorID, ImageID                         string
	Locked                                    *bool
	ChangesSince                              time.Time
	// Deleted lists deleted ones only; AnyDeleted lists them beside the others.
	Deleted, AnyDeleted bool
	// RescueImage keeps servers whose open session uses this rescue image.
	RescueImage int64
	// InRescue keeps servers with an open session; RescueExpired those whose session should have ended before.
	InRescue      bool
	RescueExpired time.Time
	// Task keeps the servers on which this task is at work.
	Task Task
}

// Subject is what the server's jobs work on.
func Subject(id string) job.Subject { return job.Subject{Kind: "server", ID: id} }

// Sees tells whether who may know of the server.
func (w Who) Sees(project string) bool {
	return w.Admin || w.Project == project
}

// Settle brings the state to what a power means, where no rescue holds the server; a session follows its power.
func (s *Server) Settle(p Power) {
	s.Power, s.Pause, s.AwaitsRoom = p, GuestPause{}, s.AwaitsRoom && p == PowerPaused
	if s.State == Rescued {
		if p == PowerOn && s.Rescue != nil && s.Rescue.State == rescue.Prepared {
			s.Rescue.State = rescue.Booting
		}
		if p == PowerOff && s.Rescue != nil && (s.Rescue.State == rescue.Booting || s.Rescue.State == rescue.Ready) {
			s.Rescue.State = rescue.Prepared
		}
		return
	}
	switch p {
	case PowerOn:
		s.State = Active
	case PowerOff, PowerCrashed:
		s.State = Stopped
	case PowerPaused:
		s.State = Paused
	case PowerSaved:
		s.State = Suspended
	}
}

func OrNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// TruncateText bounds a word of a user that goes into an error.
func TruncateText(s string) string {
	if len(s) > 100 {
		return s[:100] + "..."
	}
	return s
}

// Addresses are those of the server's NICs, in their order.
func (s *Server) Addresses() []string {
	out := []string{}
	for _, nic := range s.NICs {
		out = append(out, nic.Addresses...)
	}
	return out
}
