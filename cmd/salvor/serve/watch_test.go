package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"salvor/api"
	"salvor/compute"
	"salvor/config"
	"salvor/driver"
	"salvor/job"
	"salvor/problem"
	"salvor/version"
)

const traced = "req-6f1d2a1e-9a52-4f0a-8f43-0d5a0a6a7b11"

func rescueJob() *job.Job {
	return &job.Job{ID: "0b9a7d3c-5a0e-4a55-9f57-3a0c4d7e8f22", Kind: "rescue", Subject: job.Node("n1"), Action: "power on", RequestID: traced,
		State: job.Running, CreatedAt: time.Now().Add(-time.Minute), EndedAt: time.Now()}
}

// TestMetricsNameNoMachine: what a process counts has labels of kinds, never of things.
func TestMetricsNameNoMachine(t *testing.T) {
	w := newWatcher(nil)
	w.request(api.Exchange{ID: "req-1", Method: "GET", Route: "/v1/nodes/{}", Status: 200, Took: time.Millisecond})
	w.request(api.Exchange{ID: "req-2", Method: "GET", Status: 404})
	j := rescueJob()
	_, ended := w.Action(t.Context(), j)
	ended("done")
	j.State, j.Problem = job.Undoing, "x"
	_, ended = w.Action(t.Context(), j)
	ended("retry")
	w.Ended(j)
	w.machine(t.Context(), "redfish", time.Second, problem.Unavailablef("n1 is silent"))
	w.machine(t.Context(), "ipmi", time.Second, problem.Invalidf("n1: %w the password", driver.ErrLogin))
	p := &ControlPlane{watch: w}
	answer := httptest.NewRecorder()
	p.metrics().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	text := answer.Body.String()
	for _, want := range []string{
		`salvor_api_request_seconds_count{method="GET",route="/v1/nodes/{}",status="200"} 1`, `route="none",status="404"`,
		`salvor_action_seconds_count{action="power on",kind="rescue",outcome="done"} 1`, `action="undo power on",kind="rescue",outcome="retry"`,
		`salvor_jobs_ended_total{failed="true",kind="rescue"} 1`, `salvor_machine_request_seconds_count{protocol="redfish"} 1`,
		`salvor_machine_errors_total{error="unavailable",protocol="redfish"} 1`, `salvor_machine_errors_total{error="login refused",protocol="ipmi"} 1`, "go_goroutines",
		`salvor_build_info{goversion="`, `version="` + version.Release + `"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not told", want)
		}
	}
	for _, never := range []string{"n1", traced, j.ID} {
		if strings.Contains(text, never) {
			t.Errorf("%s is a label", never)
		}
	}
}

// TestQuarantineMetrics: each host with disks in quarantine has its gauges. The label is the host's name if no other host has that name.
func TestQuarantineMetrics(t *testing.T) {
	stores := func(n ...int) compute.Inventory {
		var i compute.Inventory
		for _, n := range n {
			i.Stores = append(i.Stores, compute.DiskStore{Quarantined: n, QuarantinedGiB: 10 * n})
		}
		return i
	}
	host := func(id, name string, n ...int) *compute.Host {
		h := &compute.Host{Name: name, Inventory: stores(n...)}
		h.ID = id
		return h
	}
	var got []string
	countQuarantine([]*compute.Host{host("1", "vm1", 1, 2), host("2", "vm2", 0), host("3", "twin", 4), host("4", "twin")}, func(d *prometheus.Desc, v float64, labels ...string) {
		what := map[*prometheus.Desc]string{quarantineGauge: "disks", quarantineBytes: "bytes"}[d]
		got = append(got, fmt.Sprintf("%s %q %.0f", what, labels, v))
	})
	want := []string{`disks ["vm1"] 3`, `bytes ["vm1"] 32212254720`, `disks ["twin 3"] 4`, `bytes ["twin 3"] 42949672960`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLogLines: a line of a request or of an operation says which, once.
func TestLogLines(t *testing.T) {
	var out bytes.Buffer
	cfg := &config.Config{}
	cfg.Default.UseJSON, cfg.Default.LogLevel = true, "info"
	log := newLog(cfg, &out)
	ctx := job.InWork(context.Background(), rescueJob())
	line := func(do func()) map[string]any {
		t.Helper()
		out.Reset()
		do()
		var got map[string]any
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || strings.Count(out.String(), traced) > 1 || strings.Count(out.String(), `"job"`) > 1 {
			t.Fatalf("%v: %s", err, &out)
		}
		return got
	}
	for _, do := range []func(){
		func() { log.InfoContext(ctx, "x") },
		func() { log.InfoContext(ctx, "x", "job", rescueJob().ID) },
		func() { log.With("job", rescueJob().ID, "request_id", traced).WarnContext(ctx, "x") },
	} {
		if got := line(do); got["job"] != rescueJob().ID || got["request_id"] != traced || got["kind"] != "rescue" {
			t.Errorf("%v", got)
		}
	}
	if got := line(func() { log.Info("x") }); got["job"] != nil || got["request_id"] != nil {
		t.Errorf("%v", got)
	}
}
