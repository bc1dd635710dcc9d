package metal

// Portgroup is a set of NICs of a node that the switch and the system bond to one.
type Portgroup struct {
	Record
	NodeID          string
	Name            string
	Address         string // MAC, lower case; empty: none of its own
	Mode            string // Linux bonding mode, such as active-backup
	StandalonePorts bool   // its ports may be used alone too
	PhysicalNetwork string
	Category        string
	DynamicPorts    bool   // ports may join while it is in use
	Properties      Object // of the bond; secret keys sealed by the store
	Extra           Object
	InternalInfo    Object
}

// PortgroupFilter narrows a list of portgroups; zero fields do not narrow.
type PortgroupFilter struct {
	NodeID, Address, Project, ConductorGroup string
	Shards                                   []string
}

// Chassis groups nodes that share a case.
type Chassis struct {
	Record
	Description string
	Extra       Object
}

// ChassisFilter narrows nothing.
type ChassisFilter struct{}
