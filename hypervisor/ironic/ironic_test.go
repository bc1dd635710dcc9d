package ironic

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
)

// wire is an endpoint that answers what it is told to, and keeps what was asked.
type wire struct {
	mu    sync.Mutex
	asked []string
	say   map[string]func(w http.ResponseWriter, r *http.Request)
}

func newWire(t *testing.T) (*wire, *httptest.Server) {
	t.Helper()
	w := &wire{say: map[string]func(http.ResponseWriter, *http.Request){}}
	s := httptest.NewServer(w)
	t.Cleanup(s.Close)
	return w, s
}

func (x *wire) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked = append(x.asked, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+string(body)))
	w.Header().Set("X-OpenStack-Ironic-API-Minimum-Version", "1.1")
	w.Header().Set("X-OpenStack-Ironic-API-Maximum-Version", "1.87")
	if say := x.say[r.Method+" "+r.URL.Path]; say != nil {
		say(w, r)
		return
	}
	fmt.Fprint(w, "{}")
}

func text(status int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

func (x *wire) last() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.asked[len(x.asked)-1]
}

func endpoint(t *testing.T, c Config) *Endpoint {
	t.Helper()
	e := must.Get(New(c))(t)
	return e
}

const aNode = `{"uuid":"n1","name":"m1","resource_class":"bare-metal.large","traits":["CUSTOM_GPU"],"properties":{"cpus":"8","memory_mb":4096,"local_gb":null,
"capabilities":"boot_mode:uefi,secure_boot:true"},"instance_uuid":"s1","provision_state":"rescue failed","power_state":"power on","target_power_state":null,
"last_error":"no","maintenance":false,"network_interface":"neutron"}`

