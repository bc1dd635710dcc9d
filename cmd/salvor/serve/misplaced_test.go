package serve

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"salvor/compute"
	"salvor/job"
	"salvor/record"
	"salvor/test/must"
)

// TestMisplacedGuestsAreCounted: the metric is 0 while each guest runs where its server is recorded, and 1 while one runs elsewhere.
func TestMisplacedGuestsAreCounted(t *testing.T) {
	p := newTestControlPlane(t, "")
	now := time.Now()
	home := &compute.Host{Record: record.Record{ID: uuid.NewString(), CreatedAt: now}, Name: "vm1", Kind: compute.AgentHost}
	away := &compute.Host{Record: record.Record{ID: uuid.NewString(), CreatedAt: now}, Name: "vm2", Kind: compute.AgentHost}
	server := &compute.Server{Record: record.Record{ID: uuid.NewString(), CreatedAt: now}, Name: "web1", State: compute.Active, Power: compute.PowerOn, Wanted: compute.PowerOn, LaunchedAt: now, Project: "p"}
	runs := func(h *compute.Host) {
		t.Helper()
		must.OK(t, p.Store.Do(t.Context(), func(tx job.Tx) error {
			return p.Store.SaveGuestReport(tx, compute.GuestReport{HostID: h.ID, ServerID: server.ID, BootID: "b9", Epoch: 7, Power: compute.PowerOn, SeenAt: now.Add(-time.Hour)})
		}))
	}
	shows := func(want string) {
		t.Helper()
		registry := prometheus.NewRegistry()
		registry.MustRegister(&fleetGauges{program: p}) // a new one: a collector counts anew only every few seconds
		out := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(out, httptest.NewRequest("GET", "/metrics", nil))
		if !strings.Contains(out.Body.String(), "\n"+want+"\n") {
			t.Errorf("no line %q in %.3000s", want, out.Body)
		}
	}
	must.OK(t, p.Store.Do(t.Context(), func(tx job.Tx) error {
		for _, h := range []*compute.Host{home, away} {
			if err := p.Store.Hosts().Insert(tx, h); err != nil {
				return err
			}
		}
		server.HostID = home.ID
		return p.Store.Servers().Insert(tx, server)
	}))
	runs(home)
	shows("salvor_misplaced_guests 0")
	runs(away)
	shows("salvor_misplaced_guests 1")
}
