package examine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"salvor/problem"
	"salvor/repair"
)

// The persistent format of dm-snapshot (drivers/md/dm-snap-persistent.c): chunk 0 holds the header, then areas follow. An area is one chunk
// with pairs of 64 bits, the number of a chunk of the origin and the number of the chunk of the store that holds its new content. The chunks
// that an area names follow it.
const (
	exceptionMagic    = 0x70416e53 // SnAp
	exceptionVersion  = 1
	exceptionsPerArea = repair.ChunkSize / 16
)

// readExceptions reads the numbers of the chunks that differ from the origin, in ascending order. size is how many chunks the origin has.
func readExceptions(store io.ReaderAt, size int64) ([]int64, error) {
	header := make([]byte, 16)
	if _, err := store.ReadAt(header, 0); err != nil {
		return nil, err
	}
	magic, valid := binary.LittleEndian.Uint32(header), binary.LittleEndian.Uint32(header[4:])
	version, sectors := binary.LittleEndian.Uint32(header[8:]), binary.LittleEndian.Uint32(header[12:])
	switch {
	case magic != exceptionMagic || version != exceptionVersion || sectors != chunkSectors:
		return nil, problem.Unsupportedf("the overlay has the magic %#x, version %d and chunks of %d sectors", magic, version, sectors)
	case valid != 1:
		return nil, problem.Unavailablef("the kernel has given the overlay up")
	}
	var chunks []int64
	area := make([]byte, repair.ChunkSize)
	// Each chunk of the origin is named once at most.
	for n := int64(0); n <= size/exceptionsPerArea; n++ {
		switch _, err := store.ReadAt(area, (1+n*(exceptionsPerArea+1))*repair.ChunkSize); {
		case errors.Is(err, io.EOF):
			return nil, problem.Invalidf("the overlay ends within its list of chunks")
		case err != nil:
			return nil, err
		}
		for pair := area; len(pair) > 0; pair = pair[16:] {
			origin, stored := binary.LittleEndian.Uint64(pair), binary.LittleEndian.Uint64(pair[8:])
			if stored == 0 { // the header's chunk: the list ends
				return sortedChunks(chunks)
			}
			if origin >= uint64(size) {
				return nil, problem.Invalidf("the overlay names chunk %d of %d", origin, size)
			}
			chunks = append(chunks, int64(origin))
		}
	}
	return sortedChunks(chunks)
}

func sortedChunks(chunks []int64) ([]int64, error) {
	slices.Sort(chunks)
	for i := 1; i < len(chunks); i++ {
		if chunks[i] == chunks[i-1] {
			return nil, fmt.Errorf("the overlay names chunk %d twice", chunks[i])
		}
	}
	return chunks, nil
}
