package config

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"strings"
)

// Bounds of a program's head.
const (
	maxProgramHeaders = 64
	maxDynamicSize    = 64 << 10 // bytes
	MaxLibraries      = 200
)

// ELFProgram is what the kernel and the dynamic loader read of a program.
type ELFProgram struct {
	Machine     elf.Machine
	Interpreter string
	// Libraries are the names of DT_NEEDED, Paths those of DT_RUNPATH and DT_RPATH.
	Libraries, Paths []string
	// Size is how many bytes the segments need that are loaded into memory.
	Size uint64
}

// elfSegment is a program header.
type elfSegment struct {
	kind                  elf.ProgType
	offset, address, size uint64
}

// ReadProgram reads an ELF file by its program headers, as the dynamic loader does. debug/elf would also read section headers, and what these
// name may be compressed without bound.
func ReadProgram(r io.ReaderAt) (*ELFProgram, error) {
	head := make([]byte, 64)
	if n, err := r.ReadAt(head, 0); n < 52 {
		return nil, errors.Join(errors.New("it is no ELF file"), err)
	}
	if string(head[:4]) != elf.ELFMAG {
		return nil, errors.New("it is no ELF file")
	}
	var order binary.ByteOrder = binary.LittleEndian
	if elf.Data(head[elf.EI_DATA]) == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	wide := elf.Class(head[elf.EI_CLASS]) == elf.ELFCLASS64
	p := &ELFProgram{Machine: elf.Machine(order.Uint16(head[18:]))}
	segments := programHeaders(r, head, order, wide)
	for _, s := range segments {
		switch s.kind {
		case elf.PT_INTERP:
			p.Interpreter = readText(r, s.offset, min(s.size, 4096))
		case elf.PT_LOAD:
			p.Size = max(p.Size, s.offset+s.size)
		case elf.PT_DYNAMIC:
			p.readDynamic(r, s, segments, order, wide)
		}
	}
	return p, nil
}

// programHeaders reads at most 64 of them.
func programHeaders(r io.ReaderAt, head []byte, order binary.ByteOrder, wide bool) []elfSegment {
	at, size, count := uint64(order.Uint32(head[28:])), uint64(order.Uint16(head[42:])), int(order.Uint16(head[44:]))
	if wide {
		at, size, count = order.Uint64(head[32:]), uint64(order.Uint16(head[54:])), int(order.Uint16(head[56:]))
	}
	var out []elfSegment
	b := make([]byte, 56)
	for range min(count, maxProgramHeaders) {
		if n, _ := r.ReadAt(b, int64(at&^(1<<63))); n < 32 || (wide && n < 56) {
			break
		}
		s := elfSegment{kind: elf.ProgType(order.Uint32(b))}
		if wide {
			s.offset, s.address, s.size = order.Uint64(b[8:]), order.Uint64(b[16:]), order.Uint64(b[32:])
		} else {
			s.offset, s.address, s.size = uint64(order.Uint32(b[4:])), uint64(order.Uint32(b[8:])), uint64(order.Uint32(b[16:]))
		}
		out = append(out, s)
		at += size
	}
	return out
}

// readDynamic reads the dynamic section: it names its texts by their places in the table of strings.
func (p *ELFProgram) readDynamic(r io.ReaderAt, s elfSegment, segments []elfSegment, order binary.ByteOrder, wide bool) {
	b := make([]byte, min(s.size, maxDynamicSize))
	n, _ := r.ReadAt(b, int64(s.offset&^(1<<63)))
	one := 8
	if wide {
		one = 16
	}
	var needed, paths []uint64
	table := uint64(0)
	for at := 0; at+one <= n; at += one {
		tag, value := elf.DynTag(order.Uint32(b[at:])), uint64(order.Uint32(b[at+4:]))
		if wide {
			tag, value = elf.DynTag(order.Uint64(b[at:])), order.Uint64(b[at+8:])
		}
		switch tag {
		case elf.DT_NEEDED:
			needed = append(needed, value)
		case elf.DT_RUNPATH, elf.DT_RPATH:
			paths = append(paths, value)
		case elf.DT_STRTAB:
			table = value
		case elf.DT_NULL:
			at = n
		}
	}
	for _, load := range segments { // the table is named by its address in memory
		if load.kind != elf.PT_LOAD || table < load.address || table-load.address >= load.size {
			continue
		}
		base := load.offset + table - load.address
		for _, at := range needed[:min(len(needed), MaxLibraries)] {
			p.Libraries = append(p.Libraries, readText(r, base+at, 256))
		}
		for _, at := range paths[:min(len(paths), 4)] {
			p.Paths = append(p.Paths, strings.Split(readText(r, base+at, 4096), ":")...)
		}
		return
	}
}

// readText reads a text that ends in a zero.
func readText(r io.ReaderAt, at, most uint64) string {
	b := make([]byte, most)
	n, _ := r.ReadAt(b, int64(at&^(1<<63)))
	text, _, _ := strings.Cut(string(b[:n]), "\x00")
	return text
}
