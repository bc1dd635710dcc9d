package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
	wire "salvor/wire/agent"
)

const (
	token = "t0ken-of-this-boot-abcdefghijklmnopqrstuvwx"
	hash  = "$5$salt$hashhashhashhashhashhashhashhashhashhash"
)

var node = &metal.Node{ID: "11111111-2222-3333-4444-555555555555"}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func agentAt(url string) driver.Agent {
	return driver.Agent{URL: url, Version: wire.Product + "1.0", Token: secret.New(token)}
}

func finalize(ctx context.Context, a driver.Agent, extras *wire.Extras) error {
	return Rescue{Locks: &driver.AddressLocks{}}.Finalize(ctx, node, a, driver.Finalize{Hash: secret.New(hash), Extras: extras})
}

// quiet proves that no error in the chain tells the token or the hash, or breaks the line.
func quiet(t *testing.T, err error) {
	t.Helper()
	for e := err; e != nil; e = errors.Unwrap(e) {
		if strings.Contains(e.Error(), token) || strings.Contains(e.Error(), hash) || strings.ContainsAny(e.Error(), "\n\x00") {
			t.Errorf("an error that tells or breaks: %q", e)
		}
	}
}

func TestFinalize(t *testing.T) {
	var got map[string]any
	var query string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c struct {
			Name   string
			Params map[string]any
		}
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil || c.Name != "rescue.finalize_rescue" || r.Method != http.MethodPost || r.URL.Path != "/v1/commands/" {
			t.Errorf("%s %s with %q: %v", r.Method, r.URL.Path, c.Name, err)
		}
		got, query = c.Params, r.URL.RawQuery
		_ = json.NewEncoder(w).Encode(wire.Result{ID: "1", Status: wire.Succeeded})
	}))
	defer server.Close()
	extras := &wire.Extras{TenantMove: true}
	must.OK(t, finalize(t.Context(), agentAt(server.URL), extras))
	if got["rescue_password"] != hash || got["hashed"] != true || got["salvor"] == nil {
		t.Errorf("params %v", got)
	}
	if !strings.Contains(query, "wait=true") || !strings.Contains(query, "agent_token="+token) {
		t.Errorf("query %q", query)
	}
	// The real agent refuses what it does not know.
	other := agentAt(server.URL + "/")
	other.Version = "9.4.0"
	must.OK(t, finalize(t.Context(), other, extras))
	if _, told := got["salvor"]; told || len(got) != 2 {
		t.Errorf("another's agent was sent %v", got)
	}
}

func TestRunningIsFollowed(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		result := wire.Result{ID: "a/b", Status: wire.Running}
		if r.Method == http.MethodGet {
			if r.URL.EscapedPath() != "/v1/commands/a%2Fb" {
				t.Errorf("asked for %s", r.URL.EscapedPath())
			}
			if asked.Add(1) == 3 {
				result.Status = wire.Succeeded
			}
		}
		_ = json.NewEncoder(w).Encode(result)
	}))
	defer server.Close()
	if err := finalize(t.Context(), agentAt(server.URL), nil); err != nil || asked.Load() != 3 {
		t.Fatalf("%v after %d questions", err, asked.Load())
	}
}

func TestRefusals(t *testing.T) {
	result := func(r wire.Result) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { _ = json.NewEncoder(w).Encode(r) }
	}
	status := func(code int, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.WriteHeader(code); _, _ = w.Write([]byte(body)) }
	}
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		kind   problem.Kind
		text   string
	}{
		"failed":     {result(wire.Result{Status: wire.Failed, Error: &wire.CommandError{Message: "no /etc/shadow\nfor " + hash}}), problem.Conflict, "no /etc/shadow for ******"},
		"silent no":  {result(wire.Result{Status: wire.Failed}), problem.Conflict, "no reason"},
		"mismatch":   {result(wire.Result{Status: wire.CleanVersionMismatch}), problem.Conflict, "CLEAN_VERSION_MISMATCH"},
		"no id":      {result(wire.Result{Status: wire.Running}), problem.Unavailable, "no id"},
		"token":      {status(401, `{"faultcode":"Client","faultstring":"Agent token `+token+` is wrong"}`), problem.Conflict, "token"},
		"unknown":    {status(404, `{"faultstring":"no such command"}`), problem.Conflict, "no such command"},
		"no command": {status(500, `<title>InvalidCommandError: Invalid command: Unknown command: sync</title>`), problem.Conflict, "does not know the command"},
		"busy":       {status(409, `{"faultstring":"another command runs"}`), problem.Unavailable, "busy"},
		"error":      {status(500, strings.Repeat(token, 500)), problem.Unavailable, "500"},
		"rubbish":    {status(200, "<html>"), problem.Unavailable, "not one of an agent"},
		"nothing":    {status(200, "{}"), problem.Unavailable, "not one of an agent"},
		"huge":       {status(200, strings.Repeat(" ", driver.MaxAnswer+2)), problem.Unavailable, "larger"},
		"redirect": {func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://elsewhere.invalid/")
			w.WriteHeader(307)
		}, problem.Unavailable, "307"},
		"hang up": {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, problem.Unavailable, "cut the connection"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.answer(w) }))
		err := finalize(t.Context(), agentAt(server.URL), nil)
		server.Close()
		if !problem.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) || errors.Is(err, driver.ErrGone) || errors.Is(err, driver.ErrFaulty) != (name == "error") {
			t.Errorf("%s: %v (%s), want %s with %q", name, err, problem.KindOf(err), c.kind, c.text)
		}
		quiet(t, err)
	}
}

