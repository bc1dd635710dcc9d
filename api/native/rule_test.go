package native_test

import (
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/access"
	"salvor/api/native"
	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/record"
)

// TestRulesOfServers: what a policy file denies on the compute API is not told here either.
func TestRulesOfServers(t *testing.T) {
	w := newWorld(t)
	policy := access.Policy{Rules: &access.Rules{}}
	text := `"os_compute_api:servers:show": "role:auditor"` + "\n" + `"os_compute_api:os-instance-actions:list": "role:auditor"` + "\n"
	if _, err := policy.Rules.Read(text, func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	ruled := httptest.NewServer(native.New(native.Config{Services: w.services, Nodes: w, Fleet: w.s, Jobs: w.s, Conductors: metal.NewDirectory(w.s, time.Now, 0, 0),
		Policy: policy, Feed: w.feed, Auth: people{}, Log: slog.New(slog.DiscardHandler), Now: time.Now}))
	t.Cleanup(ruled.Close)
	srv := &compute.Server{Record: record.Record{ID: uuid.NewString()}, Name: "web1", Project: "ann", State: compute.Active}
	if err := w.s.Do(t.Context(), func(tx job.Tx) error { return w.s.Servers().Insert(tx, srv) }); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{200, 403} {
		for _, path := range []string{"/servers/web1/why", "/events?subject=server:" + srv.ID} {
			w.ask("ann", "GET", path, "", want)
		}
		w.url = ruled.URL + "/salvor/v1"
	}
}
