package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/test/must"
)

// testFleet: the counts are those of the nodes, a project counts and finds its own, and a few letters find a node.
func testFleet(b *testEnv) {
	b.node("aa01", func(n *metal.Node) { n.Name, n.ProvisionState, n.Owner = "Rack1-01", metal.Active, "p1" })
	b.node("aa02", func(n *metal.Node) { n.Name, n.ProvisionState, n.Lessee = "rack1-02", metal.Active, "p1" })
	b.node("bb03", func(n *metal.Node) {
		n.Name, n.ProvisionState, n.Maintenance, n.Fault = "rack2_01", metal.Active, true, "power failure"
	})
	b.node("bb04", func(n *metal.Node) { n.InstanceUUID, n.LastError, n.PowerState = "cc77", "it failed", metal.PowerOn })
	counts := func(project string) string {
		found := must.Get(b.s.FleetCounts(b.ctx, project))(b)
		var out []string
		for _, c := range found {
			out = append(out, fmt.Sprintf("%s %t %t %d", c.State, c.Maintenance, c.Faulty, c.Count))
		}
		slices.Sort(out)
		return strings.Join(out, ", ")
	}
	if got := counts(""); got != "active false false 2, active true true 1, enroll false false 1" {
		b.Errorf("counts: %s", got)
	}
	if got := counts("p1"); got != "active false false 2" {
		b.Errorf("counts of a project: %s", got)
	}
	census := must.Get(b.s.CountRows(b.ctx))(b)
	if got := fmt.Sprint(census.Nodes, census.Maintenance["active"]); got != "map[active:3 enroll:1] 1" {
		b.Errorf("the census counts %s", got)
	}
	yes, no := true, false
	for _, one := range []struct {
		filter metal.NodeFilter
		want   string
	}{
		{metal.NodeFilter{}, "aa01 aa02 bb03 bb04"}, {metal.NodeFilter{Search: "RACK1"}, "aa01 aa02"}, {metal.NodeFilter{Search: "2_0"}, "bb03"},
		{metal.NodeFilter{Search: "%"}, ""}, {metal.NodeFilter{Search: "BB"}, "bb03 bb04"}, {metal.NodeFilter{Search: "cc7"}, "bb04"}, {metal.NodeFilter{Search: "a01"}, ""},
		{metal.NodeFilter{Faulty: &yes}, "bb03"}, {metal.NodeFilter{Faulty: &no}, "aa01 aa02 bb04"}, {metal.NodeFilter{ProvisionState: metal.Active, Search: "-02"}, "aa02"},
		{metal.NodeFilter{Project: "p1", Search: "rack"}, "aa01 aa02"},
	} {
		found := must.Get(b.s.FleetNodes(b.ctx, one.filter, record.Page{}))(b)
		var got []string
		for _, n := range found {
			got = append(got, n.ID)
		}
		if strings.Join(got, " ") != one.want {
			b.Errorf("%+v finds %v, want %s", one.filter, got, one.want)
		}
	}
	page := must.Get(b.s.FleetNodes(b.ctx, metal.NodeFilter{}, record.Page{Limit: 1, Marker: "bb03"}))(b)
	if len(page) != 1 || page[0].ID != "bb04" || page[0].State != metal.Enroll || page[0].Power != metal.PowerOn || page[0].LastError != "it failed" {
		b.Errorf("the page after bb03 is %+v", page)
	}
	testBMCs(b)
}

// testBMCs: each BMC is in one state, and the store finds the same as metal.Contact.BMCState.
func testBMCs(b *testEnv) {
	b.Helper()
	now := b.s.Now().Truncate(time.Microsecond)
	since := now.Add(-10 * time.Minute)
	for _, c := range []metal.Contact{
		{NodeID: "aa01", PowerRead: metal.PowerOn, PowerReadAt: now.Add(-time.Hour), PowerError: "timeout", PowerFailedAt: now},
		{NodeID: "aa02", PowerRead: metal.PowerOn, PowerReadAt: now},
		{NodeID: "bb03", PowerError: "401", PowerRefused: true, PowerFailedAt: now},
		{NodeID: "bb04", PowerError: "timeout", PowerFailedAt: since.Add(-time.Second), PowerFailures: 1},
	} {
		b.do(func(tx job.Tx) error { return b.s.SaveContact(tx, c) })
	}
	b.node("cc05") // of which nothing was heard
	find := func(f metal.NodeFilter) string {
		f.PowerReadSince = since
		var ids []string
		for _, n := range must.Get(b.s.FleetNodes(b.ctx, f, record.Page{}))(b) {
			ids = append(ids, n.ID)
			if got := n.Contact.BMCState(since); f.BMC != "" && got != f.BMC {
				b.Errorf("the filter %s finds %s, whose contact says %s", f.BMC, n.ID, got)
			}
		}
		return strings.Join(ids, " ")
	}
	for _, one := range []struct {
		filter metal.NodeFilter
		want   string
	}{
		{metal.NodeFilter{BMC: metal.BMCSilent}, "aa01"}, {metal.NodeFilter{BMC: metal.BMCAnswering}, "aa02"}, {metal.NodeFilter{BMC: metal.BMCRefusing}, "bb03"},
		{metal.NodeFilter{BMC: metal.BMCUnknown}, "bb04 cc05"}, {metal.NodeFilter{BMC: metal.BMCSilent, Project: "p1"}, "aa01"},
		{metal.NodeFilter{BMC: metal.BMCRefusing, Project: "p1"}, ""}, {metal.NodeFilter{BMC: metal.BMCUnknown, Search: "nobody"}, ""},
		{metal.NodeFilter{IDs: []string{"cc05", "aa02"}}, "aa02 cc05"},
	} {
		if got := find(one.filter); got != one.want {
			b.Errorf("%+v finds %q, want %q", one.filter, got, one.want)
		}
	}
	for project, want := range map[string]string{"": "{1 1 [Rack1-01]}", "p1": "{1 0 [Rack1-01]}", "nobody": "{0 0 []}"} {
		if got := fmt.Sprint(must.Get(b.s.FailingBMCs(b.ctx, project, since, 1))(b)); got != want {
			b.Errorf("project %q: failing BMCs %s, want %s", project, got, want)
		}
	}
	// A reading of before the failure, which comes late, ends no silence.
	b.ok(b.s.SavePower(b.ctx, []metal.PowerReading{{NodeID: "aa01", Power: metal.PowerOn, At: now.Add(-time.Second)}}))
	if got := find(metal.NodeFilter{BMC: metal.BMCSilent}); got != "aa01" {
		b.Errorf("after a late reading of before the failure these are silent: %q", got)
	}
	b.ok(b.s.SavePower(b.ctx, []metal.PowerReading{{NodeID: "aa01", Power: metal.PowerOn, At: now.Add(time.Second)}}))
	if got := find(metal.NodeFilter{BMC: metal.BMCAnswering}); got != "aa01 aa02" {
		b.Errorf("after a reading that succeeded these answer: %q", got)
	}
}
