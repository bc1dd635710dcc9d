package system

import (
	"slices"
	"strings"
	"testing"

	"salvor/diagnose"
)

// blindCase is a fault or a near miss whose author had read neither the rules nor the readers. docs/causes.md lists the first outcome of each.
type blindCase struct {
	name, layout string
	stage        diagnose.Stage
	// severity of the cause; nearMiss where no finding may be above info, degrades where none may be above that.
	severity diagnose.Severity
	says     string // part of the title of the cause
	change   func(machine)
}

// withoutPasswords leaves keys as the only way in over ssh.
func withoutPasswords(m machine) { m.add("/etc/ssh/sshd_config", "PasswordAuthentication no\n") }

// addKeyword puts a line of sshd_config before all others, so that the line counts.
func addKeyword(m machine, lines string) {
	m.write("/etc/ssh/sshd_config", lines+string(m.files["etc/ssh/sshd_config"].Data))
}

// pamAccount adds a line before all others of the account stack.
func pamAccount(m machine, module, line string) {
	debianPAM(m)
	m.write("/usr/lib/x86_64-linux-gnu/security/pam_"+module+".so", elfFile(elfAMD64, ""))
	m.write("/etc/pam.d/common-account", "account "+line+"\n"+string(m.files["etc/pam.d/common-account"].Data))
}

func enableUnit(m machine, unit string) {
	m.write("/usr/lib/systemd/system/"+unit, "[Service]\nExecStart=/usr/bin/bash\n")
	m.link("/etc/systemd/system/sysinit.target.wants/"+unit, "/usr/lib/systemd/system/"+unit)
}

func nftInput(m machine, rules string) {
	enableUnit(m, "nftables.service")
	m.write("/etc/nftables.conf", "flush ruleset\ntable inet filter {\n  chain input {\n    type filter hook input priority 0; policy drop;\n"+
		"    iifname \"lo\" accept\n    ct state established,related accept\n"+rules+"  }\n}\n")
}

func kernelArgument(m machine, text string) {
	m.edit("/boot/grub/grub.cfg", " ro  quiet", " ro  quiet "+text)
	m.write("/boot/grub/grub.cfg", strings.ReplaceAll(string(m.files["boot/grub/grub.cfg"].Data), " ro  quiet\n", " ro  quiet "+text+"\n"))
}

func staticInterface(m machine, lines string) {
	m.write("/etc/network/interfaces", "auto lo\niface lo inet loopback\n\nauto enp1s0\n"+lines)
}

// dataDisk adds a partition that /etc/fstab can name.
func dataDisk(m machine) {
	m.Devices = append(m.Devices, holding(partitionOf("/dev/sda6", "/dev/sda", 6, 19*gib, gib/2, "0x83", "5c1a4f11-06"), "ext4", dataUUID, "", ""))
}

