package nova

import (
	"maps"
	"net/http"
	"slices"

	"salvor/compute"
	"salvor/problem"
)

// serverRoutes are of servers and what each has for itself.
func (s *server) serverRoutes() []route {
	return []route{
		{method: "GET", path: "/servers", need: reader, do: (*call).listServers},
		{method: "POST", path: "/servers", need: member, do: (*call).createServers},
		{method: "GET", path: "/servers/detail", need: reader, do: (*call).detailServers},
		{method: "GET", path: "/servers/{server}", need: reader, do: (*call).getServer},
		{method: "PUT", path: "/servers/{server}", need: member, do: (*call).updateServer},
		{method: "DELETE", path: "/servers/{server}", need: member, do: (*call).deleteServer},
		{method: "POST", path: "/servers/{server}/action", need: member, do: (*call).act},
		{method: "GET", path: "/servers/{server}/metadata", need: reader, do: (*call).listMetadata},
		{method: "POST", path: "/servers/{server}/metadata", need: member, do: (*call).addMetadata},
		{method: "PUT", path: "/servers/{server}/metadata", need: member, do: (*call).replaceMetadata},
		{method: "GET", path: "/servers/{server}/metadata/{key}", need: reader, do: (*call).getMetadata},
		{method: "PUT", path: "/servers/{server}/metadata/{key}", need: member, do: (*call).setMetadata},
		{method: "DELETE", path: "/servers/{server}/metadata/{key}", need: member, do: (*call).removeMetadata},
		{method: "GET", path: "/servers/{server}/tags", need: reader, since: 26, do: (*call).listTags},
		{method: "PUT", path: "/servers/{server}/tags", need: member, since: 26, do: (*call).replaceTags},
		{method: "DELETE", path: "/servers/{server}/tags", need: member, since: 26, do: (*call).clearTags},
		{method: "GET", path: "/servers/{server}/tags/{tag}", need: reader, since: 26, do: (*call).getTag},
		{method: "PUT", path: "/servers/{server}/tags/{tag}", need: member, since: 26, do: (*call).addTag},
		{method: "DELETE", path: "/servers/{server}/tags/{tag}", need: member, since: 26, do: (*call).removeTag},
		{method: "GET", path: "/servers/{server}/ips", need: reader, do: (*call).listAddresses},
		{method: "GET", path: "/servers/{server}/ips/{network}", need: reader, do: (*call).getAddresses},
		{method: "GET", path: "/servers/{server}/os-interface", need: reader, do: (*call).listInterfaces},
		{method: "GET", path: "/servers/{server}/os-interface/{port}", need: reader, do: (*call).getInterface},
		{method: "GET", path: "/servers/{server}/os-security-groups", need: reader, do: (*call).listSecurityGroups},
		{method: "GET", path: "/servers/{server}/os-instance-actions", need: reader, do: (*call).listInstanceActions},
		{method: "GET", path: "/servers/{server}/os-instance-actions/{request}", need: reader, do: (*call).getInstanceAction},
		{method: "GET", path: "/servers/{server}/diagnostics", need: admin, do: (*call).diagnose},
	}
}

var updateSchema = objectSchema(
	prop{name: "name", rule: named},
	prop{name: "OS-DCF:diskConfig", rule: oneOf("AUTO", "MANUAL")},
	prop{name: "accessIPv4", rule: nothingKept}, prop{name: "accessIPv6", rule: nothingKept},
	prop{name: "description", since: 19, rule: nullable(text(0, 255))},
)

// nothingKept refuses what no server has a place for.
func nothingKept(at string, v any, _ int) error {
	if v == nil || v == "" {
		return nil
	}
	return bad(at, v, "Addresses beside those of the server's networks are not kept")
}

