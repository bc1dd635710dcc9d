package main

import (
	"maps"
	"net/url"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/problem"
)

// newPortCommand is `salvor port`, in the grammar of `baremetal port`.
func newPortCommand() *cobra.Command {
	e := &endpoint{}
	cmd := &cobra.Command{
		Use: "port", Short: "The NICs of machines",
		Example: `  salvor port create 52:54:00:12:34:56 --node rack1-7 --local-link-connection port_id=tap0
  salvor port list --node rack1-7`,
	}
	e.flags(cmd)
	cmd.AddCommand(newPortListCommand(e), newPortShowCommand(e), newPortCreateCommand(e), newPortSetCommand(e), newPortUnsetCommand(e), newPortDeleteCommand(e))
	return cmd
}

func newPortListCommand(e *endpoint) *cobra.Command {
	l, filter := &listing{}, map[string]string{"address": "address", "node": "node", "port-group": "portgroup"}
	cmd := &cobra.Command{
		Use: "list", Short: "List ports",
		Example: `  salvor port list --node rack1-7
  salvor port list --address 52:54:00:12:34:56 --fields uuid node_uuid`,
		RunE: e.run(func(c *call) error {
			values := url.Values{}
			for flag, parameter := range filter {
				if v, _ := c.Flags().GetString(flag); c.Flags().Changed(flag) {
					values.Set(parameter, v)
				}
			}
			q, err := l.query(c.Command, values, c.args)
			if err != nil {
				return err
			}
			ports, err := c.api.Ports(c.context(), q)
			if err != nil {
				return err
			}
			return l.list(c.OutOrStdout(), l.shown([]string{"uuid", "address"}, ports), ports)
		}),
	}
	l.flags(cmd)
	for _, flag := range slices.Sorted(maps.Keys(filter)) {
		cmd.Flags().String(flag, "", "only ports of this "+flag)
	}
	return cmd
}

func newPortShowCommand(e *endpoint) *cobra.Command {
	o, fields, byAddress := &output{}, []string{}, false
	cmd := &cobra.Command{
		Use: "show PORT", Short: "Show a port", Args: cobra.MinimumNArgs(1),
		Example: `  salvor port show 5e8d0b8e-7d9c-4d36-a4f6-0c5f3b5a1a10
  salvor port show --address 52:54:00:12:34:56`,
		RunE: e.run(func(c *call) error {
			if err := o.check(c.Command); err != nil {
				return err
			}
			if len(c.args) > 1 && len(fields) == 0 {
				return usagef(c.Command, "unexpected argument %q", c.args[1])
			}
			id := c.args[0]
			if byAddress {
				found, err := portByAddress(c, id)
				if err != nil {
					return err
				}
				id = found
			}
			p, err := c.api.Port(c.context(), id, append(fields, c.args[1:]...)...)
			if err != nil {
				return err
			}
			return o.show(c.OutOrStdout(), p)
		}),
	}
	o.flags(cmd)
	cmd.Flags().StringSliceVar(&fields, "fields", nil, "the fields to show, separated by commas or spaces")
	cmd.Flags().BoolVar(&byAddress, "address", false, "PORT is a MAC address")
	return cmd
}

func portByAddress(c *call, mac string) (string, error) {
	ports, err := c.api.Ports(c.context(), client.Query{Filter: url.Values{"address": {mac}}})
	if err != nil {
		return "", err
	}
	if len(ports) == 0 {
		return "", problem.NotFoundf("no port has the address %s", mac)
	}
	return ports[0].Text("uuid"), nil
}

func newPortCreateCommand(e *endpoint) *cobra.Command {
	o := &output{}
	cmd := &cobra.Command{
		Use: "create ADDRESS --node NODE", Short: "Add a NIC to a node", Args: cobra.ExactArgs(1),
		Example: "  salvor port create 52:54:00:12:34:56 --node rack1-7 --physical-network tenant --pxe-enabled true",
		RunE: e.run(func(c *call) error {
			if err := o.check(c.Command); err != nil {
				return err
			}
			record := client.Record{"address": c.args[0]}
			patch, err := portFields(c, func(field string, value any) { record[field] = value })
			if err != nil {
				return err
			}
			maps.Copy(record, patch)
			p, err := c.api.CreatePort(c.context(), record)
			if err != nil {
				return err
			}
			return o.show(c.OutOrStdout(), p)
		}),
	}
	o.flags(cmd)
	portFlags(cmd)
	cmd.Flags().String("uuid", "", "the UUID; one is made if left out")
	_ = cmd.MarkFlagRequired("node")
	return cmd
}

