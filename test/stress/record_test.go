package stress

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"
)

// recorder is the history as the database itself wrote it: triggers note every change of a job's claim, of a node's
// provision state and of the timeline, with the transaction and with which process made it.
var recorder = []string{
	`CREATE TABLE history (n BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tx xid NOT NULL DEFAULT pg_current_xact_id()::xid,
		at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(), writer TEXT NOT NULL DEFAULT current_setting('application_name'),
		what TEXT NOT NULL, node TEXT NOT NULL, job TEXT NOT NULL DEFAULT '', request TEXT NOT NULL DEFAULT '',
		old_owner TEXT NOT NULL DEFAULT '', new_owner TEXT NOT NULL DEFAULT '', old_fence BIGINT NOT NULL DEFAULT 0, new_fence BIGINT NOT NULL DEFAULT 0,
		old_state TEXT NOT NULL DEFAULT '', new_state TEXT NOT NULL DEFAULT '', crashes BIGINT NOT NULL DEFAULT 0, words TEXT NOT NULL DEFAULT '')`,
	`CREATE FUNCTION note_job() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF TG_OP = 'INSERT' THEN
			INSERT INTO history (what, node, job, request, new_owner, new_fence, new_state, words)
				VALUES ('insert', NEW.subject_id, NEW.id, NEW.request_id, NEW.owner, NEW.fence, NEW.state, NEW.kind);
		ELSE
			INSERT INTO history (what, node, job, request, old_owner, new_owner, old_fence, new_fence, old_state, new_state, crashes, words)
				VALUES ('update', NEW.subject_id, NEW.id, NEW.request_id, OLD.owner, NEW.owner, OLD.fence, NEW.fence, OLD.state, NEW.state, NEW.crashes - OLD.crashes, NEW.action);
		END IF;
		RETURN NULL; END $$`,
	`CREATE TRIGGER note_job AFTER INSERT OR UPDATE ON job FOR EACH ROW EXECUTE FUNCTION note_job()`,
	`CREATE FUNCTION note_node() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO history (what, node, old_state, new_state) VALUES ('node', NEW.id, OLD.provision_state, NEW.provision_state);
		RETURN NULL; END $$`,
	`CREATE TRIGGER note_node AFTER UPDATE ON node FOR EACH ROW WHEN (OLD.provision_state <> NEW.provision_state) EXECUTE FUNCTION note_node()`,
	`CREATE FUNCTION note_event() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO history (what, node, job, words) VALUES ('event', NEW.subject_id, NEW.job_id, NEW.text);
		RETURN NULL; END $$`,
	`CREATE TRIGGER note_event AFTER INSERT ON event FOR EACH ROW WHEN (NEW.type = 'action') EXECUTE FUNCTION note_event()`,
	// What each incarnation of a conductor showed of its life.
	`CREATE TABLE life (n BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(), owner TEXT NOT NULL, ended BOOLEAN NOT NULL DEFAULT FALSE)`,
	`INSERT INTO life (owner) SELECT owner FROM conductor`,
	`CREATE FUNCTION note_life() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF TG_OP = 'DELETE' OR TG_OP = 'UPDATE' AND OLD.owner <> NEW.owner THEN
			INSERT INTO life (owner, ended) VALUES (OLD.owner, TRUE);
		END IF;
		IF TG_OP <> 'DELETE' THEN
			INSERT INTO life (owner) VALUES (NEW.owner);
		END IF;
		RETURN NULL; END $$`,
	`CREATE TRIGGER note_life AFTER INSERT OR UPDATE OR DELETE ON conductor FOR EACH ROW EXECUTE FUNCTION note_life()`,
}

// change is a row of the history.
type change struct {
	n                                                    int64
	tx                                                   uint32
	at, committed                                        time.Time
	writer, what, node, job, request, oldOwner, newOwner string
	oldFence, newFence                                   int64
	oldState, newState                                   string
	crashes                                              int64
	words                                                string
}

func record(t testing.TB, db *sql.DB) {
	t.Helper()
	for _, text := range recorder {
		if _, err := db.Exec(text); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
	}
}

// recorded reads the history back, with the times of the commits.
func recorded(ctx context.Context, db *sql.DB) ([]change, error) {
	rows, err := db.QueryContext(ctx, `SELECT n, tx::text::bigint, at, COALESCE(pg_xact_commit_timestamp(tx), at), writer, what, node, job, request,
		old_owner, new_owner, old_fence, new_fence, old_state, new_state, crashes, words FROM history ORDER BY n`)
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	defer rows.Close()
	var out []change
	for rows.Next() {
		var c change
		if err := rows.Scan(&c.n, &c.tx, &c.at, &c.committed, &c.writer, &c.what, &c.node, &c.job, &c.request, &c.oldOwner, &c.newOwner,
			&c.oldFence, &c.newFence, &c.oldState, &c.newState, &c.crashes, &c.words); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, rows.Err()
}

// lives is what is known of incarnations, each by its name as an owner.
type lives struct {
	process map[string]string // which process it is
	beats   map[string][]time.Time
	ended   map[string]time.Time
}

// lived reads what the conductors showed of their lives.
func (l lives) lived(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, `SELECT owner, at, ended FROM life ORDER BY n`)
	if err != nil {
		return fmt.Errorf("read the lives of conductors: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var owner string
		var at time.Time
		var ended bool
		if err := rows.Scan(&owner, &at, &ended); err != nil {
			return err
		}
		if ended {
			l.ended[owner] = at
		} else {
			l.beats[owner] = append(l.beats[owner], at)
		}
	}
	return rows.Err()
}
