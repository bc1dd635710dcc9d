// Package restored replaces the database by an older state of it, under the real program. Twelve simulated machines stand behind a proxy
// that counts requests which change them.
package restored

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"salvor/client"
	"salvor/lab/sim/fleet"
	"salvor/store/storetest"
	"salvor/test/must"
	"salvor/test/program"
	"salvor/wire/ironic"
	"salvor/wire/native"
)

const (
	machines = 12
	within   = 60 * time.Second
)

// proxy stands before the BMCs and the boot media. It counts requests that change a machine. While hold is in effect it delays those
// of machines and the boot media.
type proxy struct {
	mu      sync.Mutex
	open    chan struct{} // closed: nothing is held back
	changes [machines]int
	waiting [machines]bool
	media   bool // somebody waits for boot media
}

var ofSystem = regexp.MustCompile(`^/redfish/v1/Systems/(\d+)`)

func (p *proxy) bmc(to *url.URL) http.Handler {
	onward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m := ofSystem.FindStringSubmatch(r.URL.Path); m != nil && r.Method != http.MethodGet {
			i, _ := strconv.Atoi(m[1])
			p.mu.Lock()
			p.changes[i]++
			held := i != 0
			p.waiting[i] = held
			open := p.open
			p.mu.Unlock()
			if held {
				select {
				case <-open:
				case <-r.Context().Done():
					return
				}
			}
		}
		onward.ServeHTTP(w, r)
	})
}

func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open, p.waiting, p.media = make(chan struct{}), [machines]bool{}, false
}

// free lets everything go on. A second call does nothing more.
func (p *proxy) free() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

// counted gives the changes since the last call.
func (p *proxy) counted() [machines]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.changes
	p.changes = [machines]int{}
	return out
}

// world is a control plane and its machines.
type world struct {
	*testing.T
	server  *program.Server
	cli     program.CLI
	api     *client.Client
	fleet   *fleet.Fleet
	proxy   *proxy
	bmcs    *url.URL
	witness string
}

// newWorld starts a control plane with twelve machines. database adds to its section of that name.
func newWorld(t *testing.T, database string) *world {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"kernel", "initramfs"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte("not run here "), 512), 0o600))
	}
	w := &world{T: t, proxy: &proxy{open: make(chan struct{})}, witness: filepath.Join(dir, "witness.json")}
	close(w.proxy.open)
	var server atomic.Pointer[url.URL]
	onward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(server.Load()) }}
	media := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.proxy.mu.Lock()
		open := w.proxy.open
		w.proxy.media = true
		w.proxy.mu.Unlock()
		select {
		case <-open:
			onward.ServeHTTP(rw, r)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(media.Close)
	w.server = program.Serve(t, fmt.Sprintf(`[conductor]
sync_power_state_interval = 1
rescue_kernel = %[1]s/kernel
rescue_ramdisk = %[1]s/initramfs
[service_catalog]
endpoint_override = %[2]s
[database]
witness_file = %[3]s
%[4]s
`, dir, media.URL, w.witness, database))
	at := must.Get(url.Parse(w.server.URL))(t)
	server.Store(at)
	w.cli = program.CLI{URL: w.server.URL}
	w.enroll()
	return w
}

func (w *world) enroll() {
	w.Helper()
	var err error
	if w.api, err = client.New(client.Config{Endpoint: w.server.URL}); err != nil {
		w.Fatal(err)
	}
	free := program.FreeAddress(w)
	host, port, _ := strings.Cut(free, ":")
	number, _ := strconv.Atoi(port)
	w.fleet, err = fleet.New(fleet.Config{API: w.api, Nodes: machines, Seed: 3, Host: host, Port: number, BootInterface: "redfish-virtual-media",
		HeartbeatInterval: time.Second, Boot: 50 * time.Millisecond, Workers: 12})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, over := make(chan struct{}), make(chan error, 1)
	go func() {
		over <- w.fleet.Run(ctx, func(ctx context.Context) { _ = w.fleet.Enroll(ctx); close(ready); <-ctx.Done() })
	}()
	w.Cleanup(func() { cancel(); <-over })
	select {
	case <-ready:
	case err := <-over:
		w.Fatal(err)
	case <-time.After(within):
		w.Fatal("the machines are not enrolled")
	}
	if w.bmcs, err = url.Parse("http://" + free); err != nil {
		w.Fatal(err)
	}
	for i := range machines {
		door := httptest.NewServer(w.proxy.bmc(w.bmcs)) // one for each: requests to one address wait for each other
		w.Cleanup(door.Close)
		w.await(i, "active", "power on")
		value, _ := json.Marshal(door.URL)
		if _, err := w.api.PatchNode(w.Context(), w.fleet.UUID(i), []ironic.PatchOperation{{Op: "replace", Path: "/driver_info/redfish_address", Value: value}}, false); err != nil {
			w.Fatal(err)
		}
	}
}

