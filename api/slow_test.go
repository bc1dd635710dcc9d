package api_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"salvor/api"
)

// TestSlowBodiesOfStrangers: a body that stands still ends its connection within the time for strangers.
func TestSlowBodiesOfStrangers(t *testing.T) {
	t.Parallel()
	at, _ := listen(t, api.ConnectionConfig{}, false)
	for _, sent := range []int{10, 70 << 10} {
		c := dialed(t, "127.0.0.1", at)
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n%s", strings.Repeat("x", sent))
		began := time.Now()
		_ = c.SetReadDeadline(began.Add(90 * time.Second))
		for b := make([]byte, 4096); ; {
			if _, err := c.Read(b); err != nil {
				if isTimeout(err) {
					t.Errorf("%d bytes and no more: the connection is open after %s", sent, time.Since(began))
				}
				break
			}
		}
	}
}

// TestReadersOfNothingHoldNoMemory: large answers that nobody takes are cut off, and one that is taken slowly is not.
func TestReadersOfNothingHoldNoMemory(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	var working atomic.Int64
	large := make([]byte, size)
	h := api.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		working.Add(1)
		defer working.Add(-1)
		_, _ = w.Write(large)
	}), func(http.ResponseWriter, *http.Request, error) {}, slog.New(slog.DiscardHandler))
	server := httptest.NewServer(h)
	defer server.Close()
	open := func() net.Conn {
		c := dialed(t, "127.0.0.1", server.Listener.Addr().String())
		_ = c.(*net.TCPConn).SetReadBuffer(4096)
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		return c
	}
	slow := open()
	read := 0
	for range 100 {
		open()
	}
	// The slow one takes a little now and then: more than nothing.
	for until := time.Now().Add(60 * time.Second); working.Load() > 1 || read == 0; {
		b := make([]byte, 64<<10)
		_ = slow.SetReadDeadline(time.Now().Add(30 * time.Second))
		n, err := slow.Read(b)
		if read += n; err != nil {
			t.Fatalf("the one that reads: %v after %d bytes", err, read)
		}
		if time.Now().After(until) {
			t.Fatalf("%d answers of %d bytes are held after a minute", working.Load(), size)
		}
		time.Sleep(20 * time.Millisecond)
		if read >= size {
			break
		}
	}
	for until := time.Now().Add(60 * time.Second); working.Load() > 0 && time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if _, err := slow.Read(make([]byte, 64<<10)); err != nil {
			break
		}
	}
	if n := working.Load(); n > 0 {
		t.Errorf("%d answers are held that nobody takes", n)
	}
}

// TestStrangersDoNotFillTheLog: a refusal is a short line, and many are few lines.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	log := &lines{}
	limits := api.NewLimits(api.LimitConfig{})
	h := limits.Guard(api.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = api.Admit(r, "")
		w.WriteHeader(http.StatusNotFound)
	}), func(http.ResponseWriter, *http.Request, error) {}, slog.New(slog.NewTextHandler(log, nil))))
	for range 1500 {
		r := httptest.NewRequest(strings.Repeat("G", 1000), "/"+strings.Repeat("x", 60_000), nil)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	text := log.text()
	if n := strings.Count(text, "\n"); n == 0 || n > 200 || len(text) > 100_000 {
		t.Errorf("%d lines, %d bytes", n, len(text))
	}
}
