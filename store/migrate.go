package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// dialect is what the shared migrations leave open.
type dialect struct {
	goose        goose.Dialect
	serial, text string
}

// migrate brings the tables up to date. Each file of migrations is one step: its
// number leads its name, and it is never changed once released.
func migrate(ctx context.Context, db *sql.DB, d dialect, opts ...goose.ProviderOption) error {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	words := strings.NewReplacer("{{serial}}", d.serial, "{{text}}", d.text)
	var steps []*goose.Migration
	for _, name := range names {
		b, err := migrations.ReadFile(name)
		if err != nil {
			return err
		}
		number, _, _ := strings.Cut(strings.TrimPrefix(name, "migrations/"), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return fmt.Errorf("migration %s: no number in its name", name)
		}
		text := words.Replace(string(b))
		up := &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, text)
			return err
		}}
		steps = append(steps, goose.NewGoMigration(version, up, nil))
	}
	opts = append(opts, goose.WithGoMigrations(steps...), goose.WithDisableGlobalRegistry(true))
	p, err := goose.NewProvider(d.goose, db, nil, opts...)
	if err != nil {
		return fmt.Errorf("database: migrations: %w", err)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("database: bring the tables up to date: %w", err)
	}
	return nil
}
