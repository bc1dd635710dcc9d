package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"salvor/cmd/salvor/kit"
)

// dbRun runs a command of salvor db and gives what it printed.
func dbRun(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	root := newRootCommand()
	var out, errs bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetArgs(append([]string{"db"}, args...))
	err = root.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

// TestDBCommands goes the way of an operator: nothing there, made, backed up, restored from the backup, moved.
func TestDBCommands(t *testing.T) {
	dir := t.TempDir()
	url := func(name string) string { return "sqlite:" + filepath.Join(dir, name) }
	state := func(name string) map[string]any {
		t.Helper()
		text, _, err := dbRun(t, "status", "--database", url(name), "-f", "json")
		var out map[string]any
		if err != nil || json.Unmarshal([]byte(text), &out) != nil {
			t.Fatalf("status: %v\n%s", err, text)
		}
		return out
	}
	if s := state("a.db"); s["state"] != "empty" || s["next"] == "" {
		t.Errorf("nothing there: %v", s)
	}
	if out, steps, err := dbRun(t, "migrate", "--database", url("a.db")); err != nil || !strings.Contains(out, "up to date") || !strings.Contains(steps, "schema 1: start") {
		t.Fatalf("migrate: %v\n%s%s", err, out, steps)
	}
	if s := state("a.db"); s["state"] != "current" || s["schema"] != s["program"] || s["size_bytes"].(float64) == 0 || s["engine"] != "sqlite" {
		t.Errorf("made: %v", s)
	}
	if out, _, err := dbRun(t, "migrate", "--database", url("a.db")); err != nil || !strings.Contains(out, "was up to date") {
		t.Errorf("migrate again: %v\n%s", err, out)
	}
	file := filepath.Join(dir, "backup.db")
	if out, steps, err := dbRun(t, "backup", file, "--database", url("a.db")); err != nil || !strings.Contains(out, "Digest") || !strings.Contains(steps, "node: 0 rows") {
		t.Fatalf("backup: %v\n%s%s", err, out, steps)
	}
	if _, _, err := dbRun(t, "backup", file, "--database", url("a.db")); err == nil || kit.ExitStatus(err) != kit.StatusFailed {
		t.Errorf("a backup over another: %v", err)
	}
	out, _, err := dbRun(t, "copy", "--from", "sqlite:"+file, "--to", url("b.db"), "-f", "json")
	var rows []map[string]any
	if err != nil || json.Unmarshal([]byte(out), &rows) != nil || len(rows) < 25 || rows[0]["Digest"] == "" {
		t.Fatalf("copy: %v\n%s", err, out)
	}
	if _, _, err := dbRun(t, "copy", "--from", "sqlite:"+file, "--to", "mysql://x"); err == nil || !strings.Contains(err.Error(), "sqlite: or postgres:") {
		t.Errorf("an unknown engine: %v", err)
	}
	if out, _, err := dbRun(t, "hold", "--database", url("a.db")); err != nil || !strings.Contains(out, "held by an administrator") || !strings.Contains(out, "salvor db restored") {
		t.Errorf("hold: %v\n%s", err, out)
	}
	if s := state("a.db"); s["next"] != "salvor serve, then salvor db restored" {
		t.Errorf("held: %v", s)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "b.db")) // as a build between releases left it
	if err == nil {
		_, err = db.ExecContext(t.Context(), `DELETE FROM goose_db_version WHERE version_id IN (12, 14); DROP TABLE incarnation`)
	}
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	const missing = "steps 12 and 14 are missing"
	if s := state("b.db"); s["state"] != "unreleased" || !strings.Contains(fmt.Sprint(s["note"]), missing) || !strings.Contains(fmt.Sprint(s["next"]), "restore a backup") {
		t.Errorf("status of an unreleased build: want the state unreleased, a note that says %q, and what to restore, got %v", missing, s)
	}
	if _, _, err := dbRun(t, "migrate", "--database", url("b.db")); err == nil || !strings.Contains(err.Error(), missing) || !strings.Contains(err.Error(), "restore a backup") {
		t.Errorf("migrate of an unreleased build: want an error that says %q, and what to restore, got %v", missing, err)
	}
	if _, _, err := dbRun(t, "copy"); err == nil || kit.ExitStatus(err) != kit.StatusUsage {
		t.Errorf("no destination: %v", err)
	}
}
