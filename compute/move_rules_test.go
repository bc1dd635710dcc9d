package compute

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestJoinWords: a timeline ends no sentence with a separator after which nothing comes.
func TestJoinWords(t *testing.T) {
	for _, c := range [][3]string{{"lives at its new host", "", "lives at its new host"}, {"", "it begins anew", "it begins anew"}, {"a", "b", "a; b"}, {"", "", ""}} {
		if got := JoinWords(c[0], c[1]); got != c[2] {
			t.Errorf("joinWords(%q, %q) = %q, want %q", c[0], c[1], got, c[2])
		}
	}
}

// TestAMoveSaysWhatItLoses: what lies on the host of a server alone is lost by an evacuation, and partly by a move of a server that is off. The plan says so
// before it runs, and the move on the timeline.
func TestAMoveSaysWhatItLoses(t *testing.T) {
	t.Parallel()
	const memory, variables, device = "memory is lost", "UEFI variables lie on its host alone", "watchdog i6300esb was added"
	saved := func(s *Server) {
		s.State, s.Power, s.Wanted, s.Pause.Reason = Suspended, PowerSaved, PowerOn, SavedOutside
	}
	suspended := func(s *Server) { s.State, s.Power, s.Wanted = Suspended, PowerSaved, PowerSaved }
	full := func(s *Server) {
		s.State, s.Power, s.Wanted, s.Pause.Reason = Paused, PowerPaused, PowerOn, PausedByIOError
	}
	uefi := func(s *Server) { s.Firmware = UEFI }
	changed := func(s *Server) { s.Drift = []Drift{{Part: "watchdog i6300esb", Text: "was added"}} }
	off := func(s *Server) { s.State, s.Power, s.Wanted = Stopped, PowerOff, PowerOff }
	for name, c := range map[string]struct {
		kind   MoveKind
		change []func(*Server)
		says   []string
	}{
		"evacuation of a running guest":            {Evacuation, nil, nil},
		"evacuation of a saved guest":              {Evacuation, []func(*Server){saved}, []string{memory, "its memory was saved on its host"}},
		"evacuation after an I/O error":            {Evacuation, []func(*Server){full}, []string{memory, "I/O error"}},
		"evacuation of a suspended server":         {Evacuation, []func(*Server){suspended}, []string{memory, "it was suspended"}},
		"evacuation of a UEFI guest":               {Evacuation, []func(*Server){uefi}, []string{variables}},
		"evacuation of a guest with a device more": {Evacuation, []func(*Server){changed}, []string{device}},
		"evacuation of all at once":                {Evacuation, []func(*Server){saved, uefi, changed}, []string{memory, variables, device}},
		"migration of a guest that is off":         {Migration, []func(*Server){uefi, off, changed}, []string{device}},
		"live migration":                           {LiveMigration, []func(*Server){uefi, changed}, nil},
	} {
		s := &Server{State: Active, Power: PowerOn, Wanted: PowerOn, Firmware: BIOS}
		s.ID, s.HostID = "s", "h1"
		for _, change := range c.change {
			change(s)
		}
		m := &Move{Kind: c.kind}
		m.CopyServer(s, time.Now())
		items := DraftPlan(&PlanInput{Source: &Host{Kind: AgentHost}, Servers: []*Server{s}, Drain: c.kind != Evacuation})
		for what, text := range map[string]string{"the move": m.Words, "the plan": items[0].Why} {
			for _, word := range []string{memory, variables, device} {
				if want := slices.Contains(c.says, word); strings.Contains(text, word) != want {
					t.Errorf("%s: %s says %q; want it to say %q: %v", name, what, text, word, want)
				}
			}
			for _, word := range c.says {
				if !strings.Contains(text, word) {
					t.Errorf("%s: %s says %q, and not %q", name, what, text, word)
				}
			}
		}
	}
}
