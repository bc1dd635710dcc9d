package examine

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/test/must"
)

// writeFiles makes a tree of files; a text that begins with -> is a link.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	top := t.TempDir()
	for name, text := range files {
		file := filepath.Join(top, name)
		must.OK(t, os.MkdirAll(filepath.Dir(file), 0o755))
		if target, ok := strings.CutPrefix(text, "->"); ok {
			must.OK(t, os.Symlink(target, file))
			continue
		}
		must.OK(t, os.WriteFile(file, []byte(text), 0o644))
	}
	return top
}

func openTestTree(t *testing.T, top string) *diagnose.Tree {
	t.Helper()
	tree, closer, err := OpenTree(top)
	must.OK(t, err)
	t.Cleanup(func() { _ = closer.Close() })
	return tree
}

func TestTree(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	must.OK(t, os.WriteFile(outside, []byte("of the ramdisk"), 0o644))
	top := writeFiles(t, map[string]string{"etc/os-release": "->../usr/lib/os-release", "usr/lib/os-release": "ID=test\n", "etc/out": "->" + outside, "etc/up": "->../../../../../../etc/passwd", "etc/dir/file": "x"})
	must.OK(t, os.Chown(filepath.Join(top, "etc/dir/file"), os.Getuid(), os.Getgid()))
	tree := openTestTree(t, top)
	if b, err := tree.Read("/etc/os-release"); err != nil || string(b) != "ID=test\n" {
		t.Errorf("%q %v", b, err)
	}
	for _, name := range []string{"/etc/out", "/etc/up"} {
		if b, err := tree.Read(name); err == nil {
			t.Errorf("%s leads out of the root: %q", name, b)
		}
	}
	want := diagnose.Owner{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Links: 1}
	info := must.Get(tree.Stat("/etc/dir/file"))(t)
	if owner, ok := info.Sys().(*diagnose.Owner); !ok || *owner != want {
		t.Errorf("owner %+v", info.Sys())
	}
	entries := must.Get(tree.ReadDir("/etc/dir"))(t)
	if len(entries) != 1 {
		t.Fatalf("entries %v", entries)
	}
	if info := must.Get(entries[0].Info())(t); diagnose.OwnerOf(info) != want {
		t.Errorf("owner of an entry %+v", info.Sys())
	}
	f := must.Get(tree.Open("/etc/dir/file"))(t)
	defer f.Close()
	if info := must.Get(f.Stat())(t); diagnose.OwnerOf(info) != want {
		t.Errorf("owner of an open file %+v", info.Sys())
	}
}

func TestRoots(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		want  bool
	}{
		{map[string]string{"etc/os-release": "->../usr/lib/os-release", "etc/fstab": ""}, true},
		{map[string]string{"etc/passwd": "", "sbin": "->usr/sbin", "usr/sbin/init": "->/lib/systemd/systemd"}, true},
		{map[string]string{"etc/fstab": ""}, false},
		{map[string]string{"home/user/etc/fstab": "", "home/user/etc/passwd": ""}, false},
		{map[string]string{"vmlinuz": "", "grub/grub.cfg": ""}, false},
	} {
		if got := isRoot(openTestTree(t, writeFiles(t, c.files))); got != c.want {
			t.Errorf("%v: %v", c.files, got)
		}
	}
}

