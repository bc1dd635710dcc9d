package ironic_test

import (
	"net/http"
	"strings"
	"testing"

	"salvor/access"
	"salvor/metal"
	"salvor/record"
	"salvor/test/must"
)

// lease is a world with a node that p2 owns and p1 leases, and with clients that may change its volumes.
type lease struct {
	*world
	operator, owner, lessee, other http.Handler
}

func newLease(t *testing.T) *lease {
	w := newWorld(t)
	w.tenancy()
	leader := func(project string) http.Handler {
		return w.persona(access.Scope{Project: project, ProjectName: project}, "admin", "manager", "member", "reader")
	}
	w.edit(leased, func(n *metal.Node) { n.PowerState = metal.PowerOff })
	return &lease{w, w.persona(access.Scope{System: true}, "admin", "member", "reader"), leader("p2"), leader("p1"), leader("p3")}
}

// connector makes one on the leased node and gives its path.
func (l *lease) connector(t *testing.T, who http.Handler, iqn string) string {
	t.Helper()
	a := ask(who, "POST", "/v1/volume/connectors", "1.82", `{"node_uuid": "`+leased+`", "type": "iqn", "connector_id": "`+iqn+`"}`)
	if a.Status != 201 {
		t.Fatalf("%s: %d %s", iqn, a.Status, a.Body)
	}
	return "/v1/volume/connectors/" + a.Object(t)["uuid"].(string)
}

// connectors are the names that the leased node has.
func (l *lease) connectors(t *testing.T) string {
	t.Helper()
	all := must.Get(l.store.Connectors().List(t.Context(), nil, metal.ConnectorFilter{NodeID: leased}, record.Page{Limit: 100}))(t)
	var names []string
	for _, c := range all {
		names = append(names, c.ConnectorID)
	}
	return strings.Join(names, " ")
}

// TestLesseesDoNotChangeTheOperatorsConnectors: a lessee changes and removes what lessees made, and of others' connectors nothing.
func TestLesseesDoNotChangeTheOperatorsConnectors(t *testing.T) {
	l := newLease(t)
	ofOperator, ofOwner, ofLessee := l.connector(t, l.operator, "iqn.2026-11.org:operator"), l.connector(t, l.owner, "iqn.2026-11.org:owner"), l.connector(t, l.lessee, "iqn.2026-11.org:lessee")
	const patch = `[{"op": "replace", "path": "/connector_id", "value": "iqn.2026-11.org:stolen"}]`
	for _, path := range []string{ofOperator, ofOwner} {
		for _, a := range []answer{ask(l.lessee, "PATCH", path, "1.83", patch), ask(l.lessee, "DELETE", path, "1.83", "")} {
			if a.Status != 403 || !strings.Contains(a.errorText(), "lessee") {
				t.Errorf("a lessee at %s: %d %s", path, a.Status, a.Body)
			}
		}
	}
	for _, tt := range []struct {
		who          http.Handler
		method, path string
		body         string
		want         int
	}{
		{l.lessee, "PATCH", ofLessee, `[{"op": "replace", "path": "/extra", "value": {"a": 1}}]`, 200},
		{l.owner, "PATCH", ofLessee, `[{"op": "replace", "path": "/extra", "value": {"a": 2}}]`, 200},
		{l.lessee, "DELETE", ofLessee, "", 204},
		{l.owner, "DELETE", ofOwner, "", 204},
		{l.operator, "DELETE", ofOperator, "", 204},
	} {
		if a := ask(tt.who, tt.method, tt.path, "1.83", tt.body); a.Status != tt.want {
			t.Errorf("%s %s: %d, want %d: %s", tt.method, tt.path, a.Status, tt.want, a.errorText())
		}
	}
}

// TestConnectorsOfALesseeEndWithTheLease: a node that gets another lessee, or none, keeps no connector and no target of the former one.
func TestConnectorsOfALesseeEndWithTheLease(t *testing.T) {
	for name, patch := range map[string]string{
		"given on": `[{"op": "replace", "path": "/lessee", "value": "p3"}]`, "given back": `[{"op": "remove", "path": "/lessee"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLease(t)
			l.connector(t, l.operator, "iqn.2026-11.org:operator")
			l.connector(t, l.lessee, "iqn.2026-11.org:lessee")
			edited := l.connector(t, l.lessee, "iqn.2026-11.org:edited")
			if a := ask(l.owner, "PATCH", edited, "1.83", `[{"op": "replace", "path": "/extra", "value": {"a": 2}}]`); a.Status != 200 {
				t.Fatal(a.Body) // the owner's look at it does not make it the owner's
			}
			for i, who := range []http.Handler{l.owner, l.lessee} {
				body := `{"node_uuid": "` + leased + `", "volume_type": "iscsi", "boot_index": ` + string(rune('0'+i)) + `, "volume_id": "v"}`
				if a := ask(who, "POST", "/v1/volume/targets", "1.82", body); a.Status != 201 {
					t.Fatal(a.Body)
				}
			}
			if a := ask(l.owner, "PATCH", "/v1/nodes/"+leased, "1.82", `[{"op": "replace", "path": "/description", "value": "d"}]`); a.Status != 200 {
				t.Fatal(a.Body)
			}
			if got := l.connectors(t); strings.Count(got, " ") != 2 {
				t.Errorf("another change of the node took connectors: %s", got)
			}
			if a := ask(l.owner, "PATCH", "/v1/nodes/"+leased, "1.82", patch); a.Status != 200 {
				t.Fatal(a.Body)
			}
			if got := l.connectors(t); got != "iqn.2026-11.org:operator" {
				t.Errorf("after the lease: %s", got)
			}
			targets, err := l.store.Targets().List(t.Context(), nil, metal.TargetFilter{NodeID: leased}, record.Page{Limit: 100})
			if err != nil || len(targets) != 1 || targets[0].BootIndex != 0 {
				t.Errorf("targets after the lease: %v, %v", targets, err)
			}
		})
	}
}
