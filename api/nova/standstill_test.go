package nova_test

import (
	"strings"
	"testing"

	"salvor/compute"
)

// TestRefusalsOfAGuestThatStandsStill: where a guest stands still by itself, a refusal says why, and names the command that lets it go on. Otherwise nothing but
// Nova's own sentence is said.
func TestRefusalsOfAGuestThatStandsStill(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	w.as(boss)
	for name, c := range map[string]struct {
		state  compute.VMState
		power  compute.Power
		pause  compute.GuestPause
		reason string
		goOn   string
	}{
		"managed save": {compute.Suspended, compute.PowerSaved, compute.GuestPause{Reason: compute.SavedOutside}, "its memory was saved on its host", "resume"},
		"I/O error":    {compute.Paused, compute.PowerPaused, compute.GuestPause{Reason: compute.PausedByIOError, Disks: "vda: 0 MiB are left in /srv"}, "I/O error of its disks", "unpause"},
		"sleep":        {compute.Suspended, compute.PowerPaused, compute.GuestPause{Reason: compute.PausedBySleep}, "its own system suspended to RAM", "resume"},
		"suspended":    {compute.Suspended, compute.PowerSaved, compute.GuestPause{}, "", "resume"},
		"paused":       {compute.Paused, compute.PowerPaused, compute.GuestPause{}, "", "unpause"},
	} {
		w.set(id, func(s *compute.Server) {
			s.State, s.Power, s.Pause, s.Wanted = c.state, c.power, c.pause, c.power
			if c.pause.Reason != "" {
				s.Wanted = compute.PowerOn
			}
		})
		for _, body := range []string{`{"os-stop": null}`, `{"rescue": null}`, `{"migrate": null}`, `{"os-migrateLive": {"host": null, "block_migration": "auto"}}`} {
			got := w.ask("POST", "/servers/"+id+"/action", "2.79", body)
			_, message := got.fault()
			moves := strings.Contains(body, "igrate")
			want := "salvor server " + c.goOn + " " + id
			switch {
			case got.Status != 409 || !strings.Contains(message, id):
				t.Errorf("%s, %s: %d %s; want a 409 that names the server", name, body, got.Status, got.Body)
			case c.reason == "" && !moves && strings.Contains(message, "salvor"):
				t.Errorf("%s, %s: %q; want Nova's sentence alone", name, body, message)
			case (c.reason != "" || moves) && !(strings.Contains(message, c.reason) && strings.Contains(message, want)):
				t.Errorf("%s, %s: %q; want it to say %q and %q", name, body, message, c.reason, want)
			case !moves && strings.Contains(message, "/srv"):
				t.Errorf("%s, %s: %q tells a user of the files of the host", name, body, message)
			}
		}
	}
}
