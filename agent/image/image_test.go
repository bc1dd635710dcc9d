package image

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"salvor/problem"
	"salvor/test/debian"
	"salvor/test/must"
	wire "salvor/wire/agent"
)

const diskSize = 5 * mebi

// file is a disk in memory, dirty before anything is written.
type file struct{ b []byte }

func newDisk(size int) *file {
	return &file{bytes.Repeat([]byte{0xdb}, size)}
}

func (f *file) ReadAt(p []byte, off int64) (int, error)  { return copy(p, f.b[off:]), nil }
func (f *file) WriteAt(p []byte, off int64) (int, error) { return copy(f.b[off:], p), nil }
func (f *file) Size() int64                              { return int64(len(f.b)) }
func (f *file) Sync() error                              { return nil }
func (f *file) Zero(off, n int64) error                  { clear(f.b[off : off+n]); return nil }

// content is a system of 3 MiB with holes, a table in front and a mark at its end.
func content() []byte {
	b := make([]byte, 3*mebi+512)
	r := rand.New(rand.NewPCG(1, 2))
	for _, at := range []int{0, mebi, 2*mebi + 4096, 3 * mebi} {
		for i := at; i < min(at+mebi/4, len(b)); i++ {
			b[i] = byte(r.Uint32())
		}
	}
	copy(b, "\xeb\x63\x90GRUB")
	return b
}

func zipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil || z.Close() != nil {
		t.Fatal("gzip")
	}
	return out.Bytes()
}

// qemuImg makes an image of the content with the options of qemu-img convert.
func qemuImg(t *testing.T, b []byte, options ...string) []byte {
	t.Helper()
	convert := debian.Program(t, "qemu-img", "qemu-utils")
	dir := t.TempDir()
	raw, out := filepath.Join(dir, "raw"), filepath.Join(dir, "out")
	must.OK(t, os.WriteFile(raw, b, 0o600))
	args := append(append([]string{"convert", "-f", "raw"}, options...), raw, out)
	if text, err := exec.Command(convert, args...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img %v: %v: %s", args, err, text)
	}
	made := must.Get(os.ReadFile(out))(t)
	return made
}

func sha(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

type fixture struct {
	server *httptest.Server
	writer Writer
	files  map[string][]byte
	// second is served instead from the second request on, where it is there.
	second map[string][]byte
	asked  atomic.Int32
	ranges bool
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{files: map[string][]byte{}, second: map[string][]byte{}, ranges: true}
	f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		b, ok := f.files[name]
		if other, has := f.second[name]; has && f.asked.Add(1) > 1 {
			b = other
		}
		switch {
		case strings.HasPrefix(name, "to/"):
			http.Redirect(w, r, "/"+strings.TrimPrefix(name, "to/"), http.StatusFound)
		case !ok:
			http.NotFound(w, r)
		case f.ranges:
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
		default:
			_, _ = w.Write(b)
		}
	}))
	t.Cleanup(f.server.Close)
	f.writer = Writer{HTTP: Client(nil), Memory: 64 * mebi, Log: slog.New(slog.DiscardHandler), Idle: 5 * time.Second, Pause: time.Millisecond}
	return f
}

func (f *fixture) url(name string) string { return f.server.URL + "/" + name }

func (f *fixture) order(name, format string, b []byte) wire.Image {
	f.files[name] = b
	return wire.Image{ID: "one", URLs: []string{f.url(name)}, Checksum: sha(b), DiskFormat: format}
}

// written fails unless the disk holds the content and then what it held before.
func written(t *testing.T, to *file, want []byte) {
	t.Helper()
	if !bytes.Equal(to.b[:len(want)], want) {
		t.Error("the disk does not hold the image")
	}
	if !bytes.Equal(to.b[len(to.b)-mebi:], make([]byte, mebi)) {
		t.Error("the end of the disk still holds the former backup table")
	}
}

