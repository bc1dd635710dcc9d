package netboot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"salvor/boot/media"
	"salvor/metal"
	"salvor/problem"
)

const (
	maxDownload   = 2 << 30          // bytes of one kernel or ramdisk; no image holds more
	maxDownloads  = 16               // kept at once
	downloadStall = 30 * time.Second // without a byte
	downloadLimit = 20 * time.Minute // as a whole
	recheckAfter  = time.Minute      // before the origin is asked whether it changed
	retryAfter    = 5 * time.Second  // before it is asked again after a failure
)

// downloadCache keeps kernels and ramdisks that plans name by URL, for the images that are
// made of them. The files have no names, so nothing is left behind whatever ends the process.
type downloadCache struct {
	client *http.Client
	glance ImageService // nil: none
	dir    string
	now    func() time.Time

	mu    sync.Mutex
	byURL map[string]*cachedDownload
	turn  int64
}

// cachedDownload is the state of one URL. Its fields but done are guarded by downloads.mu.
type cachedDownload struct {
	content *sharedFile // nil until the first success
	checked time.Time
	err     error
	done    chan struct{} // closed when the check in work ends; nil when none is
}

// sharedFile is an open file with several users; the last one closes it.
type sharedFile struct {
	file          *os.File
	size          int64
	version       string
	etag, changed string // validators of the origin

	mu    sync.Mutex
	users int
}

func (s *sharedFile) join() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
}

func (s *sharedFile) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 {
		s.file.Close()
	}
}

// get gives the content of a URL and fetches it where needed. All who ask at the same time
// share one transfer, which goes on when the asker is gone: a BMC asks again.
func (d *downloadCache) get(ctx context.Context, ref string) (*sharedFile, error) {
	for {
		d.mu.Lock()
		e := d.entryLocked(ref)
		if e == nil {
			d.mu.Unlock()
			return nil, problem.Unavailablef("fetch %s: %d other transfers are in work", redactURL(ref), maxDownloads)
		}
		age := d.now().Sub(e.checked)
		if content := e.content; e.done == nil && content != nil && age < recheckAfter {
			content.join()
			d.mu.Unlock()
			return content, nil
		}
		if err := e.err; e.done == nil && err != nil && age < retryAfter {
			d.mu.Unlock()
			return nil, err
		}
		if e.done == nil {
			e.done = make(chan struct{})
			go d.check(context.WithoutCancel(ctx), ref, e)
		}
		done := e.done
		d.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return nil, problem.Unavailablef("fetch %s: %w", redactURL(ref), ctx.Err())
		}
	}
}

// entryLocked finds or makes the entry of a URL; a full table loses one that is not in
// work. It is nil if all are.
func (d *downloadCache) entryLocked(ref string) *cachedDownload {
	if e := d.byURL[ref]; e != nil {
		return e
	}
	if d.byURL == nil {
		d.byURL = map[string]*cachedDownload{}
	}
	for len(d.byURL) >= maxDownloads {
		victim := ""
		for u, e := range d.byURL {
			if e.done == nil && (victim == "" || e.checked.Before(d.byURL[victim].checked)) {
				victim = u
			}
		}
		if victim == "" {
			return nil
		}
		if c := d.byURL[victim].content; c != nil {
			c.leave()
		}
		delete(d.byURL, victim)
	}
	e := &cachedDownload{}
	d.byURL[ref] = e
	return e
}

// check asks the origin and replaces the content if it changed. A failure leaves former
// content in use: a machine in rescue is worth more than the newest ramdisk.
func (d *downloadCache) check(ctx context.Context, ref string, e *cachedDownload) {
	ctx, cancel := context.WithTimeout(ctx, downloadLimit)
	defer cancel()
	d.mu.Lock()
	former := e.content
	d.mu.Unlock()
	fresh, err := d.fetch(ctx, cancel, ref, former)

	d.mu.Lock()
	defer d.mu.Unlock()
	e.checked, e.err = d.now(), err
	if fresh != nil {
		d.turn++
		fresh.version, fresh.users = fmt.Sprint("download ", d.turn), 1
		e.content = fresh
		if former != nil {
			former.leave()
		}
	}
	close(e.done)
	e.done = nil
}

// fetch gives nil for content that did not change.
func (d *downloadCache) fetch(ctx context.Context, cancel func(), ref string, former *sharedFile) (*sharedFile, error) {
	if metal.GlanceID(ref) != "" {
		return d.fetchImage(ctx, cancel, ref, former)
	}
	conditions := http.Header{}
	if former != nil && former.etag != "" {
		conditions.Set("If-None-Match", former.etag)
	}
	if former != nil && former.changed != "" {
		conditions.Set("If-Modified-Since", former.changed)
	}
	stalled := time.AfterFunc(downloadStall, cancel)
	defer stalled.Stop()
	resp, err := d.ask(ctx, ref, conditions)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if former != nil && resp.StatusCode == http.StatusNotModified {
		return nil, nil
	}
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusGone: // asking again does not help, and the plan is there: NotFound would deny that
		return nil, problem.Invalidf("fetch %s: the server has no such file (status %d)", redactURL(ref), resp.StatusCode)
	default:
		return nil, problem.Unavailablef("fetch %s: status %d", redactURL(ref), resp.StatusCode)
	}
	out, err := d.store(ref, resp.Body, stalled)
	if err != nil {
		return nil, err
	}
	out.etag, out.changed = resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")
	return out, nil
}

