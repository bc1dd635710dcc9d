package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/hypervisor/fake"
	"salvor/job"
	"salvor/problem"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/fixture"
	"salvor/test/must"
)

// TestServerWalks leads servers through states as both faces do.
func TestServerWalks(t *testing.T) {
	t.Parallel()
	type step struct {
		act   compute.Act
		state compute.VMState
		power compute.Power
		runs  string // what the guest runs: "system", "rescue" or "nothing"
	}
	const system, rescued, nothing = "system", "rescue", "nothing"
	act := func(a compute.Action) compute.Act { return compute.Act{Action: a} }
	cyclades := func(a compute.Action) compute.Act { return compute.Act{Action: a, MustBeOff: true} }
	for name, c := range map[string]struct {
		hostOptions
		steps []step
	}{
		"power": {hostOptions{state: compute.Active}, []step{
			{act(compute.Stop), compute.Stopped, compute.PowerOff, nothing},
			{act(compute.Start), compute.Active, compute.PowerOn, system},
			{act(compute.Reboot), compute.Active, compute.PowerOn, system},
			{act(compute.RebootHard), compute.Active, compute.PowerOn, system},
			{act(compute.Pause), compute.Paused, compute.PowerPaused, system},
			{act(compute.Unpause), compute.Active, compute.PowerOn, system},
			{act(compute.Suspend), compute.Suspended, compute.PowerSaved, system},
			{act(compute.Resume), compute.Active, compute.PowerOn, system},
		}},
		"nova rescues a running server": {hostOptions{state: compute.Active}, []step{
			{act(compute.Rescue), compute.Rescued, compute.PowerOn, rescued},
			{act(compute.Unrescue), compute.Active, compute.PowerOn, system},
		}},
		"nova rescues a stopped server": {hostOptions{state: compute.Stopped, volumes: true}, []step{
			{act(compute.Rescue), compute.Rescued, compute.PowerOn, rescued},
			{act(compute.Unrescue), compute.Active, compute.PowerOn, system},
		}},
		"cyclades": {hostOptions{state: compute.Stopped}, []step{
			{cyclades(compute.Rescue), compute.Rescued, compute.PowerOff, nothing},
			{cyclades(compute.Start), compute.Rescued, compute.PowerOn, rescued},
			{cyclades(compute.Reboot), compute.Rescued, compute.PowerOn, rescued},
			{cyclades(compute.Stop), compute.Rescued, compute.PowerOff, nothing},
			{cyclades(compute.Unrescue), compute.Stopped, compute.PowerOff, nothing},
			{act(compute.Start), compute.Active, compute.PowerOn, system},
		}},
		"cyclades on ganeti": {hostOptions{kind: compute.GanetiHost, state: compute.Stopped, access: rescue.NoAccess}, []step{
			{cyclades(compute.Rescue), compute.Rescued, compute.PowerOff, nothing},
			{cyclades(compute.Start), compute.Rescued, compute.PowerOn, rescued},
			{cyclades(compute.Stop), compute.Rescued, compute.PowerOff, nothing},
			{cyclades(compute.Unrescue), compute.Stopped, compute.PowerOff, nothing},
		}},
		"a session that is started again is unlocked again": {hostOptions{state: compute.Stopped}, []step{
			{compute.Act{Action: compute.Rescue, Password: &secret.Value{}, MustBeOff: true}, compute.Rescued, compute.PowerOff, nothing},
			{compute.Act{Action: compute.Start, Password: &secret.Value{}, MustBeOff: true}, compute.Rescued, compute.PowerOn, rescued},
			{compute.Act{Action: compute.RebootHard, Password: &secret.Value{}, MustBeOff: true}, compute.Rescued, compute.PowerOn, rescued},
			{act(compute.Unrescue), compute.Active, compute.PowerOn, system},
		}},
		"nova closes what cyclades opened": {hostOptions{state: compute.Stopped}, []step{
			{cyclades(compute.Rescue), compute.Rescued, compute.PowerOff, nothing},
			{act(compute.Unrescue), compute.Active, compute.PowerOn, system},
		}},
		"cyclades closes what nova opened": {hostOptions{state: compute.Stopped}, []step{
			{act(compute.Rescue), compute.Rescued, compute.PowerOn, rescued},
			{cyclades(compute.Stop), compute.Rescued, compute.PowerOff, nothing},
			{cyclades(compute.Unrescue), compute.Stopped, compute.PowerOff, nothing},
		}},
		"a config drive": {hostOptions{state: compute.Active, access: rescue.ByConfigDrive}, []step{
			{act(compute.Rescue), compute.Rescued, compute.PowerOn, rescued},
			{act(compute.Unrescue), compute.Active, compute.PowerOn, system},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTestHost(t, c.hostOptions)
			before, _ := h.hv.State(h.server)
			for _, step := range c.steps {
				h.act(t, step.act)
				h.work(t)
				s := h.now(t)
				if s.State != step.state || s.Power != step.power || s.Wanted != step.power || s.Task != compute.NoTask || s.Fault != nil {
					t.Fatalf("%s: want %s and %s\n%s", step.act.Action, step.state, step.power, h.picture(t))
				}
				if opens := step.runs == rescued && step.act.Password != nil; opens && (h.opened == "" || s.Rescue.Fingerprint == "") {
					t.Fatalf("%s: not unlocked\n%s", step.act.Action, h.picture(t))
				}
				if got := h.runs(); got != step.runs {
					t.Fatalf("%s: runs %s, want %s\n%s", step.act.Action, got, step.runs, h.picture(t))
				}
			}
			// In the end everything is what it was, in the order that it was.
			after, _ := h.hv.State(h.server)
			if disksOf(&after.Defined) != disksOf(&before.Defined) || after.Defined.Rescue != nil || h.copies || h.opened != "" {
				t.Errorf("left behind: %s", h.picture(t))
			}
			for key, value := range before.Settings {
				if after.Settings[key] != value || len(after.Settings) != len(before.Settings) {
					t.Errorf("settings %v, were %v", after.Settings, before.Settings)
				}
			}
			h.spotless(t)
		})
	}
}

