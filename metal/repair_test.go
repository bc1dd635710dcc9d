package metal

import (
	"strings"
	"testing"
	"time"
)

// TestRepairEndsInWords: a repair whose job fails, or is dropped, is failed where nothing was written and unproven where the disks were written.
func TestRepairEndsInWords(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	const unproven = "the disks are written, and the machine has not proved since that it works: it broke"
	for _, c := range []struct {
		from       RepairState
		failed     RepairState
		why        string
		dropped    RepairState
		whyDropped string
	}{
		{RepairPlanning, RepairFailed, "it broke", RepairFailed, "it broke"},
		{RepairAwaitingConsent, RepairFailed, "it broke", RepairFailed, "it broke"},
		{RepairWriting, RepairWriting, "it broke", RepairInterrupted, "it broke"}, // the job that writes says more when it ends
		{RepairWritten, RepairUnproven, unproven, RepairUnproven, unproven},
		{RepairBooting, RepairUnproven, unproven, RepairUnproven, unproven},
		{RepairRolledBack, RepairRolledBack, "before", RepairRolledBack, "it broke"},
		{RepairInterrupted, RepairInterrupted, "before", RepairInterrupted, "it broke"},
	} {
		failed, dropped := Repair{State: c.from, Problem: "before"}, Repair{State: c.from, Problem: "before"}
		failed.Fail(now, "it broke")
		if failed.State != c.failed || failed.Problem != c.why || failed.IsRunning() {
			t.Errorf("the job of a repair that is %s failed: state %s, problem %q; want %s, %q", c.from, failed.State, failed.Problem, c.failed, c.why)
		}
		dropped.end(now, "it broke")
		if dropped.State != c.dropped || dropped.Problem != c.whyDropped || dropped.IsRunning() {
			t.Errorf("a repair that is %s was dropped: state %s, problem %q; want %s, %q", c.from, dropped.State, dropped.Problem, c.dropped, c.whyDropped)
		}
	}
}

// TestRepairIsWrittenAfterItFailed: the job that writes may end after the job of its repair has failed. Nothing awaits a proof then.
func TestRepairIsWrittenAfterItFailed(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	r := Repair{State: RepairWriting}
	r.Fail(now, "it was aborted")
	r.Write(now)
	if r.State != RepairUnproven || !strings.Contains(r.Problem, "the disks are written") || !strings.HasSuffix(r.Problem, "it was aborted") || r.WrittenAt.IsZero() {
		t.Errorf("state %s, problem %q, written at %v; want %s and a problem that says that the disks are written, and why no proof is awaited", r.State, r.Problem, r.WrittenAt, RepairUnproven)
	}
	r = Repair{State: RepairWriting}
	if r.Write(now); r.State != RepairWritten || r.Problem != "" {
		t.Errorf("a repair that goes on: state %s, problem %q; want %s and none", r.State, r.Problem, RepairWritten)
	}
}

// TestRootOfRepair: a root is printed in commands that another user is told to type, so it has the characters of a path below /dev only.
func TestRootOfRepair(t *testing.T) {
	t.Parallel()
	for root, isGood := range map[string]bool{
		"": true, "/dev/sda2": true, "/dev/nvme0n1p2": true, "/dev/mapper/vg--0-root": true, `/dev/mapper/luks\x20root`: true, "/dev/disk/by-id/scsi-0QEMU:1@x=y+z#1": true,
		"sda2": false, "/dev/sda2; reboot": false, "/dev/sda2$(reboot)": false, "/dev/sda2'": false, "/dev/sda2\x1b[2J": false, "/dev/" + strings.Repeat("a", 200): false,
	} {
		a := RepairArgs{Root: root}
		if err := a.check(); (err == nil) != isGood {
			t.Errorf("root %q: want it taken: %v, got %v", root, isGood, err)
		}
	}
}
