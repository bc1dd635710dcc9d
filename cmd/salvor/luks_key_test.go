package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/test/must"
)

// TestReadLUKSKeys: a file is taken byte by byte, standard input is one line, and a UUID may go before either.
func TestReadLUKSKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	must.OK(t, os.WriteFile(file, []byte("raw\x00\n"), 0o600))
	keys := must.Get(readLUKSKeys(strings.NewReader("open sesame\nmore"), io.Discard, []string{file, "0dd1e5c4=" + file, "-"}))(t)
	if len(keys) != 3 || string(keys[0].Key) != "raw\x00\n" || keys[1].UUID != "0dd1e5c4" || string(keys[1].Key) != "raw\x00\n" || string(keys[2].Key) != "open sesame" || keys[0].UUID != "" {
		t.Errorf("%d keys, %q", len(keys), keys)
	}
	if keys := must.Get(readLUKSKeys(strings.NewReader("without an end"), io.Discard, []string{"-"}))(t); string(keys[0].Key) != "without an end" {
		t.Errorf("%q", keys)
	}
	must.OK(t, os.WriteFile(file, make([]byte, diagnose.MaxLUKSKey+5), 0o600))
	for _, names := range [][]string{{file}, {"-"}, {"-", "-"}, {file + ".none"}, {""}} {
		if _, err := readLUKSKeys(strings.NewReader("\n"), io.Discard, names); err == nil || !strings.Contains(err.Error(), "--luks-key "+names[0]) {
			t.Errorf("%q: %v", names, err)
		}
	}
}
