package system

import (
	"strings"
	"testing"

	"salvor/diagnose"
)

func init() {
	type change = func(*testing.T, *installed)
	entries := func(set func(*diagnose.FirmwareState)) change {
		return func(_ *testing.T, in *installed) { set(&in.Firmware) }
	}
	esp := func(name, text string) change { return func(_ *testing.T, in *installed) { in.espFile(name, text) } }
	remove := func(name string) change { return func(_ *testing.T, in *installed) { in.remove(name) } }
	noEntry := entries(func(f *diagnose.FirmwareState) { f.Entries = f.Entries[:2] })
	fallback := esp("/EFI/BOOT/BOOTX64.EFI", peFile(peAMD64))
	both := func(changes ...change) change {
		return func(t *testing.T, in *installed) {
			for _, change := range changes {
				change(t, in)
			}
		}
	}
	disk := func(name string, set func(*sparseDisk)) change {
		return func(t *testing.T, in *installed) { set(in.device(t, name).Content.(*sparseDisk)) }
	}
	zeros := func(at int64, n int) func(*sparseDisk) {
		return func(d *sparseDisk) {
			for start, piece := range d.pieces {
				changed := append([]byte(nil), piece...)
				for i := range changed {
					if start+int64(i) >= at && start+int64(i) < at+int64(n) {
						changed[i] = 0
					}
				}
				d.pieces[start] = changed
			}
		}
	}
	last := 20*gib/sectorSize - 1
	nothing := func(*testing.T, *installed) {}
	ruleCases = append(ruleCases, []ruleCase{
		{"no partition of the type", "debian-uefi", "esp-missing", diagnose.BlocksBoot, func(t *testing.T, in *installed) { in.dropDevice(t, "/dev/vda1") }},
		{"another type", "debian-uefi", "esp-missing", nearMiss, func(t *testing.T, in *installed) { in.device(t, "/dev/vda1").PartType = linuxType }},
		{"not formatted", "debian-uefi", "esp-damaged", diagnose.BlocksBoot, func(t *testing.T, in *installed) {
			d := in.device(t, "/dev/vda1")
			d.FS, d.UUID, d.MountedAt, d.Space = "", "", "", nil
			in.espAt = ""
		}},
		{"not examined", "debian-uefi", "esp-damaged", nearMiss, func(t *testing.T, in *installed) {
			d := in.device(t, "/dev/vda1")
			d.FS, d.MountedAt, d.NotExamined = "", "", "it could not be read"
			in.espAt = ""
		}},
		{"no entry", "debian-uefi", "efi-boot-entry-missing", diagnose.BlocksBoot, noEntry},
		{"an entry for another partition", "debian-uefi", "efi-boot-entry-missing", diagnose.BlocksBoot, entries(func(f *diagnose.FirmwareState) { f.Entries[2].PartUUID = deadUUID })},
		{"an entry for a loader that was removed", "debian-uefi", "efi-boot-entry-missing", diagnose.BlocksBoot, entries(func(f *diagnose.FirmwareState) { f.Entries[2].Path = `\EFI\old\grubx64.efi` })},
		{"a loader that needs no entry", "debian-uefi", "efi-boot-entry-missing", nearMiss, both(noEntry, fallback)},
		{"left out", "debian-uefi", "efi-boot-order", diagnose.BlocksBoot, entries(func(f *diagnose.FirmwareState) { f.Order = []uint16{0, 1} })},
		{"switched off", "debian-uefi", "efi-boot-order", diagnose.BlocksBoot, entries(func(f *diagnose.FirmwareState) { f.Entries[2].Active = false })},
		{"last in the order", "debian-uefi", "efi-boot-order", nearMiss, entries(func(f *diagnose.FirmwareState) { f.Order = []uint16{0, 1, 3} })},
		{"shim", "debian-uefi", "efi-loader-missing", diagnose.BlocksBoot, remove("/EFI/debian/shimx64.efi")},
		{"GRUB beside shim", "debian-uefi", "efi-loader-missing", diagnose.BlocksBoot, remove("/EFI/debian/grubx64.efi")},
		{"all loaders", "debian-uefi", "efi-loader-missing", diagnose.BlocksBoot, both(noEntry, remove("/EFI"))},
		{"all loaders, beside a partition that was never formatted", "debian-uefi", "efi-loader-missing", diagnose.BlocksBoot, both(both(noEntry, remove("/EFI")), func(_ *testing.T, in *installed) {
			in.Devices = append(in.Devices, diagnose.Device{Path: "/dev/sdb1", PartType: espType})
		})},
		{"all loaders, beside a partition that was not examined", "debian-uefi", "efi-loader-missing", nearMiss, both(both(noEntry, remove("/EFI")), func(_ *testing.T, in *installed) {
			in.Devices = append(in.Devices, diagnose.Device{Path: "/dev/sdb1", PartType: espType, NotExamined: "its disk was full"})
		})},
		{"of Windows", "debian-uefi", "efi-loader-missing", nearMiss, entries(func(f *diagnose.FirmwareState) {
			f.Entries = append(f.Entries, diagnose.BootEntry{Number: 4, Name: "Windows", Active: true, PartUUID: espPart, Path: `\EFI\Microsoft\Boot\bootmgfw.efi`})
			f.Order = append(f.Order, 4)
		})},
		{"small letters", "debian-uefi", "efi-loader-missing", nearMiss, entries(func(f *diagnose.FirmwareState) { f.Entries[2].Path = `\efi\DEBIAN\SHIMX64.EFI` })},
		{"cut", "debian-uefi", "efi-loader-damaged", diagnose.BlocksBoot, esp("/EFI/debian/grubx64.efi", peFile(peAMD64)[:3000])},
		{"empty", "debian-systemd-boot", "efi-loader-damaged", diagnose.BlocksBoot, both(esp("/EFI/systemd/systemd-bootx64.efi", ""), remove("/EFI/BOOT"))},
		{"empty, and no entry", "debian-uefi", "efi-loader-damaged", diagnose.BlocksBoot, both(noEntry, esp("/EFI/debian/shimx64.efi", ""))},
		{"with a fallback", "debian-systemd-boot", "efi-loader-damaged", nearMiss, esp("/EFI/systemd/systemd-bootx64.efi", "")},
		{"an old entry", "debian-uefi", "efi-entry-stale", diagnose.Info, entries(func(f *diagnose.FirmwareState) {
			f.Entries = append(f.Entries, diagnose.BootEntry{Number: 9, Name: "old", Active: true, PartUUID: deadUUID, Path: `\EFI\old\grubx64.efi`})
		})},
		{"none", "debian-uefi", "efi-entry-stale", nearMiss, nothing},
		{"PXE", "debian-uefi", "efi-netboot-first", diagnose.Info, entries(func(f *diagnose.FirmwareState) { f.Order = []uint16{1, 3} })},
		{"the disk", "debian-uefi", "efi-netboot-first", nearMiss, nothing},
		{"UEFI, and a system for BIOS", "debian-bios", "firmware-mode-differs", diagnose.BlocksBoot, entries(func(f *diagnose.FirmwareState) { f.UEFI = true })},
		{"BIOS, and a system for UEFI", "debian-uefi", "firmware-mode-differs", diagnose.BlocksBoot, entries(func(f *diagnose.FirmwareState) { *f = diagnose.FirmwareState{} })},
		{"a system for both", "debian-uefi", "firmware-mode-differs", nearMiss, func(_ *testing.T, in *installed) {
			in.Firmware = diagnose.FirmwareState{}
			in.grubFolderFiles("/boot/grub/i386-pc")
			in.Devices[0].Content.(*sparseDisk).put(0, grubMBR(34)).put(34*sectorSize, grubCore(34))
		}},

		{"zeros", "debian-bios", "mbr-boot-code-missing", diagnose.BlocksBoot, disk("/dev/sda", zeros(0, 440))},
		{"one of two disks", "debian-luks-raid", "mbr-boot-code-missing", diagnose.Degrades, disk("/dev/sdb", zeros(0, 440))},
		{"of another loader", "alpine-openrc", "mbr-boot-code-missing", nearMiss, nothing},
		{"UEFI needs none", "debian-uefi", "mbr-boot-code-missing", nearMiss, func(_ *testing.T, in *installed) { in.write("/boot/grub/i386-pc/normal.mod", "") }},
		{"zeros", "debian-bios", "grub-core-damaged", diagnose.BlocksBoot, disk("/dev/sda", zeros(512, 512))},
		{"zeros behind its first sector", "debian-bios", "grub-core-damaged", diagnose.BlocksBoot, disk("/dev/sda", zeros(1024, 4096))},
		{"other boot code", "debian-bios", "grub-core-damaged", nearMiss, disk("/dev/sda", func(d *sparseDisk) { copy(d.pieces[0][0x180:], "other") })},

		{"its header", "debian-uefi", "gpt-primary-damaged", diagnose.BlocksBoot, disk("/dev/vda", zeros(sectorSize, 100))},
		{"34 sectors", "debian-uefi", "gpt-primary-damaged", diagnose.BlocksBoot, disk("/dev/vda", zeros(0, 34*sectorSize))},
		{"an entry", "debian-uefi", "gpt-primary-damaged", diagnose.BlocksBoot, disk("/dev/vda", zeros(2*sectorSize, 8))},
		{"a leftover behind an MBR", "debian-bios", "gpt-primary-damaged", nearMiss, func(t *testing.T, in *installed) {
			for at, piece := range gptDisk(20*gib, partitionOf("x", "y", 1, mib, gib, linuxType, rootPart)).pieces {
				if at > gib {
					in.device(t, "/dev/sda").Content.(*sparseDisk).put(at, piece)
				}
			}
			in.device(t, "/dev/sda").Table = ""
		}},
		{"zeros", "debian-uefi", "gpt-backup-damaged", diagnose.Degrades, disk("/dev/vda", zeros(last*sectorSize, sectorSize))},
		{"a disk without GPT", "debian-bios", "gpt-backup-damaged", nearMiss, nothing},
		{"the disk has grown", "debian-uefi", "gpt-backup-misplaced", diagnose.Info, func(t *testing.T, in *installed) {
			d := in.device(t, "/dev/vda")
			d.Size += gib
			d.Content.(*sparseDisk).size += gib
		}},
		{"both are whole", "debian-uefi", "gpt-backup-misplaced", nearMiss, nothing},
	}...)
}

func FuzzGPT(f *testing.F) {
	disk := gptDisk(8*mib, partitionOf("x", "y", 1, mib, mib, linuxType, rootPart))
	f.Add(disk.pieces[sectorSize], disk.pieces[0])
	f.Add([]byte("EFI PART"), []byte{})
	f.Fuzz(func(t *testing.T, head, mbr []byte) {
		d := gptDisk(8*mib).put(sectorSize, head).put(0, mbr)
		judgeGPT(&diagnose.Device{Path: "x", Size: 8 * mib, Content: d}, 512)
		sector := make([]byte, 512)
		copy(sector, mbr)
		grubCoreDamage(d, sector)
		backupSuperblock(strings.NewReader(string(head)), int64(len(head)))
	})
}
