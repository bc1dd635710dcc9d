package store

import (
	"fmt"

	"salvor/metal"
	"salvor/record"
)

// Connectors keeps the initiators' sides of volumes.
func (s nodeTables) Connectors() record.Table[metal.Connector, metal.ConnectorFilter] {
	return recordTable[metal.Connector, metal.ConnectorFilter]{s.storeCore, connectors}
}

var connectors = &recordKind[metal.Connector, metal.ConnectorFilter]{
	table: "connector", word: "volume connector", head: ofRecord[metal.Connector],
	columns: []string{"node_id", "type", "connector_id"},
	fields:  func(v *metal.Connector) []any { return []any{&v.NodeID, &v.Type, &v.ConnectorID} },
	body: func(v *metal.Connector) any {
		return &struct {
			Extra  *metal.Object
			Lessee *string
		}{&v.Extra, &v.Lessee}
	},
	fill: func(v *metal.Connector) { initNilObjects(&v.Extra) },
	sort: map[string]string{"node_uuid": "node_id"},
	keys: []uniqueKey[metal.Connector]{{[]string{"type", "connector_id"}, func(v *metal.Connector) string {
		return fmt.Sprintf("A volume connector with type '%s' and connector ID '%s' already exists.", v.Type, v.ConnectorID)
	}}},
	node: func(v *metal.Connector) string { return v.NodeID },
	mine: func(c *whereClause, f metal.ConnectorFilter) string { return c.mineOf(f.NodeID, f.Project) },
	narrow: func(c *whereClause, f metal.ConnectorFilter) {
		c.equal("t.node_id", f.NodeID)
		c.equal("t.type", f.Type)
		c.equal("t.connector_id", f.ConnectorID)
		c.ofNode(f.Project, nil, nil)
	},
}

// Targets keeps the disks' sides of volumes.
func (s nodeTables) Targets() record.Table[metal.Target, metal.TargetFilter] {
	return recordTable[metal.Target, metal.TargetFilter]{s.storeCore, targets}
}

var targets = &recordKind[metal.Target, metal.TargetFilter]{
	table: "target", word: "volume target", head: ofRecord[metal.Target],
	columns: []string{"node_id", "volume_type", "volume_id", "boot_index"},
	fields:  func(v *metal.Target) []any { return []any{&v.NodeID, &v.VolumeType, &v.VolumeID, &v.BootIndex} },
	body: func(v *metal.Target) any {
		return &struct {
			Properties, Extra *metal.Object
			Lessee            *string
		}{&v.Properties, &v.Extra, &v.Lessee}
	},
	fill:   func(v *metal.Target) { initNilObjects(&v.Properties, &v.Extra) },
	secret: metal.VolumeSecret,
	sort:   map[string]string{"node_uuid": "node_id"},
	keys: []uniqueKey[metal.Target]{{[]string{"node_id", "boot_index"}, func(v *metal.Target) string {
		return fmt.Sprintf("A volume target with boot index '%d' for the same node already exists.", v.BootIndex)
	}}},
	node: func(v *metal.Target) string { return v.NodeID },
	mine: func(c *whereClause, f metal.TargetFilter) string { return c.mineOf(f.NodeID, f.Project) },
	narrow: func(c *whereClause, f metal.TargetFilter) {
		c.equal("t.node_id", f.NodeID)
		c.equal("t.volume_type", f.VolumeType)
		c.equal("t.volume_id", f.VolumeID)
		if f.BootIndex != nil {
			c.and("t.boot_index = " + c.arg(int64(*f.BootIndex)))
		}
		c.ofNode(f.Project, nil, nil)
	},
}
