package fleet

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"salvor/client"
	"salvor/store/storetest"
	"salvor/test/must"
	"salvor/test/program"
	"salvor/wire/ironic"
)

// plane is a control plane of several processes over one PostgreSQL.
type plane struct {
	t      testing.TB
	config string
}

func newPlane(t testing.TB) *plane {
	// Those who share a database share the key.
	return &plane{t, quiet + "sync_power_state_interval = 0\n[database]\nconnection = " + storetest.Postgres(t) + "\n[secrets]\nkey_file = " + t.TempDir() + "/secrets.key\n"}
}

// serve starts a process with these roles.
func (p *plane) serve(host, roles string, more ...string) *program.Server {
	p.t.Helper()
	return program.Serve(p.t, p.config+"[DEFAULT]\nhost = "+host+"\nroles = "+roles+"\n"+strings.Join(more, "\n")+"\n")
}

const siteOslo = "[conductor]\nconductor_group = oslo"

// node enrolls and adopts one whose every request takes this long.
func (p *plane) node(api *client.Client, group string, delay float64) string {
	p.t.Helper()
	node := must.Get(api.CreateNode(p.t.Context(), client.Record{"driver": "fake-hardware", "conductor_group": group}))(p.t)
	p.adopt(api, node.UUID)
	if delay > 0 {
		p.patch(api, node.UUID, "/driver_info/fake_delay", fmt.Sprint(delay))
	}
	return node.UUID
}

// adopt makes a node active.
func (p *plane) adopt(api *client.Client, id string) {
	p.t.Helper()
	for _, step := range []struct{ verb, state string }{{"manage", "manageable"}, {"adopt", "active"}} {
		p.ask(api, id, step.verb)
		p.reach(api, id, step.state)
	}
}

func (p *plane) patch(api *client.Client, id, path, value string) {
	p.t.Helper()
	must.Get(api.PatchNode(p.t.Context(), id, []ironic.PatchOperation{{Op: "add", Path: path, Value: json.RawMessage(value)}}, false))(p.t)
}

func decode(t testing.TB, r io.Reader, out any) {
	t.Helper()
	must.OK(t, json.NewDecoder(r).Decode(out))
}

func (p *plane) ask(api *client.Client, id, verb string) {
	p.t.Helper()
	r := ironic.ProvisionRequest{Target: verb}
	if verb == "rescue" {
		r.RescuePassword = "fleet password"
	}
	must.OK(p.t, api.Provision(p.t.Context(), id, r))
}

func (p *plane) reach(api *client.Client, id, state string) {
	p.t.Helper()
	until(p.t, time.Minute, func() (bool, string) {
		n, err := api.Node(p.t.Context(), id, "provision_state", "reservation", "last_error")
		if err != nil {
			return false, err.Error()
		}
		if e := n.Record.Text("last_error"); e != "" {
			p.t.Fatalf("node %s: %s", id, e)
		}
		return n.ProvisionState == state && n.Record.Text("reservation") == "", fmt.Sprint(n.Record)
	})
}

// until polls a condition, which says how things stand.
func until(t testing.TB, within time.Duration, holds func() (bool, string)) {
	t.Helper()
	stands := ""
	if program.Await(within, program.If(func() (ok bool) { ok, stands = holds(); return ok })) != nil {
		t.Fatalf("not within %s: %s", within, stands)
	}
}

func newClient(t testing.TB, url string) *client.Client {
	t.Helper()
	api := must.Get(client.New(client.Config{Endpoint: url}))(t)
	return api
}

// alive are the names of the conductors that live.
func alive(t testing.TB, api *client.Client) string {
	t.Helper()
	all := must.Get(api.List(t.Context(), client.Conductors, client.Query{}))(t)
	var out []string
	for _, c := range all {
		if c["alive"] == true {
			out = append(out, c.Text("hostname")+":"+c.Text("conductor_group"))
		}
	}
	return strings.Join(out, " ")
}

