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
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/test/must"
)

// reportingHost has the host of a testHost tell of its guests, each time 20 s later, so that the last change of the server is older than what is told.
type reportingHost struct {
	*testHost
	ahead time.Duration
	*service.Services
}

func newReportingHost(t *testing.T) *reportingHost {
	t.Helper()
	w := &reportingHost{testHost: newTestHost(t, hostOptions{state: compute.Active})}
	w.Services = service.New(w.store, w.store, service.Options{}, func() time.Time { return time.Now().Add(w.ahead) })
	return w
}

func (w *reportingHost) tell(t *testing.T, boot string) {
	t.Helper()
	w.ahead += 20 * time.Second
	guests := must.Get(w.hv.Guests(t.Context()))(t)
	must.Get(w.Leases.Renew(t.Context(), w.host.ID, "01", compute.Renewal{BootID: boot, HasGuests: true, Guests: guests}))(t)
}

// standstills are the ways in which a guest stands still although it should run.
var standstills = map[string]struct {
	power compute.Power
	pause compute.GuestPause
	state compute.VMState
	goOn  compute.Action
	says  string
}{
	"I/O error":         {compute.PowerPaused, fullDisk, compute.Paused, compute.Unpause, "I/O error of its disks: “vda: there is no room in disk store local”"},
	"virsh suspend":     {compute.PowerPaused, compute.GuestPause{Reason: compute.PausedByUser}, compute.Paused, compute.Unpause, "suspended on its host"},
	"suspend to RAM":    {compute.PowerPaused, compute.GuestPause{Reason: compute.PausedBySleep}, compute.Suspended, compute.Resume, "its own system suspended to RAM"},
	"watchdog":          {compute.PowerPaused, compute.GuestPause{Reason: compute.PausedByWatchdog}, compute.Paused, compute.Unpause, "its watchdog found its system hung"},
	"snapshot-revert":   {compute.PowerPaused, compute.GuestPause{Reason: compute.PausedBySnapshot}, compute.Paused, compute.Unpause, "put back to a snapshot on its host"},
	"no reason":         {compute.PowerPaused, compute.GuestPause{Reason: compute.PausedUnknown}, compute.Paused, compute.Unpause, "paused on its host; the hypervisor does not tell why"},
	"panic":             {compute.PowerPaused, compute.GuestPause{Reason: compute.PausedByPanic}, compute.Paused, compute.Unpause, "its system is in panic"},
	"virsh managedsave": {compute.PowerSaved, compute.GuestPause{}, compute.Suspended, compute.Resume, "its memory was saved on its host"},
}

// TestGuestsThatStandStill: a guest that stands still is shown so, with the reason and the command that lets it go on. It goes on by that command, or when
// somebody lets it go on at its host, and always with the memory that it had.
func TestGuestsThatStandStill(t *testing.T) {
	t.Parallel()
	for name, c := range standstills {
		for _, byHand := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s by hand=%v", name, byHand), func(t *testing.T) {
				t.Parallel()
				h := newReportingHost(t)
				h.hv.Pause(h.server, c.power, c.pause)
				h.tell(t, "boot-1")
				srv := h.now(t)
				if srv.State != c.state || srv.Wanted != compute.PowerOn || srv.Power != c.power || srv.Fault != nil || srv.Task != compute.NoTask {
					t.Fatalf("state %s, power %s, wanted %s, task %q, fault %+v; want %s, %s, on, and no fault", srv.State, srv.Power, srv.Wanted, srv.Task, srv.Fault, c.state, c.power)
				}
				why := compute.ServerSituation{Server: srv, Host: h.host, Life: compute.HostLiveness{Up: true}, Conductors: record.Conductors{Live: []string{"c"}}, Operator: true}.Why()
				text := why.Text("server", "db", time.Now())
				if !strings.Contains(text, "should run and stands still: "+c.says) || !slices.Contains(why.Accepts, string(c.goOn)) ||
					!slices.ContainsFunc(why.Next, func(n record.Command) bool { return n.Run == "salvor server "+string(c.goOn)+" db" }) {
					t.Errorf("why says %s, and accepts %v; want %q and the action %s", text, why.Accepts, c.says, c.goOn)
				}
				h.wantEvent(t, "found "+string(c.power)+": "+c.says)
				if told := problem.Redact(text); strings.Contains(told, "disk store") {
					t.Errorf("readers other than administrators are told of the host's disk store: %s", told)
				}
				if strings.Contains(text, "someone else") {
					t.Errorf("why accuses someone, although the host cannot tell who did it: %s", text)
				}
				h.tell(t, "boot-1")
				if again := h.now(t); again.Version != srv.Version {
					t.Errorf("the same word of the host changes the server: version %d after %d", again.Version, srv.Version)
				}
				if byHand {
					must.Get(h.hv.SetPower(t.Context(), h.server, hypervisor.Power{State: compute.PowerOn}))(t)
					h.tell(t, "boot-1")
					h.wantEvent(t, "found on: it goes on")
				} else {
					h.act(t, compute.Act{Action: c.goOn})
					h.work(t)
				}
				h.wentOn(t)
			})
		}
	}
}

