package node

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/driver"
	"salvor/problem"
	"salvor/repair"
	"salvor/wire/agent"
)

// fakeMender is an agent that repairs: a disk of three chunks, of which a repair changes two. It serves in every ramdisk, also after a rescue has
// been finalized, and a restart takes its overlays and its list of commands.
type fakeMender struct {
	// stage is that of the finding that it mends; empty: its plan does not tell.
	stage    diagnose.Stage
	disk     []string // what lies on the disk, by chunk
	overlay  []string // what a repair makes of it; nil: no overlay is there
	plan     repair.Plan
	id       string
	commands []agent.Result
	ids      int
	written  int // chunks, of which one is written at each look

	consents    []diagnose.Consent  // that its plans need; nil: files
	given       agent.ExamineParams // with the last plan
	fails       string              // the command that fails
	deaf        bool                // it does not answer
	silentAt    string              // the command that it does not answer
	beforeEnd   func()              // is called before a repair's overlays are taken down
	loses       int                 // the machine restarts when so many chunks are written; 0: it does not
	losesPlans  int                 // the machine restarts while it plans, so often
	foreign     bool                // somebody else has changed a chunk
	badDisk     bool                // no before-image can be written
	fewImages   bool                // only the first before-image is given
	halfBooted  bool                // the machine's own system booted from half-written disks
	systemBoots int
}

var (
	originalDisk = []string{"/dev/gone / ext4", "inode table", "journal"}
	repairedDisk = []string{"/dev/sda1 / ext4", "inode table", "replayed"}
)

const (
	menderHostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG6zbRXkp9CdSvOtcMjNVOyEAsdcbK/jYlSmblVCW5FM"
	menderDisk    = 1 << 20
)

func newFakeMender() *fakeMender { return &fakeMender{disk: slices.Clone(originalDisk)} }

func (a *fakeMender) reboot() {
	if a != nil {
		a.commands, a.overlay, a.deaf = nil, nil, false
	}
}

// bootSystem notes that the machine's own system boots.
func (a *fakeMender) bootSystem() {
	if a == nil {
		return
	}
	a.systemBoots++
	if !slices.Equal(a.disk, originalDisk) && !slices.Equal(a.disk, repairedDisk) {
		a.halfBooted = true
	}
}

func (a *fakeMender) picture(b *bench, _ *testing.T) string {
	if a == nil {
		return ""
	}
	return fmt.Sprintf("disk %q overlay %v\n", a.disk, a.overlay != nil && b.running == "ramdisk")
}

// serves tells whether commands are taken now.
func (a *fakeMender) serves(b *bench) bool { return b.running == "ramdisk" && !a.deaf }

// work goes on with what runs: a chunk is written at each look.
func (a *fakeMender) work(b *bench) {
	if a == nil {
		return
	}
	if a.deaf {
		return
	}
	if a.loses > 0 && a.written >= a.loses { // a power cut
		a.loses = 0
		b.restartMachine()
	}
	if a.losesPlans > 0 && slices.ContainsFunc(a.commands, func(r agent.Result) bool { return r.Status == agent.Running && r.Name == "plan" }) {
		a.losesPlans--
		b.restartMachine()
	}
	for i := range a.commands {
		c := &a.commands[i]
		switch {
		case c.Status != agent.Running:
		case a.fails != "" && strings.HasSuffix(a.fails, "."+c.Name):
			c.Status, c.Error = agent.Failed, &agent.CommandError{Message: "Command execution failed", Details: "the disk /dev/sda is failing: smartctl says so"}
		case c.Name == "plan":
			c.Status = agent.Succeeded
		case a.overlay == nil:
			c.Status, c.Error = agent.Failed, &agent.CommandError{Details: "the overlays of this repair are gone"}
		case a.written < len(a.disk):
			a.disk[a.written] = a.overlay[a.written]
			a.written++
		default:
			c.Status, c.Outcome = agent.Succeeded, json.RawMessage(`{"chunks": 2, "at": "2026-01-01T00:00:00Z"}`)
		}
	}
}

