package ironic

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"salvor/metal"
	"salvor/problem"
)

// portField is one field of a port: its first version and how it is written.
type portField struct {
	name  string
	since metal.Version
	write func([]byte, *metal.Port, *call) []byte
}

// portFields are all fields up to 1.82 (a port's name came with 1.88), in the order of answers.
var portFields = []portField{
	{"uuid", 1, func(b []byte, p *metal.Port, _ *call) []byte { return appendString(b, p.ID) }},
	{"address", 1, func(b []byte, p *metal.Port, _ *call) []byte { return appendString(b, p.Address) }},
	{"node_uuid", 1, func(b []byte, p *metal.Port, _ *call) []byte { return appendText(b, p.NodeID) }},
	{"extra", 1, func(b []byte, p *metal.Port, _ *call) []byte { return appendObject(b, p.Extra) }},
	{"internal_info", 18, func(b []byte, p *metal.Port, _ *call) []byte { return appendMasked(b, p.InternalInfo) }},
	{"local_link_connection", 19, func(b []byte, p *metal.Port, _ *call) []byte { return appendObject(b, p.LocalLink) }},
	{"pxe_enabled", 19, func(b []byte, p *metal.Port, _ *call) []byte { return appendBool(b, p.PXEEnabled) }},
	{"portgroup_uuid", 24, func(b []byte, p *metal.Port, _ *call) []byte { return appendText(b, p.PortgroupID) }},
	{"physical_network", 34, func(b []byte, p *metal.Port, _ *call) []byte { return appendText(b, p.PhysicalNetwork) }},
	{"is_smartnic", 53, func(b []byte, p *metal.Port, _ *call) []byte { return appendBool(b, p.IsSmartNIC) }},
	{"created_at", 1, func(b []byte, p *metal.Port, _ *call) []byte { return appendTime(b, p.CreatedAt) }},
	{"updated_at", 1, func(b []byte, p *metal.Port, _ *call) []byte { return appendTime(b, p.UpdatedAt) }},
	{"links", 1, func(b []byte, p *metal.Port, c *call) []byte { return appendLinks(b, c.host, "ports/"+p.ID, "") }},
}

// portSortKeys are the fields that ports can be sorted by.
var portSortKeys = map[string]metal.Version{
	"uuid": 1, "address": 1, "node_uuid": 1, "created_at": 1, "updated_at": 1, "pxe_enabled": 19, "portgroup_uuid": 24, "physical_network": 34, "is_smartnic": 53,
}

// choosePortFields decides what an answer shows, as chooseNodeFields does.
func (c *call) choosePortFields(brief bool) ([]portField, error) {
	names, err := c.fieldNames()
	if err != nil {
		return nil, err
	}
	detail, err := c.detail(names)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		i := slices.IndexFunc(portFields, func(f portField) bool { return f.name == name })
		if i < 0 {
			return nil, unknownField(name)
		}
		if portFields[i].since > c.version {
			return nil, newerField(name, portFields[i].since)
		}
	}
	if names == nil && brief && !detail {
		names = []string{"uuid", "address"}
	}
	var fields []portField
	for _, f := range portFields {
		if f.since <= c.version && (names == nil || f.name == "links" || slices.Contains(names, f.name)) {
			fields = append(fields, f)
		}
	}
	return fields, nil
}

func (c *call) appendPort(b []byte, p *metal.Port, fields []portField) []byte {
	b = append(b, '{')
	for i := range fields {
		b = fields[i].write(appendKey(b, fields[i].name), p, c)
	}
	return append(b, '}')
}

func (s *server) listPorts(c *call) error { return c.listPorts("ports", metal.PortFilter{}, true) }
func (s *server) listPortsDetail(c *call) error {
	return c.listPorts("ports/detail", metal.PortFilter{}, false)
}

func (s *server) listNodePorts(c *call) error       { return c.listPortsOf("ports", true) }
func (s *server) listNodePortsDetail(c *call) error { return c.listPortsOf("ports/detail", false) }

func (c *call) listPortsOf(below string, brief bool) error {
	n, err := c.s.Nodes.Node(c.r.Context(), c.args[0])
	if err != nil {
		return err
	}
	return c.listPorts("nodes/"+n.ID+"/"+below, metal.PortFilter{NodeID: n.ID}, brief)
}

