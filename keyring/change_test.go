package keyring

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	"salvor/store/storetest"
	"salvor/test/must"
)

// process is one of several over a database, with a key file of its own.
type process struct {
	*Ring
	t *testing.T
}

// start is a process with a copy of a key file.
func start(t *testing.T, db storetest.Database, s Store, keys string, now *time.Time) process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secrets.key")
	must.OK(t, os.WriteFile(file, []byte(keys), 0o600))
	source, key, err := Open(t.Context(), Source{File: file})
	if err != nil {
		t.Fatal(err)
	}
	key.Use(db.Key.ID()) // as a start does that proves the key
	return process{New(Config{Source: source, Key: key, Store: s, Host: filepath.Base(filepath.Dir(file)), Now: func() time.Time { return *now }, Log: slog.New(slog.DiscardHandler)}), t}
}

func (p process) file() string {
	p.t.Helper()
	b := must.Get(os.ReadFile(p.Source.File))(p.t)
	return string(b)
}

// copyTo is what a person does who is told that a host lacks a key.
func (p process) copyTo(other process) {
	p.t.Helper()
	must.OK(p.t, os.WriteFile(other.Source.File, []byte(p.file()), 0o600))
}

func (p process) state(want string) {
	p.t.Helper()
	if now, err := p.Status(p.t.Context()); err != nil || now.State != want {
		p.t.Fatalf("state %q, %v; want %q", now.State, err, want)
	}
}

// TestChangeByManyProcesses: a change waits for whoever lives and lacks the key, not for who is silent; whoever is killed on the way,
// another one goes on; and the key file of the last one to come loses the old key too.
func TestChangeByManyProcesses(t *testing.T) {
	ctx, at := t.Context(), time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	first := secret.GenerateKey()
	text, err := secret.FormatKeys([][]byte{first})
	if err != nil {
		t.Fatal(err)
	}
	db := storetest.OnSQLite(t)
	if db.Key, err = secret.NewKey(first); err != nil {
		t.Fatal(err)
	}
	s := storetest.Open(t, db)
	a, b, silent := start(t, db, s, string(text), &at), start(t, db, s, string(text), &at), start(t, db, s, string(text), &at)
	a.Key = db.Key // the store seals with the key of the process that it is in
	for _, p := range []process{a, b, silent} {
		must.OK(t, p.turn(ctx))
	}
	must.OK(t, a.Rotate(ctx, record.Asker{User: "root"}))
	if err := a.Rotate(ctx, record.Asker{User: "root"}); !problem.Is(err, problem.Conflict) {
		t.Errorf("a second change at the same time: %v", err)
	}
	a.state("waiting")
	for range 3 { // b and the silent one lack the key
		if err := a.turn(ctx); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), b.Host) {
			t.Errorf("%v: want to wait for %s", err, b.Host)
		}
		_ = b.hold(ctx)
		at = at.Add(keySilence / 2)
	}
	a.copyTo(b)
	if err := b.turn(ctx); err != nil { // a was killed, and the silent one is taken for dead
		t.Error(err)
	}
	a.state("sealing")
	old := db.Key.IDs()[0]
	again := start(t, db, s, a.file(), &at) // a comes back; its former self says nothing any more
	again.Key = db.Key
	for range 6 {
		_, _ = again.turn(ctx), b.turn(ctx)
		at = at.Add(keySilence)
	}
	again.state("steady")
	for _, p := range []process{again, b} {
		if keys, err := secret.ParseKeys([]byte(p.file())); err != nil || len(keys) != 1 || p.Key.ID() == old || len(p.Key.IDs()) != 1 {
			t.Errorf("%s: %d keys are in the file, %d known, %v", p.Host, len(keys), len(p.Key.IDs()), err)
		}
	}
	now, err := again.Status(ctx)
	if err != nil || len(now.Keys) != 2 || now.Old != nil {
		t.Errorf("%+v, %v", now, err)
	}
}
