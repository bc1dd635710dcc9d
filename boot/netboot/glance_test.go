package netboot

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"salvor/metal"
	"salvor/problem"
)

const glanceID = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"

// glanceStub has one image.
type glanceStub struct {
	bytes []byte
	err   error
	size  int64 // that was expected
	open  atomic.Int32
}

func (g *glanceStub) Open(_ context.Context, id string, size int64) (io.ReadSeekCloser, error) {
	if id != glanceID {
		return nil, problem.NotFoundf("no image %s", id)
	}
	if g.err != nil {
		return nil, g.err
	}
	g.size = size
	g.open.Add(1)
	return &stubBytes{bytes.NewReader(g.bytes), g}, nil
}

type stubBytes struct {
	*bytes.Reader
	of *glanceStub
}

func (s *stubBytes) Close() error { s.of.open.Add(-1); return nil }

// TestImagesOfGlance: machines get an image of Glance, whole or in parts, under the boot's own path, as long as that boot holds.
func TestImagesOfGlance(t *testing.T) {
	s := newSite(t)
	g := &glanceStub{bytes: []byte(strings.Repeat("system ", 9000))}
	s.server.cfg.Glance, s.server.images.downloads.glance = g, g
	p := s.plans.node.Plan
	p.Image, p.System = "glance://"+glanceID, &metal.Image{Source: "glance://" + glanceID, Size: int64(len(g.bytes))}
	resp, body := s.get(t, metal.BootImage)
	if resp.StatusCode != http.StatusOK || !bytes.Equal(body, g.bytes) || resp.ContentLength != int64(len(g.bytes)) || g.size != int64(len(g.bytes)) {
		t.Errorf("%d, %d bytes, expected %d", resp.StatusCode, len(body), g.size)
	}
	resp, body = s.get(t, metal.BootImage, "Range", "bytes=7-20")
	if resp.StatusCode != http.StatusPartialContent || string(body) != "system system " || resp.Header.Get("Content-Range") != "bytes 7-20/63000" {
		t.Errorf("a part: %d %q %v", resp.StatusCode, body, resp.Header)
	}
	p.Kernel = "glance://" + glanceID
	if resp, body := s.get(t, metal.BootKernel); resp.StatusCode != http.StatusOK || !bytes.Equal(body, g.bytes) || g.size != p.System.Size {
		t.Errorf("the kernel: %d, %d bytes", resp.StatusCode, len(body))
	}
	if _, body := s.get(t, metal.BootScript); !bytes.Contains(body, []byte("kernel --name kernel kernel ")) {
		t.Errorf("the script does not name our own kernel: %s", body)
	}
	if f, err := s.server.images.source(t.Context(), p.Kernel); err != nil || f.size != int64(len(g.bytes)) {
		t.Errorf("the kernel of a CD image: %v", err)
	} else {
		f.leave()
	}
	p.ISO, p.Kernel, p.Ramdisk = "glance://"+glanceID, "", ""
	if resp, body := s.get(t, metal.BootISO); resp.StatusCode != http.StatusOK || !bytes.Equal(body, g.bytes) {
		t.Errorf("the ISO image: %d, %d bytes", resp.StatusCode, len(body))
	}
	for _, err := range []error{problem.NotFoundf("deleted"), problem.Unavailablef("away"), problem.Conflictf("another size")} {
		g.err = err
		if resp, _ := s.get(t, metal.BootImage); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(s.log.String(), err.Error()) {
			t.Errorf("%v: %d", err, resp.StatusCode)
		}
	}
	g.err = nil
	s.plans.node.BootNumber++
	if resp, _ := s.get(t, metal.BootImage); resp.StatusCode != http.StatusNotFound {
		t.Errorf("after its boot: %d", resp.StatusCode)
	}
	s.plans.node.BootNumber--
	s.server.cfg.Glance = nil
	if resp, _ := s.get(t, metal.BootImage); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without an image service: %d", resp.StatusCode)
	}
	s.Close() // which waits for the requests
	if left := g.open.Load(); left != 0 {
		t.Errorf("%d images are left open", left)
	}
}

// TestSignedLoadersOfAGlanceKernel: a site gets the signed boot loaders for a kernel of Glance as for one behind a URL.
func TestSignedLoadersOfAGlanceKernel(t *testing.T) {
	s := newSite(t)
	dir := t.TempDir()
	writeSignedLoaders(t, dir)
	s.server.images.loaders = Loaders{Shim: filepath.Join(dir, filepath.Base(DebianLoaders.Shim)), Grub: filepath.Join(dir, filepath.Base(DebianLoaders.Grub))}
	for _, kernel := range []string{"http://images/kernel", "glance://" + glanceID} {
		n := &metal.Node{Plan: &metal.BootPlan{Kernel: kernel}, Properties: metal.Object{"cpu_arch": "x86_64"}}
		if shim, grub := s.server.SignedLoaders(n); shim == "" || grub == "" {
			t.Errorf("%s: shim %q, GRUB %q", kernel, shim, grub)
		}
	}
}
