package system

import (
	"fmt"
	"strings"

	"salvor/diagnose"
)

const (
	fedoraKernel  = "6.11.4-301.fc41.x86_64"
	fedoraOld     = "6.11.3-300.fc41.x86_64"
	rhelKernel    = "5.14.0-503.15.1.el9_5.x86_64"
	rhelOld       = "5.14.0-503.11.1.el9_5.x86_64"
	ubuntuKernel  = "6.8.0-49-generic"
	suseKernel    = "6.4.0-150600.23.25-default"
	alpineKernel  = "6.6.58-0-lts"
	machineID     = "4bd1b1c0a7b14b2f9b0f7d2f4f1f2a3c"
	btrfsUUID     = "7b1f2a0c-30a2-4b6e-8f6a-1f2e3d4c0001"
	subvolume     = "@/.snapshots/1/snapshot"
	extendedBoot  = "bc13c2ff-59e6-4262-a352-b275fd6f7172"
	bootPartition = "0b9f3c0e-1d67-4d0e-8c5d-0d3a5a8b0009"
)

// bootEntryFile is an entry of the Boot Loader Specification as grubby and kernel-install write it.
func bootEntryFile(title, release, options string) string {
	return fmt.Sprintf("title %s (%s)\nversion %[2]s\nlinux /vmlinuz-%[2]s\ninitrd /initramfs-%[2]s.img\noptions %[3]s\ngrub_users $grub_users\ngrub_arg --unrestricted\n"+
		"grub_class linux\n", title, release, options)
}

// blsGrubConfig is the grub.cfg of Fedora and RHEL, whose entries lie in /boot/loader/entries.
func blsGrubConfig(boot string) string {
	return `set pager=1
if [ -f ${config_directory}/grubenv ]; then
  load_env -f ${config_directory}/grubenv
elif [ -s $prefix/grubenv ]; then
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="${saved_entry}"
fi
insmod increment
insmod blscfg
search --no-floppy --fs-uuid --set=root ` + boot + `
if [ -z "${kernelopts}" ]; then
  set kernelopts="root=UUID=unused ro "
fi
blscfg
if [ "$menu_auto_hide" = 1 ]; then
  set timeout=1
else
  set timeout=5
fi
`
}