func (c *call) listPorts(path string, f metal.PortFilter, brief bool) error {
	known := pageArgs
	if f.NodeID == "" {
		known = append(slices.Clone(pageArgs), "node", "node_uuid", "address", "portgroup")
	}
	if err := c.only(known...); err != nil {
		return err
	}
	fields, err := c.choosePortFields(brief)
	if err != nil {
		return err
	}
	if err := c.portFilter(&f); err != nil {
		return err
	}
	p, err := c.page(portSortKeys)
	if err != nil {
		return err
	}
	ports, err := c.s.Ports.List(c.r.Context(), f, p)
	if err != nil {
		return err
	}
	b := append(make([]byte, 0, 256+len(ports)*600), `{"ports":[`...)
	for i, port := range ports {
		if i > 0 {
			b = append(b, ',')
		}
		b = c.appendPort(b, port, fields)
	}
	b = append(b, ']')
	if len(ports) > 0 {
		if next := c.next(path, p, len(ports), ports[len(ports)-1].ID); next != "" {
			b = appendString(append(b, `,"next":`...), next)
		}
	}
	return c.raw(http.StatusOK, append(b, '}'))
}

// portFilter reads the filters of the list.
func (c *call) portFilter(f *metal.PortFilter) error {
	ident := c.query.Get("node")
	if ident != "" && c.version < 6 {
		return newerField("node", 6)
	}
	if id := c.query.Get("node_uuid"); id != "" {
		if !metal.IsUUID(id) {
			return problem.Invalidf("Expected a UUID but received %s.", shorten(id))
		}
		ident = id
	}
	if ident != "" {
		n, err := c.s.Nodes.Node(c.r.Context(), ident)
		if err != nil {
			return err
		}
		f.NodeID = n.ID
	}
	if c.has("address") {
		mac, err := metal.ParseMAC(c.query.Get("address"))
		if err != nil {
			return err
		}
		f.Address = mac
	}
	if c.has("portgroup") {
		if c.version < 24 {
			return newerField("portgroup", 24)
		}
		return problem.NotFoundf("Portgroup %s could not be found.", shorten(c.query.Get("portgroup")))
	}
	return nil
}

func (c *call) showPort(status int, p *metal.Port, fields []portField) error {
	return c.raw(status, c.appendPort(make([]byte, 0, 1024), p, fields))
}

func (s *server) getPort(c *call) error {
	if err := c.only("fields"); err != nil {
		return err
	}
	fields, err := c.choosePortFields(false)
	if err != nil {
		return err
	}
	p, err := s.Ports.Port(c.r.Context(), c.args[0])
	if err != nil {
		return err
	}
	return c.showPort(http.StatusOK, p, fields)
}

func (s *server) createPort(c *call) error {
	if err := c.only(); err != nil {
		return err
	}
	body, err := c.object()
	if err != nil {
		return err
	}
	p := &metal.Port{PXEEnabled: true}
	if err := c.fillPort(p, body); err != nil {
		return err
	}
	if err := s.Ports.Create(c.r.Context(), p, c.who); err != nil {
		return err
	}
	stored, err := s.Ports.Port(c.r.Context(), p.ID)
	if err != nil {
		return err
	}
	c.location("ports/" + stored.ID)
	c.query = nil
	fields, err := c.choosePortFields(false)
	if err != nil {
		return err
	}
	return c.showPort(http.StatusCreated, stored, fields)
}

// portAttr is what clients may set of a port.
type portAttr struct {
	name  string
	since metal.Version
	get   func(*metal.Port) any
	set   func(*metal.Port, any) error
}

var portAttrs = []portAttr{
	{"address", 1, func(p *metal.Port) any { return orNil(p.Address) }, func(p *metal.Port, v any) (err error) {
		if p.Address, err = wantText("address", v); err == nil && p.Address == "" {
			err = problem.Invalidf("Missing mandatory field: address")
		}
		return err
	}},
	{"extra", 1, func(p *metal.Port) any { return orEmpty(p.Extra) }, func(p *metal.Port, v any) (err error) {
		p.Extra, err = wantObject("extra", v)
		return err
	}},
	{"is_smartnic", 53, func(p *metal.Port) any { return p.IsSmartNIC }, func(p *metal.Port, v any) (err error) {
		p.IsSmartNIC, err = wantBool("is_smartnic", v)
		return err
	}},
	{"local_link_connection", 19, func(p *metal.Port) any { return orEmpty(p.LocalLink) }, setLocalLink},
	{"node_uuid", 1, func(p *metal.Port) any { return orNil(p.NodeID) }, func(p *metal.Port, v any) error {
		word, err := wantText("node_uuid", v)
		if err == nil && !metal.IsUUID(word) {
			err = problem.Invalidf("Invalid input for field/attribute node_uuid. Value: '%s'. Expected a UUID but received %s.", shorten(word), shorten(word))
		}
		p.NodeID = strings.ToLower(word)
		return err
	}},
	{"physical_network", 34, func(p *metal.Port) any { return orNil(p.PhysicalNetwork) }, func(p *metal.Port, v any) (err error) {
		if p.PhysicalNetwork, err = wantText("physical_network", v); len(p.PhysicalNetwork) > 64 {
			err = problem.Invalidf("physical_network is longer than 64 characters")
		}
		return err
	}},
	{"portgroup_uuid", 24, func(p *metal.Port) any { return orNil(p.PortgroupID) }, func(_ *metal.Port, v any) error {
		word, err := wantText("portgroup_uuid", v)
		if err == nil && word != "" { // /v1/portgroups is not served, so none can exist
			err = problem.Invalidf("Invalid input for field/attribute portgroup_uuid. Value: '%s'. Portgroup %s could not be found.", shorten(word), shorten(word))
		}
		return err
	}},
	{"pxe_enabled", 19, func(p *metal.Port) any { return p.PXEEnabled }, func(p *metal.Port, v any) (err error) {
		if p.PXEEnabled = true; v != nil {
			p.PXEEnabled, err = wantBool("pxe_enabled", v)
		}
		return err
	}},
}

