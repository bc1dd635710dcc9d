package nova

import (
	"net/http"
	"slices"
	"strings"

	"salvor/compute"
	"salvor/problem"
)

// attachmentRoutes are of the volumes of servers.
func (s *apiServer) attachmentRoutes() []versionedRoute {
	const all = "/servers/{server}/os-volume_attachments"
	return []versionedRoute{
		{method: "GET", path: all, need: reader, do: handlerOf(attachmentCall.listAttachments)},
		{method: "POST", path: all, need: member, do: handlerOf(attachmentCall.attach)},
		{method: "GET", path: all + "/{volume}", need: reader, do: handlerOf(attachmentCall.getAttachment)},
		{method: "PUT", path: all + "/{volume}", need: admin, do: handlerOf(attachmentCall.updateAttachment)},
		{method: "DELETE", path: all + "/{volume}", need: member, do: handlerOf(attachmentCall.detach)},
	}
}

// attachment is a volume as it is attached to a server.
func (c attachmentCall) attachment(srv *compute.Server, d *compute.Disk) jsonObject {
	o := jsonObject{"volumeId": d.VolumeID, "serverId": srv.ID, "device": "/dev/" + d.Name, "id": d.VolumeID}
	if c.Minor >= 70 {
		o["tag"] = nil
	}
	if c.Minor >= 79 {
		o["delete_on_termination"] = d.DeleteOnTermination
	}
	return o
}

func (c attachmentCall) listAttachments() error {
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
	out := []jsonObject{}
	for i := range srv.Disks {
		if srv.Disks[i].VolumeID == "" {
			continue
		}
		if skip--; skip < 0 && len(out) < limit {
			out = append(out, c.attachment(srv, &srv.Disks[i]))
		}
	}
	return c.json(http.StatusOK, jsonObject{"volumeAttachments": out})
}

// attached finds the volume that the path names among the server's disks.
func (c attachmentCall) attached() (*compute.Server, *compute.Disk, error) {
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
	return nil, nil, problem.NotFoundf("Instance %s is not attached to volume %s", srv.ID, truncateText(id))
}

func (c attachmentCall) getAttachment() error {
	srv, d, err := c.attached()
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, jsonObject{"volumeAttachment": c.attachment(srv, d)})
}

var attachSchema = objectSchema(
	schemaProperty{name: "volumeId", required: true, rule: uuidSchema}, schemaProperty{name: "device", rule: nullableSchema(stringSchema(0, 255))}, schemaProperty{name: "tag", since: 49, rule: nullableSchema(tagSchema)},
	schemaProperty{name: "delete_on_termination", since: 79, rule: nullableSchema(booleanSchema)},
)

func (c attachmentCall) attach() error {
	body, err := c.body("volumeAttachment", attachSchema)
	if err != nil {
		return err
	}
	srv, err := c.server()
	if err != nil {
		return err
	}
	id := strings.ToLower(stringProperty(body, "volumeId"))
	ends, _ := boolOf(body["delete_on_termination"])
	a := compute.Act{
		Action: compute.AttachVolume, VolumeID: id, Device: strings.TrimPrefix(stringProperty(body, "device"), "/dev/"), DeleteOnTermination: ends,
	}
	after, err := c.s.Services.Actions.Act(c.R.Context(), srv.ID, a, c.requester)
	if err != nil {
		return err
	}
	d := &compute.Disk{VolumeID: id, Name: a.Device, DeleteOnTermination: ends}
	if at := slices.IndexFunc(after.Disks, func(d compute.Disk) bool { return d.VolumeID == id }); at >= 0 {
		d = &after.Disks[at]
	}
	return c.json(http.StatusOK, jsonObject{"volumeAttachment": c.attachment(after, d)})
}

// updateAttachment refuses: volumes are not swapped below a running server.
func (c attachmentCall) updateAttachment() error {
	if _, _, err := c.attached(); err != nil {
		return err
	}
	return notImplemented("An attached volume is not changed: detach it and attach it again")
}

func (c attachmentCall) detach() error {
	srv, d, err := c.attached()
	if err != nil {
		return err
	}
	return c.ask(srv, compute.Act{Action: compute.DetachVolume, VolumeID: d.VolumeID})
}
