package system

import (
	"debug/elf"
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"salvor/diagnose"
)

func init() {
	space := func(device string, set func(*diagnose.Space)) func(*testing.T, *installed) {
		return func(t *testing.T, in *installed) {
			d := in.device(t, device)
			changed := *d.Space
			set(&changed)
			d.Space = &changed
		}
	}
	free := func(bytes int64) func(*diagnose.Space) { return func(s *diagnose.Space) { s.Free = bytes } }
	link := func(name, target string) func(*testing.T, *installed) {
		return func(_ *testing.T, in *installed) { in.link(name, target) }
	}
	label := func(labels map[string]string) func(*testing.T, *installed) {
		return func(_ *testing.T, in *installed) {
			for name, label := range labels {
				old := in.files[name]
				in.files[name] = &fstest.MapFile{Data: old.Data, Mode: old.Mode, Sys: &diagnose.Owner{Label: label}}
			}
		}
	}
	const shadowLabel = "system_u:object_r:shadow_t:s0"
	ruleCases = append(ruleCases, []ruleCase{
		{"the root", "debian-bios", "disk-full", diagnose.BlocksBoot, space("/dev/sda1", free(0))},
		{"nearly", "debian-bios", "disk-full", diagnose.Degrades, space("/dev/sda1", free(20*mib))},
		{"a hundredth of a large disk", "debian-bios", "disk-full", nearMiss, space("/dev/sda1", free(100*mib))},
		{"a tenth of a small disk", "debian-bios", "disk-full", nearMiss, space("/dev/sda1", func(s *diagnose.Space) { s.Size, s.Free = 200*mib, 20*mib })},
		{"no inodes", "debian-bios", "inodes-full", diagnose.BlocksBoot, space("/dev/sda1", func(s *diagnose.Space) { s.InodesFree = 0 })},
		{"a file system without a table of inodes", "fedora-btrfs", "inodes-full", nearMiss, space("/dev/nvme0n1p3", func(s *diagnose.Space) { s.Inodes, s.InodesFree = 0, 0 })},
		{"/boot", "rhel-lvm", "boot-partition-full", diagnose.Degrades, space("/dev/sda2", free(0))},
		{"a small /boot", "rhel-lvm", "boot-partition-full", nearMiss, space("/dev/sda2", free(30*mib))},
		{"the ESP", "debian-uefi", "esp-full", diagnose.Degrades, space("/dev/vda1", free(4096))},
		{"a small ESP", "debian-uefi", "esp-full", nearMiss, space("/dev/vda1", free(2*mib))},
		{"metadata", "suse-btrfs", "btrfs-metadata-full", diagnose.BlocksBoot, space("/dev/vda2", func(s *diagnose.Space) { s.MetadataFull = true })},
		{"room for metadata", "suse-btrfs", "btrfs-metadata-full", nearMiss, space("/dev/vda2", free(gib))},

		{"the root's pool", "rhel-lvm", "thin-pool-full", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			in.Groups[0].Volumes = append(in.Groups[0].Volumes, diagnose.LogicalVolume{Name: "pool", DataPercent: 100, MetadataPercent: 31})
		}},
		{"a thin volume that is written", "rhel-lvm", "thin-pool-full", nearMiss, func(_ *testing.T, in *installed) {
			in.Groups[0].Volumes = append(in.Groups[0].Volumes, diagnose.LogicalVolume{Name: "pool", DataPercent: 60, MetadataPercent: 31},
				diagnose.LogicalVolume{Name: "data", DataPercent: 100})
		}},

		{"a data disk", "rhel-lvm", "volume-group-incomplete", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			in.Groups = append(in.Groups, diagnose.VolumeGroup{Name: "data", Missing: []string{"pv-2"}})
			in.add("/etc/fstab", "/dev/mapper/data-all /data xfs defaults 0 0\n")
		}},
		{"nothing waits for it", "rhel-lvm", "volume-group-incomplete", diagnose.Degrades, func(_ *testing.T, in *installed) {
			in.Groups = append(in.Groups, diagnose.VolumeGroup{Name: "data", Missing: []string{"pv-2"}})
		}},
		{"whole", "rhel-lvm", "volume-group-incomplete", nearMiss, func(_ *testing.T, in *installed) {
			in.Groups = append(in.Groups, diagnose.VolumeGroup{Name: "data"})
		}},
		{"another disk", "rhel-lvm", "lvm-devices-file", diagnose.Degrades, func(t *testing.T, in *installed) {
			in.replace(t, "/etc/lvm/devices/system.devices", "pvpvpv0001", "other")
		}},
		{"no such file", "rhel-lvm", "lvm-devices-file", nearMiss, func(_ *testing.T, in *installed) { in.remove("/etc/lvm/devices") }},
		{"rejects all", "rhel-lvm", "lvm-filter", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			in.write("/etc/lvm/lvm.conf", "devices {\n\tglobal_filter = [ \"r|.*|\" ]\n}\n")
		}},
		{"accepts some", "rhel-lvm", "lvm-filter", nearMiss, func(_ *testing.T, in *installed) {
			in.write("/etc/lvm/lvm.conf", "devices {\n\t# filter = [ \"r|.*|\" ]\n\tfilter = [ \"a|^/dev/sda3$|\", \"r|.*|\" ]\n}\n")
		}},

		{"not enough members", "debian-luks-raid", "array-not-started", diagnose.BlocksBoot, func(t *testing.T, in *installed) {
			in.Arrays[0].Started, in.Arrays[0].Present = false, 0
			in.dropDevice(t, "/dev/md0")
		}},
		{"nothing waits for it", "debian-bios", "array-not-started", diagnose.Degrades, func(_ *testing.T, in *installed) {
			in.Arrays = []diagnose.Array{{Path: "/dev/md127", Level: "raid5", Wanted: 3, Present: 1}}
		}},
		{"a spare", "debian-luks-raid", "array-not-started", nearMiss, func(_ *testing.T, in *installed) {
			in.Arrays[0].Members = append(in.Arrays[0].Members, diagnose.ArrayMember{Path: "/dev/sdc", Role: "spare"})
		}},
		{"one of two", "debian-luks-raid", "array-degraded", diagnose.Degrades, func(_ *testing.T, in *installed) { in.Arrays[1].Present = 1 }},
		{"one member more than it needs", "debian-luks-raid", "array-degraded", nearMiss, func(_ *testing.T, in *installed) { in.Arrays[1].Present = 3 }},

		{"sectors", "debian-bios", "disk-failing", diagnose.Degrades, func(_ *testing.T, in *installed) {
			in.Disks = []diagnose.DiskHealth{{Path: "/dev/sda", Failing: true, Reasons: []string{"it has 12 sectors that cannot be read"}, Command: []string{"smartctl"}, Exit: 8}}
		}},
		{"with a damaged file system", "debian-bios", "disk-failing", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			in.Disks = []diagnose.DiskHealth{{Path: "/dev/sda", Failing: true, Reasons: []string{"it fails"}, Command: []string{"smartctl"}, Exit: 8}}
			in.Checks = []diagnose.Check{{Device: "/dev/sda1", Command: []string{"e2fsck", "-fn"}, Exit: 4, Damaged: true}}
		}},
		{"old and well", "debian-bios", "disk-failing", nearMiss, func(_ *testing.T, in *installed) {
			in.Disks = []diagnose.DiskHealth{{Path: "/dev/sda", Reasons: []string{"its error log has 2 entries"}, Exit: 64}}
		}},
		{"not corrected", "debian-bios", "memory-uncorrected", diagnose.Degrades, func(_ *testing.T, in *installed) { in.Uncorrected = 1 }},
		{"corrected only", "debian-bios", "memory-uncorrected", nearMiss, func(_ *testing.T, in *installed) { in.Corrected = 1 }},
		{"corrected", "debian-bios", "memory-corrected", diagnose.Info, func(_ *testing.T, in *installed) { in.Corrected = 1 }},
		{"none", "debian-bios", "memory-corrected", nearMiss, func(*testing.T, *installed) {}},
		{"2001", "debian-bios", "clock-wrong", diagnose.Degrades, func(_ *testing.T, in *installed) { in.Clock = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"local time", "debian-bios", "clock-wrong", nearMiss, func(_ *testing.T, in *installed) { in.Clock = in.Clock.Add(-8 * time.Hour) }},

		{"leads nowhere", "rhel-lvm", "default-target-missing", diagnose.BlocksBoot, link("/etc/systemd/system/default.target", "/usr/lib/systemd/system/nope.target")},
		{"no link in /etc", "rhel-lvm", "default-target-missing", nearMiss, func(_ *testing.T, in *installed) { in.remove("/etc/systemd/system/default.target") }},
		{"rescue", "rhel-lvm", "default-target-rescue", diagnose.BlocksBoot, link("/etc/systemd/system/default.target", "/lib/systemd/system/rescue.target")},
		{"graphical", "rhel-lvm", "default-target-rescue", nearMiss, link("/etc/systemd/system/default.target", "/lib/systemd/system/graphical.target")},
		{"to nothing", "rhel-lvm", "default-target-masked", diagnose.BlocksBoot, link("/etc/systemd/system/default.target", "/dev/null")},
		{"another target is masked", "rhel-lvm", "default-target-masked", nearMiss, link("/etc/systemd/system/graphical.target", "/dev/null")},
		{"udev", "debian-bios", "unit-masked", diagnose.BlocksBoot, link("/etc/systemd/system/systemd-udevd.service", "/dev/null")},
		{"logins", "debian-bios", "unit-masked", diagnose.Degrades, link("/etc/systemd/system/systemd-logind.service", "/dev/null")},
		{"suspend", "debian-bios", "unit-masked", nearMiss, link("/etc/systemd/system/suspend.target", "/dev/null")},

		{"a typo", "rhel-lvm", "selinux-config-invalid", diagnose.Degrades, func(t *testing.T, in *installed) { in.replace(t, "/etc/selinux/config", "enforcing", "enforced") }},
		{"permissive", "rhel-lvm", "selinux-config-invalid", nearMiss, func(t *testing.T, in *installed) { in.replace(t, "/etc/selinux/config", "enforcing", "permissive") }},
		{"no policy", "rhel-lvm", "selinux-policy-missing", diagnose.BlocksBoot, func(t *testing.T, in *installed) { in.replace(t, "/etc/selinux/config", "=targeted", "=targetted") }},
		{"disabled", "rhel-lvm", "selinux-policy-missing", nearMiss, func(t *testing.T, in *installed) {
			in.remove("/etc/selinux/targeted")
			in.replace(t, "/etc/selinux/config", "enforcing", "disabled")
		}},
		{"shadow", "rhel-lvm", "selinux-unlabelled", diagnose.BlocksAccess, label(map[string]string{
			"etc/passwd": "system_u:object_r:passwd_file_t:s0", "usr/sbin/sshd": "system_u:object_r:sshd_exec_t:s0", "etc/fstab": "system_u:object_r:etc_t:s0",
			"usr/lib/systemd/systemd": "system_u:object_r:init_exec_t:s0", "etc/shadow": "system_u:object_r:unlabeled_t:s0", "etc/ssh/sshd_config": "system_u:object_r:etc_t:s0"})},
		{"all have labels", "rhel-lvm", "selinux-unlabelled", nearMiss, label(map[string]string{
			"etc/passwd": shadowLabel, "usr/sbin/sshd": shadowLabel, "etc/fstab": shadowLabel, "usr/lib/systemd/systemd": shadowLabel, "etc/shadow": shadowLabel,
			"etc/ssh/sshd_config": shadowLabel})},
		{"a text", "debian-bios", "machine-id-invalid", diagnose.Degrades, func(_ *testing.T, in *installed) { in.write("/etc/machine-id", "web-7\n") }},
		{"of an image", "debian-bios", "machine-id-invalid", nearMiss, func(_ *testing.T, in *installed) { in.write("/etc/machine-id", "uninitialized\n") }},
	}...)
}

