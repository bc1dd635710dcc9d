package ironic

import (
	"regexp"
	"slices"
	"strings"

	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// ports are the NICs of nodes.
var ports = defineKind(recordKind[metal.Port, metal.PortFilter]{
	name: "port", path: "ports", list: "ports", since: 1, detail: 43, detailPath: true, namedSince: 88,
	service: func(s *server) *metal.Ports { return s.Ports },
	blank:   func(*ironicCall) *metal.Port { return &metal.Port{PXEEnabled: true} },
	nodeOf:  func(p *metal.Port) string { return p.NodeID },
	fields: slices.Concat([]recordField[metal.Port]{
		idField[metal.Port](),
		requireField(wordField("address", 1, settable|ordered, 64, func(p *metal.Port) *string { return &p.Address })),
		wordField("name", 88, settable|ordered, 255, func(p *metal.Port) *string { return &p.Name }),
		wordField("description", 97, settable|ordered, 255, func(p *metal.Port) *string { return &p.Description }),
		nodeRef(settable|ordered, func(p *metal.Port) *string { return &p.NodeID }),
		{name: "node_ident", since: 94, use: creatable, set: setPortNode},
		freeField("extra", 1, settable, func(p *metal.Port) *metal.Object { return &p.Extra }),
		{name: "internal_info", since: 18, write: func(b []byte, p *metal.Port, _ *ironicCall) []byte { return appendMasked(b, p.InternalInfo) }},
		{
			name: "local_link_connection", since: 19, use: settable, set: setLocalLink,
			get:   func(p *metal.Port) any { return orEmpty(p.LocalLink) },
			write: func(b []byte, p *metal.Port, _ *ironicCall) []byte { return appendObject(b, p.LocalLink) },
		},
		flagField("pxe_enabled", 19, settable|ordered, true, func(p *metal.Port) *bool { return &p.PXEEnabled }),
		{
			name: "portgroup_uuid", since: 24, use: settable | ordered, set: setPortgroup,
			get:   func(p *metal.Port) any { return orNil(p.PortgroupID) },
			write: func(b []byte, p *metal.Port, _ *ironicCall) []byte { return appendText(b, p.PortgroupID) },
		},
		fixedInGroup(rejectEmpty(wordField("physical_network", 34, settable|ordered, 64, func(p *metal.Port) *string { return &p.PhysicalNetwork }))),
		flagField("is_smartnic", 53, settable|ordered, false, func(p *metal.Port) *bool { return &p.IsSmartNIC }),
		wordField("vendor", 100, settable|ordered, 32, func(p *metal.Port) *string { return &p.Vendor }),
		wordField("category", 101, settable|ordered, 80, func(p *metal.Port) *string { return &p.Category }),
		{
			name: "available_for_dynamic_portgroup", since: 111, use: settable,
			get:   func(p *metal.Port) any { return !p.NeverDynamic },
			write: func(b []byte, p *metal.Port, _ *ironicCall) []byte { return appendBool(b, !p.NeverDynamic) },
			set: func(_ *ironicCall, p *metal.Port, v any) error {
				if p.NeverDynamic = false; v == nil {
					return nil
				}
				free, err := wantBool("available_for_dynamic_portgroup", v)
				p.NeverDynamic = !free
				return err
			},
		},
	}, lateFields[metal.Port]("ports")),
	brief: []string{"uuid", "address"},
	filters: []queryFilter[metal.PortFilter]{
		nodeFilterOf("node", 6, func(f *metal.PortFilter) *string { return &f.NodeID }),
		{name: "node_uuid", since: 1, set: func(c *ironicCall, f *metal.PortFilter, id string) error {
			if !record.IsUUID(id) {
				return problem.Invalidf("Expected a UUID but received %s.", truncateInput(id))
			}
			n, err := c.nodeNamed(id)
			if err == nil {
				f.NodeID = n.ID
			}
			return err
		}},
		macFilter(1, func(f *metal.PortFilter) *string { return &f.Address }),
		{name: "portgroup", since: 24, set: func(c *ironicCall, f *metal.PortFilter, ident string) error {
			g, err := c.s.Portgroups.Get(c.R.Context(), ident)
			if err == nil {
				f.PortgroupID = g.ID
				_, err = c.nodeNamed(g.NodeID)
			}
			if problem.Is(err, problem.NotFound) {
				return problem.NotFoundf("Portgroup %s could not be found.", truncateInput(ident))
			}
			return err
		}},
		wordsFilter("shard", 82, func(f *metal.PortFilter) *[]string { return &f.Shards }),
		wordFilter("description_contains", 97, func(f *metal.PortFilter) *string { return &f.DescriptionContains }),
		groupFilter(func(f *metal.PortFilter) *[]string { return &f.ConductorGroups }),
	},
})

// groupNetworkVersion is the first one in which a portgroup has the physical network of its ports.
const groupNetworkVersion metal.Version = 102

// fixedInGroup refuses to patch what a port has of its portgroup. It stands after portgroup_uuid, so the port is in the new one already.
func fixedInGroup(f recordField[metal.Port]) recordField[metal.Port] {
	set := f.set
	f.set = func(c *ironicCall, p *metal.Port, v any) error {
		if c.version >= groupNetworkVersion && p.PortgroupID != "" && !p.CreatedAt.IsZero() && v != orNil(p.PhysicalNetwork) {
			return problem.Invalidf("%s cannot be changed while the port belongs to a portgroup; set it on the portgroup.", f.name)
		}
		return set(c, p, v)
	}
	return f
}

// macFilter narrows by a MAC in any usual form.
func macFilter[F any](since metal.Version, at func(*F) *string) queryFilter[F] {
	return queryFilter[F]{name: "address", since: since, set: func(_ *ironicCall, f *F, word string) (err error) {
		*at(f), err = metal.ParseMAC(word)
		return err
	}}
}

// setPortNode is the node by name or UUID instead of node_uuid.
func setPortNode(c *ironicCall, p *metal.Port, v any) error {
	ident, err := wantText("node_ident", v)
	if err != nil {
		return err
	}
	if p.NodeID != "" {
		return problem.Invalidf("node_uuid and node_ident exclude each other.")
	}
	n, err := c.s.Nodes.Node(c.R.Context(), ident)
	if problem.Is(err, problem.NotFound) {
		return problem.Invalidf("Invalid input for field/attribute node_ident. Value: '%s'. Node %s could not be found.", truncateInput(ident), truncateInput(ident))
	}
	if err == nil {
		p.NodeID = n.ID
	}
	return err
}

func setPortgroup(_ *ironicCall, p *metal.Port, v any) error {
	word, err := wantText("portgroup_uuid", v)
	if err == nil && word != "" && !record.IsUUID(word) {
		err = problem.Invalidf("Invalid input for field/attribute portgroup_uuid. Value: '%s'. Expected a UUID but received %s.", truncateInput(word), truncateInput(word))
	}
	p.PortgroupID = strings.ToLower(word)
	return err
}

// linkKeys are what may be said of a port's other end, with the versions that know them:
// the keys of OVN's VTEP switches came and went.
var linkKeys = map[string]struct{ since, until metal.Version }{
	"switch_id": {since: 19}, "port_id": {since: 19}, "switch_info": {since: 19}, "hostname": {since: 19}, "network_type": {since: 64},
	"vtep-logical-switch": {since: 90, until: 105}, "vtep-physical-switch": {since: 90, until: 105},
}

var switchID = regexp.MustCompile(`^([0-9A-Fa-f]{2}([:-]?)){5}[0-9A-Fa-f]{2}$|^[0-9A-Fa-f]{16}$`)

// setLocalLink takes the known keys. Ironic wants switch_id and port_id together; here
// port_id alone is enough, for a Linux bridge has no switch id. Keys that are stored
// already are taken back in every version, else no older client could patch another one.
func setLocalLink(c *ironicCall, p *metal.Port, v any) error {
	o, err := wantObject("local_link_connection", v)
	if err != nil {
		return err
	}
	for k, e := range o {
		word, ok := e.(string)
		key, known := linkKeys[k]
		switch {
		case !known:
			return problem.Invalidf("local_link_connection: unexpected key %q", truncateInput(k))
		case p.LocalLink[k] == e && e != nil:
		case c.version < key.since:
			return newerField("local_link_connection/"+k, key.since)
		case key.until != 0 && c.version >= key.until:
			return problem.Invalidf("local_link_connection: %s is not known from API version %s on", k, versionText(key.until))
		case !ok || len(word) > maxIdent:
			return problem.Invalidf("local_link_connection: %s must be a string of at most %d bytes", k, maxIdent)
		case k == "switch_id" && word != "" && !switchID.MatchString(word):
			return problem.Invalidf("local_link_connection: switch_id must be a MAC address or an OpenFlow datapath id")
		}
	}
	if len(o) > 0 && o["port_id"] == nil && o["network_type"] != "unmanaged" {
		return problem.Invalidf("local_link_connection: port_id is required, unless network_type is unmanaged")
	}
	p.LocalLink = o
	return nil
}
