// Package durable writes files that are whole, and on the disk, before anybody relies on them.
package durable

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// Write makes a file, or replaces one as a whole: after a crash there is the former one or the new one. Who calls sees to it
// that nobody writes the same file meanwhile.
func Write(path string, content []byte, mode os.FileMode) error {
	next := path + ".new"
	err := write(next, content, mode)
	if err == nil {
		err = Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next)
	}
	return err
}

// Replace is Write for a file that others may replace at the same time, also on other machines: each replacement is whole, and the last one stays.
func Replace(path string, content []byte, mode os.FileMode) error {
	next := path + "." + rand.Text()
	err := write(next, content, mode)
	if err == nil {
		err = Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next)
	}
	return err
}

// ReadOrMake reads a file, and makes it first where there is none: of several processes or machines that come at once, one makes it,
// and all read what that one wrote.
func ReadOrMake(path string, mode os.FileMode, content func() ([]byte, error)) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return b, err
	}
	if b, err = content(); err != nil {
		return nil, err
	}
	// Not by the number of the process, which two in containers of their own may share.
	made := path + "." + rand.Text()
	defer os.Remove(made)
	if err := write(made, b, mode); err != nil {
		return nil, err
	}
	// A link takes no place that is taken.
	if err := os.Link(made, path); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if err := Names(filepath.Dir(path)); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// write has the content on the disk.
func write(path string, content []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
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

// Unlock lets go the flock of a file, and closes it. A program that is being started holds the file, too, until its exec, so that to
// close it here does not let go the lock at once.
func Unlock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}
