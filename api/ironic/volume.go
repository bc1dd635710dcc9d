package ironic

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"

	"salvor/access"
	"salvor/metal"
	"salvor/problem"
	"salvor/wire/ironic"
)

// volumeVersion is the first version with volumes. Older ones see a 404 as for every
// endpoint that they do not know, as Ironic answers; the specification of volume
// connectors and targets asks for 406 here.
const volumeVersion metal.Version = 32

// connectors are the initiators' sides of volumes. The list is named as it is on the
// wire; the specification's volume_connectors never was.
var connectors = defineKind(recordKind[metal.Connector, metal.ConnectorFilter]{
	name: "volume connector", path: "volume/connectors", list: "connectors", since: volumeVersion, detail: volumeVersion, detailPath: true, noNames: true,
	service:  func(s *server) *metal.Connectors { return s.Connectors },
	blank:    func(*ironicCall) *metal.Connector { return &metal.Connector{} },
	nodeOf:   func(v *metal.Connector) string { return v.NodeID },
	byLessee: func(v *metal.Connector) *string { return &v.Lessee },
	removable: func(c *ironicCall, v *metal.Connector) error {
		return c.poweredOff("volume connector deletion", v.NodeID)
	},
	fields: slices.Concat([]recordField[metal.Connector]{
		idField[metal.Connector](),
		requireField(nodeRef(settable|ordered, func(v *metal.Connector) *string { return &v.NodeID })),
		requireField(wordField("type", volumeVersion, settable|ordered, 32, func(v *metal.Connector) *string { return &v.Type })),
		requireField(wordField("connector_id", volumeVersion, settable|ordered, 255, func(v *metal.Connector) *string { return &v.ConnectorID })),
		freeField("extra", volumeVersion, settable, func(v *metal.Connector) *metal.Object { return &v.Extra }),
	}, lateFields[metal.Connector]("volume/connectors")),
	brief: []string{"uuid", "node_uuid", "type", "connector_id"},
	filters: []queryFilter[metal.ConnectorFilter]{
		nodeFilterOf("node", volumeVersion, func(f *metal.ConnectorFilter) *string { return &f.NodeID }),
		wordFilter("type", volumeVersion, func(f *metal.ConnectorFilter) *string { return &f.Type }),
		wordFilter("connector_id", volumeVersion, func(f *metal.ConnectorFilter) *string { return &f.ConnectorID }),
	},
})

// targets are the disks' sides of volumes.
var targets = defineKind(recordKind[metal.Target, metal.TargetFilter]{
	name: "volume target", path: "volume/targets", list: "targets", since: volumeVersion, detail: volumeVersion, detailPath: true, noNames: true, hides: wholeTarget, patched: targetMoved,
	service:   func(s *server) *metal.Targets { return s.Targets },
	blank:     func(*ironicCall) *metal.Target { return &metal.Target{} },
	nodeOf:    func(v *metal.Target) string { return v.NodeID },
	byLessee:  func(v *metal.Target) *string { return &v.Lessee },
	shared:    true,
	removable: func(c *ironicCall, v *metal.Target) error { return c.poweredOff("volume target deletion", v.NodeID) },
	fields: slices.Concat([]recordField[metal.Target]{
		idField[metal.Target](),
		requireField(nodeRef(settable|ordered, func(v *metal.Target) *string { return &v.NodeID })),
		requireField(wordField("volume_type", volumeVersion, settable|ordered, 64, func(v *metal.Target) *string { return &v.VolumeType })),
		requireField(numberField("boot_index", volumeVersion, settable|ordered, -1<<31, 1<<31-1, func(v *metal.Target) *int { return &v.BootIndex })),
		requireField(wordField("volume_id", volumeVersion, settable|ordered, 36, func(v *metal.Target) *string { return &v.VolumeID })),
		forSome(secretField("properties", volumeVersion, settable, metal.VolumeSecret, func(v *metal.Target) *metal.Object { return &v.Properties })),
		freeField("extra", volumeVersion, settable, func(v *metal.Target) *metal.Object { return &v.Extra }),
	}, lateFields[metal.Target]("volume/targets")),
	brief: []string{"uuid", "node_uuid", "volume_type", "boot_index", "volume_id"},
	filters: []queryFilter[metal.TargetFilter]{
		nodeFilterOf("node", volumeVersion, func(f *metal.TargetFilter) *string { return &f.NodeID }),
		{name: "boot_index", since: volumeVersion, set: func(_ *ironicCall, f *metal.TargetFilter, word string) error {
			n, err := strconv.ParseInt(word, 10, 32)
			if err != nil {
				return problem.Invalidf("Invalid value for boot_index: %q is no whole number", truncateInput(word))
			}
			index := int(n)
			f.BootIndex = &index
			return nil
		}},
		wordFilter("volume_id", volumeVersion, func(f *metal.TargetFilter) *string { return &f.VolumeID }),
		wordFilter("volume_type", volumeVersion, func(f *metal.TargetFilter) *string { return &f.VolumeType }),
	},
})

