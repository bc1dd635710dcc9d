// Package journal shows whether two guests wrote to one disk at a time during an evacuation. A journal is a log on a raw disk: each boot of
// a guest writes its boot id and a counter into it, sector by sector. A writer reads a sector before it takes it, and records a mark if
// another entry is there. If two writers see the same sector as empty, one of them loses its entry, and its counter then has a gap. The
// package knows bytes and sectors, and does not know who runs the guests.
package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/google/uuid"
)

// Shape of a journal: a head, then the entries, then the marks. All of it lies behind Start on its disk.
const (
	Sector  = 512
	Start   = 65 << 20
	Entries = 1 << 18
	Marks   = 1 << 11
	// SleepAt is where the host writes a sector that is not empty, in bytes, to have the guest suspend to RAM.
	SleepAt = Start + (1+Entries+Marks)*Sector
	// Size is that of a disk with a journal, in whole blocks of a file system.
	Size = (SleepAt/4096 + 1) * 4096
)

var (
	headMagic  = [8]byte{'S', 'A', 'L', 'V', 'H', 'E', 'A', 'D'}
	entryMagic = [8]byte{'S', 'A', 'L', 'V', 'L', 'I', 'F', 'E'}
	markMagic  = [8]byte{'S', 'A', 'L', 'V', 'M', 'A', 'R', 'K'}
)

// Entry is one sign of life: the counter'th of a boot.
type Entry struct {
	Boot    uuid.UUID
	Counter uint64
}

// Mark is what a writer found where it wanted to write.
type Mark struct {
	Entry        // of who found it
	At    uint64 // the entry's place
	Found [16]byte
}

// EntryAt and MarkAt are the places on the disk of an entry and of a mark, in bytes.
func EntryAt(i uint64) int64 { return Start + (1+int64(i))*Sector }
func MarkAt(i uint64) int64  { return Start + (1+Entries+int64(i))*Sector }

// Head fills a sector that says that a journal is here.
func Head(sector []byte) { seal(sector, headMagic, nil) }

// IsHead tells whether a journal is here.
func IsHead(sector []byte) bool { return opens(sector, headMagic) }

// Encode fills a sector with an entry.
func (e Entry) Encode(sector []byte) {
	seal(sector, entryMagic, func(b []byte) {
		copy(b, e.Boot[:])
		binary.BigEndian.PutUint64(b[16:], e.Counter)
	})
}

// Encode fills a sector with a mark.
func (m Mark) Encode(sector []byte) {
	seal(sector, markMagic, func(b []byte) {
		copy(b, m.Boot[:])
		binary.BigEndian.PutUint64(b[16:], m.Counter)
		binary.BigEndian.PutUint64(b[24:], m.At)
		copy(b[32:], m.Found[:])
	})
}

func seal(sector []byte, magic [8]byte, fill func([]byte)) {
	clear(sector[:Sector])
	copy(sector, magic[:])
	if fill != nil {
		fill(sector[8:])
	}
	binary.BigEndian.PutUint32(sector[Sector-4:], crc32.ChecksumIEEE(sector[:Sector-4]))
}

func opens(sector []byte, magic [8]byte) bool {
	return bytes.Equal(sector[:8], magic[:]) && binary.BigEndian.Uint32(sector[Sector-4:]) == crc32.ChecksumIEEE(sector[:Sector-4])
}

// IsEmpty tells whether nobody has written there.
func IsEmpty(sector []byte) bool {
	for _, b := range sector[:Sector] {
		if b != 0 {
			return false
		}
	}
	return true
}

// DecodeEntry reads an entry; false: it is none, or a broken one.
func DecodeEntry(sector []byte) (Entry, bool) {
	if !opens(sector, entryMagic) {
		return Entry{}, false
	}
	return Entry{Boot: uuid.UUID(sector[8:24]), Counter: binary.BigEndian.Uint64(sector[24:])}, true
}

func decodeMark(sector []byte) (Mark, bool) {
	if !opens(sector, markMagic) {
		return Mark{}, false
	}
	m := Mark{Entry: Entry{Boot: uuid.UUID(sector[8:24]), Counter: binary.BigEndian.Uint64(sector[24:])}, At: binary.BigEndian.Uint64(sector[32:])}
	copy(m.Found[:], sector[40:56])
	return m, true
}

// Run is all that one boot wrote.
type Run struct {
	Boot    uuid.UUID
	First   uint64 // place of its first entry
	Entries uint64
}

