package system

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

func fileSystemRules() []diagnose.Rule {
	return []diagnose.Rule{
		{IDs: []string{"file-system-damaged"}, Look: lookChecks},
		{IDs: []string{"file-system-not-mounted"}, Look: lookMountErrors},
		{IDs: []string{"file-system-errors-recorded"}, Look: lookErrorFlags},
		{IDs: []string{"superblock-missing"}, Look: lookSuperblocks},
		{IDs: []string{"hibernation-image"}, Look: lookHibernation},
	}
}

// waitsForDevice says what the boot does when a device cannot be mounted, and at which stage.
func waitsForDevice(s *diagnose.System, d *diagnose.Device) (diagnose.Severity, diagnose.Stage) {
	if d.Path == s.Root || s.Files == nil {
		return diagnose.BlocksBoot, diagnose.Root
	}
	for _, e := range config.ParseFstab(config.TableLines(s, config.FstabPath)) {
		if slices.Contains(config.FindDevices(s, config.ParseDeviceName(e.Source)), d) && e.MountSeverity(s) == diagnose.BlocksBoot {
			return diagnose.BlocksBoot, e.Stage()
		}
	}
	return diagnose.Degrades, diagnose.Target
}

// lookChecks reports what the checkers of file systems found.
func lookChecks(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	for _, c := range s.Checks {
		d := config.DeviceAt(s, c.Device)
		if !c.Damaged || d == nil {
			continue
		}
		exit := c.Exit
		f := diagnose.Finding{
			ID: "file-system-damaged", Confidence: 0.95,
			Title:    fmt.Sprintf("The %s on %s is damaged, and its journal does not mend it.", orNothing(d.FS), d.Path),
			Evidence: []diagnose.Evidence{{Kind: diagnose.FromTool, Path: c.Device, Command: c.Command, Exit: &exit, Text: c.Output}},
			Explains: []string{"file-system-not-mounted", "file-system-errors-recorded", "kernel-damaged", "initramfs-damaged", "init-missing"},
			Repair: &diagnose.Repair{Summary: fmt.Sprintf("Let the checker of %s repair %s, after a copy of the disk.", orNothing(d.FS), d.Path), Consent: diagnose.ConsentData,
				Writes: []string{d.Path}, Loses: "Files whose metadata is damaged may lose their names or their content."},
		}
		f.Severity, f.Stage = waitsForDevice(s, d)
		out = append(out, f)
	}
	return out
}

// featurePatterns are texts of the kernel about a file system that is newer than the kernel, or of a kind that it does not have: that is no damage.
var featurePatterns = []string{"unsupported", "unknown feature", "unknown filesystem type", "no such device", "incompat", "not supported", "encoding", "operation not permitted",
	"newer", "feature", "out of memory", "cannot allocate"}

// lookMountErrors reports file systems that the kernel refused, though they are of a kind that it mounts.
func lookMountErrors(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	for i := range s.Devices {
		d := &s.Devices[i]
		text := strings.ToLower(d.MountError)
		if text == "" || !config.MountableTypes[d.FS] || slices.ContainsFunc(featurePatterns, func(p string) bool { return strings.Contains(text, p) }) {
			continue
		}
		f := diagnose.Finding{
			ID: "file-system-not-mounted", Confidence: 0.8,
			Title:    fmt.Sprintf("The %s on %s does not mount: %s.", d.FS, d.Path, strings.TrimSuffix(d.MountError, ".")),
			Evidence: []diagnose.Evidence{config.DeviceEvidence(d.Path, d.MountError)},
			ByHand:   "Copy the disk, then let the checker of the file system repair the copy.",
		}
		f.Severity, f.Stage = waitsForDevice(s, d)
		out = append(out, f)
	}
	return out
}

// lookErrorFlags reports file systems whose superblock says that the kernel found errors.
func lookErrorFlags(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	for i := range s.Devices {
		d := &s.Devices[i]
		if d.Space == nil || !d.Space.ReadOnlyFlags {
			continue
		}
		out = append(out, diagnose.Finding{
			ID: "file-system-errors-recorded", Stage: diagnose.Root, Severity: diagnose.Degrades, Confidence: 0.85,
			Title:    fmt.Sprintf("The superblock of %s says that the kernel found errors in the file system.", d.Path),
			Evidence: []diagnose.Evidence{config.DeviceEvidence(d.Path, "its superblock has the flag for errors")},
			ByHand:   "Let the checker of the file system run at the next boot, and watch the disk: the flag is the reason for a root that turned read-only.",
		})
	}
	return out
}

// wantedUUIDs are the UUIDs of file systems that a boot waits for, by fstab and the boot loader, and that no device answers to.
func wantedUUIDs(s *diagnose.System) map[string]bool {
	if s.Files == nil {
		return nil
	}
	out := map[string]bool{}
	add := func(text string) {
		if n := config.ParseDeviceName(text); n.Tag == "UUID" && len(config.FindDevices(s, n)) == 0 {
			out[strings.ToLower(n.Value)] = true
		}
	}
	for _, e := range config.ParseFstab(config.TableLines(s, config.FstabPath)) {
		if e.MountSeverity(s) == diagnose.BlocksBoot {
			add(e.Source)
		}
	}
	for _, e := range loadEntries(s) {
		add(rootArgument(e.Options))
	}
	return out
}