func (w *world) provision(i int, target string) {
	w.Helper()
	request := ironic.ProvisionRequest{Target: target}
	if target == "rescue" {
		request.RescuePassword = "let me in"
	}
	must.OK(w, w.api.Provision(w.Context(), w.fleet.UUID(i), request))
}

func (w *world) power(i int, target string) {
	w.Helper()
	must.OK(w, w.api.SetPower(w.Context(), w.fleet.UUID(i), ironic.PowerRequest{Target: target}))
}

// await waits until nothing works on a machine and its node shows that state and that power.
func (w *world) await(i int, state, power string) *client.Node {
	w.Helper()
	var n *client.Node
	program.Until(w, fmt.Sprintf("machine %d is %s, %s", i, state, power), within, func() (err error) {
		if n, err = w.api.Node(w.Context(), w.fleet.UUID(i)); err != nil {
			return err
		}
		if got := fmt.Sprint(n.ProvisionState, n.PowerState, n.Reservation); got != state+power {
			return fmt.Errorf("it is %s (%s)", got, n.LastError)
		}
		return nil
	})
	return n
}

// isOn asks the machine's BMC itself.
func (w *world) isOn(i int) bool {
	w.Helper()
	r := must.Get(http.NewRequestWithContext(w.Context(), http.MethodGet, w.bmcs.String()+"/redfish/v1/Systems/"+strconv.Itoa(i), nil))(w)
	r.SetBasicAuth("admin", "simulated")
	resp := must.Get(http.DefaultClient.Do(r))(w)
	defer resp.Body.Close()
	var system struct{ PowerState string }
	must.OK(w, json.NewDecoder(resp.Body).Decode(&system))
	return system.PowerState == "On"
}

// begin has the work begin that is open in the older state: of machine 0 the ramdisk is waited for, of the others a BMC is asked.
func (w *world) begin() {
	w.Helper()
	w.provision(4, "rescue")
	w.await(4, "rescue", "power on")
	w.power(5, "power off")
	w.await(5, "active", "power off")
	w.proxy.hold()
	w.Cleanup(w.proxy.free)
	for i := range 3 {
		w.provision(i, "rescue")
	}
	w.provision(4, "unrescue")
	w.power(6, "rebooting")
	w.power(9, "power off")
	program.Until(w, "everything is in work", within, func() error {
		w.proxy.mu.Lock()
		defer w.proxy.mu.Unlock()
		for _, i := range []int{1, 2, 4, 6, 9} {
			if !w.proxy.waiting[i] {
				return fmt.Errorf("the BMC of machine %d is not asked yet", i)
			}
		}
		if !w.proxy.media {
			return fmt.Errorf("machine 0 does not fetch its ramdisk yet")
		}
		return nil
	})
	program.Until(w, "the rescue of machine 0 waits", within, func() error {
		n, err := w.api.Node(w.Context(), w.fleet.UUID(0))
		if err == nil && n.ProvisionState != "rescue wait" {
			err = fmt.Errorf("it is %s", n.ProvisionState)
		}
		return err
	})
}

// lose is the history that is lost: all that was open ends well, and in the end every machine runs its own system.
func (w *world) lose() {
	w.Helper()
	w.await(4, "active", "power on")
	w.await(6, "active", "power on")
	w.await(9, "active", "power off")
	w.power(5, "power on")
	w.power(9, "power on")
	for i := range 3 {
		w.await(i, "rescue", "power on")
		w.provision(i, "unrescue")
	}
	for i := range machines {
		w.await(i, "active", "power on")
	}
}

// held waits until all machines are read, and proves that none was changed, whatever power sync would have had to say meanwhile.
func (w *world) held(code string) native.Restored {
	w.Helper()
	var r native.Restored
	program.Until(w, "all machines are read", within, func() error {
		out, err := w.cli.Try(w, "db", "restored", "-f", "json") // it fails while the database is away
		if err == nil {
			err = json.Unmarshal([]byte(out), &r)
		}
		if err != nil {
			return err
		}
		if r.Held == nil || r.Read < r.Machines || r.Machines != machines {
			return fmt.Errorf("held %+v, %d of %d read", r.Held, r.Read, r.Machines)
		}
		return nil
	})
	if r.Held.Code != code {
		w.Errorf("held because of %q, want %q", r.Held.Code, code)
	}
	time.Sleep(2500 * time.Millisecond) // two turns of power sync; nothing shows that something does not come
	if got := w.proxy.counted(); got != [machines]int{} {
		w.Fatalf("changing requests before anybody chose: %v", got)
	}
	return r
}

