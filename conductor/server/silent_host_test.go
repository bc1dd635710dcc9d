package server

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"salvor/compute"
	"salvor/job"
	"salvor/rescue"
	"salvor/test/fixture"
	"salvor/test/must"
)

// silentActions are what users ask of a server whose host is silent, with the state of the server once the work is done: by its host, which is back, or by an
// evacuation, which boots what ran anew.
var silentActions = map[string]struct {
	state       compute.VMState
	before, ask func(t *testing.T, s *moveWorld)
	back, moved compute.VMState
	volume      compute.VolumeStatus // of the volume; empty: it has no part in this
}{
	"stop":        {state: compute.Active, ask: actsOn(compute.Act{Action: compute.Stop}), back: compute.Stopped, moved: compute.Stopped},
	"start":       {state: compute.Stopped, ask: actsOn(compute.Act{Action: compute.Start}), back: compute.Active, moved: compute.Active},
	"reboot":      {state: compute.Active, ask: actsOn(compute.Act{Action: compute.Reboot}), back: compute.Active, moved: compute.Active},
	"hard reboot": {state: compute.Active, ask: actsOn(compute.Act{Action: compute.RebootHard}), back: compute.Active, moved: compute.Active},
	"pause":       {state: compute.Active, ask: actsOn(compute.Act{Action: compute.Pause}), back: compute.Paused, moved: compute.Active},
	"suspend":     {state: compute.Active, ask: actsOn(compute.Act{Action: compute.Suspend}), back: compute.Suspended, moved: compute.Active},
	"rescue":      {state: compute.Active, ask: func(t *testing.T, s *moveWorld) { startRescue(t, s.testHost, false) }, back: compute.Rescued, moved: compute.Rescued},
	"unrescue": {state: compute.Active, before: func(t *testing.T, s *moveWorld) {
		startRescue(t, s.testHost, false)
		s.work(t)
	}, ask: actsOn(compute.Act{Action: compute.Unrescue}), back: compute.Active, moved: compute.Active},
	"attach": {state: compute.Active, ask: func(t *testing.T, s *moveWorld) {
		s.act(t, compute.Act{Action: compute.AttachVolume, VolumeID: s.volume})
	}, back: compute.Active, moved: compute.Active, volume: compute.VolumeInUse},
	"detach": {state: compute.Active, before: func(t *testing.T, s *moveWorld) {
		s.act(t, compute.Act{Action: compute.AttachVolume, VolumeID: s.volume})
		s.work(t)
	}, ask: func(t *testing.T, s *moveWorld) {
		s.act(t, compute.Act{Action: compute.DetachVolume, VolumeID: s.volume})
	}, back: compute.Active, moved: compute.Active, volume: compute.VolumeAvailable},
}

func actsOn(a compute.Act) func(*testing.T, *moveWorld) {
	return func(t *testing.T, s *moveWorld) { s.act(t, a) }
}

