package ironic

import (
	"context"
	"slices"
	"strings"

	"salvor/metal"
	"salvor/secret"
)

// nodeView is a node with all that its fields are made of.
type nodeView struct {
	*metal.Node
	contact metal.Contact
	driver  metal.DriverInfo // zero if no conductor knows the driver
	version metal.Version
	host    string
}

// nodeField is one field of a node: its first version and how it is written.
type nodeField struct {
	name  string
	since metal.Version
	write func([]byte, *nodeView) []byte
}

func textField(name string, since metal.Version, get func(*nodeView) string) nodeField {
	return nodeField{name, since, func(b []byte, v *nodeView) []byte { return appendText(b, get(v)) }}
}

func objectField(name string, since metal.Version, get func(*nodeView) metal.Object) nodeField {
	return nodeField{name, since, func(b []byte, v *nodeView) []byte { return appendObject(b, get(v)) }}
}

// linksField leads to a collection below the node.
func linksField(name string, since metal.Version) nodeField {
	return nodeField{name, since, func(b []byte, v *nodeView) []byte {
		return appendLinks(b, v.host, "nodes/"+v.ID, "/"+name)
	}}
}

func interfaceField(kind string, since metal.Version) nodeField {
	return textField(kind+"_interface", since, func(v *nodeView) string {
		if name := v.Interfaces[kind]; name != "" {
			return name
		}
		return v.driver.Interfaces[kind].Default
	})
}

// nodeFields are all fields, in the order of answers.
var nodeFields = []nodeField{
	textField("uuid", 1, func(v *nodeView) string { return v.ID }),
	textField("name", 5, func(v *nodeView) string { return v.Name }),
	textField("driver", 1, func(v *nodeView) string { return v.Driver }),
	textField("instance_uuid", 1, func(v *nodeView) string { return v.InstanceUUID }),
	textField("chassis_uuid", 1, func(v *nodeView) string { return v.ChassisUUID }),
	{"power_state", 1, func(b []byte, v *nodeView) []byte { return appendText(b, string(v.PowerState)) }},
	{"target_power_state", 1, func(b []byte, v *nodeView) []byte { return appendText(b, string(v.TargetPower)) }},
	textField("provision_state", 1, func(v *nodeView) string { return shownState(v.ProvisionState, v.version) }),
	textField("target_provision_state", 1, func(v *nodeView) string { return shownState(v.TargetProvision, v.version) }),
	{"provision_updated_at", 1, func(b []byte, v *nodeView) []byte { return appendTime(b, v.ProvisionedAt) }},
	textField("last_error", 1, func(v *nodeView) string { return v.LastError }),
	textField("reservation", 1, func(v *nodeView) string { return v.Reservation }),
	{"maintenance", 1, func(b []byte, v *nodeView) []byte { return appendBool(b, v.Maintenance) }},
	textField("maintenance_reason", 1, func(v *nodeView) string { return v.MaintenanceReason }),
	textField("fault", 42, func(v *nodeView) string { return v.Fault }),
	{"console_enabled", 1, func(b []byte, v *nodeView) []byte { return appendBool(b, v.ConsoleEnabled) }},
	{"driver_info", 1, func(b []byte, v *nodeView) []byte { return appendMasked(b, v.DriverInfo) }},
	{"driver_internal_info", 3, func(b []byte, v *nodeView) []byte { return appendMasked(b, v.internalInfo()) }},
	{"instance_info", 1, func(b []byte, v *nodeView) []byte { return appendAny(b, shownInstanceInfo(v.InstanceInfo)) }},
	{"properties", 1, func(b []byte, v *nodeView) []byte { return appendMasked(b, v.Properties) }},
	objectField("extra", 1, func(v *nodeView) metal.Object { return v.Extra }),
	objectField("clean_step", 7, func(v *nodeView) metal.Object { return v.CleanStep }),
	objectField("deploy_step", 44, func(v *nodeView) metal.Object { return v.DeployStep }),
	objectField("service_step", 87, func(v *nodeView) metal.Object { return v.ServiceStep }),
	objectField("raid_config", 12, func(v *nodeView) metal.Object { return v.RAIDConfig }),
	objectField("target_raid_config", 12, func(v *nodeView) metal.Object { return v.TargetRAID }),
	{"inspection_started_at", 6, func(b []byte, v *nodeView) []byte { return appendTime(b, v.InspectionStart) }},
	{"inspection_finished_at", 6, func(b []byte, v *nodeView) []byte { return appendTime(b, v.InspectionEnd) }},
	textField("resource_class", 21, func(v *nodeView) string { return v.ResourceClass }),
	interfaceField("bios", 40), interfaceField("boot", 31), interfaceField("console", 31), interfaceField("deploy", 31), interfaceField("firmware", 86),
	interfaceField("inspect", 31), interfaceField("management", 31), interfaceField("network", 20), interfaceField("power", 31),
	interfaceField("raid", 31), interfaceField("rescue", 38), interfaceField("storage", 33), interfaceField("vendor", 31),
	{"traits", 37, func(b []byte, v *nodeView) []byte { return appendTraits(b, v.Traits) }},
	{"conductor_group", 46, func(b []byte, v *nodeView) []byte { return appendString(b, v.ConductorGroup) }},
	{"automated_clean", 47, func(b []byte, v *nodeView) []byte { return appendBoolPtr(b, v.AutomatedClean) }},
	{"protected", 48, func(b []byte, v *nodeView) []byte { return appendBool(b, v.Protected) }},
	textField("protected_reason", 48, func(v *nodeView) string { return v.ProtectedReason }),
	textField("conductor", 49, func(v *nodeView) string { return v.Conductor }),
	textField("owner", 50, func(v *nodeView) string { return v.Owner }),
	textField("description", 51, func(v *nodeView) string { return v.Description }),
	textField("allocation_uuid", 52, func(v *nodeView) string { return v.AllocationID }),
	{"retired", 61, func(b []byte, v *nodeView) []byte { return appendBool(b, v.Retired) }},
	textField("retired_reason", 61, func(v *nodeView) string { return v.RetiredReason }),
	textField("lessee", 65, func(v *nodeView) string { return v.Lessee }),
	objectField("network_data", 66, func(v *nodeView) metal.Object { return v.NetworkData }),
	textField("boot_mode", 75, func(v *nodeView) string { return v.BootMode }),
	{"secure_boot", 75, func(b []byte, v *nodeView) []byte { return appendBoolPtr(b, v.SecureBoot) }},
	textField("shard", 82, func(v *nodeView) string { return v.Shard }),
	textField("parent_node", 83, func(v *nodeView) string { return v.ParentNode }),
	{"disable_power_off", 95, func(b []byte, v *nodeView) []byte { return appendBool(b, v.DisablePowerOff) }},
	textField("instance_name", 104, func(v *nodeView) string { return v.InstanceName }),
	textField("health", 109, func(v *nodeView) string { return v.Health }),
	{"created_at", 1, func(b []byte, v *nodeView) []byte { return appendTime(b, v.CreatedAt) }},
	{"updated_at", 1, func(b []byte, v *nodeView) []byte { return appendTime(b, v.UpdatedAt) }},
	{"links", 1, func(b []byte, v *nodeView) []byte { return appendLinks(b, v.host, "nodes/"+v.ID, "") }},
	linksField("ports", 1), linksField("states", 14), linksField("portgroups", 24), linksField("volume", 32),
}

