package media

import (
	"strings"

	"salvor/problem"
)

const (
	maxShim = 4 << 20
	maxGrub = 16 << 20
)

// efiFile is the path of a boot loader for an architecture: firmware starts BOOT, shim starts GRUB.
func efiFile(name string, arch Arch) string {
	return "EFI/BOOT/" + name + strings.ToUpper(arch.suffix()) + ".EFI"
}

// systemPartition is the EFI system partition of an ISO image.
type systemPartition struct {
	volume Blob
	params int64 // offset of the field in the volume
	// files of the CD that lie in the partition, by their paths on the CD.
	files map[string]insideFile
}

type insideFile struct {
	data   Blob
	offset int64
}

// grubHead and grubTail stand around the parameters in GRUB's configuration. The quotes keep GRUB from reading the
// parameters as commands; CheckParams lets no quote through. GRUB splits $params at blanks, as the kernel does.
// A kernel that GRUB refuses hands the machine back to its firmware, not to a prompt that waits for a keyboard.
const (
	grubHead = "set params='"
	grubTail = "'\nlinux /kernel $params\ninitrd /initrd\nboot\n" +
		"echo 'salvor: GRUB cannot start the rescue kernel. If Secure Boot is on, the kernel must be signed.'\nsleep 30\nexit\n"
)

// newSystemPartition prefers the signed boot loaders: firmware starts them whether Secure Boot is on or off.
func newSystemPartition(p Parts, params string) (systemPartition, error) {
	if p.Signed() {
		return newSignedPartition(p, params)
	}
	u, err := newUKI(p)
	if err != nil {
		return systemPartition{}, err
	}
	boot := efiFile("BOOT", ArchOf(p.Kernel))
	volume, offsets, err := FAT(isoVolumeLabel, []File{{Path: boot, Data: u.data}})
	if err != nil {
		return systemPartition{}, err
	}
	start := offsets[boot]
	return systemPartition{volume: volume, params: start + u.params, files: map[string]insideFile{
		"kernel": {p.Kernel, start + u.kernel}, "initrd": {p.Initrd, start + u.initrd},
	}}, nil
}

// newSignedPartition lays out shim, GRUB, its configuration, kernel and ramdisk. GRUB looks for its configuration on the volume that
// firmware started it from, which is the CD or this partition. It searches all disks of the machine if there is none.
func newSignedPartition(p Parts, params string) (systemPartition, error) {
	if p.Shim.Size() > maxShim || p.Grub.Size() > maxGrub {
		return systemPartition{}, problem.Invalidf("ISO image: shim of %d bytes or GRUB of %d bytes is too large", p.Shim.Size(), p.Grub.Size())
	}
	arch := ArchOf(p.Kernel)
	config := bytesBlob([]byte(grubHead + params + strings.Repeat(" ", fieldSize-len(params)) + grubTail))
	volume, offsets, err := FAT(isoVolumeLabel, []File{
		{Path: efiFile("BOOT", arch), Data: p.Shim}, {Path: efiFile("GRUB", arch), Data: p.Grub},
		{Path: "BOOT/GRUB/GRUB.CFG", Data: config}, {Path: "KERNEL", Data: p.Kernel}, {Path: "INITRD", Data: p.Initrd},
	})
	if err != nil {
		return systemPartition{}, err
	}
	return systemPartition{volume: volume, params: offsets["BOOT/GRUB/GRUB.CFG"] + int64(len(grubHead)), files: map[string]insideFile{
		"kernel": {p.Kernel, offsets["KERNEL"]}, "initrd": {p.Initrd, offsets["INITRD"]},
		"boot/grub/grub.cfg": {config, offsets["BOOT/GRUB/GRUB.CFG"]},
	}}, nil
}
