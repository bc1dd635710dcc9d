package serve

import (
	"strings"
	"testing"

	"salvor/config"
	"salvor/driver"
	"salvor/metal"
)

func offered(types []driver.HardwareType, kind string) string {
	var out []string
	for _, t := range types {
		set := t.Info.Interfaces[kind]
		names := []string{}
		for _, i := range set.Enabled {
			names = append(names, i.Name)
		}
		out = append(out, t.Info.Name+"="+strings.Join(names, "+")+" default "+set.Default)
	}
	return strings.Join(out, "; ")
}

func TestEnabled(t *testing.T) {
	types := func() []driver.HardwareType {
		set := func(names ...string) map[string]metal.InterfaceSet {
			s := metal.InterfaceSet{Default: names[0]}
			for _, n := range names {
				s.Enabled = append(s.Enabled, metal.InterfaceInfo{Name: n})
			}
			return map[string]metal.InterfaceSet{"boot": s}
		}
		return []driver.HardwareType{{Info: metal.DriverInfo{Name: "a", Interfaces: set("x", "y")}}, {Info: metal.DriverInfo{Name: "b", Interfaces: set("y", "z")}}}
	}
	for _, c := range []struct {
		types, boot []string
		want        string
		warnings    int
		err         string
	}{
		{[]string{"a", "b"}, nil, "a=x+y default x; b=y+z default y", 0, ""},
		{[]string{"b", "snmp"}, nil, "b=y+z default y", 1, ""},
		{[]string{"a", "b"}, []string{"y", "pxe"}, "a=y default y; b=y default y", 1, ""},
		{[]string{"a"}, []string{"z"}, "", 0, "leaves the hardware type a without one: enable one of x, y"},
		{[]string{"snmp"}, nil, "", 1, "enables none; there are a, b"},
	} {
		d := config.Default{EnabledHardwareTypes: c.types, EnabledInterfaces: map[string][]string{}}
		if c.boot != nil {
			d.EnabledInterfaces["boot"] = c.boot
		}
		got, warnings, err := filterEnabledHardware(types(), d)
		if offered(got, "boot") != c.want || len(warnings) != c.warnings || (err == nil) != (c.err == "") || (err != nil && !strings.Contains(err.Error(), c.err)) {
			t.Errorf("enabled(%v, %v) = %s, %q, %v", c.types, c.boot, offered(got, "boot"), warnings, err)
		}
	}
}
