package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Hardware is what a machine consists of, as far as its loss can keep a system from booting.
type Hardware struct {
	// Memory in bytes; 0: not known.
	Memory int64        `json:"memory"`
	Disks  []DiskRecord `json:"disks"`
	// NICs are MAC addresses in lower case, with colons.
	NICs []string `json:"nics"`
}

// DiskRecord names a disk for good: by its serial number or its WWN, one of which may be empty.
type DiskRecord struct {
	Model  string `json:"model,omitempty"`
	Serial string `json:"serial,omitempty"`
	WWN    string `json:"wwn,omitempty"`
	Size   int64  `json:"size"` // bytes
}

// RecordedHardware is what an inspection found.
type RecordedHardware struct {
	At time.Time `json:"at"`
	Hardware
	// Fitted: Memory is what the modules hold, and not what a kernel may use, which is a few percent less.
	Fitted bool `json:"fitted,omitempty"`
}

// Change is something that someone did to the machine through salvor.
type Change struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// Shares of the recorded memory that a machine must still have. Two kernels differ by less in what they count.
const (
	leastUsable = 0.96 // of what a kernel counted
	leastFitted = 0.88 // of what the modules hold
)

// lostParts compares the hardware of now with what an inspection recorded. Disks and NICs that were exchanged are no loss.
func lostParts(then *RecordedHardware, now *Hardware) []Finding {
	record := func(format string, args ...any) Evidence {
		return Evidence{Kind: FromRecord, At: then.At, Text: Excerpt("inspection: " + fmt.Sprintf(format, args...))}
	}
	found := func(format string, args ...any) Evidence {
		return Evidence{Kind: FromDevice, Text: Excerpt("now: " + fmt.Sprintf(format, args...))}
	}
	var out []Finding
	least := leastUsable
	if then.Fitted {
		least = leastFitted
	}
	if then.Memory > 0 && now.Memory > 0 && float64(now.Memory) < least*float64(then.Memory) {
		out = append(out, Finding{ID: "memory-lost", Stage: Firmware, Severity: Degrades, Confidence: 0.9, Explains: memoryConsequences,
			Title:    fmt.Sprintf("The machine has %d MiB of memory, and had %d MiB when it was inspected.", now.Memory>>20, then.Memory>>20),
			Evidence: []Evidence{record("%d MiB", then.Memory>>20), found("%d MiB", now.Memory>>20)},
			ByHand:   "Look for a memory module that failed or was taken out; if that was on purpose, inspect the node again."})
	}
	lost := slices.DeleteFunc(slices.Clone(then.Disks), func(d DiskRecord) bool {
		return !d.isNamed() || slices.ContainsFunc(now.Disks, d.isSame)
	})
	added := slices.DeleteFunc(slices.Clone(now.Disks), func(d DiskRecord) bool {
		return slices.ContainsFunc(then.Disks, d.isSame)
	})
	if len(lost) > len(added) {
		f := Finding{ID: "disk-lost", Stage: Root, Severity: Degrades, Confidence: 0.9, Explains: diskConsequences,
			Title:  fmt.Sprintf("The machine has %d disks, and had %d when it was inspected: %s is gone.", len(now.Disks), len(then.Disks), lost[0].name()),
			ByHand: "Look at the disk, its cable and its controller; a RAID controller may hide a disk that it calls foreign or failed."}
		for _, d := range lost[:min(len(lost), 5)] {
			f.Evidence = append(f.Evidence, record("%s", d.name()))
		}
		out = append(out, f)
	}
	lostNICs, newNICs := missingNames(then.NICs, now.NICs), missingNames(now.NICs, then.NICs)
	if len(now.NICs) > 0 && len(lostNICs) > len(newNICs) {
		out = append(out, Finding{ID: "nic-lost", Stage: Network, Severity: Degrades, Confidence: 0.9, Explains: nicConsequences,
			Title:    fmt.Sprintf("The machine has %d network interfaces, and had %d when it was inspected: %s is gone.", len(now.NICs), len(then.NICs), lostNICs[0]),
			Evidence: []Evidence{record("%s", strings.Join(lostNICs, ", ")), found("%s", strings.Join(now.NICs, ", "))},
			ByHand:   "Look whether the card failed, was taken out, or is switched off in the settings of the firmware."})
	}
	return out
}

// Ids of findings that a lost part explains.
var (
	memoryConsequences = []string{"out-of-memory-at-boot", "hugepages-too-many", "console-out-of-memory"}
	diskConsequences   = []string{"fstab-device-missing", "root-argument-missing", "dracut-argument-missing", "resume-device-missing", "crypttab-device-missing",
		"volume-group-incomplete", "array-not-started", "array-degraded", "esp-missing", "efi-boot-entry-missing", "efi-entry-stale"}
	nicConsequences = []string{"network-interface-missing", "network-mac-changed"}
)

// isNamed: it has something by which it is found again.
func (d DiskRecord) isNamed() bool { return d.Serial != "" || d.WWN != "" }

// isSame compares what both records have. Programs write serial numbers with other blanks and letters.
func (d DiskRecord) isSame(other DiskRecord) bool {
	return d.Serial != "" && plainName(d.Serial) == plainName(other.Serial) || d.WWN != "" && plainName(d.WWN) == plainName(other.WWN)
}

func plainName(text string) string {
	return strings.TrimPrefix(strings.ToLower(strings.Join(strings.Fields(text), "")), "0x")
}

func (d DiskRecord) name() string {
	return strings.Join(strings.Fields(fmt.Sprintf("%s with the serial number %s (%d MB)", cmp.Or(d.Model, "a disk"), cmp.Or(d.Serial, d.WWN), d.Size/1e6)), " ")
}

// missingNames are those of the first list that the second one lacks, whatever the case of letters.
func missingNames(of, in []string) []string {
	return slices.DeleteFunc(slices.Clone(of), func(name string) bool {
		return slices.ContainsFunc(in, func(other string) bool { return strings.EqualFold(name, other) })
	})
}

// addLosses adds what the machine lost since its inspection. A loss is why a machine does not boot where something that blocks it follows from it.
func (r *Report) addLosses(now *Hardware) {
	if r.Recorded == nil || now == nil {
		return
	}
	for _, f := range lostParts(r.Recorded, now) {
		for _, other := range r.Findings {
			if other.blocks() && slices.Contains(f.Explains, other.ID) && f.Severity == Degrades {
				f.Severity = other.Severity
			}
		}
		if f.ID == "disk-lost" && len(r.Systems) == 0 { // it held the only system
			f.Severity, f.Confidence = BlocksBoot, 0.8
		}
		r.Findings = append(r.Findings, f)
	}
}

// sanitizeHardware bounds what an agent or an inspection says.
func sanitizeHardware(h Hardware) Hardware {
	out := Hardware{Memory: max(h.Memory, 0), Disks: []DiskRecord{}, NICs: []string{}}
	for _, d := range h.Disks[:min(len(h.Disks), maxParts)] {
		out.Disks = append(out.Disks, DiskRecord{Excerpt(d.Model), Excerpt(d.Serial), Excerpt(d.WWN), max(d.Size, 0)})
	}
	for _, mac := range h.NICs[:min(len(h.NICs), maxParts)] {
		out.NICs = append(out.NICs, Excerpt(mac))
	}
	return out
}

// Record has the report compare what an agent finds with what an inspection found.
func (r *Report) Record(then RecordedHardware) {
	then.Hardware = sanitizeHardware(then.Hardware)
	r.Recorded = &then
}
