package ironic_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/store"
	"salvor/test/must"
)

// machines adds available nodes of a class, named after their numbers.
func (w *world) machines(class string, names ...string) []string {
	w.Helper()
	ids := make([]string, len(names))
	for i, name := range names {
		ids[i] = w.node(func(n *metal.Node) {
			n.ID = uuid.NewSHA1(uuid.NameSpaceOID, []byte(class+name)).String()
			n.Name, n.ResourceClass, n.ProvisionState, n.PowerState = name, class, metal.Available, metal.PowerOff
		}).ID
	}
	return ids
}

// allocate makes an allocation and gives what came of it.
func (w *world) allocate(version, body string) map[string]any {
	w.Helper()
	a := w.want(201, "POST", "/v1/allocations", version, body)
	made := a.Object(w)
	uuid := made["uuid"].(string)
	if made["state"] != "allocating" || made["node_uuid"] != nil || made["last_error"] != nil || a.Header.Get("Location") != "http://salvor.example/v1/allocations/"+uuid {
		w.Errorf("created: %s, Location %s", a.Body, a.Header.Get("Location"))
	}
	return w.want(200, "GET", "/v1/allocations/"+uuid, version, "").Object(w)
}

func TestAllocation(t *testing.T) {
	w := newWorld(t)
	ids := w.machines("big", "n1", "n2", "n3")
	w.edit(ids[0], func(n *metal.Node) { n.Maintenance = true })
	w.edit(ids[2], func(n *metal.Node) { n.Traits = []string{"CUSTOM_GPU", "CUSTOM_X"} })
	a := w.allocate("1.60", `{"resource_class":"big","traits":["CUSTOM_GPU"],"name":"mine","extra":{"k":1},"owner":null}`)
	want := map[string]any{
		"uuid": a["uuid"], "name": "mine", "node_uuid": ids[2], "resource_class": "big", "state": "active", "traits": []any{"CUSTOM_GPU"}, "candidate_nodes": []any{},
		"last_error": nil, "owner": nil, "extra": map[string]any{"k": 1.0}, "created_at": "2026-03-04T05:06:07+00:00", "updated_at": nil, "links": a["links"],
	}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Errorf("allocation (-want +got):\n%s", diff)
	}
	uuid := a["uuid"].(string)
	n, err := w.nodes.Node(t.Context(), ids[2])
	if err != nil || n.AllocationID != uuid || n.InstanceUUID != uuid || !cmp.Equal(n.InstanceInfo["traits"], []any{"CUSTOM_GPU"}) {
		t.Errorf("node: %+v %v", n, err)
	}
	if got := w.want(200, "GET", "/v1/nodes/n3", "1.52", "").Object(t)["allocation_uuid"]; got != uuid {
		t.Errorf("allocation_uuid: %v", got)
	}
	if got := w.want(200, "GET", "/v1/nodes/n3/allocation", "1.60", "").Object(t); !cmp.Equal(got, a) {
		t.Errorf("node's allocation: %v", got)
	}
	w.want(200, "GET", "/v1/allocations/mine", "1.52", "")
	if got := w.allocate("1.60", `{"resource_class":"big"}`)["node_uuid"]; got != ids[1] {
		t.Errorf("the other node: %v", got)
	}
	for body, says := range map[string]string{
		`{"resource_class":"big"}`: "no available nodes match the resource class big", `{"resource_class":"huge"}`: "no available nodes match the resource class huge",
		`{"resource_class":"big","candidate_nodes":["n1"]}`: "none of the requested nodes are available",
	} {
		if got := w.allocate("1.60", body); got["state"] != "error" || got["node_uuid"] != nil || !strings.Contains(got["last_error"].(string), says) {
			t.Errorf("%s: %v", body, got)
		}
	}
	w.edit(ids[0], func(n *metal.Node) { n.Maintenance = false })
	if got := w.allocate("1.60", `{"resource_class":"big","traits":["CUSTOM_NONE"]}`); !strings.Contains(got["last_error"].(string), "no suitable nodes have the requested traits CUSTOM_NONE") {
		t.Errorf("traits: %v", got)
	}
	if got := w.allocate("1.79", `{"resource_class":"big","candidate_nodes":["n1","n3"],"name":"n1"}`); got["node_uuid"] != ids[0] || !cmp.Equal(got["candidate_nodes"], []any{ids[0], ids[2]}) {
		t.Errorf("candidate: %v", got)
	}
	count := func(query string) int {
		return len(w.want(200, "GET", "/v1/allocations?"+query, "1.60", "").Object(t)["allocations"].([]any))
	}
	for query, want := range map[string]int{"state=active": 3, "state=error": 4, "state=allocating": 0, "node=n3": 1, "resource_class=big": 6, "owner=x": 0, "limit=2": 2, "state=bogus": 0} {
		if got := count(query); got != want {
			t.Errorf("%s: %d, want %d", query, got, want)
		}
	}
	w.want(200, "PATCH", "/v1/allocations/mine", "1.57", `[{"op":"replace","path":"/name","value":"yours"},{"op":"add","path":"/extra/x","value":2}]`)
	w.want(405, "PATCH", "/v1/allocations/yours", "1.56", `[{"op":"remove","path":"/name"}]`)
	w.want(204, "DELETE", "/v1/allocations/yours", "1.52", "")
	if n, err = w.nodes.Node(t.Context(), ids[2]); err != nil || n.AllocationID != "" || n.InstanceUUID != "" {
		t.Errorf("released: %+v %v", n, err)
	}
	w.want(204, "DELETE", "/v1/nodes/n2/allocation", "1.52", "")
	w.want(404, "DELETE", "/v1/nodes/n2/allocation", "1.52", "")
}