// giveRepair takes a command of a repair. The bench is locked.
func (b *bench) giveRepair(name string, params any) (agent.Result, error) {
	a := b.mender
	if !a.serves(b) || a.silentAt == name {
		return agent.Result{}, problem.Unavailablef("%w", driver.ErrGone)
	}
	if slices.ContainsFunc(a.commands, func(r agent.Result) bool { return r.Status == agent.Running }) {
		return agent.Result{}, problem.Unavailablef("it is busy: 409")
	}
	a.ids++
	res := agent.Result{ID: fmt.Sprint("r", a.ids), Name: name[strings.Index(name, ".")+1:], Status: agent.Succeeded}
	fail := func(why string) (agent.Result, error) {
		res.Status, res.Error = agent.Failed, &agent.CommandError{Details: why}
		return res, nil
	}
	switch p := params.(type) {
	case agent.PlanRepairParams:
		a.id, a.given, a.written = p.ID, p.ExamineParams, 0
		a.makePlan(p)
		raw, err := json.Marshal(a.plan)
		if err != nil {
			return res, err
		}
		res.Status, res.Outcome = agent.Running, raw
		a.commands = append(a.commands, res)
		return res, nil
	case agent.BeforeImagesParams:
		if a.overlay == nil || p.ID != a.id {
			return fail("the overlays of this repair are gone")
		}
		res.Outcome = a.page(p.Cursor)
	case agent.WriteRepairParams:
		if a.overlay == nil || p.ID != a.id || p.Digest != a.plan.Digest {
			return fail("the overlays of this repair are gone")
		}
		res.Status = agent.Running
		a.commands = append(a.commands, res)
	case agent.RestoreImagesParams:
		for _, k := range p.Chunks {
			i := k.Offset / repair.ChunkSize
			sum := sha256.Sum256([]byte(a.disk[i]))
			if a.foreign || a.disk[i] != string(k.Before) && !slices.Equal(sum[:], k.After) {
				return fail("a chunk holds something else")
			}
		}
		if a.badDisk && !p.Check {
			return fail("the disk fails")
		}
		for _, k := range p.Chunks {
			if !p.Check {
				a.disk[k.Offset/repair.ChunkSize] = string(k.Before)
			}
		}
		res.Outcome = json.RawMessage(`{"chunks": 1, "at": "2026-01-01T00:00:00Z"}`)
	case agent.EndRepairParams:
		if name == agent.EndRepair {
			if a.beforeEnd != nil {
				a.beforeEnd()
			}
			a.overlay = nil
			break
		}
		if a.overlay == nil || p.ID != a.id {
			return fail("the overlays of this repair are gone")
		}
		res.Outcome = json.RawMessage(`[{"root": "/dev/sda1", "path": "/etc/fstab", "before": {"kind": "file"}, "after": {"kind": "file"}, "content": "YQ=="}]`)
	}
	if a.fails == name {
		return fail("it fails")
	}
	return res, nil
}

// restartMachine is a power cut: the firmware boots what it is set to.
func (b *bench) restartMachine() {
	b.serving = ""
	if b.media != "" {
		b.running, b.agentUp, b.credential, b.newStart = "ramdisk", true, "", newCertificate()
		b.agent.reboot()
		b.mender.reboot()
		return
	}
	b.running, b.agentUp = "system", false
	b.systemOn++
	b.mender.bootSystem()
}

// makePlan mends the overlay, or puts the files back.
func (a *fakeMender) makePlan(p agent.PlanRepairParams) {
	after := repairedDisk
	if len(p.Restore) > 0 {
		after = originalDisk
	}
	a.overlay = slices.Clone(after)
	a.plan = repair.Plan{Version: repair.PlanVersion, Mended: []string{"fstab-device-missing"}, Consents: []diagnose.Consent{diagnose.ConsentFiles}, HostKeys: []string{menderHostKey},
		Disks: []repair.DiskChange{{Path: "/dev/sda", Serial: "S1", Size: menderDisk}}}
	if a.stage != "" {
		a.plan.Before.Systems = []diagnose.ExaminedSystem{{Root: "/dev/sda1", Findings: []diagnose.Finding{{ID: "fstab-device-missing", Stage: a.stage, Severity: diagnose.BlocksBoot,
			Repair: &diagnose.Repair{Summary: "Add nofail.", Consent: diagnose.ConsentFiles, Loses: "A database may start without its disk.\x1b[2J"}}}}}
	}
	if a.consents != nil {
		a.plan.Consents = a.consents
	}
	for i := range a.disk {
		if a.disk[i] != after[i] {
			a.plan.Disks[0].Chunks++
		}
	}
	if a.disk[0] != after[0] {
		state := func(text string) *repair.FileState {
			sum := sha256.Sum256([]byte(text))
			return &repair.FileState{Kind: "file", Size: int64(len(text)), SHA256: hex.EncodeToString(sum[:]), Mode: 0o644}
		}
		a.plan.Files = []repair.FileChange{{Root: "/dev/sda1", Path: "/etc/fstab", Consent: diagnose.ConsentFiles, Findings: []string{"fstab-device-missing"},
			Before: state(a.disk[0]), After: state(after[0]), Diff: "-" + a.disk[0] + "\n+" + after[0] + "\n password=hunter2\x1b[31m"}}
	}
	a.plan.Seal()
}

// page gives one changed chunk at a time.
func (a *fakeMender) page(cursor string) json.RawMessage {
	from, err := strconv.Atoi(cursor)
	if err != nil {
		from = 0
	}
	page := agent.ImagePage{Chunks: []agent.ImageChunk{}}
	for i := from; i < len(a.disk) && !(a.fewImages && from > 0); i++ {
		if a.disk[i] == a.overlay[i] {
			continue
		}
		if len(page.Chunks) == 1 {
			page.Next = strconv.Itoa(i)
			break
		}
		sum := sha256.Sum256([]byte(a.overlay[i]))
		page.Chunks = append(page.Chunks, agent.ImageChunk{Offset: int64(i) * repair.ChunkSize, Before: []byte(a.disk[i]), Length: repair.ChunkSize, After: sum[:]})
	}
	raw, err := json.Marshal(page)
	if err != nil {
		panic(err) // all of its types can be encoded
	}
	return raw
}
