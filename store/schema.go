package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"salvor/problem"
)

// Schema is how far the tables of a database have come, beside what this program knows.
type Schema struct {
	// Version is the newest step of the database, 0 for one that is empty.
	Version int64 `json:"version"`
	// Program is the newest step that this program knows.
	Program int64 `json:"program"`
	// Oldest is the oldest program that may serve the database, by the newest step it knows.
	Oldest  int64  `json:"oldest_program"`
	Pending []Step `json:"pending"`
	// Missing are the steps below Version that the database has not taken. Only builds between releases, which numbered steps anew, leave some.
	Missing []Step `json:"missing,omitempty"`
}

// The states of a Schema.
const (
	SchemaEmpty      = "empty"
	SchemaBehind     = "behind"
	SchemaCurrent    = "current"
	SchemaAhead      = "ahead"      // newer, and this program may serve it
	SchemaTooNew     = "too new"    // newer, and it may not
	SchemaUnreleased = "unreleased" // made by a build between releases, and no release may serve it
)

// State is the schema in a word.
func (s Schema) State() string {
	switch {
	case s.Version == 0:
		return SchemaEmpty
	case len(s.Missing) > 0:
		return SchemaUnreleased
	case s.Oldest > s.Program:
		return SchemaTooNew
	case s.Version > s.Program:
		return SchemaAhead
	case s.Version < s.Program:
		return SchemaBehind
	}
	return SchemaCurrent
}

// Serveable says why this program may not serve the database, and what to do about it; nil if it may.
func (s Schema) Serveable() error {
	if err := s.checkReleased(); err != nil {
		return err
	}
	switch s.State() {
	case SchemaEmpty:
		return problem.Conflictf("database: it has no tables yet; run: salvor db migrate")
	case SchemaBehind:
		return problem.Conflictf("database: its tables are at schema %d and this program needs %d; run: salvor db migrate", s.Version, s.Program)
	case SchemaTooNew:
		return problem.Conflictf("database: its tables are at schema %d, which programs of schema %d and newer may serve, and this one knows %d; start the newer salvor",
			s.Version, s.Oldest, s.Program)
	}
	return nil
}

// checkReleased says why no release can use the database; nil unless a build between releases made its tables.
func (s Schema) checkReleased() error {
	if s.State() != SchemaUnreleased {
		return nil
	}
	numbers := make([]string, len(s.Missing))
	for i, step := range s.Missing {
		numbers[i] = strconv.FormatInt(step.Version, 10)
	}
	missing := "step " + numbers[0] + " is missing"
	if last := len(numbers) - 1; last > 0 {
		missing = "steps " + strings.Join(numbers[:last], ", ") + " and " + numbers[last] + " are missing"
	}
	return problem.Conflictf("database: an unreleased build of salvor made its tables: %s and step %d is there, so no release can serve it or bring it up to date; restore a backup that a release made (salvor db backup), or begin with an empty database", missing, s.Version)
}

// schema looks at the tables and changes nothing.
func (t *databaseTables) schema(ctx context.Context) (Schema, error) {
	s := Schema{Program: t.steps[len(t.steps)-1].Version, Oldest: t.steps[0].Version}
	found, err := queryNumber(ctx, t.db, t.dialect.versioned)
	var applied []int64
	if err == nil && found > 0 {
		applied, err = t.applied(ctx)
	}
	if len(applied) > 0 {
		s.Version = slices.Max(applied)
	}
	if err == nil && s.Version > 0 {
		var oldest int64
		oldest, err = queryNumber(ctx, t.db, `SELECT COALESCE(MAX(CAST(value AS BIGINT)), 0) FROM setting WHERE name = '`+oldestSetting+`'`)
		s.Oldest = max(s.Oldest, oldest)
	}
	if err != nil {
		return Schema{}, fmt.Errorf("database: read the version of the tables: %w", err)
	}
	for _, step := range t.steps {
		switch {
		case step.Version > s.Version:
			s.Pending = append(s.Pending, step)
		case !slices.Contains(applied, step.Version):
			s.Missing = append(s.Missing, step)
		}
	}
	return s, nil
}

// applied gives the numbers of the steps that the database has taken.
func (t *databaseTables) applied(ctx context.Context) ([]int64, error) {
	rows, err := t.db.QueryContext(ctx, `SELECT version_id FROM goose_db_version WHERE is_applied`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []int64
	for rows.Next() {
		var version int64
		if err := rows.Scan(&version); err != nil {
			return nil, err
		}
		out = append(out, version)
	}
	return out, rows.Err()
}
