package node

import (
	"context"
	"strings"
	"testing"
	"time"

	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
)

// TestTimeoutTellsOfRefusedHeartbeats: last_error says how many heartbeats of the boot were refused, and why the last one was.
// What a stranger says without the token is counted, never quoted.
func TestTimeoutTellsOfRefusedHeartbeats(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.nodes = metal.NewNodes(b.store, b.store, b.key, metal.NewDirectory(b.store, time.Now, 0, 0), metal.Options{RestrictLookup: true, Callback: func(host string, _ uint16) error {
		return problem.Invalidf("address %s may not be connected to", host)
	}}, time.Now)
	// Maintenance holds the clock of the wait until the heartbeats have come.
	b.con.Nodes, b.con.RescueTimeout, b.con.GoOnInMaintenance = b.nodes, time.Second, true
	b.start(t, metal.ToRescue)
	b.maintenance(t, true)
	b.run(t)
	n := b.until(t, metal.RescueWait)
	for _, h := range []metal.Heartbeat{
		{URL: "http://10.0.0.8:9999", Version: "1", Token: n.AgentToken(b.key)},
		{URL: "http://10.0.0.9:9999", Version: "1", Token: n.AgentToken(b.key)},
		{URL: "http://stranger.example:9999", Version: "1", Token: secret.New("guessed")},
		{URL: "http://stranger.example:9999", Version: "1"},
	} {
		if err := b.nodes.Heartbeat(context.Background(), b.node, h); err == nil {
			t.Fatalf("a heartbeat from %s was taken", h.URL)
		}
	}
	must.OK(t, b.nodes.FlushHeartbeats(context.Background()))
	b.maintenance(t, false)
	n = b.until(t, metal.RescueFailed)
	for _, text := range []string{"Timeout reached", "2 heartbeats were refused, the last one because", "10.0.0.9", "2 calls were refused because the token"} {
		if !strings.Contains(n.LastError, text) {
			t.Errorf("last_error %q does not contain %q", n.LastError, text)
		}
	}
	if strings.Contains(n.LastError, "stranger") {
		t.Errorf("last_error %q quotes a stranger", n.LastError)
	}
}

// TestFindingsWithoutTheTokenAreCounted: a ramdisk that brings what it found without the token of its boot does not vanish without a word.
func TestFindingsWithoutTheTokenAreCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Manageable)
	b.agent = newFakeAgent()
	change(t, b, func(n *metal.Node) { n.Interfaces = map[string]string{"inspect": "ramdisk"} })
	b.run(t)
	b.start(t, metal.Inspect)
	n := b.until(t, metal.InspectWait)
	if _, err := b.nodes.ContinueInspection(t.Context(), metal.Sighting{NodeID: b.node}, []byte(`{}`), []byte(`{}`)); !problem.Is(err, problem.NotFound) {
		t.Fatalf("findings without a token: %v", err)
	}
	must.OK(t, b.nodes.FlushHeartbeats(t.Context()))
	contact, err := b.store.Contact(t.Context(), nil, b.node)
	if text := contact.RefusedWords(n.BootNumber); err != nil || !strings.HasPrefix(text, "1 call was refused because the token of this boot was missing or wrong") {
		t.Errorf("%q, %v", text, err)
	}
}
