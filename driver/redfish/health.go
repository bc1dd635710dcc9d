package redfish

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/link"
	"salvor/metal"
)

var _ driver.Health = (*Driver)(nil)

// What one look at the health reads at most.
const (
	healthTime         = 40 * time.Second
	maxHealthResources = 200
	maxUnhealthy       = 200
	maxConditions      = 10 // of one resource
)

// ReadHealth reads the system, its chassis and their sensors. Where the system is not well, or does not tell, it reads its processors,
// memory and drives too.
func (d *Driver) ReadHealth(ctx context.Context, n *metal.Node) (metal.Health, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	out := metal.Health{Unhealthy: []metal.UnhealthyComponent{}}
	err := d.with(ctx, n, "read the health", func(s *bmcSession) error {
		sys, err := s.read()
		if err != nil {
			return err
		}
		r := healthReader{s: s, left: maxHealthResources, out: &out}
		whole := sys.Status.summary()
		if whole != "" {
			out.Health = driver.Severity(whole)
		}
		var doc map[string]any
		if _, err := s.bmc.Get(s.system, &doc); err != nil {
			return err
		}
		r.add("system", doc)
		for kind, name := range map[string]string{"processors": "ProcessorSummary", "memory": "MemorySummary"} {
			if part, _ := doc[name].(map[string]any); part != nil {
				r.addNamed(kind, kind, part)
			}
		}
		for _, link := range sys.Links.Chassis[:min(len(sys.Links.Chassis), maxLogOwners)] {
			r.chassis(link.Path)
		}
		if out.Health != metal.HealthOK {
			r.collection("processor", linkOf(doc, "Processors"))
			r.collection("memory", linkOf(doc, "Memory"))
			r.storage(linkOf(doc, "Storage"))
		}
		return nil
	})
	slices.SortStableFunc(out.Unhealthy, func(a, b metal.UnhealthyComponent) int {
		return cmp.Or(cmp.Compare(a.Component, b.Component), cmp.Compare(a.Name, b.Name))
	})
	return out, err
}

// healthReader reads resources until it has read too many.
type healthReader struct {
	s    *bmcSession
	left int
	out  *metal.Health
}

// get reads a resource; nil: the BMC does not have it, or it could not be read.
func (r *healthReader) get(at string) map[string]any {
	if at == "" {
		return nil
	}
	if r.left--; r.left < 0 || r.s.bmc.Context().Err() != nil {
		r.out.Truncated = true
		return nil
	}
	var doc map[string]any
	if _, err := r.s.bmc.Get(at, &doc); err != nil {
		r.out.Truncated = r.out.Truncated || !errors.Is(err, conversation.ErrMissing)
		return nil
	}
	return doc
}

// linkOf is the path that a member links to; empty: there is none.
func linkOf(doc map[string]any, member string) string { return link.In(doc[member]) }

// links are the paths of a list of links.
func links(v any) (out []string) {
	list, _ := v.([]any)
	for _, e := range list {
		if at := link.In(e); at != "" {
			out = append(out, at)
		}
	}
	return out
}

// collection looks at each member of a list. Some BMCs have the members in the list, most have links there.
func (r *healthReader) collection(kind, at string) []map[string]any {
	var all []map[string]any
	for _, member := range links(r.get(at)["Members"]) {
		doc := r.get(link.Join(at, member))
		if doc == nil {
			continue
		}
		r.add(kind, doc)
		all = append(all, doc)
	}
	return all
}

func (r *healthReader) storage(at string) {
	for _, storage := range r.collection("storage", at) {
		for _, drive := range links(storage["Drives"]) {
			if doc := r.get(drive); doc != nil {
				r.add("drive", doc)
			}
		}
	}
}

// sensorLists are the members of Thermal and Power that list components, and their kinds.
var sensorLists = []struct{ member, kind string }{
	{"Temperatures", "temperature"}, {"Fans", "fan"}, {"Voltages", "voltage"}, {"PowerSupplies", "power supply"}, {"Redundancy", "redundancy"},
}

