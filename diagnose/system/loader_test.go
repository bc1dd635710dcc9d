package system

import (
	"crypto/md5"
	"encoding/hex"
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

func init() {
	type change = func(*testing.T, *installed)
	replace := func(name, old, text string) change {
		return func(t *testing.T, in *installed) { in.replace(t, name, old, text) }
	}
	write := func(name, text string) change { return func(_ *testing.T, in *installed) { in.write(name, text) } }
	remove := func(names ...string) change {
		return func(_ *testing.T, in *installed) {
			for _, name := range names {
				in.remove(name)
			}
		}
	}
	cut := func(name string, bytes int) change {
		return func(_ *testing.T, in *installed) {
			if f := in.esp[strings.TrimPrefix(name, "/")]; f != nil {
				in.espFile(name, string(f.Data[:bytes]))
				return
			}
			in.write(name, string(in.files[strings.TrimPrefix(name, "/")].Data[:bytes]))
		}
	}
	nothing := func(*testing.T, *installed) {}
	unified := func(text string) change {
		return func(_ *testing.T, in *installed) {
			in.remove("/loader/entries")
			in.espFile("/EFI/Linux/debian-"+debian12+".efi", text)
		}
	}
	wholeUnified := unifiedKernel("root=UUID="+rootUUID+" ro quiet", debianInitramfs(debian12))
	lz4Image := string(lz4Compressed(cpioArchive(initramfsFiles(debian12)...)))
	const (
		grub    = "/boot/grub/grub.cfg"
		stub    = "/EFI/debian/grub.cfg"
		kernel  = "/boot/vmlinuz-" + debian12
		image   = "/boot/initrd.img-" + debian12
		stubbed = "search.fs_uuid "
		entry   = "/boot/loader/entries/" + machineID + "-" + fedoraKernel + ".conf"
		sums    = "/var/lib/dpkg/info/linux-image-" + debian12 + ".md5sums"
	)
	sum := md5.Sum([]byte(bzImage(debian12)))
	recordfail := "if [ \"${recordfail}\" = 1 ]; then\n  set timeout=-1\nelse\n  set timeout=5\nfi\n"
	ruleCases = append(ruleCases, []ruleCase{
		{"gone", "debian-bios", "grub-config-missing", diagnose.BlocksBoot, remove(grub)},
		{"a leftover beside systemd-boot", "debian-systemd-boot", "grub-config-missing", nearMiss, write("/boot/grub/grubenv", grubEnv())},
		{"on the ESP", "rhel-lvm", "grub-config-missing", nearMiss, func(_ *testing.T, in *installed) {
			in.espFile("/EFI/redhat/grub.cfg", string(in.files["boot/grub2/grub.cfg"].Data))
			in.remove("/boot/grub2/grub.cfg")
		}},
		{"no bytes", "debian-uefi", "grub-config-empty", diagnose.BlocksBoot, write(grub, "")},
		{"no entry", "debian-uefi", "grub-config-empty", diagnose.BlocksBoot, write(grub, "set timeout=5\n")},
		{"another file is read", "debian-uefi", "grub-config-empty", nearMiss, write(grub, "configfile (hd0,gpt2)/boot/other.cfg\n")},
		{"cut in its head", "debian-bios", "grub-config-invalid", diagnose.BlocksBoot, cut(grub, 300)},
		{"cut in the submenu", "debian-bios", "grub-config-invalid", diagnose.Degrades, func(_ *testing.T, in *installed) {
			data := in.files["boot/grub/grub.cfg"].Data
			in.write(grub, string(data[:strings.Index(string(data), "/vmlinuz-"+debianOld)]))
		}},
		{"cut in the first line of its first entry", "debian-bios", "grub-config-invalid", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			text := string(in.files[strings.TrimPrefix(grub, "/")].Data)
			in.write(grub, text[:strings.Index(text, "menuentry ")]+"menuentry 'Debian GNU/Linux' --class de")
		}},
		{"a quote too much", "debian-bios", "grub-config-invalid", diagnose.BlocksBoot, replace(grub, "set timeout=5", "set timeout='5")},
		{"braces in quotes and loops", "debian-bios", "grub-config-invalid", nearMiss, func(_ *testing.T, in *installed) {
			in.add(grub, "for i in a b; do\n  echo \"{ $i\" 'it is }' # { comment\ndone\nwhile [ -z \"$x\" ]; do x=1; done\nfunction f {\n\techo if fi\n}\n")
		}},
		{"-1", "debian-bios", "grub-menu-waits", diagnose.BlocksBoot, replace(grub, "set timeout=5", "set timeout=-1")},
		{"a boot that failed", "debian-bios", "grub-menu-waits", diagnose.BlocksBoot, func(t *testing.T, in *installed) {
			in.replace(t, grub, "set timeout=5\n", recordfail)
			in.write("/boot/grub/grubenv", grubEnv("recordfail=1"))
		}},
		{"no boot failed", "debian-bios", "grub-menu-waits", nearMiss, replace(grub, "set timeout=5\n", recordfail)},
		{"none", "fedora-btrfs", "boot-entries-missing", diagnose.BlocksBoot, remove("/boot/loader")},
		{"none of systemd-boot", "debian-systemd-boot", "boot-entries-missing", diagnose.BlocksBoot, remove("/loader/entries")},
		{"none beside Windows", "debian-systemd-boot", "boot-entries-missing", nearMiss, func(t *testing.T, in *installed) {
			remove("/loader/entries")(t, in)
			in.espFile("/EFI/Microsoft/Boot/bootmgfw.efi", "MZ")
		}},
		{"a unified image", "debian-systemd-boot", "boot-entries-missing", nearMiss, func(t *testing.T, in *installed) {
			remove("/loader/entries")(t, in)
			in.espFile("/EFI/Linux/debian.efi", "MZ")
		}},
		{"one", "fedora-btrfs", "boot-entries-missing", nearMiss, remove("/boot/loader/entries/" + machineID + "-" + fedoraOld + ".conf")},
		{"another UUID", "debian-bios", "grub-search-missing", diagnose.Degrades, replace(grub, "--fs-uuid --set=root "+rootUUID, "--fs-uuid --set=root "+deadUUID)},
		{"by a hint and a file", "debian-bios", "grub-search-missing", nearMiss, replace(grub, "search --no-floppy --fs-uuid --set=root "+rootUUID, "search --no-floppy --file --set=root --hint hd0 /boot/x")},
		{"another UUID", "debian-uefi", "grub-stub-search-missing", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			in.espFile(stub, stubbed+deadUUID+" root\nset prefix=($root)'/boot/grub'\nconfigfile $prefix/grub.cfg\n")
		}},
		{"of another system", "debian-uefi", "grub-stub-search-missing", nearMiss, func(_ *testing.T, in *installed) {
			in.espFile("/EFI/fedora/grub.cfg", stubbed+deadUUID+" root\n")
		}},
		{"four bytes, and the default is saved there", "fedora-btrfs", "grub-environment-invalid", diagnose.Degrades, write("/boot/grub2/grubenv", "oops")},
		{"four bytes, and the default is in the script", "debian-bios", "grub-environment-invalid", diagnose.Info, write("/boot/grub/grubenv", "oops")},
		{"with a warning", "fedora-btrfs", "grub-environment-invalid", nearMiss, nothing},
		{"a kernel that is gone", "fedora-btrfs", "grub-default-missing", diagnose.Info, write("/boot/grub2/grubenv", grubEnv("saved_entry="+machineID+"-6.1.0"))},
		{"a submenu", "debian-bios", "grub-default-missing", nearMiss, replace(grub, `default="0"`, `default="1>1"`)},

		{"gone", "debian-bios", "kernel-missing", diagnose.BlocksBoot, remove(kernel)},
		{"gone on an own /boot", "debian-luks-raid", "kernel-missing", diagnose.BlocksBoot, remove(kernel)},
		{"of an entry file", "fedora-btrfs", "kernel-missing", diagnose.BlocksBoot, remove("/boot/vmlinuz-" + fedoraKernel)},
		{"of entry files that name others", "debian-systemd-boot", "kernel-missing", diagnose.BlocksBoot, func(t *testing.T, in *installed) {
			for _, release := range []string{debian12, debianOld} {
				name := "/loader/entries/" + machineID + "-" + release + ".conf"
				in.espFile(name, strings.Replace(string(in.esp[name[1:]].Data), "linux      /", "linux      /gone/", 1))
			}
		}},
		{"on the ESP", "debian-systemd-boot", "kernel-missing", diagnose.BlocksBoot, remove("/" + machineID + "/" + debian12 + "/linux")},
		{"of extlinux", "alpine-openrc", "kernel-missing", diagnose.BlocksBoot, remove("/boot/vmlinuz-lts")},
		{"not of the default entry", "debian-bios", "kernel-missing", nearMiss, remove("/boot/vmlinuz-" + debianOld)},
		{"not of the default entry", "debian-bios", "boot-entry-broken", diagnose.Info, remove("/boot/vmlinuz-" + debianOld)},
		{"all are whole", "debian-bios", "boot-entry-broken", nearMiss, nothing},
		{"cut", "debian-uefi", "kernel-damaged", diagnose.BlocksBoot, cut(kernel, 5000)},
		{"empty", "suse-btrfs", "kernel-damaged", diagnose.BlocksBoot, write("/boot/vmlinuz-"+suseKernel, "")},
		{"signed, so longer than its head says", "debian-uefi", "kernel-damaged", nearMiss, write(kernel, bzImage(debian12)+strings.Repeat("s", 1500))},
		{"a unified one, cut", "debian-systemd-boot", "kernel-damaged", diagnose.BlocksBoot, unified(wholeUnified[:len(wholeUnified)-200])},
		{"a unified one", "debian-systemd-boot", "kernel-damaged", nearMiss, unified(wholeUnified)},
		{"of arm64", "debian-uefi", "kernel-damaged", nearMiss, func(t *testing.T, in *installed) {
			in.KernelArch = "arm64"
			write(kernel, arm64Image())(t, in)
		}},
		{"of arm64, on another processor", "debian-uefi", "kernel-damaged", diagnose.BlocksBoot, write(kernel, arm64Image())},
		{"another sum", "debian-bios", "kernel-changed", diagnose.BlocksBoot, write(sums, strings.Repeat("0", 32)+"  boot/vmlinuz-"+debian12+"\n")},
		{"someone signed it once more", "debian-bios", "kernel-changed", nearMiss, func(_ *testing.T, in *installed) {
			in.write(sums, strings.Repeat("0", 32)+"  boot/vmlinuz-"+debian12+"\n")
			in.write(kernel, signedKernel(debian12, 2))
		}},
		{"signed by its maker", "debian-bios", "kernel-changed", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			in.write(sums, strings.Repeat("0", 32)+"  boot/vmlinuz-"+debian12+"\n")
			in.write(kernel, signedKernel(debian12, 1))
		}},
		{"its sum", "debian-bios", "kernel-changed", nearMiss, write(sums, hex.EncodeToString(sum[:])+"  boot/vmlinuz-"+debian12+"\n")},

		{"gone", "debian-bios", "initramfs-missing", diagnose.BlocksBoot, remove(image)},
		{"of an entry file", "rhel-lvm", "initramfs-missing", diagnose.BlocksBoot, remove("/boot/initramfs-" + rhelKernel + ".img")},
		{"the entry has none", "debian-bios", "initramfs-missing", diagnose.BlocksBoot, replace(grub, "\tinitrd\t/boot/initrd.img-"+debian12+"\n", "")},
		{"a kernel that needs none", "debian-bios", "initramfs-missing", nearMiss, func(t *testing.T, in *installed) {
			in.replace(t, grub, "\tinitrd\t/boot/initrd.img-"+debian12+"\n", "")
			in.replace(t, grub, "root=UUID="+rootUUID, "root=/dev/sda1")
		}},
		{"cut", "debian-bios", "initramfs-damaged", diagnose.BlocksBoot, cut(image, len(debianInitramfs(debian12))-40)},
		{"cut in its microcode", "debian-bios", "initramfs-damaged", diagnose.BlocksBoot, cut(image, 700)},
		{"cut with gzip", "fedora-btrfs", "initramfs-damaged", diagnose.BlocksBoot, cut("/boot/initramfs-"+fedoraKernel+".img", len(dracutInitramfs(fedoraKernel))-20)},
		{"microcode only", "debian-bios", "initramfs-damaged", diagnose.BlocksBoot, write(image, string(cpioArchive("kernel/x86/microcode/x.bin")))},
		{"two images", "debian-bios", "initramfs-damaged", nearMiss, func(t *testing.T, in *installed) {
			in.replace(t, grub, "\tinitrd\t/boot/initrd.img-"+debian12, "\tinitrd\t/boot/ucode.img /boot/initrd.img-"+debian12)
			in.write("/boot/ucode.img", string(cpioArchive("kernel/x86/microcode/x.bin")))
		}},
		{"lz4, cut", "debian-bios", "initramfs-damaged", diagnose.BlocksBoot, write(image, lz4Image[:len(lz4Image)-60])},
		{"lz4", "debian-bios", "initramfs-damaged", nearMiss, write(image, lz4Image)},
		{"zeros behind it", "debian-bios", "initramfs-damaged", nearMiss, write(image, debianInitramfs(debian12)+strings.Repeat("\x00", 600))},
		{"in a unified kernel", "debian-systemd-boot", "initramfs-damaged", nearMiss, unified(wholeUnified)},
		{"no /init in a unified kernel", "debian-systemd-boot", "initramfs-damaged", diagnose.BlocksBoot, unified(unifiedKernel("root=UUID="+rootUUID, string(cpioArchive("bin/sh"))))},
		{"not compressed", "debian-bios", "initramfs-damaged", nearMiss, write(image, string(cpioArchive(initramfsFiles(debian12)...)))},
		{"an archive behind gzip", "debian-bios", "initramfs-damaged", nearMiss, write(image, string(gzipped(cpioArchive(initramfsFiles(debian12)...)))+string(cpioArchive("etc/more")))},
		{"xz", "debian-bios", "initramfs-not-examined", diagnose.Info, write(image, "\xfd7zXZ\x00 and data that ends well YZ")},
		{"xz, cut", "debian-bios", "initramfs-damaged", diagnose.BlocksBoot, write(image, "\xfd7zXZ\x00 and data that is cut")},
		{"zstd", "debian-bios", "initramfs-not-examined", nearMiss, nothing},
		{"built for another disk", "debian-uefi", "initramfs-lacks-driver", diagnose.BlocksBoot, write(image, string(gzipped(cpioArchive("init", "usr/lib/modules/"+debian12+"/kernel/fs/ext4/ext4.ko"))))},
		{"moved to AHCI", "debian-bios", "initramfs-lacks-driver", diagnose.BlocksBoot, func(t *testing.T, in *installed) {
			in.device(t, "/dev/sda").Drivers = []string{"ahci"}
			in.write(image, string(gzipped(cpioArchive("init", "usr/lib/modules/"+debian12+"/kernel/fs/ext4/ext4.ko"))))
		}},
		{"left out by dracut", "fedora-btrfs", "initramfs-lacks-driver", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			in.write("/etc/dracut.conf.d/site.conf", "# ours\nomit_drivers+=\" nvme floppy \"\n")
			in.write("/etc/dracut.conf.d/zz.conf", "omit_drivers+=\"nvme\" # too\n")
			in.write("/boot/initramfs-"+fedoraKernel+".img", dracutInitramfs(fedoraKernel, "usr/lib/modules/"+fedoraKernel+"/kernel/fs/btrfs/btrfs.ko.xz"))
			in.remove("/boot/loader/entries/" + machineID + "-" + fedoraOld + ".conf")
		}},
		{"left out by initramfs-tools", "debian-uefi", "initramfs-lacks-driver", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			in.write("/etc/initramfs-tools/conf.d/tiny", "MODULES=dep\n")
			in.remove("/boot/vmlinuz-" + debianOld)
			in.write(image, string(gzipped(cpioArchive("init", "usr/lib/modules/"+debian12+"/kernel/fs/ext4/ext4.ko"))))
		}},
		{"left out by a list of initramfs-tools", "debian-uefi", "initramfs-lacks-driver", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			in.write("/etc/initramfs-tools/conf.d/list", "MODULES=list\n")
			in.remove("/boot/vmlinuz-" + debianOld)
			in.write(image, string(gzipped(cpioArchive("init", "usr/lib/modules/"+debian12+"/kernel/fs/ext4/ext4.ko"))))
		}},
		{"the driver is in the kernel", "debian-uefi", "initramfs-lacks-driver", nearMiss, func(_ *testing.T, in *installed) {
			in.write("/usr/lib/modules/"+debian12+"/modules.dep", "kernel/fs/ext4/ext4.ko:\n")
			in.write(image, string(gzipped(cpioArchive("init", "usr/lib/modules/"+debian12+"/kernel/fs/ext4/ext4.ko"))))
		}},
		{"no lvm beside dmsetup", "debian-luks-raid", "initramfs-lacks-tool", diagnose.BlocksBoot, write(image, debianInitramfs(debian12, "usr/sbin/mdadm", "usr/sbin/dmsetup", "usr/sbin/cryptsetup",
			"usr/lib/modules/"+debian12+"/kernel/drivers/md/dm-mod.ko", "usr/lib/modules/"+debian12+"/kernel/fs/xfs/xfs.ko"))},
		{"no cryptsetup", "debian-luks-raid", "initramfs-lacks-tool", diagnose.BlocksBoot, write(image, debianInitramfs(debian12, "usr/sbin/mdadm", "usr/sbin/lvm",
			"usr/lib/modules/"+debian12+"/kernel/drivers/md/dm-mod.ko", "usr/lib/modules/"+debian12+"/kernel/fs/xfs/xfs.ko"))},
		{"no container to open", "debian-luks-raid", "initramfs-lacks-tool", diagnose.BlocksBoot, write(image, debianInitramfs(debian12, "usr/sbin/mdadm", "usr/sbin/lvm", "usr/sbin/cryptsetup",
			"cryptroot/crypttab (empty)", "usr/lib/modules/"+debian12+"/kernel/drivers/md/dm-mod.ko", "usr/lib/modules/"+debian12+"/kernel/fs/xfs/xfs.ko"))},
		{"a container to open in the second archive", "debian-luks-raid", "initramfs-lacks-tool", nearMiss, write(image, string(cpioArchive("cryptroot/crypttab (empty)"))+debianInitramfs(debian12, "usr/sbin/mdadm", "usr/sbin/lvm",
			"usr/sbin/cryptsetup", "cryptroot/crypttab", "usr/lib/modules/"+debian12+"/kernel/drivers/md/dm-mod.ko", "usr/lib/modules/"+debian12+"/kernel/fs/xfs/xfs.ko"))},
		{"all tools", "debian-luks-raid", "initramfs-lacks-tool", nearMiss, nothing},
		{"no folder", "debian-bios", "modules-missing", diagnose.BlocksBoot, remove("/usr/lib/modules/" + debian12)},
		{"no list", "debian-bios", "modules-missing", diagnose.BlocksBoot, write("/usr/lib/modules/"+debian12+"/modules.dep", "")},
		{"of a kernel that is not started", "debian-bios", "modules-missing", nearMiss, remove("/usr/lib/modules/" + debianOld)},

		{"another UUID", "debian-bios", "root-argument-missing", diagnose.BlocksBoot, replace(grub, "root=UUID="+rootUUID, "root=UUID="+deadUUID)},
		{"in an entry file", "fedora-btrfs", "root-argument-missing", diagnose.BlocksBoot, replace(entry, btrfsUUID, deadUUID)},
		{"of a unified kernel", "debian-systemd-boot", "root-argument-missing", diagnose.BlocksBoot, unified(unifiedKernel("root=UUID="+deadUUID, debianInitramfs(debian12)))},
		{"of extlinux", "alpine-openrc", "root-argument-missing", diagnose.BlocksBoot, replace("/boot/extlinux.conf", rootUUID, deadUUID)},
		{"not of the default entry", "fedora-btrfs", "root-argument-missing", nearMiss, replace("/boot/loader/entries/"+machineID+"-"+fedoraOld+".conf", btrfsUUID, deadUUID)},
		{"in the environment block", "rhel-lvm", "root-argument-missing", nearMiss, func(t *testing.T, in *installed) {
			in.write("/boot/loader/entries/"+machineID+"-"+rhelKernel+".conf", bootEntryFile("RHEL", rhelKernel, "$kernelopts $tuned_params"))
			in.write("/boot/grub2/grubenv", grubEnv("kernelopts=root=/dev/mapper/rhel_web--7-root ro"))
		}},
		{"in the environment block", "rhel-lvm", "root-argument-missing", diagnose.BlocksBoot, func(t *testing.T, in *installed) {
			in.write("/boot/loader/entries/"+machineID+"-"+rhelKernel+".conf", bootEntryFile("RHEL", rhelKernel, "$kernelopts $tuned_params"))
			in.write("/boot/grub2/grubenv", grubEnv("kernelopts=root=UUID="+deadUUID+" ro"))
		}},
		{"by PARTUUID", "debian-uefi", "root-argument-missing", nearMiss, replace(grub, "root=UUID="+rootUUID, "root=PARTUUID="+strings.ToUpper(rootPart))},
		{"another subvolume", "fedora-btrfs", "root-subvolume-missing", diagnose.BlocksBoot, replace(entry, "subvol=root", "subvol=rooot")},
		{"with a slash", "fedora-btrfs", "root-subvolume-missing", nearMiss, replace(entry, "subvol=root", "subvol=/root")},
		{"a volume", "rhel-lvm", "dracut-argument-missing", diagnose.BlocksBoot, func(t *testing.T, in *installed) {
			in.replace(t, "/boot/loader/entries/"+machineID+"-"+rhelKernel+".conf", "rd.lvm.lv=rhel_web-7/root", "rd.lvm.lv=rhel/root")
		}},
		{"an array with colons", "debian-luks-raid", "dracut-argument-missing", nearMiss, replace(grub, " ro  quiet", " ro rd.md.uuid=AAAAAAAA-BBBB-BBBB-CCCC-CCCC00000001")},
		{"emergency", "debian-bios", "kernel-argument-rescue", diagnose.BlocksBoot, replace(grub, " ro  quiet", " ro emergency")},
		{"in an entry for rescue", "debian-bios", "kernel-argument-rescue", nearMiss, func(t *testing.T, in *installed) {
			in.add(grub, strings.ReplaceAll(grubEntry(debianOld, "/boot", rootUUID, "UUID="+rootUUID), "quiet", "single"))
		}},
		{"mem=64M", "debian-bios", "kernel-argument-memory", diagnose.BlocksBoot, replace(grub, " ro  quiet", " ro mem=64M")},
		{"huge pages", "debian-bios", "kernel-argument-memory", diagnose.BlocksBoot, replace(grub, " ro  quiet", " ro hugepagesz=1G hugepages=8")},
		{"mem=4G", "debian-bios", "kernel-argument-memory", nearMiss, replace(grub, " ro  quiet", " ro mem=4G hugepages=512")},
		{"of initramfs-tools", "debian-bios", "resume-device-missing", diagnose.Degrades, replace(resumePath, swapUUID, deadUUID)},
		{"on the command line", "debian-bios", "resume-device-missing", diagnose.Degrades, replace(grub, " ro  quiet", " ro resume=UUID="+deadUUID+" quiet")},
		{"none", "debian-bios", "resume-device-missing", nearMiss, write(resumePath, "RESUME=none\n")},
		{"no argument", "debian-bios", "serial-console-unused", diagnose.Info, nothing},
		{"ttyS0", "debian-bios", "serial-console-unused", nearMiss, replace(grub, " ro  quiet", " ro console=tty0 console=ttyS0,115200")},
		{"999999", "debian-bios", "hugepages-too-many", diagnose.BlocksBoot, write("/etc/sysctl.d/90-huge.conf", "vm.nr_hugepages = 999999\n")},
		{"a quarter", "debian-bios", "hugepages-too-many", nearMiss, write("/etc/sysctl.d/90-huge.conf", "# vm.nr_hugepages = 999999\nvm.nr_hugepages = 1024\n")},
		{"a blacklist", "debian-uefi", "root-driver-blocked", diagnose.BlocksBoot, write("/etc/modprobe.d/x.conf", "blacklist virtio-blk\n")},
		{"install", "rhel-lvm", "root-driver-blocked", diagnose.BlocksBoot, write("/etc/modprobe.d/x.conf", "install xfs /bin/false\n")},
		{"a file system, which mount loads all the same", "debian-uefi", "root-driver-blocked", nearMiss, write("/etc/modprobe.d/x.conf", "blacklist ext4\n")},
		{"a graphics card", "debian-uefi", "root-driver-blocked", nearMiss, write("/etc/modprobe.d/x.conf", "blacklist nouveau\n#blacklist virtio_blk\noptions virtio_blk x=1\n")},
	}...)
}

