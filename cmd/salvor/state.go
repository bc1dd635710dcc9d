package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/uuid"

	"salvor/problem"
	"salvor/secret"
)

// stateDir is the directory that makes this process the conductor that it is: its
// identity, its key and the lock that keeps a second process out.
type stateDir struct {
	path string
	id   string
	lock *os.File
}

// cacheFolder holds what may be fetched again.
const cacheFolder = "cache"

// openStateDir creates the directory where it lacks, takes its lock and reads the
// conductor's identity. Winning the lock proves that no former process lives.
func openStateDir(path string) (*stateDir, error) {
	if err := os.MkdirAll(filepath.Join(path, cacheFolder), 0o700); err != nil {
		return nil, problem.Invalidf("state directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, problem.Invalidf("state directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, problem.Conflictf("state directory %s is in use by another salvor serve; stop it, or give this one its own --state-dir", path)
	}
	id, err := readOrMake(filepath.Join(path, "conductor.id"), func() []byte { return []byte(uuid.NewString() + "\n") })
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &stateDir{path: path, id: strings.TrimSpace(string(id)), lock: lock}, nil
}

// Close gives the lock up.
func (s *stateDir) Close() error { return s.lock.Close() }

// readOrMake reads a private file, and makes it first where there is none.
func readOrMake(path string, content func() []byte) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return b, err
	}
	b = content()
	next := path + ".new"
	if err := writeThrough(next, b); err != nil {
		return nil, err
	}
	if err := os.Rename(next, path); err != nil {
		return nil, err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return b, dir.Sync()
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

// loadKey reads the key that seals secrets, or makes it at the first start.
func loadKey(path string) (*secret.Key, error) {
	b, err := readOrMake(path, secret.GenerateKey)
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, problem.Invalidf("key file %s can be read by others: chmod 600 it", path)
	}
	key, err := secret.NewKey(b)
	if err != nil {
		return nil, problem.Invalidf("key file %s: %w", path, err)
	}
	return key, nil
}
