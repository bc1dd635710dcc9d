package ramdisk

import (
	"compress/gzip"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"salvor/problem"
)

// Compression names how an initramfs is packed. Debian's kernels unpack all of these.
type Compression string

const (
	Gzip Compression = "gzip"
	Zstd Compression = "zstd"
	LZ4  Compression = "lz4"
	// Plain is not compressed at all.
	Plain Compression = "none"
)

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func (c Compression) writer(w io.Writer) (io.WriteCloser, error) {
	switch c {
	case Gzip:
		return gzip.NewWriterLevel(w, gzip.BestCompression)
	case Zstd:
		// One goroutine: the output must not depend on the machine. A small window
		// keeps the kernel's memory small.
		return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(4<<20))
	case LZ4:
		z := lz4.NewWriter(w)
		// The kernel knows the legacy frame only.
		err := z.Apply(lz4.LegacyOption(true), lz4.CompressionLevelOption(lz4.Level9), lz4.ConcurrencyOption(1))
		return z, err
	case Plain:
		return nopCloser{w}, nil
	}
	return nil, problem.Invalidf("compression %q: gzip, zstd, lz4 and none are known", string(c))
}
