package compute

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"salvor/problem"
	"salvor/rescue"
	"salvor/test/must"
)

var (
	everyState  = []VMState{Building, Active, Stopped, Paused, Suspended, Rescued, Errored, Deleted}
	everyAction = []Action{Start, Stop, Reboot, RebootHard, Pause, Unpause, Suspend, Resume, Rescue, Unrescue, Rebuild,
		LockServer, UnlockServer, ResetState, Delete, AttachVolume, DetachVolume}
)

// in makes a server in a state as servers are in it.
func in(state VMState, session, on bool) *Server {
	s := &Server{State: state, LaunchedAt: time.Unix(1, 0), Power: PowerOff}
	if on {
		s.Power = PowerOn
	}
	if session {
		s.Rescue = &rescue.Session{State: rescue.Prepared}
	}
	return s
}

// standing makes the guest of a server stand still, although the server should run.
func standing(s *Server, power Power) *Server {
	s.Wanted = PowerOn
	s.StandStill(power, GuestPause{Reason: PausedByUser})
	return s
}

// column is a state as the page names it.
type column struct {
	name string
	s    *Server
}

func columns() (out []column) {
	for _, state := range everyState {
		switch state {
		case Rescued:
			out = append(out, column{"rescued, off", in(state, true, false)}, column{"rescued, on", in(state, true, true)},
				column{"rescued, stands still", standing(in(state, true, false), PowerPaused)})
			continue
		case Errored:
			out = append(out, column{"error, session open", in(state, true, false)})
		}
		out = append(out, column{string(state), in(state, false, state == Active)})
	}
	return out
}

// table prints which state takes which action: "yes", or "" where it is refused.
func table(m Semantics) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| action |")
	columns := columns()
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, a := range everyAction {
		fmt.Fprintf(&b, "| %s |", a)
		for _, c := range columns {
			word := ""
			if _, err := Allow(c.s, a, m, false); err == nil {
				word = "yes"
			}
			fmt.Fprintf(&b, " %s |", word)
		}
		b.WriteString("\n")
	}
	return b.String()
}

const statesPage = "../docs/server-states.md"

// TestTheTableIsWhatTheDocumentSays holds docs/server-states.md to the rules: run it with SALVOR_WRITE_DOCS=1 to write the page anew.
func TestTheTableIsWhatTheDocumentSays(t *testing.T) {
	want := "# What servers take in which state\n\nPrinted from the table in `compute/rule.go`; `SALVOR_WRITE_DOCS=1 go test ./compute` writes it anew. " +
		"A server with a running task takes only delete, lock, unlock and reset state. From users who are not administrators, a locked server takes only lock and unlock. " +
		"They cannot unlock a server that an administrator locked.\n\n" +
		"## In the manner of the Compute API: a rescue powers the server off and boots\n\n" + table(NovaSemantics) +
		"\n## In the manner of Cyclades: a rescue takes a stopped server and leaves it off\n\n" + table(CycladesSemantics)
	if os.Getenv("SALVOR_WRITE_DOCS") != "" {
		must.OK(t, os.WriteFile(statesPage, []byte(want), 0o644))
	}
	got, err := os.ReadFile(statesPage)
	if err != nil || string(got) != want {
		t.Errorf("%s is not what the rules say: %v; write it with SALVOR_WRITE_DOCS=1", statesPage, err)
	}
}

// TestEveryStateAndActionAreAnswered walks every state, task, lock, session and power through every action.
func TestEveryStateAndActionAreAnswered(t *testing.T) {
	for _, state := range everyState {
		for _, action := range everyAction {
			for bits := range 64 {
				s := in(state, bits&1 != 0, bits&2 != 0)
				s.Locked = bits&4 != 0
				if bits&8 != 0 {
					s.Task = Stopping
				}
				manner, isAdmin := NovaSemantics, bits&32 != 0
				if bits&16 != 0 {
					manner = CycladesSemantics
				}
				rule, err := Allow(s, action, manner, isAdmin)
				if err != nil {
					refused, ok := err.(*StateError)
					if !ok || refused.Server != s || refused.Action != action || refused.Error() == "" {
						t.Fatalf("%s in %s: %v", action, state, err)
					}
					if refused.Allowed && !refused.Locked && !refused.Busy {
						t.Errorf("%s in %s: refused for no reason", action, state)
					}
					continue
				}
				if state == Deleted {
					t.Errorf("%s of a deleted server", action)
				}
				if s.Task != NoTask && !rule.Anytime || s.Locked && !isAdmin && !rule.Lockless {
					t.Errorf("%s in %s passes a task or a lock", action, state)
				}
				if (rule.Job == "") != (rule.Task == NoTask) {
					t.Errorf("%s: a job without a task, or a task without a job", action)
				}
			}
		}
	}
}

