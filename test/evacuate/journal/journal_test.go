package journal

import (
	"io"
	"strings"
	"testing"

	"github.com/google/uuid"

	"salvor/test/must"
)

// memory is a disk of which only what was written takes room.
type memory map[int64][]byte

func (m memory) ReadAt(p []byte, at int64) (int, error) {
	for i := 0; i < len(p); i += Sector {
		if s, ok := m[at+int64(i)]; ok {
			copy(p[i:], s)
		} else {
			clear(p[i : i+Sector])
		}
	}
	return len(p), nil
}

func (m memory) WriteAt(p []byte, at int64) (int, error) {
	m[at] = append([]byte(nil), p...)
	return len(p), nil
}

func fresh() memory {
	head := make([]byte, Sector)
	Head(head)
	return memory{Start: head}
}

func writer(t *testing.T, disk Device) *Writer {
	t.Helper()
	w := must.Get(NewWriter(disk, uuid.New(), make([]byte, Sector)))(t)
	return w
}

func write(t *testing.T, w *Writer, n int) {
	t.Helper()
	for range n {
		must.OK(t, w.Write())
	}
}

func TestOneAfterTheOther(t *testing.T) {
	disk := fresh()
	for range 3 {
		write(t, writer(t, disk), 5)
	}
	runs, err := Check(disk)
	if err != nil || len(runs) != 3 || runs[2].First != 10 || runs[2].Entries != 5 {
		t.Fatalf("runs %+v: %v", runs, err)
	}
	if last, n, err := Last(disk); err != nil || n != 15 || last.Boot != runs[2].Boot || last.Counter != 5 {
		t.Fatalf("last %+v of %d: %v", last, n, err)
	}
}

func TestTwoAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		act  func(t *testing.T, disk memory)
		want string
	}{
		"in turns": {func(t *testing.T, disk memory) {
			a, b := writer(t, disk), writer(t, disk)
			write(t, a, 1)
			write(t, b, 1)
			write(t, a, 1)
		}, "interleave"},
		"one late word": {func(t *testing.T, disk memory) {
			a := writer(t, disk)
			write(t, a, 3)
			write(t, writer(t, disk), 3)
			write(t, a, 1)
		}, "interleave"},
		"a late word that was found only": {func(t *testing.T, disk memory) {
			a := writer(t, disk)
			write(t, writer(t, disk), 1)
			write(t, a, 1)
		}, "interleave"},
		"written over": {func(t *testing.T, disk memory) {
			a := writer(t, disk)
			write(t, a, 3)
			Entry{Boot: uuid.New(), Counter: 1}.Encode(a.buf)
			must.Get(disk.WriteAt(a.buf, EntryAt(1)))(t)
		}, "interleave"},
		"its beginning was lost": {func(t *testing.T, disk memory) {
			a := writer(t, disk)
			write(t, a, 2)
			delete(disk, EntryAt(1))
			a.next = 1
			a.done = 5
			write(t, a, 1)
		}, "wrote over"},
		"behind the end": {func(t *testing.T, disk memory) {
			a := writer(t, disk)
			write(t, a, 1)
			a.next = 9
			write(t, a, 1)
		}, "behind the end"},
		"torn": {func(t *testing.T, disk memory) {
			a := writer(t, disk)
			write(t, a, 1)
			disk[EntryAt(0)][100] = 7
		}, "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			disk := fresh()
			c.act(t, disk)
			if runs, err := Check(disk); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("runs %+v: %v, want %q", runs, err, c.want)
			}
		})
	}
}

func TestNoJournal(t *testing.T) {
	if _, err := Check(memory{}); err == nil {
		t.Error("an empty disk has a journal")
	}
	if _, err := Check(strings.NewReader("")); err == nil {
		t.Error("a short disk has a journal")
	}
}

func FuzzDecode(f *testing.F) {
	sector := make([]byte, Sector)
	Entry{Boot: uuid.New(), Counter: 3}.Encode(sector)
	f.Add(sector)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < Sector {
			return
		}
		if e, ok := DecodeEntry(b); ok {
			again := make([]byte, Sector)
			e.Encode(again)
			if back, ok := DecodeEntry(again); !ok || back != e {
				t.Errorf("%+v reads as %+v", e, back)
			}
		}
	})
}

var _ io.ReaderAt = memory{}