func TestMachine(t *testing.T) {
	t.Parallel()
	x, s := newWire(t)
	e := endpoint(t, Config{URL: s.URL})
	x.say["GET /v1/nodes"] = text(200, `{"nodes":[`+aNode+`]}`)
	m := must.Get(e.Node(t.Context(), "s1"))(t)
	if m.Class != "CUSTOM_BARE_METAL_LARGE" || !slices.Equal(m.Traits, []string{"CUSTOM_GPU"}) || m.Capabilities["boot_mode"] != "uefi" || m.Provision != hypervisor.RescueFailed ||
		m.Power != compute.PowerOn || m.Switching || m.CPUs != 8 || m.RAM != 4096 || m.Disk != 0 || !m.TakesVIFs || m.LastError != "no" || m.Free() {
		t.Errorf("%+v", m)
	}
	// A server that ignores what narrows the list must not make another server's machine ours.
	if _, err := e.Node(t.Context(), "s2"); !problem.Is(err, problem.NotFound) {
		t.Errorf("another server's machine: %v", err)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	x, s := newWire(t)
	e := endpoint(t, Config{URL: s.URL})
	for status, kind := range map[int]problem.Kind{409: problem.Conflict, 400: problem.Invalid, 503: problem.Unavailable, 401: problem.Forbidden} {
		x.say["PATCH /v1/nodes/n1"] = text(status, `{"error_message":"{\"faultstring\":\"Node n1 is locked\"}"}`)
		if err := e.Claim(t.Context(), "n1", "s1"); !problem.Is(err, kind) || !strings.Contains(err.Error(), "Node n1 is locked") {
			t.Errorf("%d: %v", status, err)
		}
	}
	x.say["PUT /v1/nodes/n1/states/provision"] = text(503, `{"error_message":"{\"faultstring\":\"too many nodes are deployed\"}"}`)
	x.say["PUT /v1/nodes/n1/states/power"] = x.say["PUT /v1/nodes/n1/states/provision"]
	ask := func() error { return e.Ask(t.Context(), "n1", hypervisor.Deploy, hypervisor.NodeRequest{}) }
	turn := func() error { return e.Switch(t.Context(), "n1", compute.PowerOff, false, 0) }
	for name, do := range map[string]func() error{"deploy": ask, "power": turn} {
		if err := do(); !problem.Is(err, problem.Unavailable) || problem.RetryAfterOf(err) <= 0 {
			t.Errorf("no room, %s: %v, again after %s", name, err, problem.RetryAfterOf(err))
		}
	}
	x.say["PUT /v1/nodes/n1/states/provision"] = text(503, "<html><body><h1>503 Service Unavailable</h1>No server is available to handle this request.</body></html>")
	if err := ask(); !problem.Is(err, problem.Unavailable) || problem.RetryAfterOf(err) != 0 {
		t.Errorf("a proxy without a server: %v, again after %s", err, problem.RetryAfterOf(err))
	}
	s.Close()
	if err := e.Claim(t.Context(), "n1", "s1"); !problem.Is(err, problem.Unavailable) {
		t.Errorf("no endpoint: %v", err)
	}
	if err := ask(); !problem.Is(err, problem.Unavailable) || problem.RetryAfterOf(err) != 0 {
		t.Errorf("no endpoint is asked to deploy: %v, again after %s", err, problem.RetryAfterOf(err))
	}
	for _, bad := range []Config{{URL: "ftp://x"}, {URL: "http://x", Login: "magic"}, {URL: "http://x", CA: "none"}} {
		if _, err := New(bad); !problem.Is(err, problem.Invalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestOldEndpoint(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-OpenStack-Ironic-API-Minimum-Version", "1.1")
		w.Header().Set("X-OpenStack-Ironic-API-Maximum-Version", "1.37")
		fmt.Fprint(w, "{}")
	}))
	defer s.Close()
	if _, err := endpoint(t, Config{URL: s.URL}).Nodes(t.Context()); !problem.Is(err, problem.Unsupported) || !strings.Contains(err.Error(), "1.38") {
		t.Errorf("an endpoint without rescue: %v", err)
	}
}

func TestDeeds(t *testing.T) {
	t.Parallel()
	x, s := newWire(t)
	e := endpoint(t, Config{URL: s.URL})
	for _, try := range []struct {
		do   func() error
		want string
	}{
		{func() error { return e.Claim(t.Context(), "n1", "s1") }, `PATCH /v1/nodes/n1 [{"op":"add","path":"/instance_uuid","value":"s1"}]`},
		{func() error {
			return e.Ask(t.Context(), "n1", hypervisor.Rescue, hypervisor.NodeRequest{Password: secret.New("open")})
		}, `PUT /v1/nodes/n1/states/provision {"target":"rescue","rescue_password":"open"}`},
		{func() error { return e.Ask(t.Context(), "n1", hypervisor.Undeploy, hypervisor.NodeRequest{}) }, `PUT /v1/nodes/n1/states/provision {"target":"deleted"}`},
		{func() error { return e.Switch(t.Context(), "n1", compute.PowerOff, true, 90*time.Second) }, `PUT /v1/nodes/n1/states/power {"target":"soft power off","timeout":90}`},
		{func() error { return e.Switch(t.Context(), "n1", compute.PowerOn, true, time.Second) }, `PUT /v1/nodes/n1/states/power {"target":"power on"}`},
		{func() error {
			return e.Describe(t.Context(), "n1", hypervisor.System{Name: "web", URL: "http://i", Digest: "sha256:ab", Format: "raw", Disk: 9})
		}, `PATCH /v1/nodes/n1 [{"op":"add","path":"/instance_info","value":{"display_name":"web","image_disk_format":"raw","image_os_hash_algo":"sha256","image_os_hash_value":"ab","image_source":"http://i","image_type":"whole-disk","root_gb":9}}]`},
	} {
		if err := try.do(); err != nil || x.last() != try.want {
			t.Errorf("asked %s, %v; want %s", x.last(), err, try.want)
		}
	}
	if err := e.Switch(t.Context(), "n1", compute.PowerPaused, false, 0); !problem.Is(err, problem.Unsupported) {
		t.Errorf("a machine that is paused: %v", err)
	}
}

// TestTargets: those of these volumes are made anew, others are left alone.
func TestTargets(t *testing.T) {
	t.Parallel()
	x, s := newWire(t)
	e := endpoint(t, Config{URL: s.URL})
	x.say["GET /v1/volume/targets"] = text(200, `{"targets":[{"uuid":"t1","volume_id":"v1"},{"uuid":"t2","volume_id":"other"}]}`)
	must.OK(t, e.SetTargets(t.Context(), "n1", []hypervisor.Target{{VolumeID: "v1", Portal: "p:3260", IQN: "i", LUN: 2, User: "u", Password: secret.New("c")}}))
	all := strings.Join(x.asked, "\n")
	if !strings.Contains(all, "DELETE /v1/volume/targets/t1") || strings.Contains(all, "DELETE /v1/volume/targets/t2") {
		t.Errorf("asked\n%s", all)
	}
	for _, word := range []string{`"auth_method":"CHAP"`, `"auth_password":"c"`, `"target_lun":2`, `"node_uuid":"n1"`, `"volume_type":"iscsi"`} {
		if !strings.Contains(x.last(), word) {
			t.Errorf("%s lacks %s", x.last(), word)
		}
	}
}

// TestRelease: what is another server's by now is left alone.
func TestRelease(t *testing.T) {
	t.Parallel()
	x, s := newWire(t)
	e := endpoint(t, Config{URL: s.URL})
	x.say["GET /v1/nodes/n1"] = text(200, `{"uuid":"n1","instance_uuid":"s2","instance_info":{"a":1}}`)
	if err := e.Release(t.Context(), "n1", "s1"); err != nil || strings.HasPrefix(x.last(), "PATCH") {
		t.Errorf("another server's machine: %v, %s", err, x.last())
	}
	if err := e.Release(t.Context(), "n1", "s2"); err != nil || x.last() != `PATCH /v1/nodes/n1 [{"op":"remove","path":"/instance_uuid"},{"op":"remove","path":"/instance_info"}]` {
		t.Errorf("%v, %s", err, x.last())
	}
}

// TestDrive: a config drive goes as every endpoint takes it.
func TestDrive(t *testing.T) {
	t.Parallel()
	raw := must.Get(packConfigDrive(map[string][]byte{"openstack/latest/meta_data.json": []byte(`{"name":"web"}`)}))(t)
	var text string
	must.OK(t, json.Unmarshal(raw, &text))
	zipped := must.Get(base64.StdEncoding.DecodeString(text))(t)
	z := must.Get(gzip.NewReader(bytes.NewReader(zipped)))(t)
	image, err := io.ReadAll(z)
	if err != nil || !bytes.Contains(image, []byte("config-2")) || !bytes.Contains(image, []byte(`{"name":"web"}`)) {
		t.Errorf("an image of %d bytes, %v", len(image), err)
	}
}

// TestKeystone: a token is asked for once, and anew when it is taken no more; what was sent with the old one is sent again whole.
func TestKeystone(t *testing.T) {
	t.Parallel()
	x, s := newWire(t)
	tokens := 0
	x.say["POST /v3/auth/tokens"] = func(w http.ResponseWriter, _ *http.Request) {
		tokens++
		w.Header().Set("X-Subject-Token", fmt.Sprint("token-", tokens))
		w.WriteHeader(201)
		fmt.Fprint(w, `{"token":{"expires_at":"2099-01-01T00:00:00.000000Z","catalog":[]}}`)
	}
	good := "token-1"
	x.say["PATCH /v1/nodes/n1"] = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Auth-Token") != good {
			w.WriteHeader(401)
		}
		fmt.Fprint(w, "{}")
	}
	e := endpoint(t, Config{URL: s.URL, Login: compute.LoginKeystone, AuthURL: s.URL + "/v3", User: "salvor", Password: secret.New("p"), Project: "service"})
	for range 2 {
		must.OK(t, e.Claim(t.Context(), "n1", "s1"))
	}
	if tokens != 1 {
		t.Errorf("%d tokens for one login", tokens)
	}
	good = "token-2"
	if err := e.Claim(t.Context(), "n1", "s1"); err != nil || tokens != 2 || !strings.HasSuffix(x.last(), `"value":"s1"}]`) {
		t.Errorf("after the token's end: %v, %d tokens, %s", err, tokens, x.last())
	}
	good = "never"
	if err := e.Claim(t.Context(), "n1", "s1"); !problem.Is(err, problem.Forbidden) {
		t.Errorf("who is not let in: %v", err)
	}
}

func FuzzMachine(f *testing.F) {
	f.Add([]byte(aNode))
	f.Add([]byte(`{"properties":{"capabilities":{"a":1},"cpus":-1},"traits":[1,null]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		x, s := newWire(t)
		x.say["GET /v1/nodes"] = func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, `{"nodes":[%s]}`, body) }
		all, err := endpoint(t, Config{URL: s.URL}).Nodes(t.Context())
		if err != nil {
			return
		}
		for _, m := range all {
			if m.CPUs < 0 || m.RAM < 0 || m.Disk < 0 {
				t.Errorf("%+v", m)
			}
		}
	})
}
