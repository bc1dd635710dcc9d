package fault

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/client"
	"salvor/test/must"
)

// TestBadRamdisks: whoever is no ramdisk of this boot gets a 4xx and changes nothing.
func TestBadRamdisks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m := w.newMachine(t)
	must.OK(t, m.active(ctx))
	m.deaf = true // its ramdisk stays silent: only wrong ones are heard
	must.OK(t, m.provision(ctx, "rescue"))
	before := must.Get(m.wait(ctx, func(n *client.Node) bool { return n.ProvisionState == "rescue wait" }))(t)
	a := newAsker(t, w.server.URL)
	beat := func(node, version, body string) int {
		status, _ := a.fire(shot{method: "POST", target: "/v1/heartbeat/" + node, version: version, body: body})
		if status < 400 || status >= 500 {
			t.Errorf("heartbeat of %s at %s with %.200q: %d", node, version, body, status)
		}
		return status
	}
	good := "http://192.0.2.1:9999"
	for _, token := range []any{"wrong", "", nil, strings.Repeat("x", 600), 7, "\x00", "******"} {
		beat(m.id, "1.82", encode(map[string]any{"callback_url": good, "agent_version": "9", "agent_token": token}))
	}
	for _, u := range callbacks {
		beat(m.id, "1.82", encode(map[string]any{"callback_url": u, "agent_version": "9", "agent_token": m.token(t)}))
	}
	for _, node := range []string{"nope", "00000000-0000-0000-0000-000000000000", "%00", strings.Repeat("x", 300)} {
		if status := beat(node, "1.82", encode(map[string]any{"callback_url": good, "agent_version": "9", "agent_token": "x"})); node != "%00" && status != 404 {
			t.Errorf("heartbeat of %.20s: %d", node, status)
		}
	}
	for _, version := range []string{"", "1.21", "1.83", "2.1", "x"} {
		beat(m.id, version, encode(map[string]any{"callback_url": good, "agent_version": "9", "agent_token": "x"}))
	}
	for _, query := range []string{"", "?", "?addresses=", "?addresses=52:54:00:ff:ff:ff", "?addresses=nonsense", "?node_uuid=x", "?node_uuid=00000000-0000-0000-0000-000000000000",
		"?addresses=" + strings.Repeat("52:54:00:ff:ff:ff,", 500), "?bogus=1", "?addresses=%00", "?node_uuid=%ff", "?node_uuid=" + m.id + "&bogus=1"} {
		if status, body := a.fire(shot{method: "GET", target: "/v1/lookup" + query, version: "1.82"}); status < 400 || status >= 500 {
			t.Errorf("lookup %.100s: %d %s", query, status, body)
		}
	}
	after := must.Get(w.api.Node(ctx, m.id))(t)
	if after.ProvisionState != before.ProvisionState || after.LastError != "" || after.Reservation != "" {
		t.Errorf("the node is in %q, locked by %q, error %q", after.ProvisionState, after.Reservation, after.LastError)
	}
	w.noSecrets(t, "log", w.server.Log())
}

// token is what the medium in the drive carries.
func (m *machine) token(t *testing.T) string {
	token := must.Get(tokenOf(t.Context(), m.bmc.Image()))(t)
	return token
}

// TestRamdiskDoor: the listener for ramdisks serves its doors and nothing else.
func TestRamdiskDoor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	found := regexp.MustCompile(`msg=listening door=ramdisk address=(\S+)`)
	var base string
	for end := time.Now().Add(promptly); base == ""; time.Sleep(10 * time.Millisecond) {
		if m := found.FindStringSubmatch(w.server.Log()); m != nil {
			base = "http://" + m[1]
		} else if time.Now().After(end) {
			t.Fatal("no ramdisk door")
		}
	}
	n := must.Get(w.api.CreateNode(t.Context(), client.Record{"driver": "fake-hardware", "name": "n1"}))(t)
	w.server.AwaitLog(t, "legacy_ramdisk_passthru is deprecated")
	a := newAsker(t, base)
	open := []string{"/", "/v1", "/v1/lookup", "/v1/heartbeat/{}", "/v1/drivers/{}/vendor_passthru/lookup", "/v1/nodes/{}/vendor_passthru/heartbeat"}
	for _, route := range routes {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			target := strings.ReplaceAll(route, "{}", n.UUID)
			status, body := a.fire(shot{method: method, target: target, version: "1.82", body: `{"target":"manage"}`})
			if door := slices.Contains(open, route); !door && status != http.StatusNotFound || door && (status < 400 && method != "GET") {
				t.Errorf("%s %s: %d %.200s", method, target, status, body)
			}
			if bytes.Contains(body, []byte(n.UUID)) && status < 300 {
				t.Errorf("%s %s tells of the node: %.300s", method, target, body)
			}
		}
	}
	for _, path := range []string{"/boot/x/kernel", "/boot/../../etc/passwd", "/boot/%2e%2e/%2e%2e/etc/passwd", "/boot/", "/boot//", "/boot/" + strings.Repeat("a", 32) + "/boot.iso",
		"/boot/" + strings.Repeat("a", 32) + "/../x", "/boot/%00/kernel", "/boot/" + strings.Repeat("x", 5000), "/tftpboot/ipxe.efi", "/debug/pprof/", "/secrets.key", "/metrics"} {
		for _, method := range []string{"GET", "HEAD", "PUT", "POST"} {
			for _, door := range []string{base, w.server.URL} {
				if path == "/metrics" && door != base { // of the API, where without authentication everybody may read them
					continue
				}
				if err := notServed(method, door, path); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// notServed asks for a path as it stands, dots and all.
func notServed(method, base, path string) error {
	status, err := raw(base, method+" "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	if err != nil || status < 300 || status >= 500 {
		return fmt.Errorf("%s %.60s: %d, %v", method, path, status, err)
	}
	return nil
}
