package system

import (
	"slices"
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
	write := func(name, text string) func(machine) { return func(m machine) { m.write(name, text) } }
	link := func(folder, unit string) func(machine) {
		return func(m machine) { m.link("/etc/systemd/system/"+folder+"/"+unit, "/etc/systemd/system/"+unit) }
	}
	mountUnit := func(device, condition string) func(machine) {
		return write("/etc/systemd/system/srv-data.mount", "[Unit]\nDescription=Data\n"+condition+"\n[Mount]\nWhat="+device+"\nWhere=/srv/data\nType=ext4\n")
	}
	noSwap := func(m machine) {
		m.edit("/etc/fstab", "UUID="+swapUUID+" none            swap    sw              0       0\n", "")
		m.Devices = slices.DeleteFunc(m.Devices, func(d diagnose.Device) bool { return d.FS == "swap" })
	}
	started := func(name, target, text string) func(machine) {
		return func(m machine) {
			m.write("/etc/systemd/system/"+name+".service", text)
			link(target+".wants", name+".service")(m)
		}
	}
	waiting := func(loop, limit string) string {
		return "[Unit]\nDefaultDependencies=no\nBefore=sysinit.target\n[Service]\nType=oneshot\nRemainAfterExit=yes\n" + limit + "ExecStart=/bin/sh -c \"" + loop + "\"\n"
	}
	cron := func(m machine) {
		enableUnit(m, "cron.service")
	}
	before := func(text string) func(machine) {
		return func(m machine) { m.write("/boot/grub/grub.cfg", text+string(m.files["boot/grub/grub.cfg"].Data)) }
	}
	custom := func(more string) func(machine) {
		return write("/boot/grub/custom.cfg", "menuentry \"Rescue image\" {\n\tlinux /boot/rescue/vmlinuz root=/dev/ram0 rw\n\tinitrd /boot/rescue/initrd.img\n}\n"+more)
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
		{"a target that does not exist", "debian-bios", "kernel-argument-rescue", blocks, with(argument("systemd.unit=multiuser.target"))},
		{"a target that exists", "debian-bios", "kernel-argument-rescue", nearMiss, with(argument("systemd.unit=multi-user.target"))},
		{"what one command would do", "debian-bios", "kernel-argument-rescue", nearMiss, with(argument("systemd.run_success_action=none"))},
		{"a script that the initramfs lacks", "debian-bios", "kernel-argument-rescue", blocks, with(argument("boot=casper"), scripts)},
		{"a script of the initramfs", "debian-bios", "kernel-argument-rescue", nearMiss, with(argument("boot=live"), scripts)},
		{"the usual script", "debian-bios", "kernel-argument-rescue", nearMiss, with(argument("boot=local"))},
		{"a script, and another kind of initramfs", "debian-bios", "kernel-argument-rescue", nearMiss, with(argument("boot=casper"))},
		{"a first program that the initramfs lacks", "debian-bios", "kernel-argument-rescue", blocks, with(argument("rdinit=/linuxrc"))},
		{"a first program of the initramfs", "debian-bios", "kernel-argument-rescue", nearMiss, with(argument("rdinit=/bin/early"), scripts)},
		{"/run of 64 KiB, which systemd makes larger", "debian-bios", "kernel-argument-memory", nearMiss, with(argument("initramfs.runsize=64k"))},
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
		{"a disk in memory", "debian-bios", "root-argument-missing", nearMiss, with(func(m machine) {
			m.write("/boot/grub/grub.cfg", strings.ReplaceAll(string(m.files["boot/grub/grub.cfg"].Data), "root=UUID="+rootUUID, "root=/dev/ram0"))
		})},
		{"an init that initramfs-tools leaves out", "debian-bios", "init-missing", nearMiss, with(argument("init=/lib/sysvinit/init"))},
		{"an init that the kernel does not find", "debian-bios", "init-missing", blocks, with(argument("init=/lib/sysvinit/init"), func(m machine) {
			grub := string(m.files["boot/grub/grub.cfg"].Data)
			grub = strings.ReplaceAll(grub, "\tinitrd\t/boot/initrd.img-"+debian12+"\n", "")
			m.write("/boot/grub/grub.cfg", strings.ReplaceAll(grub, "root=UUID="+rootUUID, "root=/dev/sda1"))
		})},

		{"compressed twice", "debian-bios", "initramfs-damaged", blocks, with(func(m machine) {
			m.write("/boot/initrd.img-"+debian12, string(gzipped(zstdCompressed(cpioArchive(initramfsFiles(debian12)...)))))
		})},
		{"microcode and the rest, compressed once more", "debian-bios", "initramfs-damaged", blocks, with(func(m machine) {
			m.write("/boot/initrd.img-"+debian12, string(gzipped([]byte(debianInitramfs(debian12)))))
		})},
		{"microcode in it is compressed alone", "debian-bios", "initramfs-damaged", nearMiss, with(func(m machine) {
			m.write("/boot/initrd.img-"+debian12, string(gzipped(cpioArchive("kernel/x86/microcode/x.bin")))+string(zstdCompressed(cpioArchive(initramfsFiles(debian12)...))))
		})},

		{"a mount unit that local-fs.target requires", "debian-bios", "fstab-device-missing", blocks, with(mountUnit("/dev/disk/by-label/DATA", ""), link("local-fs.target.requires", "srv-data.mount"))},
		{"a mount unit that a drop-in requires", "debian-bios", "fstab-device-missing", blocks, with(mountUnit("UUID="+deadUUID, ""), write("/etc/systemd/system/sysinit.target.d/data.conf", "[Unit]\nRequires=srv-data.mount\n"))},
		{"a mount unit that is only wanted", "debian-bios", "fstab-device-missing", nearMiss, with(mountUnit("/dev/disk/by-label/DATA", ""), link("local-fs.target.wants", "srv-data.mount"))},
		{"a mount unit of a device that is there", "debian-bios", "fstab-device-missing", nearMiss, with(dataDisk, mountUnit("UUID="+dataUUID, ""), link("local-fs.target.requires", "srv-data.mount"))},
		{"a mount unit with a condition", "debian-bios", "fstab-device-missing", nearMiss, with(mountUnit("/dev/disk/by-label/DATA", "ConditionPathExists=/dev/disk/by-label/DATA\n"), link("local-fs.target.requires", "srv-data.mount"))},
		{"a mount unit of memory", "debian-bios", "fstab-device-missing", nearMiss, with(mountUnit("tmpfs", ""), link("local-fs.target.requires", "srv-data.mount"))},
		{"the root without execution", "debian-bios", "fstab-option-invalid", blocks, with(func(m machine) { m.edit("/etc/fstab", "errors=remount-ro", "defaults,noexec,nodev,errors=remount-ro") })},
		{"the root for users", "debian-bios", "fstab-option-invalid", blocks, with(func(m machine) { m.edit("/etc/fstab", "errors=remount-ro", "users,errors=remount-ro") })},
		{"the root with execution again", "debian-bios", "fstab-option-invalid", nearMiss, with(func(m machine) { m.edit("/etc/fstab", "errors=remount-ro", "user,exec,errors=remount-ro") })},
		{"another place without execution", "debian-bios", "fstab-option-invalid", nearMiss, with(write("/srv/x", ""), func(m machine) { m.add("/etc/fstab", "tmpfs /tmp tmpfs noexec 0 0\n") })},
		{"/proc and /sys", "debian-bios", "root-folder-missing", blocks, with(func(m machine) { m.remove("/proc"); m.remove("/sys") })},
		{"/run", "rhel-lvm", "root-folder-missing", blocks, with(func(m machine) { m.remove("/run") })},
		{"/run, and a root for writing", "debian-bios", "root-folder-missing", nearMiss, with(func(m machine) { m.remove("/run") }, argument("rw"))},
		{"/run of a system without systemd", "alpine-openrc", "root-folder-missing", nearMiss, with(func(m machine) { m.remove("/run") })},
		{"nothing reads the table", "debian-bios", "crypttab-device-missing", nearMiss, with(func(m machine) { m.remove("/usr/sbin/cryptsetup") }, write("/etc/crypttab", "data UUID="+deadUUID+" none luks\n"))},
		{"nothing reads the table, and a mount waits", "debian-bios", "crypttab-device-missing", blocks, with(func(m machine) { m.remove("/usr/sbin/cryptsetup") },
			write("/etc/crypttab", "data UUID="+deadUUID+" none luks\n"), func(m machine) { m.add("/etc/fstab", "/dev/mapper/data /srv ext4 defaults 0 2\n") })},

		{"no memory to ask for", "debian-bios", "kernel-limit-starves", blocks, with(noSwap, write("/etc/sysctl.d/90-memory.conf", "vm.overcommit_memory = 2\nvm.overcommit_ratio = 0\n"))},
		{"a few KiB to ask for", "debian-bios", "kernel-limit-starves", blocks, with(noSwap, write("/etc/sysctl.d/90-memory.conf", "vm.overcommit_memory = 2\nvm.overcommit_kbytes = 4096\n"))},
		{"no memory to ask for, beside swap", "debian-bios", "kernel-limit-starves", nearMiss, with(write("/etc/sysctl.d/90-memory.conf", "vm.overcommit_memory = 2\nvm.overcommit_ratio = 0\n"))},
		{"no memory to ask for, beside a swap file", "debian-bios", "kernel-limit-starves", nearMiss, with(noSwap, func(m machine) { m.add("/etc/fstab", "/swapfile none swap sw 0 0\n") },
			write("/etc/sysctl.d/90-memory.conf", "vm.overcommit_memory = 2\nvm.overcommit_ratio = 0\n"))},
		{"half of the memory to ask for", "debian-bios", "kernel-limit-starves", nearMiss, with(noSwap, write("/etc/sysctl.d/90-memory.conf", "vm.overcommit_memory = 2\n"))},
		{"a ratio that does not count", "debian-bios", "kernel-limit-starves", nearMiss, with(noSwap, write("/etc/sysctl.d/90-memory.conf", "vm.overcommit_memory = 1\nvm.overcommit_ratio = 0\n"))},
		{"too few files for services", "debian-bios", "kernel-limit-starves", blocks, with(write("/etc/sysctl.d/90-files.conf", "fs.file-max = 65536\nfs.nr_open = 65536\n"))},
		{"files enough for services", "debian-bios", "kernel-limit-starves", nearMiss, with(write("/etc/sysctl.d/90-files.conf", "fs.nr_open = 1048576\n"))},
		{"few files, and services ask for fewer", "debian-bios", "kernel-limit-starves", nearMiss, with(write("/etc/sysctl.d/90-files.conf", "fs.nr_open = 65536\n"),
			write("/etc/systemd/system.conf.d/files.conf", "[Manager]\nDefaultLimitNOFILE=1024:65536\n"))},
		{"few files without systemd", "alpine-openrc", "kernel-limit-starves", nearMiss, with(write("/etc/sysctl.d/90-files.conf", "fs.nr_open = 65536\n"))},

		{"a unit that restarts the machine", "debian-bios", "shutdown-at-boot", blocks, with(started("once", "multi-user.target", "[Service]\nType=oneshot\nExecStart=/usr/bin/systemctl --no-block reboot\n"))},
		{"a unit that restarts the machine by a shell", "debian-bios", "shutdown-at-boot", blocks, with(started("once", "multi-user.target", "[Service]\nExecStart=/bin/sh -c \"sleep 30; /sbin/shutdown -r now\"\n"))},
		{"a unit that restarts the machine by a script", "rhel-lvm", "shutdown-at-boot", blocks, with(started("once", "basic.target", "[Service]\nExecStart=/usr/local/sbin/once\n"),
			write("/usr/local/sbin/once", "#!/bin/bash\n# first start\nif [ -x /usr/bin/true ]; then\n  echo done\nfi\ninit 6\n"))},
		{"a unit whose end switches the machine off", "debian-bios", "shutdown-at-boot", blocks, with(started("once", "multi-user.target", "[Unit]\nSuccessAction=poweroff\n[Service]\nType=oneshot\nExecStart=/usr/bin/true\n"))},
		{"a timer soon after each start", "debian-bios", "shutdown-at-boot", blocks, with(write("/etc/systemd/system/off.timer", "[Timer]\nOnBootSec=5min\n"), link("timers.target.wants", "off.timer"),
			write("/etc/systemd/system/off.service", "[Service]\nExecStart=/usr/sbin/poweroff\n"))},
		{"a timer of the night", "debian-bios", "shutdown-at-boot", nearMiss, with(write("/etc/systemd/system/off.timer", "[Timer]\nOnCalendar=03:00\nOnBootSec=2h\n"), link("timers.target.wants", "off.timer"),
			write("/etc/systemd/system/off.service", "[Service]\nExecStart=/usr/sbin/poweroff\n"))},
		{"a unit with a condition", "debian-bios", "shutdown-at-boot", nearMiss, with(started("once", "multi-user.target", "[Unit]\nConditionFirstBoot=yes\n[Service]\nExecStart=/usr/bin/systemctl reboot\n"))},
		{"a unit that is not enabled", "debian-bios", "shutdown-at-boot", nearMiss, with(write("/etc/systemd/system/once.service", "[Service]\nExecStart=/usr/bin/systemctl reboot\n"))},
		{"a unit of the end", "debian-bios", "shutdown-at-boot", nearMiss, with(started("once", "poweroff.target", "[Service]\nExecStart=/usr/bin/systemctl reboot\n"))},
		{"a script with a condition", "debian-bios", "shutdown-at-boot", nearMiss, with(started("once", "multi-user.target", "[Service]\nExecStart=/usr/local/sbin/once\n"),
			write("/usr/local/sbin/once", "#!/bin/sh\n[ -e /var/lib/once ] && exit 0\ntouch /var/lib/once\nreboot\n"))},
		{"a script that may restart the machine", "debian-bios", "shutdown-at-boot", nearMiss, with(started("once", "multi-user.target", "[Service]\nExecStart=/usr/local/sbin/once\n"),
			write("/usr/local/sbin/once", "#!/bin/sh\nrestart() {\n  reboot\n}\nif test -e /reboot; then reboot; fi\ntest -e /reboot &&\n  reboot\n"))},
		{"a script with a text", "debian-bios", "shutdown-at-boot", nearMiss, with(started("once", "multi-user.target", "[Service]\nExecStart=/usr/local/sbin/once\n"),
			write("/usr/local/sbin/once", "#!/bin/sh\necho \"\nreboot\n\"\n"))},
		{"a unit that only warns", "debian-bios", "shutdown-at-boot", nearMiss, with(started("once", "multi-user.target", "[Service]\nExecStart=/sbin/shutdown -k now\nExecStart=/sbin/shutdown 22:00\nExecStart=/sbin/reboot --wtmp-only\n"))},
		{"rc.local", "debian-bios", "shutdown-at-boot", blocks, with(func(m machine) { m.program("/etc/rc.local", "#!/bin/sh -e\n/usr/bin/true\nreboot\nexit 0\n") })},
		{"rc.local that nobody may run", "debian-bios", "shutdown-at-boot", nearMiss, with(write("/etc/rc.local", "#!/bin/sh -e\nreboot\nexit 0\n"))},
		{"rc.local after its end", "debian-bios", "shutdown-at-boot", nearMiss, with(func(m machine) { m.program("/etc/rc.local", "#!/bin/sh -e\nexit 0\nreboot\n") })},
		{"a job of each minute", "debian-bios", "shutdown-at-boot", blocks, with(cron, write("/etc/cron.d/nightly-off", "# switch off at night\nSHELL=/bin/sh\n* * * * * root /usr/sbin/shutdown -h now\n"))},
		{"a job of each start", "rhel-lvm", "shutdown-at-boot", blocks, with(cron, func(m machine) {
			m.writeMode("/var/spool/cron/root", "@reboot sleep 60 && /sbin/poweroff\n@reboot /sbin/poweroff\n", 0o600)
		})},
		{"a job of the night", "debian-bios", "shutdown-at-boot", nearMiss, with(cron, write("/etc/cron.d/nightly-off", "0 3 * * * root /usr/sbin/shutdown -h now\n* 3 * * * root /sbin/reboot\n"))},
		{"a job of a user who may not", "debian-bios", "shutdown-at-boot", nearMiss, with(cron, write("/etc/cron.d/nightly-off", "* * * * * alice /usr/sbin/shutdown -h now\n"))},
		{"a job without cron", "debian-bios", "shutdown-at-boot", nearMiss, with(write("/etc/cron.d/nightly-off", "* * * * * root /usr/sbin/shutdown -h now\n"))},
		{"a job in a file that cron does not read", "debian-bios", "shutdown-at-boot", nearMiss, with(cron, write("/etc/cron.d/nightly-off.dpkg-old", "* * * * * root /usr/sbin/shutdown -h now\n"))},
		{"a job with a condition", "debian-bios", "shutdown-at-boot", nearMiss, with(cron, write("/etc/cron.d/nightly-off", "*/5 * * * * root test -e /run/idle && /usr/sbin/shutdown -h now\n"))},

		{"a device that never comes", "debian-bios", "unit-waits-at-boot", blocks, with(started("wait", "sysinit.target", waiting("until [ -b /dev/disk/by-label/DATA ]; do sleep 2; done", "")))},
		{"a device that never comes, in other words", "debian-bios", "unit-waits-at-boot", blocks, with(started("wait", "sysinit.target", waiting("while ! test -e /dev/disk/by-uuid/"+deadUUID+"; do sleep 1; done", "")))},
		{"a device that is there", "debian-bios", "unit-waits-at-boot", nearMiss, with(started("wait", "sysinit.target", waiting("until [ -b /dev/disk/by-uuid/"+rootUUID+" ]; do sleep 2; done", "")))},
		{"a device that never comes, for a time", "debian-bios", "unit-waits-at-boot", nearMiss, with(started("wait", "sysinit.target", waiting("until [ -b /dev/disk/by-label/DATA ]; do sleep 2; done", "TimeoutStartSec=30\n")))},
		{"a device that never comes, and nothing waits", "debian-bios", "unit-waits-at-boot", nearMiss, with(started("wait", "multi-user.target",
			strings.ReplaceAll(waiting("until [ -b /dev/disk/by-label/DATA ]; do sleep 2; done", ""), "Before=sysinit.target\n", "")))},
		{"a loop that ends", "debian-bios", "unit-waits-at-boot", nearMiss, with(started("wait", "sysinit.target", waiting("until [ -b /dev/disk/by-label/DATA ]; do sleep 2; n=$((n+1)); [ $n = 9 ] && break; done", "")))},

		{"the folder of all modules", "debian-bios", "grub-module-missing", blocks, with(func(m machine) { m.remove("/boot/grub/i386-pc") })},
		{"the folder of all modules, beside another system", "debian-bios", "grub-module-missing", diagnose.Degrades, with(dataDisk, func(m machine) { m.remove("/boot/grub/i386-pc") })},
		{"the folder of all modules of another platform", "debian-bios", "grub-module-missing", nearMiss, with(write("/boot/grub/x86_64-efi/normal.mod", ""), func(m machine) { m.remove("/boot/grub/i386-pc") })},
		{"the folder of all modules, and /boot is not mounted", "debian-bios", "grub-module-missing", nearMiss, with(func(m machine) { m.remove("/boot/grub/i386-pc") },
			func(m machine) { m.add("/etc/fstab", "UUID="+deadUUID+" /boot ext4 defaults 0 2\n") })},
		{"a symbol that nothing has", "debian-bios", "grub-modules-foreign", blocks, with(write("/boot/grub/i386-pc/normal.mod", grubModule("normal", grubRelease, "grub_boot_start", "grub_callok")))},
		{"a symbol of another module", "debian-bios", "grub-modules-foreign", nearMiss, with(write("/boot/grub/i386-pc/normal.mod", grubModule("normal", grubRelease, "grub_boot_start", "grub_ext2_start")))},
		{"a password before the default entry", "debian-bios", "grub-menu-waits", blocks, with(before("set superusers=\"admin\"\nexport superusers\npassword admin x\n"))},
		{"a password, and anybody starts the default entry", "debian-bios", "grub-menu-waits", nearMiss, with(before("set superusers=\"admin\"\npassword admin x\n"), func(m machine) {
			m.write("/boot/grub/grub.cfg", strings.ReplaceAll(string(m.files["boot/grub/grub.cfg"].Data), " --class gnu-linux ", " --class gnu-linux --unrestricted "))
		})},
		{"a password for a user whom a condition names", "debian-bios", "grub-menu-waits", nearMiss, with(before("if [ -f ${prefix}/user.cfg ]; then\nset superusers=\"root\"\nfi\n"))},
		{"a timeout of a file beside the menu", "debian-bios", "grub-menu-waits", nearMiss, with(write("/boot/grub/custom.cfg", "set timeout=10\n"))},
		{"the default entry of custom.cfg", "debian-bios", "kernel-missing", blocks, with(custom("set default=\"Rescue image\"\n"))},
		{"the default entry of custom.cfg, by its number", "debian-bios", "kernel-missing", blocks, with(custom("set default=2\n"))},
		{"an entry of custom.cfg", "debian-bios", "kernel-missing", nearMiss, with(custom(""))},
		{"an entry of a file that the menu does not read", "debian-bios", "kernel-missing", nearMiss, with(write("/boot/grub/other.cfg", "menuentry x {\n linux /boot/x\n}\nset default=x\n"))},
		{"custom.cfg ends early", "debian-bios", "grub-config-invalid", nearMiss, with(write("/boot/grub/custom.cfg", "menuentry x {\n"))},
	}...)
}

