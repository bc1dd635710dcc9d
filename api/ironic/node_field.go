package ironic

import (
	"maps"
	"slices"
	"time"

	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
)

// nodeField is one field of a node: its first version, its uses, how it is written, and how clients set it.
type nodeField = recordField[nodeView]

// nodeKind describes nodes. Their lists, creations and patches have handlers of their own.
var nodeKind = recordKind[nodeView, metal.NodeFilter]{
	name: "node", path: "nodes", list: "nodes", detail: 43,
	brief:  []string{"uuid", "name", "instance_uuid", "power_state", "provision_state", "maintenance"},
	fields: nodeFields,
	filters: []queryFilter[metal.NodeFilter]{
		wordFilter("instance_uuid", 1, func(f *metal.NodeFilter) *string { return &f.InstanceUUID }),
		wordFilter("chassis_uuid", 1, func(f *metal.NodeFilter) *string { return &f.ChassisUUID }),
		wordFilter("driver", 16, func(f *metal.NodeFilter) *string { return &f.Driver }),
		wordFilter("resource_class", 21, func(f *metal.NodeFilter) *string { return &f.ResourceClass }),
		wordFilter("fault", 42, func(f *metal.NodeFilter) *string { return &f.Fault }),
		wordFilter("conductor", 49, func(f *metal.NodeFilter) *string { return &f.Conductor }),
		wordFilter("owner", 50, func(f *metal.NodeFilter) *string { return &f.Owner }),
		wordFilter("description_contains", 51, func(f *metal.NodeFilter) *string { return &f.DescriptionContains }),
		wordFilter("lessee", 65, func(f *metal.NodeFilter) *string { return &f.Lessee }),
		wordFilter("project", 65, func(f *metal.NodeFilter) *string { return &f.Project }),
		wordFilter("instance_name", 104, func(f *metal.NodeFilter) *string { return &f.InstanceName }),
		// bmc is salvor's own: Ironic has no such parameter.
		{name: "bmc", since: 1, set: func(c *ironicCall, f *metal.NodeFilter, word string) (err error) {
			f.PowerReadSince = c.s.Nodes.PowerReadSince()
			f.BMC, err = metal.ParseBMCState(word)
			return err
		}},
		flagFilter("associated", 1, func(f *metal.NodeFilter) **bool { return &f.Associated }),
		flagFilter("maintenance", 1, func(f *metal.NodeFilter) **bool { return &f.Maintenance }),
		flagFilter("retired", 61, func(f *metal.NodeFilter) **bool { return &f.Retired }),
		flagFilter("sharded", 82, func(f *metal.NodeFilter) **bool { return &f.Sharded }),
	},
}.indexed()

