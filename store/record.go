package store

import (
	"strings"

	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/secret"
)

// Portgroups is metal.Store's, as are the tables below.
func (s nodeTables) Portgroups() record.Table[metal.Portgroup, metal.PortgroupFilter] {
	return recordTable[metal.Portgroup, metal.PortgroupFilter]{s.storeCore, portgroups}
}

var portgroups = &recordKind[metal.Portgroup, metal.PortgroupFilter]{
	table: "portgroup", word: "portgroup", head: ofRecord[metal.Portgroup],
	columns: []string{"node_id", "name", "address", "mode", "standalone_ports", "physical_network", "category", "dynamic_ports"},
	fields: func(g *metal.Portgroup) []any {
		return []any{&g.NodeID, &g.Name, &g.Address, &g.Mode, &g.StandalonePorts, &g.PhysicalNetwork, &g.Category, &g.DynamicPorts}
	},
	body: func(g *metal.Portgroup) any {
		return &struct{ Properties, Extra, InternalInfo *metal.Object }{&g.Properties, &g.Extra, &g.InternalInfo}
	},
	fill:   func(g *metal.Portgroup) { initNilObjects(&g.Properties, &g.Extra, &g.InternalInfo) },
	secret: secret.IsKey,
	names:  []string{"name"},
	sort:   map[string]string{"node_uuid": "node_id", "standalone_ports_supported": "standalone_ports"},
	keys: []uniqueKey[metal.Portgroup]{
		{[]string{"address"}, func(g *metal.Portgroup) string {
			return "A portgroup with MAC address " + g.Address + " already exists."
		}},
		{[]string{"name"}, func(g *metal.Portgroup) string { return "A portgroup with name " + g.Name + " already exists." }},
	},
	node: func(g *metal.Portgroup) string { return g.NodeID },
	mine: func(c *whereClause, f metal.PortgroupFilter) string { return c.mineOf(f.NodeID, f.Project) },
	narrow: func(c *whereClause, f metal.PortgroupFilter) {
		c.equal("t.node_id", f.NodeID)
		c.rare("t.address", strings.ToLower(f.Address))
		c.ofNode(f.Project, f.ConductorGroups, f.Shards)
	},
}

// Chassis keeps cases.
func (s nodeTables) Chassis() record.Table[metal.Chassis, metal.ChassisFilter] {
	return recordTable[metal.Chassis, metal.ChassisFilter]{s.storeCore, chassis}
}

// LockChassis is metal.Store's. What it writes says nothing new, but no transaction that
// began meanwhile can remove the row any more, not even one of PostgreSQL that does not see this one.
func (s nodeTables) LockChassis(t job.Tx, id string) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	rows, err := tx.exec(`UPDATE chassis SET version = version WHERE id = $1`, id)
	if err == nil && rows == 0 {
		err = chassis.notFound(id)
	}
	return err
}

var chassis = &recordKind[metal.Chassis, metal.ChassisFilter]{
	table: "chassis", word: "chassis", head: ofRecord[metal.Chassis],
	columns: []string{"description"},
	fields:  func(h *metal.Chassis) []any { return []any{&h.Description} },
	body:    func(h *metal.Chassis) any { return &struct{ Extra *metal.Object }{&h.Extra} },
	fill:    func(h *metal.Chassis) { initNilObjects(&h.Extra) },
	narrow:  func(*whereClause, metal.ChassisFilter) {},
}

// DeployTemplates keeps lists of deploy steps.
func (s nodeTables) DeployTemplates() record.Table[metal.DeployTemplate, metal.DeployTemplateFilter] {
	return recordTable[metal.DeployTemplate, metal.DeployTemplateFilter]{s.storeCore, deployTemplates}
}

var deployTemplates = &recordKind[metal.DeployTemplate, metal.DeployTemplateFilter]{
	table: "deploy_template", word: "deploy template", head: ofRecord[metal.DeployTemplate],
	columns: []string{"name"},
	fields:  func(d *metal.DeployTemplate) []any { return []any{&d.Name} },
	body: func(d *metal.DeployTemplate) any {
		return &struct {
			Steps *[]metal.Step
			Extra *metal.Object
		}{&d.Steps, &d.Extra}
	},
	fill:   func(d *metal.DeployTemplate) { initNilObjects(&d.Extra) },
	secret: stepSecret,
	names:  []string{"name"},
	keys: []uniqueKey[metal.DeployTemplate]{{[]string{"name"}, func(d *metal.DeployTemplate) string {
		return "A deploy template with name " + d.Name + " already exists."
	}}},
	narrow: func(c *whereClause, f metal.DeployTemplateFilter) { c.any("t.name", f.Names) },
}

