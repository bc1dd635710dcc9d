package image

import (
	"bufio"
	"context"
	"crypto/md5"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"

	"salvor/api"
	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

const (
	// idleTime is how long the wire may bring or take nothing.
	idleTime = 60 * time.Second
	// touchTime is how often whoever brings bytes says that it still does; stallTime when it is taken for gone.
	touchTime = 30 * time.Second
	stallTime = 4 * touchTime
	// storeTime bounds a write of the image's row when the request itself is over.
	storeTime   = 30 * time.Second
	octetStream = "application/octet-stream"
)

// imageTransfer is the bytes of one image on their way in.
type imageTransfer struct {
	s         *server
	id        string // of the image
	mark      string // of this transfer
	requester record.Asker
}

// begin makes the image one whose bytes are coming: only one transfer at a time may bring them.
func (s *server) begin(c *api.Call) (*imageTransfer, *compute.Image, error) {
	select {
	case s.transfers <- struct{}{}:
	default:
		return nil, nil, problem.Unavailablef("Too many images are coming in at once; try again later.")
	}
	t := &imageTransfer{s: s, mark: uuid.NewString(), requester: c.Asker()}
	i, err := s.edit(c, func(i *compute.Image) error {
		if s.settled(i).Status != compute.ImageQueued {
			return problem.Conflictf("Image %s is in status %s: data is taken in status queued only.", i.ID, i.Status)
		}
		if i.DiskFormat == "" || i.ContainerFormat == "" {
			return problem.Invalidf("Properties disk_format, container_format must be set prior to saving data.")
		}
		i.Status, i.Properties[uploadKey] = compute.ImageSaving, t.mark
		delete(i.Properties, problemKey)
		delete(i.Properties, failedKey)
		return nil
	})
	if err != nil {
		<-s.transfers
		return nil, nil, err
	}
	t.id = i.ID
	return t, i, nil
}

// mine edits the image as long as this transfer is the one that brings its bytes.
func (t *imageTransfer) mine(ctx context.Context, do func(*compute.Image)) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	_, err := t.s.update(ctx, t.id, t.requester, func(i *compute.Image) error {
		if i.Properties[uploadKey] != t.mark {
			return problem.Conflictf("Image %s was taken over by another upload.", t.id)
		}
		do(i)
		return nil
	})
	if problem.Is(err, problem.NotFound) {
		return &api.Error{Status: http.StatusGone, Text: fmt.Sprintf("Image %s was deleted while its data came in.", t.id)}
	}
	return err
}

// run takes the bytes in and ends the transfer: the image is active, or queued again.
func (t *imageTransfer) run(ctx context.Context, format string, body io.Reader) error {
	defer func() { <-t.s.transfers }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	touched := make(chan struct{})
	go func() {
		defer close(touched)
		t.touch(ctx, cancel)
	}()
	err := t.take(ctx, format, body)
	cancel(nil)
	<-touched
	if err == nil {
		return nil
	}
	why := err
	if gone := t.mine(ctx, func(i *compute.Image) {
		i.Status = compute.ImageQueued
		delete(i.Properties, uploadKey)
	}); gone != nil {
		why = errors.Join(err, gone)
	}
	t.s.Log.Warn("image data was not taken", "image", t.id, "request_id", t.requester.RequestID, "error", why)
	return err
}

// touch shows that the transfer lives, and ends it when the image is gone.
func (t *imageTransfer) touch(ctx context.Context, cancel context.CancelCauseFunc) {
	ticker := time.NewTicker(touchTime)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := t.mine(ctx, func(*compute.Image) {}); err != nil && !problem.Is(err, problem.Unavailable) {
			cancel(err)
			return
		}
	}
}

