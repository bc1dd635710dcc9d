package compute

import (
	"slices"

	"salvor/job"
)

// Semantics is in which of two ways rescue is understood.
type Semantics string

const (
	AnySemantics      Semantics = ""
	NovaSemantics     Semantics = "soft-off"    // Nova: a running server is powered off for a rescue, which boots at once
	CycladesSemantics Semantics = "must-be-off" // Cyclades: a rescue takes a stopped server; start boots what it prepared
)

// Need is what a rule asks of the power or of the session.
type Need string

const (
	AnyPower   Need = ""
	Running    Need = "running"
	NotOn      Need = "not running"
	NotSaved   Need = "memory not saved"            // a guest with saved memory goes on with the disks that it had
	Standstill Need = "should run and stands still" // see Server.StandsStill
	NoSession  Need = "no session"
	Session    Need = "open session"
)

// Rule is one row of the table of actions: where it applies, and what it sets going.
type Rule struct {
	Action Action
	Manner Semantics
	States []VMState
	Power  Need
	Rescue Need
	// Launched: it must have run once. Anytime passes tasks, Lockless the lock.
	Launched, Anytime, Lockless bool
	// Task is set and Job inserted; both are empty where the row alone changes.
	Task Task
	Job  job.Kind
	// Wanted is the power that it leads to; empty: as it was, or as the arguments say.
	Wanted Power
}

var (
	alive    = []VMState{Building, Active, Stopped, Paused, Suspended, Rescued, Errored}
	rebuilds = []VMState{Active, Stopped, Errored}
)

// Rules is the table: an action is allowed where a row of its manner matches, and refused elsewhere.
var Rules = []Rule{
	{Action: Start, States: []VMState{Stopped}, Rescue: NoSession, Launched: true, Task: Starting, Job: JobPower, Wanted: PowerOn},
	{Action: Start, Manner: CycladesSemantics, States: []VMState{Rescued}, Power: NotOn, Rescue: Session, Task: Starting, Job: JobPower, Wanted: PowerOn},
	// Cyclades has no word for unpause and resume: start lets a guest go on that stands still.
	{Action: Start, Manner: CycladesSemantics, States: []VMState{Paused, Suspended}, Launched: true, Task: Starting, Job: JobPower, Wanted: PowerOn},
	{Action: Stop, Manner: NovaSemantics, States: []VMState{Active, Errored}, Launched: true, Task: Stopping, Job: JobPower, Wanted: PowerOff},
	{Action: Stop, Manner: CycladesSemantics, States: []VMState{Active}, Task: Stopping, Job: JobPower, Wanted: PowerOff},
	{Action: Stop, Manner: CycladesSemantics, States: []VMState{Rescued}, Power: Running, Task: Stopping, Job: JobPower, Wanted: PowerOff},
	// No dead end: what failed is stopped, whatever runs of it, and may then be started, rescued or unrescued.
	{Action: Stop, Manner: CycladesSemantics, States: []VMState{Errored}, Launched: true, Task: Stopping, Job: JobPower, Wanted: PowerOff},
	{Action: Reboot, States: []VMState{Active}, Task: Rebooting, Job: JobPower, Wanted: PowerOn},
	{Action: Reboot, Manner: CycladesSemantics, States: []VMState{Rescued}, Power: Running, Rescue: Session, Task: Rebooting, Job: JobPower, Wanted: PowerOn},
	{Action: RebootHard, Manner: NovaSemantics, States: []VMState{Active, Stopped, Paused, Suspended, Errored}, Rescue: NoSession, Launched: true, Task: HardReboot, Job: JobPower, Wanted: PowerOn},
	{Action: RebootHard, Manner: CycladesSemantics, States: []VMState{Active, Paused, Suspended}, Task: HardReboot, Job: JobPower, Wanted: PowerOn},
	{Action: RebootHard, Manner: CycladesSemantics, States: []VMState{Rescued}, Power: Running, Rescue: Session, Task: HardReboot, Job: JobPower, Wanted: PowerOn},
	{Action: Pause, States: []VMState{Active}, Task: Pausing, Job: JobPower, Wanted: PowerPaused},
	{Action: Unpause, States: []VMState{Paused}, Task: Unpausing, Job: JobPower, Wanted: PowerOn},
	// A rescue system that somebody else paused or saved goes on; the server stays in its session.
	{Action: Unpause, States: []VMState{Rescued}, Power: Standstill, Rescue: Session, Task: Unpausing, Job: JobPower, Wanted: PowerOn},
	{Action: Suspend, States: []VMState{Active}, Task: Suspending, Job: JobPower, Wanted: PowerSaved},
	{Action: Resume, States: []VMState{Suspended}, Task: Resuming, Job: JobPower, Wanted: PowerOn},
	{Action: Resume, States: []VMState{Rescued}, Power: Standstill, Rescue: Session, Task: Resuming, Job: JobPower, Wanted: PowerOn},
	{Action: Rescue, Manner: NovaSemantics, States: []VMState{Active, Stopped, Errored}, Launched: true, Task: Rescuing, Job: JobRescue, Wanted: PowerOn},
	{Action: Rescue, Manner: CycladesSemantics, States: []VMState{Stopped}, Launched: true, Task: Rescuing, Job: JobRescue, Wanted: PowerOff},
	// No dead end: an error, or a state that was reset, with an open session can be unrescued, too.
	{Action: Unrescue, Manner: NovaSemantics, States: []VMState{Rescued, Errored, Active, Stopped}, Rescue: Session, Task: Unrescuing, Job: JobUnrescue},
	{Action: Unrescue, Manner: CycladesSemantics, States: []VMState{Rescued, Errored, Stopped}, Power: NotOn, Rescue: Session, Task: Unrescuing, Job: JobUnrescue},
	{Action: Rebuild, States: rebuilds, Rescue: NoSession, Launched: true, Task: Rebuilding, Job: JobRebuild},
	{Action: AttachVolume, States: []VMState{Active, Stopped, Paused, Suspended}, Power: NotSaved, Rescue: NoSession, Task: Attaching, Job: JobAttach},
	{Action: DetachVolume, States: []VMState{Active, Stopped, Paused, Suspended}, Power: NotSaved, Rescue: NoSession, Task: Attaching, Job: JobDetach},
	{Action: LockServer, States: alive, Anytime: true, Lockless: true},
	{Action: UnlockServer, States: alive, Anytime: true, Lockless: true},
	{Action: ResetState, States: alive, Anytime: true, Lockless: true},
	{Action: Delete, States: alive, Anytime: true, Task: Deleting, Job: JobDelete, Wanted: PowerOff},
}