// nodeFields are all fields, in the order of answers. Lists are sorted by those that are one word each.
var nodeFields = []nodeField{
	{
		name: "uuid", since: 1, use: creatable | ordered | inRow,
		write: func(b []byte, v *nodeView, _ *ironicCall) []byte { return appendText(b, v.ID) },
		set:   func(_ *ironicCall, v *nodeView, id any) (err error) { v.ID, err = wantText("uuid", id); return err },
	},
	textField("name", 5, settable|ordered|inRow, func(v *nodeView) *string { return &v.Name }),
	setBy(setDriver, textField("driver", 1, settable|ordered|inRow, func(v *nodeView) *string { return &v.Driver })),
	uuidField("instance_uuid", 1, settable|ordered|inRow, func(v *nodeView) *string { return &v.InstanceUUID }),
	uuidField("chassis_uuid", 1, settable|ordered|inRow, func(v *nodeView) *string { return &v.ChassisUUID }),
	shownText("power_state", 1, ordered|inRow, func(v *nodeView) string { return string(v.PowerState) }),
	shownText("target_power_state", 1, ordered|inRow, func(v *nodeView) string { return string(v.TargetPower) }),
	stateField("provision_state", func(v *nodeView) metal.State { return v.ProvisionState }),
	stateField("target_provision_state", func(v *nodeView) metal.State { return v.TargetProvision }),
	ofRow(timeField("provision_updated_at", 1, func(v *nodeView) time.Time { return v.ProvisionedAt })),
	shownText("last_error", 1, ordered|inRow, func(v *nodeView) string { return v.LastError }),
	shownText("reservation", 1, inRow, func(v *nodeView) string { return v.Reservation }),
	setBy(setMaintenanceField, flagField("maintenance", 1, settable|ordered|inRow, false, func(v *nodeView) *bool { return &v.Maintenance })),
	shownText("maintenance_reason", 1, 0, func(v *nodeView) string { return v.MaintenanceReason }),
	shownText("fault", 42, ordered|inRow, func(v *nodeView) string { return v.Fault }),
	{name: "console_enabled", since: 1, use: ordered | inRow, write: func(b []byte, v *nodeView, _ *ironicCall) []byte { return appendBool(b, v.ConsoleEnabled) }},
	shownMasked(secretField("driver_info", 1, settable, secretKeys, func(v *nodeView) *metal.Object { return &v.DriverInfo })),
	{name: "driver_internal_info", since: 3, write: func(b []byte, v *nodeView, _ *ironicCall) []byte { return appendMasked(b, v.internalInfo()) }},
	shownBy(func(b []byte, v *nodeView, _ *ironicCall) []byte {
		return appendAny(b, shownInstanceInfo(v.InstanceInfo))
	},
		setBy(setInstanceInfo, freeField("instance_info", 1, settable, func(v *nodeView) *metal.Object { return &v.InstanceInfo }))),
	shownMasked(secretField("properties", 1, settable, secretKeys, func(v *nodeView) *metal.Object { return &v.Properties })),
	freeField("extra", 1, settable, func(v *nodeView) *metal.Object { return &v.Extra }),
	shownObject("clean_step", 7, func(v *nodeView) metal.Object { return v.CleanStep }),
	shownObject("deploy_step", 44, func(v *nodeView) metal.Object { return v.DeployStep }),
	shownObject("service_step", 87, func(v *nodeView) metal.Object { return v.ServiceStep }),
	shownObject("raid_config", 12, func(v *nodeView) metal.Object { return v.RAIDConfig }),
	shownObject("target_raid_config", 12, func(v *nodeView) metal.Object { return v.TargetRAID }),
	ofRow(timeField("inspection_started_at", 6, func(v *nodeView) time.Time { return v.InspectionStart })),
	ofRow(timeField("inspection_finished_at", 6, func(v *nodeView) time.Time { return v.InspectionEnd })),
	textField("resource_class", 21, settable|ordered|inRow, func(v *nodeView) *string { return &v.ResourceClass }),
	interfaceField("bios", 40), interfaceField("boot", 31), interfaceField("console", 31), interfaceField("deploy", 31), interfaceField("firmware", 86),
	interfaceField("inspect", 31), interfaceField("management", 31), interfaceField("network", 20), interfaceField("power", 31),
	interfaceField("raid", 31), interfaceField("rescue", 38), interfaceField("storage", 33), interfaceField("vendor", 31),
	{name: "traits", since: 37, write: func(b []byte, v *nodeView, _ *ironicCall) []byte { return appendTraits(b, v.Traits) }},
	shownBy(func(b []byte, v *nodeView, _ *ironicCall) []byte { return appendString(b, v.ConductorGroup) },
		textField("conductor_group", 46, settable|ordered|inRow, func(v *nodeView) *string { return &v.ConductorGroup })),
	{
		name: "automated_clean", since: 47, use: settable,
		write: func(b []byte, v *nodeView, _ *ironicCall) []byte { return appendBoolPtr(b, v.AutomatedClean) },
		get:   func(v *nodeView) any { return boolOrNil(v.AutomatedClean) },
		set:   func(_ *ironicCall, v *nodeView, on any) error { return setAutomatedClean(v.Node, on) },
	},
	setBy(setProtected, flagField("protected", 48, patchable|ordered|inRow, false, func(v *nodeView) *bool { return &v.Protected })),
	setBy(setProtectedReason, textField("protected_reason", 48, patchable, func(v *nodeView) *string { return &v.ProtectedReason })),
	shownText("conductor", 49, inRow, func(v *nodeView) string { return v.Conductor }),
	textField("owner", 50, settable|ordered|inRow, func(v *nodeView) *string { return &v.Owner }),
	textField("description", 51, settable|ordered|inRow, func(v *nodeView) *string { return &v.Description }),
	shownText("allocation_uuid", 52, inRow, func(v *nodeView) string { return v.AllocationID }),
	setBy(setRetired, flagField("retired", 61, settable|ordered|inRow, false, func(v *nodeView) *bool { return &v.Retired })),
	setBy(setRetiredReason, textField("retired_reason", 61, settable, func(v *nodeView) *string { return &v.RetiredReason })),
	textField("lessee", 65, settable|ordered|inRow, func(v *nodeView) *string { return &v.Lessee }),
	setBy(setNetworkData, freeField("network_data", 66, settable, func(v *nodeView) *metal.Object { return &v.NetworkData })),
	shownText("boot_mode", 75, 0, func(v *nodeView) string { return v.BootMode }),
	{name: "secure_boot", since: 75, write: func(b []byte, v *nodeView, _ *ironicCall) []byte { return appendBoolPtr(b, v.SecureBoot) }},
	textField("shard", 82, settable|ordered|inRow, func(v *nodeView) *string { return &v.Shard }),
	textField("parent_node", 83, settable|ordered|inRow, func(v *nodeView) *string { return &v.ParentNode }),
	flagField("disable_power_off", 95, settable|inRow, false, func(v *nodeView) *bool { return &v.DisablePowerOff }),
	textField("instance_name", 104, settable|ordered|inRow, func(v *nodeView) *string { return &v.InstanceName }),
	shownText("health", 109, inRow, func(v *nodeView) string { return v.Health }),
	ofRow(timeField("created_at", 1, func(v *nodeView) time.Time { return v.CreatedAt })),
	ofRow(timeField("updated_at", 1, func(v *nodeView) time.Time { return v.UpdatedAt })),
	nodeLinks("links", 1, ""), nodeLinks("ports", 1, "/ports"), nodeLinks("states", 14, "/states"), nodeLinks("portgroups", 24, "/portgroups"), nodeLinks("volume", 32, "/volume"),
}

