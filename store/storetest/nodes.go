package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/test/must"
)

// fullNode has something in every field.
func fullNode() *metal.Node {
	at := time.Date(2026, 2, 3, 4, 5, 6, 789000, time.UTC)
	obj := func(k string) metal.Object {
		return metal.Object{k: "v", "n": 1.5, "deep": map[string]any{"a": []any{"x", nil, true}}}
	}
	return &metal.Node{
		ID: "6f5e0c0e-7b2e-4a3e-9d5a-0d5b2f1a0001", Version: 1, Name: "one", Driver: "redfish",
		DriverInfo: metal.Object{"redfish_address": "https://bmc", "redfish_password": "p", "nested": []any{map[string]any{"api_token": map[string]any{"a": 1.0}}}},
		Properties: obj("cpu"), Extra: obj("extra"), InstanceInfo: obj("image"), InternalInfo: obj("internal"), RAIDConfig: obj("raid"),
		TargetRAID: obj("target"), NetworkData: obj("links"), InstanceUUID: "i-1", ChassisUUID: "c-1", ResourceClass: "gold",
		Description: "An old Machine, 100% ours", Owner: "o", Lessee: "l", Shard: "s", ConductorGroup: "north", Traits: []string{"A", "B"},
		AutomatedClean: pointerTo(false), Maintenance: true, MaintenanceReason: "m", Fault: "power failure", Protected: true, ProtectedReason: "p",
		Retired: true, RetiredReason: "r", Interfaces: map[string]string{"power": "redfish"}, PowerState: metal.PowerOn,
		TargetPower: metal.PowerOff, ProvisionState: metal.RescueWait, TargetProvision: metal.Rescue, ProvisionedAt: at,
		LastError: "e", CleanStep: obj("step"), DeployStep: obj("step"), BootMode: "uefi", SecureBoot: pointerTo(true), ConsoleEnabled: true,
		InspectionStart: at.Add(time.Second), InspectionEnd: at.Add(time.Minute), BootNumber: 7,
		ServiceStep: obj("step"), ParentNode: "parent", AllocationID: "claim", InstanceName: "web-1", DisablePowerOff: true, Health: "Warning",
		Plan:   &metal.BootPlan{Method: metal.BootIPXE, Path: "path-1", Kernel: "k", Ramdisk: "r", Params: []string{"a=b"}, BootNumber: 7, CarryToken: true, MACs: []string{"52:54:00:00:00:01"}, URL: "http://x"},
		Rescue: &rescue.Session{StartedAt: at, Saved: rescue.Boot{Device: "disk", Persistent: true, Mode: "uefi"}, SavedKnown: true, Image: "i"},
	}
}

func testNode(b *testEnv) {
	n := fullNode()
	b.do(func(tx job.Tx) error { return b.s.InsertNode(tx, n) })
	if n.CreatedAt.IsZero() || !n.UpdatedAt.IsZero() || n.Version != 1 {
		b.Fatalf("inserted with version %d, created %v, updated %v", n.Version, n.CreatedAt, n.UpdatedAt)
	}
	for _, ident := range []string{n.ID, n.Name} {
		got := must.Get(b.s.Node(b.ctx, nil, ident))(b)
		if d := cmp.Diff(n, got); d != "" {
			b.Fatalf("node %s differs (-want +have):\n%s", ident, d)
		}
	}
	n.Plan, n.Rescue, n.AutomatedClean, n.SecureBoot, n.DriverInfo, n.Name = nil, nil, nil, nil, nil, ""
	b.do(func(tx job.Tx) error {
		if err := b.s.SaveNode(tx, n); err != nil {
			return err
		}
		got, err := b.s.Node(b.ctx, tx, n.ID) // what was written is seen inside
		if err == nil && got.Version != 2 {
			err = fmt.Errorf("version %d inside of the transaction", got.Version)
		}
		return err
	})
	got, err := b.s.Node(b.ctx, nil, n.ID)
	b.ok(err)
	n.DriverInfo = metal.Object{} // objects are never nil when read
	if d := cmp.Diff(n, got); d != "" || n.UpdatedAt.IsZero() {
		b.Fatalf("saved node differs (-want +have):\n%s", d)
	}
	for _, ident := range []string{"", "one", "nobody"} {
		_, err = b.s.Node(b.ctx, nil, ident)
		b.refused(err, problem.NotFound, "Node "+ident+" could not be found.")
	}
}