// TestCycladesLetsGuestsGoOn: with the actions of Cyclades' clients a guest that stands still goes on by a start, and begins anew by a hard reboot.
func TestCycladesLetsGuestsGoOn(t *testing.T) {
	t.Parallel()
	for name, c := range standstills {
		for _, action := range []compute.Action{compute.Start, compute.RebootHard} {
			h := newReportingHost(t)
			h.hv.Pause(h.server, c.power, c.pause)
			h.tell(t, "boot-1")
			h.act(t, compute.Act{Action: action, MustBeOff: true})
			h.work(t)
			guest, _ := h.hv.State(h.server)
			if srv, starts := h.now(t), map[compute.Action]int{compute.RebootHard: 1}[action]; srv.State != compute.Active || guest.Power != compute.PowerOn || guest.Starts != starts {
				t.Errorf("%s, %s: server %s, guest %s, started %d times; want active, on, %d", name, action, srv.State, guest.Power, guest.Starts, starts)
			}
		}
	}
}

// TestRescueGoesOn: a rescue system that stands still goes on with its memory, and its server stays in its session.
func TestRescueGoesOn(t *testing.T) {
	t.Parallel()
	for name, c := range standstills {
		h := newReportingHost(t)
		startRescue(t, h.testHost, false)
		h.work(t)
		before, _ := h.hv.State(h.server)
		h.hv.Pause(h.server, c.power, c.pause)
		h.tell(t, "boot-1")
		srv := h.now(t)
		why := compute.ServerSituation{Server: srv, Host: h.host, Life: compute.HostLiveness{Up: true}, Conductors: record.Conductors{Live: []string{"c"}}, Operator: true}.Why()
		if !slices.ContainsFunc(why.Next, func(n record.Command) bool { return n.Run == "salvor server "+string(c.goOn)+" db" }) {
			t.Errorf("%s: why names %+v, want the command %s", name, why.Next, c.goOn)
		}
		h.act(t, compute.Act{Action: c.goOn})
		h.work(t)
		guest, _ := h.hv.State(h.server)
		if srv = h.now(t); srv.State != compute.Rescued || srv.Rescue == nil || srv.Rescue.State != rescue.Ready || srv.StandsStill() || guest.Power != compute.PowerOn || guest.Starts != before.Starts {
			t.Errorf("%s: server %s, session %+v, pause %+v, guest %s, started %d times; want rescued, ready, on, %d", name, srv.State, srv.Rescue, srv.Pause, guest.Power, guest.Starts, before.Starts)
		}
	}
}

// wentOn wants the guest to run with the memory that it had.
func (h *testHost) wentOn(t *testing.T) {
	t.Helper()
	srv := h.now(t)
	guest, _ := h.hv.State(h.server)
	if srv.State != compute.Active || srv.Power != compute.PowerOn || srv.Pause != (compute.GuestPause{}) || srv.Fault != nil || guest.Power != compute.PowerOn || guest.Starts != 0 {
		t.Errorf("state %s, power %s, pause %+v, fault %+v, guest %s started anew %d times; want a server that runs with the memory that it had", srv.State, srv.Power, srv.Pause, srv.Fault, guest.Power, guest.Starts)
	}
}

var (
	fullDisk  = compute.GuestPause{Reason: compute.PausedByIOError, Disks: "vda: there is no room in disk store local", Full: true}
	roomAgain = compute.GuestPause{Reason: compute.PausedByIOError, HasRoom: true}
)

