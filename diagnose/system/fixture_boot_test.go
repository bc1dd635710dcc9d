package system

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"strings"
	"sync"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// bzImage is a kernel of x86 in the shape of the boot protocol, with 8 KiB behind its setup.
func bzImage(release string) string {
	const sectors, body = 3, 8192
	b := make([]byte, (sectors+1)*512+body)
	le := binary.LittleEndian
	b[0x1f1] = sectors
	le.PutUint32(b[0x1f4:], body/16)
	le.PutUint16(b[0x1fe:], 0xaa55)
	copy(b[0x202:], "HdrS")
	le.PutUint16(b[0x206:], 0x020f)
	le.PutUint16(b[0x20e:], 0x300)
	copy(b[0x500:], release+" (builder@host) #1 SMP\x00")
	return string(b)
}

// signedKernel is a bzImage that is a program for UEFI too, with so many signatures.
func signedKernel(release string, signatures int) string {
	b := []byte(bzImage(release))
	le := binary.LittleEndian
	copy(b, "MZ")
	le.PutUint32(b[0x3c:], 0x40)
	copy(b[0x40:], "PE\x00\x00")
	le.PutUint16(b[0x44:], peAMD64)
	le.PutUint16(b[0x54:], 240)
	le.PutUint16(b[0x58:], 0x20b)
	le.PutUint32(b[0x58+144:], uint32(len(b)))
	le.PutUint32(b[0x58+148:], uint32(16*signatures))
	for range signatures {
		b = append(le.AppendUint32(b, 16), make([]byte, 12)...)
	}
	return string(b)
}

// arm64Image is a kernel of arm64.
func arm64Image() string {
	b := make([]byte, 8192)
	binary.LittleEndian.PutUint64(b[16:], 16384)
	copy(b[56:], "ARM\x64")
	return string(b)
}

// peFile is a program for UEFI with one section of 4 KiB, behind sections of those names.
func peFile(machine uint16, sections ...string) string {
	sections = append([]string{".text"}, sections...)
	size := 0x400 + 0x1000*len(sections)
	b := make([]byte, size)
	le := binary.LittleEndian
	copy(b, "MZ")
	le.PutUint32(b[0x3c:], 0x80)
	copy(b[0x80:], "PE\x00\x00")
	le.PutUint16(b[0x84:], machine)
	le.PutUint16(b[0x86:], uint16(len(sections)))
	le.PutUint16(b[0x94:], 240)
	le.PutUint16(b[0x98:], 0x20b)
	for i, name := range sections {
		at := b[0x98+240+40*i:]
		copy(at[:8], name)
		le.PutUint32(at[8:], 0x1000)
		le.PutUint32(at[16:], 0x1000)
		le.PutUint32(at[20:], uint32(0x400+0x1000*i))
	}
	return string(b)
}

// unifiedKernel is a kernel with its command line and its initramfs in one program for UEFI. Their sections have the size of their content.
func unifiedKernel(options, initramfs string) string {
	b := []byte(peFile(peAMD64, ".osrel", ".cmdline", ".initrd", ".linux"))
	le := binary.LittleEndian
	for i, content := range []string{options, initramfs} {
		at := b[0x98+240+40*(i+2):] // behind .text and .osrel
		le.PutUint32(at[16:], uint32(len(content)))
		le.PutUint32(at[20:], uint32(len(b)))
		b = append(b, content...)
	}
	return string(b)
}

func lz4Compressed(b []byte) []byte {
	var out bytes.Buffer
	w := lz4.NewWriter(&out)
	_ = w.Apply(lz4.LegacyOption(true)) // the only kind that the kernel reads
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}

const (
	peAMD64 = 0x8664
	peARM64 = 0xaa64
)