func testNodeNames(b *testEnv) {
	b.node("a", func(n *metal.Node) { n.Name, n.InstanceUUID = "alpha", "i1"; n.Plan = &metal.BootPlan{Path: "p1"} })
	b.node("b")
	b.node("c") // any number of nodes may be without a name
	try := func(n metal.Node) error {
		n.ProvisionState = metal.Enroll
		return b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.InsertNode(tx, &n) })
	}
	b.refused(try(metal.Node{ID: "a"}), problem.Conflict, "A node with UUID a already exists.")
	b.refused(try(metal.Node{ID: "d", Name: "alpha"}), problem.Conflict, "A node with name alpha already exists.")
	const taken = "Instance i1 is already associated with a node, it cannot be associated with this other node %s."
	b.refused(try(metal.Node{ID: "d", InstanceUUID: "i1"}), problem.Conflict, fmt.Sprintf(taken, "d"))
	n := must.Get(b.s.Node(b.ctx, nil, "b"))(b)
	for _, c := range []struct {
		change func(*metal.Node)
		text   string
	}{
		{func(n *metal.Node) { n.Name = "alpha" }, "A node with name alpha already exists."},
		{func(n *metal.Node) { n.InstanceUUID = "i1" }, fmt.Sprintf(taken, "b")},
		{func(n *metal.Node) { n.Plan = &metal.BootPlan{Path: "p1"} }, "The boot path of node b is taken."},
	} {
		clash := n.Clone()
		c.change(clash)
		b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.SaveNode(tx, clash) }), problem.Conflict, c.text)
		if clash.Version != 1 {
			b.Fatalf("a refused node has version %d", clash.Version)
		}
	}
	// Not a word of the table of states.
	must.OK(b, try(metal.Node{ID: "e"}))
	n.ProvisionState = "dreaming"
	if err := b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.SaveNode(tx, n) }); err == nil {
		b.Fatal("a node may be in a state that is none")
	}
}

func testNodeVersion(b *testEnv) {
	n := b.node("a")
	stale := n.Clone()
	n.Extra = metal.Object{"a": "b"}
	b.do(func(tx job.Tx) error { return b.s.SaveNode(tx, n) })
	if n.Version != 2 {
		b.Fatalf("version %d after a save, want 2", n.Version)
	}
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.SaveNode(tx, stale) }), problem.Conflict, "")
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.DeleteNode(tx, stale) }), problem.Conflict, "")
	b.do(func(tx job.Tx) error { return b.s.SaveNode(tx, n) })
}

func testNodeDelete(b *testEnv) {
	n := b.node("a", func(n *metal.Node) { n.Plan = &metal.BootPlan{Path: "p", MACs: []string{"aa:aa:aa:aa:aa:aa"}} })
	b.node("other")
	b.do(func(tx job.Tx) error {
		if err := b.s.InsertPort(tx, &metal.Port{Record: record.Record{ID: "p"}, NodeID: "a", Address: "aa:aa:aa:aa:aa:aa"}); err != nil {
			return err
		}
		if err := b.s.SaveContact(tx, metal.Contact{NodeID: "a", AgentURL: "u"}); err != nil {
			return err
		}
		return b.s.Append(tx, job.Event{Subject: job.Node("a"), Text: "x"})
	})
	j := b.insert(job.Operation, "a", func(j *job.Job) { j.State = job.Ended })
	b.do(func(tx job.Tx) error { return b.s.DeleteNode(tx, n) })
	_, err := b.s.Node(b.ctx, nil, "a")
	b.refused(err, problem.NotFound, "")
	_, err = b.s.Port(b.ctx, nil, "p")
	b.refused(err, problem.NotFound, "")
	_, err = b.s.Job(b.ctx, nil, j.ID)
	b.refused(err, problem.NotFound, "")
	_, err = b.s.NodeByMAC(b.ctx, "aa:aa:aa:aa:aa:aa")
	b.refused(err, problem.NotFound, "")
	c, err := b.s.Contact(b.ctx, nil, "a")
	b.ok(err)
	events, err := b.s.Events(b.ctx, job.Node("a"), 0, 10)
	b.ok(err)
	if c.AgentURL != "" || len(events) != 0 {
		b.Fatal("contact or timeline outlive their node")
	}
	_, err = b.s.Node(b.ctx, nil, "other")
	b.ok(err)
}