// pauses has the guest stand still for a reason, and its host report that.
func (w *reportingHost) pauses(t *testing.T, p compute.GuestPause) {
	t.Helper()
	w.hv.Pause(w.server, compute.PowerPaused, p)
	w.tell(t, "boot-1")
}

// wantsNoTry wants the guest to stand still although all its disks have room, and why to say the text.
func (w *reportingHost) wantsNoTry(t *testing.T, says string) {
	t.Helper()
	for range 3 {
		w.ahead += 2 * time.Hour
		w.pauses(t, roomAgain)
		if srv, j := w.now(t), w.lead(t); srv.State != compute.Paused || j != nil {
			t.Fatalf("state %s, job %+v; want no try to let the guest go on", srv.State, j)
		}
	}
	why := compute.ServerSituation{Server: w.now(t), Host: w.host, Life: compute.HostLiveness{Up: true}, Conductors: record.Conductors{Live: []string{"c"}}}.Why()
	if text := why.Text("server", "db", time.Now()); !strings.Contains(text, says) || strings.Contains(text, "when there is room") || !strings.Contains(text, "salvor server unpause db") {
		t.Errorf("why says %s; want %q and the command that lets the guest go on", text, says)
	}
}

// TestGoesOnWhenThereIsRoom: after an I/O error because of a full file system the guest goes on by itself once its disks have room. If the error comes again,
// the next try is later. After eight tries in a row there is no more, until somebody unpauses the server or the guest has run for hours.
func TestGoesOnWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	h := newReportingHost(t)
	for try := range 8 { // between the tries are 1, 2, 4, 8, 16, 32 and 60 minutes at least
		h.pauses(t, fullDisk)
		if try > 0 {
			h.pauses(t, roomAgain)
			if srv, j := h.now(t), h.lead(t); srv.State != compute.Paused || j != nil {
				t.Fatalf("try %d at once after the last one: state %s, job %+v; want it to wait", try, srv.State, j)
			}
			h.ahead += min(time.Minute<<(try-1), time.Hour)
		}
		h.pauses(t, roomAgain)
		h.work(t)
		h.wentOn(t)
	}
	h.wantEvent(t, "there is room for its disks, so it goes on")
	h.pauses(t, fullDisk)
	h.wantsNoTry(t, "salvor let it go on 8 times in vain and does not try again by itself: mend the storage first")
	h.act(t, compute.Act{Action: compute.Unpause})
	h.work(t)
	h.wentOn(t)
	h.pauses(t, fullDisk)
	h.pauses(t, roomAgain)
	h.work(t)
	h.wentOn(t)
	if slices.Contains(h.did, compute.Define) {
		t.Errorf("the host did %v; a guest that goes on keeps the definition that it began with", h.did)
	}
}

// TestAYoungPauseIsNoStandstill: what a host tells may be older than the change of a server a moment before, so it is looked at again.
func TestAYoungPauseIsNoStandstill(t *testing.T) {
	t.Parallel()
	h := newReportingHost(t)
	h.tx(t, func(tx job.Tx) error {
		return h.services.Servers.Edit(t.Context(), tx, h.server, func(srv *compute.Server) { srv.Description = "changed a moment before" })
	})
	before := h.now(t)
	h.hv.Pause(h.server, compute.PowerPaused, compute.GuestPause{Reason: compute.PausedByUser})
	guests := must.Get(h.hv.Guests(t.Context()))(t)
	must.Get(h.Leases.Renew(t.Context(), h.host.ID, "01", compute.Renewal{BootID: "boot-1", HasGuests: true, Guests: guests}))(t)
	if srv := h.now(t); srv.Version != before.Version {
		t.Errorf("a pause that is told at once leaves the server %s, version %d after %d; want no change", srv.State, srv.Version, before.Version)
	}
}

