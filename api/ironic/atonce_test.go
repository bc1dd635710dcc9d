package ironic_test

import (
	"strings"
	"testing"

	"salvor/metal"
)

// TestMaxConcurrentCleanAndDeploy: a request beyond the bound is a 503 that names the option, and changes nothing.
func TestMaxConcurrentCleanAndDeploy(t *testing.T) {
	for option, c := range map[string]struct {
		opts       metal.Options
		from, busy metal.State
		target     string
	}{
		"max_concurrent_clean":  {metal.Options{MaxCleaning: 2}, metal.Manageable, metal.CleanWait, "provide"},
		"max_concurrent_deploy": {metal.Options{MaxDeploying: 2}, metal.Available, metal.DeployWait, "active"},
	} {
		w := newWorld(t)
		w.withOptions(c.opts)
		w.node(func(n *metal.Node) { n.ProvisionState = c.from })
		w.node(func(n *metal.Node) { n.ID, n.Name, n.ProvisionState = owned, "busy1", c.busy })
		w.node(func(n *metal.Node) { n.ID, n.Name, n.ProvisionState = foreign, "spare", c.from })
		if a := w.ask("PUT", "/v1/nodes/spare/states/provision", "1.82", `{"target": "`+c.target+`"}`); a.Status == 503 {
			t.Errorf("%s: refused below the bound: %s", option, a.Body)
		}
		w.edit(foreign, func(n *metal.Node) { n.ProvisionState = c.busy })
		a := w.ask("PUT", "/v1/nodes/n1/states/provision", "1.82", `{"target": "`+c.target+`"}`)
		if a.Status != 503 || !strings.Contains(a.errorText(), option+" allows 2 at a time") {
			t.Errorf("%s: %d %s", option, a.Status, a.Body)
		}
		if a.Header.Get("Retry-After") == "" {
			t.Errorf("%s: the refusal has no Retry-After", option)
		}
	}
}

// TestHeldNodesAndRescuesAreNotCounted: the bound counts no node in a hold step, and does not apply to rescues.
func TestHeldNodesAndRescuesAreNotCounted(t *testing.T) {
	w := newWorld(t)
	w.withOptions(metal.Options{MaxDeploying: 1, MaxCleaning: 1})
	w.node(func(n *metal.Node) { n.ProvisionState = metal.Active })
	w.node(func(n *metal.Node) { n.ID, n.Name, n.ProvisionState = owned, "cleaned", metal.CleanHold })
	w.node(func(n *metal.Node) { n.ID, n.Name, n.ProvisionState = foreign, "spare", metal.Manageable })
	if a := w.ask("PUT", "/v1/nodes/spare/states/provision", "1.87", `{"target": "provide"}`); a.Status == 503 {
		t.Errorf("beside a held node: %s", a.Body)
	}
	w.edit(owned, func(n *metal.Node) { n.ProvisionState = metal.CleanWait })
	w.edit(foreign, func(n *metal.Node) { n.ProvisionState = metal.DeployWait })
	if a := w.ask("PUT", "/v1/nodes/n1/states/provision", "1.87", `{"target": "rescue", "rescue_password": "password"}`); a.Status == 503 {
		t.Errorf("a rescue beside a full house: %s", a.Body)
	}
}

// TestDefaultResourceClass: a new node that names no class has that of the configuration.
func TestDefaultResourceClass(t *testing.T) {
	w := newWorld(t)
	w.withOptions(metal.Options{ResourceClass: "baremetal"})
	for body, want := range map[string]string{`{"driver": "fake-hardware"}`: "baremetal", `{"driver": "fake-hardware", "resource_class": "gold"}`: "gold"} {
		if got := w.want(201, "POST", "/v1/nodes", "1.82", body).Object(t)["resource_class"]; got != want {
			t.Errorf("%s: %v", body, got)
		}
	}
}