// A damaged newest kernel with an older whole one is mended by choosing the older one.
func TestOlderKernelIsProposed(t *testing.T) {
	in := debianBIOS()
	in.write("/boot/vmlinuz-"+debian12, bzImage(debian12)[:3000])
	for _, f := range findingsOf(t, in) {
		if f.ID == "kernel-damaged" {
			if f.Repair == nil || !strings.Contains(f.Repair.Summary, debianOld) || f.Repair.Consent != diagnose.ConsentBoot {
				t.Errorf("the repair is %+v", f.Repair)
			}
			return
		}
	}
	t.Error("no finding kernel-damaged")
}

// A menu that names very many images is not read for hours.
func TestReadImagesAreBounded(t *testing.T) {
	in := debianBIOS()
	var names []string
	for i := range 2 * maxReadImages {
		names = append(names, "/boot/part"+strings.Repeat("x", i))
		in.write(names[i], string(gzipped(cpioArchive("init"))))
	}
	in.replace(t, "/boot/grub/grub.cfg", "\tinitrd\t/boot/initrd.img-"+debian12, "\tinitrd\t"+strings.Join(names, " "))
	for _, f := range findingsOf(t, in) {
		if f.ID == "initramfs-not-examined" {
			return
		}
	}
	t.Error("all images were read")
}

