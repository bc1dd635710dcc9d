package agent

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"salvor/driver"
	"salvor/metal"
	wire "salvor/wire/agent"
)

// TestImageKeysAreHidden: whatever an agent quotes, the failure that is shown opens no image.
func TestImageKeysAreHidden(t *testing.T) {
	header := base64.StdEncoding.EncodeToString([]byte("Bearer bearer-token"))
	n := &metal.Node{ID: "n1", InstanceInfo: metal.Object{
		"image_source": "https://reader:pass-word@images.example.org/a.raw?X-Amz-Signature=abc%2Fdef0123&short=1",
		"kernel":       "https://images.example.org/k?key=kernel-key", "image_request_authorization": header,
	}}
	failure := wire.CommandError{
		Type:    "ImageDownloadError",
		Message: "Max retries exceeded with url: /a.raw?X-Amz-Signature=abc%2Fdef0123&short=1 (Caused by 403)",
		Details: "GET https://reader:pass-word@images.example.org/a.raw led to 'https://u:pw1@mirror.example.org/b?sig=led-on' with Bearer bearer-token or " +
			header + "; signature abc/def0123 and kernel-key are wrong, is it?",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		res := wire.Result{ID: "1", Status: wire.Failed, Error: &failure}
		switch {
		case r.Method == http.MethodGet:
			_ = json.NewEncoder(w).Encode(wire.CommandList{Commands: []wire.Result{res}})
		case r.Header.Get("Content-Type") != "application/json":
			w.WriteHeader(http.StatusTeapot)
		default:
			_ = json.NewEncoder(w).Encode(res)
		}
	}))
	defer server.Close()
	orders := Orders{Locks: &driver.AddressLocks{}}
	given, err := orders.Give(t.Context(), n, agentAt(server.URL), wire.PrepareImage, struct{}{})
	list, err2 := orders.List(t.Context(), n, agentAt(server.URL))
	if err != nil || err2 != nil || len(list) != 1 {
		t.Fatal(err, err2)
	}
	for _, e := range []*wire.CommandError{given.Error, list[0].Error} {
		text := e.Type + " " + e.Message + " " + e.Details
		for _, key := range []string{"pass-word", "abc%2F", "abc/def", "led-on", "pw1", "bearer-token", header, "kernel-key"} {
			if strings.Contains(text, key) {
				t.Errorf("%q is told: %s", key, text)
			}
		}
		for _, word := range []string{"ImageDownloadError", "with url: /a.raw?", "(Caused by 403)", "images.example.org/a.raw led to", "mirror.example.org/b", "are wrong, is it?"} {
			if !strings.Contains(text, word) {
				t.Errorf("%q is missing: %s", word, text)
			}
		}
	}
}
