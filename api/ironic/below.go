package ironic

import (
	"net/http"

	"salvor/metal"
	"salvor/problem"
	"salvor/wire/ironic"
)

// listVIFs shows which tenant networks the node's ports are wired to: each port's extra.vif_port_id.
func (s *server) listVIFs(c *call) error {
	if err := c.only(); err != nil {
		return err
	}
	n, err := s.Nodes.Node(c.r.Context(), c.args[0])
	if err != nil {
		return err
	}
	ports, err := s.Ports.List(c.r.Context(), metal.PortFilter{NodeID: n.ID}, metal.Page{Limit: s.MaxLimit})
	if err != nil {
		return err
	}
	vifs := []map[string]string{}
	for _, p := range ports {
		if id, ok := p.Extra["vif_port_id"].(string); ok && id != "" {
			vifs = append(vifs, map[string]string{"id": id})
		}
	}
	return c.json(http.StatusOK, map[string]any{"vifs": vifs})
}

// listBIOS shows no setting: our drivers read none.
func (s *server) listBIOS(c *call) error {
	n, err := s.Nodes.Node(c.r.Context(), c.args[0])
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, struct {
		BIOS  []any         `json:"bios"`
		Links []ironic.Link `json:"links"`
	}{[]any{}, c.links("nodes/" + n.ID + "/bios")})
}

func (s *server) getBIOS(c *call) error {
	n, err := s.Nodes.Node(c.r.Context(), c.args[0])
	if err != nil {
		return err
	}
	return problem.NotFoundf("Node %s doesn't have a BIOS setting '%s'", n.ID, shorten(c.args[1]))
}

func (s *server) getInventory(c *call) error {
	n, err := s.Nodes.Node(c.r.Context(), c.args[0])
	if err != nil {
		return err
	}
	return problem.NotFoundf("No inspection inventory of node %s could be found.", n.ID)
}
