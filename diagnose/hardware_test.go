package diagnose

import (
	"strings"
	"testing"
)

// TestLostHardware compares an examination with what an inspection recorded.
func TestLostHardware(t *testing.T) {
	const gib = int64(1) << 30
	system := DiskRecord{Model: "SSD", Serial: "S1", WWN: "0x5000C500A1B2C3D4", Size: 480e9}
	data := DiskRecord{Model: "HDD", Serial: " WD-2 ", Size: 4e12}
	recorded := RecordedHardware{Hardware: Hardware{Memory: 64 * gib, Disks: []DiskRecord{system, data}, NICs: []string{"52:54:00:00:00:01", "52:54:00:00:00:02"}}}
	missing := Finding{ID: "fstab-device-missing", Stage: Target, Severity: BlocksBoot, Confidence: 0.97, Evidence: []Evidence{{}}}
	for _, tc := range []struct {
		name   string
		then   func(*RecordedHardware)
		now    func(*Hardware)
		add    []Finding
		rootIn string
		want   string // ids with severities of what is found besides add
		cause  string
	}{
		{name: "the same", now: func(*Hardware) {}},
		{name: "names with other letters and blanks", now: func(h *Hardware) {
			h.Disks = []DiskRecord{{Serial: "wd-2"}, {WWN: "5000c500a1b2c3d4"}}
			h.NICs = []string{"52:54:00:00:00:02", "52:54:00:00:00:01"}
		}},
		{name: "a module", now: func(h *Hardware) { h.Memory = 56 * gib }, want: "memory-lost degrades"},
		{name: "another kernel counts a little less", now: func(h *Hardware) { h.Memory = 63 * gib }},
		{name: "what a kernel may use of the modules", then: func(r *RecordedHardware) { r.Fitted = true }, now: func(h *Hardware) { h.Memory = 61 * gib }},
		{name: "a module of what is fitted", then: func(r *RecordedHardware) { r.Fitted = true }, now: func(h *Hardware) { h.Memory = 32 * gib }, want: "memory-lost degrades"},
		{name: "memory that nobody recorded", then: func(r *RecordedHardware) { r.Memory = 0 }, now: func(h *Hardware) { h.Memory = gib }},
		{name: "a disk that nothing needs", now: func(h *Hardware) { h.Disks = h.Disks[:1] }, want: "disk-lost degrades"},
		{name: "the disk of fstab", now: func(h *Hardware) { h.Disks = h.Disks[:1] }, add: []Finding{missing}, want: "disk-lost blocks-boot", cause: "disk-lost"},
		{name: "the disk of the only system", now: func(h *Hardware) { h.Disks = h.Disks[1:] }, rootIn: "none", want: "disk-lost blocks-boot", cause: "disk-lost"},
		{name: "a disk was exchanged", now: func(h *Hardware) { h.Disks[1].Serial = "WD-3" }, add: []Finding{missing}, cause: "fstab-device-missing"},
		{name: "a disk without a name", then: func(r *RecordedHardware) { r.Disks = append(r.Disks, DiskRecord{Size: 1e9}) }, now: func(*Hardware) {}},
		{name: "a card", now: func(h *Hardware) { h.NICs = h.NICs[:1] }, want: "nic-lost degrades"},
		{name: "a card was exchanged", now: func(h *Hardware) { h.NICs[1] = "52:54:00:00:00:99" }},
		{name: "the machine has more", now: func(h *Hardware) {
			h.Memory, h.NICs = 128*gib, append(h.NICs, "52:54:00:00:00:03")
			h.Disks = append(h.Disks, DiskRecord{Serial: "S3"})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			then, now := recorded, sanitizeHardware(recorded.Hardware)
			if tc.then != nil {
				tc.then(&then)
			}
			tc.now(&now)
			var r Report
			r.Record(then)
			root := "/dev/sda1"
			if tc.rootIn == "none" {
				root = ""
			}
			r.Add(&Examination{Hardware: &now, Systems: []ExaminedSystem{{Root: root, Findings: tc.add}}})
			r.Judge()
			var got []string
			for _, f := range r.Findings {
				if len(tc.add) == 0 || f.ID != tc.add[0].ID {
					got = append(got, f.ID+" "+string(f.Severity))
				}
				if len(f.Evidence) == 0 {
					t.Errorf("%s has no evidence", f.ID)
				}
			}
			if strings.Join(got, ", ") != tc.want || r.Verdict.Finding != tc.cause {
				t.Errorf("found %v, cause %q", got, r.Verdict.Finding)
			}
		})
	}
}

// TestHardwareNobodyRecorded: without an inspection, or by an agent that does not say what the machine has, nothing is compared.
func TestHardwareNobodyRecorded(t *testing.T) {
	var r Report
	r.Add(&Examination{Hardware: &Hardware{}})
	r.Record(RecordedHardware{Hardware: Hardware{Memory: 1 << 30, Disks: []DiskRecord{{Serial: "a\x1b[2Jb"}}}})
	r.Add(&Examination{})
	if len(r.Findings) != 0 || strings.Contains(r.Recorded.Disks[0].Serial, "\x1b") {
		t.Errorf("%+v", r)
	}
}
