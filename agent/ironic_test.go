package agent

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/wire/ironic"
)

const (
	testNode  = "1be26c0b-03f2-4d2e-ae87-c02d7f33c123"
	testToken = "tGJ9x2oVCVqjG3q0bYdG9o8M8gLrDhPzj0Q1n5F7a2k"
	testMAC   = "52:54:00:aa:00:01"
	// The crypt(3) hash of "open sesame" as Python's crypt writes it.
	testHash = "$5$saltstring$sOFRiuqOzKEQCZAIFmMrCbPuMEMUPOi/BmBpBwWMgW3"
)

// fakeIronic is the server's side: new and old endpoints, each of which can be shut.
type fakeIronic struct {
	t      *testing.T
	server *httptest.Server

	mu           sync.Mutex
	max          string // of the versions; empty: no version headers
	token        any    // what lookup tells
	hash         string // in instance_info
	timeout      int
	lookupStatus int   // status of the new endpoints; 0: they work
	hasPassthru  bool  // the vendor passthru works
	beatStatus   []int // statuses of the next heartbeats before they work
	lookups      []*http.Request
	heartbeats   []ironic.Heartbeat
	versions     []string
	oldLookups   []ironic.PassthruLookup
	oldBeats     []ironic.PassthruHeartbeat
	onHeartbeat  func(callback string, heartbeat ironic.Heartbeat)
}

func newIronic(t *testing.T) *fakeIronic {
	f := &fakeIronic{t: t, max: "1.82", token: testToken, timeout: 300}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1", f.root)
	mux.HandleFunc("GET /v1/lookup", f.lookup)
	mux.HandleFunc("POST /v1/heartbeat/{node}", f.heartbeat)
	mux.HandleFunc("POST /v1/drivers/{driver}/vendor_passthru/lookup", f.oldLookup)
	mux.HandleFunc("POST /v1/nodes/{node}/vendor_passthru/heartbeat", f.oldHeartbeat)
	f.server = httptest.NewServer(mux)
	t.Cleanup(f.server.Close)
	return f
}

func (f *fakeIronic) root(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.max != "" {
		w.Header().Set("X-OpenStack-Ironic-API-Minimum-Version", "1.1")
		w.Header().Set("X-OpenStack-Ironic-API-Maximum-Version", f.max)
	}
	_, _ = io.WriteString(w, `{"id":"v1"}`)
}

func ironicFault(w http.ResponseWriter, status int, text string) {
	inner, _ := json.Marshal(map[string]any{"faultcode": "Client", "faultstring": text, "debuginfo": nil})
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error_message": string(inner)})
}

func (f *fakeIronic) lookup(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lookups = append(f.lookups, r)
	if f.lookupStatus != 0 {
		ironicFault(w, f.lookupStatus, "Resource could not be found.")
		return
	}
	if got := r.URL.Query().Get("addresses"); got != testMAC {
		ironicFault(w, http.StatusNotFound, "unknown MACs "+got)
		return
	}
	info := map[string]any{}
	if f.hash != "" {
		info["rescue_password"] = f.hash
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"node":   map[string]any{"uuid": testNode, "instance_info": info},
		"config": map[string]any{"heartbeat_timeout": f.timeout, "agent_token": f.token, "agent_token_required": true},
	})
}

func (f *fakeIronic) heartbeat(w http.ResponseWriter, r *http.Request) {
	var heartbeat ironic.Heartbeat
	if json.NewDecoder(r.Body).Decode(&heartbeat) != nil || r.PathValue("node") != testNode {
		ironicFault(w, http.StatusBadRequest, "bad heartbeat")
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heartbeats = append(f.heartbeats, heartbeat)
	f.versions = append(f.versions, r.Header.Get("X-OpenStack-Ironic-API-Version"))
	if f.lookupStatus != 0 {
		ironicFault(w, f.lookupStatus, "Not acceptable")
		return
	}
	if len(f.beatStatus) > 0 {
		status := f.beatStatus[0]
		f.beatStatus = f.beatStatus[1:]
		ironicFault(w, status, "not now")
		return
	}
	w.WriteHeader(http.StatusAccepted)
	if f.onHeartbeat != nil {
		go f.onHeartbeat(heartbeat.CallbackURL, heartbeat)
	}
}

func (f *fakeIronic) oldLookup(w http.ResponseWriter, r *http.Request) {
	var body ironic.PassthruLookup
	f.mu.Lock()
	defer f.mu.Unlock()
	if json.NewDecoder(r.Body).Decode(&body) != nil || !f.hasPassthru || body.Version != "2" || len(body.Inventory.Interfaces) == 0 {
		ironicFault(w, http.StatusNotFound, "no such door")
		return
	}
	f.oldLookups = append(f.oldLookups, body)
	_ = json.NewEncoder(w).Encode(map[string]any{"heartbeat_timeout": 60, "node": map[string]any{"uuid": testNode}})
}

func (f *fakeIronic) oldHeartbeat(w http.ResponseWriter, r *http.Request) {
	var body ironic.PassthruHeartbeat
	f.mu.Lock()
	defer f.mu.Unlock()
	if json.NewDecoder(r.Body).Decode(&body) != nil || !f.hasPassthru || r.PathValue("node") != testNode {
		ironicFault(w, http.StatusNotFound, "no such door")
		return
	}
	f.oldBeats = append(f.oldBeats, body)
	w.WriteHeader(http.StatusAccepted)
	if f.onHeartbeat != nil {
		go f.onHeartbeat(body.AgentURL, ironic.Heartbeat{})
	}
}

// command sends a command as a server does, trusting exactly the certificate that the
// heartbeat carried.
func (f *fakeIronic) command(callback, ca, token, name, params string) (int, map[string]any) {
	f.t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	if ca != "" {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM([]byte(ca)) {
			f.t.Error("agent_verify_ca holds no certificate")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	http1 := &http.Client{Transport: transport, Timeout: time.Minute}
	body := fmt.Sprintf(`{"name":%q,"params":%s}`, name, params)
	answer, err := http1.Post(callback+"/v1/commands/?wait=true&agent_token="+token, "", strings.NewReader(body))
	if err != nil {
		f.t.Errorf("command %s: %v", name, err)
		return 0, nil
	}
	defer answer.Body.Close()
	var result map[string]any
	if err := json.NewDecoder(answer.Body).Decode(&result); err != nil {
		f.t.Errorf("command %s: answer is no JSON: %v", name, err)
	}
	return answer.StatusCode, result
}
