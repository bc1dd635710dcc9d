package ironic

import (
	"strings"

	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// nodeAttr is what clients may set of a node: on creation, by PATCH, or both. A nil
// value resets it.
type nodeAttr struct {
	name      string
	since     metal.Version
	creatable bool
	get       func(*metal.Node) any
	set       func(*metal.Node, any) error
}

func textAttr(name string, since metal.Version, at func(*metal.Node) *string) nodeAttr {
	return nodeAttr{name, since, true,
		func(n *metal.Node) any { return orNil(*at(n)) },
		func(n *metal.Node, v any) (err error) { *at(n), err = wantText(name, v); return err }}
}

func boolAttr(name string, since metal.Version, creatable bool, at func(*metal.Node) *bool) nodeAttr {
	return nodeAttr{name, since, creatable,
		func(n *metal.Node) any { return *at(n) },
		func(n *metal.Node, v any) (err error) { *at(n), err = wantBool(name, v); return err }}
}

// objectAttr is a free-form object that is shown as it is.
func objectAttr(name string, since metal.Version, at func(*metal.Node) *metal.Object) nodeAttr {
	return nodeAttr{name, since, true,
		func(n *metal.Node) any { return orEmpty(*at(n)) },
		func(n *metal.Node, v any) (err error) { *at(n), err = wantObject(name, v); return err }}
}

// maskedAttr is a free-form object whose secrets are shown as the mask.
func maskedAttr(name string, since metal.Version, at func(*metal.Node) *metal.Object) nodeAttr {
	a := objectAttr(name, since, at)
	a.set = func(n *metal.Node, v any) error {
		o, err := wantObject(name, v)
		if err == nil {
			o, err = secretKeys.restoreSecrets(name, o, *at(n))
		}
		if err == nil {
			*at(n) = o
		}
		return err
	}
	return a
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

func interfaceAttr(kind string, since metal.Version) nodeAttr {
	name := kind + "_interface"
	return nodeAttr{name, since, true,
		func(n *metal.Node) any { return orNil(n.Interfaces[kind]) },
		func(n *metal.Node, v any) error {
			word, err := wantText(name, v)
			if err != nil {
				return err
			}
			if n.Interfaces == nil {
				n.Interfaces = map[string]string{}
			}
			n.Interfaces[kind] = word
			if word == "" {
				delete(n.Interfaces, kind)
			}
			return nil
		}}
}

// nodeAttrs are all that clients may set, besides uuid on creation.
var nodeAttrs = []nodeAttr{
	{"automated_clean", 47, true, func(n *metal.Node) any { return boolOrNil(n.AutomatedClean) }, setAutomatedClean},
	interfaceAttr("bios", 40), interfaceAttr("boot", 31),
	{"chassis_uuid", 1, true, func(n *metal.Node) any { return orNil(n.ChassisUUID) }, setChassis},
	textAttr("conductor_group", 46, func(n *metal.Node) *string { return &n.ConductorGroup }),
	interfaceAttr("console", 31), interfaceAttr("deploy", 31),
	textAttr("description", 51, func(n *metal.Node) *string { return &n.Description }),
	{"driver", 1, true, func(n *metal.Node) any { return orNil(n.Driver) }, setDriver},
	boolAttr("disable_power_off", 95, true, func(n *metal.Node) *bool { return &n.DisablePowerOff }),
	maskedAttr("driver_info", 1, func(n *metal.Node) *metal.Object { return &n.DriverInfo }),
	objectAttr("extra", 1, func(n *metal.Node) *metal.Object { return &n.Extra }),
	interfaceAttr("firmware", 86), interfaceAttr("inspect", 31),
	{"instance_info", 1, true, func(n *metal.Node) any { return orEmpty(n.InstanceInfo) }, setInstanceInfo},
	textAttr("instance_name", 104, func(n *metal.Node) *string { return &n.InstanceName }),
	{"instance_uuid", 1, true, func(n *metal.Node) any { return orNil(n.InstanceUUID) }, setInstanceUUID},
	textAttr("lessee", 65, func(n *metal.Node) *string { return &n.Lessee }),
	{"maintenance", 1, true, func(n *metal.Node) any { return n.Maintenance }, setMaintenanceAttr},
	interfaceAttr("management", 31),
	textAttr("name", 5, func(n *metal.Node) *string { return &n.Name }),
	{"network_data", 66, true, func(n *metal.Node) any { return orEmpty(n.NetworkData) }, setNetworkData},
	interfaceAttr("network", 20),
	textAttr("owner", 50, func(n *metal.Node) *string { return &n.Owner }),
	textAttr("parent_node", 83, func(n *metal.Node) *string { return &n.ParentNode }),
	interfaceAttr("power", 31),
	maskedAttr("properties", 1, func(n *metal.Node) *metal.Object { return &n.Properties }),
	{"protected", 48, false, func(n *metal.Node) any { return n.Protected }, setProtected},
	{"protected_reason", 48, false, func(n *metal.Node) any { return orNil(n.ProtectedReason) }, setProtectedReason},
	interfaceAttr("raid", 31), interfaceAttr("rescue", 38),
	textAttr("resource_class", 21, func(n *metal.Node) *string { return &n.ResourceClass }),
	{"retired", 61, true, func(n *metal.Node) any { return n.Retired }, setRetired},
	{"retired_reason", 61, true, func(n *metal.Node) any { return orNil(n.RetiredReason) }, setRetiredReason},
	textAttr("shard", 82, func(n *metal.Node) *string { return &n.Shard }),
	interfaceAttr("storage", 33), interfaceAttr("vendor", 31),
}

var nodeAttrIndex = func() map[string]*nodeAttr {
	m := make(map[string]*nodeAttr, len(nodeAttrs))
	for i := range nodeAttrs {
		m[nodeAttrs[i].name] = &nodeAttrs[i]
	}
	return m
}()

// fillNode sets what a creation asks for.
func (c *ironicCall) fillNode(n *metal.Node, body map[string]any) error {
	for name := range body {
		if a := nodeAttrIndex[name]; name != "uuid" && (a == nil || !a.creatable) {
			return c.notCreatable(name, a)
		}
	}
	if err := c.checkAges(body); err != nil {
		return err
	}
	id, err := wantText("uuid", body["uuid"])
	if err != nil {
		return err
	}
	n.ID = id
	for i := range nodeAttrs { // in their own order, so that of two errors the same one is told
		a := &nodeAttrs[i]
		if v, ok := body[a.name]; ok {
			if err := a.set(n, v); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *ironicCall) notCreatable(name string, a *nodeAttr) error {
	switch {
	case a != nil:
		return problem.Invalidf("Cannot specify %s on node creation. It can only be set for active nodes.", name)
	case name == "traits":
		return problem.Invalidf("Cannot specify node traits on node creation. Traits must be set via the node traits API.")
	}
	known := make([]string, len(nodeAttrs))
	for i := range nodeAttrs {
		known[i] = nodeAttrs[i].name
	}
	return problem.Invalidf("Schema error for node: Additional properties are not allowed ('%s' was unexpected)%s", truncateInput(name), suggestName(name, known))
}

// checkAges refuses attributes that are newer than the version of the request.
func (c *ironicCall) checkAges(body map[string]any) error {
	for i := range nodeAttrs {
		if _, ok := body[nodeAttrs[i].name]; ok && nodeAttrs[i].since > c.version {
			return newerField(nodeAttrs[i].name, nodeAttrs[i].since)
		}
	}
	return nil
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func boolOrNil(b *bool) any {
	if b == nil {
		return nil
	}
	return *b
}

func orEmpty(o metal.Object) any {
	if o == nil {
		return metal.Object{}
	}
	return o
}

// maxText bounds a string of a record, in bytes; metal bounds most of them closer.
const maxText = 64 << 10

func wantText(name string, v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		if len(v) > maxText {
			return "", problem.Invalidf("%s is longer than %d bytes", name, maxText)
		}
		return v, nil
	}
	return "", wrongType(name, v, "a string")
}

func wantBool(name string, v any) (bool, error) {
	switch v := v.(type) {
	case nil:
		return false, nil
	case bool:
		return v, nil
	case string: // as oslo reads them
		if b, ok := parseBool(v); ok {
			return b, nil
		}
	}
	return false, wrongType(name, v, "a boolean")
}

func wantObject(name string, v any) (metal.Object, error) {
	switch v := v.(type) {
	case nil:
		return metal.Object{}, nil
	case map[string]any:
		return v, nil
	}
	return nil, wrongType(name, v, "an object")
}

func wrongType(name string, v any, want string) error {
	switch s := v.(type) {
	case map[string]any:
		v = "an object" // which may hold a secret
	case []any:
		v = "a list"
	case string:
		if secret.IsKey(name) {
			v = strings.Repeat("*", min(len(s), 6))
		}
	}
	return problem.Invalidf("Invalid input for field/attribute %s. Value: '%.100v'. It must be %s.", name, v, want)
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

func setChassis(n *metal.Node, v any) error {
	word, err := wantText("chassis_uuid", v)
	if err == nil && word != "" && !record.IsUUID(word) {
		err = problem.Invalidf("Invalid input for field/attribute chassis_uuid. Value: '%s'. Expected a UUID but received %s.", truncateInput(word), truncateInput(word))
	}
	n.ChassisUUID = strings.ToLower(word)
	return err
}

func setInstanceUUID(n *metal.Node, v any) error {
	word, err := wantText("instance_uuid", v)
	if err == nil && word != "" && !record.IsUUID(word) {
		err = problem.Invalidf("Invalid input for field/attribute instance_uuid. Value: '%s'. Expected a UUID but received %s.", truncateInput(word), truncateInput(word))
	}
	n.InstanceUUID = strings.ToLower(word)
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

func setMaintenanceAttr(n *metal.Node, v any) error {
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