// take reads, checks and keeps the bytes.
func (t *imageTransfer) take(ctx context.Context, format string, body io.Reader) error {
	in := bufio.NewReaderSize(&boundedReader{ctx: ctx, r: body, left: t.s.MaxBytes, most: t.s.MaxBytes}, headSize)
	head, err := in.Peek(headSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(head) == 0 {
		return problem.Invalidf("The request brought no data.")
	}
	virtual, err := checkFormat(format, head)
	if err != nil {
		return err
	}
	// MD5 is what old clients compare; nothing here relies on it.
	short, long := md5.New(), sha512.New()
	digest, size, err := t.s.Blobs.Put(ctx, io.TeeReader(in, io.MultiWriter(short, long)))
	if err != nil {
		return err
	}
	if virtual == 0 {
		virtual = size
	}
	return t.settle(ctx, func(i *compute.Image) {
		i.Status, i.Size, i.VirtualSize, i.Digest = compute.ImageActive, size, virtual, digest
		i.MD5, i.SHA512 = hex.EncodeToString(short.Sum(nil)), hex.EncodeToString(long.Sum(nil))
		delete(i.Properties, uploadKey)
	}, digest, hex.EncodeToString(long.Sum(nil)))
}

// settle makes the image active while nobody can remove its bytes, or removes them if it is gone.
func (t *imageTransfer) settle(ctx context.Context, done func(*compute.Image), digest, sum string) error {
	t.s.bytes.Lock()
	defer t.s.bytes.Unlock()
	f, err := t.s.Blobs.Open(ctx, digest) // an image with the same bytes may have been deleted meanwhile
	if err != nil {
		return fmt.Errorf("look at the bytes of image %s: %w", t.id, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("look at the bytes of image %s: %w", t.id, err)
	}
	if err := t.mine(ctx, done); err != nil {
		return errors.Join(err, t.s.forget(context.WithoutCancel(ctx), &compute.Image{Digest: digest, SHA512: sum}))
	}
	return nil
}

// boundedReader ends a stream that is longer than an image may be, or whose transfer is over.
type boundedReader struct {
	ctx        context.Context
	r          io.Reader
	left, most int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, context.Cause(b.ctx)
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n, &api.Error{Status: http.StatusRequestEntityTooLarge, Text: fmt.Sprintf("An image has at most %d bytes.", b.most)}
	}
	return n, err
}

// pacedStream gives each read and each write time of its own: an image takes as long as it takes, but never stands still.
type pacedStream struct {
	http.ResponseWriter
	body    io.Reader
	control *http.ResponseController
}

func newPacedStream(c *api.Call) *pacedStream {
	return &pacedStream{c.W, c.R.Body, http.NewResponseController(c.W)}
}

func (p *pacedStream) Read(b []byte) (int, error) {
	_ = p.control.SetReadDeadline(time.Now().Add(idleTime)) // a wire without deadlines is a test's
	n, err := p.body.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = problem.Invalidf("The data broke off: %w", err)
	}
	return n, err
}

func (p *pacedStream) Write(b []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(idleTime))
	return p.ResponseWriter.Write(b)
}

func (s *server) upload(c *api.Call) error {
	if kind := c.R.Header.Get("Content-Type"); kind != octetStream {
		return &api.Error{Status: http.StatusUnsupportedMediaType, Text: "Image data must come as " + octetStream + "."}
	}
	if c.R.ContentLength > s.MaxBytes {
		return &api.Error{Status: http.StatusRequestEntityTooLarge, Text: fmt.Sprintf("An image has at most %d bytes.", s.MaxBytes)}
	}
	t, i, err := s.begin(c)
	if err != nil {
		return err
	}
	p := newPacedStream(c)
	err = t.run(context.WithoutCancel(c.R.Context()), i.DiskFormat, p)
	_ = p.control.SetWriteDeadline(time.Now().Add(idleTime))
	if err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}

func (s *server) download(c *api.Call) error {
	i, err := s.image(c)
	if err != nil {
		return err
	}
	switch i = s.settled(i); {
	case i.Status == compute.ImageDeactivated && !c.Admin():
		return problem.Forbiddenf("The requested image %s has been deactivated. Image data download is forbidden.", i.ID)
	case i.Status != compute.ImageActive && i.Status != compute.ImageDeactivated:
		return c.Empty(http.StatusNoContent)
	case i.URL != "":
		return problem.Conflictf("The data of image %s does not lie here.", i.ID)
	}
	f, err := s.Blobs.Open(c.R.Context(), i.Digest)
	if err != nil {
		return fmt.Errorf("open the bytes of image %s: %w", i.ID, err)
	}
	defer f.Close()
	h := c.W.Header()
	h.Set("Content-Type", octetStream)
	h.Set("Content-MD5", i.MD5)
	h.Set("Etag", `"`+i.Digest+`"`)
	http.ServeContent(newPacedStream(c), c.R, "", lastUpdated(i), f)
	return nil
}
