package media

import (
	"cmp"
	"encoding/binary"
	"path"
	"slices"
	"strings"
	"unicode/utf16"

	"salvor/problem"
)

const (
	maxDataFiles  = 512
	maxISOName    = 30
	maxJolietName = 64
)

// DataISO makes a CD image that boots nothing: files in directories, under a volume label
// that is kept as it is written ("config-2"). The long names are Joliet's; systems without
// it see the names in capitals, which Linux shows in small letters. A path that does not
// fit both is Invalid.
func DataISO(label string, files []File) (Blob, error) {
	if label == "" || len(label) > 16 || !dataName(label) {
		return nil, problem.Invalidf("CD image: the label %.40q is not 1 to 16 plain characters", label)
	}
	if len(files) > maxDataFiles {
		return nil, problem.Invalidf("CD image: %d files, at most %d", len(files), maxDataFiles)
	}
	d := newISOImage(label)
	for _, f := range files {
		if err := d.insert(f.Path, &isoFile{data: f.Data}); err != nil {
			return nil, err
		}
	}
	d.place()
	return d.blob(), nil
}

// isoDir is a directory; its place and length differ between the two trees.
type isoDir struct {
	name   string
	parent *isoDir
	dirs   []*isoDir
	files  []*isoFile
	number uint16
	sector [2]uint32
	length [2]uint32
}

type isoFile struct {
	name   string
	data   Blob
	sector uint32
	// within is the file that this one is a part of, from offset on; nil for a file with a place of its own.
	within *isoFile
	offset int64
}

// isoImage lays out: descriptors, the boot catalog, path tables, directories, files.
type isoImage struct {
	a      assembly
	label  string
	root   *isoDir
	all    []*isoDir // breadth first, as the path tables list them
	table  [2]uint32 // first sector of the tables of each tree
	length [2]uint32 // of a path table, in bytes
	// boots says that firmware starts the image: bios by the first one, UEFI by the second; nil where it does not.
	boots     bool
	bios, efi *isoFile
	err       error // of add and addInside
}

func newISOImage(label string) *isoImage {
	d := &isoImage{label: label, root: &isoDir{}}
	d.root.parent = d.root
	return d
}

// add puts a file in. A path or a size that does not fit sets d.err.
func (d *isoImage) add(path string, data Blob) *isoFile { return d.addInside(path, data, nil, 0) }

// addInside puts a file in that lies in another file already.
func (d *isoImage) addInside(path string, data Blob, within *isoFile, offset int64) *isoFile {
	f := &isoFile{data: data, within: within, offset: offset}
	if err := d.insert(path, f); err != nil && d.err == nil {
		d.err = err
	}
	return f
}

// The sectors before the path tables. An image that boots has the boot record second, as El Torito demands, and the catalog last.
func (d *isoImage) joliet() uint32 {
	if d.boots {
		return isoSystemArea + 2
	}
	return isoSystemArea + 1
}
func (d *isoImage) catalogSector() uint32 { return d.joliet() + 2 }
func (d *isoImage) firstTable() uint32 {
	if d.boots {
		return d.catalogSector() + 1
	}
	return d.joliet() + 2
}

// scheme is how one of the two trees spells names.
type scheme int

const (
	plainNames scheme = iota
	jolietNames
)

func (s scheme) spell(name string) string {
	if s == plainNames {
		return strings.ToUpper(name)
	}
	var out []byte
	for _, u := range utf16.Encode([]rune(name)) {
		out = binary.BigEndian.AppendUint16(out, u)
	}
	return string(out)
}

// file spells the name of a file with its version, which Joliet does without.
func (s scheme) file(name string) string {
	if s == plainNames {
		if !strings.Contains(name, ".") {
			name += "."
		}
		return s.spell(name) + ";1"
	}
	return s.spell(name)
}

func dataName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.') {
			return false
		}
	}
	return s != "" && s != "." && s != ".."
}