// lookSuperblocks finds partitions in which a probe found nothing, but which hold a backup of a superblock that somebody asks for.
func lookSuperblocks(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	wanted := wantedUUIDs(s)
	for i := range s.Devices {
		d := &s.Devices[i]
		if d.FS != "" || d.Content == nil || d.Table != "" || d.NotExamined != "" || d.PartType == "0x5" || d.PartType == "0xf" {
			continue
		}
		kind, uuid, at := backupSuperblock(d.Content, d.Size)
		if kind == "" || (wanted != nil && !wanted[uuid]) {
			continue
		}
		f := diagnose.Finding{
			ID: "superblock-missing", Stage: diagnose.Root, Severity: diagnose.BlocksBoot, Confidence: 0.9,
			Title:    fmt.Sprintf("The device %s has lost the superblock of its %s, whose backup is whole.", d.Path, kind),
			Evidence: []diagnose.Evidence{config.DeviceEvidence(d.Path, fmt.Sprintf("nothing at the place of the superblock, a backup with UUID %s at byte %d", uuid, at))},
			Explains: []string{"fstab-device-missing", "root-argument-missing", "grub-search-missing", "grub-stub-search-missing", "esp-missing"},
			Repair: &diagnose.Repair{Summary: fmt.Sprintf("Restore the superblock of %s from its backup, after a copy of the disk.", d.Path), Consent: diagnose.ConsentData,
				Writes: []string{d.Path}, Loses: "What was written to the file system last may be lost."},
		}
		if wanted == nil { // the root itself may be the one that is lost
			f.Confidence = 0.7
		}
		out = append(out, f)
	}
	return out
}

// backupSuperblock finds a backup of a superblock at its usual place, in a file system that fits the device and whose primary one is gone.
func backupSuperblock(r io.ReaderAt, size int64) (kind, uuid string, at int64) {
	read := func(at int64, n int) []byte {
		b := make([]byte, n)
		if at < 0 || at+int64(n) > size {
			return b
		}
		if _, err := r.ReadAt(b, at); err != nil {
			clear(b)
		}
		return b
	}
	le := binary.LittleEndian
	if le.Uint16(read(1024, 1024)[0x38:]) != 0xef53 {
		for _, block := range []int64{4096, 1024, 2048} {
			at := 8 * block * block
			if block == 1024 {
				at += block
			}
			b := read(at, 1024)
			blocks := int64(le.Uint32(b[4:]))
			if le.Uint16(b[0x38:]) == 0xef53 && int64(1024)<<min(le.Uint32(b[0x18:]), 6) == block && blocks > 0 && blocks*block <= size && le.Uint16(b[0x5a:]) == 1 {
				return "ext4", formatUUID(b[0x68:0x78]), at
			}
		}
	}
	const btrfs = "_BHRfS_M"
	if string(read(64<<10, 4096)[64:72]) != btrfs {
		if b := read(64<<20, 4096); string(b[64:72]) == btrfs && int64(le.Uint64(b[48:])) == 64<<20 {
			return "btrfs", formatUUID(b[32:48]), 64 << 20
		}
	}
	if string(read(0, 512)[:4]) != "XFSB" {
		at := (size/4096 + 3) / 4 * 4096 // mkfs.xfs makes four groups by default
		be := binary.BigEndian
		if b := read(at, 512); string(b[:4]) == "XFSB" && be.Uint32(b[4:]) == 4096 && int64(be.Uint64(b[8:])) <= size/4096 && int64(be.Uint32(b[84:]))*4096 == at {
			return "xfs", formatUUID(b[32:48]), at
		}
	}
	return "", "", 0
}

func formatUUID(b []byte) string {
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// hibernationMarks stand where a swap space has SWAPSPACE2, at the end of its first page.
var hibernationMarks = []string{"S1SUSPEND", "S2SUSPEND", "ULSUSPEND", "LINHIB0001"}

// lookHibernation finds images of suspended systems: whatever is written to the disks then is lost or does harm when the image is resumed.
func lookHibernation(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	for i := range s.Devices {
		d := &s.Devices[i]
		if d.Content == nil || (d.FS != "swap" && d.FS != "swsuspend") {
			continue
		}
		mark := make([]byte, 10)
		if _, err := d.Content.ReadAt(mark, 4086); err != nil {
			continue
		}
		if !slices.ContainsFunc(hibernationMarks, func(m string) bool { return strings.HasPrefix(string(mark), m) }) {
			continue
		}
		out = append(out, diagnose.Finding{
			ID: "hibernation-image", Stage: diagnose.Initramfs, Severity: diagnose.Info, Confidence: 0.95,
			Title:    fmt.Sprintf("The device %s holds the image of a suspended system, so that nothing may be repaired before it is resumed or discarded.", d.Path),
			Evidence: []diagnose.Evidence{config.DeviceEvidence(d.Path, "the mark "+strings.TrimRight(string(mark), "\x00")+" at byte 4086")},
			ByHand:   "Start the system so that it resumes, or discard the image with mkswap and the old UUID; unsaved work of the suspended system is lost then.",
		})
	}
	return out
}