// testNodeMarks: whatever changes a node's view changes its mark, and what was deleted does not come back with an old one.
func testNodeMarks(b *testEnv) {
	n := b.node("a", func(n *metal.Node) { n.Name = "one" })
	b.node("b")
	seen := map[metal.NodeMark]string{}
	look := func(after string) metal.NodeMark {
		b.Helper()
		m := must.Get(b.s.NodeMark(b.ctx, "a"))(b)
		all := must.Get(b.s.ListNodeMarks(b.ctx, metal.NodeFilter{}, record.Page{}))(b)
		if len(all) != 2 || !slices.Contains(all, m) {
			b.Fatalf("after %s: %v is not in the list %v", after, m, all)
		}
		if was, ok := seen[m]; ok {
			b.Fatalf("after %s the mark %v is that of %s", after, m, was)
		}
		seen[m] = after
		return m
	}
	m := look("the creation")
	byName, err := b.s.NodeMark(b.ctx, "one")
	b.ok(err)
	if byName != m {
		b.Fatalf("by name %v, by UUID %v", byName, m)
	}
	b.do(func(tx job.Tx) error { return b.s.SaveNode(tx, n) })
	look("a save")
	b.do(func(tx job.Tx) error { return b.s.SaveContact(tx, metal.Contact{NodeID: "a", AgentURL: "u"}) })
	look("a heartbeat")
	b.do(func(tx job.Tx) error { _, err := b.s.MarkTokenTold(tx, "a", 1); return err })
	look("a lookup")
	b.ok(b.s.Register(b.ctx, job.Conductor{ID: "conductor", Incarnation: "1", Hostname: "host-b", Groups: []string{""}}))
	look("a conductor's start")
	b.insert(job.Operation, "a")
	look("a job")
	j := b.claimOne()
	// A claim changes nothing that is shown: the reservation is the conductor's host name before it too.
	m, err = b.s.NodeMark(b.ctx, "a")
	b.ok(err)
	if m.Reservation != "host-b" || m.Conductor != "host-b" {
		b.Errorf("mark %+v", m)
	}
	found, err := b.s.MarkedNodes(b.ctx, []int64{m.Num, -1}, metal.WholeNode)
	b.ok(err)
	whole, err := b.s.Node(b.ctx, nil, "a")
	b.ok(err)
	if d := cmp.Diff(map[int64]*metal.Node{m.Num: whole}, found); d != "" {
		b.Errorf("marked nodes differ (-want +have):\n%s", d)
	}
	j.State = job.Ended
	b.save(&j, false)
	b.do(func(tx job.Tx) error {
		if err := b.s.DeleteNode(tx, n); err != nil {
			return err
		}
		n.Version = 0
		return b.s.InsertNode(tx, n)
	})
	look("a new life")
	_, err = b.s.NodeMark(b.ctx, "ghost")
	b.refused(err, problem.NotFound, "Node ghost could not be found.")
}

func testReservation(b *testEnv) {
	b.node("a")
	look := func(reservation, conductor string) {
		b.Helper()
		n := must.Get(b.s.Node(b.ctx, nil, "a"))(b)
		list := must.Get(b.s.Nodes(b.ctx, nil, metal.NodeFilter{}, record.Page{}))(b)
		for _, n := range append(list, n) {
			if n.Reservation != reservation || n.Conductor != conductor {
				b.Fatalf("reservation %q conductor %q, want %q and %q", n.Reservation, n.Conductor, reservation, conductor)
			}
		}
	}
	look("", "")
	b.ok(b.s.Register(b.ctx, job.Conductor{ID: "conductor", Incarnation: "1", Hostname: "host-b", Groups: []string{"", "north"}}))
	b.ok(b.s.Register(b.ctx, job.Conductor{ID: "second", Incarnation: "1", Hostname: "host-c", Groups: []string{""}}))
	look("", "host-b")
	b.insert(job.Background, "a")
	look("", "host-b")
	b.claimOne()
	b.insert(job.Operation, "a")
	look("host-b", "host-b") // nobody has taken it up yet: still a host name, as everywhere
	j := b.claimOne()
	look("host-b", "host-b")
	j.State = job.Waiting
	b.save(&j, false)
	look("", "host-b")
}

