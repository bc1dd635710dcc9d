package ironic

import (
	"maps"
	"net/http"
	"slices"

	"salvor/metal"
	"salvor/problem"
)

// vifKey is where a port says which tenant network it is wired to.
const vifKey = "vif_port_id"

func vifOf(p *metal.Port) string {
	id, _ := p.Extra[vifKey].(string)
	return id
}

// nodePorts reads the node of the path with all of its ports.
func (c *call) nodePorts() (*metal.Node, []*metal.Port, error) {
	n, err := c.s.Nodes.Node(c.r.Context(), c.args[0])
	if err != nil {
		return nil, nil, err
	}
	ports, err := c.s.Ports.List(c.r.Context(), metal.PortFilter{NodeID: n.ID}, metal.Page{Limit: c.s.MaxLimit})
	return n, ports, err
}

func (s *server) listVIFs(c *call) error {
	if err := c.only(); err != nil {
		return err
	}
	_, ports, err := c.nodePorts()
	if err != nil {
		return err
	}
	vifs := []map[string]string{}
	for _, p := range ports {
		if id := vifOf(p); id != "" {
			vifs = append(vifs, map[string]string{"id": id})
		}
	}
	return c.json(http.StatusOK, map[string]any{"vifs": vifs})
}

// attachVIF wires a free port, or the one that is named, to a tenant network. Like Ironic it prefers ports that boot.
func (s *server) attachVIF(c *call) error {
	body, err := c.object()
	if err != nil {
		return err
	}
	if err := knownOnly(body, "id", "port_uuid"); err != nil {
		return err
	}
	id, err := wantText("id", body["id"])
	if err != nil {
		return err
	}
	if id == "" || len(id) > maxIdent {
		return problem.Invalidf("Missing mandatory parameter: id (of at most %d bytes)", maxIdent)
	}
	portID, err := wantText("port_uuid", body["port_uuid"])
	if err != nil {
		return err
	}
	if portID != "" && c.version < 67 {
		return newerField("port_uuid", 67)
	}
	n, ports, err := c.nodePorts()
	if err != nil {
		return err
	}
	p, err := freePort(n, ports, id, portID)
	if err != nil {
		return err
	}
	return c.wire(p, "", id)
}

func freePort(n *metal.Node, ports []*metal.Port, id, portID string) (*metal.Port, error) {
	var free *metal.Port
	for _, p := range ports {
		switch taken := vifOf(p); {
		case taken == id:
			return nil, problem.Conflictf("Unable to attach VIF because VIF %s is already attached to Ironic Port %s", shorten(id), p.ID)
		case taken != "" || portID != "" && p.ID != portID:
		case free == nil || p.PXEEnabled && !free.PXEEnabled:
			free = p
		}
	}
	if free == nil {
		return nil, problem.Invalidf("Unable to attach VIF %s, not enough free physical ports on node %s.", shorten(id), n.ID)
	}
	return free, nil
}

func (s *server) detachVIF(c *call) error {
	n, ports, err := c.nodePorts()
	if err != nil {
		return err
	}
	id := c.args[1]
	i := slices.IndexFunc(ports, func(p *metal.Port) bool { return vifOf(p) == id })
	if i < 0 {
		return problem.Invalidf("Unable to detach VIF %s from node %s because it is not attached to it.", shorten(id), n.ID)
	}
	return c.wire(ports[i], id, "")
}

// wire changes the port's tenant network if it still is what was seen, and answers 204.
func (c *call) wire(p *metal.Port, from, to string) error {
	_, err := c.s.Ports.Update(c.r.Context(), p.ID, c.who, func(p *metal.Port) error {
		if vifOf(p) != from {
			return problem.Conflictf("Port %s was wired by somebody else meanwhile; ask again", p.ID)
		}
		if p.Extra = maps.Clone(p.Extra); p.Extra == nil {
			p.Extra = metal.Object{}
		}
		if p.Extra[vifKey] = to; to == "" {
			delete(p.Extra, vifKey)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.empty(http.StatusNoContent)
}
