package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/wire/ironic"
)

// provisionVerb is a command that asks for a change of provision state.
type provisionVerb struct {
	word, target, short string
	// reached are the states in which --wait ends well; none: any state of rest.
	reached []string
	// prepare adds what the verb takes besides; may be nil.
	prepare func(*kit.Call, *ironic.ProvisionRequest) error
	flags   func(*cobra.Command)
	example string
	// sender gives what sends the request for a node; nil: it goes by the Bare Metal API.
	sender func(*kit.Call, ironic.ProvisionRequest) (func(ident string) error, error)
	// then prints something about the nodes that got where --wait waited for; may be nil.
	then func(*kit.Call)
}

var provisionVerbs = []provisionVerb{
	{word: "manage", target: "manage", short: "Check that the BMCs of nodes answer, and make the nodes manageable", reached: []string{"manageable"}},
	{word: "provide", target: "provide", short: "Make nodes available, and clean them if that is configured", reached: []string{"available"}},
	{word: "adopt", target: "adopt", short: "Make nodes active with the system that is on their disks", reached: []string{"active"}},
	{word: "inspect", target: "inspect", short: "Inspect the hardware of machines", reached: []string{"manageable"}},
	{word: "clean", target: "clean", short: "Run clean steps on nodes", reached: []string{"manageable"}, prepare: prepareClean, flags: cleanFlags,
		example: `  salvor node clean rack1-7 --clean-steps '[{"interface": "deploy", "step": "erase_devices_metadata"}]' --wait`},
	{word: "deploy", target: "active", short: "Deploy nodes", reached: []string{"active"}, prepare: prepareDeploy, flags: deployFlags},
	{word: "rebuild", target: "rebuild", short: "Deploy nodes again", reached: []string{"active"}, prepare: prepareDeploy, flags: deployFlags},
	{word: "undeploy", target: "deleted", short: "Delete the instances of nodes", reached: []string{"available", "manageable"}},
	{word: "abort", target: "abort", short: "Abort the operation that nodes wait in"},
	{word: "rescue", target: "rescue", short: "Boot nodes into their rescue ramdisk, for repair over ssh", reached: []string{"rescue"}, prepare: prepareRescue, flags: rescueFlags, sender: sendRescue, then: sayNodeEntry,
		example: `  salvor node rescue rack1-7 --wait                                  # asks for the password
  salvor node rescue rack1-7 --key ~/.ssh/id_ed25519.pub --expires-in 8h --wait
  salvor node rescue rack1-7 --rescue-password-file pw --wait=600    # or from a file
  salvor node rescue --where state=active --where resource-class=gold --rescue-password-file pw --wait
  openssl rand -base64 12 | tee pw | salvor node rescue rack1-7 --rescue-password-file -
then: salvor node ssh rack1-7`},
	{word: "service", target: "service", short: "Run service steps on active nodes", reached: []string{"active"}, prepare: prepareService, flags: serviceFlags,
		example: `  salvor node service rack1-7 --service-steps '[{"interface": "bios", "step": "apply_configuration", "args": {"settings": []}}]' --wait`},
	{word: "unhold", target: "unhold", short: "Let nodes go on that a step holds"},
	{word: "unrescue", target: "unrescue", short: "Boot nodes back into their own systems", reached: []string{"active"}},
}

func newNodeProvisionCommands(e *kit.Endpoint) []*cobra.Command {
	var out []*cobra.Command
	for _, v := range provisionVerbs {
		out = append(out, v.command(e))
	}
	return out
}

