//go:build e2e

package ramdisk

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
	"salvor/test/must"
)

const (
	testNode  = "5a1d6c0e-0000-4000-8000-0000000000aa"
	testToken = "token-of-this-boot"
	// sha256 crypt of "sesame".
	sesameHash = "$5$saltsalt$Arv3XkXcPR5LHLrzVCBdKV5hwRocYIyFvUvGa9tbc06"
)

// controller is as much of a control plane as a ramdisk needs to be rescued: lookup,
// heartbeat, the finalize command, and boot files as salvor serves them.
type controller struct {
	t         *testing.T
	server    *httptest.Server
	agentPort int // of this machine, forwarded to the agent's
	params    string
	iso       *media.Image
	dir       string
	// before runs, once, before the machine is handed over; send runs a command of the agent to its end and returns its result.
	before func(send func(name string, params any) json.RawMessage)

	mu        sync.Mutex
	finalized bool
	session   func(name string, params any) (json.RawMessage, error) // sends a command by the token for the time of the rescue
	failure   string
}

func newController(t *testing.T, dir string, iso *media.Image) *controller {
	c := &controller{t: t, dir: dir, iso: iso, agentPort: freePort(t)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/lookup", c.lookup)
	mux.HandleFunc("POST /v1/heartbeat/{node}", c.heartbeat)
	mux.HandleFunc("GET /v1", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"id":"v1","version":{"id":"v1","min_version":"1.1","version":"1.82","status":"CURRENT"}}`)
	})
	mux.HandleFunc("GET /rescue.iso", c.serveISO)
	mux.HandleFunc("GET /boot.ipxe", c.script)
	mux.Handle("GET /files/", http.StripPrefix("/files/", http.FileServer(http.Dir(dir))))
	c.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-OpenStack-Ironic-API-Minimum-Version", "1.1")
		w.Header().Set("X-OpenStack-Ironic-API-Maximum-Version", "1.82")
		w.Header().Set("X-OpenStack-Ironic-API-Version", "1.82")
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(c.server.Close)
	c.params = media.DefaultParams + " ipa-agent-token=" + testToken + " ipa-api-url=" + c.guestURL("")
	return c
}

// guestURL names the server as a guest behind QEMU's user network sees it.
func (c *controller) guestURL(path string) string {
	u, _ := url.Parse(c.server.URL)
	return "http://10.0.2.2:" + u.Port() + path
}

func (c *controller) serveISO(w http.ResponseWriter, r *http.Request) {
	image, err := c.iso.Open(c.params)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.ServeContent(w, r, "rescue.iso", time.Unix(0, 0), image)
}

func (c *controller) script(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, "#!ipxe\nkernel %s initrd=initramfs BOOTIF=01-${netX/mac:hexhyp} %s\ninitrd %s\nboot\n",
		c.guestURL("/files/kernel"), c.params, c.guestURL("/files/initramfs"))
}

func (c *controller) lookup(w http.ResponseWriter, _ *http.Request) {
	json.NewEncoder(w).Encode(map[string]any{
		"node":   map[string]any{"uuid": testNode},
		"config": map[string]any{"heartbeat_timeout": 300, "agent_token": "******"},
	})
}

func (c *controller) heartbeat(w http.ResponseWriter, r *http.Request) {
	var beat struct {
		Token string `json:"agent_token"`
		CA    string `json:"agent_verify_ca"`
	}
	body, _ := io.ReadAll(r.Body)
	if err := json.Unmarshal(body, &beat); err != nil || beat.Token != testToken || r.PathValue("node") != testNode {
		c.fail(fmt.Sprintf("heartbeat of %s: %v", r.PathValue("node"), err))
		http.Error(w, "{}", http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	go c.finalize([]byte(beat.CA))
}

// finalize sends the one command of a rescue, to an agent that proves itself by the
// certificate of its heartbeat.
func (c *controller) finalize(ca []byte) {
	c.mu.Lock()
	busy := c.finalized
	c.finalized = true
	c.mu.Unlock()
	if busy {
		return // the heartbeat at the end of a command
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := &http.Client{Timeout: bootLimit, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: "10.0.2.15"},
	}}
	sendBy := func(token, name string, params any) (json.RawMessage, error) {
		command, err := json.Marshal(map[string]any{"name": name, "params": params})
		if err != nil {
			return nil, err
		}
		base := fmt.Sprintf("https://127.0.0.1:%d/v1/commands/", c.agentPort)
		query := "?wait=true&agent_token=" + token
		answer, err := client.Post(base+query, "application/json", bytes.NewReader(command))
		for until := time.Now().Add(bootLimit); ; answer, err = client.Get(base + query) {
			if err != nil {
				return nil, err
			}
			text, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			var result struct {
				ID     string `json:"id"`
				Status string `json:"command_status"`
			}
			if err := errors.Join(err, json.Unmarshal(text, &result)); err != nil || result.Status != "RUNNING" || time.Now().After(until) {
				if result.Status != "SUCCEEDED" {
					err = fmt.Errorf("%s %s %v", answer.Status, text, err)
				}
				return text, err
			}
			base = fmt.Sprintf("https://127.0.0.1:%d/v1/commands/%s", c.agentPort, result.ID)
		}
	}
	send := func(name string, params any) (json.RawMessage, error) { return sendBy(testToken, name, params) }
	c.mu.Lock()
	c.session = func(name string, params any) (json.RawMessage, error) { return sendBy(sessionToken, name, params) }
	c.mu.Unlock()
	if c.before != nil {
		c.before(func(name string, params any) json.RawMessage {
			text, err := send(name, params)
			if err != nil {
				c.fail(name + ": " + err.Error())
			}
			return text
		})
	}
	if _, err := send("rescue.finalize_rescue", map[string]any{"rescue_password": sesameHash, "hashed": true, "salvor": map[string]any{"tenant_move": false, "session_token": sessionToken}}); err != nil {
		c.fail("finalize: " + err.Error())
	}
}

// sessionToken opens the agent while the machine is in rescue.
const sessionToken = "the-token-of-this-rescue-0123456789abcdef"

// duringRescue sends a command to the agent that serves in the rescue system, as soon as it listens.
func (c *controller) duringRescue(t *testing.T, name string, params any) json.RawMessage {
	t.Helper()
	c.mu.Lock()
	send := c.session
	c.mu.Unlock()
	for until := time.Now().Add(bootLimit); ; time.Sleep(100 * time.Millisecond) {
		text, err := send(name, params)
		if err == nil {
			return text
		}
		if time.Now().After(until) {
			t.Fatalf("%s during the rescue: %v", name, err)
		}
	}
}

func (c *controller) fail(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = text
}

func (c *controller) lastFailure() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

func freePort(t *testing.T) int {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
