package main

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"salvor/cmd/salvor/kit"
)

func newNodeSetCommand(e *kit.Endpoint) *cobra.Command {
	cmd := &cobra.Command{
		Use: "set NODE...", Short: "Change fields of nodes",
		Example: `  salvor node set rack1-7 --driver-info redfish_address=https://10.0.0.9
  salvor node set --where extra.rack=7 --driver-info-file redfish_password=/run/secrets/bmc
  salvor node set rack1-7 --name rack2-1 --property cpus=16
  salvor node set rack1-7 --driver ipmi --reset-interfaces --driver-info ipmi_address=10.0.0.9`,
		RunE: e.Run(func(c *kit.Call) error {
			patch, err := setPatch(c.Command)
			if err != nil {
				return err
			}
			reset, _ := c.Flags().GetBool("reset-interfaces")
			if reset && !c.Flags().Changed("driver") {
				return kit.UsageErrorf(c.Command, "--reset-interfaces needs --driver")
			}
			operations, err := patch.done(c.Command)
			if err != nil {
				return err
			}
			return eachNode(c, "", "%s: changed", func(ident string) error {
				_, err := c.API.PatchNode(c.Context(), ident, operations, reset)
				return err
			})
		}),
	}
	f := cmd.Flags()
	for _, t := range textFields {
		if t.flag != "uuid" {
			f.String(t.flag, "", t.usage)
		}
	}
	for _, kind := range interfaceKinds {
		f.String(kind+"-interface", "", "the "+kind+" interface")
		f.Bool("reset-"+kind+"-interface", false, "take the "+kind+" interface back to the default")
		cmd.MarkFlagsMutuallyExclusive(kind+"-interface", "reset-"+kind+"-interface")
	}
	f.Bool("reset-interfaces", false, "with --driver: take every interface not named back to the default")
	for _, s := range switches {
		f.Bool(s.flag, false, s.usage)
	}
	for _, o := range objectFields {
		f.StringArray(o.flag, nil, "KEY=VALUE of "+o.field+"; may be repeated")
	}
	for _, d := range documents {
		f.String(d.flag, "", d.usage+": JSON, a file, or - for standard input")
	}
	defineSecretFiles(cmd)
	selectNodes(cmd)
	automatedCleanFlags(cmd)
	return cmd
}

func setPatch(cmd *cobra.Command) (*patchBuilder, error) {
	p := &patchBuilder{}
	if err := eachField(cmd, func(field string, value any) { p.set("/"+field, value) }); err != nil {
		return nil, err
	}
	for _, kind := range interfaceKinds {
		if reset, _ := cmd.Flags().GetBool("reset-" + kind + "-interface"); reset {
			p.remove("/" + kind + "_interface")
		}
	}
	for _, o := range objectFields {
		values, err := objectValues(cmd, o.flag)
		if err != nil {
			return nil, err
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			p.set("/"+o.field+"/"+key, values[key])
		}
	}
	return p, nil
}

func newNodeUnsetCommand(e *kit.Endpoint) *cobra.Command {
	cmd := &cobra.Command{
		Use: "unset NODE...", Short: "Reset fields of nodes to their defaults",
		Example: `  salvor node unset rack1-7 --driver-info redfish_system_id --instance-uuid
  salvor node unset rack1-7 --rescue-interface`,
		RunE: e.Run(func(c *kit.Call) error {
			operations, err := unsetPatch(c.Command).done(c.Command)
			if err != nil {
				return err
			}
			return eachNode(c, "", "%s: changed", func(ident string) error {
				_, err := c.API.PatchNode(c.Context(), ident, operations, false)
				return err
			})
		}),
	}
	selectNodes(cmd)
	for _, flag := range unsettableFlags() {
		cmd.Flags().Bool(flag, false, "unset "+fieldOf(flag))
	}
	for _, o := range objectFields {
		cmd.Flags().StringArray(o.flag, nil, "KEY to take out of "+o.field+"; may be repeated")
	}
	return cmd
}

// unsettableFlags lists the flags of the fields that can be taken back.
func unsettableFlags() []string {
	out := []string{"automated-clean"}
	for _, t := range textFields {
		if t.unset {
			out = append(out, t.flag)
		}
	}
	for _, kind := range interfaceKinds {
		out = append(out, kind+"-interface")
	}
	for _, s := range switches {
		out = append(out, s.flag)
	}
	for _, d := range documents {
		out = append(out, d.flag)
	}
	return out
}

func unsetPatch(cmd *cobra.Command) *patchBuilder {
	p := &patchBuilder{}
	for _, flag := range unsettableFlags() {
		if on, _ := cmd.Flags().GetBool(flag); on {
			p.remove("/" + fieldOf(flag))
		}
	}
	for _, o := range objectFields {
		keys, _ := cmd.Flags().GetStringArray(o.flag)
		for _, key := range keys {
			p.remove("/" + o.field + "/" + key)
		}
	}
	return p
}
