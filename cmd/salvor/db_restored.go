package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/problem"
	"salvor/store"
	"salvor/wire/native"
)

const restoredPath = "/restored"

// restoredFlags are the operator's choices.
type restoredFlags struct {
	resume, end, drop, take, enforce []string
	lostWitnesses                    []string
	rest                             string
	readAgain                        bool
	release                          bool
	unread                           bool
	dryRun                           bool
	offline                          string
}

func newDBRestoredCommand() *cobra.Command {
	e, o, f := &apiEndpoint{}, &outputOptions{}, &restoredFlags{}
	cmd := &cobra.Command{
		Use: "restored", Short: "Decide what becomes of the open jobs of a database that was restored, and release it", Args: cobra.NoArgs,
		Long: `Decide what becomes of the open jobs of a database that was restored, and release it.

A restored database describes machines as they were, and jobs that have ended since. Therefore salvor serve starts with
the database held: it answers requests, reads the machines, and changes nothing. Stop every process of the former
release: it does not know the hold, and acts on the database. This command shows the cause of the hold, the open jobs,
and each difference between record and machine. Choose for each job. You can change a choice until the release:

  --continue JOB  the job continues; an operation whose ramdisk was booting begins again
  --end JOB       the job fails and is undone, which may switch its machine off
  --drop JOB      the job is forgotten and no machine is touched; after an operation its node is in maintenance

JOB is the id of a job or its first 8 characters, the name of its node or server, or "all": all jobs without a choice
that have this one.
Some jobs do not have every choice: those of hosts, moves and live migrations cannot be dropped.

The release records the power that was found, so power sync switches no healthy machine. If a machine was not read in
the last 2 minutes, its power becomes unknown, and power sync records what it then reads. --enforce NODE keeps the
record, and power sync switches the machine; --take NODE withdraws that. Other differences are shown and left.

--release carries out the choices, in one transaction. It is refused while a job has no choice (--rest chooses for
those that have it) or a machine was not read (--unread). --dry-run shows what the release would do.

--witness-lost WITNESS declares that a witness is lost or wrong: what it remembers now does not hold the database
again. It ends no hold. WITNESS is the path of a file, the name of a host, "hosts", "all", or the id of the database
that a witness elsewhere remembers. The list shows witnesses that contradict the database, and those declared lost.

The command asks the running salvor serve as an administrator. With --database it reads a database that no process serves.`,
		Example: `  salvor db restored
  salvor db restored --drop all --continue 0193a1b2
  salvor db restored --enforce web-7
  salvor db restored --release --dry-run
  salvor db restored --release

  # every open job is stale, and all machines stay as they are
  salvor db restored --release --rest drop

  # hosts remember another database, and are wrong
  salvor db restored --witness-lost hosts --dry-run

  # look at a backup before it is put in place
  salvor db restored --database sqlite:/var/backups/salvor-2026-11-22.db`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			if f.offline != "" {
				return showOffline(cmd, f, o)
			}
			return e.run(func(c *clientCall) error { return decideRestored(c, f, o) })(cmd, args)
		},
	}
	e.flags(cmd)
	o.flags(cmd)
	for _, v := range []struct {
		name, usage string
		to          *[]string
	}{
		{"continue", "jobs whose work goes on: JOB,... or all", &f.resume}, {"end", "jobs that fail and are undone: JOB,... or all", &f.end},
		{"drop", "jobs that are forgotten: JOB,... or all", &f.drop}, {"take", "nodes whose power is recorded as found: NODE,... or all", &f.take},
		{"witness-lost", "witnesses that are lost or wrong: PATH, HOST,..., hosts or all", &f.lostWitnesses},
		{"enforce", "nodes that power sync switches to the recorded power: NODE,... or all", &f.enforce},
	} {
		cmd.Flags().StringSliceVar(v.to, v.name, nil, v.usage)
	}
	b := cmd.Flags()
	b.BoolVar(&f.release, "release", false, "carry out the choices and end the hold")
	addEnumFlag(cmd, &f.rest, "rest", "", "with --release: continue, end or drop the jobs that have no choice", "continue", "end", "drop")
	b.BoolVar(&f.unread, "unread", false, "with --release: do not wait until all machines are read")
	b.BoolVar(&f.dryRun, "dry-run", false, "with --release or --witness-lost: show what would be done, and do nothing")
	b.BoolVar(&f.readAgain, "read-again", false, "have conductors read all machines again")
	b.StringVar(&f.offline, "database", "", "read this database instead, which no process serves: sqlite:PATH or postgres://...")
	return cmd
}

