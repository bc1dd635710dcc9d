package compute

import (
	"strings"
	"time"

	"salvor/job"
	"salvor/record"
	"salvor/secret"
)

// Disposition is what becomes of a server's disks when it is evacuated.
type Disposition string

const (
	// KeepDisk: its disks lie in a store that the destination sees too.
	KeepDisk Disposition = "keep"
	// Reattach: it has volumes only.
	Reattach Disposition = "reattach"
	// Reimage: its disk died with the host; it is made anew from its image, its data are lost.
	Reimage Disposition = "reimage"
	// Cannot: it stays where it is; why is said.
	Cannot Disposition = "cannot"
)

// PlanState is how far a plan has come.
type PlanState string

const (
	PlanDrafted   PlanState = "drafted" // nothing was done: a dry run
	PlanRunning   PlanState = "running"
	PlanDone      PlanState = "done"        // every server that could be moved was; a drained host is empty
	PlanPartly    PlanState = "partly done" // some were not, or need consent
	PlanCancelled PlanState = "cancelled"
)

// Plan says what would become of each server of a host, and, once it is run, what became of it.
type Plan struct {
	record.Record
	Num    int64
	HostID string
	State  PlanState
	// By is who asked; Drain: the host lives, and is emptied for planned work.
	By    string
	Drain bool
	// Items are in the order in which they are moved.
	Items []PlanItem
	// Missing says what is needed before it can be run; empty: nothing. It names the command.
	Missing string
	// SurvivesNextFailure says whether, after it, one more host may die and all of its servers still find a place; OneMoreWhy which may not. Without
	// words it was not asked.
	OneMore    bool
	OneMoreWhy string
	Parallel   int
	EndedAt    time.Time
}

// PlanItem is one server of a plan.
type PlanItem struct {
	ServerID, Name string
	// Project owns it; Priority is its place in the order, higher first.
	Project     string
	Priority    int
	Disposition Disposition
	// DestID is the host where it would go; empty: none.
	DestID string
	// Why says what led to the disposition.
	Why string
	// LosesVariables: the UEFI variables of the server lie on its host alone, so it begins with new ones.
	LosesVariables bool
	// MayLoseVariables: who made the plan, or the host's group, consents to new UEFI variables.
	MayLoseVariables bool
	// NeedsConsent: the server only moves if somebody consents to the loss of its data or of its UEFI variables, or the group's policy does.
	NeedsConsent bool
	// Consented: it was named, or the policy allows it.
	Consented bool
	// Power, State and InRescue are how it was.
	Power    Power
	State    VMState
	InRescue bool
	// MoveID is its move, once it was begun; Problem why it could not be.
	MoveID  string
	Problem string
}

// PlanFilter narrows a list of plans.
type PlanFilter struct {
	HostID string
	State  PlanState
}

// MoveKind is why a server changes its host. The words are Nova's.
type MoveKind string

const (
	Evacuation    MoveKind = "evacuation"
	LiveMigration MoveKind = "live-migration"
	Migration     MoveKind = "migration" // off, elsewhere, on again
)

// MoveState is how far a move has come. The words are Nova's.
type MoveState string

const (
	MoveAccepted  MoveState = "accepted"
	MovePreparing MoveState = "pre-migrating" // it has a destination
	// MoveAttached: the destination may have attached its disks: there is no way back to the source.
	MoveAttached  MoveState = "running"
	MoveDone      MoveState = "done"      // it lives at the destination; the source has something to clean up
	MoveCompleted MoveState = "completed" // and nothing of it is left at the source
	MoveFailed    MoveState = "failed"    // it is where it was, or went on from the destination by another move
	MoveError     MoveState = "error"     // no destination was found
	MoveCancelled MoveState = "cancelled"
)

// MoveStates are all of them.
var MoveStates = []MoveState{MoveAccepted, MovePreparing, MoveAttached, MoveDone, MoveCompleted, MoveFailed, MoveError, MoveCancelled}

// OpenMoves are the states of moves that go on; a server has at most one such.
var OpenMoves = []MoveState{MoveAccepted, MovePreparing, MoveAttached}

// CleanUp is what a host is told to do with what it has of a server that it lost.
type CleanUp string

const (
	// CleanKeep: the server is still this host's: start again what should run.
	CleanKeep CleanUp = "keep"
	// CleanWait: a move is open; touch nothing, start nothing.
	CleanWait CleanUp = "wait"
	// CleanGuest: end the guest and remove all that is the host's own of it, but keep its disks.
	CleanGuest CleanUp = "destroy"
	// CleanDisk: and its local disks with it.
	CleanDisk CleanUp = "destroy with disk"
	// CleanOrphan: another host had the server, and is gone. Put the server's disks in shared stores into quarantine, if no host renews their leases.
	CleanOrphan CleanUp = "quarantine shared disks"
	// CleanAsk: there is no record that would allow anything; an operator must say.
	CleanAsk CleanUp = "ask"
)

