//go:build e2e

package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/client"
	"salvor/test/must"
	"salvor/test/program"
	"salvor/wire/ironic"
)

// endpoint is a Bare Metal API with what is told to it on the way: every request that changes something, and what was answered.
type endpoint struct {
	*client.Client
	url string

	mu    sync.Mutex
	calls []string
}

func watched(t *testing.T, at string) *endpoint {
	t.Helper()
	target, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	e := &endpoint{}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		said := &answer{ResponseWriter: w}
		proxy.ServeHTTP(said, r)
		if r.Method != http.MethodGet {
			e.note(r, body, said.status)
		}
	}))
	t.Cleanup(front.Close)
	if e.Client, err = client.New(client.Config{Endpoint: at}); err != nil {
		t.Fatal(err)
	}
	e.url = front.URL
	return e
}

// answer remembers its status.
type answer struct {
	http.ResponseWriter
	status int
}

func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

func (e *endpoint) note(r *http.Request, body []byte, status int) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	for i := range parts {
		if len(parts[i]) == 36 {
			parts[i] = "NODE"
		}
	}
	var asked struct {
		Target string `json:"target"`
	}
	var patch []ironic.PatchOperation
	_ = json.Unmarshal(body, &asked) // a patch is no object, and the other way around
	_ = json.Unmarshal(body, &patch)
	words := asked.Target
	for _, p := range patch {
		words += p.Op + p.Path + " "
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	// A lock that is held a moment longer says nothing; and machines of Ironic that are fake are off where ours run, so that more is
	// asked of their power.
	if status != http.StatusConflict && !strings.HasSuffix(r.URL.Path, "/states/power") {
		e.calls = append(e.calls, fmt.Sprintf("%s /%s %s: %d", r.Method, strings.Join(parts, "/"), strings.TrimSpace(words), status))
	}
}

// available enrolls a machine that can be had.
func (e *endpoint) available(t *testing.T, fields client.Record) string {
	t.Helper()
	n := must.Get(e.CreateNode(t.Context(), fields))(t)
	must.Get(e.Create(t.Context(), client.Ports, client.Record{"node_uuid": n.UUID, "address": mac}))(t)
	for _, step := range []struct{ verb, state string }{{"manage", "manageable"}, {"provide", "available"}} {
		must.OK(t, e.Provision(t.Context(), n.UUID, ironic.ProvisionRequest{Target: step.verb}))
		e.reach(t, n.UUID, step.state)
	}
	return n.UUID
}

func (e *endpoint) reach(t *testing.T, node, want string) *client.Node {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		n, err := e.Node(t.Context(), node)
		if err == nil && n.ProvisionState == want && n.Reservation == "" {
			return n
		}
		if time.Now().After(end) {
			t.Fatalf("node %s is not %s: %+v, %v", node, want, n, err)
		}
	}
}

// tenancy is the compute side, and the story that it tells of a server: its own states and its node's.
type tenancy struct {
	compute
	node  *endpoint
	story []string
}

func newTenancy(t *testing.T, e *endpoint, s *program.Server) (*tenancy, string) {
	t.Helper()
	c := &tenancy{compute: compute{t: t, url: s.URL}, node: e}
	flavor := c.flavor("metal")
	c.call(http.MethodPost, "/compute/v2.1/flavors/"+flavor+"/os-extra_specs", map[string]any{"extra_specs": map[string]any{"resources:CUSTOM_BAREMETAL": "1"}})
	c.call(http.MethodPost, "/salvor/v1/clusters", map[string]any{"name": "metal", "kind": "ironic", "url": e.url})
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if hosts := c.call(http.MethodGet, "/salvor/v1/hosts", nil); strings.Contains(fmt.Sprint(hosts), "CUSTOM_BAREMETAL:1") {
			break
		} else if time.Now().After(end) {
			t.Fatalf("no machine is told: %v, %v", hosts, c.call(http.MethodGet, "/salvor/v1/clusters", nil))
		}
	}
	return c, flavor
}

// settles waits until a server is in one of these states and nothing goes on with it, and adds it to the story.
func (c *tenancy) settles(id, node string, wants ...string) map[string]any {
	c.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		srv := c.call(http.MethodGet, "/compute/v2.1/servers/"+id, nil)["server"].(map[string]any)
		status, _ := srv["status"].(string)
		if slices.Contains(wants, status) && srv["OS-EXT-STS:task_state"] == nil {
			n := must.Get(c.node.Node(c.t.Context(), node))(c.t)
			c.story = append(c.story, fmt.Sprintf("%s: node %s, instance %v", status, n.ProvisionState, n.InstanceUUID == id))
			return srv
		}
		if time.Now().After(end) {
			c.t.Fatalf("server is %s, task %v, fault %v; want %v", status, srv["OS-EXT-STS:task_state"], srv["fault"], wants)
		}
	}
}