func decideRestored(c *clientCall, f *restoredFlags, o *outputOptions) error {
	if !f.release && (f.rest != "" || f.unread || f.dryRun && len(f.lostWitnesses) == 0) {
		return usageErrorf(c.Command, "--rest and --unread are of use with --release only, --dry-run with --release or --witness-lost")
	}
	if f.dryRun && !f.release && len(f.resume)+len(f.end)+len(f.drop)+len(f.take)+len(f.enforce) > 0 {
		return usageErrorf(c.Command, "--dry-run stores no choice; choose first, then run: salvor db restored --release --dry-run")
	}
	choices := []native.RestoredChoice{
		// Jobs and nodes that are named come before "all", whatever the order of the flags.
		{Jobs: eachNamed(f.resume), Choice: "continue"}, {Jobs: eachNamed(f.end), Choice: "end"}, {Jobs: eachNamed(f.drop), Choice: "drop"},
		{Jobs: allOf(f.resume), Choice: "continue"}, {Jobs: allOf(f.end), Choice: "end"}, {Jobs: allOf(f.drop), Choice: "drop"},
		{Nodes: allOf(f.take), Choice: "take"}, {Nodes: allOf(f.enforce), Choice: "enforce"},
		{Nodes: eachNamed(f.take), Choice: "take"}, {Nodes: eachNamed(f.enforce), Choice: "enforce"},
	}
	ask := func(method, path string, body, into any) error {
		return c.api.Ask(c.context(), client.Native, method, restoredPath+path, nil, body, into)
	}
	for _, choice := range choices {
		if len(choice.Jobs)+len(choice.Nodes) == 0 {
			continue
		}
		if err := ask(http.MethodPost, "/choices", choice, &native.Restored{}); err != nil {
			return err
		}
	}
	if len(f.lostWitnesses) > 0 {
		var lost native.RestoredWitnessesLost
		if err := ask(http.MethodPost, "/witnesses", native.RestoredLoseWitnesses{Witnesses: f.lostWitnesses, DryRun: f.dryRun}, &lost); err != nil {
			return err
		}
		if !f.release {
			return o.witnessesLost(c.OutOrStdout(), lost)
		}
		for _, line := range lost.Lines {
			fmt.Fprintln(c.ErrOrStderr(), stripControlChars(line))
		}
	}
	if f.readAgain {
		if err := ask(http.MethodPost, "/read", nil, nil); err != nil {
			return err
		}
	}
	if f.release {
		var done native.RestoredReleased
		if err := ask(http.MethodPost, "/release", native.RestoredRelease{Rest: f.rest, Unread: f.unread, DryRun: f.dryRun}, &done); err != nil {
			return err
		}
		return o.released(c.OutOrStdout(), done)
	}
	var r native.Restored
	if err := ask(http.MethodGet, "", nil, &r); err != nil {
		return err
	}
	return o.restored(c.OutOrStdout(), r)
}

const everyWord = "all"

func eachNamed(names []string) (out []string) {
	for _, w := range names {
		if w != everyWord {
			out = append(out, w)
		}
	}
	return out
}

func allOf(names []string) []string {
	if len(eachNamed(names)) < len(names) {
		return []string{everyWord}
	}
	return nil
}

func (o *outputOptions) witnessesLost(w io.Writer, lost native.RestoredWitnessesLost) error {
	if o.format == "json" {
		return writeJSON(w, lost)
	}
	for _, line := range lost.Lines {
		fmt.Fprintln(w, stripControlChars(line))
	}
	return nil
}

func (o *outputOptions) released(w io.Writer, done native.RestoredReleased) error {
	if o.format == "json" {
		return writeJSON(w, done)
	}
	for _, line := range done.Lines {
		fmt.Fprintln(w, stripControlChars(line))
	}
	if done.Released {
		_, err := fmt.Fprintln(w, "released: the database is served as any other; see: salvor node list")
		return err
	}
	_, err := fmt.Fprintln(w, "nothing was done; without --dry-run this is done: salvor db restored --release")
	return err
}

