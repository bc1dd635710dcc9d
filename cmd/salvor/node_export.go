package main

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/fleetfile"
	"salvor/cmd/salvor/kit"
	"salvor/secret"
)

// newNodeExportCommand is `salvor node export`: nodes as a file that import takes.
func newNodeExportCommand(e *kit.Endpoint) *cobra.Command {
	var form string
	cmd := &cobra.Command{
		Use: "export [NODE...]", Short: "Print nodes with their ports as a file for salvor node import", Args: cobra.ArbitraryArgs,
		Long: `Print nodes, all of them unless some are named or chosen, as a file that "salvor node import" and, in YAML and JSON,
"baremetal create" take. Fields that have the default of their driver are left out, and so are secrets, which the API
does not tell: --driver-info-file of salvor node import gives them.`,
		Example: `  salvor node export >nodes.yaml
  salvor node export --where conductor-group=north -f csv >north.csv`,
		RunE: e.Run(func(c *kit.Call) error { return exportNodes(c, form) }),
	}
	defineWhere(cmd, "only nodes with KEY=VALUE, as: --where conductor-group=north; the keys are the filters of salvor node list; may be repeated")
	cmd.Flags().StringVarP(&form, "format", "f", fleetfile.YAML, "yaml, json or csv")
	kit.CompleteFlag(cmd, "format", func() []string { return fleetfile.Forms })
	return cmd
}

func exportNodes(c *kit.Call, form string) error {
	if err := kit.CheckAllowed(c.Command, "-f", form, fleetfile.Forms); err != nil {
		return err
	}
	nodes, err := exportedNodes(c)
	if err != nil {
		return err
	}
	drivers, err := c.API.List(c.Context(), client.Drivers, client.Query{Detail: true})
	if err != nil {
		return err
	}
	defaults := map[string]client.Record{}
	for _, d := range drivers {
		defaults[d.Text("name")] = d
	}
	x := &nodeExporter{call: c, defaults: defaults, chassis: map[string]*fleetfile.Part{}}
	if err := x.readParts(nodes); err != nil {
		return err
	}
	file := &fleetfile.File{}
	for _, r := range nodes {
		n, err := x.node(r)
		if err != nil {
			return err
		}
		file.Nodes = append(file.Nodes, n)
	}
	slices.SortStableFunc(file.Nodes, func(a, b *fleetfile.Node) int { return strings.Compare(a.Label(), b.Label()) })
	if form == fleetfile.CSV && x.groups > 0 {
		c.Say("port groups are lists of JSON in the column portgroups; -f yaml is easier to read")
	}
	for _, id := range slices.Sorted(maps.Keys(x.chassis)) {
		file.Chassis = append(file.Chassis, x.chassis[id])
	}
	text, err := fleetfile.Write(form, file)
	if err != nil {
		return err
	}
	if _, err := c.OutOrStdout().Write(text); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(x.secrets)) {
		c.Say("%s of %d nodes is secret and left out: give it by salvor node import FILE --driver-info-file %[1]s=FILE", kit.StripControlChars(key), x.secrets[key])
	}
	return nil
}

// exportedNodes are the nodes that are named or chosen, or else all, with every field.
func exportedNodes(c *kit.Call) (out []client.Record, err error) {
	conditions, _ := c.Flags().GetStringArray(whereFlag)
	if len(c.Args) == 0 {
		filter := url.Values{"include_children": {"true"}}
		rest, err := selection(c, conditions, filter)
		if err != nil {
			return nil, err
		}
		all, err := c.API.List(c.Context(), client.Nodes, client.Query{Filter: filter, Detail: true})
		return matchingNodes(all, rest), err
	}
	if len(conditions) > 0 {
		return nil, kit.UsageErrorf(c.Command, "name nodes or give --%s, not both", whereFlag)
	}
	return out, c.Each(func(ident string) error {
		n, err := c.API.Get(c.Context(), client.Nodes, ident)
		out = append(out, n)
		return err
	})
}

// nodeExporter makes nodes of a file from records of the API.
type nodeExporter struct {
	call     *kit.Call
	defaults map[string]client.Record // drivers, by name
	ports    map[string][]client.Record
	inGroups map[string][]client.Record
	chassis  map[string]*fleetfile.Part
	groups   int
	secrets  map[string]int // how many nodes have a secret under a key of driver_info
}

// manyExported is the number of nodes from which on all ports of the fleet are read at once.
const manyExported = 20

// readParts reads the ports and port groups of the nodes.
func (x *nodeExporter) readParts(nodes []client.Record) error {
	x.ports, x.inGroups, x.secrets = map[string][]client.Record{}, map[string][]client.Record{}, map[string]int{}
	queries := []client.Query{{Detail: true}}
	if len(nodes) < manyExported {
		queries = nil
		for _, n := range nodes {
			queries = append(queries, client.Query{Detail: true, Filter: url.Values{"node": {n.Text("uuid")}}})
		}
	}
	for _, q := range queries {
		for kind, into := range map[client.Collection]map[string][]client.Record{client.Ports: x.ports, client.Portgroups: x.inGroups} {
			found, err := x.call.API.List(x.call.Context(), kind, q)
			if err != nil {
				return err
			}
			for _, r := range found {
				into[r.Text("node_uuid")] = append(into[r.Text("node_uuid")], r)
			}
		}
	}
	return nil
}

// node makes a node of its record.
func (x *nodeExporter) node(r client.Record) (*fleetfile.Node, error) {
	n := &fleetfile.Node{Part: fleetfile.Part{Fields: fleetfile.Exported(fleetfile.NodeKind, r)}}
	driver := x.defaults[r.Text("driver")]
	for _, kind := range interfaceKinds {
		if field := kind + "_interface"; n.Text(field) == driver.Text("default_"+field) {
			delete(n.Fields, field)
		}
	}
	info, _ := n.Fields["driver_info"].(map[string]any)
	for key, v := range info {
		if v == secret.Mask {
			delete(info, key)
			x.secrets[key]++
		}
	}
	traits, _ := r["traits"].([]any)
	for _, trait := range traits {
		n.Traits = append(n.Traits, fmt.Sprint(trait))
	}
	slices.Sort(n.Traits)
	id := r.Text("uuid")
	groups := map[string]*fleetfile.Group{}
	for _, g := range x.inGroups[id] {
		group := &fleetfile.Group{Part: fleetfile.Part{Fields: fleetfile.Exported(fleetfile.GroupKind, g)}}
		groups[g.Text("uuid")] = group
		n.Groups = append(n.Groups, group)
		x.groups++
	}
	for _, p := range x.ports[id] {
		part := &fleetfile.Part{Fields: fleetfile.Exported(fleetfile.PortKind, p)}
		if g := groups[p.Text("portgroup_uuid")]; g != nil {
			g.Ports = append(g.Ports, part)
		} else {
			n.Ports = append(n.Ports, part)
		}
	}
	n.SortParts()
	if chassis := n.Text("chassis_uuid"); chassis != "" && x.chassis[chassis] == nil {
		c, err := x.call.API.Get(x.call.Context(), client.Chassis, chassis)
		if err != nil {
			return nil, fmt.Errorf("chassis of %s: %w", n.Label(), err)
		}
		x.chassis[chassis] = &fleetfile.Part{Fields: fleetfile.Exported(fleetfile.ChassisKind, c)}
	}
	return n, nil
}