func (v provisionVerb) command(e *kit.Endpoint) *cobra.Command {
	w := &waitOption{}
	if v.example == "" {
		v.example = "  salvor node " + v.word + " rack1-7 --wait\n  salvor node " + v.word + " rack1-7 --wait=600"
	}
	cmd := &cobra.Command{
		Use: v.word + " NODE...", Short: v.short, Example: v.example,
		RunE: e.Run(func(c *kit.Call) error {
			if err := w.check(c); err != nil {
				return err
			}
			request := ironic.ProvisionRequest{Target: v.target}
			if v.prepare != nil {
				if err := v.prepare(c, &request); err != nil {
					return err
				}
			}
			send := func(ident string) error { return c.API.Provision(c.Context(), ident, request) }
			if v.sender != nil {
				var err error
				if send, err = v.sender(c, request); err != nil {
					return err
				}
			}
			err := eachNode(c, "", "%s: accepted: "+v.word, func(ident string) error {
				return withAccepted(c, "node", ident, v.target, send(ident))
			})
			if !w.asked(c) {
				return err
			}
			want, wait := v.word, client.Wait{Until: func(n *client.Node) bool { return !client.Working(n.ProvisionState) }}
			if len(v.reached) > 0 {
				want, wait = v.reached[0], client.Wait{Until: client.State(v.reached...)}
			}
			err = kit.JoinErrors(err, w.all(c, want, wait))
			if v.then != nil {
				v.then(c)
			}
			return err
		}),
	}
	w.flags(cmd)
	selectNodes(cmd)
	if v.flags != nil {
		v.flags(cmd)
	}
	return cmd
}

func cleanFlags(cmd *cobra.Command) {
	cmd.Flags().String("clean-steps", "", "the steps: JSON, a file, or - for standard input")
	stepFlags(cmd, "clean-steps")
}

func serviceFlags(cmd *cobra.Command) {
	cmd.Flags().String("service-steps", "", "the steps: JSON, a file, or - for standard input")
	stepFlags(cmd, "service-steps")
}

// stepFlags are of the verbs that run either steps or a runbook.
func stepFlags(cmd *cobra.Command, steps string) {
	cmd.Flags().String("runbook", "", "the runbook that holds the steps, by name or UUID")
	cmd.Flags().Bool("disable-ramdisk", false, "run only steps that need no ramdisk")
	cmd.MarkFlagsMutuallyExclusive(steps, "runbook")
	cmd.MarkFlagsOneRequired(steps, "runbook")
}

func prepareClean(c *kit.Call, r *ironic.ProvisionRequest) (err error) {
	r.CleanSteps, err = prepareSteps(c, r, "clean-steps")
	return err
}

func prepareService(c *kit.Call, r *ironic.ProvisionRequest) (err error) {
	r.ServiceSteps, err = prepareSteps(c, r, "service-steps")
	return err
}

func prepareSteps(c *kit.Call, r *ironic.ProvisionRequest, flag string) (json.RawMessage, error) {
	r.Runbook, _ = c.Flags().GetString("runbook")
	if off, _ := c.Flags().GetBool("disable-ramdisk"); off {
		r.DisableRamdisk = &off
	}
	if r.Runbook != "" {
		return nil, nil
	}
	steps, _ := c.Flags().GetString(flag)
	return readJSONArgument(c.Command, flag, steps)
}

func deployFlags(cmd *cobra.Command) {
	cmd.Flags().String("config-drive", "", "a config drive: base64 of a gzipped image, a URL, or a JSON object; - or @FILE reads it")
	cmd.Flags().String("deploy-steps", "", "the steps: JSON, a file, or - for standard input")
}

func prepareDeploy(c *kit.Call, r *ironic.ProvisionRequest) error {
	if steps, _ := c.Flags().GetString("deploy-steps"); steps != "" {
		text, err := readJSONArgument(c.Command, "deploy-steps", steps)
		if err != nil {
			return err
		}
		r.DeploySteps = text
	}
	drive, _ := c.Flags().GetString("config-drive")
	if drive == "" {
		return nil
	}
	text, err := configDrive(c, drive)
	r.ConfigDrive = text
	return err
}

// configDrive is sent as the object that it is, or as a string.
func configDrive(c *kit.Call, value string) (json.RawMessage, error) {
	name, isFile := value, value == "-"
	if value[0] == '@' {
		name, isFile = value[1:], true
	}
	if isFile {
		text, err := kit.ReadArgument(c.InOrStdin(), name, kit.MaxArgumentFile)
		if err != nil {
			return nil, kit.UsageErrorf(c.Command, "--config-drive: %w", err)
		}
		value = string(text)
	}
	if json.Valid([]byte(value)) && value[0] == '{' {
		return json.RawMessage(value), nil
	}
	return json.Marshal(value)
}
