package host

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/problem"
	"salvor/test/must"
)

// TestOrdersAboutSavedMemory: an order that keeps saved memory is refused while the memory of the guest is saved. Another order switches the guest off, and its
// result says that the memory is lost.
func TestOrdersAboutSavedMemory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		was           compute.Power
		args          compute.Args
		lost, refused bool
	}{
		"saved, kept":           {was: compute.PowerSaved, args: compute.Args{Power: compute.PowerOff, KeepSaved: true}, refused: true},
		"saved, restart, kept":  {was: compute.PowerSaved, args: compute.Args{Power: compute.PowerOn, Restart: true, KeepSaved: true}, refused: true},
		"saved, given up":       {was: compute.PowerSaved, args: compute.Args{Power: compute.PowerOff}, lost: true},
		"saved, restarted":      {was: compute.PowerSaved, args: compute.Args{Power: compute.PowerOn, Restart: true}, lost: true},
		"saved, and goes on":    {was: compute.PowerSaved, args: compute.Args{Power: compute.PowerOn}},
		"running, given up":     {was: compute.PowerOn, args: compute.Args{Power: compute.PowerOff}},
		"running, kept":         {was: compute.PowerOn, args: compute.Args{Power: compute.PowerOff, KeepSaved: true}},
		"off already, given up": {was: compute.PowerOff, args: compute.Args{Power: compute.PowerOff}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, g := newWorld(t), newGuests()
			id := ours(g, c.was, 1)
			a, _ := w.start(w.config(g))
			r := w.send(orderFor(a, id, compute.SetPower, c.args, nil))
			if (r.ErrorKind == problem.Conflict.String()) != c.refused || (r.ErrorKind != "") != c.refused || r.MemoryLost != c.lost {
				t.Errorf("the result is %+v; want a conflict: %v, memory lost: %v", r, c.refused, c.lost)
			}
			if power := g.get(id).Power; c.refused && power != compute.PowerSaved || !c.refused && power != c.args.Power {
				t.Errorf("the guest was %s and is %s after an order for %s", c.was, power, c.args.Power)
			}
		})
	}
}

// TestHostsTellOfRoom: a host tells of its guests that an I/O error has paused whether their disks have room. It tells nothing of the guests of others.
func TestHostsTellOfRoom(t *testing.T) {
	t.Parallel()
	w, g := newWorld(t), newGuests()
	a, _ := guarded(t, w, w.config(g))
	file := filepath.Join(t.TempDir(), "disk")
	must.OK(t, os.WriteFile(file, nil, 0o600))
	stopped := compute.Guest{Power: compute.PowerPaused, Pause: compute.GuestPause{Reason: compute.PausedByIOError}, Disks: []compute.GuestDisk{{Name: "vda", File: file}}}
	mine, foreign := stopped, stopped
	mine.ID, mine.Ours, mine.Epoch, foreign.ID = uuid.NewString(), true, 1, uuid.NewString()
	g.set(mine)
	g.set(foreign)
	for _, guest := range must.Get(a.listGuests(t.Context()))(t) {
		if guest.Pause.HasRoom != guest.Ours {
			t.Errorf("guest of salvor: %v; its disks are told to have room: %v", guest.Ours, guest.Pause.HasRoom)
		}
	}
	if one := must.Get(a.guest(t.Context(), mine.ID))(t); !one.Pause.HasRoom {
		t.Errorf("asked for one guest, the host tells %+v; want room for its disks", one.Pause)
	}
}

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
		full   bool
		says   string
	}{
		"room":              {compute.PausedByIOError, []string{here}, true, false, ""},
		"room for all":      {compute.PausedByIOError, []string{here, here}, true, false, ""},
		"full":              {compute.PausedByIOError, []string{full}, false, true, "vda: there is no room in /proc/self"},
		"one of two full":   {compute.PausedByIOError, []string{here, full}, false, true, "vdb: there is no room in /proc/self"},
		"gone":              {compute.PausedByIOError, []string{here + "-gone"}, false, false, "vda: no such file or directory"},
		"no disk in a file": {compute.PausedByIOError, nil, false, false, ""},
		"suspended by hand": {compute.PausedByUser, []string{here}, false, false, ""},
	} {
		g := &compute.Guest{Power: compute.PowerPaused, Pause: compute.GuestPause{Reason: c.reason}}
		for i, file := range c.files {
			g.Disks = append(g.Disks, compute.GuestDisk{Name: "vd" + string(rune('a'+i)), File: file})
		}
		a.addRoom(t.Context(), g)
		if g.Pause.HasRoom != c.room || g.Pause.Full != c.full || g.Pause.Disks != c.says { // the whole text: a figure in it would change with each report
			t.Errorf("%s: room %v, full %v, disks %q; want %v, %v, %q", name, g.Pause.HasRoom, g.Pause.Full, g.Pause.Disks, c.room, c.full, c.says)
		}
	}
}

// TestAFileSystemThatHangs: of the looks at a file outside of the disk stores that never come back, each costs a thread. So no more than a few are begun,
// until one comes back.
func TestAFileSystemThatHangs(t *testing.T) {
	t.Parallel()
	a := &Agent{Config: Config{Log: slog.New(slog.DiscardHandler)}, stores: diskStores{{Store: Store{Name: "local", Dir: t.TempDir()}, within: storeWithin}}}
	dir := t.TempDir()
	file := filepath.Join(dir, "disk")
	must.OK(t, os.WriteFile(file, nil, 0o600))
	var begun atomic.Int32
	release := make(chan struct{})
	for range stuckStore + 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := withFileTimeout(ctx, a, file, func() (bool, error) { begun.Add(1); <-release; return true, nil })
		cancel()
		if !problem.Is(err, problem.Unavailable) {
			t.Errorf("a look that hangs: %v, want unavailable", err)
		}
	}
	if n := begun.Load(); n != stuckStore {
		t.Errorf("%d looks hang, want %d", n, stuckStore)
	}
	if _, err := a.hasRoom(t.Context(), file); !problem.Is(err, problem.Unavailable) {
		t.Errorf("room for a file whose file system hangs: %v, want unavailable", err)
	}
	made := filepath.Join(a.stores[0].Dir, "s-vda")
	must.OK(t, os.WriteFile(made+".json", mustEncodeJSON(diskProof{Server: "s", Disk: "vda"}), 0o600))
	d, _ := a.judgeDisk(t.Context(), &compute.Guest{ID: "s"}, compute.GuestDisk{Name: "vda", File: file + "-gone"})
	if d == nil || !strings.Contains(d.Text, "and salvor made it in "+made) || strings.Contains(d.Text, "not there") {
		t.Errorf("a disk whose file system hangs: drift %+v, want one that does not say whether the file is there", d)
	}
	if n := begun.Load(); n != stuckStore {
		t.Errorf("%d looks hang, want %d", n, stuckStore)
	}
	if _, err := a.hasRoom(t.Context(), "/proc/self/status"); err != nil {
		t.Errorf("room in another directory: %v", err)
	}
	close(release)
	await(t, "a look that comes back", func() bool { _, err := a.hasRoom(t.Context(), file); return err == nil })
}