// TestRolesAndSites has the roles apart, and a site whose conductor comes and goes: work for a group in which
// nobody lives is refused with its name, and never lies in a queue.
func TestRolesAndSites(t *testing.T) {
	p := newPlane(t)
	door := p.serve("door", "api")
	api := newClient(t, door.URL)
	if got := alive(t, api); got != "" {
		t.Errorf("an api process alone lists the conductors %q", got)
	}
	if _, err := api.CreateNode(t.Context(), client.Record{"driver": "fake-hardware"}); client.StatusOf(err) != http.StatusBadRequest {
		t.Errorf("a node created without any conductor: %v; want 400 as clients expect", err)
	}
	home := p.serve("home", "conductor", "[health]\nlisten = 127.0.0.1:0")
	oslo := p.serve("oslo1", "conductor", siteOslo)
	until(t, 10*time.Second, func() (bool, string) {
		got := alive(t, api)
		return got == "home: oslo1:oslo", got
	})
	if home.URL != "" || home.Door("api") != "" || home.Door("ramdisk") != "" || oslo.Door("health") != "" {
		t.Errorf("a conductor opened doors: %s", home.Log())
	}
	if resp, err := http.Get("http://" + home.Door("health") + "/healthz"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the health door of a conductor answers %v, %v", resp, err)
	}
	if resp, err := http.Get("http://" + home.Door("health") + "/v1/nodes"); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("the health door of a conductor serves the API: %v, %v", resp, err)
	}
	here, there := p.node(api, "", 0), p.node(api, "oslo", 0)
	oslo.Kill()
	// A conductor that is cut off has its lease first; then it is dead for everybody.
	until(t, 12*time.Second, func() (bool, string) {
		got := alive(t, api)
		return got == "home:", got
	})
	for name, call := range map[string]func() error{
		"rescue": func() error {
			return api.Provision(t.Context(), there, ironic.ProvisionRequest{Target: "rescue", RescuePassword: "fleet password"})
		},
		"power": func() error { return api.SetPower(t.Context(), there, ironic.PowerRequest{Target: "power off"}) },
		"boot device": func() error {
			return api.SetBootDevice(t.Context(), there, "pxe", false)
		},
	} {
		if err := call(); client.StatusOf(err) != http.StatusServiceUnavailable || !strings.Contains(err.Error(), `"oslo"`) {
			t.Errorf("%s at a site without a conductor: %v; want 503 with the name of the group", name, err)
		}
	}
	n, err := api.Node(t.Context(), there)
	if err != nil || n.ProvisionState != "active" || n.Record.Text("reservation") != "" {
		t.Errorf("what was refused left a trace: %v, %v", n, err)
	}
	p.ask(api, here, "rescue") // the other site goes on
	p.reach(api, here, "rescue")
	home.Stop() // from now on nobody lives
	oslo.Start(t)
	until(t, 10*time.Second, func() (bool, string) {
		got := alive(t, api)
		return got == "oslo1:oslo", got
	})
	p.ask(api, there, "rescue")
	p.reach(api, there, "rescue")
	if strings.Contains(door.Log(), "kind=rescue") {
		t.Error("the api process ran a job")
	}
}

// TestTakeover measures how soon jobs go on: after the restart of their conductor, after its death, and after an ordered stop.
func TestTakeover(t *testing.T) {
	p := newPlane(t)
	api := newClient(t, p.serve("door", "api").URL)
	team := map[string]*program.Server{"first": p.serve("first", "conductor", "[conductor]\ngraceful_shutdown_timeout = 1")}
	until(t, 10*time.Second, func() (bool, string) { got := alive(t, api); return got == "first:", got })
	// Each request to the machine takes its time: whoever is stopped is in the middle of one.
	node := p.node(api, "", 0.5)
	held := func() string {
		t.Helper()
		n := must.Get(api.Node(t.Context(), node, "reservation"))(t)
		return n.Record.Text("reservation")
	}
	// begin asks for a verb and gives the conductor that has begun with it, and the other one.
	begin := func(verb string) (owner, other string) {
		t.Helper()
		if verb == "power off" {
			must.OK(t, api.SetPower(t.Context(), node, ironic.PowerRequest{Target: verb}))
		} else {
			p.ask(api, node, verb)
		}
		until(t, 10*time.Second, func() (bool, string) { owner = held(); return team[owner] != nil, owner })
		return owner, map[string]string{"first": "second", "second": "first"}[owner]
	}
	goesOn := func(what, at string, within time.Duration) {
		t.Helper()
		began := time.Now()
		until(t, within, func() (bool, string) { got := held(); return got == at, "held by " + got })
		t.Logf("%s: the job goes on after %s", what, time.Since(began).Round(10*time.Millisecond))
	}

	owner, _ := begin("rescue")
	team[owner].Kill()
	team[owner].Start(t)
	goesOn("killed and restarted", owner, time.Second)
	p.reach(api, node, "rescue")

	team["second"] = p.serve("second", "conductor", "[conductor]\ngraceful_shutdown_timeout = 1")
	until(t, 10*time.Second, func() (bool, string) { got := alive(t, api); return got == "first: second:", got })
	owner, other := begin("unrescue")
	team[owner].Kill()
	goesOn("killed", other, 10*time.Second)
	p.reach(api, node, "active")
	team[owner].Start(t)

	owner, other = begin("rescue")
	stop(t, team[owner], 4*time.Second)
	goesOn("told to stop", other, 5*time.Second)
	p.reach(api, node, "rescue")
	p.ask(api, node, "unrescue")
	p.reach(api, node, "active")
	team[owner].Start(t)

	// An action that takes longer than it is given is cut off.
	p.patch(api, node, "/driver_info/fake_delay", "30")
	until(t, 10*time.Second, func() (bool, string) { got := alive(t, api); return got == "first: second:", got })
	owner, other = begin("power off")
	stop(t, team[owner], 4*time.Second)
	goesOn("told to stop in a long action", other, 5*time.Second)
	team[other].Kill()
}

// stop tells a process to end, and waits for that.
func stop(t testing.TB, s *program.Server, within time.Duration) {
	t.Helper()
	began := time.Now()
	must.OK(t, s.Signal(syscall.SIGTERM))
	select {
	case <-s.Ended():
		t.Logf("ended %s after SIGTERM", time.Since(began).Round(10*time.Millisecond))
	case <-time.After(within):
		t.Fatalf("still there %s after SIGTERM:\n%s", within, s.Log())
	}
}