// shown checks what "salvor db restored" prints before the decision: each open job with the name of its machine and the effect of either decision,
// the differences, and the commands that decide.
func (w *world) shown(r native.Restored) {
	w.Helper()
	out := w.cli.Run(w, "db", "restored")
	for i, effects := range map[int][2]string{
		0: {"begins again", `the node is "rescue failed", in maintenance`}, 4: {"goes on", `the node is "unrescue failed", in maintenance`}, 9: {"goes on", `the node is "active" as before`},
	} {
		at := slices.IndexFunc(r.Jobs, func(j native.RestoredJob) bool { return j.Subject == w.fleet.Name(i) })
		if at < 0 {
			w.Errorf("no open job of machine %d is listed: %+v", i, r.Jobs)
			continue
		}
		for d, want := range map[string]string{"as-it-is": effects[0], "end-operations": effects[1]} {
			if got := r.Jobs[at].Effects[d]; !strings.Contains(got, want) || !strings.Contains(out, got) {
				w.Errorf("%s does %q to the job of machine %d, want %q, and that it is printed in:\n%s", d, got, i, want, out)
			}
		}
	}
	differs := map[string]string{}
	for _, d := range r.Differences {
		differs[d.Subject+" "+d.What] = d.Recorded + "/" + d.Found
	}
	if got := differs[w.fleet.Name(5)+" power"]; got != "power off/power on" {
		w.Errorf("the power of machine 5 differs as %q in %q", got, differs)
	}
	if got := differs[w.fleet.Name(0)+" boot device"]; got != "once cdrom/no override" {
		w.Errorf("the boot of machine 0 differs as %q in %q", got, differs)
	}
	if next := "next: salvor db restored --release as-it-is, or: salvor db restored --release end-operations"; !strings.Contains(out, next) {
		w.Errorf("it does not say %q:\n%s", next, out)
	}
}

// decide releases the database, and proves the right end of each machine.
func (w *world) decide(r native.Restored, decision string) {
	w.Helper()
	if len(r.Jobs) != 6 {
		w.Fatalf("open jobs: %+v", r.Jobs)
	}
	w.shown(r)
	if err := w.api.SetPower(w.Context(), w.fleet.UUID(7), ironic.PowerRequest{Target: "power off"}); client.StatusOf(err) != http.StatusServiceUnavailable {
		w.Errorf("a new request while it is held: %v", err)
	}
	if out, err := w.cli.Try(w, "db", "restored", "--release", "drop"); err == nil {
		w.Errorf("an unknown decision: %s", out)
	}
	if got := w.proxy.counted(); got != [machines]int{} {
		w.Fatalf("changing requests before the release: %v", got)
	}
	w.cli.Run(w, "db", "restored", "--release", decision)
	if decision == "as-it-is" {
		w.jobsContinued()
	} else {
		w.ended()
	}
}

// jobsContinued proves that the open jobs went on where the restored history left them, and that no other machine was changed.
func (w *world) jobsContinued() {
	w.Helper()
	states := map[int][2]string{0: {"rescue", "power on"}, 1: {"rescue", "power on"}, 2: {"rescue", "power on"}, 9: {"active", "power off"}}
	w.settled(states, map[int]bool{0: true, 1: true, 2: true, 4: true, 6: true, 9: true}, nil)
}

// ended proves that the open jobs ended in words, that their nodes wait for somebody to look, and that no machine was changed.
func (w *world) ended() {
	w.Helper()
	stopped := map[int]bool{0: true, 1: true, 2: true, 4: true}
	w.settled(map[int][2]string{0: {"rescue failed", "power on"}, 1: {"rescue failed", "power on"}, 2: {"rescue failed", "power on"}, 4: {"unrescue failed", "power on"}}, nil, stopped)
	for i := range stopped {
		if n := w.await(i, map[bool]string{true: "unrescue failed", false: "rescue failed"}[i == 4], "power on"); !strings.Contains(n.LastError, "ended when the restored database was released") {
			w.Errorf("node %d says %q", i, n.LastError)
		}
	}
	// A node whose operation ended can be used again.
	w.cli.Run(w, "node", "maintenance", "unset", w.fleet.Name(1))
	w.provision(1, "rescue")
	w.await(1, "rescue", "power on")
}

// settled waits until each machine is in its state, else active and on. changed are the machines that may have been changed, and stopped the nodes that
// are in maintenance.
func (w *world) settled(states map[int][2]string, changed, stopped map[int]bool) {
	w.Helper()
	look := func() {
		w.Helper()
		for i := range machines {
			want, known := states[i]
			if !known {
				want = [2]string{"active", "power on"}
			}
			n := w.await(i, want[0], want[1])
			if on := w.isOn(i); on != (want[1] == "power on") {
				w.Errorf("machine %d is on: %t, want %s", i, on, want[1])
			}
			if stopped[i] != (n.MaintenanceReason != "") {
				w.Errorf("node %d: maintenance %q, want one: %t", i, n.MaintenanceReason, stopped[i])
			}
		}
	}
	look()
	time.Sleep(2500 * time.Millisecond) // power sync looks at every machine
	look()
	for i, n := range w.proxy.counted() {
		if n > 0 && !changed[i] {
			w.Errorf("machine %d was changed %d times", i, n)
		}
	}
}

