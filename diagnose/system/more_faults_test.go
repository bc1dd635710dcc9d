package system

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"salvor/diagnose"
)

func init() {
	type change = func(*testing.T, *installed)
	fstab := func(text string) change {
		return func(_ *testing.T, in *installed) { in.add("/etc/fstab", text+"\n") }
	}
	both := func(changes ...change) change {
		return func(t *testing.T, in *installed) {
			for _, change := range changes {
				change(t, in)
			}
		}
	}
	write := func(name, text string) change {
		return func(_ *testing.T, in *installed) { in.write(name, text) }
	}
	remove := func(names ...string) change {
		return func(_ *testing.T, in *installed) {
			for _, name := range names {
				in.remove(name)
			}
		}
	}
	folders := func(names ...string) change {
		return func(_ *testing.T, in *installed) {
			for _, name := range names {
				in.folder(name, 0o755, diagnose.Owner{})
			}
		}
	}
	library := func(name, needs string) change {
		return func(_ *testing.T, in *installed) {
			in.writeMode(name, elfWithLibrary(elfAMD64, "/lib64/ld-linux-x86-64.so.2", needs), 0o644)
		}
	}
	labels := func(all string, others map[string]string) change {
		return func(_ *testing.T, in *installed) {
			for name, f := range in.files {
				label := all
				for prefix, other := range others {
					if strings.HasPrefix("/"+name, prefix) {
						label = other
					}
				}
				owner := diagnose.Owner{}
				if o, ok := f.Sys.(*diagnose.Owner); ok {
					owner = *o
				}
				owner.Label = label
				in.files[name] = &fstest.MapFile{Data: f.Data, Mode: f.Mode, Sys: &owner}
			}
		}
	}
	noPasswords := write("/etc/ssh/sshd_config.d/10-hardening.conf", "PasswordAuthentication no\nKbdInteractiveAuthentication no\n")
	const etcLabel = "system_u:object_r:etc_t:s0"
	twin := func(devices ...diagnose.Device) change {
		return func(_ *testing.T, in *installed) { in.Devices = append(in.Devices, devices...) }
	}
	otherDisk := diagnose.Device{Path: "/dev/sdb", Kind: diagnose.DiskDevice, Size: 20 * gib, Serial: "QM00002", Table: "dos"}
	copied := holding(partitionOf("/dev/sdb1", "/dev/sdb", 1, mib, 18*gib, "0x83", "5c1a4f11-01"), "ext4", rootUUID, "", "")
	pooled := func(kind string) change { // two disks that hold one pool or file system together
		one, other := otherDisk, otherDisk
		other.Path, other.Serial = "/dev/sdc", "QM00003"
		one.FS, one.UUID = kind, "11372301845206518745"
		other.FS, other.UUID = one.FS, one.UUID
		return twin(one, other)
	}
	blocks, access, degrades := diagnose.BlocksBoot, diagnose.BlocksAccess, diagnose.Degrades
	const oldModules = "usr/lib/modules/5.10.0-99-cloud-amd64/kernel/"
	ruleCases = append(ruleCases, []ruleCase{
		{"a bind mount", "debian-bios", "fstab-type-unknown", nearMiss, both(folders("/srv/data", "/mnt/data"), fstab("/srv/data /mnt/data none bind 0 0"))},
		{"a bind mount with all below", "debian-bios", "fstab-type-unknown", nearMiss, both(folders("/srv/data"), fstab("/srv/data /mnt/data none rbind,ro 0 0"))},
		{"a bind mount of a type that no kernel has", "debian-bios", "fstab-type-unknown", nearMiss, both(folders("/srv/data"), fstab("/srv/data /mnt/data exf4 bind 0 0"))},
		{"a bind mount by its type", "debian-bios", "fstab-type-unknown", nearMiss, both(folders("/srv/data"), fstab("/srv/data /mnt/data bind defaults,bind 0 0"))},
		{"a mount that is shared", "debian-bios", "fstab-type-unknown", nearMiss, fstab("none / none rshared 0 0")},
		{"a mount that is moved", "debian-bios", "fstab-type-unknown", nearMiss, fstab("/mnt/a /mnt/b none move 0 0")},
		{"a type with no before it", "debian-bios", "fstab-type-unknown", blocks, fstab("/dev/sda9 /data noexf4 defaults 0 0")},
		{"types that are excluded", "debian-bios", "fstab-type-unknown", nearMiss, fstab("/dev/sda9 /data novfat,noext4 noauto 0 0")},
		{"a bind mount's options", "debian-bios", "fstab-option-invalid", nearMiss, both(folders("/srv/data"), fstab("/srv/data /mnt/data ext4 bind,x-mount.mkdir,nosuchoption 0 0"))},

		{"its source is gone, and systemd makes none", "debian-bios", "fstab-bind-source-missing", blocks, fstab("/srv/data/docker /var/lib/docker none bind 0 0")},
		{"its source is gone, and systemd makes one", "debian-bios", "fstab-bind-source-missing", degrades, both(write("/usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so", ""),
			fstab("/srv/data/docker /var/lib/docker none bind 0 0"))},
		{"its source is gone, with nofail", "debian-bios", "fstab-bind-source-missing", diagnose.Info, fstab("/srv/data/docker /var/lib/docker none bind,nofail 0 0")},
		{"its source lies on another disk", "debian-bios", "fstab-bind-source-missing", nearMiss, fstab("UUID=" + deadUUID + " /srv ext4 nofail 0 2\n/srv/docker /var/lib/docker none bind 0 0")},
		{"its source is made at boot", "debian-bios", "fstab-bind-source-missing", nearMiss, fstab("/run/x /mnt/x none bind 0 0")},
		{"its source is there", "debian-bios", "fstab-bind-source-missing", nearMiss, both(folders("/srv/docker"), fstab("/srv/docker /var/lib/docker none bind 0 0"))},

		{"gone", "debian-bios", "fstab-missing", degrades, remove("/etc/fstab")},
		{"without entries", "debian-bios", "fstab-missing", degrades, write("/etc/fstab", "# UNCONFIGURED FSTAB FOR BASE SYSTEM\n")},
		{"gone, and the kernel mounts for writing", "debian-bios", "fstab-missing", nearMiss, both(remove("/etc/fstab"), func(t *testing.T, in *installed) {
			in.replace(t, "/boot/grub/grub.cfg", " ro  quiet", " rw  quiet")
		})},
		{"gone, with systemd-boot", "debian-systemd-boot", "fstab-missing", nearMiss, remove("/etc/fstab")},

		{"too little free", "debian-bios", "kernel-limit-starves", blocks, write("/etc/sysctl.d/99-tuning.conf", "vm.min_free_kbytes = 8000000\n")},
		{"too few threads", "debian-bios", "kernel-limit-starves", blocks, write("/etc/sysctl.d/99-tuning.conf", "kernel/threads-max=20\n")},
		{"too few files", "debian-bios", "kernel-limit-starves", degrades, write("/etc/sysctl.conf", "fs.file-max = 64\n")},
		{"much, but not too much", "debian-bios", "kernel-limit-starves", nearMiss, write("/etc/sysctl.d/99-tuning.conf", "vm.min_free_kbytes = 1048576\nfs.file-max = 2097152\n")},
		{"a later file", "debian-bios", "kernel-limit-starves", nearMiss, both(write("/etc/sysctl.d/10-x.conf", "vm.min_free_kbytes = 8000000\n"), write("/usr/lib/sysctl.d/50-x.conf", "vm.min_free_kbytes = 67584\n"))},
		{"a file that another replaces", "debian-bios", "kernel-limit-starves", nearMiss, both(write("/usr/lib/sysctl.d/50-x.conf", "vm.min_free_kbytes = 8000000\n"), write("/etc/sysctl.d/50-x.conf", "# none\n"))},
		{"a comment", "debian-bios", "kernel-limit-starves", nearMiss, write("/etc/sysctl.d/99-tuning.conf", "# vm.min_free_kbytes = 8000000\n")},

		{"blacklisted", "debian-bios", "network-driver-blocked", access, write("/etc/modprobe.d/x.conf", "blacklist virtio_net\n")},
		{"a false program", "debian-bios", "network-driver-blocked", access, write("/etc/modprobe.d/x.conf", "# x\ninstall virtio-net /bin/false\n")},
		{"on the command line", "debian-bios", "network-driver-blocked", access, func(t *testing.T, in *installed) {
			in.replace(t, "/boot/grub/grub.cfg", " ro  quiet", " ro  quiet modprobe.blacklist=floppy,virtio_net")
		}},
		{"one of two", "debian-bios", "network-driver-blocked", degrades, both(write("/etc/modprobe.d/x.conf", "blacklist virtio_net\n"), func(_ *testing.T, in *installed) {
			in.NICs = append(in.NICs, diagnose.NIC{MAC: "52:54:00:12:34:57", Driver: "e1000e", Names: []string{"enp2s0"}, Carrier: true})
			in.add("/usr/lib/modules/"+debian12+"/modules.builtin", "kernel/drivers/net/ethernet/intel/e1000e/e1000e.ko\n")
		})},
		{"the initramfs holds the driver", "debian-bios", "network-driver-blocked", degrades, both(write("/etc/modprobe.d/x.conf", "blacklist virtio_net\n"),
			write("/boot/initrd.img-"+debian12, debianInitramfs(debian12, "usr/lib/modules/"+debian12+"/kernel/drivers/net/virtio_net.ko")))},
		{"loaded by its name", "debian-bios", "network-driver-blocked", nearMiss, both(write("/etc/modprobe.d/x.conf", "blacklist virtio_net\n"), write("/etc/modules-load.d/x.conf", "virtio_net\n"))},
		{"another driver", "debian-bios", "network-driver-blocked", nearMiss, write("/etc/modprobe.d/x.conf", "blacklist e1000e\ninstall sctp /bin/false\n")},
		{"in the kernel itself", "debian-bios", "network-driver-blocked", nearMiss, both(write("/etc/modprobe.d/x.conf", "blacklist virtio_net\n"), func(_ *testing.T, in *installed) {
			in.add("/usr/lib/modules/"+debian12+"/modules.builtin", "kernel/drivers/net/virtio_net.ko\n")
		})},
		{"another file replaces it", "debian-bios", "network-driver-blocked", nearMiss, both(write("/usr/lib/modprobe.d/x.conf", "blacklist virtio_net\n"), write("/etc/modprobe.d/x.conf", ""))},
		{"no module", "debian-bios", "network-driver-missing", access, func(t *testing.T, in *installed) {
			in.remove("/usr/lib/modules/" + debian12 + "/kernel/drivers/net")
			in.replace(t, "/usr/lib/modules/"+debian12+"/modules.dep", "kernel/drivers/net/virtio_net.ko.xz:\n", "")
		}},
		{"no file of the module", "debian-bios", "network-driver-missing", access, remove("/usr/lib/modules/" + debian12 + "/kernel/drivers/net")},
		{"its driver is not known", "debian-bios", "network-driver-missing", nearMiss, func(_ *testing.T, in *installed) { in.NICs[0].Driver = "" }},
		{"modules of DKMS", "debian-bios", "network-driver-missing", nearMiss, func(_ *testing.T, in *installed) {
			in.NICs[0].Driver = "e1000e"
			in.NICs = append(in.NICs, diagnose.NIC{MAC: "52:54:00:12:34:57", Driver: "virtio_net", Names: []string{"enp2s0"}, Carrier: true})
			in.add("/usr/lib/modules/"+debian12+"/modules.builtin", "kernel/drivers/net/ethernet/intel/e1000e/e1000e.ko\n")
		}},

		{"of another kernel", "debian-bios", "initramfs-lacks-driver", blocks, write("/boot/initrd.img-"+debian12, string(zstdCompressed(cpioArchive("init", "usr/", "usr/lib/", "usr/lib/modules/",
			oldModules, oldModules+"fs/ext4/ext4.ko", oldModules+"drivers/ata/ahci.ko"))))},
		{"of another kernel, and the root needs none", "debian-bios", "initramfs-lacks-driver", nearMiss, both(write("/boot/initrd.img-"+debian12, string(zstdCompressed(cpioArchive("init", oldModules,
			oldModules+"fs/xfs/xfs.ko")))), func(_ *testing.T, in *installed) {
			in.write("/usr/lib/modules/"+debian12+"/modules.dep", "kernel/drivers/net/virtio_net.ko.xz:\n")
		})},

		{"the library of a library", "debian-bios", "preload-library-broken", blocks, both(library("/usr/local/lib/libmonitor.so", "libgone.so.1"), write("/etc/ld.so.preload", "/usr/local/lib/libmonitor.so\n"))},
		{"a library further away", "debian-bios", "preload-library-broken", blocks, both(library("/usr/local/lib/libmonitor.so", "libmore.so"), library("/usr/local/lib/libmore.so", "libgone.so.1"),
			write("/etc/ld.so.preload", "# agent\n/usr/lib/other.so:/usr/local/lib/libmonitor.so\n"))},
		{"beside a whole library", "debian-bios", "preload-library-broken", blocks, both(library("/usr/local/lib/libmonitor.so", "libgone.so.1"), library("/usr/local/lib/libsecond.so", "libgone.so.2"),
			library("/usr/local/lib/libgood.so", "libc.so.6"), write("/etc/ld.so.preload", "# agent\n/usr/local/lib/libmonitor.so:/usr/local/lib/libgood.so /usr/local/lib/libsecond.so # keep\n"))},
		{"a library that is gone itself", "debian-bios", "preload-library-broken", nearMiss, write("/etc/ld.so.preload", "/usr/lib/libsnoopy.so\n")},
		{"a whole library", "debian-bios", "preload-library-broken", nearMiss, both(library("/usr/local/lib/libmonitor.so", "libc.so.6"), write("/etc/ld.so.preload", "/usr/local/lib/libmonitor.so\n"))},
		{"a comment", "debian-bios", "preload-library-broken", nearMiss, both(library("/usr/local/lib/libmonitor.so", "libgone.so.1"), write("/etc/ld.so.preload", "#/usr/local/lib/libmonitor.so\n"))},
		{"no library", "debian-bios", "preload-library-broken", nearMiss, both(write("/usr/local/lib/libmonitor.so", "text"), write("/etc/ld.so.preload", "/usr/local/lib/libmonitor.so\n"))},

		{"a disk and its copy", "debian-bios", "identity-duplicate", degrades, twin(copied, otherDisk)},
		{"two partitions of one identity", "debian-bios", "identity-duplicate", degrades, twin(func() diagnose.Device {
			d := copied
			d.UUID = dataUUID
			return d
		}(), otherDisk)},
		{"two paths to one disk", "debian-bios", "identity-duplicate", nearMiss, twin(copied, func() diagnose.Device {
			d := otherDisk
			d.Serial = "QM00001"
			return d
		}())},
		{"members of an array", "debian-luks-raid", "identity-duplicate", nearMiss, func(_ *testing.T, in *installed) {
			for i := range in.Devices {
				if in.Devices[i].FS == "linux_raid_member" {
					in.Devices[i].UUID = "11111111-2222-4333-8444-555555555555"
				}
			}
		}},
		{"devices of one ZFS pool", "debian-bios", "identity-duplicate", nearMiss, pooled("zfs_member")},
		{"devices of one bcachefs", "debian-bios", "identity-duplicate", nearMiss, pooled("bcachefs")},
		{"partitions of a firmware RAID", "debian-bios", "identity-duplicate", nearMiss, func(t *testing.T, in *installed) {
			twin(copied, otherDisk)(t, in)
			for i := range in.Devices {
				if in.Devices[i].Kind == diagnose.DiskDevice {
					in.Devices[i].FS = "isw_raid_member"
				}
			}
		}},
		{"devices of one btrfs", "fedora-btrfs", "identity-duplicate", nearMiss, func(_ *testing.T, in *installed) {
			in.Devices = append(in.Devices, diagnose.Device{Path: "/dev/sdb", Kind: diagnose.DiskDevice, Size: gib, Serial: "other", FS: "btrfs", UUID: btrfsUUID})
		}},

		{"keys without labels", "rhel-lvm", "selinux-keys-unlabelled", access, both(noPasswords, labels(etcLabel, map[string]string{"/root/": "", "/home/": ""}))},
		{"keys that were moved", "rhel-lvm", "selinux-keys-unlabelled", access, both(noPasswords,
			labels(etcLabel, map[string]string{"/root/.ssh/": "unconfined_u:object_r:user_tmp_t:s0", "/home/alice/.ssh/": "system_u:object_r:default_t:s0"}))},
		{"keys without labels, and a password", "rhel-lvm", "selinux-keys-unlabelled", degrades, labels(etcLabel, map[string]string{"/root/": "", "/home/": ""})},
		{"one account's keys without labels", "rhel-lvm", "selinux-keys-unlabelled", degrades, labels(etcLabel, map[string]string{"/home/": ""})},
		{"all have labels", "rhel-lvm", "selinux-keys-unlabelled", nearMiss, labels(etcLabel, nil)},
		{"labels could not be read", "rhel-lvm", "selinux-keys-unlabelled", nearMiss, func(*testing.T, *installed) {}},
		{"the next boot labels", "rhel-lvm", "selinux-keys-unlabelled", nearMiss, both(labels(etcLabel, map[string]string{"/root/": "", "/home/": ""}), write("/.autorelabel", ""))},

		{"another port", "rhel-lvm", "selinux-port-denied", access, write("/etc/ssh/sshd_config.d/10-port.conf", "Port 2222\n")},
		{"a port that was added", "rhel-lvm", "selinux-port-denied", nearMiss, both(write("/etc/ssh/sshd_config.d/10-port.conf", "Port 2222\n"),
			write("/var/lib/selinux/targeted/active/ports.local", "# auto\nportcon tcp 2222 system_u:object_r:ssh_port_t:s0\n"))},
		{"a port in a range", "rhel-lvm", "selinux-port-denied", nearMiss, both(write("/etc/ssh/sshd_config.d/10-port.conf", "Port 2222\n"),
			write("/var/lib/selinux/targeted/active/ports.local", "portcon tcp 2200-2300 system_u:object_r:ssh_port_t:s0\n"))},
		{"port 22 too", "rhel-lvm", "selinux-port-denied", nearMiss, write("/etc/ssh/sshd_config.d/10-port.conf", "Port 2222\nPort 22\n")},
		{"permissive", "rhel-lvm", "selinux-port-denied", nearMiss, both(write("/etc/ssh/sshd_config.d/10-port.conf", "Port 2222\n"), func(t *testing.T, in *installed) {
			in.replace(t, "/etc/selinux/config", "enforcing", "permissive")
		})},
	}...)
}

