package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"salvor/boot/media"
	"salvor/boot/ramdisk"
)

// This file makes the boot half of a tenant disk: partition table and a FAT partition with kernel
// and initrd, which starts by BIOS (syslinux) and by UEFI (a unified kernel image). It is the same
// for all machines, so it is made once and cached under the hash of all that goes into it.

//go:embed tenant
var tenantFS embed.FS

const (
	mib          = 1 << 20
	bootStart    = 1 * mib
	bootSize     = 64 * mib
	rootStart    = bootStart + bootSize
	rootSize     = 96 * mib
	tenantParams = "console=ttyS0 quiet panic=5"

	mbrCode = "/usr/lib/syslinux/mbr/mbr.bin"
	efiStub = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub"
	busybox = "/bin/busybox"
)

// tenantFiles maps what a tenant disk is made with to the Debian package that brings it.
var tenantFiles = map[string]string{
	mbrCode: "syslinux-common", "/usr/bin/syslinux": "syslinux", efiStub: "systemd-boot-efi", busybox: "busybox-static",
	"/usr/bin/mcopy": "mtools", "/usr/sbin/mke2fs": "e2fsprogs",
	"/usr/sbin/dropbear": "dropbear-bin", "/usr/bin/dropbearkey": "dropbear-bin",
}

// tenantKind is where a tenant system finds its disk, and what its initrd needs for that.
type tenantKind struct {
	root    string
	modules []string
	iscsi   bool // it may have to log in to its volume
}

var tenantModules = []string{"virtio_pci", "virtio_blk", "virtio_net", "ext4", "button", "evdev"}

var (
	onDisk   = tenantKind{root: "/dev/vda2", modules: tenantModules}
	onServer = tenantKind{root: "/dev/vda2", modules: append([]string{"virtio_scsi", "sr_mod", "isofs"}, tenantModules...)}
	onVolume = tenantKind{root: "/dev/sda2", modules: append(append([]string{"virtio_scsi"}, tenantModules...), ramdisk.ISCSIModules...), iscsi: true}
)

// tenantBoot returns the path of the boot half, made now if it is not in the cache. The cache's key
// is the recipe, not the kernel: a tenant system need not follow each update of Debian's.
func tenantBoot(ctx context.Context, cache string, kind tenantKind) (string, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("tenant disk: %w", err)
	}
	var recipe [][]byte
	for _, file := range []string{mbrCode, efiStub} {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("tenant disk: %w", err)
		}
		recipe = append(recipe, content)
	}
	mbr, stub := recipe[0], recipe[1]
	start, err := tenantFS.ReadFile("tenant/init")
	if err != nil {
		return "", err
	}
	config, err := tenantFS.ReadFile("tenant/syslinux.cfg")
	if err != nil {
		return "", err
	}
	config = append(config, "APPEND "+tenantParams+"\n"...)
	lease, err := tenantFS.ReadFile("tenant/udhcpc")
	if err != nil {
		return "", err
	}
	recipe = append(recipe, start, config, lease, []byte(kind.root+" "+strings.Join(kind.modules, " ")))

	path := filepath.Join(cache, "tenant-"+hashOf(recipe)+".img")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	kernel, initrd, err := tenantKernel(ctx, kind, start, lease)
	if err != nil {
		return "", fmt.Errorf("tenant kernel: %w", err)
	}
	uki, err := media.UKI(media.Parts{Kernel: newBytesBlob(kernel), Initrd: newBytesBlob(initrd), Stub: newBytesBlob(stub), Name: "tenant", Params: tenantParams})
	if err != nil {
		return "", fmt.Errorf("tenant UKI: %w", err)
	}
	if err := writeBoot(ctx, path, mbr, map[string]io.Reader{
		"vmlinuz": bytes.NewReader(kernel), "initrd": bytes.NewReader(initrd), "syslinux.cfg": bytes.NewReader(config),
		"EFI/BOOT/BOOTX64.EFI": uki.Base(),
	}); err != nil {
		return "", fmt.Errorf("tenant boot partition: %w", err)
	}
	return path, nil
}

func newBytesBlob(b []byte) media.Blob {
	return io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b)))
}

