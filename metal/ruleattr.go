package metal

import (
	"salvor/problem"
)

// ruleAttr is what rules may change of a node or a port; a nil value resets it.
type ruleAttr[T any] struct {
	get func(*T) any
	set func(*T, any) error
}

func ruleText[T any](limit int, at func(*T) *string) ruleAttr[T] {
	return ruleAttr[T]{
		func(r *T) any {
			if *at(r) == "" {
				return nil
			}
			return *at(r)
		},
		func(r *T, v any) error {
			word, ok := v.(string)
			if !ok && v != nil || len(word) > limit {
				return problem.Invalidf("it must be a string of at most %d characters", limit)
			}
			*at(r) = word
			return nil
		}}
}

func ruleBool[T any](at func(*T) *bool) ruleAttr[T] {
	return ruleAttr[T]{
		func(r *T) any { return *at(r) },
		func(r *T, v any) error {
			on := isTruthy(v, "yes", "true")
			if !on && !isFalsy(v) {
				return problem.Invalidf("it must be a boolean")
			}
			*at(r) = on
			return nil
		}}
}

func ruleObject[T any](at func(*T) *Object) ruleAttr[T] {
	return ruleAttr[T]{
		func(r *T) any {
			if *at(r) == nil {
				return Object{}
			}
			return *at(r)
		},
		func(r *T, v any) error {
			o, ok := v.(map[string]any)
			if !ok && v != nil {
				return problem.Invalidf("it must be an object")
			}
			*at(r) = o
			return nil
		}}
}

func ruleInterface(kind string) ruleAttr[Node] {
	return ruleAttr[Node]{
		func(n *Node) any { return orNone(n.Interfaces[kind]) },
		func(n *Node, v any) error {
			word, ok := v.(string)
			if !ok && v != nil || len(word) > words255 {
				return problem.Invalidf("it must be the name of an interface")
			}
			interfaces := map[string]string{}
			for k, name := range n.Interfaces {
				interfaces[k] = name
			}
			if interfaces[kind] = word; word == "" {
				delete(interfaces, kind)
			}
			n.Interfaces = interfaces
			return nil
		}}
}

func orNone(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// ruleNodeAttrs leave out what only operations and operators may change: states, locks,
// what is protected, and whose the node is by its UUID.
var ruleNodeAttrs = func() map[string]ruleAttr[Node] {
	m := map[string]ruleAttr[Node]{
		"driver_info":       ruleObject(func(n *Node) *Object { return &n.DriverInfo }),
		"properties":        ruleObject(func(n *Node) *Object { return &n.Properties }),
		"extra":             ruleObject(func(n *Node) *Object { return &n.Extra }),
		"instance_info":     ruleObject(func(n *Node) *Object { return &n.InstanceInfo }),
		"resource_class":    ruleText(80, func(n *Node) *string { return &n.ResourceClass }),
		"description":       ruleText(4096, func(n *Node) *string { return &n.Description }),
		"owner":             ruleText(255, func(n *Node) *string { return &n.Owner }),
		"lessee":            ruleText(255, func(n *Node) *string { return &n.Lessee }),
		"shard":             ruleText(255, func(n *Node) *string { return &n.Shard }),
		"instance_name":     ruleText(255, func(n *Node) *string { return &n.InstanceName }),
		"disable_power_off": ruleBool(func(n *Node) *bool { return &n.DisablePowerOff }),
		"name": {func(n *Node) any { return orNone(n.Name) }, func(n *Node, v any) error {
			word, ok := v.(string)
			if !ok && v != nil {
				return problem.Invalidf("it must be a string")
			}
			n.Name = word
			return checkName(word)
		}},
		"driver": {func(n *Node) any { return n.Driver }, func(n *Node, v any) error {
			word, _ := v.(string)
			if word == "" || len(word) > words255 {
				return problem.Invalidf("it must be the name of a hardware type")
			}
			n.Driver = word
			return nil
		}},
		"automated_clean": {func(n *Node) any {
			if n.AutomatedClean == nil {
				return nil
			}
			return *n.AutomatedClean
		}, func(n *Node, v any) error {
			if n.AutomatedClean = nil; v == nil {
				return nil
			}
			on := isTruthy(v, "yes", "true")
			n.AutomatedClean = &on
			return nil
		}},
	}
	for _, kind := range InterfaceKinds {
		m[kind+"_interface"] = ruleInterface(kind)
	}
	return m
}()

var rulePortAttrs = map[string]ruleAttr[Port]{
	"extra":                 ruleObject(func(p *Port) *Object { return &p.Extra }),
	"local_link_connection": ruleObject(func(p *Port) *Object { return &p.LocalLink }),
	"pxe_enabled":           ruleBool(func(p *Port) *bool { return &p.PXEEnabled }),
	"is_smartnic":           ruleBool(func(p *Port) *bool { return &p.IsSmartNIC }),
	"physical_network":      ruleText(64, func(p *Port) *string { return &p.PhysicalNetwork }),
	"description":           ruleText(255, func(p *Port) *string { return &p.Description }),
	"vendor":                ruleText(32, func(p *Port) *string { return &p.Vendor }),
	"category":              ruleText(80, func(p *Port) *string { return &p.Category }),
}

// nodeValue is what {node.attribute} stands for: all that rules may change, and a little more.
func nodeValue(n *Node, name string) (any, bool) {
	if a, ok := ruleNodeAttrs[name]; ok {
		return a.get(n), true
	}
	switch name {
	case "uuid":
		return n.ID, true
	case "provision_state":
		return string(n.ProvisionState), true
	case "power_state":
		return orNone(string(n.PowerState)), true
	case "instance_uuid":
		return orNone(n.InstanceUUID), true
	case "chassis_uuid":
		return orNone(n.ChassisUUID), true
	case "conductor_group":
		return n.ConductorGroup, true
	}
	return nil, false
}
