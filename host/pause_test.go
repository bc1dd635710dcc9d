package host

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/compute"
	"salvor/test/must"
)

// TestRoomAfterAnIOError: a guest that an I/O error has paused may go on where all its disks have room. A disk without room, and one that is not there, are
// named. Nothing is said of a guest that stands still for another reason.
func TestRoomAfterAnIOError(t *testing.T) {
	t.Parallel()
	here := filepath.Join(t.TempDir(), "disk")
	must.OK(t, os.WriteFile(here, nil, 0o600))
	const full = "/proc/self/status" // a file system without any block
	a := &Agent{Config: Config{Log: slog.New(slog.DiscardHandler)}}
	for name, c := range map[string]struct {
		reason compute.PauseReason
		files  []string
		room   bool
		says   string
	}{
		"room":              {compute.PausedByIOError, []string{here}, true, ""},
		"room for all":      {compute.PausedByIOError, []string{here, here}, true, ""},
		"full":              {compute.PausedByIOError, []string{full}, false, "vda: 0 MiB are left in /proc/self"},
		"one of two full":   {compute.PausedByIOError, []string{here, full}, false, "vdb: 0 MiB are left in /proc/self"},
		"gone":              {compute.PausedByIOError, []string{here + "-gone"}, false, "no such file or directory"},
		"no disk in a file": {compute.PausedByIOError, nil, false, ""},
		"suspended by hand": {compute.PausedByUser, []string{here}, false, ""},
	} {
		g := &compute.Guest{Power: compute.PowerPaused, Pause: compute.GuestPause{Reason: c.reason}}
		for i, file := range c.files {
			g.Disks = append(g.Disks, compute.GuestDisk{Name: "vd" + string(rune('a'+i)), File: file})
		}
		a.addRoom(t.Context(), g)
		if g.Pause.HasRoom != c.room || !strings.Contains(g.Pause.Disks, c.says) || c.says == "" && g.Pause.Disks != "" {
			t.Errorf("%s: room %v, disks %q; want %v, %q", name, g.Pause.HasRoom, g.Pause.Disks, c.room, c.says)
		}
	}
}
