package ironic

import (
	"net/http"

	"salvor/problem"
	"salvor/wire/ironic"
)

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
