package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/config"
	"salvor/problem"
	"salvor/record"
	"salvor/store"
)

// newDBCommand is `salvor db`. None of its commands needs the key: what is sealed stays sealed.
func newDBCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "db",
		Short: "Migrate, inspect, back up, copy, hold and release the database",
	}
	cmd.AddCommand(newDBMigrateCommand(), newDBStatusCommand(), newDBBackupCommand(), newDBCopyCommand(), newDBHoldCommand(), newDBRestoredCommand())
	return cmd
}

// find finds the database as serve does.
func (s *serveFlags) find(name string) (string, error) {
	source, err := s.source(name)
	if err != nil {
		return "", err
	}
	cfg, _, err := config.Load(source)
	if err != nil {
		return "", err
	}
	if s.database != "" {
		return cfg.Database.Connection.Reveal(), nil
	}
	return cfg.Database.Direct(), nil
}

func (s *serveFlags) open(ctx context.Context, name string, use store.Use) (*store.Database, error) {
	url, err := s.find(name)
	if err != nil {
		return nil, err
	}
	return store.OpenDatabase(ctx, url, use)
}

func newDBMigrateCommand() *cobra.Command {
	var which serveFlags
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the tables up to date for this release",
		Long: `Bring the tables up to date for this release.

Each step is one transaction. If a step is cut off, the next call of this command does it.

On PostgreSQL, programs of the previous release keep serving during and after the
migration. To upgrade, migrate once with the new program, then restart one salvor serve
after the other. A step that removes what older programs need runs only while no program
serves the database.

salvor serve itself brings a SQLite database up to date when it starts.`,
		Example: `  salvor db migrate --database postgres://salvor@db/salvor
  salvor db backup before.db --config /etc/salvor/salvor.conf && salvor db migrate --config /etc/salvor/salvor.conf`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := which.open(cmd.Context(), "database", store.Make)
			if err != nil {
				return err
			}
			defer d.Close()
			steps := 0
			err = d.Migrate(cmd.Context(), func(s store.Step) {
				steps++
				fmt.Fprintf(cmd.ErrOrStderr(), "schema %d: %s\n", s.Version, s.Name)
			})
			if err != nil {
				return err
			}
			s, err := d.Schema(cmd.Context())
			if err != nil {
				return err
			}
			word := "up to date"
			if steps == 0 {
				word = "was up to date"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: schema %d, %s\n", d.URL(), s.Version, word)
			return err
		},
	}
	which.flags(cmd, "database", "")
	return cmd
}

func newDBStatusCommand() *cobra.Command {
	var which serveFlags
	var out kit.Output
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether this program can serve the database, and what to do if not",
		Long: `Show whether this program can serve the database, and what to do if not.

  state     empty, behind, current, ahead (newer, but served all the same), too new, or
            unreleased (made by a build between releases; note says why and what to do)
  schema    the newest step of the database's tables
  program   the newest step that this program knows
  oldest    the oldest program, by its newest step, that may serve the database
  incarnation, counter
            the id of this history of the database, and a number that rises while
            programs write
  held      the cause if nothing acts on the database: it is a backup, it went back to an
            earlier state, it is not the one that was served here, or it was copied away
  next      the command to run`,
		Example: `  salvor db status
  salvor db status --database postgres://salvor@db/salvor -f json
  salvor db status -c state -f value`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.Check(cmd); err != nil {
				return err
			}
			status, err := databaseStatus(cmd.Context(), &which)
			if err != nil {
				return err
			}
			return out.Show(cmd.OutOrStdout(), status)
		},
	}
	which.flags(cmd, "database", "")
	out.Flags(cmd)
	return cmd
}