// runs tells what the guest runs.
func (h *testHost) runs() string {
	g, _ := h.hv.State(h.server)
	switch {
	case g.Runs == nil:
		return "nothing"
	case g.Runs.Rescue != nil:
		return "rescue"
	}
	return "system"
}

// TestRescueKeepsEveryDisk: a server that boots from a volume is rescued with the volume in its place.
func TestRescueKeepsEveryDisk(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Active, volumes: true})
	startRescue(t, h, false)
	h.work(t)
	g, _ := h.hv.State(h.server)
	if disksOf(g.Runs) != " vda vdb" || g.Runs.Disks[0].VolumeID != h.volume || g.Runs.Disks[0].BootIndex != 0 {
		t.Errorf("runs with %+v", g.Runs.Disks)
	}
	if uses, err := h.store.RescueImageUse(context.Background(), nil); err != nil || len(uses) != 1 {
		t.Errorf("in use: %v %v", uses, err)
	}
}

// TestRescueThatNeedsTheGuestOffChangesNothing: a guest that was started beside us is told of, not switched off.
func TestRescueThatNeedsTheGuestOffChangesNothing(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Stopped})
	startRescue(t, h, true)
	g, _ := h.hv.State(h.server)
	g.Power, g.Runs = compute.PowerOn, &g.Defined
	h.hv.Put(h.server, g)
	h.work(t)
	s := h.now(t)
	if h.runs() != "system" || s.State != compute.Active || s.Rescue != nil || s.Fault == nil || !strings.Contains(s.Fault.Message, "stop it first") {
		t.Errorf("%s", h.picture(t))
	}
}

// TestFailedRescueOfAStoppedServerLeavesItsState: in the manner of Cyclades it can be asked for again, or the server started.
func TestFailedRescueOfAStoppedServerLeavesItsState(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Stopped})
	refuse := func(do func(compute.Verb, *compute.Args) error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.refuse = do
	}
	refuse(func(o compute.Verb, args *compute.Args) error {
		if o == compute.Prepare && args.Spec.Rescue != nil {
			return problem.NotFoundf("finnix.iso is not on this host")
		}
		return nil
	})
	startRescue(t, h, true)
	h.work(t)
	if s := h.now(t); s.State != compute.Stopped || s.Power != compute.PowerOff || s.Wanted != compute.PowerOff || s.Rescue != nil || s.Fault == nil {
		t.Fatalf("%s", h.picture(t))
	}
	refuse(nil)
	startRescue(t, h, true)
	h.work(t)
	if s := h.now(t); s.State != compute.Rescued || s.Fault != nil {
		t.Errorf("asked again: %s", h.picture(t))
	}
}

