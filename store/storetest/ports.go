package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

func testPort(b *testEnv) {
	b.node("a")
	p := &metal.Port{Record: record.Record{ID: "p1"}, NodeID: "a", Address: "52:54:00:AA:00:01", PXEEnabled: true, LocalLink: metal.Object{"port_id": "tap0"},
		PhysicalNetwork: "net", PortgroupID: "g", IsSmartNIC: true, Name: "nic", Description: "d", Vendor: "v", Category: "c", Extra: metal.Object{"a": 1.0}, InternalInfo: metal.Object{"b": "c"}}
	insert := func(p *metal.Port) error {
		return b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.InsertPort(tx, p) })
	}
	b.ok(insert(p))
	for _, ident := range []string{"p1", "nic", "52:54:00:aa:00:01", "52:54:00:AA:00:01"} {
		got := must.Get(b.s.Port(b.ctx, nil, ident))(b)
		if d := cmp.Diff(p, got); d != "" || got.Address != "52:54:00:aa:00:01" {
			b.Fatalf("port %s differs (-want +have):\n%s", ident, d)
		}
	}
	b.refused(insert(&metal.Port{Record: record.Record{ID: "p1"}, NodeID: "a", Address: "x"}), problem.Conflict, "A port with UUID p1 already exists.")
	b.refused(insert(&metal.Port{Record: record.Record{ID: "p2"}, NodeID: "a", Address: "52:54:00:aa:00:01"}), problem.Conflict, "A port with MAC address 52:54:00:aa:00:01 already exists.")
	b.refused(insert(&metal.Port{Record: record.Record{ID: "p2"}, NodeID: "a", Address: "x", Name: "nic"}), problem.Conflict, "A port with name nic already exists.")
	b.refused(insert(&metal.Port{Record: record.Record{ID: "p2"}, NodeID: "ghost", Address: "x"}), problem.NotFound, "Node ghost could not be found.")
	q := &metal.Port{Record: record.Record{ID: "p2"}, NodeID: "a", Address: "52:54:00:aa:00:02"}
	b.ok(insert(q))
	save := func(p *metal.Port) error {
		return b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.SavePort(tx, p) })
	}
	q.Address = p.Address
	b.refused(save(q), problem.Conflict, "A port with MAC address 52:54:00:aa:00:01 already exists.")
	q.Address, q.Name = "52:54:00:AA:00:03", "two"
	b.ok(save(q))
	stale := *q
	stale.Version = 1
	b.refused(save(&stale), problem.Conflict, "")
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.DeletePort(tx, &stale) }), problem.Conflict, "")
	b.do(func(tx job.Tx) error { return b.s.DeletePort(tx, q) })
	_, err := b.s.Port(b.ctx, nil, "p2")
	b.refused(err, problem.NotFound, "Port p2 could not be found.")
}

