package serve

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"salvor/config"
	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

// filterEnabledHardware leaves of the hardware types and their interfaces what the configuration
// enables. The warnings name what it enables and salvor does not have.
func filterEnabledHardware(all []driver.HardwareType, c config.Default) ([]driver.HardwareType, []string, error) {
	var out []driver.HardwareType
	var warnings, names []string
	for _, t := range all {
		names = append(names, t.Info.Name)
		if slices.Contains(c.EnabledHardwareTypes, t.Info.Name) {
			out = append(out, t)
		}
	}
	for _, name := range c.EnabledHardwareTypes {
		if !slices.Contains(names, name) {
			warnings = append(warnings, fmt.Sprintf("[DEFAULT]enabled_hardware_types: there is no hardware type %s; there are %s", name, strings.Join(names, ", ")))
		}
	}
	if len(out) == 0 {
		return nil, warnings, problem.Invalidf("[DEFAULT]enabled_hardware_types: enables none; there are %s", strings.Join(names, ", "))
	}
	for _, kind := range slices.Sorted(maps.Keys(c.EnabledInterfaces)) {
		known := map[string]bool{}
		for _, t := range out {
			if err := filterEnabledInterfaces(t, kind, c.EnabledInterfaces[kind], known); err != nil {
				return nil, warnings, err
			}
		}
		for _, name := range c.EnabledInterfaces[kind] {
			if !known[name] {
				warnings = append(warnings, fmt.Sprintf("[DEFAULT]enabled_%s_interfaces: no enabled hardware type has a %s interface %s", kind, kind, name))
			}
		}
	}
	return out, warnings, nil
}

// filterEnabledInterfaces takes the interfaces of a kind that are not wanted out of a hardware type, and
// marks the wanted ones that it has.
func filterEnabledInterfaces(t driver.HardwareType, kind string, wanted []string, known map[string]bool) error {
	set, ok := t.Info.Interfaces[kind]
	if !ok {
		return nil
	}
	var left []metal.InterfaceInfo
	var had []string
	for _, i := range set.Enabled {
		had = append(had, i.Name)
		if slices.Contains(wanted, i.Name) {
			known[i.Name] = true
			left = append(left, i)
		}
	}
	if len(left) == 0 {
		return problem.Invalidf("[DEFAULT]enabled_%s_interfaces: leaves the hardware type %s without one: enable one of %s, or take %s out of enabled_hardware_types",
			kind, t.Info.Name, strings.Join(had, ", "), t.Info.Name)
	}
	if !slices.ContainsFunc(left, func(i metal.InterfaceInfo) bool { return i.Name == set.Default }) {
		set.Default = left[0].Name
	}
	set.Enabled = left
	t.Info.Interfaces[kind] = set
	return nil
}