func (d *isoImage) insert(at string, f *isoFile) error {
	if path.Clean(at) != at || strings.HasPrefix(at, "/") || strings.Count(at, "/") > 7 {
		return problem.Invalidf("CD image: %.100q is not a relative path of at most 8 names", at)
	}
	dir, names := d.root, strings.Split(at, "/")
	for _, name := range names {
		if !dataName(name) || len(name) > maxISOName || len(name) > maxJolietName {
			return problem.Invalidf("CD image: %.100q: each name is 1 to %d plain characters", at, maxISOName)
		}
	}
	for _, name := range names[:len(names)-1] {
		dir = dir.enter(name)
		if dir == nil {
			return problem.Invalidf("CD image: %.100q: %s is there already under this name", at, name)
		}
	}
	name := names[len(names)-1]
	if dir.taken(name) {
		return problem.Invalidf("CD image: %.100q is there twice", at)
	}
	if f.data.Size() > 1<<32-1 {
		return problem.Invalidf("CD image: %.100q has %d bytes", at, f.data.Size())
	}
	f.name = name
	dir.files = append(dir.files, f)
	return nil
}

// taken compares as the plain tree does, in which capitals are small letters.
func (d *isoDir) taken(name string) bool {
	return slices.ContainsFunc(d.files, func(f *isoFile) bool { return strings.EqualFold(f.name, name) }) ||
		slices.ContainsFunc(d.dirs, func(c *isoDir) bool { return strings.EqualFold(c.name, name) })
}

func (d *isoDir) enter(name string) *isoDir {
	for _, c := range d.dirs {
		if c.name == name {
			return c
		}
	}
	if d.taken(name) {
		return nil
	}
	c := &isoDir{name: name, parent: d}
	d.dirs = append(d.dirs, c)
	return c
}

// order sorts every directory and numbers them as the path tables do.
func (d *isoImage) order() {
	d.all = []*isoDir{d.root}
	for i := 0; i < len(d.all); i++ {
		dir := d.all[i]
		dir.number = uint16(i + 1)
		slices.SortFunc(dir.dirs, func(a, b *isoDir) int { return cmp.Compare(strings.ToUpper(a.name), strings.ToUpper(b.name)) })
		slices.SortFunc(dir.files, func(a, b *isoFile) int { return cmp.Compare(strings.ToUpper(a.name), strings.ToUpper(b.name)) })
		d.all = append(d.all, dir.dirs...)
	}
}

// place gives tables, directories and files their sectors. The EFI system partition is the last file: see efiSectors.
func (d *isoImage) place() {
	d.order()
	next := d.firstTable()
	for s := range d.table {
		d.table[s] = next
		d.length[s] = uint32(len(d.pathTable(scheme(s), binary.LittleEndian)))
		next += 2 * sectors(d.length[s])
	}
	for s := range d.table {
		for _, dir := range d.all {
			dir.sector[s] = next
			dir.length[s] = uint32(roundUp(int64(len(d.directory(dir, scheme(s)))), isoSector))
			next += sectors(dir.length[s])
		}
	}
	d.a.parts = append(d.a.parts, part{off: 0, size: int64(next) * isoSector})
	d.a.size = int64(next) * isoSector
	var inside []*isoFile
	for _, dir := range d.all {
		for _, f := range dir.files {
			if f.within != nil {
				inside = append(inside, f)
			} else if f != d.efi {
				d.placeFile(f)
			}
		}
	}
	if d.efi != nil {
		d.placeFile(d.efi)
	}
	for _, f := range inside {
		f.sector = f.within.sector + uint32(f.offset/isoSector)
	}
	// Some drives read ahead of the end; mkisofs leaves 150 sectors, these are enough for the firmware that was tried.
	d.a.pad(isoSector)
	d.a.size += 16 * isoSector
}

func (d *isoImage) placeFile(f *isoFile) {
	f.sector = uint32(d.a.add(isoSector, f.data, f.data.Size()) / isoSector)
}

// blob writes what comes before the files, and gives the whole image.
func (d *isoImage) blob() Blob {
	d.a.parts[0].src = bytesBlob(d.head())
	return d.a.blob()
}

func sectors(bytes uint32) uint32 { return (bytes + isoSector - 1) / isoSector }

