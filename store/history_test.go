package store_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

// onBoth runs a test on a fresh database of each engine, which has its tables.
func onBoth(t *testing.T, test func(t *testing.T, d storetest.Database)) {
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(t, storetest.CopiedSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, storetest.CopiedPostgres(t)) })
}

// onBothEmpty runs a test on a database of each engine that has no tables.
func onBothEmpty(t *testing.T, test func(t *testing.T, d storetest.Database)) {
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(t, storetest.OnSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, storetest.OnPostgres(t)) })
}

var (
	aKind  = map[job.Kind]int{"work": 1}
	inNone = []string{""}
)

// working opens a store with a conductor that has claimed one of two jobs.
func working(t *testing.T, d storetest.Database) (*store.Store, job.Conductor, job.Job) {
	t.Helper()
	s := storetest.Open(t, d)
	me := job.Conductor{ID: "c", Incarnation: "1", Hostname: "north-7"}
	err := s.Register(t.Context(), me)
	if err == nil {
		err = s.Do(t.Context(), func(tx job.Tx) error {
			return errors.Join(s.Insert(tx, &job.Job{ID: "a", Kind: "work", Subject: job.Node("a")}), s.Insert(tx, &job.Job{ID: "b", Kind: "work", Subject: job.Node("b")}))
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Claim(t.Context(), me.Owner(), time.Now().Add(time.Minute), inNone, aKind, 1)
	if err != nil || len(got) != 1 {
		t.Fatalf("claimed %v, %v", got, err)
	}
	return s, me, got[0]
}

// idle checks that a conductor can neither claim a job, nor take up again the one that it has, nor write a step of it.
func idle(t *testing.T, s *store.Store, me job.Conductor, j job.Job) {
	t.Helper()
	if got, err := s.Claim(t.Context(), me.Owner(), time.Now().Add(time.Minute), inNone, aKind, 9); err != nil || len(got) != 0 {
		t.Errorf("jobs were claimed: %v, %v", got, err)
	}
	if got, err := s.Claimed(t.Context(), me.Owner(), 9); err != nil || len(got) != 0 {
		t.Errorf("jobs were taken up again: %v, %v", got, err)
	}
	j.Action = "next"
	if err := s.Do(t.Context(), func(tx job.Tx) error { return s.Save(tx, &j, true) }); !errors.Is(err, job.ErrFenced) {
		t.Errorf("a step was written: %v", err)
	}
}

// TestHeldDatabaseRunsNothing: another process held the database. This process claims no job and writes no step even before it knows
// that, and accepts no new job afterwards.
func TestHeldDatabaseRunsNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, d storetest.Database) {
		s, me, j := working(t, d)
		must.OK(t, s.Exec(t.Context(), `UPDATE incarnation SET held_at = 1, held_reason = 'backup', held_detail = 'by another process'`))
		if s.Held() != nil {
			t.Fatal("this process knows already")
		}
		idle(t, s, me, j)
		refused := func(when string) {
			t.Helper()
			err := s.Do(t.Context(), func(tx job.Tx) error { return s.Insert(tx, &job.Job{Kind: "work", Subject: job.Node("c")}) })
			if !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "salvor db restored") {
				t.Errorf("a new job, %s: %v", when, err)
			}
		}
		refused("before this process knows")
		if _, err := s.Incarnation(t.Context()); err != nil || s.Held() == nil {
			t.Fatalf("held: %v, %v", s.Held(), err)
		}
		idle(t, s, me, j)
		refused("once it knows")
		if due, err := s.NextDue(t.Context(), inNone, aKind); err != nil || !due.IsZero() {
			t.Errorf("a job is due at %v, %v", due, err)
		}
	})
}

