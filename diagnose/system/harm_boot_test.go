package system

import (
	"testing"

	"salvor/diagnose"
)

// windowsLoader is the loader of Windows on an EFI system partition.
const windowsLoader = "/EFI/Microsoft/Boot/bootmgfw.efi"

// bootSituations are about loaders and kernels that start more than the system.
func bootSituations() []Situation {
	const menu, prober = "/boot/grub/grub.cfg", "### BEGIN /etc/grub.d/30_os-prober ###\nmenuentry 'Windows Boot Manager (on /dev/sda2)' --class windows {\n\tchainloader +1\n}\n" +
		"menuentry 'Rocky Linux 9 (on /dev/sda3)' {\n\tlinux /boot/vmlinuz-5 root=/dev/sda3\n}\n### END /etc/grub.d/30_os-prober ###\n"
	rebuilt := []string{menu, "runs /usr/sbin/grub-mkconfig", "runs /usr/bin/grub-script-check"}
	// entries replaces those of the firmware. Numbers of the order begin with the first.
	entries := func(m machine, order []uint16, all ...diagnose.BootEntry) {
		m.Firmware.Entries, m.Firmware.Order = all, order
	}
	windows := diagnose.BootEntry{Number: 0, Name: "Windows Boot Manager", Active: true, PartUUID: espPart, Path: `\EFI\Microsoft\Boot\bootmgfw.efi`}
	debian := diagnose.BootEntry{Number: 3, Name: "debian", Active: true, PartUUID: espPart, Path: `\EFI\debian\shimx64.efi`}
	fedora := diagnose.BootEntry{Number: 7, Name: "Fedora", Active: true, PartUUID: espPart, Path: `\EFI\fedora\shimx64.efi`}
	network := diagnose.BootEntry{Number: 1, Name: "UEFI PXEv4", Active: true}
	var installed []string
	for name := range GrubFolderFiles() {
		installed = append(installed, name)
	}
	both := []string{"setting boot-order", "setting boot-entry"}
	return []Situation{
		{Name: "another Linux starts from the MBR", layout: "debian-bios/grub-modules-foreign/another core image", Finds: []string{"grub-modules-foreign"},
			Why: "the core image on the disk is not the system's, so that another system may boot from it"},
		{Name: "the MBR is that of Windows", layout: "debian-bios", Why: "code that is not GRUB's starts something else",
			change: func(t *testing.T, m machine) {
				sector := grubMBR(1)
				copy(sector, "\x33\xc0\x8e\xd0\xbc\x00\x7c")
				copy(sector[0x163:], "Invalid partition table\x00Error loading operating system\x00")
				putMBR(sector, [3]uint32{2048, 37748736, 0x83}, [3]uint32{37752830, 4190210, 0x05})
				m.device(t, "/dev/sda").Content = newDisk(20*gib).put(0, sector)
			}},
		{Name: "the menu of GRUB starts Windows and another Linux too", layout: "debian-bios", Finds: []string{"grub-search-missing"}, Touches: rebuilt,
			Loses: map[string]string{"grub-search-missing": "Windows Boot Manager (on /dev/sda2)"}, Why: "the menu is made without a look at other systems",
			change: func(_ *testing.T, m machine) {
				m.add(menu, prober)
				m.edit(menu, "--set=root "+rootUUID, "--set=root "+deadUUID)
			}},
		{Name: "the menu of GRUB was written by hand", layout: "debian-bios", Finds: []string{"grub-search-missing"}, Why: "a menu that no tool made cannot be made again",
			change: func(_ *testing.T, m machine) {
				m.write(menu, "set timeout=3\nsearch --no-floppy --fs-uuid --set=root "+deadUUID+"\nmenuentry 'Recovery of the vendor' {\n\tchainloader (hd0,msdos2)+1\n}\n"+
					grubEntry(debian12, "/boot", rootUUID, "UUID="+rootUUID))
			}},
		{Name: "the firmware forgot its entries, and another Linux has a loader", layout: "debian-uefi", Finds: []string{"efi-boot-entry-missing"}, Touches: both, Never: []string{`\EFI\arch`},
			Why: "the other system would boot in the place of the repaired one",
			change: func(_ *testing.T, m machine) {
				m.espFile("/EFI/arch/grubx64.efi", peFile(peAMD64))
				entries(m, []uint16{1}, network)
			}},
		{Name: "the boot order leaves out Windows and the system", layout: "debian-uefi", Finds: []string{"efi-boot-order"}, Touches: both, Never: []string{"0000"}, Why: "Windows would boot in the place of the repaired system",
			change: func(_ *testing.T, m machine) {
				m.espFile(windowsLoader, peFile(peAMD64))
				entries(m, []uint16{1}, windows, network, debian)
			}},
		{Name: "the boot order leaves out another Linux, and the system has no entry", layout: "debian-uefi", Finds: []string{"efi-boot-entry-missing"}, Touches: both, Never: []string{"0007"},
			Why: "the other Linux would boot in the place of the repaired system",
			change: func(_ *testing.T, m machine) {
				m.espFile("/EFI/fedora/shimx64.efi", peFile(peAMD64))
				m.espFile("/EFI/fedora/grubx64.efi", peFile(peAMD64))
				entries(m, []uint16{1}, network, fedora)
			}},
		{Name: "the loaders of another Linux and of the system are lost", layout: "debian-uefi", Finds: []string{"efi-loader-missing"},
			Touches: []string{"/boot/efi/EFI/debian/grubx64.efi", "/boot/efi/EFI/BOOT", "/boot/efi/EFI/BOOT/BOOTX64.EFI", "runs /usr/sbin/grub-install"},
			Why:     "the loader of the system does not belong into the folder of the other Linux",
			change: func(_ *testing.T, m machine) {
				m.write("/usr/lib/shim/shimx64.efi.signed", peFile(peAMD64))
				m.write("/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed", peFile(peAMD64))
				m.write("/usr/lib/grub/x86_64-efi/modinfo.sh", "#!/bin/sh\n")
				for _, name := range []string{"shimx64.efi", "grubx64.efi"} {
					m.remove("/EFI/debian/" + name)
				}
				m.espFile("/EFI/fedora/grub.cfg", "configfile $prefix/grub.cfg\n")
				entries(m, []uint16{7, 1}, network, fedora)
			}},
		{Name: "Windows beside a lost loader", layout: "debian-uefi", Finds: []string{"efi-loader-missing"},
			Touches: []string{"/boot/efi/EFI/debian/shimx64.efi", "/boot/efi/EFI/debian/grubx64.efi"}, Why: "the files of Microsoft stay, and the fallback path is not written",
			change: func(_ *testing.T, m machine) {
				m.write("/usr/lib/shim/shimx64.efi.signed", peFile(peAMD64))
				m.write("/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed", peFile(peAMD64))
				m.remove("/EFI/debian/shimx64.efi")
				m.remove("/EFI/debian/grubx64.efi")
				m.espFile(windowsLoader, peFile(peAMD64))
				entries(m, []uint16{3, 1}, network, debian)
			}},
		{Name: "Windows in the fallback path beside lost loaders", layout: "debian-uefi", Why: "the loader that firmware starts without an entry is whole, and another system's",
			change: func(_ *testing.T, m machine) {
				m.write("/usr/lib/grub/x86_64-efi/modinfo.sh", "#!/bin/sh\n")
				m.remove("/EFI/debian")
				m.espFile(windowsLoader, peFile(peAMD64))
				m.espFile("/EFI/BOOT/BOOTX64.EFI", peFile(peAMD64))
				entries(m, []uint16{3, 1}, network, debian)
			}},
		{Name: "the firmware starts another disk", layout: "debian-bios", Finds: []string{"mbr-boot-code-missing"}, Touches: append(installed, "blocks of /dev/sda", "runs /usr/sbin/grub-install"),
			Loses: map[string]string{"mbr-boot-code-missing": "/dev/sdb"}, Why: "with boot code, the firmware may start the disk before the one that it starts now",
			change: func(t *testing.T, m machine) {
				sector := make([]byte, sectorSize)
				putMBR(sector, [3]uint32{2048, 37748736, 0x83}, [3]uint32{37752830, 4190210, 0x05})
				m.device(t, "/dev/sda").Content.(*sparseDisk).put(0, sector)
				m.addDisk("ntfs", "5f0c1111", nil)
				m.device(t, "/dev/sdb").Content = newDisk(gib).put(0, grubMBR(1)).put(sectorSize, grubCore(1))
			}},
		{Name: "files lack labels of SELinux", layout: "rhel-lvm", Finds: []string{"selinux-unlabelled"}, Touches: []string{"/.autorelabel"},
			Loses: map[string]string{"selinux-unlabelled": "chcon", "selinux-keys-unlabelled": "chcon"}, Why: "labels that no rule of the policy names are lost",
			change: func(_ *testing.T, m machine) {
				label := func(name, label string) {
					f := *m.files[name]
					f.Sys = &diagnose.Owner{Label: label}
					m.files[name] = &f
				}
				label("etc/passwd", "system_u:object_r:passwd_file_t:s0")
				label("etc/shadow", "")
			}},
		{Name: "somebody chose a shell for rescue", layout: "debian-bios", Finds: []string{"kernel-argument-rescue"}, Touches: []string{menu, "/etc/default/grub"},
			Loses: map[string]string{"kernel-argument-rescue": "services"}, Why: "services start that somebody may have kept from starting",
			change: func(_ *testing.T, m machine) {
				m.edit(menu, "ro  quiet", "ro  quiet systemd.unit=rescue.target")
			}},
		{Name: "somebody chose the target for rescue", layout: "rhel-lvm", Finds: []string{"default-target-rescue"}, Touches: []string{"/etc/systemd/system/default.target"},
			Loses: map[string]string{"default-target-rescue": "services"}, Why: "services start that somebody may have kept from starting",
			change: func(_ *testing.T, m machine) {
				m.link("/etc/systemd/system/default.target", "/usr/lib/systemd/system/rescue.target")
			}},
		{Name: "journald is masked on purpose", layout: "debian-bios", Finds: []string{"unit-masked"}, Touches: []string{"removes /etc/systemd/system/systemd-journald.service"},
			Loses: map[string]string{"unit-masked": "on purpose"}, Why: "a mask is always somebody's",
			change: func(_ *testing.T, m machine) { m.link("/etc/systemd/system/systemd-journald.service", "/dev/null") }},
		{Name: "a library of an auditor breaks each program", layout: "debian-bios/preload-library-broken/beside a whole library", Finds: []string{"preload-library-broken"}, Touches: []string{"/etc/ld.so.preload"},
			Loses: map[string]string{"preload-library-broken": "libmonitor"}, Why: "the library kept a record of what runs"},
		{Name: "a job switches the machine off on purpose", layout: "debian-bios", Finds: []string{"shutdown-at-boot"}, Touches: []string{"/etc/cron.d/off"},
			Loses: map[string]string{"shutdown-at-boot": "what it was written for"}, Why: "the job may have saved power",
			change: func(_ *testing.T, m machine) {
				enableUnit(m, "cron.service")
				m.write("/etc/cron.d/off", "SHELL=/bin/sh\n*/5 * * * * root /usr/sbin/shutdown -h now\n0 3 * * * root /usr/local/sbin/backup\n")
			}},
		{Name: "a unit waits for the disk of a backup", layout: "debian-bios", Finds: []string{"unit-waits-at-boot"}, Touches: []string{"removes /etc/systemd/system/sysinit.target.wants/wait.service"},
			Loses: map[string]string{"unit-waits-at-boot": "what it was made for"}, Why: "without the unit, services start before their data are there",
			change: func(_ *testing.T, m machine) {
				m.write("/etc/systemd/system/wait.service", "[Unit]\nDefaultDependencies=no\nBefore=sysinit.target\n[Service]\nType=oneshot\nExecStart=/bin/sh -c \"until [ -b /dev/disk/by-label/BACKUP ]; do sleep 2; done\"\n")
				m.link("/etc/systemd/system/sysinit.target.wants/wait.service", "../wait.service")
			}},
		{Name: "somebody hardened sshd too much", layout: "debian-bios", Finds: []string{"sshd-unit-invalid"}, Touches: []string{"/etc/systemd/system/ssh.service.d/hardening.conf"},
			Loses: map[string]string{"sshd-unit-invalid": "ProtectHome="}, Why: "the homes were to be hidden from sshd",
			change: func(_ *testing.T, m machine) {
				m.write("/etc/systemd/system/ssh.service.d/hardening.conf", "[Service]\nProtectHome=yes\nNoNewPrivileges=no\n")
			}},
		{Name: "a copy of the unit of sshd is wrong", layout: "debian-bios", Finds: []string{"sshd-unit-invalid"}, Why: "a unit without this line may not start at all, or start something else",
			change: func(_ *testing.T, m machine) {
				m.write("/etc/systemd/system/ssh.service", "[Service]\nType=notify\nExecStart=/opt/ssh/sbin/sshd -D\n[Install]\nWantedBy=multi-user.target\n")
			}},
		{Name: "services share a drop-in", layout: "debian-bios", Finds: []string{"sshd-unit-invalid"}, Why: "the other services would lose the setting too",
			change: func(_ *testing.T, m machine) {
				m.write("/usr/local/share/hardening.conf", "[Service]\nProtectHome=yes\n")
				m.link("/etc/systemd/system/ssh.service.d/hardening.conf", "/usr/local/share/hardening.conf")
				m.link("/etc/systemd/system/cron.service.d/hardening.conf", "/usr/local/share/hardening.conf")
			}},
		{Name: "two settings keep logins from sshd", layout: "debian-bios", Finds: []string{"sshd-unit-invalid"}, Why: "the plan would name one of them only",
			change: func(_ *testing.T, m machine) {
				m.write("/etc/systemd/system/ssh.service.d/hardening.conf", "[Service]\nProtectHome=yes\nPrivateNetwork=yes\n")
			}},
		{Name: "a reset of the command is followed by other settings", layout: "debian-bios", Finds: []string{"sshd-unit-invalid"}, Why: "the settings behind the reset are not its fault",
			change: func(_ *testing.T, m machine) {
				m.write("/etc/systemd/system/ssh.service.d/10-command.conf", "[Service]\nExecStart=\n")
				m.write("/etc/systemd/system/ssh.service.d/90-hardening.conf", "[Service]\nIPAddressAllow=10.0.0.0/8\nIPAddressDeny=any\nNoNewPrivileges=no\n")
			}},
		{Name: "a line of rc.local ends a loop and stops the machine", layout: "debian-bios", Finds: []string{"shutdown-at-boot"}, Why: "without the end of the loop, the shell runs no line of the script",
			change: func(_ *testing.T, m machine) {
				m.program("/etc/rc.local", "#!/bin/sh\nfor m in loop dummy\ndo\n  modprobe $m\ndone; reboot\nexit 0\n")
			}},
		{Name: "another unit starts what stops the machine", layout: "debian-bios", Finds: []string{"shutdown-at-boot"}, Why: "without the link, the machine would stop all the same",
			change: func(_ *testing.T, m machine) {
				m.write("/etc/systemd/system/once.service", "[Service]\nType=oneshot\nExecStart=/usr/bin/systemctl --no-block reboot\n")
				m.link("/etc/systemd/system/multi-user.target.wants/once.service", "../once.service")
				m.write("/etc/systemd/system/app.service", "[Unit]\nWants=once.service\n[Service]\nExecStart=/usr/bin/sleep infinity\n")
				m.link("/etc/systemd/system/multi-user.target.wants/app.service", "../app.service")
			}},
		{Name: "the record of all mounts lies elsewhere", layout: "debian-bios", Finds: []string{"fstab-missing"}, Why: "the file system with the record is not mounted",
			change: func(_ *testing.T, m machine) { m.link("/etc/fstab", "/data/etc/fstab") }},
		{Name: "the only record of all mounts is lost", layout: "debian-bios", Finds: []string{"fstab-missing"}, Touches: []string{"/etc/fstab"},
			Loses: map[string]string{"fstab-missing": "stay unmounted"}, Why: "a database starts in an empty folder",
			change: func(_ *testing.T, m machine) {
				m.write("/etc/fstab", "# lost\n")
				m.addDisk("ext4", dataUUID, nil)
			}},
		{Name: "the driver of a mount is forbidden on purpose", layout: "debian-uefi", Finds: []string{"fstab-driver-unavailable"}, Touches: []string{"/etc/fstab"},
			Loses: map[string]string{"fstab-driver-unavailable": "Programs that store data below"}, Never: []string{"modprobe"}, Why: "the list of forbidden modules is a policy of the site",
			change: func(_ *testing.T, m machine) {
				m.write("/usr/lib/modules/"+debian12+"/modules.builtin", "kernel/fs/nls/nls_base.ko\n")
				m.write("/etc/modprobe.d/cis.conf", "install vfat /bin/false\n")
			}},
		{Name: "the policy of SELinux is lost, and another one is there", layout: "rhel-lvm", Finds: []string{"selinux-policy-missing"}, Touches: []string{"/etc/selinux/config"},
			Loses: map[string]string{"selinux-policy-missing": "targeted"}, Why: "the other policy may forbid less",
			change: func(_ *testing.T, m machine) {
				m.edit("/etc/selinux/config", "SELINUXTYPE=targeted", "SELINUXTYPE=mls")
			}},
		{Name: "the configuration lies in a store with checksums", layout: "debian-bios", Finds: []string{"fstab-device-missing"}, Why: "the store of NixOS is never written, and the next generation would make the file again",
			change: func(_ *testing.T, m machine) {
				const at = "/nix/store/5dj0qzfsxvwz4m1j4i1m4r5mpkdq4r4v-etc-fstab"
				m.write(at, string(m.files["etc/fstab"].Data)+"UUID="+deadUUID+" /data ext4 defaults 0 2\n")
				m.link("/etc/fstab", "/etc/static/fstab")
				m.link("/etc/static/fstab", at)
			}},
	}
}
