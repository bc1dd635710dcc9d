package disk

import (
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf16"

	"salvor/problem"
)

// Label is the kind of a partition table.
type Label string

// Labels.
const (
	NoLabel Label = ""
	GPT     Label = "gpt"
	MBR     Label = "msdos"
)

// Partition types that something here looks for.
const (
	TypeESP    = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"
	TypeLinux  = "0fc63daf-8483-4772-8e79-3d69d8477de4"
	typeVMFS   = "aa31e02a-400f-11db-9590-000c2911d1b8"
	typeGPFS   = "37affc90-ef7d-4e96-91c3-2d7ae055b174"
	mbrESP     = 0xef
	mbrLinux   = 0x83
	mbrGPT     = 0xee
	mbrVMFS    = 0xfb
	mbrEntries = 4
)

// Partition is one used entry of a table. Start and Length are in bytes.
type Partition struct {
	Number        int
	Start, Length int64
	Type          string // GUID, or two hex digits in an MBR
	ID            string // GUID; empty in an MBR
	Name          string // GPT only
}

// End is the first byte behind it.
func (p Partition) End() int64 { return p.Start + p.Length }

// Table is a partition table as it stands on a disk.
type Table struct {
	Label Label
	// DiskID is the GUID of a GPT, the signature (0x and 8 digits) of an MBR.
	DiskID     string
	Partitions []Partition

	size, sector int64
	mbr          []byte // first sector
	gpt          *gptHeader
	entries      []byte
}

// ReadTable reads the table of a disk of that size; problem.Invalid says what is wrong
// with one that is broken, a disk without any has NoLabel.
func ReadTable(r io.ReaderAt, size, sector int64) (*Table, error) {
	t := &Table{size: size, sector: sector, mbr: make([]byte, 512)}
	if size < 8*sector || sector < 512 || sector > 64<<10 {
		return t, nil
	}
	if _, err := r.ReadAt(t.mbr, 0); err != nil {
		return nil, fmt.Errorf("read the partition table: %w", err)
	}
	head := make([]byte, sector)
	if _, err := r.ReadAt(head, sector); err != nil {
		return nil, fmt.Errorf("read the partition table: %w", err)
	}
	switch {
	case string(head[:8]) == gptMagic:
		return t, t.readGPT(r, head)
	case t.mbr[510] != 0x55 || t.mbr[511] != 0xaa:
		return t, nil
	}
	for i := range mbrEntries {
		if t.mbr[446+16*i+4] == mbrGPT {
			return nil, t.protectiveOnly(r)
		}
	}
	return t, t.readMBR()
}

// protectiveOnly explains an MBR that promises a GPT where there is none.
func (t *Table) protectiveOnly(r io.ReaderAt) error {
	other := int64(512)
	if t.sector == 512 {
		other = 4096
	}
	magic := make([]byte, 8)
	if _, err := r.ReadAt(magic, other); err == nil && string(magic) == gptMagic {
		return problem.Invalidf("its GPT is for sectors of %d bytes, the disk has %d", other, t.sector)
	}
	return problem.Invalidf("it has a protective MBR, but no GPT")
}

func (t *Table) readMBR() error {
	used := 0
	for i := range mbrEntries {
		e := t.mbr[446+16*i:][:16]
		start, length := int64(le32(e[8:]))*t.sector, int64(le32(e[12:]))*t.sector
		if e[0] != 0 && e[0] != 0x80 {
			return nil // a boot sector of a file system, not a table
		}
		if e[4] == 0 || length == 0 {
			continue
		}
		if start+length > t.size || start < t.sector {
			return problem.Invalidf("partition %d of its MBR lies outside of the disk", i+1)
		}
		used++
		t.Partitions = append(t.Partitions, Partition{Number: i + 1, Start: start, Length: length, Type: fmt.Sprintf("%02x", e[4])})
	}
	if used > 0 || le32(t.mbr[440:]) != 0 {
		t.Label, t.DiskID = MBR, fmt.Sprintf("0x%08x", le32(t.mbr[440:]))
	}
	return t.overlaps()
}