// head writes all that comes before the files.
func (d *isoImage) head() []byte {
	head := make([]byte, d.a.parts[0].size)
	at := func(sector uint32) []byte { return head[int64(sector)*isoSector:] }
	d.descriptor(at(isoSystemArea), plainNames)
	d.descriptor(at(d.joliet()), jolietNames)
	copy(at(d.joliet()+1), "\xffCD001\x01")
	if d.boots {
		copy(at(isoSystemArea+1), "\x00CD001\x01EL TORITO SPECIFICATION")
		binary.LittleEndian.PutUint32(at(isoSystemArea + 1)[71:], d.catalogSector())
		copy(at(d.catalogSector()), d.catalog())
	}
	for s := range d.table {
		copy(at(d.table[s]), d.pathTable(scheme(s), binary.LittleEndian))
		copy(at(d.table[s]+sectors(d.length[s])), d.pathTable(scheme(s), binary.BigEndian))
		for _, dir := range d.all {
			copy(at(dir.sector[s]), d.directory(dir, scheme(s)))
		}
	}
	return head
}

// descriptor fills in ECMA-119 8.4 and, for Joliet, 8.5.
func (d *isoImage) descriptor(b []byte, s scheme) {
	copy(b, "\x01CD001\x01")
	blank, label := strings.Repeat(" ", 128), d.label
	if s == jolietNames {
		b[0] = 2
		copy(b[88:], "%/E") // UCS-2 level 3
		blank, label = s.spell(blank), s.spell(label)
	}
	copy(b[8:72], blank)
	copy(b[40:72], label)
	both32(b[80:], uint32(d.a.size/isoSector))
	both16(b[120:], 1)
	both16(b[124:], 1)
	both16(b[128:], isoSector)
	both32(b[132:], d.length[s])
	binary.LittleEndian.PutUint32(b[140:], d.table[s])
	binary.BigEndian.PutUint32(b[148:], d.table[s]+sectors(d.length[s]))
	copy(b[156:190], isoRecord("\x00", d.root.sector[s], d.root.length[s], true))
	for at := 190; at < 813; at += len(blank) {
		copy(b[at:813], blank)
	}
	for _, at := range []int{813, 830, 847, 864} {
		copy(b[at:], "0000000000000000")
	}
	b[881] = 1
}

// pathTable lists the directories, ECMA-119 9.4.
func (d *isoImage) pathTable(s scheme, order binary.AppendByteOrder) []byte {
	var out []byte
	for _, dir := range d.all {
		name := "\x00"
		if dir != d.root {
			name = s.spell(dir.name)
		}
		out = append(out, byte(len(name)), 0)
		out = order.AppendUint32(out, dir.sector[s])
		out = order.AppendUint16(out, dir.parent.number)
		out = append(out, name...)
		if len(name)%2 == 1 {
			out = append(out, 0)
		}
	}
	return out
}

// directory lists what is in it; no record crosses a sector (ECMA-119 6.8.1.1).
func (d *isoImage) directory(dir *isoDir, s scheme) []byte {
	records := [][]byte{
		isoRecord("\x00", dir.sector[s], dir.length[s], true),
		isoRecord("\x01", dir.parent.sector[s], dir.parent.length[s], true),
	}
	type named struct {
		key    string
		record []byte
	}
	var rest []named
	for _, c := range dir.dirs {
		name := s.spell(c.name)
		rest = append(rest, named{name, isoRecord(name, c.sector[s], c.length[s], true)})
	}
	for _, f := range dir.files {
		name := s.file(f.name)
		rest = append(rest, named{name, isoRecord(name, f.sector, uint32(f.data.Size()), false)})
	}
	slices.SortFunc(rest, func(a, b named) int { return cmp.Compare(a.key, b.key) })
	for _, r := range rest {
		records = append(records, r.record)
	}
	var out []byte
	for _, r := range records {
		if left := isoSector - len(out)%isoSector; left < len(r) {
			out = append(out, make([]byte, left)...)
		}
		out = append(out, r...)
	}
	return out
}