func TestWrite(t *testing.T) {
	body := content()
	for name, c := range map[string]struct {
		format string
		b      []byte
		change func(*fixture, *wire.Image)
	}{
		"raw":             {"raw", body, nil},
		"no format":       {"", body, nil},
		"gzip":            {"raw", zipped(t, body), nil},
		"two gzip":        {"raw", append(zipped(t, body[:mebi+5]), zipped(t, body[mebi+5:])...), nil},
		"qcow2":           {"qcow2", qemuImg(t, body, "-O", "qcow2"), nil},
		"qcow2 told":      {"", qemuImg(t, body, "-O", "qcow2"), nil},
		"qcow2 v2":        {"qcow2", qemuImg(t, body, "-O", "qcow2", "-o", "compat=0.10"), nil},
		"qcow2 packed":    {"qcow2", qemuImg(t, body, "-c", "-O", "qcow2"), nil},
		"qcow2 clusters":  {"qcow2", qemuImg(t, body, "-O", "qcow2", "-o", "cluster_size=512"), nil},
		"qcow2 2M":        {"qcow2", qemuImg(t, body, "-c", "-O", "qcow2", "-o", "cluster_size=2M"), nil},
		"qcow2 by ranges": {"qcow2", qemuImg(t, body, "-O", "qcow2"), func(f *fixture, _ *wire.Image) { f.writer.Memory = mebi / 2 }},
		"sha512": {"raw", body, func(_ *fixture, i *wire.Image) {
			s := sha512.Sum512(body)
			i.Checksum, i.HashAlgo, i.HashValue = "", "sha512", strings.ToUpper(hex.EncodeToString(s[:]))
		}},
		"md5 where taken": {"raw", body, func(f *fixture, i *wire.Image) {
			s := md5.Sum(body)
			f.writer.MD5, i.Checksum = true, hex.EncodeToString(s[:])
		}},
		"checksum file": {"raw", body, func(f *fixture, i *wire.Image) {
			f.files["SUMS"] = []byte("# sums\n" + sha([]byte("x")) + " *other\n" + sha(body) + " *a.img\n")
			i.Checksum, f.files["a.img"], i.URLs = f.url("SUMS"), body, []string{f.url("a.img")}
		}},
		"second server": {"raw", body, func(f *fixture, i *wire.Image) { i.URLs = append([]string{"http://127.0.0.1:1/x"}, i.URLs...) }},
		"redirect":      {"raw", body, func(f *fixture, i *wire.Image) { i.URLs = []string{f.url("to/redirect")} }},
	} {
		t.Run(name, func(t *testing.T) {
			f, to := newFixture(t), newDisk(diskSize)
			order := f.order(name, c.format, c.b)
			if c.change != nil {
				c.change(f, &order)
			}
			must.OK(t, f.writer.Write(context.Background(), order, to))
			written(t, to, body)
		})
	}
}

// patched gives a copy of a qcow2 with bytes changed.
func patched(b []byte, at int, with ...byte) []byte {
	b = bytes.Clone(b)
	copy(b[at:], with)
	return b
}

func backed(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	if text, err := exec.Command("qemu-img", "create", "-f", "qcow2", "-b", "/etc/passwd", "-F", "raw", "-u", filepath.Join(dir, "x"), "8M").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	b := must.Get(os.ReadFile(filepath.Join(dir, "x")))(t)
	return b
}

