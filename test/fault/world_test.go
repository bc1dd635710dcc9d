// Package fault tests the real server against hostile input: BMCs that are down, silent, broken
// or wrong, and malformed requests of every kind.
package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"salvor/client"
	"salvor/driver/drivertest"
	"salvor/test/must"
	"salvor/test/program"
	"salvor/wire/ironic"
)

const (
	patience       = 10 * time.Minute
	bmcPassword    = "bmc-password-of-the-fault-tests"
	ipmiPassword   = "ipmi-password-here" // 20 bytes are the most
	rescuePassword = "rescue-password-of-the-fault-tests"
)

// TestMain lets 64 cases run at once: most of their time they wait for timeouts. More would starve each other on a machine of two processors.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "64"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// world is one server with machines behind it.
type world struct {
	server *program.Server
	api    *client.Client
	door   string
	count  atomic.Int32
}

func newWorld(t *testing.T) *world {
	w := &world{}
	var target atomic.Pointer[url.URL]
	// The server's own address is known only once it runs, ramdisks are told this one.
	door := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target.Load()) }})
	t.Cleanup(door.Close)
	w.door = door.URL
	images := t.TempDir()
	for _, name := range []string{"kernel", "initramfs"} {
		must.OK(t, os.WriteFile(filepath.Join(images, name), bytes.Repeat([]byte("not run here "), 512), 0o600))
	}
	w.server = program.Serve(t, fmt.Sprintf(`[conductor]
workers_pool_size = 400
power_state_change_timeout = 6
sync_power_state_interval = 0
rescue_kernel = %[1]s/kernel
rescue_ramdisk = %[1]s/initramfs
[agent]
require_tls = false
[api]
legacy_ramdisk_passthru = true
[ramdisk]
listen = 127.0.0.1:0
[service_catalog]
endpoint_override = %[2]s
`, images, door.URL))
	base := must.Get(url.Parse(w.server.URL))(t)
	target.Store(base)
	w.api = must.Get(client.New(client.Config{Endpoint: w.server.URL}))(t)
	return w
}

func (w *world) noSecrets(t *testing.T, where, text string) {
	t.Helper()
	for _, s := range []string{bmcPassword, ipmiPassword, rescuePassword, "Basic YWRtaW46", "YWRtaW46", "$5$"} {
		if i := strings.Index(text, s); i >= 0 {
			t.Errorf("a secret is in the %s: %s", where, text[max(0, i-200):min(len(text), i+100)])
		}
	}
}

// machine is a BMC that can be broken, a node, and a ramdisk that heartbeats once.
type machine struct {
	t       *testing.T
	w       *world
	bmc     *drivertest.BMC
	front   http.Handler // what stands before the BMC; the BMC itself
	address string       // host and port of the BMC
	mac, id string

	mu       sync.Mutex
	server   *http.Server
	fault    fault
	breakIn  int // sessions until the fault begins; 0: not armed
	broken   bool
	deaf     bool // its ramdisk never says anything
	ramdisks sync.WaitGroup
}

func (w *world) newMachine(t *testing.T) *machine {
	n := w.count.Add(1)
	m := &machine{t: t, w: w, bmc: drivertest.NewBMC("admin", bmcPassword), mac: fmt.Sprintf("52:54:00:fa:%02x:%02x", n>>8, n&0xff)}
	m.front, m.bmc.OnPower = m.bmc, m.boot
	// An address of its own: nobody else takes the port of a BMC that is down.
	l := must.Get(net.Listen("tcp", fmt.Sprintf("127.77.%d.%d:0", n>>8, n&0xff)))(t)
	m.address = l.Addr().String()
	m.listen(l)
	t.Cleanup(func() {
		m.mu.Lock()
		_ = m.server.Close()
		m.mu.Unlock()
		m.ramdisks.Wait()
	})
	return m
}

func (m *machine) listen(l net.Listener) {
	server := &http.Server{Handler: m, ReadHeaderTimeout: patience}
	m.mu.Lock()
	m.server = server
	m.mu.Unlock()
	go func() { _ = server.Serve(l) }()
}

// ServeHTTP is the BMC behind its fault.
func (m *machine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, broken := m.enter(r)
	switch {
	case broken && f.serve != nil && f.only(r):
		f.serve(w, r)
	case broken && f.kind == drivertest.Down:
		panic(http.ErrAbortHandler)
	default:
		m.front.ServeHTTP(w, r)
	}
}

// enter counts the conversations with the BMC: the driver begins each by looking for the system. Connections cannot be counted, since an
// HTTP client opens another one where the last has not become idle in time.
func (m *machine) enter(r *http.Request) (fault, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.URL.Path == path.Dir(drivertest.SystemPath) && m.breakIn > 0 {
		if m.breakIn--; m.breakIn == 0 {
			m.breakNow()
		}
	}
	return m.fault, m.broken
}

