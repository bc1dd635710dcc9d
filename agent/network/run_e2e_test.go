//go:build e2e

package network

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"salvor/problem"
	"salvor/test/must"
)

// The machine of these tests is a network namespace: every test runs in a child of
// its own, and the switch with its DHCP servers is one more namespace beside it.
const inMachine = "SALVOR_TEST_MACHINE"

func machine(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inMachine) == t.Name() {
		return true
	}
	for _, tool := range []string{"dnsmasq", "ip", "nsenter", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is missing: install dnsmasq-base, iproute2 and util-linux", tool)
		}
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	child.Env = append(os.Environ(), inMachine+"="+t.Name())
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := child.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	return false
}

// bench is the switch that the machine's NICs are plugged into.
type bench struct {
	t    *testing.T
	pid  string
	dir  string
	root string // of the last run
}

func sh(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func newBench(t *testing.T) *bench {
	t.Helper()
	holder := exec.Command("unshare", "-n", "sleep", "600")
	holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.OK(t, holder.Start())
	t.Cleanup(func() { _ = holder.Process.Kill(); _ = holder.Wait() })
	b := &bench{t: t, pid: fmt.Sprint(holder.Process.Pid), dir: t.TempDir()}
	own := must.Get(os.Readlink("/proc/self/ns/net"))(t)
	for range 500 { // until unshare has done its work
		if other, err := os.Readlink("/proc/" + b.pid + "/ns/net"); err == nil && other != own {
			b.in("ip", "link", "set", "lo", "up")
			sh(t, "ip", "link", "set", "lo", "up")
			return b
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the switch's namespace does not come up")
	return nil
}

func (b *bench) in(args ...string) string {
	b.t.Helper()
	return sh(b.t, "nsenter", append([]string{"-t", b.pid, "-n"}, args...)...)
}

// bridge is one network, with a DHCP server if there is a range.
func (b *bench) bridge(name, address, dhcpRange string) {
	b.t.Helper()
	b.in("ip", "link", "add", name, "type", "bridge")
	b.in("ip", "addr", "add", address, "dev", name)
	b.in("ip", "link", "set", name, "up")
	if dhcpRange == "" {
		return
	}
	server := exec.Command("nsenter", "-t", b.pid, "-n", "dnsmasq", "-k", "-C", "/dev/null", "-i", name, "--bind-interfaces",
		"--port=0", "--no-ping", "-F", dhcpRange, "--dhcp-leasefile="+filepath.Join(b.dir, name), "--pid-file=", "--dhcp-option=6,192.0.2.53")
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var output bytes.Buffer
	server.Stderr = &output
	must.OK(b.t, server.Start())
	b.t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	for range 500 {
		if strings.Contains(b.in("ss", "-Hlunp"), ":67 ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.t.Fatalf("dnsmasq does not listen: %s", output.String())
}

// nic plugs a NIC of the machine into a network.
func (b *bench) nic(name, mac, bridge string) {
	b.t.Helper()
	sh(b.t, "ip", "link", "add", name, "address", mac, "type", "veth", "peer", "name", "p-"+name, "netns", b.pid)
	b.move(name, bridge)
	sh(b.t, "ip", "link", "set", name, "up")
}

func (b *bench) move(name, bridge string) {
	b.t.Helper()
	b.in("ip", "link", "set", "p-"+name, "master", bridge)
	b.in("ip", "link", "set", "p-"+name, "up")
}

// run applies a plan; the result is what ssh is to listen on.
func (b *bench) run(plan Plan, drives func() ([]byte, error)) (string, time.Duration) {
	b.t.Helper()
	root := b.t.TempDir()
	b.root = root
	var err error
	if plan.Before == nil {
		if plan.Before, err = Leases(root); err != nil {
			b.t.Fatal(err)
		}
	}
	must.OK(b.t, WritePlan(root, plan))
	if drives == nil {
		drives = func() ([]byte, error) { return nil, problem.NotFoundf("no drive") }
	}
	begun := time.Now()
	s := &Setup{Root: root, Log: slog.New(slog.NewTextHandler(os.Stdout, nil)), drives: drives}
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	must.OK(b.t, s.Run(ctx))
	took := time.Since(begun)
	listen, err := os.ReadFile(filepath.Join(root, ListenFile))
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, PlanFile)); err == nil {
		b.t.Error("the plan is still there")
	}
	return string(listen), took
}

const (
	mac0 = "52:54:00:aa:00:01"
	mac1 = "52:54:00:aa:00:02"
)

func within(t *testing.T, listen, prefix string) {
	t.Helper()
	a, err := netip.ParseAddr(strings.TrimSpace(listen))
	if err != nil || !netip.MustParsePrefix(prefix).Contains(a) {
		t.Errorf("ssh listens on %q, want one address of %s", listen, prefix)
	}
}

func TestMovedPort(t *testing.T) {
	if !machine(t) {
		return
	}
	b := newBench(t)
	b.bridge("resc", "10.77.0.1/24", "10.77.0.50,10.77.0.60")
	b.bridge("tenant", "10.78.0.1/24", "10.78.0.50,10.78.0.60")
	b.nic("n0", mac0, "resc")
	sh(t, "ip", "addr", "add", "10.77.0.55/24", "dev", "n0")
	sh(t, "ip", "route", "add", "default", "via", "10.77.0.1")
	begun := time.Now()
	timer := time.AfterFunc(1500*time.Millisecond, func() { b.move("n0", "tenant") })
	defer timer.Stop()
	listen, _ := b.run(Plan{Move: MoveYes}, nil)
	took := time.Since(begun)
	within(t, listen, "10.78.0.0/24")
	if took < 1400*time.Millisecond || took > 20*time.Second {
		t.Errorf("took %v", took)
	}
	if got := sh(t, "ip", "-4", "addr", "show", "dev", "n0"); strings.Contains(got, "10.77.") {
		t.Errorf("the rescuing network's address is still held:\n%s", got)
	}
	if got := sh(t, "ip", "route"); !strings.Contains(got, "default via 10.78.0.1") || strings.Contains(got, "10.77.") {
		t.Errorf("routes:\n%s", got)
	}
	leased, err := os.ReadFile(filepath.Join(b.dir, "resc"))
	if err == nil && len(leased) > 0 {
		t.Errorf("a lease of the rescuing network was requested: %s", leased)
	}
}

// Both networks use one subnet: only the server tells them apart.
func TestMovedPortSameSubnet(t *testing.T) {
	if !machine(t) {
		return
	}
	b := newBench(t)
	b.bridge("resc", "10.77.0.1/24", "10.77.0.50,10.77.0.60")
	b.bridge("tenant", "10.77.0.2/24", "10.77.0.70,10.77.0.80")
	b.nic("n0", mac0, "resc")
	sh(t, "ip", "addr", "add", "10.77.0.55/24", "dev", "n0")
	timer := time.AfterFunc(time.Second, func() { b.move("n0", "tenant") })
	defer timer.Stop()
	listen, _ := b.run(Plan{Move: MoveYes, Before: []Lease{{MAC: mac0, Addresses: []string{"10.77.0.55/24"}, Server: "10.77.0.1"}}}, nil)
	within(t, listen, "10.77.0.64/27")
}

func TestPortStays(t *testing.T) {
	if !machine(t) {
		return
	}
	b := newBench(t)
	b.bridge("flat", "10.77.0.1/24", "10.77.0.50,10.77.0.60")
	b.nic("n0", mac0, "flat")
	b.nic("n1", mac1, "flat")
	listen, took := b.run(Plan{Move: MoveNo, SSHInterfaces: []string{mac1}}, nil)
	within(t, listen, "10.77.0.0/24")
	if took > unknownMove-time.Second {
		t.Errorf("took %v", took)
	}
	if got := sh(t, "ip", "-4", "addr", "show", "dev", "n1"); !strings.Contains(got, strings.TrimSpace(listen)+"/") {
		t.Errorf("ssh listens on %s, which is not on n1:\n%s", listen, got)
	}
}

// Under another server nobody says whether the port moves: what there is is taken
// after ten seconds.
func TestUnknownMove(t *testing.T) {
	if !machine(t) {
		return
	}
	b := newBench(t)
	b.bridge("flat", "10.77.0.1/24", "10.77.0.50,10.77.0.60")
	b.nic("n0", mac0, "flat")
	sh(t, "ip", "addr", "add", "10.77.0.55/24", "dev", "n0")
	listen, took := b.run(Plan{Move: MoveUnknown}, nil)
	within(t, listen, "10.77.0.0/24")
	if took < unknownMove || took > unknownMove+15*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestStatic(t *testing.T) {
	if !machine(t) {
		return
	}
	b := newBench(t)
	b.bridge("tenant", "10.78.0.1/24", "")
	b.nic("n0", mac0, "tenant")
	b.nic("n1", mac1, "tenant")
	sh(t, "ip", "addr", "add", "10.77.0.55/24", "dev", "n0")
	sh(t, "ip", "addr", "add", "10.77.0.56/24", "dev", "n1")
	data := `{"links":[{"id":"e0","type":"phy","ethernet_mac_address":"` + mac0 + `","mtu":1400}],
	 "networks":[
	 {"id":"a","type":"ipv4","link":"e0","ip_address":"10.79.0.5","netmask":"255.255.255.0","routes":[
	  {"network":"0.0.0.0","netmask":"0.0.0.0","gateway":"10.79.0.1"},{"network":"192.0.2.0/24","gateway":"172.16.0.1"}]},
	 {"id":"c","type":"ipv6","link":"e0","ip_address":"2001:db8::5/64","gateway":"2001:db8::1"}],
	 "services":[{"type":"dns","address":"192.0.2.53"}]}`
	drives := func() ([]byte, error) { return []byte(data), nil }
	listen, took := b.run(Plan{Move: MoveYes, SSHInterfaces: []string{mac0}}, drives)
	lines := strings.Fields(listen)
	slices.Sort(lines)
	if !slices.Equal(lines, []string{"10.79.0.5", "2001:db8::5"}) || took > unknownMove-time.Second {
		t.Errorf("ssh listens on %q after %v", lines, took)
	}
	if got := sh(t, "ip", "link", "show", "dev", "n0"); !strings.Contains(got, "mtu 1400") {
		t.Errorf("link:\n%s", got)
	}
	// A gateway outside of its subnet is reached on the link; what the rescuing network
	// gave is gone, on the NIC that the config does not name too.
	got := sh(t, "ip", "route")
	if !strings.Contains(got, "default via 10.79.0.1") || !strings.Contains(got, "192.0.2.0/24 via 172.16.0.1") || strings.Contains(got, "10.77.") {
		t.Errorf("routes:\n%s", got)
	}
	if got := sh(t, "ip", "-6", "route"); !strings.Contains(got, "default via 2001:db8::1") {
		t.Errorf("routes:\n%s", got)
	}
}

// A config that names a NIC which is not there must not cost the rescue.
func TestFallsBackToDHCP(t *testing.T) {
	if !machine(t) {
		return
	}
	b := newBench(t)
	b.bridge("tenant", "10.78.0.1/24", "10.78.0.50,10.78.0.60")
	b.nic("n0", mac0, "tenant")
	data := `{"links":[{"id":"e0","type":"phy","ethernet_mac_address":"` + mac0 + `"},
	 {"id":"e9","type":"phy","ethernet_mac_address":"52:54:00:99:99:99"}],
	 "networks":[{"id":"a","type":"ipv4_dhcp","link":"e9"}]}`
	listen, _ := b.run(Plan{Move: MoveNo, NetworkData: []byte(data)}, nil)
	within(t, listen, "10.78.0.0/24")
}

// far is an address behind the routers of the bench: answers to it take a default route.
const far = "192.0.2.99"

// reach connects from outside, from the source address if one is given, to what ssh listens on.
func (b *bench) reach(listen, source string) error {
	l, err := net.Listen("tcp", net.JoinHostPort(listen, "0"))
	if err != nil {
		return err
	}
	defer l.Close()
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and its namespace with it
		result <- b.dial(l.Addr().String(), source)
	}()
	return <-result
}

func (b *bench) dial(to, source string) error {
	space, err := os.Open("/proc/" + b.pid + "/ns/net")
	if err != nil {
		return err
	}
	defer space.Close()
	if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	d := net.Dialer{Timeout: 3 * time.Second}
	if source != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
	}
	conn, err := d.Dial("tcp", to)
	if err != nil {
		return err
	}
	return conn.Close()
}

func leftOut(t *testing.T, root string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, LeftOutFile))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestUnusedPortGone: a listed port that is not there costs its own network only, and is told.
func TestUnusedPortGone(t *testing.T) {
	if !machine(t) {
		return
	}
	b := newBench(t)
	b.bridge("tenant", "198.51.100.1/24", "")
	b.nic("n0", mac0, "tenant")
	data := `{"links":[{"id":"p1","type":"phy","ethernet_mac_address":"` + mac0 + `"},{"id":"p2","type":"phy","ethernet_mac_address":"52:54:00:99:99:99"}],
	 "networks":[{"id":"n0","type":"ipv4","link":"p1","ip_address":"198.51.100.21","netmask":"255.255.255.0","routes":[{"network":"0.0.0.0","netmask":"0.0.0.0","gateway":"198.51.100.1"}]},
	  {"id":"n1","type":"ipv4_dhcp","link":"p2"}]}`
	listen, took := b.run(Plan{Move: MoveYes, NetworkData: []byte(data)}, nil)
	if strings.TrimSpace(listen) != "198.51.100.21" || took > time.Second {
		t.Errorf("ssh listens on %q after %v", listen, took)
	}
	if told := leftOut(t, b.root); !strings.Contains(told, "52:54:00:99:99:99") || !strings.Contains(told, `"n1"`) {
		t.Errorf("left out: %q", told)
	}
}

// TestTwoGateways: both default routes stay, and an answer leaves by the network that its address belongs to.
func TestTwoGateways(t *testing.T) {
	if !machine(t) {
		return
	}
	b := newBench(t)
	b.bridge("one", "198.51.100.1/24", "")
	b.bridge("two", "203.0.113.1/24", "")
	b.nic("n0", mac0, "one")
	b.nic("n1", mac1, "two")
	b.in("ip", "addr", "add", far+"/32", "dev", "lo")
	// As the routers of two providers do, the bench drops what comes from a foreign address.
	for _, name := range []string{"all", "one", "two"} {
		b.in("sysctl", "-qw", "net.ipv4.conf."+name+".rp_filter=1")
	}
	data := `{"links":[{"id":"p1","type":"phy","ethernet_mac_address":"` + mac0 + `"},{"id":"p2","type":"phy","ethernet_mac_address":"` + mac1 + `"}],
	 "networks":[{"id":"n0","type":"ipv4","link":"p1","ip_address":"198.51.100.23","netmask":"255.255.255.0","routes":[{"network":"0.0.0.0","netmask":"0.0.0.0","gateway":"198.51.100.1"}]},
	  {"id":"n1","type":"ipv4","link":"p2","ip_address":"203.0.113.23","netmask":"255.255.255.0","routes":[{"network":"0.0.0.0","netmask":"0.0.0.0","gateway":"203.0.113.1"}]}]}`
	b.run(Plan{Move: MoveYes, NetworkData: []byte(data)}, nil)
	got := sh(t, "ip", "route")
	first, second := strings.Index(got, "default via 198.51.100.1"), strings.Index(got, "default via 203.0.113.1")
	if first < 0 || second < first {
		t.Errorf("want both default routes in the order of the data:\n%s", got)
	}
	for _, address := range []string{"198.51.100.23", "203.0.113.23"} {
		if err := b.reach(address, far); err != nil {
			t.Errorf("%s from afar: %v\n%s\n%s", address, err, sh(t, "ip", "rule"), got)
		}
	}
}

// TestTwoLeases: every link that asks gets its lease, and both default routes stay.
func TestTwoLeases(t *testing.T) {
	if !machine(t) {
		return
	}
	b := newBench(t)
	b.bridge("one", "10.77.0.1/24", "10.77.0.50,10.77.0.60")
	b.bridge("two", "10.78.0.1/24", "10.78.0.50,10.78.0.60")
	b.nic("n0", mac0, "one")
	b.nic("n1", mac1, "two")
	b.in("ip", "addr", "add", far+"/32", "dev", "lo")
	listen, _ := b.run(Plan{Move: MoveYes}, nil)
	lines := strings.Fields(listen)
	if len(lines) != 2 {
		t.Fatalf("ssh listens on %q, want two addresses", lines)
	}
	if got := sh(t, "ip", "route"); !strings.Contains(got, "default via 10.77.0.1") || !strings.Contains(got, "default via 10.78.0.1") {
		t.Errorf("routes:\n%s", got)
	}
	for _, address := range lines {
		if err := b.reach(address, far); err != nil {
			t.Errorf("%s from afar: %v", address, err)
		}
	}
}

// TestLateNIC: a NIC whose driver loads late gets its network, and ssh its address, after the others.
func TestLateNIC(t *testing.T) {
	if !machine(t) {
		return
	}
	b := newBench(t)
	b.bridge("tenant", "198.51.100.1/24", "")
	b.bridge("late", "203.0.113.1/24", "")
	b.nic("n0", mac0, "tenant")
	data := `{"links":[{"id":"p1","ethernet_mac_address":"` + mac0 + `"},{"id":"p2","ethernet_mac_address":"` + mac1 + `"}],
	 "networks":[{"id":"n0","type":"ipv4","link":"p1","ip_address":"198.51.100.21/24"},{"id":"n1","type":"ipv4","link":"p2","ip_address":"203.0.113.21/24"}]}`
	root := t.TempDir()
	must.OK(t, WritePlan(root, Plan{Move: MoveYes, NetworkData: []byte(data)}))
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	read := func(name string) string { return string(must.Get(os.ReadFile(filepath.Join(root, name)))(t)) }
	s := &Setup{Root: root, Log: slog.New(slog.NewTextHandler(os.Stdout, nil)), Ready: func() error {
		if got := read(ListenFile); got != "198.51.100.21\n" {
			t.Errorf("before: ssh listens on %q", got)
		}
		if got := read(LeftOutFile); !strings.Contains(got, mac1) || !strings.Contains(got, "203.0.113.21") {
			t.Errorf("before: left out %q", got)
		}
		b.nic("n1", mac1, "late")
		return nil
	}}
	must.OK(t, s.Run(ctx)) // it ends by itself once nothing is missing
	if got := read(ListenFile); got != "198.51.100.21\n203.0.113.21\n" || read(LeftOutFile) != "" {
		t.Errorf("after: ssh listens on %q, left out %q", got, read(LeftOutFile))
	}
	if err := b.reach("203.0.113.21", ""); err != nil {
		t.Error(err)
	}
}

// TestLateNICWithoutData: where no data say anything, a NIC whose driver loads late is asked for a lease as the others are.
func TestLateNICWithoutData(t *testing.T) {
	if !machine(t) {
		return
	}
	b := newBench(t)
	b.bridge("tenant", "10.78.0.1/24", "10.78.0.50,10.78.0.60")
	root := t.TempDir()
	must.OK(t, WritePlan(root, Plan{Move: MoveNo}))
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	s := &Setup{Root: root, Log: slog.New(slog.NewTextHandler(os.Stdout, nil)), tellAfter: time.Millisecond, drives: func() ([]byte, error) { return nil, problem.NotFoundf("no drive") }}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for { // the file is written once the agent waits for an address
		if _, err := os.Stat(filepath.Join(root, LeftOutFile)); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.nic("n0", mac0, "tenant")
	must.OK(t, <-ended)
	within(t, string(must.Get(os.ReadFile(filepath.Join(root, ListenFile)))(t)), "10.78.0.0/24")
}

// TestRouteOnLink: a route via 0.0.0.0 or :: leads to the link itself, and costs no other route.
func TestRouteOnLink(t *testing.T) {
	if !machine(t) {
		return
	}
	b := newBench(t)
	b.bridge("tenant", "198.51.100.1/24", "")
	b.in("ip", "addr", "add", "10.9.0.1/16", "dev", "tenant")
	b.nic("n0", mac0, "tenant")
	data := `{"links":[{"id":"p1","ethernet_mac_address":"` + mac0 + `"}],"networks":[
	  {"id":"n0","type":"ipv4","link":"p1","ip_address":"198.51.100.21/24","routes":[{"network":"10.9.0.0/16","gateway":"0.0.0.0"},{"network":"0.0.0.0/0","gateway":"198.51.100.1"}]},
	  {"id":"n1","type":"ipv6","link":"p1","ip_address":"2001:db8::5/64","routes":[{"network":"2001:db8:9::/48","gateway":"::"},{"network":"::/0","gateway":"2001:db8::1"}]}]}`
	b.run(Plan{Move: MoveYes, NetworkData: []byte(data)}, nil)
	if err := b.reach("198.51.100.21", "10.9.0.1"); err != nil {
		t.Error(err)
	}
	if got := sh(t, "ip", "route"); !strings.Contains(got, "10.9.0.0/16 dev n0") || !strings.Contains(got, "default via 198.51.100.1") {
		t.Errorf("routes:\n%s", got)
	}
	if got := sh(t, "ip", "-6", "route"); !strings.Contains(got, "2001:db8:9::/48 dev n0") || !strings.Contains(got, "default via 2001:db8::1") {
		t.Errorf("routes:\n%s", got)
	}
	if told := leftOut(t, b.root); told != "" {
		t.Errorf("left out: %q", told)
	}
}

// serve6 gives addresses by DHCPv6 only (managed), or name servers only.
func (b *bench) serve6(name, dhcpRange string) {
	b.t.Helper()
	server := exec.Command("nsenter", "-t", b.pid, "-n", "dnsmasq", "-k", "-C", "/dev/null", "-i", name, "--bind-interfaces", "--port=0", "--no-ping", "--enable-ra",
		"-F", dhcpRange, "--dhcp-leasefile="+filepath.Join(b.dir, name+"6"), "--pid-file=", "--dhcp-option=option6:dns-server,[2001:db8:26::53]", "--ra-param="+name+",1,600")
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.OK(b.t, server.Start())
	b.t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	for range 500 {
		if strings.Contains(b.in("ss", "-Hlunp"), ":547 ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.t.Fatal("dnsmasq does not listen")
}

func TestDHCPv6(t *testing.T) {
	if !machine(t) {
		return
	}
	b := newBench(t)
	b.in("sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
	b.bridge("tenant", "198.51.100.1/24", "")
	b.in("ip", "addr", "add", "2001:db8:26::1/64", "dev", "tenant", "nodad")
	b.nic("n0", mac0, "tenant")
	b.serve6("tenant", "2001:db8:26::100,2001:db8:26::1ff,64,1h")
	data := `{"links":[{"id":"p1","ethernet_mac_address":"` + mac0 + `"}],"networks":[{"id":"n0","type":"ipv6_dhcpv6-stateful","link":"p1"}]}`
	listen, _ := b.run(Plan{Move: MoveYes, NetworkData: []byte(data)}, nil)
	within(t, listen, "2001:db8:26::100/120")
	if got := string(must.Get(os.ReadFile(filepath.Join(b.root, resolver)))(t)); got != "nameserver 2001:db8:26::53\n" {
		t.Errorf("resolv.conf: %q", got)
	}
	if err := b.reach(strings.TrimSpace(listen), ""); err != nil {
		t.Error(err)
	}
	if given := string(must.Get(os.ReadFile(filepath.Join(b.dir, "tenant6")))(t)); !strings.Contains(given, strings.TrimSpace(listen)) {
		t.Errorf("leases of the server: %q, ssh listens on %q", given, listen)
	}
}

// TestDHCPv6Stateless: addresses by router advertisements, name servers by DHCPv6.
func TestDHCPv6Stateless(t *testing.T) {
	if !machine(t) {
		return
	}
	b := newBench(t)
	b.in("sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
	b.bridge("tenant", "198.51.100.1/24", "")
	b.in("ip", "addr", "add", "2001:db8:26::1/64", "dev", "tenant", "nodad")
	b.nic("n0", mac0, "tenant")
	b.serve6("tenant", "2001:db8:26::,ra-stateless,64")
	data := `{"links":[{"id":"p1","ethernet_mac_address":"` + mac0 + `"}],"networks":[{"id":"n0","type":"ipv6_dhcpv6-stateless","link":"p1"}]}`
	listen, _ := b.run(Plan{Move: MoveYes, NetworkData: []byte(data)}, nil)
	within(t, listen, "2001:db8:26::/64")
	if got := string(must.Get(os.ReadFile(filepath.Join(b.root, resolver)))(t)); got != "nameserver 2001:db8:26::53\n" {
		t.Errorf("resolv.conf: %q", got)
	}
}
