package ramdisk

import "context"

// diagnosisPrograms are the tools that agent/examine calls, by their packages. They work without udev.
var diagnosisPrograms = []struct{ pkg, file string }{
	{"dmsetup", "sbin/dmsetup"},
	{"e2fsprogs", "sbin/e2fsck"},
	{"xfsprogs", "sbin/xfs_repair"},
	{"btrfs-progs", "bin/btrfs"},
	{"dosfstools", "sbin/fsck.fat"},
	{"mdadm", "sbin/mdadm"},
	{"lvm2", "sbin/lvm"},
	{"cryptsetup-bin", "sbin/cryptsetup"},
	{"util-linux", "sbin/blkid"},
	{"smartmontools", "usr/sbin/smartctl"},
}

// addDiagnosis puts the tools of a diagnosis with their libraries into a tree.
func (s *Source) addDiagnosis(ctx context.Context, t *Tree) error {
	var packages []string
	for _, p := range diagnosisPrograms {
		packages = append(packages, p.pkg)
	}
	if err := s.archive.fetch(ctx, packages...); err != nil {
		return err
	}
	for _, p := range diagnosisPrograms {
		if err := t.program(ctx, s.archive, p.pkg, p.file); err != nil {
			return err
		}
	}
	return nil
}
