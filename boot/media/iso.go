package media

import (
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
	isoVolumeLabel = "SALVOR"
)

// ISO makes a CD image that boots by BIOS (where Isolinux and Ldlinux are given) and by UEFI
// (where Shim and Grub are given, or Stub); at least one is needed. Kernel and ramdisk are in it
// once: the directories of the CD point into the EFI system partition.
func ISO(p Parts) (*Image, error) {
	params, err := p.params()
	if err != nil {
		return nil, err
	}
	bios := p.Isolinux != nil && p.Ldlinux != nil
	uefi := p.Stub != nil || p.Signed()
	if p.Kernel == nil || p.Initrd == nil || !bios && !uefi {
		return nil, problem.Invalidf("ISO image: kernel, ramdisk, and the boot loader of BIOS or UEFI are needed")
	}
	d := newISOImage(isoVolumeLabel)
	d.boots = true
	var loader []byte
	var config *isoFile
	if bios {
		if loader, err = readIsolinux(p.Isolinux); err != nil {
			return nil, err
		}
		d.bios = d.add("isolinux.bin", bytesBlob(loader))
		d.add("ldlinux.c32", p.Ldlinux)
		config = d.add("isolinux.cfg", bytesBlob([]byte(isolinuxHead+params+strings.Repeat("\n", fieldSize-len(params)))))
	}
	var esp systemPartition
	if uefi {
		if esp, err = newSystemPartition(p, params); err != nil {
			return nil, err
		}
		d.efi = d.add("efi.img", esp.volume)
		for name, at := range esp.files {
			d.addInside(name, at.data, d.efi, at.offset)
		}
	} else {
		d.add("kernel", p.Kernel)
		d.add("initrd", p.Initrd)
	}
	if d.err != nil {
		return nil, d.err
	}
	d.place()
	var fields []Field
	if bios {
		patchIsolinux(loader, d.bios.sector)
		fields = append(fields, Field{Offset: int64(config.sector)*isoSector + int64(len(isolinuxHead)), Size: fieldSize, Pad: '\n'})
	}
	if uefi {
		fields = append(fields, Field{Offset: int64(d.efi.sector)*isoSector + esp.params, Size: fieldSize, Pad: ' '})
	}
	return NewImage(d.blob(), Layout{Size: d.a.size, Fields: fields})
}

const isolinuxHead = "DEFAULT s\nPROMPT 0\nTIMEOUT 0\nLABEL s\nKERNEL /kernel\nINITRD /initrd\nAPPEND "

func readIsolinux(b Blob) ([]byte, error) {
	if b.Size() > maxIsolinux || b.Size() < 64 {
		return nil, problem.Invalidf("isolinux.bin: %d bytes", b.Size())
	}
	loader, err := io.ReadAll(io.NewSectionReader(b, 0, b.Size()))
	if err != nil {
		return nil, fmt.Errorf("read isolinux.bin: %w", err)
	}
	return append(loader, make([]byte, roundUp(int64(len(loader)), 4)-int64(len(loader)))...), nil
}

// patchIsolinux writes the table by which isolinux finds itself on the disc, as mkisofs documents it.
func patchIsolinux(loader []byte, sector uint32) {
	le := binary.LittleEndian
	clear(loader[8:64])
	le.PutUint32(loader[8:], isoSystemArea) // the primary descriptor
	le.PutUint32(loader[12:], sector)
	le.PutUint32(loader[16:], uint32(len(loader)))
	var sum uint32
	for i := 64; i < len(loader); i += 4 {
		sum += le.Uint32(loader[i:])
	}
	le.PutUint32(loader[20:], sum)
}
