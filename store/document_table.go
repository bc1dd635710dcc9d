package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/secret"
)

// documentTable keeps documents of nodes or of servers: one of each kind, which ends with the row that it belongs to.
type documentTable struct {
	table string // its name, which is a part of what seals a body
	owner string // Node or Server, as errors name it
	key   string // the column with the owner's id
	// sealed tells whether documents of a kind are sealed whole.
	sealed func(kind string) bool
}

// documentRow is a row of such a table, with its body in the clear.
type documentRow struct {
	ownerID, kind      string
	createdAt, updated time.Time // save sets updated, and createdAt where it is the zero time
	body               string
}

// place is what the body of a document is sealed for.
func (t documentTable) place(ownerID, kind string) string {
	return t.table + ":" + ownerID + ":" + kind
}

func (t documentTable) errorf(err error, verb, kind, ownerID string) error {
	return fmt.Errorf("%s %s of %s %s: %w", verb, kind, strings.ToLower(t.owner), ownerID, err)
}

// read gives a document; false: there is none.
func (t documentTable) read(ctx context.Context, s *storeCore, tx job.Tx, ownerID, kind string) (d documentRow, found bool, err error) {
	d = documentRow{ownerID: ownerID, kind: kind}
	err = s.read(ctx, tx, func(r *sql.Rows) error {
		var created, updated int64
		if err := r.Scan(&created, &updated, &d.body); err != nil {
			return err
		}
		found, d.createdAt, d.updated = true, fromMicros(created), fromMicros(updated)
		if !t.sealed(kind) {
			return nil
		}
		plain, err := s.key.Open(d.body, t.place(ownerID, kind))
		d.body = plain.Reveal()
		return err
	}, `SELECT created_at, updated_at, body FROM `+t.table+` WHERE `+t.key+` = $1 AND kind = $2`, ownerID, kind)
	if err != nil {
		return documentRow{}, false, t.errorf(err, "read", kind, ownerID)
	}
	return d, found, nil
}

// save writes a document in place of what was there; problem.NotFound if its owner is gone.
func (t documentTable) save(s *storeCore, jt job.Tx, d documentRow) error {
	tx, err := s.tx(jt)
	if err != nil {
		return err
	}
	if t.sealed(d.kind) {
		if err := tx.seals(); err != nil {
			return err
		}
		d.body = s.key.Seal(secret.New(d.body), t.place(d.ownerID, d.kind))
	}
	now := s.timestamp()
	if d.createdAt.IsZero() {
		d.createdAt = now
	}
	_, err = tx.exec(`INSERT INTO `+t.table+` (`+t.key+`, kind, created_at, updated_at, body) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (`+t.key+`, kind) DO UPDATE SET updated_at = excluded.updated_at, body = excluded.body`,
		d.ownerID, d.kind, toMicros(d.createdAt), toMicros(now), d.body)
	switch {
	case err == nil:
		return nil
	case s.engine.violated(err) == foreignKey:
		return problem.NotFoundf("%s %s could not be found.", t.owner, d.ownerID)
	}
	return t.errorf(err, "save", d.kind, d.ownerID)
}

// remove removes a document; one that is not there is no error.
func (t documentTable) remove(s *storeCore, jt job.Tx, ownerID, kind string) error {
	tx, err := s.tx(jt)
	if err != nil {
		return err
	}
	if _, err := tx.exec(`DELETE FROM `+t.table+` WHERE `+t.key+` = $1 AND kind = $2`, ownerID, kind); err != nil {
		return t.errorf(err, "delete", kind, ownerID)
	}
	return nil
}