// TestAllocationOfLockedNodes takes another node than one that is worked on, and none if there is no other.
func TestAllocationOfLockedNodes(t *testing.T) {
	w := newWorld(t)
	ids := w.machines("c", "n1", "n2")
	w.lock(ids[0])
	if got := w.allocate("1.52", `{"resource_class":"c"}`)["node_uuid"]; got != ids[1] {
		t.Errorf("the node %v was taken", got)
	}
	w.refuse([]refusal{{"POST", "/v1/allocations", "1.52", `{"resource_class":"c"}`, 409, "is locked"}})
	w.free()
	if got := w.allocate("1.52", `{"resource_class":"c"}`)["node_uuid"]; got != ids[0] {
		t.Errorf("the node %v was taken", got)
	}
}

func TestAllocationOfSameName(t *testing.T) {
	w := newWorld(t)
	w.machines("c", "a", "b", "d", "e", "f", "g", "h")
	if got := w.want(200, "GET", "/v1/nodes/"+w.allocate("1.79", `{"resource_class":"c","name":"e"}`)["node_uuid"].(string), "1.79", "").Object(t)["name"]; got != "e" {
		t.Errorf("the allocation e has the node %v", got)
	}
}

func TestBadAllocations(t *testing.T) {
	w := newWorld(t)
	ids := w.machines("c", "n1", "n2")
	post := func(version, body string, status int, message string) refusal {
		return refusal{"POST", "/v1/allocations", version, body, status, message}
	}
	w.allocate("1.52", `{"resource_class":"c","name":"taken","candidate_nodes":["n1"]}`)
	w.refuse([]refusal{
		post("1.52", `{}`, 400, "resource_class field is mandatory"), post("1.52", `[]`, 400, ""), post("1.52", ``, 400, ""),
		post("1.52", `{"resource_class":"c","name":"taken"}`, 409, "name taken already exists"), post("1.52", `{"resource_class":"c","name":"a b"}`, 400, "invalid name"),
		post("1.52", `{"resource_class":"c","name":"`+nodeID+`"}`, 400, "invalid name"), post("1.52", `{"resource_class":"c","uuid":"x"}`, 400, "Expected UUID for uuid"),
		post("1.52", `{"resource_class":"c","traits":["lower"]}`, 400, "Invalid trait"), post("1.52", `{"resource_class":"c","traits":"CUSTOM_A"}`, 400, "list of strings"),
		post("1.52", `{"resource_class":"c","candidate_nodes":["nope"]}`, 400, "cannot be found"), post("1.52", `{"resource_class":"c","candidate_nodes":[1]}`, 400, "list of strings"),
		post("1.52", `{"resource_class":1}`, 400, "resource_class"), post("1.52", `{"resource_class":"`+strings.Repeat("c", 81)+`"}`, 400, "80"),
		post("1.52", `{"resource_class":"c","state":"active"}`, 400, "state"), post("1.52", `{"resource_class":"c","node_uuid":"`+ids[1]+`"}`, 400, "node_uuid"),
		post("1.52", `{"resource_class":"c","bogus":1}`, 400, "bogus"),
		{"GET", "/v1/allocations/nope", "1.52", "", 404, "nope"}, {"DELETE", "/v1/allocations/nope", "1.52", "", 404, "nope"},
		{"GET", "/v1/allocations?node=nope", "1.52", "", 400, "nope"}, {"GET", "/v1/allocations?bogus=1", "1.52", "", 400, "bogus"},
		{"GET", "/v1/allocations?sort_key=extra", "1.52", "", 400, "sort"}, {"GET", "/v1/allocations?fields=bogus", "1.52", "", 400, "bogus"},
		{"PATCH", "/v1/allocations/taken", "1.57", `[{"op":"replace","path":"/resource_class","value":"x"}]`, 400, "Cannot patch /resource_class"},
		{"PATCH", "/v1/allocations/taken", "1.57", `[{"op":"replace","path":"/name","value":"a b"}]`, 400, "invalid name"},
		{"PATCH", "/v1/allocations/taken", "1.57", `{}`, 400, "list"},
	})
	w.edit(ids[0], func(n *metal.Node) { n.ProvisionState = metal.Active })
	w.refuse([]refusal{{"DELETE", "/v1/allocations/taken", "1.52", "", 409, "active"}})
	w.edit(ids[0], func(n *metal.Node) { n.ProvisionState = metal.Deploying })
	w.refuse([]refusal{{"DELETE", "/v1/allocations/taken", "1.52", "", 409, "updates are not allowed"}})
	w.edit(ids[0], func(n *metal.Node) { n.ProvisionState, n.Maintenance = metal.Active, true })
	w.want(204, "DELETE", "/v1/allocations/taken", "1.52", "")
}

