// Package crash kills the server with -9 in the middle of rescues, at every point that can be distinguished from outside. It proves that
// each rescue ends as if nothing had happened.
package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-crypt/crypt"
	"github.com/go-crypt/crypt/algorithm/shacrypt"

	"salvor/client"
	"salvor/conductor"
	"salvor/conductor/node"
	"salvor/conductor/server"
	"salvor/job"
	"salvor/test/must"
	"salvor/test/program"
	"salvor/wire/ironic"
)

const patience = 60 * time.Second

// world is a server that will be killed, and the machines that it is asked to rescue.
type world struct {
	t      *testing.T
	server *program.Server
	api    *client.Client
	base   *url.URL

	versions map[job.Kind]int // of the lists of the operations that the server began

	mu       sync.Mutex
	machines []*machine
}

func newWorld(t *testing.T, machines int, options ...string) *world {
	w := &world{t: t, versions: conductor.Versions()}
	door := httptest.NewServer(w.door())
	t.Cleanup(door.Close)
	images := t.TempDir()
	for _, name := range []string{"kernel", "initramfs"} {
		must.OK(t, os.WriteFile(filepath.Join(images, name), bytes.Repeat([]byte("not run here "), 512), 0o600))
	}
	w.server = program.Serve(t, fmt.Sprintf(`[conductor]
workers_pool_size = 200
sync_power_state_interval = 0
rescue_kernel = %[1]s/kernel
rescue_ramdisk = %[1]s/initramfs
[service_catalog]
endpoint_override = %[2]s
`, images, door.URL)+strings.Join(options, ""))
	base, err := url.Parse(w.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	w.base = base
	if w.api, err = client.New(client.Config{Endpoint: w.server.URL}); err != nil {
		t.Fatal(err)
	}
	for i := range machines {
		w.add(newMachine(t, fmt.Sprintf("52:54:00:c0:%02x:%02x", i/256, i%256)))
	}
	w.each(w.enroll)
	return w
}

func (w *world) add(m *machine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.machines = append(w.machines, m)
}

// all are the machines so far.
func (w *world) all() []*machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machines
}

// each does something with every machine, a few at a time.
func (w *world) each(do func(ctx context.Context, m *machine) error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*patience)
	defer cancel()
	var all sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, m := range w.all() {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if err := do(ctx, m); err != nil {
				w.t.Errorf("machine %s: %v", m.mac, err)
			}
		})
	}
	all.Wait()
	if w.t.Failed() {
		w.t.Log(tail(w.server.Log()))
		w.t.FailNow()
	}
}

func tail(log string) string {
	var lines []string
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "msg=request ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-20):], "")
}

