package native_test

import (
	"log/slog"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/access"
	"salvor/api"
	"salvor/api/native"
	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/test/fixture"
	"salvor/test/must"
)

// adminAuth lets everybody in as an administrator of the whole system whose roles a policy file may ask for.
var adminAuth = fixture.FixedAuth{Principal: access.Principal{User: "eve", Role: access.Scoped, Scope: access.Scope{System: true, Roles: []string{"admin", "member", "reader"}}}}

// TestEveryRouteHasARule: a policy file may deny each route by a name that is known, so that no warning is told of it, and no other is.
func TestEveryRouteHasARule(t *testing.T) {
	w := newWorld(t)
	policy := access.Policy{Rules: &access.Rules{}}
	cfg := native.Config{Services: w.services, Nodes: w, Fleet: w.s, Jobs: w.s, Conductors: metal.NewDirectory(w.s, time.Now, 0, 0), Policy: policy, Feed: w.feed,
		Auth: adminAuth, Log: slog.New(slog.DiscardHandler), Now: time.Now}
	handler := native.New(cfg).(api.RouteLister)
	file := ""
	for _, d := range handler.Endpoints {
		if name := native.RuleOf(d.Method, d.Path); !d.Open && !strings.Contains(file, strconv.Quote(name)) {
			file += strconv.Quote(name) + `: "!"` + "\n"
		}
	}
	warnings, err := policy.Rules.Read(file, native.HasRule)
	if err != nil || len(warnings) > 0 || native.HasRule("salvor:hots:get") || native.HasRule("salvor:hosts:fly") || native.HasRule("hosts:get") {
		t.Fatal(warnings, err)
	}
	ruled := httptest.NewServer(handler)
	t.Cleanup(ruled.Close)
	w.url = ruled.URL
	for _, d := range handler.Endpoints {
		if !d.Open {
			w.ask("auditor", d.Method, regexp.MustCompile(`{[^}]*}`).ReplaceAllString(d.Path, "x"), "{}", 403)
		}
	}
}

// TestRulesOfServers: what a policy file denies on the compute API is not told here either.
func TestRulesOfServers(t *testing.T) {
	w := newWorld(t)
	policy := access.Policy{Rules: &access.Rules{}}
	text := `"os_compute_api:servers:show": "role:auditor"` + "\n" + `"os_compute_api:os-instance-actions:list": "role:auditor"` + "\n"
	must.Get(policy.Rules.Read(text, func(string) bool { return true }))(t)
	ruled := httptest.NewServer(native.New(native.Config{Services: w.services, Nodes: w, Fleet: w.s, Jobs: w.s, Conductors: metal.NewDirectory(w.s, time.Now, 0, 0),
		Policy: policy, Feed: w.feed, Auth: fakeAuth{}, Log: slog.New(slog.DiscardHandler), Now: time.Now}))
	t.Cleanup(ruled.Close)
	srv := &compute.Server{Record: record.Record{ID: uuid.NewString()}, Name: "web1", Project: "ann", State: compute.Active}
	must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error { return w.s.Servers().Insert(tx, srv) }))
	for _, want := range []int{200, 403} {
		for _, path := range []string{"/servers/web1/why", "/events?subject=server:" + srv.ID} {
			w.ask("ann", "GET", path, "", want)
		}
		w.url = ruled.URL + "/salvor/v1"
	}
}