func TestBackfill(t *testing.T) {
	w := newWorld(t)
	instance := strings.Replace(nodeID, "1", "9", 1)
	w.node(func(n *metal.Node) { n.ResourceClass, n.InstanceUUID, n.Traits = "c", instance, []string{"CUSTOM_A"} })
	w.refuse([]refusal{
		{"POST", "/v1/allocations", "1.57", `{"node":"n1"}`, 400, "Cannot set node"},
		{"POST", "/v1/allocations", "1.58", `{"node":"n1","resource_class":"d"}`, 409, "does not match"},
		{"POST", "/v1/allocations", "1.58", `{"node":"n1","traits":["CUSTOM_B"]}`, 409, "traits"},
		{"POST", "/v1/allocations", "1.58", `{"node":"n1","uuid":"` + nodeID + `"}`, 409, "associated with instance"},
		{"POST", "/v1/allocations", "1.58", `{"node":"nope"}`, 400, "nope"},
	})
	got := w.want(201, "POST", "/v1/allocations", "1.58", `{"node":"n1","traits":["CUSTOM_A"]}`).Object(t)
	if got["uuid"] != instance || got["state"] != "active" || got["node_uuid"] != nodeID || got["resource_class"] != "c" {
		t.Errorf("backfilled: %v", got)
	}
	w.refuse([]refusal{{"POST", "/v1/allocations", "1.58", `{"node":"n1"}`, 409, ""}})
	w.edit(nodeID, func(n *metal.Node) {
		n.ProvisionState, n.InstanceUUID, n.AllocationID, n.ID = metal.Manageable, instance, instance, nodeID
	})
	w.want(200, "PATCH", "/v1/nodes/n1", "1.58", `[{"op":"remove","path":"/instance_uuid"}]`)
	w.want(404, "GET", "/v1/allocations/"+instance, "1.58", "")
	if n, err := w.nodes.Node(t.Context(), "n1"); err != nil || n.AllocationID != "" {
		t.Errorf("a claim outlived its instance: %+v %v", n, err)
	}
}

