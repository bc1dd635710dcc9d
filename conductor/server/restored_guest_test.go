package server

import (
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/restored"
	"salvor/secret"
	"salvor/test/fixture"
	"salvor/test/must"
)

// waitsForHost gives a testHost in a held database, whose server has an open job that waits for its silent host.
func waitsForHost(t *testing.T, a compute.Act) (*testHost, *restored.Service) {
	t.Helper()
	h := newTestHost(t, hostOptions{state: compute.Active})
	h.act(t, a)
	stop := h.conduct(t)
	fixture.Poll(t, "the job waits", func() bool { return h.lead(t).State == job.Waiting }, h.picture)
	stop()
	must.OK(t, h.store.HoldDatabase(t.Context(), record.HeldBackup, "a test"))
	nodes := metal.NewNodes(h.store, h.store, &secret.Key{}, metal.NewDirectory(h.store, time.Now, 0, 0), metal.Options{}, time.Now)
	return h, restored.New(h.store, nodes, h.services, time.Now)
}

// TestAContinuedJobAsksItsHostAgain: the release voids the order that a job waits for; the job gives it out anew and ends well.
func TestAContinuedJobAsksItsHostAgain(t *testing.T) {
	t.Parallel()
	h, s := waitsForHost(t, compute.Act{Action: compute.Stop})
	must.Get(s.Release(t.Context(), restored.Wanted{Rest: record.ContinueJob}, record.Asker{User: "op"}))(t)
	if j := h.lead(t); j == nil || j.State != job.Ready || j.Deadline != 0 {
		t.Fatalf("after the release: %+v", j)
	}
	h.work(t)
	if srv := h.now(t); srv.State != compute.Stopped || srv.Fault != nil {
		t.Errorf("%s", h.picture(t))
	}
}

// TestAReleaseRaisesFences: a fence after the release has a number that no fence of the lost history had, of hosts that were lost too.
func TestAReleaseRaisesFences(t *testing.T) {
	t.Parallel()
	h, s := waitsForHost(t, compute.Act{Action: compute.Stop})
	h.tx(t, func(tx job.Tx) error {
		host, err := h.store.Hosts().Get(t.Context(), tx, h.host.ID)
		if err != nil {
			return err
		}
		host.Fences, host.Lost = 7, true
		return h.store.Hosts().Save(tx, host)
	})
	must.Get(s.Release(t.Context(), restored.Wanted{Rest: record.ContinueJob}, record.Asker{User: "op"}))(t)
	if host, err := h.store.Hosts().Get(t.Context(), nil, h.host.ID); err != nil || host.Fences < 7+record.NumberStep {
		t.Errorf("%+v %v", host, err)
	}
}

// TestAJobDoesNotGoOnWhereItsGuestIsElsewhere: neither a choice nor the choice for the rest has it go on, and the reason is told.
func TestAJobDoesNotGoOnWhereItsGuestIsElsewhere(t *testing.T) {
	t.Parallel()
	h, s := waitsForHost(t, compute.Act{Action: compute.RebootHard})
	other := h.host.ID[:len(h.host.ID)-12] + "000000000000"
	h.tx(t, func(tx job.Tx) error {
		away := *h.host
		away.ID, away.Name = other, "west"
		return h.store.Hosts().Insert(tx, &away)
	})
	report := compute.Renewal{BootID: "boot-1", HasGuests: true, Guests: []compute.Guest{{ID: h.server, Ours: true, Epoch: 9, Power: compute.PowerOn}}}
	must.Get(h.services.Leases.Renew(t.Context(), other, "01", report))(t)
	id := h.lead(t).ID
	refused := func(err error) {
		t.Helper()
		if !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "on host west") || !strings.Contains(err.Error(), "--drop "+id) {
			t.Errorf("%v", err)
		}
	}
	refused(s.Choose(t.Context(), record.ChoiceOfJob, record.ContinueJob, []string{id}, record.Asker{}))
	if err := s.Choose(t.Context(), record.ChoiceOfJob, record.ContinueJob, []string{restored.All}, record.Asker{}); err != nil {
		t.Errorf("all are those that may go on: %v", err)
	}
	_, err := s.Release(t.Context(), restored.Wanted{Rest: record.ContinueJob}, record.Asker{})
	refused(err)
	if _, err := s.Release(t.Context(), restored.Wanted{Rest: record.DropJob}, record.Asker{}); err != nil {
		t.Error(err)
	}
}
