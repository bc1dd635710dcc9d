package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
)

// newImageCreate makes an image and brings its bytes.
func newImageCreate(e *kit.Endpoint) *cobra.Command {
	o := &kit.Output{}
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create an image from a file", Args: cobra.ExactArgs(1),
		Example: "  salvor image create debian-12 --file debian-12.qcow2 --disk-format qcow2 --property OS=debian --property OSFAMILY=linux",
		RunE: e.Run(func(c *kit.Call) error {
			if err := o.Check(c.Command); err != nil {
				return err
			}
			text := func(flag string) string { v, _ := c.Flags().GetString(flag); return v }
			words, _ := c.Flags().GetStringArray("property")
			properties, err := textPairs(c.Command, "property", words)
			if err != nil {
				return err
			}
			body := client.Record{"name": c.Args[0], "disk_format": text("disk-format"), "container_format": text("container-format"), "visibility": text("visibility")}
			for key, value := range properties {
				body[key] = value
			}
			in, err := os.Open(text("file"))
			if err != nil {
				return kit.UsageErrorf(c.Command, "--file: %w", err)
			}
			defer in.Close()
			info, err := in.Stat()
			if err != nil {
				return err
			}
			made, err := imageResource.ask(c, http.MethodPost, "", nil, body)
			if err != nil {
				return err
			}
			path := "/images/" + url.PathEscape(made.Text("id"))
			if err := c.API.Upload(c.Context(), client.Image, path+"/file", in, info.Size()); err != nil {
				return fmt.Errorf("image %s was made, its bytes were not taken: %w", made.Text("id"), err)
			}
			if made, err = imageResource.ask(c, http.MethodGet, "/"+url.PathEscape(made.Text("id")), nil, nil); err != nil {
				return err
			}
			return o.Show(c.OutOrStdout(), made)
		}),
	}
	o.Flags(cmd)
	f := cmd.Flags()
	f.String("file", "", "the file")
	kit.AddEnumFlag(cmd, nil, "disk-format", "raw", "raw, qcow2, iso, aki (a kernel) or ari (a ramdisk)", "raw", "qcow2", "iso", "aki", "ari")
	kit.AddEnumFlag(cmd, nil, "container-format", "bare", "bare, aki or ari", "bare", "aki", "ari")
	kit.AddEnumFlag(cmd, nil, "visibility", "private", "private, public, community or shared", "private", "public", "community", "shared")
	f.StringArray("property", nil, "KEY=VALUE; may be repeated. OS and OSFAMILY choose the rescue image of its servers")
	_ = cmd.MarkFlagRequired("file")
	return cmd
}

func newClusterAdd(e *kit.Endpoint) *cobra.Command {
	o := &kit.Output{}
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Add a Ganeti cluster, by its RAPI, or an endpoint of the Bare Metal API, whose nodes become servers", Args: cobra.ExactArgs(1), Example: clusterResource.example,
		RunE: e.Run(func(c *kit.Call) error {
			if err := o.Check(c.Command); err != nil {
				return err
			}
			text := func(flag string) string { v, _ := c.Flags().GetString(flag); return v }
			insecure, _ := c.Flags().GetBool("insecure")
			body := client.Record{"name": c.Args[0], "url": text("rapi"), "user": text("user"), "insecure": insecure}
			if at := text("ironic"); at != "" {
				body["kind"], body["url"], body["login"] = "ironic", at, text("login")
				body["auth_url"], body["project"], body["domain"] = text("auth-url"), text("project"), text("domain")
			}
			if text("password-file") != "" || text("rapi") != "" {
				password, err := passwordIn(c, "password-file", text("password-file"))
				if err != nil {
					return err
				}
				body["password"] = password
			}
			if file := text("ca-file"); file != "" {
				pem, err := kit.ReadArgument(c.InOrStdin(), file, kit.MaxArgumentFile)
				if err != nil {
					return kit.UsageErrorf(c.Command, "--ca-file: %w", err)
				}
				body["ca"] = string(pem)
			}
			made, err := clusterResource.ask(c, http.MethodPost, "", nil, body)
			if err != nil {
				return err
			}
			return o.Show(c.OutOrStdout(), made)
		}),
	}
	o.Flags(cmd)
	f := cmd.Flags()
	f.String("rapi", "", "the RAPI's URL: https://MASTER:5080")
	f.String("ironic", "", "the Bare Metal API's URL, or self: this control plane's own")
	kit.AddEnumFlag(cmd, nil, "login", "none", "how one logs in to the Bare Metal API: none, http_basic or keystone", "none", "http_basic", "keystone")
	f.String("auth-url", "", "of keystone: its URL")
	f.String("project", "", "of keystone: the project that the user works in")
	f.String("domain", "", "of keystone: the domain of user and project (default Default)")
	f.String("user", "", "a user who may write")
	f.String("password-file", "", "a file with the user's password in its first line, or - for standard input")
	f.String("ca-file", "", "the certificate of its authority, PEM")
	f.Bool("insecure", false, "take any certificate: for a laboratory")
	cmd.MarkFlagsOneRequired("rapi", "ironic")
	cmd.MarkFlagsMutuallyExclusive("rapi", "ironic")
	return cmd
}

func newReconcileCommand() *cobra.Command {
	e, o, fix, cluster := &kit.Endpoint{}, &kit.Output{}, false, ""
	top := &cobra.Command{Use: "reconcile", Short: "Compare the records with what runs"}
	e.Flags(top)
	cmd := &cobra.Command{
		Use: "servers", Short: "Compare the rescue of servers with what their clusters report", Args: cobra.NoArgs,
		Example: "  salvor reconcile servers\n  salvor reconcile servers --fix-unsynced-rescue",
		RunE: e.Run(func(c *kit.Call) error {
			if err := o.Check(c.Command); err != nil {
				return err
			}
			var got struct {
				Servers  []client.Record `json:"servers"`
				Clusters []struct {
					Cluster, Problem string
				} `json:"clusters"`
			}
			if err := c.API.Ask(c.Context(), client.Native, http.MethodPost, "/reconcile/servers", nil, client.Record{"fix_unsynced_rescue": fix, "cluster": cluster}, &got); err != nil {
				return err
			}
			if err := o.List(c.OutOrStdout(), kit.ColumnsOf([]string{"server", "name", "cluster", "known", "fixed"}), got.Servers); err != nil {
				return err
			}
			for _, p := range got.Clusters {
				fmt.Fprintf(c.ErrOrStderr(), "cluster %s: %s\n", kit.StripControlChars(p.Cluster), kit.StripControlChars(p.Problem))
			}
			if n := len(got.Clusters); n > 0 {
				return fmt.Errorf("%d clusters were not compared", n)
			}
			return nil
		}),
	}
	o.Flags(cmd)
	cmd.Flags().StringVar(&cluster, "cluster", "", "compare this cluster alone (default all clusters)")
	cmd.Flags().BoolVar(&fix, "fix-unsynced-rescue", false, "correct the records that differ: the cluster is right")
	top.AddCommand(cmd)
	return top
}