func databaseStatus(ctx context.Context, which *serveFlags) (client.Record, error) {
	d, err := which.open(ctx, "database", store.Look)
	if problem.Is(err, problem.NotFound) {
		return client.Record{"state": store.SchemaEmpty, "next": "salvor serve", "note": err.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	s, err := d.Schema(ctx)
	if err != nil {
		return nil, err
	}
	size, err := d.Size(ctx)
	if err != nil {
		return nil, err
	}
	if s.State() == store.SchemaUnreleased { // no other table is read: builds between releases had others
		return client.Record{"database": d.URL(), "engine": d.Engine(), "state": s.State(), "schema": s.Version, "program": s.Program, "size_bytes": size,
			"next": "restore a backup that a release made, or begin with an empty database", "note": problem.Public(s.Serveable())}, nil
	}
	i, err := d.Incarnation(ctx)
	if err != nil {
		return nil, err
	}
	pending := []any{}
	for _, step := range s.Pending {
		pending = append(pending, fmt.Sprintf("%d %s", step.Version, step.Name))
	}
	next := map[string]string{
		store.SchemaEmpty: "salvor db migrate", store.SchemaBehind: "salvor db migrate", store.SchemaCurrent: "salvor serve",
		store.SchemaAhead: "salvor serve, of the newer release where it is there", store.SchemaTooNew: "salvor serve of the newer release",
	}
	out := client.Record{
		"database": d.URL(), "engine": d.Engine(), "state": s.State(), "schema": s.Version, "program": s.Program, "oldest": s.Oldest,
		"pending": pending, "size_bytes": size, "next": next[s.State()], "incarnation": i.ID, "counter": i.Counter, "held": nil,
	}
	if h := i.Held; h != nil {
		out["held"] = h.Code + " since " + record.Moment(h.Since) + ": " + h.Summary() + " (" + h.Detail + "); nothing acts on it; stop every process of the former release, which does not know of the hold"
		if s.State() == store.SchemaCurrent {
			out["next"] = "salvor serve, then " + record.HeldNext
		}
	}
	return out, nil
}

func newDBBackupCommand() *cobra.Command {
	var which serveFlags
	var out kit.Output
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write the whole database, as it is at one moment, into a new SQLite file",
		Long: `Write the whole database, as it is at one moment, into a new SQLite file. Programs keep
serving the database meanwhile. The command reads each table back from the file and
compares it before it gives the file its name.

Secrets are sealed in the backup as they are in the database. Without the key file the
backup reveals no secret and is of no use. Keep a copy of the key file too, at another place.

To restore: salvor serve --database sqlite:FILE, or salvor db copy --from sqlite:FILE.
The command marks the file as a backup, so salvor serve starts with this database held.
Nothing acts on it until an administrator has decided about its open jobs (salvor db restored).`,
		Example: `  salvor db backup /var/backups/salvor-$(date +%F).db
  salvor db backup before-upgrade.db --database postgres://salvor@db/salvor
  salvor db copy --from sqlite:/var/backups/salvor-2026-11-22.db --to postgres://salvor@db/restored`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.Check(cmd); err != nil {
				return err
			}
			d, err := which.open(cmd.Context(), "database", store.Look)
			if err != nil {
				return err
			}
			defer d.Close()
			done, err := d.Backup(cmd.Context(), args[0], tellCopied(cmd.ErrOrStderr(), "backing up"))
			if err != nil {
				return err
			}
			return printCopied(&out, cmd.OutOrStdout(), done)
		},
	}
	which.flags(cmd, "database", "")
	out.Flags(cmd)
	return cmd
}

func newDBCopyCommand() *cobra.Command {
	var from serveFlags
	var to string
	var out kit.Output
	cmd := &cobra.Command{
		Use:   "copy --to URL",
		Short: "Fill an empty database with all that another holds: SQLite to PostgreSQL, or back",
		Long: `Fill an empty database with all that another holds: SQLite to PostgreSQL, or back.

Stop every salvor serve of the source first; the command refuses to copy while one is alive.
The command marks the source as copied: serving it again starts held. A copy of a backup
starts held as well. The command writes everything in one transaction and reads it back. It
keeps the copy only if the number of rows and a digest of each table are equal. Secrets stay
sealed: use the key file of the source with the destination.

Start salvor serve on one of the two databases only. Otherwise two control planes would
each do the work that both have.

A password in a URL shows in the list of processes; a file ~/.pgpass or PGPASSWORD does not.`,
		Example: `  # grow to PostgreSQL
  salvor db copy --from sqlite:/var/lib/salvor/salvor.db --to postgres://salvor@db/salvor
  salvor serve --database postgres://salvor@db/salvor

  # and back
  salvor db copy --from postgres://salvor@db/salvor --to sqlite:/var/lib/salvor/salvor.db`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.Check(cmd); err != nil {
				return err
			}
			return copyDatabase(cmd, &from, to, &out)
		},
	}
	from.flags(cmd, "from", "")
	out.Flags(cmd)
	cmd.Flags().StringVar(&to, "to", "", "the empty database to fill: sqlite:PATH or postgres://... (required)")
	if err := cmd.MarkFlagRequired("to"); err != nil {
		panic(err)
	}
	return cmd
}

func copyDatabase(cmd *cobra.Command, from *serveFlags, to string, out *kit.Output) error {
	ctx := cmd.Context()
	source, err := from.open(ctx, "from", store.Own)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	defer source.Close()
	destination, err := store.OpenDatabase(ctx, to, store.Make)
	if err != nil {
		return fmt.Errorf("the destination: %w", err)
	}
	done, err := source.Copy(ctx, destination, tellCopied(cmd.ErrOrStderr(), "copying"))
	if err = errors.Join(err, destination.Close()); err != nil {
		return err
	}
	return printCopied(out, cmd.OutOrStdout(), done)
}

// tellCopied shows how a copy goes on: one line that changes on a terminal, else a line for each table.
func tellCopied(w io.Writer, word string) func(store.Copied, bool) {
	width := kit.TerminalWidth(w)
	return func(c store.Copied, done bool) {
		switch {
		case width == 0 && done:
			fmt.Fprintf(w, "%s: %d rows\n", c.Table, c.Rows)
		case width > 0 && done:
			fmt.Fprint(w, "\r", strings.Repeat(" ", width-1), "\r")
		case width > 0:
			line := fmt.Sprintf("%s %s, %d rows ...", word, c.Table, c.Rows)
			fmt.Fprint(w, "\r", line[:min(len(line), width-1)])
		}
	}
}

// copied prints what a copy came to, table by table.
func printCopied(o *kit.Output, w io.Writer, done []store.Copied) error {
	records := make([]client.Record, len(done))
	for i, c := range done {
		records[i] = client.Record{"table": c.Table, "rows": c.Rows, "digest": c.Digest}
	}
	return o.List(w, kit.ColumnsOf([]string{"table", "rows", "digest"}), records)
}
