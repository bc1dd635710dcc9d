//go:build e2e

package ramdisk

import (
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"salvor/repair"
	"salvor/test/debian"
	"salvor/test/must"
	wire "salvor/wire/agent"
)

const testRepair = "7d1f0c9e-53a5-4b8e-9d43-1f2c0a9e6b11"

// TestRepair repairs systems on ext4, in LUKS, on LVM over half a RAID1, and on btrfs, by the real ramdisk after a power cut: a line of each fstab and
// one of each sshd_config. The undo gives the disks back byte for byte.
func TestRepair(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, build(dir, Options{Arch: AMD64, Profile: Diagnose}))
	out := filepath.Join(dir, "out")
	disks := makeDisks(t, out, "broken")
	c := newController(t, out, openImageIn(t, out, FileISO))
	c.before = func(send func(string, any) json.RawMessage) { repairDisks(t, send, disks) }
	m := newMachine(t)
	m.start(t, debian.Program(t, "qemu-system-x86_64", "qemu-system-x86"), slices.Concat([]string{"-machine", "q35,accel=tcg", "-cpu", "max", "-m", diagnosisMemory, "-device", "virtio-net-pci,netdev=n0,romfile=", "-netdev", m.network(c)},
		drives(disks), []string{"-kernel", filepath.Join(out, FileKernel), "-initrd", filepath.Join(out, FileInitramfs), "-append", c.params}))
	m.waitLong(t, c, "ssh started on 10.0.2.15", repairLimit)
	if text := c.lastFailure(); text != "" {
		t.Errorf("the control plane saw: %s", text)
	}
}

// repairDisks has the agent repair a system, and undoes it. The disks are as before in the end.
func repairDisks(t *testing.T, send func(string, any) json.RawMessage, disks []madeDisk) {
	t.Helper()
	began := time.Now()
	lap := func(what string) {
		t.Logf("%s: %.1f s", what, time.Since(began).Seconds())
		began = time.Now()
	}
	ask := func(command string, params, outcome any) bool {
		t.Helper()
		var result wire.Result
		raw := send(command, params)
		if err := json.Unmarshal(raw, &result); err != nil || result.Status != wire.Succeeded {
			t.Errorf("%s: %v: %.2000s", command, err, raw)
			return false
		}
		if outcome != nil {
			if err := json.Unmarshal(result.Outcome, outcome); err != nil {
				t.Errorf("%s: %v: %.2000s", command, err, result.Outcome)
				return false
			}
		}
		return true
	}
	unchanged := func(when string) {
		t.Helper()
		for _, d := range disks {
			if diskSum(t, d.file) != d.sum {
				t.Errorf("%s is not as in the beginning %s", d.file, when)
			}
		}
	}
	findings := []string{"fstab-device-missing", "sshd-config-invalid"}
	params := wire.PlanRepairParams{ExamineParams: wire.ExamineParams{Now: time.Now(), LUKSKeys: [][]byte{[]byte("sesame")}}, ID: testRepair, Findings: findings, Consents: []string{"files"}, MaxChanged: 64 << 20}
	var plan repair.Plan
	if !ask(wire.PlanRepair, params, &plan) {
		return
	}
	lap("plan")
	unchanged("after the plan")
	checkPlan(t, &plan, findings)
	page, images := wire.ImagePage{}, []wire.ImageChunk{}
	for done := false; !done; done = page.Next == "" {
		cursor := page.Next
		page = wire.ImagePage{}
		if !ask(wire.BeforeImages, wire.BeforeImagesParams{ID: testRepair, Cursor: cursor}, &page) {
			return
		}
		images = append(images, page.Chunks...)
	}
	size := 0
	for _, c := range images {
		size += len(c.Before)
	}
	t.Logf("%d chunks, %d bytes of before-images", len(images), size)
	lap("images")
	var files []wire.RestoreFile
	if ask(wire.FileContents, wire.EndRepairParams{ID: testRepair}, &files); len(files) != len(plan.Files) {
		t.Errorf("contents of %d files of %d", len(files), len(plan.Files))
	}
	var written wire.WrittenRepair
	if !ask(wire.WriteRepair, wire.WriteRepairParams{ID: testRepair, Digest: plan.Digest}, &written) {
		return
	}
	if written.Chunks < int64(len(images)) {
		t.Errorf("%d of %d chunks are written", written.Chunks, len(images))
	}
	lap("write")
	var again wire.WrittenRepair
	if ask(wire.WriteRepair, wire.WriteRepairParams{ID: testRepair, Digest: plan.Digest}, &again); again.Chunks != 0 {
		t.Errorf("a second write writes %d chunks", again.Chunks)
	}
	checkChunks(t, disks, plan.Disks, images)
	ask(wire.EndRepair, wire.EndRepairParams{ID: testRepair}, nil)
	ask(wire.EndRepair, wire.EndRepairParams{ID: testRepair}, nil)
	// Another plan of the same findings has nothing left to do: they are gone on a fresh look at the disks.
	params.LUKSKeys = [][]byte{[]byte("sesame")}
	var nothing repair.Plan
	if ask(wire.PlanRepair, params, &nothing); len(nothing.Files) != 0 || len(nothing.Disks) != 0 {
		t.Errorf("after the repair another plan changes %+v", nothing.Files)
	}
	checkMended(t, &nothing, findings)
	lap("fresh look")
	restore := wire.RestoreImagesParams{Chunks: images, Check: true}
	for _, d := range plan.Disks {
		restore.Disks = append(restore.Disks, wire.RestoreDisk{Path: "/dev/other", Serial: d.Serial, WWN: d.WWN, Size: d.Size})
	}
	ask(wire.RestoreImages, restore, &again)
	checkChunks(t, disks, plan.Disks, images)
	restore.Check = false
	if ask(wire.RestoreImages, restore, &again); again.Chunks < int64(len(images)) {
		t.Errorf("%d of %d chunks are restored", again.Chunks, len(images))
	}
	lap("restore")
	unchanged("after the undo")
}