func (c *call) updateServer() error {
	body, err := c.body("server", updateSchema)
	if err != nil {
		return err
	}
	srv, err := c.edit(func(srv *compute.Server) error {
		if name, ok := body["name"].(string); ok {
			srv.Name = name
		}
		if _, ok := body["description"]; ok {
			srv.Description = field(body, "description")
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.showServer(http.StatusOK, srv, true, nil)
}

// edit changes what users may write of the server that the path names.
func (c *call) edit(change func(*compute.Server) error) (*compute.Server, error) {
	srv, err := c.server()
	if err != nil {
		return nil, err
	}
	return c.s.Services.Servers.Update(c.R.Context(), srv.ID, c.who, change)
}

func (c *call) deleteServer() error {
	srv, err := c.server()
	if err != nil {
		return err
	}
	if _, err := c.s.Services.Servers.Act(c.R.Context(), srv.ID, compute.Act{Action: compute.Delete}, c.who); err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}

var metadataSchema = texts(255)

func (c *call) listMetadata() error {
	srv, err := c.server()
	if err != nil {
		return err
	}
	return c.metadata(srv)
}

func (c *call) metadata(srv *compute.Server) error {
	return c.json(http.StatusOK, object{"metadata": mapOrEmpty(srv.Metadata)})
}

func mapOrEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func (c *call) addMetadata() error     { return c.writeMetadata(false) }
func (c *call) replaceMetadata() error { return c.writeMetadata(true) }

func (c *call) writeMetadata(replace bool) error {
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

func (c *call) getMetadata() error {
	srv, err := c.server()
	if err != nil {
		return err
	}
	key := c.Arg("key")
	value, ok := srv.Metadata[key]
	if !ok {
		return problem.NotFoundf("Metadata item was not found")
	}
	return c.json(http.StatusOK, object{"meta": object{key: value}})
}

func (c *call) setMetadata() error {
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
	return c.json(http.StatusOK, object{"meta": object{key: srv.Metadata[key]}})
}

func (c *call) removeMetadata() error {
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
	tagRule    = like(1, 60, `^[^,/]*$`)
	tagsRule   = unique(list(0, maxTags, tagRule))
	tagsSchema = objectSchema(prop{name: "tags", required: true, rule: tagsRule})
)

func (c *call) listTags() error {
	srv, err := c.server()
	if err != nil {
		return err
	}
	return c.tags(srv)
}

func (c *call) tags(srv *compute.Server) error {
	return c.json(http.StatusOK, object{"tags": append([]string{}, srv.Tags...)})
}

func (c *call) replaceTags() error {
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

func (c *call) clearTags() error {
	if _, err := c.edit(func(srv *compute.Server) error { srv.Tags = nil; return nil }); err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}

func (c *call) getTag() error {
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
	return problem.NotFoundf("Server %s has no tag '%s'", id, shorten(tag))
}

func (c *call) addTag() error {
	tag := c.Arg("tag")
	if err := tagRule("tag", tag, c.Minor); err != nil {
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

func (c *call) removeTag() error {
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
func (c *call) plainAddresses() (object, error) {
	srv, err := c.server()
	if err != nil {
		return nil, err
	}
	dir, err := c.s.names.get(c.R.Context())
	if err != nil {
		return nil, err
	}
	out := addressesOf(&serverView{Server: srv, c: c, dir: dir})
	for _, l := range out {
		for _, a := range l.([]any) {
			delete(a.(object), "OS-EXT-IPS:type")
			delete(a.(object), "OS-EXT-IPS-MAC:mac_addr")
		}
	}
	return out, nil
}

func (c *call) listAddresses() error {
	all, err := c.plainAddresses()
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, object{"addresses": all})
}

func (c *call) getAddresses() error {
	all, err := c.plainAddresses()
	if err != nil {
		return err
	}
	name := c.Arg("network")
	if _, ok := all[name]; !ok {
		return problem.NotFoundf("Instance is not a member of specified network")
	}
	return c.json(http.StatusOK, object{name: all[name]})
}

func interfaceOf(nic *compute.NIC) object {
	fixed := []object{}
	for _, a := range nic.Addresses {
		fixed = append(fixed, object{"ip_address": a, "subnet_id": nic.NetworkID})
	}
	return object{"port_id": nic.ID, "net_id": nic.NetworkID, "mac_addr": nic.MAC, "port_state": "ACTIVE", "fixed_ips": fixed}
}

func (c *call) listInterfaces() error {
	srv, err := c.server()
	if err != nil {
		return err
	}
	out := []object{}
	for i := range srv.NICs {
		o := interfaceOf(&srv.NICs[i])
		if c.Minor >= 70 {
			o["tag"] = nil
		}
		out = append(out, o)
	}
	return c.json(http.StatusOK, object{"interfaceAttachments": out})
}

func (c *call) getInterface() error {
	srv, err := c.server()
	if err != nil {
		return err
	}
	for i := range srv.NICs {
		if srv.NICs[i].ID == c.Arg("port") {
			return c.json(http.StatusOK, object{"interfaceAttachment": interfaceOf(&srv.NICs[i])})
		}
	}
	return problem.NotFoundf("Port %s is not attached to instance %s", shorten(c.Arg("port")), srv.ID)
}

func (c *call) listSecurityGroups() error {
	srv, err := c.server()
	if err != nil {
		return err
	}
	out := []object{}
	for _, g := range srv.SecurityGroups {
		out = append(out, object{"id": g, "name": g, "description": "", "tenant_id": srv.Project, "rules": []any{}})
	}
	return c.json(http.StatusOK, object{"security_groups": out})
}

// diagnose refuses: what a hypervisor measures is not brought here.
func (c *call) diagnose() error {
	if _, err := c.server(); err != nil {
		return err
	}
	return notImplemented("Unable to get diagnostics, functionality not implemented")
}