// Check reads a journal. The error is of the first sign that two boots wrote at a time, or of what cannot be read; the
// runs are those before it.
func Check(disk io.ReaderAt) ([]Run, error) {
	head := make([]byte, Sector)
	if _, err := disk.ReadAt(head, Start); err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	if !IsHead(head) {
		return nil, fmt.Errorf("no journal is at byte %d", Start)
	}
	var runs []Run
	seen, end := map[uuid.UUID]bool{}, false
	err := walk(disk, EntryAt(0), Entries, func(i uint64, sector []byte) error {
		if IsEmpty(sector) {
			end = true
			return nil
		}
		e, ok := DecodeEntry(sector)
		switch last := len(runs) - 1; {
		case !ok:
			return fmt.Errorf("entry %d is broken", i)
		case end:
			return fmt.Errorf("entry %d, of boot %s, lies behind the end", i, e.Boot)
		case last >= 0 && runs[last].Boot == e.Boot:
			if e.Counter != runs[last].Entries+1 {
				return fmt.Errorf("entry %d of boot %s has the counter %d after %d: another boot wrote over it", i, e.Boot, e.Counter, runs[last].Entries)
			}
			runs[last].Entries++
		case seen[e.Boot]:
			return fmt.Errorf("entry %d: boot %s wrote again after boot %s had begun: they interleave", i, e.Boot, runs[last].Boot)
		case e.Counter != 1:
			return fmt.Errorf("entry %d: the first of boot %s has the counter %d: another boot wrote over it", i, e.Boot, e.Counter)
		default:
			seen[e.Boot] = true
			runs = append(runs, Run{Boot: e.Boot, First: i, Entries: 1})
		}
		return nil
	})
	if err != nil {
		return runs, err
	}
	if !end {
		return runs, fmt.Errorf("the journal is full: nothing later than entry %d was seen", Entries)
	}
	return runs, walk(disk, MarkAt(0), Marks, func(i uint64, sector []byte) error {
		if IsEmpty(sector) {
			return nil
		}
		m, ok := decodeMark(sector)
		if !ok {
			return fmt.Errorf("mark %d is broken", i)
		}
		return fmt.Errorf("mark %d: boot %s, at its counter %d, found boot %s at entry %d: they interleave", i, m.Boot, m.Counter, uuid.UUID(m.Found), m.At)
	})
}

// walk shows all sectors of a region, in order.
func walk(disk io.ReaderAt, at int64, count uint64, see func(uint64, []byte) error) error {
	const batch = 2048
	buf := make([]byte, batch*Sector)
	for i := uint64(0); i < count; i += batch {
		n := min(batch, count-i)
		if _, err := disk.ReadAt(buf[:n*Sector], at+int64(i)*Sector); err != nil && err != io.EOF {
			return fmt.Errorf("read journal: %w", err)
		}
		for j := range n {
			if err := see(i+j, buf[j*Sector:(j+1)*Sector]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Device is a disk that a Writer writes to, past every cache.
type Device interface {
	io.ReaderAt
	io.WriterAt
}

// Writer writes the entries of one boot.
type Writer struct {
	disk Device
	boot uuid.UUID
	// buf is where sectors are read to and written from: devices that go past caches want it aligned.
	buf  []byte
	next uint64 // place to try
	mark uint64
	done uint64
}

// NewWriter finds the end of a journal. buf holds a sector at least.
func NewWriter(disk Device, boot uuid.UUID, buf []byte) (*Writer, error) {
	next, err := end(disk, buf[:Sector])
	return &Writer{disk: disk, boot: boot, buf: buf[:Sector], next: next}, err
}

// end finds the first entry that nobody wrote.
func end(disk io.ReaderAt, buf []byte) (uint64, error) {
	low, high := uint64(0), uint64(Entries)
	for low < high {
		middle := (low + high) / 2
		if _, err := disk.ReadAt(buf, EntryAt(middle)); err != nil {
			return 0, err
		}
		if IsEmpty(buf) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low, nil
}

// Last is the newest entry of a journal, and how many there are; it is quick, and proves nothing.
func Last(disk io.ReaderAt) (Entry, uint64, error) {
	buf := make([]byte, Sector)
	n, err := end(disk, buf)
	if err != nil || n == 0 {
		return Entry{}, 0, err
	}
	if _, err := disk.ReadAt(buf, EntryAt(n-1)); err != nil {
		return Entry{}, 0, err
	}
	e, ok := DecodeEntry(buf)
	if !ok {
		return e, n, fmt.Errorf("entry %d is broken", n-1)
	}
	return e, n, nil
}

// Done is how many entries were written; Next is the place of the next one.
func (w *Writer) Done() uint64 { return w.done }
func (w *Writer) Next() uint64 { return w.next }

// Write takes the next sector. One that is taken already is marked, and the one behind it tried.
func (w *Writer) Write() error {
	e := Entry{Boot: w.boot, Counter: w.done + 1}
	for ; w.next < Entries; w.next++ {
		if _, err := w.disk.ReadAt(w.buf, EntryAt(w.next)); err != nil {
			return err
		}
		if IsEmpty(w.buf) {
			break
		}
		m := Mark{Entry: e, At: w.next}
		copy(m.Found[:], w.buf[8:24])
		if err := w.writeMark(m); err != nil {
			return err
		}
	}
	if w.next >= Entries {
		return fmt.Errorf("the journal is full")
	}
	e.Encode(w.buf)
	if _, err := w.disk.WriteAt(w.buf, EntryAt(w.next)); err != nil {
		return err
	}
	w.done++
	w.next++
	return nil
}

// SleepAsked tells whether the host asks the guest to suspend to RAM.
func (w *Writer) SleepAsked() (bool, error) {
	_, err := w.disk.ReadAt(w.buf, SleepAt)
	return !IsEmpty(w.buf), err
}

// writeMark takes the next free mark; the last one is kept when all are taken.
func (w *Writer) writeMark(m Mark) error {
	for ; w.mark < Marks-1; w.mark++ {
		if _, err := w.disk.ReadAt(w.buf, MarkAt(w.mark)); err != nil {
			return err
		}
		if IsEmpty(w.buf) {
			break
		}
	}
	m.Encode(w.buf)
	_, err := w.disk.WriteAt(w.buf, MarkAt(w.mark))
	return err
}