// TestRescueThatCannotFetchLeavesTheServerRunning: the image comes before the power-off.
func TestRescueThatCannotFetchLeavesTheServerRunning(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Active})
	before, _ := h.hv.State(h.server)
	h.mu.Lock()
	h.refuse = func(o compute.Verb, args *compute.Args) error {
		if o == compute.Prepare && args.Spec.Rescue != nil {
			return problem.NotFoundf("finnix.iso is not on this host")
		}
		return nil
	}
	h.mu.Unlock()
	startRescue(t, h, false)
	h.work(t)
	s := h.now(t)
	g, _ := h.hv.State(h.server)
	if g.Starts != before.Starts || h.runs() != "system" || s.State != compute.Active || s.Power != compute.PowerOn || s.Wanted != compute.PowerOn || s.Rescue != nil || s.Task != compute.NoTask {
		t.Errorf("%s", h.picture(t))
	}
	if want := "Instance " + s.ID + " cannot be rescued: "; s.Fault == nil || !strings.HasPrefix(s.Fault.Message, want) || !strings.Contains(s.Fault.Message, "finnix.iso") {
		t.Errorf("fault %+v", s.Fault)
	}
}

// TestARefusedRescueKeepsTheState: a server in error stays in error, and a stopped one stays stopped.
func TestARefusedRescueKeepsTheState(t *testing.T) {
	t.Parallel()
	for _, state := range []compute.VMState{compute.Stopped, compute.Errored} {
		h := newTestHost(t, hostOptions{state: state})
		h.refuse = func(o compute.Verb, args *compute.Args) error {
			if o == compute.Prepare && args.Spec.Rescue != nil {
				return problem.NotFoundf("finnix.iso is not on this host")
			}
			return nil
		}
		startRescue(t, h, false)
		h.work(t)
		if s := h.now(t); s.State != state || s.Rescue != nil || s.Fault == nil {
			t.Errorf("%s", h.picture(t))
		}
	}
}

// TestRescueThatCannotBePutBackSaysSo: the session stays, its image is held, and an unrescue ends it once the host obeys.
func TestRescueThatCannotBePutBackSaysSo(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Active})
	refuse := func(verb compute.Verb, args *compute.Args) error {
		if verb == compute.Unlock || verb == compute.Define && args.Spec.Rescue == nil {
			return problem.Conflictf("the host does not want to")
		}
		return nil
	}
	h.mu.Lock()
	h.refuse = refuse
	h.mu.Unlock()
	startRescue(t, h, false)
	h.work(t)
	s := h.now(t)
	if s.State != compute.Errored || s.Rescue == nil || s.Rescue.State != rescue.Failed || !strings.Contains(s.Fault.Message, "could not be put back") {
		t.Fatalf("%s", h.picture(t))
	}
	h.mu.Lock()
	h.refuse = nil
	h.mu.Unlock()
	h.act(t, compute.Act{Action: compute.Unrescue})
	h.work(t)
	if s := h.now(t); s.State != compute.Active || s.Rescue != nil || h.runs() != "system" || h.copies {
		t.Errorf("%s", h.picture(t))
	}
}

// TestUnrescueOfALostGuest: a guest that its hypervisor has forgotten is defined again as it was.
func TestUnrescueOfALostGuest(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Active})
	startRescue(t, h, false)
	h.work(t)
	must.OK(t, h.hv.Remove(context.Background(), h.server))
	h.act(t, compute.Act{Action: compute.Unrescue})
	h.work(t)
	if s := h.now(t); s.State != compute.Active || s.Rescue != nil || h.runs() != "system" {
		t.Errorf("%s", h.picture(t))
	}
}

// TestRescueNeverMakesADisk: what is lost of a server is not made anew beside what a rescue may save of it.
func TestRescueNeverMakesADisk(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Active})
	delete(h.disks, "vda")
	startRescue(t, h, false)
	h.work(t)
	if _, made := h.disks["vda"]; made {
		t.Errorf("%s", h.picture(t))
	}
}

// TestUndoDoesNotWaitForEver: a host that does not answer holds an undo as long as it would hold the operation.
func TestUndoDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	r, looks, total := &job.Run{}, 0, 3*time.Minute
	for ; looks < 10000; looks++ {
		before, _ := time.ParseDuration(r.Memo["waited"])
		pauseUndo(r, "waited", "the host", total)
		if after, _ := time.ParseDuration(r.Memo["waited"]); after == before {
			break
		}
	}
	if waited, _ := time.ParseDuration(r.Memo["waited"]); looks > 200 || waited < total || waited > total+10*time.Second {
		t.Errorf("%d looks in %s", looks, waited)
	}
}

