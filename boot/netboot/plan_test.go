package netboot

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
)

const (
	testMAC   = "52:54:00:12:34:56"
	testPath  = "p4Th_of-this-boot"
	testToken = "s3cret-agent-t0ken"
)

// plans is a store of one node.
type plans struct {
	mu      sync.Mutex
	node    *metal.Node
	err     error
	queries int
}

func (p *plans) get(match func(*metal.BootPlan) bool) (*metal.Node, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queries++
	if p.err != nil {
		return nil, p.err
	}
	if p.node == nil || p.node.Plan == nil || !match(p.node.Plan) {
		return nil, problem.NotFoundf("no such plan")
	}
	return p.node, nil
}

func (p *plans) NodeByMAC(_ context.Context, mac string) (*metal.Node, error) {
	return p.get(func(b *metal.BootPlan) bool { return slices.Contains(b.MACs, mac) })
}

func (p *plans) NodeByBootPath(_ context.Context, path string) (*metal.Node, error) {
	return p.get(func(b *metal.BootPlan) bool { return b.Path == path })
}

func testNode() *metal.Node {
	return &metal.Node{ID: "n1", BootNumber: 3, Plan: &metal.BootPlan{
		Method: metal.BootIPXE, Path: testPath, Kernel: "/k/kernel", Ramdisk: "/k/ramdisk", BootNumber: 3,
		Params: []string{"ipa-api-url=http://192.0.2.1:6385", "console=ttyS0"}, CarryToken: true, MACs: []string{testMAC},
	}}
}

func testTokenOf(*metal.Node) secret.Value { return secret.New(testToken) }

var testRange = Range{
	Network: netip.MustParsePrefix("192.0.2.0/24"), From: netip.MustParseAddr("192.0.2.10"), To: netip.MustParseAddr("192.0.2.19"),
	Gateway: netip.MustParseAddr("192.0.2.254"), DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53")},
}

func TestParamsCarryTheTokenOnlyWhereThePlanSays(t *testing.T) {
	n := testNode()
	line, err := kernelParams(n, n.Plan, testTokenOf)
	if err != nil || line != "ipa-api-url=http://192.0.2.1:6385 console=ttyS0 ipa-agent-token="+testToken {
		t.Errorf("%q, %v", line, err)
	}
	n.Plan.CarryToken = false
	if line, err := kernelParams(n, n.Plan, testTokenOf); err != nil || strings.Contains(line, "token") {
		t.Errorf("%q, %v", line, err)
	}
}

func TestPlanOfAnotherBootIsNone(t *testing.T) {
	n := testNode()
	if _, err := currentPlan(n); err != nil {
		t.Error(err)
	}
	n.BootNumber++
	if _, err := currentPlan(n); !problem.Is(err, problem.NotFound) {
		t.Error(err)
	}
	n.Plan = nil
	if _, err := currentPlan(n); !problem.Is(err, problem.NotFound) {
		t.Error(err)
	}
}

