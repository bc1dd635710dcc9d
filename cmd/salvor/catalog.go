package main

import (
	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/config"
)

// newDriverCommand is `salvor driver`.
func newDriverCommand() *cobra.Command {
	e, l := &kit.Endpoint{}, &listOptions{}
	list := &cobra.Command{
		Use: "list", Short: "List the hardware types that conductors offer",
		Example: "  salvor driver list\n  salvor driver list --long -f json",
		RunE: e.Run(func(c *kit.Call) error {
			q, err := l.query(c.Command, nil, c.Args)
			if err != nil {
				return err
			}
			drivers, err := c.API.List(c.Context(), client.Drivers, q)
			if err != nil {
				return err
			}
			return l.List(c.OutOrStdout(), l.driverColumns(drivers), drivers)
		}),
	}
	l.flags(list)
	cmd := &cobra.Command{Use: "driver", Short: "Show the hardware types that conductors offer"}
	e.Flags(cmd)
	cmd.AddCommand(list)
	addSubcommands(cmd, e, client.Drivers, driverParts)
	findOrCreate(cmd, []string{"passthru"}).AddCommand(newPassthruCall(e, client.Drivers, "DRIVER"))
	return cmd
}

// driverColumns have titles of their own in the baremetal command.
func (l *listOptions) driverColumns(drivers []client.Record) []kit.Column {
	columns := l.shown([]string{"name", "hosts"}, drivers)
	for i, c := range columns {
		switch c.Field {
		case "name":
			columns[i].Title = "Supported driver(s)"
		case "hosts":
			columns[i].Title = "Active host(s)"
		}
	}
	return columns
}

// newConductorCommand is `salvor conductor`.
func newConductorCommand() *cobra.Command {
	e, l := &kit.Endpoint{}, &listOptions{}
	list := &cobra.Command{
		Use: "list", Short: "List conductors and whether they are alive",
		Example: "  salvor conductor list",
		RunE: e.Run(func(c *kit.Call) error {
			q, err := l.query(c.Command, nil, c.Args)
			if err != nil {
				return err
			}
			conductors, err := c.API.List(c.Context(), client.Conductors, q)
			if err != nil {
				return err
			}
			return l.List(c.OutOrStdout(), l.shown([]string{"hostname", "conductor_group", "alive"}, conductors), conductors)
		}),
	}
	l.flags(list)
	cmd := &cobra.Command{Use: "conductor", Short: "Show conductors: the parts of salvor that run jobs"}
	e.Flags(cmd)
	cmd.AddCommand(list)
	addSubcommands(cmd, e, client.Conductors, conductorParts)
	return cmd
}

// newConfigCommand is `salvor config`.
func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Show the configuration options of salvor serve"}
	cmd.AddCommand(&cobra.Command{
		Use: "sample", Short: "Print a configuration file with every option at its default", Args: cobra.NoArgs,
		Example: "  salvor config sample > /etc/salvor/salvor.conf",
		RunE:    func(cmd *cobra.Command, _ []string) error { return config.WriteSample(cmd.OutOrStdout()) },
	})
	return cmd
}