// restored prints the cause of the hold, the open jobs and the differences.
func (o *outputOptions) restored(w io.Writer, r native.Restored) error {
	if o.format == "json" {
		return writeJSON(w, r)
	}
	if r.Held == nil {
		_, err := fmt.Fprintln(w, "the database is not held: there is nothing to decide")
		writeWitnesses(w, r)
		return err
	}
	fmt.Fprintf(w, "held since %s: %s\n  %s\n", formatCell(r.Held.Since), stripControlChars(r.Held.Words), stripControlChars(r.Held.Detail))
	fmt.Fprintf(w, "\nopen jobs: %d\n", len(r.Jobs))
	undecided := 0
	for _, j := range r.Jobs {
		fmt.Fprintf(w, "\n%s  %s of %s %s\n", j.ID, stripControlChars(j.Kind), stripControlChars(j.SubjectKind), stripControlChars(j.Subject))
		fmt.Fprintf(w, "  asked at %s%s; stood at %s, %s\n", formatCell(j.AskedAt), formatDeclaredBy(j.AskedBy), atAction(j), triesOf(j.Tries))
		for _, choice := range []string{"continue", "end", "drop"} {
			effect, can := j.Effects[choice]
			mark := " "
			if j.Choice == choice {
				mark = "*"
			}
			if can {
				fmt.Fprintf(w, "%s salvor db restored --%-8s %s  # it %s\n", mark, choice, j.ID, stripControlChars(effect))
			}
		}
		if j.Choice == "" {
			undecided++
		}
	}
	fmt.Fprintf(w, "\ndifferences: %d; %d of %d machines were read\n", len(r.Differences), r.Read, r.Machines)
	for _, d := range r.Differences {
		found := d.Found
		if d.Unreadable != "" {
			found = "unreadable: " + d.Unreadable
		}
		fmt.Fprintf(w, "\n%s %s: %s: recorded %s, found %s\n  at the release: %s\n", d.SubjectKind, stripControlChars(d.Subject), d.What, stripControlChars(d.Recorded), stripControlChars(found), stripControlChars(d.Release))
		for _, next := range d.Next {
			fmt.Fprintf(w, "  else run: %s\n", stripControlChars(next))
		}
	}
	writeWitnesses(w, r)
	next := "salvor db restored --release --dry-run"
	switch {
	case undecided > 0:
		next = fmt.Sprintf("choose for %d jobs (salvor db restored --drop all chooses for those that can be dropped)", undecided)
	case r.Read < r.Machines:
		next = "wait until all machines are read: salvor db restored"
	}
	_, err := fmt.Fprintf(w, "\nnext: %s\n", next)
	return err
}

// writeWitnesses prints the witnesses that contradict the database, and those that were declared lost.
func writeWitnesses(w io.Writer, r native.Restored) {
	for _, one := range r.Witnesses {
		switch {
		case one.Unreadable != "":
			fmt.Fprintf(w, "\nwitness %s: unreadable: %s\n", stripControlChars(one.Witness), stripControlChars(one.Unreadable))
		case one.Contradicts != "":
			word := strings.TrimPrefix(one.Witness, "host ")
			fmt.Fprintf(w, "\nwitness %s: %s\n  if it is wrong, run: salvor db restored --witness-lost %s\n", stripControlChars(one.Witness), stripControlChars(one.Contradicts), stripControlChars(word))
		}
	}
	for _, one := range r.LostWitnesses {
		fmt.Fprintf(w, "\nwitness %s was declared lost at %s%s: state %d of the database %s\n", stripControlChars(one.Witness), formatCell(one.DeclaredAt), formatDeclaredBy(one.DeclaredBy), one.Counter, stripControlChars(one.Incarnation))
	}
}

func formatDeclaredBy(user string) string {
	if user == "" {
		return ""
	}
	return " by " + stripControlChars(user)
}

func atAction(j native.RestoredJob) string {
	if j.Action == "" {
		return "its start"
	}
	return fmt.Sprintf("%q (%s)", stripControlChars(j.Action), j.State)
}

func triesOf(n int) string {
	if n == 1 {
		return "1 failed try"
	}
	return fmt.Sprintf("%d failed tries", n)
}

// showOffline reads a database that no process serves. It does not read machines.
func showOffline(cmd *cobra.Command, f *restoredFlags, o *outputOptions) error {
	if f.release || f.readAgain || len(f.lostWitnesses)+len(f.resume)+len(f.end)+len(f.drop)+len(f.take)+len(f.enforce) > 0 {
		return usageErrorf(cmd, "--database only looks: start salvor serve on the database, which holds itself, and choose there")
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
	if o.format == "table" {
		fmt.Fprintf(cmd.OutOrStdout(), "open jobs: %d; machines are compared by salvor serve, which starts held on a restored database\n", len(jobs))
	}
	return o.list(cmd.OutOrStdout(), columnsOf([]string{"id", "kind", "subject", "state", "action", "tries", "asked_at", "asked_by"}), jobs)
}

func openJobs(ctx context.Context, d *store.Database) ([]client.Record, error) {
	s, err := d.Schema(ctx)
	if err != nil {
		return nil, err
	}
	if s.Version == 0 {
		return nil, problem.Conflictf("database: %s has no tables", d.URL())
	}
	jobs, err := d.OpenJobs(ctx)
	out := make([]client.Record, len(jobs))
	for i, j := range jobs {
		out[i] = client.Record{"id": j.ID, "kind": string(j.Kind), "subject": j.Subject.Kind + " " + j.Subject.ID, "state": string(j.State), "action": j.Action,
			"tries": j.Attempt, "asked_at": j.CreatedAt.UTC().Format("2006-01-02T15:04:05Z"), "asked_by": j.User}
	}
	return out, err
}
