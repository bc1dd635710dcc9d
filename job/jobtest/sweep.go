// Package jobtest proves that operations survive crashes. Its sweep crashes, repeats and fails every action of an operation on a real
// store, and compares the result with that of an undisturbed run. Only tests import it. It knows jobs, not machines.
package jobtest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/problem"
	"salvor/test/must"
)

// World is a fresh place in which one operation can run once.
type World struct {
	Store       job.Store
	Definitions []job.Definition
	Conductor   job.Conductor
	// Kind is the operation under test.
	Kind job.Kind
	// Subject is what it works on, and Start asks for it.
	Subject job.Subject
	Start   func(t *testing.T)
	// Poke plays the outside (a ramdisk that boots and heartbeats); it is called again and again until the job has ended.
	Poke func()
	// Picture describes everything that the operation may have changed, outside and in the store, without times and counters.
	Picture func(t *testing.T) string
	// Broken checks what must hold after a failure, however it came about.
	Broken func(t *testing.T)
}

// runTimeout bounds one run. A run takes milliseconds, and seconds where other programs have the processors.
const runTimeout = 2 * time.Minute

// Sweep runs every disturbance of the operation that fresh makes worlds for. Under -short and under the race detector it runs every
// sixteenth, for there goroutines meet in the same ways; with SALVOR_SOAK it always runs all.
func Sweep(t *testing.T, fresh func(t *testing.T) *World) {
	runSweep(t, fresh, sampleOf(0, 16), chooseReads(t))
}

// sampleOf chooses all where nothing samples, else one in oneIn. first says which is the first one.
func sampleOf(first uint64, oneIn uint64) func() bool {
	return func() bool { first++; return !isSampling() || first%oneIn == 0 }
}

func hashName(t *testing.T) uint64 {
	name := fnv.New64a()
	_, _ = name.Write([]byte(t.Name()))
	return name.Sum64()
}

func isSampling() bool { return (underRace || testing.Short()) && os.Getenv("SALVOR_SOAK") == "" }

// Sample runs one disturbance in oneIn, by SALVOR_SEED or by chance, and all of them with SALVOR_SOAK: for worlds on a
// store that takes long to make. Under -short and under the race detector it runs none, for there Sweep runs the same code.
func Sample(t *testing.T, oneIn int, fresh func(t *testing.T) *World) {
	switch {
	case os.Getenv("SALVOR_SOAK") != "":
		oneIn = 1
	case isSampling():
		return
	}
	chance := rand.New(rand.NewPCG(readSeed(t), hashName(t)))
	chosen := func() bool { return chance.IntN(oneIn) == 0 }
	runSweep(t, fresh, chosen, chosen)
}

var randomSeed = uint64(time.Now().UnixNano())

func readSeed(t *testing.T) uint64 {
	s := randomSeed
	if text := os.Getenv("SALVOR_SEED"); text != "" {
		var err error
		if s, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SALVOR_SEED: %v", err)
		}
	}
	t.Logf("SALVOR_SEED=%d", s)
	return s
}

func runSweep(t *testing.T, fresh func(t *testing.T) *World, chosen, chosenReads func() bool) {
	clean := fresh(t)
	counted, reads := &crashingStore{Store: clean.Store}, &readFault{kind: clean.Kind}
	want := runWithReads(t, clean, counted, reads)
	failReads(t, fresh, chosenReads, reads, want+reads.failures())
	writes := int(counted.writes.Load())
	try := func(name string, disturb func(t *testing.T)) {
		if chosen() {
			t.Run(name, disturb)
		}
	}
	for _, when := range []crashPoint{beforeCommit, afterCommit} {
		for n := 1; n <= writes; n++ {
			try(fmt.Sprintf("killed %s write %d", when, n), func(t *testing.T) {
				w := fresh(t)
				runThroughCrash(t, w, &crashingStore{Store: w.Store, dieAt: int64(n), when: when})
				checkPicture(t, w, want)
			})
		}
	}
	for i, a := range actionNames(t, clean) {
		try("twice "+a, func(t *testing.T) {
			w := fresh(t)
			repeatAction(w, i)
			runToEnd(t, w, w.Store)
			checkPicture(t, w, want)
		})
		try("stale "+a, func(t *testing.T) {
			w := fresh(t)
			stale := captureRun(w, i)
			runToEnd(t, w, w.Store)
			checkPicture(t, w, want)
			stale(t, w)
			checkPicture(t, w, want)
		})
		for _, after := range []bool{false, true} {
			try(fmt.Sprintf("failed %s done=%v", a, after), func(t *testing.T) {
				w := fresh(t)
				failAction(w, i, after)
				runToEnd(t, w, w.Store)
				w.Broken(t)
			})
		}
	}
}

