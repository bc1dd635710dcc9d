package network

import (
	"strings"
	"testing"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/must"
)

var bridges = Bridges{driver.Provisioning: "br-prov", driver.CleaningNet: "br-clean", driver.Rescuing: "br-rescue", driver.Tenant: "br-tenant"}

func port(name any, vif any) *metal.Port {
	p := &metal.Port{Address: "52:54:00:00:00:01", LocalLink: metal.Object{"port_id": name}, Extra: metal.Object{}}
	if vif != nil {
		p.Extra[VIFKey] = vif
	}
	return p
}

func TestValidate(t *testing.T) {
	b := must.Get(NewBridge(bridges, "br-tenant2"))(t)
	n := &metal.Node{ID: "n1"}
	for _, c := range []struct {
		name  string
		ports []*metal.Port
		net   driver.Net
		want  string // part of the reason; empty: fine
	}{
		{"fine", []*metal.Port{port("tap0", nil)}, driver.Rescuing, ""},
		{"chosen tenant", []*metal.Port{port("tap0", "br-tenant2")}, driver.Tenant, ""},
		{"vif elsewhere does not matter to rescuing", []*metal.Port{port("tap0", "br-prov")}, driver.Rescuing, ""},
		{"a tenant on provisioning", []*metal.Port{port("tap0", "br-prov")}, driver.Tenant, "no bridge for tenants"},
		{"a tenant on anything", []*metal.Port{port("tap0", "docker0")}, driver.Tenant, "no bridge for tenants"},
		{"vif of another type", []*metal.Port{port("tap0", 7.0)}, driver.Tenant, "string"},
		{"no ports", nil, driver.Tenant, "no port"},
		{"no link", []*metal.Port{port("tap0", nil), port(nil, nil)}, driver.Tenant, "port_id"},
		{"a path", []*metal.Port{port("../eth0", nil)}, driver.Tenant, "no name"},
		{"too long", []*metal.Port{port(strings.Repeat("t", 16), nil)}, driver.Tenant, "no name"},
		{"blank", []*metal.Port{port("a b", nil)}, driver.Tenant, "no name"},
		{"no such network", []*metal.Port{port("tap0", nil)}, driver.Inspection, "[bridge]inspection_network"},
	} {
		err := b.Validate(n, c.ports, c.net)
		if (err == nil) != (c.want == "") || (err != nil && (!problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), c.want))) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestBadBridges(t *testing.T) {
	for _, name := range []string{"a/b", "-x", ".", strings.Repeat("b", 16), "a\nb"} {
		if _, err := NewBridge(Bridges{driver.Tenant: name}); !problem.Is(err, problem.Invalid) {
			t.Errorf("bridge %q: %v", name, err)
		}
		if _, err := NewBridge(bridges, name); !problem.Is(err, problem.Invalid) {
			t.Errorf("tenants' bridge %q: %v", name, err)
		}
	}
}

func TestMoves(t *testing.T) {
	b, _ := NewBridge(Bridges{driver.Rescuing: "a", driver.Tenant: "a", driver.Provisioning: "b"}, "c")
	ports := []*metal.Port{port("tap0", nil)}
	if b.Moves(nil, ports, driver.Rescuing, driver.Tenant) || !b.Moves(nil, ports, driver.Rescuing, driver.Provisioning) {
		t.Error("Moves mistakes the bridges")
	}
	if !b.Moves(nil, []*metal.Port{port("tap0", "c")}, driver.Rescuing, driver.Tenant) {
		t.Error("Moves overlooks the port's own tenant network")
	}
	if (Noop{}).Moves(nil, ports, driver.Rescuing, driver.Tenant) {
		t.Error("noop moves")
	}
}

func TestWarning(t *testing.T) {
	if w := bridges.Warning(); w != "" {
		t.Errorf("networks apart warn: %s", w)
	}
	shared := Bridges{driver.Rescuing: "a", driver.Provisioning: "a", driver.CleaningNet: "a"}
	if w := shared.Warning(); !strings.Contains(w, "provisioning and cleaning") {
		t.Errorf("a shared network warns %q", w)
	}
}
