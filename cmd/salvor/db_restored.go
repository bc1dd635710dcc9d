package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/problem"
	"salvor/store"
	"salvor/wire/native"
)

const restoredPath = "/restored"

// restoredFlags are the operator's decision.
type restoredFlags struct {
	release   string
	unread    bool
	readAgain bool
	offline   string
}

func newDBRestoredCommand() *cobra.Command {
	e, o, f := &kit.Endpoint{}, &kit.Output{}, &restoredFlags{}
	cmd := &cobra.Command{
		Use: "restored", Short: "Show what became of a database that was restored, and release it", Args: cobra.NoArgs,
		Long: `Show what became of a database that was restored, and release it.

A restored database describes machines as they were, and jobs that have ended since. Therefore salvor serve starts with
the database held: it answers requests, reads the machines, and changes nothing. Stop every process of the former
release: it does not know the hold, and acts on the database.

Without a flag, this command shows the cause of the hold, and each open job with what either decision does about it. It
also shows each difference between record and machine, and each witness that contradicts the database. Then decide once:

  --release as-it-is        open jobs go on where they stood; an operation whose ramdisk was booting begins again
  --release end-operations  open jobs end, and no machine is touched; nothing is undone. A node whose operation ends
                            shows the failure, and is in maintenance until you have looked at its machine

Two kinds of jobs do not follow the decision. A job of a server whose guest runs on another host ends. A live migration
whose guest may have left its source goes on. The list says so.

Either way, the release records the power that was found, so power sync switches no healthy machine. If a machine was
not read in the last 2 minutes, its power becomes unknown, and power sync records what it then reads: --read-again has
all machines read anew. Other differences are shown and left. The release accepts the witnesses: none of them holds the
database again by its present content. The release is one transaction. It is refused while a machine was not read, unless
you give --unread.

The command asks the running salvor serve as an administrator. With --database it reads a database that no process serves.`,
		Example: `  salvor db restored
  salvor db restored --read-again
  salvor db restored --release as-it-is

  # every open job is stale, and all machines stay as they are
  salvor db restored --release end-operations

  # look at a backup before it is put in place
  salvor db restored --database sqlite:/var/backups/salvor-2026-11-22.db`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Check(cmd); err != nil {
				return err
			}
			if f.offline != "" {
				return showOffline(cmd, f, o)
			}
			return e.Run(func(c *kit.Call) error { return decideRestored(c, f, o) })(cmd, args)
		},
	}
	e.Flags(cmd)
	o.Flags(cmd)
	b := cmd.Flags()
	kit.AddEnumFlag(cmd, &f.release, "release", "", "end the hold; open jobs go on (as-it-is) or end (end-operations)", decisions...)
	b.BoolVar(&f.unread, "unread", false, "with --release: do not wait until all machines are read")
	b.BoolVar(&f.readAgain, "read-again", false, "have conductors read all machines again")
	b.StringVar(&f.offline, "database", "", "read this database instead, which no process serves: sqlite:PATH or postgres://...")
	return cmd
}

// decisions are those that a release takes.
var decisions = []string{"as-it-is", "end-operations"}

func decideRestored(c *kit.Call, f *restoredFlags, o *kit.Output) error {
	if f.release == "" && f.unread {
		return kit.UsageErrorf(c.Command, "--unread is of use with --release only")
	}
	ask := func(method, path string, body, into any) error {
		return c.API.Ask(c.Context(), client.Native, method, restoredPath+path, nil, body, into)
	}
	if f.readAgain {
		if err := ask(http.MethodPost, "/read", nil, nil); err != nil {
			return err
		}
	}
	if f.release != "" {
		var done native.RestoredReleased
		if err := ask(http.MethodPost, "/release", native.RestoredRelease{Decision: f.release, Unread: f.unread}, &done); err != nil {
			return err
		}
		return printReleased(o, c.OutOrStdout(), done)
	}
	var r native.Restored
	if err := ask(http.MethodGet, "", nil, &r); err != nil {
		return err
	}
	return printRestored(o, c.OutOrStdout(), r)
}

func printReleased(o *kit.Output, w io.Writer, done native.RestoredReleased) error {
	if o.Format == "json" {
		return kit.WriteJSON(w, done)
	}
	for _, line := range done.Lines {
		fmt.Fprintln(w, kit.StripControlChars(line))
	}
	_, err := fmt.Fprintln(w, "released: the database is served as any other; see: salvor node list")
	return err
}