// enroll makes a machine an active node that boots from its disk.
func (w *world) enroll(ctx context.Context, m *machine) error {
	n, err := w.api.CreateNode(ctx, client.Record{
		"driver": "redfish", "network_interface": "noop", "boot_interface": "redfish-virtual-media",
		"driver_info": map[string]any{"redfish_address": m.address, "redfish_username": "admin", "redfish_password": bmcPassword},
	})
	if err != nil {
		return err
	}
	m.id = n.UUID
	if _, err := w.api.Create(ctx, client.Ports, client.Record{"node_uuid": n.UUID, "address": m.mac}); err != nil {
		return err
	}
	for _, step := range []struct{ verb, want string }{{"manage", "manageable"}, {"adopt", "active"}} {
		if err := w.ask(ctx, m, step.verb); err != nil {
			return err
		}
		if err := w.reach(ctx, m, step.want); err != nil {
			return err
		}
	}
	if err := w.api.SetBootDevice(ctx, m.id, "disk", true); err != nil {
		return err
	}
	if err := w.api.SetPower(ctx, m.id, ironic.PowerRequest{Target: "power on"}); err != nil {
		return err
	}
	for {
		n, err := w.api.Node(ctx, m.id)
		if err != nil {
			return err
		}
		if n.PowerState == "power on" && n.Reservation == "" {
			m.before, err = w.did(ctx, m)
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (w *world) ask(ctx context.Context, m *machine, verb string) error {
	r := ironic.ProvisionRequest{Target: verb}
	if verb == "rescue" {
		r.RescuePassword = m.password
	}
	// A command of ours may hold the node for a moment yet.
	for {
		err := w.api.Provision(ctx, m.id, r)
		if client.StatusOf(err) != http.StatusConflict || ctx.Err() != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// reach waits until a node is in a state and unlocked; a failed state ends the wait.
func (w *world) reach(ctx context.Context, m *machine, want string) error {
	for {
		n, err := w.api.Node(ctx, m.id)
		switch {
		case err != nil:
			return err
		case n.ProvisionState == want && n.Reservation == "":
			return nil
		case strings.HasSuffix(n.ProvisionState, "failed"):
			return fmt.Errorf("%s: %s", n.ProvisionState, n.LastError)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("in state %s, not %s: %w", n.ProvisionState, want, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// door is where ramdisks and BMCs reach the server, dead or alive: while it is down,
// connections wait, as in front of a balancer.
func (w *world) door() http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(w.base) },
		Transport: patient{},
		// Who asked went away, or the server died in the middle.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		serve := func(rw http.ResponseWriter) { proxy.ServeHTTP(rw, r) }
		for _, m := range w.all() {
			switch {
			case r.URL.Path == "/v1/lookup" && strings.Contains(r.URL.Query().Get("addresses"), m.mac):
				m.pass(atLookup, rw, serve)
				return
			case m.id != "" && r.URL.Path == "/v1/heartbeat/"+m.id:
				if err := m.callback(r); err != nil {
					w.t.Errorf("heartbeat of %s: %v", m.mac, err)
				}
				m.pass(atHeartbeat, rw, serve)
				return
			}
		}
		serve(rw)
	})
}

// callback puts the relay's address into a heartbeat.
func (m *machine) callback(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil // the agent went away
	}
	var beat map[string]any
	if err := json.Unmarshal(body, &beat); err != nil {
		return err
	}
	text, _ := beat["callback_url"].(string)
	if beat["callback_url"], err = m.relayed(text); err != nil {
		return err
	}
	if body, err = json.Marshal(beat); err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return nil
}

// patient asks again while nothing listens.
type patient struct{}

func (patient) RoundTrip(r *http.Request) (*http.Response, error) {
	end := time.Now().Add(patience)
	for {
		resp, err := http.DefaultTransport.RoundTrip(r)
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(end) || r.Context().Err() != nil {
			return resp, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// actions are the names of an operation's actions, in their order.
func actions(t *testing.T, kind job.Kind) []string {
	return actionsOf(t, kind, conductor.Versions()[kind])
}

// actionsOf are the names of the actions in one version of an operation's list.
func actionsOf(t *testing.T, kind job.Kind, version int) (names []string) {
	for _, d := range conductor.New(nil, node.Config{}, server.Config{}).Definitions() {
		if d.Kind == kind {
			for _, a := range d.Actions {
				if a.Since <= version && (a.Until == 0 || version <= a.Until) {
					names = append(names, a.Name)
				}
			}
		}
	}
	if len(names) == 0 {
		t.Fatalf("there is no operation %s", kind)
	}
	return names
}

// did counts the lines of a node's timeline that say that an action is done.
func (w *world) did(ctx context.Context, m *machine) (map[string]int, error) {
	events, err := w.api.History(ctx, m.id, client.Query{Fields: []string{"event", "event_type"}})
	if err != nil {
		return nil, err
	}
	done := map[string]int{}
	for _, e := range events {
		if e.EventType == "action" {
			done[e.Event]++
		}
		if strings.Contains(e.Event, ": failed") || strings.HasPrefix(e.Event, "undo ") {
			return nil, fmt.Errorf("timeline: %s", e.Event)
		}
	}
	return done, nil
}

// opens tells whether a password fits a hash.
func opens(password, hash string) (bool, error) {
	decoder := crypt.NewDecoder()
	if err := shacrypt.RegisterDecoder(decoder); err != nil {
		return false, err
	}
	digest, err := decoder.Decode(hash)
	if err != nil {
		return false, err
	}
	return digest.MatchAdvanced(password)
}