// textField is a string that metal bounds.
func textField(name string, since metal.Version, u fieldUse, at func(*nodeView) *string) nodeField {
	return wordField(name, since, u, maxText, at)
}

// shownText, shownObject and stateField are fields that clients do not set.
func shownText(name string, since metal.Version, u fieldUse, get func(*nodeView) string) nodeField {
	return nodeField{name: name, since: since, use: u, write: func(b []byte, v *nodeView, _ *ironicCall) []byte { return appendText(b, get(v)) }}
}

func shownObject(name string, since metal.Version, get func(*nodeView) metal.Object) nodeField {
	return nodeField{name: name, since: since, write: func(b []byte, v *nodeView, _ *ironicCall) []byte { return appendObject(b, get(v)) }}
}

func stateField(name string, get func(*nodeView) metal.State) nodeField {
	return nodeField{name: name, since: 1, use: ordered | inRow, write: func(b []byte, v *nodeView, c *ironicCall) []byte {
		return appendText(b, shownState(get(v), c.version))
	}}
}

// nodeLinks lead to the node, or to a collection below it.
func nodeLinks(name string, since metal.Version, below string) nodeField {
	return ofRow(linkField(name, since, func(v *nodeView) (string, string) { return "nodes/" + v.ID, below }))
}

// interfaceField is the driver's default where the node has none of its own.
func interfaceField(kind string, since metal.Version) nodeField {
	name := kind + "_interface"
	return nodeField{
		name: name, since: since, use: settable,
		write: func(b []byte, v *nodeView, _ *ironicCall) []byte {
			if word := v.Interfaces[kind]; word != "" {
				return appendString(b, word)
			}
			return appendText(b, v.driver.Interfaces[kind].Default)
		},
		get: func(v *nodeView) any { return orNil(v.Interfaces[kind]) },
		set: func(_ *ironicCall, v *nodeView, value any) error {
			word, err := wantText(name, value)
			if err != nil {
				return err
			}
			if v.Interfaces == nil {
				v.Interfaces = map[string]string{}
			}
			v.Interfaces[kind] = word
			if word == "" {
				delete(v.Interfaces, kind)
			}
			return nil
		},
	}
}

func ofRow(f nodeField) nodeField {
	f.use |= inRow
	return f
}

func setBy(set func(*metal.Node, any) error, f nodeField) nodeField {
	f.set = func(_ *ironicCall, v *nodeView, value any) error { return set(v.Node, value) }
	return f
}

func shownBy(write func([]byte, *nodeView, *ironicCall) []byte, f nodeField) nodeField {
	f.write = write
	return f
}

// shownMasked masks the passwords in URLs too.
func shownMasked(f nodeField) nodeField {
	get := f.get
	f.write = func(b []byte, v *nodeView, _ *ironicCall) []byte { return appendMasked(b, get(v).(metal.Object)) }
	return f
}

// setOrder is the order in which a request's fields are set, so that of two errors the same one is told.
var setOrder = slices.Sorted(maps.Keys(nodeKind.patchPaths))