// unreadFS is a file system of a disk that does not give the content of one file.
type unreadFS struct {
	fstest.MapFS
	name string
}

func (u unreadFS) Open(name string) (fs.File, error) {
	f, err := u.MapFS.Open(name)
	if err == nil && name == u.name {
		return unreadFile{f}, nil
	}
	return f, err
}

type unreadFile struct{ fs.File }

func (unreadFile) Read([]byte) (int, error) { return 0, diagnose.ErrUnread }

// A failing disk keeps a machine from its boot where it does not give what each start needs.
func TestStartFileOnAFailingDisk(t *testing.T) {
	const libc = "usr/lib/x86_64-linux-gnu/libc.so.6"
	for _, c := range []struct {
		unread string
		want   diagnose.Severity
	}{{libc, diagnose.BlocksBoot}, {"etc/motd", diagnose.Degrades}} {
		in := debianBIOS()
		in.write("/etc/motd", "hello")
		in.writeMode("/usr/lib/systemd/systemd", elfWithLibrary(uint16(elf.EM_X86_64), "/lib64/ld-linux-x86-64.so.2", "libc.so.6"), 0o755)
		s := in.system()
		s.Files = diagnose.NewTree(unreadFS{in.files, c.unread})
		s.Disks = []diagnose.DiskHealth{{Path: "/dev/sda", Failing: true, Reasons: []string{"its sector 8 cannot be read"}}, {Path: "/dev/sdb", Failing: true, Reasons: []string{"it is old"}}}
		found := lookDisks(s)
		if len(found) != 2 || found[1].Severity != diagnose.Degrades {
			t.Fatalf("a disk without a file of the system: %+v", found)
		}
		if found[0].Severity != c.want || found[0].Evidence[0].Kind != diagnose.FromDevice || (len(found[0].Evidence) == 2) != (c.unread == libc) {
			t.Errorf("%s is not given: %+v", c.unread, found)
		}
		if (c.unread == libc) != s.Files.IsUnread("/"+libc) {
			t.Errorf("%s is not given, and %s is unread: %t", c.unread, libc, s.Files.IsUnread("/"+libc))
		}
		s.Disks[0].Failing, s.Disks[1].Failing = false, false
		if found := lookDisks(s); len(found) != 0 {
			t.Errorf("of a disk that is well: %+v", found)
		}
	}
}