func init() {
	blocks, degrades := diagnose.BlocksAccess, diagnose.Degrades
	dropIn := func(text string) func(machine) {
		return func(m machine) { m.write("/etc/systemd/system/ssh.service.d/override.conf", text) }
	}
	socket := func(text string) func(machine) {
		return func(m machine) {
			m.remove("/etc/systemd/system/multi-user.target.wants/ssh.service")
			m.write("/usr/lib/systemd/system/ssh.socket", "[Socket]\nListenStream=22\nAccept=no\n")
			m.link("/etc/systemd/system/sockets.target.wants/ssh.socket", "/usr/lib/systemd/system/ssh.socket")
			m.write("/etc/systemd/system/ssh.socket.d/listen.conf", text)
		}
	}
	interfaces := func(text string) func(machine) {
		return func(m machine) { m.write("/etc/network/interfaces", "auto lo\niface lo inet loopback\n\n"+text) }
	}
	static := "auto enp1s0\niface enp1s0 inet static\n\taddress 192.0.2.10/24\n\tgateway 192.0.2.1\n"
	const unit = "sshd-unit-invalid"
	addAccessCases("debian-bios", []accessCase{
		{"a second command", dropIn("[Service]\nExecStart=/usr/sbin/sshd -D -e\n"), unit, blocks, "/etc/systemd/system/ssh.service.d/override.conf, line 2", 2},
		{"no command", dropIn("[Service]\nExecStart=\n"), unit, blocks, "it has no ExecStart=", 0},
		{"a program that is gone", dropIn("[Service]\nExecStart=\nExecStart=/opt/sshd/sbin/sshd -D\n"), unit, blocks, "/opt/sshd/sbin/sshd", 3},
		{"a configuration that is gone", dropIn("[Service]\nExecStartPre=\nExecStart=\nExecStart=/usr/sbin/sshd -D -f /etc/ssh/sshd_config_hardened\n"), unit, blocks, "sshd_config_hardened", 4},
		{"a configuration that is gone, by a variable", func(m machine) {
			dropIn("[Service]\nEnvironmentFile=-/etc/default/ssh\nExecStart=\nExecStart=/usr/sbin/sshd -D $SSHD_OPTS\n")(m)
			m.write("/etc/default/ssh", "SSHD_OPTS=\"-f /etc/ssh/other\"\n")
		}, unit, blocks, "/etc/ssh/other", 4},
		{"a check that is gone", dropIn("[Service]\nExecStartPre=/usr/local/bin/check-ssh\n"), unit, blocks, "check-ssh", 2},
		{"a file of variables that is gone", dropIn("[Service]\nEnvironmentFile=/etc/sysconfig/sshd\n"), unit, blocks, "/etc/sysconfig/sshd", 2},
		{"a folder that is gone", dropIn("[Service]\nWorkingDirectory=/srv/ssh\n"), unit, blocks, "/srv/ssh", 2},
		{"a drop-in of the alias", func(m machine) {
			m.link("/etc/systemd/system/sshd.service", "/usr/lib/systemd/system/ssh.service")
			m.write("/etc/systemd/system/sshd.service.d/override.conf", "[Service]\nExecStart=/usr/sbin/sshd -D -e\n")
		}, unit, blocks, "sshd.service.d/override.conf, line 2", 2},
		{"near miss: an empty command before", dropIn("[Service]\nExecStart=\nExecStart=/usr/sbin/sshd -D -e\n"), unit, nearMiss, "", 0},
		{"near miss: a program that may be gone", dropIn("[Service]\nExecStartPre=-/usr/local/bin/check-ssh\nEnvironmentFile=-/etc/sysconfig/sshd\nWorkingDirectory=-/srv/ssh\n"), unit, nearMiss, "", 0},
		{"near miss: a drop-in that is masked", func(m machine) {
			m.write("/usr/lib/systemd/system/ssh.service.d/10-x.conf", "[Service]\nExecStart=/usr/sbin/sshd -D -e\n")
			m.link("/etc/systemd/system/ssh.service.d/10-x.conf", "/dev/null")
		}, unit, nearMiss, "", 0},
		{"near miss: folders that each boot makes", dropIn("[Service]\nWorkingDirectory=/run/sshd\nEnvironmentFile=/run/sshd.env\nExecStartPre=/run/check-ssh\n"), unit, nearMiss, "", 0},
		{"near miss: a folder of a disk that is not mounted", func(m machine) {
			m.add("/etc/fstab", "UUID="+deadUUID+" /srv ext4 noauto 0 0\n")
			dropIn("[Service]\nWorkingDirectory=/srv/ssh\n")(m)
		}, unit, nearMiss, "", 0},
		{"near miss: other settings", dropIn("[Service]\nRestart=always\nRestartSec=5\n[Unit]\nAfter=network-online.target\n"), unit, nearMiss, "", 0},

		{"a socket on an address that is not there", func(m machine) {
			socket("[Socket]\nListenStream=\nListenStream=198.51.100.5:22\n")(m)
			interfaces(static)(m)
		}, "sshd-listens-nowhere", blocks, "198.51.100.5", 3},
		{"near miss: a socket on an address that may come later", func(m machine) {
			socket("[Socket]\nListenStream=\nListenStream=198.51.100.5:22\nFreeBind=yes\n")(m)
			interfaces(static)(m)
		}, "sshd-listens-nowhere", nearMiss, "", 0},
		{"near miss: a socket on all addresses", func(m machine) {
			socket("[Socket]\nListenStream=\nListenStream=0.0.0.0:2222\nListenStream=[::]:2222\n")(m)
			interfaces(static)(m)
		}, "sshd-listens-nowhere", nearMiss, "", 0},
		{"near miss: a socket in the place of an address", func(m machine) {
			socket("")(m)
			interfaces(static)(m)
			m.add("/etc/ssh/sshd_config", "ListenAddress 198.51.100.5\n")
		}, "sshd-listens-nowhere", nearMiss, "", 0},

		{"no DHCP client", func(m machine) {
			m.remove("/usr/sbin/dhclient")
			interfaces("allow-hotplug enp1s0\niface enp1s0 inet dhcp\n")(m)
		}, "network-dhcp-client-missing", blocks, "enp1s0 by DHCP", 5},
		{"near miss: a client of busybox", func(m machine) {
			m.remove("/usr/sbin/dhclient")
			m.link("/usr/bin/udhcpc", "busybox")
			m.program("/usr/bin/busybox", "\x7fELF")
		}, "network-dhcp-client-missing", nearMiss, "", 0},
		{"near miss: a static address needs none", func(m machine) {
			m.remove("/usr/sbin/dhclient")
			interfaces(static + "iface enp1s0 inet6 auto\n")(m)
		}, "network-dhcp-client-missing", nearMiss, "", 0},

		{"ifup is gone", func(m machine) { m.remove("/usr/sbin/ifup") }, "network-unit-invalid", blocks, "/sbin/ifup", 5},
		{"ifup may not be run", func(m machine) { m.mode("/usr/sbin/ifup", 0o644) }, "network-unit-invalid", blocks, "mode 0644", 5},
		{"ifup is a link to itself", func(m machine) { m.remove("/usr/sbin/ifup"); m.link("/usr/sbin/ifup", "ifup") }, "network-unit-invalid", blocks, "/sbin/ifup", 5},
		{"near miss: the program of a manager that is off", func(m machine) { m.remove("/usr/lib/systemd/NetworkManager") }, "network-unit-invalid", nearMiss, "", 0},

		{"the line source is lost", func(m machine) {
			m.write("/etc/network/interfaces.d/lan", static)
			interfaces("")(m)
		}, "network-nothing-configured", blocks, "/etc/network/interfaces.d/lan, line 2", 0},

		{"the owner of everything", func(m machine) {
			for name := range m.files {
				if name != "." && !strings.HasPrefix(name, "tmp") {
					m.owner(name, 33, 33)
				}
			}
		}, "owners-changed", blocks, "user id 33", 0},
		{"near miss: the owner of a folder", func(m machine) { m.owner("/home", 33, 33) }, "owners-changed", nearMiss, "", 0},
		{"the modes of everything", func(m machine) {
			for name, f := range m.files {
				if f.Mode&fs.ModeSymlink == 0 {
					m.mode(name, 0o777)
				}
			}
		}, "permissions-open", blocks, "modes of the whole system", 0},

		{"a library of sshd", func(m machine) {
			m.program("/usr/sbin/sshd", elfWithLibrary(elfAMD64, "/lib64/ld-linux-x86-64.so.2", "libcrypto.so.3"))
		}, "sshd-library-missing", blocks, "libcrypto.so.3", 0},
		{"a library of sshd cut off", func(m machine) {
			m.program("/usr/sbin/sshd", elfWithLibrary(elfAMD64, "/lib64/ld-linux-x86-64.so.2", "libcrypto.so.3"))
			m.write("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "\x7fELF")
		}, "sshd-library-missing", blocks, "libcrypto.so.3 is damaged", 0},
		{"sshd cut off", func(m machine) { m.program("/usr/sbin/sshd", "\x7fELF") }, "sshd-library-missing", blocks, "/usr/sbin/sshd is damaged", 0},
		{"a library of every shell that nobody but root reads", func(m machine) {
			m.program("/usr/bin/bash", elfWithLibrary(elfAMD64, "/lib64/ld-linux-x86-64.so.2", "libtinfo.so.6"))
			m.write("/usr/lib/x86_64-linux-gnu/libtinfo.so.6", elfFile(elfAMD64, ""))
			m.mode("/usr/lib/x86_64-linux-gnu/libtinfo.so.6", 0o600)
		}, "shell-missing", degrades, "libtinfo.so.6", 0},
		{"near miss: a library that belongs to another account", func(m machine) {
			m.program("/usr/bin/bash", elfWithLibrary(elfAMD64, "/lib64/ld-linux-x86-64.so.2", "libtinfo.so.6"))
			m.write("/usr/lib/x86_64-linux-gnu/libtinfo.so.6", elfFile(elfAMD64, ""))
			m.owner("/usr/lib/x86_64-linux-gnu/libtinfo.so.6", 33, 33)
		}, "shell-missing", nearMiss, "", 0},
		{"near miss: a library of sshd elsewhere", func(m machine) {
			m.program("/usr/sbin/sshd", elfWithLibrary(elfAMD64, "/lib64/ld-linux-x86-64.so.2", "libcrypto.so.3"))
			m.write("/opt/ssl/lib/libcrypto.so.3", elfFile(elfAMD64, ""))
			m.write("/etc/ld.so.conf.d/ssl.conf", "/opt/ssl/lib\n")
		}, "sshd-library-missing", nearMiss, "", 0},
	})
	addAccessCases("rhel-lvm", []accessCase{
		{"the only connection is ignored, and has DHCP", func(m machine) {
			m.mode("/etc/NetworkManager/system-connections/enp1s0.nmconnection", 0o644)
		}, "network-config-invalid", degrades, "0644", 0},
		{"the only connection is ignored, and is static", func(m machine) {
			const name = "/etc/NetworkManager/system-connections/enp1s0.nmconnection"
			m.edit(name, "[ipv4]\nmethod=auto\n\n[ipv6]\nmethod=auto\n", "[ipv4]\nmethod=manual\naddress1=192.0.2.10/24,192.0.2.1\n\n[ipv6]\nmethod=disabled\n")
			m.mode(name, 0o644)
		}, "network-config-invalid", blocks, "static address", 0},
	})
}

// TestFindingsOfInfo: what harms nothing proposes no repair.
func TestFindingsOfInfo(t *testing.T) {
	in := debianBIOS()
	in.add("/etc/fstab", "UUID="+deadUUID+" /data exf4 defaults,nofail 0 2\n")
	for _, f := range findingsOf(t, in) {
		if f.Severity == diagnose.Info && f.Repair != nil {
			t.Errorf("%s proposes: %s", f.ID, f.Repair.Summary)
		}
	}
}

// TestProgramsAreNoGaps: a large program that a start runs is no script, so that nobody has to read it as a text.
func TestProgramsAreNoGaps(t *testing.T) {
	in := debianBIOS()
	const program, unit = "/usr/sbin/agent", "/etc/systemd/system/agent.service"
	machine{in}.program(program, "\x7fELF"+strings.Repeat("x", 2*maxScript))
	in.write(unit, "[Service]\nExecStart="+program+"\n")
	in.link("/etc/systemd/system/multi-user.target.wants/agent.service", unit)
	if _, gaps := diagnose.Run(Rules(), in.system()); hasGap(gaps, program) {
		t.Errorf("%s, a program of %d bytes: want no gap, got %+v", program, 2*maxScript, gaps)
	}
}

// TestUnexaminedFiles: what is no file, or too large, is a gap and no finding, and a line that was read of a large file is one.
func TestUnexaminedFiles(t *testing.T) {
	pipe := func(in *installed, name string) {
		in.files[strings.TrimPrefix(name, "/")] = &fstest.MapFile{Mode: fs.ModeNamedPipe | 0o644, Sys: &diagnose.Owner{}}
	}
	large := strings.Repeat("# a comment line in a very long file\n", diagnose.MaxFile/36)
	for name, tc := range map[string]struct {
		change func(*installed)
		gaps   []string
		ids    []string // that have to be found
		not    []string
	}{
		"pipes": {func(in *installed) {
			for _, name := range []string{"/etc/ssh/sshd_config", "/etc/fstab", "/etc/network/interfaces"} {
				pipe(in, name)
			}
		}, []string{"/etc/ssh/sshd_config", "/etc/fstab", "/etc/network/interfaces"}, nil, []string{"network-nothing-configured", "sshd-config-missing", "fstab-missing"}},
		"a device for shadow": {func(in *installed) {
			in.files["etc/shadow"] = &fstest.MapFile{Mode: fs.ModeDevice | fs.ModeCharDevice | 0o640, Sys: &diagnose.Owner{}}
		}, []string{"/etc/shadow"}, nil, []string{"shadow-entry-missing", "shadow-missing", "login-impossible"}},
		"a large configuration": {func(in *installed) { in.write("/etc/ssh/sshd_config", "NoSuchKeyword yes\n"+large) },
			[]string{"/etc/ssh/sshd_config"}, []string{"sshd-config-invalid"}, nil},
		"a large fstab": {func(in *installed) { in.add("/etc/fstab", "UUID="+deadUUID+" /data ext4 defaults 0 2\n"+large) },
			[]string{"/etc/fstab"}, []string{"fstab-device-missing"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			in := debianBIOS()
			tc.change(in)
			found, gaps := diagnose.Run(Rules(), in.system())
			for _, want := range tc.gaps {
				if !hasGap(gaps, want) {
					t.Errorf("no gap %s among %+v", want, gaps)
				}
			}
			ids := map[string]bool{}
			for _, f := range found {
				ids[f.ID] = true
			}
			for _, id := range tc.ids {
				if !ids[id] {
					t.Errorf("no finding %s among %+v", id, found)
				}
			}
			for _, id := range tc.not {
				if ids[id] {
					t.Errorf("%s although its file was not read", id)
				}
			}
		})
	}
}

func hasGap(gaps []diagnose.Gap, what string) bool {
	for _, g := range gaps {
		if g.What == what {
			return true
		}
	}
	return false
}
