package host

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"salvor/compute"
	"salvor/durable"
	"salvor/problem"
)

// imageCache keeps images by their digest. One that has its name is whole and proven; one in the
// making is gone on with where it was broken off. The longest unused ones go when there are too many.
type imageCache struct {
	dir          string
	limit        int64
	controlPlane *controlPlaneClient

	mu   sync.Mutex
	held map[string]int           // users of each image now
	busy map[string]chan struct{} // closed when the fetch that goes on ends
}

// maxImage bounds an image whose size nobody told, in bytes.
const maxImage = 1 << 40

func openImages(dir string, limit int64, d *controlPlaneClient) (*imageCache, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	return &imageCache{dir: dir, limit: limit, controlPlane: d, held: map[string]int{}, busy: map[string]chan struct{}{}}, nil
}

// digestName is the digits of "sha256:DIGITS".
func digestName(digest string) (string, error) {
	digits, ok := strings.CutPrefix(digest, "sha256:")
	if b, err := hex.DecodeString(digits); !ok || err != nil || len(b) != sha256.Size || strings.ToLower(digits) != digits {
		return "", problem.Invalidf("image digest %.100q: want sha256: and 64 digits", digest)
	}
	return digits, nil
}

// get gives the path of an image's bytes, which it fetches where they are not here. They stay until release is called.
func (c *imageCache) get(ctx context.Context, img compute.SpecImage, report func(string)) (path string, release func(), err error) {
	name, err := digestName(img.Digest)
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(c.dir, name)
	c.hold(name, 1)
	release = sync.OnceFunc(func() { c.hold(name, -1) })
	for {
		c.mu.Lock()
		other, fetching := c.busy[name]
		if !fetching {
			done := make(chan struct{})
			c.busy[name] = done
			c.mu.Unlock()
			err := c.ensure(ctx, path, img, report)
			c.mu.Lock()
			delete(c.busy, name)
			c.mu.Unlock()
			close(done)
			if err != nil {
				release()
				return "", nil, err
			}
			return path, release, nil
		}
		c.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			release()
			return "", nil, ctx.Err()
		}
	}
}

func (c *imageCache) hold(name string, by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[name] += by; c.held[name] == 0 {
		delete(c.held, name)
	}
}

// ensure fetches the image unless it is here.
func (c *imageCache) ensure(ctx context.Context, path string, img compute.SpecImage, report func(string)) error {
	now := time.Now()
	if os.Chtimes(path, now, now) == nil {
		return nil
	}
	half := path + ".part"
	if err := c.fetch(ctx, half, img, report); err != nil {
		return fmt.Errorf("image %s: %w", img.Digest, err)
	}
	if err := durable.Rename(half, path); err != nil {
		return err
	}
	return c.evict()
}

// fetch brings the whole image into a file and proves it.
func (c *imageCache) fetch(ctx context.Context, half string, img compute.SpecImage, report func(string)) error {
	f, err := os.OpenFile(half, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return err
	}
	limit := img.Size
	if limit <= 0 {
		limit = maxImage
	}
	if size < limit || size == 0 {
		if size, err = c.more(ctx, f, sum, size, limit, img, report); err != nil {
			return err
		}
	}
	if img.Size > 0 && size < img.Size {
		return problem.Unavailablef("its bytes ended at %d of %d", size, img.Size)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != img.Digest {
		_ = os.Remove(half)
		return problem.Invalidf("the bytes that came are another image's: %s", got)
	}
	return f.Sync()
}

// more goes on with a file where it ends.
func (c *imageCache) more(ctx context.Context, f *os.File, sum hash.Hash, from, limit int64, img compute.SpecImage, report func(string)) (int64, error) {
	body, at, err := c.controlPlane.image(ctx, img.Digest, img.URL, from)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	if at == 0 && from > 0 {
		if err := f.Truncate(0); err != nil {
			return 0, err
		}
		sum.Reset()
	}
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return 0, err
	}
	guard := newStall(body)
	defer guard.stop()
	w := &progressWriter{to: io.MultiWriter(f, sum), done: at, total: img.Size, report: report}
	n, err := io.Copy(w, io.LimitReader(guard, limit-at+1))
	size := at + n
	switch {
	case size > limit:
		_ = f.Truncate(0)
		return 0, problem.Invalidf("it has more than its %d bytes", limit)
	case errors.Is(err, syscall.ENOSPC):
		return 0, fmt.Errorf("no room on this host: %w", err)
	case err != nil && ctx.Err() == nil:
		return 0, problem.Unavailablef("the connection broke off at byte %d: %w", size, unwrapURLError(err))
	case err != nil:
		return 0, err
	}
	return size, nil
}

// idleTimeoutBody ends a body from which nothing comes for a while.
type idleTimeoutBody struct {
	io.ReadCloser
	timer *time.Timer
}

const stallTimeout = 30 * time.Second

func newStall(body io.ReadCloser) *idleTimeoutBody {
	return &idleTimeoutBody{body, time.AfterFunc(stallTimeout, func() { _ = body.Close() })}
}

func (s *idleTimeoutBody) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	if n > 0 {
		s.timer.Reset(stallTimeout)
	}
	return n, err
}

func (s *idleTimeoutBody) stop() { s.timer.Stop() }

// progressWriter says now and then how far a fetch is.
type progressWriter struct {
	to          io.Writer
	done, total int64
	report      func(string)
	reportedAt  time.Time
}

func (t *progressWriter) Write(b []byte) (int, error) {
	n, err := t.to.Write(b)
	t.done += int64(n)
	if t.report != nil && time.Since(t.reportedAt) > 5*time.Second {
		if !t.reportedAt.IsZero() {
			text := fmt.Sprintf("fetching the image: %d MiB", t.done>>20)
			if t.total > 0 {
				text += fmt.Sprintf(" of %d", t.total>>20)
			}
			t.report(text)
		}
		t.reportedAt = time.Now()
	}
	return n, err
}

// evict removes the longest unused images until the rest fits. One that is in use now, or
// that a guest's directory has a link to, stays and frees nothing.
func (c *imageCache) evict() error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	type file struct {
		name string
		size int64
		used time.Time
	}
	var files []file
	total := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue
		}
		total += info.Size()
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || stat.Nlink > 1 {
			continue
		}
		files = append(files, file{e.Name(), info.Size(), info.ModTime()})
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.name, b.name)) })
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range files {
		if total <= c.limit {
			return nil
		}
		if c.held[strings.TrimSuffix(f.name, ".part")] > 0 {
			continue
		}
		if err := os.Remove(filepath.Join(c.dir, f.name)); err != nil {
			return err
		}
		total -= f.size
	}
	return nil
}
