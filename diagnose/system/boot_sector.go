package system

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

const bootCodeSize = 440 // bytes of an MBR before its signature and its table

func bootSectorRules() []diagnose.Rule {
	return []diagnose.Rule{
		{IDs: []string{"mbr-boot-code-missing", "grub-core-damaged"}, Files: true, Look: lookBootCode},
		{IDs: []string{"gpt-primary-damaged", "gpt-backup-damaged", "gpt-backup-misplaced"}, Look: lookGPT},
	}
}

// installedForBIOS says whether the system has a boot loader for BIOS.
func installedForBIOS(s *diagnose.System) bool {
	for _, name := range []string{"/boot/grub/i386-pc", "/boot/grub2/i386-pc", "/boot/ldlinux.sys", "/boot/extlinux/ldlinux.sys", "/boot/syslinux/ldlinux.sys"} {
		if s.Files.Exists(name) {
			return true
		}
	}
	return false
}

// readPiece reads a part of a device; zeros where it cannot be read.
func readPiece(r io.ReaderAt, at int64, n int) []byte {
	b := make([]byte, n)
	if at < 0 {
		return b
	}
	if got, err := r.ReadAt(b, at); err != nil && got < n {
		clear(b[got:])
	}
	return b
}

func isZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// bootDisks are the disks that hold /boot.
func bootDisks(s *diagnose.System) []*diagnose.Device {
	d := deviceOfBoot(s)
	if d == nil {
		return nil
	}
	var out []*diagnose.Device
	for _, a := range config.Ancestors(s, d.Path) {
		if a.Kind == diagnose.DiskDevice && a.Content != nil {
			out = append(out, a)
		}
	}
	return out
}

// hasBootCode says whether a disk of the machine has code in its boot sector.
func hasBootCode(s *diagnose.System) bool {
	for i := range s.Devices {
		if d := &s.Devices[i]; d.Kind == diagnose.DiskDevice && d.Content != nil && !isZero(readPiece(d.Content, 0, bootCodeSize)) {
			return true
		}
	}
	return false
}

// otherBootDisk is a disk that does not hold /boot and has code in its boot sector; empty without one.
func otherBootDisk(s *diagnose.System) string {
	own := bootDisks(s)
	for i := range s.Devices {
		if d := &s.Devices[i]; d.Kind == diagnose.DiskDevice && d.Content != nil && !slices.Contains(own, d) && !isZero(readPiece(d.Content, 0, bootCodeSize)) {
			return d.Path
		}
	}
	return ""
}

// lookBootCode reads what a BIOS starts: the boot sector, and the core image of GRUB.
func lookBootCode(s *diagnose.System) []diagnose.Finding {
	if s.Firmware.UEFI || !installedForBIOS(s) {
		return nil
	}
	var out []diagnose.Finding
	whole := 0
	for _, d := range bootDisks(s) {
		sector := readPiece(d.Content, 0, 512)
		f := diagnose.Finding{Stage: diagnose.Loader, Severity: diagnose.BlocksBoot, Confidence: 0.9,
			Repair: &diagnose.Repair{Summary: fmt.Sprintf("Write the boot code and the core image of the system's own GRUB to %s.", d.Path), Consent: diagnose.ConsentBoot,
				Writes: []string{d.Path + ": its first sector, and the sectors before its first partition or its BIOS boot partition"}}}
		switch damage := grubCoreDamage(d.Content, sector); {
		case isZero(sector[:bootCodeSize]) || sector[510] != 0x55 || sector[511] != 0xaa:
			f.ID, f.Title = "mbr-boot-code-missing", fmt.Sprintf("The boot sector of %s holds no boot code.", d.Path)
			f.Evidence = []diagnose.Evidence{config.DeviceEvidence(d.Path, "the first 440 bytes are zeros, or the sector does not end in 55 aa")}
			if d.Table == "gpt" && !hasBIOSPartition(s, d) {
				f.Repair, f.ByHand = nil, "The disk has no BIOS boot partition either; make one before you run grub-install."
			}
		case damage != "":
			f.ID, f.Title = "grub-core-damaged", fmt.Sprintf("The core image of GRUB on %s is damaged.", d.Path)
			f.Evidence = []diagnose.Evidence{config.DeviceEvidence(d.Path, damage)}
		default:
			whole++
			continue
		}
		if other := otherBootDisk(s); other != "" && f.Repair != nil {
			f.Repair.Loses = fmt.Sprintf("The firmware may start %s in the place of %s, which has boot code too, and so another system than now.", d.Path, other)
		}
		if f.Repair != nil && GrubInstaller(s) == "" {
			f.Repair, f.ByHand = nil, "Install the boot loader again, from the system in a rescue."
		}
		out = append(out, f)
	}
	if whole > 0 { // another disk of the array boots
		for i := range out {
			out[i].Severity = diagnose.Degrades
		}
	}
	return out
}

func hasBIOSPartition(s *diagnose.System, disk *diagnose.Device) bool {
	for i := range s.Devices {
		if d := &s.Devices[i]; strings.EqualFold(d.PartType, biosTypeGUID) && len(d.Parents) == 1 && d.Parents[0] == disk.Path {
			return true
		}
	}
	return false
}

