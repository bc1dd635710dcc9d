package media

import (
	"encoding/binary"
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf16"

	"salvor/problem"
)

// maxFATName is the length of a long name in UTF-16, as FAT bounds it.
const maxFATName = 255

// DataFAT makes a FAT volume that boots nothing: files in directories, with long names, under a label that is kept as it is written ("config-2"). The
// volume has sectors of a size in bytes. Linux mounts no FAT volume whose sectors are smaller than those of its disk, and no ISO 9660 at all from sectors of
// more than 2048 bytes. A path that FAT cannot hold is Invalid.
func DataFAT(label string, files []File, sector int64) (Blob, error) {
	if sector < fatSector || sector > 4096 || sector&(sector-1) != 0 {
		return nil, problem.Invalidf("FAT volume: sectors of %d bytes; 512, 1024, 2048 and 4096 are known", sector)
	}
	if label == "" || len(label) > 11 || !dataName(label) {
		return nil, problem.Invalidf("FAT volume: the label %.40q is not 1 to 11 plain characters", label)
	}
	root := &fatNode{dir: true}
	for _, f := range files {
		if err := root.insertLong(f); err != nil {
			return nil, err
		}
	}
	volume, _, err := fatVolume(root, fatLayout{sector: sector, rootEntries: int(max(sector/fatEntry, 512)), cluster: max(fatCluster, sector), label: (label + "           ")[:11]})
	return volume, err
}

// insertLong puts a file into the tree below a root, and makes the directories of its path.
func (n *fatNode) insertLong(f File) error {
	if path.Clean(f.Path) != f.Path || strings.HasPrefix(f.Path, "/") || strings.Count(f.Path, "/") > maxISODepth {
		return problem.Invalidf("FAT volume: %.100q is not a relative path of at most %d names", f.Path, maxISODepth+1)
	}
	names := strings.Split(f.Path, "/")
	for i, name := range names {
		if !longName(name) {
			return problem.Invalidf("FAT volume: %.100q: FAT cannot hold the name %.100q", f.Path, name)
		}
		last, found := i == len(names)-1, (*fatNode)(nil)
		for _, c := range n.children {
			if strings.EqualFold(c.name, name) {
				found = c
			}
		}
		switch {
		case found == nil:
			found = &fatNode{name: name, dir: !last}
			if last {
				found.data = f.Data
			}
			found.spell(len(n.children))
			n.children = append(n.children, found)
		case last || !found.dir || found.name != name: // names that differ in capitals only are one name
			return problem.Invalidf("FAT volume: %.100q is there already under this name", f.Path)
		}
		n = found
	}
	return nil
}

// longName tells whether FAT can hold a name.
func longName(name string) bool {
	return name != "" && name != "." && name != ".." && len(utf16.Encode([]rune(name))) <= maxFATName && strings.TrimRight(name, " .") == name &&
		!strings.ContainsFunc(name, func(c rune) bool {
			return c == unicode.ReplacementChar || unicode.IsControl(c) || strings.ContainsRune(`"*/:<>?\|`, c)
		})
}

// spell gives a node the records of its long name, and the short name that belongs to them: the number in its directory makes it the only one.
func (n *fatNode) spell(number int) {
	if fatName(n.name) {
		n.short = fatShort(n.name)
		return
	}
	plain := strings.Map(func(c rune) rune {
		if c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return -1
	}, strings.ToUpper(n.name))
	tail := fmt.Sprintf("~%d", number+1)
	n.short = fatShort(plain[:min(len(plain), 8-len(tail))] + tail)
	units := utf16.Encode([]rune(n.name))
	count := (len(units) + 12) / 13
	if len(units)%13 != 0 {
		units = append(units, 0)
	}
	for len(units) < 13*count {
		units = append(units, 0xffff)
	}
	for i := count; i > 0; i-- { // the last part comes first
		record := make([]byte, fatEntry)
		record[0], record[11], record[13] = byte(i), 0x0f, fatChecksum(n.short)
		if i == count {
			record[0] |= 0x40
		}
		for j, at := range []int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30} {
			binary.LittleEndian.PutUint16(record[at:], units[13*(i-1)+j])
		}
		n.long = append(n.long, record...)
	}
}

// fatChecksum ties a long name to its short name.
func fatChecksum(short string) (sum byte) {
	for i := range len(short) {
		sum = sum>>1 | sum<<7
		sum += short[i]
	}
	return sum
}
