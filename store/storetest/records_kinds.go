package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

func testChassis(b *testEnv) {
	full := func(i int) *metal.Chassis {
		return &metal.Chassis{Description: fmt.Sprint("rack ", 9-i), Extra: metal.Object{"a": "b"}}
	}
	tableCase[metal.Chassis, metal.ChassisFilter]{b.s.Chassis(), "Chassis", full, (*metal.Chassis).Head, nil, []string{"description"}}.test(b)
}

// testChassisHeld: between the look that a chassis is empty and its removal a node is put
// into it. Where an engine lets both transactions be open, only one of them comes to something.
func testChassisHeld(b *testEnv) {
	b.do(func(tx job.Tx) error {
		return b.s.Chassis().Insert(tx, &metal.Chassis{Record: record.Record{ID: "rack"}})
	})
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.LockChassis(tx, "ghost") }), problem.NotFound, "Chassis ghost could not be found.")
	other := b.other()
	move := func() {
		b.ok(other.Do(b.ctx, func(tx job.Tx) error {
			if err := other.LockChassis(tx, "rack"); err != nil {
				return err
			}
			return other.InsertNode(tx, &metal.Node{ID: "n", ChassisUUID: "rack", ProvisionState: metal.Enroll})
		}))
	}
	if !b.db.Shared {
		move()
	}
	looks, found := 0, 0
	b.do(func(tx job.Tx) error {
		r, err := b.s.Chassis().Get(b.ctx, tx, "rack")
		if err != nil {
			return err
		}
		in, err := b.s.Nodes(b.ctx, tx, metal.NodeFilter{ChassisUUID: "rack"}, record.Page{Limit: 1})
		if looks++; looks == 1 && b.db.Shared {
			move()
		}
		if found = len(in); err != nil || found > 0 {
			return err
		}
		return b.s.Chassis().Delete(tx, r)
	})
	if _, err := b.s.Chassis().Get(b.ctx, nil, "rack"); err != nil || found != 1 {
		b.Errorf("%d nodes were found in the chassis after %d looks: %v", found, looks, err)
	}
}

func testConnectors(b *testEnv) {
	b.node("a", func(n *metal.Node) { n.Lessee = "o" })
	full := func(i int) *metal.Connector {
		return &metal.Connector{NodeID: "a", Type: "iqn", ConnectorID: fmt.Sprint("iqn.2026-01.x:", i), Extra: metal.Object{"a": "b"}}
	}
	tableCase[metal.Connector, metal.ConnectorFilter]{b.s.Connectors(), "Volume connector", full, (*metal.Connector).Head, nil,
		[]string{"type", "connector_id", "node_uuid"}}.test(b)
	b.node("b")
	taken := full(1)
	taken.ID, taken.NodeID = "x", "b"
	refusedBoth(b, b.s.Connectors(), taken, full(9), func(v *metal.Connector) { v.ConnectorID = taken.ConnectorID },
		"A volume connector with type 'iqn' and connector ID 'iqn.2026-01.x:1' already exists.")
	other := full(1)
	other.ID, other.NodeID, other.Type = "y", "b", "wwpn"
	b.do(func(tx job.Tx) error { return b.s.Connectors().Insert(tx, other) })
	orphan := full(7)
	orphan.NodeID = "ghost"
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.Connectors().Insert(tx, orphan) }), problem.NotFound, "Node ghost could not be found.")
	checkListCounts(b, b.s.Connectors(), map[string]listCase[metal.ConnectorFilter]{
		"node": {metal.ConnectorFilter{NodeID: "b"}, 1}, "type": {metal.ConnectorFilter{Type: "iqn"}, 5},
		"connector_id": {metal.ConnectorFilter{ConnectorID: "iqn.2026-01.x:1"}, 2}, "project": {metal.ConnectorFilter{Project: "o"}, 5},
	})
}

