package main

import (
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/problem"
)

// newNodeCommand is `salvor node`, in the grammar of `baremetal node`.
func newNodeCommand() *cobra.Command {
	e := &kit.Endpoint{}
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Enroll, watch, rescue and power machines",
		Long: `Enroll, watch, rescue and power machines.

The words and options are those of the baremetal command of OpenStack, and -f json prints the
same keys. NODE is the name or the UUID of a node. A command with NODE... takes several.

Exit status: 0 done (with --wait: reached), 1 failed, 2 wrong usage, 3 timed out waiting.`,
		Example: `  salvor node create --name rack1-7 --driver redfish --driver-info redfish_address=https://10.0.0.7 \
      --driver-info redfish_username=admin --driver-info redfish_password=...
  salvor node manage rack1-7 --wait && salvor node adopt rack1-7 --wait
  salvor node rescue rack1-7 --wait
  salvor node unrescue rack1-7 --wait`,
	}
	e.Flags(cmd)
	cmd.AddCommand(newNodeListCommand(e), newNodeShowCommand(e), newNodeCreateCommand(e), newNodeImportCommand(e), newNodeExportCommand(e), newNodeSetCommand(e), newNodeUnsetCommand(e),
		newNodeDeleteCommand(e), newNodeValidateCommand(e), newNodeHistoryCommand(e), newNodeMaintenanceCommand(e),
		newNodePowerCommand(e), newNodeRebootCommand(e), newNodeBootCommand(e), newNodeProbeCommand(e), newNodeBMCLogCommand(e), newNodeBMCHealthCommand(e), newRescueSSHCommand(e, "node"))
	cmd.AddCommand(newNodeProvisionCommands(e)...)
	addSubcommands(cmd, e, client.Nodes, nodeParts)
	newTraitCommands(e, cmd)
	findOrCreate(cmd, []string{"passthru"}).AddCommand(newPassthruCall(e, client.Nodes, "NODE"))
	return cmd
}

// listOptions is the part of a list command that all lists have.
type listOptions struct {
	kit.Output
	limit  int
	marker string
	sort   string
	fields []string
	long   bool
}

func (l *listOptions) flags(cmd *cobra.Command) {
	l.Output.Flags(cmd)
	f := cmd.Flags()
	f.IntVar(&l.limit, "limit", 0, "at most this many; 0: all")
	f.StringVar(&l.marker, "marker", "", "begin after this UUID")
	f.StringVar(&l.sort, "sort", "", "sort by KEY[:asc|:desc]")
	f.StringSliceVar(&l.fields, "fields", nil, "the fields to show, separated by commas or spaces")
	f.BoolVar(&l.long, "long", false, "show every field")
	cmd.MarkFlagsMutuallyExclusive("fields", "long")
}

// query makes the query of the flags. more are the fields that --fields left behind it.
func (l *listOptions) query(cmd *cobra.Command, filter url.Values, more []string) (client.Query, error) {
	q := client.Query{Filter: filter, Limit: l.limit, Marker: l.marker, Detail: l.long}
	if err := l.Check(cmd); err != nil {
		return q, err
	}
	if l.limit < 0 {
		return q, kit.UsageErrorf(cmd, "--limit %d: want 0 or more", l.limit)
	}
	if len(more) > 0 && len(l.fields) == 0 {
		return q, kit.UsageErrorf(cmd, "unexpected argument %q", more[0])
	}
	l.fields = append(l.fields, more...)
	q.Fields = l.fields
	key, direction, _ := strings.Cut(l.sort, ":")
	switch direction {
	case "", "asc":
	case "desc":
		q.SortDescending = true
	default:
		return q, kit.UsageErrorf(cmd, "--sort %s: want KEY, KEY:asc or KEY:desc", l.sort)
	}
	q.SortKey = key
	return q, nil
}

