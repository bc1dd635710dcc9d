package metal

// Collections are the services of all records beside nodes. Requests change these records only through them.
type Collections struct {
	Ports           *Ports
	Portgroups      *Portgroups
	Chassis         *ChassisService
	Connectors      *Connectors
	Targets         *Targets
	Allocations     *Allocations
	Runbooks        *Runbooks
	DeployTemplates *DeployTemplates
	InspectionRules *InspectionRules
}

// NewCollections makes them on one store. strictConnectors is the same as of NewConnectors.
func NewCollections(store Store, nodes *Nodes, strictConnectors bool) Collections {
	return Collections{
		Ports:           NewPorts(store, nodes.jobs, nodes),
		Portgroups:      NewPortgroups(store, nodes),
		Chassis:         NewChassis(store, nodes),
		Connectors:      NewConnectors(store, nodes, strictConnectors),
		Targets:         NewTargets(store, nodes),
		Allocations:     NewAllocations(store, nodes),
		Runbooks:        NewRunbooks(store, nodes),
		DeployTemplates: NewDeployTemplates(store, nodes),
		InspectionRules: NewInspectionRules(store, nodes),
	}
}