// briefNodeFields are shown in a list that asks for no fields.
var briefNodeFields = []string{"uuid", "name", "instance_uuid", "power_state", "provision_state", "maintenance", "links"}

var nodeFieldIndex = func() map[string]int {
	m := make(map[string]int, len(nodeFields))
	for i, f := range nodeFields {
		m[f.name] = i
	}
	return m
}()

// shownState spells a state as the version knows it: older ones have another word, or none.
func shownState(s metal.State, v metal.Version) string {
	switch {
	case s == metal.Available && v < 2:
		return ""
	case s == metal.InspectWait && v < 39:
		return string(metal.Inspecting)
	}
	return string(s)
}

// shownInstanceInfo masks, beside secrets, what may carry one inside.
func shownInstanceInfo(o metal.Object) metal.Object {
	if len(o) == 0 {
		return metal.Object{}
	}
	out := secret.Masked(map[string]any(o)).(map[string]any)
	for _, k := range maskedInstanceKeys {
		if out[k] != nil {
			out[k] = secret.Mask
		}
	}
	return out
}

// maskedInstanceKeys are masked in instance_info though their names bear no marker: a
// config drive holds keys, an image URL may be signed.
var maskedInstanceKeys = []string{"configdrive", "image_url"}

func appendTraits(b []byte, traits []string) []byte {
	b = append(b, '[')
	for i, t := range traits {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, t)
	}
	return append(b, ']')
}

