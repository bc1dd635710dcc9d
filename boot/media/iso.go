package media

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"salvor/problem"
)

const (
	isoSector      = 2048
	isoSystemArea  = 16 // sectors
	maxIsolinux    = 1 << 20
	isolinuxLoad   = 4 // sectors of 512 bytes that the BIOS loads
	efiBootFile    = "EFI/BOOT/BOOTX64.EFI"
	isoVolumeLabel = "SALVOR"
)

// ISO makes a CD image that boots by BIOS (where Isolinux and Ldlinux are given) and
// by UEFI (where Stub is given); at least one is needed. Kernel and ramdisk are in it
// once: the BIOS side's directory points into the UEFI side's UKI.
func ISO(p Parts) (*Image, error) {
	params, err := p.params()
	if err != nil {
		return nil, err
	}
	bios := p.Isolinux != nil && p.Ldlinux != nil
	if p.Kernel == nil || p.Initrd == nil || !bios && p.Stub == nil {
		return nil, problem.Invalidf("ISO image: kernel, ramdisk, and the boot loader of BIOS or UEFI are needed")
	}
	b := &isoBuilder{}
	b.reserve()
	var fields []Field
	if bios {
		at, err := b.addBIOS(p, params)
		if err != nil {
			return nil, err
		}
		fields = append(fields, Field{Offset: at, Size: fieldSize, Pad: '\n'})
	}
	if p.Stub != nil {
		at, err := b.addUEFI(p)
		if err != nil {
			return nil, err
		}
		fields = append(fields, Field{Offset: at, Size: fieldSize, Pad: ' '})
	} else {
		b.addFile("KERNEL", p.Kernel)
		b.addFile("INITRD", p.Initrd)
	}
	if err := b.finish(bios); err != nil {
		return nil, err
	}
	return NewImage(b.a.blob(), Layout{Size: b.a.size, Fields: fields})
}

// isoFile is a record of the root directory.
type isoFile struct {
	name   string // without version
	sector uint32
	size   uint32
}

// isoBuilder lays out: system area, descriptors, path tables, boot catalog, root
// directory, files. All before the files is filled in at the end.
type isoBuilder struct {
	a        assembly
	files    []isoFile
	isolinux isoFile
	efi      isoFile
	err      error
}

// The fixed sectors before the files.
const (
	isoPrimary = isoSystemArea + iota
	isoBootRecord
	isoTerminator
	isoPathLittle
	isoPathBig
	isoCatalog
	isoRoot
	isoFirstFile
)

func (b *isoBuilder) reserve() {
	b.a.parts = append(b.a.parts, part{off: 0, size: isoFirstFile * isoSector})
	b.a.size = isoFirstFile * isoSector
}

func (b *isoBuilder) addFile(name string, data Blob) isoFile {
	off := b.a.add(isoSector, data, data.Size())
	return b.record(name, off, data.Size())
}

// record enters a file that lies in the image already.
func (b *isoBuilder) record(name string, off, size int64) isoFile {
	if size > 1<<32-1 || off/isoSector > 1<<32-1 {
		b.err = problem.Invalidf("ISO image: %s of %d bytes is too large", name, size)
	}
	f := isoFile{name: name, sector: uint32(off / isoSector), size: uint32(size)}
	b.files = append(b.files, f)
	return f
}

// addBIOS adds isolinux and its configuration; it returns the offset of the field.
func (b *isoBuilder) addBIOS(p Parts, params string) (int64, error) {
	if p.Isolinux.Size() > maxIsolinux || p.Isolinux.Size() < 64 {
		return 0, problem.Invalidf("isolinux.bin: %d bytes", p.Isolinux.Size())
	}
	loader, err := io.ReadAll(io.NewSectionReader(p.Isolinux, 0, p.Isolinux.Size()))
	if err != nil {
		return 0, fmt.Errorf("read isolinux.bin: %w", err)
	}
	loader = append(loader, make([]byte, roundUp(int64(len(loader)), 4)-int64(len(loader)))...)
	sector := uint32(roundUp(b.a.size, isoSector) / isoSector)
	// The table by which isolinux finds itself on the disc, as mkisofs documents it.
	le := binary.LittleEndian
	clear(loader[8:64])
	le.PutUint32(loader[8:], isoPrimary)
	le.PutUint32(loader[12:], sector)
	le.PutUint32(loader[16:], uint32(len(loader)))
	var sum uint32
	for i := 64; i < len(loader); i += 4 {
		sum += le.Uint32(loader[i:])
	}
	le.PutUint32(loader[20:], sum)
	b.isolinux = b.addFile("ISOLINUX.BIN", bytesBlob(loader))
	b.addFile("LDLINUX.C32", p.Ldlinux)

	head := "DEFAULT s\nPROMPT 0\nTIMEOUT 0\nLABEL s\nKERNEL /kernel\nINITRD /initrd\nAPPEND "
	field := params + strings.Repeat("\n", fieldSize-len(params))
	config := b.addFile("ISOLINUX.CFG", bytesBlob([]byte(head+field)))
	return int64(config.sector)*isoSector + int64(len(head)), nil
}

// addUEFI adds the EFI system partition; it returns the offset of the field in it.
func (b *isoBuilder) addUEFI(p Parts) (int64, error) {
	u, err := newUKI(p)
	if err != nil {
		return 0, err
	}
	esp, offsets, err := FAT(isoVolumeLabel, []File{{Path: efiBootFile, Data: u.data}})
	if err != nil {
		return 0, err
	}
	b.efi = b.addFile("EFI.IMG", esp)
	start := int64(b.efi.sector)*isoSector + offsets[efiBootFile]
	b.record("KERNEL", start+u.kernel, p.Kernel.Size())
	b.record("INITRD", start+u.initrd, p.Initrd.Size())
	return start + u.params, nil
}

func (b *isoBuilder) finish(bios bool) error {
	// Some drives read ahead of the end; mkisofs leaves 150 sectors, one cluster is
	// enough for the firmware seen.
	b.a.pad(isoSector)
	b.a.size += 16 * isoSector
	if b.err != nil {
		return b.err
	}
	head := make([]byte, isoFirstFile*isoSector)
	at := func(sector int) []byte { return head[sector*isoSector:][:isoSector] }
	b.primaryDescriptor(at(isoPrimary))
	copy(at(isoBootRecord), "\x00CD001\x01EL TORITO SPECIFICATION")
	binary.LittleEndian.PutUint32(at(isoBootRecord)[71:], isoCatalog)
	copy(at(isoTerminator), "\xffCD001\x01")
	pathTable := []byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	binary.LittleEndian.PutUint32(pathTable[2:], isoRoot)
	binary.LittleEndian.PutUint16(pathTable[6:], 1)
	copy(at(isoPathLittle), pathTable)
	binary.BigEndian.PutUint32(pathTable[2:], isoRoot)
	binary.BigEndian.PutUint16(pathTable[6:], 1)
	copy(at(isoPathBig), pathTable)
	copy(at(isoCatalog), b.catalog(bios))
	copy(at(isoRoot), b.rootDirectory())
	b.a.parts[0].src = bytes.NewReader(head)
	return nil
}
