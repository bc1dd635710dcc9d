package serve

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	described "go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"salvor/api"
	"salvor/config"
	"salvor/job"
)

// jobTracer tells a collector of requests, of the jobs that they led to and of each action of those, as one trace. All numbers are
// made of the request's and the job's ids, which lie in the job's row: whichever process runs an action, and however often they
// die in between, its span belongs to the same trace. A nil tracer does nothing.
type jobTracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	ratio    int
}

// traceTimeout bounds what the end of the process waits for the last spans to be sent.
const traceTimeout = 3 * time.Second

func newTracer(ctx context.Context, c config.OTel, host string, log *slog.Logger) (*jobTracer, error) {
	if c.Endpoint == "" {
		return nil, nil
	}
	at, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("[otel]endpoint: not a URL")
	}
	if strings.Trim(at.Path, "/") == "" {
		at.Path = "/v1/traces"
	}
	exporter, err := newSpanExporter(ctx, at.String())
	if err != nil {
		return nil, fmt.Errorf("[otel]endpoint: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces are not sent", "error", err) }))
	t := &jobTracer{ratio: c.Ratio}
	t.provider = sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithIDGenerator(wantedIDs{}), sdk.WithSampler(sdk.ParentBased(traceSampler{c.Ratio})),
		sdk.WithResource(described.NewSchemaless(attribute.String("service.name", "salvor"), attribute.String("host.name", host))))
	t.tracer = t.provider.Tracer("salvor")
	return t, nil
}

// close sends what is left.
func (t *jobTracer) close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), traceTimeout)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // its errors were told
}

// traceSampler keeps or drops a trace by its number, so that all processes agree.
type traceSampler struct{ ratio int }

func (s traceSampler) keeps(id trace.TraceID) bool {
	sum := sha256.Sum256(id[:])
	return int(binary.BigEndian.Uint16(sum[:]))*100 < s.ratio<<16
}

// ShouldSample is sdk.Sampler's.
func (s traceSampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	if s.keeps(p.TraceID) {
		return sdk.SamplingResult{Decision: sdk.RecordAndSample}
	}
	return sdk.SamplingResult{Decision: sdk.Drop}
}

// Description is sdk.Sampler's.
func (s traceSampler) Description() string { return fmt.Sprintf("salvor %d%%", s.ratio) }

// wantedIDs gives the numbers that a context asks for, else fresh ones.
type wantedIDs struct{}

type wantedKey struct{}

type wantedSpan struct {
	trace trace.TraceID
	span  trace.SpanID
}

// NewIDs is sdk.IDGenerator's.
func (g wantedIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if w, ok := ctx.Value(wantedKey{}).(wantedSpan); ok {
		return w.trace, w.span
	}
	return trace.TraceID(uuid.New()), g.fresh()
}

// NewSpanID is sdk.IDGenerator's.
func (g wantedIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if w, ok := ctx.Value(wantedKey{}).(wantedSpan); ok {
		return w.span
	}
	return g.fresh()
}

func (wantedIDs) fresh() (id trace.SpanID) {
	random := uuid.New()
	copy(id[:], random[8:])
	return id
}

// traceOf is the number of the trace of a request, or of a job that nobody asked for.
func traceOf(id string) trace.TraceID {
	u, err := uuid.Parse(strings.TrimPrefix(id, "req-"))
	if err != nil {
		u = uuid.NewSHA1(uuid.NameSpaceOID, []byte(id))
	}
	return trace.TraceID(u)
}

func spanOf(id string) (span trace.SpanID) {
	sum := sha256.Sum256([]byte(id))
	copy(span[:], sum[:])
	return span
}

// under makes a context in which spans are children of one that another process may have told of.
func (t *jobTracer) under(ctx context.Context, traceID trace.TraceID, span trace.SpanID) context.Context {
	c := trace.SpanContextConfig{TraceID: traceID, SpanID: span, Remote: true}
	if (traceSampler{t.ratio}).keeps(traceID) {
		c.TraceFlags = trace.FlagsSampled
	}
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(c))
}

// request tells of a request that was answered.
func (t *jobTracer) request(e api.Exchange, route string) {
	if t == nil {
		return
	}
	ctx := context.WithValue(context.Background(), wantedKey{}, wantedSpan{traceOf(e.ID), spanOf(e.ID)})
	options := []trace.SpanStartOption{trace.WithNewRoot(), trace.WithTimestamp(e.Began), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("http.request.method", e.Method), attribute.String("http.route", route),
			attribute.Int("http.response.status_code", e.Status), attribute.String("salvor.request_id", e.ID))}
	// The client's own trace is only linked: who may not ask for anything may not choose the number of a trace either.
	came := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": e.Parent})
	if parent := trace.SpanContextFromContext(came); parent.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: parent}))
	}
	_, span := t.tracer.Start(ctx, e.Method+" "+route, options...)
	if e.Status >= 500 {
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(e.Began.Add(e.Took)))
}

// of is the trace of a job, and the span of its request; without a request the trace is the job's own.
func (t *jobTracer) of(j *job.Job) (trace.TraceID, trace.SpanID) {
	if j.RequestID == "" {
		return traceOf(j.ID), trace.SpanID{}
	}
	return traceOf(j.RequestID), spanOf(j.RequestID)
}

func jobAttributes(j *job.Job) trace.SpanStartEventOption {
	return trace.WithAttributes(attribute.String("salvor.job", j.ID), attribute.String("salvor.kind", string(j.Kind)),
		attribute.String("salvor."+j.Subject.Kind, j.Subject.ID), attribute.String("salvor.request_id", j.RequestID))
}

// action begins the span of a run of an action.
func (t *jobTracer) action(ctx context.Context, j *job.Job, action string) (context.Context, func(outcome string)) {
	if t == nil {
		return ctx, func(string) {}
	}
	traceID, _ := t.of(j)
	ctx, span := t.tracer.Start(t.under(ctx, traceID, spanOf(j.ID)), action, jobAttributes(j), trace.WithAttributes(attribute.Int("salvor.attempt", j.Attempt)))
	return ctx, func(outcome string) {
		span.SetAttributes(attribute.String("salvor.outcome", outcome))
		if outcome == "fail" {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// ended tells of a whole job, from when it was asked for.
func (t *jobTracer) ended(j *job.Job) {
	if t == nil {
		return
	}
	traceID, request := t.of(j)
	ctx := context.Background()
	if request.IsValid() {
		ctx = t.under(ctx, traceID, request)
	}
	ctx = context.WithValue(ctx, wantedKey{}, wantedSpan{traceID, spanOf(j.ID)})
	_, span := t.tracer.Start(ctx, string(j.Kind), jobAttributes(j), trace.WithTimestamp(j.CreatedAt))
	if j.Failed() {
		span.SetStatus(codes.Error, j.ProblemKind) // the words of a problem are for those who may see the subject
	}
	span.End(trace.WithTimestamp(j.EndedAt))
}

// machine tells of an exchange with a BMC or a ramdisk under an action.
func (t *jobTracer) machine(ctx context.Context, protocol string, took time.Duration, err error) {
	if t == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return
	}
	_, span := t.tracer.Start(ctx, protocol, trace.WithTimestamp(time.Now().Add(-took)), trace.WithSpanKind(trace.SpanKindClient))
	if err != nil {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}