// TestErrandIsTriedAgain: what a host could not do for now is ordered anew, a few times.
func TestErrandIsTriedAgain(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Stopped})
	tries := 0
	h.mu.Lock()
	h.refuse = func(verb compute.Verb, _ *compute.Args) error {
		if verb == compute.SetPower {
			if tries++; tries < orderTries {
				return problem.Unavailablef("libvirt does not answer")
			}
		}
		return nil
	}
	h.mu.Unlock()
	h.act(t, compute.Act{Action: compute.Start})
	h.work(t)
	if s := h.now(t); s.State != compute.Active || tries != orderTries {
		t.Errorf("%d tries: %s", tries, h.picture(t))
	}
}

// TestDeletionFromAnywhere leaves nothing on the host and nothing reserved, in whatever state it finds the server.
func TestDeletionFromAnywhere(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, h *testHost){
		"active":    func(*testing.T, *testHost) {},
		"in rescue": func(t *testing.T, h *testHost) { startRescue(t, h, false); h.work(t) },
		"half rescued": func(t *testing.T, h *testHost) {
			startRescue(t, h, false)
			h.waits(t)
		},
		"in error": func(t *testing.T, h *testHost) {
			h.act(t, compute.Act{Action: compute.ResetState, Reset: compute.Errored})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTestHost(t, hostOptions{state: compute.Active, volumes: true})
			prepare(t, h)
			h.act(t, compute.Act{Action: compute.Delete})
			h.work(t)
			s := h.now(t)
			v := must.Get(h.store.Volumes().Get(context.Background(), nil, h.volume))(t)
			_, there := h.hv.State(h.server)
			if s.State != compute.Deleted || s.Rescue != nil || there || len(h.disks) > 0 || h.copies || v.Status != compute.VolumeAvailable {
				t.Errorf("left: %s", h.picture(t))
			}
			if uses, err := h.store.RescueImageUse(context.Background(), nil); err != nil || len(uses) != 0 {
				t.Errorf("in use: %v %v", uses, err)
			}
		})
	}
}

// TestDeletionDuringAnOperation: one that is asked for while an action runs begins when nothing runs any more.
func TestDeletionDuringAnOperation(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{new: true})
	h.create(t)
	// The job is ready, hence locks the server: it is not superseded.
	h.act(t, compute.Act{Action: compute.Delete})
	fixture.Poll(t, "it is deleted", func() bool {
		h.work(t)
		must.OK(t, h.services.Actions.Tend(context.Background()))
		return h.now(t).State == compute.Deleted
	}, h.picture)
	if _, there := h.hv.State(h.server); there || len(h.disks) > 0 {
		t.Errorf("%s", h.picture(t))
	}
}

// TestServerIsMade: a new server gets a host, disks, a config drive with its password's hash, and runs.
func TestServerIsMade(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{new: true})
	h.create(t)
	h.work(t)
	s := h.now(t)
	if s.State != compute.Active || s.HostID != h.host.ID || s.Epoch != 1 || s.LaunchedAt.IsZero() || h.disks["vda"] != h.image || h.drive == "" || h.runs() != "system" {
		t.Fatalf("%s", h.picture(t))
	}
	h.act(t, compute.Act{Action: compute.AttachVolume, VolumeID: h.volume})
	h.work(t)
	if g, _ := h.hv.State(h.server); disksOf(g.Runs) != " vda vdb" || disksOf(&g.Defined) != " vda vdb" {
		t.Errorf("attached: %s", h.picture(t))
	}
	h.act(t, compute.Act{Action: compute.DetachVolume, VolumeID: h.volume})
	h.work(t)
	if g, _ := h.hv.State(h.server); disksOf(g.Runs) != " vda" || disksOf(&g.Defined) != " vda" {
		t.Errorf("detached: %s", h.picture(t))
	}
	h.mu.Lock()
	h.disks["vda"] = "aged"
	h.mu.Unlock()
	h.act(t, compute.Act{Action: compute.Rebuild, Rebuild: &compute.RebuildArgs{ImageID: h.image}})
	h.work(t)
	if s := h.now(t); s.State != compute.Active || h.disks["vda"] != h.image {
		t.Errorf("rebuilt: %s", h.picture(t))
	}
	if !slices.Contains(h.did, compute.Discard) {
		t.Error("the root disk was not discarded")
	}
}

