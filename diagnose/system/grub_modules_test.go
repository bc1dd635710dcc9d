package system

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

func init() {
	const folder = "/boot/grub/i386-pc"
	blocks := diagnose.BlocksBoot
	without := func(names ...string) func(*testing.T, *installed) {
		return func(_ *testing.T, in *installed) {
			for _, name := range names {
				in.remove(folder + "/" + name)
			}
		}
	}
	content := func(name, text string) func(*testing.T, *installed) {
		return func(_ *testing.T, in *installed) { in.write(folder+"/"+name, text) }
	}
	features := func(device string, bits uint32, module uint32) func(*testing.T, *installed) {
		return func(t *testing.T, in *installed) {
			extFeaturesOf(in.device(t, device), bits)
			if module != 0 {
				text := grubModule("ext2", grubRelease) + string(binary.LittleEndian.AppendUint32(nil, ^module))
				in.write(folder+"/ext2.mod", text)
			}
		}
	}
	// xfs makes an XFS of the file system of /boot. The module of GRUB says what it reads as the real ones of Debian do: test, then a jump.
	xfs := func(bits uint32, jump string, reads uint32) func(*testing.T, *installed) {
		return func(t *testing.T, in *installed) {
			d := in.device(t, "/dev/sda1")
			super := make([]byte, 4096)
			copy(super, "XFSB")
			binary.BigEndian.PutUint16(super[100:], 0xb4a5)
			binary.BigEndian.PutUint32(super[216:], bits)
			d.FS, d.Content = "xfs", &sparseDisk{size: 1 << 30, pieces: map[int64][]byte{0: super}}
			in.write(folder+"/xfs.mod", grubModule("xfs", grubRelease)+"\xf7\x80\xd8\x00\x00\x00"+string(binary.BigEndian.AppendUint32(nil, ^reads))+jump)
		}
	}
	const usual = extBase | 0x2c2&^0x4
	ruleCases = append(ruleCases, []ruleCase{
		{"normal is gone", "debian-bios", "grub-module-missing", blocks, without("normal.mod")},
		{"normal is gone, with an array", "debian-luks-raid", "grub-module-missing", blocks, without("normal.mod")},
		{"what normal needs is gone", "debian-bios", "grub-module-missing", blocks, without("terminal.mod")},
		{"linux is gone", "debian-bios", "grub-module-missing", blocks, without("linux.mod")},
		{"what linux needs is gone", "debian-bios", "grub-module-missing", blocks, without("relocator.mod")},
		{"normal is empty", "debian-bios", "grub-module-missing", blocks, content("normal.mod", "")},
		{"normal is something else", "debian-bios", "grub-module-missing", blocks, content("normal.mod", strings.Repeat("\x00", 4096))},
		{"the list of commands is gone", "debian-bios", "grub-module-missing", blocks, without("command.lst")},
		{"the list of commands is empty", "debian-bios", "grub-module-missing", blocks, content("command.lst", "")},
		{"a module that nothing needs", "debian-bios", "grub-module-missing", nearMiss, without("gzio.mod", "echo.mod", "search.mod")},
		{"a module in the core image", "debian-bios", "grub-module-missing", nearMiss, without("ext2.mod", "part_msdos.mod", "biosdisk.mod")},
		{"compressed modules", "debian-bios", "grub-module-missing", nearMiss, content("normal.mod", "\xfd7zXZ\x00 and more")},
		{"no list of dependencies", "debian-bios", "grub-module-missing", nearMiss, without("moddep.lst")},
		{"UEFI", "debian-uefi", "grub-module-missing", nearMiss, func(_ *testing.T, in *installed) { in.remove("/boot/grub/x86_64-efi/normal.mod") }},
		{"another loader starts", "debian-bios", "grub-module-missing", nearMiss, func(t *testing.T, in *installed) {
			without("normal.mod")(t, in)
			copy(in.device(t, "/dev/sda").Content.(*sparseDisk).pieces[0][0x180:], "other")
		}},
		{"/boot is not mounted", "debian-bios", "grub-module-missing", nearMiss, func(t *testing.T, in *installed) {
			without("normal.mod")(t, in)
			in.add("/etc/fstab", "UUID="+bootUUID+" /boot ext4 defaults 0 2\n")
		}},

		{"modules of another release", "debian-bios", "grub-modules-foreign", blocks, func(_ *testing.T, in *installed) { in.rewriteModules(folder, "2.12-9") }},
		{"modules of another release, with an array", "debian-luks-raid", "grub-modules-foreign", blocks, func(_ *testing.T, in *installed) { in.rewriteModules(folder, "2.12-9") }},
		{"another core image", "debian-bios", "grub-modules-foreign", diagnose.Degrades, content("core.img", string(grubCoreFile(grubModule("biosdisk", "2.12"), "longer")))},
		{"normal is gone, and another core image starts", "debian-bios", "grub-module-missing", diagnose.Degrades, func(t *testing.T, in *installed) {
			without("normal.mod")(t, in)
			content("core.img", string(grubCoreFile(grubModule("biosdisk", "2.12"), "longer")))(t, in)
		}},
		{"newer packages", "debian-bios", "grub-modules-foreign", nearMiss, func(_ *testing.T, in *installed) {
			in.write("/usr/lib/grub/i386-pc/normal.mod", grubModule("normal", "2.12-9"))
			in.write("/usr/lib/grub/i386-pc/ext2.mod", grubModule("ext2", "2.12-9"))
		}},
		{"no core image beside the modules", "debian-bios", "grub-modules-foreign", nearMiss, without("core.img")},

		{"ea_inode", "debian-bios", "grub-features-unread", blocks, features("/dev/sda1", usual|0x400, 0)},
		{"inline_data", "debian-bios", "grub-features-unread", blocks, features("/dev/sda1", usual|0x8000, extMost)},
		{"casefold", "debian-bios", "grub-features-unread", blocks, features("/dev/sda1", usual|0x20000, extMost)},
		{"a feature that nobody knows", "debian-bios", "grub-features-unread", blocks, features("/dev/sda1", usual|0x80000, extMost)},
		{"metadata_csum_seed, and an old GRUB", "debian-bios", "grub-features-unread", blocks, features("/dev/sda1", usual|0x2000, extBase|0x10000)},
		{"large_dir, and an old GRUB", "debian-bios", "grub-features-unread", blocks, features("/dev/sda1", usual|0x4000, extBase)},
		{"metadata_csum_seed, and a GRUB that reads it", "debian-bios", "grub-features-unread", nearMiss, features("/dev/sda1", usual|0x2000, extMost)},
		{"metadata_csum_seed, and no word of the module", "debian-bios", "grub-features-unread", nearMiss, features("/dev/sda1", usual|0x2000, 0)},
		{"a file system in use", "debian-bios", "grub-features-unread", nearMiss, features("/dev/sda1", usual|0x4, extBase|0x10000)},
		{"nrext64, and the GRUB of Debian 11", "debian-bios", "grub-features-unread", blocks, xfs(0x2b, "\x74\x69", 0x1f)},
		{"exchange, and the GRUB of Debian 13", "debian-bios", "grub-features-unread", blocks, xfs(0x6b, "\x0f\x84\x8a\x00", 0x3f)},
		{"a feature of XFS that nobody knows", "debian-bios", "grub-features-unread", blocks, xfs(0x802b, "\x74\x69", 0x3f)},
		{"parent, and no word of the module", "debian-bios", "grub-features-unread", blocks, xfs(0xab, "\x83\x0d", 0x3f)},
		{"nrext64, and the GRUB of Debian 12", "debian-bios", "grub-features-unread", nearMiss, xfs(0x2b, "\x74\x6e", 0x3f)},
		{"nrext64, and no word of the module", "debian-bios", "grub-features-unread", nearMiss, xfs(0x2b, "\x83\x0d", 0x1f)},
		{"an XFS that is none", "debian-bios", "grub-features-unread", nearMiss, func(t *testing.T, in *installed) { in.device(t, "/dev/sda1").FS = "xfs" }},
		{"extlinux", "alpine-openrc", "grub-features-unread", nearMiss, func(*testing.T, *installed) {}},
	}...)
}