// TestAllocationEndsWithInstance tears a node down.
func TestAllocationEndsWithInstance(t *testing.T) {
	w := newWorld(t)
	ids := w.machines("c", "n1")
	uuid := w.allocate("1.52", `{"resource_class":"c"}`)["uuid"].(string)
	w.edit(ids[0], func(n *metal.Node) { n.ProvisionState = metal.Deleting })
	must.OK(t, w.store.Do(t.Context(), func(tx job.Tx) error {
		return w.nodes.Advance(t.Context(), tx, ids[0], metal.CleanEvent, func(n *metal.Node) { n.InstanceUUID = "" })
	}))
	w.want(404, "GET", "/v1/allocations/"+uuid, "1.52", "")
}

// TestAllocationRace lets more askers than nodes ask at once: each node is given once.
func TestAllocationRace(t *testing.T) {
	w := newWorld(t)
	names := make([]string, 12)
	for i := range names {
		names[i] = fmt.Sprintf("n%d", i)
	}
	w.machines("c", names...)
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			a := &metal.Allocation{ResourceClass: "c"}
			if err := w.config.Allocations.Create(context.Background(), a, "", record.Asker{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	w.oneEach(t, "c", 12, 30)
}

// oneEach proves that every active allocation has a node of its own that knows it.
func (w *world) oneEach(t testing.TB, class string, active, total int) {
	t.Helper()
	list, err := w.config.Allocations.List(t.Context(), metal.AllocationFilter{ResourceClass: class}, record.Page{Limit: 1000})
	if err != nil || len(list) != total {
		t.Fatalf("%d allocations, want %d: %v", len(list), total, err)
	}
	taken := map[string]string{}
	for _, a := range list {
		if a.State != metal.AllocationDone {
			if a.State != metal.AllocationError || a.NodeID != "" || a.LastError == "" {
				t.Errorf("failed: %+v", a)
			}
			continue
		}
		n, err := w.nodes.Node(t.Context(), a.NodeID)
		if err != nil || n.AllocationID != a.ID || n.InstanceUUID != a.ID || taken[a.NodeID] != "" {
			t.Errorf("allocation %s: node %+v, also of %s: %v", a.ID, n, taken[a.NodeID], err)
		}
		taken[a.NodeID] = a.ID
	}
	if len(taken) != active {
		t.Errorf("%d nodes are taken, want %d", len(taken), active)
	}
}

// TestAllocationsHoldTogether makes and removes allocations at random and compares with a count.
func TestAllocationsHoldTogether(t *testing.T) {
	w, round := newWorld(t), 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		nodes := rapid.IntRange(0, 4).Draw(rt, "nodes")
		class := fmt.Sprintf("c%d", round) // of its own each time
		var names []string
		for i := range nodes {
			names = append(names, fmt.Sprintf("%s-%d", class, i))
		}
		w.machines(class, names...)
		var live, failed []string
		for range rapid.IntRange(1, 10).Draw(rt, "steps") {
			if len(live) > 0 && rapid.Bool().Draw(rt, "remove") {
				i := rapid.IntRange(0, len(live)-1).Draw(rt, "which")
				w.want(204, "DELETE", "/v1/allocations/"+live[i], "1.52", "")
				live = slices.Delete(live, i, i+1)
				continue
			}
			a := w.allocate("1.52", `{"resource_class":"`+class+`"}`)
			if full := len(live) == nodes; (a["state"] == "error") != full {
				rt.Fatalf("%d of %d are taken: %v", len(live), nodes, a)
			} else if full {
				failed = append(failed, a["uuid"].(string))
			} else {
				live = append(live, a["uuid"].(string))
			}
		}
		w.oneEach(t, class, len(live), len(live)+len(failed))
	})
}

// counted counts the nodes that are read.
type counted struct {
	*store.Store
	nodes atomic.Int64
}

func (s *counted) Nodes(ctx context.Context, tx job.Tx, f metal.NodeFilter, p record.Page) ([]*metal.Node, error) {
	out, err := s.Store.Nodes(ctx, tx, f, p)
	s.nodes.Add(int64(len(out)))
	return out, err
}

