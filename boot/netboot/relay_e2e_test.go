//go:build e2e

package netboot

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"salvor/test/must"
)

// TestRelayedRequest is a relay in another network namespace: the answer leaves our
// socket for its address on the far network, with the relay's option sent back.
func TestRelayedRequest(t *testing.T) {
	makeBridge(t)
	far := Range{Network: netip.MustParsePrefix("198.51.100.0/24"), From: netip.MustParseAddr("198.51.100.10"), To: netip.MustParseAddr("198.51.100.20")}
	s, err := New(Config{Plans: &plans{node: testNode()}, HTTPPort: 80, Interfaces: []Interface{{Name: bridge, Mode: Authoritative, Ranges: []Range{bootNet, far}}}})
	if err != nil {
		t.Fatal(err)
	}
	relay := newRelay(t)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })

	mac, _ := net.ParseMAC(testMAC)
	req, err := dhcpv4.NewDiscovery(mac, dhcpv4.WithRelay(net.IPv4(198, 51, 100, 1)), firmware("PXEClient", 7),
		dhcpv4.WithOption(dhcpv4.OptRelayAgentInfo(dhcpv4.OptGeneric(dhcpv4.AgentCircuitIDSubOption, []byte("rack 7")))))
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, maxPacket)
	for range 20 { // a server that is only starting does not hear the first
		must.Get(relay.WriteTo(req.ToBytes(), &net.UDPAddr{IP: net.IPv4(10, 77, 0, 1), Port: portServer}))(t)
		must.OK(t, relay.SetReadDeadline(time.Now().Add(500*time.Millisecond)))
		n, from, err := relay.ReadFrom(buf)
		if err != nil {
			continue
		}
		resp, err := dhcpv4.FromBytes(buf[:n])
		if err != nil {
			t.Fatal(err)
		}
		if from.String() != "10.77.0.1:67" || !far.Network.Contains(toAddr(resp.YourIPAddr)) || resp.BootFileName != testPath+"/snponly.efi" ||
			string(resp.RelayAgentInfo().Get(dhcpv4.AgentCircuitIDSubOption)) != "rack 7" {
			t.Errorf("from %s: %s", from, resp.Summary())
		}
		return
	}
	t.Fatal("no answer")
}

// newRelay gives the socket of a relay agent that is on our network and on a far one.
func newRelay(t *testing.T) net.PacketConn {
	t.Helper()
	ip := func(args string) error {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s (package iproute2)", args, err, out)
		}
		return nil
	}
	for _, args := range []string{
		"link add veth-relay type veth peer name veth-bridge", "link set veth-bridge master " + bridge + " up",
		"route add 198.51.100.0/24 via 10.77.0.2",
	} {
		must.OK(t, ip(args))
	}
	t.Cleanup(func() { _ = ip("link del veth-bridge") })
	veth := must.Get(netlink.LinkByName("veth-relay"))(t)
	type result struct {
		conn net.PacketConn
		err  error
	}
	done := make(chan result)
	go func() {
		// The thread dies with this goroutine; the socket keeps the namespace.
		runtime.LockOSThread()
		conn, err := func() (net.PacketConn, error) {
			home, err := netns.Get()
			if err != nil {
				return nil, err
			}
			defer home.Close()
			ns, err := netns.New()
			if err != nil {
				return nil, err
			}
			defer ns.Close()
			at, err := netlink.NewHandleAt(home)
			if err != nil {
				return nil, err
			}
			defer at.Close()
			if err := at.LinkSetNsFd(veth, int(ns)); err != nil {
				return nil, err
			}
			for _, args := range []string{
				"link set lo up", "address add 198.51.100.1/24 dev lo", "address add 10.77.0.2/24 dev veth-relay", "link set veth-relay up",
			} {
				if err := ip(args); err != nil {
					return nil, err
				}
			}
			return net.ListenPacket("udp4", "0.0.0.0:67")
		}()
		done <- result{conn, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { r.conn.Close() })
	return r.conn
}
