package server

import (
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/diagnose"
	"salvor/job"
	"salvor/record"
	"salvor/restored"
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
	return h, h.restored()
}

// restored gives the service that releases the database.
func (h *testHost) restored() *restored.Service {
	return restored.New(h.store, h.services, time.Now)
}

// TestAJobThatGoesOnAsksItsHostAgain: the release voids the order that a job waits for; the job gives it out anew and ends well.
func TestAJobThatGoesOnAsksItsHostAgain(t *testing.T) {
	t.Parallel()
	h, s := waitsForHost(t, compute.Act{Action: compute.Stop})
	must.Get(s.Release(t.Context(), restored.Wanted{Decision: restored.AsItIs}, record.Asker{User: "op"}))(t)
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
	must.Get(s.Release(t.Context(), restored.Wanted{Decision: restored.AsItIs}, record.Asker{User: "op"}))(t)
	if host, err := h.store.Hosts().Get(t.Context(), nil, h.host.ID); err != nil || host.Fences < 7+record.NumberStep {
		t.Errorf("%+v %v", host, err)
	}
}

// TestAJobDoesNotGoOnWhereItsGuestIsElsewhere: even if the database is released as it is, the job ends, and the server is not started by itself. The
// list and the server say why.
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
	r := must.Get(s.Report(t.Context()))(t)
	if len(r.Jobs) != 1 || !strings.Contains(r.Jobs[0].Effects[restored.AsItIs], "ends; ") || !strings.Contains(r.Jobs[0].Effects[restored.AsItIs], "on host west") {
		t.Errorf("the list says %+v, want one job that ends although the database is released as it is, because of the guest on host west", r.Jobs)
	}
	must.Get(s.Release(t.Context(), restored.Wanted{Decision: restored.AsItIs}, record.Asker{User: "op"}))(t)
	h.work(t)
	if srv := h.now(t); srv.Fault == nil || !strings.Contains(srv.Fault.Message, "on host west") || srv.Wanted != compute.PowerUnknown || srv.Task != compute.NoTask {
		t.Errorf("the server: fault %+v, wanted power %q, task %q; want a fault that names host west, and nothing wanted", srv.Fault, srv.Wanted, srv.Task)
	}
}

// TestEndedJobsOfServers: whatever job of a server ends at the release of a restored database, the server shows why and is not busy any more, no host is
// asked for anything, and its guest is neither started nor stopped by itself.
func TestEndedJobsOfServers(t *testing.T) {
	t.Parallel()
	const why = "ended when the restored database was released"
	for action, want := range map[compute.Action]compute.VMState{compute.Stop: compute.Active, compute.RebootHard: compute.Active, compute.Rescue: compute.Errored, compute.Delete: compute.Errored} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			h, s := waitsForHost(t, compute.Act{Action: action})
			must.Get(s.Release(t.Context(), restored.Wanted{Decision: restored.EndOperations}, record.Asker{User: "op"}))(t)
			if open := h.openOrders(); len(open) != 0 {
				t.Errorf("orders after the release: %+v, want none", open)
			}
			stop := h.conduct(t)
			defer stop()
			h.untilEnded(t, func() {
				if open := h.openOrders(); len(open) != 0 {
					t.Errorf("an ended job gives its host the orders %+v", open)
				}
			}, compute.Subject(h.server))
			srv := h.now(t)
			if srv.State != want || srv.Fault == nil || !strings.Contains(srv.Fault.Message, why) || srv.Wanted != compute.PowerUnknown || srv.Task != compute.NoTask {
				t.Errorf("state %s, fault %+v, wanted power %q, task %q; want state %s, a fault with %q, and nothing wanted", srv.State, srv.Fault, srv.Wanted, srv.Task, want, why)
			}
		})
	}
}

// TestAnEndedAttachFreesNoVolume: a host may hold the volume that an ended job was to attach, so nobody else is given the volume before an operator has
// looked.
func TestAnEndedAttachFreesNoVolume(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Active})
	h.act(t, compute.Act{Action: compute.AttachVolume, VolumeID: h.volume})
	must.OK(t, h.store.HoldDatabase(t.Context(), record.HeldBackup, "a test"))
	must.Get(h.restored().Release(t.Context(), restored.Wanted{Decision: restored.EndOperations}, record.Asker{User: "op"}))(t)
	h.work(t)
	v := must.Get(h.store.Volumes().Get(t.Context(), nil, h.volume))(t)
	if srv := h.now(t); v.Status != compute.VolumeError || v.ServerID != "" || srv.State != compute.Active || srv.Fault == nil {
		t.Errorf("the volume is %s, of server %q; the server is %s, fault %+v; want an error, no server, active and a fault", v.Status, v.ServerID, srv.State, srv.Fault)
	}
}