func actionNames(t *testing.T, w *World) []string {
	for _, d := range w.Definitions {
		if d.Kind == w.Kind {
			var names []string
			for _, a := range d.Actions {
				names = append(names, a.Name)
			}
			return names
		}
	}
	t.Fatalf("no definition of %s", w.Kind)
	return nil
}

// replaceAction replaces action i of the operation under test.
func replaceAction(w *World, i int, change func(a *job.Action)) {
	for d := range w.Definitions {
		if w.Definitions[d].Kind == w.Kind {
			list := append([]job.Action(nil), w.Definitions[d].Actions...)
			change(&list[i])
			w.Definitions[d].Actions = list
		}
	}
}

// repeatAction does the action two times before its outcome counts, the second time
// from the row that the first left, as after a crash.
func repeatAction(w *World, i int) {
	replaceAction(w, i, func(a *job.Action) {
		do := a.Do
		a.Do = func(ctx context.Context, r *job.Run) job.Outcome {
			copied := *r
			_ = do(ctx, &copied)
			row, err := w.Store.Job(ctx, nil, r.ID)
			if err != nil {
				return job.Fail(err)
			}
			row.Seen = r.Seen
			r.Job = row
			return do(ctx, r)
		}
	})
}

// failAction makes the action fail, before or after it acts.
func failAction(w *World, i int, after bool) {
	replaceAction(w, i, func(a *job.Action) {
		do := a.Do
		a.Do = func(ctx context.Context, r *job.Run) job.Outcome {
			if after {
				_ = do(ctx, r)
			}
			return job.Fail(problem.Invalidf("made to fail"))
		}
	})
}

// captureRun keeps the run of an action; the returned function commits it when it is long void.
func captureRun(w *World, i int) func(*testing.T, *World) {
	var kept atomic.Pointer[job.Run]
	replaceAction(w, i, func(a *job.Action) {
		do := a.Do
		a.Do = func(ctx context.Context, r *job.Run) job.Outcome {
			copied := *r
			kept.CompareAndSwap(nil, &copied)
			return do(ctx, r)
		}
	})
	return func(t *testing.T, w *World) {
		r := kept.Load()
		if r == nil {
			return
		}
		if err := r.Commit(context.Background(), nil); !errors.Is(err, job.ErrFenced) {
			t.Errorf("a stale claim could still write: %v", err)
		}
	}
}

func checkPicture(t *testing.T, w *World, want string) {
	t.Helper()
	if got := w.Picture(t); got != want {
		t.Errorf("what is left differs\n--- undisturbed\n%s\n--- disturbed\n%s", want, got)
	}
}

// runToEnd lets one conductor work until the job has ended.
func runToEnd(t *testing.T, w *World, store job.Store) {
	t.Helper()
	stop := startConductor(t, w, store, nil)
	defer stop()
	w.Start(t)
	waitForEnd(t, w)
}

