package node

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"salvor/conductor/conductortest"
	"salvor/diagnose"
	"salvor/driver"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/repair"
	"salvor/secret"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/wire/agent"
)

func newRepaired(t *testing.T, power metal.Power) *bench {
	t.Helper()
	b := newDiagnosed(t, power)
	b.mender = newFakeMender()
	b.con.ProveSSH = func(_ context.Context, _ string, keys []string) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.running != "system" || !slices.Contains(keys, menderHostKey) {
			return problem.Unavailablef("no sshd")
		}
		return nil
	}
	hasAddress(t, b)
	return b
}

func (b *bench) repairs() metal.NodeRepairs { return metal.NewNodeRepairs(b.nodes) }

func (b *bench) newestRepair(t *testing.T) metal.Repair {
	t.Helper()
	all := must.Get(b.repairs().List(context.Background(), nil, b.node))(t)
	if len(all) == 0 {
		t.Fatal("no repair is stored")
	}
	return all[0]
}

// repair runs a repair to its end.
func (b *bench) repair(t *testing.T, args metal.RepairArgs) metal.Repair {
	t.Helper()
	must.Get(b.repairs().Begin(context.Background(), b.node, args, record.Asker{User: "ann"}))(t)
	b.ends(t)
	return b.newestRepair(t)
}

// withDigest plans a repair, and gives the request that carries the plan out.
func (b *bench) withDigest(t *testing.T) metal.RepairArgs {
	t.Helper()
	planned := b.repair(t, metal.RepairArgs{Consents: filesConsent})
	if planned.State != metal.RepairPlanned || planned.Digest == "" {
		t.Fatalf("repair %+v", planned)
	}
	return metal.RepairArgs{Consents: filesConsent, Digest: planned.Digest}
}

var filesConsent = []diagnose.Consent{diagnose.ConsentFiles}

// awaits waits until the newest repair is in a state.
func (b *bench) awaits(t *testing.T, want metal.RepairState) metal.Repair {
	t.Helper()
	fixture.PollActing(t, "the repair is "+string(want), b.poke, func() bool { return b.newestRepair(t).State == want }, b.picture)
	return b.newestRepair(t)
}

// A plan changes nothing, and the machine is put back as it was found.
func TestRepairPlan(t *testing.T) {
	b := newRepaired(t, metal.PowerOff)
	b.mender.stage = diagnose.Target
	b.run(t)
	r := b.repair(t, metal.RepairArgs{Consents: filesConsent})
	if want := (repair.Loss{Finding: "fstab-device-missing", Text: "A database may start without its disk.?[2J"}); !slices.Equal(r.Losses, []repair.Loss{want}) {
		t.Errorf("beside the digest stand the losses %+v, want %+v", r.Losses, want)
	}
	if r.State != metal.RepairPlanned || r.Problem != "" || !slices.Equal(r.Needs, filesConsent) || r.FinishedAt.IsZero() || r.RequestedBy != "ann" {
		t.Errorf("repair %+v", r)
	}
	if !slices.Equal(b.mender.disk, originalDisk) || b.mender.systemBoots != 0 || b.power != metal.PowerOff || b.media != "" {
		t.Errorf("not as it was found: %s", b.picture(t))
	}
	if n := b.noSecretLeft(t); n.ProvisionState != metal.Active || n.Rescue != nil {
		t.Errorf("not as it was found: %s", b.picture(t))
	}
	_, plan, undo, err := b.repairs().Find(context.Background(), b.node, "newest")
	text := string(must.Get(json.Marshal(plan))(t))
	if err != nil || undo != metal.UndoNone || strings.Contains(text, "hunter2") || strings.Contains(text, `\u001b`) || !strings.Contains(text, "+/dev/sda1 / ext4") {
		t.Errorf("undo %s, plan %s, %v", undo, text, err)
	}
}

