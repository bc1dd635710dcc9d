package system

import (
	"slices"
	"strings"
	"testing"
)

// A loader is installed anew only where the program of the system writes that loader, and where the firmware takes it.
func TestRepairOfLoader(t *testing.T) {
	install := func(in *installed) { in.write("/usr/lib/grub/x86_64-efi/modinfo.sh", "#!/bin/sh\n") }
	for _, tc := range []struct {
		name, layout, loader string
		change               func(in *installed)
		want                 string // the last argument, or the paths of the copies; empty: no repair
	}{
		{"GRUB of a vendor", "debian-uefi", `\EFI\arch\grubx64.efi`, install, "--bootloader-id=arch"},
		{"by its other letters", "debian-uefi", `\efi\Arch\GRUBX64.EFI`, install, "--bootloader-id=Arch"},
		{"without an entry", "debian-uefi", `\EFI\BOOT\BOOTX64.EFI`, install, "--removable"},
		{"all of Debian", "debian-uefi", loaderFolder, install, "--force-extra-removable"},
		{"all of others", "debian-uefi", loaderFolder, func(in *installed) { install(in); in.Release.ID = "arch" }, "--removable"},
		{"a name that grub-install does not write", "debian-uefi", `\EFI\arch\grub.efi`, install, ""},
		{"in no folder of a vendor", "debian-uefi", `\EFI\grubx64.efi`, install, ""},
		{"in the root", "debian-uefi", `\grubx64.efi`, install, ""},
		{"in a folder below", "debian-uefi", `\EFI\a\b\grubx64.efi`, install, ""},
		{"a shim without its package", "debian-uefi", `\EFI\debian\shimx64.efi`, install, ""},
		{"above the partition", "debian-uefi", `\EFI\..\..\grubx64.efi`, install, ""},
		{"a line break", "debian-uefi", "\\EFI\\x\ny\\grubx64.efi", install, ""},
		{"under Secure Boot, unsigned", "debian-uefi", `\EFI\debian\grubx64.efi`, func(in *installed) { install(in); in.Firmware.SecureBoot = true }, ""},
		{"no modules of GRUB", "debian-uefi", `\EFI\arch\grubx64.efi`, func(*installed) {}, ""},
		{"shim of SUSE", "suse-btrfs", `\EFI\opensuse\shim.efi`, func(in *installed) {
			delete(in.esp, "EFI/opensuse/shim.efi")
			in.espFile("/EFI/opensuse/grub.cfg", "configfile")
			in.write("/usr/share/efi/x86_64/shim.efi", peFile(peAMD64))
			in.write("/usr/share/efi/x86_64/grub.efi", peFile(peAMD64))
		}, "/boot/efi/EFI/opensuse/shim.efi /boot/efi/EFI/opensuse/grub.efi"},
		{"systemd-boot", "debian-systemd-boot", loaderFolder, func(in *installed) {
			in.write("/usr/lib/systemd/boot/efi/systemd-bootx64.efi", peFile(peAMD64))
		}, "/boot/efi/EFI/systemd/systemd-bootx64.efi /boot/efi/EFI/BOOT/BOOTX64.EFI"},
		{"systemd-boot, unsigned under Secure Boot", "debian-systemd-boot", loaderFolder, func(in *installed) {
			in.Firmware.SecureBoot = true
			in.write("/usr/lib/systemd/boot/efi/systemd-bootx64.efi", peFile(peAMD64))
		}, ""},
		{"GRUB on a system of systemd-boot", "debian-systemd-boot", loaderFolder, install, ""},
		{"systemd-boot beside GRUB, whose entries it cannot read", "fedora-btrfs", loaderFolder, func(in *installed) {
			in.write("/usr/lib/systemd/boot/efi/systemd-bootx64.efi", peFile(peAMD64))
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := separateLayout(tc.layout)
			in.writeMode("/usr/sbin/grub-install", "#!/bin/sh\n", 0o755)
			if in.Release.ID != "debian" {
				in.remove("/usr/sbin/grub-install")
			}
			tc.change(in)
			s := in.system()
			r := RepairOfLoader(s, espDevices(s)[0].Path, tc.loader)
			var got []string
			for _, c := range r.Copies {
				got = append(got, c.To)
			}
			if r.Command != nil {
				got = append(got, r.Command[len(r.Command)-1])
			}
			if text := strings.Join(got, " "); text != tc.want {
				t.Errorf("%q, want %q", text, tc.want)
			}
		})
	}
}

// Entries are written only for kernels that boot, below the names that they have to have, and never over a file.
func TestMissingEntryFiles(t *testing.T) {
	paths := func(in *installed, loader string) string {
		var out []string
		for _, e := range MissingEntryFiles(in.system(), loader) {
			out = append(out, strings.TrimPrefix(e.Path, "/boot/loader/entries/"))
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	both := machineID + "-" + fedoraOld + ".conf " + machineID + "-" + fedoraKernel + ".conf"
	words := strings.Fields(both)
	slices.Sort(words)
	for _, tc := range []struct {
		name   string
		change func(in *installed)
		want   string
	}{
		{"all", func(in *installed) { in.remove("/boot/loader") }, strings.Join(words, " ")},
		{"one is there", func(in *installed) { in.remove("/boot/loader/entries/" + machineID + "-" + fedoraOld + ".conf") }, machineID + "-" + fedoraOld + ".conf"},
		{"an initramfs is cut off", func(in *installed) {
			in.remove("/boot/loader")
			in.write("/boot/initramfs-"+fedoraKernel+".img", dracutInitramfs(fedoraKernel)[:500])
		}, machineID + "-" + fedoraOld + ".conf"},
		{"an id of the machine that leads elsewhere", func(in *installed) {
			in.remove("/boot/loader")
			in.write("/etc/machine-id", "../../../etc/profile.d/aaaaaaaaa\n")
			in.remove("/boot/vmlinuz-" + fedoraOld)
		}, "fedora-" + fedoraKernel + ".conf"},
		{"arguments of devices that are gone", func(in *installed) {
			in.remove("/boot/loader")
			in.write("/etc/default/grub", "GRUB_CMDLINE_LINUX=\"rd.luks.uuid=luks-"+deadUUID+" quiet\"\n")
		}, ""},
		{"a swap space that is gone", func(in *installed) {
			in.remove("/boot/loader")
			in.write("/etc/default/grub", "GRUB_CMDLINE_LINUX=\"resume=UUID="+deadUUID+" quiet\"\n")
		}, strings.Join(words, " ")},
		{"a release as of Debian 13", func(in *installed) {
			in.kernelFiles("6.12.57+deb13-amd64", "/boot/vmlinuz-6.12.57+deb13-amd64", "/boot/initramfs-6.12.57+deb13-amd64.img",
				dracutInitramfs("6.12.57+deb13-amd64", "usr/lib/modules/6.12.57+deb13-amd64/kernel/fs/btrfs/btrfs.ko.xz", "usr/lib/modules/6.12.57+deb13-amd64/kernel/drivers/nvme/host/nvme.ko.xz"))
		}, machineID + "-6.12.57+deb13-amd64.conf"},
		{"no arguments are known", func(in *installed) { in.remove("/boot/loader"); in.remove("/etc/default/grub") }, ""},
	} {
		in := separateLayout("fedora-btrfs")
		tc.change(in)
		if got := paths(in, byGRUB); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
		if got := paths(in, bySystemdBoot); got != "" {
			t.Errorf("%s: for systemd-boot: %q", tc.name, got)
		}
	}
}