// internalInfo is what drivers keep, with what the ramdisk of the present boot said.
func (v *nodeView) internalInfo() metal.Object {
	o := make(metal.Object, len(v.InternalInfo)+7)
	for k, e := range v.InternalInfo {
		o[k] = e
	}
	c := &v.contact
	set := func(k, s string) {
		if s != "" {
			o[k] = s
		}
	}
	set("agent_version", c.AgentVersion)
	if !c.HeartbeatAt.IsZero() {
		o["agent_last_heartbeat"] = c.HeartbeatAt.UTC().Format(timeLayout)
	}
	if v.Plan != nil && v.BootNumber > 0 && v.Plan.BootNumber == v.BootNumber {
		o["agent_secret_token"] = secret.Mask
		if v.Plan.CarryToken {
			o["agent_secret_token_pregenerated"] = true
		}
	}
	if c.AgentBoot == v.BootNumber && v.BootNumber > 0 { // what an earlier boot said is void
		set("agent_url", c.AgentURL)
		set("agent_verify_ca", c.AgentCA)
		set("agent_status", c.AgentStatus)
		set("agent_status_message", c.AgentStatusMessage)
	}
	return o
}

// append writes the chosen fields as one object.
func (v *nodeView) append(b []byte, fields []*nodeField) []byte {
	b = append(b, '{')
	for _, f := range fields {
		b = appendKey(b, f.name)
		b = f.write(b, v)
	}
	return append(b, '}')
}

// allNodeFields are the fields that the version knows.
func allNodeFields(v metal.Version) []*nodeField {
	fields := make([]*nodeField, 0, len(nodeFields))
	for i := range nodeFields {
		if nodeFields[i].since <= v {
			fields = append(fields, &nodeFields[i])
		}
	}
	return fields
}

// nodeFieldsNamed are the named fields that the version knows, in the order of answers.
func nodeFieldsNamed(names []string, v metal.Version) []*nodeField {
	fields := make([]*nodeField, 0, len(names))
	for _, f := range allNodeFields(v) {
		if slices.Contains(names, f.name) {
			fields = append(fields, f)
		}
	}
	return fields
}

// views gathers what the fields need beside the nodes: one query for all contacts, and
// only if a field shows them.
func (c *ironicCall) views(ctx context.Context, nodes []*metal.Node, fields []*nodeField) ([]nodeView, error) {
	var contacts map[string]metal.Contact
	if showsContact(fields) && len(nodes) > 0 {
		ids := make([]string, len(nodes))
		for i, n := range nodes {
			ids[i] = n.ID
		}
		var err error
		if contacts, err = c.s.Nodes.Contacts(ctx, ids); err != nil {
			return nil, err
		}
	}
	drivers, err := c.s.drivers(ctx)
	if err != nil {
		return nil, err
	}
	views := make([]nodeView, len(nodes))
	for i, n := range nodes {
		views[i] = nodeView{Node: n, contact: contacts[n.ID], driver: drivers[n.Driver], version: c.version, host: c.host}
		c.redacted(&views[i])
	}
	return views, nil
}

// showsContact tells whether a field shows what was heard of the node.
func showsContact(fields []*nodeField) bool {
	return slices.ContainsFunc(fields, func(f *nodeField) bool { return f.name == "driver_internal_info" })
}

// rowFields are shown without what is kept of a node as JSON, so that lists of them read none.
var rowFields = func() map[string]bool {
	m := map[string]bool{}
	for _, name := range strings.Fields(`uuid name driver instance_uuid chassis_uuid power_state target_power_state provision_state
		target_provision_state provision_updated_at last_error reservation maintenance fault console_enabled inspection_started_at
		inspection_finished_at resource_class conductor_group protected conductor owner description allocation_uuid retired lessee shard
		parent_node disable_power_off instance_name health created_at updated_at links ports states portgroups volume`) {
		m[name] = true
	}
	return m
}()

// partOf is how much of a node the fields show.
func partOf(fields []*nodeField) metal.NodePart {
	if slices.ContainsFunc(fields, func(f *nodeField) bool { return !rowFields[f.name] }) {
		return metal.WholeNode
	}
	return metal.NodeRow
}

// drivers gives what conductors say of each hardware type.
func (s *server) drivers(ctx context.Context) (map[string]metal.DriverInfo, error) {
	drivers, _, err := s.Directory.Drivers(ctx)
	return drivers, err
}

// showNode answers with one node.
func (c *ironicCall) showNode(status int, n *metal.Node, fields []*nodeField) error {
	views, err := c.views(c.r.Context(), []*metal.Node{n}, fields)
	if err != nil {
		return err
	}
	return c.raw(status, views[0].append(make([]byte, 0, 4096), fields))
}
