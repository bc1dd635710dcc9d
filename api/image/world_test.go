package image_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/api/image"
	"salvor/blob"
	"salvor/compute/service"
	"salvor/store/storetest"
	"salvor/test/must"
)

// fakeAuth authenticates by the word in X-Auth-Token: "admin", "system ROLE", or "PROJECT" or "PROJECT reader".
type fakeAuth struct{}

func (fakeAuth) Authenticate(r *http.Request) (access.Principal, error) {
	switch project, role, _ := strings.Cut(r.Header.Get("X-Auth-Token"), " "); project {
	case "":
		return access.Principal{}, &api.Error{Status: http.StatusUnauthorized, Text: "who are you?"}
	case "admin":
		return access.Principal{User: "root", Role: access.Admin, Scope: access.Scope{Project: "p0"}}, nil
	case "system":
		return access.Principal{User: "ops", Role: access.Scoped, Scope: access.Scope{System: true, Roles: []string{role}}}, nil
	default:
		if role == "" {
			role = "member"
		}
		return access.Principal{User: project, Role: access.Scoped, Scope: access.Scope{Project: project, Roles: []string{role}}}, nil
	}
}

type world struct {
	t       *testing.T
	bytes   string // where they lie
	handler http.Handler
	images  *service.Images
	url     string
	mu      sync.Mutex
	late    time.Duration // how much later the face thinks it is
	client  *http.Client
}

func newWorld(t *testing.T, adjust func(*image.Config)) *world {
	t.Helper()
	s, _ := storetest.SQLite(t)
	w := &world{t: t, bytes: t.TempDir(), client: &http.Client{Timeout: 30 * time.Second}}
	blobs := must.Get(blob.Open(w.bytes))(t)
	t.Cleanup(func() { _ = blobs.Close() })
	w.images = service.New(s, s, service.Options{}, time.Now).Images
	cfg := image.Config{Images: w.images, Blobs: blobs, Auth: fakeAuth{}, Log: slog.New(slog.DiscardHandler), Now: func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		return time.Now().Add(w.late)
	}}
	if adjust != nil {
		adjust(&cfg)
	}
	w.handler = image.New(cfg)
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

// blobs counts what is kept, half or whole.
func (w *world) blobs() int {
	w.t.Helper()
	files := must.Get(os.ReadDir(w.bytes))(w.t)
	return len(files)
}

func (w *world) skip(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late += d
}

type object = map[string]any

// ask sends a request as somebody and gives status, header and body.
func (w *world) ask(requester, method, path string, body io.Reader, kind string) (int, http.Header, []byte) {
	w.t.Helper()
	req := must.Get(http.NewRequest(method, w.url+"/image"+path, body))(w.t)
	req.Header.Set("X-Auth-Token", requester)
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp := must.Get(w.client.Do(req))(w.t)
	defer resp.Body.Close()
	b := must.Get(io.ReadAll(resp.Body))(w.t)
	return resp.StatusCode, resp.Header, b
}

// json asks with JSON, wants a status and gives the answer.
func (w *world) json(requester, method, path, body string, want int) object {
	w.t.Helper()
	kind := "application/json"
	if method == http.MethodPatch {
		kind = "application/openstack-images-v2.1-json-patch"
	}
	status, _, b := w.ask(requester, method, path, strings.NewReader(body), kind)
	if status != want {
		w.t.Fatalf("%s: %s %s %.300s: %d %s, want %d", requester, method, path, body, status, b, want)
	}
	var out object
	if len(b) > 0 {
		if err := json.Unmarshal(b, &out); err != nil {
			w.t.Fatalf("%s %s answers %q: %v", method, path, b, err)
		}
	}
	return out
}

// create makes an image record and gives its id.
func (w *world) create(requester, body string) string {
	w.t.Helper()
	return w.json(requester, "POST", "/v2/images", body, http.StatusCreated)["id"].(string)
}

// upload brings bytes and wants a status.
func (w *world) upload(requester, id string, data []byte, want int) {
	w.t.Helper()
	if status, _, b := w.ask(requester, "PUT", "/v2/images/"+id+"/file", bytes.NewReader(data), "application/octet-stream"); status != want {
		w.t.Fatalf("upload to %s: %d %s, want %d", id, status, b, want)
	}
}

func (w *world) show(requester, id string) object {
	w.t.Helper()
	return w.json(requester, "GET", "/v2/images/"+id, "", http.StatusOK)
}

// names lists images and gives their names.
func (w *world) names(requester, query string) string {
	w.t.Helper()
	var out []string
	for _, i := range w.json(requester, "GET", "/v2/images"+query, "", http.StatusOK)["images"].([]any) {
		out = append(out, i.(object)["name"].(string))
	}
	return strings.Join(out, " ")
}

// qcow2 makes the start of an image of one GiB; adjust spoils it.
func qcow2(adjust func(b []byte)) []byte {
	b := make([]byte, 128<<10)
	be := binary.BigEndian
	copy(b, "QFI\xfb")
	be.PutUint32(b[4:], 3)
	be.PutUint32(b[20:], 16)
	be.PutUint64(b[24:], 1<<30)
	be.PutUint32(b[100:], 104)
	if adjust != nil {
		adjust(b)
	}
	return b
}

func iso() []byte {
	b := make([]byte, 40<<10)
	copy(b[32769:], "CD001")
	return b
}
