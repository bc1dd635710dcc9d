package keyring

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"salvor/job"
	"salvor/record"
	"salvor/secret"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

// countingStore counts what reads all rows.
type countingStore struct {
	*store.Store
	reseals, counts, looks int
}

func (y *countingStore) Reseal(ctx context.Context) (int, error) {
	y.reseals++
	return y.Store.Reseal(ctx)
}

func (y *countingStore) SealedWith(ctx context.Context, id string) (int, error) {
	y.counts++
	return y.Store.SealedWith(ctx, id)
}

func (y *countingStore) OldKeyUse(ctx context.Context, k store.SealKey) (store.KeyUse, error) {
	y.looks++
	return y.Store.OldKeyUse(ctx, k)
}

func newRing(source Source, key *secret.Key, s Store) *Ring {
	return New(Config{Source: source, Key: key, Store: s, Host: "h", Alone: true, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
}

// TestRotationWaits: while somebody holds a token of the old key, the rows are not read again and again.
func TestRotationWaits(t *testing.T) {
	s, key := storetest.SQLite(t)
	y := &countingStore{Store: s}
	op := &job.Job{Kind: "work", Version: 1, Class: job.Operation, Subject: job.Node("n"), Secret: secret.New("hash")}
	must.OK(t, s.Do(t.Context(), func(tx job.Tx) error { return s.Insert(tx, op) }))
	r := newRing(Source{File: filepath.Join(t.TempDir(), "secrets.key")}, key, y)
	next, err := key.Add(secret.GenerateKey())
	if err == nil {
		err = s.ProposeKey(t.Context(), next, record.Asker{})
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		_ = r.turn(t.Context())
	}
	if y.reseals < 1 || y.reseals > 2 || y.counts > 2 || y.looks != 1 || key.ID() != next {
		t.Errorf("in 20 turns all was read %d times to be sealed and %d times to be counted, and %d times was asked who holds a token", y.reseals, y.counts, y.looks)
	}
	jobs, err := s.Claim(t.Context(), "c/1", s.Now(), []string{""}, map[job.Kind]int{"work": 1}, 1)
	if err != nil || len(jobs) != 1 {
		t.Fatal(jobs, err)
	}
	jobs[0].State = job.Ended
	must.OK(t, s.Do(t.Context(), func(tx job.Tx) error { return s.Save(tx, &jobs[0], false) }))
	r.asked = time.Time{}
	must.OK(t, r.turn(t.Context()))
	keys, err := s.SealKeys(t.Context())
	if err != nil || len(keys) != 2 || keys[0].State != store.RetiredKey && keys[1].State != store.RetiredKey {
		t.Errorf("nobody needs the old key: %+v %v", keys, err)
	}
}

// holders is a store in which somebody holds tokens of the old key.
type holders struct {
	*store.Store
	held store.KeyUse
}

func (h *holders) OldKeyUse(context.Context, store.SealKey) (store.KeyUse, error) {
	return h.held, nil
}

// TestAnOldKeyStaysWhileItIsHeld: a ramdisk or an operation that began before the change keeps the old key, alone and together.
func TestAnOldKeyStaysWhileItIsHeld(t *testing.T) {
	for name, held := range map[string]store.KeyUse{"ramdisks": {Boots: 1}, "operations": {Operations: 1}, "both": {Boots: 2, Operations: 3}} {
		t.Run(name, func(t *testing.T) {
			db := storetest.OnSQLite(t)
			s, key := storetest.Open(t, db), db.Key
			h := &holders{Store: s, held: held}
			r := newRing(Source{File: filepath.Join(t.TempDir(), "secrets.key")}, key, h)
			old := key.ID()
			next, err := key.Add(secret.GenerateKey())
			if err == nil {
				err = s.ProposeKey(t.Context(), next, record.Asker{})
			}
			if err != nil {
				t.Fatal(err)
			}
			state := func() map[string]string {
				for range 5 {
					r.asked = time.Time{}
					_ = r.turn(t.Context())
				}
				keys := must.Get(s.SealKeys(t.Context()))(t)
				is := map[string]string{}
				for _, k := range keys {
					is[k.ID] = string(k.State)
				}
				return is
			}
			if is := state(); is[old] != string(store.OldKey) || is[next] != string(store.CurrentKey) || !slices.Contains(key.IDs(), old) {
				t.Errorf("while it is held: %v; known are %v", is, key.IDs())
			}
			h.held = store.KeyUse{}
			if is := state(); is[old] != string(store.RetiredKey) || slices.Contains(key.IDs(), old) {
				t.Errorf("when nobody holds it: %v; known are %v", is, key.IDs())
			}
		})
	}
}

// TestRetiredKeyGoes: a key that was retired while we did not live goes from our file at our first turn, though the start has forgotten it.
func TestRetiredKeyGoes(t *testing.T) {
	db := storetest.OnSQLite(t)
	s, key := storetest.Open(t, db), db.Key
	file := filepath.Join(t.TempDir(), "secrets.key")
	source := Source{File: file}
	masters, err := source.Read(t.Context()) // makes one
	if err != nil {
		t.Fatal(err)
	}
	retired, err := key.Add(masters[0])
	if err == nil {
		err = source.extend(t.Context())
	}
	if err == nil {
		masters, err = source.Read(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	current, err := key.Add(masters[1])
	if err != nil {
		t.Fatal(err)
	}
	r := newRing(source, key, s)
	for _, id := range []string{retired, current} {
		must.OK(t, s.ProposeKey(t.Context(), id, record.Asker{}))
		if id == current {
			key.Forget(retired) // as a start does
		}
		for i := 0; i < 5; i++ {
			_ = r.turn(t.Context())
			r.asked = time.Time{}
		}
	}
	masters, err = source.Read(t.Context())
	if err != nil || len(masters) != 1 || key.ID() != current {
		t.Fatalf("%d keys are in the file, %v; %s seals, want %s", len(masters), err, key.ID(), current)
	}
}