func newPortSetCommand(e *endpoint) *cobra.Command {
	cmd := &cobra.Command{
		Use: "set PORT", Short: "Change fields of a port", Args: cobra.ExactArgs(1),
		Example: "  salvor port set 5e8d0b8e-7d9c-4d36-a4f6-0c5f3b5a1a10 --local-link-connection port_id=tap3 --pxe-disabled",
		RunE: e.run(func(c *call) error {
			p := &patcher{}
			objects, err := portFields(c, func(field string, value any) { p.set("/"+field, value) })
			if err != nil {
				return err
			}
			for _, field := range slices.Sorted(maps.Keys(objects)) {
				values := objects[field].(client.Record)
				for _, key := range slices.Sorted(maps.Keys(values)) {
					p.set("/"+field+"/"+key, values[key])
				}
			}
			if v, _ := c.Flags().GetString("address"); v != "" {
				p.set("/address", v)
			}
			operations, err := p.done(c.Command)
			if err != nil {
				return err
			}
			_, err = c.api.PatchPort(c.context(), c.args[0], operations)
			return err
		}),
	}
	portFlags(cmd)
	cmd.Flags().String("address", "", "the MAC address")
	cmd.Flags().Bool("pxe-disabled", false, "the port is not used to boot")
	cmd.Flags().Lookup("pxe-enabled").NoOptDefVal = "true"
	cmd.MarkFlagsMutuallyExclusive("pxe-enabled", "pxe-disabled")
	return cmd
}

// portObjects are the fields of a port that hold keys and values.
var portObjects = []struct{ flag, field string }{{"local-link-connection", "local_link_connection"}, {"extra", "extra"}}

func portFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.String("node", "", "the node, by UUID or name")
	f.String("port-group", "", "the UUID of the port group")
	f.String("physical-network", "", "the physical network")
	f.String("pxe-enabled", "", "true or false: whether the machine boots from this port")
	f.Bool("is-smartnic", false, "the port is a smart NIC's")
	f.StringArrayP("local-link-connection", "l", nil, "KEY=VALUE: switch_id, port_id, switch_info; may be repeated")
	f.StringArray("extra", nil, "KEY=VALUE of extra; may be repeated")
}

// portFields hands on every plain field that a flag sets and returns the objects.
func portFields(c *call, do func(field string, value any)) (client.Record, error) {
	f := c.Flags()
	for flag, field := range map[string]string{"uuid": "uuid", "port-group": "portgroup_uuid", "physical-network": "physical_network"} {
		if v, err := f.GetString(flag); err == nil && f.Changed(flag) {
			do(field, v)
		}
	}
	if node, _ := f.GetString("node"); node != "" {
		n, err := c.api.Node(c.context(), node, "uuid")
		if err != nil {
			return nil, err
		}
		do("node_uuid", n.UUID)
	}
	if v, _ := f.GetString("pxe-enabled"); v != "" {
		on, err := strconv.ParseBool(v)
		if err != nil {
			return nil, usagef(c.Command, "--pxe-enabled %s: want true or false", v)
		}
		do("pxe_enabled", on)
	}
	if off, _ := f.GetBool("pxe-disabled"); off {
		do("pxe_enabled", false)
	}
	if on, _ := f.GetBool("is-smartnic"); on {
		do("is_smartnic", true)
	}
	objects := client.Record{}
	for _, o := range portObjects {
		args, _ := f.GetStringArray(o.flag)
		if len(args) == 0 {
			continue
		}
		values, err := pairs(c.Command, o.flag, args)
		if err != nil {
			return nil, err
		}
		objects[o.field] = values
	}
	return objects, nil
}

func newPortUnsetCommand(e *endpoint) *cobra.Command {
	plain := map[string]string{"port-group": "portgroup_uuid", "physical-network": "physical_network", "is-smartnic": "is_smartnic"}
	cmd := &cobra.Command{
		Use: "unset PORT", Short: "Take fields of a port back to their defaults", Args: cobra.ExactArgs(1),
		Example: "  salvor port unset 5e8d0b8e-7d9c-4d36-a4f6-0c5f3b5a1a10 --extra vif_port_id",
		RunE: e.run(func(c *call) error {
			p := &patcher{}
			for _, flag := range slices.Sorted(maps.Keys(plain)) {
				if on, _ := c.Flags().GetBool(flag); on {
					p.remove("/" + plain[flag])
				}
			}
			for _, o := range portObjects {
				keys, _ := c.Flags().GetStringArray(o.flag)
				for _, key := range keys {
					p.remove("/" + o.field + "/" + key)
				}
			}
			operations, err := p.done(c.Command)
			if err != nil {
				return err
			}
			_, err = c.api.PatchPort(c.context(), c.args[0], operations)
			return err
		}),
	}
	for flag := range plain {
		cmd.Flags().Bool(flag, false, "unset "+plain[flag])
	}
	for _, o := range portObjects {
		cmd.Flags().StringArray(o.flag, nil, "KEY to take out of "+o.field+"; may be repeated")
	}
	return cmd
}

func newPortDeleteCommand(e *endpoint) *cobra.Command {
	return &cobra.Command{
		Use: "delete PORT...", Short: "Forget ports", Args: cobra.MinimumNArgs(1),
		Example: "  salvor port delete 5e8d0b8e-7d9c-4d36-a4f6-0c5f3b5a1a10",
		RunE: e.run(func(c *call) error {
			return c.each(func(id string) error {
				if err := c.api.DeletePort(c.context(), id); err != nil {
					return err
				}
				c.say("Deleted port %s", harmless(id))
				return nil
			})
		}),
	}
}
