package media

import "encoding/binary"

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
func (d *isoImage) catalog() []byte {
	c := make([]byte, 32, 128)
	c[0] = 1
	c[1] = platformEFI
	if d.bios != nil {
		c[1] = platformBIOS
	}
	copy(c[4:28], "SALVOR")
	c[30], c[31] = 0x55, 0xaa
	var sum uint16
	for i := 0; i < 32; i += 2 {
		sum += binary.LittleEndian.Uint16(c[i:])
	}
	binary.LittleEndian.PutUint16(c[28:], -sum)
	if d.bios != nil {
		c = append(c, bootEntry(d.bios.sector, isolinuxLoad)...)
	}
	if d.efi == nil {
		return c
	}
	if d.bios != nil {
		section := make([]byte, 32)
		section[0], section[1] = 0x91, platformEFI
		binary.LittleEndian.PutUint16(section[2:], 1)
		c = append(c, section...)
	}
	return append(c, bootEntry(d.efi.sector, efiSectors(d.efi.data.Size()))...)
}

// efiSectors counts sectors of 512 bytes. Where 16 bits are too few it is 0, which
// UEFI (13.3.2.1) reads as "to the end of the disc"; the partition is the last file.
func efiSectors(size int64) uint16 {
	if n := (size + 511) / 512; n < 1<<16 {
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
