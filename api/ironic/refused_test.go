package ironic_test

import (
	"net/http"
	"strings"
	"testing"

	"salvor/api/ironic"
	"salvor/metal"
)

// TestHeartbeatTellsNoStrangerWhichNodesThereAre: without a token 400, with a wrong one 404, for known and unknown nodes alike.
func TestHeartbeatTellsNoStrangerWhichNodesThereAre(t *testing.T) {
	w := newWorld(t)
	w.booting(nil)
	for _, version := range []string{"1.22", "1.35", "1.36", "1.62", "1.82"} {
		for _, c := range []struct {
			token  string
			status int
		}{{"", 400}, {"wrong", 404}, {"******", 404}} {
			pairs := []string{"callback_url", "ftp://nonsense"}
			if version != "1.22" && version != "1.35" {
				pairs = append(pairs, "agent_version", "1")
			}
			if c.token != "" {
				pairs = append(pairs, "agent_token", c.token)
			}
			unknown := w.ask("POST", "/v1/heartbeat/"+strings.Replace(nodeID, "1", "2", 1), version, heartbeatBody(pairs...))
			if unknown.Status != c.status {
				t.Errorf("unknown node at %s with token %q: %d, want %d: %s", version, c.token, unknown.Status, c.status, unknown.Body)
			}
			for _, ident := range []string{nodeID, "n1", "nope"} {
				if a := w.ask("POST", "/v1/heartbeat/"+ident, version, heartbeatBody(pairs...)); a.Status != c.status || a.Body != unknown.Body {
					t.Errorf("node %s at %s with token %q: %d %s; an unknown node gets %d %s", ident, version, c.token, a.Status, a.Body, unknown.Status, unknown.Body)
				}
			}
		}
	}
}

// TestHeartbeatOfAnUnheededNodeTellsNothing: the deploy interface is looked at only after the token.
func TestHeartbeatOfAnUnheededNodeTellsNothing(t *testing.T) {
	w := newWorld(t)
	w.booting(func(n *metal.Node) { n.Interfaces = map[string]string{"deploy": "fake"} })
	w.want(404, "POST", "/v1/heartbeat/n1", "1.68", heartbeatBody("callback_url", "", "agent_version", "1", "agent_token", "wrong"))
}

// TestTokenlessHeartbeatReadsNoRow: what is refused in any case costs the database nothing.
func TestTokenlessHeartbeatReadsNoRow(t *testing.T) {
	w := newWorld(t)
	w.booting(nil)
	w.store.Close()
	w.want(400, "POST", "/v1/heartbeat/"+nodeID, "1.22", heartbeatBody("callback_url", "http://a"))
}

// TestLegacyHeartbeatTellsNoStrangerWhichNodesThereAre: an agent without a token gets one refusal, whatever the node.
func TestLegacyHeartbeatTellsNoStrangerWhichNodesThereAre(t *testing.T) {
	w := newWorld(t)
	w.booting(nil)
	w.config.LegacyPassthru = true
	w.handler = ironic.New(w.config)
	answers := map[string]bool{}
	for _, ident := range []string{nodeID, "n1", "nope"} {
		a := w.ask(http.MethodPost, "/v1/nodes/"+ident+"/vendor_passthru/heartbeat", "", `{"agent_url":"http://192.0.2.1:9999"}`)
		if a.Status != 400 {
			t.Errorf("%s: %d %s", ident, a.Status, a.Body)
		}
		answers[a.Body] = true
	}
	if len(answers) != 1 {
		t.Errorf("known and unknown nodes are answered differently: %v", answers)
	}
}