// TestOlderStateIsNoticed: a database whose counter is behind what this process has seen is held, and nothing was done by it before.
func TestOlderStateIsNoticed(t *testing.T) {
	onBoth(t, func(t *testing.T, d storetest.Database) {
		s, me, j := working(t, d)
		for range 3 {
			must.Get(s.Raise(t.Context()))(t)
		}
		must.OK(t, s.Exec(t.Context(), `UPDATE incarnation SET counter = counter - 1`))
		idle(t, s, me, j)
		i, err := s.Incarnation(t.Context())
		if err != nil || i.Held == nil || i.Held.Code != record.HeldWentBack || !strings.Contains(i.Held.Detail, "state 4") {
			t.Errorf("held: %+v, %v", i.Held, err)
		}
	})
}

// TestOlderLeaseIsNoticed: a conductor whose lease in the database is older than its own newest beat does nothing, and its next beat
// holds the database. So the loss of a few seconds is noticed in which the counter did not rise.
func TestOlderLeaseIsNoticed(t *testing.T) {
	onBoth(t, func(t *testing.T, d storetest.Database) {
		s, me, j := working(t, d)
		for range 3 {
			must.OK(t, s.RenewLease(t.Context(), me))
		}
		if i, err := s.Incarnation(t.Context()); err != nil || i.Held != nil {
			t.Fatalf("held by beats in order: %+v, %v", i.Held, err)
		}
		must.OK(t, s.Exec(t.Context(), `UPDATE conductor SET counter = counter - 2`))
		idle(t, s, me, j)
		must.OK(t, s.RenewLease(t.Context(), me))
		i, err := s.Incarnation(t.Context())
		if err != nil || i.Held == nil || i.Held.Code != record.HeldWentBack || !strings.Contains(i.Held.Detail, "conductor c") {
			t.Errorf("held: %+v, %v", i.Held, err)
		}
	})
}

