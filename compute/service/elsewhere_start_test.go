package service_test

import (
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
)

// TestAGuestElsewhereHoldsStarts: while another host reports a guest of a server, every action that may run it at its own host is refused. The
// error names host, boot, guest and remedy to an administrator, and no host to an owner. Stop and delete are accepted.
func TestAGuestElsewhereHoldsStarts(t *testing.T) {
	session := func(s *compute.Server) {
		s.State, s.Power, s.Rescue = compute.Rescued, compute.PowerOff, &rescue.Session{State: rescue.Ready, Source: &rescue.Source{}}
	}
	for name, c := range map[string]struct {
		state  compute.VMState
		act    compute.Act
		change func(*compute.Server)
		taken  bool
	}{
		"start":             {compute.Stopped, compute.Act{Action: compute.Start}, nil, false},
		"reboot":            {compute.Active, compute.Act{Action: compute.Reboot}, nil, false},
		"hard reboot":       {compute.Stopped, compute.Act{Action: compute.RebootHard}, nil, false},
		"unpause":           {compute.Paused, compute.Act{Action: compute.Unpause}, nil, false},
		"resume":            {compute.Suspended, compute.Act{Action: compute.Resume}, nil, false},
		"rescue":            {compute.Stopped, compute.Act{Action: compute.Rescue}, nil, false},
		"Cyclades' rescue":  {compute.Stopped, compute.Act{Action: compute.Rescue, MustBeOff: true}, nil, false},
		"Cyclades' start":   {compute.Active, compute.Act{Action: compute.Start, MustBeOff: true}, session, false},
		"unrescue":          {compute.Active, compute.Act{Action: compute.Unrescue}, session, false},
		"Cyclades unrescue": {compute.Active, compute.Act{Action: compute.Unrescue, MustBeOff: true}, session, false},
		"rebuild":           {compute.Stopped, compute.Act{Action: compute.Rebuild, Rebuild: &compute.RebuildArgs{}}, nil, false},
		"attach a volume":   {compute.Active, compute.Act{Action: compute.AttachVolume}, nil, false},
		"detach a volume":   {compute.Active, compute.Act{Action: compute.DetachVolume}, nil, false},
		"stop":              {compute.Active, compute.Act{Action: compute.Stop}, nil, true},
		"delete":            {compute.Active, compute.Act{Action: compute.Delete}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.server(alice, c.state)
			other := w.join("host-b")
			if a := c.act.Rebuild; a != nil {
				a.ImageID = w.image.ID
			}
			switch c.act.Action {
			case compute.AttachVolume:
				c.act.VolumeID = w.volume().ID
			case compute.DetachVolume:
				c.act.VolumeID = w.attached(s).ID
			}
			if c.change != nil {
				w.tx(func(tx job.Tx) error { return w.Servers.Edit(w.ctx, tx, s.ID, c.change) })
			}
			w.renew(other, "boot-1", guests(runs(s, s.Epoch)))
			_, err := w.Actions.Act(w.ctx, s.ID, c.act, admin)
			if c.taken {
				w.no(err)
				return
			}
			w.want(err, problem.Conflict)
			for _, part := range []string{"host-b", "boot-1", s.ID, "salvor fence " + other.ID} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not name %q", err, part)
				}
			}
			_, err = w.Actions.Act(w.ctx, s.ID, c.act, alice)
			w.want(err, problem.Conflict)
			if text := err.Error(); strings.Contains(text, "host-b") || strings.Contains(text, other.ID) || !strings.Contains(text, "may run already") {
				t.Errorf("its owner is told %q", text)
			}
			w.renew(other, "boot-1", guests())
			if _, err := w.Actions.Act(w.ctx, s.ID, c.act, alice); err != nil {
				t.Errorf("without the guest: %v", err)
			}
		})
	}
}

// TestAGuestElsewhereIsNotStartedByItself: a server that should run, and that crashed or is off at its host, is not started by itself
// while another host reports a guest of it.
func TestAGuestElsewhereIsNotStartedByItself(t *testing.T) {
	for _, power := range []compute.Power{compute.PowerCrashed, compute.PowerPaused} {
		w := newWorld(t)
		s, other := w.server(alice, compute.Active), w.join("host-b")
		w.renew(other, "boot-1", guests(runs(s, s.Epoch)))
		found := runs(s, s.Epoch)
		found.Power = power
		w.pass(time.Minute)
		w.renew(other, "boot-1")
		w.renew(w.host, "boot-1", guests(found))
		if jobs := w.jobs(s.ID); len(jobs) != 0 {
			t.Errorf("%s at its host: %s is begun beside its guest elsewhere", power, jobs[0].Kind)
		}
		w.renew(other, "boot-1", guests())
		w.renew(w.host, "boot-1", guests(found))
		if power == compute.PowerCrashed && len(w.jobs(s.ID)) != 1 {
			t.Errorf("%s at its host: without the guest elsewhere it is not started again", power)
		}
	}
}

// TestADeadDestinationHoldsNoServer: the destination of a live migration died, and its last list told the paused guest that was arriving.
// The migration failed and the server runs on at its source, where its owner may do everything with it. Any other guest holds it.
func TestADeadDestinationHoldsNoServer(t *testing.T) {
	for name, c := range map[string]struct {
		power  compute.Power
		change func(*compute.Move)
		late   bool // the guest is told after the move has failed
		held   bool
	}{
		"paused":        {power: compute.PowerPaused},
		"running":       {power: compute.PowerOn, held: true},
		"unknown":       {power: compute.PowerUnknown, held: true},
		"handed over":   {power: compute.PowerPaused, change: func(m *compute.Move) { m.Clean = compute.CleanGuest }, held: true},
		"an evacuation": {power: compute.PowerPaused, change: func(m *compute.Move) { m.Kind = compute.Evacuation }, held: true},
		"paused since":  {power: compute.PowerPaused, late: true, held: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s, there := w.server(alice, compute.Active), w.join("host-b")
			m := &compute.Move{Record: record.Record{ID: newID(), CreatedAt: w.now()}, ServerID: s.ID, SourceID: w.host.ID, DestID: there.ID,
				Kind: compute.LiveMigration, State: compute.MoveFailed}
			arrives := runs(s, s.Epoch)
			arrives.Power = c.power
			w.pass(time.Minute)
			if !c.late {
				w.renew(there, "boot-1", guests(arrives))
			}
			w.pass(time.Minute)
			if m.EndedAt = w.now(); c.change != nil {
				c.change(m)
			}
			w.tx(func(tx job.Tx) error { return w.store.Moves().Insert(tx, m) })
			w.pass(time.Minute)
			if c.late {
				w.renew(there, "boot-1", guests(arrives))
			}
			w.pass(time.Hour)
			_, err := w.Actions.Act(w.ctx, s.ID, compute.Act{Action: compute.Reboot}, alice)
			if problem.Is(err, problem.Conflict) != c.held {
				t.Errorf("its owner reboots it: %v", err)
			}
		})
	}
}
