package examine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"salvor/diagnose"
)

// OpenTree opens the tree of a mounted file system. It is read until the closer is closed.
func OpenTree(place string) (*diagnose.Tree, io.Closer, error) {
	root, err := os.OpenRoot(place)
	if err != nil {
		return nil, nil, err
	}
	base, ok := root.FS().(fs.ReadLinkFS)
	if !ok {
		_ = root.Close()
		return nil, nil, fs.ErrInvalid
	}
	return diagnose.NewTree(&rootFS{place, base}), root, nil
}

// rootFS gives the files below a folder with their owners. os.Root lets no name lead out of the folder.
type rootFS struct {
	place string
	base  fs.ReadLinkFS
}

// unread marks errors of the disk and of this machine. All others say what is wrong with the file.
func unread(err error) error {
	for _, errno := range []syscall.Errno{unix.EIO, unix.ENOMEM, unix.EMFILE, unix.ENFILE} {
		if errors.Is(err, errno) {
			return fmt.Errorf("%w: %w", diagnose.ErrUnread, errno)
		}
	}
	return err
}

func (r *rootFS) Open(name string) (fs.File, error) {
	f, err := r.base.Open(name)
	if err != nil {
		return nil, unread(err)
	}
	return &ownedFile{f, filepath.Join(r.place, name)}, nil
}

func (r *rootFS) Lstat(name string) (fs.FileInfo, error) {
	info, err := r.base.Lstat(name)
	if err != nil {
		return nil, unread(err)
	}
	return ownedInfo{info, filepath.Join(r.place, name)}, nil
}

func (r *rootFS) ReadLink(name string) (string, error) {
	target, err := r.base.ReadLink(name)
	return target, unread(err)
}

// ownedFile is an open file or folder whose infos have owners.
type ownedFile struct {
	fs.File
	path string
}

func (f *ownedFile) Read(b []byte) (int, error) {
	n, err := f.File.Read(b)
	return n, unread(err)
}

// ReadAt reads any part of the file, so that the end of a large log costs no more than its beginning.
func (f *ownedFile) ReadAt(b []byte, at int64) (int, error) {
	r, ok := f.File.(io.ReaderAt)
	if !ok {
		return 0, &fs.PathError{Op: "read", Path: f.path, Err: fs.ErrInvalid}
	}
	n, err := r.ReadAt(b, at)
	return n, unread(err)
}

func (f *ownedFile) Stat() (fs.FileInfo, error) {
	info, err := f.File.Stat()
	if err != nil {
		return nil, err
	}
	return ownedInfo{info, f.path}, nil
}

func (f *ownedFile) ReadDir(n int) ([]fs.DirEntry, error) {
	folder, ok := f.File.(fs.ReadDirFile)
	if !ok {
		return nil, &fs.PathError{Op: "readdir", Path: f.path, Err: fs.ErrInvalid}
	}
	entries, err := folder.ReadDir(n)
	for i, e := range entries {
		entries[i] = ownedEntry{e, filepath.Join(f.path, e.Name())}
	}
	return entries, unread(err)
}

type ownedEntry struct {
	fs.DirEntry
	path string
}

func (e ownedEntry) Info() (fs.FileInfo, error) {
	info, err := e.DirEntry.Info()
	if err != nil {
		return nil, err
	}
	return ownedInfo{info, e.path}, nil
}

// ownedInfo maps what the system says of a file to its *diagnose.Owner.
type ownedInfo struct {
	fs.FileInfo
	path string
}

func (i ownedInfo) Sys() any {
	stat, ok := i.FileInfo.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	owner := &diagnose.Owner{UID: stat.Uid, GID: stat.Gid, Links: uint64(stat.Nlink)}
	label := make([]byte, 256)
	// The tree asks for names without links only, and nobody changes what is mounted read-only.
	if n, err := unix.Lgetxattr(i.path, "security.selinux", label); err == nil && n > 0 {
		owner.Label = strings.TrimRight(strings.ToValidUTF8(string(label[:n]), "?"), "\x00")
	}
	return owner
}
