package storetest

import (
	"fmt"
	"net/netip"

	"pgregory.net/rapid"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

// testAllocateModel walks through random turns of one network's addresses beside a plain set of them; the ends of its
// pool and its gateway move, as an operator may move them.
func testAllocateModel(b *testEnv) {
	n := 0
	rapid.Check(b.T, func(t *rapid.T) {
		n++
		net := &compute.Network{Record: record.Record{ID: fmt.Sprint("net", n)}, Name: fmt.Sprint("net", n), CIDR: "192.0.2.0/27"}
		b.do(func(tx job.Tx) error { return b.s.Networks().Insert(tx, net) })
		m := &poolModel{b: b, t: t, net: net, taken: map[int]string{}}
		m.move(t)
		t.Repeat(map[string]func(*rapid.T){"lowest": m.lowest, "named": m.named, "free": m.free, "move": m.move, "": m.check})
	})
}

// poolModel is a network by the rules: who has which last byte.
type poolModel struct {
	b                    *testEnv
	t                    *rapid.T
	net                  *compute.Network
	first, last, gateway int
	taken                map[int]string
}

func inPool(i int) string { return netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}).String() }

var (
	anyHost   = rapid.IntRange(1, 30)
	anyServer = rapid.SampledFrom([]string{"a", "b", "c", "d"})
)

func (m *poolModel) allocate(t *rapid.T, want string, is int, server string) {
	got, err := m.b.allocate(m.net, server, want)
	switch {
	case is == 0 && !problem.Is(err, problem.Conflict):
		t.Fatalf("%q of %+v: %s %v, want a conflict", want, m.net, got, err)
	case is != 0 && (err != nil || got != inPool(is)):
		t.Fatalf("%q of %+v: %s %v, want %s", want, m.net, got, err, inPool(is))
	case is != 0:
		m.taken[is] = server
	}
}

func (m *poolModel) lowest(t *rapid.T) {
	is := 0
	for i := m.last; i >= m.first; i-- {
		if m.taken[i] == "" && i != m.gateway {
			is = i
		}
	}
	m.allocate(t, "", is, anyServer.Draw(t, "server"))
}

func (m *poolModel) named(t *rapid.T) {
	i := anyHost.Draw(t, "address")
	is := i
	if m.taken[i] != "" || i == m.gateway {
		is = 0
	}
	m.allocate(t, inPool(i), is, anyServer.Draw(t, "server"))
}

func (m *poolModel) free(t *rapid.T) {
	server := anyServer.Draw(t, "server")
	must.OK(t, m.b.s.Do(m.b.ctx, func(tx job.Tx) error { return m.b.s.FreeAddresses(tx, server) }))
	for i, who := range m.taken {
		if who == server {
			delete(m.taken, i)
		}
	}
}

func (m *poolModel) move(t *rapid.T) {
	if m.first == 0 || rapid.Bool().Draw(t, "first too") {
		m.first = rapid.IntRange(1, 5).Draw(t, "first")
	}
	m.last = rapid.IntRange(m.first, 30).Draw(t, "last")
	m.gateway = anyHost.Draw(t, "gateway")
	m.net.First, m.net.Last, m.net.Gateway = inPool(m.first), inPool(m.last), inPool(m.gateway)
}

func (m *poolModel) check(t *rapid.T) {
	all, err := m.b.s.Addresses(m.b.ctx, nil, m.net.ID)
	if err != nil || len(all) != len(m.taken) {
		t.Fatalf("%d addresses, want %d: %v", len(all), len(m.taken), err)
	}
	for _, a := range all {
		at := netip.MustParseAddr(a.Address).As4()
		if m.taken[int(at[3])] != a.ServerID {
			t.Fatalf("%+v, want %v", a, m.taken)
		}
	}
}
