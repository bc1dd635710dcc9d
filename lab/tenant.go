package lab

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"salvor/boot/media"
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
	mbrCode: "syslinux", "/usr/bin/syslinux": "syslinux", efiStub: "systemd-boot-efi", busybox: "busybox-static",
	"/usr/bin/mcopy": "mtools", "/usr/sbin/mke2fs": "e2fsprogs", "/usr/sbin/modprobe": "kmod",
	"/usr/sbin/dropbear": "dropbear-bin", "/usr/bin/dropbearkey": "dropbear-bin",
}

var tenantModules = []string{"virtio_pci", "virtio_blk", "virtio_net", "ext4", "button", "evdev"}

// tenantBoot returns the path of the boot half, made now if it is not in the cache.
func tenantBoot(ctx context.Context, cache string) (string, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("tenant disk: %w", err)
	}
	k, err := fetchKernel(ctx, cache)
	if err != nil {
		return "", err
	}
	initrd, err := tenantInitrd(ctx, k)
	if err != nil {
		return "", fmt.Errorf("tenant initrd: %w", err)
	}
	image, err := os.ReadFile(k.image())
	if err != nil {
		return "", fmt.Errorf("tenant disk: %w", err)
	}
	stub, err := os.ReadFile(efiStub)
	if err != nil {
		return "", fmt.Errorf("tenant disk: %w", err)
	}
	mbr, err := os.ReadFile(mbrCode)
	if err != nil {
		return "", fmt.Errorf("tenant disk: %w", err)
	}
	config, err := tenantFS.ReadFile("tenant/syslinux.cfg")
	if err != nil {
		return "", err
	}
	config = append(config, "APPEND "+tenantParams+"\n"...)

	path := filepath.Join(cache, "tenant-"+hashOf(image, initrd, stub, mbr, config)+".img")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	uki, err := media.UKI(media.Parts{Kernel: blob(image), Initrd: blob(initrd), Stub: blob(stub), Name: "tenant", Params: tenantParams})
	if err != nil {
		return "", fmt.Errorf("tenant UKI: %w", err)
	}
	if err := writeBoot(ctx, path, mbr, map[string]io.Reader{
		"vmlinuz": bytes.NewReader(image), "initrd": bytes.NewReader(initrd), "syslinux.cfg": bytes.NewReader(config),
		"EFI/BOOT/BOOTX64.EFI": uki.Base(),
	}); err != nil {
		return "", fmt.Errorf("tenant boot partition: %w", err)
	}
	return path, nil
}

func blob(b []byte) media.Blob { return io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b))) }

// hashOf names content: equal parts give an equal name, whatever machine they are on.
func hashOf(parts ...[]byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d %d %d", bootStart, bootSize, rootSize)
	for _, p := range parts {
		binary.Write(h, binary.BigEndian, int64(len(p)))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// tenantInitrd is busybox, a few drivers, and the step to the disk.
func tenantInitrd(ctx context.Context, k kernel) ([]byte, error) {
	shell, err := os.ReadFile(busybox)
	if err != nil {
		return nil, err
	}
	start, err := tenantFS.ReadFile("tenant/init")
	if err != nil {
		return nil, err
	}
	modules, err := k.modules(ctx, tenantModules...)
	if err != nil {
		return nil, err
	}
	entries := []media.Entry{
		{Path: "bin", Mode: fs.ModeDir | 0o755}, {Path: "lib", Mode: fs.ModeDir | 0o755},
		{Path: "bin/busybox", Mode: 0o755, Data: blob(shell)}, {Path: "init", Mode: 0o755, Data: blob(start)},
	}
	var list strings.Builder
	for _, file := range modules {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(&list, filepath.Base(file))
		entries = append(entries, media.Entry{Path: "lib/" + filepath.Base(file), Mode: 0o644, Data: blob(data)})
	}
	entries = append(entries, media.Entry{Path: "lib/modules.list", Mode: 0o644, Data: blob([]byte(list.String()))})

	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if err := media.WriteCPIO(z, entries); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
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
		if _, err := output(ctx, work, step[0], step[1:]...); err != nil {
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