// breakNow begins the fault; mu is held.
func (m *machine) breakNow() {
	m.broken = true
	m.bmc.Break(m.fault.kind)
	if m.fault.kind == drivertest.Down {
		go m.server.Close()
	}
}

// breakAt arms a fault for the n-th conversation from now.
func (m *machine) breakAt(f fault, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault, m.breakIn = f, n
}

// mend makes the BMC well, on the address that it had.
func (m *machine) mend(t *testing.T) {
	m.mu.Lock()
	down := m.broken && m.fault.kind == drivertest.Down
	if !m.broken {
		t.Error("the fault never began")
	}
	m.broken, m.fault, m.breakIn = false, fault{}, 0
	m.bmc.Break(drivertest.None)
	m.mu.Unlock()
	if !down {
		return
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		l, err := net.Listen("tcp", m.address)
		if err == nil {
			m.listen(l)
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// enroll makes the node.
func (m *machine) enroll(ctx context.Context) error {
	n, err := m.w.api.CreateNode(ctx, client.Record{
		"driver": "redfish", "network_interface": "noop", "boot_interface": "redfish-virtual-media",
		"driver_info": map[string]any{"redfish_address": "http://" + m.address, "redfish_username": "admin", "redfish_password": bmcPassword},
	})
	if err != nil {
		return err
	}
	m.id = n.UUID
	_, err = m.w.api.Create(ctx, client.Ports, client.Record{"node_uuid": n.UUID, "address": m.mac})
	return err
}

func (m *machine) manage(ctx context.Context) error {
	if err := m.enroll(ctx); err != nil {
		return err
	}
	return m.reach(ctx, "manage", "manageable")
}

// activeOff is an active node that boots from its disk and is off.
func (m *machine) activeOff(ctx context.Context) error {
	if err := m.manage(ctx); err != nil {
		return err
	}
	if err := m.reach(ctx, "adopt", "active"); err != nil {
		return err
	}
	return m.w.api.SetBootDevice(ctx, m.id, "disk", true)
}

func (m *machine) active(ctx context.Context) error {
	if err := m.activeOff(ctx); err != nil {
		return err
	}
	if err := m.w.api.SetPower(ctx, m.id, ironic.PowerRequest{Target: "power on"}); err != nil {
		return err
	}
	_, err := m.wait(ctx, func(n *client.Node) bool { return n.PowerState == "power on" })
	return err
}

func (m *machine) rescued(ctx context.Context) error {
	if err := m.active(ctx); err != nil {
		return err
	}
	return m.reach(ctx, "rescue", "rescue")
}

func (m *machine) provision(ctx context.Context, verb string) error {
	r := ironic.ProvisionRequest{Target: verb}
	if verb == "rescue" {
		r.RescuePassword = rescuePassword
	}
	return m.w.api.Provision(ctx, m.id, r)
}

func (m *machine) reach(ctx context.Context, verb, state string) error {
	if err := m.provision(ctx, verb); err != nil {
		return err
	}
	_, err := m.wait(ctx, func(n *client.Node) bool { return n.ProvisionState == state })
	return err
}

// wait looks at the node until it is as wanted and nobody holds it.
func (m *machine) wait(ctx context.Context, is func(*client.Node) bool) (*client.Node, error) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		n, err := m.w.api.Node(ctx, m.id)
		if err != nil {
			return nil, err
		}
		if is(n) && n.Reservation == "" {
			return n, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("still %q, reserved by %q, last error %q", n.ProvisionState, n.Reservation, n.LastError)
		case <-time.After(pause):
		}
	}
}

func (m *machine) settle(ctx context.Context, t *testing.T, is func(*client.Node) bool) *client.Node {
	t.Helper()
	n := must.Get(m.wait(ctx, is))(t)
	return n
}

func (m *machine) history(ctx context.Context, t *testing.T) string {
	events := must.Get(m.w.api.History(ctx, m.id, client.Query{Detail: true}))(t)
	text := must.Get(json.Marshal(events))(t)
	return string(text)
}

// event waits for a line in the timeline.
func (m *machine) event(ctx context.Context, words string) error {
	for {
		events, err := m.w.api.History(ctx, m.id, client.Query{Detail: true})
		if err != nil {
			return err
		}
		for _, e := range events {
			if strings.Contains(e.Event, words) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no %q in the timeline", words)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// wantOwnSystem holds the machine to what it was before everything.
func (m *machine) wantOwnSystem(t *testing.T) {
	t.Helper()
	if b := m.bmc.Boot(); !m.bmc.On() || b.Target != "Hdd" || b.Enabled != "Continuous" || m.bmc.Image() != "" {
		t.Errorf("after unrescue: on %t, boot %+v, medium %q", m.bmc.On(), b, m.bmc.Image())
	}
}