// restored prints the cause of the hold, the open jobs and the differences.
func printRestored(o *kit.Output, w io.Writer, r native.Restored) error {
	if o.Format == "json" {
		return kit.WriteJSON(w, r)
	}
	if r.Held == nil {
		_, err := fmt.Fprintln(w, "the database is not held: there is nothing to decide")
		return err
	}
	fmt.Fprintf(w, "held since %s: %s\n  %s\n", kit.ShownTime(kit.FormatCell(r.Held.Since)), kit.StripControlChars(r.Held.Words), kit.StripControlChars(r.Held.Detail))
	fmt.Fprintf(w, "\nopen jobs: %d\n", len(r.Jobs))
	for _, j := range r.Jobs {
		fmt.Fprintf(w, "\n%s  %s of %s %s\n", j.ID, kit.StripControlChars(j.Kind), kit.StripControlChars(j.SubjectKind), kit.StripControlChars(j.Subject))
		fmt.Fprintf(w, "  asked at %s%s; stood at %s, %s\n", kit.ShownTime(kit.FormatCell(j.AskedAt)), formatAskedBy(j.AskedBy), atAction(j), triesOf(j.Tries))
		for _, d := range decisions {
			fmt.Fprintf(w, "  %-15s it %s\n", d+":", kit.StripControlChars(j.Effects[d]))
		}
	}
	fmt.Fprintf(w, "\ndifferences: %d; %d of %d machines were read\n", len(r.Differences), r.Read, r.Machines)
	for _, d := range r.Differences {
		found := d.Found
		if d.Unreadable != "" {
			found = "unreadable: " + d.Unreadable
		}
		fmt.Fprintf(w, "\n%s %s: %s: recorded %s, found %s\n  at the release: %s\n", d.SubjectKind, kit.StripControlChars(d.Subject), d.What, kit.StripControlChars(d.Recorded), kit.StripControlChars(found), kit.StripControlChars(d.Release))
	}
	writeWitnesses(w, r)
	if r.Read < r.Machines {
		_, err := fmt.Fprintln(w, "\nnext: wait until all machines are read: salvor db restored")
		return err
	}
	_, err := fmt.Fprintln(w, "\nnext: salvor db restored --release as-it-is, or: salvor db restored --release end-operations")
	return err
}

// writeWitnesses prints the witnesses that contradict the database.
func writeWitnesses(w io.Writer, r native.Restored) {
	for _, one := range r.Witnesses {
		switch {
		case one.Unreadable != "":
			fmt.Fprintf(w, "\nwitness %s: unreadable: %s\n", kit.StripControlChars(one.Witness), kit.StripControlChars(one.Unreadable))
		case one.Contradicts != "":
			fmt.Fprintf(w, "\nwitness %s: %s\n  after the release, that does not hold the database again\n", kit.StripControlChars(one.Witness), kit.StripControlChars(one.Contradicts))
		}
	}
}

func formatAskedBy(user string) string {
	if user == "" {
		return ""
	}
	return " by " + kit.StripControlChars(user)
}

func atAction(j native.RestoredJob) string {
	if j.Action == "" {
		return "its start"
	}
	return fmt.Sprintf("%q (%s)", kit.StripControlChars(j.Action), j.State)
}

func triesOf(n int) string {
	if n == 1 {
		return "1 failed try"
	}
	return fmt.Sprintf("%d failed tries", n)
}

// showOffline reads a database that no process serves. It does not read machines.
func showOffline(cmd *cobra.Command, f *restoredFlags, o *kit.Output) error {
	if f.release != "" || f.readAgain {
		return kit.UsageErrorf(cmd, "--database only looks: start salvor serve on the database, which holds itself, and decide there")
	}
	d, err := store.OpenDatabase(cmd.Context(), f.offline, store.Look)
	if err != nil {
		return err
	}
	defer d.Close()
	jobs, err := openJobs(cmd.Context(), d)
	if err != nil {
		return err
	}
	if o.Format == "table" {
		fmt.Fprintf(cmd.OutOrStdout(), "open jobs: %d; machines are compared by salvor serve, which starts held on a restored database\n", len(jobs))
	}
	return o.List(cmd.OutOrStdout(), kit.ColumnsOf([]string{"id", "kind", "subject", "state", "action", "tries", "asked_at", "asked_by"}), jobs)
}

func openJobs(ctx context.Context, d *store.Database) ([]client.Record, error) {
	s, err := d.Schema(ctx)
	if err != nil {
		return nil, err
	}
	if s.Version == 0 {
		return nil, problem.Conflictf("database: %s has no tables", d.URL())
	}
	if s.State() == store.SchemaUnreleased {
		return nil, s.Serveable()
	}
	jobs, err := d.OpenJobs(ctx)
	out := make([]client.Record, len(jobs))
	for i, j := range jobs {
		out[i] = client.Record{"id": j.ID, "kind": string(j.Kind), "subject": j.Subject.Kind + " " + j.Subject.ID, "state": string(j.State), "action": j.Action,
			"tries": j.Attempt, "asked_at": j.CreatedAt.UTC().Format(time.RFC3339), "asked_by": j.User}
	}
	return out, err
}
