package storetest

import (
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

// tableCase is what the suite needs to know of a table to hold it to the contract.
type tableCase[R, F any] struct {
	table record.Table[R, F]
	title string
	// full gives a record with every field filled; i keeps its keys apart.
	full func(i int) *R
	head func(*R) *record.Record
	// named finds a record by another word than its UUID; empty: none.
	named func(*R) string
	// sort has the words of the wire to sort by.
	sort []string
}

func (h tableCase[R, F]) test(b *testEnv) {
	insert := func(r *R) error {
		return b.s.Do(b.ctx, func(tx job.Tx) error { return h.table.Insert(tx, r) })
	}
	save := func(r *R) error {
		return b.s.Do(b.ctx, func(tx job.Tx) error { return h.table.Save(tx, r) })
	}
	const n = 5
	var all []*R
	for i := range n {
		r := h.full(i)
		h.head(r).ID = fmt.Sprintf("r%d", (i*3)%n)
		b.ok(insert(r))
		all = append(all, r)
	}
	first := all[0]
	idents := []string{h.head(first).ID}
	if h.named != nil {
		idents = append(idents, h.named(first))
	}
	for _, ident := range idents {
		got := must.Get(h.table.Get(b.ctx, nil, ident))(b)
		if d := cmp.Diff(first, got); d != "" || h.head(got).CreatedAt.IsZero() || h.head(got).Version != 1 {
			b.Fatalf("%s %s differs (-want +have):\n%s", h.title, ident, d)
		}
	}
	again := h.full(n)
	h.head(again).ID = h.head(first).ID
	b.refused(insert(again), problem.Conflict, withArticle(h.title)+" with UUID "+h.head(first).ID+" already exists.")
	for _, ident := range []string{"nobody", ""} {
		_, err := h.table.Get(b.ctx, nil, ident)
		b.refused(err, problem.NotFound, h.title+" "+ident+" could not be found.")
	}
	stale := *first
	b.ok(save(first))
	if h.head(first).Version != 2 || h.head(first).UpdatedAt.IsZero() {
		b.Fatalf("after a save: %+v", h.head(first))
	}
	b.refused(save(&stale), problem.Conflict, h.title+" "+h.head(first).ID+" has been changed by another request; please retry.")
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return h.table.Delete(tx, &stale) }), problem.Conflict, "")
	h.pages(b, n)
	h.marks(b, first)
	b.do(func(tx job.Tx) error {
		if err := h.table.Delete(tx, first); err != nil {
			return err
		}
		_, err := h.table.Get(b.ctx, tx, h.head(first).ID)
		b.refused(err, problem.NotFound, "")
		left, err := h.table.List(b.ctx, tx, *new(F), record.Page{})
		if len(left) != n-1 {
			b.Errorf("%d of %s are left of %d", len(left), h.title, n)
		}
		return err
	})
}

// marks: a mark changes with its record, tells which records a list has, and is never that of another one.
func (h tableCase[R, F]) marks(b *testEnv, r *R) {
	list := must.Get(h.table.List(b.ctx, nil, *new(F), record.Page{SortKey: "uuid", Limit: 3}))(b)
	look := func() (all []record.Mark, nums []int64) {
		all = must.Get(h.table.Marks(b.ctx, *new(F), record.Page{SortKey: "uuid", Limit: 3}))(b)
		for _, m := range all {
			nums = append(nums, m.Num)
		}
		return all, nums
	}
	before, nums := look()
	found := must.Get(h.table.Marked(b.ctx, append(nums, -1)))(b)
	for i, m := range before {
		if d := cmp.Diff(list[i], found[m.Num]); d != "" || m.ID != h.head(list[i]).ID || m.Version != h.head(list[i]).Version {
			b.Fatalf("mark %+v of %s differs (-want +have):\n%s", m, h.title, d)
		}
	}
	if len(before) != 3 || len(found) != 3 {
		b.Fatalf("%d marks and %d marked of 3", len(before), len(found))
	}
	mark := func() record.Mark {
		all := must.Get(h.table.Marks(b.ctx, *new(F), record.Page{}))(b)
		return all[slices.IndexFunc(all, func(m record.Mark) bool { return m.ID == h.head(r).ID })]
	}
	old := mark()
	b.do(func(tx job.Tx) error { return h.table.Save(tx, r) })
	saved := mark()
	b.do(func(tx job.Tx) error {
		if err := h.table.Delete(tx, r); err != nil {
			return err
		}
		h.head(r).Version = old.Version
		return h.table.Insert(tx, r)
	})
	if again := mark(); saved == old || again == old || again == saved || again.Num == old.Num {
		b.Errorf("marks of %s: %v, saved %v, made anew %v", h.title, old, saved, again)
	}
}

