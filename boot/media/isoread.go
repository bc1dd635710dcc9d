package media

import (
	"encoding/binary"
	"strings"
	"unicode/utf16"

	"salvor/problem"
)

// isoVolume is one tree of names in an ISO image.
type isoVolume struct {
	image  []byte
	joliet bool
}

// ReadISOFile reads one file of at most limit bytes from an ISO 9660 image that another program made. It knows the names of Rock Ridge and
// Joliet; plain names count as small letters, as in Linux. A file that is not there is NotFound. A damaged image is Invalid.
func ReadISOFile(image []byte, name string, limit int) ([]byte, error) {
	for sector := uint32(isoSystemArea); ; sector++ {
		d, err := isoVolume{image: image}.extent(sector, isoSector)
		switch {
		case err != nil || string(d[1:6]) != "CD001":
			return nil, problem.Invalidf("it is no ISO 9660 image")
		case d[0] == 255:
			return nil, problem.NotFoundf("the image has no file %s", name)
		case d[0] == 1, d[0] == 2 && string(d[88:90]) == "%/":
			content, err := isoVolume{image, d[0] == 2}.read(d[156:190], name, limit)
			if !problem.Is(err, problem.NotFound) {
				return content, err
			}
		}
	}
}

// extent gives the bytes of a file or a directory.
func (v isoVolume) extent(sector, size uint32) ([]byte, error) {
	from := int64(sector) * isoSector
	if from+int64(size) > int64(len(v.image)) {
		return nil, problem.Invalidf("the image is cut short")
	}
	return v.image[from:][:size], nil
}

// read goes down from the record of the root directory.
func (v isoVolume) read(record []byte, name string, limit int) ([]byte, error) {
	for part := range strings.SplitSeq(name, "/") {
		dir, err := v.extent(binary.LittleEndian.Uint32(record[2:]), binary.LittleEndian.Uint32(record[10:]))
		if err != nil {
			return nil, err
		}
		if record, err = v.find(dir, part); err != nil {
			return nil, err
		}
	}
	size := binary.LittleEndian.Uint32(record[10:])
	if int64(size) > int64(limit) || record[25]&^1 != 0 { // beside the hidden flag, all others mean more than one plain extent
		return nil, problem.Invalidf("%s is longer than %d bytes, or is no plain file", name, limit)
	}
	return v.extent(binary.LittleEndian.Uint32(record[2:]), size)
}

// find gives the record of a name in a directory.
func (v isoVolume) find(dir []byte, name string) ([]byte, error) {
	for at := 0; at < len(dir); {
		record, next, err := isoNext(dir, at)
		if err != nil {
			return nil, err
		}
		if record != nil && v.name(record) == name {
			return record, nil
		}
		at = next
	}
	return nil, problem.NotFoundf("%s is not there", name)
}

// ISOFiles lists all files of an ISO 9660 image that another program made, by their names in Rock Ridge, else in Joliet, else in small letters. An image
// that is damaged, or holds what is no plain file, is Invalid.
func ISOFiles(image []byte) ([]File, error) {
	var found []File
	for sector := uint32(isoSystemArea); ; sector++ {
		d, err := isoVolume{image: image}.extent(sector, isoSector)
		switch {
		case err != nil || string(d[1:6]) != "CD001":
			return nil, problem.Invalidf("it is no ISO 9660 image")
		case d[0] == 255:
			return found, nil
		case d[0] == 1, d[0] == 2 && string(d[88:90]) == "%/":
			w := isoWalk{isoVolume: isoVolume{image, d[0] == 2}}
			if err := w.directory(d[156:190], ""); err != nil {
				return nil, err
			}
			if w.rock {
				return w.files, nil
			}
			found = w.files
		}
	}
}

// Bounds of what ISOFiles reads.
const (
	maxISOEntries = 4096
	maxISODepth   = 16
)

// isoWalk collects the files of a volume.
type isoWalk struct {
	isoVolume
	files   []File
	entries int
	rock    bool // the image has names of Rock Ridge
}

func (w *isoWalk) directory(record []byte, path string) error {
	dir, err := w.extent(binary.LittleEndian.Uint32(record[2:]), binary.LittleEndian.Uint32(record[10:]))
	if err != nil {
		return err
	}
	for at := 0; at < len(dir); {
		record, next, err := isoNext(dir, at)
		if err != nil {
			return err
		}
		if at = next; record == nil || record[32] == 1 && record[33] <= 1 { // the directory itself and the one above
			continue
		}
		name := strings.TrimPrefix(path+"/"+w.name(record), "/")
		w.rock = w.rock || rockName(record) != ""
		if w.entries++; w.entries > maxISOEntries || strings.Count(name, "/") > maxISODepth {
			return problem.Invalidf("the image has more than %d entries, or directories deeper than %d", maxISOEntries, maxISODepth)
		}
		if record[25]&^1 == 2 {
			if err := w.directory(record, name); err != nil {
				return err
			}
			continue
		}
		if record[25]&^1 != 0 || hasRockLink(record) {
			return problem.Invalidf("%s in the image is no plain file", name)
		}
		content, err := w.extent(binary.LittleEndian.Uint32(record[2:]), binary.LittleEndian.Uint32(record[10:]))
		if err != nil {
			return err
		}
		w.files = append(w.files, File{Path: name, Data: bytesBlob(content)})
	}
	return nil
}

// isoNext gives the record at an offset of a directory, and where the next one is. A nil record is the rest of a sector.
func isoNext(dir []byte, at int) (record []byte, next int, err error) {
	n := int(dir[at])
	if n == 0 { // no record crosses a sector
		return nil, (at/isoSector + 1) * isoSector, nil
	}
	if n < 34 || at+n > len(dir) || 33+int(dir[at+32]) > n {
		return nil, 0, problem.Invalidf("a directory of the image is damaged")
	}
	return dir[at : at+n], at + n, nil
}

// systemUse walks the entries behind the name of a record.
func systemUse(record []byte) func(func(su []byte) bool) {
	return func(yield func([]byte) bool) {
		for su := record[min((34+int(record[32]))&^1, len(record)):]; len(su) >= 4 && su[2] >= 4 && int(su[2]) <= len(su); su = su[su[2]:] {
			if !yield(su[:su[2]]) {
				return
			}
		}
	}
}

// rockName is the name of Rock Ridge; empty: the record has none.
func rockName(record []byte) (name string) {
	for su := range systemUse(record) {
		if string(su[:2]) == "NM" && len(su) > 4 && su[4] <= 1 { // other flags mean the directory itself or the one above
			name += string(su[5:])
		}
	}
	return name
}

// hasRockLink tells whether Rock Ridge makes a symbolic link of the record.
func hasRockLink(record []byte) bool {
	for su := range systemUse(record) {
		if string(su[:2]) == "SL" {
			return true
		}
	}
	return false
}

// name gives the name of a record.
func (v isoVolume) name(record []byte) string {
	length := int(record[32])
	text := string(record[33 : 33+length])
	if v.joliet {
		var units []uint16
		for i := 0; i+1 < length; i += 2 {
			units = append(units, uint16(text[i])<<8|uint16(text[i+1]))
		}
		return strings.TrimSuffix(string(utf16.Decode(units)), ";1")
	}
	if rock := rockName(record); rock != "" {
		return rock
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(text, ";1"), "."))
}
