package netboot

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"salvor/problem"
	"salvor/test/must"
)

// origin is a mirror of kernels.
type origin struct {
	*httptest.Server
	gets, unchanged atomic.Int64
	content         atomic.Value // string
	status          atomic.Int64
}

func newOrigin(t *testing.T) *origin {
	o := &origin{}
	o.content.Store("first")
	o.status.Store(200)
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.gets.Add(1)
		if s := int(o.status.Load()); s != 200 {
			w.WriteHeader(s)
			return
		}
		text := o.content.Load().(string)
		w.Header().Set("ETag", fmt.Sprintf("%q", text))
		if r.Header.Get("If-None-Match") == fmt.Sprintf("%q", text) {
			o.unchanged.Add(1)
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, text)
	}))
	t.Cleanup(o.Close)
	return o
}

// An ISO of a kernel that lies on a mirror: one transfer whoever asks, and what the
// mirror has now, not what it had.
func TestImageOfDownloads(t *testing.T) {
	needLoaders(t)
	s, o := newSite(t), newOrigin(t)
	s.plans.node.Plan.Ramdisk = o.URL + "/ramdisk?sig=hidden"
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			resp, err := http.Get(s.URL + "/boot/" + testPath + "/boot.efi")
			if err != nil || resp.StatusCode != 200 {
				t.Error(resp, err)
				return
			}
			resp.Body.Close()
		})
	}
	wg.Wait()
	if n := o.gets.Load(); n != 1 {
		t.Errorf("%d transfers", n)
	}
	if _, body := s.get(t, "boot.iso"); !bytes.Contains(body, []byte("first")) {
		t.Error("the image lacks the ramdisk")
	}
	if resp, body := s.get(t, "boot.ipxe"); resp.StatusCode != 200 || !bytes.Contains(body, []byte(o.URL+"/ramdisk?sig=hidden")) {
		t.Errorf("%s", body)
	}
}

func TestDownloadsAreRechecked(t *testing.T) {
	o := newOrigin(t)
	now := time.Unix(1e9, 0)
	d := &downloadCache{client: o.Client(), dir: t.TempDir(), now: func() time.Time { return now }}
	t.Cleanup(d.close)
	read := func() string {
		t.Helper()
		c := must.Get(d.get(t.Context(), o.URL+"/k"))(t)
		defer c.leave()
		b := make([]byte, c.size)
		must.Get(c.file.ReadAt(b, 0))(t)
		return string(b)
	}
	if got := read(); got != "first" {
		t.Error(got)
	}
	o.content.Store("second")
	if got := read(); got != "first" || o.gets.Load() != 1 {
		t.Errorf("%s after %d transfers", got, o.gets.Load())
	}
	now = now.Add(recheckAfter)
	if got := read(); got != "second" {
		t.Error(got)
	}
	now = now.Add(recheckAfter)
	if got := read(); got != "second" || o.unchanged.Load() != 1 {
		t.Errorf("%s, %d times unchanged", got, o.unchanged.Load())
	}
	// A mirror that fails does not take away what is here.
	o.status.Store(500)
	now = now.Add(recheckAfter)
	if got := read(); got != "second" {
		t.Error(got)
	}
}

func TestDownloadFailures(t *testing.T) {
	o := newOrigin(t)
	o.status.Store(404)
	now := time.Unix(1e9, 0)
	d := &downloadCache{client: o.Client(), dir: t.TempDir(), now: func() time.Time { return now }}
	t.Cleanup(d.close)
	for range 2 {
		if _, err := d.get(t.Context(), o.URL+"/k?sig=hidden"); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "status 404") || strings.Contains(err.Error(), "hidden") {
			t.Error(err)
		}
	}
	if n := o.gets.Load(); n != 1 {
		t.Errorf("a failing mirror was asked %d times at once", n)
	}
	o.status.Store(200)
	now = now.Add(retryAfter)
	c := must.Get(d.get(t.Context(), o.URL+"/k?sig=hidden"))(t)
	c.leave()
	o.Close()
	if _, err := d.get(t.Context(), o.URL+"/other?sig=hidden"); !problem.Is(err, problem.Unavailable) || strings.Contains(err.Error(), "hidden") {
		t.Error(err)
	}
}

// Mirrors that never answer hold no more than their places, and no machine for longer than it waits.
func TestDownloadsInWorkAreBounded(t *testing.T) {
	end := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(end) })
	d := &downloadCache{client: slow.Client(), dir: t.TempDir(), now: time.Now}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range maxDownloads {
		if _, err := d.get(gone, fmt.Sprintf("%s/%d", slow.URL, i)); !problem.Is(err, problem.Unavailable) {
			t.Fatal(err)
		}
	}
	if _, err := d.get(t.Context(), slow.URL+"/more"); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "in work") {
		t.Error(err)
	}
}

func TestDownloadsAreBounded(t *testing.T) {
	o := newOrigin(t)
	d := &downloadCache{client: o.Client(), dir: t.TempDir(), now: time.Now}
	t.Cleanup(d.close)
	held := must.Get(d.get(t.Context(), o.URL+"/0"))(t)
	for i := 1; i < maxDownloads+5; i++ {
		c := must.Get(d.get(t.Context(), fmt.Sprintf("%s/%d", o.URL, i)))(t)
		c.leave()
	}
	if len(d.byURL) > maxDownloads {
		t.Errorf("%d downloads are kept", len(d.byURL))
	}
	// What is being read outlives its place in the table.
	if _, err := held.file.ReadAt(make([]byte, 5), 0); err != nil {
		t.Error(err)
	}
	held.leave()
	if _, err := held.file.ReadAt(make([]byte, 5), 0); err == nil {
		t.Error("a file without users is still open")
	}
}
