package system

import (
	"strings"
	"testing"

	"salvor/diagnose"
)

func init() {
	type change = func(*testing.T, *installed)
	blocks, access := diagnose.BlocksBoot, diagnose.BlocksAccess
	with := func(change func(machine)) change {
		return func(_ *testing.T, in *installed) { change(machine{in}) }
	}
	argument := func(text string) change { return with(func(m machine) { kernelArgument(m, text) }) }
	fstab := func(line string) change {
		return with(func(m machine) {
			dataDisk(m)
			m.add("/etc/fstab", line+"\n")
		})
	}
	noBuiltin := func(m machine) {
		m.write("/usr/lib/modules/"+debian12+"/modules.builtin", "kernel/fs/nls/nls_base.ko\n")
	}
	forbid := func(text string) change {
		return with(func(m machine) {
			noBuiltin(m)
			m.write("/etc/modprobe.d/cis.conf", text)
		})
	}
	inittab := func(text string) change { return with(func(m machine) { m.write("/etc/inittab", text) }) }
	extlinux := func(old, text string) change {
		return with(func(m machine) { m.edit("/boot/extlinux.conf", old, text) })
	}
	ruleCases = append(ruleCases, []ruleCase{
		{"another type", "debian-bios", "root-type-wrong", blocks, argument("rootfstype=xfs")},
		{"several types without it", "debian-bios", "root-type-wrong", blocks, argument("rootfstype=btrfs,xfs")},
		{"several types with it", "debian-bios", "root-type-wrong", nearMiss, argument("rootfstype=xfs,ext4")},
		{"its family", "debian-bios", "root-type-wrong", nearMiss, argument("rootfstype=ext3")},

		{"forbidden", "debian-uefi", "fstab-driver-unavailable", blocks, forbid("install vfat /bin/false\n")},
		{"forbidden on the command line", "debian-uefi", "fstab-driver-unavailable", blocks, func(t *testing.T, in *installed) {
			noBuiltin(machine{in})
			kernelArgument(machine{in}, "module_blacklist=vfat")
		}},
		{"a blacklist, which mount does not ask", "debian-uefi", "fstab-driver-unavailable", nearMiss, forbid("blacklist vfat\n")},
		{"forbidden, and a part of the kernel", "debian-uefi", "fstab-driver-unavailable", nearMiss, with(func(m machine) { m.write("/etc/modprobe.d/cis.conf", "install vfat /bin/true\n") })},
		{"another one forbidden", "debian-uefi", "fstab-driver-unavailable", nearMiss, forbid("install cramfs /bin/true\ninstall udf /bin/true\n")},
		{"forbidden, and a program mounts it", "debian-uefi", "fstab-driver-unavailable", nearMiss, func(t *testing.T, in *installed) {
			forbid("install vfat /bin/true\n")(t, in)
			machine{in}.program("/usr/sbin/mount.vfat", "")
		}},
		{"forbidden, with nofail", "debian-uefi", "fstab-driver-unavailable", nearMiss, func(t *testing.T, in *installed) {
			forbid("install vfat /bin/true\n")(t, in)
			in.replace(t, "/etc/fstab", "umask=0077", "umask=0077,nofail")
		}},

		{"without openrc", "alpine-openrc", "inittab-invalid", blocks, inittab("tty1::respawn:/sbin/getty 38400 tty1\n")},
		{"with openrc in comments", "alpine-openrc", "inittab-invalid", blocks, inittab("# ::sysinit:/sbin/openrc sysinit\ntty1::respawn:/sbin/getty 38400 tty1\n")},
		{"with a script of the administrator", "alpine-openrc", "inittab-invalid", nearMiss, inittab("::sysinit:/usr/local/sbin/start.sh\n")},
		{"stops the machine", "alpine-openrc", "inittab-invalid", blocks, with(func(m machine) {
			program := string(m.files["bin/busybox"].Data)
			m.remove("/sbin/init")
			m.program("/sbin/init", program)
			m.write("/etc/inittab", "id:0:initdefault:\n::sysinit:/sbin/openrc sysinit\n")
		})},
		{"a run level of busybox, which has none", "alpine-openrc", "inittab-invalid", nearMiss, inittab("id:0:initdefault:\n::sysinit:/sbin/openrc sysinit\n")},
		{"in order", "alpine-openrc", "inittab-invalid", nearMiss, inittab("id:2:initdefault:\n::sysinit:/sbin/openrc sysinit\n")},

		{"another label", "alpine-openrc", "extlinux-default-missing", blocks, extlinux("DEFAULT menu.c32", "DEFAULT virt")},
		{"a label", "alpine-openrc", "extlinux-default-missing", nearMiss, extlinux("DEFAULT menu.c32", "DEFAULT lts")},
		{"a kernel and its arguments", "alpine-openrc", "extlinux-default-missing", nearMiss, extlinux("DEFAULT menu.c32", "DEFAULT vmlinuz-lts quiet")},
		{"a menu beside it", "alpine-openrc", "extlinux-default-missing", nearMiss, extlinux("DEFAULT menu.c32", "DEFAULT virt\nUI menu.c32")},

		{"a file as a mount point", "debian-bios", "fstab-line-invalid", blocks, func(t *testing.T, in *installed) {
			in.write("/data", "")
			fstab("UUID="+dataUUID+" /data ext4 defaults 0 2")(t, in)
		}},
		{"a mount point that systemd makes", "debian-bios", "fstab-line-invalid", nearMiss, fstab("UUID=" + dataUUID + " /data ext4 defaults 0 2")},
		{"a unit that is there", "debian-bios", "fstab-line-invalid", nearMiss, fstab("UUID=" + dataUUID + " /data ext4 x-systemd.requires=systemd-udevd.service,x-systemd.requires=/srv 0 2")},
		{"masked by the kernel", "debian-bios", "unit-masked", blocks, argument("systemd.mask=local-fs.target")},
		{"another unit masked by the kernel", "debian-bios", "unit-masked", nearMiss, argument("systemd.mask=bluetooth.service")},
		{"masked by the kernel", "debian-bios", "sshd-masked", access, argument("systemd.mask=ssh")},
	}...)

	sshd := func(text string) func(machine) {
		return func(m machine) { m.add("/etc/ssh/sshd_config", text) }
	}
	unit := func(text string) func(machine) {
		return func(m machine) { m.write("/etc/systemd/system/ssh.service.d/50-x.conf", text) }
	}
	pam := func(module, line string) func(machine) {
		return func(m machine) { pamAccount(m, module, line) }
	}
	const id, noPasswords = "ssh-login-impossible", "PasswordAuthentication no\n"
	addAccessCases("debian-bios", []accessCase{
		// Match blocks
		{"a block for each account", sshd(noPasswords + "Match User root,alice\n PubkeyAuthentication no\n"), id, access, "keys are off", 10},
		{"a block for a group", sshd(noPasswords + "PermitRootLogin no\nMatch Group sudo\n AuthorizedKeysFile /etc/ssh/none/%u\n"), id, access, "it has no key in /etc/ssh/none/alice", 0},
		{"a block that helps nobody", sshd(noPasswords + "PubkeyAuthentication no\nMatch Address 10.0.0.0/8\n X11Forwarding no\n PermitTTY no\n"), id, access, "keys are off", 9},
		{"two blocks that exclude each other", sshd(noPasswords + "PubkeyAuthentication no\nMatch User bob Address 10.0.0.0/8\n PubkeyAuthentication yes\n"), id, access, "keys are off", 9},
		{"a block of a lost port", sshd(noPasswords + "PubkeyAuthentication no\nMatch LocalPort 2222\n PubkeyAuthentication yes\n"), id, access, "keys are off", 9},
		{"a block that replaces the list of users", sshd("AllowUsers root alice\nMatch User root,alice\n AllowUsers deploy\n"), "sshd-users-denied", access, "allowusers", 10},
		{"near miss: a block for one of two ports", sshd(noPasswords + "Port 22\nPort 2222\nMatch LocalPort 2222\n PubkeyAuthentication no\n"), id, nearMiss, "", 0},
		{"near miss: a block for some addresses", sshd(noPasswords + "PubkeyAuthentication no\nMatch Address 10.0.0.0/8\n PubkeyAuthentication yes\n"), id, nearMiss, "", 0},
		{"near miss: a block for one account", sshd(noPasswords + "Match User alice\n PubkeyAuthentication no\n"), id, nearMiss, "", 0},
		{"near miss: a block for all but one", sshd(noPasswords + "Match User *,!root\n PubkeyAuthentication no\n"), id, nearMiss, "", 0},
		{"near miss: a block for an account whose group matches", sshd(noPasswords + "PubkeyAuthentication no\nMatch Group sudo\n PubkeyAuthentication yes\n"), id, nearMiss, "", 0},
		{"near miss: root by password from one network", func(m machine) {
			rootOnly(m)
			m.remove("/root/.ssh")
			m.edit("/etc/shadow", "root:*:", "root:"+aliceHash+":")
			m.add("/etc/ssh/sshd_config", "Match Address 192.0.2.0/24\n PermitRootLogin yes\n")
		}, id, nearMiss, "", 0},

		// PAM
		{"a list that names nobody", func(m machine) {
			pam("listfile", "required pam_listfile.so item=user sense=allow file=/etc/ssh/allowed onerr=fail")(m)
			m.write("/etc/ssh/allowed", "deploy\n")
		}, id, access, "does not name it", 0},
		{"near miss: a list that names one", func(m machine) {
			pam("listfile", "required pam_listfile.so item=user sense=allow file=/etc/ssh/allowed onerr=fail")(m)
			m.write("/etc/ssh/allowed", "deploy\nalice\n")
		}, id, nearMiss, "", 0},
		{"near miss: a missing list that does not matter", pam("listfile", "required pam_listfile.so item=user sense=deny file=/etc/ssh/denied onerr=succeed"), id, nearMiss, "", 0},
		{"near miss: a condition that jumps over the denial", func(m machine) {
			pamAccount(m, "succeed_if", "[success=1 default=ignore] pam_succeed_if.so uid < 2000 quiet")
			m.edit("/etc/pam.d/common-account", "quiet\n", "quiet\naccount requisite pam_deny.so\n")
		}, id, nearMiss, "", 0},
		{"a condition that does not jump", func(m machine) {
			pamAccount(m, "succeed_if", "[success=1 default=ignore] pam_succeed_if.so uid > 2000 quiet")
			m.edit("/etc/pam.d/common-account", "quiet\n", "quiet\naccount requisite pam_deny.so\n")
		}, id, access, "pam_deny.so refuses everybody", 0},
		{"near miss: office hours", func(m machine) {
			pam("time", "required pam_time.so")(m)
			m.write("/etc/security/time.conf", "*;*;*;Wk0800-1800\n")
		}, id, nearMiss, "", 0},
		{"near miss: no time for others", func(m machine) {
			pam("time", "required pam_time.so")(m)
			m.write("/etc/security/time.conf", "sshd;*;!root&!alice;!Al0000-2400\nlogin;*;*;!Al0000-2400\n")
		}, id, nearMiss, "", 0},
		{"near miss: a denial that is optional", pam("deny", "optional pam_deny.so"), id, nearMiss, "", 0},
		{"near miss: no processes for a group without members", func(m machine) {
			debianPAM(m)
			sshd("PermitRootLogin no\n")(m)
			m.write("/etc/security/limits.conf", "@students hard nproc 0\n* soft nproc 0\n* hard nproc 0\nalice hard nproc 100\n")
		}, id, nearMiss, "", 0},
		{"no processes", func(m machine) {
			debianPAM(m)
			sshd("PermitRootLogin no\n")(m)
			m.write("/etc/security/limits.d/90-x.conf", "@sudo - nproc 0\n")
		}, id, access, "line 1 allows it no process by nproc 0", 0},
		{"a group that is not refused", pam("access", "required pam_access.so"), "access-conf-denies", nearMiss, "", 0},
		{"all but a group without members", func(m machine) {
			pam("access", "required pam_access.so")(m)
			m.write("/etc/security/access.conf", "-:ALL EXCEPT wheel (admins):ALL\n")
		}, "access-conf-denies", access, "line 1", 1},

		// Where sshd listens, and what starts it
		{"one address of the loopback interface", sshd("ListenAddress localhost:22\n"), "sshd-listens-nowhere", access, "no other machine reaches", 8},
		{"near miss: a program passes connections on", func(m machine) {
			sshd("ListenAddress 127.0.0.1\n")(m)
			m.program("/usr/sbin/sslh", "")
		}, "sshd-listens-nowhere", nearMiss, "", 0},
		{"near miss: the loopback interface and all others", sshd("ListenAddress 127.0.0.1\nListenAddress 0.0.0.0\n"), "sshd-listens-nowhere", nearMiss, "", 0},
		{"a file that must not be there", unit("[Unit]\nConditionPathExists=!/etc/ssh/sshd_config\n"), "sshd-unit-invalid", access, "does not exist, which is there", 2},
		{"a unit that is gone", unit("[Unit]\nBindsTo=vpn.service\n"), "sshd-unit-invalid", access, "vpn.service, which does not exist", 2},
		{"near miss: a condition that was taken back", unit("[Unit]\nConditionPathExists=/etc/ssh/ready\nConditionPathExists=\n"), "sshd-unit-invalid", nearMiss, "", 0},
		{"near miss: units that are there or wanted only", unit("[Unit]\nRequires=network.target systemd-udevd.service dev-vda1.device\nWants=gone.service\n"), "sshd-unit-invalid", nearMiss, "", 0},
		{"near miss: a file of each boot", unit("[Unit]\nConditionPathExists=/run/ready\n"), "sshd-unit-invalid", nearMiss, "", 0},
		{"hides homes", unit("[Service]\nProtectHome=yes\n"), "sshd-unit-invalid", access, "does not let sshd serve logins", 2},
		{"near miss: shows homes", unit("[Service]\nProtectHome=read-only\nPrivateTmp=yes\nTasksMax=512\n"), "sshd-unit-invalid", nearMiss, "", 0},
		{"another user", unit("[Service]\nUser=sshd\n"), "sshd-unit-invalid", access, "runs sshd as sshd", 2},
		{"types of host keys", sshd("HostKeyAlgorithms ssh-ed25519\n"), "sshd-host-keys-missing", nearMiss, "", 0},
		{"near miss: more types", sshd("HostKeyAlgorithms +ssh-rsa\n"), "sshd-host-keys-missing", nearMiss, "", 0},

		// What lies over the keys
		{"near miss: memory elsewhere", func(m machine) {
			m.add("/etc/fstab", "tmpfs /tmp tmpfs defaults 0 0\ntmpfs /rootfs tmpfs defaults 0 0\ntmpfs /root tmpfs noauto 0 0\n")
		}, id, nearMiss, "", 0},

		// The network
		{"near miss: a gateway beside the address", func(m machine) {
			staticInterface(m, "iface enp1s0 inet static\n  address 192.0.2.10/24\n  gateway 192.0.2.1\n")
		}, "network-gateway-unreachable", nearMiss, "", 0},
		{"near miss: IPv6 switched off, and IPv4 is there", func(m machine) {
			m.write("/etc/sysctl.d/70-ipv6.conf", "net.ipv6.conf.all.disable_ipv6 = 1\n")
		}, "network-nothing-configured", nearMiss, "", 0},
		{"near miss: names of the kernel", func(m machine) {
			kernelArgument(m, "net.ifnames=0 biosdevname=0")
			m.edit("/etc/network/interfaces", "allow-hotplug enp1s0\niface enp1s0", "allow-hotplug eth0\niface eth0")
		}, "network-interface-missing", nearMiss, "", 0},
		{"near miss: a name that is given and used", func(m machine) {
			m.write("/etc/systemd/network/10-lan.link", "[Match]\nMACAddress=52:54:00:12:34:56\n\n[Link]\nName=lan0\n")
			m.write("/etc/network/interfaces", strings.ReplaceAll(string(m.files["etc/network/interfaces"].Data), "enp1s0", "lan0"))
		}, "network-interface-missing", nearMiss, "", 0},
		{"near miss: a link file of other settings", func(m machine) {
			m.write("/etc/systemd/network/10-lan.link", "[Match]\nMACAddress=52:54:00:12:34:56\n\n[Link]\nMTUBytes=9000\nNamePolicy=path\n")
		}, "network-interface-missing", nearMiss, "", 0},
	})
	addAccessCases("rhel-lvm", []accessCase{
		{"the only profile does not connect", func(m machine) {
			m.edit("/etc/NetworkManager/system-connections/enp1s0.nmconnection", "interface-name=enp1s0\n", "interface-name=enp1s0\nautoconnect=false\n")
		}, "network-nothing-configured", access, "", 0},
		{"near miss: the only wired profile does not connect, and a radio does", func(m machine) {
			m.edit("/etc/NetworkManager/system-connections/enp1s0.nmconnection", "interface-name=enp1s0\n", "interface-name=enp1s0\nautoconnect=false\n")
			m.writeMode("/etc/NetworkManager/system-connections/home.nmconnection", "[connection]\ntype=wifi\n[ipv4]\nmethod=auto\n", 0o600)
		}, "network-nothing-configured", nearMiss, "", 0},
		{"near miss: another profile does not connect", func(m machine) {
			m.writeMode("/etc/NetworkManager/system-connections/x.nmconnection", "[connection]\ntype=ethernet\ninterface-name=enp9s0\nautoconnect=false\n", 0o600)
		}, "network-nothing-configured", nearMiss, "", 0},
		{"the zone drop", func(m machine) {
			enableUnit(m, "firewalld.service")
			m.write("/etc/firewalld/firewalld.conf", "DefaultZone=block\n")
		}, "firewall-blocks-ssh", access, "firewalld drops", 0},
		{"near miss: the zone trusted", func(m machine) {
			enableUnit(m, "firewalld.service")
			m.write("/etc/firewalld/firewalld.conf", "DefaultZone=trusted\n")
		}, "firewall-blocks-ssh", nearMiss, "", 0},
	})
	addAccessCases("ubuntu-netplan", []accessCase{
		{"near miss: no DHCP, and a bridge has the address", func(m machine) {
			m.edit("/etc/netplan/50-cloud-init.yaml", "dhcp4: true", "dhcp4: false")
			m.add("/etc/netplan/50-cloud-init.yaml", "    bridges:\n        br0:\n            interfaces: [enp1s0]\n            addresses: [192.0.2.7/24]\n")
		}, "network-nothing-configured", nearMiss, "", 0},
		{"netplan's generator is a link to itself", func(m machine) {
			m.link("/usr/lib/netplan/generate", "../netplan/generate")
			m.link("/usr/lib/systemd/system-generators/netplan", "../../netplan/generate")
		}, "network-unit-invalid", access, "system-generators/netplan", 0},
		{"the command netplan is gone", func(m machine) { m.remove("/usr/sbin/netplan") }, "network-tool-missing", diagnose.Degrades, "/usr/sbin/netplan", 0},
		{"the command's generator is a link to nothing", func(m machine) {
			m.remove("/usr/libexec/netplan/generate")
			m.link("/usr/libexec/netplan/generate", "../generate")
		}, "network-tool-missing", diagnose.Degrades, "/usr/libexec/netplan/generate", 0},
		{"the command's generator is a link to the root", func(m machine) {
			m.remove("/usr/libexec/netplan/generate")
			m.link("/usr/libexec/netplan/generate", "/")
		}, "network-tool-missing", diagnose.Degrades, "/usr/libexec/netplan/generate", 0},
		{"netplan has no generator", func(m machine) { m.remove("/usr/lib/systemd/system-generators/netplan") }, "network-unit-invalid", access, "does not exist", 0},
		{"near miss: a netplan that is whole", func(machine) {}, "network-tool-missing", nearMiss, "", 0},
	})
}

