package nova

import (
	"net/http"
	"slices"
	"strings"

	"salvor/compute"
	"salvor/problem"
)

// attachmentRoutes are of the volumes of servers.
func (s *server) attachmentRoutes() []route {
	const all = "/servers/{server}/os-volume_attachments"
	return []route{
		{method: "GET", path: all, need: reader, do: (*call).listAttachments},
		{method: "POST", path: all, need: member, do: (*call).attach},
		{method: "GET", path: all + "/{volume}", need: reader, do: (*call).getAttachment},
		{method: "PUT", path: all + "/{volume}", need: admin, do: (*call).updateAttachment},
		{method: "DELETE", path: all + "/{volume}", need: member, do: (*call).detach},
	}
}

// attachment is a volume as it is attached to a server.
func (c *call) attachment(srv *compute.Server, d *compute.Disk) object {
	o := object{"volumeId": d.VolumeID, "serverId": srv.ID, "device": "/dev/" + d.Name, "id": d.VolumeID}
	if c.Minor >= 70 {
		o["tag"] = nil
	}
	if c.Minor >= 79 {
		o["delete_on_termination"] = d.DeleteOnTermination
	}
	return o
}

func (c *call) listAttachments() error {
	srv, err := c.server()
	if err != nil {
		return err
	}
	if err := c.only(75, "limit", "offset"); err != nil {
		return err
	}
	limit, err := c.number("limit", c.s.MaxLimit)
	if err != nil {
		return err
	}
	skip, err := c.number("offset", 0)
	if err != nil {
		return err
	}
	out := []object{}
	for i := range srv.Disks {
		if srv.Disks[i].VolumeID == "" {
			continue
		}
		if skip--; skip < 0 && len(out) < limit {
			out = append(out, c.attachment(srv, &srv.Disks[i]))
		}
	}
	return c.json(http.StatusOK, object{"volumeAttachments": out})
}

// attached finds the volume that the path names among the server's disks.
func (c *call) attached() (*compute.Server, *compute.Disk, error) {
	srv, err := c.server()
	if err != nil {
		return nil, nil, err
	}
	id := c.Arg("volume")
	for i := range srv.Disks {
		if srv.Disks[i].VolumeID == id && id != "" {
			return srv, &srv.Disks[i], nil
		}
	}
	return nil, nil, problem.NotFoundf("Instance %s is not attached to volume %s", srv.ID, shorten(id))
}

func (c *call) getAttachment() error {
	srv, d, err := c.attached()
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, object{"volumeAttachment": c.attachment(srv, d)})
}

var attachSchema = objectSchema(
	prop{name: "volumeId", required: true, rule: uuid}, prop{name: "device", rule: nullable(text(0, 255))}, prop{name: "tag", since: 49, rule: nullable(tagRule)},
	prop{name: "delete_on_termination", since: 79, rule: nullable(boolean)},
)

func (c *call) attach() error {
	body, err := c.body("volumeAttachment", attachSchema)
	if err != nil {
		return err
	}
	srv, err := c.server()
	if err != nil {
		return err
	}
	id := strings.ToLower(field(body, "volumeId"))
	ends, _ := boolOf(body["delete_on_termination"])
	a := compute.Act{
		Action: compute.AttachVolume, VolumeID: id, Device: strings.TrimPrefix(field(body, "device"), "/dev/"), DeleteOnTermination: ends,
	}
	after, err := c.s.Services.Servers.Act(c.R.Context(), srv.ID, a, c.who)
	if err != nil {
		return err
	}
	d := &compute.Disk{VolumeID: id, Name: a.Device, DeleteOnTermination: ends}
	if at := slices.IndexFunc(after.Disks, func(d compute.Disk) bool { return d.VolumeID == id }); at >= 0 {
		d = &after.Disks[at]
	}
	return c.json(http.StatusOK, object{"volumeAttachment": c.attachment(after, d)})
}

// updateAttachment refuses: volumes are not swapped below a running server.
func (c *call) updateAttachment() error {
	if _, _, err := c.attached(); err != nil {
		return err
	}
	return notImplemented("An attached volume is not changed: detach it and attach it again")
}

func (c *call) detach() error {
	srv, d, err := c.attached()
	if err != nil {
		return err
	}
	return c.ask(srv, compute.Act{Action: compute.DetachVolume, VolumeID: d.VolumeID})
}
