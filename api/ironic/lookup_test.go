package ironic_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"salvor/api/ironic"
	"salvor/job"
	"salvor/metal"
	"salvor/secret"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/wire/agent"
)

// booting makes a node whose ramdisk is about to ask.
func (w *world) booting(edit func(*metal.Node)) *metal.Node {
	w.Helper()
	n := w.node(func(n *metal.Node) {
		n.ProvisionState, n.BootNumber = metal.RescueWait, 3
		n.Plan = &metal.BootPlan{Method: metal.BootIPXE, Path: "p", BootNumber: 3}
		n.DriverInfo, n.InstanceInfo = metal.Object{"fake_password": "hush"}, metal.Object{"image_url": "hush", "root_gb": 1.0}
		if edit != nil {
			edit(n)
		}
	})
	w.want(201, "POST", "/v1/ports", "1.82", `{"node_uuid":"`+n.ID+`","address":"52:54:00:00:00:01"}`)
	return n
}

func token(t testing.TB, a answer) string {
	t.Helper()
	config := a.Object(t)["config"].(map[string]any)
	return config["agent_token"].(string)
}

func TestLookup(t *testing.T) {
	w := newWorld(t)
	n := w.booting(nil)
	const path = "/v1/lookup?addresses=nonsense,52-54-00-00-00-01"
	w.want(404, "GET", path, "1.21", "")
	for _, version := range []string{"1.22", "1.31", "1.61"} {
		if got := token(t, w.want(200, "GET", path, version, "")); got != "******" {
			t.Errorf("token at %s: %q", version, got)
		}
	}
	a := w.want(200, "GET", path, "1.62", "")
	if got := token(t, a); got != w.token(n) {
		t.Errorf("first lookup told %q", got)
	}
	for _, version := range []string{"1.62", "1.68", "1.82", "1.22"} {
		if got := token(t, w.want(200, "GET", path, version, "")); got != "******" {
			t.Errorf("second lookup at %s told %q", version, got)
		}
	}
	if strings.Contains(a.Body, "hush") || strings.Contains(a.Body, "driver_info") && strings.Contains(a.Body, "fake_password") {
		t.Errorf("lookup tells secrets: %s", a.Body)
	}
	if strings.Contains(w.log.String(), w.token(n)) {
		t.Error("the token is in the log")
	}
	want := `{"node":{"uuid":"` + nodeID + `","properties":{},"instance_info":{"image_url":"******","root_gb":1},` +
		`"driver_internal_info":{"agent_secret_token":"******"},"links":[{"href":"http://salvor.example/v1/nodes/` + nodeID + `","rel":"self"},` +
		`{"href":"http://salvor.example/nodes/` + nodeID + `","rel":"bookmark"}]},"config":{"heartbeat_timeout":300,"agent_token":"` + w.token(n) + `",` +
		`"agent_token_required":true,"agent_md5_checksum_enable":false,"disable_deep_image_inspection":false,"permitted_image_formats":["raw","gpt","qcow2","iso"],` +
		`"metrics":{"backend":"noop","global_prefix":null,"prepend_host":false,"prepend_host_reverse":true,"prepend_uuid":false},` +
		`"metrics_statsd":{"statsd_host":"localhost","statsd_port":8125}}}`
	if diff := cmp.Diff(want, a.Body); diff != "" {
		t.Errorf("lookup (-want +got):\n%s", diff)
	}
}

// TestLookupMasksProperties: every client that reaches the ramdisks' listener and knows a MAC can read the answer.
func TestLookupMasksProperties(t *testing.T) {
	w := newWorld(t)
	w.booting(func(n *metal.Node) {
		n.Properties = metal.Object{"cpu_arch": "x86_64", "bios_password": "hush", "vendor": map[string]any{"token": "hush"}}
	})
	a := w.want(200, "GET", "/v1/lookup?addresses=52-54-00-00-00-01", "1.82", "")
	if strings.Contains(a.Body, "hush") || !strings.Contains(a.Body, `"cpu_arch":"x86_64"`) {
		t.Errorf("%s", a.Body)
	}
}

