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
		n := int(dir[at])
		if n == 0 { // no record crosses a sector
			at = (at/isoSector + 1) * isoSector
			continue
		}
		if n < 34 || at+n > len(dir) || 33+int(dir[at+32]) > n {
			return nil, problem.Invalidf("a directory of the image is damaged")
		}
		if record := dir[at : at+n]; v.name(record) == name {
			return record, nil
		}
		at += n
	}
	return nil, problem.NotFoundf("%s is not there", name)
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
	rock := ""
	for su := record[min((34+length)&^1, len(record)):]; len(su) >= 4 && su[2] >= 4 && int(su[2]) <= len(su); su = su[su[2]:] {
		if string(su[:2]) == "NM" && su[2] > 4 && su[4] <= 1 { // other flags mean the directory itself or the one above
			rock += string(su[5:su[2]])
		}
	}
	if rock != "" {
		return rock
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(text, ";1"), "."))
}
