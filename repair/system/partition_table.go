package system

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"

	"salvor/diagnose"
)

// tableRows restore a GPT from its other copy.
func tableRows() []tableRow {
	boot := diagnose.ConsentBoot
	return []tableRow{
		{finding: "gpt-primary-damaged", consent: boot, change: restoreGPT(true), does: "writes the primary table anew from its backup, and the protective MBR if it is gone"},
		{finding: "gpt-backup-damaged", consent: boot, change: restoreGPT(false), does: "writes the backup of the table anew from the primary one"},
	}
}

// tableCopy is a copy of a GPT: its header, of one sector, and its entries.
type tableCopy struct{ header, entries []byte }

// readTable reads the copy of a GPT at a sector and checks its sums. See chapter 5.3 of the UEFI specification.
func readTable(r io.ReaderAt, at uint64, sector int64) (*tableCopy, bool) {
	t := &tableCopy{header: make([]byte, sector)}
	if n, err := r.ReadAt(t.header, int64(at)*sector); err != nil && n < len(t.header) {
		return nil, false
	}
	le := binary.LittleEndian
	length, count, size := le.Uint32(t.header[12:]), int64(le.Uint32(t.header[80:])), int64(le.Uint32(t.header[84:]))
	if string(t.header[:8]) != "EFI PART" || length < 92 || length > 512 || le.Uint64(t.header[24:]) != at || count < 1 || size < 128 || size > 4096 || count*size > 1<<20 {
		return nil, false
	}
	table := le.Uint64(t.header[72:])
	if table > 1<<50/uint64(sector) {
		return nil, false
	}
	t.entries = make([]byte, count*size)
	if n, err := r.ReadAt(t.entries, int64(table)*sector); err != nil && n < len(t.entries) {
		return nil, false
	}
	return t, le.Uint32(t.header[16:]) == headerSum(t.header) && le.Uint32(t.header[88:]) == crc32.ChecksumIEEE(t.entries)
}

func headerSum(header []byte) uint32 {
	sum := bytes.Clone(header[:binary.LittleEndian.Uint32(header[12:])])
	clear(sum[16:20])
	return crc32.ChecksumIEEE(sum)
}

// movedHeader is the header of the other copy: at its own sector, with its entries at another one.
func (t *tableCopy) movedHeader(at, other, table uint64) []byte {
	out := make([]byte, len(t.header))
	copy(out, t.header[:binary.LittleEndian.Uint32(t.header[12:])])
	le := binary.LittleEndian
	le.PutUint64(out[24:], at)
	le.PutUint64(out[32:], other)
	le.PutUint64(out[72:], table)
	le.PutUint32(out[16:], headerSum(out))
	return out
}

// protectiveMBR is the sector that tells tools without GPT that the disk is in use.
func protectiveMBR(sector int64, last uint64) []byte {
	out := make([]byte, sector)
	copy(out[446:], []byte{0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff})
	binary.LittleEndian.PutUint32(out[454:], 1)
	binary.LittleEndian.PutUint32(out[458:], uint32(min(last, 0xffffffff)))
	out[510], out[511] = 0x55, 0xaa
	return out
}

// restoreGPT writes one copy of a GPT from the other one.
func restoreGPT(primary bool) func(context.Context, *repairCase) error {
	return func(_ context.Context, c *repairCase) error {
		d := c.evidenceDevice()
		if d == nil || d.Content == nil {
			return c.unsupported("the disk cannot be read")
		}
		for _, sector := range []int64{512, 4096} {
			last := uint64(d.Size/sector - 1)
			from, to := uint64(1), last
			if primary {
				from, to = last, 1
			}
			t, whole := readTable(d.Content, from, sector)
			if !whole {
				continue
			}
			return c.writeTable(d, t, sector, to, from, last)
		}
		return c.unsupported("no copy of the partition table of %s is whole", d.Path)
	}
}

// writeTable writes the copy at a sector: first its entries, then its header, so that a copy is never valid with wrong entries.
func (c *repairCase) writeTable(d *diagnose.Device, t *tableCopy, sector int64, to, from, last uint64) error {
	le := binary.LittleEndian
	sectors := uint64((int64(len(t.entries)) + sector - 1) / sector)
	firstUsable, lastUsable := le.Uint64(t.header[40:]), le.Uint64(t.header[48:])
	table := uint64(2)
	if to != 1 {
		table = last - sectors
	}
	if to == 1 && table+sectors > firstUsable || to != 1 && table <= lastUsable || lastUsable >= last {
		return c.unsupported("the partition table of %s has no room where it belongs", d.Path)
	}
	entries := make([]byte, int64(sectors)*sector)
	copy(entries, t.entries)
	if to == 1 {
		mbr := make([]byte, 512)
		if n, err := d.Content.ReadAt(mbr, 0); err != nil && n < len(mbr) {
			return c.unsupported("the first sector of %s cannot be read: %v", d.Path, err)
		}
		if len(bytes.Trim(mbr, "\x00")) == 0 {
			if err := c.editor.WriteBlocks(d.Path, 0, protectiveMBR(sector, last)); err != nil {
				return err
			}
		}
	}
	if err := c.editor.WriteBlocks(d.Path, int64(table)*sector, entries); err != nil {
		return err
	}
	return c.editor.WriteBlocks(d.Path, int64(to)*sector, t.movedHeader(to, from, table))
}
