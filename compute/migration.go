package compute

import (
	"salvor/job"
	"salvor/problem"
)

// This file keeps the rules of planned moves: the source lives, and hands the server over. Until then it owns it, and the destination
// holds a place; nothing is taken over from anybody's work, which is awaited.

// JobMigrate moves a server whose host lives.
const JobMigrate job.Kind = "server migrate"

// Migrating is the task of a server that is moved while its host lives.
const Migrating Task = "migrating"

// MigrateArgs are the arguments of JobMigrate.
type MigrateArgs struct {
	MoveArgs
	// LiveOnly: a server that cannot be moved without its noticing is not moved.
	LiveOnly bool `json:"live_only,omitempty"`
}

// IsPlanned tells whether the move needs no receipt: its source lived.
func (m *Move) IsPlanned() bool { return m.Kind == LiveMigration || m.Kind == Migration }

// YieldsFrom tells whether the move gives way to an evacuation of the host: it was to leave it, and was not handed over.
func (m *Move) YieldsFrom(hostID string) bool {
	return m.IsPlanned() && m.State != MoveAttached && m.SourceID == hostID
}

// RefusalToMove tells why a server cannot be moved by plan; nil: it can.
func (s *Server) RefusalToMove() error {
	switch {
	case s.HostID == "" || s.Task == Deleting || s.State == Deleted:
		return problem.Conflictf("server %s is on no host, or is being deleted: there is nothing to move", s.ID)
	case s.Task != NoTask:
		return ErrServerBusy
	case s.Power == PowerPaused || s.Power == PowerSaved || s.State == Paused || s.State == Suspended:
		pause, first := "", Unpause
		switch {
		case s.StandsStill():
			pause, first = " ("+s.Pause.Describe()+")", s.Pause.Continue()
		case s.Power == PowerSaved || s.State == Suspended:
			first = Resume
		}
		return problem.Conflictf("server %s is %s%s: a move would lose its memory; first let it go on: %s", s.ID, s.State, pause, commandToContinue(first, s.ID))
	case !s.IsSteady() && s.State != Errored:
		return problem.Conflictf("server %s is %s: it cannot be moved now", s.ID, s.State)
	}
	return s.RefusalToLeave()
}

// LeaveSource is the action of JobMigrate in which the guest moves from its source to its destination.
const LeaveSource = "leave the source"

// The actions of JobMigrate before that one.
const (
	MigrateChooses  = "choose the destination"
	MigratePrepares = "prepare the destination"
)

// MigrationRequest is a planned move of one server whose host lives.
type MigrationRequest struct {
	// DestHost names where it should go, by UUID or name; empty: the best host.
	DestHost string
	// Live moves it without its noticing, or not at all.
	Live bool
	// Force: DestHost may be disabled, full or in another zone.
	Force bool
}

// JobRestore puts a host back to service: its node's hold ends, and the node is switched on.
const JobRestore job.Kind = "host restore"