// live tells the story of one server.
func live(t *testing.T, e *endpoint, s *program.Server, node string) *tenancy {
	t.Helper()
	c, flavor := newTenancy(t, e, s)
	made := c.call(http.MethodPost, "/compute/v2.1/servers", map[string]any{"server": map[string]any{"name": "web", "flavorRef": flavor, "imageRef": c.image("debian")}})
	id := made["server"].(map[string]any)["id"].(string)
	c.settles(id, node, "ACTIVE")
	for _, step := range []struct {
		action string
		with   any
		want   string
	}{{"os-stop", nil, "SHUTOFF"}, {"os-start", nil, "ACTIVE"}, {"rescue", map[string]any{"adminPass": "open-sesame"}, "RESCUE"}, {"unrescue", nil, "ACTIVE"}} {
		c.call(http.MethodPost, "/compute/v2.1/servers/"+id+"/action", map[string]any{step.action: step.with})
		c.settles(id, node, step.want)
	}
	c.call(http.MethodDelete, "/compute/v2.1/servers/"+id, nil)
	n := e.reach(t, node, "available")
	c.story = append(c.story, fmt.Sprintf("deleted: node %s, instance %q, %d words of it", n.ProvisionState, n.InstanceUUID, len(n.InstanceInfo)))
	return c
}

func serveMetal(t *testing.T) *program.Server {
	t.Helper()
	door := program.FreeAddress(t)
	s := program.Serve(t, "[conductor]\nautomated_clean = false\n[compute]\nshutdown_timeout = 5\n[ramdisk]\nlisten = "+door+"\n")
	t.Cleanup(func() {
		if t.Failed() {
			log := s.Log()
			t.Logf("the server's log:\n%s", log[max(0, len(log)-20_000):])
		}
	})
	return s
}

// TestServersUnderIronic: servers of Debian's Ironic live as those of our own endpoint do: the same calls, the same states. A rescue
// that fails there is told in its words.
func TestServersUnderIronic(t *testing.T) {
	fake := client.Record{"driver": "fake-hardware", "resource_class": "baremetal", "deploy_interface": "fake", "rescue_interface": "fake", "network_interface": "noop"}
	ours := serveMetal(t)
	own := watched(t, ours.URL)
	a := live(t, own, ours, own.available(t, fake))

	s := startIronic(t)
	theirs := watched(t, s.api.Endpoint())
	b := live(t, theirs, serveMetal(t), theirs.available(t, fake))
	if !slices.Equal(a.story, b.story) {
		t.Errorf("the states differ\n--- ours\n%s\n--- Ironic's\n%s", strings.Join(a.story, "\n"), strings.Join(b.story, "\n"))
	}
	if !slices.Equal(own.calls, theirs.calls) {
		t.Errorf("the calls differ\n--- ours\n%s\n--- Ironic's\n%s", strings.Join(own.calls, "\n"), strings.Join(theirs.calls, "\n"))
	}
	t.Logf("states:\n%s\ncalls:\n%s", strings.Join(b.story, "\n"), strings.Join(theirs.calls, "\n"))
	refused(t, s, theirs)
}

// refused rescues a machine whose ramdisk cannot be had.
func refused(t *testing.T, s *realIronic, e *endpoint) {
	t.Helper()
	nodes := must.Get(e.Nodes(t.Context(), client.Query{}))(t)
	for _, n := range nodes {
		must.OK(t, e.DeleteNode(t.Context(), n.UUID))
	}
	missing := "file://" + s.dir + "/missing"
	node := e.available(t, client.Record{
		"driver": "fake-hardware", "resource_class": "baremetal", "deploy_interface": "fake", "rescue_interface": "agent", "management_interface": "noop",
		"driver_info": client.Record{"rescue_kernel": missing, "rescue_ramdisk": missing, "deploy_kernel": missing, "deploy_ramdisk": missing},
	})
	c, flavor := newTenancy(t, e, serveMetal(t))
	made := c.call(http.MethodPost, "/compute/v2.1/servers", map[string]any{"server": map[string]any{"name": "web", "flavorRef": flavor, "imageRef": c.image("debian")}})
	id := made["server"].(map[string]any)["id"].(string)
	c.settles(id, node, "ACTIVE")
	c.call(http.MethodPost, "/compute/v2.1/servers/"+id+"/action", map[string]any{"rescue": map[string]any{}})
	srv := c.settles(id, node, "ERROR")
	fault := fmt.Sprint(srv["fault"].(map[string]any)["message"])
	n := e.reach(t, node, "rescue failed")
	if want := "Instance " + id + " cannot be rescued: Driver Error: " + n.LastError; strings.NewReplacer("“", "", "”", "").Replace(fault) != want || n.LastError == "" {
		t.Errorf("the fault is\n%s\nwant\n%s", fault, want)
	}
	t.Log(fault)
	c.call(http.MethodPost, "/compute/v2.1/servers/"+id+"/action", map[string]any{"unrescue": nil})
	c.settles(id, node, "ACTIVE", "ERROR")
	c.call(http.MethodDelete, "/compute/v2.1/servers/"+id, nil)
	e.reach(t, node, "available")
}
