//go:build causes || e2e

package causes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/repair"
	"salvor/test/must"
	wire "salvor/wire/agent"
)

const testRepair = "7d1f0c9e-53a5-4b8e-9d43-000000000001"

// repairable lists those of the named findings that a repair is proposed for which loses no data.
func repairable(found []diagnose.Finding, ids []string) []string {
	var out []string
	for _, f := range found {
		if f.Severity != diagnose.Info && f.Repair != nil && f.Repair.Consent != diagnose.ConsentData && slices.Contains(ids, f.ID) && !slices.Contains(out, f.ID) {
			out = append(out, f.ID)
		}
	}
	return out
}

// mend has the ramdisk repair those findings on disks that lie over those of a folder, undo that, and compares. Then the repaired system boots itself and
// takes a login. The error says what kept it from that.
func (c *corpus) mend(t *testing.T, l Layout, h Hardware, lane, from string, findings []string, network string) error {
	t.Helper()
	dir := must.Get(os.MkdirTemp(c.dir, "mend-"))(t)
	defer os.RemoveAll(dir)
	overlay(t, l, from, dir)
	plan, err := c.writeRepair(t, l, h, lane, from, dir, findings, network)
	if err != nil {
		return err
	}
	if !t.Run("boot", func(t *testing.T) { c.proveBoot(t, l, dir, plan.HostKeys...) }) {
		return fmt.Errorf("the repaired system took no login")
	}
	return nil
}

// writeRepair repairs, keeps what it wrote, undoes it, and leaves the disks of the folder repaired.
func (c *corpus) writeRepair(t *testing.T, l Layout, h Hardware, lane, from, dir string, findings []string, network string) (*repair.Plan, error) {
	t.Helper()
	w := c.worker(t, lane, l, h, c.startExaminer)
	defer w.mu.Unlock()
	w.attach(t, diskFiles(dir, l, 0), "")
	defer func() {
		if w.runs() {
			w.detach(t)
		}
	}()
	if _, err := w.agent.examine(l.Disks, network); err != nil { // a plan does not wait until the kernel has found the disks
		return nil, err
	}
	params := wire.PlanRepairParams{ExamineParams: lookParams(network), ID: testRepair, Findings: findings, Consents: []string{"settings", "files", "boot"}, MaxChanged: 1 << 30}
	plan := &repair.Plan{}
	if err := w.agent.order(wire.PlanRepair, params, plan); err != nil {
		return nil, err
	}
	defer w.agent.order(wire.EndRepair, wire.EndRepairParams{ID: testRepair}, nil)
	for _, id := range findings {
		if !slices.Contains(plan.Mended, id) {
			var why []string
			for _, n := range plan.NotMended {
				if n.Finding == id {
					why = append(why, n.Why)
				}
			}
			return nil, fmt.Errorf("%s is not mended: %s", id, strings.Join(why, "; "))
		}
	}
	var pages []wire.ImagePage
	for next := ""; len(pages) == 0 || next != ""; next = pages[len(pages)-1].Next {
		var page wire.ImagePage
		if err := w.agent.order(wire.BeforeImages, wire.BeforeImagesParams{ID: testRepair, Cursor: next}, &page); err != nil {
			return nil, err
		}
		pages = append(pages, page)
	}
	if err := w.agent.order(wire.WriteRepair, wire.WriteRepairParams{ID: testRepair, Digest: plan.Digest}, nil); err != nil {
		return nil, err
	}
	for n := range l.Disks {
		must.OK(t, copyFile(disk(dir, n), disk(dir, n)+".repaired"))
	}
	restore := wire.RestoreImagesParams{}
	for _, d := range plan.Disks {
		restore.Disks = append(restore.Disks, wire.RestoreDisk{Path: d.Path, Serial: d.Serial, WWN: d.WWN, Size: d.Size})
	}
	for _, page := range pages {
		restore.Chunks = page.Chunks
		if err := w.agent.order(wire.RestoreImages, restore, nil); err != nil {
			return nil, fmt.Errorf("undo: %w", err)
		}
	}
	if err := w.agent.order(wire.EndRepair, wire.EndRepairParams{ID: testRepair}, nil); err != nil {
		return nil, err
	}
	w.detach(t)
	for n := range l.Disks {
		if out, err := exec.Command("qemu-img", "compare", disk(from, n), disk(dir, n)).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("the undo of the repair is not exact: disk %d: %s", n+1, strings.TrimSpace(string(out)))
		}
		must.OK(t, os.Rename(disk(dir, n)+".repaired", disk(dir, n)))
	}
	if l.UEFI {
		must.OK(t, copyFile(filepath.Join(c.dir, lane+"-vars.fd"), filepath.Join(dir, "vars.fd")))
	}
	return plan, nil
}
