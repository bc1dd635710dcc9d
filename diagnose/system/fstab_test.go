package system

import (
	"maps"
	"slices"
	"testing"

	"salvor/diagnose"
)

func init() {
	line := func(text string) func(*testing.T, *installed) {
		return func(_ *testing.T, in *installed) { in.add("/etc/fstab", text+"\n") }
	}
	swap := func(old, text string) func(*testing.T, *installed) {
		return func(t *testing.T, in *installed) { in.replace(t, "/etc/fstab", old, text) }
	}
	second := func(kind string) func(*testing.T, *installed) {
		return func(_ *testing.T, in *installed) {
			in.Devices = append(in.Devices, diagnose.Device{Path: "/dev/sdb", Kind: diagnose.DiskDevice, Size: gib, FS: kind, UUID: dataUUID})
		}
	}
	both := func(changes ...func(*testing.T, *installed)) func(*testing.T, *installed) {
		return func(t *testing.T, in *installed) {
			for _, change := range changes {
				change(t, in)
			}
		}
	}
	dead := "UUID=" + deadUUID
	ruleCases = append(ruleCases, []ruleCase{
		{"a data disk", "debian-bios", "fstab-device-missing", diagnose.BlocksBoot, line(dead + " /data ext4 defaults 0 2")},
		{"the root", "debian-uefi", "fstab-device-missing", diagnose.BlocksBoot, swap(rootUUID, deadUUID)},
		{"the ESP", "rhel-lvm", "fstab-device-missing", diagnose.BlocksBoot, swap(espUUID, "DEAD-BEEF")},
		{"a volume", "rhel-lvm", "fstab-device-missing", diagnose.BlocksBoot, line("/dev/rhel_web-7/data /data xfs defaults 0 0")},
		{"swap", "debian-bios", "fstab-device-missing", diagnose.Degrades, swap(swapUUID, deadUUID)},
		{"without systemd", "alpine-openrc", "fstab-device-missing", diagnose.Degrades, line(dead + " /data ext4 defaults 0 0")},
		{"nofail", "debian-bios", "fstab-device-missing", nearMiss, line(dead + " /data ext4 defaults,nofail 0 2")},
		{"noauto", "debian-bios", "fstab-device-missing", nearMiss, line(dead + " /data ext4 noauto 0 2")},
		{"automount", "debian-bios", "fstab-device-missing", nearMiss, line(dead + " /data ext4 x-systemd.automount 0 2")},
		{"a comment", "debian-bios", "fstab-device-missing", nearMiss, line("# " + dead + " /data ext4 defaults 0 2")},
		{"over a network", "debian-bios", "fstab-device-missing", nearMiss, line(dead + " /data ext4 _netdev 0 2")},
		{"capitals and quotes", "debian-bios", "fstab-device-missing", nearMiss, both(swap(rootUUID, `"`+"3A1D5D2E-6C0B-4EF1-9A4C-6B1A4B1C0001"+`"`))},
		{"the volume by its group", "rhel-lvm", "fstab-device-missing", nearMiss, swap("/dev/mapper/rhel_web--7-swap", "/dev/rhel_web-7/swap")},
		{"an array by its number", "debian-luks-raid", "fstab-device-missing", nearMiss, swap("UUID="+bootUUID+" /boot", "/dev/md0 /boot")},
		{"an array by a number that the system gives", "debian-luks-raid", "fstab-device-missing", nearMiss, swap("UUID="+bootUUID+" /boot", "/dev/md127 /boot")},
		{"an array by its name in mdadm.conf", "debian-luks-raid", "fstab-kernel-name", nearMiss, both(swap("UUID="+bootUUID+" /boot", "/dev/md/boot /boot"), func(t *testing.T, in *installed) {
			in.replace(t, "/etc/mdadm/mdadm.conf", "ARRAY /dev/md/0", "ARRAY /dev/md/boot")
		})},
		{"a label with a blank", "debian-bios", "fstab-device-missing", nearMiss, both(second("ext4"), func(_ *testing.T, in *installed) {
			in.Devices[len(in.Devices)-1].Label = "my data"
		}, line(`LABEL=my\040data /data ext4 defaults 0 2`))},

		{"a blank in udev's link", "debian-bios", "fstab-device-missing", nearMiss, both(second("ext4"), func(_ *testing.T, in *installed) {
			in.Devices[len(in.Devices)-1].Label = "my data"
		}, line(`/dev/disk/by-label/my\x20data /data ext4 defaults 0 2`))},

		{"a name of no disk", "debian-bios", "fstab-kernel-name", diagnose.BlocksBoot, line("/dev/sdb1 /data ext4 defaults 0 2")},
		{"the order changed", "debian-bios", "fstab-kernel-name", diagnose.BlocksBoot, both(second("xfs"), func(_ *testing.T, in *installed) {
			in.Devices = append(in.Devices, diagnose.Device{Path: "/dev/sdc", Kind: diagnose.DiskDevice, Size: gib, FS: "ext4", UUID: "other"})
		}, line("/dev/sdb /data ext4 defaults 0 2"))},
		{"the right disk", "debian-bios", "fstab-kernel-name", nearMiss, both(second("ext4"), line("/dev/sdb /data ext4 defaults 0 2"))},

		{"two fields", "debian-bios", "fstab-line-invalid", diagnose.Degrades, line("/dev/sdb /data")},
		{"a folder without slash", "debian-bios", "fstab-line-invalid", diagnose.Degrades, line("tmpfs data tmpfs defaults 0 0")},
		{"three fields", "debian-bios", "fstab-line-invalid", nearMiss, line("tmpfs /data tmpfs")},

		{"a type that no kernel has", "debian-bios", "fstab-type-unknown", diagnose.BlocksBoot, swap(" ext4    errors", " exf4    errors")},
		{"the type is left out", "debian-bios", "fstab-type-unknown", diagnose.BlocksBoot, swap(" ext4    errors", " errors")},
		{"a helper mounts it", "debian-bios", "fstab-type-unknown", nearMiss, both(line("pool /data zeta nofail 0 0"), func(_ *testing.T, in *installed) {
			in.writeMode("/usr/sbin/mount.zeta", "#!/bin/sh\n", 0o755)
		})},
		{"a module mounts it", "debian-bios", "fstab-type-unknown", nearMiss, both(line("/dev/sda9 /data zeta defaults 0 0"), func(_ *testing.T, in *installed) {
			in.write("/usr/lib/modules/"+debian12+"/kernel/fs/zeta/zeta.ko", "")
		})},

		{"xfs is ext4", "debian-bios", "fstab-type-wrong", diagnose.BlocksBoot, both(second("xfs"), line("UUID="+dataUUID+" /data ext4 defaults 0 2"))},
		{"a container is mounted", "debian-bios", "fstab-type-wrong", diagnose.BlocksBoot, both(second("crypto_LUKS"), line("UUID="+dataUUID+" /data ext4 defaults 0 2"))},
		{"ext4 as ext3", "debian-bios", "fstab-type-wrong", nearMiss, both(second("ext3"), line("UUID="+dataUUID+" /data ext4 defaults 0 2"))},
		{"auto", "debian-bios", "fstab-type-wrong", nearMiss, both(second("xfs"), line("UUID="+dataUUID+" /data auto defaults 0 2"))},

		{"a typo", "debian-bios", "fstab-option-invalid", diagnose.BlocksBoot, line("UUID=" + rootUUID + " /data ext4 defualts 0 2")},
		{"of another file system", "rhel-lvm", "fstab-option-invalid", diagnose.BlocksBoot, swap("/boot xfs defaults", "/boot xfs delalloc")},
		{"options of systemd and ext4", "debian-bios", "fstab-option-invalid", nearMiss, swap("errors=remount-ro", "x-systemd.growfs,data=ordered,commit=60,nobarrier,usrjquota=aquota.user,jqfmt=vfsv1")},

		{"two roots", "debian-bios", "fstab-duplicate", diagnose.Degrades, line("tmpfs / tmpfs defaults 0 0")},
		{"two swaps", "debian-bios", "fstab-duplicate", nearMiss, line("/swapfile none swap sw 0 0")},

		{"ro", "debian-bios", "fstab-root-read-only", diagnose.Degrades, swap("errors=remount-ro", "ro")},
		{"a system made for it", "debian-bios", "fstab-root-read-only", nearMiss, both(swap("errors=remount-ro", "ro"), line("tmpfs /var tmpfs defaults 0 0"))},

		{"no such subvolume", "fedora-btrfs", "fstab-subvolume-missing", diagnose.BlocksBoot, swap("subvol=root", "subvol=@nope")},
		{"no such subvolume for a place with one of its name", "fedora-btrfs", "fstab-subvolume-missing", diagnose.BlocksBoot, swap("subvol=home", "subvol=@nope")},
		{"no such subvolume, and none is free", "suse-btrfs", "fstab-subvolume-missing", diagnose.BlocksBoot, func(t *testing.T, in *installed) {
			swap("subvol=/@/srv", "subvol=/@/nope")(t, in)
			in.Devices[2].Subvolumes = slices.DeleteFunc(in.Devices[2].Subvolumes, func(v string) bool { return v == "@/srv" })
		}},
		{"no such subvolume, and another is free", "fedora-btrfs", "fstab-subvolume-missing", diagnose.BlocksBoot, func(t *testing.T, in *installed) {
			swap("subvol=home", "subvol=@nope")(t, in)
			in.Devices[3].Subvolumes = []string{"root", "snapshots/home", "other"}
		}},
		{"a slash before it", "fedora-btrfs", "fstab-subvolume-missing", nearMiss, swap("subvol=root", "subvol=/root")},

		{"NFS", "debian-bios", "fstab-network-mount", diagnose.Info, func(t *testing.T, in *installed) {
			line("nas:/export /data nfs defaults 0 0")(t, in)
			in.write("/usr/sbin/mount.nfs", "\x7fELF")
		}},
		{"NFS without its program", "debian-bios", "fstab-network-mount", diagnose.Degrades, line("nas:/export /data nfs defaults 0 0")},
		{"NFS without any mount", "debian-bios", "fstab-network-mount", diagnose.Info, func(t *testing.T, in *installed) {
			line("nas:/export /data nfs defaults 0 0")(t, in)
			in.remove("/usr/bin/mount")
		}},
		{"NFS in the background", "debian-bios", "fstab-network-mount", nearMiss, line("nas:/export /data nfs nofail,_netdev 0 0")},

		{"no such container", "debian-luks-raid", "crypttab-device-missing", diagnose.BlocksBoot, func(t *testing.T, in *installed) {
			in.replace(t, "/etc/crypttab", luksUUID, deadUUID)
		}},
		{"a data disk", "debian-bios", "crypttab-device-missing", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			in.write("/etc/crypttab", "data UUID="+deadUUID+" none luks\n")
			in.add("/etc/fstab", "/dev/mapper/data /data ext4 defaults 0 2\n")
		}},
		{"two mounts of a data disk", "debian-bios", "crypttab-device-missing", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			in.write("/etc/crypttab", "data UUID="+deadUUID+" none luks,nofail\n")
			in.add("/etc/fstab", "/dev/mapper/data /data btrfs subvol=a,nofail 0 0\n/dev/mapper/data /srv btrfs subvol=b 0 0\n")
		}},
		{"a data disk without a key", "debian-bios", "crypttab-device-missing", diagnose.Degrades, func(_ *testing.T, in *installed) {
			in.write("/etc/crypttab", "data UUID="+deadUUID+"\n")
		}},
		{"nofail", "debian-luks-raid", "crypttab-device-missing", nearMiss, func(_ *testing.T, in *installed) {
			in.add("/etc/crypttab", "data UUID="+deadUUID+" none luks,nofail\n")
		}},
		{"the header is gone", "debian-luks-raid", "crypttab-device-not-luks", diagnose.Degrades, func(t *testing.T, in *installed) {
			in.device(t, "/dev/md1").FS = ""
		}},
		{"swap with a random key", "debian-luks-raid", "crypttab-device-not-luks", nearMiss, func(_ *testing.T, in *installed) {
			in.add("/etc/crypttab", "cswap /dev/sda1 /dev/urandom swap,cipher=aes-xts-plain64\n")
		}},
		{"swap over a file system", "debian-luks-raid", "crypttab-overwrites", diagnose.Degrades, func(_ *testing.T, in *installed) {
			in.add("/etc/crypttab", "cswap /dev/md0 /dev/urandom swap,cipher=aes-xts-plain64\n")
		}},
		{"swap behind the label of a file system", "debian-luks-raid", "crypttab-overwrites", nearMiss, func(_ *testing.T, in *installed) {
			in.add("/etc/crypttab", "cswap /dev/md0 /dev/urandom swap,offset=2048,cipher=aes-xts-plain64\n")
		}},
		{"swap over a container", "debian-bios", "crypttab-overwrites", diagnose.Degrades, func(_ *testing.T, in *installed) {
			machine{in}.addDisk("crypto_LUKS", luksUUID, func(d *diagnose.Device) { d.Content = newDisk(gib).put(0, []byte("LUKS\xba\xbe\x00\x02")) })
			in.write("/etc/crypttab", "cswap /dev/sdb1 /dev/urandom swap\n")
		}},
		{"swap over what is left of a container", "debian-bios", "crypttab-overwrites", nearMiss, func(_ *testing.T, in *installed) {
			machine{in}.addDisk("crypto_LUKS", luksUUID, func(d *diagnose.Device) {
				d.Content = newDisk(gib).put(0, []byte("random")).put(0x4000, []byte("SKUL\xba\xbe\x00\x02"))
			})
			in.write("/etc/crypttab", "cswap /dev/sdb1 /dev/urandom swap\n")
		}},
		{"swap over what is left of a btrfs", "debian-bios", "crypttab-overwrites", nearMiss, func(_ *testing.T, in *installed) {
			machine{in}.addDisk("btrfs", dataUUID, nil)
			in.write("/etc/crypttab", "cswap /dev/sdb1 /dev/urandom swap\n")
		}},
		{"swap over former swap space", "debian-bios", "crypttab-overwrites", nearMiss, func(_ *testing.T, in *installed) {
			in.add("/etc/crypttab", "cswap /dev/sda5 /dev/urandom swap,cipher=aes-xts-plain64\n")
		}},
		{"no such key", "debian-luks-raid", "crypttab-keyfile-missing", diagnose.Degrades, func(t *testing.T, in *installed) {
			in.replace(t, "/etc/crypttab", "none", "/etc/keys/root.key")
		}},
		{"a script gives the key", "debian-luks-raid", "crypttab-keyfile-missing", nearMiss, func(t *testing.T, in *installed) {
			in.replace(t, "/etc/crypttab", "none luks", "/some/argument luks,keyscript=/bin/x")
		}},
		{"the key is there", "debian-luks-raid", "crypttab-keyfile-missing", nearMiss, func(t *testing.T, in *installed) {
			in.replace(t, "/etc/crypttab", "none", "/etc/keys/root.key")
			in.writeMode("/etc/keys/root.key", "key", 0o400)
		}},
	}...)
}