// TestAGuestThatStopsAgainAtOnce: a guest that goes on and meets the same I/O error before the host has answered should still run, so it goes on again when there
// is room.
func TestAGuestThatStopsAgainAtOnce(t *testing.T) {
	t.Parallel()
	h := newReportingHost(t)
	free := compute.GuestPause{Reason: compute.PausedByIOError, HasRoom: true}
	h.tells = func(verb compute.Verb, result *compute.Result) {
		if verb == compute.SetPower {
			h.hv.Pause(h.server, compute.PowerPaused, free)
			result.Guest.Power = compute.PowerPaused
		}
	}
	h.pauses(t, fullDisk)
	h.pauses(t, free)
	h.work(t)
	if srv := h.now(t); srv.State != compute.Paused || srv.Wanted != compute.PowerOn {
		t.Errorf("state %s, wanted %s; want paused, on", srv.State, srv.Wanted)
	}
	h.tells = nil
	h.ahead += 2 * time.Minute
	h.tell(t, "boot-1")
	h.work(t)
	h.wentOn(t)
}

// TestARescueSystemGoesOn: a rescue system that stood still and goes on is not said to stand still any more.
func TestARescueSystemGoesOn(t *testing.T) {
	t.Parallel()
	for _, byHand := range []bool{false, true} {
		h := newReportingHost(t)
		startRescue(t, h.testHost, false)
		h.work(t)
		h.pauses(t, fullDisk)
		if !byHand {
			h.pauses(t, roomAgain)
		}
		if srv := h.now(t); !srv.StandsStill() || srv.State != compute.Rescued {
			t.Fatalf("state %s, pause %+v; want rescued, and a guest that stands still", srv.State, srv.Pause)
		}
		if byHand {
			must.Get(h.hv.SetPower(t.Context(), h.server, hypervisor.Power{State: compute.PowerOn}))(t)
			h.tell(t, "boot-1")
		}
		h.work(t)
		if srv := h.now(t); srv.StandsStill() || srv.State != compute.Rescued || srv.Power != compute.PowerOn || srv.Task != compute.NoTask {
			t.Errorf("by hand %v: state %s, power %s, task %q, pause %+v; want rescued, on, and no pause", byHand, srv.State, srv.Power, srv.Task, srv.Pause)
		}
	}
}

// TestTriesBeginAnew: tries that were in vain count no more after the guest has run for hours.
func TestTriesBeginAnew(t *testing.T) {
	t.Parallel()
	h := newReportingHost(t)
	for range 10 {
		h.pauses(t, fullDisk)
		h.pauses(t, roomAgain)
		h.work(t)
		h.wentOn(t)
		h.ahead += 4 * time.Hour
		h.tell(t, "boot-1")
	}
}

// TestOtherIOErrors: if no file system of its disks was full when the guest was found paused, the error has another cause, for example a bad sector or a volume.
// Then the guest is not let go on by itself, and why does not say that it is.
func TestOtherIOErrors(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]compute.GuestPause{
		"bad sector":         roomAgain,
		"volumes only":       {Reason: compute.PausedByIOError},
		"a store unanswered": {Reason: compute.PausedByIOError, Disks: "vda: disk store local does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newReportingHost(t)
			h.pauses(t, first)
			h.wantsNoTry(t, "salvor does not let it go on by itself, because no file system of its disks was full: mend the storage first")
			h.act(t, compute.Act{Action: compute.Unpause})
			h.work(t)
			h.wentOn(t)
		})
	}
}

// TestSavedGuestsComeBack: a guest whose memory was saved when its host was shut down goes on with that memory when the host is there again.
func TestSavedGuestsComeBack(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{false, true} { // before the host went down
		h := newReportingHost(t)
		h.hv.Pause(h.server, compute.PowerSaved, compute.GuestPause{})
		if told {
			h.tell(t, "boot-1")
		}
		h.tell(t, "boot-2")
		h.work(t)
		h.wentOn(t)
	}
}

