package fleet

import (
	"encoding/json"
	"fmt"

	"salvor/diagnose"
	wire "salvor/wire/agent"
)

// ailments are what simulated disks have: the first findings that operators meet. A repair of a simulated disk cannot be carried out, so that no
// finding offers one.
var ailments = []diagnose.Finding{
	{
		ID: "fstab-device-missing", Stage: diagnose.Root, Severity: diagnose.BlocksBoot, Confidence: 0.95,
		Title:    "Line 4 of /etc/fstab mounts /srv from a file system with the UUID 7d1f0c52-3a0e-4d43-9a34-2f1b7c1e5a90, which no device holds.",
		Evidence: []diagnose.Evidence{{Kind: diagnose.FromFile, Path: "/etc/fstab", Line: 4, Text: "UUID=7d1f0c52-3a0e-4d43-9a34-2f1b7c1e5a90 /srv xfs defaults 0 2"}},
		ByHand:   "Correct the UUID, or add nofail to the options of the line.",
	},
	{
		ID: "sshd-config-invalid", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.95,
		Title:    "The server sshd refuses line 33 of /etc/ssh/sshd_config: it knows no option PermitRotLogin.",
		Evidence: []diagnose.Evidence{{Kind: diagnose.FromFile, Path: "/etc/ssh/sshd_config", Line: 33, Text: "PermitRotLogin no"}},
		ByHand:   "Correct the line, and check the file with sshd -t.",
	},
	{
		ID: "disk-full", Stage: diagnose.Target, Severity: diagnose.Degrades, Confidence: 0.9,
		Title:    "The file system of / is full.",
		Evidence: []diagnose.Evidence{{Kind: diagnose.FromDevice, Path: "/dev/sda1", Text: "0 of 40,000,000,000 bytes are free"}},
		ByHand:   "Make room: /var/log holds most of what was written last.",
	},
}

// ailment is what a machine's disk has; nil: nothing.
func (f *Fleet) ailment(i int) *diagnose.Finding {
	if n := f.random(i, "ailment").IntN(len(ailments) + 1); n < len(ailments) {
		return &ailments[n]
	}
	return nil
}

// Ails says whether a diagnosis of a machine finds why it does not boot.
func (f *Fleet) Ails(i int) bool {
	a := f.ailment(i)
	return a != nil && a.Severity == diagnose.BlocksBoot
}

// examination is what the agent of a machine finds on its simulated disk.
func (f *Fleet) examination(i int) diagnose.Examination {
	const root = "/dev/sda1"
	serial := f.digest(i, "disk")
	disk := diagnose.ExaminedDisk{Path: "/dev/sda", Model: "Simulated disk", Serial: fmt.Sprintf("SIM%X", serial[:6]), Size: 40 << 30}
	installed := diagnose.ExaminedSystem{Root: root, Disks: []string{disk.Path}, Name: "Debian GNU/Linux 12 (bookworm)", Findings: []diagnose.Finding{}}
	if a := f.ailment(i); a != nil {
		found := *a
		found.System, found.Disk = root, disk.Path
		installed.Findings = append(installed.Findings, found)
	}
	return diagnose.Examination{Version: diagnose.ExaminationVersion, Seconds: 0.4, Disks: []diagnose.ExaminedDisk{disk},
		NotExamined: []diagnose.Gap{}, Systems: []diagnose.ExaminedSystem{installed}}
}

// examined is the answer to an order to examine the disks.
func (f *Fleet) examined(i int) (wire.Result, error) {
	outcome, err := json.Marshal(f.examination(i))
	return wire.Result{ID: "2", Name: wire.Examine, Params: json.RawMessage("{}"), Status: wire.Succeeded, Outcome: outcome}, err
}
