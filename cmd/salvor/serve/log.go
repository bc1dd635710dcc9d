package serve

import (
	"context"
	"io"
	"log/slog"
	"time"

	"salvor/api"
	"salvor/config"
	"salvor/job"
)

// newLog writes lines as the configuration says: text, or one JSON object each.
func newLog(cfg *config.Config, out io.Writer) *slog.Logger {
	return newLogAt(cfg, out, time.Now)
}

func newLogAt(cfg *config.Config, out io.Writer, now func() time.Time) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Default.LogLevel)); err != nil {
		level = slog.LevelInfo
	}
	if cfg.Default.Debug {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	var lines slog.Handler = slog.NewTextHandler(out, options)
	if cfg.Default.UseJSON {
		lines = slog.NewJSONHandler(out, options)
	}
	return slog.New(contextAttrHandler{Handler: newSparing(lines, now)})
}

// contextAttrHandler adds to each line the request and the job that its context belongs to, unless the line, or its logger, has them.
type contextAttrHandler struct {
	slog.Handler
	has map[string]bool
}

// Handle is slog.Handler's.
func (h contextAttrHandler) Handle(ctx context.Context, r slog.Record) error {
	id, kind, requestID := job.WorkOf(ctx)
	if requestID == "" {
		requestID = api.Of(ctx).ID
	}
	said := map[string]bool{}
	r.Attrs(func(a slog.Attr) bool { said[a.Key] = true; return true })
	for _, a := range []struct{ key, value string }{{"request_id", requestID}, {"job", id}, {"kind", kind}} {
		if a.value != "" && !said[a.key] && !h.has[a.key] {
			r.AddAttrs(slog.String(a.key, a.value))
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs is slog.Handler's.
func (h contextAttrHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	has := map[string]bool{}
	for k := range h.has {
		has[k] = true
	}
	for _, a := range attrs {
		has[a.Key] = true
	}
	return contextAttrHandler{h.Handler.WithAttrs(attrs), has}
}

// WithGroup is slog.Handler's.
func (h contextAttrHandler) WithGroup(name string) slog.Handler {
	return contextAttrHandler{h.Handler.WithGroup(name), h.has}
}
