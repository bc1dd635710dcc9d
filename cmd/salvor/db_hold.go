package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"salvor/record"
	"salvor/store"
)

// newDBHoldCommand is `salvor db hold`: a database that other tools restored has no mark that says so.
func newDBHoldCommand() *cobra.Command {
	var which serveFlags
	cmd := &cobra.Command{
		Use:   "hold",
		Short: "Hold a database that was restored by other tools, before it is served",
		Long: `Hold a database that was restored by other tools, before it is served.

salvor notices by itself that the file of a salvor db backup was put in place. It notices an older
state of any other kind only by a witness: a file of the state directory, [database]witness_file,
or a VM host. If these are lost too, run this command before salvor serve starts. Run it after
pg_restore, after a recovery to a point in time, or after a copy of files.

salvor serve serves a held database: it answers reads and heartbeats. Nothing acts on the database
until an administrator has decided about its open jobs (salvor db restored). You can hold a
PostgreSQL database while it is served; its processes notice within about a second.`,
		Example: `  pg_restore -d salvor /backup/salvor.dump
  salvor db hold --database postgres://salvor@db/salvor
  systemctl start salvor && salvor db restored`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := which.open(cmd.Context(), "database", store.Own)
			if err != nil {
				return err
			}
			defer d.Close()
			h, err := d.Hold(cmd.Context(), "salvor db hold was run")
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is held since %s: %s. Start salvor serve, then run: %s\n", d.URL(), record.Moment(h.Since), h.Summary(), record.HeldNext)
			return err
		},
	}
	which.flags(cmd, "database", "")
	return cmd
}
