package repair

import (
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