var newerPortAttrs = map[string]metal.Version{"name": 88, "description": 97, "vendor": 100, "category": 101}

var portPatchPaths = func() map[string]metal.Version {
	m := map[string]metal.Version{}
	for _, a := range portAttrs {
		m[a.name] = a.since
	}
	for name, since := range newerPortAttrs {
		m[name] = since
	}
	return m
}()

func (c *call) fillPort(p *metal.Port, body map[string]any) error {
	for name := range body {
		since, ok := portPatchPaths[name]
		switch {
		case name == "uuid":
		case !ok:
			return problem.Invalidf("Schema error for port: Additional properties are not allowed ('%s' was unexpected)", shorten(name))
		case since > c.version:
			return newerField(name, since)
		}
	}
	id, err := wantText("uuid", body["uuid"])
	if err != nil {
		return err
	}
	p.ID = strings.ToLower(id)
	for i := range portAttrs {
		a := &portAttrs[i]
		v, ok := body[a.name]
		if !ok && a.name != "address" && a.name != "node_uuid" {
			continue
		}
		if err := a.set(p, v); err != nil {
			return err
		}
	}
	return nil
}

// linkKeys are what may be said of a port's other end, as Ironic lists them.
var linkKeys = []string{"switch_id", "port_id", "switch_info", "network_type", "hostname", "vtep-logical-switch", "vtep-physical-switch"}

var switchID = regexp.MustCompile(`^([0-9A-Fa-f]{2}([:-]?)){5}[0-9A-Fa-f]{2}$|^[0-9A-Fa-f]{16}$`)

// setLocalLink takes the known keys. Ironic wants switch_id and port_id together; here
// port_id alone is enough, for a Linux bridge has no switch id.
func setLocalLink(p *metal.Port, v any) error {
	o, err := wantObject("local_link_connection", v)
	if err != nil {
		return err
	}
	for k, e := range o {
		word, ok := e.(string)
		switch {
		case !slices.Contains(linkKeys, k):
			return problem.Invalidf("local_link_connection: unexpected key %q; known are %s", shorten(k), strings.Join(linkKeys, ", "))
		case !ok || len(word) > maxIdent:
			return problem.Invalidf("local_link_connection: %s must be a string of at most %d bytes", k, maxIdent)
		case k == "switch_id" && word != "" && !switchID.MatchString(word):
			return problem.Invalidf("local_link_connection: switch_id must be a MAC address or an OpenFlow datapath id")
		}
	}
	p.LocalLink = o
	return nil
}

func (s *server) patchPort(c *call) error {
	if err := c.only(); err != nil {
		return err
	}
	ops, err := c.patchOps()
	if err != nil {
		return err
	}
	if err := c.checkPaths(ops, portPatchPaths); err != nil {
		return err
	}
	p, err := s.Ports.Update(c.r.Context(), c.args[0], c.who, func(p *metal.Port) error { return patchPort(p, ops) })
	if err != nil {
		return err
	}
	fields, err := c.choosePortFields(false)
	if err != nil {
		return err
	}
	return c.showPort(http.StatusOK, p, fields)
}

func patchPort(p *metal.Port, ops []patchOp) error {
	values, err := applyPatch(ops, func(name string) any {
		i := slices.IndexFunc(portAttrs, func(a portAttr) bool { return a.name == name })
		return portAttrs[i].get(p)
	})
	if err != nil {
		return err
	}
	for _, a := range portAttrs {
		if v, ok := values[a.name]; ok {
			if err := a.set(p, v); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *server) deletePort(c *call) error {
	if err := c.only(); err != nil {
		return err
	}
	if err := s.Ports.Remove(c.r.Context(), c.args[0], c.who); err != nil {
		return err
	}
	return c.empty(http.StatusNoContent)
}