// stepSecret seals what steps are given whole: a step's author chooses the keys, so no rule knows the secret ones.
func stepSecret(key string) bool { return key == "args" || secret.IsKey(key) }

// Runbooks keeps lists of steps that operators run by name.
func (s nodeTables) Runbooks() record.Table[metal.Runbook, metal.RunbookFilter] {
	return recordTable[metal.Runbook, metal.RunbookFilter]{s.storeCore, runbooks}
}

var runbooks = &recordKind[metal.Runbook, metal.RunbookFilter]{
	table: "runbook", word: "runbook", head: ofRecord[metal.Runbook],
	columns: []string{"name", "description", "disable_ramdisk", "public", "owner"},
	fields: func(r *metal.Runbook) []any {
		return []any{&r.Name, &r.Description, &r.DisableRamdisk, &r.Public, &r.Owner}
	},
	body: func(r *metal.Runbook) any {
		return &struct {
			Steps  *[]metal.Step
			Traits *[]string
			Extra  *metal.Object
		}{&r.Steps, &r.Traits, &r.Extra}
	},
	fill:   func(r *metal.Runbook) { initNilObjects(&r.Extra) },
	secret: stepSecret,
	names:  []string{"name"},
	keys: []uniqueKey[metal.Runbook]{{[]string{"name"}, func(r *metal.Runbook) string {
		return "A runbook with name " + r.Name + " already exists."
	}}},
	mine: func(c *whereClause, f metal.RunbookFilter) string {
		return c.mine("(m.owner = %s OR m.public)", f.Project)
	},
	narrow: func(c *whereClause, f metal.RunbookFilter) {
		if f.Project != "" {
			c.and(`(t.owner = ` + c.arg(f.Project) + ` OR t.public)`)
		}
	},
}

// InspectionRules keeps rules of inspections.
func (s nodeTables) InspectionRules() record.Table[metal.InspectionRule, metal.InspectionRuleFilter] {
	return recordTable[metal.InspectionRule, metal.InspectionRuleFilter]{s.storeCore, inspectionRules}
}

var inspectionRules = &recordKind[metal.InspectionRule, metal.InspectionRuleFilter]{
	table: "inspection_rule", word: "inspection rule", head: ofRecord[metal.InspectionRule],
	columns: []string{"description", "priority", "phase", "scope", "sensitive"},
	fields: func(r *metal.InspectionRule) []any {
		return []any{&r.Description, &r.Priority, &r.Phase, &r.Scope, &r.Sensitive}
	},
	body: func(r *metal.InspectionRule) any {
		return &struct{ Conditions, Actions *[]any }{&r.Conditions, &r.Actions}
	},
	fill:   func(*metal.InspectionRule) {},
	secret: func(key string) bool { return key == "Actions" || secret.IsKey(key) },
	narrow: func(c *whereClause, f metal.InspectionRuleFilter) {
		c.equal("t.phase", f.Phase)
		c.equal("t.scope", f.Scope)
	},
}

// Allocations keeps claims on nodes.
func (s nodeTables) Allocations() record.Table[metal.Allocation, metal.AllocationFilter] {
	return recordTable[metal.Allocation, metal.AllocationFilter]{s.storeCore, allocations}
}

var allocations = &recordKind[metal.Allocation, metal.AllocationFilter]{
	table: "allocation", word: "allocation", head: ofRecord[metal.Allocation],
	columns: []string{"name", "node_id", "resource_class", "state", "last_error", "owner", "conductor_group"},
	fields: func(a *metal.Allocation) []any {
		return []any{&a.Name, &a.NodeID, &a.ResourceClass, &a.State, &a.LastError, &a.Owner, &a.ConductorGroup}
	},
	body: func(a *metal.Allocation) any {
		return &struct {
			Traits, CandidateNodes *[]string
			Extra                  *metal.Object
		}{&a.Traits, &a.CandidateNodes, &a.Extra}
	},
	fill:  func(a *metal.Allocation) { initNilObjects(&a.Extra) },
	names: []string{"name"},
	sort:  map[string]string{"node_uuid": "node_id"},
	keys: []uniqueKey[metal.Allocation]{
		{[]string{"name"}, func(a *metal.Allocation) string { return "An allocation with name " + a.Name + " already exists." }},
		{[]string{"node_id"}, func(a *metal.Allocation) string {
			return "Node " + a.NodeID + " is already claimed by another allocation."
		}},
	},
	mine: func(c *whereClause, f metal.AllocationFilter) string { return c.mine("m.owner = %s", f.Owner) },
	narrow: func(c *whereClause, f metal.AllocationFilter) {
		c.rare("t.node_id", f.NodeID)
		c.equal("t.resource_class", f.ResourceClass)
		c.rare("t.owner", f.Owner)
		c.equal("t.state", string(f.State))
	},
}
