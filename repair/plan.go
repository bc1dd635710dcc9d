package repair

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"salvor/diagnose"
)

// PlanVersion is the version of the document that an agent of this release makes.
const PlanVersion = 1

// Plan is what a repair would change. An agent makes it on overlays, before anything is written to a disk.
type Plan struct {
	Version int `json:"version"`
	// Digest names the plan: the owner consents to it. It does not change from one boot of the ramdisk to another, as long as the disks do not.
	Digest string `json:"digest"`
	// Mended lists the ids of the findings that are gone from the overlays after the repair.
	Mended []string `json:"mended"`
	// NotMended lists what was asked for and is not mended.
	NotMended []NotMended `json:"not_mended"`
	// Consents lists what the owner has to agree to, in the order settings, files, boot.
	Consents []diagnose.Consent `json:"consents"`
	Files    []FileChange       `json:"files"`
	Blocks   []BlockChange      `json:"blocks"`
	Settings []Setting          `json:"settings"`
	Disks    []DiskChange       `json:"disks"`
	// Commands lists the programs of the system that ran on the overlay.
	Commands []CommandRun `json:"commands"`
	// HostKeys are the public ssh host keys of the repaired systems ("TYPE BASE64"), by which a machine proves that it has booted one of them. They
	// are no part of the digest.
	HostKeys []string `json:"ssh_host_keys"`
	// Before are the findings of the examination before the repair, After those of the examination of the repaired overlays.
	Before diagnose.Examination `json:"before"`
	After  diagnose.Examination `json:"after"`
}

// LoginProves tells whether a login prompt on the console proves the repair: the disks have one system, and nothing that the repair mends lets people in
// over the network or by a login.
func (p *Plan) LoginProves() bool {
	if len(p.Before.Systems) > 1 {
		return false // another one may have booted
	}
	stages := diagnose.Stages()
	for _, system := range p.Before.Systems {
		for _, f := range system.Findings {
			if slices.Contains(p.Mended, f.ID) && slices.Index(stages, f.Stage) > slices.Index(stages, diagnose.Target) {
				return false
			}
		}
	}
	return true
}

// Loss is what the mend of a finding may lose.
type Loss struct {
	Finding string `json:"finding"`
	Text    string `json:"text"`
}

// Losses are what the plan may lose: an owner reads them beside the digest that the consent names. A mend that leaves some of its finding has changed the
// disk all the same, and counts. So does the state of a machine in which any write may be lost.
func (p *Plan) Losses() []Loss {
	var out []Loss
	for _, system := range p.Before.Systems {
		for _, f := range system.Findings {
			text := ""
			if f.Repair != nil && p.changesFor(f.ID, system.Root) {
				text = f.Repair.Loses
			} else if state := losingStates[f.ID]; state != "" && p.changesDisks(system.Root) {
				text = f.Title + " " + state
			}
			if loss := (Loss{f.ID, text}); text != "" && !slices.Contains(out, loss) {
				out = append(out, loss)
			}
		}
	}
	return out
}

// losingStates are findings about a machine on which a write may be lost or be divided, by id, with what may happen.
var losingStates = map[string]string{
	"array-degraded":     "A member that is missing gets nothing of what is written to the array, and may hold newer data. Add it again as a new member only.",
	"identity-duplicate": "If the repair changes one of them, the next boot may use the other one.",
}

// changesDisks says whether the plan changes files of the system on a root, or blocks of a disk.
func (p *Plan) changesDisks(root string) bool {
	return len(p.Blocks) > 0 || slices.ContainsFunc(p.Files, func(f FileChange) bool { return f.Root == root })
}

// changesFor says whether the plan changes something for a finding of the system on a root. A change outside of files names no system.
func (p *Plan) changesFor(finding, root string) bool {
	if slices.ContainsFunc(p.Blocks, func(b BlockChange) bool { return slices.Contains(b.Findings, finding) }) {
		return true
	}
	hasFiles := false
	for _, f := range p.Files {
		if slices.Contains(f.Findings, finding) {
			if f.Root == root {
				return true
			}
			hasFiles = true
		}
	}
	return !hasFiles && slices.Contains(p.Mended, finding)
}

// Check tells what a plan of an agent holds that no agent of this release writes: a consent that nobody can give, or a setting of another kind or value.
// An agent runs on the machine that it repairs, and consents are printed in commands that an administrator is told to type.
func (p *Plan) Check() error {
	for _, need := range p.Consents {
		if !slices.Contains([]diagnose.Consent{diagnose.ConsentSettings, diagnose.ConsentFiles, diagnose.ConsentBoot}, need) {
			return fmt.Errorf("it needs the consent %q, which nobody can give", diagnose.Excerpt(string(need)))
		}
	}
	for _, s := range p.Settings {
		switch s.Kind {
		case BootOrder, BootEntry, Clock:
		case BootDevice:
			if !slices.Contains(bootDevices, s.After) {
				return fmt.Errorf("it sets the boot device %q; a plan may set %s", diagnose.Excerpt(s.After), strings.Join(bootDevices, ", "))
			}
		default:
			return fmt.Errorf("it has a setting of the unknown kind %q", diagnose.Excerpt(string(s.Kind)))
		}
	}
	return nil
}

