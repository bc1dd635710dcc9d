//go:build otlp

package serve

import (
	"bytes"
	"compress/gzip"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"salvor/api"
	"salvor/config"
	"salvor/test/must"
)

// collecting takes traces as a collector does.
type collecting struct {
	mu    sync.Mutex
	spans []*otlp.Span
}

func (c *collecting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		body = z
	}
	b, err := io.ReadAll(body)
	var request collector.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(b, &request) != nil {
		http.Error(w, "no", 400)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range request.ResourceSpans {
		for _, s := range of.ScopeSpans {
			c.spans = append(c.spans, s.Spans...)
		}
	}
}

// TestTraceAcrossProcesses: the request in one process, actions in two others, and the job's end are one trace.
func TestTraceAcrossProcesses(t *testing.T) {
	to := &collecting{}
	server := httptest.NewServer(to)
	defer server.Close()
	process := func(do func(*jobTracer)) {
		tr := must.Get(newTracer(t.Context(), config.OTel{Endpoint: server.URL, Ratio: 100}, "h", slog.New(slog.DiscardHandler)))(t)
		do(tr)
		tr.close()
	}
	j := rescueJob()
	run := func(tr *jobTracer, outcome string) {
		ctx, end := tr.action(t.Context(), j, "power on")
		tr.machine(ctx, "redfish", time.Millisecond, nil)
		end(outcome)
	}
	process(func(tr *jobTracer) {
		tr.request(api.Exchange{ID: traced, Method: "PUT", Status: 202, Began: time.Now(), Took: time.Millisecond, Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, "/v1/nodes/{}/states/provision")
	})
	process(func(tr *jobTracer) { run(tr, "retry") })
	process(func(tr *jobTracer) { run(tr, "done"); tr.ended(j) })
	spans := map[string]*otlp.Span{}
	for _, s := range to.spans {
		if id := trace.TraceID(s.TraceId); id != traceOf(traced) || id.String() != strings.ReplaceAll(strings.TrimPrefix(traced, "req-"), "-", "") {
			t.Errorf("%s is of trace %s", s.Name, id)
		}
		spans[s.Name] = s
	}
	request, rescue, action, bmc := spans["PUT /v1/nodes/{}/states/provision"], spans["rescue"], spans["power on"], spans["redfish"]
	if len(to.spans) != 6 || request == nil || rescue == nil || action == nil || bmc == nil {
		t.Fatalf("%d spans: %v", len(to.spans), spans)
	}
	if len(request.ParentSpanId) != 0 || len(request.Links) != 1 || !bytes.Equal(rescue.ParentSpanId, request.SpanId) ||
		!bytes.Equal(action.ParentSpanId, rescue.SpanId) || !bytes.Equal(bmc.ParentSpanId, action.SpanId) {
		t.Errorf("request %x, rescue %x under %x, action %x under %x, BMC under %x", request.SpanId, rescue.SpanId, rescue.ParentSpanId, action.SpanId, action.ParentSpanId, bmc.ParentSpanId)
	}
	to.spans = nil
	tr := must.Get(newTracer(t.Context(), config.OTel{Endpoint: server.URL, Ratio: 0}, "h", slog.New(slog.DiscardHandler)))(t)
	run(tr, "done")
	tr.ended(j)
	if tr.close(); len(to.spans) != 0 {
		t.Errorf("%d spans of a request that is not traced", len(to.spans))
	}
}
