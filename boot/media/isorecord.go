package media

import (
	"encoding/binary"
	"sort"
	"strings"
)

// both32 writes n in little and in big endian, as ECMA-119 7.3.3 has it.
func both32(b []byte, n uint32) {
	binary.LittleEndian.PutUint32(b, n)
	binary.BigEndian.PutUint32(b[4:], n)
}

func both16(b []byte, n uint16) {
	binary.LittleEndian.PutUint16(b, n)
	binary.BigEndian.PutUint16(b[2:], n)
}

// isoDate is 1 January 2000: images carry no time of their making.
var isoDate = []byte{100, 1, 1, 0, 0, 0, 0}

// primaryDescriptor fills in ECMA-119 8.4.
func (b *isoBuilder) primaryDescriptor(d []byte) {
	copy(d, "\x01CD001\x01")
	copy(d[8:72], strings.Repeat(" ", 64))
	copy(d[40:], isoVolumeLabel)
	both32(d[80:], uint32(b.a.size/isoSector))
	both16(d[120:], 1)
	both16(d[124:], 1)
	both16(d[128:], isoSector)
	both32(d[132:], 10)
	binary.LittleEndian.PutUint32(d[140:], isoPathLittle)
	binary.BigEndian.PutUint32(d[148:], isoPathBig)
	copy(d[156:], isoRecord("\x00", isoRoot, isoSector, true))
	copy(d[190:813], strings.Repeat(" ", 813-190))
	for _, at := range []int{813, 830, 847, 864} {
		copy(d[at:], "0000000000000000")
	}
	d[881] = 1
}

func (b *isoBuilder) rootDirectory() []byte {
	dir := append(isoRecord("\x00", isoRoot, isoSector, true), isoRecord("\x01", isoRoot, isoSector, true)...)
	sort.Slice(b.files, func(i, j int) bool { return b.files[i].name < b.files[j].name })
	for _, f := range b.files {
		name := f.name
		if !strings.Contains(name, ".") {
			name += "."
		}
		dir = append(dir, isoRecord(name+";1", f.sector, f.size, false)...)
	}
	return dir
}

// isoRecord is a directory record, ECMA-119 9.1.
func isoRecord(name string, sector, size uint32, dir bool) []byte {
	r := make([]byte, (33+len(name)+1)&^1)
	r[0] = byte(len(r))
	both32(r[2:], sector)
	both32(r[10:], size)
	copy(r[18:], isoDate)
	if dir {
		r[25] = 2
	}
	both16(r[28:], 1)
	r[32] = byte(len(name))
	copy(r[33:], name)
	return r
}

const (
	platformBIOS = 0
	platformEFI  = 0xef
)

// catalog is the El Torito boot catalog: a validation entry, the default entry and,
// where both ways are there, a section for UEFI.
func (b *isoBuilder) catalog(bios bool) []byte {
	c := make([]byte, 64, 128)
	c[0] = 1
	first := bootEntry(b.efi.sector, efiSectors(b.efi.size))
	if bios {
		c[1] = platformBIOS
		first = bootEntry(b.isolinux.sector, isolinuxLoad)
	} else {
		c[1] = platformEFI
	}
	copy(c[4:28], "SALVOR")
	c[30], c[31] = 0x55, 0xaa
	var sum uint16
	for i := 0; i < 32; i += 2 {
		sum += binary.LittleEndian.Uint16(c[i:])
	}
	binary.LittleEndian.PutUint16(c[28:], -sum)
	copy(c[32:], first)
	if bios && b.efi.sector != 0 {
		section := make([]byte, 32)
		section[0], section[1] = 0x91, platformEFI
		binary.LittleEndian.PutUint16(section[2:], 1)
		c = append(c, section...)
		c = append(c, bootEntry(b.efi.sector, efiSectors(b.efi.size))...)
	}
	return c
}

// efiSectors counts sectors of 512 bytes. Where 16 bits are too few it is 0, which
// UEFI (13.3.2.1) reads as "to the end of the disc"; the partition is the last file.
func efiSectors(size uint32) uint16 {
	if n := (uint64(size) + 511) / 512; n < 1<<16 {
		return uint16(n)
	}
	return 0
}

func bootEntry(sector uint32, count uint16) []byte {
	e := make([]byte, 32)
	e[0] = 0x88
	binary.LittleEndian.PutUint16(e[6:], count)
	binary.LittleEndian.PutUint32(e[8:], sector)
	return e
}
