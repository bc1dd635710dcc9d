package advisory

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"salvor/test/must"
)

// TestOSSN_0099_DeepJSONWithoutACredential: nested JSON at a door that asks for no
// credential ended the API. Depth and size are bounded before anything is decoded.
func TestOSSN_0099_DeepJSONWithoutACredential(t *testing.T) {
	w := newWorld(t, "[api]\nlegacy_ramdisk_passthru = true\n")
	id := "00000000-0000-4000-8000-000000000001"
	deep := strings.Repeat("[", 1<<19) + strings.Repeat("]", 1<<19)
	for _, door := range []string{
		"/v1/heartbeat/" + id, "/v1/continue_inspection", "/v1/drivers/redfish/vendor_passthru/lookup", "/v1/nodes/" + id + "/vendor_passthru/heartbeat", "/identity/v3/auth/tokens",
		"/v1/nodes", "/compute/v2.1/servers", "/salvor/v1/networks",
	} {
		for _, body := range []string{
			deep, `{"inventory":` + deep + `}`, `{"callback_url":` + strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000) + `}`,
			strings.Repeat("[", 1<<20), `{"a":"` + strings.Repeat("x", 17<<20) + `"}`, strings.Repeat(`{"a":[`, 1000), `{"callback_url":"\ud800","a":1e999999}`, "\x00", "\xff\xfe",
		} {
			began := time.Now()
			if a := w.ask("POST", door, latest, body); a.Status < 400 || a.Status >= 500 {
				t.Errorf("%s with %.40q... of %d bytes: %d %.200s", door, body, len(body), a.Status, a.Body)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s with %.40q...: %s", door, body, took)
			}
		}
	}
	w.want(200, "GET", "/healthz", nil)
	if log := w.server.Log(); strings.Contains(log, "panic") {
		t.Error("a panic is in the log")
	}
}

// TestCVE_2016_4985_LookupTellsNoSecrets: who guessed a MAC was told the whole node by the
// lookup of agents. Nor does any lookup tell a token twice, as Ironic's does below 1.62.
func TestCVE_2016_4985_LookupTellsNoSecrets(t *testing.T) {
	w := newWorld(t, "[api]\nlegacy_ramdisk_passthru = true\n[agent]\nrequire_tls = false\n")
	m := w.machine(object{"ipmi_password": "canary-ipmi"})
	old := func() answer {
		return w.ask("POST", "/v1/drivers/redfish/vendor_passthru/lookup", "1.1", object{"version": "2", "inventory": object{"interfaces": []object{{"mac_address": m.mac}}}})
	}
	if a := w.ask("GET", "/v1/lookup?addresses="+m.mac, "1.62", nil); a.Status != 404 {
		t.Errorf("a lookup of a node in use: %d", a.Status)
	}
	if a := old(); a.Status != 404 {
		t.Errorf("an old lookup of a node in use: %d", a.Status)
	}
	m.reach("rescue", "rescue wait")
	token := m.token()
	var all []answer
	for _, version := range []string{"1.22", "1.31", "1.61", "1.62", "1.68", latest} {
		for range 2 {
			all = append(all, w.ask("GET", "/v1/lookup?addresses="+m.mac, version, nil), w.ask("GET", "/v1/lookup?node_uuid="+m.id, version, nil))
		}
	}
	for _, a := range append(all, old()) {
		if a.Status != 200 {
			t.Errorf("%d %.300s", a.Status, a.Body)
		}
		for _, secret := range []string{"canary", token, m.bmc.Image(), "redfish_address"} {
			if strings.Contains(a.Body, secret) {
				t.Errorf("a lookup tells %.12q: %.500s", secret, a.Body)
			}
		}
	}
}

