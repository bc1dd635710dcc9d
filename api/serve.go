package api

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"
)

const (
	// RequestTimeout bounds the work on one request; asks of a BMC take at most 30 s of it.
	RequestTimeout = 60 * time.Second
	headerTimeout  = 10 * time.Second
	readTimeout    = 5 * time.Minute // a config drive over a slow line
	writeTimeout   = 6 * time.Minute
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
)

// NewServer makes an HTTP server with every time-out set.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// Failer writes an error in a dialect's form.
type Failer func(w http.ResponseWriter, r *http.Request, err error)

// Serve wraps a dialect's handler: each request gets an id (told in the answer), a
// time-out and a line in the log; a panic becomes a 500 and ends nothing else.
// The line holds no query, header or body, for secrets hide there.
func Serve(h http.Handler, fail Failer, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(r.Context(), RequestTimeout)
		defer cancel()
		r, info := with(ctx, r)
		out := &recorder{ResponseWriter: w}
		out.Header().Set("Openstack-Request-Id", info.ID)
		out.Header().Set("X-Content-Type-Options", "nosniff")
		out.Header().Set("Cache-Control", "no-store") // no cache between knows that X-Auth-Token is a credential
		defer func() { exchangeOf(ctx).Status = out.status }()
		defer func() {
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler {
					panic(p)
				}
				log.Error("panic in a request", "request_id", info.ID, "panic", p, "stack", string(debug.Stack()))
				if out.status == 0 {
					fail(out, r, errPanic)
				}
			}
			// Clients that wait ask again and again: what only read and found is for debugging, and so is who is held up.
			level := slog.LevelInfo
			if r.Method == http.MethodGet && out.status < http.StatusBadRequest || out.status == http.StatusTooManyRequests {
				level = slog.LevelDebug
			}
			if !log.Enabled(ctx, level) {
				return
			}
			log.Log(ctx, level, "request", "request_id", info.ID, "user", info.User.User, "from", peer(r), "method", r.Method,
				"path", r.URL.Path, "status", out.status, "bytes", out.bytes, "duration", time.Since(start))
		}()
		h.ServeHTTP(out, r)
	})
}

type panicError struct{}

func (panicError) Error() string { return "panic" }

var errPanic = panicError{}

func peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// recorder remembers what was answered, for the log.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
