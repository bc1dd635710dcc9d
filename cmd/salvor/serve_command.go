package main

import (
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"salvor/cmd/salvor/serve"
	"salvor/config"
)

func newServeCommand() *cobra.Command {
	var file string
	flags := map[string]*config.Setting{}
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
				if given := flags[name]; given.Value != "" {
					abs, err := filepath.Abs(given.Value)
					if err != nil {
						return err
					}
					given.Value = abs
				}
			}
			for _, s := range flags {
				if s.Value != "" && s.Section != "" {
					source.Flags = append(source.Flags, *s)
				}
			}
			if at := flags["listen"].Value; at != "" {
				host, port, err := net.SplitHostPort(at)
				if err != nil {
					return usageErrorf(cmd, "--listen %s: want ADDRESS:PORT", at)
				}
				source.Flags = append(source.Flags, config.Setting{Section: "api", Option: "host_ip", Value: host, From: "--listen"},
					config.Setting{Section: "api", Option: "port", Value: port, From: "--listen"})
			}
			cfg, warnings, err := config.Load(source)
			if err != nil {
				return forGood(err)
			}
			return forGood(serve.Run(cmd.Context(), cfg, warnings))
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file")
	for name, s := range map[string]config.Setting{
		"database":  {Section: "database", Option: "connection"},
		"state-dir": {Section: "DEFAULT", Option: "state_path"},
		"roles":     {Section: "DEFAULT", Option: "roles"},
		"centre":    {Section: "site", Option: "centre"},

		"site-token": {Section: "site", Option: "token_file"},
	} {
		s.From = "--" + name
		flags[name] = &s
	}
	listen := &config.Setting{}
	flags["listen"] = listen
	cmd.Flags().StringVar(&listen.Value, "listen", "", "address and port of the API (default 127.0.0.1:6385)")
	cmd.Flags().StringVar(&flags["database"].Value, "database", "", "sqlite:PATH or postgres://... (default: SQLite in the state directory)")
	cmd.Flags().StringVar(&flags["state-dir"].Value, "state-dir", "", "directory of identity, key and SQLite database")
	cmd.Flags().StringVar(&flags["roles"].Value, "roles", "", "roles of this process: api, conductor, netboot, separated by commas (default all)")
	cmd.Flags().StringVar(&flags["centre"].Value, "centre", "", "URL of the centre that a site's boot service asks instead of a database")
	cmd.Flags().StringVar(&flags["site-token"].Value, "site-token", "", "file with the site token that proves a site to its centre")
	return cmd
}