func testBootPlan(b *testEnv) {
	mac := "52:54:00:aa:bb:cc"
	n := b.node("a", func(n *metal.Node) {
		n.Plan = &metal.BootPlan{Path: "secret-path", MACs: []string{mac, strings.ToUpper(mac), "52:54:00:00:00:02"}}
	})
	got, err := b.s.NodeByMAC(b.ctx, strings.ToUpper(mac))
	b.ok(err)
	byPath, err := b.s.NodeByBootPath(b.ctx, "secret-path")
	b.ok(err)
	if got.ID != "a" || byPath.ID != "a" || got.Plan.Path != "secret-path" {
		b.Fatal("the plan is another node's")
	}
	b.node("b", func(n *metal.Node) { n.Plan = &metal.BootPlan{Path: "p2", MACs: []string{mac}} })
	n.Plan = nil
	b.do(func(tx job.Tx) error { return b.s.SaveNode(tx, n) })
	got, err = b.s.NodeByMAC(b.ctx, mac)
	b.ok(err)
	if got.ID != "b" {
		b.Fatal("a plan that is gone is still found")
	}
	for _, gone := range []string{"secret-path", "", "%"} {
		_, err = b.s.NodeByBootPath(b.ctx, gone)
		b.refused(err, problem.NotFound, "")
	}
	_, err = b.s.NodeByMAC(b.ctx, "52:54:00:00:00:02")
	b.refused(err, problem.NotFound, "")
}

func joinNodeIDs(nodes []*metal.Node) string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.ID)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func testNodeFilters(b *testEnv) {
	b.node("plain")
	full := fullNode()
	full.ID = "full"
	b.do(func(tx job.Tx) error { return b.s.InsertNode(tx, full) })
	b.node("lent", func(n *metal.Node) { n.Lessee = "o" })
	b.ok(b.s.Register(b.ctx, job.Conductor{ID: "c", Incarnation: "1", Hostname: "norths", Groups: []string{"north"}}))
	for _, c := range []struct {
		f    metal.NodeFilter
		want string
	}{
		{metal.NodeFilter{}, "full lent plain"},
		{metal.NodeFilter{InstanceUUID: "i-1"}, "full"},
		{metal.NodeFilter{Driver: "redfish"}, "full"},
		{metal.NodeFilter{ResourceClass: "gold"}, "full"},
		{metal.NodeFilter{Owner: "o"}, "full"},
		{metal.NodeFilter{Lessee: "l"}, "full"},
		{metal.NodeFilter{Fault: "power failure"}, "full"},
		{metal.NodeFilter{ChassisUUID: "c-1"}, "full"},
		{metal.NodeFilter{Shard: "s"}, "full"},
		{metal.NodeFilter{DescriptionContains: "OLD mach"}, "full"},
		{metal.NodeFilter{DescriptionContains: "100%"}, "full"},
		{metal.NodeFilter{DescriptionContains: "1%s"}, ""},
		{metal.NodeFilter{DescriptionContains: "ol_"}, ""},
		{metal.NodeFilter{DescriptionContains: "!"}, ""},
		{metal.NodeFilter{Project: "o"}, "full lent"},
		{metal.NodeFilter{ConductorGroup: pointerTo("north")}, "full"},
		{metal.NodeFilter{ConductorGroup: pointerTo("")}, "lent plain"},
		{metal.NodeFilter{Conductor: "norths"}, "full"},
		{metal.NodeFilter{Conductor: "elsewhere"}, ""},
		{metal.NodeFilter{ProvisionState: metal.RescueWait}, "full"},
		{metal.NodeFilter{Associated: pointerTo(true)}, "full"},
		{metal.NodeFilter{Associated: pointerTo(false)}, "lent plain"},
		{metal.NodeFilter{Maintenance: pointerTo(true)}, "full"},
		{metal.NodeFilter{Maintenance: pointerTo(false)}, "lent plain"},
		{metal.NodeFilter{Retired: pointerTo(true)}, "full"},
		{metal.NodeFilter{Retired: pointerTo(false)}, "lent plain"},
		{metal.NodeFilter{Sharded: pointerTo(true)}, "full"},
		{metal.NodeFilter{Sharded: pointerTo(false)}, "lent plain"},
		{metal.NodeFilter{Owner: "o", Lessee: "nobody"}, ""},
		{metal.NodeFilter{ParentNode: "parent"}, "full"},
		{metal.NodeFilter{NoChildren: true}, "lent plain"},
		{metal.NodeFilter{Shards: []string{"s", "t"}}, "full"},
		{metal.NodeFilter{Shards: []string{}}, ""},
		{metal.NodeFilter{InstanceName: "web-1"}, "full"},
		{metal.NodeFilter{Traits: []string{"B"}}, "full"},
		{metal.NodeFilter{Traits: []string{"A", "C"}}, ""},
		{metal.NodeFilter{Traits: []string{"A%"}}, ""},
		{metal.NodeFilter{Powered: true}, "full"},
		{metal.NodeFilter{Owner: "' OR 1=1 --"}, ""},
	} {
		got := must.Get(b.s.Nodes(b.ctx, nil, c.f, record.Page{SortKey: "name"}))(b)
		if joinNodeIDs(got) != c.want {
			b.Errorf("filter %+v: have %q, want %q", c.f, joinNodeIDs(got), c.want)
		}
	}
}