// TestWorkWaitsForASilentHost: what a user asks of a server whose host is silent is told as failed once its time is over, and kept: the host does it when it
// is back, or the evacuation does.
func TestWorkWaitsForASilentHost(t *testing.T) {
	t.Parallel()
	for name, c := range silentActions {
		for _, evacuated := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s evacuated=%v", name, evacuated), func(t *testing.T) {
				t.Parallel()
				s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: c.state, access: rescue.ByChannel}, others: 1})
				if c.before != nil {
					c.before(t, s)
				}
				s.setForcedDown(t, true)
				c.ask(t, s)
				stop := s.conduct(t)
				s.passes(t, "the job waits for its host", 0, func(j *job.Job) bool { return j.State == job.Waiting })
				s.passes(t, "the timeline says that the host does not answer", 200, func(*job.Job) bool { return len(s.failures(t)) > 0 })
				for range 2 { // 10 minutes in all
					s.passes(t, "the job waits on", 200, func(j *job.Job) bool { return j.Deadline > s.ticks(t) })
				}
				told := s.failures(t)
				if j := s.lead(t); j == nil || j.State != job.Waiting || len(told) != 1 || !strings.Contains(told[0], "failed: Timeout reached while waiting for host east to ") ||
					!strings.Contains(told[0], "the host is silent; the work is done when the host is back, or at another host by an evacuation; salvor server abort "+s.server) {
					t.Fatalf("after 10 minutes: job %+v, failures %q; want a job that waits, and one failure that says what becomes of it", j, told)
				}
				stop()
				want := c.back
				if evacuated {
					want = c.moved
					s.fence(t)
					s.evacuate(t)
					s.workAll(t)
				} else {
					s.setForcedDown(t, false)
					s.work(t)
				}
				srv := s.now(t)
				if srv.State != want || srv.Task != compute.NoTask || srv.Fault != nil || (srv.HostID != s.host.ID) != evacuated {
					t.Errorf("state %s, task %q, fault %+v, on host %s; want %s, and another host: %v\n%s", srv.State, srv.Task, srv.Fault, srv.HostID, want, evacuated, s.picture(t))
				}
				if v := must.Get(s.store.Volumes().Get(t.Context(), nil, s.volume))(t); c.volume != "" && v.Status != c.volume {
					t.Errorf("the volume is %s, want %s", v.Status, c.volume)
				}
			})
		}
	}
}

// TestAHostThatDoesNotAnswerIsNoSilentHost: work that a host takes in and does not end fails once its time is over, and says so on the timeline.
func TestAHostThatDoesNotAnswerIsNoSilentHost(t *testing.T) {
	t.Parallel()
	s := &moveWorld{testHost: newTestHost(t, hostOptions{state: compute.Active})}
	s.act(t, compute.Act{Action: compute.Stop})
	stop := s.conduct(t)
	defer stop()
	s.passes(t, "the job waits for its host", 0, func(j *job.Job) bool { return j.State == job.Waiting })
	s.passes(t, "the job has ended", 200, func(j *job.Job) bool { return j == nil })
	if told, srv := s.failures(t), s.now(t); len(told) != 1 || strings.Contains(told[0], "silent") || srv.State != compute.Active || srv.Fault == nil {
		t.Errorf("failures %q, state %s, fault %+v; want one failure, active and a fault", told, srv.State, srv.Fault)
	}
}

// setForcedDown has an operator say that the host of the server is down, or that it is not any more.
func (s *moveWorld) setForcedDown(t *testing.T, down bool) {
	t.Helper()
	s.tx(t, func(tx job.Tx) error {
		host, err := s.store.Hosts().Get(t.Context(), tx, s.host.ID)
		if err != nil {
			return err
		}
		host.ForcedDown = down
		return s.store.Hosts().Save(tx, host)
	})
}

// passes has so many seconds of the conductor's time pass, and waits until the server's job is as wanted.
func (s *moveWorld) passes(t *testing.T, what string, seconds int, want func(*job.Job) bool) {
	t.Helper()
	for range seconds {
		must.OK(t, s.store.Advance(t.Context(), must.Get(s.store.Ticks(t.Context(), []string{""}))(t)))
	}
	fixture.Poll(t, what, func() bool { return want(s.lead(t)) }, s.picture, func(t *testing.T) string { return fmt.Sprintf("job %+v, tick %d", s.lead(t), s.ticks(t)) })
}

func (s *moveWorld) ticks(t *testing.T) int64 {
	t.Helper()
	return must.Get(s.store.Ticks(t.Context(), []string{""}))(t)[""]
}

// failures are the errors of the server's actions on the timeline, undoing left out.
func (s *moveWorld) failures(t *testing.T) (out []string) {
	t.Helper()
	events := must.Get(s.store.Events(context.Background(), compute.Subject(s.server), 0, 1000))(t)
	for _, e := range events {
		if e.Type == "action" && e.Severity == "error" && !strings.HasPrefix(e.Text, "undo ") {
			out = append(out, e.Text)
		}
	}
	return out
}