// TestCallbacksLeadNowhereElse: a heartbeat names where the control plane connects to. It
// goes to the configured networks only, and nowhere before the token was proved.
func TestCallbacksLeadNowhereElse(t *testing.T) {
	var calls atomic.Int32
	agent := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		http.Redirect(rw, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
	}))
	defer agent.Close()
	_, port, err := net.SplitHostPort(agent.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, "[agent]\nrequire_tls = false\ncallback_networks = 192.0.2.0/24\n")
	m := w.machine(nil)
	m.reach("rescue", "rescue wait")
	token := m.token()
	for _, bad := range []string{
		"http://127.0.0.1:" + port, "http://[::1]:" + port, "http://[::ffff:127.0.0.1]:" + port, "http://0.0.0.0:" + port, "http://169.254.169.254", "http://[fe80::1%25lo]:9999", "http://10.0.0.1:9999", "http://[64:ff9b::7f00:1]:9999",
		"http://u:p@192.0.2.1:9999", "http://192.0.2.1:22", "http://192.0.2.1:0", "http://192.0.2.1:70000", "http://192.0.2.1:9999/v1/nodes", "http://192.0.2.1:9999/..", "http://192.0.2.1:9999/%2e%2e", "http://192.0.2.1:9999/a%2fb", "http://192.0.2.1:9999?x=y", "http://192.0.2.1:9999#x", "file:///etc/passwd",
		"gopher://192.0.2.1:9999", "ftp://192.0.2.1", "//192.0.2.1", "192.0.2.1:9999", "http:192.0.2.1", w.server.URL,
	} {
		if a := m.sendHeartbeat(bad, token); a.Status != 400 {
			t.Errorf("callback_url %s: %d %.200s", bad, a.Status, a.Body)
		}
	}
	if n := m.show(); n["provision_state"] != "rescue wait" {
		t.Fatalf("%v", n["provision_state"])
	}
	// A name is looked at when it is connected to.
	if a := m.sendHeartbeat("http://localhost:"+port, token); a.Status != 202 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	w.until("the rescue gives up", func() bool { return m.show()["provision_state"] == "rescue failed" }, func() any { return m.show()["last_error"] })
	if said := fmt.Sprint(m.show()["last_error"]); calls.Load() != 0 || !strings.Contains(said, "127.0.0.1") && !strings.Contains(said, "::1") {
		t.Errorf("%d calls; %s", calls.Load(), said)
	}
}