// setNode sets the values of fields; nil resets one.
func (c *ironicCall) setNode(v *nodeView, values map[string]any) error {
	for _, name := range setOrder {
		if value, ok := values[name]; ok {
			if err := nodeKind.fields[nodeKind.index[name]].set(c, v, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// fillNode sets what a creation asks for.
func (c *ironicCall) fillNode(n *metal.Node, body map[string]any) error {
	for name := range body {
		if i, ok := nodeKind.index[name]; !ok || nodeKind.fields[i].use&creatable == 0 {
			return notCreatable(name)
		}
	}
	for _, name := range setOrder {
		if _, ok := body[name]; ok && nodeKind.patchPaths[name] > c.version {
			return newerField(name, nodeKind.patchPaths[name])
		}
	}
	var err error
	if n.ID, err = wantText("uuid", body["uuid"]); err != nil {
		return err
	}
	return c.setNode(&nodeView{Node: n}, body)
}

func notCreatable(name string) error {
	_, ok := nodeKind.patchPaths[name]
	switch {
	case ok:
		return problem.Invalidf("Cannot specify %s on node creation. It can only be set for active nodes.", name)
	case name == "traits":
		return problem.Invalidf("Cannot specify node traits on node creation. Traits must be set via the node traits API.")
	}
	return problem.Invalidf("Schema error for node: Additional properties are not allowed ('%s' was unexpected)%s", truncateInput(name), suggestName(name, slices.Clone(setOrder)))
}

// setNetworkData takes what follows OpenStack's schema of network_data.json, or nothing.
func setNetworkData(n *metal.Node, v any) error {
	o, err := wantObject("network_data", v)
	if err == nil {
		err = metal.ParseNetworkData(o)
	}
	if err == nil {
		n.NetworkData = o
	}
	return err
}

func setDriver(n *metal.Node, v any) error {
	word, err := wantText("driver", v)
	if err == nil && word == "" {
		err = problem.Invalidf("Missing mandatory field: driver")
	}
	n.Driver = word
	return err
}

func setAutomatedClean(n *metal.Node, v any) error {
	if n.AutomatedClean = nil; v == nil {
		return nil
	}
	b, err := wantBool("automated_clean", v)
	n.AutomatedClean = &b
	return err
}

// setInstanceInfo keeps rescue passwords out of the record: they go with the rescue verb only.
func setInstanceInfo(n *metal.Node, v any) error {
	o, err := wantObject("instance_info", v)
	if err != nil {
		return err
	}
	for _, k := range []string{"rescue_password", "hashed_rescue_password"} {
		if _, ok := o[k]; ok {
			return problem.Invalidf("instance_info/%s can not be set: give the password with the provision verb rescue", k)
		}
	}
	for _, k := range maskedInstanceKeys {
		if o[k] == secret.Mask {
			if n.InstanceInfo[k] == nil {
				return errMask("instance_info/" + k)
			}
			o[k] = n.InstanceInfo[k]
		}
	}
	if o, err = secretKeys.restoreSecrets("instance_info", o, n.InstanceInfo); err == nil {
		n.InstanceInfo = o
	}
	// Clients of before instance_name put the name there.
	if name, ok := o["display_name"].(string); ok && n.InstanceName == "" && len(name) <= maxIdent {
		n.InstanceName = name
	}
	return err
}

func setMaintenanceField(n *metal.Node, v any) error {
	on, err := wantBool("maintenance", v)
	// As in Nodes.SetMaintenance: no recovery of a fault ends the operator's maintenance, and a fault's reason is not the operator's.
	if n.Maintenance = on; !on || n.Fault != "" {
		n.MaintenanceReason, n.Fault = "", ""
	}
	return err
}

func setProtected(n *metal.Node, v any) error {
	on, err := wantBool("protected", v)
	if err == nil && on && n.ProvisionState != metal.Active && n.ProvisionState != metal.Rescue {
		err = problem.Conflictf("Node %s can not have \"protected\" set in provision state \"%s\", the allowed states are active and rescue.", n.ID, n.ProvisionState)
	}
	if n.Protected = on; !on {
		n.ProtectedReason = ""
	}
	return err
}

func setProtectedReason(n *metal.Node, v any) error {
	word, err := wantText("protected_reason", v)
	if err == nil && word != "" && !n.Protected {
		err = problem.Invalidf("The protected_reason field can only be set when the protected flag is set to True.")
	}
	n.ProtectedReason = word
	return err
}

func setRetired(n *metal.Node, v any) error {
	on, err := wantBool("retired", v)
	if err == nil && on && !n.Retired && n.ProvisionState == metal.Available {
		err = problem.Conflictf("Node %s can not have \"retired\" set in provision state \"available\": what is retired is not available; ask for manage first.", n.ID)
	}
	if n.Retired = on; !on {
		n.RetiredReason = ""
	}
	return err
}

func setRetiredReason(n *metal.Node, v any) error {
	word, err := wantText("retired_reason", v)
	if err == nil && word != "" && !n.Retired {
		err = problem.Invalidf("The retired_reason field can only be set when the retired flag is set to True.")
	}
	n.RetiredReason = word
	return err
}