// TestLookupOfTwoNodes: a ramdisk that sends MACs of two nodes, as machines do whose BMCs have one adapter of the same MAC each, gets the only
// one of them that expects a ramdisk. If both do, it gets neither.
func TestLookupOfTwoNodes(t *testing.T) {
	w := newWorld(t)
	n := w.booting(nil)
	w.node(func(n *metal.Node) { n.ID, n.Name, n.ProvisionState = otherID, "n2", metal.Enroll })
	w.want(201, "POST", "/v1/ports", "1.82", `{"node_uuid":"`+otherID+`","address":"52:54:00:00:00:02"}`)
	for _, macs := range []string{"52:54:00:00:00:01,52:54:00:00:00:02", "52:54:00:00:00:02,52:54:00:00:00:01"} {
		a := w.want(200, "GET", "/v1/lookup?addresses="+macs, "1.82", "").Object(t)
		if found := a["node"].(map[string]any)["uuid"]; found != n.ID {
			t.Errorf("addresses %s: found node %v, want %s", macs, found, n.ID)
		}
	}
	w.edit(otherID, func(n *metal.Node) { n.ProvisionState = metal.RescueWait })
	w.refuse([]refusal{{"GET", "/v1/lookup?addresses=52:54:00:00:00:01,52:54:00:00:00:02", "1.82", "", 404, "Resource could not be found."}})
	w.want(200, "GET", "/v1/lookup?addresses=52:54:00:00:00:01", "1.82", "")
}

