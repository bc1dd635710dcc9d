package netboot

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"salvor/boot/media"
	"salvor/problem"
)

// openFile opens a file of a plan. Plans take paths from node records, which users
// write: only regular files below one of the roots are opened, whatever links say.
func openFile(roots []string, path string) (*os.File, fs.FileInfo, error) {
	if !filepath.IsAbs(path) || path != filepath.Clean(path) {
		return nil, nil, problem.Invalidf("boot file %q is not a clean absolute path", path)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, nil, openError(path, err)
	}
	for _, dir := range roots {
		if dir, err = filepath.EvalSymlinks(dir); err != nil {
			continue // a directory that is not there holds nothing
		}
		if rel, err := filepath.Rel(dir, real); err == nil && filepath.IsLocal(rel) {
			return openBelow(dir, rel)
		}
	}
	return nil, nil, problem.Forbiddenf("boot file %s lies in no directory that boot files may come from (%s)", path, strings.Join(roots, ", "))
}

// openBelow holds even if a directory becomes a link between the check and the opening.
func openBelow(dir, rel string) (*os.File, fs.FileInfo, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, openError(dir, err)
	}
	defer root.Close()
	// Without O_NONBLOCK opening a named pipe would wait for its writer.
	f, err := root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, openError(filepath.Join(dir, rel), err)
	}
	return regular(f)
}

// openInstalled opens a file of the operator's or of a package, wherever its links lead.
func openInstalled(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, openError(path, err)
	}
	return regular(f)
}

// regular closes what is no regular file.
func regular(f *os.File) (*os.File, fs.FileInfo, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = problem.Invalidf("boot file %s is not a regular file", f.Name())
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// openError is Unavailable where waiting may help, such as when too many files are open, and Invalid where somebody must mend the file.
func openError(path string, err error) error {
	for _, passing := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR, syscall.EAGAIN, syscall.ESTALE, syscall.ETIMEDOUT, syscall.EHOSTDOWN} {
		if errors.Is(err, passing) {
			return problem.Unavailablef("open boot file %s: %w", path, plainCause(err))
		}
	}
	return problem.Invalidf("open boot file %s: %w", path, plainCause(err))
}

func (s *sharedFile) blob() media.Blob { return io.NewSectionReader(s.file, 0, s.size) }

// readBlob reads a file into memory.
func readBlob(f *os.File, size int64) (media.Blob, error) {
	b := make([]byte, size)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, problem.Unavailablef("read %s: %w", f.Name(), err)
	}
	return io.NewSectionReader(bytes.NewReader(b), 0, size), nil
}

func leaveAll(parts []*sharedFile) {
	for _, p := range parts {
		p.leave()
	}
}

// redactURL is a URL as a message may hold it: without user, password and query.
func redactURL(ref string) string {
	u, err := url.Parse(ref)
	if err != nil {
		return "(not a URL)"
	}
	return u.Scheme + "://" + u.Host + u.Path
}