// A machine that restarts while its repair is planned plans it again, once: the plan itself may be what restarts it. Keys are not kept for that.
func TestRepairIsPlannedAgain(t *testing.T) {
	for _, c := range []struct {
		restarts int
		keys     []diagnose.LUKSKey
		want     metal.RepairState
	}{{1, nil, metal.RepairPlanned}, {2, nil, metal.RepairFailed}, {1, benchLUKSKeys(), metal.RepairFailed}} {
		b := newRepaired(t, metal.PowerOff)
		b.mender.losesPlans = c.restarts
		b.run(t)
		r := b.repair(t, metal.RepairArgs{Consents: filesConsent, LUKSKeys: c.keys})
		if r.State != c.want || c.want == metal.RepairFailed && !strings.Contains(r.Problem, "ask for the repair again") || !slices.Equal(b.mender.disk, originalDisk) {
			t.Errorf("%d restarts, %d keys: repair %+v", c.restarts, len(c.keys), r)
		}
		if n := b.noSecretLeft(t); n.ProvisionState != metal.Active || b.power != metal.PowerOff {
			t.Errorf("not as it was found: %s", b.picture(t))
		}
	}
}

// Who declines a plan has the machine back at once, as it was found.
func TestRepairDeclined(t *testing.T) {
	b := newRepaired(t, metal.PowerOff)
	b.run(t)
	must.Get(b.repairs().Begin(context.Background(), b.node, metal.RepairArgs{Consents: filesConsent, WaitForConsent: true}, record.Asker{User: "ann"}))(t)
	id := b.awaits(t, metal.RepairAwaitingConsent).ID
	must.Get(b.repairs().Decline(context.Background(), b.node, id, record.Asker{User: "ann"}))(t)
	b.ends(t)
	if r := b.newestRepair(t); r.State != metal.RepairPlanned || r.Problem != "the plan was declined" {
		t.Errorf("repair %+v", r)
	}
	if n := b.noSecretLeft(t); n.ProvisionState != metal.Active || b.power != metal.PowerOff || !slices.Equal(b.mender.disk, originalDisk) {
		t.Errorf("not as it was found: %s", b.picture(t))
	}
}

// LUKS keys reach the agent, each for its container, and lie in no row afterwards.
func TestRepairHandsOverLUKSKeys(t *testing.T) {
	b := newRepaired(t, metal.PowerOff)
	b.run(t)
	begun := must.Get(b.repairs().Begin(context.Background(), b.node, metal.RepairArgs{Consents: filesConsent, WaitForConsent: true, LUKSKeys: benchLUKSKeys()}, record.Asker{User: "ann"}))(t)
	if len(begun.Args.LUKSKeys) != 0 || b.unended(t)[0].Secret.Empty() {
		t.Error("the keys are in the answer, or in no row")
	}
	b.awaits(t, metal.RepairAwaitingConsent)
	b.mu.Lock()
	given := b.mender.given
	b.mu.Unlock()
	byUUID := given.LUKSKeysByUUID["0dd1e5c4-0000-4000-8000-00000000000a"]
	if len(given.LUKSKeys) != 1 || string(given.LUKSKeys[0]) != "open sesame" || len(byUUID) != 1 || string(byUUID[0]) != "barley" {
		t.Errorf("the agent was given %d keys for each container, %d for one", len(given.LUKSKeys), len(byUUID))
	}
	if i := slices.IndexFunc(b.unended(t), func(j job.Job) bool { return !j.Secret.Empty() }); i >= 0 {
		t.Errorf("the row of the job %q still has keys", b.unended(t)[i].Kind)
	}
}

// A repair that cannot go on forgets the keys while it puts the machine back.
func TestFailureForgetsLUKSKeys(t *testing.T) {
	r := &job.Run{Job: job.Job{Secret: secret.New("open sesame")}}
	if noteFailure(r, problem.Conflictf("the rescue failed")); !r.Secret.Empty() || r.Memo[failureNote] == "" {
		t.Errorf("memo %v", r.Memo)
	}
}

