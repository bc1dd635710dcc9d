package nova

import (
	"maps"
	"net/http"
	"slices"

	"salvor/compute"
	"salvor/problem"
)

// serverRoutes are of servers and what each has for itself.
func (s *apiServer) serverRoutes() []versionedRoute {
	return []versionedRoute{
		{method: "GET", path: "/servers", need: reader, do: handlerOf(serverCall.listServers)},
		{method: "POST", path: "/servers", need: member, do: handlerOf(serverCall.createServers)},
		{method: "GET", path: "/servers/detail", need: reader, do: handlerOf(serverCall.detailServers)},
		{method: "GET", path: "/servers/{server}", need: reader, do: handlerOf(serverCall.getServer)},
		{method: "PUT", path: "/servers/{server}", need: member, do: handlerOf(serverCall.updateServer)},
		{method: "DELETE", path: "/servers/{server}", need: member, do: handlerOf(serverCall.deleteServer)},
		{method: "POST", path: "/servers/{server}/action", need: member, do: handlerOf(actionCall.act)},
		{method: "GET", path: "/servers/{server}/metadata", need: reader, do: handlerOf(serverCall.listMetadata)},
		{method: "POST", path: "/servers/{server}/metadata", need: member, do: handlerOf(serverCall.addMetadata)},
		{method: "PUT", path: "/servers/{server}/metadata", need: member, do: handlerOf(serverCall.replaceMetadata)},
		{method: "GET", path: "/servers/{server}/metadata/{key}", need: reader, do: handlerOf(serverCall.getMetadata)},
		{method: "PUT", path: "/servers/{server}/metadata/{key}", need: member, do: handlerOf(serverCall.setMetadata)},
		{method: "DELETE", path: "/servers/{server}/metadata/{key}", need: member, do: handlerOf(serverCall.removeMetadata)},
		{method: "GET", path: "/servers/{server}/tags", need: reader, since: 26, do: handlerOf(serverCall.listTags)},
		{method: "PUT", path: "/servers/{server}/tags", need: member, since: 26, do: handlerOf(serverCall.replaceTags)},
		{method: "DELETE", path: "/servers/{server}/tags", need: member, since: 26, do: handlerOf(serverCall.clearTags)},
		{method: "GET", path: "/servers/{server}/tags/{tag}", need: reader, since: 26, do: handlerOf(serverCall.getTag)},
		{method: "PUT", path: "/servers/{server}/tags/{tag}", need: member, since: 26, do: handlerOf(serverCall.addTag)},
		{method: "DELETE", path: "/servers/{server}/tags/{tag}", need: member, since: 26, do: handlerOf(serverCall.removeTag)},
		{method: "GET", path: "/servers/{server}/ips", need: reader, do: handlerOf(serverCall.listAddresses)},
		{method: "GET", path: "/servers/{server}/ips/{network}", need: reader, do: handlerOf(serverCall.getAddresses)},
		{method: "GET", path: "/servers/{server}/os-interface", need: reader, do: handlerOf(serverCall.listInterfaces)},
		{method: "GET", path: "/servers/{server}/os-interface/{port}", need: reader, do: handlerOf(serverCall.getInterface)},
		{method: "GET", path: "/servers/{server}/os-security-groups", need: reader, do: handlerOf(serverCall.listSecurityGroups)},
		{method: "GET", path: "/servers/{server}/os-instance-actions", need: reader, do: handlerOf(instanceActionCall.listInstanceActions)},
		{method: "GET", path: "/servers/{server}/os-instance-actions/{request}", need: reader, do: handlerOf(instanceActionCall.getInstanceAction)},
		{method: "GET", path: "/servers/{server}/diagnostics", need: admin, do: handlerOf(serverCall.diagnose)},
	}
}

var updateSchema = objectSchema(
	schemaProperty{name: "name", rule: nameSchema},
	schemaProperty{name: "OS-DCF:diskConfig", rule: oneOf("AUTO", "MANUAL")},
	schemaProperty{name: "accessIPv4", rule: noAddressSchema}, schemaProperty{name: "accessIPv6", rule: noAddressSchema},
	schemaProperty{name: "description", since: 19, rule: nullableSchema(stringSchema(0, 255))},
)

// noAddressSchema refuses what no server has a place for.
func noAddressSchema(at string, v any, _ int) error {
	if v == nil || v == "" {
		return nil
	}
	return invalidValueError(at, v, "Addresses beside those of the server's networks are not kept")
}