// TestProgressIsTold: what a host says of a long order is on the server's timeline.
func TestProgressIsTold(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{new: true})
	h.create(t)
	h.waits(t)
	orders, err := h.store.OpenOrders(context.Background(), h.host.ID)
	if err != nil || len(orders) != 1 {
		t.Fatalf("orders %v %v", orders, err)
	}
	h.tx(t, func(tx job.Tx) error {
		if err := h.store.OrderProgress(tx, orders[0].ID, h.host.ID, "fetching the image: 7 MiB"); err != nil {
			return err
		}
		return h.store.Signal(tx, compute.Subject(h.server))
	})
	h.waits(t)
	h.work(t)
	events, err := h.store.Events(context.Background(), compute.Subject(h.server), 0, 100)
	if err != nil || !slices.ContainsFunc(events, func(e job.Event) bool { return strings.Contains(e.Text, "7 MiB") }) {
		t.Errorf("events %+v %v", events, err)
	}
}

// TestHostDiesBetweenDeedAndAnswer: what a host did before it died is done again by its next boot, and has one effect; what its
// former boot still says does not count.
func TestHostDiesBetweenDeedAndAnswer(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]bool{"lives": false, "dies": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTestHost(t, hostOptions{state: compute.Active})
			h.dies = dies
			startRescue(t, h, false)
			h.work(t)
			if s := h.now(t); s.State != compute.Rescued || s.Rescue.State != rescue.Ready || h.runs() != "rescue" {
				t.Fatalf("%s", h.picture(t))
			}
			h.act(t, compute.Act{Action: compute.Unrescue})
			h.work(t)
			g, _ := h.hv.State(h.server)
			if s := h.now(t); s.State != compute.Active || s.Rescue != nil || h.runs() != "system" || h.copies || g.Starts != 2 {
				t.Errorf("%s", h.picture(t))
			}
		})
	}
}

// TestGuestOfNobodyIsLeftAlone: a guest that has our guest's name but is none of ours stops the creation, and stays.
func TestGuestOfNobodyIsLeftAlone(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{new: true})
	h.create(t)
	s := h.now(t)
	foreign := fake.State{Power: compute.PowerOn}
	foreign.Defined.GuestName = s.GuestName
	h.hv.Put("foreign", foreign)
	h.work(t)
	if s := h.now(t); s.State != compute.Errored || s.HostID == "" || s.Fault == nil {
		t.Errorf("%s", h.picture(t))
	}
	if g, ok := h.hv.State("foreign"); !ok || g.Power != compute.PowerOn {
		t.Errorf("foreign guest: %v %+v", ok, g)
	}
}

// TestRescueOnGanetiStaysInItsDirectory: a location that leaves the directory of rescue images reaches no hypervisor.
func TestRescueOnGanetiStaysInItsDirectory(t *testing.T) {
	c := New(Config{RescueImagePath: "/srv/rescue"})
	for location, want := range map[string]string{
		"a.iso": "/srv/rescue/a.iso", "sub/b.iso": "/srv/rescue/sub/b.iso", "../etc/passwd": "", "/etc/passwd": "", "a/../../x": "", ".": "",
	} {
		spec := compute.Spec{Rescue: &compute.SpecRescue{Source: rescue.Source{Kind: rescue.ISO, LocationType: rescue.LocationFile, Location: location}}}
		d, err := c.domain(&managedServer{server: &compute.Server{}, host: &compute.Host{}}, hostOrder{args: compute.Args{Spec: &spec}})
		if d.RescueImage != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v", location, d.RescueImage, err)
		}
	}
}

// TestEveryActionHasItsOperation: what the rules of servers set going, a conductor knows.
func TestEveryActionHasItsOperation(t *testing.T) {
	t.Parallel()
	known := map[job.Kind]bool{}
	for _, d := range New(Config{}).Definitions() {
		known[d.Kind] = true
	}
	for _, r := range compute.Rules {
		if r.Job != "" && !known[r.Job] {
			t.Errorf("%s starts a job %q that nobody knows", r.Action, r.Job)
		}
	}
	for _, kind := range []job.Kind{compute.JobCreate, compute.JobReconcile} {
		if !known[kind] {
			t.Errorf("nobody knows %q", kind)
		}
	}
}