// A repair with the plan's digest is written, its machine proves itself, and is off again if it was found off.
func TestRepairWithDigest(t *testing.T) {
	for _, power := range []metal.Power{metal.PowerOn, metal.PowerOff} {
		t.Run(string(power), func(t *testing.T) {
			b := newRepaired(t, power)
			b.run(t)
			planned := b.repair(t, metal.RepairArgs{Consents: filesConsent, Reboot: true})
			r := b.repair(t, metal.RepairArgs{Consents: filesConsent, Reboot: true, Digest: planned.Digest})
			if r.State != metal.RepairProven || !strings.Contains(r.ProvenBy, "192.0.2.7") || r.Consent == nil || r.Consent.By != "ann" || r.UndoBytes == 0 || r.UndoPages != 2 {
				t.Errorf("repair %+v", r)
			}
			n := b.noSecretLeft(t)
			if !slices.Equal(b.mender.disk, repairedDisk) || b.mender.halfBooted || b.power != power || n.ProvisionState != metal.Active || n.Plan != nil || b.media != "" {
				t.Error(b.picture(t))
			}
			if r.Undo(n) != metal.UndoFiles {
				t.Errorf("undo %s", r.Undo(n))
			}
			if b.device.Device != "disk" || !b.device.Persistent {
				t.Errorf("boot device %+v", b.device)
			}
			events := must.Get(b.store.Latest(context.Background(), job.Node(b.node), 100))(t)
			if !slices.ContainsFunc(events, func(e job.Event) bool { return e.User == "ann" && strings.Contains(e.Text, planned.Digest) }) {
				t.Error("the timeline does not tell who consented to which digest")
			}
		})
	}
}

// A digest of another plan writes nothing.
func TestRepairWithStaleDigest(t *testing.T) {
	b := newRepaired(t, metal.PowerOff)
	b.run(t)
	r := b.repair(t, metal.RepairArgs{Consents: filesConsent, Digest: "0123"})
	if r.State != metal.RepairFailed || !strings.Contains(r.Problem, "the plan has changed since") || !slices.Equal(b.mender.disk, originalDisk) {
		t.Errorf("repair %+v", r)
	}
	if n := b.stored(t); n.ProvisionState != metal.Active || b.power != metal.PowerOff {
		t.Errorf("not put back: %s", b.picture(t))
	}
}

// The machine waits in rescue for a consent, which has to be to the plan that is there.
func TestRepairAwaitsConsent(t *testing.T) {
	b := newRepaired(t, metal.PowerOff)
	b.run(t)
	ctx := context.Background()
	must.Get(b.repairs().Begin(ctx, b.node, metal.RepairArgs{Consents: filesConsent, WaitForConsent: true}, record.Asker{User: "ann"}))(t)
	r := b.awaits(t, metal.RepairAwaitingConsent)
	for _, c := range []struct {
		consent metal.RepairConsent
		kind    problem.Kind
	}{
		{metal.RepairConsent{Digest: "0123", Consents: filesConsent}, problem.Conflict},
		{metal.RepairConsent{Digest: r.Digest}, problem.Invalid},
		{metal.RepairConsent{Digest: r.Digest, Consents: []diagnose.Consent{diagnose.ConsentData}}, problem.Invalid},
	} {
		if _, err := b.repairs().Consent(ctx, b.node, r.ID, c.consent, record.Asker{User: "bob"}); !problem.Is(err, c.kind) {
			t.Errorf("consent %+v: %v", c.consent, err)
		}
	}
	must.Get(b.repairs().Consent(ctx, b.node, r.ID, metal.RepairConsent{Digest: r.Digest, Consents: filesConsent}, record.Asker{User: "bob"}))(t)
	b.ends(t)
	if r := b.newestRepair(t); r.State != metal.RepairProven || r.Consent.By != "bob" || !slices.Equal(b.mender.disk, repairedDisk) {
		t.Errorf("repair %+v", r)
	}
}

// Nothing is written without a consent, without room for the undo, to a machine that cannot be armed, and by an agent that refuses.
func TestRepairWritesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		with func(*bench)
		want string
	}{
		"no room":          {func(b *bench) { b.con.UndoBytes = 100 }, "undo_max_mib"},
		"not armed":        {func(b *bench) { b.forgetful = true }, "does not keep"},
		"failing disk":     {func(b *bench) { b.mender.fails = agent.PlanRepair }, "the disk /dev/sda is failing"},
		"no before-images": {func(b *bench) { b.mender.fails = agent.BeforeImages }, "the agent failed"},
		"no files":         {func(b *bench) { b.mender.fails = agent.FileContents }, "the agent failed"},
		"data":             {func(b *bench) { b.mender.consents = []diagnose.Consent{diagnose.ConsentData} }, "nobody can give"},
		"more":             {func(b *bench) { b.mender.consents = []diagnose.Consent{diagnose.ConsentBoot} }, "not offered"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRepaired(t, metal.PowerOff)
			b.run(t)
			args := b.withDigest(t)
			c.with(b)
			r := b.repair(t, args)
			if r.State != metal.RepairFailed || !strings.Contains(r.Problem, c.want) {
				t.Errorf("repair %+v", r)
			}
			if n := b.stored(t); !slices.Equal(b.mender.disk, originalDisk) || n.ProvisionState != metal.Active || n.Plan != nil || b.power != metal.PowerOff || b.media != "" {
				t.Error(b.picture(t))
			}
		})
	}
}

