package main

import (
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"salvor/cmd/salvor/kit"
	"salvor/cmd/salvor/serve"
	"salvor/config"
)

func newServeCommand() *cobra.Command {
	var file string
	values := map[string]*string{} // of the flags that set options, by name
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the control plane, or a part of it: API, conductor and boot services",
		Args:  cobra.NoArgs,
		Example: `  # Everything at its default: SQLite in the state directory, API on 127.0.0.1:6385
  salvor serve

  # A configuration file with Ironic's sections and options
  salvor serve --config /etc/salvor/salvor.conf

  # PostgreSQL, another address
  salvor serve --database postgres://salvor@db/salvor --listen 10.0.0.5:6385

  # One of many processes over one PostgreSQL: the jobs of the site oslo
  SALVOR_CONDUCTOR_CONDUCTOR_GROUP=oslo salvor serve --roles conductor --database postgres://salvor@db/salvor

  # A site's boot service, which knows no database (see salvor site)
  salvor serve --roles netboot --centre https://salvor.example:6385 --site-token /etc/salvor/site.token

  # Every option, with its meaning and default
  salvor config sample`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			source := config.Source{File: file, Env: os.Environ()}
			for _, name := range []string{"state-dir", "site-token"} {
				if given := values[name]; *given != "" {
					abs, err := filepath.Abs(*given)
					if err != nil {
						return err
					}
					*given = abs
				}
			}
			for _, f := range config.ServeFlags() {
				given := []string{*values[f.Name]}
				if given[0] == "" {
					continue
				}
				if len(f.Sets) == 2 {
					host, port, err := net.SplitHostPort(given[0])
					if err != nil {
						return kit.UsageErrorf(cmd, "--%s %s: want ADDRESS:PORT", f.Name, given[0])
					}
					given = []string{host, port}
				}
				for i, o := range f.Sets {
					source.Flags = append(source.Flags, config.Setting{Section: o.Section, Option: o.Name, Value: given[i], From: "--" + f.Name})
				}
			}
			cfg, warnings, err := config.Load(source)
			if err != nil {
				return kit.ForGood(err)
			}
			return kit.ForGood(serve.Run(cmd.Context(), cfg, warnings))
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file")
	values["listen"] = cmd.Flags().String("listen", "", "address and port of the API (default 127.0.0.1:6385)")
	values["database"] = cmd.Flags().String("database", "", "sqlite:PATH or postgres://... (default: SQLite in the state directory)")
	values["state-dir"] = cmd.Flags().String("state-dir", "", "directory of identity, key and SQLite database")
	values["roles"] = cmd.Flags().String("roles", "", "roles of this process: api, conductor, netboot, separated by commas (default all)")
	values["centre"] = cmd.Flags().String("centre", "", "URL of the centre that a site's boot service asks instead of a database")
	values["site-token"] = cmd.Flags().String("site-token", "", "file with the site token that proves a site to its centre")
	return cmd
}
