package image_test

import (
	"encoding/binary"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/access"
	"salvor/api/image"
	"salvor/blob"
	"salvor/compute/service"
	"salvor/store/storetest"
	"salvor/test/fixture"
	"salvor/test/must"
)

var tokens = fixture.TokenAuth{"admin": {User: "root", Role: access.Admin, Scope: access.Scope{Project: "p0"}}}

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
	cfg := image.Config{Images: w.images, Blobs: blobs, Auth: tokens, Log: slog.New(slog.DiscardHandler), Now: func() time.Time {
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

// ask sends a request as somebody.
func (w *world) ask(requester, method, path string, body any, kind string) fixture.Answer {
	w.t.Helper()
	return must.Get(fixture.TrySend(w.t.Context(), w.client, method, w.url+"/image"+path, body, "X-Auth-Token", requester, "Content-Type", kind))(w.t)
}

// json asks with JSON, wants a status and gives the answer.
func (w *world) json(requester, method, path, body string, want int) object {
	w.t.Helper()
	kind := "application/json"
	if method == http.MethodPatch {
		kind = "application/openstack-images-v2.1-json-patch"
	}
	return w.ask(requester, method, path, body, kind).Want(w.t, want).ObjectIfAny(w.t)
}

// create makes an image record and gives its id.
func (w *world) create(requester, body string) string {
	w.t.Helper()
	return w.json(requester, "POST", "/v2/images", body, http.StatusCreated)["id"].(string)
}

// upload brings bytes and wants a status.
func (w *world) upload(requester, id string, data []byte, want int) {
	w.t.Helper()
	w.ask(requester, "PUT", "/v2/images/"+id+"/file", data, "").Want(w.t, want)
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