// shown are the fields asked for, all of them with --long, or the list's own.
func (l *listOptions) shown(own []string, records []client.Record) []kit.Column {
	switch {
	case len(l.fields) > 0:
		return kit.ColumnsOf(l.fields)
	case !l.long:
		l.MoreColumns = "; --fields and --long show others"
		return kit.ColumnsOf(own)
	}
	fields := slices.Clone(own)
	var rest []string
	for _, r := range records {
		for f := range r {
			if !slices.Contains(fields, f) && !slices.Contains(rest, f) && !slices.Contains(kit.HiddenFields, f) {
				rest = append(rest, f)
			}
		}
	}
	slices.Sort(rest)
	return kit.ColumnsOf(append(fields, rest...))
}

var nodeColumns = []string{"uuid", "name", "instance_uuid", "power_state", "provision_state", "maintenance"}

// nodeFilters are the options of node list that the server filters by.
var nodeFilters = []resourceField{
	{flag: "provision-state", usage: "in this provision state"},
	{flag: "driver", usage: "with this driver", named: nameOf(&resourceSpec{at: client.Drivers, title: "driver"})},
	{flag: "resource-class", usage: "of this resource class"},
	{flag: "conductor-group", usage: "of this conductor group", named: checkConductorGroup},
	{flag: "conductor", usage: "worked on by this conductor", named: nameOf(&resourceSpec{at: client.Conductors, title: "conductor"})},
	{flag: "chassis", name: "chassis_uuid", usage: "in this chassis", named: nameOf(&chassisResource)},
	{flag: "fault", usage: "with this fault"},
	{flag: "owner", usage: "of this owner"},
	{flag: "lessee", usage: "of this lessee"},
	{flag: "description-contains", usage: "with these words in the description"},
	{flag: "shards", name: "shard", usage: "of these shards, separated by commas"},
	{flag: "parent-node", usage: "that are part of this node", named: nameOf(&nodeResource)},
	{flag: "instance-name", usage: "with this name of their instance"},
	{flag: "bmc", usage: "whose BMC is answering, silent, refusing or unknown (no reading of the power, or an old one)"},
}

// nodeChoice is a pair of switches: the nodes with usage, or the other ones.
type nodeChoice struct{ yes, no, parameter, usage, otherUsage string }

// nodeChoices are pairs of switches, for a filter that is true or false.
var nodeChoices = []nodeChoice{
	{"maintenance", "no-maintenance", "maintenance", "nodes in maintenance", "nodes that are not in maintenance"},
	{"retired", "no-retired", "retired", "retired nodes", "nodes that are not retired"},
	{"associated", "unassociated", "associated", "nodes with an instance", "nodes without an instance"},
	{"sharded", "unsharded", "sharded", "nodes in a shard", "nodes without a shard"},
	{"include-children", "no-children", "include_children", "", "top-level nodes"},
}