// cpioArchive is an archive in the format newc, which ends in zeros up to 512 bytes.
func cpioArchive(names ...string) []byte {
	var out bytes.Buffer
	add := func(name, content string, mode int) {
		field := func(v int) { out.WriteString(strings.ToUpper(hex8(v))) }
		out.WriteString("070701")
		for _, v := range []int{1, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0} {
			field(v)
		}
		out.WriteString(name + "\x00")
		pad(&out, 4)
		out.WriteString(content)
		pad(&out, 4)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "/") {
			add(strings.TrimSuffix(name, "/"), "", 0o40755)
			continue
		}
		if empty, found := strings.CutSuffix(name, " (empty)"); found {
			add(empty, "", 0o100644)
			continue
		}
		add(name, "content of "+name, 0o100755)
	}
	add("TRAILER!!!", "", 0)
	pad(&out, 512)
	return out.Bytes()
}

func hex8(v int) string {
	const digits = "0123456789abcdef"
	var b [8]byte
	for i := range b {
		b[7-i] = digits[v>>(4*i)&15]
	}
	return string(b[:])
}

func pad(b *bytes.Buffer, to int) {
	for b.Len()%to != 0 {
		b.WriteByte(0)
	}
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}

func zstdCompressed(b []byte) []byte {
	return zstdWriter().EncodeAll(b, nil)
}

var zstdWriter = sync.OnceValue(func() *zstd.Encoder {
	w, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	return w
})

// initramfsFiles are what an initramfs of initramfs-tools holds for a disk of virtio or SATA and ext4.
func initramfsFiles(release string, more ...string) []string {
	modules := "usr/lib/modules/" + release + "/kernel/"
	return append([]string{"init", "usr/", "usr/bin/sh", "usr/lib/modules/" + release + "/modules.dep", modules + "drivers/block/virtio_blk.ko",
		modules + "drivers/ata/ahci.ko", modules + "drivers/ata/libahci.ko", modules + "fs/ext4/ext4.ko", modules + "drivers/virtio/virtio_pci.ko"}, more...)
}

// debianInitramfs is what mkinitramfs makes: an archive with microcode, then the compressed one.
func debianInitramfs(release string, more ...string) string {
	early := cpioArchive("kernel/", "kernel/x86/", "kernel/x86/microcode/", "kernel/x86/microcode/GenuineIntel.bin")
	return string(early) + string(zstdCompressed(cpioArchive(initramfsFiles(release, more...)...)))
}

// dracutInitramfs is what dracut makes.
func dracutInitramfs(release string, more ...string) string {
	early := cpioArchive("early_cpio", "kernel/x86/microcode/AuthenticAMD.bin")
	more = append(more, "usr/lib/dracut/hooks/cmdline/", "usr/lib/systemd/systemd", "etc/initrd-release")
	return string(early) + string(gzipped(cpioArchive(initramfsFiles(release, more...)...)))
}

// kernelFiles writes a kernel's modules, its image and its initramfs below /boot.
func (in *installed) kernelFiles(release, image, initramfs, content string) {
	in.write(image, bzImage(release))
	in.write(initramfs, content)
	in.moduleFiles(release)
}

func (in *installed) moduleFiles(release string) {
	modules := []string{"kernel/drivers/block/virtio_blk.ko.xz", "kernel/fs/ext4/ext4.ko.xz", "kernel/fs/xfs/xfs.ko.xz", "kernel/fs/btrfs/btrfs.ko.xz",
		"kernel/drivers/net/virtio_net.ko.xz", "kernel/drivers/ata/ahci.ko.xz", "kernel/drivers/nvme/host/nvme.ko.xz", "kernel/drivers/md/dm-mod.ko.xz"}
	for _, module := range modules {
		in.write("/usr/lib/modules/"+release+"/"+module, "module")
	}
	in.write("/usr/lib/modules/"+release+"/modules.dep", strings.Join(modules, ":\n")+":\n")
	in.write("/usr/lib/modules/"+release+"/modules.builtin", "kernel/fs/fat/vfat.ko\n")
}

// espFile stores a file of the EFI system partition.
func (in *installed) espFile(name, text string) {
	in.esp[strings.TrimPrefix(name, "/")] = &fstest.MapFile{Data: []byte(text), Mode: 0o700}
}
