package system

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"salvor/diagnose"
)

// signedGrub is a signed program that holds modules of GRUB, as those of 64 bits do.
func signedGrub(modules ...string) string {
	le := binary.LittleEndian
	list := []byte{}
	for _, name := range modules {
		module := grubModule(name, grubRelease)
		list = le.AppendUint32(list, 0)
		list = le.AppendUint32(list, uint32(8+len(module)))
		list = append(list, module...)
	}
	head := append([]byte("mimg"), make([]byte, 4)...)
	head = le.AppendUint64(head, 24)
	head = le.AppendUint64(head, uint64(24+len(list)))
	return signedProgram(newSBAT) + "code that looks for mimg" + strings.Repeat("\x90", 40) + string(head) + string(list)
}

func init() {
	const folder = "/boot/grub/x86_64-efi"
	usual := []string{"normal", "ext2", "linux", "search", "part_gpt", "configfile"}
	with := func(modules []string, change func(*testing.T, *installed)) func(*testing.T, *installed) {
		return func(t *testing.T, in *installed) {
			secured(in)
			in.espFile("/EFI/debian/grubx64.efi", signedGrub(modules...))
			in.write(folder+"/command.lst", "linux: linux\ninitrd: linux\nchainloader: chain\nconfigfile: configfile\n*search: search\n")
			in.write(folder+"/moddep.lst", "normal: \nlinux: \nchain: \n")
			if change != nil {
				change(t, in)
			}
		}
	}
	without := func(name string) []string {
		return slices.DeleteFunc(slices.Clone(usual), func(m string) bool { return m == name })
	}
	rootFS := func(kind string) func(*testing.T, *installed) {
		return func(t *testing.T, in *installed) { in.device(t, "/dev/vda2").FS = kind }
	}
	ruleCases = append(ruleCases, []ruleCase{
		{"the file system of /boot", "debian-uefi", "grub-module-unsigned", diagnose.BlocksBoot, with(usual, rootFS("f2fs"))},
		{"ext2 is not in it", "debian-uefi", "grub-module-unsigned", diagnose.BlocksBoot, with(without("ext2"), nil)},
		{"a command of the default entry", "debian-uefi", "grub-module-unsigned", diagnose.BlocksBoot, with(without("linux"), nil)},
		{"all is in it", "debian-uefi", "grub-module-unsigned", nearMiss, with(usual, nil)},
		{"without Secure Boot", "debian-uefi", "grub-module-unsigned", nearMiss, with(without("linux"), func(_ *testing.T, in *installed) { in.Firmware.SecureBoot = false })},
		{"a shim that checks nothing", "debian-uefi", "grub-module-unsigned", nearMiss, with(without("linux"), func(_ *testing.T, in *installed) { in.Firmware.ShimUnchecked = true })},
		{"another program than GRUB", "debian-uefi", "grub-module-unsigned", nearMiss, with(nil, nil)},
		{"a file system that nobody knows", "debian-uefi", "grub-module-unsigned", nearMiss, with(usual, rootFS("bcachefs"))},
	}...)
}