// grubCoreDamage follows the boot sector of GRUB to its core image; empty where it is whole or where the boot sector is of another loader.
// The places are those of boot.S and diskboot.S of GRUB.
func grubCoreDamage(r io.ReaderAt, sector []byte) string {
	le := binary.LittleEndian
	if !bytes.Contains(sector[:bootCodeSize], []byte("GRUB ")) || !bytes.Contains(sector[:bootCodeSize], []byte("Geom")) {
		return ""
	}
	start := le.Uint64(sector[0x5c:])
	if start == 0 || start > 1<<40 {
		return ""
	}
	first := readPiece(r, int64(start)*512, 512)
	switch {
	case isZero(first):
		return fmt.Sprintf("the boot sector starts sector %d, which holds zeros", start)
	case !bytes.Contains(first, []byte("loading")) && !bytes.Contains(first, []byte("Geom")):
		return fmt.Sprintf("the boot sector starts sector %d, which is no core image of GRUB", start)
	}
	next, count := le.Uint64(first[0x1f4:]), int64(le.Uint16(first[0x1fc:]))
	if next == 0 || next > 1<<40 || count == 0 {
		return ""
	}
	if isZero(readPiece(r, int64(next)*512, int(min(count, 4))*512)) {
		return fmt.Sprintf("the core image goes on at sector %d, which holds zeros", next)
	}
	return ""
}

// gptCopy is one copy of a GPT.
type gptCopy struct {
	valid bool
	other uint64 // the sector of the other copy
	first uint64 // the first sector that partitions may use
	// partitions that are in use
	partitions int
}

// readGPT checks the copy of a GPT at a sector, by the checksums of its header and of its entries. See chapter 5.3 of the UEFI specification.
func readGPT(r io.ReaderAt, at uint64, sector, size int64) gptCopy {
	le := binary.LittleEndian
	head := readPiece(r, int64(at)*sector, 512)
	length := le.Uint32(head[12:])
	if string(head[:8]) != "EFI PART" || length < 92 || length > 512 || le.Uint64(head[24:]) != at {
		return gptCopy{}
	}
	sum := bytes.Clone(head[:length])
	clear(sum[16:20])
	count, one, table := int64(le.Uint32(head[80:])), int64(le.Uint32(head[84:])), le.Uint64(head[72:])
	if crc32.ChecksumIEEE(sum) != le.Uint32(head[16:]) || one < 128 || one > 4096 || count < 1 || count*one > 1<<20 || table > uint64(size/sector) {
		return gptCopy{}
	}
	entries := readPiece(r, int64(table)*sector, int(count*one))
	out := gptCopy{valid: crc32.ChecksumIEEE(entries) == le.Uint32(head[88:]), other: le.Uint64(head[32:]), first: le.Uint64(head[40:])}
	for i := range count {
		if !isZero(entries[i*one:][:16]) {
			out.partitions++
		}
	}
	return out
}

// lookGPT compares both copies of each disk's GPT.
func lookGPT(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	for i := range s.Devices {
		d := &s.Devices[i]
		if d.Kind != diagnose.DiskDevice || d.Content == nil || d.Size < 1<<20 || d.FS != "" || d.Table == "dos" {
			continue
		}
		for _, sector := range []int64{512, 4096} {
			if f := judgeGPT(d, sector); f != nil {
				out = append(out, *f)
				break
			}
		}
	}
	return out
}

func judgeGPT(d *diagnose.Device, sector int64) *diagnose.Finding {
	last := uint64(d.Size/sector - 1)
	primary, backup := readGPT(d.Content, 1, sector, d.Size), readGPT(d.Content, last, sector, d.Size)
	f := &diagnose.Finding{Stage: diagnose.Root, Confidence: 0.95}
	switch {
	case !primary.valid && backup.valid && backup.partitions > 0:
		mbr := readPiece(d.Content, 0, 512)
		head := readPiece(d.Content, sector, int(min(int64(backup.first-1)*sector, 1<<20)))
		isProtective, hasHeader := mbr[446+4] == 0xee, string(head[:8]) == "EFI PART"
		if !isProtective && !(isZero(mbr) && (hasHeader || isZero(head))) || d.NotExamined != "" { // the disk has other content, and the backup is a leftover
			return nil
		}
		f.ID, f.Severity = "gpt-primary-damaged", diagnose.BlocksBoot
		f.Title = fmt.Sprintf("The partition table of %s is damaged, and its backup at the end of the disk is whole with %d partitions.", d.Path, backup.partitions)
		f.Evidence = []diagnose.Evidence{config.DeviceEvidence(d.Path, fmt.Sprintf("no valid GPT at sector 1, a valid one at sector %d", last))}
		f.Explains = []string{"fstab-device-missing", "root-argument-missing", "esp-missing", "mbr-boot-code-missing", "efi-boot-entry-missing"}
		f.Repair = &diagnose.Repair{Summary: fmt.Sprintf("Write the primary partition table of %s anew from its backup.", d.Path), Consent: diagnose.ConsentBoot,
			Writes: []string{fmt.Sprintf("%s: sectors 0 to %d", d.Path, backup.first-1)}}
	case primary.valid && !backup.valid && primary.other < last:
		f.ID, f.Severity = "gpt-backup-misplaced", diagnose.Info
		f.Title = fmt.Sprintf("The backup of the partition table of %s is not at the end of the disk, because the disk has grown.", d.Path)
		f.Evidence = []diagnose.Evidence{config.DeviceEvidence(d.Path, fmt.Sprintf("the backup is at sector %d of %d", primary.other, last))}
	case primary.valid && !backup.valid:
		f.ID, f.Severity = "gpt-backup-damaged", diagnose.Degrades
		f.Title = fmt.Sprintf("The backup of the partition table of %s is damaged.", d.Path)
		f.Evidence = []diagnose.Evidence{config.DeviceEvidence(d.Path, fmt.Sprintf("no valid GPT at sector %d", last))}
		f.Repair = &diagnose.Repair{Summary: fmt.Sprintf("Write the backup of the partition table of %s anew from the primary one.", d.Path), Consent: diagnose.ConsentBoot,
			Writes: []string{d.Path + ": its last 33 sectors"}}
	default:
		return nil
	}
	return f
}
