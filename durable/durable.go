// Package durable writes files that are whole, and on the disk, before anybody relies on them.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// Write makes a file, or replaces one as a whole: after a crash there is the former one or the new one. Who calls sees to it
// that nobody writes the same file meanwhile.
func Write(path string, content []byte, mode os.FileMode) error {
	next := path + ".new"
	f, err := os.OpenFile(next, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next)
	}
	return err
}

// Rename moves a file, whose content is on the disk, into its place, and has its name there too.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return Names(filepath.Dir(to))
}

// Names has the names of files in a directory on the disk: those that came, and those that went.
func Names(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
