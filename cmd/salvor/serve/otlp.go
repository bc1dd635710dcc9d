//go:build otlp

package serve

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// checkOTLP is nil: this program has the exporter.
func checkOTLP() error { return nil }

func newSpanExporter(ctx context.Context, url string) (sdk.SpanExporter, error) {
	return otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(url), otlptracehttp.WithTimeout(10*time.Second))
}
