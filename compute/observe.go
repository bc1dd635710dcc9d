package compute

import (
	"slices"
	"time"

	"salvor/rescue"
)

// GuestVerdict is what a look at a guest asks for.
type GuestVerdict struct {
	Power       Power // to be written; empty: as it is
	SettleState bool  // and the state with it: the guest did it, and that is taken
	SetPower    Power // to be made so by a job; empty: nothing
	// restart: the guest ended by itself, and mend begins it anew.
	Restart bool
	// Pause: the guest stands still for this reason.
	Pause GuestPause
	// Resume: the guest may go on after an I/O error.
	Resume bool
	// crashed: the guest crashed and should run; it is started again so many times as MaxRestarts says.
	Crashed bool
	Reason  string
}

// IsSteady tells whether the server is in a state that a look may change.
func (s *Server) IsSteady() bool {
	return slices.Contains([]VMState{Active, Stopped, Paused, Suspended, Rescued}, s.State)
}

// CompareGuest compares a server with its guest; nil: there is none. first: it is the first look since the host started.
func (s *Server) CompareGuest(g *Guest, kind HostKind, first bool, now time.Time) GuestVerdict {
	switch {
	case s.Task != NoTask || !s.IsSteady() || s.Wanted == PowerUnknown:
		return GuestVerdict{} // somebody works on it, or nobody knows how it should be
	case g == nil && kind == GanetiHost:
		return GuestVerdict{} // it may be on its way to another node
	case g == nil:
		return GuestVerdict{Power: PowerOff, SetPower: s.Wanted, Reason: "its host knows no such guest"}
	case g.Epoch != 0 && g.Epoch > s.Epoch:
		return GuestVerdict{}
	case g.Power == PowerUnknown:
		return GuestVerdict{}
	case kind == GanetiHost:
		if g.Power == s.Power && (s.State == Rescued || (s.State == Active) == (g.Power == PowerOn)) {
			return GuestVerdict{}
		}
		return GuestVerdict{Power: g.Power, SettleState: true, Reason: "so it is at its cluster"}
	case g.Power == s.Wanted && s.isShownStandingStill():
		return GuestVerdict{Power: g.Power, SettleState: true, Reason: "it goes on"}
	case g.Power == s.Power && g.Power == s.Wanted:
		return GuestVerdict{}
	case g.Power == s.Wanted:
		return GuestVerdict{Power: g.Power}
	case s.Wanted == PowerOn && g.Power == PowerOff && (g.Pause.Reason == SavedToFile || s.Pause.Reason == SavedToFile):
		return s.standsStill(g, now) // also after libvirt has forgotten why it is off
	case s.Wanted == PowerOn && g.Power == PowerSaved && first:
		return GuestVerdict{Power: g.Power, SetPower: PowerOn, Reason: "its host has started again, and its memory was saved"}
	case s.Wanted == PowerOn && (g.Power == PowerSaved || g.Power == PowerPaused && g.Pause.Reason != ""):
		return s.standsStill(g, now)
	}
	return s.differs(g.Power, first)
}

// isShownStandingStill tells whether the server should run and its record says that it stands still: by the reason, or by the state alone, as after a try to
// let it go on that failed.
func (s *Server) isShownStandingStill() bool {
	return s.StandsStill() || s.Wanted == PowerOn && (s.State == Paused || s.State == Suspended)
}

// standsStill judges a guest that should run, and stands still although nobody asked salvor for that.
func (s *Server) standsStill(g *Guest, now time.Time) GuestVerdict {
	pause := g.Pause.bounded()
	switch g.Power {
	case PowerSaved:
		pause = GuestPause{Reason: SavedOutside}
	case PowerOff:
		pause = GuestPause{Reason: SavedToFile}
	}
	switch {
	case pause.Reason == PausedByIOError && g.Pause.HasRoom && !now.Before(s.NextResume()):
		return GuestVerdict{Power: g.Power, SetPower: PowerOn, Resume: true, Pause: pause, Reason: pause.Describe() + "; there is room for its disks, so it goes on"}
	case g.Power == s.Power && pause == s.Pause:
		return GuestVerdict{}
	}
	return GuestVerdict{Power: g.Power, Pause: pause, Reason: pause.Describe()}
}

// differs judges a guest whose power is not the wanted one.
func (s *Server) differs(is Power, first bool) GuestVerdict {
	off := is == PowerOff || is == PowerCrashed
	switch {
	case off && s.Wanted == PowerOn && first:
		return GuestVerdict{Power: is, SetPower: PowerOn, Reason: "its host has started again"}
	case is == PowerOff && s.Wanted == PowerOn && s.inReadySession():
		// A rescue system has its credential in memory only: a job starts the system anew and unlocks it.
		return GuestVerdict{Power: is, SetPower: PowerOn, Restart: true, Reason: "its rescue system ended or began again"}
	case is == PowerCrashed && s.Wanted == PowerOn:
		return GuestVerdict{Power: is, Restart: true, Crashed: true}
	case is == PowerCrashed && s.Power != PowerCrashed:
		return GuestVerdict{Power: is, SettleState: true, Reason: "it crashed"}
	case off && s.Power == PowerOn:
		return GuestVerdict{Power: is, SettleState: true, Reason: "its own system powered it off"}
	case is == PowerOn && s.Power != PowerOn && (s.Wanted == PowerOff || s.Wanted == PowerPaused || s.Wanted == PowerSaved):
		return GuestVerdict{Power: is, SetPower: s.Wanted, Reason: "it runs, though it should not"}
	case is == PowerOff && s.StandsStill():
		return GuestVerdict{Power: is, SettleState: true, Reason: "it was ended on its host while it stood still"}
	case off && s.Wanted == PowerOn:
		return GuestVerdict{Power: is, SetPower: PowerOn, Reason: "it should run"}
	case is == s.Power:
		return GuestVerdict{}
	}
	return GuestVerdict{Power: is}
}

// inReadySession tells whether it runs a rescue system that was given its credential.
func (s *Server) inReadySession() bool { return s.InSession() && s.Rescue.State == rescue.Ready }
