package metal

// Connector is the initiator's side of a volume: how the node is known to a storage system.
type Connector struct {
	Record
	NodeID      string
	Type        string // iqn, ip, mac, wwnn, wwpn, net-id, port, portgroup, or what an operator calls it
	ConnectorID string // unique among all of its type
	Extra       Object
}

// ConnectorFilter narrows a list of volume connectors; zero fields do not narrow.
type ConnectorFilter struct{ NodeID, Type, ConnectorID, Project string }

// Target is the disk's side of a volume: where the node finds it.
type Target struct {
	Record
	NodeID     string
	VolumeType string // iscsi, fibre_channel
	VolumeID   string
	BootIndex  int    // 0 is the root; unique among the targets of the node
	Properties Object // of the connection, with credentials; sealed by the store
	Extra      Object
}

// TargetFilter narrows a list of volume targets; zero fields do not narrow.
type TargetFilter struct {
	NodeID, VolumeType, VolumeID, Project string
	BootIndex                             *int
}
