package host

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
)

// TestConsoleMarksStarts: the console log says where the host started the guest, and not where the guest went on.
func TestConsoleMarksStarts(t *testing.T) {
	w, g := newWorld(t), newGuests()
	c := w.config(g)
	a := joined(t, w, c)
	id := uuid.NewString()
	put(t, filepath.Join(c.StateDir, "servers", id, consoleFile), []byte("rescue login: "))
	on := compute.Args{Power: compute.PowerOn}
	for _, tc := range []struct {
		name   string
		before compute.Power
		args   compute.Args
		marks  int // in all
	}{
		{"a start", compute.PowerOff, on, 1},
		{"a guest that runs", compute.PowerOn, on, 1},
		{"a pause that ends", compute.PowerPaused, on, 1},
		{"saved memory that is loaded", compute.PowerSaved, on, 1},
		{"a restart", compute.PowerOn, compute.Args{Power: compute.PowerOn, Restart: true}, 2},
		{"a stop", compute.PowerOn, compute.Args{Power: compute.PowerOff}, 2},
		{"a start after a crash", compute.PowerCrashed, on, 3},
	} {
		g.mu.Lock()
		g.all[id] = compute.Guest{ID: id, Power: tc.before, Ours: true}
		g.mu.Unlock()
		a.must(t, compute.SetPower, id, tc.args, compute.OrderSecret{})
		log := a.must(t, compute.Console, id, compute.Args{}, compute.OrderSecret{}).Console
		if marks := strings.Count(log, "salvor: the host starts the server at "); marks != tc.marks {
			t.Errorf("%s: the log has %d marks, want %d; log:\n%s", tc.name, marks, tc.marks, log)
		}
		if since, at, found := compute.ConsoleSinceStart(log); since != "" || !found || time.Since(at) > time.Minute {
			t.Errorf("%s: the log since the start is %q at %s, found %v; want none, now and true; log:\n%s", tc.name, since, at, found, log)
		}
	}
}
