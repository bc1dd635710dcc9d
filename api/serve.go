package api

import (
	"bytes"
	"context"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

const maxMethod = 20 // in a line of the log

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
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: stdlog.New(serverLog{log}, "", 0),
		ConnContext: withConnection, ConnState: noteState,
	}
}

// StrangerHeaders bounds the headers of requests on listeners that mostly strangers reach, in bytes.
const StrangerHeaders = 16 << 10

// serverLog takes what net/http has to say: that no connection can be accepted is for the operator, that a client broke off is not.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Write(b []byte) (int, error) {
	level := slog.LevelDebug
	if bytes.Contains(b, []byte("Accept error")) {
		level = slog.LevelWarn
	}
	l.log.Log(context.Background(), level, truncateText(strings.TrimSpace(string(b)), 4*maxLogged))
	return len(b), nil
}

// maxLogged bounds what a client chose in a line of the log, in bytes.
const maxLogged = 200

// maxHidden bounds, in bytes, the hidden part of an error in the log.
const maxHidden = 600

func truncateText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// refusalSampler samples the lines about strangers who are refused: a burst and then so many in a second.
type refusalSampler struct {
	mu      sync.Mutex
	left    float64
	at      time.Time
	dropped int
}

const refusalLines, refusalBurst = 5, 50

// line tells whether the next line is written, and how many were not since the last.
func (s *refusalSampler) line(now time.Time) (dropped int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() {
		s.left = refusalBurst
	} else if passed := now.Sub(s.at).Seconds(); passed > 0 {
		s.left = min(s.left+refusalLines*passed, refusalBurst)
	}
	if s.at = now; s.left < 1 {
		s.dropped++
		return 0, false
	}
	s.left--
	dropped, s.dropped = s.dropped, 0
	return dropped, true
}

// strangers are those of all listeners of the process.
var strangers refusalSampler

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
		r, info := withRequest(ctx, r)
		out := &statusRecorder{ResponseWriter: w}
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
			line := []any{"request_id", info.ID, "user", info.User.User, "from", peerHost(r), "method", truncateText(r.Method, maxMethod),
				"path", truncateText(r.URL.Path, maxLogged), "status", out.status, "bytes", out.bytes, "duration", time.Since(start)}
			if info.hidden != "" {
				line = append(line, "error", truncateText(info.hidden, maxHidden))
			}
			if v := requestStateOf(r); level == slog.LevelInfo && out.status >= http.StatusBadRequest && v != nil && !v.isProved() {
				dropped, ok := strangers.line(time.Now())
				if !ok {
					return
				}
				if dropped > 0 {
					line = append(line, "lines_dropped", dropped)
				}
			}
			log.Log(ctx, level, "request", line...)
		}()
		if err := refusedWhileHeld(r); err != nil {
			fail(out, r, err)
			return
		}
		h.ServeHTTP(out, r)
	})
}

type panicError struct{}

func (panicError) Error() string { return "panic" }

var errPanic = panicError{}

func peerHost(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// statusRecorder remembers what was answered, for the log.
type statusRecorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *statusRecorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusRecorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := pendingAnswers.write(w.ResponseWriter, b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusRecorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
