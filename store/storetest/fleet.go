package storetest

import (
	"fmt"
	"slices"
	"strings"

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
}
