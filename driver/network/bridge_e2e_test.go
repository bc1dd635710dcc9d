//go:build e2e

package network

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/must"
)

const inside = "SALVOR_NETWORK_TEST_NAMESPACE"

// TestBridge runs itself again in a user and network namespace of its own, where it may make bridges.
func TestBridge(t *testing.T) {
	if os.Getenv(inside) == "" {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestBridge$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "PASS") {
			t.Fatalf("in a namespace: %v\n%s", err, out)
		}
		return
	}
	runtime.LockOSThread()
	for _, name := range []string{"br-prov", "br-rescue", "br-tenant", "br-other", "br-two"} {
		add(t, &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}})
	}
	for _, name := range []string{"tap0", "tap1", "tapown"} {
		add(t, &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name}, Mode: netlink.TUNTAP_MODE_TAP})
	}
	b := must.Get(NewBridge(bridges, "br-two"))(t)
	n := &metal.Node{ID: "n1"}
	ctx := t.Context()
	ports := []*metal.Port{port("tap0", nil), port("tap1", "br-two")}
	for range 2 {
		must.OK(t, b.Attach(ctx, n, ports, driver.Tenant))
	}
	want(t, "tap0", "br-tenant")
	want(t, "tap1", "br-two")
	reads(t, b, n, ports, driver.Tenant)
	reads(t, b, n, []*metal.Port{port("tap9", nil)})
	for range 2 {
		must.OK(t, b.Attach(ctx, n, ports, driver.Rescuing))
	}
	want(t, "tap0", "br-rescue")
	reads(t, b, n, ports, driver.Rescuing)
	// Off a network that it is not on: nothing happens.
	must.OK(t, b.Detach(ctx, n, ports, driver.Tenant))
	want(t, "tap0", "br-rescue")
	for range 2 {
		must.OK(t, b.Detach(ctx, n, ports, driver.Rescuing))
	}
	want(t, "tap0", "")
	reads(t, b, n, ports)
	refusals(t, b, n)
}

func reads(t *testing.T, b *Bridge, n *metal.Node, ports []*metal.Port, want ...driver.Net) {
	t.Helper()
	if got, err := b.Networks(t.Context(), n, ports); err != nil || !slices.Equal(got, want) {
		t.Errorf("networks %q %v, want %q", got, err, want)
	}
}

func refusals(t *testing.T, b *Bridge, n *metal.Node) {
	ctx := t.Context()
	own, _ := netlink.LinkByName("tapown")
	address, _ := netlink.ParseAddr("192.0.2.1/24")
	must.OK(t, netlink.AddrAdd(own, address))
	tap, _ := netlink.LinkByName("tap1")
	other, _ := netlink.LinkByName("br-other")
	must.OK(t, netlink.LinkSetMaster(tap, other))
	for link, kind := range map[string]problem.Kind{"tapown": problem.Invalid, "lo": problem.Invalid, "br-other": problem.Invalid, "tap1": problem.Conflict, "tap9": problem.Unavailable} {
		if err := b.Attach(ctx, n, []*metal.Port{port(link, nil)}, driver.Tenant); !problem.Is(err, kind) {
			t.Errorf("attach %s: %v, want %s", link, err, kind)
		}
	}
	want(t, "tap1", "br-other")
	if err := b.Attach(ctx, n, []*metal.Port{port("tap0", nil)}, driver.CleaningNet); !problem.Is(err, problem.Invalid) {
		t.Errorf("attach to a bridge that is not there: %v", err)
	}
	if err := b.Detach(ctx, n, []*metal.Port{port("tap9", nil)}, driver.Tenant); err != nil {
		t.Errorf("detach what is not there: %v", err)
	}
}

func add(t *testing.T, l netlink.Link) {
	t.Helper()
	must.OK(t, netlink.LinkAdd(l))
}

func want(t *testing.T, link, bridge string) {
	t.Helper()
	l := must.Get(netlink.LinkByName(link))(t)
	got := ""
	if index := l.Attrs().MasterIndex; index != 0 {
		master := must.Get(netlink.LinkByIndex(index))(t)
		got = master.Attrs().Name
	}
	if got != bridge {
		t.Fatalf("%s is on %q, want %q", link, got, bridge)
	}
}
