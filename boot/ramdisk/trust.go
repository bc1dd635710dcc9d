package ramdisk

import (
	"bytes"
	"context"
	"os"
	"path/filepath"

	"salvor/problem"
)

// AddTrust puts Debian's certificate authorities where programs look for them, so that
// images and servers with certificates of the public ones need no ipa-ca-file.
func (s *Source) AddTrust(ctx context.Context, t *Tree) error {
	dir, err := s.archive.get(ctx, "ca-certificates")
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "usr/share/ca-certificates/mozilla/*.crt"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return problem.Unavailablef("package ca-certificates: it holds no certificates")
	}
	var all bytes.Buffer
	for _, file := range files {
		pem, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		all.Write(bytes.TrimSpace(pem))
		all.WriteByte('\n')
	}
	t.File("etc/ssl/certs/ca-certificates.crt", 0o644, all.Bytes())
	return nil
}