func init() {
	write := func(name, text string) func(machine) { return func(m machine) { m.write(name, text) } }
	both := func(changes ...func(machine)) func(machine) {
		return func(m machine) {
			for _, change := range changes {
				change(m)
			}
		}
	}
	manager := func(text string) func(machine) {
		return write("/etc/systemd/system.conf.d/50-site.conf", "[Manager]\n"+text)
	}
	slice := func(name, text string) func(machine) {
		return write("/etc/systemd/system/"+name+".slice.d/50-lockdown.conf", "[Slice]\n"+text)
	}
	service := func(text string) func(machine) {
		return write("/etc/systemd/system/ssh.service.d/50-site.conf", "[Service]\n"+text)
	}
	const unit, fault = "sshd-unit-invalid", "manager-setting-invalid"
	access := diagnose.BlocksAccess
	withLibrary := func(m machine) {
		m.program("/usr/sbin/sshd", elfWithLibrary(elfAMD64, "/lib64/ld-linux-x86-64.so.2", "libcrypto.so.3"))
		m.write("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", elfFile(elfAMD64, ""))
	}
	vendor := both(withLibrary, write("/opt/vendor/lib/libcrypto.so.3", ""))
	addAccessCases("debian-bios", []accessCase{
		{"no address for all services", slice("system", "IPAddressAllow=localhost\nIPAddressDeny=any\n"), unit, access, "system.slice.d/50-lockdown.conf, line 3", 3},
		{"no address for all units", slice("-", "IPAddressDeny=any\n"), unit, access, "denies all addresses", 2},
		{"no address for a slice of its own", both(slice("remote", "IPAddressDeny=any\n"), service("Slice=remote-shell.slice\n")), unit, access, "remote.slice.d", 2},
		{"no address for sshd", service("IPAddressDeny=any\n"), unit, access, "denies all addresses", 2},
		{"near miss: addresses that the service allows", both(slice("system", "IPAddressDeny=any\n"), service("IPAddressAllow=192.0.2.0/24\n")), unit, nearMiss, "", 0},
		{"near miss: some addresses are denied", slice("system", "IPAddressDeny=198.51.100.0/24\n"), unit, nearMiss, "", 0},
		{"near miss: no address for users", slice("user", "IPAddressDeny=any\n"), unit, nearMiss, "", 0},
		{"near miss: what is denied is taken back", slice("system", "IPAddressDeny=any\nIPAddressDeny=\n"), unit, nearMiss, "", 0},
		{"no socket of the network", service("RestrictAddressFamilies=AF_UNIX\n"), unit, access, "no socket of the network", 2},
		{"near miss: sockets of the network", service("RestrictAddressFamilies=AF_UNIX AF_INET AF_NETLINK\n"), unit, nearMiss, "", 0},
		{"near miss: no sockets of packets", service("RestrictAddressFamilies=~AF_PACKET\n"), unit, nearMiss, "", 0},
		{"no interface", slice("system", "RestrictNetworkInterfaces=lo\n"), unit, access, "only the interface lo", 2},
		{"near miss: an interface", service("RestrictNetworkInterfaces=lo enp1s0\n"), unit, nearMiss, "", 0},
		{"no memory", slice("system", "MemoryMax=64K\n"), unit, access, "64K of memory", 2},
		{"near miss: memory", service("MemoryMax=512M\nMemoryHigh=10%\n"), unit, nearMiss, "", 0},
		{"capabilities of sshd", service("CapabilityBoundingSet=CAP_NET_BIND_SERVICE CAP_SETUID\n"), unit, access, "CAP_SETGID", 2},
		{"near miss: capabilities of sshd, in two lines", service("CapabilityBoundingSet=CAP_NET_BIND_SERVICE CAP_SETUID\nCapabilityBoundingSet=cap_setgid CAP_SYS_CHROOT\n"), unit, nearMiss, "", 0},
		{"near miss: capabilities that sshd does not need", service("CapabilityBoundingSet=~CAP_SYS_MODULE CAP_NET_ADMIN\n"), unit, nearMiss, "", 0},
		{"capabilities of all services", manager("CapabilityBoundingSet=~CAP_SYS_MODULE CAP_SYS_RAWIO CAP_NET_ADMIN\n"), fault, access, "CAP_NET_ADMIN", 2},
		{"capabilities of all services, for logins", manager("CapabilityBoundingSet=~CAP_SETUID\n"), fault, access, "CAP_SETUID", 2},
		{"near miss: capabilities of all services", manager("CapabilityBoundingSet=~CAP_SYS_MODULE CAP_SYS_RAWIO\n"), fault, nearMiss, "", 0},
		{"near miss: capabilities that are given back", manager("CapabilityBoundingSet=~CAP_NET_ADMIN\nCapabilityBoundingSet=~\n"), fault, nearMiss, "", 0},
		{"a damaged library for all services", both(vendor, manager("DefaultEnvironment=LD_LIBRARY_PATH=/opt/vendor/lib\n")), unit, access, "/opt/vendor/lib/libcrypto.so.3 is damaged", 2},
		{"a damaged library for sshd", both(vendor, service("Environment=\"LANG=C\" \"LD_LIBRARY_PATH=/usr/local/lib:/opt/vendor/lib\"\n")), unit, access, "/opt/vendor/lib", 2},
		{"near miss: a damaged library elsewhere", both(vendor, manager("DefaultEnvironment=LD_LIBRARY_PATH=/opt/other/lib\n")), unit, nearMiss, "", 0},
		{"near miss: sshd looks elsewhere", both(vendor, manager("DefaultEnvironment=LD_LIBRARY_PATH=/opt/vendor/lib\n"), service("Environment=LD_LIBRARY_PATH=/usr/lib\n")), unit, nearMiss, "", 0},
		{"a library of a library for all services", both(func(m machine) {
			m.write("/opt/agent.so", elfWithLibrary(elfAMD64, "/lib64/ld-linux-x86-64.so.2", "libgone.so.1"))
		}, manager("DefaultEnvironment=LD_PRELOAD=/opt/agent.so\n")), unit, access, "libgone.so.1", 2},
		{"near miss: a library that the loader leaves out", both(write("/opt/agent.so", ""), manager("DefaultEnvironment=LD_PRELOAD=/opt/agent.so:/opt/gone.so\n")), unit, nearMiss, "", 0},
	})
}
