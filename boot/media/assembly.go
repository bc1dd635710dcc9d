package media

import (
	"bytes"
	"io"
	"sort"
)

// part is a stretch of an assembly. A nil src reads as zeros.
type part struct {
	off, size int64
	src       io.ReaderAt
	srcOff    int64
}

// assembly is a virtual file made of parts in ascending order; gaps read as zeros.
// It lets an image be read without ever being written.
type assembly struct {
	parts []part
	size  int64
}

// add appends content at the next multiple of align and returns its offset.
func (a *assembly) add(align int64, src io.ReaderAt, size int64) int64 {
	off := roundUp(a.size, align)
	a.parts = append(a.parts, part{off: off, size: size, src: src})
	a.size = off + size
	return off
}

func (a *assembly) addBytes(align int64, b []byte) int64 {
	return a.add(align, bytes.NewReader(b), int64(len(b)))
}

// pad lets the assembly end at a multiple of align.
func (a *assembly) pad(align int64) { a.size = roundUp(a.size, align) }

func (a *assembly) blob() Blob { return io.NewSectionReader(a, 0, a.size) }

// ReadAt expects that the caller bounds the range, as io.SectionReader does.
func (a *assembly) ReadAt(b []byte, off int64) (int, error) {
	clear(b)
	end := off + int64(len(b))
	i := sort.Search(len(a.parts), func(i int) bool { return a.parts[i].off+a.parts[i].size > off })
	for ; i < len(a.parts) && a.parts[i].off < end; i++ {
		p := a.parts[i]
		from, to := max(off, p.off), min(end, p.off+p.size)
		if p.src == nil || from >= to {
			continue
		}
		n, err := p.src.ReadAt(b[from-off:to-off], p.srcOff+from-p.off)
		if int64(n) < to-from {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return int(from-off) + n, err
		}
	}
	return len(b), nil
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

// bytesBlob makes a Blob of bytes in memory.
func bytesBlob(b []byte) Blob { return io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b))) }
