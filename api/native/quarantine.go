package native

import (
	"net/http"
	"net/url"

	"salvor/api"
	"salvor/problem"
	"salvor/record"
)

// quarantine serves the disks that servers of a host gave up.
func (s *server) quarantine() []api.Route {
	return []api.Route{
		{Method: http.MethodGet, Path: "/hosts/{ident}/quarantine", Do: s.listQuarantine},
		{Method: http.MethodPost, Path: "/hosts/{ident}/quarantine/{disk}/restore", Do: s.restoreDisk},
		{Method: http.MethodDelete, Path: "/hosts/{ident}/quarantine/{disk}", Do: s.removeQuarantined},
	}
}

func (s *server) listQuarantine(c *api.Call) error {
	limit, err := pageSize(c)
	if err != nil {
		return err
	}
	disks, err := s.Services.Quarantine.List(c.R.Context(), c.Arg("ident"), record.Page{Limit: limit + 1, Marker: c.Query.Get("marker")})
	if err != nil {
		return err
	}
	answer := map[string]any{}
	if len(disks) > limit {
		disks = disks[:limit]
		c.Query.Set("marker", disks[limit-1].ID)
		answer["next"] = c.Base + root + "/hosts/" + url.PathEscape(c.Arg("ident")) + "/quarantine?" + c.Query.Encode()
	}
	names := map[string]string{}
	out := make([]map[string]any, len(disks))
	for i := range disks {
		d := &disks[i]
		if _, known := names[d.ServerID]; !known && record.IsUUID(d.ServerID) {
			srv, err := s.Services.Servers.Server(c.R.Context(), d.ServerID, requesterOf(c))
			if err != nil && !problem.Is(err, problem.NotFound) {
				return err
			}
			if names[d.ServerID] = ""; err == nil {
				names[d.ServerID] = srv.Name
			}
		}
		out[i] = map[string]any{
			"id": d.ID, "store": d.Store, "server": names[d.ServerID], "server_id": d.ServerID, "disk": d.Disk, "reason": d.Reason, "image_digest": d.Image,
			"size_gib": d.SizeGiB(), "bytes": d.Bytes, "quarantined_at": timeOrNull(d.At), "removed_at": timeOrNull(s.Services.Quarantine.Ends(d)),
		}
	}
	answer["quarantine"] = out
	return c.JSON(http.StatusOK, answer)
}

// restoreDisk begins the job by which a stopped server is given the disk.
func (s *server) restoreDisk(c *api.Call) error {
	var b struct {
		Server       string `json:"server"`
		OtherProject bool   `json:"other_project"`
	}
	if err := c.ReadExactly(&b); err != nil {
		return err
	}
	if !record.IsUUID(b.Server) {
		return problem.Invalidf("Invalid value for server: %.50q; want the UUID of a stopped server.", b.Server)
	}
	srv, j, err := s.Services.Quarantine.RestoreDisk(c.R.Context(), c.Arg("ident"), c.Arg("disk"), b.Server, b.OtherProject, requesterOf(c))
	if err != nil {
		return err
	}
	disk := srv.Disks[len(srv.Disks)-1].Name // the newest is the last
	return c.JSON(http.StatusAccepted, map[string]any{"job": j.ID, "server_id": srv.ID, "server": srv.Name, "disk": disk})
}

func (s *server) removeQuarantined(c *api.Call) error {
	if err := s.Services.Quarantine.Remove(c.R.Context(), c.Arg("ident"), c.Arg("disk"), requesterOf(c)); err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}