// TestAllocationReadsFewNodes: however many are available, and wherever the one with the traits is.
func TestAllocationReadsFewNodes(t *testing.T) {
	w := newWorld(t)
	w.park(1500)
	s := &counted{Store: w.store}
	now := func() time.Time { return born }
	service := metal.NewAllocations(s, metal.NewNodes(s, w.store, w.secret, metal.NewDirectory(w.store, now, time.Second, 0), metal.Options{}, now))
	last := fmt.Sprintf("crowd-%d", 1499)
	w.edit(last, func(n *metal.Node) { n.Traits = []string{"CUSTOM_GPU"} })
	w.edit("crowd-7", func(n *metal.Node) { n.Extra = metal.Object{"note": "CUSTOM_GPU"} }) // has none
	for _, tt := range []struct {
		a     metal.Allocation
		state metal.AllocationState
		node  string
		most  int64
	}{
		{metal.Allocation{ResourceClass: "c"}, metal.AllocationDone, "", 100},
		{metal.Allocation{ResourceClass: "c", Traits: []string{"CUSTOM_GPU"}}, metal.AllocationDone, last, 2},
		{metal.Allocation{ResourceClass: "c", Traits: []string{"CUSTOM_GPU"}}, metal.AllocationError, "", 1},
		{metal.Allocation{ResourceClass: "c", Traits: []string{"CUSTOM_NONE"}}, metal.AllocationError, "", 1},
		{metal.Allocation{ResourceClass: "c", Name: "crowd-1400"}, metal.AllocationDone, "crowd-1400", 100},
		{metal.Allocation{ResourceClass: "none"}, metal.AllocationError, "", 0},
	} {
		s.nodes.Store(0)
		a := tt.a
		if err := service.Create(t.Context(), &a, "", record.Asker{}); err != nil || a.State != tt.state {
			t.Fatalf("%+v: %+v, %v", tt.a, a, err)
		}
		if tt.node != "" {
			if n, err := w.nodes.Node(t.Context(), a.NodeID); err != nil || n.Name != tt.node {
				t.Errorf("%+v: took %+v, %v", tt.a, n, err)
			}
		}
		if got := s.nodes.Load(); got > tt.most {
			t.Errorf("%+v: %d nodes were read, want at most %d", tt.a, got, tt.most)
		}
	}
}

// park adds available nodes of the class c.
func (w *world) park(n int) {
	w.Helper()
	must.OK(w, w.store.Do(context.Background(), func(tx job.Tx) error {
		for i := range n {
			node := &metal.Node{ID: uuid.NewSHA1(uuid.NameSpaceOID, fmt.Append(nil, "crowd", i)).String(), Name: fmt.Sprint("crowd-", i), Driver: "fake-hardware",
				ResourceClass: "c", ProvisionState: metal.Available, PowerState: metal.PowerOff, CreatedAt: born, ProvisionedAt: born,
				DriverInfo: metal.Object{"redfish_address": "https://192.0.2.1", "redfish_password": "secret"}, Properties: metal.Object{"cpu_arch": "x86_64"}}
			if err := w.store.InsertNode(tx, node); err != nil {
				return err
			}
		}
		return nil
	}))
}

// BenchmarkAllocation claims one of ten thousand, by any and by a trait that the last one has.
func BenchmarkAllocation(b *testing.B) {
	for _, trait := range []string{"", "CUSTOM_GPU"} {
		b.Run("trait="+trait, func(b *testing.B) {
			w := newWorld(b)
			w.park(10_000)
			body := `{"resource_class":"c"}`
			if trait != "" {
				body = `{"resource_class":"c","traits":["` + trait + `"]}`
				w.edit("crowd-9999", func(n *metal.Node) { n.Traits = []string{trait} })
			}
			for b.Loop() {
				made := w.want(201, "POST", "/v1/allocations", "1.60", body).Object(b)
				b.StopTimer()
				w.want(204, "DELETE", "/v1/allocations/"+made["uuid"].(string), "1.60", "")
				b.StartTimer()
			}
		})
	}
}
