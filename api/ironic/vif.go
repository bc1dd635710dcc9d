package ironic

import (
	"net/http"

	"salvor/metal"
	"salvor/problem"
)

func (s *server) listVIFs(c *ironicCall) error {
	n, err := c.node()
	if err != nil {
		return err
	}
	ids, err := s.Nodes.VIFs(c.R.Context(), n.ID)
	if err != nil {
		return err
	}
	vifs := []map[string]string{}
	for _, id := range ids {
		vifs = append(vifs, map[string]string{"id": id})
	}
	return c.JSON(http.StatusOK, map[string]any{"vifs": vifs})
}

// attachVIF takes further keys, as Ironic does: what a VIF is beside its id is the network's business.
func (s *server) attachVIF(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	body, err := c.object()
	if err != nil {
		return err
	}
	var v metal.VIF
	for key, into := range map[string]*string{"id": &v.ID, "port_uuid": &v.PortID, "portgroup_uuid": &v.PortgroupID} {
		if *into, err = wantText(key, body[key]); err != nil {
			return err
		}
		if *into != "" && key != "id" && c.version < 67 {
			return newerField(key, 67)
		}
	}
	if v.PortID != "" && v.PortgroupID != "" {
		return problem.Invalidf("Cannot specify both port_uuid and portgroup_uuid")
	}
	if v.ID == "" || len(v.ID) > maxIdent {
		return problem.Invalidf("Missing mandatory parameter: id (of at most %d bytes)", maxIdent)
	}
	n, err := c.nodeForChange()
	if err != nil {
		return err
	}
	if err := s.Nodes.AttachVIF(c.R.Context(), n.ID, v, c.Asker()); err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}

func (s *server) detachVIF(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	n, err := c.nodeForChange()
	if err != nil {
		return err
	}
	if err := s.Nodes.DetachVIF(c.R.Context(), n.ID, c.Args[1], c.Asker()); err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}