func init() {
	type change = func(*testing.T, *installed)
	with := func(change func(machine)) change {
		return func(_ *testing.T, in *installed) { change(machine{in}) }
	}
	fstab := func(line string) change { return with(func(m machine) { m.add("/etc/fstab", line+"\n") }) }
	ruleCases = append(ruleCases, []ruleCase{
		{"over /usr", "debian-bios", "fstab-hides-system", diagnose.BlocksBoot, fstab("tmpfs /usr tmpfs defaults 0 0")},
		{"over sshd's configuration", "debian-bios", "fstab-hides-system", diagnose.BlocksAccess, fstab("tmpfs /etc/ssh tmpfs defaults 0 0")},
		{"over folders of each boot", "debian-bios", "fstab-hides-system", nearMiss, fstab("tmpfs /tmp tmpfs size=1G 0 0\ntmpfs /var/log tmpfs defaults 0 0\ntmpfs /usr tmpfs noauto 0 0")},
		{"leads nowhere", "debian-bios", "usr-link-missing", diagnose.BlocksBoot, with(func(m machine) { m.link("/bin", "usr/bim") })},
		{"is absolute", "debian-bios", "usr-link-missing", nearMiss, with(func(m machine) { m.link("/bin", "/usr/bin") })},
		{"is gone from the command line", "debian-bios", "root-argument-missing", diagnose.BlocksBoot, with(func(m machine) {
			m.write("/boot/grub/grub.cfg", strings.ReplaceAll(string(m.files["boot/grub/grub.cfg"].Data), "root=UUID="+rootUUID+" ", ""))
		})},
		{"is gone, and a live system needs none", "debian-bios", "root-argument-missing", nearMiss, with(func(m machine) {
			m.write("/boot/grub/grub.cfg", strings.ReplaceAll(string(m.files["boot/grub/grub.cfg"].Data), "root=UUID="+rootUUID+" ", "boot=live "))
		})},
	}...)
	addAccessCases("debian-bios", []accessCase{
		{"no tries", func(m machine) { m.add("/etc/ssh/sshd_config", "MaxAuthTries 0\n") }, "ssh-login-impossible", diagnose.BlocksAccess, "MaxAuthTries 0", 8},
		{"one task for each service", func(m machine) { m.write("/etc/systemd/system.conf.d/a.conf", "[Manager]\nDefaultTasksMax=1\n") }, "sshd-unit-invalid", diagnose.BlocksAccess, "system.conf.d/a.conf, line 2", 2},
		{"near miss: the unit has its own bound", func(m machine) {
			m.write("/etc/systemd/system.conf.d/a.conf", "[Manager]\nDefaultTasksMax=1\n")
			m.write("/etc/systemd/system/ssh.service.d/a.conf", "[Service]\nTasksMax=100\n")
		}, "sshd-unit-invalid", nearMiss, "", 0},
	})
}