var blindCases = []blindCase{
	{"match-all-allowusers", "debian-bios", diagnose.Login, diagnose.BlocksAccess, "lets nobody in", func(m machine) {
		m.add("/etc/ssh/sshd_config", "Match all\n  AllowUsers deploy\n")
	}},
	{"match-address-no-pubkey", "debian-bios", diagnose.Login, diagnose.BlocksAccess, "lets no account in", func(m machine) {
		m.add("/etc/ssh/sshd_config", "PasswordAuthentication no\nMatch Address *\n  PubkeyAuthentication no\n")
	}},
	{"deny-groups-all", "debian-bios", diagnose.Login, diagnose.BlocksAccess, "", func(m machine) {
		m.add("/etc/ssh/sshd_config", "DenyGroups *\n")
	}},
	{"allow-groups-unknown", "debian-bios", diagnose.Login, diagnose.BlocksAccess, "", func(m machine) {
		m.add("/etc/ssh/sshd_config", "AllowGroups ssh-users\n")
	}},
	{"methods-disabled", "debian-bios", diagnose.Login, diagnose.BlocksAccess, "lets no account in", func(m machine) {
		m.add("/etc/ssh/sshd_config", "AuthenticationMethods publickey,keyboard-interactive\n")
	}},
	{"keys-command-gone", "debian-bios", diagnose.Login, diagnose.BlocksAccess, "lets no account in", func(m machine) {
		withoutPasswords(m)
		m.add("/etc/ssh/sshd_config", "AuthorizedKeysFile none\nAuthorizedKeysCommand /usr/local/bin/fetch-keys %u\nAuthorizedKeysCommandUser nobody\n")
	}},
	{"max-sessions-zero", "debian-bios", diagnose.Login, diagnose.BlocksAccess, "lets no account in", func(m machine) {
		m.add("/etc/ssh/sshd_config", "MaxSessions 0\n")
	}},
	{"chroot-gone", "debian-bios", diagnose.Login, diagnose.BlocksAccess, "lets no account in", func(m machine) {
		m.add("/etc/ssh/sshd_config", "ChrootDirectory /srv/jail\n")
	}},
	{"host-key-algorithms", "debian-bios", diagnose.SSHD, diagnose.BlocksAccess, "", func(m machine) {
		m.remove("/etc/ssh/ssh_host_rsa_key")
		m.remove("/etc/ssh/ssh_host_ecdsa_key")
		m.add("/etc/ssh/sshd_config", "HostKey /etc/ssh/ssh_host_ed25519_key\nHostKeyAlgorithms rsa-sha2-512\n")
	}},
	{"listen-loopback", "debian-bios", diagnose.SSHD, diagnose.BlocksAccess, "", func(m machine) {
		m.add("/etc/ssh/sshd_config", "ListenAddress 127.0.0.1\nListenAddress ::1\n")
	}},
	{"privsep-gone", "rhel-lvm", diagnose.SSHD, diagnose.BlocksAccess, "", func(m machine) {
		m.program("/usr/sbin/sshd", elfFile(elfAMD64, "/lib64/ld-linux-x86-64.so.2")+"\x00/usr/share/empty.sshd\x00")
		m.edit("/etc/passwd", "/run/sshd", "/usr/share/empty.sshd")
	}},
	{"pam-account-deny", "debian-bios", diagnose.Login, diagnose.BlocksAccess, "", func(m machine) {
		pamAccount(m, "deny", "required pam_deny.so")
	}},
	{"pam-listfile-gone", "debian-bios", diagnose.Login, diagnose.BlocksAccess, "", func(m machine) {
		pamAccount(m, "listfile", "required pam_listfile.so item=user sense=allow file=/etc/ssh/allowed onerr=fail")
	}},
	{"pam-time-never", "debian-bios", diagnose.Login, diagnose.BlocksAccess, "", func(m machine) {
		pamAccount(m, "time", "required pam_time.so")
		m.write("/etc/security/time.conf", "# closed for the holidays\n*;*;*;!Al0000-2400\n")
	}},
	{"pam-succeed-if-group", "debian-bios", diagnose.Login, diagnose.BlocksAccess, "", func(m machine) {
		pamAccount(m, "succeed_if", "required pam_succeed_if.so user ingroup admins")
	}},
	{"access-except-wheel", "debian-bios", diagnose.Login, diagnose.BlocksAccess, "", func(m machine) {
		pamAccount(m, "access", "required pam_access.so")
		m.write("/etc/security/access.conf", "-:ALL EXCEPT wheel:ALL\n")
	}},
	{"limits-maxlogins-zero", "debian-bios", diagnose.Login, diagnose.BlocksAccess, "", func(m machine) {
		debianPAM(m)
		m.add("/etc/ssh/sshd_config", "PermitRootLogin no\n")
		m.write("/etc/security/limits.conf", "* hard maxlogins 0\n")
	}},
	{"tmpfs-over-home", "debian-bios", diagnose.Login, diagnose.BlocksAccess, "", func(m machine) {
		rootOnly(m)
		withoutPasswords(m)
		m.add("/etc/fstab", "tmpfs /root tmpfs mode=0700 0 0\n")
	}},
	{"home-of-all-closed", "debian-bios", diagnose.Login, diagnose.BlocksAccess, "", func(m machine) {
		withoutPasswords(m)
		m.add("/etc/ssh/sshd_config", "PermitRootLogin no\n")
		m.mode("/home", 0o700)
	}},
	{"passwd-crlf", "debian-bios", diagnose.Login, diagnose.BlocksAccess, "", func(m machine) {
		m.write("/etc/passwd", strings.ReplaceAll(string(m.files["etc/passwd"].Data), "\n", "\r\n"))
	}},
	{"nsswitch-without-files", "debian-bios", diagnose.Login, diagnose.BlocksAccess, "", func(m machine) {
		m.write("/usr/lib/x86_64-linux-gnu/libnss_sss.so.2", elfFile(elfAMD64, ""))
		m.edit("/etc/nsswitch.conf", "passwd: files", "passwd: sss")
	}},
	{"unit-condition", "debian-bios", diagnose.SSHD, diagnose.BlocksAccess, "", func(m machine) {
		m.write("/etc/systemd/system/ssh.service.d/50-wait.conf", "[Unit]\nConditionPathExists=/etc/ssh/ready\n")
	}},
	{"unit-requires-masked", "debian-bios", diagnose.SSHD, diagnose.BlocksAccess, "", func(m machine) {
		m.write("/usr/lib/systemd/system/vpn.service", "[Service]\nExecStart=/usr/bin/bash\n")
		m.link("/etc/systemd/system/vpn.service", "/dev/null")
		m.write("/etc/systemd/system/ssh.service.d/50-vpn.conf", "[Unit]\nRequires=vpn.service\nAfter=vpn.service\n")
	}},
	{"unit-tasks-max", "debian-bios", diagnose.SSHD, diagnose.BlocksAccess, "", func(m machine) {
		m.write("/etc/systemd/system/ssh.service.d/50-small.conf", "[Service]\nTasksMax=1\n")
	}},
	{"basic-target-masked", "debian-bios", diagnose.Target, diagnose.BlocksBoot, "basic.target", func(m machine) {
		m.link("/etc/systemd/system/basic.target", "/dev/null")
	}},
	{"fstab-point-is-file", "debian-bios", diagnose.Target, diagnose.BlocksBoot, "", func(m machine) {
		dataDisk(m)
		m.write("/data", "")
		m.add("/etc/fstab", "UUID="+dataUUID+" /data ext4 defaults 0 2\n")
	}},
	{"fstab-requires-gone", "debian-bios", diagnose.Target, diagnose.BlocksBoot, "", func(m machine) {
		dataDisk(m)
		m.add("/etc/fstab", "UUID="+dataUUID+" /data ext4 defaults,x-systemd.requires=gone.service 0 2\n")
	}},
	{"vfat-blocked", "debian-uefi", diagnose.Target, diagnose.BlocksBoot, "", func(m machine) {
		m.write("/usr/lib/modules/"+debian12+"/modules.builtin", "kernel/fs/nls/nls_base.ko\n")
		m.write("/etc/modprobe.d/cis.conf", "install cramfs /bin/true\ninstall vfat /bin/true\n")
	}},
	{"crypttab-key-gone", "debian-bios", diagnose.Target, diagnose.BlocksBoot, "", func(m machine) {
		m.Devices = append(m.Devices, holding(partitionOf("/dev/sda6", "/dev/sda", 6, 19*gib, gib/2, "0x83", "5c1a4f11-06"), "crypto_LUKS", luksUUID, "", ""))
		m.write("/etc/crypttab", "data UUID="+luksUUID+" /etc/keys/data.key luks\n")
		m.add("/etc/fstab", "/dev/mapper/data /data ext4 defaults 0 2\n")
	}},
	{"rootfstype-wrong", "debian-bios", diagnose.Root, diagnose.BlocksBoot, "mounted as xfs", func(m machine) {
		kernelArgument(m, "rootfstype=xfs")
	}},
	{"init-argument-gone", "fedora-btrfs", diagnose.Init, diagnose.BlocksBoot, "/sbin/init.old", func(m machine) { // initramfs-tools starts /sbin/init then
		m.edit("/boot/loader/entries/"+machineID+"-"+fedoraKernel+".conf", " ro ", " ro init=/sbin/init.old ")
	}},
	{"ifnames-argument", "debian-bios", diagnose.Network, diagnose.BlocksAccess, "", func(m machine) {
		kernelArgument(m, "net.ifnames=0")
	}},
	{"link-renames", "debian-bios", diagnose.Network, diagnose.BlocksAccess, "", func(m machine) {
		m.write("/etc/systemd/network/10-lan.link", "[Match]\nMACAddress=52:54:00:12:34:56\n\n[Link]\nName=lan0\n")
	}},
	{"gateway-is-own-address", "debian-bios", diagnose.Network, diagnose.BlocksAccess, "", func(m machine) {
		staticInterface(m, "iface enp1s0 inet static\n  address 192.0.2.1/24\n  gateway 192.0.2.1\n")
	}},
	{"netplan-no-address", "ubuntu-netplan", diagnose.Network, diagnose.BlocksAccess, "", func(m machine) {
		m.edit("/etc/netplan/50-cloud-init.yaml", "dhcp4: true", "dhcp4: false")
	}},
	{"nm-no-autoconnect", "rhel-lvm", diagnose.Network, diagnose.BlocksAccess, "", func(m machine) {
		m.edit("/etc/NetworkManager/system-connections/enp1s0.nmconnection", "interface-name=enp1s0\n", "interface-name=enp1s0\nautoconnect=false\n")
	}},
	{"ipv6-off-ipv6-only", "debian-bios", diagnose.Network, diagnose.BlocksAccess, "", func(m machine) {
		staticInterface(m, "iface enp1s0 inet6 static\n  address 2001:db8::7/64\n  gateway 2001:db8::1\n")
		m.write("/etc/sysctl.d/70-ipv6.conf", "net.ipv6.conf.all.disable_ipv6 = 1\n")
	}},
	{"port-moved-firewall", "debian-bios", diagnose.Network, diagnose.BlocksAccess, "", func(m machine) {
		addKeyword(m, "Port 2222\n")
		nftInput(m, "    tcp dport 22 accept\n")
	}},
	{"ufw-without-ssh", "ubuntu-netplan", diagnose.Network, diagnose.BlocksAccess, "", func(m machine) {
		enableUnit(m, "ufw.service")
		m.write("/etc/ufw/ufw.conf", "ENABLED=yes\nLOGLEVEL=low\n")
		m.write("/etc/default/ufw", "IPV6=yes\nDEFAULT_INPUT_POLICY=\"DROP\"\n")
		m.write("/etc/ufw/user.rules", "*filter\n:ufw-user-input - [0:0]\n### tuple ### allow tcp 443 0.0.0.0/0 any 0.0.0.0/0 in\n-A ufw-user-input -p tcp --dport 443 -j ACCEPT\nCOMMIT\n")
	}},
	{"firewalld-drop", "rhel-lvm", diagnose.Network, diagnose.BlocksAccess, "", func(m machine) {
		enableUnit(m, "firewalld.service")
		m.write("/etc/firewalld/firewalld.conf", "DefaultZone=drop\n")
	}},
	{"threads-max", "debian-bios", diagnose.Target, diagnose.BlocksBoot, "threads", func(m machine) {
		m.write("/etc/sysctl.d/90-x.conf", "kernel.threads-max=30\n")
	}},
	{"extlinux-default-gone", "alpine-openrc", diagnose.Loader, diagnose.BlocksBoot, "", func(m machine) {
		m.edit("/boot/extlinux.conf", "DEFAULT menu.c32", "DEFAULT virt")
	}},
	{"inittab-without-openrc", "alpine-openrc", diagnose.Target, diagnose.BlocksBoot, "", func(m machine) {
		m.write("/etc/inittab", "tty1::respawn:/sbin/getty 38400 tty1\n")
	}},
	{"pam-sshd-gone", "rhel-lvm", diagnose.Login, diagnose.BlocksAccess, "", func(m machine) {
		debianPAM(m)
		m.remove("/etc/pam.d/sshd")
		m.write("/etc/pam.d/other", "auth required pam_deny.so\naccount required pam_deny.so\npassword required pam_deny.so\nsession required pam_deny.so\n")
	}},
	{"kernel-other-cpu", "debian-bios", diagnose.Kernel, diagnose.BlocksBoot, "", func(m machine) {
		arm := make([]byte, 4096)
		copy(arm, "MZ")
		copy(arm[56:], "ARMd")
		m.write("/boot/vmlinuz-"+debian12, string(arm))
	}},
	{"mask-argument", "debian-bios", diagnose.SSHD, diagnose.BlocksAccess, "", func(m machine) {
		kernelArgument(m, "systemd.mask=ssh.service")
	}},

	{"near-allow-pattern", "debian-bios", "", nearMiss, "", func(m machine) {
		m.add("/etc/ssh/sshd_config", "AllowUsers root@10.* root@192.168.*\n")
	}},
	{"near-match-git", "debian-bios", "", nearMiss, "", func(m machine) {
		m.add("/etc/ssh/sshd_config", "Match User git\n  PubkeyAuthentication no\n  ForceCommand /usr/bin/git-shell\n")
	}},
	{"near-home-noexec", "debian-bios", "", nearMiss, "", func(m machine) {
		dataDisk(m)
		m.add("/etc/fstab", "UUID="+dataUUID+" /home ext4 nosuid,noexec,nodev 0 2\n")
	}},
	{"near-pam-shells", "debian-bios", "", diagnose.Degrades, "", func(m machine) {
		debianPAM(m)
		m.add("/etc/pam.d/sshd", "auth required pam_shells.so\n")
		m.write("/usr/bin/zsh", "")
		m.program("/usr/bin/zsh", elfFile(elfAMD64, "/lib64/ld-linux-x86-64.so.2"))
		m.edit("/etc/passwd", "/home/alice:/bin/bash", "/home/alice:/usr/bin/zsh")
	}},
	{"near-sss-beside-files", "debian-bios", "", nearMiss, "", func(m machine) {
		m.write("/usr/lib/x86_64-linux-gnu/libnss_sss.so.2", elfFile(elfAMD64, ""))
		m.edit("/etc/nsswitch.conf", "passwd: files", "passwd: files sss")
	}},
	{"near-moduli", "debian-bios", "", nearMiss, "", func(m machine) { m.remove("/etc/ssh/moduli") }},
	{"near-machine-id-empty", "debian-bios", "", nearMiss, "", func(m machine) { m.write("/etc/machine-id", "") }},
	{"near-saved-entry", "debian-bios", "", nearMiss, "", func(m machine) {
		m.edit("/boot/grub/grub.cfg", `set default="0"`, `set default="${saved_entry}"`)
		m.write("/boot/grub/grubenv", grubEnv("saved_entry=gnulinux-5.10.0-9-amd64-advanced-x"))
	}},
	{"near-default-grub", "debian-bios", "", nearMiss, "", func(m machine) {
		m.edit("/etc/default/grub", `GRUB_CMDLINE_LINUX=""`, `GRUB_CMDLINE_LINUX="root=UUID=`+deadUUID+`"`)
	}},
	{"near-mtu", "debian-bios", "", nearMiss, "", func(m machine) { m.add("/etc/network/interfaces", "  mtu 9000\n") }},
	{"near-strict-modes", "debian-bios", "", nearMiss, "", func(m machine) {
		withoutPasswords(m)
		m.add("/etc/ssh/sshd_config", "StrictModes no\n")
		m.mode("/root/.ssh", 0o777)
		m.mode("/home/alice/.ssh", 0o777)
	}},
	{"near-automount", "debian-bios", "", nearMiss, "", func(m machine) {
		m.add("/etc/fstab", "UUID="+deadUUID+" /mnt/usb ext4 noauto,x-systemd.automount 0 0\n")
	}},
	{"near-access-except-root", "debian-bios", "", nearMiss, "", func(m machine) {
		pamAccount(m, "access", "required pam_access.so")
		m.write("/etc/security/access.conf", "-:ALL EXCEPT root:ALL\n")
	}},
	{"near-limits", "debian-bios", "", nearMiss, "", func(m machine) {
		debianPAM(m)
		m.write("/etc/security/limits.conf", "* hard nproc 500\n* hard maxlogins 10\n")
	}},
	{"near-nft-sources", "debian-bios", "", nearMiss, "", func(m machine) { nftInput(m, "    ip saddr 10.0.0.0/8 tcp dport 22 accept\n") }},
	{"near-condition", "debian-bios", "", nearMiss, "", func(m machine) {
		m.write("/etc/systemd/system/ssh.service.d/50-wait.conf", "[Unit]\nConditionPathExists=/etc/ssh/sshd_config\n")
	}},
	{"near-netplan-optional", "ubuntu-netplan", "", nearMiss, "", func(m machine) {
		m.add("/etc/netplan/50-cloud-init.yaml", "        enp9s0:\n            dhcp4: true\n            optional: true\n")
	}},
	{"near-modprobe", "debian-bios", "", nearMiss, "", func(m machine) {
		m.write("/etc/modprobe.d/cis.conf", "install usb-storage /bin/true\nblacklist pcspkr\n")
	}},
}