// hashOf names content: equal parts give an equal name, whatever machine they are on.
func hashOf(parts [][]byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d %d %d", bootStart, bootSize, rootSize)
	for _, p := range parts {
		_ = binary.Write(h, binary.BigEndian, int64(len(p)))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// tenantKernel gives Debian's kernel for virtual machines, and an initrd of busybox, a few drivers,
// and the step to the disk.
func tenantKernel(ctx context.Context, kind tenantKind, start, lease []byte) (kernel, initrd []byte, err error) {
	source, err := ramdisk.Open(ctx, "", ramdisk.Cloud, nil)
	if err != nil {
		return nil, nil, err
	}
	defer source.Close()
	if kernel, err = os.ReadFile(source.Kernel()); err != nil {
		return nil, nil, err
	}
	tree := ramdisk.NewTree()
	if err := source.AddBusybox(ctx, tree); err != nil {
		return nil, nil, err
	}
	if err := source.AddModules(tree, kind.modules); err != nil {
		return nil, nil, err
	}
	if kind.iscsi {
		if err := source.AddISCSI(ctx, tree); err != nil {
			return nil, nil, err
		}
	}
	tree.File("init", 0o755, start)
	tree.File("etc/udhcpc", 0o755, lease)
	tree.File("etc/root-device", 0o644, []byte(kind.root+"\n"))
	tree.File("etc/modules", 0o644, []byte(strings.Join(kind.modules, "\n")+"\n"))
	var out bytes.Buffer
	if err := tree.Initramfs(&out, ramdisk.LZ4); err != nil {
		return nil, nil, err
	}
	return kernel, out.Bytes(), nil
}

// runForOutput runs a program and returns what it prints; its complaints go into the error.
func runForOutput(ctx context.Context, dir string, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "MTOOLS_SKIP_CHECK=1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(program), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// writeBoot makes the file that a disk begins with: partition table, boot code and FAT partition.
func writeBoot(ctx context.Context, path string, mbr []byte, files map[string]io.Reader) error {
	work, err := os.MkdirTemp(filepath.Dir(path), "boot-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	image := filepath.Join(work, "boot.img")
	if err := os.WriteFile(image, partitionTable(mbr), 0o644); err != nil {
		return err
	}
	if err := os.Truncate(image, rootStart); err != nil {
		return err
	}
	partition := fmt.Sprintf("%s@@%d", image, bootStart)
	sectors := fmt.Sprint(bootSize / 512)
	steps := [][]string{
		// Hidden sectors (-H) are where syslinux finds the partition's place on the disk.
		{"mformat", "-i", partition, "-T", sectors, "-h", "255", "-s", "63", "-H", fmt.Sprint(bootStart / 512), "-v", "BOOT", "::"},
		{"mmd", "-i", partition, "::/EFI", "::/EFI/BOOT"},
	}
	for name, content := range files {
		from := filepath.Join(work, filepath.Base(name))
		out, err := os.Create(from)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, content)
		if err = errors.Join(err, out.Close()); err != nil {
			return err
		}
		steps = append(steps, []string{"mcopy", "-i", partition, from, "::/" + name})
	}
	steps = append(steps, []string{"syslinux", "-t", fmt.Sprint(bootStart), "--install", image})
	for _, step := range steps {
		if _, err := runForOutput(ctx, work, step[0], step[1:]...); err != nil {
			return err
		}
	}
	return os.Rename(image, path)
}

// partitionTable is a master boot record: an active EFI system partition, which syslinux starts too,
// and a Linux partition behind it.
func partitionTable(code []byte) []byte {
	mbr := make([]byte, 512)
	copy(mbr[:440], code)
	entry := func(i int, active, kind byte, start, size uint32) {
		e := mbr[446+16*i:]
		e[0], e[4] = active, kind
		copy(e[1:4], "\xfe\xff\xff") // no cylinder address: sector numbers only
		copy(e[5:8], "\xfe\xff\xff")
		binary.LittleEndian.PutUint32(e[8:], start/512)
		binary.LittleEndian.PutUint32(e[12:], size/512)
	}
	copy(mbr[440:444], "SALV")
	entry(0, 0x80, 0xef, bootStart, bootSize)
	entry(1, 0, 0x83, rootStart, rootSize)
	mbr[510], mbr[511] = 0x55, 0xaa
	return mbr
}
