package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/hypervisor"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/test/must"
)

// endsByOthers are the ways in which somebody else than salvor ends a guest that runs.
var endsByOthers = map[string]compute.Power{"virsh destroy": compute.PowerOff, "kill -9": compute.PowerCrashed}

// givesMemoryUp are the operations whose request is a consent to lose the memory of the guest.
var givesMemoryUp = []string{"hard reboot", "rebuild", "unrescue", "delete"}

// TestSweepGuestsStoppedByOthers: a guest that somebody else stops, saves or ends between any two orders of any operation is not lost out of sight. The record
// tells how the guest is once its host has told of it, and saved memory is not given up without a word.
func TestSweepGuestsStoppedByOthers(t *testing.T) {
	t.Parallel()
	combinations, chosen := 0, jobtest.Choose(t, 64, 4)
	for name, op := range driftOperations {
		dry := newDriftWorld(t, name, nil, -1)
		op.ask(t, dry.migrationWorld)
		dry.finish(t)
		var kinds []string
		for kind := range standstills {
			kinds = append(kinds, kind)
		}
		for kind := range endsByOthers {
			kinds = append(kinds, kind)
		}
		for _, kind := range kinds {
			for at := range 2 * (dry.orders + 1) {
				at, moved := at/2, at%2 == 1
				combinations++
				if !chosen() {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, before order %d, disk moved too=%v", name, kind, at, moved), func(t *testing.T) {
					t.Parallel()
					var files map[string]hypervisor.DiskFile
					if moved {
						files = driftKinds["snapshot of the root disk"].files
					}
					w := newDriftWorld(t, name, files, at)
					stopped := w.stopsBefore(kind)
					op.ask(t, w.migrationWorld)
					w.finish(t)
					w.check(t, op.ends)
					w.tellAll(t)
					w.check(t, op.ends)
					w.checkGuest(t, name, kind, *stopped)
				})
			}
		}
	}
	t.Logf("%d combinations", combinations)
}

// stopsBefore has the guest stopped in that way before the order, if it runs then, and tells whether it was.
func (w *driftWorld) stopsBefore(kind string) *bool {
	stopped := false
	w.changesMore = true
	w.change = func() {
		w.move()
		for _, h := range w.testHosts() {
			g, found := h.hv.State(w.server)
			if !found || g.Power != compute.PowerOn || g.Runs == nil {
				continue
			}
			stopped = true
			if how, is := standstills[kind]; is {
				h.hv.Pause(w.server, how.power, how.pause)
				continue
			}
			g.Power, g.Runs = endsByOthers[kind], nil
			h.hv.Put(w.server, g)
		}
	}
	return &stopped
}

// tellAll has all hosts tell of their guests until nothing is left to be done, each time later than what was done before.
func (w *driftWorld) tellAll(t *testing.T) {
	t.Helper()
	ahead := time.Duration(0)
	later := service.New(w.store, w.store, service.Options{}, func() time.Time { return time.Now().Add(ahead) })
	for range 3 {
		ahead += 20 * time.Second
		for _, h := range w.testHosts() {
			guests := must.Get(h.hv.Guests(t.Context()))(t)
			must.Get(later.Leases.Renew(t.Context(), h.host.ID, "01", compute.Renewal{BootID: "boot-1", HasGuests: true, Guests: guests}))(t)
		}
		w.finish(t)
	}
}

// checkGuest compares the record with the guest.
func (w *driftWorld) checkGuest(t *testing.T, operation, kind string, stopped bool) {
	t.Helper()
	srv := must.Get(w.store.Servers().Get(t.Context(), nil, w.server))(t)
	if srv.State == compute.Deleted {
		return
	}
	i := slices.IndexFunc(w.testHosts(), func(h *testHost) bool { return h.host.ID == srv.HostID })
	if i < 0 {
		t.Fatalf("the server is on no host:\n%s", w.whereabouts(t))
	}
	g, found := w.testHosts()[i].hv.State(w.server)
	if !found || srv.Task != compute.NoTask {
		t.Fatalf("its host has the guest: %v; task %q:\n%s", found, srv.Task, w.whereabouts(t))
	}
	if srv.Wanted == compute.PowerPaused && g.Power == compute.PowerPaused {
		return // its user paused it, whatever else stops it
	}
	want := map[compute.Power][]compute.VMState{
		compute.PowerOn: {compute.Active}, compute.PowerOff: {compute.Stopped}, compute.PowerCrashed: {compute.Stopped},
		compute.PowerPaused: {compute.Paused}, compute.PowerSaved: {compute.Suspended},
	}[g.Power]
	if g.Power == compute.PowerPaused && g.Pause.Reason == compute.PausedBySleep {
		want = []compute.VMState{compute.Suspended}
	}
	inError := srv.State == compute.Errored && srv.Fault != nil
	if !inError && srv.State != compute.Rescued && !slices.Contains(want, srv.State) || !inError && srv.Power != g.Power {
		t.Errorf("the guest is %s, and the server %s, power %s, wanted %s, pause %+v, fault %+v:\n%s", g.Power, srv.State, srv.Power, srv.Wanted, srv.Pause, srv.Fault, w.whereabouts(t))
	}
	if saved := standstills[kind].power == compute.PowerSaved; !saved || !stopped || slices.Contains(givesMemoryUp, operation) || g.Power == compute.PowerSaved {
		return
	}
	if g.Power == compute.PowerOn && g.Starts == 0 {
		return // it went on with its memory
	}
	events := must.Get(w.store.Events(t.Context(), compute.Subject(w.server), 0, 1000))(t)
	if !slices.ContainsFunc(events, func(e job.Event) bool { return strings.Contains(e.Text, "memory") }) {
		t.Errorf("the saved memory is lost without a word: the guest is %s, started %d times:\n%s", g.Power, g.Starts, w.whereabouts(t))
	}
}
