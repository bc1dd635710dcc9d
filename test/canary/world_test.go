// Package canary plants a canary in every field that can hold a secret. It makes the real binary run all operations that need no virtual
// machine, with success and with failure. Then it searches for the canaries in every place that they could have reached.
package canary

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"salvor/driver/drivertest"
	"salvor/lab/sim"
	"salvor/secret"
	"salvor/store/storetest"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/test/program"
)

const patience = 60 * time.Second

type object map[string]any

type world struct {
	*testing.T
	ctx    context.Context
	db     storetest.Database
	server *program.Server
	config string
	dir    string
	tokens map[string]string // by role
	door   string            // of hosts

	mu     sync.Mutex
	birds  []string
	made   map[string]string
	looked map[string]int

	bmc     *drivertest.BMC
	hostile bool // the BMC tells in its errors what it was sent
	bmcURL  string
	agent   *httptest.Server
	finals  program.Buffer // what agents were sent
	// failures counts the commands that the agent refused.
	failures atomic.Int32

	hostLog program.Buffer
	host    *sim.Host
}

func newWorld(t *testing.T, postgres bool) *world {
	w := &world{T: t, ctx: t.Context(), dir: t.TempDir(), tokens: map[string]string{}, made: map[string]string{}, looked: map[string]int{}}
	state := t.TempDir()
	w.db = storetest.Database{URL: "sqlite:" + filepath.Join(state, "salvor.db"), Dirs: []string{state}}
	if postgres {
		w.db = storetest.OnPostgres(t)
	}
	for _, name := range []string{"kernel", "initramfs"} {
		must.OK(t, os.WriteFile(filepath.Join(w.dir, name), bytes.Repeat([]byte("not run here "), 512), 0o600))
	}
	w.door = program.FreeAddress(t)
	w.config = fmt.Sprintf(`[DEFAULT]
debug = true
auth_strategy = token
enabled_hardware_types = fake-hardware,redfish,ipmi,manual-management
[api]
restrict_lookup = true
[database]
connection = %[1]s
[conductor]
rescue_kernel = %[2]s/kernel
rescue_ramdisk = %[2]s/initramfs
sync_power_state_interval = 1
rescue_callback_timeout = 30
[agent]
require_tls = false
[ramdisk]
listen = %[3]s
[hosts]
listen = %[4]s
[image]
import_hosts = *
[ipmi]
client = ipmitool
[compute]
shutdown_timeout = 1
%[5]s`, w.db.URL, w.dir, program.FreeAddress(t), w.door, "")
	file := filepath.Join(state, "first.conf")
	must.OK(t, os.WriteFile(file, []byte(w.config), 0o600))
	w.tokens["admin"] = w.salvor("token", "create", "root", "--role", "admin", "--local", "--config", file, "--state-dir", state, "-f", "value", "-c", "token")
	var err error
	if w.server, err = program.Launch(state, w.config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.server.Stop)
	var made struct{ Token string }
	w.must("POST", "/salvor/v1/tokens", object{"name": "eyes", "role": "reader"}, &made)
	w.tokens["reader"] = made.Token
	w.watch("the token of an administrator", w.tokens["admin"])
	w.watch("the token of a reader", w.tokens["reader"])
	w.machines()
	return w
}

func (w *world) salvor(args ...string) string {
	w.Helper()
	cli := program.CLI{Token: w.tokens["admin"]}
	if w.server != nil {
		cli.URL = w.server.URL
	}
	return cli.Run(w, args...)
}

// machines are a BMC and an agent, which tell in their errors all that they were sent.
func (w *world) machines() {
	w.bmc = drivertest.NewBMC("admin", w.bird("metal.Node.DriverInfo"))
	w.bmc.SetOn(true)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		hostile := w.hostile
		w.mu.Unlock()
		sent := r.Header.Get("Authorization") != "" || r.Header.Get("X-Auth-Token") != "" || r.Method == http.MethodPost
		if !hostile || !sent {
			w.bmc.ServeHTTP(rw, r)
			return
		}
		user, password, _ := r.BasicAuth()
		body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<16))
		http.Error(rw, fmt.Sprintf(`{"error": {"message": "%s: user %s with password %s, token %s: %s is refused %s"}}`, r.Header.Get("Authorization"), user, password,
			r.Header.Get("X-Auth-Token"), body, w.bird("metal.Node.DriverInfo")), http.StatusBadRequest)
	}))
	w.bmcURL = server.URL
	w.Cleanup(func() { w.bmc.Release(); server.Close() })
	w.agent = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		_, _ = w.finals.Write(body)
		// An agent that fails too often ends the rescue within seconds, and one that is busy is waited for, however long a look takes.
		status := http.StatusInternalServerError
		if w.failures.Add(1) > 2 {
			status = http.StatusConflict
		}
		rw.WriteHeader(status)
		_, _ = fmt.Fprintf(rw, `{"code": 500, "type": "X", "message": "cannot do %s of %s", "details": %q}`, body, r.URL, body)
	}))
	w.Cleanup(w.agent.Close)
}

// startHost has a simulated host join, whose agent is the real one.
func (w *world) startHost() {
	var made struct{ Token string }
	w.must("POST", "/salvor/v1/join-tokens", object{"note": "canary"}, &made)
	w.watch("a join token", made.Token)
	var err error
	w.host, err = sim.StartHost(w.ctx, sim.Config{
		API: w.server.URL, Controller: "https://" + w.door, StateDir: filepath.Join(w.dir, "host"), Name: "vm1", Token: secret.New(made.Token),
		Log: slog.New(slog.NewTextHandler(&w.hostLog, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}, sim.NewMachine())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = w.host.Stop() })
}

// send asks as a role and gives status and body. What the answer to a request may repeat of it is not looked at: its sender knows it.
func (w *world) send(role, method, path string, body any) (int, []byte) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	a := must.Get(fixture.TrySend(ctx, http.DefaultClient, method, w.server.URL+path, body,
		"X-Auth-Token", w.tokens[role], "X-OpenStack-Ironic-API-Version", "1.99", "OpenStack-API-Version", "compute 2.88"))(w)
	return a.Status, []byte(a.Body)
}

// must asks as an administrator for what succeeds.
func (w *world) must(method, path string, body, into any) {
	w.Helper()
	status, answer := w.send("admin", method, path, body)
	if status >= 300 {
		w.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			w.Fatalf("%s %s: %v: %s", method, path, err, answer)
		}
	}
}

// try asks for what may fail: that it is told without the secret is what is looked at.
func (w *world) try(method, path string, body any) int {
	w.Helper()
	status, answer := w.send("admin", method, path, body)
	if status >= 500 && status != http.StatusServiceUnavailable && status != http.StatusNotImplemented {
		w.Errorf("%s %s: %d %s", method, path, status, answer)
	}
	if testing.Verbose() && status >= 400 && status != http.StatusConflict {
		w.Logf("%s %s: %d %s", method, path, status, answer)
	}
	w.secretive("answer "+method+" "+path, answer)
	return status
}

// until waits for a condition.
func (w *world) until(what string, holds func() bool) {
	w.Helper()
	program.Until(w, what, patience, program.If(holds))
}
