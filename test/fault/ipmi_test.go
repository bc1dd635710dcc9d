package fault

import (
	"context"
	"net"
	"strings"
	"testing"

	"salvor/client"
	"salvor/test/must"
)

// TestBadIPMI: a BMC that is not there, deaf or mad on UDP fails the verification in time.
func TestBadIPMI(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, answer := range map[string]func(net.PacketConn){
		"refused": func(c net.PacketConn) { c.Close() },
		"silent":  func(net.PacketConn) {},
		"rubbish": func(c net.PacketConn) {
			for packet := make([]byte, 2048); ; {
				n, from, err := c.ReadFrom(packet)
				if err != nil {
					return
				}
				for _, text := range []string{"", "\x06", "\x06\x00\xff\x07" + strings.Repeat("\xff", 60), string(packet[:n]), ipmiPassword} {
					_, _ = c.WriteTo([]byte(text), from)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			conn := must.Get(net.ListenPacket("udp", "127.0.0.1:0"))(t)
			t.Cleanup(func() { conn.Close() })
			go answer(conn)
			address := conn.LocalAddr().(*net.UDPAddr)
			n := must.Get(w.api.CreateNode(ctx, client.Record{"driver": "ipmi", "network_interface": "noop", "driver_info": map[string]any{
				"ipmi_address": "127.0.0.1", "ipmi_port": address.Port, "ipmi_username": "admin", "ipmi_password": ipmiPassword,
			}}))(t)
			m := &machine{t: t, w: w, id: n.UUID}
			must.OK(t, m.provision(ctx, "manage"))
			n = m.settle(ctx, t, func(n *client.Node) bool { return n.LastError != "" })
			if n.ProvisionState != "enroll" {
				t.Errorf("in state %q", n.ProvisionState)
			}
			for _, words := range []string{"Failed to manage: ", "read power of node " + m.id, "ipmi 127.0.0.1", afterEnroll} {
				if !strings.Contains(n.LastError, words) {
					t.Errorf("last_error does not say %q: %s", words, n.LastError)
				}
			}
			if testing.Verbose() {
				t.Log(n.LastError)
			}
			w.noSecrets(t, "last_error", n.LastError)
			w.noSecrets(t, "history", m.history(ctx, t))
		})
	}
}