func newNodeListCommand(e *kit.Endpoint) *cobra.Command {
	l := &listOptions{}
	cmd := &cobra.Command{
		Use: "list", Short: "List nodes",
		Example: `  salvor node list
  salvor node list --provision-state "rescue failed" --fields name last_error
  salvor node list --where bmc=silent
  salvor node list --maintenance -f json`,
		RunE: e.Run(func(c *kit.Call) error {
			filter := url.Values{}
			for _, f := range nodeFilters {
				v, _ := c.Flags().GetString(f.flag)
				if !c.Flags().Changed(f.flag) {
					continue
				}
				if err := checkNodeFilter(c.Command, "--"+f.flag, f.record(), v); err != nil {
					return err
				}
				filter.Set(f.record(), v)
			}
			for _, f := range nodeChoices {
				if yes, _ := c.Flags().GetBool(f.yes); yes {
					filter.Set(f.parameter, "true")
				}
				if no, _ := c.Flags().GetBool(f.no); no {
					filter.Set(f.parameter, "false")
				}
			}
			conditions, _ := c.Flags().GetStringArray(whereFlag)
			rest, err := selection(c, conditions, filter)
			if err != nil {
				return err
			}
			q, err := l.query(c.Command, filter, c.Args)
			if err != nil {
				return err
			}
			records, err := listNodes(c, q, rest)
			if err == nil && len(records) == 0 {
				err = refuseUnknownNames(c, filter, nodeFilters)
			}
			if err != nil {
				return err
			}
			addPowerAges(c, &l.Output, records, l.long)
			return l.List(c.OutOrStdout(), l.shown(nodeColumns, records), records)
		}),
	}
	l.flags(cmd)
	completeColumns(cmd, &nodeResource, nodeColumns)
	defineWhere(cmd, "only nodes with KEY=VALUE, as: --where bmc=silent --where state=active; the keys are the filters below; may be repeated")
	for _, f := range nodeFilters {
		cmd.Flags().String(f.flag, "", "only nodes "+f.usage)
	}
	kit.CompleteFlag(cmd, "provision-state", provisionStates)
	kit.CompleteFlag(cmd, "bmc", bmcStates)
	for _, f := range nodeChoices {
		usage := "only " + f.usage
		if f.usage == "" {
			usage = "nodes that are part of another node, too"
		}
		cmd.Flags().Bool(f.yes, false, usage)
		cmd.Flags().Bool(f.no, false, "only "+f.otherUsage)
		cmd.MarkFlagsMutuallyExclusive(f.yes, f.no)
	}
	return cmd
}

// listNodes reads the nodes for which the conditions hold. Where the client compares, it reads the fields that it needs, and counts what it shows.
func listNodes(c *kit.Call, q client.Query, rest []clientCondition) ([]client.Record, error) {
	if len(rest) == 0 {
		return c.API.List(c.Context(), client.Nodes, q)
	}
	limit := q.Limit
	if q.Limit = 0; len(q.Fields) > 0 {
		q.Fields = append(slices.Clone(q.Fields), "name", "extra")
	} else {
		q.Detail = true
	}
	found, err := c.API.List(c.Context(), client.Nodes, q)
	if found = matchingNodes(found, rest); limit > 0 && len(found) > limit {
		found = found[:limit]
	}
	return found, err
}

func newNodeShowCommand(e *kit.Endpoint) *cobra.Command {
	o, fields, instance := &kit.Output{}, []string{}, false
	cmd := &cobra.Command{
		Use: "show NODE", Short: "Show a node", Args: cobra.MinimumNArgs(1),
		Example: `  salvor node show rack1-7
  salvor node show rack1-7 --fields provision_state last_error
  salvor node show rack1-7 -f value -c provision_state`,
		RunE: e.Run(func(c *kit.Call) error {
			if err := o.Check(c.Command); err != nil {
				return err
			}
			if len(c.Args) > 1 && len(fields) == 0 {
				return kit.UsageErrorf(c.Command, "unexpected argument %q", c.Args[1])
			}
			fields = append(fields, c.Args[1:]...)
			if !instance {
				n, err := c.API.Node(c.Context(), c.Args[0], fields...)
				if err != nil {
					return err
				}
				addPowerAges(c, o, []client.Record{n.Record}, true)
				return o.Show(c.OutOrStdout(), n.Record)
			}
			n, err := c.API.NodeByInstance(c.Context(), c.Args[0], fields...)
			if err != nil {
				return err
			}
			if n == nil {
				return problem.NotFoundf("no node has the instance %s", c.Args[0])
			}
			addPowerAges(c, o, []client.Record{n.Record}, true)
			return o.Show(c.OutOrStdout(), n.Record)
		}),
	}
	o.Flags(cmd)
	cmd.Flags().StringSliceVar(&fields, "fields", nil, "the fields to show, separated by commas or spaces")
	completeColumns(cmd, &nodeResource, nil)
	cmd.Flags().BoolVar(&instance, "instance", false, "NODE is the UUID of an instance")
	return cmd
}