func testTargets(b *testEnv) {
	b.node("a", func(n *metal.Node) { n.Owner = "o" })
	full := func(i int) *metal.Target {
		return &metal.Target{NodeID: "a", VolumeType: "iscsi", VolumeID: strings.Repeat("v", 255), BootIndex: i,
			Properties: metal.Object{"target_portal": "192.0.2.1:3260", "auth_username": "u", "auth_password": "p", "target_lun": 1.0,
				"target_portals": []any{"a", "b"}}, Extra: metal.Object{"a": "b"}}
	}
	tableCase[metal.Target, metal.TargetFilter]{b.s.Targets(), "Volume target", full, (*metal.Target).Head, nil,
		[]string{"volume_type", "volume_id", "boot_index", "node_uuid"}}.test(b)
	taken := full(1)
	taken.ID = "x"
	refusedBoth(b, b.s.Targets(), taken, full(9), func(v *metal.Target) { v.BootIndex = 1 }, "A volume target with boot index '1' for the same node already exists.")
	b.node("b")
	taken.NodeID, taken.VolumeID, taken.VolumeType = "b", "w", "fibre_channel"
	b.do(func(tx job.Tx) error { return b.s.Targets().Insert(tx, taken) })
	checkListCounts(b, b.s.Targets(), map[string]listCase[metal.TargetFilter]{
		"node": {metal.TargetFilter{NodeID: "b"}, 1}, "type": {metal.TargetFilter{VolumeType: "fibre_channel"}, 1}, "volume": {metal.TargetFilter{VolumeID: "w"}, 1},
		"index": {metal.TargetFilter{BootIndex: pointerTo(1)}, 2}, "index 0": {metal.TargetFilter{BootIndex: pointerTo(0)}, 0}, "project": {metal.TargetFilter{Project: "o"}, 5},
	})
}

func testAllocations(b *testEnv) {
	full := func(i int) *metal.Allocation {
		return &metal.Allocation{Name: fmt.Sprint("claim-", i), NodeID: fmt.Sprint("n", i), ResourceClass: "gold", Traits: []string{"CUSTOM_A"}, CandidateNodes: []string{"x"},
			State: metal.AllocationDone, LastError: "e", Owner: "o", ConductorGroup: "north", Extra: metal.Object{"a": "b"}}
	}
	tableCase[metal.Allocation, metal.AllocationFilter]{b.s.Allocations(), "Allocation", full, (*metal.Allocation).Head,
		func(a *metal.Allocation) string { return a.Name }, []string{"name", "state", "resource_class", "owner", "node_uuid", "last_error"}}.test(b)
	taken := full(1)
	taken.ID, taken.NodeID = "x", ""
	refusedBoth(b, b.s.Allocations(), taken, full(9), func(a *metal.Allocation) { a.Name = "claim-1" }, "An allocation with name claim-1 already exists.")
	taken.Name, taken.NodeID = "", "n2"
	refusedBoth(b, b.s.Allocations(), taken, full(8), func(a *metal.Allocation) { a.NodeID = "n2" }, "Node n2 is already claimed by another allocation.")
	for i := range 2 { // neither name nor node is a key while it is empty
		b.do(func(tx job.Tx) error {
			return b.s.Allocations().Insert(tx, &metal.Allocation{Record: record.Record{ID: fmt.Sprint("e", i)}, State: metal.Allocating})
		})
	}
	checkListCounts(b, b.s.Allocations(), map[string]listCase[metal.AllocationFilter]{
		"state": {metal.AllocationFilter{State: metal.Allocating}, 2}, "node": {metal.AllocationFilter{NodeID: "n2"}, 1},
		"owner": {metal.AllocationFilter{Owner: "o"}, 6}, "class": {metal.AllocationFilter{ResourceClass: "silver"}, 0},
	})
}