func (c serverCall) updateServer() error {
	body, err := c.body("server", updateSchema)
	if err != nil {
		return err
	}
	srv, err := c.edit(func(srv *compute.Server) error {
		if name, ok := body["name"].(string); ok {
			srv.Name = name
		}
		if _, ok := body["description"]; ok {
			srv.Description = stringProperty(body, "description")
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.showServer(http.StatusOK, srv, true, nil)
}

// edit changes what users may write of the server that the path names.
func (c serverCall) edit(change func(*compute.Server) error) (*compute.Server, error) {
	srv, err := c.server()
	if err != nil {
		return nil, err
	}
	return c.s.Services.Servers.Update(c.R.Context(), srv.ID, c.requester, change)
}

func (c serverCall) deleteServer() error {
	srv, err := c.server()
	if err != nil {
		return err
	}
	if _, err := c.s.Services.Actions.Act(c.R.Context(), srv.ID, compute.Act{Action: compute.Delete}, c.requester); err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}

var metadataSchema = stringMapSchema(255)

func (c serverCall) listMetadata() error {
	srv, err := c.server()
	if err != nil {
		return err
	}
	return c.metadata(srv)
}

func (c serverCall) metadata(srv *compute.Server) error {
	return c.json(http.StatusOK, jsonObject{"metadata": mapOrEmpty(srv.Metadata)})
}

func mapOrEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func (c serverCall) addMetadata() error     { return c.writeMetadata(false) }
func (c serverCall) replaceMetadata() error { return c.writeMetadata(true) }

func (c serverCall) writeMetadata(replace bool) error {
	body, err := c.body("metadata", metadataSchema)
	if err != nil {
		return err
	}
	srv, err := c.edit(func(srv *compute.Server) error {
		m := mapOf(body)
		if !replace {
			m = maps.Clone(mapOrEmpty(srv.Metadata))
			maps.Copy(m, mapOf(body))
		}
		return setMetadata(srv, m)
	})
	if err != nil {
		return err
	}
	return c.metadata(srv)
}

func setMetadata(srv *compute.Server, m map[string]string) error {
	if len(m) > maxMetadata {
		return problem.Forbiddenf("Maximum number of metadata items exceeds %d", maxMetadata)
	}
	srv.Metadata = m
	return nil
}

func (c serverCall) getMetadata() error {
	srv, err := c.server()
	if err != nil {
		return err
	}
	key := c.Arg("key")
	value, ok := srv.Metadata[key]
	if !ok {
		return problem.NotFoundf("Metadata item was not found")
	}
	return c.json(http.StatusOK, jsonObject{"meta": jsonObject{key: value}})
}

func (c serverCall) setMetadata() error {
	body, err := c.body("meta", metadataSchema)
	if err != nil {
		return err
	}
	key := c.Arg("key")
	value, ok := body[key].(string)
	switch {
	case len(body) != 1:
		return problem.Invalidf("Request body contains too many items")
	case !ok:
		return problem.Invalidf("Request body and URI mismatch")
	}
	srv, err := c.edit(func(srv *compute.Server) error {
		m := maps.Clone(mapOrEmpty(srv.Metadata))
		m[key] = value
		return setMetadata(srv, m)
	})
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, jsonObject{"meta": jsonObject{key: srv.Metadata[key]}})
}

func (c serverCall) removeMetadata() error {
	key := c.Arg("key")
	_, err := c.edit(func(srv *compute.Server) error {
		if _, ok := srv.Metadata[key]; !ok {
			return problem.NotFoundf("Metadata item was not found")
		}
		srv.Metadata = maps.Clone(srv.Metadata)
		delete(srv.Metadata, key)
		return nil
	})
	if err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}

// maxTags is how many tags a server may have.
const maxTags = 50

var (
	tagSchema     = patternSchema(1, 60, `^[^,/]*$`)
	tagListSchema = uniqueItems(arraySchema(0, maxTags, tagSchema))
	tagsSchema    = objectSchema(schemaProperty{name: "tags", required: true, rule: tagListSchema})
)

func (c serverCall) listTags() error {
	srv, err := c.server()
	if err != nil {
		return err
	}
	return c.tags(srv)
}

func (c serverCall) tags(srv *compute.Server) error {
	return c.json(http.StatusOK, jsonObject{"tags": append([]string{}, srv.Tags...)})
}

func (c serverCall) replaceTags() error {
	body, err := c.body("", tagsSchema)
	if err != nil {
		return err
	}
	srv, err := c.edit(func(srv *compute.Server) error { srv.Tags = wordsOf(body["tags"]); return nil })
	if err != nil {
		return err
	}
	return c.tags(srv)
}

func (c serverCall) clearTags() error {
	if _, err := c.edit(func(srv *compute.Server) error { srv.Tags = nil; return nil }); err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}

func (c serverCall) getTag() error {
	srv, err := c.server()
	if err != nil {
		return err
	}
	if !slices.Contains(srv.Tags, c.Arg("tag")) {
		return noTag(srv.ID, c.Arg("tag"))
	}
	return c.Empty(http.StatusNoContent)
}

func noTag(id, tag string) error {
	return problem.NotFoundf("Server %s has no tag '%s'", id, truncateText(tag))
}

func (c serverCall) addTag() error {
	tag := c.Arg("tag")
	if err := tagSchema("tag", tag, c.Minor); err != nil {
		return err
	}
	added := false
	srv, err := c.edit(func(srv *compute.Server) error {
		added = !slices.Contains(srv.Tags, tag)
		if added && len(srv.Tags) >= maxTags {
			return problem.Invalidf("The number of tags exceeded the per-server limit %d", maxTags)
		}
		if added {
			srv.Tags = append(slices.Clone(srv.Tags), tag)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !added {
		return c.Empty(http.StatusNoContent)
	}
	c.W.Header().Set("Location", c.base+"/servers/"+srv.ID+"/tags/"+tag)
	return c.Empty(http.StatusCreated)
}

func (c serverCall) removeTag() error {
	tag := c.Arg("tag")
	_, err := c.edit(func(srv *compute.Server) error {
		if !slices.Contains(srv.Tags, tag) {
			return noTag(srv.ID, tag)
		}
		srv.Tags = slices.DeleteFunc(slices.Clone(srv.Tags), func(t string) bool { return t == tag })
		return nil
	})
	if err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}

// plainAddresses are a server's addresses by network, as /ips tells them.
func (c serverCall) plainAddresses() (jsonObject, error) {
	srv, err := c.server()
	if err != nil {
		return nil, err
	}
	dir, err := c.s.names.get(c.R.Context())
	if err != nil {
		return nil, err
	}
	out := addressesOf(&serverView{Server: srv, c: c.novaCall, dir: dir})
	for _, l := range out {
		for _, a := range l.([]any) {
			delete(a.(jsonObject), "OS-EXT-IPS:type")
			delete(a.(jsonObject), "OS-EXT-IPS-MAC:mac_addr")
		}
	}
	return out, nil
}

func (c serverCall) listAddresses() error {
	all, err := c.plainAddresses()
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, jsonObject{"addresses": all})
}

func (c serverCall) getAddresses() error {
	all, err := c.plainAddresses()
	if err != nil {
		return err
	}
	name := c.Arg("network")
	if _, ok := all[name]; !ok {
		return problem.NotFoundf("Instance is not a member of specified network")
	}
	return c.json(http.StatusOK, jsonObject{name: all[name]})
}

func interfaceOf(nic *compute.NIC) jsonObject {
	fixed := []jsonObject{}
	for _, a := range nic.Addresses {
		fixed = append(fixed, jsonObject{"ip_address": a, "subnet_id": nic.NetworkID})
	}
	return jsonObject{"port_id": nic.ID, "net_id": nic.NetworkID, "mac_addr": nic.MAC, "port_state": "ACTIVE", "fixed_ips": fixed}
}

func (c serverCall) listInterfaces() error {
	srv, err := c.server()
	if err != nil {
		return err
	}
	out := []jsonObject{}
	for i := range srv.NICs {
		o := interfaceOf(&srv.NICs[i])
		if c.Minor >= 70 {
			o["tag"] = nil
		}
		out = append(out, o)
	}
	return c.json(http.StatusOK, jsonObject{"interfaceAttachments": out})
}

func (c serverCall) getInterface() error {
	srv, err := c.server()
	if err != nil {
		return err
	}
	for i := range srv.NICs {
		if srv.NICs[i].ID == c.Arg("port") {
			return c.json(http.StatusOK, jsonObject{"interfaceAttachment": interfaceOf(&srv.NICs[i])})
		}
	}
	return problem.NotFoundf("Port %s is not attached to instance %s", truncateText(c.Arg("port")), srv.ID)
}

func (c serverCall) listSecurityGroups() error {
	srv, err := c.server()
	if err != nil {
		return err
	}
	out := []jsonObject{}
	for _, g := range srv.SecurityGroups {
		out = append(out, jsonObject{"id": g, "name": g, "description": "", "tenant_id": srv.Project, "rules": []any{}})
	}
	return c.json(http.StatusOK, jsonObject{"security_groups": out})
}

// diagnose refuses: what a hypervisor measures is not brought here.
func (c serverCall) diagnose() error {
	if _, err := c.server(); err != nil {
		return err
	}
	return notImplemented("Unable to get diagnostics, functionality not implemented")
}
