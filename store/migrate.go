package store

import (
	"cmp"
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
)

// The tables change in steps, the files of migrations/. Each has a number that leads its name, and none is
// changed once released: migrations/SHA256SUMS holds the released files. A file whose name ends in a word and .sql is for both engines. Files of
// the same number and word that end in .postgres.sql and .sqlite.sql add to the step what one engine alone needs.
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
	names, err := listStepFiles(files)
	if err != nil {
		return nil, err
	}
	words := strings.NewReplacer("{{serial}}", d.serial, "{{text}}", d.text)
	var steps []Step
	for _, f := range names {
		if f.engine != "" && f.engine != d.name {
			continue
		}
		b, err := fs.ReadFile(files, "migrations/"+f.name)
		if err != nil {
			return nil, err
		}
		s := Step{Version: f.version, Name: f.word, text: words.Replace(string(b))}
		if s.Contracts, err = parseContractLine(s.text); err != nil {
			return nil, fmt.Errorf("migration %s: %w", f.name, err)
		}
		if n := len(steps); n > 0 && steps[n-1].Version == s.Version {
			last := &steps[n-1]
			last.text, last.Contracts = last.text+"\n"+s.text, max(last.Contracts, s.Contracts)
			continue
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// listStepFiles gives the files of all steps, oldest first. What both engines need comes before what one engine needs more. Two steps of one number are
// refused: a database that has taken one of them counts as a database that has taken both.
func listStepFiles(files fs.FS) ([]stepFile, error) {
	paths, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	var out []stepFile
	for _, path := range paths {
		f, err := parseStepFile(path)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b stepFile) int {
		return cmp.Or(cmp.Compare(a.version, b.version), cmp.Compare(a.word, b.word), cmp.Compare(a.engine, b.engine))
	})
	for i, f := range out[:max(0, len(out)-1)] {
		if next := out[i+1]; f.version == next.version && (f.word != next.word || f.engine == next.engine) {
			return nil, fmt.Errorf("migrations %s and %s have one number: a database that took one of them would never take the other; give the newer file a number that no file has", f.name, next.name)
		}
	}
	return out, nil
}

// stepFile is what the name of a file says, as in 00005_scale.postgres.sql.
type stepFile struct {
	name         string
	version      int64
	word, engine string
}

func parseStepFile(path string) (stepFile, error) {
	name := strings.TrimPrefix(path, "migrations/")
	number, rest, _ := strings.Cut(name, "_")
	version, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return stepFile{}, fmt.Errorf("migration %s: no number in its name", name)
	}
	word, engine, _ := strings.Cut(strings.TrimSuffix(rest, ".sql"), ".")
	return stepFile{name, version, word, engine}, nil
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
	if err := s.checkReleased(); err != nil {
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