func FuzzGrubScript(f *testing.F) {
	f.Add(grubConfig("/boot", rootUUID, "UUID="+rootUUID))
	f.Add(blsGrubConfig(bootUUID))
	f.Add("menuentry 'a' { linux /x root=UUID=1; initrd ${y} }\n}\nsubmenu\\\n b { } if fi")
	f.Fuzz(func(t *testing.T, text string) {
		script := config.ParseGrub(text)
		for _, c := range script.Commands {
			config.SearchTarget(c.Words)
		}
		matchDefault(script, "1>2", scriptEntries(&diagnose.System{}, script, "x"))
	})
}

func FuzzInitramfs(f *testing.F) {
	f.Add([]byte(debianInitramfs(debian12)))
	f.Add(gzipped(cpioArchive("init")))
	f.Add([]byte("070701" + strings.Repeat("F", 104)))
	f.Add([]byte("BZh9"))
	f.Add([]byte{0x02, 0x21, 0x4c, 0x18, 1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		config.WalkInitramfs(&config.ReadAtFile{ReaderAt: strings.NewReader(string(b)), Size: int64(len(b))})
	})
}

func FuzzKernelImage(f *testing.F) {
	f.Add([]byte(bzImage(debian12)))
	f.Add([]byte(arm64Image()))
	f.Add([]byte(peFile(peAMD64, ".cmdline", ".initrd")))
	f.Fuzz(func(t *testing.T, b []byte) {
		file := &config.ReadAtFile{ReaderAt: strings.NewReader(string(b)), Size: int64(len(b))}
		config.ReadKernelImage(file)
		_, _ = config.ReadPE(file)
	})
}