// forSome shows the properties of a target only to those whom the policy lets see where the storage is.
func forSome(f recordField[metal.Target]) recordField[metal.Target] {
	write := f.write
	f.write = func(b []byte, v *metal.Target, c *ironicCall) []byte {
		if !c.seesAll(wholeTarget) {
			return append(b, `{"redacted_contents":"** Redacted - requires baremetal:volume:view_target_properties permission. **"}`...)
		}
		return write(b, v, c)
	}
	return f
}

// volumeRoutes are those beside the routes of connectors and targets.
func (s *server) volumeRoutes() []apiRoute {
	return []apiRoute{
		{method: "GET", path: "/v1/volume", need: access.Read, since: volumeVersion, do: s.volume},
		{method: "GET", path: "/v1/nodes/{node}/volume", need: access.Read, since: volumeVersion, do: s.nodeVolume},
		{method: "*", path: "/v1/nodes/{node}/volume/connectors/{id}", since: volumeVersion, do: s.malformed},
		{method: "*", path: "/v1/nodes/{node}/volume/targets/{id}", since: volumeVersion, do: s.malformed},
	}
}

func (s *server) volume(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	return c.volumeLinks("volume/")
}

func (s *server) nodeVolume(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	n, err := s.Nodes.Node(c.R.Context(), c.Args[0])
	if err != nil {
		return err
	}
	return c.volumeLinks("nodes/" + n.ID + "/volume/")
}

func (c *ironicCall) volumeLinks(at string) error {
	return c.JSON(http.StatusOK, struct {
		Links      []ironic.Link `json:"links"`
		Connectors []ironic.Link `json:"connectors"`
		Targets    []ironic.Link `json:"targets"`
	}{c.links(at), c.links(at + "connectors"), c.links(at + "targets")})
}

// strictVolumes is the last version in which a volume is removed only while its node is
// switched off; since then one of a node that never ran may go at any time. (Ironic has that
// by releases: 21.4, which ends with this version, is strict.)
const strictVolumes metal.Version = 82

func (c *ironicCall) poweredOff(action, node string) error {
	if c.version > strictVolumes {
		return nil
	}
	n, err := c.s.Nodes.Node(c.R.Context(), node)
	if err != nil || n.PowerState == metal.PowerOff {
		return err
	}
	if n.Reservation != "" {
		return metal.Locked(n) // it may be on its way
	}
	return problem.Invalidf(`The requested action "%s" can not be performed on node "%s" while it is in state "%s". Power it off first.`, action, n.ID, cmp.Or(string(n.PowerState), "unknown"))
}

// malformed refuses a single record below its node: it is reached by its own path.
func (s *server) malformed(c *ironicCall) error {
	return problem.Invalidf("Malformed request URI: a volume connector or target is asked for by /v1/volume, not below its node.")
}
