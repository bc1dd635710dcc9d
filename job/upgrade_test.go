package job_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/job"
	"salvor/secret"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// walked is what was done of each job.
type walked struct {
	mu    sync.Mutex
	steps map[string][]string
}

func (w *walked) note(id, step string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.steps == nil {
		w.steps = map[string][]string{}
	}
	w.steps[id] = append(w.steps[id], step)
}

func (w *walked) of(id string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.steps[id])
}

// step is an action that notes itself, in its job and here.
func (w *walked) step(name string) job.Action {
	return job.Action{Name: name, NoUndo: none, Do: func(_ context.Context, r *job.Run) job.Outcome {
		w.note(r.ID, name)
		r.Note(name, "done")
		return job.Done()
	}}
}

// release is the list of an operation as the release n of salvor has it: the second one does "wash" otherwise, and more.
func (w *walked) release(n int) job.Definition {
	fetch, wash, dry := w.step("fetch"), w.step("wash"), w.step("dry")
	if n == 1 {
		return job.Definition{Kind: "laundry", Version: 1, Class: job.Operation, Actions: []job.Action{fetch, wash, dry}}
	}
	wash.Until = 1
	gently, iron := w.step("wash gently"), w.step("iron")
	gently.Since, iron.Since = 2, 2
	return job.Definition{Kind: "laundry", Version: 2, Class: job.Operation, Actions: []job.Action{fetch, wash, gently, dry, iron}}
}

const upgradeURL, upgradeKey = "SALVOR_TEST_UPGRADE_URL", "SALVOR_TEST_UPGRADE_KEY"

// TestOldRelease is the process of the release before in TestKilledOnOneReleaseResumedOnTheNext; by itself it does nothing.
// It works until it is in the middle of "wash", says so, and stays there until it is killed.
func TestOldRelease(t *testing.T) {
	url := os.Getenv(upgradeURL)
	if url == "" {
		return
	}
	master := must.Get(hex.DecodeString(os.Getenv(upgradeKey)))(t)
	key := must.Get(secret.NewKey(master))(t)
	var w walked
	list := w.release(1)
	list.Actions[1].Do = func(_ context.Context, r *job.Run) job.Outcome {
		fmt.Printf("in the middle of wash, after %s\n", strings.Join(w.of(r.ID), ", "))
		select {}
	}
	h := &runnerWorld{openOf(t, url, key, job.Versions([]job.Definition{list})), t}
	h.runner("one", h.Store, false, list)
	h.insert("laundry")
	select {}
}

func openOf(t *testing.T, url string, key *secret.Key, versions map[job.Kind]int) *store.Store {
	t.Helper()
	s := must.Get(store.Open(t.Context(), url, key, store.Options{NoSync: true, Logger: quiet, Versions: versions}))(t)
	return s
}

// TestKilledOnOneReleaseResumedOnTheNext kills a process in the middle of an action with SIGKILL. The next release goes on at that
// action by the list that the job began with, and what the next release is asked for the release before does not touch.
func TestKilledOnOneReleaseResumedOnTheNext(t *testing.T) {
	for name, fresh := range map[string]func(testing.TB) storetest.Database{"sqlite": storetest.OnSQLite, "postgres": storetest.OnPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := fresh(t)
			master := secret.GenerateKey()
			key := must.Get(secret.NewKey(master))(t)
			killInTheMiddle(t, d.URL, hex.EncodeToString(master))
			var next, before walked
			h := &runnerWorld{openOf(t, d.URL, key, job.Versions([]job.Definition{next.release(2)})), t}
			defer h.Close()
			ctx := context.Background()
			begun, err := h.Unended(nil, job.Subject{Kind: "thing", ID: "laundry"})
			if err != nil || len(begun) != 1 || begun[0].Version != 1 || begun[0].Action != "wash" {
				t.Fatalf("what the dead left: %+v: %v", begun, err)
			}
			stop := h.runner("one", h.Store, false, next.release(2))
			j := h.await(begun[0].ID, 20*time.Second, ended)
			stop()
			if got := next.of(j.ID); j.Failed() || !slices.Equal(got, []string{"wash", "dry"}) || j.Memo["fetch"] != "done" {
				t.Fatalf("resumed with %v, memo %v, problem %q", got, j.Memo, j.Problem)
			}
			newer := h.insert("laundry")
			stop = h.runner("two", h.Store, false, before.release(1))
			old := job.Versions([]job.Definition{before.release(1)})
			if due, err := h.NextDue(ctx, []string{""}, old); err != nil || !due.IsZero() {
				t.Errorf("the release before takes the newer job for its own: %v %v", due, err)
			}
			time.Sleep(1500 * time.Millisecond) // longer than a runner goes without a look
			if j, err := h.Job(ctx, nil, newer); err != nil || j.Version != 2 || j.Fence != 0 || len(before.of(newer)) > 0 {
				t.Errorf("the release before touched the newer job: %+v: %v", j, err)
			}
			stop()
			stop = h.runner("one", h.Store, false, next.release(2))
			defer stop()
			h.await(newer, 20*time.Second, ended)
			if got := next.of(newer); !slices.Equal(got, []string{"fetch", "wash gently", "dry", "iron"}) {
				t.Errorf("the newer job was worked off by %v", got)
			}
		})
	}
}

func killInTheMiddle(t *testing.T, url, key string) {
	t.Helper()
	old := exec.Command(os.Args[0], "-test.run=^TestOldRelease$", "-test.v")
	old.Env = append(os.Environ(), upgradeURL+"="+url, upgradeKey+"="+key)
	out := must.Get(old.StdoutPipe())(t)
	must.OK(t, old.Start())
	watch := time.AfterFunc(time.Minute, func() { _ = old.Process.Kill() })
	defer watch.Stop()
	reached := ""
	for lines := bufio.NewScanner(out); reached == "" && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "in the middle") {
			reached = lines.Text()
		}
	}
	must.OK(t, old.Process.Kill())
	_ = old.Wait()
	if reached != "in the middle of wash, after fetch" {
		t.Fatalf("the release before got as far as %q", reached)
	}
}

// TestVersionsOfAList: a list with bounds that cannot be is refused, and so is one whose former version makes no sense.
func TestVersionsOfAList(t *testing.T) {
	var w walked
	act := func(name string, since, until int) job.Action {
		a := w.step(name)
		a.Since, a.Until = since, until
		return a
	}
	for _, c := range []struct {
		actions []job.Action
		ok      bool
	}{
		{[]job.Action{act("a", 0, 0), act("b", 3, 0)}, true},
		{[]job.Action{act("a", 0, 2), act("a", 3, 0)}, true},
		{[]job.Action{act("a", 0, 0), act("a", 3, 0)}, false},
		{[]job.Action{act("a", 0, 0), act("b", 4, 0)}, false},
		{[]job.Action{act("a", 0, 0), act("b", 0, 3)}, false},
		{[]job.Action{act("a", 3, 0)}, false}, // jobs of the release before would have nothing to do
	} {
		d := job.Definition{Kind: "x", Version: 3, Actions: c.actions}
		if err := d.Check(); (err == nil) != c.ok {
			text, _ := json.Marshal(c.ok)
			t.Errorf("%+v: %v, want ok %s", c.actions, err, text)
		}
	}
}
