package repair

import (
	"strings"
	"testing"

	"salvor/diagnose"
)

// TestDigest: the digest changes with what is written, and with nothing else.
func TestDigest(t *testing.T) {
	t.Parallel()
	plan := func(change func(*Plan)) string {
		p := &Plan{
			Version: PlanVersion, Mended: []string{"b", "a"},
			Files:  []FileChange{{Path: "/etc/fstab", Before: &FileState{SHA256: "1", ModTime: 1}, After: &FileState{SHA256: "2", ModTime: 2}}, {Path: "/boot/i", MadeBy: "x", After: &FileState{SHA256: "3"}}},
			Blocks: []BlockChange{{Device: "/dev/sda", After: "1"}},
			Disks:  []DiskChange{{Path: "/dev/sda", Serial: "S", Chunks: 3}},
		}
		change(p)
		p.Seal()
		return p.Digest
	}
	first := plan(func(*Plan) {})
	same := map[string]func(*Plan){
		"order of findings": func(p *Plan) { p.Mended = []string{"a", "b"} },
		"time of a file":    func(p *Plan) { p.Files[0].After.ModTime = 7 },
		"made by a program": func(p *Plan) { p.Files[1].After.SHA256 = "4" },
		"name of a disk":    func(p *Plan) { p.Disks[0].Path = "/dev/sdb" },
		"replayed journal":  func(p *Plan) { p.Disks[0].Chunks = 4 },
	}
	for name, change := range same {
		if plan(change) != first {
			t.Errorf("%s changes the digest", name)
		}
	}
	other := map[string]func(*Plan){
		"content before": func(p *Plan) { p.Files[0].Before.SHA256 = "9" },
		"content after":  func(p *Plan) { p.Files[0].After.SHA256 = "9" },
		"mode after":     func(p *Plan) { p.Files[0].After.Mode = 1 },
		"program":        func(p *Plan) { p.Files[1].MadeBy = "y" },
		"blocks":         func(p *Plan) { p.Blocks[0].After = "9" },
		"setting":        func(p *Plan) { p.Settings = []Setting{{Kind: Clock}} },
		"disk":           func(p *Plan) { p.Disks[0].Serial = "T" },
		"findings":       func(p *Plan) { p.Mended = []string{"a"} },
	}
	for name, change := range other {
		if plan(change) == first {
			t.Errorf("%s does not change the digest", name)
		}
	}
}

// TestLosses: what a mend may lose is told once, and only for what the plan mends.
func TestLosses(t *testing.T) {
	mended := diagnose.Finding{ID: "fstab-device-missing", Repair: &diagnose.Repair{Loses: "A database starts on an empty folder."}}
	left := diagnose.Finding{ID: "fstab-type-unknown", Repair: &diagnose.Repair{Loses: "Nothing is mounted."}}
	p := Plan{Mended: []string{mended.ID, "sshd-config-invalid"}, Before: diagnose.Examination{Systems: []diagnose.ExaminedSystem{{Findings: []diagnose.Finding{mended, left, mended, {ID: "sshd-config-invalid"}}}}}}
	if got := p.Losses(); len(got) != 1 || got[0] != (Loss{mended.ID, mended.Repair.Loses}) {
		t.Errorf("%+v", got)
	}
}

// TestLossesOfStates: half of an array and a copy of a disk are named beside the digest where the plan writes to the disks of the system, and only there.
func TestLossesOfStates(t *testing.T) {
	half := diagnose.Finding{ID: "array-degraded", Title: "The array /dev/md1 runs with 1 of its 2 members."}
	twin := diagnose.Finding{ID: "identity-duplicate", Title: "The devices /dev/sda1 and /dev/sdb1 have the same UUID."}
	before := diagnose.Examination{Systems: []diagnose.ExaminedSystem{{Root: "/dev/md1", Findings: []diagnose.Finding{half, twin, {ID: "sshd-masked"}}}}}
	for name, tc := range map[string]struct {
		plan Plan
		want []string
	}{
		"files":            {Plan{Files: []FileChange{{Root: "/dev/md1", Path: "/etc/fstab"}}}, []string{half.Title, twin.Title}},
		"blocks":           {Plan{Blocks: []BlockChange{{Device: "/dev/sda"}}}, []string{half.Title, twin.Title}},
		"another system":   {Plan{Files: []FileChange{{Root: "/dev/sdc1", Path: "/etc/fstab"}}}, nil},
		"settings only":    {Plan{Settings: []Setting{{Kind: Clock}}}, nil},
		"nothing is there": {Plan{}, nil},
	} {
		tc.plan.Before = before
		got := tc.plan.Losses()
		same := len(got) == len(tc.want)
		for i := range min(len(got), len(tc.want)) {
			same = same && strings.HasPrefix(got[i].Text, tc.want[i]+" ")
		}
		if !same {
			t.Errorf("%s: want losses that begin with %q, got %+v", name, tc.want, got)
		}
	}
}

// TestLossesOfChanges: what is left of a finding does not hide what its mend may lose, and of two systems only the changed one loses.
func TestLossesOfChanges(t *testing.T) {
	finding := func(loses string) diagnose.Finding {
		return diagnose.Finding{ID: "fstab-device-missing", Repair: &diagnose.Repair{Loses: loses}}
	}
	p := Plan{Mended: []string{}, NotMended: []NotMended{{Finding: "fstab-device-missing", Why: "it is still found after the repair"}},
		Files: []FileChange{{Root: "/dev/sda1", Path: "/etc/fstab", Findings: []string{"fstab-device-missing"}}},
		Before: diagnose.Examination{Systems: []diagnose.ExaminedSystem{
			{Root: "/dev/sda1", Findings: []diagnose.Finding{finding("A database starts on an empty folder.")}},
			{Root: "/dev/sdb1", Findings: []diagnose.Finding{finding("Backups are written to another disk.")}},
		}}}
	if got, want := p.Losses(), (Loss{"fstab-device-missing", "A database starts on an empty folder."}); len(got) != 1 || got[0] != want {
		t.Errorf("a plan that changes /etc/fstab of /dev/sda1: want %+v alone, got %+v", want, got)
	}
	p.Mended, p.NotMended = []string{"fstab-device-missing"}, nil
	if got := p.Losses(); len(got) != 1 || got[0].Text != "A database starts on an empty folder." {
		t.Errorf("a plan that mends /dev/sda1: want the loss of that system alone, got %+v", got)
	}
	p.Files, p.Blocks = nil, []BlockChange{{Device: "/dev/sda", Findings: []string{"fstab-device-missing"}}}
	if got := p.Losses(); len(got) != 2 {
		t.Errorf("a plan that changes blocks: want the losses of both systems, got %+v", got)
	}
}
