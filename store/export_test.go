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

// RecordStatements notes each statement that the store sends from now on, with the arguments of its newest use.
func RecordStatements(s *Store) map[string][]any {
	r := &recorder{s.engine, map[string][]any{}}
	s.engine = r
	return r.sent
}
