package main

import (
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
)

// interfaceKinds are the kinds of driver interface that a node may name.
var interfaceKinds = []string{"bios", "boot", "console", "deploy", "firmware", "inspect", "management", "network", "power", "raid", "rescue", "storage", "vendor"}

// textFields are the plain fields of a node, with the commands that take them.
var textFields = []struct {
	flag, usage   string
	create, unset bool
}{
	{"uuid", "the UUID; one is made if left out", true, false},
	{"name", "the name", true, true},
	{"driver", "the hardware type, such as redfish or ipmi; salvor driver list shows all", true, false},
	{"instance-uuid", "the UUID of the instance", false, true},
	{"chassis-uuid", "the UUID of the chassis", true, true},
	{"resource-class", "the resource class", true, true},
	{"conductor-group", "the conductor group (site)", true, true},
	{"owner", "the owner's project", true, true},
	{"lessee", "the lessee's project", true, true},
	{"shard", "the shard", true, true},
	{"description", "a description", true, true},
	{"parent-node", "the node that this one is part of", true, true},
	{"instance-name", "the name of the instance", false, true},
	{"protected-reason", "why the node is protected", false, true},
	{"retired-reason", "why the node is retired", false, true},
}

// switches are the fields that are true or false.
var switches = []struct{ flag, usage string }{
	{"protected", "the node can not be undeployed, rebuilt or deleted"},
	{"retired", "the node is on its way out: it can not be provided"},
	{"disable-power-off", "the machine must never be switched off, only rebooted"},
}

// objectFields are the fields that hold keys and values.
var objectFields = []struct {
	flag, field string
	create      bool
}{
	{"driver-info", "driver_info", true},
	{"property", "properties", true},
	{"extra", "extra", true},
	{"instance-info", "instance_info", false},
}

// documents are the fields that are set to a whole JSON document.
var documents = []struct {
	flag, usage string
	create      bool
}{
	{"network-data", "the machine's network configuration", true},
	{"target-raid-config", "the wanted RAID configuration", false},
}

func fieldOf(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

func newNodeCreateCommand(e *kit.Endpoint) *cobra.Command {
	o := &kit.Output{}
	cmd := &cobra.Command{
		Use: "create --driver DRIVER", Short: "Enroll a node", Args: cobra.NoArgs,
		Long: `Enroll a node.

The command reads the value of a KEY=VALUE as JSON if it is JSON, else as text. The value under
the key of a secret (password, token) is always text.`,
		Example: `  salvor node create --name rack1-7 --driver redfish --driver-info redfish_address=https://10.0.0.7 \
      --driver-info redfish_username=admin --driver-info-file redfish_password=- --rescue-interface agent
  salvor node create --driver ipmi --driver-info ipmi_address=10.0.0.8 --property cpus=8 -f value -c uuid`,
		RunE: e.Run(func(c *kit.Call) error {
			if err := o.Check(c.Command); err != nil {
				return err
			}
			fields, err := createFields(c.Command)
			if err != nil {
				return err
			}
			n, err := c.API.CreateNode(c.Context(), fields)
			if err != nil {
				return err
			}
			return o.Show(c.OutOrStdout(), n.Record)
		}),
	}
	o.Flags(cmd)
	f := cmd.Flags()
	for _, t := range textFields {
		if t.create {
			f.String(t.flag, "", t.usage)
		}
	}
	for _, kind := range interfaceKinds {
		f.String(kind+"-interface", "", "the "+kind+" interface")
	}
	for _, o := range objectFields {
		if o.create {
			f.StringArray(o.flag, nil, "KEY=VALUE of "+o.field+"; may be repeated")
		}
	}
	for _, d := range documents {
		if d.create {
			f.String(d.flag, "", d.usage+": JSON, a file, or - for standard input")
		}
	}
	defineSecretFiles(cmd)
	automatedCleanFlags(cmd)
	_ = cmd.MarkFlagRequired("driver")
	return cmd
}

func automatedCleanFlags(cmd *cobra.Command) {
	cmd.Flags().Bool("automated-clean", false, "clean the node between two uses")
	cmd.Flags().Bool("no-automated-clean", false, "do not clean it")
	cmd.MarkFlagsMutuallyExclusive("automated-clean", "no-automated-clean")
}

// createFields makes the node that the flags describe.
func createFields(cmd *cobra.Command) (client.Record, error) {
	fields := client.Record{}
	err := eachField(cmd, func(field string, value any) { fields[field] = value })
	if err != nil {
		return nil, err
	}
	for _, o := range objectFields {
		values, err := objectValues(cmd, o.flag)
		if err != nil {
			return nil, err
		}
		if len(values) > 0 {
			fields[o.field] = values
		}
	}
	return fields, nil
}

// objectValues are the keys of an object that flags set, those of --driver-info-file included.
func objectValues(cmd *cobra.Command, flag string) (client.Record, error) {
	args, _ := cmd.Flags().GetStringArray(flag)
	values, err := parseKeyValues(cmd, flag, args)
	if err != nil || flag != "driver-info" {
		return values, err
	}
	files, _ := cmd.Flags().GetStringArray(secretFilesFlag)
	secrets, err := readSecretFiles(cmd, files)
	for key, text := range secrets {
		values[key] = text.Reveal()
	}
	return values, err
}

// eachField hands on every plain field that a flag sets.
func eachField(cmd *cobra.Command, do func(field string, value any)) error {
	f := cmd.Flags()
	text := func(flag string) {
		if f.Changed(flag) {
			v, _ := f.GetString(flag)
			do(fieldOf(flag), v)
		}
	}
	for _, t := range textFields {
		text(t.flag)
	}
	for _, kind := range interfaceKinds {
		text(kind + "-interface")
	}
	for _, s := range switches {
		if on, _ := f.GetBool(s.flag); on {
			do(fieldOf(s.flag), true)
		}
	}
	if on, _ := f.GetBool("automated-clean"); on {
		do("automated_clean", true)
	}
	if off, _ := f.GetBool("no-automated-clean"); off {
		do("automated_clean", false)
	}
	for _, d := range documents {
		if v, _ := f.GetString(d.flag); v != "" {
			value, err := readJSONArgument(cmd, d.flag, v)
			if err != nil {
				return err
			}
			do(fieldOf(d.flag), value)
		}
	}
	return nil
}