func (h tableCase[R, F]) pages(b *testEnv, n int) {
	names := func(p record.Page) (out []string) {
		b.Helper()
		got := must.Get(h.table.List(b.ctx, nil, *new(F), p))(b)
		for _, r := range got {
			out = append(out, h.head(r).ID)
		}
		return out
	}
	for _, key := range append([]string{"", "id", "uuid", "created_at", "updated_at"}, h.sort...) {
		for _, desc := range []bool{false, true} {
			whole := names(record.Page{SortKey: key, Desc: desc})
			var paged []string
			page := record.Page{SortKey: key, Desc: desc, Limit: 2}
			for range (n + 1) / 2 {
				paged = append(paged, names(page)...)
				page.Marker = paged[len(paged)-1]
			}
			if len(whole) != n || !slices.Equal(whole, paged) {
				b.Errorf("%s by %q (down %v): pages %v, whole %v", h.title, key, desc, paged, whole)
			}
		}
	}
	_, err := h.table.List(b.ctx, nil, *new(F), record.Page{SortKey: "extra"})
	b.refused(err, problem.Invalid, "")
	_, err = h.table.List(b.ctx, nil, *new(F), record.Page{Marker: "nobody"})
	b.refused(err, problem.NotFound, h.title+" nobody could not be found.")
}

func withArticle(title string) string {
	word := strings.ToLower(title)
	if strings.ContainsAny(word[:1], "aeiou") {
		return "An " + word
	}
	return "A " + word
}

func testPortgroup(b *testEnv) {
	b.node("a")
	full := func(i int) *metal.Portgroup {
		return &metal.Portgroup{NodeID: "a", Name: fmt.Sprint("g", i), Address: fmt.Sprintf("52:54:00:00:01:0%d", i), Mode: "802.3ad", StandalonePorts: i%2 == 0,
			PhysicalNetwork: "net", Category: "c", DynamicPorts: true, Properties: metal.Object{"miimon": "100", "deep": map[string]any{"psk": "s"}},
			Extra: metal.Object{"a": 1.0}, InternalInfo: metal.Object{"b": nil}}
	}
	tableCase[metal.Portgroup, metal.PortgroupFilter]{b.s.Portgroups(), "Portgroup", full, (*metal.Portgroup).Head,
		func(g *metal.Portgroup) string { return g.Name },
		[]string{"name", "address", "mode", "node_uuid", "standalone_ports_supported", "physical_network", "category"}}.test(b)
	one := full(1)
	one.ID, one.Name = "x", "x"
	refusedBoth(b, b.s.Portgroups(), one, full(8), func(g *metal.Portgroup) { g.Address = one.Address }, "A portgroup with MAC address 52:54:00:00:01:01 already exists.")
	one.Name, one.Address = "g2", ""
	refusedBoth(b, b.s.Portgroups(), one, full(9), func(g *metal.Portgroup) { g.Name = "g2" }, "A portgroup with name g2 already exists.")
	orphan := full(7)
	orphan.NodeID = "ghost"
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.Portgroups().Insert(tx, orphan) }), problem.NotFound, "Node ghost could not be found.")
	b.node("b", func(n *metal.Node) { n.Owner, n.ConductorGroup, n.Shard = "o", "north", "s1" })
	b.do(func(tx job.Tx) error {
		return b.s.Portgroups().Insert(tx, &metal.Portgroup{Record: record.Record{ID: "ofb"}, NodeID: "b"})
	})
	b.do(func(tx job.Tx) error {
		return b.s.Portgroups().Insert(tx, &metal.Portgroup{Record: record.Record{ID: "ofb2"}, NodeID: "b"})
	})
	checkListCounts(b, b.s.Portgroups(), map[string]listCase[metal.PortgroupFilter]{
		"node": {metal.PortgroupFilter{NodeID: "b"}, 2}, "address": {metal.PortgroupFilter{Address: "52:54:00:00:01:01"}, 1},
		"project": {metal.PortgroupFilter{Project: "o"}, 2}, "group": {metal.PortgroupFilter{ConductorGroups: []string{"north"}}, 2},
		"shards": {metal.PortgroupFilter{Shards: []string{"s1", "s2"}}, 2}, "shard": {metal.PortgroupFilter{Shards: []string{"s2"}}, 0},
	})
}

// refusedBoth: the second is refused as new for the first's key, and as a change of an old one.
func refusedBoth[R, F any](b *testEnv, t record.Table[R, F], taken, free *R, clash func(*R), says string) {
	b.Helper()
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return t.Insert(tx, taken) }), problem.Conflict, says)
	any(free).(interface{ Head() *record.Record }).Head().ID = "free" + fmt.Sprint(len(says))
	b.do(func(tx job.Tx) error { return t.Insert(tx, free) })
	clash(free)
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return t.Save(tx, free) }), problem.Conflict, says)
}

type listCase[F any] struct {
	filter F
	want   int
}

func checkListCounts[R, F any](b *testEnv, t record.Table[R, F], cases map[string]listCase[F]) {
	b.Helper()
	for name, c := range cases {
		got := must.Get(t.List(b.ctx, nil, c.filter, record.Page{}))(b)
		if len(got) != c.want {
			b.Errorf("by %s: %d, want %d", name, len(got), c.want)
		}
	}
}
