package ironic

import (
	"context"
	"slices"

	"salvor/metal"
	"salvor/secret"
)

// nodeView is a node with all that its fields are made of.
type nodeView struct {
	*metal.Node
	contact metal.Contact
	driver  metal.DriverInfo // zero if no conductor knows the driver
}

// shownState spells a state as the version knows it: older ones have another word, or none.
func shownState(s metal.State, v metal.Version) string {
	switch {
	case s == metal.Available && v < 2:
		return ""
	case s == metal.InspectWait && v < 39:
		return string(metal.Inspecting)
	}
	return string(s)
}

// shownInstanceInfo masks, beside secrets, what may carry one inside.
func shownInstanceInfo(o metal.Object) metal.Object {
	if len(o) == 0 {
		return metal.Object{}
	}
	out := secret.Masked(map[string]any(o)).(map[string]any)
	for _, k := range maskedInstanceKeys {
		if out[k] != nil {
			out[k] = secret.Mask
		}
	}
	return out
}

// maskedInstanceKeys are masked in instance_info though their names bear no marker: a
// config drive holds keys, an image URL may be signed.
var maskedInstanceKeys = []string{"configdrive", "image_url"}

func appendTraits(b []byte, traits []string) []byte {
	b = append(b, '[')
	for i, t := range traits {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, t)
	}
	return append(b, ']')
}

// internalInfo is what drivers keep, with what the ramdisk of the present boot said.
func (v *nodeView) internalInfo() metal.Object {
	o := make(metal.Object, len(v.InternalInfo)+7)
	for k, e := range v.InternalInfo {
		o[k] = e
	}
	c := &v.contact
	set := func(k, s string) {
		if s != "" {
			o[k] = s
		}
	}
	set("agent_version", c.AgentVersion)
	if !c.HeartbeatAt.IsZero() {
		o["agent_last_heartbeat"] = c.HeartbeatAt.UTC().Format(timeLayout)
	}
	if v.Plan != nil && v.BootNumber > 0 && v.Plan.BootNumber == v.BootNumber {
		o["agent_secret_token"] = secret.Mask
		if v.Plan.CarryToken {
			o["agent_secret_token_pregenerated"] = true
		}
	}
	if c.AgentBoot == v.BootNumber && v.BootNumber > 0 { // what an earlier boot said is void
		set("agent_url", c.AgentURL)
		set("agent_verify_ca", c.AgentCA)
		set("agent_status", c.AgentStatus)
		set("agent_status_message", c.AgentStatusMessage)
	}
	return o
}

// views gathers what the fields need beside the nodes: one query for all contacts, and
// only if a field shows them.
func (c *ironicCall) views(ctx context.Context, nodes []*metal.Node, fields []*nodeField) ([]nodeView, error) {
	var contacts map[string]metal.Contact
	if showsContact(fields) && len(nodes) > 0 {
		ids := make([]string, len(nodes))
		for i, n := range nodes {
			ids[i] = n.ID
		}
		var err error
		if contacts, err = c.s.Nodes.Contacts(ctx, ids); err != nil {
			return nil, err
		}
	}
	drivers, err := c.s.drivers(ctx)
	if err != nil {
		return nil, err
	}
	views := make([]nodeView, len(nodes))
	for i, n := range nodes {
		views[i] = nodeView{Node: n, contact: contacts[n.ID], driver: drivers[n.Driver]}
		c.redacted(&views[i])
	}
	return views, nil
}

// showsContact tells whether a field shows what was heard of the node.
func showsContact(fields []*nodeField) bool {
	return slices.ContainsFunc(fields, func(f *nodeField) bool { return f.name == "driver_internal_info" })
}

// partOf is how much of a node the fields show.
func partOf(fields []*nodeField) metal.NodePart {
	if slices.ContainsFunc(fields, func(f *nodeField) bool { return f.use&inRow == 0 }) {
		return metal.WholeNode
	}
	return metal.NodeRow
}

// drivers gives what conductors say of each hardware type.
func (s *server) drivers(ctx context.Context) (map[string]metal.DriverInfo, error) {
	drivers, _, err := s.Directory.Drivers(ctx)
	return drivers, err
}

// showNode answers with one node.
func (c *ironicCall) showNode(status int, n *metal.Node, fields []*nodeField) error {
	views, err := c.views(c.R.Context(), []*metal.Node{n}, fields)
	if err != nil {
		return err
	}
	return c.Raw(status, nodeKind.append(make([]byte, 0, 4096), c, &views[0], fields))
}
