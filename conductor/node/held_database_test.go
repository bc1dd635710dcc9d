package node

import (
	"strings"
	"testing"
	"time"

	"salvor/compute/service"
	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/restored"
	"salvor/secret"
	"salvor/test/fixture"
	"salvor/test/must"
)

// restoredBench is a machine whose rescue waits for its ramdisk in a restored database. The lost history ended the rescue and the
// unrescue, and the machine runs its own system.
func restoredBench(t *testing.T) (*bench, *restored.Service) {
	t.Helper()
	b := waiting(t)
	must.OK(t, b.store.HoldDatabase(t.Context(), record.HeldBackup, "a test"))
	b.mu.Lock()
	b.power, b.running, b.media, b.device, b.agentUp = metal.PowerOn, "system", "", rescue.Boot{}, false
	b.networks = map[driver.Net]bool{driver.Tenant: true}
	b.mu.Unlock()
	services := service.New(b.store, b.store, service.Options{}, time.Now)
	return b, restored.New(b.store, services, time.Now)
}

// readHeld has the conductor read what it has not read yet, and proves that the machine is as it was.
func (b *bench) readHeld(t *testing.T) {
	t.Helper()
	before := b.picture(t)
	for b.con.readHeld(t.Context(), HeldReadings{Workers: 2}) {
	}
	if after := b.picture(t); after != before {
		t.Fatalf("reading changed\n%s\nto\n%s", before, after)
	}
}

// TestHeldMachinesAreRead: the readings show how machine and record differ, and change nothing.
func TestHeldMachinesAreRead(t *testing.T) {
	t.Parallel()
	b, s := restoredBench(t)
	if r, err := s.Report(t.Context()); err != nil || r.Nodes != 1 || r.Read != 0 || len(r.Differences) != 0 {
		t.Fatalf("before: %+v %v", r, err)
	}
	b.readHeld(t)
	r, err := s.Report(t.Context())
	if err != nil || r.Read != 1 || len(r.Jobs) != 1 {
		t.Fatalf("after: %+v %v", r, err)
	}
	found := map[string]string{}
	for _, d := range r.Differences {
		found[d.What] = d.Recorded + " -> " + d.Found + d.Unreadable
	}
	if found[metal.FactBoot] != "once cdrom -> no override" || found[metal.FactNet] != "rescuing -> tenant" || found[metal.FactPower] != "" {
		t.Errorf("differences: %q", found)
	}
	j := r.Jobs[0]
	if j.Kind != "rescue" || j.User == "" || j.Action != "await the ramdisk" || !strings.Contains(j.Effects[restored.AsItIs], "begins again") || !strings.Contains(j.Effects[restored.EndOperations], `the node is "rescue failed", in maintenance`) {
		t.Errorf("job: %+v", j)
	}
	b.refuse(problem.Unavailablef("no route to the BMC"))
	must.OK(t, s.ReadAgain(t.Context()))
	b.readHeld(t)
	r, err = s.Report(t.Context())
	if err != nil || len(r.Differences) != 2 || !strings.Contains(r.Differences[0].Unreadable, "no route") || r.Differences[1].What != metal.FactNet {
		t.Errorf("of a dead BMC: %+v %v", r.Differences, err)
	}
}

// TestReleaseNeedsADecision: a release without a decision is refused, and one before all machines were read.
func TestReleaseNeedsADecision(t *testing.T) {
	t.Parallel()
	b, s := restoredBench(t)
	before := b.stored(t)
	refused := func(w restored.Wanted, kind problem.Kind, want string) {
		t.Helper()
		_, err := s.Release(t.Context(), w, record.Asker{User: "op"})
		if !problem.Is(err, kind) || !strings.Contains(err.Error(), want) {
			t.Errorf("release %+v: %v; want %q", w, err, want)
		}
	}
	refused(restored.Wanted{}, problem.Invalid, "want as-it-is or end-operations")
	refused(restored.Wanted{Decision: "drop", Unread: true}, problem.Invalid, "want as-it-is or end-operations")
	refused(restored.Wanted{Decision: restored.AsItIs}, problem.Conflict, "1 of 1 machines were not read yet")
	if i, err := b.store.Incarnation(t.Context()); err != nil || i.Held == nil || b.stored(t).Version != before.Version {
		t.Errorf("a release that was refused changed something: %+v %v", i, err)
	}
	b.readHeld(t)
	lines := must.Get(s.Release(t.Context(), restored.Wanted{Decision: restored.EndOperations}, record.Asker{User: "op"}))(t)
	if len(lines) < 2 || !strings.Contains(lines[0], "rescue") || !strings.Contains(lines[0], "ends; the node is") {
		t.Errorf("the release says %q", lines)
	}
	refused(restored.Wanted{Decision: restored.EndOperations}, problem.Conflict, "The database is not held: there is nothing to decide.")
}

