package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"salvor/agent/step"
	"salvor/secret"
	wire "salvor/wire/agent"
)

const (
	maxCommand   = 1 << 20
	maxHeaders   = 32 << 10
	headerTime   = 10 * time.Second
	readTime     = 5 * time.Minute // a config drive on a slow line
	writeTime    = 60 * time.Second
	idleTime     = 30 * time.Second
	shutdownTime = 2 * time.Second
	maxResults   = 100
	// maxOutcomes bounds the outcomes of all results together, in bytes. The list of commands has them, and a control plane reads 24 MiB of it.
	maxOutcomes = 16 << 20
)

// listen opens the command endpoints. It comes before the first heartbeat: a server may
// call back at once.
func (a *Agent) listen(ctx context.Context) (*agentEndpoint, error) {
	address, err := a.ownAddress()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", a.config.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for commands: %w", err)
	}
	scheme, ca := "http", ""
	if pickMicroversion(a.session.served, heartbeatVersion) >= caSince && !a.session.legacy {
		certificate, text, err := newCertificate(address)
		if err != nil {
			listener.Close()
			return nil, err
		}
		scheme, ca, a.certificate = "https", text, certificate
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	} else {
		a.log.Warn("the server is too old to be told a certificate: commands are taken without TLS")
	}
	if a.session.token.Empty() {
		a.log.Warn("the server knows no tokens: commands are taken from whoever reaches this port")
	}
	at := &agentEndpoint{ca: ca, kick: make(chan struct{}, 1), locked: make(chan struct{})}
	a.port = listener.Addr().(*net.TCPAddr).Port
	commands := newCommands(a.session.token, a.version(), a.started, a.finalize)
	commands.orders, err = a.orders(at)
	if err != nil {
		listener.Close()
		return nil, err
	}
	commands.ctx, commands.kick = ctx, at.beatSoon
	server := a.httpServer(commands)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("command listeners failed", "error", err)
		}
	}()
	at.url, at.done = callbackURL(scheme, address, a.port), commands.done
	at.stop = func() { stopServer(server, served) }
	a.log.Info("listening for commands", "url", at.url)
	return at, nil
}

func (a *Agent) httpServer(commands *commandServer) *http.Server {
	return &http.Server{
		Handler: commands.handler(), MaxHeaderBytes: maxHeaders,
		ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
}

// stopServer lets the answer that is under way go out, then closes the port.
func stopServer(server *http.Server, served <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close() // what is left are connections that nobody answers
	}
	<-served
}

// commandServer is the API of the agent.
type commandServer struct {
	token    secret.Value
	version  string
	started  time.Time
	finalize func(wire.FinalizeParams) error // nil: the machine has been handed over
	done     chan struct{}
	most     int // results that are kept
	// orders are the commands besides rescue.*; those in the background run until ctx
	// ends, and kick tells that one is done.
	orders map[string]step.Order
	ctx    context.Context
	kick   func()

	mu        sync.Mutex
	running   string // the command that runs
	finalized bool
	asked     bool // somebody has used a token on a GET: from then on all must
	results   []wire.Result
}

func newCommands(token secret.Value, version string, started time.Time, finalize func(wire.FinalizeParams) error) *commandServer {
	return &commandServer{token: token, version: version, started: started, finalize: finalize, done: make(chan struct{}), most: maxResults}
}

func (c *commandServer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", c.root)
	for _, prefix := range []string{"", "/v1"} { // no version means v1, as in the real agent
		mux.HandleFunc("GET "+prefix+"/status", c.status)
		for _, slash := range []string{"", "/{$}"} {
			mux.HandleFunc("GET "+prefix+"/commands"+slash, c.list)
			mux.HandleFunc("POST "+prefix+"/commands"+slash, c.run)
		}
		mux.HandleFunc("GET "+prefix+"/commands/{id}", c.show)
	}
	mux.HandleFunc("GET /v1", c.rootV1)
	mux.HandleFunc("GET /v1/{$}", c.rootV1)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeFault(w, http.StatusNotFound, "404 Not Found: The requested URL was not found.")
	})
	return mux
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a peer that went away hears nothing
}

func writeFault(w http.ResponseWriter, status int, text string) {
	code := "Client"
	if status >= 500 {
		code = "Server"
	}
	writeJSON(w, status, wire.Fault{Code: code, String: text})
}

func (c *commandServer) root(w http.ResponseWriter, r *http.Request) {
	v1 := map[string]any{"id": "v1", "links": []any{hrefLink(r, "self", "v1/")}}
	writeJSON(w, http.StatusOK, map[string]any{"name": "salvor agent API", "versions": []any{v1}, "default_version": v1})
}

func (c *commandServer) rootV1(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{
		"id": "v1", "links": []any{hrefLink(r, "self", "v1/")},
		"commands": []any{hrefLink(r, "self", "v1/commands")}, "status": []any{hrefLink(r, "self", "v1/status")},
	})
}

func hrefLink(r *http.Request, rel, path string) map[string]string {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return map[string]string{"rel": rel, "href": scheme + "://" + r.Host + "/" + path}
}

func (c *commandServer) status(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, wire.Status{StartedAt: float64(c.started.UnixMilli()) / 1000, Version: c.version})
}

// mayRead is the real agent's rule for the lists of results: servers of before 2022
// ask without a token, so one is wanted only once one was seen.
func (c *commandServer) mayRead(w http.ResponseWriter, r *http.Request) bool {
	token := r.URL.Query().Get(wire.QueryToken)
	c.mu.Lock()
	c.asked = c.asked || token != ""
	asked := c.asked
	c.mu.Unlock()
	if asked && !c.knows(token) {
		writeFault(w, http.StatusUnauthorized, "401 Unauthorized: Token invalid.")
		return false
	}
	return true
}

func (c *commandServer) knows(token string) bool {
	return c.token.Empty() || c.token.Equal(secret.New(token))
}

func (c *commandServer) list(w http.ResponseWriter, r *http.Request) {
	if !c.mayRead(w, r) {
		return
	}
	c.mu.Lock()
	list := wire.CommandList{Commands: append([]wire.Result{}, c.results...)}
	c.mu.Unlock()
	writeJSON(w, http.StatusOK, list)
}

func (c *commandServer) show(w http.ResponseWriter, r *http.Request) {
	if !c.mayRead(w, r) {
		return
	}
	result, ok := c.find(r.PathValue("id"))
	if ok && strings.EqualFold(r.URL.Query().Get(wire.QueryWait), "true") {
		result = c.ended(r, result)
	}
	if !ok {
		writeFault(w, http.StatusNotFound, "Not found: there is no command of this id")
		return
	}
	writeJSON(w, http.StatusOK, result)
}
