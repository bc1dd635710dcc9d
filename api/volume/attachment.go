package volume

import (
	"net/http"
	"strings"

	"salvor/api"
	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

func attachmentView(v *compute.Volume) jsonObject {
	return jsonObject{
		"id": attachmentID(v), "volume_id": v.ID, "instance": v.ServerID, "status": attachStatus(v), "attached_at": timeText(v.AttachedAt),
		"detached_at": nil, "attach_mode": "rw", "connection_info": jsonObject{},
	}
}

func attachStatus(v *compute.Volume) string {
	if v.Status == compute.VolumeInUse {
		return "attached"
	}
	return string(v.Status)
}

func (s *server) attachedVolumes(c *api.Call) ([]*compute.Volume, error) {
	if c.Minor < 27 {
		return nil, problem.NotFoundf("The resource could not be found: attachments need version 3.27.")
	}
	f := compute.VolumeFilter{Project: c.Project(), ServerID: c.Query.Get("instance_id")}
	if all := c.Query.Get("all_tenants"); all != "" && all != "0" && c.Admin() {
		f.Project = ""
	}
	id := strings.ToLower(c.Query.Get("volume_id"))
	found, _, err := s.find(c, f, []volumePredicate{func(v *compute.Volume) bool {
		return v.ServerID != "" && (id == "" || v.ID == id)
	}}, record.Page{}, everything)
	return found, err
}

func (s *server) attachments(c *api.Call) error {
	found, err := s.attachedVolumes(c)
	if err != nil {
		return err
	}
	shown := make([]jsonObject, len(found))
	for i, v := range found {
		shown[i] = attachmentView(v)
	}
	return c.JSON(http.StatusOK, jsonObject{"attachments": shown})
}

func (s *server) attachment(c *api.Call) error {
	found, err := s.attachedVolumes(c)
	if err != nil {
		return err
	}
	for _, v := range found {
		if attachmentID(v) == c.Arg("attachment") {
			return c.JSON(http.StatusOK, jsonObject{"attachment": attachmentView(v)})
		}
	}
	return problem.NotFoundf("Volume attachment could not be found with filter: attachment_id = %.64s.", c.Arg("attachment"))
}