// What is half-written is taken back: the machine restarts in the middle into our ramdisk, and the before-images are put back.
func TestRepairIsRolledBack(t *testing.T) {
	for name, with := range map[string]func(*bench){
		"power cut":    func(b *bench) { b.mender.loses = 1 },
		"failed write": func(b *bench) { b.mender.fails = agent.WriteRepair },
	} {
		t.Run(name, func(t *testing.T) {
			b := newRepaired(t, metal.PowerOff)
			b.run(t)
			args := b.withDigest(t)
			with(b)
			r := b.repair(t, args)
			if r.State != metal.RepairRolledBack || !strings.Contains(r.Problem, "rolled back, and nothing is changed") {
				t.Errorf("repair %+v", r)
			}
			if n := b.stored(t); !slices.Equal(b.mender.disk, originalDisk) || b.mender.halfBooted || n.ProvisionState != metal.Active || n.Plan != nil || b.media != "" {
				t.Error(b.picture(t))
			}
		})
	}
}

// A half-written machine whose agent cannot put it back stays in rescue and armed, its own system does not boot, and an undo mends it.
func TestRepairInterrupted(t *testing.T) {
	b := newRepaired(t, metal.PowerOff)
	b.run(t)
	args := b.withDigest(t)
	b.mender.loses, b.mender.foreign = 1, true
	r := b.repair(t, args)
	n := b.stored(t)
	if r.State != metal.RepairInterrupted || !metal.IsRepairFault(n) || n.ProvisionState != metal.Rescue || b.media == "" || !b.device.Persistent || r.Undo(n) != metal.UndoExact {
		t.Fatalf("repair %+v, undo %s: %s", r, r.Undo(n), b.picture(t))
	}
	ctx := context.Background()
	if err := b.provision(metal.Unrescue, metal.ProvisionArgs{}); !problem.Is(err, problem.Conflict) {
		t.Errorf("unrescue: %v", err)
	}
	if _, err := b.repairs().Begin(ctx, b.node, args, record.Asker{}); !problem.Is(err, problem.Conflict) {
		t.Errorf("another repair: %v", err)
	}
	// Whoever ends the maintenance does not make the disks whole.
	must.OK(t, b.nodes.SetMaintenance(ctx, b.node, false, "", record.Asker{}))
	if err := b.provision(metal.Unrescue, metal.ProvisionArgs{}); !problem.Is(err, problem.Conflict) {
		t.Errorf("unrescue after the maintenance: %v", err)
	}
	// An undo that is interrupted too leaves the first repair's images to be put back.
	undo := func(id string) {
		must.Get(b.repairs().BeginUndo(ctx, b.node, id, metal.RepairArgs{Digest: r.Digest, Consents: filesConsent}, record.Asker{User: "ann"}))(t)
		b.ends(t)
	}
	b.mender.foreign, b.mender.badDisk = false, true
	undo("newest")
	if u := b.newestRepair(t); u.State != metal.RepairInterrupted || u.Args.Undoes != r.ID || b.stored(t).HalfWritten() != r.ID {
		t.Errorf("undo %+v: %s", u, b.picture(t))
	}
	b.mender.badDisk = false
	undo("newest")
	all := must.Get(b.repairs().List(ctx, nil, b.node))(t)
	n = b.stored(t)
	if !slices.Equal(b.mender.disk, originalDisk) || len(all) != 3 || all[0].State != metal.RepairWritten || all[1].State != metal.RepairFailed || all[2].State != metal.RepairUndone ||
		n.Maintenance || n.HalfWritten() != "" || b.mender.halfBooted {
		t.Errorf("repairs %+v: %s", all, b.picture(t))
	}
	if _, err := b.repairs().BeginUndo(ctx, b.node, "newest", metal.RepairArgs{}, record.Asker{}); !problem.Is(err, problem.Conflict) {
		t.Errorf("an exact undo is taken back: %v", err)
	}
	b.start(t, metal.Unrescue)
	b.ends(t)
	if n := b.stored(t); n.Plan != nil || n.ProvisionState != metal.Active || b.media != "" || b.device.Device != "disk" {
		t.Errorf("not put back: %s", b.picture(t))
	}
}

