package disk

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"unicode/utf16"

	"salvor/problem"
)

const (
	gptMagic   = "EFI PART"
	gptHead    = 92
	maxEntries = 1 << 20 // bytes of a table
)

// gptHeader is the part of a GPT header that something here uses; in sectors.
type gptHeader struct {
	raw                 []byte // one sector
	own, other          int64
	firstUsable, usable int64
	entries             int64
	count, entrySize    int64
}

func (t *Table) readGPT(r io.ReaderAt, head []byte) error {
	h, err := parseGPT(head, t.size/t.sector)
	if err != nil {
		return err
	}
	entries := make([]byte, h.count*h.entrySize)
	if _, err := r.ReadAt(entries, h.entries*t.sector); err != nil {
		return fmt.Errorf("read the entries of the GPT: %w", err)
	}
	if crc32.ChecksumIEEE(entries) != le32(head[88:]) {
		return problem.Invalidf("the checksum of its GPT's entries is wrong")
	}
	t.Label, t.DiskID, t.gpt, t.entries = GPT, guid(head[56:72]), h, entries
	for i := range h.count {
		e := entries[i*h.entrySize:][:h.entrySize]
		if bytes.Equal(e[:16], make([]byte, 16)) {
			continue
		}
		first, last := le64(e[32:]), le64(e[40:])
		if first > last || last >= uint64(t.size/t.sector) || int64(first) < 1 {
			return problem.Invalidf("partition %d of its GPT lies outside of the disk", i+1)
		}
		t.Partitions = append(t.Partitions, Partition{
			Number: int(i + 1), Start: int64(first) * t.sector, Length: int64(last-first+1) * t.sector,
			Type: guid(e[:16]), ID: guid(e[16:32]), Name: utf16Text(e[56:128]),
		})
	}
	return t.overlaps()
}

// parseGPT checks a primary header of a disk with so many sectors.
func parseGPT(head []byte, sectors int64) (*gptHeader, error) {
	size := le32(head[12:])
	if size < gptHead || int(size) > len(head) {
		return nil, problem.Invalidf("its GPT header claims %d bytes", size)
	}
	sum := bytes.Clone(head[:size])
	put32(sum[16:], 0)
	if crc32.ChecksumIEEE(sum) != le32(head[16:]) {
		return nil, problem.Invalidf("the checksum of its GPT header is wrong")
	}
	h := &gptHeader{
		raw: bytes.Clone(head), own: int64(le64(head[24:])), other: int64(le64(head[32:])),
		firstUsable: int64(le64(head[40:])), usable: int64(le64(head[48:])), entries: int64(le64(head[72:])),
		count: int64(le32(head[80:])), entrySize: int64(le32(head[84:])),
	}
	switch {
	case h.own != 1:
		return nil, problem.Invalidf("its GPT header says that it lies at sector %d", h.own)
	case h.entrySize < 128 || h.entrySize > 4096 || h.entrySize%8 != 0 || h.count < 1 || h.count > maxEntries/h.entrySize:
		return nil, problem.Invalidf("its GPT has %d entries of %d bytes", h.count, h.entrySize)
	case h.entries < 2 || h.entries >= sectors || h.firstUsable < h.entries+h.tableSectors(int64(len(head))) || h.firstUsable >= sectors:
		return nil, problem.Invalidf("the entries of its GPT are outside of the disk")
	}
	return h, nil
}

func (h *gptHeader) tableSectors(sector int64) int64 {
	return (h.count*h.entrySize + sector - 1) / sector
}

