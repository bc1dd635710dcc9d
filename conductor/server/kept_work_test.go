package server

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
)

// TestWaitForSilentHost: only work that waits for the host of its server, which is silent, waits on. A process that has just begun to listen gives no work up.
func TestWaitForSilentHost(t *testing.T) {
	t.Parallel()
	const host = "host east to switch the power"
	for name, c := range map[string]struct {
		options        hostOptions
		down           bool // somebody says that the host is down
		homeless, gone bool
		waitsFor       string
		waits, says    bool
	}{
		"its host is silent":             {down: true, waitsFor: host, waits: true, says: true},
		"its host lives":                 {waitsFor: host},
		"it waits for something else":    {down: true, waitsFor: "the console of the server"},
		"its host is one of a cluster":   {options: hostOptions{kind: compute.GanetiHost}, down: true, waitsFor: host},
		"its server is on no host":       {down: true, homeless: true, waitsFor: host},
		"its server is gone":             {down: true, gone: true, waitsFor: host},
		"this process has heard no host": {options: hostOptions{silent: true}, waitsFor: host, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.options.state = compute.Active
			s := &moveWorld{testHost: newTestHost(t, c.options)}
			if c.down {
				s.setForcedDown(t, true)
			}
			if c.homeless {
				s.tx(t, func(tx job.Tx) error {
					return s.services.Servers.Edit(t.Context(), tx, s.server, func(srv *compute.Server) { srv.HostID = "" })
				})
			}
			subject := compute.Subject(s.server)
			if c.gone {
				subject.ID = s.volume
			}
			s.tx(t, func(tx job.Tx) error {
				more, text, err := s.con.waitForSilentHost(t.Context(), tx, &job.Job{Subject: subject, WaitFor: c.waitsFor})
				if (more > 0) != c.waits || strings.Contains(text, "the host is silent") != c.says || err != nil {
					t.Errorf("it waits %s longer, and the timeline says %q, %v; want a longer wait: %v, a word: %v, and no error", more, text, err, c.waits, c.says)
				}
				return nil
			})
		})
	}
}

// TestWorkForAFencedHostIsKept: what would let a fenced host in to volumes waits until the host is admitted. The timeline says once that its time is over.
func TestWorkForAFencedHostIsKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options hostOptions
		ask     func(*moveWorld) compute.Act
	}{
		"hard reboot of a server on a volume": {hostOptions{state: compute.Active, volumes: true}, func(*moveWorld) compute.Act { return compute.Act{Action: compute.RebootHard} }},
		"attachment of a volume":              {hostOptions{state: compute.Active}, func(s *moveWorld) compute.Act { return compute.Act{Action: compute.AttachVolume, VolumeID: s.volume} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &moveWorld{testHost: newTestHost(t, c.options)}
			s.fence(t)
			var ahead atomic.Int64
			s.con.Config.Storage, s.con.Config.Now = &gate{}, func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			s.con = New(s.con.Config)
			s.act(t, c.ask(s))
			stop := s.conduct(t)
			defer stop()
			s.passes(t, "the job waits for the host to be admitted", 0, func(j *job.Job) bool {
				return j != nil && j.State == job.Waiting && strings.Contains(j.WaitFor, "which is fenced, to be admitted")
			})
			if told := s.failures(t); len(told) != 0 {
				t.Errorf("before its time is over the timeline says %q, want nothing", told)
			}
			ahead.Store(int64(time.Hour))
			for range 3 {
				former := s.lead(t)
				s.passes(t, "the job looks again", 5, func(j *job.Job) bool { return j == nil || j.State == job.Waiting && j.Fence > former.Fence })
			}
			told := s.failures(t)
			if j := s.lead(t); j == nil || len(told) != 1 || !strings.Contains(told[0], "host east is fenced") || !strings.Contains(told[0], keptText(s.server)) {
				t.Errorf("an hour later: job %+v, failures %q; want a job that waits, and one failure that says what becomes of it", j, told)
			}
		})
	}
}

// TestARebuildGivesSavedMemoryUp: a rebuild discards the memory that somebody saved, because its disk is made anew, and says so.
func TestARebuildGivesSavedMemoryUp(t *testing.T) {
	t.Parallel()
	h := newReportingHost(t)
	h.hv.Pause(h.server, compute.PowerSaved, compute.GuestPause{})
	h.act(t, compute.Act{Action: compute.Rebuild, Rebuild: &compute.RebuildArgs{ImageID: h.image, Discard: true}})
	h.work(t)
	guest, _ := h.hv.State(h.server)
	if srv := h.now(t); guest.Power != compute.PowerOn || guest.Starts != 1 || srv.State != compute.Active || srv.Fault != nil {
		t.Errorf("the guest is %s, started %d times, the server %s, fault %+v; want on, once, active and no fault", guest.Power, guest.Starts, srv.State, srv.Fault)
	}
	h.wantEvent(t, "the memory of the guest was saved on its host, and was given up")
}

// TestARescueKeepsMemoryThatIsSavedAmid: memory that somebody saves while a rescue is prepared is not given up by the power-off of the rescue. The guest goes on
// with it.
func TestARescueKeepsMemoryThatIsSavedAmid(t *testing.T) {
	t.Parallel()
	for _, order := range []int{1, 2, 3} { // the preparation of the image, the definition, the power-off
		w := newDriftWorld(t, "rescue", nil, order)
		w.stopsBefore("virsh managedsave")
		startRescue(t, w.testHost, false)
		w.finish(t)
		guest, _ := w.hv.State(w.server)
		if srv := w.now(t); guest.Power != compute.PowerOn || guest.Starts != 0 || srv.Fault == nil || !strings.Contains(srv.Fault.Message, "its memory is saved on its host") {
			t.Errorf("saved before order %d: the guest is %s, started anew %d times, fault %+v; want on, with its memory, and a fault that says so", order, guest.Power, guest.Starts, srv.Fault)
		}
	}
}

// TestAFailedRescueEndsASavedRescueSystem: the undoing of a rescue ends the rescue system, even if somebody saved its memory.
func TestAFailedRescueEndsASavedRescueSystem(t *testing.T) {
	t.Parallel()
	h := newReportingHost(t)
	startRescue(t, h.testHost, false)
	stop := h.conduct(t)
	h.standsAt(t, "unlock")
	stop()
	guest, _ := h.hv.State(h.server)
	runs := *guest.Runs
	runs.Rescue = nil // so that the rescue system cannot be unlocked
	guest.Runs, guest.Power = &runs, compute.PowerSaved
	h.hv.Put(h.server, guest)
	h.work(t)
	guest, _ = h.hv.State(h.server)
	if srv := h.now(t); guest.Power != compute.PowerOn || guest.Defined.Rescue != nil || srv.Rescue != nil || srv.Fault == nil {
		t.Errorf("the guest is %s, defined for a rescue: %v, the server %s, session %+v, fault %+v; want its own system on, no session and a fault", guest.Power, guest.Defined.Rescue != nil, srv.State, srv.Rescue, srv.Fault)
	}
}
