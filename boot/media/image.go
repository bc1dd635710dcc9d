// Package media makes boot media and config drives as bytes: cpio archives, FAT volumes, ISO 9660
// images that boot by BIOS and UEFI, and unified kernel images (UKI). An image is
// made once per kernel and ramdisk; the kernel parameters of one machine are laid
// over it while it is read, so no file per machine exists.
//
// It knows formats and sizes. It must not know nodes, drivers, files, networks or
// where kernels come from: all it reads comes through io.ReaderAt.
package media

import (
	"io"

	"salvor/problem"
)

// Blob is content of a known size. Reading it from many goroutines is safe if its
// source allows it.
type Blob = *io.SectionReader

// Field is a place in an image that holds the kernel parameters.
type Field struct {
	// Offset and Size are in bytes from the start of the image.
	Offset int64 `json:"offset"`
	Size   int64 `json:"size"`
	// Pad is the byte that fills what the parameters leave free: a space or a newline.
	Pad byte `json:"pad"`
}

// Layout is what has to be remembered of an image beside its bytes.
type Layout struct {
	// Size of the image in bytes.
	Size   int64   `json:"size"`
	Fields []Field `json:"fields"`
}

// Image is a base image that is shared by all machines. It is immutable and safe
// for concurrent use.
type Image struct {
	base   io.ReaderAt
	layout Layout
}

// NewImage joins the bytes of a base image with its layout. The layout may come
// from a file, so it is checked: fields inside the image, in order, not overlapping.
func NewImage(base io.ReaderAt, layout Layout) (*Image, error) {
	if layout.Size < 0 {
		return nil, problem.Invalidf("image layout: size %d is negative", layout.Size)
	}
	var end int64
	for i, f := range layout.Fields {
		if f.Size <= 0 || f.Offset < end || f.Offset > layout.Size || f.Size > layout.Size-f.Offset {
			return nil, problem.Invalidf("image layout: field %d (offset %d, size %d) does not fit an image of %d bytes",
				i, f.Offset, f.Size, layout.Size)
		}
		if f.Pad != ' ' && f.Pad != '\n' {
			return nil, problem.Invalidf("image layout: field %d: pad is byte %d, not a space or a newline", i, f.Pad)
		}
		end = f.Offset + f.Size
	}
	return &Image{base: base, layout: layout}, nil
}

// Layout tells the size of the image and the places of its parameters.
func (m *Image) Layout() Layout {
	l := m.layout
	l.Fields = append([]Field(nil), m.layout.Fields...)
	return l
}

// Base gives the image with the parameters that it was built with.
func (m *Image) Base() Blob { return io.NewSectionReader(m.base, 0, m.layout.Size) }

// Open gives the image of one machine: the base with params in every parameter
// field. The result is an io.ReadSeeker as http.ServeContent wants it; it costs one
// small allocation and shares the base. Parameters that CheckParams refuses, or that
// do not fit, are problem.Invalid.
func (m *Image) Open(params string) (Blob, error) {
	if err := CheckParams(params); err != nil {
		return nil, err
	}
	parts := make([]part, 0, 2*len(m.layout.Fields)+1)
	var at int64
	for _, f := range m.layout.Fields {
		if int64(len(params)) > f.Size {
			return nil, problem.Invalidf("kernel parameters: %d bytes do not fit the image's field of %d", len(params), f.Size)
		}
		parts = append(parts,
			part{off: at, size: f.Offset - at, src: m.base, srcOff: at},
			part{off: f.Offset, size: f.Size, src: padded{text: params, pad: f.Pad}})
		at = f.Offset + f.Size
	}
	parts = append(parts, part{off: at, size: m.layout.Size - at, src: m.base, srcOff: at})
	return io.NewSectionReader(&assembly{parts: parts}, 0, m.layout.Size), nil
}

// padded is a text followed by as many pad bytes as are asked for.
type padded struct {
	text string
	pad  byte
}

func (p padded) ReadAt(b []byte, off int64) (int, error) {
	for i := range b {
		if at := off + int64(i); at < int64(len(p.text)) {
			b[i] = p.text[at]
		} else {
			b[i] = p.pad
		}
	}
	return len(b), nil
}
