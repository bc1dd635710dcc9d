package system

import (
	"fmt"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// What counts as full: services fail to write below leastFree, and updates fail below scarceFree where that is less than a hundredth.
const (
	leastFree  = 1 << 20  // bytes
	scarceFree = 64 << 20 // bytes
)

func spaceRules() []diagnose.Rule {
	return []diagnose.Rule{
		{IDs: []string{"disk-full", "inodes-full", "boot-partition-full", "esp-full", "btrfs-metadata-full"}, Look: lookSpace},
		{IDs: []string{"thin-pool-full"}, Look: lookThinPools},
	}
}

// lookSpace finds mounted file systems without room.
func lookSpace(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	for i := range s.Devices {
		d := &s.Devices[i]
		if d.Space == nil || d.Space.Size == 0 || !strings.HasPrefix(d.MountedAt, "/") || config.IsReadOnlyType(d.FS) {
			continue
		}
		if f := judgeSpace(d); f != nil {
			out = append(out, *f)
		}
	}
	return out
}

func judgeSpace(d *diagnose.Device) *diagnose.Finding {
	space, boot := d.Space, strings.HasPrefix(d.MountedAt, "/boot") || d.MountedAt == "/efi"
	f := &diagnose.Finding{
		Stage: diagnose.Target, Severity: diagnose.Degrades, Confidence: 0.9,
		Explains: []string{"initramfs-missing", "initramfs-damaged", "kernel-damaged", "package-upgrade-interrupted", "grub-config-empty", "grub-config-invalid"},
		Evidence: []diagnose.Evidence{config.DeviceEvidence(d.Path, fmt.Sprintf("%s at %s: %d MiB of %d MiB are free, %d of %d inodes", d.FS, d.MountedAt,
			space.Free>>20, space.Size>>20, space.InodesFree, space.Inodes))},
		ByHand: "Delete what is not needed: old logs, packages that were downloaded, core dumps; or give the file system more room.",
	}
	if d.MountedAt == "/" || d.MountedAt == "/var" {
		f.Severity = diagnose.BlocksBoot
	}
	switch {
	case space.MetadataFull:
		f.ID, f.Title = "btrfs-metadata-full", fmt.Sprintf("The btrfs at %s has no room for metadata, and no space that is not allocated.", d.MountedAt)
		f.ByHand = "Delete old snapshots, then run `btrfs balance start -dusage=10` on it."
	case boot && d.FS == "vfat" && space.Free < 256<<10:
		f.ID, f.Confidence, f.Stage = "esp-full", 0.8, diagnose.Loader
		f.Title = fmt.Sprintf("The EFI system partition at %s has no room for a boot loader or a kernel.", d.MountedAt)
		f.ByHand = "Delete loaders of systems that are gone, old kernels and old firmware updates from it."
	case boot && d.FS != "vfat" && space.Free < leastFree:
		f.ID, f.Stage, f.Title = "boot-partition-full", diagnose.Initramfs, fmt.Sprintf("The file system at %s is full, so that kernels and initramfs images are cut.", d.MountedAt)
		f.ByHand = "Remove packages of old kernels; keep the one that runs and one more."
	case boot:
		return nil
	case space.Inodes > 0 && space.InodesFree == 0:
		f.ID, f.Title = "inodes-full", fmt.Sprintf("The file system at %s has no inodes left, so that no file can be made.", d.MountedAt)
		f.ByHand = "Find the folder with very many files, such as one of sessions or a mail queue, and delete them."
	case space.Free < leastFree:
		f.ID, f.Title = "disk-full", fmt.Sprintf("The file system at %s is full.", d.MountedAt)
	case space.Free < scarceFree && space.Free < space.Size/100:
		f.ID, f.Confidence, f.Severity = "disk-full", 0.6, diagnose.Degrades
		f.Title = fmt.Sprintf("The file system at %s is nearly full: %d MiB are left.", d.MountedAt, space.Free>>20)
	default:
		return nil
	}
	return f
}

// lookThinPools finds pools of LVM that have no room for what their volumes write. Only pools have a percentage of metadata: a thin volume with
// 100 percent of data has written all of its blocks, which is no fault.
func lookThinPools(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	for _, g := range s.Groups {
		for _, v := range g.Volumes {
			pool := v.MetadataPercent > 0
			if !(pool && (v.DataPercent >= 99.9 || v.MetadataPercent >= 99.9)) && v.Health != "out_of_data" && v.Health != "metadata_read_only" {
				continue
			}
			f := diagnose.Finding{
				ID: "thin-pool-full", Stage: diagnose.Target, Severity: diagnose.Degrades, Confidence: 0.9,
				Title: fmt.Sprintf("The thin pool %s/%s has no room, so that its volumes fail to write.", g.Name, v.Name),
				Evidence: []diagnose.Evidence{config.DeviceEvidence(v.Path, strings.TrimSpace(fmt.Sprintf("%.1f percent of its data and %.1f percent of its metadata are used %s",
					v.DataPercent, v.MetadataPercent, v.Health)))},
				Explains: []string{"file-system-damaged", "file-system-not-mounted"},
				ByHand:   fmt.Sprintf("Extend it with `lvextend` in the group %s, which has %d MiB free, or delete snapshots.", g.Name, g.Free>>20),
			}
			if strings.HasPrefix(s.Root, "/dev/mapper/"+diagnose.MapperName(g.Name, "")) {
				f.Severity, f.Confidence = diagnose.BlocksBoot, 0.8
			}
			out = append(out, f)
		}
	}
	return out
}
