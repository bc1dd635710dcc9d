//go:build !otlp

package serve

import (
	"log/slog"
	"strings"
	"testing"

	"salvor/config"
)

// TestTracesNeedTheTag: a program without the exporter refuses [otel]endpoint at its start and in the doctor, and says what to do.
func TestTracesNeedTheTag(t *testing.T) {
	set := config.OTel{Endpoint: "http://127.0.0.1:4318", Ratio: 100}
	for _, c := range []config.OTel{set, {Ratio: 100}} {
		_, err := newTracer(t.Context(), c, "h", slog.New(slog.DiscardHandler))
		d := &doctor{cfg: &config.Config{OTel: c}}
		d.traces(t.Context())
		if c.Endpoint == "" {
			if err != nil || len(d.findings) != 0 {
				t.Errorf("without an endpoint: %v, %v", err, d.findings)
			}
			continue
		}
		const do = "make build TAGS=otlp"
		if err == nil || !strings.HasPrefix(err.Error(), "[otel]endpoint: ") || !strings.Contains(err.Error(), do) {
			t.Errorf("start: %v", err)
		}
		if len(d.findings) != 1 || d.findings[0].Level != LevelFail || d.findings[0].Text != err.Error() {
			t.Errorf("doctor: %v, want %v", d.findings, err)
		}
	}
}
