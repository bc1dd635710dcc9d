package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"salvor/problem"
	"salvor/test/must"
)

func open(t *testing.T, path string) *Directory {
	t.Helper()
	d := must.Get(Open(path))(t)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func names(t *testing.T, path string) (out []string) {
	t.Helper()
	files := must.Get(os.ReadDir(path))(t)
	for _, f := range files {
		out = append(out, f.Name())
	}
	return out
}

func TestBytesComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "blobs")
	d := open(t, path)
	for _, c := range []struct{ bytes, digits string }{
		{"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
	} {
		for range 2 { // the second time they are there already
			digest, size, err := d.Put(t.Context(), iotest.OneByteReader(strings.NewReader(c.bytes)))
			if err != nil || digest != "sha256:"+c.digits || size != int64(len(c.bytes)) {
				t.Fatalf("%q: %s %d %v", c.bytes, digest, size, err)
			}
		}
		f := must.Get(d.Open(t.Context(), "sha256:"+c.digits))(t)
		must.OK(t, d.Remove(t.Context(), "sha256:"+c.digits))
		_, _ = f.Seek(1, io.SeekStart)
		got, err := io.ReadAll(f)
		if want := c.bytes[min(1, len(c.bytes)):]; err != nil || string(got) != want {
			t.Errorf("read after the removal: %q %v", got, err)
		}
		_ = f.Close()
		if _, err := d.Open(t.Context(), "sha256:"+c.digits); !problem.Is(err, problem.NotFound) {
			t.Errorf("after the removal: %v", err)
		}
	}
	if left := names(t, path); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if at, err := os.Stat(path); err != nil || at.Mode().Perm() != 0o700 {
		t.Errorf("the directory is open to others: %v %v", at.Mode(), err)
	}
}

func TestNothingOfAFailedPut(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	broken := errors.New("the client hung up")
	over, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	for _, c := range []struct {
		ctx context.Context
		r   io.Reader
	}{
		{t.Context(), io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken))},
		{t.Context(), iotest.ErrReader(problem.Invalidf("too long: %w", broken))},
		{over, strings.NewReader("whole")},
	} {
		if digest, _, err := d.Put(c.ctx, c.r); !errors.Is(err, broken) || digest != "" {
			t.Errorf("%q %v", digest, err)
		}
	}
	if _, _, err := d.Put(t.Context(), iotest.ErrReader(problem.Invalidf("no"))); !problem.Is(err, problem.Invalid) {
		t.Errorf("the kind of the source's error is gone: %v", err)
	}
	if left := names(t, path); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestLeftovers: what a killed process left goes at the next start; what another one writes just now stays.
func TestLeftovers(t *testing.T) {
	path := t.TempDir()
	for _, name := range []string{partial + "dead", "someone's file"} {
		must.OK(t, os.WriteFile(filepath.Join(path, name), []byte("x"), 0o600))
	}
	d := open(t, path)
	in, out := io.Pipe()
	done := make(chan string, 1)
	go func() {
		digest, _, err := d.Put(t.Context(), in)
		if err != nil {
			t.Error(err)
		}
		done <- digest
	}()
	_, _ = out.Write([]byte("ab")) // it is read, so its file is there and locked
	again := open(t, path)
	_, _ = out.Write([]byte("c"))
	_ = out.Close()
	f := must.Get(again.Open(t.Context(), <-done))(t)
	defer f.Close()
	if got, err := io.ReadAll(f); err != nil || string(got) != "abc" {
		t.Errorf("%q %v", got, err)
	}
	if left := names(t, path); len(left) != 2 || !slices.Contains(left, "someone's file") {
		t.Errorf("in the directory: %v", left)
	}
}

func TestHostileDigests(t *testing.T) {
	path := t.TempDir()
	d := open(t, filepath.Join(path, "blobs"))
	digest, _, err := d.Put(t.Context(), strings.NewReader("abc"))
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(path, strings.Repeat("a", 64))
	must.OK(t, os.WriteFile(secret, []byte("x"), 0o600))
	digits := strings.TrimPrefix(digest, "sha256:")
	for _, bad := range []string{"", "sha256:", digits, "sha512:" + digits, "sha256:" + strings.ToUpper(digits), digest + "0", digest[:70],
		"sha256:../" + strings.Repeat("a", 64), "sha256:" + strings.Repeat("../", 21) + "a", "sha256:" + strings.Repeat(".", 64),
		"sha256:" + strings.Repeat("/", 64), "sha256:\x00" + digits[1:], "sha256:" + partial + strings.Repeat("a", 55)} {
		if _, err := d.Open(t.Context(), bad); !problem.Is(err, problem.NotFound) {
			t.Errorf("open %q: %v", bad, err)
		}
		if err := d.Remove(t.Context(), bad); err != nil {
			t.Errorf("remove %q: %v", bad, err)
		}
	}
	if _, err := os.Stat(secret); err != nil {
		t.Error(err)
	}
	must.OK(t, os.Symlink(secret, filepath.Join(path, "blobs", strings.Repeat("b", 64))))
	if f, err := d.Open(t.Context(), "sha256:"+strings.Repeat("b", 64)); err == nil {
		_ = f.Close()
		t.Error("a link leads out of the directory")
	}
	if left := names(t, filepath.Join(path, "blobs")); len(left) != 2 {
		t.Errorf("in the directory: %v", left)
	}
}

// TestAtOnce: the same bytes put, read and removed at once are whole or not there.
func TestAtOnce(t *testing.T) {
	d := open(t, t.TempDir())
	body := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			digest, size, err := d.Put(t.Context(), bytes.NewReader(body))
			if err != nil || size != int64(len(body)) {
				t.Error(size, err)
				return
			}
			f, err := d.Open(t.Context(), digest)
			if problem.Is(err, problem.NotFound) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			if i%2 == 0 {
				_ = d.Remove(t.Context(), digest)
			}
			if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, body) {
				t.Errorf("%d bytes of %d: %v", len(got), len(body), err)
			}
		})
	}
	wg.Wait()
}

// TestFullDisk: the device that is always full says what is the matter.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	_, err = writer{full}.Write([]byte("x"))
	if err = failed("keep", err); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "full") {
		t.Error(err)
	}
}