func TestGone(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	err := finalize(t.Context(), agentAt(server.URL), nil)
	if !errors.Is(err, driver.ErrGone) {
		t.Fatalf("a closed port: %v, want ErrGone", err)
	}
	quiet(t, err)
}

func TestGoneWhileRunning(t *testing.T) {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	server := &http.Server{}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		_ = listener.Close() // as the real agent, which answers and ends
		_ = json.NewEncoder(w).Encode(wire.Result{ID: "1", Status: wire.Running})
	})
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	if err := finalize(t.Context(), agentAt("http://"+listener.Addr().String()), nil); err != nil {
		t.Fatalf("an agent that took the command and ended: %v", err)
	}
}

func TestSilenceIsUnknown(t *testing.T) {
	hold := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(hold)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := finalize(ctx, agentAt(server.URL), nil)
	if !problem.Is(err, problem.Unavailable) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrGone) {
		t.Fatal(err)
	}
	quiet(t, err)
}

func TestBadAgents(t *testing.T) {
	for _, url := range []string{"", "ftp://h/", "http://", "//h", "http://u:p@h/", "http://h/?a=b", "http://h/#f", "http://h\x00/", "\x7f://"} {
		err := finalize(t.Context(), agentAt(url), nil)
		if !problem.Is(err, problem.Invalid) {
			t.Errorf("%q: %v", url, err)
		}
		quiet(t, err)
	}
	if err := finalize(t.Context(), driver.Agent{URL: "http://h"}, nil); !problem.Is(err, problem.Invalid) {
		t.Errorf("no token: %v", err)
	}
	shut := problem.Unavailablef("the lease is over")
	ctx := driver.WithGate(t.Context(), func() error { return shut })
	if err := finalize(ctx, agentAt("http://127.0.0.1:1"), nil); !errors.Is(err, shut) {
		t.Errorf("behind a shut gate: %v", err)
	}
}

// certificate makes a self-signed one.
func certificate(t *testing.T, adjust func(*x509.Certificate)) (tls.Certificate, string) {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "agent"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	adjust(template)
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestTrustIsExact(t *testing.T) {
	_, stranger := certificate(t, func(*x509.Certificate) {})
	for name, adjust := range map[string]func(*x509.Certificate){
		"no names":      func(*x509.Certificate) {},
		"another name":  func(c *x509.Certificate) { c.DNSNames = []string{"other.example"} },
		"clock of 1970": func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Unix(0, 0), time.Unix(86400, 0) },
	} {
		own, pemText := certificate(t, adjust)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(wire.Result{Status: wire.Succeeded})
		}))
		server.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		a := agentAt(server.URL)
		// With another certificate than that of its heartbeat, the agent may be a new start that will be heard soon.
		for ca, want := range map[string]problem.Kind{pemText: 0, stranger + pemText: 0, stranger: problem.Unavailable, "": problem.Invalid, "rubbish": problem.Invalid} {
			a.CA = ca
			err := finalize(t.Context(), a, nil)
			if (err == nil) != (want == 0) || err != nil && !problem.Is(err, want) {
				t.Errorf("%s, want kind %d: %v", name, want, err)
			}
			quiet(t, err)
		}
		server.Close()
	}
}

func TestNoRescue(t *testing.T) {
	if err := (NoRescue{}).Finalize(t.Context(), node, driver.Agent{}, driver.Finalize{}); !problem.Is(err, problem.Unsupported) {
		t.Fatal(err)
	}
}

// FuzzAnswer: whatever an agent answers, there is an end with a kind, and no secret in it.
func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"id":"1","command_status":"SUCCEEDED"}`))
	f.Add(200, []byte(`{"id":"../..","command_status":"RUNNING"}`))
	f.Add(200, []byte(`{"command_status":"FAILED","command_error":{"message":"`+token+`"}}`))
	f.Add(500, []byte(`{"faultstring":7}`))
	f.Fuzz(func(t *testing.T, code int, body []byte) {
		if code < 200 || code > 999 {
			return
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = w.Write(body)
		}))
		defer server.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := finalize(ctx, agentAt(server.URL), nil)
		if err != nil && problem.Is(err, problem.Internal) {
			t.Error(err)
		}
		quiet(t, err)
	})
}
