package examine

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/test/must"
)

// recorded is what a tool printed in the ramdisk.
func recorded(t *testing.T, name string) string {
	t.Helper()
	return string(must.Get(os.ReadFile(filepath.Join("testdata", name)))(t))
}

func TestBlkid(t *testing.T) {
	out := recorded(t, "blkid")
	for node, want := range map[string]map[string]string{
		"/dev/vda":  {"PTTYPE": "gpt", "TYPE": ""},
		"/dev/vda1": {"TYPE": "vfat", "LABEL": "ESP", "UUID": "E0CB-102B", "PART_ENTRY_TYPE": "c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "PART_ENTRY_UUID": "bc1b1a6a-d7da-944a-bdb3-4ee44b93e5a5"},
		"/dev/vdd1": {"TYPE": "crypto_LUKS", "PART_ENTRY_TYPE": "0x83", "PART_ENTRY_UUID": "7d11b4c2-01"},
		"/dev/vdc":  {"TYPE": "btrfs", "LABEL": "pool"},
		"/dev/vd":   {"TYPE": ""},
	} {
		found := probedDevice(out, node)
		for key, value := range want {
			if found[key] != value {
				t.Errorf("%s: %s is %q, want %q", node, key, found[key], value)
			}
		}
	}
	if got := exportedFields("LABEL=EFI\\ System\\\\\nX=1\n")["LABEL"]; got != `EFI System\` {
		t.Errorf("label %q", got)
	}
}

func TestMembersOfArrays(t *testing.T) {
	out := recorded(t, "mdadm")
	for node, want := range map[string]arrayMember{
		"/dev/loop3p1": {uuid: "9ebec56d:9915413f:1f9eeb7c:ca24177a", name: "host:0", level: "raid1", wanted: 2, events: 29, role: "active"},
		"/dev/loop5p1": {uuid: "3f9a1d2c:2b4e6f80:10203040:50607080", level: "raid5", wanted: 3, events: 18, role: "active"},
		"/dev/loop5":   {},
	} {
		if got := readMember(out, node); got != want {
			t.Errorf("%s: %+v, want %+v", node, got, want)
		}
	}
}

func TestVolumeGroups(t *testing.T) {
	physical := []*device{{Device: diagnose.Device{Path: "/dev/md0"}, node: "/dev/md127", disk: "/dev/vdb"}}
	groups, devices := readGroups(recorded(t, "lvm"), physical)
	want := []diagnose.VolumeGroup{{Name: "vg-0", UUID: "KnCGaw-KlB3-QlVl-RvfO-TB3d-RidI-Ccmdts", Size: 457179136, Free: 54525952, Volumes: []diagnose.LogicalVolume{
		{Name: "home", Path: "/dev/mapper/vg--0-home"}, {Name: "root", Path: "/dev/mapper/vg--0-root"}}}}
	if !reflect.DeepEqual(groups, want) {
		t.Errorf("groups %+v", groups)
	}
	if len(devices) != 2 || devices[1].node != "/dev/dm-0" || devices[1].Path != "/dev/mapper/vg--0-root" || devices[1].Parents[0] != "/dev/md0" || devices[1].disk != "/dev/vdb" {
		t.Errorf("devices %+v", devices)
	}
	// A volume that is missing a part is not active, and names that lvm does not allow are passed over.
	hostile := strings.NewReplacer(`"lv_kernel_minor":"0", "lv_active":"active"`, `"lv_kernel_minor":"-1", "lv_active":""`, `"lv_name":"home"`, `"lv_name":"$(reboot)"`,
		`"pv_missing":""`, `"pv_missing":"missing"`).Replace(recorded(t, "lvm"))
	groups, devices = readGroups(hostile, physical)
	if len(devices) != 1 || devices[0].node != "" || len(groups[0].Missing) != 1 || groups[0].Missing[0] != "P02urp-MvMJ-l5wI-UqQr-0swK-vjhZ-6EjUer" {
		t.Errorf("devices %+v, groups %+v", devices, groups)
	}
	for _, broken := range []string{"", "no report", `{"report": 1}`, `{"report":[{"vg":[]}]}`} {
		if groups, devices := readGroups(broken, physical); groups != nil || devices != nil {
			t.Errorf("%q: %+v %+v", broken, groups, devices)
		}
	}
}

func TestSnapshotStatus(t *testing.T) {
	const status = "salvor_vda: 0 262144 snapshot 48/398000 0\nsalvor_vdb: 0 921600 snapshot Invalid\nsalvor_vdc: 0 921600 snapshot Overflow\nvg-root: 0 8 linear \n"
	for name, want := range map[string]int64{"salvor_vda": 48 * 512, "salvor_vdb": -1, "salvor_vdc": -1, "salvor_vd": -1, "vg-root": -1} {
		used, whole := snapshotStatus(status, name)
		if whole != (want >= 0) || whole && used != want {
			t.Errorf("%s: %d %v", name, used, whole)
		}
	}
}

func TestWrittenSectors(t *testing.T) {
	for stat, want := range map[string]int64{
		"  120 3 4096 55 7 1 16 3 0 60 58 0 0 0 0 0 0\n":   16,
		"  120 3 4096 55 7 1 16 3 0 60 58 2 0 256 0 0 0\n": 272,
		"": 0,
	} {
		if got := writtenSectors(stat); got != want {
			t.Errorf("%q: %d, want %d", stat, got, want)
		}
	}
}

// A disk that does not give a sector is failing, once, beside what it says of itself.
func TestLostSector(t *testing.T) {
	before := []diagnose.DiskHealth{{Path: "/dev/sda", Reasons: []string{"it has replaced 12 sectors"}, Command: []string{"smartctl"}}, {Path: "/dev/sdb"}}
	after := withLostSector(before, diagnose.ExaminedDisk{Path: "/dev/sda"}, 8)
	after = withLostSector(after, diagnose.ExaminedDisk{Path: "/dev/vda", Model: "m", Serial: "s"}, 9)
	if len(after) != 3 || !after[0].Failing || len(after[0].Reasons) != 2 || after[0].Command == nil || after[1].Failing || !after[2].Failing || after[2].Serial != "s" {
		t.Errorf("%+v", after)
	}
	if before[0].Failing || len(before[0].Reasons) != 1 {
		t.Errorf("another system's disks were changed: %+v", before)
	}
	file := filepath.Join(t.TempDir(), "disk")
	must.OK(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	if isLost(file, 9) || isLost(file+".gone", 9) {
		t.Error("a sector that can be read, or a disk that is gone, is lost")
	}
}

func TestHealth(t *testing.T) {
	nvme := recorded(t, "smartctl-nvme.json")
	if h, ok := readHealth(nvme, 0); !ok || h.Failing || len(h.Reasons) != 0 {
		t.Errorf("a good NVMe drive: %+v %v", h, ok)
	}
	if h, ok := readHealth(recorded(t, "smartctl-none.json"), 2); ok {
		t.Errorf("a disk that could not be asked: %+v", h)
	}
	if h, ok := readHealth(`{"smart_status":{"passed":true}}`, 2); ok {
		t.Errorf("a disk that does not identify itself is taken at its word: %+v", h)
	}
	for _, c := range []struct {
		out     string
		exit    int
		failing bool
		reason  string
	}{
		{strings.Replace(nvme, `"critical_warning":0`, `"critical_warning":4`, 1), 8, true, "it predicts its own failure"},
		{strings.Replace(nvme, `"critical_warning":0`, `"critical_warning":1`, 1), 0, true, "its spare blocks are used up"},
		{strings.Replace(nvme, `"media_errors":0`, `"media_errors":7`, 1), 0, false, "it could not correct 7 errors of its media"},
		{`{"smart_status":{"passed":false}}`, 8, true, "it predicts its own failure"},
		{`{"smart_status":{"passed":true},"ata_smart_attributes":{"table":[{"id":197,"name":"Current_Pending_Sector","when_failed":"","raw":{"value":12}}]}}`, 0, true, "it has 12 sectors that cannot be read"},
		{`{"smart_status":{"passed":true},"ata_smart_attributes":{"table":[{"id":5,"name":"Reallocated_Sector_Ct","when_failed":"","raw":{"value":3}}]}}`, 0, false, "it has replaced 3 sectors"},
		{`{"smart_status":{"passed":true},"ata_smart_attributes":{"table":[{"id":1,"name":"Raw_Read_Error_Rate","when_failed":"now","raw":{"value":0}}]}}`, 16, true, "its attribute Raw_Read_Error_Rate is below the threshold of its maker"},
	} {
		h, ok := readHealth(c.out, c.exit)
		if !ok || h.Failing != c.failing || len(h.Reasons) == 0 || h.Reasons[0] != c.reason {
			t.Errorf("want %v %q: %+v %v", c.failing, c.reason, h, ok)
		}
	}
}

func TestSubvolumes(t *testing.T) {
	got := readSubvolumes("ID 256 gen 9 top level 5 path @\nID 257 gen 8 top level 256 path @/var lib\nsomething else\n")
	if want := []btrfsVolume{{256, "@"}, {257, "@/var lib"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := readSubvolumes("ID 5 (FS_TREE)\n"); got != nil {
		t.Errorf("the top of a btrfs: %+v", got)
	}
}

// TestNewFeatures: what a kernel or a checker does not know is no corruption.
func TestNewFeatures(t *testing.T) {
	for line, want := range map[string]bool{
		"EXT4-fs (loop1p2): couldn't mount because of unsupported optional features (10000)":                       true,
		"EXT4-fs (loop1p2): couldn't mount RDWR because of unsupported optional features (400)":                    true,
		"XFS (dm-6): Superblock has unknown incompatible features (0x20) enabled.":                                 true,
		"BTRFS error (device vdc): cannot mount because of unknown incompat features (0x8000)":                     true,
		"BTRFS: cannot mount because of unsupported optional features (0x8000)":                                    true,
		"/dev/loop1p2 has unsupported feature(s): FEATURE_C12 FEATURE_R30":                                         true,
		"EXT4-fs (loop1p2): VFS: Can't find ext4 filesystem":                                                       false,
		"XFS (dm-6): Metadata CRC error detected at xfs_agi_read_verify+0x80/0x120 [xfs], xfs_agi block 0x2":       false,
		"BTRFS error (device vdc): failed to read chunk root":                                                      false,
		"EXT4-fs error (device loop1p2): ext4_fill_super:5200: inode #2: comm agent: iget: root inode unallocated": false,
	} {
		if newFeature.MatchString(line) != want {
			t.Errorf("%q: want %v", line, want)
		}
	}
}

// TestFATAfterACrash: a dirty bit is no damage.
func TestFATAfterACrash(t *testing.T) {
	const head, tail = "fsck.fat 4.2 (2021-01-31)\n", "\nLeaving filesystem unchanged.\n/dev/sda1: 5 files, 1234/81000 clusters\n"
	const dirty = "0x41: Dirty bit is set. Fs was not properly unmounted and some data may be corrupt.\n Automatically removing dirty bit.\n"
	const backup = "There are differences between boot sector and its backup.\nThis is mostly harmless. Differences: (offset:original/backup)\n  65:01/00\n  Not automatically fixing this.\n"
	// As the ramdisk says it, which has no tables of character sets.
	const sets = "Cannot initialize conversion from codepage 850 to ANSI_X3.4-1968: Invalid argument\nCannot initialize conversion from ANSI_X3.4-1968 to codepage 850: Invalid argument\n" +
		"Using internal CP850 conversion table\n"
	for out, want := range map[string]bool{
		head + dirty + tail:         false,
		sets + head + backup + tail: false,
		sets + head + backup + "Reclaimed 6 unused clusters (24576 bytes) in 2 chains.\n" + tail: false,
		head + backup + dirty + tail: false,
		head + "Free cluster summary wrong (100 vs. really 99)\n  Auto-correcting.\n" + tail:                                                                   false,
		head + dirty + "/EFI/debian/grubx64.efi\n  File size is 2600000 bytes, cluster chain length is 4096 bytes.\n  Truncating file to 4096 bytes.\n" + tail: true,
		head + "FATs differ but appear to be intact.\n  Using first FAT.\n" + tail:                                                                             true,
	} {
		if fatDamaged(1, out) != want {
			t.Errorf("want %v: %s", want, out)
		}
	}
	if fatDamaged(0, "anything") || fatDamaged(2, "usage") {
		t.Error("an exit status other than 1 is no damage")
	}
}

func TestKernelLines(t *testing.T) {
	for line, want := range map[string]string{
		"critical medium error, dev sda, sector 453632 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2":      "sda 453632",
		"blk_update_request: critical medium error, dev nvme0n1, sector 8 op 0x0:(READ) flags 0x0":               "nvme0n1 8",
		"I/O error, dev vda, sector 9 op 0x0:(READ) flags 0x0 phys_seg 1":                                        "vda 9",
		"I/O error, dev sdc, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1":                                        "sdc 0",
		"I/O error, dev nvme0c1n1, sector 16 op 0x0:(READ) flags 0x0":                                            "nvme0n1 16",
		"critical medium error, dev sda, sector 1 op 0x1:(WRITE) flags 0x0":                                      "",
		"BTRFS: device label critical medium error, dev sda, sector 1 op 0x0:(READ) devid 1 transid 8 /dev/dm-2": "",
	} {
		got := ""
		if disk, sector := errorSector(line); disk != "" {
			got = fmt.Sprint(disk, " ", sector)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	if got := kernelLine("3,812,5123456,-;EXT4-fs (loop1p2): no journal found\n SUBSYSTEM=block\n"); got != "EXT4-fs (loop1p2): no journal found" {
		t.Errorf("%q", got)
	}
}

func TestMountsBelow(t *testing.T) {
	const info = "21 1 0:5 / /dev rw - devtmpfs devtmpfs rw\n30 1 0:30 / /run/salvor/examine rw - tmpfs salvor rw\n31 30 7:1 / /run/salvor/examine/mount-1 ro - ext4 /dev/loop1p2 ro\n" +
		"32 31 7:1 / /run/salvor/examine/mount-1/a\\040b ro - vfat /dev/loop1p1 ro\n33 1 0:31 / /run/salvor/examine-other rw - tmpfs x rw\n"
	want := []string{"/run/salvor/examine/mount-1/a b", "/run/salvor/examine/mount-1", "/run/salvor/examine"}
	if got := mountsBelow(info, workDir); !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
}