// redHatFiles are what Fedora and RHEL share: UEFI, /boot on its own, entries of the Boot Loader Specification, SELinux.
func redHatFiles(in *installed, vendor, id string) {
	in.usrmerge(elfAMD64)
	in.espAt = "/boot/efi"
	in.writeMode("/usr/bin/dracut", "#!/bin/bash\n", 0o755)
	in.link("/etc/systemd/system/default.target", "/usr/lib/systemd/system/multi-user.target")
	in.write("/usr/lib/systemd/system/sshd.service", "[Unit]\nDescription=OpenSSH server daemon\n[Service]\nExecStart=/usr/sbin/sshd -D\n[Install]\nWantedBy=multi-user.target\n")
	in.remove("/etc/systemd/system/multi-user.target.wants")
	in.link("/etc/systemd/system/multi-user.target.wants/sshd.service", "/usr/lib/systemd/system/sshd.service")
	in.link("/etc/systemd/system/multi-user.target.wants/NetworkManager.service", "/usr/lib/systemd/system/NetworkManager.service")
	in.remove("/usr/lib/systemd/system/ssh.service")
	in.writeMode("/etc/NetworkManager/system-connections/enp1s0.nmconnection", "[connection]\nid=enp1s0\nuuid=f3f1f2f0-1111-4222-8333-444455556666\ntype=ethernet\n"+
		"interface-name=enp1s0\n\n[ethernet]\n\n[ipv4]\nmethod=auto\n\n[ipv6]\nmethod=auto\n", 0o600)
	in.writeAll(map[string]string{
		"/etc/selinux/config":                      "# comment\nSELINUX=enforcing\nSELINUXTYPE=targeted\n",
		"/etc/selinux/targeted/policy/policy.33":   "policy",
		"/etc/selinux/targeted/contexts/files/all": "",
		"/etc/default/grub":                        "GRUB_TIMEOUT=5\nGRUB_DEFAULT=saved\nGRUB_DISABLE_SUBMENU=true\nGRUB_ENABLE_BLSCFG=true\nGRUB_CMDLINE_LINUX=\"rhgb quiet\"\n",
		"/boot/grub2/grub.cfg":                     blsGrubConfig(bootUUID),
		"/etc/sysconfig/network":                   "",
	})
	for _, name := range []string{"shimx64.efi", "grubx64.efi", "shim.efi"} {
		in.espFile("/EFI/"+vendor+"/"+name, peFile(peAMD64))
	}
	in.espFile("/EFI/BOOT/BOOTX64.EFI", peFile(peAMD64))
	in.espFile("/EFI/"+vendor+"/grub.cfg", "search --no-floppy --root-dev-only --fs-uuid --set=dev "+bootUUID+"\nset prefix=($dev)/grub2\nexport $prefix\nconfigfile $prefix/grub.cfg\n")
	in.Firmware = diagnose.FirmwareState{UEFI: true, Order: []uint16{1, 0}, Current: 1, Entries: []diagnose.BootEntry{
		{Number: 0, Name: "UEFI PXEv4", Active: true}, {Number: 1, Name: id, Active: true, PartUUID: espPart, Path: `\EFI\` + vendor + `\shimx64.efi`}}}
}

// fedoraBtrfs is Fedora 41 with /boot on ext4 and a btrfs with the subvolumes root and home.
func fedoraBtrfs() *installed {
	in := newInstalled()
	in.Release = diagnose.Release{ID: "fedora", Version: "41", Pretty: "Fedora Linux 41 (Server Edition)"}
	redHatFiles(in, "fedora", "Fedora")
	in.Root = "/dev/nvme0n1p3"
	partitions := []diagnose.Device{
		holding(partitionOf("/dev/nvme0n1p1", "/dev/nvme0n1", 1, mib, 600*mib, espType, espPart), "vfat", espUUID, "", "/boot/efi"),
		holding(partitionOf("/dev/nvme0n1p2", "/dev/nvme0n1", 2, 601*mib, gib, extendedBoot, bootPartition), "ext4", bootUUID, "", "/boot"),
		holding(partitionOf("/dev/nvme0n1p3", "/dev/nvme0n1", 3, gib+601*mib, 90*gib, linuxType, rootPart), "btrfs", btrfsUUID, "fedora", "/"),
	}
	in.RootSubvolume = "root"
	partitions[2].Subvolumes, partitions[2].Default = []string{"root", "home", "root/var/lib/machines"}, ""
	disk := diagnose.Device{Path: "/dev/nvme0n1", Kind: diagnose.DiskDevice, Size: 100 * gib, Table: "gpt", Content: gptDisk(100*gib, partitions...)}
	in.Devices = append([]diagnose.Device{disk}, partitions...)
	in.write("/etc/fstab", "UUID="+btrfsUUID+" / btrfs subvol=root,compress=zstd:1 0 0\nUUID="+bootUUID+" /boot ext4 defaults 1 2\nUUID="+espUUID+
		" /boot/efi vfat umask=0077,shortname=winnt 0 2\nUUID="+btrfsUUID+" /home btrfs subvol=home,compress=zstd:1 0 0\n")
	for _, release := range []string{fedoraKernel, fedoraOld} {
		in.kernelFiles(release, "/boot/vmlinuz-"+release, "/boot/initramfs-"+release+".img", dracutInitramfs(release, "usr/lib/modules/"+release+"/kernel/fs/btrfs/btrfs.ko.xz",
			"usr/lib/modules/"+release+"/kernel/drivers/nvme/host/nvme.ko.xz"))
		in.write("/boot/loader/entries/"+machineID+"-"+release+".conf", bootEntryFile("Fedora Linux 41", release, "root=UUID="+btrfsUUID+" ro rootflags=subvol=root rhgb quiet"))
	}
	in.write("/boot/grub2/grubenv", grubEnv("saved_entry="+machineID+"-"+fedoraKernel, "menu_auto_hide=1", "boot_success=0", "boot_indeterminate=0"))
	return in
}

// rhelLVM is RHEL 9 with a root on xfs in LVM.
func rhelLVM() *installed {
	in := newInstalled()
	in.Release = diagnose.Release{ID: "rhel", Like: []string{"fedora"}, Version: "9.5", Pretty: "Red Hat Enterprise Linux 9.5 (Plow)"}
	redHatFiles(in, "redhat", "Red Hat Enterprise Linux")
	in.Root = "/dev/mapper/rhel_web--7-root"
	partitions := []diagnose.Device{
		holding(partitionOf("/dev/sda1", "/dev/sda", 1, mib, 600*mib, espType, espPart), "vfat", espUUID, "", "/boot/efi"),
		holding(partitionOf("/dev/sda2", "/dev/sda", 2, 601*mib, gib, linuxType, bootPartition), "xfs", bootUUID, "", "/boot"),
		holding(partitionOf("/dev/sda3", "/dev/sda", 3, gib+601*mib, 90*gib, "e6d6d379-f507-44c2-a23c-238f2a3df928", rootPart), "LVM2_member", "pvpvpv-0001", "", ""),
	}
	disk := diagnose.Device{Path: "/dev/sda", Kind: diagnose.DiskDevice, Size: 100 * gib, Table: "gpt", Content: gptDisk(100*gib, partitions...)}
	in.Devices = append([]diagnose.Device{disk}, partitions...)
	in.Devices = append(in.Devices,
		holding(diagnose.Device{Path: in.Root, Kind: diagnose.VolumeDevice, Parents: []string{"/dev/sda3"}, Size: 70 * gib}, "xfs", rootUUID, "", "/"),
		withContent(holding(diagnose.Device{Path: "/dev/mapper/rhel_web--7-swap", Kind: diagnose.VolumeDevice, Parents: []string{"/dev/sda3"}, Size: gib}, "swap", swapUUID, "", ""), swapDisk(gib)))
	in.Groups = []diagnose.VolumeGroup{{Name: "rhel_web-7", UUID: "vgvgvg-0001", Size: 90 * gib, Volumes: []diagnose.LogicalVolume{
		{Name: "root", Path: "/dev/mapper/rhel_web--7-root"}, {Name: "swap", Path: "/dev/mapper/rhel_web--7-swap"}}}}
	in.write("/etc/fstab", "/dev/mapper/rhel_web--7-root / xfs defaults 0 0\nUUID="+bootUUID+" /boot xfs defaults 0 0\nUUID="+espUUID+
		" /boot/efi vfat umask=0077,shortname=winnt 0 2\n/dev/mapper/rhel_web--7-swap none swap defaults 0 0\n")
	in.write("/etc/lvm/devices/system.devices", "VERSION=1.1.2\nIDTYPE=sys_wwid IDNAME=naa.5000c500a0b1c2d3 DEVNAME=/dev/sda3 PVID=pvpvpv0001 PART=3\n")
	options := "root=/dev/mapper/rhel_web--7-root ro crashkernel=1G-4G:192M,4G-64G:256M,64G-:512M resume=/dev/mapper/rhel_web--7-swap rd.lvm.lv=rhel_web-7/root rd.lvm.lv=rhel_web-7/swap rhgb quiet"
	for _, release := range []string{rhelKernel, rhelOld} {
		in.kernelFiles(release, "/boot/vmlinuz-"+release, "/boot/initramfs-"+release+".img", dracutInitramfs(release, "usr/sbin/lvm",
			"usr/lib/modules/"+release+"/kernel/fs/xfs/xfs.ko.xz", "usr/lib/modules/"+release+"/kernel/drivers/md/dm-mod.ko.xz"))
		in.write("/boot/loader/entries/"+machineID+"-"+release+".conf", bootEntryFile("Red Hat Enterprise Linux", release, options+" $tuned_params"))
	}
	in.write("/boot/grub2/grubenv", grubEnv("saved_entry="+machineID+"-"+rhelKernel, "menu_auto_hide=1", "boot_success=1"))
	return in
}

// ubuntuNetplan is the cloud image of Ubuntu 24.04: labels, netplan and a socket for sshd.
func ubuntuNetplan() *installed {
	in := debianUEFI()
	for _, gone := range []string{"/boot", "/usr/lib/modules", "/EFI", "/etc/network", "/vmlinuz", "/initrd.img", "/etc/systemd/system/multi-user.target.wants",
		"/usr/lib/systemd/system/networking.service", "/usr/sbin/ifup"} {
		in.remove(gone)
	}
	in.Release = diagnose.Release{ID: "ubuntu", Like: []string{"debian"}, Version: "24.04", Pretty: "Ubuntu 24.04.1 LTS"}
	in.Devices[1].Label, in.Devices[2].Label = "UEFI", "cloudimg-rootfs"
	in.write("/etc/fstab", "LABEL=cloudimg-rootfs\t/\t ext4\tdiscard,commit=30,errors=remount-ro\t0 1\nLABEL=UEFI\t/boot/efi\tvfat\tumask=0077\t0 1\n")
	in.kernelFiles(ubuntuKernel, "/boot/vmlinuz-"+ubuntuKernel, "/boot/initrd.img-"+ubuntuKernel, debianInitramfs(ubuntuKernel))
	in.link("/boot/vmlinuz", "vmlinuz-"+ubuntuKernel)
	in.link("/boot/initrd.img", "initrd.img-"+ubuntuKernel)
	in.write("/boot/grub/grub.cfg", strings.ReplaceAll(strings.ReplaceAll(grubConfig("/boot", rootUUID, "LABEL=cloudimg-rootfs"), debian12, ubuntuKernel), debianOld, ubuntuKernel))
	in.write("/boot/grub/grubenv", grubEnv())
	for _, name := range []string{"shimx64.efi", "grubx64.efi", "mmx64.efi"} {
		in.espFile("/EFI/ubuntu/"+name, peFile(peAMD64))
	}
	in.espFile("/EFI/BOOT/BOOTX64.EFI", peFile(peAMD64))
	in.espFile("/EFI/ubuntu/grub.cfg", "search.fs_uuid "+rootUUID+" root \nset prefix=($root)'/boot/grub'\nconfigfile $prefix/grub.cfg\n")
	in.Firmware.Entries[2] = diagnose.BootEntry{Number: 3, Name: "ubuntu", Active: true, PartUUID: espPart, Path: `\EFI\ubuntu\shimx64.efi`}
	in.writeAll(map[string]string{
		"/etc/os-release": "PRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\nID=ubuntu\nID_LIKE=debian\n",
		"/usr/lib/systemd/system/ssh.socket": "[Unit]\nDescription=OpenBSD Secure Shell server socket\n[Socket]\nListenStream=0.0.0.0:22\nListenStream=[::]:22\nAccept=no\n" +
			"[Install]\nWantedBy=sockets.target\n",
		"/etc/cloud/cloud.cfg":                             "users:\n  - default\ndisable_root: true\ndatasource_list: [ NoCloud, None ]\n",
		"/etc/ssh/sshd_config.d/60-cloudimg-settings.conf": "PasswordAuthentication no\n",
		"/var/lib/cloud/data/instance-id":                  "i-0001\n",
	})
	in.writeMode("/etc/netplan/50-cloud-init.yaml", "network:\n    version: 2\n    ethernets:\n        enp1s0:\n            dhcp4: true\n            match:\n"+
		"                macaddress: 52:54:00:12:34:56\n            set-name: enp1s0\n", 0o600)
	in.writeMode("/usr/sbin/netplan", "#!/usr/bin/python3\n", 0o755)
	in.writeMode("/usr/lib/systemd/system-generators/netplan", elfFile(elfAMD64, "/lib64/ld-linux-x86-64.so.2"), 0o755)
	in.link("/usr/libexec/netplan/generate", "../../lib/systemd/system-generators/netplan")
	in.link("/etc/systemd/system/sockets.target.wants/ssh.socket", "/usr/lib/systemd/system/ssh.socket")
	in.link("/etc/systemd/system/multi-user.target.wants/systemd-networkd.service", "/usr/lib/systemd/system/systemd-networkd.service")
	return in
}

// suseBtrfs is openSUSE Leap 15.6: snapshots of btrfs, the root in the default subvolume, /boot on it.
func suseBtrfs() *installed {
	in := newInstalled()
	in.Release = diagnose.Release{ID: "opensuse-leap", Like: []string{"suse", "opensuse"}, Version: "15.6", Pretty: "openSUSE Leap 15.6"}
	redHatFiles(in, "opensuse", "opensuse-secureboot")
	for _, gone := range []string{"/etc/selinux", "/boot/grub2/grub.cfg", "/EFI/opensuse/grub.cfg", "/etc/systemd/system/default.target"} {
		in.remove(gone)
	}
	in.link("/etc/systemd/system/default.target", "/usr/lib/systemd/system/graphical.target")
	in.Root = "/dev/vda2"
	partitions := []diagnose.Device{
		holding(partitionOf("/dev/vda1", "/dev/vda", 1, mib, 512*mib, espType, espPart), "vfat", espUUID, "", "/boot/efi"),
		holding(partitionOf("/dev/vda2", "/dev/vda", 2, 513*mib, 38*gib, linuxType, rootPart), "btrfs", btrfsUUID, "", "/"),
		withContent(holding(partitionOf("/dev/vda3", "/dev/vda", 3, 38*gib+513*mib, gib, "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f", swapPart), "swap", swapUUID, "", ""), swapDisk(gib)),
	}
	partitions[1].Subvolumes = []string{"@", "@/var", "@/usr/local", "@/srv", "@/root", "@/opt", "@/home", "@/boot/grub2/x86_64-efi", "@/.snapshots", subvolume}
	partitions[1].Default, in.RootSubvolume = subvolume, subvolume
	disk := diagnose.Device{Path: "/dev/vda", Kind: diagnose.DiskDevice, Size: 40 * gib, Table: "gpt", Content: gptDisk(40*gib, partitions...)}
	in.Devices = append([]diagnose.Device{disk}, partitions...)
	fstab := "UUID=" + btrfsUUID + "  /  btrfs  defaults  0  0\n"
	for _, v := range []string{"var", "usr/local", "srv", "root", "opt", "home", "boot/grub2/x86_64-efi", ".snapshots"} {
		fstab += "UUID=" + btrfsUUID + "  /" + v + "  btrfs  subvol=/@/" + v + "  0  0\n"
	}
	in.write("/etc/fstab", fstab+"UUID="+espUUID+"  /boot/efi  vfat  utf8  0  2\nUUID="+swapUUID+"  swap  swap  defaults  0  0\n")
	in.kernelFiles(suseKernel, "/boot/vmlinuz-"+suseKernel, "/boot/initrd-"+suseKernel, dracutInitramfs(suseKernel, "usr/lib/modules/"+suseKernel+"/kernel/fs/btrfs/btrfs.ko.zst"))
	in.link("/boot/vmlinuz", "vmlinuz-"+suseKernel)
	in.link("/boot/initrd", "initrd-"+suseKernel)
	in.write("/boot/grub2/grub.cfg", "set btrfs_relative_path=\"y\"\nexport btrfs_relative_path\nif [ -f ${config_directory}/grubenv ]; then\n  load_env -f ${config_directory}/grubenv\nfi\n"+
		"set default=\"0\"\nmenuentry 'openSUSE Leap 15.6' --class opensuse $menuentry_id_option 'gnulinux-simple-"+btrfsUUID+"' {\n\tload_video\n\tset gfxpayload=keep\n"+
		"\tsearch --no-floppy --fs-uuid --set=root "+btrfsUUID+"\n\tlinux /boot/vmlinuz-"+suseKernel+" root=UUID="+btrfsUUID+" splash=silent resume=/dev/disk/by-uuid/"+swapUUID+
		" quiet mitigations=auto\n\tinitrd /boot/initrd-"+suseKernel+"\n}\nif [ -f  $prefix/custom.cfg ]; then\n  source $prefix/custom.cfg\nfi\n")
	in.write("/boot/grub2/grubenv", grubEnv("saved_entry=openSUSE Leap 15.6"))
	in.espFile("/EFI/opensuse/grub.cfg", "set btrfs_relative_path=\"yes\"\nsearch --fs-uuid --set=root "+btrfsUUID+"\nset prefix=(${root})/boot/grub2\nsource \"${prefix}/grub.cfg\"\n")
	in.link("/usr/lib/systemd/system/wicked.service", "/dev/null")
	in.remove("/usr/lib/systemd/system/wicked.service")
	return in
}

// alpineOpenRC is Alpine 3.20 for BIOS: extlinux in /boot, busybox, OpenRC and musl.
func alpineOpenRC() *installed {
	in := newInstalled()
	in.Release = diagnose.Release{ID: "alpine", Version: "3.20.3", Pretty: "Alpine Linux v3.20"}
	in.Root = "/dev/vda3"
	mbr := make([]byte, sectorSize)
	copy(mbr, "\x33\xc0\xfa\x8e\xd8\x8e\xd0\xbc\x00\x7c\x89\xe6\x06\x57\x8e\xc0")
	copy(mbr[0x140:], "Missing operating system.\r\n")
	putMBR(mbr, [3]uint32{2048, 614400, 0x83}, [3]uint32{616448, 2097152, 0x82}, [3]uint32{2713600, 18257920, 0x83})
	in.Devices = []diagnose.Device{
		{Path: "/dev/vda", Kind: diagnose.DiskDevice, Size: 10 * gib, Table: "dos", Content: newDisk(10*gib).put(0, mbr)},
		holding(partitionOf("/dev/vda1", "/dev/vda", 1, mib, 300*mib, "0x83", "9a9a9a9a-01"), "ext4", bootUUID, "", "/boot"),
		withContent(holding(partitionOf("/dev/vda2", "/dev/vda", 2, 301*mib, gib, "0x82", "9a9a9a9a-02"), "swap", swapUUID, "", ""), swapDisk(gib)),
		holding(partitionOf("/dev/vda3", "/dev/vda", 3, gib+301*mib, 8*gib, "0x83", "9a9a9a9a-03"), "ext4", rootUUID, "", "/"),
	}
	for _, name := range []string{"/bin/busybox", "/sbin/apk"} {
		in.writeMode(name, elfFile(elfAMD64, "/lib/ld-musl-x86_64.so.1"), 0o755)
	}
	in.writeMode("/lib/ld-musl-x86_64.so.1", elfFile(elfAMD64, ""), 0o755)
	in.writeMode("/sbin/mkinitfs", "#!/bin/sh\n", 0o755)
	in.link("/bin/sh", "/bin/busybox")
	in.link("/bin/ash", "/bin/busybox")
	in.link("/sbin/udhcpc", "/bin/busybox")
	in.link("/sbin/init", "/bin/busybox")
	in.writeMode("/sbin/openrc", elfFile(elfAMD64, "/lib/ld-musl-x86_64.so.1"), 0o755)
	in.writeMode("/usr/sbin/sshd", elfFile(elfAMD64, "/lib/ld-musl-x86_64.so.1"), 0o755)
	in.remove("/etc/sudoers")
	in.rewrite("/etc/passwd", "/bin/bash", "/bin/ash")
	in.write("/etc/shells", "/bin/sh\n/bin/ash\n")
	for _, service := range []string{"sshd", "networking", "devfs", "hostname"} {
		in.writeMode("/etc/init.d/"+service, "#!/sbin/openrc-run\n", 0o755)
	}
	in.link("/etc/runlevels/default/sshd", "/etc/init.d/sshd")
	in.link("/etc/runlevels/boot/networking", "/etc/init.d/networking")
	in.writeAll(map[string]string{
		"/etc/os-release":         "NAME=\"Alpine Linux\"\nID=alpine\nVERSION_ID=3.20.3\n",
		"/etc/inittab":            "::sysinit:/sbin/openrc sysinit\n::sysinit:/sbin/openrc boot\n::wait:/sbin/openrc default\ntty1::respawn:/sbin/getty 38400 tty1\n",
		"/etc/network/interfaces": "auto lo\niface lo inet loopback\n\nauto eth0\niface eth0 inet dhcp\n",
		"/etc/fstab":              "UUID=" + rootUUID + "\t/\text4\trw,relatime 0 1\nUUID=" + bootUUID + "\t/boot\text4\trw,relatime 0 2\nUUID=" + swapUUID + "\tswap\tswap\tdefaults\t0 0\n/dev/cdrom\t/media/cdrom\tiso9660\tnoauto,ro 0 0\n/dev/usbdisk\t/media/usb\tvfat\tnoauto\t0 0\ntmpfs\t/tmp\ttmpfs\tnosuid,nodev\t0\t0\n",
		"/boot/extlinux.conf":     "DEFAULT menu.c32\nPROMPT 0\nTIMEOUT 10\nLABEL lts\n  MENU LABEL Linux lts\n  LINUX vmlinuz-lts\n  INITRD initramfs-lts\n  APPEND root=UUID=" + rootUUID + " modules=sd-mod,usb-storage,ext4 quiet rootfstype=ext4\n",
		"/boot/ldlinux.sys":       "SYSLINUX",
		"/boot/vmlinuz-lts":       bzImage(alpineKernel),
		"/boot/initramfs-lts":     string(gzipped(cpioArchive("init", "bin/sh", "lib/modules/"+alpineKernel+"/kernel/fs/ext4/ext4.ko", "lib/modules/"+alpineKernel+"/kernel/drivers/block/virtio_blk.ko"))),
		"/lib/modules/" + alpineKernel + "/modules.dep": "kernel/fs/ext4/ext4.ko.gz:\n",
	})
	delete(in.files, "etc/machine-id")
	return in
}

// rewrite changes a text in a file while a layout is made.
func (in *installed) rewrite(name, old, text string) {
	f := in.files[strings.TrimPrefix(name, "/")]
	in.write(name, strings.ReplaceAll(string(f.Data), old, text))
}
