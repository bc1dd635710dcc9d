package job_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/secret"
	"salvor/store"
	"salvor/test/must"
)

// deafened is a store that does what it is told and whose answer is lost.
type deafened struct {
	job.Store
	claims, writes atomic.Int64
	loseClaim      int64 // the claim whose answer is lost, from 1
	loseWrite      int64 // the same of writes
}

var errLost = problem.Unavailablef("the connection was cut before the answer came")

func (d *deafened) Claim(ctx context.Context, owner string, now time.Time, groups []string, kinds map[job.Kind]int, limit int) ([]job.Job, error) {
	jobs, err := d.Store.Claim(ctx, owner, now, groups, kinds, limit)
	if len(jobs) > 0 && d.claims.Add(1) == d.loseClaim {
		return nil, errLost
	}
	return jobs, err
}

func (d *deafened) Do(ctx context.Context, fn func(job.Tx) error) error {
	err := d.Store.Do(ctx, fn)
	if err == nil && d.writes.Add(1) == d.loseWrite {
		return errLost
	}
	return err
}

// TestClaimWithoutAnswer: a job that a claim took, and whose answer was lost, is worked on all the same.
func TestClaimWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		d := &deafened{Store: h.Store, loseClaim: 1}
		defer h.runner("a", d, true, definition("work", job.Action{Name: "one", NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome { return job.Done() }}))()
		j := h.await(h.insert("work"), 10*time.Second, ended)
		if d.claims.Load() == 0 || j.Problem != "" || j.Crashes != 0 {
			t.Errorf("%d claims, problem %q, %d crashes", d.claims.Load(), j.Problem, j.Crashes)
		}
	})
}

// TestOutcomeWithoutAnswer: whichever write is carried out without an answer, each outcome takes effect once,
// the intents that actions store included, and so does each step of an undoing.
func TestOutcomeWithoutAnswer(t *testing.T) {
	for _, fails := range []bool{false, true} {
		for n := int64(1); ; n++ {
			came := false
			t.Run(fmt.Sprintf("fails=%v write %d", fails, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { came = loseWrite(t, n, fails) })
			})
			if !came || t.Failed() {
				break
			}
		}
	}
}

// loseWrite runs an operation whose nth write is not answered; false if there are fewer.
func loseWrite(t *testing.T, n int64, fails bool) bool {
	h := newRunnerWorld(t)
	defer h.Close()
	d := &deafened{Store: h.Store, loseWrite: n}
	effect := func(j *job.Job, what string) func(job.Tx) error {
		return func(tx job.Tx) error {
			return h.Append(tx, job.Event{Subject: j.Subject, Type: "state", Text: what})
		}
	}
	step := func(name string, intent bool) job.Action {
		return job.Action{Name: name, Do: func(ctx context.Context, r *job.Run) job.Outcome {
			if intent && r.Memo["intent"] == "" {
				r.Note("intent", "yes")
				if err := r.Commit(ctx, effect(&r.Job, "intent")); err != nil {
					return job.From(err)
				}
			}
			if name == "three" && fails {
				return job.Fail(problem.Invalidf("no"))
			}
			return job.Done(effect(&r.Job, name))
		}, Undo: func(_ context.Context, r *job.Run) job.Outcome { return job.Done(effect(&r.Job, "not "+name)) }}
	}
	stop := h.runner("a", d, true, definition("work", step("one", false), step("two", true), step("three", false)))
	defer stop()
	id := h.insert("work")
	j := h.await(id, time.Minute, ended)
	var did []string
	events := must.Get(h.Events(context.Background(), j.Subject, 0, 100))(t)
	for _, e := range events {
		if e.Type == "state" {
			did = append(did, e.Text)
		}
	}
	want := "one, intent, two, three"
	if fails {
		want = "one, intent, two, not three, not two, not one"
	}
	if got := strings.Join(did, ", "); got != want || (j.Problem != "") != fails {
		t.Errorf("took effect: %s; want %s; problem %q", got, want, j.Problem)
	}
	return d.writes.Load() >= n
}

// spoiler is a store in which a job's row cannot be read.
type spoiler struct {
	job.Store
	id string
}

func (s *spoiler) Claim(ctx context.Context, owner string, now time.Time, groups []string, kinds map[job.Kind]int, limit int) ([]job.Job, error) {
	jobs, err := s.Store.Claim(ctx, owner, now, groups, kinds, limit)
	for i := range jobs {
		if jobs[i].ID == s.id {
			jobs[i].Damage = "memo: unexpected end"
		}
	}
	return jobs, err
}

