package storetest

import (
	"strconv"

	"salvor/job"
	"salvor/metal"
	"salvor/test/must"
)

func sampleSite(i int) *metal.Site { return fillRecord[metal.Site](i) }

func testSites(b *testEnv) {
	t := b.s.Sites()
	tableCase[metal.Site, metal.SiteFilter]{t, "Site", sampleSite, (*metal.Site).Head, func(s *metal.Site) string { return s.Name }, []string{"name"}}.test(b)
	taken := sampleSite(1)
	taken.ID = "x"
	refusedBoth(b, t, taken, sampleSite(8), func(s *metal.Site) { s.Name = taken.Name }, "A site with name "+taken.Name+" already exists.")
	checkListCounts(b, t, map[string]listCase[metal.SiteFilter]{
		"name": {metal.SiteFilter{Name: taken.Name}, 1}, "digest": {metal.SiteFilter{Digest: taken.Digest}, 1}, "none": {metal.SiteFilter{Digest: "of nothing"}, 0},
	})
}

// testPlannedNodes: a site is told of its own group's nodes with a boot plan.
func testPlannedNodes(b *testEnv) {
	for i, n := range []struct {
		group   string
		planned bool
	}{{"oslo", true}, {"oslo", false}, {"bergen", true}, {"", true}} {
		node := &metal.Node{ID: "node-" + strconv.Itoa(i), Driver: "fake-hardware", ConductorGroup: n.group, ProvisionState: metal.Active, BootNumber: 1}
		if n.planned {
			node.Plan = &metal.BootPlan{Path: "path-" + strconv.Itoa(i), BootNumber: 1}
		}
		b.do(func(tx job.Tx) error { return b.s.InsertNode(tx, node) })
	}
	for group, want := range map[string]string{"oslo": "node-" + strconv.Itoa(0), "bergen": "node-" + strconv.Itoa(2), "": "node-" + strconv.Itoa(3)} {
		found := must.Get(b.s.PlannedNodes(b.ctx, group))(b)
		if len(found) != 1 || found[0].ID != want || found[0].Plan == nil {
			b.Errorf("the planned nodes of %q are %+v; want %s", group, found, want)
		}
	}
}