// Move is the record of one server's way from one host to another; it outlives both.
type Move struct {
	record.Record
	Num      int64
	ServerID string
	// SourceID and DestID are hosts; DestID is empty until there is one.
	SourceID, DestID string
	// ReceiptID and PlanID are empty where there were none (planned work needs no receipt).
	ReceiptID, PlanID string
	Kind              MoveKind
	State             MoveState
	Disposition       Disposition
	// SourceEpoch is the server's epoch on the source, Epoch the one that the move gave it; see takeEpoch.
	SourceEpoch, Epoch int64
	// Incarnation is the former incarnation of the database that gave both epochs; empty: the current one.
	Incarnation string
	// WasState, WasTask, WasPower and Wanted are what the server was and what was wanted of it when the move began.
	WasState VMState
	WasTask  Task
	WasPower Power
	Wanted   Power
	// MayLoseVariables: without a readable copy of its UEFI variables the server begins with new ones.
	MayLoseVariables bool
	// Clean is what the source is told; set when the destination has attached.
	Clean CleanUp
	// Words say what of the server's state could not be kept ("paused: it begins anew").
	Words string
	// Problem is why it failed. User and Project are the server's.
	Problem       string
	User, Project string
	EndedAt       time.Time
}

// Going tells whether the move goes on.
func (m *Move) Going() bool {
	for _, s := range OpenMoves {
		if m.State == s {
			return true
		}
	}
	return false
}

// Status is how the move went for its server. State is how far it came, for its source: a move whose guest did not start at the destination
// is MoveDone, because its source has something to clean up, and its Status is MoveError.
func (m *Move) Status() MoveState {
	failure, _, _ := strings.Cut(m.Problem, NotCleanedUp)
	switch {
	case m.State != MoveDone && m.State != MoveCompleted || failure == "":
		return m.State
	case strings.Contains(failure, WentOn):
		return MoveFailed
	case strings.HasPrefix(failure, GivenUp):
		return MoveCancelled
	}
	return MoveError
}

// MoveFilter narrows a list of moves; zero fields do not narrow.
type MoveFilter struct {
	ServerID, SourceID, DestID, PlanID, ReceiptID string
	// HostID keeps those from or to a host.
	HostID                      string
	Kind                        MoveKind
	State                       MoveState
	Project, User               string
	ChangesSince, ChangesBefore time.Time
	// Open keeps those that go on; Uncleaned those that are Done and whose source has not cleaned up.
	Open, Uncleaned bool
}

// NotCleanedUp begins, in the problem of a move, why its source could not clean up.
const NotCleanedUp = "not cleaned up: "

// The problem of a move begins with GivenUp if a deletion or a reset of the server ended it, and has WentOn before the id of the move that
// brought the server on.
const (
	GivenUp = "given up: "
	WentOn  = "went on by move "
)

// Kinds of jobs of hosts, and of the one that moves a server.
const (
	JobFence    job.Kind = "host fence"
	JobEvacuate job.Kind = "host evacuate"
	JobDrain    job.Kind = "host drain"
	JobMove     job.Kind = "server move"
)

// FenceArgs are the arguments of JobFence.
type FenceArgs struct {
	// Words of an attestation; empty: it is proven.
	Words string `json:"words,omitempty"`
	// Disputes are the kinds of live evidence against the attestation that who attests knows, and knows better.
	Disputes []ContradictionCode `json:"disputes,omitempty"`
	// Heal: the host is to be evacuated when it is fenced, by its group's policy.
	Heal bool `json:"heal,omitempty"`
	// Why it is suspected, where nobody asked.
	Why string `json:"why,omitempty"`
}

// EvacuateArgs are the arguments of JobEvacuate and JobDrain.
type EvacuateArgs struct {
	PlanID string `json:"plan"`
}

// MoveArgs are the arguments of JobMove.
type MoveArgs struct {
	MoveID string `json:"move"`
	// DestID is where it should go; empty: the best host. Force: nowhere else.
	DestID string `json:"dest,omitempty"`
	Force  bool   `json:"force,omitempty"`
	// Hidden is JSON of a JobSecret, which goes with the job and not with its arguments.
	Hidden secret.Value `json:"-"`
}

// DiskProbe asks a host whether it sees a disk of a server, and whether a guest of that server is there already.
type DiskProbe struct {
	ServerID  string `json:"server_id"`
	GuestName string `json:"guest_name"`
	// Marker of the store in which the disk lies; Disk as the host must know it. A probe without a disk asks for the guest alone.
	Marker string    `json:"marker,omitempty"`
	Disk   *SpecDisk `json:"disk,omitempty"`
}

// Sight is what a host sees of a disk.
type Sight string

const (
	// SightSame: the store has that marker, and the disk in it is proven to be the server's.
	SightSame Sight = "same"
	// SightAbsent: there is no store of that marker here.
	SightAbsent Sight = "absent"
	// SightMissing: the store is here, and the disk is not in it, or is not proven to be the server's.
	SightMissing Sight = "missing"
	// SightUnknown: it could not be read; nothing follows from that.
	SightUnknown Sight = "unknown"
	// SightGuest: a guest of that UUID or name is here already.
	SightGuest Sight = "guest"
)

// DiskSight answers a DiskProbe, in the same place of the list.
type DiskSight struct {
	Sight Sight  `json:"sight"`
	Text  string `json:"text,omitempty"`
}

// MoveRequest is what an administrator asks of the evacuation of one server.
type MoveRequest struct {
	// DestHost is a UUID or a name; empty: the best host. Force: it may be disabled, full or in another zone, and there is no other.
	DestHost string
	Force    bool
	// OnSharedStorage is the administrator's word that the disk lies on shared storage: a server whose disk does not is not re-imaged.
	OnSharedStorage bool
	// Password, in clear, of the system on a disk that is made anew; a disk that is kept keeps its passwords.
	Password secret.Value
}
