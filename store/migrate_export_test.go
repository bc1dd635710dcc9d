package store

import "context"

// UpTo brings the tables to an older schema, for tests of what comes after it.
func (d *Database) UpTo(ctx context.Context, version int64) error { return d.upTo(ctx, version) }

// AddStep adds a step of a release to come.
func (d *Database) AddStep(s Step, text string) {
	s.text = text
	d.tables.steps = append(d.tables.steps, s)
}