func testPortPages(b *testEnv) {
	b.node("a", func(n *metal.Node) { n.Owner, n.ConductorGroup, n.Shard = "o", "north", "s" })
	b.node("b", func(n *metal.Node) { n.Lessee = "o" })
	b.do(func(tx job.Tx) error {
		for i := range 7 {
			p := &metal.Port{Record: record.Record{ID: fmt.Sprintf("p%d", (i*3)%7)}, NodeID: []string{"a", "b"}[i%2], Address: fmt.Sprintf("52:54:00:00:00:0%d", i), PXEEnabled: i%3 == 0}
			if i == 6 {
				p.PortgroupID = "g"
			}
			if err := b.s.InsertPort(tx, p); err != nil {
				return err
			}
		}
		return nil
	})
	names := func(f metal.PortFilter, p record.Page) []string {
		b.Helper()
		got := must.Get(b.s.Ports(b.ctx, f, p))(b)
		var out []string
		for _, p := range got {
			out = append(out, p.ID)
		}
		return out
	}
	for _, key := range []string{"", "id", "uuid", "address", "name", "node_uuid", "portgroup_uuid", "physical_network", "pxe_enabled", "is_smartnic", "description", "vendor", "category", "created_at", "updated_at"} {
		for _, desc := range []bool{false, true} {
			whole := names(metal.PortFilter{}, record.Page{SortKey: key, Desc: desc})
			var paged []string
			page := record.Page{SortKey: key, Desc: desc, Limit: 2}
			for range 4 {
				paged = append(paged, names(metal.PortFilter{}, page)...)
				page.Marker = paged[len(paged)-1]
			}
			if len(whole) != 7 || !slices.Equal(whole, paged) {
				b.Errorf("ports by %q (down %v): pages %v, whole %v", key, desc, paged, whole)
			}
		}
	}
	for _, c := range []struct {
		f    metal.PortFilter
		want int
	}{
		{metal.PortFilter{NodeID: "a"}, 4}, {metal.PortFilter{Address: "52:54:00:00:00:01"}, 1}, {metal.PortFilter{PortgroupID: "g"}, 1},
		{metal.PortFilter{Owner: "o"}, 4}, {metal.PortFilter{Project: "o"}, 7}, {metal.PortFilter{Project: "x"}, 0}, {metal.PortFilter{ConductorGroups: []string{"north"}}, 4},
		{metal.PortFilter{Shards: []string{"s", "t"}}, 4},
	} {
		if got := names(c.f, record.Page{}); len(got) != c.want {
			b.Errorf("filter %+v: %v, want %d", c.f, got, c.want)
		}
	}
	for _, c := range []struct {
		macs []string
		want int
	}{{[]string{"52:54:00:00:00:01", "52:54:00:00:00:0A", "none"}, 1}, {[]string{"none"}, 0}, {nil, 0}} {
		if got, err := b.s.NodesOfMACs(b.ctx, c.macs); err != nil || len(got) != c.want {
			b.Errorf("nodes of %v: %v, %v, want %d", c.macs, got, err, c.want)
		}
	}
	_, err := b.s.Ports(b.ctx, metal.PortFilter{}, record.Page{SortKey: "extra"})
	b.refused(err, problem.Invalid, "")
	_, err = b.s.Ports(b.ctx, metal.PortFilter{}, record.Page{Marker: "nobody"})
	b.refused(err, problem.NotFound, "Port nobody could not be found.")
}