// TestWitnesses: a witness that is ahead holds the database, and so does a witness of an unknown incarnation. A witness that is
// behind, or of a former incarnation, does not hold it; no witness holds an empty database.
func TestWitnesses(t *testing.T) {
	onBoth(t, func(t *testing.T, d storetest.Database) {
		s := storetest.Open(t, d)
		i, err := s.Raise(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		compare := func(id string, counter int64) string {
			t.Helper()
			must.OK(t, s.Compare(t.Context(), record.Witness{ID: id, Counter: counter}, "witness.json"))
			now := must.Get(s.Incarnation(t.Context()))(t)
			must.OK(t, s.Exec(t.Context(), `UPDATE incarnation SET held_at = NULL`))
			if now.Held == nil {
				return ""
			}
			return now.Held.Code
		}
		if code := compare("another", 9); code != "" {
			t.Errorf("an empty database is held: %s", code)
		}
		err = s.Do(t.Context(), func(tx job.Tx) error { return s.Insert(tx, &job.Job{Kind: "work", Subject: job.Node("a")}) })
		if err == nil {
			err = s.Exec(t.Context(), `INSERT INTO former_incarnation (id, counter, ended_at) VALUES ('former', 5, 1)`)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			id      string
			counter int64
			want    string
		}{
			{i.ID, i.Counter - 1, ""}, {i.ID, i.Counter, ""}, {i.ID, i.Counter + 1, record.HeldWentBack},
			{"former", 9, ""}, {"another", 1, record.HeldReplaced}, {"", 0, ""},
		} {
			if code := compare(c.id, c.counter); code != c.want {
				t.Errorf("a witness of %q at %d: %q, want %q", c.id, c.counter, code, c.want)
			}
		}
	})
}

// incarnationAt reads the incarnation of a database that nobody serves.
func incarnationAt(t *testing.T, url string) record.Incarnation {
	t.Helper()
	d := must.Get(store.OpenDatabase(t.Context(), url, store.Look))(t)
	defer d.Close()
	i, err := d.Incarnation(t.Context())
	if err != nil || i.ID == "" {
		t.Fatalf("%s: %+v, %v", url, i, err)
	}
	return i
}

// TestBackupIsHeld: the file of a backup carries a mark, and the counter of its source is ahead of it. A copy of the backup stays
// held.
func TestBackupIsHeld(t *testing.T) {
	onBoth(t, func(t *testing.T, d storetest.Database) {
		s := storetest.Open(t, d)
		before := s.Known()
		from := opened(t, d.URL, store.Look)
		backup := "sqlite:" + filepath.Join(t.TempDir(), "backup.db")
		must.Get(from.Backup(t.Context(), strings.TrimPrefix(backup, "sqlite:"), nil))(t)
		source, made := incarnationAt(t, d.URL), incarnationAt(t, backup)
		if source.Held != nil || source.ID != before.ID || source.Counter != before.Counter+1 {
			t.Errorf("the source before %+v, afterwards %+v", before, source)
		}
		if made.ID != source.ID || made.Held == nil || made.Held.Code != record.HeldBackup {
			t.Fatalf("the backup: %+v, %+v", made, made.Held)
		}
		restored := storetest.OnSQLite(t)
		must.Get(opened(t, backup, store.Own).Copy(t.Context(), opened(t, restored.URL, store.Make), nil))(t)
		if i := incarnationAt(t, restored.URL); i.Held == nil || i.Held.Code != record.HeldBackup {
			t.Errorf("a copy of the backup: %+v", i.Held)
		}
	})
}

// TestHeldByAnAdministrator: a database that nobody serves is held when it is served next, and the first reason stays.
func TestHeldByAnAdministrator(t *testing.T) {
	onBothEmpty(t, func(t *testing.T, d storetest.Database) {
		empty := opened(t, d.URL, store.Make)
		if _, err := empty.Hold(t.Context(), "too early"); !problem.Is(err, problem.Conflict) {
			t.Errorf("without tables: %v", err)
		}
		must.OK(t, empty.Close())
		before := storetest.Open(t, d)
		must.OK(t, before.Close())
		for _, detail := range []string{"pg_restore was run", "again"} {
			o := must.Get(store.OpenDatabase(t.Context(), d.URL, store.Own))(t)
			h, err := o.Hold(t.Context(), detail)
			if err != nil || h == nil || h.Code != record.HeldAsked || h.Detail != "pg_restore was run" || time.Since(h.Since).Abs() > time.Hour {
				t.Errorf("%s: %+v, %v", detail, h, err)
			}
			must.OK(t, o.Close())
		}
		s := storetest.Open(t, d)
		err := s.Do(t.Context(), func(tx job.Tx) error { return s.Insert(tx, &job.Job{Kind: "work", Subject: job.Node("c")}) })
		if !problem.Is(err, problem.Unavailable) || s.Known().ID != before.Known().ID {
			t.Errorf("a new job: %v; the id was %s, is %s", err, before.Known().ID, s.Known().ID)
		}
	})
}

// TestCopiedSourceIsHeld: the destination goes on with the history of the source, and the source does not.
func TestCopiedSourceIsHeld(t *testing.T) {
	onBothEmpty(t, func(t *testing.T, to storetest.Database) {
		from := storetest.CopiedSQLite(t)
		to.Key = from.Key
		s := storetest.Open(t, from)
		was, err := s.Raise(t.Context())
		if err == nil {
			err = s.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		source, destination := opened(t, from.URL, store.Own), opened(t, to.URL, store.Make)
		must.Get(source.Copy(t.Context(), destination, nil))(t)
		must.OK(t, errors.Join(source.Close(), destination.Close()))
		if i := incarnationAt(t, to.URL); i != was {
			t.Errorf("the destination: %+v, want %+v", i, was)
		}
		i := incarnationAt(t, from.URL)
		if i.Held == nil || i.Held.Code != record.HeldCopied || !strings.Contains(i.Held.Detail, "salvor db copy") {
			t.Errorf("the source: %+v", i.Held)
		}
	})
}

// TestBothProcessesHold: two processes on one database both stop their work once one of them has held it.
func TestBothProcessesHold(t *testing.T) {
	d := storetest.CopiedPostgres(t)
	s, me, j := working(t, d)
	other := storetest.Open(t, d)
	must.OK(t, other.Compare(t.Context(), record.Witness{ID: other.Known().ID, Counter: 99}, "host vm1"))
	idle(t, s, me, j)
	idle(t, other, me, j)
	if _, err := s.Incarnation(t.Context()); err != nil || s.Held() == nil || other.Held() == nil || !strings.Contains(s.Held().Detail, "host vm1") {
		t.Errorf("held: %+v and %+v, %v", s.Held(), other.Held(), err)
	}
}

// TestStandBy: no job is claimed until the time is over, or somebody ends it.
func TestStandBy(t *testing.T) {
	s := storetest.Open(t, storetest.CopiedSQLite(t))
	must.OK(t, s.Do(t.Context(), func(tx job.Tx) error { return s.Insert(tx, &job.Job{Kind: "work", Subject: job.Node("a")}) }))
	claim := func() int {
		t.Helper()
		got := must.Get(s.Claim(t.Context(), "c/1", time.Now().Add(time.Minute), inNone, aKind, 1))(t)
		return len(got)
	}
	s.StandBy(time.Hour)
	if n := claim(); n != 0 {
		t.Errorf("%d jobs were claimed", n)
	}
	s.StandBy(0)
	if n := claim(); n != 1 {
		t.Errorf("%d jobs were claimed", n)
	}
}

// TestAFormerReleaseDoesNotStartOnAHeldDatabase: a program that does not know a hold refuses to serve a held database, however it came to be
// held, and serves it again after the release.
func TestAFormerReleaseDoesNotStartOnAHeldDatabase(t *testing.T) {
	former := func(t *testing.T, url string) error {
		t.Helper()
		d := must.Get(store.OpenDatabase(t.Context(), url, store.Look))(t)
		defer d.Close()
		s := must.Get(d.Schema(t.Context()))(t)
		if now := s.Serveable(); now != nil {
			t.Errorf("this release does not serve it: %v", now)
		}
		s.Program = 14 // the last step that knows no hold
		return s.Serveable()
	}
	refused := func(t *testing.T, what, url string) {
		t.Helper()
		if err := former(t, url); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "start the newer salvor") {
			t.Errorf("%s: the former release starts: %v", what, err)
		}
	}
	onBoth(t, func(t *testing.T, d storetest.Database) {
		s := storetest.Open(t, d)
		release := func() {
			t.Helper()
			must.OK(t, s.Do(t.Context(), func(tx job.Tx) error { return s.ReleaseHold(tx) }))
			if err := former(t, d.URL); err != nil {
				t.Errorf("after the release: %v", err)
			}
		}
		if err := former(t, d.URL); err != nil {
			t.Fatalf("before the hold: %v", err)
		}
		file := filepath.Join(t.TempDir(), "backup.db")
		must.Get(opened(t, d.URL, store.Look).Backup(t.Context(), file, nil))(t)
		refused(t, "backup", "sqlite:"+file)
		if err := former(t, d.URL); err != nil {
			t.Errorf("the source of a backup: %v", err)
		}
		must.OK(t, s.HoldDatabase(t.Context(), record.HeldWentBack, "a test"))
		refused(t, "went back", d.URL)
		release()
		must.OK(t, s.Close())
		o, err := store.OpenDatabase(t.Context(), d.URL, store.Own)
		if err == nil {
			_, err = o.Hold(t.Context(), "by hand")
		}
		if err == nil {
			err = o.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		refused(t, "db hold", d.URL)
		s = storetest.Open(t, d)
		release()
		must.OK(t, s.Close())
		to := storetest.OnSQLite(t)
		must.Get(opened(t, d.URL, store.Own).Copy(t.Context(), opened(t, to.URL, store.Make), nil))(t)
		refused(t, "copied source", d.URL)
		if err := former(t, to.URL); err != nil {
			t.Errorf("the copy: %v", err)
		}
	})
}