func TestUnpackLZMA(t *testing.T) {
	sentence := "salvor reads a core image. "
	var bytesUp []byte
	for i := range 64 {
		bytesUp = append(bytesUp, byte(i))
	}
	want := strings.Repeat(sentence, 12) + string(bytesUp) + strings.Repeat(sentence, 3) + strings.Repeat("\x00", 300)
	// The raw stream of another implementation, with matches of all kinds.
	packed, err := hex.DecodeString("00399849dc562bc632769774d3727a35078d833d6083991776253ef7d0f81dcaab06770632ad7d72b632dc9a130f6cf40c0de72b429b001402c657d4e740f5cd6f8ac7213835f8de8f4c967a0193f64cc9d52706d97985912583ecb40371c3257373cee1b682d7bffe703d00")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := config.UnpackLZMA(packed, len(want)); err != nil || string(got) != want {
		t.Errorf("%d bytes, %v: %q", len(got), err, got)
	}
	own := []byte(grubModule("ext2", grubRelease))
	if got, err := config.UnpackLZMA(lzmaPacked(own), len(own)); err != nil || !bytes.Equal(got, own) {
		t.Errorf("literals: %d of %d bytes, %v", len(got), len(own), err)
	}
	for cut := range len(packed) {
		_, _ = config.UnpackLZMA(packed[:cut], len(want))
	}
}

func FuzzUnpackLZMA(f *testing.F) {
	f.Add(lzmaPacked([]byte("some text")), 9)
	f.Fuzz(func(t *testing.T, packed []byte, size int) {
		size = max(0, min(size, 1<<16))
		if out, err := config.UnpackLZMA(packed, size); err == nil && len(out) != size {
			t.Errorf("%d bytes of %d", len(out), size)
		}
		embeddedModules(packed)
	})
}