// MoveBackup brings the second header of a GPT to the end of the disk, where firmware
// and tools look for it: an image is mostly smaller than the disk it is written to.
func (t *Table) MoveBackup(w io.WriterAt) error {
	if t.Label != GPT {
		return nil
	}
	last := t.size/t.sector - 1
	free := last - t.gpt.tableSectors(t.sector) - 1
	for _, p := range t.Partitions {
		if p.End() > (free+1)*t.sector {
			return problem.Invalidf("partition %d leaves no room for the second GPT header at the end of the disk", p.Number)
		}
	}
	if before := t.gpt.other; before > t.gpt.firstUsable && before < last && !t.inPartition(before*t.sector) {
		if _, err := w.WriteAt(make([]byte, t.sector), before*t.sector); err != nil {
			return err
		}
	}
	t.gpt.other, t.gpt.usable = last, free
	return t.writeGPT(w)
}

func (t *Table) inPartition(at int64) bool {
	for _, p := range t.Partitions {
		if at >= p.Start && at < p.End() {
			return true
		}
	}
	return false
}

// writeGPT writes the second table first: should the power go, one of both is whole.
func (t *Table) writeGPT(w io.WriterAt) error {
	h := t.gpt
	if h.other <= h.firstUsable || h.other*t.sector >= t.size {
		return problem.Invalidf("the second GPT header lies at sector %d, outside of the disk", h.other)
	}
	put64(h.raw[48:], uint64(h.usable))
	put32(h.raw[88:], crc32.ChecksumIEEE(t.entries))
	write := func(own, other, entries int64) error {
		head := bytes.Clone(h.raw)
		put64(head[24:], uint64(own))
		put64(head[32:], uint64(other))
		put64(head[72:], uint64(entries))
		put32(head[16:], 0)
		put32(head[16:], crc32.ChecksumIEEE(head[:le32(head[12:])]))
		if _, err := w.WriteAt(t.entries, entries*t.sector); err != nil {
			return err
		}
		_, err := w.WriteAt(head, own*t.sector)
		return err
	}
	if err := write(h.other, 1, h.other-h.tableSectors(t.sector)); err != nil {
		return err
	}
	if err := write(1, h.other, h.entries); err != nil {
		return err
	}
	return t.writeProtective(w)
}

// writeProtective makes the entry in the MBR cover the disk; hybrid tables are left.
func (t *Table) writeProtective(w io.WriterAt) error {
	e := t.mbr[446:][:16]
	if e[4] != mbrGPT {
		return nil
	}
	put32(e[12:], uint32(min(t.size/t.sector-1, 0xffffffff)))
	_, err := w.WriteAt(t.mbr, 0)
	return err
}

func (t *Table) addGPT(w io.WriterAt, n int64, name string) (Partition, error) {
	h, free := t.gpt, int64(-1)
	for i := range h.count {
		if bytes.Equal(t.entries[i*h.entrySize:][:16], make([]byte, 16)) {
			free = i
			break
		}
	}
	if free < 0 {
		return Partition{}, problem.Invalidf("all %d entries of the GPT are in use", h.count)
	}
	start, err := t.room(n, h.firstUsable*t.sector, (h.usable+1)*t.sector)
	if err != nil {
		return Partition{}, err
	}
	kind, err := GUIDBytes(TypeLinux)
	if err != nil {
		return Partition{}, err
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails: it ends the program instead
	id[7], id[8] = id[7]&0x0f|0x40, id[8]&0x3f|0x80
	e := t.entries[free*h.entrySize:][:h.entrySize]
	clear(e)
	copy(e, kind[:])
	copy(e[16:], id[:])
	put64(e[32:], uint64(start/t.sector))
	put64(e[40:], uint64((start+n)/t.sector-1))
	for i, u := range utf16.Encode([]rune(name)) {
		if i < 36 {
			binary.LittleEndian.PutUint16(e[56+2*i:], u)
		}
	}
	p := Partition{Number: int(free + 1), Start: start, Length: n, Type: TypeLinux, ID: guid(id[:]), Name: name}
	t.Partitions = append(t.Partitions, p)
	return p, t.writeGPT(w)
}

func put32(b []byte, v uint32) { binary.LittleEndian.PutUint32(b, v) }
func put64(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }
