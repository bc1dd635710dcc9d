package storetest

import (
	"fmt"
	"net/netip"

	"github.com/google/go-cmp/cmp"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

func testNetworks(b *testEnv) {
	tableCase[compute.Network, compute.NetworkFilter]{b.s.Networks(), "Network", fillRecord[compute.Network], (*compute.Network).Head,
		func(n *compute.Network) string { return n.Name }, []string{"name", "project"}}.test(b)
	taken := fillRecord[compute.Network](1)
	taken.ID, taken.Name = "x", "x"
	refusedBoth(b, b.s.Networks(), taken, fillRecord[compute.Network](8), func(n *compute.Network) { n.Bridge, n.CIDR = taken.Bridge, taken.CIDR },
		"A network of bridge "+taken.Bridge+" with subnet "+taken.CIDR+" already exists.")
	own := &compute.Network{Record: record.Record{ID: "own"}, Name: "own", Project: "p"}
	b.do(func(tx job.Tx) error { return b.s.Networks().Insert(tx, own) })
	checkListCounts(b, b.s.Networks(), map[string]listCase[compute.NetworkFilter]{
		"project": {compute.NetworkFilter{Project: "p"}, 6}, "another": {compute.NetworkFilter{Project: "q"}, 5}, "name": {compute.NetworkFilter{Name: "own"}, 1},
	})
}

// network inserts a network with a pool.
func (b *testEnv) network(n compute.Network) *compute.Network {
	b.Helper()
	n.ID = "net " + n.CIDR + n.First
	b.do(func(tx job.Tx) error { return b.s.Networks().Insert(tx, &n) })
	return &n
}

func (b *testEnv) allocate(n *compute.Network, server, want string) (got string, err error) {
	err = b.s.Do(b.ctx, func(tx job.Tx) (err error) {
		got, err = b.s.AllocateAddress(tx, n, compute.Address{MAC: "52:54:00:00:00:01", ServerID: server}, want)
		return err
	})
	return got, err
}

// testAllocate: the lowest free address of the pool, whatever was taken by name or given back.
func testAllocate(b *testEnv) {
	four := b.network(compute.Network{CIDR: "192.0.2.0/24", Gateway: "192.0.2.11", First: "192.0.2.10", Last: "192.0.2.14"})
	six := b.network(compute.Network{CIDR: "2001:db8::/64", First: "2001:db8::fffe", Last: "2001:db8::1:0"})
	high := b.network(compute.Network{CIDR: "fd00::/64", First: "fd00::ffff:ffff:ffff:fffe", Last: "fd00::ffff:ffff:ffff:ffff"})
	whole := b.network(compute.Network{CIDR: "198.51.100.4/30"})
	for _, c := range []struct {
		n            *compute.Network
		server, want string
		is           string // empty: a conflict
	}{
		{four, "a", "192.0.2.12", "192.0.2.12"}, {four, "b", "", "192.0.2.10"}, {four, "b", "", "192.0.2.13"}, {four, "c", "192.0.2.200", "192.0.2.200"},
		{four, "c", "192.0.2.12", ""}, {four, "c", "::ffff:192.0.2.12", ""}, {four, "c", "192.0.2.11", ""}, {four, "c", "", "192.0.2.14"}, {four, "d", "", ""},
		{four, "-b", "", ""}, {four, "d", "", "192.0.2.10"}, {four, "d", "", "192.0.2.13"}, {four, "d", "", ""}, {four, "-c", "", ""}, {four, "e", "", "192.0.2.14"},
		{six, "a", "", "2001:db8::fffe"}, {six, "b", "", "2001:db8::ffff"}, {six, "c", "2001:DB8:0::0001:0000", "2001:db8::1:0"}, {six, "d", "", ""},
		{six, "-a", "", ""}, {six, "d", "", "2001:db8::fffe"},
		{high, "a", "", "fd00::ffff:ffff:ffff:fffe"}, {high, "a", "", "fd00::ffff:ffff:ffff:ffff"}, {high, "a", "", ""},
		{whole, "a", "", "198.51.100.5"}, {whole, "a", "", "198.51.100.6"}, {whole, "a", "", ""},
	} {
		if c.server[0] == '-' {
			b.do(func(tx job.Tx) error { return b.s.FreeAddresses(tx, c.server[1:]) })
			continue
		}
		got, err := b.allocate(c.n, c.server, c.want)
		if c.is == "" {
			b.refused(err, problem.Conflict, "")
		} else if err != nil || got != c.is {
			b.Fatalf("%s for %s (%q): %s %v, want %s", c.n.CIDR, c.server, c.want, got, err, c.is)
		}
	}
	for _, wrong := range []string{"192.0.3.1", "x", "192.0.2.1%eth0", "2001:db8::1"} {
		_, err := b.allocate(four, "x", wrong)
		b.refused(err, problem.Invalid, "")
	}
	bare := &compute.Network{Record: record.Record{ID: "bare"}}
	b.do(func(tx job.Tx) error { return b.s.Networks().Insert(tx, bare) })
	if got, err := b.allocate(bare, "x", ""); got != "" || err != nil {
		b.Errorf("without a subnet: %q %v", got, err)
	}
	_, err := b.allocate(&compute.Network{Record: record.Record{ID: "ghost"}, CIDR: "192.0.2.0/24"}, "x", "192.0.2.1")
	b.refused(err, problem.NotFound, "Network ghost could not be found.")
	b.addressesOf(six)
}

func (b *testEnv) addressesOf(n *compute.Network) {
	b.Helper()
	all := must.Get(b.s.Addresses(b.ctx, nil, n.ID))(b)
	const mac = "52:54:00:00:00:01"
	want := []compute.Address{{Address: "2001:db8::fffe", ServerID: "d"}, {Address: "2001:db8::ffff", ServerID: "b"},
		{Address: "2001:db8::1:0", ServerID: "c"}}
	for i := range want {
		want[i].NetworkID, want[i].MAC = n.ID, mac
	}
	if d := cmp.Diff(want, all); d != "" {
		b.Errorf("addresses differ (-want +have):\n%s", d)
	}
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.Networks().Delete(tx, n) }), problem.Conflict,
		"Network "+n.ID+" is in use: servers have addresses in it. Delete them first.")
}

// testAllocateRace: no address is given twice and none is left out, whoever asks at once.
func testAllocateRace(b *testEnv) {
	const servers = 24
	n := b.network(compute.Network{CIDR: "10.0.0.0/8", First: "10.1.0.1", Last: fmt.Sprint("10.1.0.", servers)})
	stores := bothStores(b)
	given := make([]string, servers)
	won := countConcurrentWins(servers, func(i int) bool {
		s := stores[i%2]
		return s.Do(b.ctx, func(tx job.Tx) (err error) {
			given[i], err = s.AllocateAddress(tx, n, compute.Address{ServerID: fmt.Sprint(i)}, "")
			return err
		}) == nil
	})
	seen := map[string]bool{}
	for _, a := range given {
		seen[a] = true
	}
	if won != servers || len(seen) != servers {
		b.Fatalf("%d of %d got an address, %d different ones: %v", won, servers, len(seen), given)
	}
	one := countConcurrentWins(8, func(i int) bool {
		s := stores[i%2]
		return s.Do(b.ctx, func(tx job.Tx) error {
			_, err := s.AllocateAddress(tx, n, compute.Address{ServerID: "x"}, "10.9.9.9")
			return err
		}) == nil
	})
	if one != 1 {
		b.Errorf("%d servers have one address", one)
	}
}

// testAllocateMany: a pool of millions costs what is allocated in it, and a gap in the middle is found.
func testAllocateMany(b *testEnv) {
	n := b.network(compute.Network{CIDR: "10.0.0.0/8"})
	const many = 300
	at := netip.MustParseAddr("10.0.0.1")
	for i := range many {
		got, err := b.allocate(n, fmt.Sprint("s", i), "")
		if err != nil || got != at.String() {
			b.Fatalf("address %d: %s %v", i, got, err)
		}
		at = at.Next()
	}
	b.do(func(tx job.Tx) error { return b.s.FreeAddresses(tx, "s150") })
	for _, want := range []string{"10.0.0.151", at.String()} {
		if got, err := b.allocate(n, "again", ""); err != nil || got != want {
			b.Fatalf("%s %v, want %s", got, err, want)
		}
	}
}
