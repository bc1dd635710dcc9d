package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"salvor/boot/media"
	"salvor/boot/ramdisk"
	"salvor/problem"
)

// ApplianceData is where an appliance's disk is its own: below it lies what boots it.
const ApplianceData = rootStart

var applianceModules = []string{"virtio_pci", "virtio_blk", "button"}

// MakeAppliance writes a disk image of size bytes that boots, by BIOS or UEFI, a system of one static program: it is the first
// process, with the drivers of virtio disks and the serial line as its output. stateDir as in Spec. The file must not exist.
func MakeAppliance(ctx context.Context, stateDir, path, program string, size int64) error {
	spec, err := Spec{StateDir: stateDir}.withDefaults()
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return problem.Conflictf("appliance %s: the file is there already", path)
	}
	if size < ApplianceData {
		return problem.Invalidf("appliance %s: %d bytes, want %d or more", path, size, ApplianceData)
	}
	if err := os.MkdirAll(cacheDir(spec.StateDir), 0o755); err != nil {
		return fmt.Errorf("appliance %s: %w", path, err)
	}
	files, err := applianceFiles(ctx, program)
	if err != nil {
		return fmt.Errorf("appliance %s: %w", path, err)
	}
	mbr, err := os.ReadFile(mbrCode)
	if err != nil {
		return fmt.Errorf("appliance %s: %w", path, err)
	}
	if err := writeBoot(ctx, path, mbr, files); err != nil {
		return fmt.Errorf("appliance %s: %w", path, err)
	}
	return os.Truncate(path, size)
}

// applianceFiles are those of the partition that boots.
func applianceFiles(ctx context.Context, program string) (map[string]io.Reader, error) {
	source, err := ramdisk.Open(ctx, "", ramdisk.Cloud, nil)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	kernel, err := os.ReadFile(source.Kernel())
	if err != nil {
		return nil, err
	}
	start, err := tenantFS.ReadFile("tenant/appliance")
	if err != nil {
		return nil, err
	}
	config, err := tenantFS.ReadFile("tenant/syslinux.cfg")
	if err != nil {
		return nil, err
	}
	code, err := os.ReadFile(filepath.Clean(program))
	if err != nil {
		return nil, err
	}
	tree := ramdisk.NewTree()
	if err := source.AddBusybox(ctx, tree); err != nil {
		return nil, err
	}
	if err := source.AddModules(tree, applianceModules); err != nil {
		return nil, err
	}
	tree.File("init", 0o755, start)
	tree.File("program", 0o755, code)
	tree.File("etc/modules", 0o644, []byte(strings.Join(applianceModules, "\n")+"\n"))
	var initrd bytes.Buffer
	if err := tree.Initramfs(&initrd, ramdisk.LZ4); err != nil {
		return nil, err
	}
	stub, err := os.ReadFile(efiStub)
	if err != nil {
		return nil, err
	}
	uki, err := media.UKI(media.Parts{Kernel: newBytesBlob(kernel), Initrd: newBytesBlob(initrd.Bytes()), Stub: newBytesBlob(stub), Name: "appliance", Params: tenantParams})
	if err != nil {
		return nil, fmt.Errorf("make the UEFI image: %w", err)
	}
	return map[string]io.Reader{
		"EFI/BOOT/BOOTX64.EFI": uki.Base(),
		"vmlinuz":              bytes.NewReader(kernel), "initrd": bytes.NewReader(initrd.Bytes()), "syslinux.cfg": bytes.NewReader(append(config, "APPEND "+tenantParams+"\n"...)),
	}, nil
}