// A device that may lie in what was not examined is named with a confidence that makes no verdict.
func TestHiddenDeviceIsNotMissing(t *testing.T) {
	in := debianBIOS()
	in.add("/etc/fstab", "UUID="+deadUUID+" /data ext4 defaults 0 2\n")
	in.Devices = append(in.Devices, diagnose.Device{Path: "/dev/sdb", Kind: diagnose.DiskDevice, FS: "crypto_LUKS", UUID: luksUUID})
	for _, f := range findingsOf(t, in) {
		if f.ID == "fstab-device-missing" && f.Confidence >= 0.5 {
			t.Errorf("confidence %v beside a locked container", f.Confidence)
		}
	}
}

// What was not examined of a device with a known file system hides no other device.
func TestUncheckedFileSystemHidesNothing(t *testing.T) {
	in := debianBIOS()
	in.add("/etc/fstab", "UUID="+deadUUID+" /data ext4 defaults 0 2\n")
	in.Gaps = []diagnose.Gap{{What: "/dev/sda1", Why: "its file system is not checked fully"}}
	in.device(t, "/dev/sda1").NotExamined = "the kernel of this ramdisk knows not all features of its file system"
	for _, f := range findingsOf(t, in) {
		if f.ID == "fstab-device-missing" && f.Confidence < 0.5 {
			t.Errorf("confidence %v", f.Confidence)
		}
	}
}

