package main

import (
	"cmp"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
)

// newHostQuarantine is the group of commands for disks that servers of a host gave up.
func newHostQuarantine(e *kit.Endpoint) *cobra.Command {
	cmd := &cobra.Command{
		Use: "quarantine", Short: "List, restore and remove disks that a rebuild or an evacuation replaced",
		Long: `A rebuild, and an evacuation that makes a server anew, replace a disk. The host keeps the old disk in quarantine, in the same disk store.
It counts as used space, and the host removes it after [compute]quarantine_days (14). If you delete a server, its disks are
gone at once. Hosts of Ganeti clusters and machines have no quarantine.`,
		Example: `  salvor host quarantine list vm7
  salvor host quarantine restore vm7 DISK --server web1 --wait
  salvor host quarantine remove vm7 DISK`,
	}
	cmd.AddCommand(newQuarantineList(e), newQuarantineRestore(e), newQuarantineRemove(e))
	return cmd
}

func quarantinePath(host string) string { return "/" + url.PathEscape(host) + "/quarantine" }

func newQuarantineList(e *kit.Endpoint) *cobra.Command {
	o, long := &kit.Output{}, false
	cmd := &cobra.Command{
		Use: "list HOST", Short: "List the disks in quarantine of a host, oldest first", Args: cobra.ExactArgs(1),
		Long:    "The command asks the host, so the host must be up. Each host that sees a shared store lists the disks in it.",
		Example: "  salvor host quarantine list vm7\n  salvor host quarantine list vm7 --long -f json",
		RunE: e.Run(func(c *kit.Call) error {
			if err := o.Check(c.Command); err != nil {
				return err
			}
			disks := &resourceSpec{api: client.Native, path: hostResource.path + quarantinePath(c.Args[0]), many: "quarantine"}
			found, err := disks.all(c, nil)
			if err != nil {
				return err
			}
			fields := []string{"id", "server", "reason", "size_gib", "removed_at"}
			if long {
				fields = append(fields, "server_id", "disk", "store", "quarantined_at", "bytes", "image_digest")
			}
			return o.List(c.OutOrStdout(), kit.ColumnsOf(fields), found)
		}),
	}
	o.Flags(cmd)
	cmd.Flags().BoolVar(&long, "long", false, "every field")
	return cmd
}

func newQuarantineRestore(e *kit.Endpoint) *cobra.Command {
	o, w, server, otherProject := &kit.Output{}, &waitOption{}, "", false
	cmd := &cobra.Command{
		Use: "restore HOST DISK", Short: "Give a quarantined disk to a stopped server, as a further disk", Args: cobra.ExactArgs(2),
		Long: `The server must be stopped, and its host must see the disk store in which the disk lies. The server gets the disk beside its own ones, as
its next device (vdb, vdc ...), and boots from its own disk as before. Mount the disk there to copy what you need.

The disk must have been of a server of the same project, because the members of the project can read it then. --other-project allows any server.`,
		Example: `  salvor host quarantine list vm7
  salvor server stop web1 --wait
  salvor host quarantine restore vm7 20261122T101530.123456Z_3f1c0b1e-5a0f-4c58-8b1e-6a6c2f7a9d10_vda --server web1 --wait
  salvor server start web1`,
		RunE: e.Run(func(c *kit.Call) error {
			if err := cmp.Or(o.Check(c.Command), w.check(c)); err != nil {
				return err
			}
			id, err := serverResource.find(c, server)
			if err != nil {
				return err
			}
			var begun client.Record
			path := hostResource.path + quarantinePath(c.Args[0]) + "/" + url.PathEscape(c.Args[1]) + "/restore"
			body := client.Record{"server": id}
			if otherProject { // a former release does not know the key
				body["other_project"] = true
			}
			if err := c.API.Ask(c.Context(), client.Native, http.MethodPost, path, nil, body, &begun); err != nil {
				return err
			}
			if w.asked(c) {
				if err := w.job(c, begun.Text("job"), server, "salvor server show "+server); err != nil {
					return err
				}
			}
			return o.Show(c.OutOrStdout(), begun)
		}),
	}
	o.Flags(cmd)
	w.flags(cmd)
	cmd.Flags().StringVar(&server, "server", "", "the stopped server that gets the disk, by name or UUID")
	cmd.Flags().BoolVar(&otherProject, "other-project", false, "also where the disk was of a server of another project, or of one that is gone")
	_ = cmd.MarkFlagRequired("server")
	return cmd
}

func newQuarantineRemove(e *kit.Endpoint) *cobra.Command {
	return &cobra.Command{
		Use: "remove HOST DISK...", Short: "Remove disks from quarantine; they cannot be restored", Args: cobra.MinimumNArgs(2),
		Example: "  salvor host quarantine remove vm7 20261122T101530.123456Z_3f1c0b1e-5a0f-4c58-8b1e-6a6c2f7a9d10_vda",
		RunE: e.Run(func(c *kit.Call) error {
			for _, id := range c.Args[1:] {
				if _, err := hostResource.ask(c, http.MethodDelete, quarantinePath(c.Args[0])+"/"+url.PathEscape(id), nil, nil); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}
