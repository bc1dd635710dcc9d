package store

import "context"

// UpTo brings the tables to an older schema, for tests of what comes after it.
func (d *Database) UpTo(ctx context.Context, version int64) error { return d.upTo(ctx, version) }