// TestUnreadableJobEnds: it ends with a word in the timeline and in the log, its subject is shown as failed and as
// one that needs a human, none of its actions runs, and others go on.
func TestUnreadableJobEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		id := h.insert("work")
		var told []string
		acted := 0
		d := definition("work", job.Action{Name: "one", NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome { acted++; return job.Done() }})
		d.Failed = func(_ context.Context, _ job.Tx, j *job.Job) error {
			told = append(told, "failed: "+j.Problem)
			return nil
		}
		d.Stuck = func(context.Context, job.Tx, *job.Job, string) error { told = append(told, "stuck"); return nil }
		other := definition("other", d.Actions[0])
		var log bytes.Buffer
		r := must.Get(job.NewRunner(job.Config{
			Store: &spoiler{h.Store, id}, Definitions: []job.Definition{d, other}, Workers: 4, Now: time.Now, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Conductor: job.Conductor{ID: "a", Incarnation: "1", Hostname: "a", Groups: []string{""}, Description: json.RawMessage("{}")},
		}))(t)
		must.OK(t, r.Join(context.Background()))
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx, time.Second) }()
		j := h.await(id, 5*time.Second, ended)
		if next := h.await(h.insert("other"), 5*time.Second, ended); next.Problem != "" || acted != 1 {
			t.Errorf("the other job: %q; %d actions", next.Problem, acted)
		}
		cancel()
		<-done
		if len(told) != 2 || !strings.Contains(told[0], "ended without undo") || told[1] != "stuck" || !j.Secret.Empty() {
			t.Errorf("told %q", told)
		}
		events, err := h.Events(context.Background(), j.Subject, 0, 10)
		if err != nil || len(events) != 1 || events[0].Severity != "error" || !strings.Contains(events[0].Text, id) {
			t.Errorf("events %+v %v", events, err)
		}
		if !strings.Contains(log.String(), "memo: unexpected end") {
			t.Errorf("log %s", log.String())
		}
	})
}

// TestLateWaitsThatCannotEnd: waits whose time is over and whose subjects are locked do not keep one behind them waiting.
func TestLateWaitsThatCannotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		var last string
		must.OK(t, h.Do(context.Background(), func(tx job.Tx) error {
			for i := range 150 {
				s := job.Subject{Kind: "thing", ID: fmt.Sprint(i)}
				late := &job.Job{Kind: "work", Subject: s, State: job.Waiting, Deadline: 1 + int64(i)/149, WaitFor: "a word", Action: "one"}
				if err := h.Insert(tx, late); err != nil {
					return err
				}
				if last = late.ID; i == 149 {
					break
				}
				if err := h.Insert(tx, &job.Job{Kind: "strange", Class: job.Command, Subject: s}); err != nil {
					return err
				}
			}
			return nil
		}))
		defer h.runner("a", h.Store, false, definition("work", job.Action{Name: "one", NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome { return job.Done() }}))()
		h.await(last, 10*time.Second, ended)
	})
}

// TestClockSetBack: what is tried again in a second is not tried again in an hour because the clock was set back.
func TestClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wrong atomic.Int64
		clock := func() time.Time { return time.Now().Round(0).Add(time.Duration(wrong.Load())) }
		key := must.Get(secret.NewKey(secret.GenerateKey()))(t)
		s, err := store.Open(context.Background(), "sqlite:"+filepath.Join(t.TempDir(), "s.db"), key, store.Options{NoSync: true, Logger: quiet, Now: clock})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		h := &runnerWorld{s, t}
		for name, step := range map[job.Kind]time.Duration{"minutes": -5 * time.Minute, "hours": -10 * time.Hour, "forward": time.Hour} {
			wrong.Store(0)
			var tries atomic.Int64
			r := must.Get(job.NewRunner(job.Config{
				Store: s, Workers: 1, Now: clock, Log: quiet, Definitions: []job.Definition{definition(name, job.Action{Name: "look", NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome {
					if tries.Add(1) < 5 {
						return job.Pause(4*time.Second, "the outside")
					}
					return job.Done()
				}})},
				Conductor: job.Conductor{ID: "a", Incarnation: "1", Hostname: "a", Groups: []string{""}, Description: json.RawMessage("{}")},
			}))(t)
			must.OK(t, r.Join(context.Background()))
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- r.Run(ctx, time.Second) }()
			id := h.insert(name)
			time.Sleep(6 * time.Second)
			wrong.Store(int64(step))
			h.await(id, 20*time.Second, ended)
			cancel()
			<-done
		}
	})
}