// ask sends the request for a URL; the caller closes the body of the answer.
func (d *downloadCache) ask(ctx context.Context, ref string, header http.Header) (*http.Response, error) {
	if d.client == nil {
		return nil, problem.Unsupportedf("fetch %s: no URL is fetched here", redactURL(ref))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ref, nil)
	if err != nil {
		return nil, problem.Invalidf("fetch %s: not a URL", redactURL(ref))
	}
	req.Header = header
	resp, err := d.client.Do(req)
	if err != nil {
		var wrapped *url.Error // names the whole URL, which may hold a secret
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return nil, problem.Unavailablef("fetch %s: %w", redactURL(ref), err)
	}
	return resp, nil
}

// store copies the bytes of a reference into a file of its own.
func (d *downloadCache) store(ref string, from io.Reader, stalled *time.Timer) (*sharedFile, error) {
	f, err := createUnlinkedFile(d.dir)
	if err != nil {
		return nil, err
	}
	n, err := io.Copy(f, &stallReader{r: io.LimitReader(from, maxDownload+1), timer: stalled})
	if err == nil && n > maxDownload {
		err = problem.Invalidf("more than %d bytes", int64(maxDownload))
	}
	if err != nil {
		f.Close()
		return nil, problem.Unavailablef("fetch %s: %w", redactURL(ref), err)
	}
	return &sharedFile{file: f, size: n}, nil
}

// fetchImage gives an image of Glance; nil for one that is here, since the bytes of an image never change.
func (d *downloadCache) fetchImage(ctx context.Context, cancel func(), ref string, former *sharedFile) (*sharedFile, error) {
	if former != nil {
		return nil, nil
	}
	image, err := openImage(ctx, d.glance, ref, 0)
	if err != nil {
		return nil, err
	}
	defer image.Close()
	stalled := time.AfterFunc(downloadStall, cancel)
	defer stalled.Stop()
	return d.store(ref, image, stalled)
}

// maxHeader is how many bytes of a kernel are read to find out its architecture and whether it is signed; headerWait bounds the reading.
const (
	maxHeader  = 64 << 10
	headerWait = 5 * time.Second
)

// header reads the first bytes of a kernel or of another file behind a URL, as a blob of the size of the whole.
func (d *downloadCache) header(ctx context.Context, ref string) (media.Blob, error) {
	ctx, cancel := context.WithTimeout(ctx, headerWait)
	defer cancel()
	if metal.GlanceID(ref) != "" {
		return d.imageHeader(ctx, ref)
	}
	resp, err := d.ask(ctx, ref, http.Header{"Range": {fmt.Sprintf("bytes=0-%d", maxHeader-1)}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	size := resp.ContentLength
	if resp.StatusCode == http.StatusPartialContent {
		_, whole, _ := strings.Cut(resp.Header.Get("Content-Range"), "/")
		if size, err = strconv.ParseInt(whole, 10, 64); err != nil {
			size = -1
		}
	} else if resp.StatusCode != http.StatusOK {
		return nil, problem.Unavailablef("fetch %s: status %d", redactURL(ref), resp.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxHeader))
	if err != nil || size < int64(len(text)) {
		return nil, problem.Unavailablef("fetch %s: its size is not known", redactURL(ref))
	}
	return io.NewSectionReader(headerBlob(text), 0, size), nil
}

// imageHeader is header for an image of Glance.
func (d *downloadCache) imageHeader(ctx context.Context, ref string) (media.Blob, error) {
	image, err := openImage(ctx, d.glance, ref, 0)
	if err != nil {
		return nil, err
	}
	defer image.Close()
	text, err := io.ReadAll(io.LimitReader(image, maxHeader))
	if err != nil {
		return nil, problem.Unavailablef("fetch %s: %w", ref, err)
	}
	size, err := image.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, problem.Unavailablef("fetch %s: its size is not known: %w", ref, err)
	}
	return io.NewSectionReader(headerBlob(text), 0, size), nil
}

// headerBlob is a file of which only the first bytes are here.
type headerBlob []byte

func (h headerBlob) ReadAt(b []byte, at int64) (int, error) {
	if at >= 0 && at < int64(len(h)) {
		if n := copy(b, h[at:]); n == len(b) {
			return n, nil
		}
	}
	return 0, io.ErrUnexpectedEOF // it was not fetched
}

// close lets go of all content; what is being read stays open until it is released.
func (d *downloadCache) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for ref, e := range d.byURL {
		if e.done == nil {
			if e.content != nil {
				e.content.leave()
			}
			delete(d.byURL, ref)
		}
	}
}

// stallReader puts the stall off as long as bytes come.
type stallReader struct {
	r     io.Reader
	timer *time.Timer
}

func (a *stallReader) Read(b []byte) (int, error) {
	n, err := a.r.Read(b)
	if n > 0 {
		a.timer.Reset(downloadStall)
	}
	return n, err
}

// createUnlinkedFile makes a file that vanishes when it is closed.
func createUnlinkedFile(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "salvor-download-")
	if err != nil {
		return nil, problem.Unavailablef("keep a downloaded boot file: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, problem.Unavailablef("keep a downloaded boot file: %w", err)
	}
	return f, nil
}