// bootDevices are the values of the setting boot-device.
var bootDevices = []string{"disk", "pxe", "cdrom"}

// NotMended is a finding that a plan leaves.
type NotMended struct {
	Finding string `json:"finding"`
	Why     string `json:"why"`
}

// FileChange is one file, link or folder that a repair changes.
type FileChange struct {
	// Root is the device of the root file system of the system that the file belongs to.
	Root string `json:"root"`
	// Path is absolute in the system, without links.
	Path     string           `json:"path"`
	Consent  diagnose.Consent `json:"consent"`
	Findings []string         `json:"findings"`
	// Before and After describe it; null: it does not exist.
	Before *FileState `json:"before"`
	After  *FileState `json:"after"`
	// MadeBy is the program that wrote it; the digest does not cover what it wrote. Empty for a file that salvor edits.
	MadeBy string `json:"made_by,omitempty"`
	// Diff is the change of a text file as unified lines, of at most 16 KiB, with secrets masked.
	Diff string `json:"diff,omitempty"`
}

// FileState describes a file. Undo compares it before it restores anything.
type FileState struct {
	Kind string `json:"kind"` // file, link, folder
	Size int64  `json:"size"`
	// SHA256 of a file's content in hexadecimal; empty for a link and a folder.
	SHA256 string `json:"sha256,omitempty"`
	Target string `json:"target,omitempty"` // of a link
	Mode   uint32 `json:"mode"`             // as in stat(2), without the type
	UID    uint32 `json:"uid"`
	GID    uint32 `json:"gid"`
	// ModTime is in nanoseconds since 1970. It is no part of the digest.
	ModTime int64 `json:"mtime"`
	// Attributes are the extended attributes, labels and ACLs among them.
	Attributes map[string][]byte `json:"attributes,omitempty"`
}

// BlockChange is a range of a device outside of file systems that a repair writes.
type BlockChange struct {
	Device   string   `json:"device"`
	Offset   int64    `json:"offset"`
	Length   int64    `json:"length"`
	Before   string   `json:"before"` // SHA-256 in hexadecimal
	After    string   `json:"after"`
	MadeBy   string   `json:"made_by,omitempty"`
	Findings []string `json:"findings"`
}

// DiskChange sums up what is written to one disk.
type DiskChange struct {
	Path   string `json:"path"`
	Serial string `json:"serial,omitempty"`
	WWN    string `json:"wwn,omitempty"`
	Size   int64  `json:"size"`
	// Chunks is how many chunks of ChunkSize bytes differ, journals that were replayed among them.
	Chunks int64 `json:"chunks"`
}

// ChunkSize is the size of a chunk in bytes.
const ChunkSize = 4096

// CommandRun is a program that ran on the overlay.
type CommandRun struct {
	Command []string `json:"command"`
	Exit    int      `json:"exit"`
	Output  string   `json:"output,omitempty"` // the last 4 KiB, made harmless
}

// Seal sorts the plan and computes its digest: over the disks it is about, the findings, and each change as it was before and as it is after,
// but for what a program of the system made, of which only the state before and the program count.
func (p *Plan) Seal() {
	slices.Sort(p.Mended)
	type change struct {
		Root, Path, MadeBy string
		Before, After      *FileState
	}
	type disk struct {
		Serial, WWN string
		Size        int64
	}
	covered := struct {
		Version  int
		Mended   []string
		Consents []diagnose.Consent
		Files    []change
		Blocks   []BlockChange
		Settings []Setting
		Disks    []disk
	}{Version: p.Version, Mended: p.Mended, Consents: p.Consents, Settings: p.Settings}
	for _, f := range p.Files {
		c := change{f.Root, f.Path, f.MadeBy, withoutTime(f.Before), withoutTime(f.After)}
		if f.MadeBy != "" {
			c.After = nil
		}
		covered.Files = append(covered.Files, c)
	}
	for _, b := range p.Blocks {
		if b.MadeBy != "" {
			b.After = ""
		}
		covered.Blocks = append(covered.Blocks, b)
	}
	for _, d := range p.Disks {
		covered.Disks = append(covered.Disks, disk{d.Serial, d.WWN, d.Size})
	}
	b, err := json.Marshal(covered)
	if err != nil {
		panic(err) // all of its types can be encoded
	}
	sum := sha256.Sum256(b)
	p.Digest = hex.EncodeToString(sum[:])
}

func withoutTime(s *FileState) *FileState {
	if s == nil {
		return nil
	}
	c := *s
	c.ModTime = 0
	return &c
}
