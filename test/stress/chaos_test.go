package stress

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/test/must"
)

// TestChaos is the figure: three control planes on PostgreSQL, 500 nodes in rescue and unrescue, one control plane killed
// every five seconds for two minutes. Nothing is lost, nothing done twice, nothing left locked.
func TestChaos(t *testing.T) {
	if os.Getenv("SALVOR_SOAK") == "" {
		t.Skip("takes minutes: make chaos, make soak")
	}
	const nodes, lasts, every = 500, 2 * time.Minute, 5 * time.Second
	s := seed(t)
	w := newWorld(t, 3, nodes)
	defer w.keepLogs(s)
	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	users := w.users(ctx, s, 20)
	chance := rand.New(rand.NewPCG(s, 1))
	kills := 0
	for began := time.Now(); ; kills++ {
		if pause(ctx, time.Until(began.Add(time.Duration(kills+1)*every))); ctx.Err() != nil {
			break
		}
		p := w.planes[chance.IntN(len(w.planes))]
		p.down.Store(true)
		p.server.Kill()
		must.OK(t, p.server.Relaunch())
		p.down.Store(false)
	}
	users.Wait()
	calm := w.calm()
	jobs := w.settle()
	w.secrets()
	freed := w.judge()
	// A line of the timeline that has no colon says that an action is done; the others, that it waits or is tried again.
	lost := w.missing + w.count(`SELECT count(*) FROM history h WHERE what = 'insert' AND NOT EXISTS (SELECT 1 FROM job j WHERE j.id = h.job AND j.state = 'ended' AND j.problem = '')`)
	twice := w.doubled + w.count(`SELECT count(*) FROM (SELECT 1 FROM history WHERE what = 'event' AND words NOT LIKE '%:%' GROUP BY job, words HAVING count(*) > 1) d`)
	locked := w.count(`SELECT count(*) FROM job WHERE state <> 'ended'`) + w.count(`SELECT count(*) FROM node WHERE provision_state NOT IN ('active', 'rescue')`)
	var table strings.Builder
	for _, row := range []struct {
		what string
		n    any
	}{
		{"control planes on PostgreSQL", len(w.planes)}, {"nodes", nodes}, {"kill -9, one every 5 s", kills},
		{"rescues and unrescues accepted", len(w.accepted)}, {"accepted, the answer lost with the process", jobs - len(w.accepted)},
		{"times one was resumed after its owner's death", freed},
		{"seconds from the last request until all had ended", fmt.Sprintf("%.1f", calm.Seconds())},
		{"lost", lost}, {"done twice", twice}, {"locked", locked},
	} {
		fmt.Fprintf(&table, "| %-50s | %8v |\n", row.what, row.n)
	}
	t.Logf("\n%s", table.String())
	if lost+twice+locked > 0 || kills < 20 || freed == 0 {
		t.Errorf("%d lost, %d twice, %d locked, after %d kills that interrupted %d", lost, twice, locked, kills, freed)
	}
}

// users ask for rescues and their ends until ctx ends, each for nodes of its own.
func (w *world) users(ctx context.Context, seed uint64, n int) *sync.WaitGroup {
	var users sync.WaitGroup
	for i := range n {
		chance := rand.New(rand.NewPCG(seed, 100+uint64(i)))
		mine := w.nodes[i*len(w.nodes)/n : (i+1)*len(w.nodes)/n]
		users.Go(func() { w.traffic(ctx, chance, mine) })
	}
	return &users
}

// acceptedSoFar is how many requests for work were accepted.
func (w *world) acceptedSoFar() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.accepted)
}
