package keyring

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"

	"salvor/durable"
)

// ReadOrMake reads a private file, and makes it first where there is none.
func ReadOrMake(path string, content func() []byte) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return b, err
	}
	// Of several processes that come at once one makes it; each in a container of its own may have the same number.
	made := path + "." + rand.Text()
	defer os.Remove(made)
	// A key that a power cut takes away takes along every secret that was sealed with it.
	if err := durable.Write(made, content(), 0o600); err != nil {
		return nil, err
	}
	if err := os.Link(made, path); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if err := durable.Names(filepath.Dir(path)); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}