func TestNewRefuses(t *testing.T) {
	good := Interface{Name: "br0", Mode: Authoritative, Ranges: []Range{testRange}}
	for name, cfg := range map[string]Config{
		"no plans":        {},
		"relative root":   {Plans: &plans{}, Roots: []string{"x"}},
		"loader path":     {Plans: &plans{}, BIOSLoader: "../x"},
		"hidden loader":   {Plans: &plans{}, UEFILoader: "..x"},
		"no name":         {Plans: &plans{}, Interfaces: []Interface{{Mode: Proxy}}},
		"no mode":         {Plans: &plans{}, Interfaces: []Interface{{Name: "br0"}}},
		"no range":        {Plans: &plans{}, Interfaces: []Interface{{Name: "br0", Mode: Authoritative}}},
		"twice, not same": {Plans: &plans{}, Interfaces: []Interface{good, {Name: "br0", Mode: Proxy}}},
		"short lease":     {Plans: &plans{}, Interfaces: []Interface{{Name: "br0", Mode: Proxy, LeaseTime: time.Second}}},
		"range elsewhere": {Plans: &plans{}, Interfaces: []Interface{{Name: "br0", Mode: Authoritative, Ranges: []Range{{Network: testRange.Network, From: testRange.From, To: netip.MustParseAddr("192.0.3.1")}}}}},
		"huge range":      {Plans: &plans{}, Interfaces: []Interface{{Name: "br0", Mode: Authoritative, Ranges: []Range{{Network: netip.MustParsePrefix("10.0.0.0/8"), From: netip.MustParseAddr("10.0.0.1"), To: netip.MustParseAddr("10.9.0.1")}}}}},
		"IPv6 range":      {Plans: &plans{}, Interfaces: []Interface{{Name: "br0", Mode: Authoritative, Ranges: []Range{{Network: netip.MustParsePrefix("fd00::/64")}}}}},
	} {
		if _, err := New(cfg); !problem.Is(err, problem.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Config{Plans: &plans{}, Interfaces: []Interface{good}}); err != nil {
		t.Error(err)
	}
}

func TestInterfaceListedAgainAddsItsRanges(t *testing.T) {
	far := Range{Network: netip.MustParsePrefix("198.51.100.0/24"), From: netip.MustParseAddr("198.51.100.10"), To: netip.MustParseAddr("198.51.100.20")}
	s, err := New(Config{Plans: &plans{}, Interfaces: []Interface{
		{Name: "br0", Mode: Authoritative, Ranges: []Range{testRange}}, {Name: "br0", Mode: Authoritative, Ranges: []Range{far}},
	}})
	if err != nil || len(s.cfg.Interfaces) != 1 || len(s.cfg.Interfaces[0].Ranges) != 2 {
		t.Errorf("%+v, %v", s, err)
	}
}

// The loopback interface stands for any: every machine has it, with a known network.
func TestRangeTakesTheNetworkOfItsInterface(t *testing.T) {
	near := Range{From: netip.MustParseAddr("127.0.5.1"), To: netip.MustParseAddr("127.0.5.9")}
	c, addr, err := ownAddress(Interface{Name: "lo", Mode: Authoritative, Ranges: []Range{near}})
	if err != nil || c.Ranges[0].Network != netip.MustParsePrefix("127.0.0.0/8") || addr != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("%+v, %s, %v", c, addr, err)
	}
	far := Range{From: netip.MustParseAddr("192.0.2.1"), To: netip.MustParseAddr("192.0.2.9")}
	if _, _, err := ownAddress(Interface{Name: "lo", Mode: Authoritative, Ranges: []Range{far}}); !problem.Is(err, problem.Invalid) {
		t.Error(err)
	}
}

func TestSeenIsToldOnceInAWhile(t *testing.T) {
	var recorded []string
	s := newContactLog(func(_ *metal.Node, what string) { recorded = append(recorded, what) }, seenPause)
	now := time.Unix(1e9, 0)
	s.now = func() time.Time { return now }
	n := testNode()
	s.record(n, "a")
	s.record(n, "a")
	s.record(n, "b")
	now = now.Add(seenPause)
	s.record(n, "a")
	again := n.Clone()
	again.BootNumber++
	s.record(again, "a")
	if got := strings.Join(recorded, ""); got != "abaa" {
		t.Error(got)
	}
	for i := range 3 * maxSeen {
		n := testNode()
		n.BootNumber = int64(i)
		s.record(n, "c")
	}
	if len(s.last) > maxSeen {
		t.Errorf("%d are remembered", len(s.last))
	}
	newContactLog(nil, seenPause).record(n, "a")
}

func TestRunRefusesAnInterfaceThatIsNotThere(t *testing.T) {
	s := must.Get(New(Config{Plans: &plans{}, Interfaces: []Interface{{Name: "salvor-none", Mode: Proxy}}}))(t)
	if err := s.Run(t.Context()); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "salvor-none") {
		t.Error(err)
	}
}
