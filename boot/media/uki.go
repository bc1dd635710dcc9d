package media

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"salvor/problem"
)

// Parts are what images are made of. Kernel and Initrd are always needed.
type Parts struct {
	Kernel, Initrd Blob
	// Stub is systemd's EFI stub (linuxx64.efi.stub) of the kernel's architecture; it makes media that boot by UEFI.
	Stub Blob
	// Isolinux and Ldlinux are isolinux.bin and ldlinux.c32 of syslinux 6; they make
	// ISO images that boot by BIOS.
	Isolinux, Ldlinux Blob
	// Shim (shimx64.efi.signed) and Grub (gcdx64.efi.signed) of the kernel's architecture are the signed boot loaders of Debian;
	// with both an ISO image boots firmware that enforces Secure Boot, if its kernel is signed too.
	Shim, Grub Blob
	// Name is shown by firmware menus and boot loaders.
	Name string
	// Params are the kernel parameters of the image as it is built; those of a machine
	// replace them. DefaultParams if empty.
	Params string
}

const (
	// contentAlign lets an ISO 9660 directory point at a kernel inside a UKI.
	contentAlign = 2048
	maxStub      = 1 << 20
)

// UKI makes a unified kernel image: one PE file that UEFI runs and that holds kernel,
// ramdisk and parameters. The image is not signed, so Secure Boot refuses the image.
func UKI(p Parts) (*Image, error) {
	u, err := newUKI(p)
	if err != nil {
		return nil, err
	}
	return NewImage(u.data, Layout{Size: u.data.Size(), Fields: []Field{{Offset: u.params, Size: fieldSize, Pad: ' '}}})
}

// uki is a finished PE file with the offsets of what others point at.
type uki struct {
	data                   Blob
	params, kernel, initrd int64
}

func newUKI(p Parts) (uki, error) {
	var u uki
	params, err := p.params()
	if err != nil {
		return u, err
	}
	if p.Stub == nil || p.Kernel == nil || p.Initrd == nil {
		return u, problem.Invalidf("UKI: kernel, ramdisk and EFI stub are all needed")
	}
	stub, err := newStub(p.Stub, ArchOf(p.Kernel))
	if err != nil {
		return u, err
	}
	release := []byte(fmt.Sprintf("ID=salvor\nNAME=%q\nPRETTY_NAME=%q\n", p.name(), p.name()))
	field := []byte(params + strings.Repeat(" ", fieldSize-len(params)))
	var a assembly
	head := a.addBytes(1, nil)
	a.size = stub.body
	for _, s := range []struct {
		name string
		data Blob
		at   *int64
	}{
		{".osrel", bytesBlob(release), new(int64)},
		{".cmdline", bytesBlob(field), &u.params},
		{".linux", p.Kernel, &u.kernel},
		{".initrd", p.Initrd, &u.initrd},
	} {
		*s.at = a.add(contentAlign, s.data, s.data.Size())
		if err := stub.addSection(s.name, *s.at, s.data.Size()); err != nil {
			return u, err
		}
		a.pad(stub.fileAlign)
	}
	a.parts[head] = part{off: 0, size: stub.body, src: bytes.NewReader(stub.bytes)}
	u.data = a.blob()
	return u, nil
}

// Signed tells whether the signed boot loaders are there.
func (p Parts) Signed() bool { return p.Shim != nil && p.Grub != nil }

func (p Parts) params() (string, error) {
	params := p.Params
	if params == "" {
		params = ArchOf(p.Kernel).DefaultParams()
	}
	return params, CheckParams(params)
}

func (p Parts) name() string {
	if p.Name == "" {
		return "salvor"
	}
	return p.Name
}

// stub is the PE file that sections are added to.
type stub struct {
	bytes     []byte
	body      int64 // its length in bytes without a symbol table
	coff      int64 // offset of the COFF header
	sections  int64 // offset of the first free section header
	headers   int64 // end of the room for section headers
	memAlign  int64
	fileAlign int64
	memEnd    int64 // first free virtual address
}

// Offsets in the headers of a PE32+ file, as in Microsoft's "PE Format".
const (
	coffSize          = 20
	coffSectionCount  = 2
	coffSymbolTable   = 8
	optInitialized    = 8
	optSizeOfImage    = 56
	optChecksum       = 64
	sectionHeaderSize = 40
	sectionReadData   = 0x40000040 // initialized data, readable
)

// CheckStub tells why images for UEFI cannot be made with an EFI stub for kernels of an architecture.
func CheckStub(b Blob, arch Arch) error {
	_, err := newStub(b, arch)
	return err
}