// A machine whose agent is silent amid the writing is restarted into the armed boot, and then put back.
func TestRepairRestartsASilentMachine(t *testing.T) {
	b := newRepaired(t, metal.PowerOff)
	var ahead atomic.Int64
	b.con.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	b.run(t)
	args := b.withDigest(t)
	must.Get(b.repairs().Begin(context.Background(), b.node, args, record.Asker{User: "ann"}))(t)
	fixture.PollActing(t, "a chunk is written", b.poke, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.mender.written == 1 }, b.picture)
	b.mu.Lock()
	b.mender.deaf = true
	b.mu.Unlock()
	fixture.PollActing(t, "all jobs have ended", func() { ahead.Add(int64(time.Minute)); b.poke() }, func() bool { return len(b.open(t)) == 0 }, b.picture)
	if r := b.newestRepair(t); r.State != metal.RepairRolledBack || !slices.Equal(b.mender.disk, originalDisk) || b.mender.halfBooted {
		t.Errorf("repair %+v: %s", r, b.picture(t))
	}
}

// An undo is exact as long as the machine is in the rescue of the repair, and by files after its own system has booted.
func TestRepairUndo(t *testing.T) {
	for _, keep := range []bool{true, false} {
		t.Run(string(map[bool]metal.UndoMethod{true: metal.UndoExact, false: metal.UndoFiles}[keep]), func(t *testing.T) {
			b := newRepaired(t, metal.PowerOff)
			b.run(t)
			args := b.withDigest(t)
			args.KeepRescue = keep
			r, ctx := b.repair(t, args), context.Background()
			must.Get(b.repairs().BeginUndo(ctx, b.node, r.ID, metal.RepairArgs{WaitForConsent: true, Consents: filesConsent}, record.Asker{User: "ann"}))(t)
			undo := b.awaits(t, metal.RepairAwaitingConsent)
			must.Get(b.repairs().Consent(ctx, b.node, undo.ID, metal.RepairConsent{Digest: undo.Digest, Consents: filesConsent}, record.Asker{User: "ann"}))(t)
			b.ends(t)
			all := must.Get(b.repairs().List(ctx, nil, b.node))(t)
			if !slices.Equal(b.mender.disk, originalDisk) || all[0].State != metal.RepairWritten || all[0].FinishedAt.IsZero() || all[1].State != metal.RepairUndone {
				t.Errorf("repairs %+v: %s", all, b.picture(t))
			}
			if !keep && b.power != metal.PowerOff {
				t.Errorf("a machine that was found off is on after the undo: %s", b.picture(t))
			}
			if n := b.stored(t); n.BootsRamdisk() != keep || (n.ProvisionState == metal.Rescue) != keep {
				t.Error(b.picture(t))
			}
		})
	}
}

// A machine that does not prove itself is unproven, and its owner may say that it works.
func TestRepairUnproven(t *testing.T) {
	b := newRepaired(t, metal.PowerOff)
	b.con.ProofTime = time.Millisecond
	b.con.ProveSSH = nil
	b.run(t)
	r := b.repair(t, b.withDigest(t))
	if r.State != metal.RepairUnproven || !strings.Contains(r.Problem, "stays on so that someone can look") || b.power != metal.PowerOn {
		t.Errorf("repair %+v, power %s", r, b.power)
	}
	ctx := context.Background()
	if r := must.Get(b.repairs().Confirm(ctx, b.node, r.ID, record.Asker{User: "ann"}))(t); r.State != metal.RepairProven || r.ProvenBy != "confirmed by ann" {
		t.Errorf("repair %+v", r)
	}
	if _, err := b.repairs().Confirm(ctx, b.node, r.ID, record.Asker{}); !problem.Is(err, problem.Conflict) {
		t.Errorf("confirmed twice: %v", err)
	}
}

