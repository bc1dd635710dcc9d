package serve

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/uuid"

	"salvor/durable"
	"salvor/problem"
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
	id, err := durable.ReadOrMake(filepath.Join(path, "conductor.id"), 0o600, func() ([]byte, error) { return []byte(uuid.NewString() + "\n"), nil })
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &stateDir{path: path, id: strings.TrimSpace(string(id)), lock: lock}, nil
}

// Close gives the lock up.
func (s *stateDir) Close() error { return durable.Unlock(s.lock) }
