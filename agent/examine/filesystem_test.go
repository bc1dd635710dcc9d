package examine

import (
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"salvor/diagnose"
	"salvor/test/must"
)

// TestExternalJournalsAreRefused: neither the kernel nor e2fsck is to open a journal on a disk without an overlay.
func TestExternalJournalsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		words map[int]uint32 // by offset in the superblock
		want  bool
	}{
		"without a journal":             {map[int]uint32{}, false},
		"with its own journal":          {map[int]uint32{0x5c: 0x4, 0xe0: 8}, false},
		"with a leftover UUID":          {map[int]uint32{0x5c: 0x4, 0xe0: 8, 0xd0: 7}, false},
		"with a journal device":         {map[int]uint32{0x5c: 0x4, 0xe4: 0x810}, true},
		"with a UUID of a journal":      {map[int]uint32{0x5c: 0x4, 0xd0: 7}, true},
		"a device without the feature":  {map[int]uint32{0xe4: 0x810}, true},
		"a journal device by itself":    {map[int]uint32{0x60: 0x8}, true},
		"no superblock":                 {map[int]uint32{0x38: 0, 0x60: 0x8}, false},
		"other features":                {map[int]uint32{0x5c: 0x38, 0x60: 0x2c2}, false},
		"a journal in no inode, at all": {map[int]uint32{0x5c: 0x4}, true},
	} {
		image := make([]byte, 4096)
		binary.LittleEndian.PutUint32(image[1024+0x38:], 0xef53)
		for at, value := range c.words {
			binary.LittleEndian.PutUint32(image[1024+at:], value)
		}
		file := filepath.Join(t.TempDir(), "image")
		must.OK(t, os.WriteFile(file, image, 0o600))
		d := &device{Device: diagnose.Device{Path: "/dev/sda1", FS: "ext4"}, node: file}
		x := &examinationRun{Request: Request{Log: slog.New(slog.DiscardHandler)}, devices: []*device{d}}
		x.refuseExternalJournals()
		if refused := d.NotExamined != ""; refused != c.want || (len(x.gaps) == 1) != c.want || len(x.mountable()) == 1 == c.want {
			t.Errorf("%s: %q %v", name, d.NotExamined, x.gaps)
		}
	}
}

// TestDoubtfulDamage: xfs_repair and btrfs check exit with 1 for damage and for what they cannot do.
func TestDoubtfulDamage(t *testing.T) {
	for _, c := range []struct {
		kind    string
		mounted bool
		out     string
		want    bool
	}{
		{"xfs", true, "Phase 3 - for each AG...\nwould have cleared inode 131\nMissing reverse-mapping record for (1/17)\n", false},
		{"xfs", false, "Phase 3 - for each AG...\nwould have cleared inode 131\n", true},
		{"xfs", true, "This filesystem has an external log.  Specify log device with the -l option.  Exiting.\n", true},
		{"xfs", true, "fatal error -- couldn't allocate memory for the map\n", true},
		{"xfs", true, "Memory available for repair (95MB) may not be sufficient.\n", true},
		{"btrfs", true, "[2/8] checking extents\nref mismatch on [22020096 16384] extent item 0, found 1\nbackref 22020096 root 5 not referenced\n", false},
		{"btrfs", false, "root 5 inode 257 errors 1040, bad file extent, some csum missing\n", false},
		{"btrfs", true, "warning, device 2 is missing\n", true},
		{"btrfs", true, "bad tree block 30408704\nERROR: cannot open file system\n", true},
		{"ext4", false, "Inode 12 has a bad block; cannot open it\n", false},
		{"vfat", false, "/CANNOT.TXT\n  Bad file name.\n", false},
	} {
		if why := fileSystems[c.kind].doubt(c.mounted, c.out); (why != "") != c.want {
			t.Errorf("%s %q: %q", c.kind, c.out, why)
		}
	}
}

// TestCopiesOfPools: of devices that the kernel takes for one only the first is used, and none of a btrfs that the ramdisk has mounted.
func TestCopiesOfPools(t *testing.T) {
	const pool, other, used = "dad7e950-af0a-4084-b341-42c244e83051", "11111111-af0a-4084-b341-42c244e83051", "22222222-af0a-4084-b341-42c244e83051"
	mounted := t.TempDir()
	must.OK(t, os.MkdirAll(filepath.Join(mounted, used, "devices"), 0o755))
	x := &examinationRun{Request: Request{Log: slog.New(slog.DiscardHandler)}}
	for i, c := range [][3]string{{pool, "a", ""}, {pool, "b", ""}, {pool, "a", "a copy of /dev/sda"}, {other, "a", ""}, {used, "c", "a btrfs with its UUID is mounted in this ramdisk"}, {"..", "d", "blkid names no UUID of its btrfs"}} {
		name := "sd" + string(rune('a'+i))
		x.devices = append(x.devices, &device{Device: diagnose.Device{Path: "/dev/" + name, FS: "btrfs", UUID: c[0], Label: c[2]}, node: "/dev/loop" + name, member: c[1]})
	}
	x.refuseUsedPools(mounted)
	for _, d := range x.devices {
		if d.NotExamined != d.Label {
			t.Errorf("%s: %q, want %q", d.Path, d.NotExamined, d.Label)
		}
	}
	if got := x.poolDevices(x.devices[0]); len(got) != 2 || got[0] != x.devices[0] || got[1] != x.devices[1] {
		t.Errorf("devices of the btrfs: %+v", got)
	}
	if got := x.mountable(); len(got) != 2 || got[0] != x.devices[0] || got[1] != x.devices[3] {
		t.Errorf("mountable: %+v", got)
	}
	if len(x.gaps) != 3 {
		t.Errorf("gaps %+v", x.gaps)
	}
}

// TestMountsThatExistAreCounted: a mount that failed or has ended takes no room.
func TestMountsThatExistAreCounted(t *testing.T) {
	x := &examinationRun{Request: Request{Log: slog.New(slog.DiscardHandler)}, mounts: maxMounts - 1}
	d := &device{Device: diagnose.Device{Path: "/dev/sda1", FS: "ext4"}}
	if !x.hasRoom(d) || len(x.gaps) != 0 {
		t.Errorf("the last mount has no room: %v", x.gaps)
	}
	if err := x.unmount(t.TempDir()); err == nil || x.mounts != maxMounts-1 {
		t.Errorf("an unmount that failed: %v, %d mounts", err, x.mounts)
	}
	x.mounts = maxMounts
	if err := x.mountAt(t.Context(), d, t.TempDir(), ""); err == nil || x.mounts != maxMounts || len(x.gaps) != 1 {
		t.Errorf("one mount too many: %v, %d mounts, gaps %v", err, x.mounts, x.gaps)
	}
}

// The kernel names a mounted ext4 after its device.
func TestReservedClusters(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "sys/fs/ext4/dm-3")
	must.OK(t, os.MkdirAll(dir, 0o755))
	must.OK(t, os.WriteFile(filepath.Join(dir, "reserved_clusters"), []byte("4096\n"), 0o644))
	for node, want := range map[string]int64{"/dev/dm-3": 4096, "/dev/loop1p2": 0} {
		if got := reservedClusters(root, node); got != want {
			t.Errorf("%s: %d, want %d", node, got, want)
		}
	}
}