// A machine of which no address is known does not wait for a proof.
func TestRepairWithoutAnAddress(t *testing.T) {
	b := newRepaired(t, metal.PowerOff)
	change(t, b, func(n *metal.Node) { n.NetworkData = nil })
	b.run(t)
	r := b.repair(t, b.withDigest(t))
	if r.State != metal.RepairUnproven || !strings.Contains(r.Problem, "knows no address") || b.power != metal.PowerOn {
		t.Errorf("repair %+v, power %s", r, b.power)
	}
}

// A rescue that is refused before it touches the machine leaves it as it was, and the repair says why.
func TestRepairThatTouchesNothing(t *testing.T) {
	b := newRepaired(t, metal.PowerOff)
	b.run(t)
	b.invalid = problem.Invalidf("no kernel")
	r := b.repair(t, metal.RepairArgs{Consents: filesConsent})
	n := b.stored(t)
	if r.State != metal.RepairFailed || !strings.Contains(r.Problem, "kernel") || n.ProvisionState != metal.Active || n.Rescue != nil || b.power != metal.PowerOff || b.mender.systemBoots != 0 {
		t.Errorf("repair %+v: %s", r, b.picture(t))
	}
}

// While a repair waits, a machine that restarts boots the ramdisk again, because it is on the rescuing network.
func TestRepairStaysArmed(t *testing.T) {
	b := newRepaired(t, metal.PowerOff)
	b.run(t)
	must.Get(b.repairs().Begin(context.Background(), b.node, metal.RepairArgs{Consents: filesConsent, WaitForConsent: true}, record.Asker{}))(t)
	b.awaits(t, metal.RepairAwaitingConsent)
	b.mu.Lock()
	if b.media == "" || !b.device.Persistent || b.device.Device != "cdrom" || !b.networks[driver.Rescuing] {
		t.Errorf("not armed: media %q, device %+v, networks %v", b.media, b.device, b.networks)
	}
	b.mu.Unlock()
}

// A rescue that is asked for again may have followed the machine's own system, so an undo is no longer exact.
func TestRepairUndoAfterAnotherRescue(t *testing.T) {
	b := newRepaired(t, metal.PowerOff)
	b.run(t)
	b.start(t, metal.ToRescue)
	b.ends(t)
	r := b.repair(t, b.withDigest(t))
	if got := r.Undo(b.stored(t)); got != metal.UndoExact {
		t.Fatalf("undo %s", got)
	}
	b.start(t, metal.ToRescue)
	b.ends(t)
	if got := r.Undo(b.stored(t)); got != metal.UndoFiles {
		t.Errorf("undo %s", got)
	}
}

// A repair in a rescue under way leaves the machine in it.
func TestRepairInARescueUnderWay(t *testing.T) {
	b := newRepaired(t, metal.PowerOff)
	b.run(t)
	b.start(t, metal.ToRescue)
	b.ends(t)
	r := b.repair(t, b.withDigest(t))
	if n := b.stored(t); r.State != metal.RepairWritten || n.ProvisionState != metal.Rescue || n.Plan != nil || !slices.Equal(b.mender.disk, repairedDisk) || r.Undo(n) != metal.UndoExact {
		t.Errorf("repair %+v: %s", r, b.picture(t))
	}
}

