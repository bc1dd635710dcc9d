package program

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"salvor/test/must"
)

// gate makes a transaction that says an action is done work for ever instead of committing,
// in the incarnation of the server that the row names: the next one is free.
const gate = `
CREATE TABLE IF NOT EXISTS crash_many (x INTEGER);
CREATE TABLE IF NOT EXISTS crash_gate (subject TEXT, action TEXT, incarnation TEXT);
CREATE TRIGGER IF NOT EXISTS crash_hold BEFORE INSERT ON event
WHEN NEW.type = 'action' AND EXISTS (SELECT 1 FROM crash_gate g JOIN conductor c ON c.incarnation = g.incarnation
	WHERE g.subject = NEW.subject_id AND g.action = NEW.action)
BEGIN
	SELECT count(*) FROM crash_many a, crash_many b, crash_many c, crash_many d, crash_many e, crash_many f WHERE a.x + b.x + c.x + d.x + e.x + f.x = 0;
END;`

// HoldBack keeps an action of a machine or a server of salvor's out of the timeline until the process is killed.
func (s *Server) HoldBack(t testing.TB, subject, action string) {
	t.Helper()
	db := must.Get(sql.Open("sqlite", "file:"+filepath.Join(s.State, "salvor.db")+"?_pragma=busy_timeout(10000)"))(t)
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, text := range []string{gate,
		`INSERT INTO crash_many WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT 1 FROM n WHERE NOT EXISTS (SELECT 1 FROM crash_many)`,
		`DELETE FROM crash_gate`,
	} {
		must.Get(db.Exec(text))(t)
	}
	must.Get(db.Exec(`INSERT INTO crash_gate SELECT $1, $2, incarnation FROM conductor`, subject, action))(t)
}
