package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// completions runs the program as a shell does that wants to complete the last word.
func completions(t *testing.T, f *fakeAPI, words ...string) []string {
	t.Helper()
	out, errs, status := salvor(t, f, "", append([]string{"__complete"}, words...)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if status != 0 || !strings.HasPrefix(lines[len(lines)-1], ":") {
		t.Fatalf("status %d: %q\n%s", status, out, errs)
	}
	return lines[:len(lines)-1]
}

func TestCompletion(t *testing.T) {
	var many []string
	for i := range 150 {
		many = append(many, fmt.Sprintf(`{"name": "c%03d"}`, i))
	}
	for words, want := range map[string]string{
		"node rescue |":             "b-2 u3 web-1",
		"node rescue |w":            "web-1",
		"node rescue web-1 |":       "b-2 u3", // one that is given already is not offered again
		"node power off b-2 u3 |":   "web-1",
		"node set web-1 --name |":   "",
		"server show |":             "s1 web1",
		"host drain |":              "vm1",
		"why |":                     "b-2 s1 u3 vm1 web-1 web1",
		"server add volume web1 |d": "data",
		"flavor show |":             "", // the API refuses
		"node show web-1 |":         "",
	} {
		api := &fakeAPI{answers: map[string][]string{
			"GET /v1/nodes":                    {`{"nodes": [{"uuid": "u1", "name": "web-1"}, {"uuid": "u2", "name": "b-2"}, {"uuid": "u3", "name": null}]}`},
			"GET /compute/v2.1/servers/detail": {`{"servers": [{"id": "s1"}, {"id": "s2", "name": "web1"}]}`},
			"GET /volume/v3/volumes/detail":    {`{"volumes": [{"id": "v1", "name": "data"}]}`},
			"GET /salvor/v1/hosts":             {`{"hosts": [{"id": "h1", "name": "vm1"}]}`},
			"GET /v1/chassis":                  {`{"chassis": [` + strings.Join(many, ",") + `]}`},
		}}
		before, typed, _ := strings.Cut(words, "|")
		if got := strings.Join(completions(t, api, append(strings.Fields(before), typed)...), " "); got != want {
			t.Errorf("%s: %q, want %q", words, got, want)
		}
		if got := completions(t, api, "chassis", "show", ""); len(got) != mostCompleted {
			t.Errorf("%d names", len(got))
		}
	}
	if got := strings.Join(completions(t, &fakeAPI{}, "node", "list", "-f", ""), " "); got != "table json yaml value csv shell" {
		t.Errorf("%q", got)
	}
	if got := strings.Join(completions(t, &fakeAPI{}, "node", "list", "--provision-state", ""), " "); !strings.Contains(got, "rescue failed") {
		t.Errorf("%q", got)
	}
	for words, want := range map[string]string{
		"node list -c |":            "uuid name instance_uuid power_state provision_state maintenance",
		"node list --long -c |":     "driver name uuid",
		"node list --fields |":      "driver name uuid",
		"node list --fields |name,": "name,driver name,name name,uuid",
		"node list --sort |":        "driver name uuid",
		"node show web-1 -c |":      "driver name uuid",
		"host show vm1 -c |":        "id state",
	} {
		api := &fakeAPI{answers: map[string][]string{
			"GET /v1/nodes":        {`{"nodes": [{"uuid": "u1", "name": "web-1", "driver": "fake", "links": []}]}`},
			"GET /salvor/v1/hosts": {`{"hosts": [{"id": "h1", "state": "up"}]}`},
		}}
		before, typed, _ := strings.Cut(words, "|")
		if got := strings.Join(completions(t, api, append(strings.Fields(before), typed)...), " "); got != want {
			t.Errorf("%s: %q, want %q", words, got, want)
		}
	}
	file := filepath.Join(t.TempDir(), "clouds.yaml")
	writeFile(t, file, "clouds: {lab: {}, alone: {}}")
	t.Setenv("OS_CLIENT_CONFIG_FILE", file)
	if got := strings.Join(completions(t, &fakeAPI{}, "node", "list", "--os-cloud", ""), " "); got != "alone lab" {
		t.Errorf("%q", got)
	}
}

// TestCompletionOfASilentAPI ends by itself, and prints nothing.
func TestCompletionOfASilentAPI(t *testing.T) {
	end := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-end:
		}
	}))
	defer server.Close()
	defer close(end)
	began := time.Now()
	out, errs, _ := salvor(t, &fakeAPI{}, "", "__complete", "node", "show", "--url", server.URL, "")
	if strings.TrimSpace(out) != ":4" || strings.Contains(errs, "salvor:") || time.Since(began) > 30*time.Second {
		t.Errorf("%q after %s\n%s", out, time.Since(began), errs)
	}
}