// NeedsOneGuest tells whether the action may start or continue a guest, or change its disks.
func (r *Rule) NeedsOneGuest() bool {
	return slices.Contains([]Action{Start, Reboot, RebootHard, Unpause, Resume, Rescue, Unrescue, Rebuild, AttachVolume, DetachVolume}, r.Action)
}

// Manner of the act.
func (a *Act) Semantics() Semantics {
	if a.MustBeOff {
		return CycladesSemantics
	}
	return NovaSemantics
}

// InSession tells whether a rescue session of the server is open.
func (s *Server) InSession() bool { return s.Rescue != nil && s.Rescue.State.Open() }

// Allow finds the rule by which a server takes an action, or the *StateError that says why it does not.
func Allow(s *Server, a Action, m Semantics, admin bool) (*Rule, error) {
	refused := &StateError{Server: s, Action: a}
	lockless, anytime := false, false
	var found *Rule
	for i := range Rules {
		r := &Rules[i]
		if r.Action != a || r.Manner != AnySemantics && r.Manner != m {
			continue
		}
		lockless, anytime = r.Lockless, r.Anytime
		if slices.Contains(r.States, s.State) && r.meets(s, refused) {
			found = r
			break
		}
	}
	refused.Locked = s.Locked && !admin && !lockless
	refused.Busy = s.Task != NoTask && !anytime
	if found == nil || refused.Locked || refused.Busy {
		refused.Allowed = found != nil
		return nil, refused
	}
	return found, nil
}

// meets tells whether the rest of a rule holds for a server whose state it names, and notes why not.
func (r *Rule) meets(s *Server, why *StateError) bool {
	on := s.Power == PowerOn
	switch {
	case r.Rescue == Session && !s.InSession():
		why.NotInRescue = true
	case r.Rescue == NoSession && s.InSession():
		why.InRescue = true
	case r.Power == Running && !on, r.Launched && s.LaunchedAt.IsZero():
		why.NotLaunched = r.Launched
	case r.Power == NotOn && on:
		why.Running = true
	case r.Power == NotSaved && (s.State == Suspended || s.Power == PowerSaved):
		why.Saved = true
	case r.Power == Standstill && !s.StandsStill():
	default:
		return true
	}
	return false
}