func TestBlindFaults(t *testing.T) {
	for _, tc := range blindCases {
		t.Run(tc.name, func(t *testing.T) {
			m := machine{separateLayout(tc.layout)}
			tc.change(m)
			found := findingsOf(t, m.installed)
			var all []string
			for _, f := range found {
				if !isHarmless(f) {
					all = append(all, f.ID+" ("+string(f.Severity)+", "+string(f.Stage)+"): "+f.Title)
				}
			}
			if tc.severity == diagnose.Degrades {
				for _, f := range found {
					if isBlocking(f.Severity) {
						t.Errorf("a system that lets people in has %s (%s): %s", f.ID, f.Severity, f.Title)
					}
				}
				return
			}
			if tc.severity == nearMiss {
				for _, f := range all {
					t.Errorf("a healthy system has %s", f)
				}
				return
			}
			_, verdict := diagnose.Judge(found)
			at := slices.IndexFunc(found, func(f diagnose.Finding) bool {
				return f.ID == verdict.Finding && f.Severity == tc.severity && strings.Contains(f.Title, tc.says)
			})
			if at < 0 || found[at].Stage != tc.stage {
				t.Errorf("the verdict names %q at stage %q, want %s at stage %s with %q; found\n%s", verdict.Finding, verdict.Stage, tc.severity, tc.stage, tc.says, strings.Join(all, "\n"))
			}
		})
	}
}