// TestSavedMemoryIsKept: no stop, reboot or rescue gives up the memory that somebody saved a moment ago, also on a host whose agent of a former release would.
// A hard reboot does, and says so.
func TestSavedMemoryIsKept(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(t *testing.T, h *reportingHost){
		"stop":   func(t *testing.T, h *reportingHost) { h.act(t, compute.Act{Action: compute.Stop}) },
		"reboot": func(t *testing.T, h *reportingHost) { h.act(t, compute.Act{Action: compute.Reboot}) },
		"rescue": func(t *testing.T, h *reportingHost) { startRescue(t, h.testHost, false) },
	} {
		for _, former := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s former=%v", name, former), func(t *testing.T) {
				t.Parallel()
				h := newReportingHost(t)
				if former {
					h.former, h.host.Inventory.KeepsSaved = true, false
					h.tx(t, func(tx job.Tx) error { return h.store.Hosts().Save(tx, h.host) })
				}
				h.hv.Pause(h.server, compute.PowerSaved, compute.GuestPause{}) // nobody has told of it yet
				ask(t, h)
				h.work(t)
				guest, _ := h.hv.State(h.server)
				if srv := h.now(t); guest.Power != compute.PowerSaved || srv.Fault == nil || !strings.Contains(srv.Fault.Message, "its memory is saved on its host") || srv.Rescue != nil {
					t.Fatalf("the guest is %s, the server %s, fault %+v; want it saved, and a fault that says so", guest.Power, srv.State, srv.Fault)
				}
				h.tell(t, "boot-1")
				if srv := h.now(t); srv.State == compute.Suspended {
					h.act(t, compute.Act{Action: compute.Resume})
					h.work(t)
					h.wentOn(t)
				} else {
					t.Errorf("state %s, want suspended", srv.State)
				}
			})
		}
	}
	h := newReportingHost(t)
	h.hv.Pause(h.server, compute.PowerSaved, compute.GuestPause{})
	h.tell(t, "boot-1")
	h.act(t, compute.Act{Action: compute.RebootHard})
	h.work(t)
	h.wantEvent(t, "the memory of the guest was saved on its host, and was given up when the guest was switched off")
	if guest, _ := h.hv.State(h.server); guest.Power != compute.PowerOn || guest.Starts != 1 {
		t.Errorf("after a hard reboot the guest is %s, started %d times; want on, 1", guest.Power, guest.Starts)
	}
}

// TestUnpauseInVain: a guest that does not go on stays as it was found, and its server is in no error state.
func TestUnpauseInVain(t *testing.T) {
	t.Parallel()
	h := newReportingHost(t)
	h.hv.Pause(h.server, compute.PowerPaused, standstills["I/O error"].pause)
	h.tell(t, "boot-1")
	h.act(t, compute.Act{Action: compute.Unpause})
	h.hv.Break("SetPower", problem.Conflictf("guest salvor-db: it does not become on"))
	h.work(t)
	h.hv.Break("SetPower", nil)
	if srv := h.now(t); srv.State != compute.Paused || srv.Wanted != compute.PowerOn || srv.Fault == nil {
		t.Fatalf("state %s, wanted %s, fault %+v; want paused, on, and a fault", srv.State, srv.Wanted, srv.Fault)
	}
	h.tell(t, "boot-1")
	h.act(t, compute.Act{Action: compute.Unpause})
	h.work(t)
	h.wentOn(t)
}

// wantEvent wants an event of the server that contains the text.
func (h *testHost) wantEvent(t *testing.T, text string) {
	t.Helper()
	events := must.Get(h.store.Events(t.Context(), compute.Subject(h.server), 0, 100))(t)
	if !slices.ContainsFunc(events, func(e job.Event) bool { return strings.Contains(e.Text, text) }) {
		t.Errorf("no event says %q: %+v", text, events)
	}
}

// TestWorkThatWaitedIsNoEndOfTheFirstLook: a host crashed, and work on a server waited for it. When the host starts again, the guest is started, or goes on with
// its saved memory, once the work has ended, whatever the work was.
func TestWorkThatWaitedIsNoEndOfTheFirstLook(t *testing.T) {
	t.Parallel()
	for _, action := range []compute.Action{compute.Pause, compute.Suspend, compute.AttachVolume} {
		for _, saved := range []bool{false, true} {
			if saved && action == compute.Suspend {
				continue // its memory is saved, as its user wanted
			}
			t.Run(fmt.Sprintf("%s saved=%v", action, saved), func(t *testing.T) {
				t.Parallel()
				h := newReportingHost(t)
				a := compute.Act{Action: action}
				if action == compute.AttachVolume {
					a.VolumeID = h.volume
				}
				h.act(t, a)
				if saved {
					h.hv.Pause(h.server, compute.PowerSaved, compute.GuestPause{})
				} else {
					must.Get(h.hv.SetPower(t.Context(), h.server, hypervisor.Power{State: compute.PowerOff}))(t)
				}
				h.tell(t, "boot-2")
				h.work(t)
				for range 4 {
					h.tell(t, "boot-2")
					h.work(t)
				}
				srv := h.now(t)
				guest, _ := h.hv.State(h.server)
				if srv.State != compute.Active || guest.Power != compute.PowerOn || (guest.Starts == 0) != saved {
					t.Errorf("server %s, guest %s, started anew %d times; want a server that runs, with its memory if that was saved", srv.State, guest.Power, guest.Starts)
				}
				if row := must.Get(h.store.Hosts().Get(t.Context(), nil, h.host.ID))(t); len(row.Unlooked) != 0 {
					t.Errorf("the host still waits for the first look at %v", row.Unlooked)
				}
			})
		}
	}
}

