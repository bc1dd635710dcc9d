package ironic

import (
	"maps"
	"net/http"
	"slices"

	"salvor/api"
	"salvor/metal"
	"salvor/problem"
)

// enabledDriver is a hardware type with the conductors that have it.
type enabledDriver struct {
	info  metal.DriverInfo
	hosts []string
}

// offers lists the hardware types of all live conductors by name.
func (c *ironicCall) offers() (map[string]*enabledDriver, error) {
	all, err := c.s.Directory.Conductors(c.R.Context())
	if err != nil {
		return nil, err
	}
	out := map[string]*enabledDriver{}
	for _, one := range all {
		if !one.Alive {
			continue
		}
		for _, d := range one.Catalog.Drivers {
			if out[d.Name] == nil {
				out[d.Name] = &enabledDriver{info: d}
			}
			out[d.Name].hosts = append(out[d.Name].hosts, one.Hostname)
		}
	}
	return out, nil
}

// kindSince is the first version that shows a kind of interface of a driver.
func kindSince(kind string) metal.Version {
	switch kind {
	case "storage":
		return 33
	case "rescue":
		return 38
	case "bios":
		return 40
	case "firmware":
		return 86
	}
	return 30
}

// shownDriver is one driver as the version shows it.
func (c *ironicCall) shownDriver(o *enabledDriver, detail bool) map[string]any {
	name := o.info.Name
	m := map[string]any{"name": name, "hosts": o.hosts, "links": c.links("drivers/" + name)}
	if c.version >= 14 {
		m["properties"] = c.links("drivers/" + name + "/properties")
	}
	if c.version < 30 {
		return m
	}
	m["type"] = "dynamic"
	if !detail {
		return m
	}
	for _, kind := range metal.InterfaceKinds {
		if kindSince(kind) > c.version {
			continue
		}
		set := o.info.Interfaces[kind]
		m["default_"+kind+"_interface"] = orNil(set.Default)
		names := []string{}
		for _, i := range set.Enabled {
			names = append(names, i.Name)
		}
		m["enabled_"+kind+"_interfaces"] = names
	}
	return m
}

func (s *server) listDrivers(c *ironicCall) error {
	if err := c.only("type", "detail", "fields"); err != nil {
		return err
	}
	choose, err := c.driverFields()
	if err != nil {
		return err
	}
	kind := c.Query.Get("type")
	if c.version < 30 && (c.has("type") || c.has("detail")) {
		return newerField("type", 30)
	}
	if kind != "" && kind != "classic" && kind != "dynamic" {
		return problem.Invalidf(`driver type must be one of "classic", "dynamic"`)
	}
	detail, err := c.boolean("detail")
	if err != nil {
		return err
	}
	offers, err := c.offers()
	if err != nil {
		return err
	}
	list := []map[string]any{}
	if kind != "classic" {
		for _, name := range slices.Sorted(maps.Keys(offers)) {
			d, err := choose(c.shownDriver(offers[name], detail != nil && *detail || c.has("fields")))
			if err != nil {
				return err
			}
			list = append(list, d)
		}
	}
	return c.JSON(http.StatusOK, map[string]any{"drivers": list})
}

// driverFields gives what narrows a driver to the fields that were asked for.
func (c *ironicCall) driverFields() (func(map[string]any) (map[string]any, error), error) {
	if c.has("fields") && c.version < 77 {
		return nil, newerField("fields", 77)
	}
	names, err := c.fieldNames()
	if err != nil {
		return nil, err
	}
	return func(d map[string]any) (map[string]any, error) {
		if names == nil {
			return d, nil
		}
		out := map[string]any{"links": d["links"]}
		for _, name := range names {
			v, ok := d[name]
			if !ok {
				return nil, unknownField(name, slices.Collect(maps.Keys(d)))
			}
			out[name] = v
		}
		return out, nil
	}, nil
}

func (c *ironicCall) driver() (*enabledDriver, error) {
	offers, err := c.offers()
	if err != nil {
		return nil, err
	}
	o, ok := offers[c.Args[0]]
	if !ok {
		return nil, problem.NotFoundf("Could not find the following driver(s) or hardware type(s): %s.", truncateInput(c.Args[0]))
	}
	return o, nil
}

func (s *server) getDriver(c *ironicCall) error {
	if err := c.only("fields"); err != nil {
		return err
	}
	choose, err := c.driverFields()
	if err != nil {
		return err
	}
	o, err := c.driver()
	if err != nil {
		return err
	}
	d, err := choose(c.shownDriver(o, true))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, d)
}

func (s *server) driverProperties(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	o, err := c.driver()
	if err != nil {
		return err
	}
	props := o.info.Properties
	if props == nil {
		props = map[string]string{}
	}
	return c.JSON(http.StatusOK, props)
}

// logicalDisks describes what a RAID configuration holds, where the driver's default RAID interface takes one.
func (s *server) logicalDisks(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	if c.version < 12 {
		return api.NotAcceptablef("Request not acceptable: raid/logical_disk_properties needs API version 1.12.")
	}
	o, err := c.driver()
	if err != nil {
		return err
	}
	if i, ok := o.info.Find(&metal.Node{}, "raid"); !ok || i.Unsupported {
		return problem.NotFoundf("Driver %s does not support raid (disabled or not implemented).", o.info.Name)
	}
	return c.JSON(http.StatusOK, metal.LogicalDiskProperties)
}