func testContact(b *testEnv) {
	b.node("a")
	b.node("b")
	c := must.Get(b.s.Contact(b.ctx, nil, "a"))(b)
	if c != (metal.Contact{NodeID: "a"}) {
		b.Fatalf("contact of a node that nobody heard of: %+v", c)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	c = metal.Contact{NodeID: "a", AgentURL: "u", AgentVersion: "v", AgentCA: "ca", AgentStatus: "s", AgentStatusMessage: "m", AgentBoot: 3, HeartbeatAt: at,
		TokenTold: 3, LookupAt: at, PowerRead: metal.PowerOn, PowerReadAt: at, PowerFailures: 2, PowerError: "e",
		PowerFailedAt: at, PowerRefused: true}
	b.do(func(tx job.Tx) error { return b.s.SaveContact(tx, c) })
	stale := c
	stale.TokenTold, stale.AgentURL = 0, "u2"
	b.do(func(tx job.Tx) error { return b.s.SaveContact(tx, stale) })
	c.AgentURL, c.Revision = "u2", 2 // the mark of a told token stays
	many := must.Get(b.s.Contacts(b.ctx, []string{"a", "b", "ghost"}))(b)
	if d := cmp.Diff(map[string]metal.Contact{"a": c}, many); d != "" {
		b.Fatalf("contacts differ (-want +have):\n%s", d)
	}
	b.ok(b.s.SaveHeartbeats(b.ctx, []metal.HeartbeatTime{{NodeID: "a", Boot: 2, At: at.Add(time.Hour)}, {NodeID: "a", Boot: 3, At: at.Add(-time.Hour)},
		{NodeID: "b", Boot: 3, At: at}, {NodeID: "ghost", Boot: 3, At: at}}))
	if now, err := b.s.Contact(b.ctx, nil, "a"); err != nil || now != c {
		b.Errorf("times of another boot, and older ones, made it %+v, %v", now, err)
	}
	b.ok(b.s.SaveHeartbeats(b.ctx, []metal.HeartbeatTime{{NodeID: "a", Boot: 3, At: at.Add(time.Hour)}}))
	if now, err := b.s.Contact(b.ctx, nil, "a"); err != nil || !now.HeartbeatAt.Equal(at.Add(time.Hour)) || now.Revision != c.Revision+1 {
		b.Errorf("the time of a heartbeat made it %+v, %v", now, err)
	}
	version, word, err := b.s.AgentContact(b.ctx, "a")
	b.ok(err)
	if want := (metal.Contact{NodeID: "a", AgentURL: "u2", AgentVersion: "v", AgentCA: "ca", AgentStatus: "s", AgentStatusMessage: "m", AgentBoot: 3}); version != 1 || word != want {
		b.Errorf("its agent said %+v of version %d", word, version)
	}
	if version, _, err = b.s.AgentContact(b.ctx, "b"); err != nil || version != 0 {
		b.Errorf("an agent never heard of has the word of version %d, %v", version, err)
	}
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.SaveContact(tx, metal.Contact{NodeID: "ghost"}) }), problem.NotFound, "Node ghost could not be found.")
	refused := func(nodeID string, r metal.Refusals) {
		b.do(func(tx job.Tx) error { return b.s.SaveRefusals(tx, nodeID, r) })
	}
	refused("b", metal.Refusals{RefusedBoot: 3, Refused: 1, RefusedAt: at, RefusedReason: "first", Unproven: 2})
	refused("b", metal.Refusals{RefusedBoot: 3, Unproven: 1})
	b.do(func(tx job.Tx) error { return b.s.SaveContact(tx, metal.Contact{NodeID: "b"}) })
	refused("b", metal.Refusals{RefusedBoot: 3, Refused: 4, RefusedAt: at.Add(time.Hour), RefusedReason: "last"})
	refused("b", metal.Refusals{RefusedBoot: 2, Refused: 9, RefusedReason: "of a former boot"})
	want := metal.Refusals{RefusedBoot: 3, Refused: 5, RefusedAt: at.Add(time.Hour), RefusedReason: "last", Unproven: 3}
	if c, err = b.s.Contact(b.ctx, nil, "b"); err != nil || c.Refusals != want {
		b.Errorf("refused heartbeats %+v, %v; want %+v", c.Refusals, err, want)
	}
	refused("b", metal.Refusals{RefusedBoot: 4, Unproven: 1})
	if c, err = b.s.Contact(b.ctx, nil, "b"); err != nil || c.Refusals != (metal.Refusals{RefusedBoot: 4, Unproven: 1}) {
		b.Errorf("refused heartbeats of the next boot %+v, %v", c.Refusals, err)
	}
	refused("ghost", metal.Refusals{RefusedBoot: 1, Unproven: 1})
	many, err = b.s.Contacts(b.ctx, make([]string, 2100))
	b.ok(err)
	if len(many) != 0 {
		b.Fatal("contacts of nobody")
	}
}

func testTellToken(b *testEnv) {
	b.node("a")
	second := b.other()
	for boot := int64(1); boot <= 3; boot++ {
		won := countConcurrentWins(8, func(i int) bool {
			s := b.s
			if i%2 == 1 {
				s = second
			}
			var first bool
			err := s.Do(b.ctx, func(tx job.Tx) (err error) { first, err = s.MarkTokenTold(tx, "a", boot); return err })
			if err != nil {
				b.Error(err)
			}
			return first
		})
		if won != 1 {
			b.Fatalf("the token of boot %d was told %d times", boot, won)
		}
	}
	b.do(func(tx job.Tx) error {
		if first, err := b.s.MarkTokenTold(tx, "a", 2); err != nil || first {
			return fmt.Errorf("the token of a former boot is told: %v %v", first, err)
		}
		return nil
	})
}