func testSteps(b *testEnv) {
	steps := []metal.Step{{Interface: "bios", Step: "apply", Args: metal.Object{"settings": []any{map[string]any{"name": "x"}}}, Priority: 10, Order: 2}, {Interface: "deploy", Step: "x"}}
	template := func(i int) *metal.DeployTemplate {
		return &metal.DeployTemplate{Name: fmt.Sprint("CUSTOM_", i), Steps: steps, Extra: metal.Object{"a": "b"}}
	}
	tableCase[metal.DeployTemplate, metal.DeployTemplateFilter]{b.s.DeployTemplates(), "Deploy template", template, (*metal.DeployTemplate).Head,
		func(d *metal.DeployTemplate) string { return d.Name }, []string{"name"}}.test(b)
	taken := template(1)
	taken.ID = "x"
	refusedBoth(b, b.s.DeployTemplates(), taken, template(9), func(d *metal.DeployTemplate) { d.Name = "CUSTOM_1" }, "A deploy template with name CUSTOM_1 already exists.")
	checkListCounts(b, b.s.DeployTemplates(), map[string]listCase[metal.DeployTemplateFilter]{
		"names": {metal.DeployTemplateFilter{Names: []string{"CUSTOM_1", "CUSTOM_2", "other"}}, 2}, "no names": {metal.DeployTemplateFilter{Names: []string{}}, 0}})
	book := func(i int) *metal.Runbook {
		return &metal.Runbook{Name: fmt.Sprint("BOOK_", i), Description: "d", Steps: steps, Traits: []string{"T"}, DisableRamdisk: true, Public: i == 1, Owner: "o", Extra: metal.Object{"a": "b"}}
	}
	tableCase[metal.Runbook, metal.RunbookFilter]{b.s.Runbooks(), "Runbook", book, (*metal.Runbook).Head,
		func(r *metal.Runbook) string { return r.Name }, []string{"name", "owner", "public"}}.test(b)
	other := book(1)
	other.ID = "x"
	refusedBoth(b, b.s.Runbooks(), other, book(9), func(r *metal.Runbook) { r.Name = "BOOK_1" }, "A runbook with name BOOK_1 already exists.")
	checkListCounts(b, b.s.Runbooks(), map[string]listCase[metal.RunbookFilter]{"owner": {metal.RunbookFilter{Project: "o"}, 5}, "stranger": {metal.RunbookFilter{Project: "p"}, 1}})
}

func testInspectionRules(b *testEnv) {
	full := func(i int) *metal.InspectionRule {
		return &metal.InspectionRule{Description: "d", Priority: i % 3, Phase: "main", Scope: "s", Sensitive: true,
			Conditions: []any{map[string]any{"op": "eq", "args": []any{1.0, "x"}}}, Actions: []any{map[string]any{"op": "set-attribute", "args": map[string]any{"a": "b"}}}}
	}
	tableCase[metal.InspectionRule, metal.InspectionRuleFilter]{b.s.InspectionRules(), "Inspection rule", full, (*metal.InspectionRule).Head, nil,
		[]string{"priority", "phase", "scope", "description"}}.test(b)
	checkListCounts(b, b.s.InspectionRules(), map[string]listCase[metal.InspectionRuleFilter]{"phase": {metal.InspectionRuleFilter{Phase: "main"}, 4}, "scope": {metal.InspectionRuleFilter{Scope: "x"}, 0}})
}