// chassis looks at a chassis and its sensors: those of Thermal and Power, which are two resources, or else each by itself.
func (r *healthReader) chassis(at string) {
	doc := r.get(at)
	if doc == nil {
		return
	}
	r.add("chassis", doc)
	thermal, power := r.get(linkOf(doc, "Thermal")), r.get(linkOf(doc, "Power"))
	for _, part := range []map[string]any{thermal, power} {
		for _, list := range sensorLists {
			all, _ := part[list.member].([]any)
			for _, e := range all {
				if e, _ := e.(map[string]any); e != nil {
					r.add(list.kind, e)
				}
			}
		}
	}
	if thermal == nil {
		r.collection("fan", linkOf(r.get(linkOf(doc, "ThermalSubsystem")), "Fans"))
	}
	if power == nil {
		r.collection("power supply", linkOf(r.get(linkOf(doc, "PowerSubsystem")), "PowerSupplies"))
	}
	if thermal == nil && power == nil {
		r.collection("sensor", linkOf(doc, "Sensors"))
	}
}

func (r *healthReader) text(v any) string {
	return driver.LogText(scalarText(v), r.s.bmc.Secrets()...)
}

func (r *healthReader) add(kind string, doc map[string]any) {
	name := ""
	for _, member := range []string{"Name", "FanName", "DeviceLocator", "MemberId", "Id"} {
		name = cmp.Or(name, r.text(doc[member]))
	}
	if kind == "sensor" {
		if kind = cmp.Or(strings.ToLower(r.text(doc["ReadingType"])), kind); kind == "rotational" {
			kind = "fan"
		}
	}
	if kind == "drive" || kind == "memory" || kind == "processor" { // the names of iDRAC and iLO are the same for all of them
		if id := r.text(doc["Id"]); id != "" && id != name {
			name += " (" + id + ")"
		}
	}
	r.addNamed(kind, name, doc)
}

// addNamed adds a component whose own health is not ok. BMCs call empty slots unhealthy, which they are not.
func (r *healthReader) addNamed(kind, name string, doc map[string]any) {
	status, _ := doc["Status"].(map[string]any)
	conditions, _ := status["Conditions"].([]any)
	c := metal.UnhealthyComponent{Component: kind, Name: name, State: r.text(status["State"]), Health: driver.Severity(scalarText(status["Health"]))}
	if strings.EqualFold(c.State, "Absent") {
		return
	}
	for _, e := range conditions[:min(len(conditions), maxConditions)] {
		e, _ := e.(map[string]any)
		text := cmp.Or(r.text(e["Message"]), r.text(e["MessageId"]))
		origin, _ := e["OriginOfCondition"].(map[string]any)
		if at := scalarText(origin["@odata.id"]); at != "" {
			text = strings.TrimSpace(r.text(path.Base(at)) + ": " + text)
		}
		c.Message = driver.LogText(strings.Trim(c.Message+"; "+text, "; "))
		if severity := driver.Severity(scalarText(e["Severity"])); c.Health == metal.HealthOK {
			c.Health = severity
		}
	}
	if c.Health == metal.HealthOK {
		return
	}
	c.Reading, c.Unit = readingOf(doc)
	c.Unit = driver.LogText(c.Unit)
	if len(r.out.Unhealthy) >= maxUnhealthy {
		r.out.Truncated = true
		return
	}
	r.out.Unhealthy = append(r.out.Unhealthy, c)
}

// readingUnits are the members that hold the reading of a sensor, and its unit; empty: ReadingUnits has it.
var readingUnits = map[string]string{"Reading": "", "ReadingCelsius": "Cel", "ReadingVolts": "V"}

// unitNames are units as people write them, by their names in UCUM.
var unitNames = map[string]string{"Cel": "°C", "{rev}/min": "RPM", "Percent": "%"}

func readingOf(doc map[string]any) (*float64, string) {
	for _, member := range slices.Sorted(maps.Keys(readingUnits)) {
		reading, ok := doc[member].(float64)
		if !ok {
			continue
		}
		unit := cmp.Or(readingUnits[member], scalarText(doc["ReadingUnits"]))
		return &reading, cmp.Or(unitNames[unit], unit)
	}
	return nil, ""
}
