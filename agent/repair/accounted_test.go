package repair

import (
	"testing"

	"salvor/agent/examine"
	"salvor/diagnose"
	"salvor/problem"
	"salvor/repair"
)

// TestAccountedRanges: a change of a disk is taken where a file system of the system was mounted or where blocks are noted, and nowhere else.
func TestAccountedRanges(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	partition := func(disk, number string, start int64, fs, uuid string) diagnose.Device {
		return diagnose.Device{Path: disk + number, Kind: diagnose.PartitionDevice, Parents: []string{disk}, PartStart: start, Size: 1 << 20, FS: fs, UUID: uuid}
	}
	disk := func(name string) diagnose.Device {
		return diagnose.Device{Path: name, Kind: diagnose.DiskDevice, Size: size}
	}
	devices := []diagnose.Device{
		disk("/dev/sda"), disk("/dev/sdb"), disk("/dev/sdc"), disk("/dev/sdd"),
		partition("/dev/sda", "1", 1<<20, "ext4", "a"), partition("/dev/sda", "2", 2<<20, "LVM2_member", "b"), partition("/dev/sda", "3", 3<<20, "ext4", "c"),
		partition("/dev/sda", "4", 4<<20, "btrfs", "d"), partition("/dev/sda", "5", 5<<20, "swap", "e"),
		partition("/dev/sdb", "1", 1<<20, "crypto_LUKS", "f"), partition("/dev/sdb", "2", 2<<20, "btrfs", "d"), partition("/dev/sdb", "3", 3<<20, "linux_raid_member", "g"),
		{Path: "/dev/mapper/luks", Kind: diagnose.CryptDevice, Parents: []string{"/dev/sdb1"}},
		{Path: "/dev/mapper/vg-root", Kind: diagnose.VolumeDevice, Parents: []string{"/dev/sda2", "/dev/mapper/luks"}},
		{Path: "/dev/md0", Kind: diagnose.ArrayDevice, Parents: []string{"/dev/sdb3"}},
		{Path: "/dev/md0p1", Kind: diagnose.PartitionDevice, Parents: []string{"/dev/md0"}, FS: "ext4"},
		{Path: "/dev/mapper/loop", Kind: diagnose.VolumeDevice, Parents: []string{"/dev/mapper/loop"}},
	}
	mounted := map[string]bool{"/dev/sda1": true, "/dev/mapper/vg-root": true, "/dev/sdb2": true, "/dev/sdd": true, "/dev/mapper/loop": true}
	e, _ := newTestEditor(t)
	e.mounted.Devices = devices
	e.node = func(device string) (string, error) {
		if mounted[device] {
			return "", problem.Conflictf("mounted")
		}
		return device, nil
	}
	ranges := accountedRanges([]*systemEditor{e}, []repair.BlockChange{{Device: "/dev/sda", Offset: 440, Length: 6}, {Device: "/dev/sda5", Offset: 0, Length: 4096}, {Device: "/dev/gone"}})
	for _, c := range []struct {
		name, disk string
		offset     int64
		taken      bool
	}{
		{"noted blocks", "/dev/sda", 0, true},
		{"beside the noted blocks", "/dev/sda", 4096, false},
		{"the partition of a mounted file system", "/dev/sda", 1 << 20, true},
		{"its last chunk", "/dev/sda", 2<<20 - 4096, true},
		{"a member of a volume group", "/dev/sda", 2 << 20, true},
		{"another file system", "/dev/sda", 3 << 20, false},
		{"another device of a mounted btrfs", "/dev/sda", 4 << 20, true},
		{"a partition with noted blocks", "/dev/sda", 5<<20 + 8192, true},
		{"behind all partitions", "/dev/sda", 6 << 20, false},
		{"a container below the volume group", "/dev/sdb", 1 << 20, true},
		{"a mounted btrfs", "/dev/sdb", 2 << 20, true},
		{"a member of an array", "/dev/sdb", 3 << 20, true},
		{"the table of a disk", "/dev/sdb", 0, false},
		{"another disk", "/dev/sdc", 1 << 20, false},
		{"a disk without partitions", "/dev/sdd", 7 << 20, true},
	} {
		err := checkAccounted(examine.CoveredDisk{Path: c.disk, Size: size}, []changedChunk{{offset: c.offset, length: 4096}}, ranges)
		if (err == nil) != c.taken || err != nil && !problem.Is(err, problem.Conflict) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
