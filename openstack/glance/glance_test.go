package glance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/openstack"
	"salvor/problem"
	"salvor/test/must"
)

const id = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"

// service plays Glance for one image.
type service struct {
	record map[string]any
	bytes  []byte
	status int    // of every answer; 0: as it should be
	ranges string // "none": it ignores Range; "refused": it answers 416; "wrong": it gives another range
	asked  []string
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked = append(s.asked, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("Range")))
	w.Header().Set("Content-Type", "application/json")
	if s.status != 0 {
		w.WriteHeader(s.status)
		return
	}
	switch r.URL.Path {
	case "/v2/images/" + id:
		_ = json.NewEncoder(w).Encode(s.record)
	case "/v2/images/" + id + "/members":
		_, _ = io.WriteString(w, `{"members": [{"member_id": "p2", "status": "accepted"}, {"member_id": "p3", "status": "pending"}]}`)
	case "/v2/images/" + id + "/file":
		w.Header().Set("Content-Type", "application/octet-stream")
		switch s.ranges {
		case "none":
			_, _ = w.Write(s.bytes)
		case "refused":
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		case "wrong":
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 1-%d/%d", len(s.bytes)-1, len(s.bytes)))
			w.WriteHeader(http.StatusPartialContent)
		default:
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(s.bytes))
		}
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func newService(t *testing.T) (*service, *Client) {
	t.Helper()
	s := &service{bytes: make([]byte, 300<<10)}
	for i := range s.bytes {
		s.bytes[i] = byte(i / 7)
	}
	s.record = map[string]any{
		"id": id, "status": "active", "visibility": "shared", "owner": "p1", "disk_format": "qcow2", "container_format": "bare",
		"os_hash_algo": "sha512", "os_hash_value": "aa", "size": len(s.bytes), "min_disk": 3, "img_type": "whole-disk", "properties": "a property of this name",
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, New(must.Get(openstack.New(openstack.Image, openstack.Access{Section: "glance", Endpoint: server.URL}))(t))
}

func TestImage(t *testing.T) {
	s, c := newService(t)
	got := must.Get(c.Image(t.Context(), id))(t)
	if got.ID != id || got.Status != "active" || got.Owner != "p1" || !slices.Equal(got.Members, []string{"p2"}) || got.DiskFormat != "qcow2" || got.ContainerFormat != "bare" ||
		got.HashAlgo != "sha512" || got.HashValue != "aa" || got.Size != 300<<10 || got.MinDisk != 3 || got.Type != "whole-disk" || got.KernelID != "" {
		t.Errorf("%+v", got)
	}
	s.record = map[string]any{"id": id, "status": "queued", "visibility": "private", "size": nil, "disk_format": nil, "kernel_id": 7}
	if got, err := c.Image(t.Context(), id); err != nil || got.Size != 0 || got.Status != "queued" || len(got.Members) != 0 || got.KernelID != "" {
		t.Errorf("queued: %+v, %v", got, err)
	}
	s.record["id"] = "another"
	if _, err := c.Image(t.Context(), id); !problem.Is(err, problem.Unavailable) {
		t.Errorf("an answer about another image: %v", err)
	}
	for status, kind := range map[int]problem.Kind{404: problem.NotFound, 403: problem.NotFound, 401: problem.Unavailable, 500: problem.Unavailable, 503: problem.Unavailable} {
		s.status = status
		if _, err := c.Image(t.Context(), id); !problem.Is(err, kind) || !strings.Contains(err.Error(), id) {
			t.Errorf("%d: %v", status, err)
		}
		if _, err := c.Open(t.Context(), id, 0); !problem.Is(err, kind) {
			t.Errorf("open, %d: %v", status, err)
		}
	}
}

// TestBytes: the bytes come in order by one request, and from another offset by a request of that range.
func TestBytes(t *testing.T) {
	s, c := newService(t)
	f := must.Get(c.Open(t.Context(), id, int64(len(s.bytes))))(t)
	defer f.Close()
	if end, err := f.Seek(0, io.SeekEnd); err != nil || end != int64(len(s.bytes)) {
		t.Errorf("ends at %d, %v", end, err)
	}
	must.Get(f.Seek(0, io.SeekStart))(t)
	s.asked = nil
	if got := must.Get(io.ReadAll(f))(t); !bytes.Equal(got, s.bytes) {
		t.Errorf("%d bytes, and not those of the image", len(got))
	}
	must.Get(f.Seek(-5, io.SeekEnd))(t)
	if got := must.Get(io.ReadAll(f))(t); !bytes.Equal(got, s.bytes[len(s.bytes)-5:]) {
		t.Errorf("the last bytes: %v", got)
	}
	want := []string{"GET /v2/images/" + id + "/file", fmt.Sprintf("GET /v2/images/%s/file bytes=%d-", id, len(s.bytes)-5)}
	if !slices.Equal(s.asked, want) {
		t.Errorf("asked %q, want %q", s.asked, want)
	}
	if _, err := f.Seek(-1, io.SeekStart); err == nil {
		t.Error("a seek before the image succeeds")
	}
}

// TestBytesAreWrong: an image that is shorter, longer, deleted, or without random access.
func TestBytesAreWrong(t *testing.T) {
	s, c := newService(t)
	if _, err := c.Open(t.Context(), id, 7); !problem.Is(err, problem.Conflict) {
		t.Errorf("another size than expected: %v", err)
	}
	open := func() io.ReadSeekCloser { return must.Get(c.Open(t.Context(), id, 0))(t) }
	f := open()
	whole := s.bytes
	s.bytes = whole[:1000]
	if got, err := io.ReadAll(f); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "after 1000 of 307200 bytes") || len(got) != 1000 {
		t.Errorf("a short image: %d bytes, %v", len(got), err)
	}
	_ = f.Close()
	s.bytes = append(slices.Clone(whole), 1, 2, 3)
	f = open()
	if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("a long image: %d bytes, %v", len(got), err)
	}
	_ = f.Close()
	s.bytes = whole
	for _, ranges := range []string{"none", "refused", "wrong"} {
		f, s.ranges = open(), ranges
		must.Get(f.Seek(100, io.SeekStart))(t)
		if n, err := f.Read(make([]byte, 10)); n != 0 || !problem.Is(err, problem.Unavailable) {
			t.Errorf("ranges %s: %d bytes, %v", ranges, n, err)
		}
		_ = f.Close()
		s.ranges = ""
	}
	f = open()
	s.status = http.StatusNotFound
	if _, err := f.Read(make([]byte, 10)); !problem.Is(err, problem.NotFound) {
		t.Errorf("deleted meanwhile: %v", err)
	}
	s.status, s.record["status"] = 0, "deactivated"
	if _, err := c.Open(t.Context(), id, 0); !problem.Is(err, problem.Invalid) {
		t.Errorf("deactivated: %v", err)
	}
}

// TestSlowReader: the time between two reads, which the machine takes, is no stall of Glance.
func TestSlowReader(t *testing.T) {
	_, c := newService(t)
	f := must.Get(c.Open(t.Context(), id, 0))(t)
	defer f.Close()
	must.Get(f.Read(make([]byte, 10)))(t)
	if f.(*content).stall.Stop() {
		t.Error("the timer of stalls runs while nothing is read")
	}
}
