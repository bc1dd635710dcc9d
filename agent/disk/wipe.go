package disk

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"salvor/problem"
)

// edge is how much is wiped at either end of a disk or partition. It covers what
// file systems, LVM, RAID (also of firmware), LUKS and ZFS are known by.
const edge = mebi

// btrfs keeps copies of its superblock at these places.
var copies = []int64{64 * mebi, 256 * gibi}

// WipeMetadata makes a disk look empty: signatures at both ends of every partition,
// that it knows of or that the kernel knows, then those of the disk. It is proved by reading back.
func (d *Device) WipeMetadata(root string) error {
	spans := append(d.spans(root), [2]int64{0, d.size})
	for _, s := range spans {
		if err := d.wipeSpan(s[0], s[1]); err != nil {
			return err
		}
	}
	if err := d.Sync(); err != nil {
		return err
	}
	d.Reread()
	head := make([]byte, min(edge, d.size))
	for _, off := range []int64{0, d.size - int64(len(head))} {
		if _, err := d.ReadAt(head, off); err != nil {
			return fmt.Errorf("disk %s: read back: %w", d.name, err)
		}
		if slices.ContainsFunc(head, func(b byte) bool { return b != 0 }) {
			return problem.Unavailablef("disk %s: what was wiped at %d reads as before", d.name, off)
		}
	}
	return nil
}

// spans are the partitions; a table that is broken is wiped with the disk's ends.
func (d *Device) spans(root string) [][2]int64 {
	var out [][2]int64
	if table, err := ReadTable(d, d.size, d.sector); err == nil {
		for _, p := range table.Partitions {
			out = append(out, [2]int64{p.Start, p.Length})
		}
	}
	for _, s := range kernelPartitions(root, d.name) {
		if s[0] > 0 && s[1] > 0 && s[1] <= d.size && s[0] <= d.size-s[1] && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func (d *Device) wipeSpan(start, length int64) error {
	n := min(edge, length)
	for _, at := range []int64{start, start + length - n} {
		if err := d.Zero(at, n); err != nil {
			return err
		}
	}
	for _, c := range copies {
		if c+edge < length {
			if err := d.Zero(start+c, 64<<10); err != nil {
				return err
			}
		}
	}
	return nil
}

// Special tells of a cluster file system (VMFS, GPFS, GFS2), which other machines may be using: what it is, or "".
func (d *Device) Special() string {
	table, err := ReadTable(d, d.size, d.sector)
	if err != nil {
		return ""
	}
	spans := []Partition{{Start: 0, Length: d.size}}
	for _, p := range append(spans, table.Partitions...) {
		switch p.Type {
		case typeVMFS, fmt.Sprintf("%02x", mbrVMFS):
			return fmt.Sprintf("partition %d holds VMFS", p.Number)
		case typeGPFS:
			return fmt.Sprintf("partition %d holds GPFS", p.Number)
		}
		magic := make([]byte, 4)
		if _, err := d.ReadAt(magic, p.Start+64<<10); err == nil && string(magic) == "\x01\x16\x19\x70" {
			return fmt.Sprintf("partition %d holds GFS2", p.Number)
		}
	}
	return ""
}

// Overwrite writes random bytes over the whole disk so many times, then zeros if asked.
func (d *Device) Overwrite(ctx context.Context, times int, zeros bool, progress func(done int64)) error {
	buffer := make([]byte, 4*mebi)
	for range times {
		for off := int64(0); off < d.size; off += int64(len(buffer)) {
			if err := ctx.Err(); err != nil {
				return err
			}
			part := buffer[:min(int64(len(buffer)), d.size-off)]
			_, _ = rand.Read(part) // never fails: it ends the program instead
			if _, err := d.file.WriteAt(part, off); err != nil {
				return fmt.Errorf("disk %s: overwrite at %d: %w", d.name, off, err)
			}
			progress(int64(len(part)))
		}
		if err := d.Sync(); err != nil {
			return err
		}
	}
	for off := int64(0); zeros && off < d.size; off += zeroChunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := d.Zero(off, min(zeroChunk, d.size-off)); err != nil {
			return err
		}
	}
	return d.Sync()
}