// TestLookupByTheBootsToken: two machines that both await a ramdisk, and whose ramdisks send the MAC of one adapter, are told apart by the token that
// their boot files carry. A ramdisk that sends no token, or another one, gets neither.
func TestLookupByTheBootsToken(t *testing.T) {
	w := newWorld(t)
	nodes := map[string]*metal.Node{nodeID: w.booting(func(n *metal.Node) { n.Plan.CarryToken = true })}
	nodes[otherID] = w.node(func(n *metal.Node) {
		n.ID, n.Name, n.ProvisionState, n.BootNumber = otherID, "n2", metal.RescueWait, 3
		n.Plan = &metal.BootPlan{Method: metal.BootMedia, Path: "q", BootNumber: 3, CarryToken: true}
	})
	w.want(201, "POST", "/v1/ports", "1.82", `{"node_uuid":"`+otherID+`","address":"52:54:00:00:00:02"}`)
	const path = "/v1/lookup?addresses=52:54:00:00:00:01,52:54:00:00:00:02"
	ask := func(token string) answer {
		return answer{fixture.Ask(w.handler, "GET", path, "", "X-OpenStack-Ironic-API-Version", "1.82", agent.TokenHeader, token)}
	}
	for _, id := range []string{nodeID, otherID} {
		a := ask(w.token(nodes[id]))
		if a.Status != 200 || a.Object(t)["node"].(map[string]any)["uuid"] != id {
			t.Errorf("by the token of %s: %d %s", id, a.Status, a.Body)
		}
	}
	for name, token := range map[string]string{"no token": "", "another's": "x", "too long": strings.Repeat("x", 5000)} {
		if a := ask(token); a.Status != 404 && a.Status != 400 {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	w.edit(otherID, func(n *metal.Node) { n.ProvisionState = metal.Active })
	if a := ask(w.token(nodes[otherID])); a.Status != 404 {
		t.Errorf("by the token of a node that awaits no ramdisk: %d %s", a.Status, a.Body)
	}
}

func TestLookupRefuses(t *testing.T) {
	w := newWorld(t)
	w.booting(nil)
	w.refuse([]refusal{
		{"GET", "/v1/lookup", "1.82", "", 400, "At least one of 'addresses' and 'node_uuid' parameters is required"},
		{"GET", "/v1/lookup?addresses=", "1.82", "", 400, "At least one"},
		{"GET", "/v1/lookup?addresses=x,y,,z", "1.82", "", 400, "At least one"},
		{"GET", "/v1/lookup?node_uuid=n1", "1.82", "", 400, "Expected a UUID"},
		{"GET", "/v1/lookup?bogus=1", "1.82", "", 400, "Unexpected arguments"},
		{"GET", "/v1/lookup?node_uuid=" + strings.Replace(nodeID, "1", "2", 1), "1.82", "", 404, "Resource could not be found."},
		{"GET", "/v1/lookup?addresses=52:54:00:00:00:99", "1.82", "", 404, "Resource could not be found."},
		{"GET", "/v1/lookup?addresses=" + strings.Repeat("52:54:00:00:00:99,", 200), "1.82", "", 400, "addresses"},
	})
	const path = "/v1/lookup?node_uuid=" + nodeID
	w.edit(nodeID, func(n *metal.Node) { n.BootNumber = 4 })
	w.refuse([]refusal{{"GET", path, "1.82", "", 409, "being prepared"}})
	w.edit(nodeID, func(n *metal.Node) { n.ProvisionState = metal.Active })
	w.refuse([]refusal{{"GET", path, "1.82", "", 404, "Resource could not be found."}})
	w.edit(nodeID, func(n *metal.Node) { n.ProvisionState, n.Plan.BootNumber, n.Driver = metal.RescueWait, 4, "gone" })
	w.refuse([]refusal{{"GET", path, "1.82", "", 400, "no live conductor"}})
	w.edit(nodeID, func(n *metal.Node) { n.Driver, n.Plan.CarryToken = "fake-hardware", true })
	if got := token(t, w.want(200, "GET", path, "1.82", "")); got != "******" {
		t.Errorf("a carried token was told: %q", got)
	}
}

func testCertificate(t testing.TB) string {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{SerialNumber: big.NewInt(1)}, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func heartbeatBody(pairs ...string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	b, _ := json.Marshal(m)
	return string(b)
}

func TestHeartbeat(t *testing.T) {
	w := newWorld(t)
	n := w.booting(nil)
	tok, ca := w.token(n), testCertificate(t)
	post := func(version, body string, status int, message string) refusal {
		return refusal{"POST", "/v1/heartbeat/" + nodeID, version, body, status, message}
	}
	w.refuse([]refusal{
		post("1.21", heartbeatBody("callback_url", "http://a"), 404, ""),
		post("1.22", heartbeatBody("callback_url", "http://a", "agent_version", "1"), 400, `Field "agent_version" not recognised in this version`),
		post("1.67", heartbeatBody("callback_url", "http://a", "agent_verify_ca", ca), 400, `Field "agent_verify_ca" not recognised in this version`),
		post("1.71", heartbeatBody("callback_url", "http://a", "agent_status", "start"), 400, `Field "agent_status" not recognised in this version`),
		post("1.82", `{}`, 400, "callback_url"), post("1.82", ``, 400, "JSON"), post("1.82", `{"callback_url":7}`, 400, "callback_url"),
		post("1.82", heartbeatBody("callback_url", "http://a", "bogus", "x"), 400, "Unexpected arguments: bogus"),
		post("1.82", heartbeatBody("callback_url", "http://:80", "agent_version", "1", "agent_token", tok), 400, "Invalid callback_url"),
		post("1.82", heartbeatBody("callback_url", "http://a:99999", "agent_version", "1", "agent_token", tok), 400, "no port 99999"),
		post("1.82", heartbeatBody("callback_url", "http://a?b=c", "agent_version", "1", "agent_token", tok), 400, "Invalid callback_url"),
		post("1.82", heartbeatBody("callback_url", "http://a#b", "agent_version", "1", "agent_token", tok), 400, "Invalid callback_url"),
		post("1.82", heartbeatBody("callback_url", "http://a"), 400, "version is required"),
		post("1.82", heartbeatBody("callback_url", "http://a", "agent_version", "1"), 400, "Agent token is required for heartbeat processing."),
		post("1.82", heartbeatBody("callback_url", "http://a", "agent_version", "1", "agent_token", "wrong"), 404, "Resource could not be found."),
		post("1.82", heartbeatBody("callback_url", "http://a", "agent_version", "1", "agent_token", "******"), 404, "Resource could not be found."),
		post("1.82", heartbeatBody("callback_url", "ftp://a", "agent_version", "1", "agent_token", tok), 400, "callback_url"),
		post("1.82", heartbeatBody("callback_url", "http://", "agent_version", "1", "agent_token", tok), 400, "callback_url"),
		post("1.82", heartbeatBody("callback_url", "http://"+strings.Repeat("a", 3000), "agent_version", "1", "agent_token", tok), 400, "longer"),
		post("1.82", heartbeatBody("callback_url", "http://a", "agent_version", "1", "agent_token", tok, "agent_verify_ca", "x"), 400, "PEM"),
		post("1.82", heartbeatBody("callback_url", "http://a", "agent_version", "1", "agent_token", tok, "agent_status", "odd"), 400, "agent_status"),
		{"POST", "/v1/heartbeat/nope", "1.82", heartbeatBody("callback_url", "http://a", "agent_version", "1", "agent_token", tok), 404, ""},
	})
	good := heartbeatBody("callback_url", "https://agent:9999", "agent_version", "9.1", "agent_token", tok, "agent_verify_ca", ca)
	w.lock(nodeID)
	w.refuse([]refusal{post("1.68", good, 409, "locked")})
	w.free()
	for range 2 {
		if a := w.want(202, "POST", "/v1/heartbeat/"+nodeID, "1.68", good); a.Body != "" {
			t.Errorf("body %q", a.Body)
		}
	}
	w.lock(nodeID)
	w.want(202, "POST", "/v1/heartbeat/n1", "1.68", good)
	w.free()
	w.refuse([]refusal{
		post("1.68", strings.Replace(good, "agent:9999", "other:9999", 1), 400, `Detected change in ramdisk provided "callback_url"`),
		post("1.68", heartbeatBody("callback_url", "https://agent:9999", "agent_version", "9.1", "agent_token", tok, "agent_verify_ca", testCertificate(t)), 400, "agent_verify_ca"),
	})
	info := w.want(200, "GET", "/v1/nodes/n1", "1.82", "").Object(t)["driver_internal_info"]
	want := map[string]any{
		"agent_url": "https://agent:9999", "agent_version": "9.1", "agent_verify_ca": ca, "agent_secret_token": "******", "agent_last_heartbeat": "2026-03-04T05:06:07+00:00",
	}
	if diff := cmp.Diff(want, info); diff != "" {
		t.Errorf("driver_internal_info (-want +got):\n%s", diff)
	}
	w.edit(nodeID, func(n *metal.Node) { n.BootNumber = 4 })
	w.refuse([]refusal{post("1.68", good, 404, "Resource could not be found.")})
	info = w.want(200, "GET", "/v1/nodes/n1", "1.82", "").Object(t)["driver_internal_info"]
	if diff := cmp.Diff(map[string]any{"agent_version": "9.1", "agent_last_heartbeat": "2026-03-04T05:06:07+00:00"}, info); diff != "" {
		t.Errorf("after the boot is void (-want +got):\n%s", diff)
	}
	if strings.Contains(w.log.String(), tok) {
		t.Error("the token is in the log")
	}
}

func TestHeartbeatWithoutSupport(t *testing.T) {
	w := newWorld(t)
	n := w.booting(func(n *metal.Node) { n.Interfaces = map[string]string{"deploy": "fake"} })
	w.want(202, "POST", "/v1/heartbeat/n1", "1.68", heartbeatBody("callback_url", "", "agent_version", "1", "agent_token", w.token(n)))
	if log := w.log.String(); !strings.Contains(log, "does not support heartbeats") || !strings.Contains(log, "level=WARN") {
		t.Errorf("no warning in %s", log)
	}
	if info := w.want(200, "GET", "/v1/nodes/n1", "1.82", "").Object(t)["driver_internal_info"].(map[string]any); info["agent_version"] != nil {
		t.Errorf("it did something: %v", info)
	}
	w.edit(nodeID, func(n *metal.Node) { n.Interfaces = nil })
	w.want(202, "POST", "/v1/heartbeat/n1", "1.68", heartbeatBody("callback_url", "", "agent_version", "1", "agent_token", w.token(n)))
}

func TestRescueHashInLookup(t *testing.T) {
	w := newWorld(t)
	w.withOptions(metal.Options{RestrictLookup: true, RescuePasswordInLookup: true})
	w.booting(nil)
	must.OK(t, w.store.Do(t.Context(), func(tx job.Tx) error {
		return w.store.Insert(tx, &job.Job{Kind: "rescue", Class: job.Operation, Subject: job.Node(nodeID), State: job.Waiting, Args: json.RawMessage(`{}`), Secret: secret.New("$5$hash")})
	}))
	rescuePassword := func() any {
		return w.want(200, "GET", "/v1/lookup?node_uuid="+nodeID, "1.62", "").Object(t)["node"].(map[string]any)["instance_info"].(map[string]any)["rescue_password"]
	}
	if first, second := rescuePassword(), rescuePassword(); first != "$5$hash" || second != nil {
		t.Errorf("hash told: %v, then %v", first, second)
	}
	if strings.Contains(w.log.String(), "$5$hash") {
		t.Error("the hash is in the log")
	}
}

func TestLegacyPassthru(t *testing.T) {
	w := newWorld(t)
	n := w.booting(nil)
	const lookup = `{"version":"2","inventory":{"interfaces":[{"mac_address":"52:54:00:00:00:01"}]}}`
	const lookupPath, beatPath = "/v1/drivers/agent_ipmitool/vendor_passthru/lookup", "/v1/nodes/" + nodeID + "/vendor_passthru/heartbeat"
	w.want(404, "POST", lookupPath, "", lookup)
	w.want(404, "POST", beatPath, "", "{}")
	w.config.LegacyPassthru = true
	w.handler = ironic.New(w.config)
	got := w.want(200, "POST", lookupPath, "", lookup).Object(t)
	if got["heartbeat_timeout"] != 300.0 || got["node"].(map[string]any)["uuid"] != nodeID || got["config"] != nil {
		t.Errorf("old lookup: %v", got)
	}
	w.refuse([]refusal{
		{"POST", lookupPath, "", `{}`, 400, "version"}, {"POST", lookupPath, "", `{"version":"1"}`, 400, "version"},
		{"POST", lookupPath, "", `{"version":"2"}`, 400, "inventory"}, {"POST", lookupPath, "", `{"version":"2","inventory":{}}`, 400, "interfaces"},
		{"POST", lookupPath, "", `{"version":"2","inventory":{"interfaces":[7]}}`, 404, ""},
		{"POST", lookupPath, "", `{"version":"2","inventory":{"interfaces":[{"mac_address":"52:54:00:00:00:09"}]}}`, 404, ""},
		{"POST", beatPath, "", `{}`, 400, "agent_url"}, {"POST", beatPath, "", `{"agent_url":"http://a"}`, 400, "token"},
	})
	w.want(202, "POST", beatPath, "", heartbeatBody("agent_url", "http://a", "agent_token", w.token(n)))
}

// TestLegacyAgents: agents that know no token are heard only where the boot has none.
func TestLegacyAgents(t *testing.T) {
	const lookup = `{"version":"2","inventory":{"interfaces":[{"mac_address":"52:54:00:00:00:01"}]}}`
	const lookupPath, beatPath, word = "/v1/drivers/agent_ipmitool/vendor_passthru/lookup", "/v1/nodes/" + nodeID + "/vendor_passthru/heartbeat", `{"agent_url":"http://192.0.2.1:9999"}`
	old := func(edit func(*metal.Node)) *world {
		w := newWorld(t)
		w.booting(edit)
		w.config.LegacyPassthru = true
		w.handler = ironic.New(w.config)
		return w
	}
	for name, edit := range map[string]func(*metal.Node){
		"its boot carries a token": func(n *metal.Node) { n.ProvisionState, n.Plan.CarryToken = metal.CleanWait, true },
		"a rescue":                 nil,
		"no ramdisk is expected":   func(n *metal.Node) { n.ProvisionState = metal.Active },
		"no boot of ours":          func(n *metal.Node) { n.ProvisionState, n.Plan = metal.CleanWait, nil },
	} {
		w := old(edit)
		if a := w.ask("POST", beatPath, "", word); a.Status != 400 || !strings.Contains(a.errorText(), "token") {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	told := old(func(n *metal.Node) { n.ProvisionState = metal.CleanWait })
	told.want(200, "GET", "/v1/lookup?node_uuid="+nodeID, "1.62", "")
	told.refuse([]refusal{{"POST", beatPath, "", word, 400, "token"}})

	w := old(func(n *metal.Node) { n.ProvisionState = metal.CleanWait })
	a := w.want(200, "POST", lookupPath, "", lookup)
	for _, field := range []string{"driver_info", "hush", "power_state", "agent_token", "extra"} {
		if strings.Contains(a.Body, field) {
			t.Errorf("the old lookup tells %s: %s", field, a.Body)
		}
	}
	w.want(202, "POST", beatPath, "", word)
	w.want(202, "POST", beatPath, "", word) // and again, as agents do
	w.refuse([]refusal{{"POST", beatPath, "", `{"agent_url":"http://192.0.2.66:9999"}`, 400, "Detected change"}})
	got := w.want(200, "GET", "/v1/lookup?node_uuid="+nodeID, "1.62", "").Object(t)["config"].(map[string]any)["agent_token"]
	if got != "******" {
		t.Errorf("a token is told beside an agent that has none: %v", got)
	}
	w.edit(nodeID, func(n *metal.Node) { n.ProvisionState = metal.Active })
	w.want(404, "POST", lookupPath, "", lookup) // restrict_lookup holds
}

func TestRamdiskListener(t *testing.T) {
	w := newWorld(t)
	n := w.booting(nil)
	w.config.Auth = fixture.Nobody()
	for name, h := range map[string]struct {
		other int
	}{"ramdisk": {404}, "main": {401}} {
		handler := ironic.NewRamdisk(w.config)
		if name == "main" {
			handler = ironic.New(w.config)
		}
		for _, r := range []struct {
			method, path, body string
			status             int
		}{
			{"GET", "/", "", 200}, {"GET", "/v1", "", 200}, {"GET", "/v1/", "", 200}, {"GET", "/v1/lookup?node_uuid=" + nodeID, "", 200},
			{"POST", "/v1/heartbeat/" + nodeID, heartbeatBody("callback_url", "", "agent_version", "1", "agent_token", w.token(n)), 202},
			{"GET", "/v1/nodes", "", h.other}, {"POST", "/v1/nodes", "{}", h.other}, {"GET", "/v1/nodes/" + nodeID, "", h.other}, {"GET", "/v1/ports", "", h.other},
			{"POST", "/v1/continue_inspection", "{}", 404}, {"GET", "/v1/drivers", "", h.other}, {"GET", "/nothing", "", h.other},
		} {
			if a := ask(handler, r.method, r.path, "1.82", r.body); a.Status != r.status {
				t.Errorf("%s: %s %s: %d, want %d: %s", name, r.method, r.path, a.Status, r.status, a.Body)
			}
		}
	}
}