func FuzzFstab(f *testing.F) {
	for _, layout := range []string{"debian-bios", "suse-btrfs", "alpine-openrc"} {
		f.Add(string(layouts[layout]().files["etc/fstab"].Data))
	}
	f.Add("a\\04 b\\777 c d e f g\n#\n/dev/disk/by-label/a\\x2 / ext4 ,,= x 9\n")
	base := debianBIOS()
	f.Fuzz(func(t *testing.T, text string) {
		in := &installed{System: base.System, files: maps.Clone(base.files)}
		in.write("/etc/fstab", text)
		in.write("/etc/crypttab", text)
		_, gaps := diagnose.Run(append(fstabRules(), cryptRules()...), in.system())
		for _, gap := range gaps {
			if gap.Why != "a report lists the first 20 of a rule" {
				t.Errorf("%+v", gap)
			}
		}
	})
}

// The initramfs opens the container that holds the root, so a repair of its line builds that anew.
func TestContainerOfTheRoot(t *testing.T) {
	for line, want := range map[string]diagnose.Stage{"/dev/mapper/md1_crypt / xfs defaults 0 0\n": diagnose.Root, "/dev/mapper/md1_crypt /data xfs defaults 0 0\n": diagnose.Target} {
		in := separateLayout("debian-luks-raid")
		in.write("/etc/crypttab", "md1_crypt UUID="+deadUUID+" none luks\nother UUID="+luksUUID+" none luks\n")
		in.write("/etc/fstab", line)
		found := lookCrypttab(in.system())
		if len(found) != 1 || found[0].Stage != want || found[0].Severity != diagnose.BlocksBoot {
			t.Errorf("%s: %+v", line, found)
		}
	}
}
