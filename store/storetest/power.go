package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/store"
	"salvor/test/must"
)

// turnOf is a turn at a moment, every minute.
func turnOf(now time.Time, skip []metal.State, groups ...string) metal.PowerTurn {
	return metal.PowerTurn{Groups: groups, Now: now, Soon: now.Add(time.Second), Next: now.Add(time.Minute), Skip: skip}
}

func (b *testEnv) turns(t metal.PowerTurn, limit int) string {
	b.Helper()
	got := must.Get(b.s.ClaimPower(b.ctx, t, limit))(b)
	var out []string
	for _, n := range got {
		out = append(out, n.ID)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func testPowerTurns(b *testEnv) {
	b.node("a")
	b.node("b")
	b.node("locked")
	b.node("elsewhere", func(n *metal.Node) { n.ConductorGroup = "north" })
	b.node("skipped", func(n *metal.Node) { n.ProvisionState = metal.Verifying })
	b.node("driverless", func(n *metal.Node) { n.Driver = "" })
	b.insert(job.Command, "locked")
	now := time.Now().Add(time.Second)
	at := func(after time.Duration, limit int, groups ...string) string {
		b.Helper()
		return b.turns(turnOf(now.Add(after), []metal.State{metal.Verifying}, groups...), limit)
	}
	for i, c := range []struct{ have, want string }{
		{at(-time.Hour, 10, ""), ""}, // nobody is due yet
		{at(0, 10), ""},
		{at(0, 2, ""), "a b"}, // who came first
		{at(0, 10, ""), ""},
		{at(2*time.Second, 10, ""), ""}, // the locked one was due again, and still is locked
		{at(0, 10, "north"), "elsewhere"},
		{at(2*time.Minute, 10, "", "north"), "a b elsewhere"},
	} {
		if c.have != c.want {
			b.Errorf("claim %d gave %q, want %q", i, c.have, c.want)
		}
	}
	// Whoever is not locked any more comes soon; who moved is due where he is now.
	b.claimOne()
	j := b.claimed("locked")
	j.State = job.Ended
	b.save(&j, false)
	b.do(func(tx job.Tx) error {
		n, err := b.s.Node(b.ctx, tx, "elsewhere")
		if err != nil {
			return err
		}
		n.ConductorGroup = "south"
		return b.s.SaveNode(tx, n)
	})
	for i, c := range []struct{ have, want string }{
		{at(2*time.Minute+2*time.Second, 10, ""), "locked"},
		{at(4*time.Minute, 10, "north"), ""},
		{at(4*time.Minute, 10, "south"), "elsewhere"},
	} {
		if c.have != c.want {
			b.Errorf("later claim %d gave %q, want %q", i, c.have, c.want)
		}
	}
	if n, err := b.s.TendPower(b.ctx); err != nil || n != 0 {
		b.Errorf("%d turns were not as they should be: %v", n, err)
	}
	testPowerUnread(b, now.Add(10*time.Minute))
	testPowerReadings(b)
}

// testPowerUnread: however many nodes are due that nobody reads, one call finds who is read, and takes no more than was asked for.
func testPowerUnread(b *testEnv, now time.Time) {
	b.Helper()
	b.do(func(tx job.Tx) error {
		for i := range 300 {
			n := &metal.Node{ID: fmt.Sprint("unread-", i), Driver: "fake-hardware", ProvisionState: metal.Verifying, ConductorGroup: "crowd"}
			if i >= 250 && i%10 == 0 {
				n.ID, n.ProvisionState = fmt.Sprint("read-", i), metal.Active
			}
			if err := b.s.InsertNode(tx, n); err != nil {
				return err
			}
		}
		return nil
	})
	turn := turnOf(now, []metal.State{metal.Verifying}, "crowd")
	given := map[string]bool{}
	for got := strings.Fields(b.turns(turn, 2)); len(got) > 0; got = strings.Fields(b.turns(turn, 2)) {
		for _, id := range got {
			if given[id] || len(got) > 2 {
				b.Errorf("of a crowd %v were given, after %v", got, given)
			}
			given[id] = true
		}
	}
	if len(given) != 5 {
		b.Errorf("of a crowd %v were given", given)
	}
}

func testPowerReadings(b *testEnv) {
	b.Helper()
	at := time.Now().UTC().Truncate(time.Microsecond)
	b.do(func(tx job.Tx) error {
		return b.s.SaveContact(tx, metal.Contact{NodeID: "a", AgentURL: "http://x", PowerFailures: 2, PowerError: "no answer"})
	})
	before := must.Get(b.s.Contact(b.ctx, nil, "a"))(b)
	b.ok(b.s.SavePower(b.ctx, []metal.PowerReading{{NodeID: "gone", Power: metal.PowerOn, At: at}, {NodeID: "b", Power: metal.PowerOff, At: at}, {NodeID: "a", Power: metal.PowerOn, At: at}}))
	a := must.Get(b.s.Contact(b.ctx, nil, "a"))(b)
	if a.PowerRead != metal.PowerOn || !a.PowerReadAt.Equal(at) || a.PowerFailures != 0 || a.PowerError != "" || a.AgentURL != "http://x" || a.Revision != before.Revision {
		b.Errorf("after a reading: %+v, before %+v", a, before)
	}
	if other, err := b.s.Contact(b.ctx, nil, "b"); err != nil || other.PowerRead != metal.PowerOff || !other.PowerReadAt.Equal(at) {
		b.Errorf("of one of whom nothing was heard: %+v %v", other, err)
	}
}

// claimed is the job that is held on a node.
func (b *testEnv) claimed(node string) (held job.Job) {
	b.Helper()
	b.do(func(tx job.Tx) error {
		all, err := b.s.Unended(tx, job.Node(node))
		if err == nil && len(all) != 1 {
			err = fmt.Errorf("%d jobs on %s", len(all), node)
		}
		if err == nil {
			held = all[0]
		}
		return err
	})
	return held
}

// testPowerShared: several who claim at once share the nodes; each is read by one of them, and none is forgotten.
func testPowerShared(b *testEnv) {
	const nodes = 300
	b.do(func(tx job.Tx) error {
		for i := range nodes {
			if err := b.s.InsertNode(tx, &metal.Node{ID: fmt.Sprint("n", i), Driver: "fake-hardware", ProvisionState: metal.Active}); err != nil {
				return err
			}
		}
		return nil
	})
	turn := turnOf(time.Now().Add(time.Second), nil, "")
	stores := []*store.Store{b.s, b.other(), b.other()}
	var mu sync.Mutex
	given := map[string]int{}
	var all sync.WaitGroup
	for _, s := range stores {
		all.Go(func() {
			for {
				got, err := s.ClaimPower(b.ctx, turn, 7)
				if err != nil {
					b.Error(err)
				}
				if len(got) == 0 {
					return
				}
				mu.Lock()
				for _, n := range got {
					given[n.ID]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for id, times := range given {
		if times > 1 {
			b.Errorf("%s was given %d times", id, times)
		}
	}
	// Who found the rows of another locked and saw no more may have ended early; what is left is due still.
	for rest := b.turns(turn, nodes); rest != ""; rest = b.turns(turn, nodes) {
		for _, id := range strings.Fields(rest) {
			if given[id]++; given[id] > 1 {
				b.Errorf("%s was given again", id)
			}
		}
	}
	if len(given) != nodes {
		b.Errorf("%d nodes of %d were given", len(given), nodes)
	}
}