func TestRefused(t *testing.T) {
	body := content()
	q := qemuImg(t, body, "-O", "qcow2")
	packed := qemuImg(t, body, "-c", "-O", "qcow2")
	be := func(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }
	large := make([]byte, diskSize+1)
	for name, c := range map[string]struct {
		format string
		b      []byte
		kind   string
		text   string
		change func(*fixture, *wire.Image)
	}{
		"checksum":            {"raw", body, wire.ErrChecksum, sha([]byte("y")), func(_ *fixture, i *wire.Image) { i.Checksum = sha([]byte("y")) }},
		"checksum of gzip":    {"raw", zipped(t, body), wire.ErrChecksum, "expected", func(_ *fixture, i *wire.Image) { i.Checksum = sha(body) }},
		"checksum of qcow2":   {"qcow2", q, wire.ErrChecksum, "expected", func(_ *fixture, i *wire.Image) { i.Checksum = sha(body) }},
		"truncated raw":       {"raw", body, wire.ErrChecksum, "expected", func(f *fixture, _ *wire.Image) { f.files["truncated raw"] = body[:len(body)/2] }},
		"truncated gzip":      {"raw", zipped(t, body)[:mebi/2], wire.ErrImage, "cut off", nil},
		"truncated qcow2":     {"qcow2", q[:len(q)-mebi/2], wire.ErrImage, "cut off", nil},
		"truncated packed":    {"qcow2", packed[:len(packed)-2048], wire.ErrImage, "cut off", nil},
		"short qcow2":         {"qcow2", q[:40], wire.ErrImage, "cut off", nil},
		"gzip bomb":           {"raw", zipped(t, large), wire.ErrImage, "larger than the disk", nil},
		"raw too large":       {"raw", large, wire.ErrImage, "the disk", nil},
		"gzip of qcow2":       {"raw", zipped(t, q), wire.ErrImage, "qcow2", nil},
		"gzip twice":          {"raw", zipped(t, zipped(t, body)), wire.ErrImage, "gzip", nil},
		"raw that is qcow2":   {"raw", q, wire.ErrImage, "its content is qcow2", nil},
		"raw that is vmdk":    {"raw", qemuImg(t, body, "-O", "vmdk"), wire.ErrImage, "vmdk", nil},
		"raw that is vhdx":    {"raw", qemuImg(t, body, "-O", "vhdx"), wire.ErrImage, "vhdx", nil},
		"raw that is vdi":     {"raw", qemuImg(t, body, "-O", "vdi"), wire.ErrImage, "vdi", nil},
		"qcow2 that is raw":   {"qcow2", body, wire.ErrImage, "its content is not", nil},
		"an error page":       {"raw", []byte("<!DOCTYPE html>oops"), wire.ErrImage, "HTML", nil},
		"empty":               {"raw", nil, wire.ErrImage, "empty", nil},
		"backing file":        {"qcow2", backed(t), wire.ErrImage, "backing file", nil},
		"external data":       {"qcow2", patched(q, 79, 4), wire.ErrImage, "external data", nil},
		"corrupt":             {"qcow2", patched(q, 79, 2), wire.ErrImage, "corrupt", nil},
		"unknown feature":     {"qcow2", patched(q, 78, 1), wire.ErrImage, "feature 8", nil},
		"encrypted":           {"qcow2", patched(q, 35, 2), wire.ErrImage, "encrypted", nil},
		"extension with data": {"qcow2", patched(q, 112, 0x44, 0x41, 0x54, 0x41, 0, 0, 0, 8), wire.ErrImage, "external data", nil},
		"zstd":                {"qcow2", patched(patched(q, 79, 8), 104, 1), wire.ErrImage, "zlib", nil},
		"extended L2":         {"qcow2", qemuImg(t, body, "-O", "qcow2", "-o", "extended_l2=on,cluster_size=128k"), wire.ErrImage, "extended L2", nil},
		"virtual size":        {"qcow2", patched(q, 24, be(diskSize+1)...), wire.ErrImage, "virtual size", nil},
		"virtual size wraps":  {"qcow2", patched(q, 24, be(1<<63)...), wire.ErrImage, "virtual size", nil},
		"L1 too long":         {"qcow2", patched(q, 36, 0xff, 0xff, 0xff, 0xff), wire.ErrImage, "L1", nil},
		"L1 outside":          {"qcow2", patched(q, 40, be(1<<40)...), wire.ErrImage, "L1", nil},
		"L2 outside":          {"qcow2", patched(q, int(binary.BigEndian.Uint64(q[40:])), be(1<<50)...), wire.ErrImage, "broken", nil},
		"partition image":     {"raw", body, "", "whole-disk", func(_ *fixture, i *wire.Image) { i.Type = "partition" }},
		"no checksum":         {"raw", body, "", "checksum is not available", func(_ *fixture, i *wire.Image) { i.Checksum = "" }},
		"md5":                 {"raw", body, "", "MD5", func(_ *fixture, i *wire.Image) { i.Checksum = strings.Repeat("a", 32) }},
		"sha1":                {"raw", body, "", "not known", func(_ *fixture, i *wire.Image) { i.HashAlgo, i.HashValue = "sha1", strings.Repeat("a", 40) }},
		"half a hash":         {"raw", body, "", "together", func(_ *fixture, i *wire.Image) { i.HashAlgo = "sha256" }},
		"file URL":            {"raw", body, "", "http", func(_ *fixture, i *wire.Image) { i.URLs = []string{"file:///etc/passwd"} }},
		"vmdk":                {"vmdk", body, "", "not written", nil},
		"not permitted":       {"raw", body, "", "permitted", func(f *fixture, _ *wire.Image) { f.writer.Formats = []string{"qcow2"} }},
		"not there":           {"raw", body, wire.ErrDownload, "404", func(f *fixture, i *wire.Image) { i.URLs = []string{f.url("no")} }},
		"nobody answers":      {"raw", body, wire.ErrDownload, "refused", func(_ *fixture, i *wire.Image) { i.URLs = []string{"http://127.0.0.1:1/secret?token=hush"} }},
		"no sums":             {"raw", body, wire.ErrDownload, "names no checksum", func(f *fixture, i *wire.Image) { f.files["S"], i.Checksum = []byte("a b\n"), f.url("S") }},
		"no ranges": {"qcow2", q, wire.ErrDownload, "serves no ranges", func(f *fixture, _ *wire.Image) {
			f.writer.Memory, f.ranges = mebi/2, false
		}},
		"other bytes the second time": {"qcow2", q, wire.ErrChecksum, "other bytes", func(f *fixture, _ *wire.Image) {
			f.writer.Memory, f.second["other bytes the second time"] = mebi/2, patched(q, 5*65536+7, 1, 2, 3, 4, 5, 6)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f, to := newFixture(t), newDisk(diskSize)
			order := f.order(name, c.format, c.b)
			order.URLs[0] = strings.ReplaceAll(order.URLs[0], " ", "%20")
			if c.change != nil {
				c.change(f, &order)
			}
			err := f.writer.Write(context.Background(), order, to)
			var known *Failure
			switch {
			case err == nil || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "hush"):
				t.Fatalf("error: %v", err)
			case c.kind == "":
				if !problem.Is(err, problem.Invalid) || to.b[0] != 0xdb {
					t.Errorf("%v, disk begins %x", err, to.b[:4])
				}
				return
			case !errors.As(err, &known) || known.Type != c.kind || !strings.Contains(err.Error(), "one"):
				t.Errorf("type of %v", err)
			}
			if untouched := to.b[0] == 0xdb && name == "no sums"; !untouched && !bytes.Equal(to.b[:held], make([]byte, held)) {
				t.Error("the start of the disk is not wiped")
			}
		})
	}
}