// overlaps: in a table where they do, nothing may be added.
func (t *Table) overlaps() error {
	sorted := slices.Clone(t.Partitions)
	slices.SortFunc(sorted, func(a, b Partition) int { return int(min(max(a.Start-b.Start, -1), 1)) })
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Start < sorted[i-1].End() {
			return problem.Invalidf("partitions %d and %d overlap", sorted[i-1].Number, sorted[i].Number)
		}
	}
	return nil
}

// ESP is the EFI system partition, if there is one.
func (t *Table) ESP() (Partition, bool) {
	want := TypeESP
	if t.Label == MBR {
		want = fmt.Sprintf("%02x", mbrESP)
	}
	for _, p := range t.Partitions {
		if p.Type == want {
			return p, true
		}
	}
	return Partition{}, false
}

// room finds where n bytes fit, as far behind as can be and on a whole MiB.
func (t *Table) room(n, first, end int64) (int64, error) {
	ends := []int64{end}
	for _, p := range t.Partitions {
		ends = append(ends, p.Start)
	}
	slices.Sort(ends)
	for _, e := range slices.Backward(ends) {
		start := (min(e, end) - n) / mebi * mebi
		if start >= max(first, mebi) && !slices.ContainsFunc(t.Partitions, func(p Partition) bool { return start < p.End() && p.Start < start+n }) {
			return start, nil
		}
	}
	return 0, problem.Invalidf("no %d MiB are free on the disk", n/mebi)
}

// Add makes a partition of n bytes at the end of the disk and writes the table. name
// is kept by a GPT only.
func (t *Table) Add(w io.WriterAt, n int64, name string) (Partition, error) {
	switch t.Label {
	case GPT:
		return t.addGPT(w, n, name)
	case MBR:
		return t.addMBR(w, n)
	}
	return Partition{}, problem.Invalidf("the disk has no partition table to add a partition to")
}

func (t *Table) addMBR(w io.WriterAt, n int64) (Partition, error) {
	free := -1
	for i := range mbrEntries {
		if t.mbr[446+16*i+4] == 0 {
			free = i
			break
		}
	}
	if free < 0 {
		return Partition{}, problem.Invalidf("all 4 partitions of the MBR are in use: an image with a GPT has room for more")
	}
	start, err := t.room(n, t.sector, min(t.size, int64(1)<<32*t.sector))
	if err != nil {
		return Partition{}, err
	}
	e := t.mbr[446+16*free:][:16]
	// Without geometry: 1023, 254, 63 says "by LBA".
	copy(e, []byte{0, 0xfe, 0xff, 0xff, mbrLinux, 0xfe, 0xff, 0xff})
	put32(e[8:], uint32(start/t.sector))
	put32(e[12:], uint32(n/t.sector))
	p := Partition{Number: free + 1, Start: start, Length: n, Type: fmt.Sprintf("%02x", mbrLinux)}
	t.Partitions = append(t.Partitions, p)
	_, err = w.WriteAt(t.mbr, 0)
	return p, err
}

// guid is the text of one on the disk: three fields little-endian, two as they are.
func guid(b []byte) string {
	c := []byte{b[3], b[2], b[1], b[0], b[5], b[4], b[7], b[6]}
	text := hex.EncodeToString(append(c, b[8:16]...))
	return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-")
}

// GUIDBytes is the reverse of a GUID's text; the text has to be one.
func GUIDBytes(text string) ([16]byte, error) {
	var out [16]byte
	b, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(b) != 16 {
		return out, problem.Invalidf("%.60q is no GUID", text)
	}
	copy(out[:], append([]byte{b[3], b[2], b[1], b[0], b[5], b[4], b[7], b[6]}, b[8:]...))
	return out, nil
}

func utf16Text(b []byte) string {
	var units []uint16
	for i := 0; i+1 < len(b); i += 2 {
		u := uint16(b[i]) | uint16(b[i+1])<<8
		if u == 0 {
			break
		}
		units = append(units, u)
	}
	return string(utf16.Decode(units))
}