// runThroughCrash runs until the store dies under the conductor, then starts a new incarnation on the living store.
func runThroughCrash(t *testing.T, w *World, m *crashingStore) {
	t.Helper()
	m.dead = make(chan struct{})
	stop := startConductor(t, w, m, nil)
	w.Start(t)
	deadline := time.After(runTimeout)
wait:
	for {
		select {
		case <-m.dead:
			break wait
		case <-deadline:
			t.Fatal("the conductor never reached the write at which it should die")
		case <-time.After(2 * time.Millisecond):
			if w.Poke(); m.writes.Load() > 0 && len(listUnended(t, w)) == 0 {
				// Who waits less for the outside writes less: this write never came.
				stop()
				return
			}
		}
	}
	stop()
	stop = startConductor(t, w, w.Store, nil)
	defer stop()
	waitForEnd(t, w)
}

func waitForEnd(t *testing.T, w *World) {
	t.Helper()
	for end := time.Now().Add(runTimeout); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		open := listUnended(t, w)
		if len(open) == 0 {
			return
		}
		w.Poke()
	}
	open := listUnended(t, w)
	t.Errorf("want all jobs of %v to end within %s, got %d open", w.Subject, runTimeout, len(open))
	for _, j := range open {
		t.Errorf("job has not ended: %s, state %s, action %q, waits for %q, problem %q", j.Kind, j.State, j.Action, j.WaitFor, j.Problem)
	}
	t.FailNow()
}

// listUnended lists what is still to be done on the subject.
func listUnended(t *testing.T, w *World) (open []job.Job) {
	t.Helper()
	must.OK(t, w.Store.Do(context.Background(), func(tx job.Tx) (err error) {
		open, err = w.Store.Unended(tx, w.Subject)
		return err
	}))
	return open
}

// startConductor starts a new incarnation of the world's conductor; the returned function ends it as a crash would. reads fails reads of its
// actions and is told of the jobs that end; nil: nothing fails.
func startConductor(t *testing.T, w *World, store job.Store, reads *readFault) (stop func()) {
	t.Helper()
	c := w.Conductor
	c.Incarnation = uuid.NewString()
	config := job.Config{
		Store: store, Definitions: w.Definitions, Conductor: c, Workers: 4,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Die: func(why string) { panic(why) },
	}
	ctx := context.Background()
	if reads != nil {
		config.Observer = reads
		ctx = job.WithBeforeRead(ctx, reads.before)
	}
	r := must.Get(job.NewRunner(config))(t)
	must.OK(t, r.Join(ctx))
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx, 0) }()
	return func() { cancel(); <-ended }
}

type crashPoint string

const (
	beforeCommit crashPoint = "before"
	afterCommit  crashPoint = "after"
)

// errDead is what a dead process would see of its store, if it could see.
var errDead = errors.New("the process is dead")

// crashingStore is a store that dies at a write, as seen by one conductor.
type crashingStore struct {
	job.Store
	writes atomic.Int64
	dieAt  int64
	when   crashPoint
	died   atomic.Bool
	dead   chan struct{}
}

func (m *crashingStore) Do(ctx context.Context, fn func(job.Tx) error) error {
	if m.died.Load() {
		return errDead
	}
	n := m.writes.Add(1)
	if n != m.dieAt {
		return m.Store.Do(ctx, fn)
	}
	if m.when == afterCommit {
		if err := m.Store.Do(ctx, fn); err != nil {
			return err
		}
	}
	m.died.Store(true)
	close(m.dead)
	return errDead
}

func (m *crashingStore) Claim(ctx context.Context, owner string, now time.Time, groups []string, kinds map[job.Kind]int, limit int) ([]job.Job, error) {
	if m.died.Load() {
		return nil, errDead
	}
	return m.Store.Claim(ctx, owner, now, groups, kinds, limit)
}

func (m *crashingStore) Claimed(ctx context.Context, owner string, limit int) ([]job.Job, error) {
	if m.died.Load() {
		return nil, errDead
	}
	return m.Store.Claimed(ctx, owner, limit)
}

func (m *crashingStore) Retire(ctx context.Context, c job.Conductor) error {
	if m.died.Load() {
		return errDead
	}
	return m.Store.Retire(ctx, c)
}