func testDocuments(b *testEnv) {
	b.node("a")
	b.node("b")
	kinds := []metal.DocumentKind{metal.ConfigDrive, metal.Inventory, metal.PluginData, metal.BIOSSettings, metal.Firmware, metal.Steps}
	for i, kind := range kinds {
		_, err := b.s.Document(b.ctx, nil, "a", kind)
		b.refused(err, problem.NotFound, "")
		for _, body := range []string{`{"n":0}`, fmt.Sprintf(`{"n":%d}`, i)} {
			b.do(func(tx job.Tx) error {
				return b.s.SaveDocument(tx, metal.Document{NodeID: "a", Kind: kind, Body: json.RawMessage(body)})
			})
		}
	}
	for i, kind := range kinds {
		d := must.Get(b.s.Document(b.ctx, nil, "a", kind))(b)
		if string(d.Body) != fmt.Sprintf(`{"n":%d}`, i) || d.NodeID != "a" || d.Kind != kind || d.CreatedAt.IsZero() || d.UpdatedAt.Before(d.CreatedAt) {
			b.Errorf("%s: %+v", kind, d)
		}
	}
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error {
		return b.s.SaveDocument(tx, metal.Document{NodeID: "ghost", Kind: metal.Inventory})
	}),
		problem.NotFound, "Node ghost could not be found.")
	for range 2 {
		b.do(func(tx job.Tx) error { return b.s.DeleteDocument(tx, "a", metal.Inventory) })
	}
	_, err := b.s.Document(b.ctx, nil, "a", metal.Inventory)
	b.refused(err, problem.NotFound, "")
}

// testRepairParts: parts are read back, sealed, and go with their repair and with their node.
func testRepairParts(b *testEnv) {
	b.node("a")
	b.node("b")
	for _, node := range []string{"a", "b"} {
		for _, id := range []string{"r1", "r2"} {
			for _, body := range []string{"first", "of " + node + id} {
				part := metal.RepairPart{NodeID: node, RepairID: id, Name: metal.RepairPlanPart, Body: []byte(body)}
				b.do(func(tx job.Tx) error { return b.s.SaveRepairPart(tx, part) })
			}
		}
	}
	read := func(node, id string) string {
		p, err := b.s.RepairPart(b.ctx, nil, node, id, metal.RepairPlanPart)
		if err != nil {
			b.refused(err, problem.NotFound, "")
		}
		return string(p.Body)
	}
	b.do(func(tx job.Tx) error { return b.s.DropRepairParts(tx, "a", []string{"r2"}) })
	if read("a", "r1") != "" || read("a", "r2") != "of ar2" || read("b", "r1") != "of br1" {
		b.Error("the parts of other repairs were dropped, or those of the dropped one stayed")
	}
	b.do(func(tx job.Tx) error { return b.s.DropRepairParts(tx, "b", nil) })
	if read("b", "r1") != "" || read("b", "r2") != "" || read("a", "r2") == "" {
		b.Error("not all parts of the node were dropped, or those of another one")
	}
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error {
		return b.s.SaveRepairPart(tx, metal.RepairPart{NodeID: "ghost", RepairID: "r", Name: metal.RepairPlanPart})
	}), problem.NotFound, "Node ghost could not be found.")
}

// testRepairSizes: what is kept of repairs is added up for the project that uses the nodes, oldest repair first.
func testRepairSizes(b *testEnv) {
	b.node("owned", func(n *metal.Node) { n.Owner = "p" })
	b.node("leased", func(n *metal.Node) { n.Owner, n.Lessee = "q", "p" })
	b.node("lent", func(n *metal.Node) { n.Owner, n.Lessee = "p", "q" })
	b.node("free")
	save := func(node, id, name string, size int) {
		part := metal.RepairPart{NodeID: node, RepairID: id, Name: name, Body: bytes.Repeat([]byte("x"), size)}
		b.do(func(tx job.Tx) error { return b.s.SaveRepairPart(tx, part) })
	}
	sizes := func(project string) (out []string, taken []int64) {
		found, err := b.s.RepairSizes(b.ctx, nil, project)
		if err != nil {
			b.Fatal(err)
		}
		for _, z := range found {
			out, taken = append(out, z.NodeID+" "+z.RepairID), append(taken, z.Bytes)
		}
		return out, taken
	}
	save("owned", "r2", metal.RepairPlanPart, 3000)
	save("leased", "r1", metal.RepairPlanPart, 3000)
	save("lent", "r1", metal.RepairPlanPart, 3000)
	save("free", "r1", metal.RepairPlanPart, 3000)
	save("owned", "r1", metal.RepairPlanPart, 3000)
	save("leased", "r1", metal.RepairImagesPart(1), 9000) // so the repair is the newest now
	for project, want := range map[string][]string{"p": {"owned r2", "owned r1", "leased r1"}, "q": {"lent r1"}, "": {"free r1"}, "nobody": nil} {
		got, taken := sizes(project)
		if !slices.Equal(got, want) {
			b.Errorf("repairs of project %q: want %q, got %q", project, want, got)
		}
		for i, size := range taken {
			if size < 3000 || size > 10000 && got[i] != "leased r1" || got[i] == "leased r1" && (size < 12000 || size > 30000) {
				b.Errorf("bytes of repair %q of project %q: want 3000 or, of the leased node, 12000, and some more for the sealing; got %d", got[i], project, size)
			}
		}
	}
}

