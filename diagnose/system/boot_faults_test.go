package system

import (
	"strings"
	"testing"

	"salvor/diagnose"
)

// Faults of the boot that a person chose without a look at the rules, and their siblings.
func init() {
	type change = func(*testing.T, *installed)
	with := func(changes ...func(machine)) change {
		return func(_ *testing.T, in *installed) {
			for _, change := range changes {
				change(machine{in})
			}
		}
	}
	argument := func(text string) func(machine) { return func(m machine) { kernelArgument(m, text) } }
	image := func(more ...string) func(machine) {
		return func(m machine) { m.write("/boot/initrd.img-"+debian12, debianInitramfs(debian12, more...)) }
	}
	scripts := image("scripts/functions", "scripts/local", "scripts/nfs", "scripts/live", "usr/bin/early")
	entry := func(from, to string) func(machine) {
		return func(m machine) {
			m.edit("/boot/loader/entries/"+machineID+"-"+fedoraKernel+".conf", from, to)
		}
	}
	blocks := diagnose.BlocksBoot
	ruleCases = append(ruleCases, []ruleCase{
		{"break", "debian-bios", "kernel-argument-rescue", blocks, with(argument("break"))},
		{"break at a stage", "debian-bios", "kernel-argument-rescue", blocks, with(argument("break=premount"))},
		{"break at an unknown stage", "debian-bios", "kernel-argument-rescue", nearMiss, with(argument("break=never"))},
		{"break, which dracut does not know", "fedora-btrfs", "kernel-argument-rescue", nearMiss, with(entry("ro ", "ro break=premount "))},
		{"rd.break", "fedora-btrfs", "kernel-argument-rescue", blocks, with(entry("ro ", "ro rd.break "))},
		{"a shell as init", "debian-bios", "kernel-argument-rescue", blocks, with(argument("init=/usr/bin/bash"))},
		{"a shell as the first program of the initramfs", "debian-bios", "kernel-argument-rescue", blocks, with(argument("rdinit=/bin/sh"))},
		{"one command", "debian-bios", "kernel-argument-rescue", blocks, with(argument("systemd.run=/usr/bin/true"))},
		{"what one command would do", "debian-bios", "kernel-argument-rescue", nearMiss, with(argument("systemd.run_success_action=none"))},
		{"a script that the initramfs lacks", "debian-bios", "kernel-argument-rescue", blocks, with(argument("boot=casper"), scripts)},
		{"a script of the initramfs", "debian-bios", "kernel-argument-rescue", nearMiss, with(argument("boot=live"), scripts)},
		{"the usual script", "debian-bios", "kernel-argument-rescue", nearMiss, with(argument("boot=local"))},
		{"a script, and another kind of initramfs", "debian-bios", "kernel-argument-rescue", nearMiss, with(argument("boot=casper"))},
		{"a first program that the initramfs lacks", "debian-bios", "kernel-argument-rescue", blocks, with(argument("rdinit=/linuxrc"))},
		{"a first program of the initramfs", "debian-bios", "kernel-argument-rescue", nearMiss, with(argument("rdinit=/bin/early"), scripts)},
		{"/run of 64 KiB", "debian-bios", "kernel-argument-memory", blocks, with(argument("initramfs.runsize=64k"))},
		{"/run of a tenth", "debian-bios", "kernel-argument-memory", nearMiss, with(argument("initramfs.runsize=10%"))},
		{"/run of 64 MiB", "debian-bios", "kernel-argument-memory", nearMiss, with(argument("initramfs.runsize=64M"))},
		{"an option of another file system", "debian-bios", "root-type-wrong", blocks, with(argument("rootflags=subvol=@"))},
		{"options of ext4", "debian-bios", "root-type-wrong", nearMiss, with(argument("rootflags=data=journal,noatime"))},
		{"options of btrfs", "fedora-btrfs", "root-type-wrong", nearMiss, with(entry("subvol=root", "subvol=root,compress=zstd:1"))},
		{"by the command line", "debian-bios", "selinux-policy-missing", blocks, with(argument("selinux=1 security=selinux enforcing=1"))},
		{"by the command line, in a list", "debian-bios", "selinux-policy-missing", blocks, with(argument("selinux=1 lsm=landlock,selinux enforcing=1"))},
		{"by the command line, only reporting", "debian-bios", "selinux-policy-missing", nearMiss, with(argument("selinux=1 security=selinux"))},
		{"by the command line, and another module", "debian-bios", "selinux-policy-missing", nearMiss, with(argument("selinux=1 security=apparmor enforcing=1"))},
		{"off by the command line", "rhel-lvm", "selinux-policy-missing", nearMiss, func(t *testing.T, in *installed) {
			in.replace(t, "/etc/selinux/config", "=targeted", "=targetted")
			in.replace(t, "/boot/loader/entries/"+machineID+"-"+rhelKernel+".conf", " ro ", " ro selinux=0 ")
		}},
		{"an init that initramfs-tools leaves out", "debian-bios", "init-missing", nearMiss, with(argument("init=/lib/sysvinit/init"))},
		{"an init that the kernel does not find", "debian-bios", "init-missing", blocks, with(argument("init=/lib/sysvinit/init"), func(m machine) {
			grub := string(m.files["boot/grub/grub.cfg"].Data)
			grub = strings.ReplaceAll(grub, "\tinitrd\t/boot/initrd.img-"+debian12+"\n", "")
			m.write("/boot/grub/grub.cfg", strings.ReplaceAll(grub, "root=UUID="+rootUUID, "root=/dev/sda1"))
		})},

		{"compressed twice", "debian-bios", "initramfs-damaged", blocks, with(func(m machine) {
			m.write("/boot/initrd.img-"+debian12, string(gzipped(zstdCompressed(cpioArchive(initramfsFiles(debian12)...)))))
		})},
		{"microcode in it is compressed alone", "debian-bios", "initramfs-damaged", nearMiss, with(func(m machine) {
			m.write("/boot/initrd.img-"+debian12, string(gzipped(cpioArchive("kernel/x86/microcode/x.bin")))+string(zstdCompressed(cpioArchive(initramfsFiles(debian12)...))))
		})},
	}...)
}