func newNodeDeleteCommand(e *kit.Endpoint) *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete NODE...", Short: "Delete the records of nodes; the machines themselves are left alone",
		Example: "  salvor node delete rack1-7\n  salvor node delete --where state=enroll --where driver=ipmi",
		RunE: e.Run(func(c *kit.Call) error {
			const deleted = "Deleted node %s"
			return eachNode(c, deleted, deleted, func(ident string) error { return c.API.DeleteNode(c.Context(), ident) })
		}),
	}
	selectNodes(cmd)
	return cmd
}

func newNodeValidateCommand(e *kit.Endpoint) *cobra.Command {
	o := &kit.Output{}
	cmd := &cobra.Command{
		Use: "validate NODE...", Short: "Show for each interface whether nodes have all that they need", Args: cobra.ArbitraryArgs,
		Example: "  salvor node validate rack1-7\n  salvor node validate --where state=enroll",
		RunE: e.Run(func(c *kit.Call) error {
			if err := o.Check(c.Command); err != nil {
				return err
			}
			if len(c.Args) == 0 && !c.Flags().Changed(whereFlag) {
				return kit.UsageErrorf(c.Command, "NODE is missing: name a node, or choose some by --%s KEY=VALUE", whereFlag)
			}
			if err := chooseNodes(c); err != nil {
				return err
			}
			columns, records := []string{"interface", "result", "reason"}, []client.Record{}
			if len(c.Args) > 1 || c.Labels != nil {
				columns = append([]string{"node"}, columns...)
			}
			err := c.Each(func(ident string) error {
				found, err := validations(c, ident)
				records = append(records, found...)
				return err
			})
			if len(c.Args) == 1 && err != nil {
				return err
			}
			return kit.JoinErrors(o.List(c.OutOrStdout(), kit.ColumnsOf(columns), records), err)
		}),
	}
	o.Flags(cmd)
	defineWhere(cmd, "all nodes with KEY=VALUE instead of names, as: --where state=enroll --where extra.rack=7; may be repeated")
	return cmd
}

// validations are the interfaces of a node, each with whether it has all that it needs.
func validations(c *kit.Call, ident string) (records []client.Record, err error) {
	interfaces, err := c.API.Validate(c.Context(), ident)
	for name, v := range interfaces {
		r := client.Record{"node": c.Label(ident), "interface": name, "result": nil, "reason": v.Reason}
		if v.Result != nil {
			r["result"] = *v.Result
		}
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b client.Record) int { return strings.Compare(a.Text("interface"), b.Text("interface")) })
	return records, err
}

func newNodeHistoryCommand(e *kit.Endpoint) *cobra.Command {
	l := &listOptions{}
	run := e.Run(func(c *kit.Call) error {
		q, err := l.query(c.Command, nil, c.Args[1:])
		if err != nil {
			return err
		}
		events, err := c.API.History(c.Context(), c.Args[0], q)
		if err != nil {
			return err
		}
		records := make([]client.Record, len(events))
		for i, h := range events {
			records[i] = client.Record{"uuid": h.UUID, "created_at": h.CreatedAt, "severity": h.Severity, "event": h.Event}
			if l.long {
				records[i]["event_type"], records[i]["conductor"], records[i]["user"] = h.EventType, h.Conductor, h.User
			}
		}
		return l.List(c.OutOrStdout(), l.shown([]string{"uuid", "created_at", "severity", "event"}, records), records)
	})
	const example = `  salvor node history rack1-7
  salvor node history list rack1-7 -f json`
	cmd := &cobra.Command{Use: "history NODE", Short: "Show what happened to a node, oldest first", Args: cobra.MinimumNArgs(1), Example: example, RunE: run}
	list := &cobra.Command{Use: "list NODE", Short: cmd.Short, Args: cobra.MinimumNArgs(1), Example: example, RunE: run}
	l.flags(cmd)
	l.flags(list)
	cmd.AddCommand(list)
	return cmd
}
