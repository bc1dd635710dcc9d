package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"

	"salvor/problem"
)

// The tables change in steps, the files of migrations/. Each has a number that leads its name, and none is
// changed once released. A file whose name ends in a word and .sql is for both engines. Files of the same number that end in
// .postgres.sql and .sqlite.sql add to the step what one engine alone needs.
//
// Programs of two releases serve one database while an upgrade rolls, so a step may only **expand**: new
// tables, new columns with a default, new indexes that refuse nothing which an older program writes. What
// nobody uses any more is taken away by a **contracting** step, at the earliest one release later, with a line
//
//	-- contracts: N
//
// in its file: from then on only programs that know step N may serve the database. A file that only expands though it does not
// look so says why, with a line "-- expands: ...". TestStepsExpand holds every file to that. docs/database.md lists who serves what.
//
//go:embed migrations/*.sql
var migrations embed.FS

// Step is one change of the tables.
type Step struct {
	Version int64  `json:"version"`
	Name    string `json:"name"`
	// Contracts is the oldest program, by the newest step it knows, that may serve the database after this step; 0: whoever did before.
	Contracts int64 `json:"contracts,omitempty"`

	text string
}

const contractLine = "-- contracts:"

// readSteps gives the steps of an engine, oldest first.
func readSteps(files fs.FS, d sqlDialect) ([]Step, error) {
	names, err := fs.Glob(files, "migrations/*.sql") // sorted: what both engines need comes before what one needs more
	if err != nil {
		return nil, err
	}
	words := strings.NewReplacer("{{serial}}", d.serial, "{{text}}", d.text)
	var steps []Step
	slices.SortFunc(names, func(a, b string) int {
		return strings.Compare(strings.TrimSuffix(a, ".sql"), strings.TrimSuffix(b, ".sql"))
	})
	for _, name := range names {
		b, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		number, rest, _ := strings.Cut(strings.TrimPrefix(name, "migrations/"), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("migration %s: no number in its name", name)
		}
		word, engine, _ := strings.Cut(strings.TrimSuffix(rest, ".sql"), ".")
		if engine != "" && engine != d.name {
			continue
		}
		s := Step{Version: version, Name: word, text: words.Replace(string(b))}
		if s.Contracts, err = parseContractLine(s.text); err != nil {
			return nil, fmt.Errorf("migration %s: %w", name, err)
		}
		if n := len(steps); n > 0 && steps[n-1].Version == version {
			last := &steps[n-1]
			last.text, last.Contracts = last.text+"\n"+s.text, max(last.Contracts, s.Contracts)
			continue
		}
		steps = append(steps, s)
	}
	return steps, nil
}

func parseContractLine(text string) (int64, error) {
	for line := range strings.Lines(text) {
		if word, ok := strings.CutPrefix(strings.TrimSpace(line), contractLine); ok {
			return strconv.ParseInt(strings.TrimSpace(word), 10, 64)
		}
	}
	return 0, nil
}

// databaseTables are the tables of one database, which change in steps.
type databaseTables struct {
	db      *sql.DB
	dialect sqlDialect
	steps   []Step
	options []goose.ProviderOption
}

func newTables(db *sql.DB, d sqlDialect, opts ...goose.ProviderOption) (*databaseTables, error) {
	steps, err := readSteps(migrations, d)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	return &databaseTables{db, d, steps, opts}, nil
}

// oldestSetting is the row of the oldest program that may serve.
const oldestSetting = "schema_oldest"

// provider makes what runs the steps up to one.
func (t *databaseTables) provider(upTo int64) (*goose.Provider, error) {
	var list []*goose.Migration
	for _, s := range t.steps {
		if s.Version > upTo {
			break
		}
		up := &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, s.text)
			if err == nil && s.Contracts > 0 {
				_, err = tx.ExecContext(ctx, `INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
					oldestSetting, strconv.FormatInt(s.Contracts, 10))
			}
			return err
		}}
		list = append(list, goose.NewGoMigration(s.Version, up, nil))
	}
	opts := append(slices.Clone(t.options), goose.WithGoMigrations(list...), goose.WithDisableGlobalRegistry(true))
	return goose.NewProvider(t.dialect.goose, t.db, nil, opts...)
}

// up takes the steps that are missing, up to one, each in a transaction of its own, and tells of each.
func (t *databaseTables) up(ctx context.Context, upTo int64, tell func(Step)) error {
	p, err := t.provider(upTo)
	if err != nil {
		return fmt.Errorf("database: migrations: %w", err)
	}
	for {
		done, err := p.UpByOne(ctx)
		switch {
		case errors.Is(err, goose.ErrNoNextVersion):
			return nil
		case err != nil:
			return fmt.Errorf("database: bring the tables up to date: %w", err)
		}
		if i := slices.IndexFunc(t.steps, func(s Step) bool { return s.Version == done.Source.Version }); i >= 0 && tell != nil {
			tell(t.steps[i])
		}
	}
}

// schema looks at the tables and changes nothing.
func (t *databaseTables) schema(ctx context.Context) (Schema, error) {
	s := Schema{Program: t.steps[len(t.steps)-1].Version, Oldest: t.steps[0].Version}
	found, err := queryNumber(ctx, t.db, t.dialect.versioned)
	if err == nil && found > 0 {
		s.Version, err = queryNumber(ctx, t.db, `SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version WHERE is_applied`)
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
		if step.Version > s.Version {
			s.Pending = append(s.Pending, step)
		}
	}
	return s, nil
}

func queryNumber(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row
}, text string, args ...any) (n int64, err error) {
	err = db.QueryRowContext(ctx, text, args...).Scan(&n)
	return n, err
}

// AutoMigrate says which databases Open brings up to date by itself.
type AutoMigrate string

const (
	// MigrateAlways is for databases that one program serves.
	MigrateAlways AutoMigrate = "always"
	// MigrateEmpty makes the tables of a database that has none, and changes no others: programs of an older release may be at work.
	MigrateEmpty AutoMigrate = "empty"
	// MigrateNever leaves every step to `salvor db migrate`, as where the program that serves may not change tables.
	MigrateNever AutoMigrate = "never"
)

// ready brings the tables up to date where it may, and refuses tables that this program cannot serve.
func (t *databaseTables) ready(ctx context.Context, auto AutoMigrate) error {
	s, err := t.schema(ctx)
	if err != nil {
		return err
	}
	if s.Version < s.Program && (auto == MigrateAlways || auto == "" || auto == MigrateEmpty && s.Version == 0) {
		if err := t.up(ctx, s.Program, nil); err != nil {
			return err
		}
		if s, err = t.schema(ctx); err != nil {
			return err
		}
	}
	return s.Serveable()
}

// Schema is how far the tables of a database have come, beside what this program knows.
type Schema struct {
	// Version is the newest step of the database, 0 for one that is empty.
	Version int64 `json:"version"`
	// Program is the newest step that this program knows.
	Program int64 `json:"program"`
	// Oldest is the oldest program that may serve the database, by the newest step it knows.
	Oldest  int64  `json:"oldest_program"`
	Pending []Step `json:"pending"`
}

// The states of a Schema.
const (
	SchemaEmpty   = "empty"
	SchemaBehind  = "behind"
	SchemaCurrent = "current"
	SchemaAhead   = "ahead"   // newer, and this program may serve it
	SchemaTooNew  = "too new" // newer, and it may not
)

// State is the schema in a word.
func (s Schema) State() string {
	switch {
	case s.Version == 0:
		return SchemaEmpty
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
