//go:build causes || e2e

package causes

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"salvor/boot/media"
	"salvor/diagnose"
	"salvor/test/must"
	wire "salvor/wire/agent"
)

const (
	testNode  = "5a1d6c0e-0000-4000-8000-0000000000aa"
	testToken = "token-of-this-boot"
)

// agentServer is as much of a control plane as one examination needs: lookup, heartbeat, and the command.
type agentServer struct {
	server    *httptest.Server
	agentPort int
	once      sync.Once
	ready     chan struct{} // closed with the first heartbeat, which brings ca
	ca        []byte
	now       func() time.Time // by the machine's clock; nil: this one's
}

func serveAgent(t *testing.T) *agentServer {
	t.Helper()
	s := &agentServer{agentPort: freePort(t), ready: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"id":"v1","version":{"id":"v1","min_version":"1.1","version":"1.82","status":"CURRENT"}}`)
	})
	mux.HandleFunc("GET /v1/lookup", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(map[string]any{"node": map[string]any{"uuid": testNode}, "config": map[string]any{"heartbeat_timeout": 300, "agent_token": "******"}})
	})
	mux.HandleFunc("POST /v1/heartbeat/"+testNode, func(w http.ResponseWriter, r *http.Request) {
		var beat struct {
			Token string `json:"agent_token"`
			CA    string `json:"agent_verify_ca"`
		}
		if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&beat); err != nil || beat.Token != testToken {
			http.Error(w, "{}", http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		s.once.Do(func() {
			s.ca = []byte(beat.CA)
			close(s.ready)
		})
	})
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-OpenStack-Ironic-API-Minimum-Version", "1.1")
		w.Header().Set("X-OpenStack-Ironic-API-Maximum-Version", "1.82")
		w.Header().Set("X-OpenStack-Ironic-API-Version", "1.82")
		mux.ServeHTTP(w, r)
	}))
	return s
}

// kernelLine leads the ramdisk behind QEMU's user network to the server.
func (s *agentServer) kernelLine() string {
	u, _ := url.Parse(s.server.URL)
	return media.DefaultParams + " ipa-agent-token=" + testToken + " ipa-api-url=http://10.0.2.2:" + u.Port()
}

// examine has the agent examine so many disks. The kernel finds a disk a moment after it was attached, so that it may need to be asked again.
func (s *agentServer) examine(disks int, network string) (*diagnose.Examination, error) {
	for until := time.Now().Add(time.Minute); ; {
		found := &diagnose.Examination{}
		err := s.order(wire.Examine, lookParams(network), found)
		if err != nil || len(found.Disks) == disks {
			return found, err
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("%d disks were examined, want %d", len(found.Disks), disks)
		}
	}
}

func lookParams(network string) wire.ExamineParams {
	out := wire.ExamineParams{Now: time.Now(), LUKSKeys: [][]byte{[]byte("sesame")}}
	if network != "" {
		out.NetworkData = json.RawMessage(network)
	}
	return out
}

// order gives the agent a command, and waits for its outcome; nil: for its end.
func (s *agentServer) order(name string, params, outcome any) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.ca)
	client := &http.Client{Timeout: bootLimit, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "10.0.2.15", Time: s.now}}}
	const query = "?wait=true&agent_token=" + testToken
	base := fmt.Sprintf("https://127.0.0.1:%d/v1/commands/", s.agentPort)
	body, err := json.Marshal(map[string]any{"name": name, "params": params})
	if err != nil {
		return err
	}
	answer, err := client.Post(base+query, "application/json", bytes.NewReader(body))
	id, lost := "", 0
	for until := time.Now().Add(bootLimit); ; answer, err = client.Get(base + id + query) {
		if err != nil && id != "" && lost < 3 { // an emulated processor breaks a connection now and then; a conductor asks again too
			lost++
			time.Sleep(time.Second)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		text, err := io.ReadAll(io.LimitReader(answer.Body, 16<<20))
		answer.Body.Close()
		var result wire.Result
		switch err := errors.Join(err, json.Unmarshal(text, &result)); {
		case err != nil:
			return fmt.Errorf("%s: %w: %.2000s", name, err, text)
		case result.Status == wire.Running && time.Now().Before(until):
			id = result.ID
		case result.Error != nil:
			return fmt.Errorf("%s: %s", name, result.Error.Details)
		case result.Status != wire.Succeeded:
			return fmt.Errorf("%s: %s: %.2000s", name, answer.Status, text)
		case outcome == nil:
			return nil
		default:
			return json.Unmarshal(result.Outcome, outcome)
		}
	}
}

// freePort is a port that nobody listens on now. QEMU takes no listening socket, so it may be lost to another program; then the run fails, and the
// next one repeats the case.
func freePort(t *testing.T) int {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func portOf(l net.Listener) string { return fmt.Sprint(l.Addr().(*net.TCPAddr).Port) }
