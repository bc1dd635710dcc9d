package image

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	wire "salvor/wire/agent"
)

// chunk is the part of a file that is verified on its own when it is read again.
const (
	chunk      = 4 * mebi
	keptChunks = 4
)

// spooledFile is a verified file: in memory, or still on the server with the hash of each
// of its chunks here, so that nothing else can be sent the second time.
type spooledFile struct {
	io.ReaderAt
	size  int64
	close func()
}

// spool reads the file to its end and compares the checksum.
func (j *imageWrite) spool(ctx context.Context, s *imageStream, text string) (*spooledFile, error) {
	memory, err := newMemory()
	if err != nil {
		return nil, err
	}
	sums, whole := [][sha256.Size]byte(nil), j.want.hash()
	var size int64
	buffer := make([]byte, chunk)
	for last := false; !last; {
		var n int
		if n, last, err = fillBuffer(s.reader, buffer); err != nil {
			_ = memory.Close()
			return nil, err
		}
		if n == 0 {
			break
		}
		_, _ = whole.Write(buffer[:n])
		sums = append(sums, sha256.Sum256(buffer[:n]))
		size += int64(n)
		if memory != nil && size <= j.Memory {
			_, err = memory.Write(buffer[:n])
		}
		if memory != nil && (err != nil || size > j.Memory) {
			_ = memory.Close() // more than there is room for
			memory = nil
		}
	}
	if err := j.checkSpool(whole, s, size); err != nil {
		if memory != nil {
			_ = memory.Close()
		}
		return nil, err
	}
	if memory != nil {
		return &spooledFile{memory, size, func() { _ = memory.Close() }}, nil
	}
	j.Log.Info("image does not fit into memory: it is read from its server again", "image", j.info.ID, "bytes", size, "memory", j.Memory)
	again := &remoteFile{imageWrite: j, ctx: ctx, text: text, size: size, sums: sums, cache: map[int64][]byte{}}
	return &spooledFile{again, size, func() {}}, nil
}

func (j *imageWrite) checkSpool(h hash.Hash, s *imageStream, size int64) error {
	if s.length >= 0 && size != s.length {
		return &transientError{fmt.Errorf("%s: cut off after %d of %d bytes", redactURL(s.url), size, s.length)}
	}
	return j.check(h, s)
}

// newMemory is a file that lies in memory and has no name.
func newMemory() (*os.File, error) {
	fd, err := unix.MemfdCreate("image", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("reserve memory for the image: %w", err)
	}
	return os.NewFile(uintptr(fd), "image"), nil
}

// remoteFile reads parts of a file that was read before.
type remoteFile struct {
	*imageWrite
	ctx  context.Context
	text string
	size int64
	sums [][sha256.Size]byte

	mu    sync.Mutex
	cache map[int64][]byte
	order []int64
}

// ReadAt reads verified bytes.
func (r *remoteFile) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) && off+int64(n) < r.size {
		at := off + int64(n)
		b, err := r.chunk(at / chunk)
		if err != nil {
			return n, err
		}
		n += copy(p[n:], b[at%chunk:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (r *remoteFile) chunk(number int64) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b, ok := r.cache[number]; ok {
		return b, nil
	}
	var b []byte
	var err error
	for try := range tries {
		var again *transientError
		if b, err = r.load(number); err == nil || !errors.As(err, &again) {
			break
		}
		if try+1 < tries && sleepContext(r.ctx, r.Pause) != nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if len(r.order) == keptChunks {
		delete(r.cache, r.order[0])
		r.order = r.order[1:]
	}
	r.cache[number] = b
	r.order = append(r.order, number)
	return b, nil
}

func (r *remoteFile) load(number int64) ([]byte, error) {
	first := number * chunk
	n := min(chunk, r.size-first)
	resp, s, err := r.request(r.ctx, r.info, r.text, fmt.Sprintf("bytes=%d-%d", first, first+n-1))
	if err != nil {
		return nil, err
	}
	defer s.close()
	if resp.StatusCode != http.StatusPartialContent {
		if resp.StatusCode >= 500 {
			return nil, &transientError{fmt.Errorf("%s answers %d", redactURL(s.url), resp.StatusCode)}
		}
		return nil, newFailure(wire.ErrDownload, "image %s: it does not fit into memory (%d of %d bytes) and %s serves no ranges (%d): use a raw image or another server", r.info.ID, r.Memory, r.size, redactURL(s.url), resp.StatusCode)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(s.reader, b); err != nil {
		return nil, &transientError{fmt.Errorf("%s: a range was cut off", redactURL(s.url))}
	}
	if sha256.Sum256(b) != r.sums[number] {
		return nil, newFailure(wire.ErrChecksum, "image %s: %s sent other bytes at %d than before", r.info.ID, redactURL(s.url), first)
	}
	return b, nil
}
