package ironic_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"salvor/metal"
	"salvor/test/must"
)

// on lets a fuzz target fail its own run.
func (w *world) on(t *testing.T) *world {
	c := *w
	c.TB = t
	return &c
}

// fine fails on a server error, on an error in another form than Ironic's, and on a secret.
func (w *world) fine(t *testing.T, a answer, about string) {
	if a.Status >= 500 {
		t.Fatalf("%d for %q: %s", a.Status, about, a.Body)
	}
	if a.Status >= 400 && a.errorText() == a.Body {
		t.Fatalf("no error of Ironic's form for %q: %s", about, a.Body)
	}
	if strings.Contains(a.Body, "hush") {
		t.Fatalf("a secret for %q: %s", about, a.Body)
	}
}

func FuzzPatch(f *testing.F) {
	w := newWorld(f)
	w.node(func(n *metal.Node) {
		n.ProvisionState, n.DriverInfo = metal.Enroll, metal.Object{"fake_password": "hush", "list": []any{1.0, map[string]any{"token": "hush"}}}
	})
	for _, s := range []string{
		`[{"op":"add","path":"/extra/a","value":{"b":[1]}}]`, `[{"op":"remove","path":"/driver_info/list/0"}]`, `[{"op":"replace","path":"/driver_info/fake_password","value":"******"}]`,
		`[{"op":"add","path":"/driver_info/list/-","value":null}]`, `[{"op":"add","path":"/driver_info/list/01","value":1}]`, `[{"op":"replace","path":"/extra","value":null},{"op":"add","path":"/extra/~0~1","value":1}]`,
		`[{"op":"copy","from":"/driver_info","path":"/extra"}]`, `[{"op":"add","path":"/extra/~","value":1}]`, `[{"op":"add","path":"/name","value":"\u0000"}]`, `[{}]`, `null`, `[null]`, `[[]]`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		w := w.on(t)
		w.fine(t, w.ask("PATCH", "/v1/nodes/"+nodeID, "1.82", body), body)
		n := must.Get(w.nodes.Node(t.Context(), nodeID))(t)
		if b, _ := json.Marshal(n.DriverInfo); strings.Contains(string(b), `"fake_password":"******"`) {
			t.Fatalf("the mask is stored: %s", b)
		}
		w.edit(nodeID, func(n *metal.Node) {
			n.Driver, n.DriverInfo, n.Extra = "fake-hardware", metal.Object{"fake_password": "hush", "list": []any{1.0, map[string]any{"token": "hush"}}}, nil
		})
	})
}

func FuzzCreate(f *testing.F) {
	w := newWorld(f)
	for _, s := range []string{`{"driver":"fake-hardware"}`, `{"driver":"fake-hardware","name":"a","extra":{"a":[{}]},"maintenance":"yes"}`, `{"driver":null}`, `{"uuid":1}`, `{"driver":"fake-hardware","instance_info":{"configdrive":"******"}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		w := w.on(t)
		a := w.ask("POST", "/v1/nodes", "1.82", body)
		w.fine(t, a, body)
		if a.Status == 201 {
			w.want(204, "DELETE", "/v1/nodes/"+a.Object(t)["uuid"].(string), "1.82", "")
		}
	})
}

func FuzzLookupQuery(f *testing.F) {
	w := newWorld(f)
	w.booting(nil)
	for _, s := range []string{"addresses=52:54:00:00:00:01", "node_uuid=" + nodeID, "addresses=,,,&node_uuid=", "addresses=%00", "a;b", "%", "addresses=x&addresses=52-54-00-00-00-01"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		u := &url.URL{Path: "/v1/lookup", RawQuery: query}
		if _, err := url.Parse(u.String()); err != nil || strings.ContainsAny(query, " \r\n\t#") {
			t.Skip("no request line")
		}
		a := w.ask("GET", u.String(), "1.62", "")
		w.fine(t, a, query)
		if a.Status != 200 && a.Status != 400 && a.Status != 404 {
			t.Fatalf("%d for %q", a.Status, query)
		}
	})
}

func FuzzHeartbeatBody(f *testing.F) {
	w := newWorld(f)
	n := w.booting(nil)
	f.Add(heartbeatBody("callback_url", "http://a", "agent_version", "1", "agent_token", w.token(n)))
	for _, s := range []string{`{}`, `{"callback_url":"http://[::1%25eth0]:1","agent_version":"1","agent_token":"x"}`, `{"callback_url":"//","agent_status":"end"}`, `[]`, `{"agent_verify_ca":"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		w := w.on(t)
		a := w.ask("POST", "/v1/heartbeat/"+nodeID, "1.82", body)
		w.fine(t, a, body)
		if a.Status == 202 && !strings.Contains(body, w.token(n)) {
			t.Fatalf("taken without the token: %s", body)
		}
	})
}
