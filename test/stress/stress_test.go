package stress

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"salvor/test/must"
)

// seed is SALVOR_SEED, or a new one; it decides what is done to which process, and when.
func seed(t testing.TB) uint64 {
	t.Helper()
	s := uint64(time.Now().UnixNano())
	if text := os.Getenv("SALVOR_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SALVOR_SEED: %v", err)
		}
		s = n
	}
	t.Logf("SALVOR_SEED=%d", s)
	return s
}

// blow is one thing that happens to a process.
type blow struct {
	name string
	do   func(ctx context.Context, w *world, p *plane, chance *rand.Rand) error
}

// The lease is 5 s, and peers take over after 7. Who is killed or frozen has work in hand, or there would be nothing to take over.
var blows = []blow{
	{"killed", func(ctx context.Context, w *world, p *plane, chance *rand.Rand) error {
		if !w.busy(ctx, p) {
			return nil
		}
		p.down.Store(true)
		p.server.Kill()
		pause(ctx, between(chance, 0, 2*time.Second))
		defer p.down.Store(false)
		return p.server.Relaunch()
	}},
	{"frozen", func(ctx context.Context, w *world, p *plane, chance *rand.Rand) error {
		defer p.thaw()
		for p.freeze(); !w.owns(ctx, p); p.freeze() {
			p.thaw()
			if !w.busy(ctx, p) {
				return nil
			}
		}
		pause(ctx, between(chance, 8*time.Second, 10*time.Second))
		return nil
	}},
	{"line cut", func(ctx context.Context, w *world, p *plane, chance *rand.Rand) error { p.line.cut(); return nil }},
	{"line stalled", func(ctx context.Context, w *world, p *plane, chance *rand.Rand) error {
		p.down.Store(true)
		p.line.hold(true)
		pause(ctx, between(chance, time.Second, 9*time.Second))
		p.line.hold(false)
		p.down.Store(false)
		if chance.IntN(2) == 0 {
			p.line.cut()
		}
		return nil
	}},
	{"answers to commits lost", func(ctx context.Context, w *world, p *plane, chance *rand.Rand) error {
		for range 5 {
			p.line.deafen()
			pause(ctx, between(chance, 0, 200*time.Millisecond))
		}
		return nil
	}},
	{"clock set", func(ctx context.Context, w *world, p *plane, chance *rand.Rand) error {
		return p.setClock(between(chance, -100*time.Hour, 100*time.Hour))
	}},
	// Nothing says that they are gone. What was on its way may arrive long after others have gone on.
	{"connections swallowed", func(ctx context.Context, w *world, p *plane, chance *rand.Rand) error {
		p.line.swallow()
		pause(ctx, between(chance, 7*time.Second, 9*time.Second))
		p.line.release(chance.IntN(2) == 0)
		return nil
	}},
}

func between(chance *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(chance.Int64N(int64(to-from)))
}

// pause waits, at most until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// storm strikes each process again and again with all of blows, in an order of its own, until ctx ends.
func (w *world) storm(ctx context.Context, seed uint64) {
	var all sync.WaitGroup
	for i, p := range w.planes {
		all.Go(func() {
			chance := rand.New(rand.NewPCG(seed, uint64(i)))
			// Each of the slow ones first for some process, then the quick ones, so that all come, however short the storm.
			slow, quick := []int{0, 1, 3}, []int{2, 4, 5}
			chance.Shuffle(len(quick), func(a, b int) { quick[a], quick[b] = quick[b], quick[a] })
			order := append([]int{slow[i%len(slow)]}, quick...)
			if i == 0 {
				order = slices.Insert(order, 1, 6)
			}
			for n := 0; ctx.Err() == nil; n++ {
				if n > 0 && n%len(order) == 0 {
					order = chance.Perm(len(blows))
				}
				b := blows[order[n%len(order)]]
				if err := b.do(ctx, w, p, chance); err != nil {
					w.t.Errorf("%s, %s: %v", p.name, b.name, err)
					return
				}
				w.mu.Lock()
				w.did[b.name]++
				w.mu.Unlock()
				pause(ctx, between(chance, 200*time.Millisecond, 1500*time.Millisecond))
			}
		})
	}
	all.Wait()
	for _, p := range w.planes {
		p.line.heal()
	}
}

// TestStress: through all that happens to three control planes, a node has one owner at a time, nothing of an owner
// that lost a job takes effect, every accepted request ends well, once, and no secret stays. The clocks of their machines are set wrong
// all the while. SALVOR_SEED reproduces what is done to them.
func TestStress(t *testing.T) {
	lasts := 22 * time.Second
	if os.Getenv("SALVOR_SOAK") != "" {
		lasts = 10 * time.Minute
	}
	s := seed(t)
	w := newWorld(t, 3, 200)
	defer w.keepLogs(s)
	ctx, stop := context.WithTimeout(t.Context(), 5*lasts)
	defer stop()
	least := len(w.nodes) / 4
	go func() { // on a slow machine the storm lasts until it struck enough work
		for pause(ctx, lasts); ctx.Err() == nil && w.acceptedSoFar() < least; {
			pause(ctx, 100*time.Millisecond)
		}
		stop()
	}()
	users := w.users(ctx, s, 16)
	w.storm(ctx, s)
	users.Wait()
	calm := w.calm()
	jobs := w.settle()
	w.secrets()
	freed := w.judge()
	lost := 0
	for _, p := range w.planes {
		lost += p.line.lost
	}
	t.Logf("%d nodes, %d jobs, %d reads; %d times a job was taken from a dead or frozen owner; %d answers to commits lost; all ended %.1f s after the storm",
		len(w.nodes), jobs, len(w.reads), freed, lost, calm.Seconds())
	t.Logf("what happened: %v", w.did)
	if jobs < least || freed == 0 || lost == 0 {
		t.Error("too little happened to prove anything")
	}
}

// keepLogs leaves what the processes said of a run that failed.
func (w *world) keepLogs(seed uint64) {
	if !w.t.Failed() {
		return
	}
	for _, p := range w.planes {
		file := filepath.Join(os.TempDir(), fmt.Sprintf("stress-%d-%s.log", seed, p.name))
		if os.WriteFile(file, []byte(p.server.Log()), 0o600) == nil {
			w.t.Logf("log: %s", file)
		}
	}
}

// judge checks the history of every node, and tells how often a job was taken from an owner that was dead, or seemed so.
func (w *world) judge() (freed int) {
	w.t.Helper()
	changes := must.Get(recorded(w.t.Context(), w.db))(w.t)
	known, err := owners(changes)
	if err == nil {
		err = known.lived(w.t.Context(), w.db)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range changes {
		freed += int(max(c.crashes, 0))
	}
	m := model(known)
	told := 0
	for node, ops := range histories(changes, w.reads) {
		verdict, info := porcupine.CheckOperationsVerbose(m, ops, time.Minute)
		if verdict == porcupine.Ok {
			continue
		}
		w.t.Errorf("the history of node %s (%d operations) is %s", node, len(ops), verdict)
		if told++; told > 3 {
			continue
		}
		file := filepath.Join(os.TempDir(), "stress-"+node+".html")
		if err := porcupine.VisualizePath(m, info, file); err == nil {
			w.t.Logf("drawn in %s", file)
		}
	}
	return freed
}