// TestCutOff: a server that ends in the middle is asked again, one that stops sending
// is left, and the disk stays empty meanwhile.
func TestCutOff(t *testing.T) {
	body := content()
	var tried atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		switch n := tried.Add(1); {
		case n == 1:
			_, _ = w.Write(body[:2*mebi])
		case n == 2:
			_, _ = w.Write(body[:mebi])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			_, _ = w.Write(body)
		}
	}))
	defer server.Close()
	f, to := newFixture(t), newDisk(diskSize)
	f.writer.Idle = 2 * time.Second
	must.OK(t, f.writer.Write(context.Background(), wire.Image{ID: "one", URLs: []string{server.URL}, Checksum: sha(body)}, to))
	written(t, to, body)
}

func FuzzQcow2(f *testing.F) {
	f.Add(make([]byte, 104))
	head := append([]byte("QFI\xfb\x00\x00\x00\x03"), make([]byte, 1<<17)...)
	binary.BigEndian.PutUint32(head[20:], 16)
	binary.BigEndian.PutUint64(head[24:], 1<<20)
	binary.BigEndian.PutUint32(head[36:], 1)
	binary.BigEndian.PutUint64(head[40:], 1<<16)
	binary.BigEndian.PutUint32(head[96:], 4)
	binary.BigEndian.PutUint32(head[100:], 104)
	f.Add(head)
	f.Fuzz(func(t *testing.T, b []byte) {
		to := newDisk(2 * mebi)
		j := &imageWrite{Writer: Writer{Log: slog.New(slog.DiscardHandler)}, info: wire.Image{ID: "one"}, to: to}
		_ = j.convert(context.Background(), bytes.NewReader(b), int64(len(b)))
	})
}

func FuzzFindSum(f *testing.F) {
	f.Add([]byte(sha(nil)+"  x\n"), "x")
	f.Add([]byte("SHA256 (x) = "+sha(nil)), "x")
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		if s := findSum(b, name); s != "" && !isSum(s) {
			t.Error(s)
		}
	})
}
