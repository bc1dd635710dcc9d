package jobtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"salvor/job"
	"salvor/problem"
)

// SweepReads runs the operation once for each read of the store that its actions, and those of the jobs that it leads to, do outside of
// transactions. Each time another read fails as on a database that is away for a moment. No outcome may differ from that of an undisturbed
// run: neither what the world shows, nor which jobs fail. chooseReads says which reads are failed.
func SweepReads(t *testing.T, fresh func(t *testing.T) *World) {
	clean := fresh(t)
	reads := &readFault{kind: clean.Kind}
	want := runWithReads(t, clean, clean.Store, reads)
	failReads(t, fresh, chooseReads(t), reads, want+reads.failures())
}

// An operation reads more often than it writes, so a sweep chooses among its reads.
const (
	readSample = 64
	readChance = 4
)

func chooseReads(t *testing.T) func() bool { return Choose(t, readSample, readChance) }

// Choose chooses the cases of a sweep that run: all of them with SALVOR_SWEEP=whole, as make prove runs, and with SALVOR_SOAK; one in sample with -short and
// under the race detector; else one in chance, by SALVOR_SEED or by chance.
func Choose(t *testing.T, sample uint64, chance int) func() bool {
	switch {
	case isSampling():
		return sampleOf(hashName(t), sample)
	case os.Getenv("SALVOR_SWEEP") == "whole", os.Getenv("SALVOR_SOAK") != "":
		return func() bool { return true }
	}
	source := rand.New(rand.NewPCG(readSeed(t), hashName(t)))
	return func() bool { return source.IntN(chance) == 0 }
}

// failedReads counts the reads that a sweep failed, and those that it could not fail.
type failedReads struct{ failed, missed int }

func (c failedReads) String() string {
	return fmt.Sprintf("%d failed, %d not reached in two runs", c.failed, c.missed)
}

// failReads fails each of the reads that an undisturbed run counted, whose outcome was want. A run that waits less for the outside reads less, so its
// read may not be reached; the operation is run once more then.
func failReads(t *testing.T, fresh func(t *testing.T) *World, chosen func() bool, counted *readFault, want string) (count failedReads) {
	if counted.ofKind == 0 {
		t.Errorf("the actions of %q read nothing of the store outside of transactions, or its reads do not pass job.BeforeRead", counted.kind)
	}
	defer func() {
		t.Logf("%q: %d reads, %d of them its own; %s", counted.kind, counted.reads, counted.ofKind, count)
	}()
	for k := 1; k <= counted.reads; k++ {
		if !chosen() {
			continue
		}
		t.Run(fmt.Sprintf("read %d", k), func(t *testing.T) {
			w, fault, got := failRead(t, fresh, k)
			if !fault.isReached() && got == want {
				t.Logf("read %d was not reached, so the operation is run once more", k)
				w, fault, got = failRead(t, fresh, k)
			}
			if fault.isReached() {
				count.failed++
			} else {
				count.missed++
			}
			if got != want {
				t.Errorf("operation %q ends otherwise because read %d failed once, of %s\n--- undisturbed\n%s\n--- with the failed read\n%s", w.Kind, k, fault.place, want, got)
			}
		})
	}
	return count
}

// failRead runs the operation in a fresh world with a read that fails, and gives its outcome.
func failRead(t *testing.T, fresh func(t *testing.T) *World, k int) (w *World, fault *readFault, got string) {
	t.Helper()
	w = fresh(t)
	fault = &readFault{kind: w.Kind, failAt: k}
	got = runWithReads(t, w, w.Store, fault) // before the failures are asked for
	return w, fault, got + fault.failures()
}

// isReached tells whether the read that was to fail was made.
func (f *readFault) isReached() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads >= f.failAt
}

// runWithReads runs the operation on a store with a fault of a read, and tells what the world shows then.
func runWithReads(t *testing.T, w *World, store job.Store, fault *readFault) string {
	t.Helper()
	stop := startConductor(t, w, store, fault)
	w.Start(t)
	waitForEnd(t, w)
	stop()
	return w.Picture(t)
}

// readFault counts the reads of actions, and fails one of them. It is the observer of the runner too.
type readFault struct {
	job.Unobserved
	kind   job.Kind // the operation under test
	failAt int      // the number of the read that fails; 0: none does

	mu     sync.Mutex
	reads  int
	ofKind int      // by actions of the operation under test
	place  string   // the read that failed
	failed []string // the jobs that failed, and why
}

// before is called before each read of the store.
func (f *readFault) before(ctx context.Context) error {
	_, kind, _ := job.WorkOf(ctx)
	if kind == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if kind == string(f.kind) {
		f.ofKind++
	}
	if f.reads != f.failAt {
		return nil
	}
	f.place = fmt.Sprintf("job %q at %s", kind, callers())
	return problem.Unavailablef("database: this read was made to fail")
}

// Ended is job.Observer's.
func (f *readFault) Ended(j *job.Job) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if j.Failed() {
		f.failed = append(f.failed, fmt.Sprintf("\njob %q failed: %s", j.Kind, j.Problem))
	}
}

func (f *readFault) failures() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(f.failed)
	return strings.Join(f.failed, "")
}

// callers are the lines of conductors that led to a read, the innermost first.
func callers() string {
	var counters [64]uintptr
	frames := runtime.CallersFrames(counters[:runtime.Callers(3, counters[:])])
	var lines []string
	for {
		frame, more := frames.Next()
		if strings.Contains(frame.Function, "/conductor/") && !strings.HasSuffix(frame.File, "_test.go") {
			lines = append(lines, fmt.Sprintf("%s:%d", frame.File[strings.LastIndexByte(frame.File, '/')+1:], frame.Line))
		}
		if !more {
			return strings.Join(lines, " < ")
		}
	}
}