// TestDetachmentThatTookTooLongLeavesTheServerWell: only the end of the job tells, and it keeps state and volume as they were.
func TestDetachmentThatTookTooLongLeavesTheServerWell(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Active})
	h.act(t, compute.Act{Action: compute.AttachVolume, VolumeID: h.volume})
	h.work(t)
	h.act(t, compute.Act{Action: compute.DetachVolume, VolumeID: h.volume})
	h.waits(t)
	var j job.Job
	h.tx(t, func(tx job.Tx) error {
		open, err := h.store.Unended(tx, compute.Subject(h.server))
		if err != nil {
			return err
		}
		cause := problem.Unavailablef("Timeout reached")
		if err := h.store.Interrupt(tx, open[0].ID, job.Undoing, cause); err != nil {
			return err
		}
		j = open[0]
		j.SetCause(cause)
		return h.con.serverDetach().Failed(context.Background(), tx, &j)
	})
	h.work(t)
	v, err := h.store.Volumes().Get(context.Background(), nil, h.volume)
	if s := h.now(t); err != nil || s.State != compute.Active || s.Fault == nil || s.Task != compute.NoTask || v.Status != compute.VolumeInUse {
		t.Errorf("%s", h.picture(t))
	}
	if orders, err := h.store.OpenOrders(context.Background(), h.host.ID); err != nil || len(orders) > 0 {
		t.Errorf("the host may still unplug it: %v %v", orders, err)
	}
}

// TestAGuestThatCrashesAtOnceIsStillWanted: the next look at it counts the crash and starts it again; it is no stopped server.
func TestAGuestThatCrashesAtOnceIsStillWanted(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Stopped})
	h.tells = func(v compute.Verb, r *compute.Result) {
		if v == compute.SetPower {
			r.Guest = &compute.Guest{ID: h.server, Power: compute.PowerCrashed}
		}
	}
	h.act(t, compute.Act{Action: compute.Start})
	h.work(t)
	if s := h.now(t); s.Wanted != compute.PowerOn || s.Power != compute.PowerCrashed || s.Task != compute.NoTask {
		t.Errorf("%s", h.picture(t))
	}
}

// TestAFailureOfAHostHasItsWords: what a host could not do for a reason of its own, such as a QEMU that does not start, is told in the host's words.
func TestAFailureOfAHostHasItsWords(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Stopped})
	h.hv.Break("SetPower", errors.New("libvirt: QEMU ended: no space left on device"))
	h.act(t, compute.Act{Action: compute.Start})
	h.work(t)
	s := h.now(t)
	want := "host east could not switch the guest: “libvirt: QEMU ended: no space left on device”"
	if s.Fault == nil || !strings.Contains(s.Fault.Message, want) {
		t.Errorf("the fault is %+v, want one that says %q\n%s", s.Fault, want, h.picture(t))
	}
}

// TestAStartThatFailsAfterACrashIsTriedThreeTimes: then the server is in error and tells its tries.
func TestAStartThatFailsAfterACrashIsTriedThreeTimes(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Active})
	h.hv.Break("SetPower", problem.Conflictf("cannot allocate memory"))
	state, _ := h.hv.State(h.server)
	state.Power, state.Runs = compute.PowerCrashed, nil
	h.hv.Put(h.server, state)
	// The look comes a minute after the server changed, and the conductor's clock is behind, so that no try waits for its pause.
	at := func(d time.Duration) *service.Services {
		return service.New(h.store, h.store, service.Options{RescueImagePath: "/srv/rescue"}, func() time.Time { return time.Now().Add(d) })
	}
	h.con.Compute, h.con.Now = at(-time.Hour), func() time.Time { return time.Now().Add(-time.Hour) }
	must.Get(at(time.Minute).Leases.Renew(t.Context(), h.host.ID, "", compute.Renewal{BootID: "boot-1", HasGuests: true,
		Guests: []compute.Guest{{ID: h.server, Power: compute.PowerCrashed, Ours: true, Epoch: 1}}}))(t)
	h.work(t)
	s := h.now(t)
	if s.State != compute.Errored || s.Fault == nil || !strings.Contains(s.Fault.Message, "3 times in 10m0s") || !strings.Contains(s.Fault.Message, "cannot allocate memory") {
		t.Errorf("%s %+v", h.picture(t), s.Fault)
	}
}