// testGoesWithNode: nothing of a node is left when it is gone, and nothing of another goes with it.
func testGoesWithNode(b *testEnv) {
	nodes := map[string]*metal.Node{}
	for i, id := range []string{"a", "b"} {
		nodes[id] = b.node(id)
		b.do(func(tx job.Tx) error {
			r := record.Record{ID: "r" + id}
			for _, err := range []error{
				b.s.InsertPort(tx, &metal.Port{Record: record.Record{ID: "p" + id}, NodeID: id, Address: "52:54:00:00:00:0" + fmt.Sprint(i)}),
				b.s.Portgroups().Insert(tx, &metal.Portgroup{Record: r, NodeID: id}),
				b.s.Connectors().Insert(tx, &metal.Connector{Record: r, NodeID: id, Type: "iqn", ConnectorID: id}),
				b.s.Targets().Insert(tx, &metal.Target{Record: r, NodeID: id, VolumeType: "iscsi", VolumeID: "v"}),
				b.s.Allocations().Insert(tx, &metal.Allocation{Record: r, NodeID: id, State: metal.AllocationDone}),
				b.s.SaveDocument(tx, metal.Document{NodeID: id, Kind: metal.Inventory, Body: json.RawMessage(`{}`)}),
			} {
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	left := func(id string) (n int) {
		for _, err := range []error{
			onlyError(b.s.Port(b.ctx, nil, "p"+id)), onlyError(b.s.Portgroups().Get(b.ctx, nil, "r"+id)), onlyError(b.s.Connectors().Get(b.ctx, nil, "r"+id)),
			onlyError(b.s.Targets().Get(b.ctx, nil, "r"+id)), onlyError(b.s.Allocations().Get(b.ctx, nil, "r"+id)), onlyError(b.s.Document(b.ctx, nil, id, metal.Inventory)),
		} {
			if err == nil {
				n++
			} else if !problem.Is(err, problem.NotFound) {
				b.Error(err)
			}
		}
		return n
	}
	if left("a") != 6 {
		b.Fatal("not all was there")
	}
	b.do(func(tx job.Tx) error { return b.s.DeleteNode(tx, nodes["a"]) })
	if left("a") != 0 || left("b") != 6 {
		b.Errorf("of the node that went %d are left, of the other %d of 6", left("a"), left("b"))
	}
}

func onlyError[T any](_ T, err error) error { return err }

func testShards(b *testEnv) {
	for i, shard := range []string{"", "north", "south", "north"} {
		b.node(fmt.Sprint(i), func(n *metal.Node) { n.Shard = shard })
	}
	got := must.Get(b.s.Shards(b.ctx))(b)
	if d := cmp.Diff([]metal.Shard{{Name: "", Count: 1}, {Name: "north", Count: 2}, {Name: "south", Count: 1}}, got); d != "" {
		b.Fatalf("shards differ (-want +have):\n%s", d)
	}
}
