// Package blob keeps bytes as files of one directory, each named by the SHA-256 of what is in it. It knows
// neither images nor who may read them; whoever puts bytes in notes their digest and asks for their removal.
package blob

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"salvor/problem"
)

// Directory is a directory of blobs. It is safe for use by several goroutines, and by several processes.
type Directory struct{ root *os.Root }

const (
	scheme = "sha256:"
	// partial begins the names of files that are being written. Their writer holds a lock on them.
	partial = ".partial-"
	piece   = 1 << 20
)

// Open opens the directory at path, making it where it is missing, and removes what an earlier process left
// half written.
func Open(path string) (*Directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("blobs: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("blobs: %w", err)
	}
	d := &Directory{root}
	if err := d.sweep(); err != nil {
		_ = root.Close()
		return nil, err
	}
	return d, nil
}

// Close gives the directory up. Blobs that are open stay readable.
func (d *Directory) Close() error { return d.root.Close() }

// sweep removes the partial files that nobody holds a lock on.
func (d *Directory) sweep() error {
	files, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return fmt.Errorf("blobs: %w", err)
	}
	for _, e := range files {
		if !strings.HasPrefix(e.Name(), partial) || !e.Type().IsRegular() {
			continue
		}
		if err := d.drop(e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("blobs: remove what was left of %s: %w", e.Name(), err)
		}
	}
	return nil
}

func (d *Directory) drop(name string) error {
	f, err := d.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return nil // somebody writes it
	}
	return d.root.Remove(name)
}

// Put reads r to its end and keeps what it read, on disk when it returns. It gives the digest ("sha256:" and
// 64 hexadecimal digits) and the size in bytes. Nothing is kept if r fails or ctx ends; bytes that are there already
// are no error. A full disk is problem.Unavailable.
func (d *Directory) Put(ctx context.Context, r io.Reader) (digest string, size int64, err error) {
	name := partial + rand.Text()
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", 0, failed("begin to keep a blob", err)
	}
	kept := false
	defer func() {
		if !kept {
			_ = d.root.Remove(name)
		}
		if closing := f.Close(); err == nil && closing != nil {
			digest, size, err = "", 0, failed("keep a blob", closing)
		}
	}()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return "", 0, failed("begin to keep a blob", err)
	}
	sum := sha256.New()
	size, err = io.CopyBuffer(io.MultiWriter(writer{f}, sum), reader{ctx, r}, make([]byte, piece))
	if err != nil {
		return "", 0, failed("keep a blob", err)
	}
	digits := hex.EncodeToString(sum.Sum(nil))
	// The bytes are on disk before their name is, and the name before anybody hears of it.
	if err := f.Sync(); err != nil {
		return "", 0, failed("keep blob "+digits, err)
	}
	if err := d.root.Rename(name, digits); err != nil {
		return "", 0, failed("keep blob "+digits, err)
	}
	kept = true
	if err := d.syncNames(); err != nil {
		return "", 0, failed("keep blob "+digits, err)
	}
	return scheme + digits, size, nil
}

func (d *Directory) syncNames() error {
	dir, err := d.root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// Open opens a blob for reading from its beginning. Bytes that were never put, and what is no digest, are
// problem.NotFound. A blob that is removed meanwhile is read to its end.
func (d *Directory) Open(_ context.Context, digest string) (io.ReadSeekCloser, error) {
	name, err := nameOf(digest)
	if err != nil {
		return nil, err
	}
	f, err := d.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(digest)
	}
	if err != nil {
		return nil, failed("open blob "+name, err)
	}
	return f, nil
}

// Remove forgets a blob; one that is not there is no error.
func (d *Directory) Remove(_ context.Context, digest string) error {
	name, err := nameOf(digest)
	if err != nil {
		return nil // it never was there
	}
	if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failed("remove blob "+name, err)
	}
	return nil
}

// nameOf is the file of a digest. Only digests become names, so nothing else in the directory or beyond it is reached.
func nameOf(digest string) (string, error) {
	digits, ok := strings.CutPrefix(digest, scheme)
	if !ok || len(digits) != 2*sha256.Size || strings.Trim(digits, "0123456789abcdef") != "" || filepath.Base(digits) != digits {
		return "", missing(digest)
	}
	return digits, nil
}

func missing(digest string) error {
	return problem.NotFoundf("Bytes with digest %.80q are not kept here.", digest)
}

// failed says what could not be done; the kind of the error stays, and a full disk is Unavailable.
func failed(what string, err error) error {
	var w writeError
	if errors.As(err, &w) && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) {
		return problem.Unavailablef("%s: the disk is full: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// writeError tells the disk's errors from those of the source.
type writeError struct{ error }

func (w writeError) Unwrap() error { return w.error }

type writer struct{ f *os.File }

func (w writer) Write(b []byte) (int, error) {
	n, err := w.f.Write(b)
	if err != nil {
		err = writeError{err}
	}
	return n, err
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(b []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.r.Read(b)
}