// eachDecision runs a test once with either decision.
func eachDecision(t *testing.T, test func(t *testing.T, decision string)) {
	for _, decision := range []string{"as-it-is", "end-operations"} {
		t.Run(decision, func(t *testing.T) {
			t.Parallel()
			test(t, decision)
		})
	}
}

// TestRestoredBackup: a backup of a database with open work is put in place of the database after that work has ended.
func TestRestoredBackup(t *testing.T) { eachDecision(t, restoreBackup) }

func restoreBackup(t *testing.T, decision string) {
	w := newWorld(t, "")
	w.begin()
	file := filepath.Join(t.TempDir(), "backup.db")
	program.CLI{}.Run(t, "db", "backup", file, "--state-dir", w.server.State)
	w.proxy.free()
	w.lose()
	w.server.Stop()
	w.proxy.counted()
	at := filepath.Join(w.server.State, "salvor.db")
	for _, end := range []string{"-wal", "-shm"} {
		_ = os.Remove(at + end)
	}
	must.OK(t, os.Rename(file, at))
	if out := (program.CLI{}).Run(t, "db", "restored", "--database", "sqlite:"+at); strings.Count(out, "rescue") != 4 {
		t.Errorf("open jobs of the file:\n%s", out)
	}
	w.server.Start(t)
	r := w.held("backup")
	if out := w.cli.Run(t, "db", "restored"); !strings.Contains(out, "\nwitness "+w.witness+": ") {
		t.Errorf("the list does not show that the witness contradicts the database:\n%s", out)
	}
	w.decide(r, decision)
}

// TestRestoredStandby: the sender of a primary freezes while work is open, so its asynchronous standby misses the end of that work. The
// primary is lost and the standby promoted. The process that served before connects to the standby, or ends and is started anew.
func TestRestoredStandby(t *testing.T) {
	for name, c := range map[string]struct {
		restarts bool
		decision string
	}{"the process lives on": {false, "as-it-is"}, "the process starts anew": {true, "end-operations"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			restarts := c.restarts
			pair := storetest.NewPair(t, false)
			w := newWorld(t, "connection = "+pair.Database("salvor"))
			w.begin()
			pair.FreezeSender()
			w.proxy.free()
			w.lose()
			if restarts {
				w.server.Stop() // which writes its witnesses
			} else {
				w.awaitHeartbeats(2) // a loss that is shorter is not noticed
			}
			w.proxy.counted()
			pair.Primary.Kill()
			pair.Standby.Promote()
			if restarts {
				w.server.Start(t)
			}
			w.decide(w.held("went-back"), c.decision)
		})
	}
}

// awaitHeartbeats waits until the conductor has renewed its lease n times.
func (w *world) awaitHeartbeats(n int) {
	w.Helper()
	last := ""
	for i := 0; i <= n; {
		program.Until(w, "a heartbeat of the conductor", within, func() error {
			var out struct {
				Conductors []struct {
					UpdatedAt string `json:"updated_at"`
				} `json:"conductors"`
			}
			r, err := http.NewRequestWithContext(w.Context(), http.MethodGet, w.server.URL+"/v1/conductors?detail=true", nil)
			if err != nil {
				return err
			}
			r.Header.Set("X-OpenStack-Ironic-API-Version", "1.82")
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if err := json.NewDecoder(answer.Body).Decode(&out); err != nil {
				return err
			}
			if len(out.Conductors) != 1 || out.Conductors[0].UpdatedAt == last {
				return fmt.Errorf("%+v", out)
			}
			last = out.Conductors[0].UpdatedAt
			return nil
		})
		i++
	}
}

// TestRestoredSnapshot: the whole state directory, witness included, is put back as it was while work was open. The witness outside knows better.
func TestRestoredSnapshot(t *testing.T) { eachDecision(t, restoreSnapshot) }

func restoreSnapshot(t *testing.T, decision string) {
	w := newWorld(t, "")
	w.begin()
	w.server.Kill()
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	if out, err := exec.Command("cp", "-a", w.server.State, snapshot).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.proxy.free()
	w.server.Start(t)
	w.lose()
	w.server.Stop()
	w.proxy.counted()
	must.OK(t, os.RemoveAll(w.server.State))
	if out, err := exec.Command("cp", "-a", snapshot, w.server.State).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.server.Start(t)
	w.decide(w.held("went-back"), decision)
}