// TestRestoredJobs: each decision brings the machine and its node to the right end, and no boot and no token of before counts. A job that ends does
// not touch its machine.
func TestRestoredJobs(t *testing.T) {
	t.Parallel()
	for decision, want := range map[string]struct {
		state   metal.State
		running string
	}{
		restored.AsItIs: {metal.Rescue, "ramdisk"}, restored.EndOperations: {metal.RescueFailed, "system"},
	} {
		t.Run(decision, func(t *testing.T) {
			t.Parallel()
			b, s := restoredBench(t)
			b.readHeld(t)
			former := b.stored(t)
			was := must.Get(b.store.Incarnation(t.Context()))(t)
			must.Get(s.Release(t.Context(), restored.Wanted{Decision: decision}, record.Asker{User: "op"}))(t)
			if b.stored(t).BootNumber < former.BootNumber+record.NumberStep {
				t.Errorf("boot number %d of before %d", b.stored(t).BootNumber, former.BootNumber)
			}
			now, err := b.store.Incarnation(t.Context())
			if err != nil || now.Held != nil || now.ID == was.ID {
				t.Errorf("incarnation %+v after %+v: %v", now, was, err)
			}
			if known, err := b.store.FormerIncarnations(t.Context()); err != nil || known[was.ID] < was.Counter {
				t.Errorf("former incarnations %v: %v", known, err)
			}
			b.ended(t)
			n := b.until(t, want.state)
			beat := metal.Heartbeat{URL: "https://10.0.0.9:9999", Version: "salvor-agent/1", Token: former.AgentToken(b.key)}
			if err := b.nodes.Heartbeat(t.Context(), b.node, beat); err == nil {
				t.Error("a token of before the release is taken")
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.running != want.running || n.Reservation != "" {
				t.Errorf("the machine runs %q, the node is locked by %q", b.running, n.Reservation)
			}
			if decision == restored.AsItIs {
				return
			}
			if why := "ended when the restored database was released"; !n.Maintenance || !strings.Contains(n.MaintenanceReason, why) || !strings.Contains(n.LastError, why) || b.systemOn != 0 {
				t.Errorf("maintenance %t %q, last error %q, %d starts of its system; want maintenance, %q in both texts, and no start", n.Maintenance, n.MaintenanceReason, n.LastError, b.systemOn, why)
			}
		})
	}
}

// TestRestartAtARelease: the job of a node whose ramdisk was to boot begins again, because that boot is void. A rescue that has handed its password over
// cannot begin again without the password, and the writing of a repair knows which disks are half-written: each goes on where it stood.
func TestRestartAtARelease(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind   job.Kind
		secret secret.Value
		want   string
	}{
		"rescue with its password":           {"rescue", secret.New("let me in"), "begins again"},
		"rescue that handed its password on": {"rescue", secret.Value{}, `goes on at "finalize"`},
		"clean":                              {"clean", secret.Value{}, "begins again"},
		"writing of a repair":                {metal.JobWriteRepair, secret.Value{}, `goes on at "finalize"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, metal.Rescuing)
			change(t, b, func(n *metal.Node) { n.Plan = &metal.BootPlan{Method: metal.BootMedia, Path: "p"} })
			must.OK(t, b.store.Do(t.Context(), func(tx job.Tx) error {
				return b.store.Insert(tx, &job.Job{Kind: c.kind, Class: job.Operation, Subject: job.Node(b.node), Action: "finalize", Secret: c.secret})
			}))
			must.OK(t, b.store.HoldDatabase(t.Context(), record.HeldBackup, "a test"))
			s := restored.New(b.store, service.New(b.store, b.store, service.Options{}, time.Now), time.Now)
			r := must.Get(s.Report(t.Context()))(t)
			if len(r.Jobs) != 1 || !strings.HasPrefix(r.Jobs[0].Effects[restored.AsItIs], c.want) {
				t.Fatalf("the list says %+v; want one job that %s", r.Jobs, c.want)
			}
			must.Get(s.Release(t.Context(), restored.Wanted{Decision: restored.AsItIs, Unread: true}, record.Asker{User: "op"}))(t)
			want := "finalize"
			if c.want == "begins again" {
				want = ""
			}
			if open := must.Get(b.store.Unended(nil, job.Node(b.node)))(t); len(open) != 1 || open[0].Action != want {
				t.Errorf("the open jobs are %+v; want one at action %q", open, want)
			}
		})
	}
}

// TestRestoredPowerNotReadLately: if a machine was not read, or not lately, the release makes its power unknown. When the BMC
// answers again, power sync records what it reads and switches nothing.
func TestRestoredPowerNotReadLately(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		silent bool
		age    time.Duration
		want   metal.Power
	}{
		"silent BMC": {silent: true}, "old reading": {age: time.Hour}, "future": {age: -time.Hour}, "young reading": {age: time.Minute, want: metal.PowerOff},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, metal.Active)
			s := restored.New(b.store, service.New(b.store, b.store, service.Options{}, time.Now), func() time.Time { return time.Now().Add(c.age) })
			err := b.store.HoldDatabase(t.Context(), record.HeldBackup, "a test")
			b.mu.Lock()
			b.power = metal.PowerOff
			b.mu.Unlock()
			if c.silent {
				b.refuse(problem.Unavailablef("no route to the BMC"))
			}
			b.readHeld(t)
			var lines []string
			if err == nil {
				lines, err = s.Release(t.Context(), restored.Wanted{Decision: restored.AsItIs}, record.Asker{})
			}
			if n := b.stored(t); err != nil || n.PowerState != c.want {
				t.Fatalf("recorded %q, want %q; %v", n.PowerState, c.want, err)
			}
			if told := strings.Contains(strings.Join(lines, "\n"), "unknown"); told != (c.want == "") {
				t.Errorf("the release says %q", lines)
			}
			must.Get(b.store.Incarnation(t.Context()))(t)
			b.refuse(nil)
			for range 3 {
				b.con.syncOnce(t.Context(), everyNode)
			}
			if jobs := b.open(t); len(jobs) > 0 || b.stored(t).PowerState != metal.PowerOff {
				t.Errorf("power is recorded as %q, jobs: %+v", b.stored(t).PowerState, jobs)
			}
		})
	}
}

// ended waits until no job of the node is open. The ramdisk, where one runs, heartbeats meanwhile.
func (b *bench) ended(t *testing.T) {
	t.Helper()
	fixture.Poll(t, "no job is open", func() bool { b.poke(); return len(must.Get(b.store.OpenJobs(t.Context(), nil))(t)) == 0 }, b.picture)
}

// TestRestoredPower: either decision records the power that was found, and has nothing switched.
func TestRestoredPower(t *testing.T) {
	t.Parallel()
	for _, decision := range []string{restored.AsItIs, restored.EndOperations} {
		t.Run(decision, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, metal.Active)
			s := restored.New(b.store, service.New(b.store, b.store, service.Options{}, time.Now), time.Now)
			must.OK(t, b.store.HoldDatabase(t.Context(), record.HeldBackup, "a test"))
			b.mu.Lock()
			b.power = metal.PowerOff
			b.mu.Unlock()
			b.readHeld(t)
			must.Get(s.Release(t.Context(), restored.Wanted{Decision: decision}, record.Asker{}))(t)
			if n := b.stored(t); n.PowerState != metal.PowerOff || n.Maintenance {
				t.Errorf("recorded %q, in maintenance: %t; want %q, and no maintenance", n.PowerState, n.Maintenance, metal.PowerOff)
			}
			if jobs, err := b.store.Unended(nil, job.Node(b.node)); err != nil || len(jobs) != 0 {
				t.Errorf("%+v %v", jobs, err)
			}
		})
	}
}
