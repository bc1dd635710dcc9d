package store

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"salvor/test/must"
)

// TestBackupLiesInItsFile: what is left in the journal, and a file that is not what was written, are no backup.
func TestBackupLiesInItsFile(t *testing.T) {
	ctx, file := t.Context(), filepath.Join(t.TempDir(), "b.db")
	made := func(path string) *Database {
		t.Helper()
		d, err := OpenDatabase(ctx, "sqlite:"+path, Make)
		if err == nil {
			t.Cleanup(func() { _ = d.Close() })
			err = d.upTo(ctx, d.tables.steps[len(d.tables.steps)-1].Version)
		}
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	from, to := made(filepath.Join(t.TempDir(), "a.db")), made(file)
	must.Get(from.tables.db.ExecContext(ctx, `INSERT INTO setting (name, value) VALUES ('a', 'b')`))(t)
	// Somebody who reads the file as it was keeps the journal from being brought into it, as a full disk does.
	beside := must.Get(sql.Open("sqlite", sqliteDSN(file, Options{}, "&_pragma=query_only(1)")))(t)
	defer beside.Close()
	look, err := beside.BeginTx(ctx, nil)
	if err == nil {
		_, err = queryNumber(ctx, look, `SELECT COUNT(*) FROM setting`)
	}
	if err != nil {
		t.Fatal(err)
	}
	done, err := from.copyTables(ctx, to, tableCopy{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	must.Get(to.tables.db.ExecContext(ctx, `PRAGMA busy_timeout(50)`))(t)
	if err := to.checkpoint(ctx); err == nil {
		t.Error("the journal counts as brought into the file")
	}
	if err := readBack(ctx, file, done); err == nil {
		t.Error("a file beside its journal counts as a backup")
	}
	_ = look.Rollback()
	must.OK(t, to.checkpoint(ctx))
	_, _ = beside.Close(), to.Close()
	must.OK(t, readBack(ctx, file, done))
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string][]byte{"half of it": whole[:len(whole)/2], "nothing": nil} {
		must.OK(t, os.WriteFile(file, spoil, 0o600))
		if err := readBack(ctx, file, done); err == nil {
			t.Errorf("%s counts as a backup", what)
		}
	}
}
