package native_test

import (
	"testing"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/test/must"
)

// TestFleet: everybody sees the machines that the policy shows, counted and page by page.
func TestFleet(t *testing.T) {
	w := newWorld(t)
	for _, n := range []*metal.Node{
		{ID: "aa01", Name: "rack1-01", ProvisionState: metal.Rescue, Owner: "p1"}, {ID: "aa02", Name: "rack1-02", ProvisionState: metal.Active},
		{ID: "aa03", Name: "rack2-01", ProvisionState: metal.Active, Maintenance: true, Fault: "power failure", LastError: "the BMC is away"},
	} {
		must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error { return w.s.InsertNode(tx, n) }))
	}
	got := w.admin("GET", "/fleet", "", 200)
	w.has(got, object{"total": 3, "maintenance": 1, "faulty": 1, "states": "[map[count:2 faulty:1 maintenance:1 state:active] map[count:1 faulty:0 maintenance:0 state:rescue]]"})
	w.has(w.ask("p1", "GET", "/fleet", "", 200), object{"total": 1})
	w.ask("", "GET", "/fleet", "", 401)
	w.ask("", "GET", "/states", "", 401)

	page := w.admin("GET", "/fleet/nodes?limit=2", "", 200)
	nodes, _ := page["nodes"].([]any)
	if len(nodes) != 2 || page["more"] != true {
		t.Fatalf("the first page is %v", page)
	}
	page = w.admin("GET", "/fleet/nodes?limit=2&marker=aa02", "", 200)
	if nodes, _ = page["nodes"].([]any); len(nodes) != 1 || page["more"] != false {
		t.Fatalf("the second page is %v", page)
	}
	w.has(nodes[0].(object), object{"uuid": "aa03", "name": "rack2-01", "provision_state": "active", "fault": "power failure", "failed": true, "maintenance": true})
	for path, want := range map[string]int{
		"/fleet/nodes?search=rack1": 2, "/fleet/nodes?state=active&maintenance=true": 1, "/fleet/nodes?faulty=true": 1, "/fleet/nodes?search=nobody": 0,
	} {
		w.many(path, "nodes", want)
	}
	if own, _ := w.ask("p1", "GET", "/fleet/nodes", "", 200)["nodes"].([]any); len(own) != 1 {
		t.Errorf("a project sees %v", own)
	}
	now := time.Now()
	must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error {
		return w.s.SaveContact(tx, metal.Contact{NodeID: "aa02", PowerRead: "", PowerReadAt: now.Add(-time.Hour), PowerError: "timeout", PowerFailedAt: now})
	}))
	w.has(w.admin("GET", "/fleet", "", 200), object{"silent_bmcs": 1, "refusing_bmcs": 0})
	w.has(w.ask("p1", "GET", "/fleet", "", 200), object{"silent_bmcs": 0})
	w.has(w.many("/fleet/nodes?bmc=silent", "nodes", 1)[0].(object), object{"uuid": "aa02", "bmc": "silent", "power_fresh": false})
	w.many("/fleet/nodes?uuid=AA01,aa03", "nodes", 2)
	w.says("GET", "/fleet/nodes?bmc=shy", "", 400, "want answering, silent, refusing or unknown")
	w.says("GET", "/fleet/nodes?state=happy", "", 400, "no provision state")
	w.says("GET", "/fleet/nodes?limit=0", "", 400, "limit")
	w.ask("p1", "GET", "/fleet/nodes?marker=aa03", "", 404)
}

// TestStates: what pictures are drawn from is the table itself.
func TestStates(t *testing.T) {
	w := newWorld(t)
	got := w.ask("p1", "GET", "/states", "", 200)
	states, _ := got["states"].([]any)
	transitions, _ := got["transitions"].([]any)
	if len(states) != len(metal.States) || len(transitions) != len(metal.Transitions) {
		t.Fatalf("%d states and %d transitions", len(states), len(transitions))
	}
	w.has(states[0].(object), object{"state": "enroll", "stable": true, "target": ""})
	w.has(transitions[0].(object), object{"from": "enroll", "verb": "manage", "to": "verifying", "min": 4, "job": "manage"})
}
