package system

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// lookTwins finds file systems, volumes and partitions that have the same identity on two disks, as a disk and its copy have. The boot uses the device
// that the kernel finds first.
func lookTwins(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	done := map[string]bool{}
	known := make([][]string, len(s.Devices))
	for i := range s.Devices {
		known[i] = identities(s, &s.Devices[i])
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		for _, identity := range known[i] {
			if done[identity] {
				continue
			}
			done[identity] = true
			twins := []*diagnose.Device{d}
			for j := i + 1; j < len(s.Devices); j++ {
				if other := &s.Devices[j]; slices.Contains(known[j], identity) && !slices.ContainsFunc(twins, func(t *diagnose.Device) bool { return areOne(s, t, other) }) {
					twins = append(twins, other)
				}
			}
			if len(twins) < 2 || slices.ContainsFunc(out, func(f diagnose.Finding) bool { return samePaths(f, twins) }) {
				continue
			}
			out = append(out, twinFinding(identity, twins))
		}
	}
	return out
}

// isMember says whether a device holds a part of something that has one UUID on all of its devices: an array, a pool, or a file system of several
// devices.
func isMember(d *diagnose.Device) bool {
	return strings.HasSuffix(d.FS, "_raid_member") || d.FS == "zfs_member" || d.FS == "bcachefs" || d.FS == "btrfs" && btrfsDevices(d) != 1
}

// identities are the names by which a boot finds a device: the UUID of what it holds, and that of the partition. A device that lies on a member of an
// array has none, because the other members show the same.
func identities(s *diagnose.System, d *diagnose.Device) []string {
	var out []string
	onMember := slices.ContainsFunc(config.Ancestors(s, d.Path), func(a *diagnose.Device) bool { return a.Path != d.Path && strings.HasSuffix(a.FS, "_raid_member") })
	if onMember && d.Kind == diagnose.PartitionDevice {
		return nil
	}
	if d.UUID != "" && d.FS != "" && !isMember(d) && d.FS != "iso9660" && d.FS != "udf" {
		out = append(out, "UUID="+strings.ToLower(d.UUID))
	}
	if d.PartUUID != "" {
		out = append(out, "PARTUUID="+strings.ToLower(d.PartUUID))
	}
	return out
}

// btrfsDevices is how many devices a btrfs has, by its superblock; 0 where that cannot be read.
func btrfsDevices(d *diagnose.Device) uint64 {
	if d.Content == nil {
		return 0
	}
	super := readPiece(d.Content, 0x10000, 0x100)
	if string(super[0x40:0x48]) != "_BHRfS_M" {
		return 0
	}
	return binary.LittleEndian.Uint64(super[0x88:])
}

// areOne says whether two devices are one thing: one lies on the other, or both are paths to one disk, as with multipath.
func areOne(s *diagnose.System, a, b *diagnose.Device) bool {
	below, beside := config.Ancestors(s, a.Path), config.Ancestors(s, b.Path)
	if slices.Contains(below, b) || slices.Contains(beside, a) {
		return true
	}
	return slices.ContainsFunc(below, func(d *diagnose.Device) bool {
		return d.Kind == diagnose.DiskDevice && slices.ContainsFunc(beside, func(e *diagnose.Device) bool {
			return e.Kind == diagnose.DiskDevice && (d.Path == e.Path || d.WWN != "" && d.WWN == e.WWN || d.Serial != "" && d.Serial == e.Serial && d.Size == e.Size)
		})
	})
}

func samePaths(f diagnose.Finding, twins []*diagnose.Device) bool {
	return len(f.Evidence) == len(twins) && !slices.ContainsFunc(twins, func(d *diagnose.Device) bool {
		return !slices.ContainsFunc(f.Evidence, func(e diagnose.Evidence) bool { return disksOf(e.Path) == disksOf(d.Path) })
	})
}

// disksOf is the path of a device without the number of its partition.
func disksOf(name string) string { return strings.TrimRight(name, "0123456789") }

func twinFinding(identity string, twins []*diagnose.Device) diagnose.Finding {
	f := diagnose.Finding{
		ID: "identity-duplicate", Stage: diagnose.Root, Severity: diagnose.Degrades, Confidence: 0.9,
		ByHand: "Detach the copy, or give its file systems and partitions new UUIDs (tune2fs -U, xfs_admin -U, sgdisk -G). Until then, each boot may take the other disk.",
	}
	var names []string
	for _, d := range twins {
		names = append(names, d.Path)
		f.Evidence = append(f.Evidence, config.DeviceEvidence(d.Path, identity))
	}
	f.Title = fmt.Sprintf("The devices %s have the same %s, so each boot uses whichever device it finds first.", strings.Join(names, " and "), identity)
	return f
}
