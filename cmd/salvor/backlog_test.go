package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/test/must"
)

// TestFullBacklogOnEveryFace: each API refuses a new operation with 503, Retry-After and a fault of its own form, and leaves the
// machine as it was. Reads, other changes and aborts go on.
func TestFullBacklogOnEveryFace(t *testing.T) {
	p := openControlPlane(t, "[conductor]\nbacklog_limit = 2\nsync_power_state_interval = 0\n")
	main, _, err := p.Handlers()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Runner.Join(t.Context()); err != nil { // it lives, and claims nothing
		t.Fatal(err)
	}
	must.Get(p.Directory.Conductors(t.Context()))(t)
	w := &remedyWalk{T: t, p: p}
	first, second, idle := w.place(metal.Active, plight{}), w.place(metal.Active, plight{}), w.place(metal.Active, plight{})
	srv := &compute.Server{Record: record.Record{ID: uuid.NewString(), CreatedAt: time.Now()}, Name: "web1", State: compute.Active, Power: compute.PowerOn, Wanted: compute.PowerOn, LaunchedAt: time.Now(), Project: "p"}
	host := &compute.Host{Record: record.Record{ID: uuid.NewString(), CreatedAt: time.Now()}, Name: "vm1", Kind: compute.AgentHost}
	err = p.Store.Do(t.Context(), func(tx job.Tx) error {
		if err := p.Store.Hosts().Insert(tx, host); err != nil {
			return err
		}
		srv.HostID = host.ID
		return p.Store.Servers().Insert(tx, srv)
	})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, body string) *httptest.ResponseRecorder {
		r, out := httptest.NewRequest(method, path, strings.NewReader(body)), httptest.NewRecorder()
		r.SetBasicAuth("admin", "password")
		r.Header.Set("X-OpenStack-Ironic-API-Version", "1.82")
		r.Header.Set("Content-Type", "application/json")
		main.ServeHTTP(out, r)
		return out
	}
	states := func(n *metal.Node, what string) string { return "/v1/nodes/" + n.ID + "/states/" + what }
	for _, n := range []*metal.Node{first, second} {
		if out := ask(http.MethodPut, states(n, "power"), `{"target": "power off"}`); out.Code != http.StatusAccepted {
			t.Fatalf("%d: %s", out.Code, out.Body)
		}
	}
	compute21, cyclades := "/compute/v2.1/servers/"+srv.ID+"/action", fmt.Sprintf("/cyclades/compute/v2.0/servers/%d/action", srv.Num)
	const cluster = `{"name": "g1", "url": "https://ganeti.example:5080", "user": "u", "password": "p"}`
	for name, c := range map[string]struct{ method, path, body, fault string }{
		"Ironic":            {http.MethodPut, states(idle, "power"), `{"target": "power off"}`, `{"error_message":"{\"faultcode\":\"Server\"`},
		"Ironic, provision": {http.MethodPut, states(idle, "provision"), `{"target": "deleted"}`, `{"error_message":"{\"faultcode\":\"Server\"`},
		"Nova":              {http.MethodPost, compute21, `{"os-stop": null}`, `{"serviceUnavailable":{`},
		"Cyclades":          {http.MethodPost, cyclades, `{"shutdown": {}}`, `{"serviceUnavailable":{`},
		"native":            {http.MethodPost, "/salvor/v1/clusters", cluster, `{"error":{`},
	} {
		out := ask(c.method, c.path, c.body)
		if out.Code != http.StatusServiceUnavailable || out.Header().Get("Retry-After") == "" || !strings.HasPrefix(out.Body.String(), c.fault) ||
			!strings.Contains(out.Body.String(), "2 accepted operations wait for a conductor") {
			t.Errorf("%s: %d, Retry-After %q, %s", name, out.Code, out.Header().Get("Retry-After"), out.Body)
		}
	}
	n, err := p.Store.Node(t.Context(), nil, idle.ID)
	if err != nil || n.ProvisionState != metal.Active || n.Reservation != "" || n.TargetPower != "" {
		t.Errorf("a refused node is %+v: %v", n, err)
	}
	if got, err := p.Store.Servers().Get(t.Context(), nil, srv.ID); err != nil || got.Task != compute.NoTask {
		t.Errorf("a refused server is %+v: %v", got, err)
	}
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodGet, "/v1/nodes", "", http.StatusOK},
		{http.MethodGet, "/compute/v2.1/servers/detail", "", http.StatusOK},
		{http.MethodPatch, "/v1/nodes/" + idle.ID, `[{"op": "add", "path": "/description", "value": "x"}]`, http.StatusOK},
		{http.MethodPut, states(first, "provision"), `{"target": "abort"}`, http.StatusAccepted},
	} {
		if out := ask(c.method, c.path, c.body); out.Code != c.want {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, out.Code, c.want, out.Body)
		}
	}
}