// checkPlan wants the findings mended in all four systems by changes of files alone.
func checkPlan(t *testing.T, plan *repair.Plan, findings []string) {
	t.Helper()
	if !slices.Equal(plan.Mended, findings) || len(plan.NotMended) != 0 {
		t.Errorf("mended %q, not mended %+v", plan.Mended, plan.NotMended)
	}
	checkMended(t, plan, findings)
	var changed []string
	for _, f := range plan.Files {
		changed = append(changed, f.Root+" "+f.Path)
		if f.Before == nil || f.After == nil || f.Diff == "" || f.After.Mode != f.Before.Mode || f.After.UID != f.Before.UID || f.After.GID != f.Before.GID {
			t.Errorf("change %+v", f)
		}
		t.Logf("%s %s:\n%s", f.Root, f.Path, f.Diff)
	}
	if len(changed) != 8 {
		t.Errorf("changes %q", changed)
	}
	if len(plan.Disks) != 3 || plan.Digest == "" {
		t.Errorf("disks %+v, digest %q", plan.Disks, plan.Digest)
	}
	t.Logf("disks %+v; examined in %.1f and %.1f s", plan.Disks, plan.Before.Seconds, plan.After.Seconds)
}

// checkMended wants none of the findings above info after a plan.
func checkMended(t *testing.T, plan *repair.Plan, findings []string) {
	t.Helper()
	for _, s := range plan.After.Systems {
		for _, f := range s.Findings {
			if slices.Contains(findings, f.ID) && f.Severity != "info" {
				t.Errorf("%s: %s is still found: %s", s.Root, f.ID, f.Title)
			}
		}
	}
}

// checkChunks wants each chunk on the disks to hold what the repair writes.
func checkChunks(t *testing.T, disks []madeDisk, changed []repair.DiskChange, images []wire.ImageChunk) {
	t.Helper()
	for _, c := range images {
		name := changed[c.Disk].Serial // diska, as drives calls them
		content := make([]byte, c.Length)
		f, err := os.Open(disks[name[len(name)-1]-'a'].file)
		if err == nil {
			_, err = f.ReadAt(content, c.Offset)
			_ = f.Close()
		}
		if err != nil {
			t.Error(err)
		}
		if sum := sha256.Sum256(content); !slices.Equal(sum[:], c.After) {
			t.Errorf("disk %d: the chunk at %d is not what the repair writes", c.Disk, c.Offset)
		}
	}
}
