package efi

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"

	"salvor/problem"
)

// Bounds of what is read: an ESP of an image that somebody else made.
const (
	maxEntries = 4096
	maxFile    = 64 << 10
	entrySize  = 32
)

// fatVolume is a FAT file system, for reading only. Done here, since a mount wants a module,
// a device node and trust in the kernel's reading of a hostile one.
type fatVolume struct {
	r                  io.ReaderAt
	base               int64 // of the partition
	cluster            int64 // bytes
	fatAt, dataAt      int64
	rootAt, rootLength int64 // of FAT12 and FAT16
	rootCluster        uint32
	clusters           uint32
	bits               int
}

// fatEntry is a file or folder.
type fatEntry struct {
	name  string
	dir   bool
	first uint32
	size  int64
}

func openFAT(r io.ReaderAt, base, length int64) (*fatVolume, error) {
	b := make([]byte, 512)
	if _, err := r.ReadAt(b, base); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	sector, per, reserved := int64(le.Uint16(b[11:])), int64(b[13]), int64(le.Uint16(b[14:]))
	fats, roots := int64(b[16]), int64(le.Uint16(b[17:]))
	total, size := int64(le.Uint16(b[19:])), int64(le.Uint16(b[22:]))
	if total == 0 {
		total = int64(le.Uint32(b[32:]))
	}
	wide := size == 0
	if wide {
		size = int64(le.Uint32(b[36:]))
	}
	if b[510] != 0x55 || b[511] != 0xaa || sector < 512 || sector > 4096 || sector&(sector-1) != 0 || per == 0 || per&(per-1) != 0 ||
		reserved == 0 || fats == 0 || fats > 4 || size == 0 || total*sector > length {
		return nil, problem.Invalidf("it is no FAT file system")
	}
	f := &fatVolume{r: r, base: base, cluster: sector * per, fatAt: reserved * sector}
	f.rootAt = f.fatAt + fats*size*sector
	f.rootLength = roots * entrySize
	f.dataAt = f.rootAt + (f.rootLength+sector-1)/sector*sector
	if f.dataAt >= total*sector {
		return nil, problem.Invalidf("its FAT has no room for files")
	}
	f.clusters = uint32((total*sector - f.dataAt) / f.cluster)
	switch {
	case wide:
		f.bits, f.rootCluster, f.rootLength = 32, le.Uint32(b[44:]), 0
	case f.clusters < 4085:
		f.bits = 12
	default:
		f.bits = 16
	}
	if int64(f.clusters+2)*int64(f.bits)/8 > size*sector {
		return nil, problem.Invalidf("its FAT is too short")
	}
	return f, nil
}

// next follows the chain; false at its end.
func (f *fatVolume) next(c uint32) (uint32, bool, error) {
	b := make([]byte, 4)
	at := int64(c) * int64(f.bits) / 8
	if _, err := f.r.ReadAt(b[:(f.bits+7)/8], f.base+f.fatAt+at); err != nil {
		return 0, false, err
	}
	v := binary.LittleEndian.Uint32(b)
	switch {
	case f.bits == 12 && c&1 == 1:
		v = v >> 4 & 0xfff
	case f.bits == 12:
		v &= 0xfff
	case f.bits == 16:
		v &= 0xffff
	default:
		v &= 0x0fffffff
	}
	return v, v >= 2 && v < f.clusters+2, nil
}

// content reads a chain, at most so many bytes.
func (f *fatVolume) content(first uint32, most int64) ([]byte, error) {
	var out []byte
	part := make([]byte, f.cluster)
	for c, ok := first, first >= 2 && first < f.clusters+2; ok && int64(len(out)) < most; {
		if _, err := f.r.ReadAt(part, f.base+f.dataAt+int64(c-2)*f.cluster); err != nil {
			return nil, err
		}
		out = append(out, part...)
		var err error
		if c, ok, err = f.next(c); err != nil {
			return nil, err
		}
	}
	return out[:min(int64(len(out)), most)], nil
}

func (f *fatVolume) root() ([]fatEntry, error) {
	if f.bits == 32 {
		return f.list(fatEntry{first: f.rootCluster})
	}
	b := make([]byte, min(f.rootLength, maxEntries*entrySize))
	if _, err := f.r.ReadAt(b, f.base+f.rootAt); err != nil {
		return nil, err
	}
	return readEntries(b), nil
}

func (f *fatVolume) list(dir fatEntry) ([]fatEntry, error) {
	b, err := f.content(dir.first, maxEntries*entrySize)
	return readEntries(b), err
}

// readEntries reads a folder: long names come before the short entry that they are of.
func readEntries(b []byte) []fatEntry {
	var out []fatEntry
	long := map[int][]uint16{}
	for ; len(b) >= entrySize && b[0] != 0; b = b[entrySize:] {
		switch attr := b[11]; {
		case b[0] == 0xe5:
			clear(long)
		case attr == 0x0f:
			var units []uint16
			for _, at := range []int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30} {
				units = append(units, binary.LittleEndian.Uint16(b[at:]))
			}
			long[int(b[0]&0x3f)] = units
		case attr&0x08 != 0:
			clear(long)
		default:
			e := fatEntry{name: longName(long), dir: attr&0x10 != 0, size: int64(binary.LittleEndian.Uint32(b[28:]))}
			e.first = uint32(binary.LittleEndian.Uint16(b[20:]))<<16 | uint32(binary.LittleEndian.Uint16(b[26:]))
			if e.name == "" {
				e.name = shortName(b)
			}
			clear(long)
			out = append(out, e)
		}
	}
	return out
}

func longName(parts map[int][]uint16) string {
	var units []uint16
	for i := 1; i <= len(parts); i++ {
		for _, u := range parts[i] {
			if u == 0 {
				return string(utf16.Decode(units))
			}
			units = append(units, u)
		}
	}
	return string(utf16.Decode(units))
}

// shortName has two bits for names that are lower case but for that short.
func shortName(b []byte) string {
	name, ext := strings.TrimRight(string(b[:8]), " "), strings.TrimRight(string(b[8:11]), " ")
	if b[12]&0x08 != 0 {
		name = strings.ToLower(name)
	}
	if b[12]&0x10 != 0 {
		ext = strings.ToLower(ext)
	}
	if ext != "" {
		return name + "." + ext
	}
	return name
}

// find looks a path up, without regard to case.
func (f *fatVolume) find(path ...string) (fatEntry, error) {
	list, err := f.root()
	var at fatEntry
	for _, want := range path {
		if err != nil {
			return at, err
		}
		found := false
		for _, e := range list {
			if strings.EqualFold(e.name, want) {
				at, found = e, true
				break
			}
		}
		if !found {
			return at, problem.NotFoundf("there is no \\%s", strings.Join(path, "\\"))
		}
		if at.dir {
			list, err = f.list(at)
		} else {
			list = nil
		}
	}
	return at, err
}

// read gives a small file.
func (f *fatVolume) read(e fatEntry) ([]byte, error) {
	if e.dir || e.size > maxFile {
		return nil, problem.Invalidf("%s is no file of up to %d bytes", e.name, maxFile)
	}
	b, err := f.content(e.first, e.size)
	if err == nil && int64(len(b)) < e.size {
		err = fmt.Errorf("%s is cut off", e.name)
	}
	return b, err
}