// TestAnEndedJobBeginsNoDeletion: a deletion that waits for the job of its server does not begin when an administrator ended all operations.
func TestAnEndedJobBeginsNoDeletion(t *testing.T) {
	t.Parallel()
	h, s := waitsForHost(t, compute.Act{Action: compute.Stop})
	h.tx(t, func(tx job.Tx) error {
		return h.services.Servers.Edit(t.Context(), tx, h.server, func(srv *compute.Server) { srv.Task = compute.Deleting })
	})
	if r := must.Get(s.Report(t.Context()))(t); !strings.Contains(r.Jobs[0].Effects[restored.EndOperations], "is not deleted") {
		t.Errorf("the list says %q of the server that is to be deleted", r.Jobs[0].Effects[restored.EndOperations])
	}
	must.Get(s.Release(t.Context(), restored.Wanted{Decision: restored.EndOperations}, record.Asker{User: "op"}))(t)
	h.work(t)
	must.OK(t, h.services.Actions.Tend(t.Context()))
	if srv, j := h.now(t), h.lead(t); srv.State == compute.Deleted || srv.Task == compute.Deleting || j != nil {
		t.Errorf("state %s, task %q, open job %+v; want no deletion", srv.State, srv.Task, j)
	}
}

// TestAnEndedDiagnosisChangesNoServer: the end of a diagnosis's job ends its record with words. The server keeps its state and its power, because the
// diagnosis only read, and can be diagnosed again at once.
func TestAnEndedDiagnosisChangesNoServer(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Active})
	who := compute.Who{Admin: true}
	must.Get(h.services.Diagnoses.Begin(t.Context(), h.server, compute.DiagnoseArgs{}, nil, who))(t)
	before := h.now(t)
	must.OK(t, h.store.HoldDatabase(t.Context(), record.HeldBackup, "a test"))
	s := h.restored()
	must.Get(s.Release(t.Context(), restored.Wanted{Decision: restored.EndOperations}, record.Asker{User: "op"}))(t)
	stop := h.conduct(t)
	h.untilEnded(t, func() {}, compute.Subject(h.server))
	stop()
	if srv := h.now(t); srv.State != before.State || srv.Fault != nil || srv.Power != before.Power {
		t.Errorf("the server after its diagnosis ended: state %s, fault %+v, power %s; want %s, no fault, %s", srv.State, srv.Fault, srv.Power, before.State, before.Power)
	}
	d := must.Get(h.services.Diagnoses.List(t.Context(), h.server))(t)[0]
	if d.State != diagnose.Failed || d.Problem != "ended when the restored database was released" {
		t.Errorf("the diagnosis is %s, problem %q; want it failed, and ended by the release", d.State, d.Problem)
	}
	must.Get(h.services.Diagnoses.Begin(t.Context(), h.server, compute.DiagnoseArgs{}, nil, who))(t)
}

// TestReadmissionAtARelease: the readmission of a host that is open when a restored database is released gives the host's servers their volumes back,
// or ends. An ended readmission says on the host what was not given back and what tries again, and locks nothing.
func TestReadmissionAtARelease(t *testing.T) {
	t.Parallel()
	for decision, want := range map[string]struct {
		effect string // what the list of open jobs says before the release
		letIn  int
		event  string
	}{
		restored.AsItIs:        {"begins", 1, ""},
		restored.EndOperations: {"ends; what it did stays", 0, "the volumes that the fence took away could not be given back: ended when the restored database was released; a hard reboot of its servers tries again"},
	} {
		t.Run(decision, func(t *testing.T) {
			t.Parallel()
			s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active, volumes: true}, others: 1})
			g := &gate{}
			s.con.Config.Storage = excluding{g}
			s.con = New(s.con.Config)
			s.fence(t)
			s.tx(t, func(tx job.Tx) error {
				_, err := s.services.Fences.Contradict(t.Context(), tx, s.host.ID, "it renewed its lease")
				return err
			})
			must.OK(t, s.store.HoldDatabase(t.Context(), record.HeldBackup, "a test"))
			service := s.restored()
			r := must.Get(service.Report(t.Context()))(t)
			i := slices.IndexFunc(r.Jobs, func(o restored.OpenJob) bool { return o.Kind == compute.JobReadmit })
			if i < 0 || !strings.HasPrefix(r.Jobs[i].Effects[decision], want.effect) {
				t.Fatalf("the list says %+v; want a readmission that %s", r.Jobs, want.effect)
			}
			must.Get(service.Release(t.Context(), restored.Wanted{Decision: decision}, record.Asker{User: "op"}))(t)
			s.workAll(t)
			if len(g.let) != want.letIn {
				t.Errorf("let in: %v; want %d", g.let, want.letIn)
			}
			events := must.Get(s.store.Events(t.Context(), compute.HostSubject(s.host.ID), 0, 100))(t)
			said := slices.ContainsFunc(events, func(e job.Event) bool { return strings.Contains(e.Text, "could not be given back") })
			if said != (want.event != "") || said && !slices.ContainsFunc(events, func(e job.Event) bool { return e.Text == want.event }) {
				t.Errorf("events %+v; want %q", events, want.event)
			}
			if h := must.Get(s.store.Hosts().Get(t.Context(), nil, s.host.ID))(t); h.Fenced {
				t.Errorf("host %s is still fenced", h.Name)
			}
		})
	}
}
