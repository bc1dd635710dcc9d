package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"salvor/test/must"
	"salvor/test/program"
)

// TestRun measures a real server, with all its cases, and the same one as an endpoint beside itself.
func TestRun(t *testing.T) {
	small := []string{"--nodes", "1000", "--ramdisks", "20", "--rounds", "1", "--time", "100ms", "--json"}
	var out, errs bytes.Buffer
	if err := runBenchmark(t.Context(), append(small, "--salvor", program.Path(t, "salvor")), &out, &errs); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	var got benchResult
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got.Reports) != 1 {
		t.Fatalf("%v: %s", err, out.String())
	}
	seen := map[string]bool{}
	for _, f := range got.Reports[0].Figures {
		seen[f.Name] = true
		if f.Value <= 0 {
			t.Errorf("%+v", f)
		}
	}
	for name := range goals {
		if !seen[name] {
			t.Errorf("%s is not measured", name)
		}
	}
}

// TestEndpoints compares two servers and leaves neither with anything that it made.
func TestEndpoints(t *testing.T) {
	s := program.Serve(t, strings.Replace(settings, "log_level = warn", "log_level = info", 1)) // by which it tells its address
	var out, errs bytes.Buffer
	args := []string{"--nodes", "1000", "--only", "none", "--rounds", "1", "--time", "50ms", "--endpoint", s.URL, "--pid", fmt.Sprint(s.PID()), "--versus", s.URL + "/v1/"}
	if err := runBenchmark(t.Context(), args, &out, &errs); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	if !strings.Contains(out.String(), "times better") || !strings.Contains(out.String(), "node create") {
		t.Errorf("table:\n%s", out.String())
	}
	resp := must.Get(http.Get(s.URL + "/v1/nodes"))(t)
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); string(b) != `{"nodes":[]}` {
		t.Errorf("left: %.300s", b)
	}
}

func TestWire(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/base/chunks":
			for range 3 {
				fmt.Fprint(w, strings.Repeat("c", 70_000))
				w.(http.Flusher).Flush()
			}
		case "/base/close":
			w.Header().Set("Connection", "close")
			fmt.Fprint(w, "bye")
		case "/base/none":
			w.WriteHeader(http.StatusNoContent)
		default:
			fmt.Fprint(w, r.Method, r.Header.Get("X-OpenStack-Ironic-API-Version"), user, password, string(body))
		}
	}))
	defer server.Close()
	target := must.Get(newTarget(server.URL+"/base/v1/", "1.82", serverCredentials{user: "u", password: "p"}))(t)
	w := &httpConn{t: target}
	defer w.close()
	for range 2 {
		for _, c := range []struct {
			method, path, body string
			status             int
			want               string
		}{
			{"GET", "/x", "", 200, "GET1.82up"}, {"POST", "/x", "{}", 200, "POST1.82up{}"}, {"GET", "/chunks", "", 200, strings.Repeat("c", 210_000)},
			{"DELETE", "/none", "", 204, ""}, {"GET", "/close", "", 200, "bye"}, {"PUT", "/x", "", 200, "PUT1.82up"},
		} {
			status, body, err := w.send(c.method, c.path, c.body)
			if err != nil || status != c.status || string(body) != c.want {
				t.Errorf("%s %s: %d %.40s (%d bytes): %v", c.method, c.path, status, body, len(body), err)
			}
		}
		server.CloseClientConnections() // a kept connection that the server closed is opened again
	}
}

// TestWireUnbounded: an answer without a length ends with its connection.
func TestWireUnbounded(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = c.Read(make([]byte, 1000))
			fmt.Fprint(c, "HTTP/1.0 200 OK\r\n\r\nall of it")
			_ = c.Close()
		}
	}()
	target := must.Get(newTarget("http://"+l.Addr().String(), "1.1", serverCredentials{}))(t)
	w := &httpConn{t: target}
	if _, body, err := w.send("GET", "/", ""); err != nil || string(body) != "all of it" {
		t.Errorf("%q %v", body, err)
	}
}

// FuzzRead: whatever a server sends ends in an answer or an error, within bounds.
func FuzzRead(f *testing.F) {
	for _, s := range []string{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "HTTP/1.1 204 No\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.1 200\r\nContent-Length: -1\r\n\r\n", "HTTP/1.0 200 OK\n\nrest", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", "junk"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = theirs.Write(sent)
			_ = theirs.Close()
		}()
		w := &httpConn{t: &targetServer{}, conn: ours}
		w.in = newReader(ours)
		_ = ours.SetDeadline(time.Now().Add(5 * time.Second))
		if _, body, err := w.read(); err == nil && len(body) > len(sent) {
			t.Fatalf("%d bytes out of %d", len(body), len(sent))
		}
		_ = ours.Close()
	})
}

func TestRefusesArguments(t *testing.T) {
	t.Setenv("BENCH_TOKEN", "")
	for _, args := range [][]string{
		{"--nodes", "1"}, {"extra"}, {"--concurrency", "0"}, {"--endpoint", "ftp://x"}, {"--endpoint", "http://127.0.0.1:1", "--auth", "token"},
		{"--endpoint", "http://127.0.0.1:1", "--auth", "kerberos"}, {"--salvor", "/nowhere/salvor"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := runBenchmark(ctx, args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v is taken", args)
		}
		cancel()
	}
	if a, err := parseAuthOption("basic:ann", "BENCH_"); err != nil || a.user != "ann" {
		t.Errorf("%+v %v", a, err)
	}
}

func TestWords(t *testing.T) {
	if got := (measuredValue{Value: 1234567, Unit: rate}).text(); got != "1,234,567 /s" {
		t.Error(got)
	}
	if got, err := nextPath([]byte(`{"nodes":[],"next":"http://h:1/v1/nodes?marker=a&limit=2"}`)); err != nil || got != "/v1/nodes?marker=a&limit=2" {
		t.Error(got, err)
	}
	if _, err := nextPath([]byte(`{"next":7}`)); err == nil {
		t.Error("a number is taken for a link")
	}
	if got, err := cutString([]byte(`{"a": 1, "uuid": "x-y"}`), "uuid"); err != nil || got != "x-y" {
		t.Error(got, err)
	}
	a := serverReport{Figures: []measuredValue{{Name: "r", Value: 300, Unit: rate}, {Name: "t", Value: 2, Unit: millis}}}
	b := serverReport{Figures: []measuredValue{{Name: "r", Value: 100, Unit: rate}, {Name: "t", Value: 10, Unit: millis}}}
	if got := fmt.Sprint(compareReports(a, b)); got != "[{r 3} {t 5}]" {
		t.Error(got)
	}
}