// TestGuestsThatStandStillHaveAWayOut: Cyclades' clients let a guest go on by start and end what it does by a hard reboot. A rescue system that stands still
// goes on by unpause and by resume; one that runs, or is off, takes neither.
func TestGuestsThatStandStillHaveAWayOut(t *testing.T) {
	ready := func(power Power) *Server {
		s := in(Rescued, true, power == PowerOn)
		s.Rescue.State = rescue.Ready
		if s.Wanted = PowerOn; power != PowerOn && power != PowerOff {
			standing(s, power)
		}
		return s
	}
	for _, c := range []struct {
		name   string
		s      *Server
		manner Semantics
		action Action
		want   bool
	}{
		{"paused", in(Paused, false, false), CycladesSemantics, Start, true},
		{"suspended", in(Suspended, false, false), CycladesSemantics, Start, true},
		{"paused", in(Paused, false, false), CycladesSemantics, RebootHard, true},
		{"suspended", in(Suspended, false, false), CycladesSemantics, RebootHard, true},
		{"paused", in(Paused, false, false), NovaSemantics, Start, false},
		{"suspended", in(Suspended, false, false), NovaSemantics, Start, false},
		{"paused in rescue", ready(PowerPaused), CycladesSemantics, Start, true},
		{"paused in rescue", ready(PowerPaused), NovaSemantics, Unpause, true},
		{"paused in rescue", ready(PowerPaused), NovaSemantics, Resume, true},
		{"saved in rescue", ready(PowerSaved), NovaSemantics, Resume, true},
		{"saved in rescue", ready(PowerSaved), NovaSemantics, Unpause, true},
		{"rescue that runs", ready(PowerOn), NovaSemantics, Unpause, false},
		{"rescue that runs", ready(PowerOn), NovaSemantics, Resume, false},
		{"rescue that is off", ready(PowerOff), NovaSemantics, Unpause, false},
	} {
		if _, err := Allow(c.s, c.action, c.manner, false); (err == nil) != c.want {
			t.Errorf("%s of a server that is %s, manner %s: %v, want allowed %v", c.action, c.name, c.manner, err, c.want)
		}
	}
}

// TestNoDeadEnd: out of every state in which nothing is at work the verbs of each face lead to a server that runs its own system,
// with or without an open session. Deleting it is no way out.
func TestNoDeadEnd(t *testing.T) {
	for _, session := range []bool{true, false} {
		for _, state := range []VMState{Rescued, Errored, Active, Stopped} {
			for _, on := range []bool{true, false} {
				for _, m := range []Semantics{NovaSemantics, CycladesSemantics} {
					if state == Rescued && !session || state == Stopped && on {
						continue // there is none
					}
					if s := in(state, session, on); !leadsOut(s, m, 3) {
						t.Errorf("%s, session %v, on %v: no way out in manner %s", state, session, on, m)
					}
				}
			}
		}
	}
}

// leadsOut tries stop, start and unrescue, as many times as are left, as their jobs end well.
func leadsOut(s *Server, m Semantics, left int) bool {
	if s.State == Active && !s.InSession() {
		return true
	}
	for _, verb := range []Action{Unrescue, Start, Stop} {
		if _, err := Allow(s, verb, m, false); err != nil || left == 0 {
			continue
		}
		next := *s
		switch verb {
		case Unrescue:
			next.Rescue, next.State = nil, Stopped
			next.Settle(PowerOff)
		case Start:
			next.Settle(PowerOn)
		case Stop:
			if next.State == Errored {
				next.State = Stopped
			}
			next.Settle(PowerOff)
		}
		if leadsOut(&next, m, left-1) {
			return true
		}
	}
	return false
}

// TestVolumesOfASavedServer: a server whose memory is saved goes on with the volumes that it had, so none is attached or detached until it is resumed.
func TestVolumesOfASavedServer(t *testing.T) {
	suspended, outside, byAdmin := in(Suspended, false, false), in(Active, false, false), in(Suspended, false, false)
	suspended.Power, outside.Power = PowerSaved, PowerSaved
	byAdmin.StandStill(PowerSaved, GuestPause{Reason: SavedOutside})
	for name, s := range map[string]*Server{"suspended": suspended, "memory saved": outside, "saved by an administrator": byAdmin} {
		for _, action := range []Action{AttachVolume, DetachVolume} {
			_, err := Allow(s, action, NovaSemantics, false)
			if !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "resume it first") {
				t.Errorf("%s, %s: %v; want a conflict that says to resume the server first", action, name, err)
			}
		}
	}
	for _, state := range []VMState{Active, Stopped, Paused} {
		if _, err := Allow(in(state, false, state == Active), DetachVolume, NovaSemantics, false); err != nil {
			t.Errorf("detach a volume of a server that is %s: %v", state, err)
		}
	}
}
