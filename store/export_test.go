package store

import (
	"context"

	"salvor/job"
)

// Exec lets tests spoil rows in ways that the store itself has none for.
func (s *Store) Exec(ctx context.Context, text string, args ...any) error {
	return s.Do(ctx, func(t job.Tx) error {
		tx, err := s.tx(t)
		if err == nil {
			_, err = tx.exec(text, args...)
		}
		return err
	})
}

// Masked is masked.
func Masked(url string) string { return redactDatabaseURL(url) }
