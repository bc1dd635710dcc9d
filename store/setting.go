package store

import (
	"context"
	"database/sql"
	"fmt"

	"salvor/job"
	"salvor/secret"
)

// GetOrCreateSecret gives the secret that this database keeps under a name, sealed. Where there is none
// yet, fresh is kept: of several that come at once one wins, and all are given its.
func (s keyTables) GetOrCreateSecret(ctx context.Context, name string, fresh secret.Value) (secret.Value, error) {
	place, sealed := "setting:"+name, ""
	scan := func(r *sql.Rows) error { return r.Scan(&sealed) }
	err := s.Do(ctx, func(t job.Tx) error {
		tx, err := s.tx(t)
		if err != nil {
			return err
		}
		if !fresh.Empty() {
			if err := tx.seals(); err != nil {
				return err
			}
			if _, err := tx.exec(`INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING`, name, s.key.Seal(fresh, place)); err != nil {
				return err
			}
		}
		return tx.each(scan, `SELECT value FROM setting WHERE name = $1`, name)
	})
	if err != nil {
		return secret.Value{}, fmt.Errorf("keep %s: %w", name, err)
	}
	if sealed == "" {
		return secret.Value{}, nil
	}
	return s.key.Open(sealed, place)
}
