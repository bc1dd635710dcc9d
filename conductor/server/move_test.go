package server

import (
	"context"
	"testing"

	"salvor/compute"
	"salvor/conductor/conductortest"
	"salvor/job/jobtest"
	"salvor/rescue"
	"salvor/test/must"
)

// livesElsewhere counts where the server's guest runs or is defined, and checks that it lives at the one.
func (s *moveWorld) livesElsewhere(t *testing.T, running bool) *testHost {
	t.Helper()
	row := s.now(t)
	var home *testHost
	for _, o := range s.others {
		g, there := o.hv.State(s.server)
		if there && home != nil {
			t.Fatalf("it is at two hosts:\n%s", s.whereabouts(t))
		}
		if there {
			home = o
			if (g.Power == compute.PowerOn) != running || g.Starts > 1 {
				t.Errorf("power %s, starts %d", g.Power, g.Starts)
			}
		}
	}
	if home == nil || row.HostID != home.host.ID {
		t.Fatalf("it is nowhere, or its row says otherwise:\n%s", s.whereabouts(t))
	}
	return home
}

// TestMoveKeepsWhatItCan: a server of a dead host runs elsewhere as it was, or as near to that as can honestly be had.
func TestMoveKeepsWhatItCan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		moveOptions
		state   compute.VMState
		running bool
		words   bool
	}{
		"running":   {moveOptions{hostOptions: hostOptions{state: compute.Active}}, compute.Active, true, false},
		"stopped":   {moveOptions{hostOptions: hostOptions{state: compute.Stopped}}, compute.Stopped, false, false},
		"volume":    {moveOptions{hostOptions: hostOptions{state: compute.Active, volumes: true}}, compute.Active, true, false},
		"re-imaged": {moveOptions{hostOptions: hostOptions{state: compute.Active}, lone: true}, compute.Active, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newMoveWorld(t, c.moveOptions)
			s.fence(t)
			was := s.now(t)
			s.evacuate(t)
			if now := s.now(t); now.Task != compute.Rebuilding || now.Epoch <= was.Epoch {
				t.Errorf("task %q, epoch %d after %d", now.Task, now.Epoch, was.Epoch)
			}
			s.workAll(t)
			home := s.livesElsewhere(t, c.running)
			now, m := s.now(t), s.lastMove(t)
			if now.State != c.state || now.Task != compute.NoTask || now.ID != was.ID || m.State != compute.MoveDone || (m.Words != "") != c.words {
				t.Errorf("left as\n%s", s.whereabouts(t))
			}
			want := map[bool]compute.CleanUp{false: compute.CleanGuest, true: compute.CleanDisk}[c.lone]
			if m.Clean != want || m.SourceID != s.host.ID || m.DestID != home.host.ID {
				t.Errorf("move %+v", m)
			}
			if c.lone && home.disks["vda"] != s.image || !c.lone && !c.volumes && home.disks["vda"] != "aged "+s.image {
				t.Errorf("disks %v", home.disks)
			}
		})
	}
}

func TestSweepMove(t *testing.T) {
	t.Parallel()
	for name, y := range map[string]moveOptions{
		"keep":    {hostOptions: hostOptions{state: compute.Active}},
		"reimage": {hostOptions: hostOptions{state: compute.Active}, lone: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
				s := newMoveWorld(t, y)
				s.fence(t)
				return s.sweepWorld(compute.JobMove, func(t *testing.T) { s.evacuate(t) }, func(t *testing.T) { s.undivided(t) })
			})
		})
	}
}

// undivided checks what holds after any failure: the server is at one host, by its row and by its guests, and its move has ended.
func (s *moveWorld) undivided(t *testing.T) {
	t.Helper()
	row, m := s.now(t), s.lastMove(t)
	if m.Going() || row.Task != compute.NoTask || m.Problem == "" {
		t.Errorf("it goes on: %+v\n%s", m, s.whereabouts(t))
	}
	back := row.HostID == s.host.ID
	if back != (m.State == compute.MoveFailed || m.State == compute.MoveError) {
		t.Errorf("move %s, and back at the source: %v", m.State, back)
	}
	used := 0
	for _, o := range append([]*testHost{s.testHost}, s.others...) {
		h := must.Get(s.store.Hosts().Get(context.Background(), nil, o.host.ID))(t)
		used += h.UsedRAM
		if _, there := o.hv.State(s.server); there && o != s.testHost && (back || row.HostID != h.ID) {
			t.Errorf("a guest is at host %s:\n%s", h.Name, s.whereabouts(t))
		}
		if (h.UsedRAM > 0) != (row.HostID == h.ID) {
			t.Errorf("host %s has %d MiB reserved", h.Name, h.UsedRAM)
		}
	}
	if used != 512 {
		t.Errorf("%d MiB are reserved", used)
	}
	if back && row.State != compute.Active || !back && (row.State != compute.Errored || m.State != compute.MoveDone || m.Clean == "") {
		t.Errorf("state %s, move %s", row.State, m.State)
	}
	// The disks that were there are there.
	if s.disks["vda"] != "aged "+s.image {
		t.Errorf("disks %v", s.disks)
	}
}

// TestSweepMoveInRescue: a server in its rescue stays in it.
func TestSweepMoveInRescue(t *testing.T) {
	t.Parallel()
	conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
		s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}, others: 1})
		startRescue(t, s.testHost, false)
		s.work(t)
		if now := s.now(t); now.State != compute.Rescued || now.Rescue.State != rescue.Ready {
			t.Fatalf("no rescue: %s", s.picture(t))
		}
		s.fence(t)
		return s.sweepWorld(compute.JobMove, func(t *testing.T) { s.evacuate(t) }, func(t *testing.T) {
			if row, m := s.now(t), s.lastMove(t); row.Task != compute.NoTask || m.Going() || !row.InSession() {
				t.Errorf("left as\n%s", s.whereabouts(t))
			}
		})
	})
}
