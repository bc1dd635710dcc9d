package system

import (
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

func init() {
	type change = func(*testing.T, *installed)
	remove := func(name string) change { return func(_ *testing.T, in *installed) { in.remove(name) } }
	program := func(text string) change {
		return func(_ *testing.T, in *installed) { in.writeMode("/usr/lib/systemd/systemd", text, 0o755) }
	}
	status := func(text string) change {
		return func(_ *testing.T, in *installed) { in.add("/var/lib/dpkg/status", text) }
	}
	check := func(device string, exit int, damaged bool) change {
		return func(_ *testing.T, in *installed) {
			in.Checks = []diagnose.Check{{Device: device, Command: []string{"e2fsck", "-fn", device}, Exit: exit, Output: "Inodes that were part of a corrupted orphan linked list found.", Damaged: damaged}}
		}
	}
	refused := func(device, text string) change {
		return func(t *testing.T, in *installed) { in.device(t, device).MountError = text }
	}
	const interpreter = "/lib64/ld-linux-x86-64.so.2"
	nothing := func(*testing.T, *installed) {}
	lost := func(content *sparseDisk, uuid string) change {
		return func(_ *testing.T, in *installed) {
			in.Devices = append(in.Devices, diagnose.Device{Path: "/dev/sdb", Kind: diagnose.DiskDevice, Size: content.size, Content: content})
			in.add("/etc/fstab", "UUID="+uuid+" /data ext4 defaults 0 2\n")
		}
	}
	gone := func(d *sparseDisk) *sparseDisk { delete(d.pieces, 1024); return d }
	mark := func(text string) change {
		return func(t *testing.T, in *installed) {
			in.device(t, "/dev/sda5").Content.(*sparseDisk).put(4086, []byte(text))
		}
	}
	ruleCases = append(ruleCases, []ruleCase{
		{"lib64", "debian-bios", "usr-link-missing", diagnose.BlocksBoot, remove("/lib64")},
		{"sbin", "debian-bios", "usr-link-missing", diagnose.BlocksBoot, remove("/sbin")},
		{"a system without /lib64", "alpine-openrc", "usr-link-missing", nearMiss, nothing},
		{"the link", "debian-bios", "init-missing", diagnose.BlocksBoot, remove("/usr/sbin/init")},
		{"the program", "debian-bios", "init-missing", diagnose.BlocksBoot, remove("/usr/lib/systemd/systemd")},
		{"empty", "debian-bios", "init-missing", diagnose.BlocksBoot, program("")},
		{"another place", "debian-bios", "init-missing", nearMiss, func(_ *testing.T, in *installed) {
			in.remove("/usr/sbin/init")
			in.link("/etc/init", "/usr/lib/systemd/systemd")
		}},
		{"mode 0644", "debian-bios", "init-not-executable", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			in.write("/usr/lib/systemd/systemd", elfFile(elfAMD64, interpreter))
		}},
		{"a script", "debian-bios", "init-not-executable", nearMiss, program("#!/bin/sh\n")},
		{"for arm64", "debian-bios", "init-foreign", diagnose.BlocksBoot, program(elfFile(elfARM64, interpreter))},
		{"32 bits", "debian-bios", "init-foreign", nearMiss, program(elfFile(3, interpreter))},
		{"ld.so", "debian-bios", "init-interpreter-missing", diagnose.BlocksBoot, remove("/usr/lib64/ld-linux-x86-64.so.2")},
		{"static", "debian-bios", "init-interpreter-missing", nearMiss, program(elfFile(elfAMD64, ""))},
		{"libc", "debian-bios", "init-library-missing", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			in.writeMode("/usr/lib/systemd/systemd", elfWithLibrary(elfAMD64, interpreter, "libc.so.6"), 0o755)
			in.remove("/usr/lib/x86_64-linux-gnu/libc.so.6")
		}},
		{"libc emptied", "debian-bios", "init-library-missing", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			in.writeMode("/usr/lib/systemd/systemd", elfWithLibrary(elfAMD64, interpreter, "libc.so.6"), 0o755)
			in.write("/usr/lib/x86_64-linux-gnu/libc.so.6", "")
		}},
		{"a library of a library", "debian-bios", "init-library-missing", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			in.writeMode("/usr/lib/systemd/systemd", elfWithLibrary(elfAMD64, interpreter, "libmore.so.1"), 0o755)
			in.write("/usr/lib/x86_64-linux-gnu/libmore.so.1", elfWithLibrary(elfAMD64, "", "libgone.so.1"))
		}},
		{"cut off", "debian-bios", "init-not-executable", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			whole := elfWithLibrary(elfAMD64, interpreter, "libc.so.6")
			in.writeMode("/usr/lib/systemd/systemd", whole[:len(whole)-1], 0o755)
		}},
		{"cut off at once", "debian-bios", "init-not-executable", diagnose.BlocksBoot, program("\x7fELF")},
		{"ld.so cut off", "debian-bios", "init-interpreter-missing", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			in.write("/usr/lib64/ld-linux-x86-64.so.2", "\x7fELF")
		}},
		{"in a folder of ld.so.conf", "debian-bios", "init-library-missing", nearMiss, func(_ *testing.T, in *installed) {
			in.writeMode("/usr/lib/systemd/systemd", elfWithLibrary(elfAMD64, interpreter, "libx.so.1"), 0o755)
			in.write("/etc/ld.so.conf.d/x.conf", "/opt/x\n")
			in.write("/opt/x/libx.so.1", elfFile(elfAMD64, ""))
		}},

		{"libc", "debian-bios", "package-upgrade-interrupted", diagnose.BlocksBoot, status("Package: libc6\nStatus: install ok half-installed\n\n")},
		{"a tool", "debian-bios", "package-upgrade-interrupted", diagnose.Degrades, status("Package: cowsay\nStatus: install ok half-configured\n\n")},
		{"dpkg itself", "debian-bios", "package-upgrade-interrupted", diagnose.Degrades, func(_ *testing.T, in *installed) { in.write("/var/lib/dpkg/updates/0001", "") }},
		{"removed packages", "debian-bios", "package-upgrade-interrupted", nearMiss, status("Package: man-db\nStatus: install ok triggers-pending\n\nPackage: x\nStatus: deinstall ok config-files\n")},

		{"the root", "debian-bios", "file-system-damaged", diagnose.BlocksBoot, check("/dev/sda1", 4, true)},
		{"of no mount", "rhel-lvm", "file-system-damaged", diagnose.Degrades, check("/dev/sda3", 4, true)},
		{"not clean", "debian-bios", "file-system-damaged", nearMiss, check("/dev/sda1", 0, false)},
		{"the root", "debian-bios", "file-system-not-mounted", diagnose.BlocksBoot, refused("/dev/sda1", "Structure needs cleaning")},
		{"a newer feature", "debian-bios", "file-system-not-mounted", nearMiss, refused("/dev/sda1", "couldn't mount because of unsupported optional features (10000)")},
		{"a flag", "debian-bios", "file-system-errors-recorded", diagnose.Degrades, func(t *testing.T, in *installed) { in.device(t, "/dev/sda1").Space.ReadOnlyFlags = true }},
		{"none", "debian-bios", "file-system-errors-recorded", nearMiss, nothing},
		{"ext4", "debian-bios", "superblock-missing", diagnose.BlocksBoot, lost(gone(ext4Disk(gib, dataUUID)), dataUUID)},
		{"a leftover that nothing names", "debian-bios", "superblock-missing", nearMiss, lost(gone(ext4Disk(gib, dataUUID)), deadUUID)},
		{"larger than the partition", "debian-bios", "superblock-missing", nearMiss, func(t *testing.T, in *installed) {
			content := gone(ext4Disk(2*gib, dataUUID))
			content.size = gib
			lost(content, dataUUID)(t, in)
		}},
		{"swsusp", "debian-bios", "hibernation-image", diagnose.Info, mark("S1SUSPEND")},
		{"swap space", "debian-bios", "hibernation-image", nearMiss, nothing},
	}...)
}

// A system whose root was not found still has findings about its disks.
func TestRulesWithoutRoot(t *testing.T) {
	in := debianBIOS()
	content := ext4Disk(18*gib, rootUUID)
	delete(content.pieces, 1024)
	d := in.device(t, "/dev/sda1")
	d.FS, d.UUID, d.MountedAt, d.Space, d.Content = "", "", "", nil, content
	s := in.system()
	s.Files, s.Root = nil, ""
	found, gaps := diagnose.Run(Rules(), s)
	if len(gaps) > 0 {
		t.Errorf("gaps %+v", gaps)
	}
	if _, verdict := diagnose.Judge(found); verdict.Finding != "superblock-missing" {
		t.Errorf("verdict %+v of %+v", verdict, found)
	}
}

func FuzzProgram(f *testing.F) {
	f.Add([]byte(elfFile(elfAMD64, "/lib/ld.so")))
	f.Add([]byte(elfWithLibrary(elfAMD64, "/lib/ld.so", "libc.so.6")))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := config.ReadProgram(strings.NewReader(string(b)))
		if err == nil && len(p.Libraries) > config.MaxLibraries {
			t.Errorf("%d libraries", len(p.Libraries))
		}
	})
}
