package main

import (
	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/config"
)

// newDriverCommand is `salvor driver`.
func newDriverCommand() *cobra.Command {
	e, l := &apiEndpoint{}, &listOptions{}
	list := &cobra.Command{
		Use: "list", Short: "List the hardware types that conductors offer",
		Example: "  salvor driver list\n  salvor driver list --long -f json",
		RunE: e.run(func(c *clientCall) error {
			q, err := l.query(c.Command, nil, c.args)
			if err != nil {
				return err
			}
			drivers, err := c.api.List(c.context(), client.Drivers, q)
			if err != nil {
				return err
			}
			return l.list(c.OutOrStdout(), l.driverColumns(drivers), drivers)
		}),
	}
	l.flags(list)
	cmd := &cobra.Command{Use: "driver", Short: "Show the hardware types that conductors offer"}
	e.flags(cmd)
	cmd.AddCommand(list)
	addSubcommands(cmd, e, client.Drivers, driverParts)
	findOrCreate(cmd, []string{"passthru"}).AddCommand(newPassthruCall(e, client.Drivers, "DRIVER"))
	return cmd
}

// driverColumns have titles of their own in the baremetal command.
func (l *listOptions) driverColumns(drivers []client.Record) []outputColumn {
	columns := l.shown([]string{"name", "hosts"}, drivers)
	for i, c := range columns {
		switch c.field {
		case "name":
			columns[i].title = "Supported driver(s)"
		case "hosts":
			columns[i].title = "Active host(s)"
		}
	}
	return columns
}

// newConductorCommand is `salvor conductor`.
func newConductorCommand() *cobra.Command {
	e, l := &apiEndpoint{}, &listOptions{}
	list := &cobra.Command{
		Use: "list", Short: "List conductors and whether they are alive",
		Example: "  salvor conductor list",
		RunE: e.run(func(c *clientCall) error {
			q, err := l.query(c.Command, nil, c.args)
			if err != nil {
				return err
			}
			conductors, err := c.api.List(c.context(), client.Conductors, q)
			if err != nil {
				return err
			}
			return l.list(c.OutOrStdout(), l.shown([]string{"hostname", "conductor_group", "alive"}, conductors), conductors)
		}),
	}
	l.flags(list)
	cmd := &cobra.Command{Use: "conductor", Short: "Show conductors: the parts of salvor that run jobs"}
	e.flags(cmd)
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