// TestUnrescueTellsOfMemory: what was saved amid a rescue is not given up without a word, and the memory of the server's own system not at all.
func TestUnrescueTellsOfMemory(t *testing.T) {
	t.Parallel()
	for _, failed := range []bool{false, true} {
		h := newReportingHost(t)
		startRescue(t, h.testHost, false)
		if failed { // its own system runs on
			h.refuse = func(v compute.Verb, _ *compute.Args) error {
				if v == compute.Define {
					return problem.Conflictf("no")
				}
				return nil
			}
		}
		h.work(t)
		h.refuse = nil
		h.hv.Pause(h.server, compute.PowerSaved, compute.GuestPause{})
		h.tell(t, "boot-1")
		h.act(t, compute.Act{Action: compute.Unrescue})
		h.work(t)
		guest, _ := h.hv.State(h.server)
		if failed && (guest.Power != compute.PowerSaved || guest.Starts != 0) {
			t.Errorf("after a rescue that failed the guest is %s, started %d times; want its own system's memory saved still", guest.Power, guest.Starts)
		}
		if !failed {
			h.wantEvent(t, "was given up")
		}
	}
}

// TestAGuestThatRunsIsShownSo: whatever was tried meanwhile, a guest that runs and should run is shown so.
func TestAGuestThatRunsIsShownSo(t *testing.T) {
	t.Parallel()
	resume := func(t *testing.T, h *reportingHost) {
		must.Get(h.hv.SetPower(t.Context(), h.server, hypervisor.Power{State: compute.PowerOn}))(t)
	}
	for name, c := range map[string]struct {
		do   func(t *testing.T, h *reportingHost)
		want compute.VMState
	}{
		"unpause failed, then virsh resume": {func(t *testing.T, h *reportingHost) {
			h.hv.Pause(h.server, compute.PowerPaused, standstills["I/O error"].pause)
			h.tell(t, "boot-1")
			h.act(t, compute.Act{Action: compute.Unpause})
			h.hv.Break("SetPower", problem.Conflictf("it does not become on"))
			h.work(t)
			h.hv.Break("SetPower", nil)
			resume(t, h)
		}, compute.Active},
		"an I/O error in rescue": {func(t *testing.T, h *reportingHost) {
			startRescue(t, h.testHost, false)
			h.work(t)
			h.pauses(t, fullDisk)
			h.pauses(t, roomAgain)
			h.work(t)
		}, compute.Rescued},
		"virsh resume in rescue": {func(t *testing.T, h *reportingHost) {
			startRescue(t, h.testHost, false)
			h.work(t)
			h.hv.Pause(h.server, compute.PowerPaused, standstills["I/O error"].pause)
			h.tell(t, "boot-1")
			resume(t, h)
		}, compute.Rescued},
		"virsh destroy of a guest that stands still": {func(t *testing.T, h *reportingHost) {
			h.hv.Pause(h.server, compute.PowerPaused, standstills["virsh suspend"].pause)
			h.tell(t, "boot-1")
			must.Get(h.hv.SetPower(t.Context(), h.server, hypervisor.Power{State: compute.PowerOff}))(t)
		}, compute.Stopped},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newReportingHost(t)
			c.do(t, h)
			for range 3 {
				h.tell(t, "boot-1")
				h.work(t)
			}
			if srv := h.now(t); srv.State != c.want || srv.StandsStill() || srv.Power != srv.Wanted {
				t.Errorf("state %s, power %s, wanted %s, pause %+v; want %s, and that it does not stand still", srv.State, srv.Power, srv.Wanted, srv.Pause, c.want)
			}
		})
	}
}