// TestBMCsAreWhereTheyMayBe: a project says where the BMC of a node of its own is, and no connection is made to where none may be.
func TestBMCsAreWhereTheyMayBe(t *testing.T) {
	var calls atomic.Int32
	thing := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		rw.WriteHeader(http.StatusNotFound)
	}))
	defer thing.Close()
	datagrams := must.Get(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	defer datagrams.Close()
	go func() {
		for b := make([]byte, 1500); ; calls.Add(1) {
			if _, _, err := datagrams.ReadFrom(b); err != nil {
				return
			}
		}
	}()
	_, port, err := net.SplitHostPort(thing.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, udp, err := net.SplitHostPort(datagrams.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	refused := func(w *world, driver string, info object) {
		t.Helper()
		n := w.want(201, "POST", "/v1/nodes", object{"driver": driver, "network_interface": "noop", "driver_info": info}).Object(t)
		id, _ := n["uuid"].(string)
		w.want(202, "PUT", "/v1/nodes/"+id+"/states/provision", object{"target": "manage"})
		w.until("manage fails", func() bool {
			n = w.want(200, "GET", "/v1/nodes/"+id, nil).Object(t)
			return n["reservation"] == nil && n["last_error"] != nil
		}, func() any { return n })
		if said := fmt.Sprint(n["last_error"]); n["provision_state"] != "enroll" || !strings.Contains(said, "may not be connected to") {
			t.Errorf("%v: %v, %s", info, n["provision_state"], said)
		}
	}
	const types = "[DEFAULT]\nenabled_hardware_types = redfish,ipmi\n"
	w := newWorld(t, types+"[conductor]\nbmc_networks = 192.0.2.0/24\n")
	for _, host := range []string{"127.0.0.1", "[::ffff:127.0.0.1]", "localhost"} {
		refused(w, "redfish", object{"redfish_address": "http://" + host + ":" + port})
	}
	refused(w, "ipmi", object{"ipmi_address": "127.0.0.1", "ipmi_port": udp})
	refused(w, "ipmi", object{"ipmi_address": "localhost", "ipmi_port": udp})
	// Who lives on this machine alone has its BMCs there, but no door of its own, and no metadata service.
	w = newWorld(t, types)
	for _, address := range []string{w.server.URL, "http://169.254.169.254"} {
		refused(w, "redfish", object{"redfish_address": address})
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
	if m := w.machine(nil); m.show()["provision_state"] != "active" {
		t.Errorf("a BMC on this machine: %v", m.show())
	}
}

// TestNothingIsSentBeforeTheTokenIsProved: not even a connection is made to where a
// heartbeat says that has not the token of this boot, and redirects are not followed.
func TestNothingIsSentBeforeTheTokenIsProved(t *testing.T) {
	var calls, stolen atomic.Int32
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
	defer thief.Close()
	agent := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		http.Redirect(rw, r, thief.URL, http.StatusTemporaryRedirect)
	}))
	defer agent.Close()
	w := newWorld(t, "[agent]\nrequire_tls = false\n")
	m := w.machine(nil)
	m.reach("rescue", "rescue wait")
	for token, want := range map[string]int{"": 400, "wrong": 404, "******": 404, strings.Repeat("x", 43): 404} {
		if a := m.sendHeartbeat(agent.URL, token); a.Status != want {
			t.Errorf("token %q: %d", token, a.Status)
		}
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d calls before the token was proved", n)
	}
	if a := m.sendHeartbeat(agent.URL, m.token()); a.Status != 202 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	w.until("the agent is called", func() bool { return calls.Load() > 0 }, func() any { return m.show()["last_error"] })
	if n := stolen.Load(); n != 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
}

// TestNothingIsWrittenIntoTheLog: what a stranger says breaks no line of the log, and no
// terminal that it is shown on.
func TestNothingIsWrittenIntoTheLog(t *testing.T) {
	w := newWorld(t, "[DEFAULT]\nlog_level = debug\n[agent]\nrequire_tls = false\n")
	const evil = "x\n2026-01-01 level=ERROR msg=forged\r\x1b[2J\x1b]0;title\x07\u202e"
	m := w.machine(nil)
	m.reach("rescue", "rescue wait")
	w.ask("POST", "/v1/heartbeat/"+m.id, latest, object{"callback_url": "http://192.0.2.1:9999", "agent_version": evil, "agent_token": m.token(), "agent_status": "error", "agent_status_message": evil})
	w.ask("POST", "/v1/nodes", latest, object{"driver": evil})
	w.ask("POST", "/v1/nodes", latest, object{"driver": "redfish", "name": evil, "extra": object{evil: evil}, "description": evil})
	w.ask("GET", "/v1/nodes/x%0alevel=ERROR%1b[2J", latest, nil)
	w.ask("GET", "/boot/x%0alevel=ERROR%1b[2J/boot.iso", latest, nil)
	w.ask("POST", "/v1/continue_inspection", latest, object{"inventory": object{"interfaces": []object{{"mac_address": evil}}, "bmc_address": evil}})
	m.set("/instance_info/kernel_append_params", evil)
	w.server.AwaitLog(t, "path=/v1/continue_inspection")
	// The message of the start is no part of the log.
	for line := range strings.Lines(regexp.MustCompile(`(?s)salvor \S+ serves:\n.*?  # [^\n]*\n`).ReplaceAllString(w.server.Log(), "")) {
		if !strings.HasPrefix(line, "time=") && !strings.HasPrefix(line, "{") {
			t.Errorf("a line of its own: %q", line)
		}
		if strings.ContainsAny(line, "\x1b\x07\r") {
			t.Errorf("a line that moves a terminal: %q", line)
		}
	}
}
