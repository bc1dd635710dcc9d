package media

import (
	"debug/pe"
	"encoding/binary"
	"path"
	"slices"
	"strings"
)

// Arch is a processor architecture by Debian's name.
type Arch string

// The architectures that media are made for.
const (
	AMD64 Arch = "amd64"
	ARM64 Arch = "arm64"
)

// LoaderFile is a boot loader that a Debian package brings, at an absolute path. The zero value is none.
type LoaderFile struct{ Package, Path string }

// Name is what the file is called.
func (f LoaderFile) Name() string { return path.Base(f.Path) }

// Loaders are the boot loaders that images are made with. Isolinux and Ldlinux are those of BIOS, which not every architecture has.
type Loaders struct{ Stub, Isolinux, Ldlinux, Shim, Grub LoaderFile }

var (
	amd64Loaders = Loaders{
		Stub:     LoaderFile{"systemd-boot-efi", "/usr/lib/systemd/boot/efi/linuxx64.efi.stub"},
		Isolinux: LoaderFile{"isolinux", "/usr/lib/ISOLINUX/isolinux.bin"},
		Ldlinux:  LoaderFile{"syslinux-common", "/usr/lib/syslinux/modules/bios/ldlinux.c32"},
		Shim:     LoaderFile{"shim-signed", "/usr/lib/shim/shimx64.efi.signed"},
		Grub:     LoaderFile{"grub-efi-amd64-signed", "/usr/lib/grub/x86_64-efi-signed/gcdx64.efi.signed"},
	}
	arm64Loaders = Loaders{
		Stub: LoaderFile{"systemd-boot-efi", "/usr/lib/systemd/boot/efi/linuxaa64.efi.stub"},
		Shim: LoaderFile{"shim-signed", "/usr/lib/shim/shimaa64.efi.signed"},
		Grub: LoaderFile{"grub-efi-arm64-signed", "/usr/lib/grub/arm64-efi-signed/gcdaa64.efi.signed"},
	}
)

// Loaders are those for kernels of the architecture.
func (a Arch) Loaders() Loaders {
	if a == ARM64 {
		return arm64Loaders
	}
	return amd64Loaders
}

// Files are the loaders that there are.
func (l Loaders) Files() []LoaderFile {
	return slices.DeleteFunc([]LoaderFile{l.Stub, l.Isolinux, l.Ldlinux, l.Shim, l.Grub}, func(f LoaderFile) bool { return f == LoaderFile{} })
}

// DefaultParams are the package's DefaultParams with the serial port of the architecture.
func (a Arch) DefaultParams() string {
	if a == ARM64 {
		return strings.ReplaceAll(DefaultParams, "ttyS0", "ttyAMA0")
	}
	return DefaultParams
}

// suffix is how UEFI abbreviates the architecture.
func (a Arch) suffix() string {
	if a == ARM64 {
		return "aa64"
	}
	return "x64"
}

// machine is the architecture in a PE file.
func (a Arch) machine() uint16 {
	if a == ARM64 {
		return pe.IMAGE_FILE_MACHINE_ARM64
	}
	return pe.IMAGE_FILE_MACHINE_AMD64
}

// ReadArch reads for which architecture a kernel is; false where its header names none of the two.
func ReadArch(kernel Blob) (Arch, bool) {
	var dos [0x40]byte
	var coff [6]byte
	if _, err := kernel.ReadAt(dos[:], 0); err != nil || string(dos[:2]) != "MZ" {
		return "", false
	}
	at := int64(binary.LittleEndian.Uint32(dos[0x3c:]))
	if _, err := kernel.ReadAt(coff[:], at); err != nil || string(coff[:4]) != "PE\x00\x00" {
		return "", false
	}
	for _, a := range []Arch{AMD64, ARM64} {
		if binary.LittleEndian.Uint16(coff[4:]) == a.machine() {
			return a, true
		}
	}
	return "", false
}

// ArchOf is the architecture of a kernel, AMD64 where its header names none: kernels for BIOS alone have no such header.
func ArchOf(kernel Blob) Arch {
	if a, ok := ReadArch(kernel); ok {
		return a
	}
	return AMD64
}
