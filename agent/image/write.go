package image

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"

	"salvor/problem"
	wire "salvor/wire/agent"
)

// raw writes the image while it arrives.
func (j *imageWrite) raw(s *imageStream) error {
	if s.length > j.to.Size() {
		return newFailure(wire.ErrImage, "image %s: it has %d bytes, the disk %d", j.info.ID, s.length, j.to.Size())
	}
	h := j.want.hash()
	head, err := j.body(io.TeeReader(s.reader, h))
	if err != nil {
		return err
	}
	if s.length >= 0 && j.reached != s.length {
		return &transientError{problem.Unavailablef("%s: cut off after %d of %d bytes", redactURL(s.url), j.reached, s.length)}
	}
	if err := j.check(h, s); err != nil {
		return err
	}
	return j.finish(head)
}

// gzip is the same with the checksum over what is sent, and with the content looked
// at once it can be seen.
func (j *imageWrite) gzip(s *imageStream) error {
	h := j.want.hash()
	tee := io.TeeReader(s.reader, h)
	z, err := gzip.NewReader(tee)
	if err != nil {
		return newFailure(wire.ErrImage, "image %s: its gzip is broken: %w", j.info.ID, err)
	}
	peeked := make([]byte, peekSize)
	n, _, err := fillBuffer(z, peeked)
	if err != nil {
		return j.unzip(err)
	}
	if is := detectFormat(peeked[:n]); is != "raw" || isGzip(peeked[:n]) {
		return newFailure(wire.ErrImage, "image %s: its gzip holds %s, want a raw image", j.info.ID, is)
	}
	head, err := j.body(io.MultiReader(bytes.NewReader(peeked[:n]), z))
	if err != nil {
		return j.unzip(err)
	}
	if _, err := io.Copy(io.Discard, tee); err != nil { // gzip stops at its end, the checksum does not
		return err
	}
	if err := j.check(h, s); err != nil {
		return err
	}
	return j.finish(head)
}

func (j *imageWrite) unzip(err error) error {
	if errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
		return newFailure(wire.ErrImage, "image %s: its gzip is broken or cut off: %w", j.info.ID, err)
	}
	return err
}

// body writes all but the first part, which it returns, and never past the disk.
func (j *imageWrite) body(from io.Reader) ([]byte, error) {
	j.reached = 0
	var head []byte
	buffer := make([]byte, mebi)
	for {
		n, last, err := fillBuffer(from, buffer)
		if err != nil {
			return nil, err
		}
		if int64(n) > j.to.Size()-j.reached {
			return nil, newFailure(wire.ErrImage, "image %s: it is larger than the disk's %d bytes", j.info.ID, j.to.Size())
		}
		if j.reached == 0 {
			head = bytes.Clone(buffer[:n])
		} else if n > 0 {
			if _, err := j.to.WriteAt(buffer[:n], j.reached); err != nil {
				return nil, newFailure(wire.ErrWrite, "image %s: %w", j.info.ID, err)
			}
		}
		j.reached += int64(n)
		if last {
			return head, nil
		}
	}
}

// finish writes the start of the disk, once all else is there.
func (j *imageWrite) finish(head []byte) error {
	if j.reached == 0 {
		return newFailure(wire.ErrImage, "image %s: it is empty", j.info.ID)
	}
	if err := j.to.Sync(); err != nil {
		return newFailure(wire.ErrWrite, "image %s: %w", j.info.ID, err)
	}
	if _, err := j.to.WriteAt(head, 0); err != nil {
		return newFailure(wire.ErrWrite, "image %s: %w", j.info.ID, err)
	}
	if err := j.to.Sync(); err != nil {
		return newFailure(wire.ErrWrite, "image %s: %w", j.info.ID, err)
	}
	return nil
}

// fillBuffer reads until the buffer is full or the reader ends. Unlike io.ReadFull it tells
// an end from a reader's own io.ErrUnexpectedEOF, which is what a cut gzip gives.
func fillBuffer(from io.Reader, buffer []byte) (n int, last bool, err error) {
	for n < len(buffer) {
		m, err := from.Read(buffer[n:])
		n += m
		if err == io.EOF {
			return n, true, nil
		}
		if err != nil {
			return n, false, err
		}
	}
	return n, false, nil
}