func newStub(b Blob, arch Arch) (*stub, error) {
	if b.Size() > maxStub {
		return nil, problem.Invalidf("EFI stub: %d bytes are too many", b.Size())
	}
	raw, err := io.ReadAll(io.NewSectionReader(b, 0, b.Size()))
	if err != nil {
		return nil, fmt.Errorf("read EFI stub: %w", err)
	}
	f, err := pe.NewFile(bytes.NewReader(raw))
	if err != nil {
		return nil, problem.Invalidf("EFI stub: %w", err)
	}
	opt, ok := f.OptionalHeader.(*pe.OptionalHeader64)
	if !ok || f.Machine != arch.machine() {
		return nil, problem.Invalidf("EFI stub: it is no PE file for %s, as the kernel is", arch)
	}
	s := &stub{memAlign: int64(opt.SectionAlignment), fileAlign: int64(opt.FileAlignment), headers: int64(opt.SizeOfHeaders)}
	if s.memAlign < 1 || s.fileAlign < 1 || contentAlign%s.fileAlign != 0 || s.headers > int64(len(raw)) {
		return nil, problem.Invalidf("EFI stub: alignments %d and %d, headers of %d bytes", s.memAlign, s.fileAlign, s.headers)
	}
	if len(raw) < 0x40 {
		return nil, problem.Invalidf("EFI stub: %d bytes are too few", len(raw))
	}
	s.coff = int64(binary.LittleEndian.Uint32(raw[0x3c:])) + 4
	s.sections = s.coff + coffSize + int64(f.SizeOfOptionalHeader) + int64(len(f.Sections))*sectionHeaderSize
	// A bare COFF file passes debug/pe too; its first bytes are no DOS header.
	if string(raw[:2]) != "MZ" || s.sections > s.headers {
		return nil, problem.Invalidf("EFI stub: section headers end at %d, all headers at %d", s.sections, s.headers)
	}
	s.body = s.headers
	for _, sec := range f.Sections {
		if sec.Name == ".linux" {
			return nil, problem.Invalidf("EFI stub: it already holds a kernel")
		}
		s.body = max(s.body, int64(sec.Offset)+int64(sec.Size))
		s.memEnd = max(s.memEnd, int64(sec.VirtualAddress)+int64(sec.VirtualSize))
	}
	if s.body > int64(len(raw)) {
		return nil, problem.Invalidf("EFI stub: sections end at %d of %d bytes", s.body, len(raw))
	}
	// What lies behind the sections is a symbol table for debuggers; new content takes its place.
	s.bytes = raw[:s.body]
	clear(s.bytes[s.coff+coffSymbolTable : s.coff+coffSymbolTable+8])
	clear(s.bytes[s.optional(optChecksum):][:4])
	return s, nil
}

func (s *stub) optional(field int64) int64 { return s.coff + coffSize + field }

// addSection writes the header of a section whose content is at off in the file. The
// firmware loads all of it; the stub finds it by its name.
func (s *stub) addSection(name string, off, size int64) error {
	if s.sections+sectionHeaderSize > s.headers {
		return problem.Invalidf("EFI stub: no room for the header of %s", name)
	}
	// The stub's own alignment can be less than a page; the kernel wants one.
	addr := roundUp(s.memEnd, max(s.memAlign, 4096))
	stored := roundUp(size, s.fileAlign)
	if size <= 0 || addr+size > 1<<31-1 || off+stored > 1<<31-1 {
		return problem.Invalidf("UKI: %s of %d bytes does not fit", name, size)
	}
	le := binary.LittleEndian
	h := s.bytes[s.sections:][:sectionHeaderSize]
	clear(h)
	copy(h, name)
	le.PutUint32(h[8:], uint32(size))
	le.PutUint32(h[12:], uint32(addr))
	le.PutUint32(h[16:], uint32(stored))
	le.PutUint32(h[20:], uint32(off))
	le.PutUint32(h[36:], sectionReadData)
	s.sections += sectionHeaderSize
	s.memEnd = addr + size

	count := s.bytes[s.coff+coffSectionCount:]
	le.PutUint16(count, le.Uint16(count)+1)
	initialized := s.bytes[s.optional(optInitialized):]
	le.PutUint32(initialized, le.Uint32(initialized)+uint32(stored))
	le.PutUint32(s.bytes[s.optional(optSizeOfImage):], uint32(roundUp(s.memEnd, s.memAlign)))
	return nil
}

// IsSigned tells whether a kernel or another PE file has an Authenticode signature. It does not check whose. What is no PE file is problem.Invalid.
func IsSigned(b Blob) (bool, error) {
	// Only the headers are read, for of a file behind a URL nothing else is here.
	var dos [0x40]byte
	if _, err := b.ReadAt(dos[:], 0); err != nil || string(dos[:2]) != "MZ" {
		return false, problem.Invalidf("it is no program for UEFI")
	}
	at := int64(binary.LittleEndian.Uint32(dos[0x3c:]))
	var head struct {
		Mark [4]byte
		COFF pe.FileHeader
		pe.OptionalHeader64
	}
	if err := binary.Read(io.NewSectionReader(b, at, int64(binary.Size(head))), binary.LittleEndian, &head); err != nil || string(head.Mark[:]) != "PE\x00\x00" {
		return false, problem.Invalidf("it is no program for UEFI")
	}
	const magic64 = 0x20b
	if head.Magic != magic64 {
		return false, problem.Invalidf("it is no 64-bit program for UEFI")
	}
	certificates := head.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_SECURITY]
	if head.NumberOfRvaAndSizes <= pe.IMAGE_DIRECTORY_ENTRY_SECURITY {
		return false, nil
	}
	// Unlike the other directories, this one gives an offset in the file.
	return certificates.Size > 0 && int64(certificates.VirtualAddress)+int64(certificates.Size) <= b.Size(), nil
}
