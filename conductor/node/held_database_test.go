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
	return b, restored.New(b.store, b.nodes, services, time.Now)
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
	if j.Kind != "rescue" || j.User == "" || j.Action != "await the ramdisk" || j.Choice != "" || !strings.Contains(j.Effects[record.ContinueJob], "begins again") || j.Effects[record.DropJob] == "" {
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

// TestReleaseNeedsEachChoice: neither an open job without a choice nor an unread machine is passed over, and a dry run changes nothing.
func TestReleaseNeedsEachChoice(t *testing.T) {
	t.Parallel()
	b, s := restoredBench(t)
	release := func(w restored.Wanted, want string) {
		t.Helper()
		_, err := s.Release(t.Context(), w, record.Asker{User: "op"})
		if !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), want) {
			t.Errorf("release: %v; want %q", err, want)
		}
	}
	release(restored.Wanted{}, "1 open jobs have no choice")
	release(restored.Wanted{Rest: record.DropJob}, "1 of 1 machines were not read")
	b.readHeld(t)
	for _, which := range []string{"0", "nothing"} {
		if err := s.Choose(t.Context(), record.ChoiceOfJob, record.EndJob, []string{which}, record.Asker{}); !problem.Is(err, problem.NotFound) {
			t.Errorf("job %s: %v", which, err)
		}
	}
	before := b.stored(t)
	lines, err := s.Release(t.Context(), restored.Wanted{Rest: record.DropJob, DryRun: true}, record.Asker{})
	if err != nil || len(lines) < 2 || !strings.Contains(lines[0], "is forgotten") {
		t.Errorf("dry run: %q %v", lines, err)
	}
	if i, err := b.store.Incarnation(t.Context()); err != nil || i.Held == nil || b.stored(t).Version != before.Version {
		t.Errorf("the dry run changed something: %+v %v", i, err)
	}
	must.OK(t, s.Choose(t.Context(), record.ChoiceOfJob, record.DropJob, []string{"all"}, record.Asker{}))
	must.Get(s.Release(t.Context(), restored.Wanted{}, record.Asker{}))(t)
	release(restored.Wanted{}, "not held")
}

// TestRestoredJobs: each choice brings the machine and its node to the right end, and no boot and no token of before counts.
func TestRestoredJobs(t *testing.T) {
	t.Parallel()
	for choice, want := range map[string]struct {
		state   metal.State
		running string
	}{
		record.ContinueJob: {metal.Rescue, "ramdisk"}, record.EndJob: {metal.RescueFailed, ""}, record.DropJob: {metal.Active, "system"},
	} {
		t.Run(choice, func(t *testing.T) {
			t.Parallel()
			b, s := restoredBench(t)
			b.readHeld(t)
			former := b.stored(t)
			was := must.Get(b.store.Incarnation(t.Context()))(t)
			r, err := s.Report(t.Context())
			if err == nil {
				err = s.Choose(t.Context(), record.ChoiceOfJob, choice, []string{r.Jobs[0].ID}, record.Asker{User: "op"})
			}
			if err == nil {
				_, err = s.Release(t.Context(), restored.Wanted{}, record.Asker{User: "op"})
			}
			if err != nil {
				t.Fatal(err)
			}
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
			if drop := choice == record.DropJob; drop != (n.Maintenance && strings.Contains(n.MaintenanceReason, "dropped")) || drop && b.systemOn != 0 {
				t.Errorf("maintenance %t %q, %d starts of its system", n.Maintenance, n.MaintenanceReason, b.systemOn)
			}
		})
	}
}

// TestRestoredPowerNotReadLately: if a machine was not read, or not lately, the release makes its power unknown. When the BMC
// answers again, power sync records what it reads and switches nothing.
func TestRestoredPowerNotReadLately(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		enforce, silent bool
		age             time.Duration
		want            metal.Power
	}{
		"silent BMC": {silent: true}, "old reading": {age: time.Hour}, "future": {age: -time.Hour}, "young reading": {age: time.Minute, want: metal.PowerOff},
		"enforced": {enforce: true, age: time.Hour, want: metal.PowerOn}, "enforced, silent": {enforce: true, silent: true, want: metal.PowerOn},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, metal.Active)
			s := restored.New(b.store, b.nodes, service.New(b.store, b.store, service.Options{}, time.Now), func() time.Time { return time.Now().Add(c.age) })
			err := b.store.HoldDatabase(t.Context(), record.HeldBackup, "a test")
			b.mu.Lock()
			b.power = metal.PowerOff
			b.mu.Unlock()
			if c.silent {
				b.refuse(problem.Unavailablef("no route to the BMC"))
			}
			b.readHeld(t)
			if c.enforce && err == nil {
				err = s.Choose(t.Context(), record.ChoiceOfNode, record.EnforcePower, []string{"all"}, record.Asker{})
			}
			var lines []string
			if err == nil {
				lines, err = s.Release(t.Context(), restored.Wanted{}, record.Asker{})
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
			if jobs := b.open(t); (len(jobs) > 0) != c.enforce || !c.enforce && b.stored(t).PowerState != metal.PowerOff {
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

// TestRestoredPower: the power that was found becomes the recorded one, unless the operator wants the record enforced.
func TestRestoredPower(t *testing.T) {
	t.Parallel()
	for choice, want := range map[string]metal.Power{"": metal.PowerOff, record.TakePower: metal.PowerOff, record.EnforcePower: metal.PowerOn} {
		t.Run("choice "+choice, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, metal.Active)
			s := restored.New(b.store, b.nodes, service.New(b.store, b.store, service.Options{}, time.Now), time.Now)
			must.OK(t, b.store.HoldDatabase(t.Context(), record.HeldBackup, "a test"))
			b.mu.Lock()
			b.power = metal.PowerOff
			b.mu.Unlock()
			b.readHeld(t)
			var err error
			if choice != "" {
				err = s.Choose(t.Context(), record.ChoiceOfNode, choice, []string{"all"}, record.Asker{})
			}
			if err == nil {
				_, err = s.Release(t.Context(), restored.Wanted{}, record.Asker{})
			}
			if n := b.stored(t); err != nil || n.PowerState != want || n.Maintenance {
				t.Errorf("recorded %q, want %q; %v", n.PowerState, want, err)
			}
			if jobs, err := b.store.Unended(nil, job.Node(b.node)); err != nil || len(jobs) != 0 {
				t.Errorf("%+v %v", jobs, err)
			}
		})
	}
}