// nodeSortKeys are the words that the API may hand on.
var nodeSortKeys = []string{"", "id", "uuid", "name", "driver", "instance_uuid", "chassis_uuid", "resource_class", "description", "owner", "lessee",
	"shard", "conductor_group", "maintenance", "fault", "protected", "retired", "console_enabled", "power_state", "target_power_state",
	"provision_state", "target_provision_state", "last_error", "provision_updated_at", "inspection_started_at", "inspection_finished_at",
	"created_at", "updated_at"}

func testNodePages(b *testEnv) {
	for i := range 11 {
		b.node(fmt.Sprintf("n%02d", (i*7)%11), func(n *metal.Node) {
			// Few different values, so that pages break among equals.
			if i%3 > 0 {
				n.Name, n.Owner, n.Maintenance = fmt.Sprintf("%s-%d", []string{"Name", "name"}[i%2], 20-i), fmt.Sprint("é", i%2), i%2 == 0
				n.ProvisionedAt = time.UnixMicro(int64(i % 4))
				n.PowerState = metal.PowerOn
			}
		})
	}
	for _, key := range nodeSortKeys {
		for _, desc := range []bool{false, true} {
			whole := must.Get(b.s.Nodes(b.ctx, nil, metal.NodeFilter{}, record.Page{SortKey: key, Desc: desc}))(b)
			var paged []string
			page := record.Page{SortKey: key, Desc: desc, Limit: 3}
			for range 5 {
				got := must.Get(b.s.Nodes(b.ctx, nil, metal.NodeFilter{}, page))(b)
				for _, n := range got {
					paged = append(paged, n.ID)
				}
				if len(got) < 3 {
					break
				}
				page.Marker = got[2].ID
			}
			var all []string
			for _, n := range whole {
				all = append(all, n.ID)
			}
			if len(all) != 11 || !slices.Equal(all, paged) {
				b.Errorf("sorted by %q (down %v): pages %v, whole %v", key, desc, paged, all)
			}
		}
	}
	byName, err := b.s.Nodes(b.ctx, nil, metal.NodeFilter{}, record.Page{SortKey: "name"})
	b.ok(err)
	if !slices.IsSortedFunc(byName, func(x, y *metal.Node) int { return strings.Compare(x.Name, y.Name) }) {
		b.Error("not sorted by the bytes of names")
	}
	_, err = b.s.Nodes(b.ctx, nil, metal.NodeFilter{}, record.Page{SortKey: "extra"})
	b.refused(err, problem.Invalid, "")
	_, err = b.s.Nodes(b.ctx, nil, metal.NodeFilter{}, record.Page{SortKey: "name; DROP TABLE node"})
	b.refused(err, problem.Invalid, "")
	_, err = b.s.Nodes(b.ctx, nil, metal.NodeFilter{}, record.Page{Marker: "nobody"})
	b.refused(err, problem.NotFound, "Node nobody could not be found.")
	last, err := b.s.Nodes(b.ctx, nil, metal.NodeFilter{}, record.Page{Marker: (func() string {
		all, _ := b.s.Nodes(b.ctx, nil, metal.NodeFilter{}, record.Page{})
		return all[10].ID
	})()})
	b.ok(err)
	if len(last) != 0 {
		b.Error("there is a page after the last")
	}
}
