package keyring

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ReadOrMake reads a private file, and makes it first where there is none.
func ReadOrMake(path string, content func() []byte) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return b, err
	}
	// Of several processes that come at once one makes it.
	made := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer os.Remove(made)
	if err := writeThrough(made, content()); err != nil {
		return nil, err
	}
	if err := os.Link(made, path); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if err := syncFolder(path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// writeThrough has a private file on the disk before it is relied on: a key that a
// power cut takes away takes along every secret that was sealed with it.
func writeThrough(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

// replaceFile puts another content into a private file, on the disk before it is relied on.
func replaceFile(path string, content []byte) error {
	next := path + ".new"
	if err := writeThrough(next, content); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	return syncFolder(path)
}

// syncFolder has the name of a file on the disk.
func syncFolder(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