func TestWantedMounts(t *testing.T) {
	got := wantedMounts(strings.Split(`# UUID=1 /never ext4
UUID="AA-BB" /boot/efi vfat umask=0077 0 1
LABEL=a / ext4 defaults
/dev/vg/boot /boot/ ext4
UUID=2 none swap sw
/dev/sdb1 /a\040b xfs nofail
broken
tmpfs relative tmpfs
UUID=3 /boot ext4`, "\n"))
	want := []fstabEntry{{"/dev/vg/boot", "/boot", "ext4", ""}, {"/dev/sdb1", "/a b", "xfs", "nofail"}, {"UUID=AA-BB", "/boot/efi", "vfat", "umask=0077"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

func TestNamedDevices(t *testing.T) {
	first := &device{Device: diagnose.Device{Path: "/dev/sda1", UUID: "aaaa-1", Label: "data", PartUUID: "77-01", PartLabel: "EFI System"}, disk: "/dev/sda"}
	twin := &device{Device: diagnose.Device{Path: "/dev/sdb1", UUID: "aaaa-1", Label: "other", PartUUID: "88-01"}, disk: "/dev/sdb"}
	volume := &device{Device: diagnose.Device{Path: "/dev/mapper/vg--0-root", Kind: diagnose.VolumeDevice, UUID: "cccc"}, disk: "/dev/sdb"}
	x := &examinationRun{devices: []*device{first, twin, volume}}
	for source, want := range map[string]*device{
		"UUID=AAAA-1": twin, "LABEL=data": first, "PARTUUID=77-01": first, "/dev/disk/by-partlabel/EFI System": first, "/dev/disk/by-uuid/cccc": volume,
		"/dev/vg-0/root": volume, "/dev/mapper/vg--0-root": volume, "/dev/sda1": first, "UUID=": nil, "LABEL=none": nil, "/dev/disk/by-id/x": nil, "tmpfs": nil, "server:/path": nil,
	} {
		if got := x.named(source, volume); got != want {
			t.Errorf("%s: %+v", source, got)
		}
	}
	// Two file systems with one UUID, neither on the disk of the root: neither is meant.
	if got := x.named("UUID=aaaa-1", &device{disk: "/dev/sdc"}); got != nil {
		t.Errorf("a twin was chosen: %+v", got)
	}
}

func TestRootCandidates(t *testing.T) {
	d := &device{Device: diagnose.Device{FS: "btrfs", Default: "@/.snapshots/1/snapshot"}}
	var got []string
	for _, c := range rootCandidates(d, []btrfsVolume{{256, "@"}, {257, "@home"}, {260, "@/.snapshots/1/snapshot"}}) {
		got = append(got, c.options)
	}
	if want := []string{"subvolid=260", "subvolid=256", "subvolid=5"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
}

func TestPartitionNames(t *testing.T) {
	for disk, want := range map[string]string{"/dev/sda": "/dev/sda3", "/dev/nvme0n1": "/dev/nvme0n1p3", "/dev/md0": "/dev/md0p3"} {
		if got := partitionName(disk, 3); got != want {
			t.Errorf("%s: %s", disk, got)
		}
	}
}

// TestContainersHaveTheirNames of the crypttab of the system that is looked at.
func TestContainersHaveTheirNames(t *testing.T) {
	container := &device{Device: diagnose.Device{Path: "/dev/sda2", UUID: "aaaa", FS: "crypto_LUKS"}, disk: "/dev/sda"}
	opened := &device{Device: diagnose.Device{Path: "/dev/mapper/luks-aaaa", Kind: diagnose.CryptDevice, Parents: []string{"/dev/sda2"}}, disk: "/dev/sda"}
	volume := &device{Device: diagnose.Device{Path: "/dev/mapper/vg-root", Kind: diagnose.VolumeDevice, Parents: []string{"/dev/mapper/luks-aaaa"}}, disk: "/dev/sda"}
	x := &examinationRun{devices: []*device{container, opened, volume}, checks: []diagnose.Check{{Device: "/dev/mapper/luks-aaaa"}}}
	restore := x.nameContainers(volume, []string{"# a comment", "../sda UUID=aaaa none luks", "crypt UUID=aaaa none luks,discard", "other UUID=bbbb none"})
	if opened.Path != "/dev/mapper/crypt" || volume.Parents[0] != "/dev/mapper/crypt" || x.checks[0].Device != "/dev/mapper/crypt" {
		t.Errorf("%+v %+v %+v", opened, volume, x.checks)
	}
	restore()
	if opened.Path != "/dev/mapper/luks-aaaa" || volume.Parents[0] != "/dev/mapper/luks-aaaa" || x.checks[0].Device != "/dev/mapper/luks-aaaa" {
		t.Errorf("%+v %+v %+v", opened, volume, x.checks)
	}
}
