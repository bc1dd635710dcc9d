package media

import (
	"debug/pe"
	"encoding/binary"
	"strings"
)

// Arch is a processor architecture by Debian's name.
type Arch string

// The architectures that media are made for.
const (
	AMD64 Arch = "amd64"
	ARM64 Arch = "arm64"
)

// LoaderNames are the files that Debian's packages systemd-boot-efi, shim-signed and grub-efi-*-signed bring for an architecture.
func (a Arch) LoaderNames() (stub, shim, grub string) {
	s := a.suffix()
	return "linux" + s + ".efi.stub", "shim" + s + ".efi.signed", "gcd" + s + ".efi.signed"
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