// Three repairs are kept, and the instance takes them with it, with all that undoes them.
func TestRepairsEndWithTheInstance(t *testing.T) {
	b := newRepaired(t, metal.PowerOff)
	b.run(t)
	ctx := context.Background()
	r := b.repair(t, b.withDigest(t))
	for range 3 {
		b.repair(t, metal.RepairArgs{})
	}
	if all := must.Get(b.repairs().List(ctx, nil, b.node))(t); len(all) != 3 {
		t.Errorf("%d repairs are kept", len(all))
	}
	if _, err := b.store.RepairPart(ctx, nil, b.node, r.ID, metal.RepairImagesPart(1)); !problem.Is(err, problem.NotFound) {
		t.Errorf("the before-images of a repair that is not kept: %v", err)
	}
	last := b.newestRepair(t)
	b.start(t, metal.Delete)
	b.ends(t)
	if all := must.Get(b.repairs().List(ctx, nil, b.node))(t); len(all) != 0 {
		t.Errorf("%d repairs outlive the instance", len(all))
	}
	if _, err := b.repairs().Plan(ctx, b.node, last.ID); !problem.Is(err, problem.NotFound) {
		t.Errorf("a plan outlives the instance: %v", err)
	}
	// What an agent still answers then is not stored.
	late := metal.RepairPart{NodeID: b.node, RepairID: last.ID, Name: metal.RepairPlanPart, Body: []byte("{}")}
	must.OK(t, b.store.Do(ctx, func(tx job.Tx) error { return b.repairs().SavePart(ctx, tx, late) }))
	if _, err := b.repairs().Plan(ctx, b.node, last.ID); !problem.Is(err, problem.NotFound) {
		t.Errorf("a late plan is stored: %v", err)
	}
}

// menderDigest is the digest of the plan of a new fakeMender.
func menderDigest() string {
	a := newFakeMender()
	a.makePlan(agent.PlanRepairParams{})
	return a.plan.Digest
}

// TestSweepRepair: the job that leads through a repair survives crashes, repetitions and failures, and no half-written disk boots. It runs a part of
// them, since it changes nothing itself, and TestSweepWriteRepair sweeps the job that does. Each of its reads of the store fails once.
func TestSweepRepair(t *testing.T) {
	t.Parallel()
	fresh := func(t *testing.T) *jobtest.World {
		b := newRepaired(t, metal.PowerOff)
		return b.world(metal.JobRepair, func(t *testing.T) {
			must.Get(b.repairs().Begin(context.Background(), b.node, metal.RepairArgs{Consents: filesConsent, Digest: menderDigest()}, record.Asker{}))(t)
		}, func(t *testing.T) {
			r := b.newestRepair(t)
			whole := slices.Equal(b.mender.disk, originalDisk) || slices.Equal(b.mender.disk, repairedDisk)
			if r.FinishedAt.IsZero() || r.Problem == "" || !whole || b.mender.halfBooted {
				t.Errorf("repair %+v: %s", r, b.picture(t))
			}
		})
	}
	jobtest.Sample(t, 4, fresh)
	conductortest.SweepReads(t, fresh)
}

// TestSweepWriteRepair: the job that writes survives the same, and a failure at any action puts every chunk back.
func TestSweepWriteRepair(t *testing.T) {
	t.Parallel()
	conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
		b := newRepaired(t, metal.PowerOff)
		return b.world(metal.JobWriteRepair, func(t *testing.T) {
			must.Get(b.repairs().Begin(context.Background(), b.node, metal.RepairArgs{Consents: filesConsent, Digest: menderDigest()}, record.Asker{}))(t)
		}, func(t *testing.T) {
			r := b.newestRepair(t)
			if r.State != metal.RepairFailed && r.State != metal.RepairRolledBack || r.Problem == "" || !slices.Equal(b.mender.disk, originalDisk) || b.mender.halfBooted {
				t.Errorf("repair %+v: %s", r, b.picture(t))
			}
			if n := b.noSecretLeft(t); n.Plan != nil || n.ProvisionState != metal.Active || b.media != "" {
				t.Errorf("not put back: %s", b.picture(t))
			}
		})
	})
}

// TestARepairOfANodeInMaintenanceIsRefusedAtOnce: it could not boot the machine, so no job waits for that.
func TestARepairOfANodeInMaintenanceIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Active)
	change(t, b, func(n *metal.Node) { n.Maintenance = true })
	_, err := b.repairs().Begin(context.Background(), b.node, metal.RepairArgs{Reboot: true}, record.Asker{})
	if !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "salvor node maintenance unset "+b.node) {
		t.Errorf("the repair is refused with %v", err)
	}
	change(t, b, func(n *metal.Node) { n.ProvisionState = metal.Rescue }) // nothing is to be booted
	must.Get(b.repairs().Begin(context.Background(), b.node, metal.RepairArgs{}, record.Asker{}))(t)
}
