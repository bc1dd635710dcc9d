package nova

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

// binary is the only service that runs on hosts.
const computeBinary = "nova-compute"

// defaultZone is the zone of hosts and servers that name none.
const defaultZone = "nova"

func zoneOf(zone string) string {
	if zone == "" {
		return defaultZone
	}
	return zone
}

// hostRoutes are of hosts, which the Compute API knows as services and as hypervisors.
func (s *apiServer) hostRoutes() []versionedRoute {
	return []versionedRoute{
		{method: "GET", path: "/os-services", need: admin, do: handlerOf(hostCall.listServices)},
		{method: "PUT", path: "/os-services/{service}", need: admin, until: 52, do: handlerOf(hostCall.oldUpdateService)},
		{method: "PUT", path: "/os-services/{service}", need: admin, since: 53, do: handlerOf(hostCall.updateService)},
		{method: "DELETE", path: "/os-services/{service}", need: admin, do: handlerOf(hostCall.removeService)},
		{method: "GET", path: "/os-hypervisors", need: admin, do: handlerOf(hostCall.listHypervisors)},
		{method: "GET", path: "/os-hypervisors/detail", need: admin, do: handlerOf(hostCall.detailHypervisors)},
		{method: "GET", path: "/os-hypervisors/statistics", need: admin, until: 87, do: handlerOf(hostCall.hypervisorStatistics)},
		{method: "GET", path: "/os-hypervisors/{hypervisor}", need: admin, do: handlerOf(hostCall.getHypervisor)},
		{method: "GET", path: "/os-hypervisors/{hypervisor}/uptime", need: admin, until: 87, do: handlerOf(hostCall.hypervisorUptime)},
		{method: "GET", path: "/os-hypervisors/{hypervisor}/search", need: admin, until: 52, do: handlerOf(hostCall.searchHypervisors)},
		{method: "GET", path: "/os-hypervisors/{hypervisor}/servers", need: admin, until: 52, do: handlerOf(hostCall.hypervisorServers)},
		{method: "GET", path: "/os-availability-zone", need: reader, do: handlerOf(hostCall.listZones)},
		{method: "GET", path: "/os-availability-zone/detail", need: admin, do: handlerOf(hostCall.detailZones)},
	}
}

// hostWithLiveness is a host with what is known of its life.
type hostWithLiveness struct {
	*compute.Host
	compute.HostLiveness
}

func (l *hostWithLiveness) state() string {
	if l.Up && !l.ForcedDown {
		return "up"
	}
	return "down"
}

func (l *hostWithLiveness) status() string {
	if l.Disabled {
		return "disabled"
	}
	return "enabled"
}

// hosts reads a page of hosts.
func (c hostCall) hosts(p record.Page) ([]hostWithLiveness, error) {
	all, err := c.s.Services.Hosts.List(c.R.Context(), compute.HostFilter{}, p)
	if err != nil {
		return nil, err
	}
	lives, err := c.s.Services.Liveness.All(c.R.Context())
	if err != nil {
		return nil, err
	}
	out := make([]hostWithLiveness, len(all))
	for i, h := range all {
		out[i] = hostWithLiveness{h, lives[h.ID]}
	}
	return out, nil
}

// hostID is how a host is named: by a number, and from 2.53 on by its UUID.
func (c hostCall) hostID(h *compute.Host) any {
	if c.Minor >= 53 {
		return h.ID
	}
	return h.Num
}

// hostNamed finds the host of an id as the microversion has it; found tells whether there is one.
func (c hostCall) hostNamed(id string) (found *hostWithLiveness, err error) {
	if c.Minor >= 53 && !record.IsUUID(id) {
		return nil, problem.Invalidf("Invalid uuid %s", truncateText(id))
	}
	all, err := c.hosts(record.Page{})
	if err != nil {
		return nil, err
	}
	for i := range all {
		if c.Minor >= 53 && all[i].ID == id || c.Minor < 53 && strconv.FormatInt(all[i].Num, 10) == id {
			return &all[i], nil
		}
	}
	return nil, nil
}

func (c hostCall) serviceView(h *hostWithLiveness) jsonObject {
	changed := h.RenewedAt
	if changed.IsZero() {
		changed = h.UpdatedAt
	}
	o := jsonObject{
		"id": c.hostID(h.Host), "binary": computeBinary, "host": h.Name, "zone": zoneOf(h.Zone), "status": h.status(), "state": h.state(),
		"disabled_reason": orNil(h.DisabledReason), "updated_at": timeOrNil(changed),
	}
	if c.Minor >= 11 {
		o["forced_down"] = h.ForcedDown
	}
	return o
}

func (c hostCall) listServices() error {
	if err := c.only(75, "host", "binary"); err != nil {
		return err
	}
	out := []jsonObject{}
	if b := c.Query.Get("binary"); b != "" && b != computeBinary {
		return c.json(http.StatusOK, jsonObject{"services": out})
	}
	all, err := c.hosts(record.Page{})
	if err != nil {
		return err
	}
	for i := range all {
		if name := c.Query.Get("host"); name == "" || name == all[i].Name {
			out = append(out, c.serviceView(&all[i]))
		}
	}
	return c.json(http.StatusOK, jsonObject{"services": out})
}

var (
	oldServiceSchema = objectSchema(schemaProperty{name: "host", required: true, rule: stringSchema(1, 255)}, schemaProperty{name: "binary", required: true, rule: stringSchema(1, 255)})
	reasonSchema     = objectSchema(schemaProperty{name: "host", required: true, rule: stringSchema(1, 255)}, schemaProperty{name: "binary", required: true, rule: stringSchema(1, 255)},
		schemaProperty{name: "disabled_reason", required: true, rule: stringSchema(1, 255)})
	forceDownSchema = objectSchema(schemaProperty{name: "host", required: true, rule: stringSchema(1, 255)}, schemaProperty{name: "binary", required: true, rule: stringSchema(1, 255)},
		schemaProperty{name: "forced_down", required: true, rule: booleanSchema})
	serviceSchema = objectSchema(schemaProperty{name: "status", rule: oneOf("enabled", "disabled")}, schemaProperty{name: "disabled_reason", rule: stringSchema(1, 255)},
		schemaProperty{name: "forced_down", rule: booleanSchema})
)

// oldUpdateService takes a verb in the place of the service, which the body names.
func (c hostCall) oldUpdateService() error {
	verb := c.Arg("service")
	schema := oldServiceSchema
	switch {
	case verb == "enable", verb == "disable":
	case verb == "disable-log-reason":
		schema = reasonSchema
	case verb == "force-down" && c.Minor >= 11:
		schema = forceDownSchema
	default:
		return problem.NotFoundf("Unknown action")
	}
	body, err := c.body("", schema)
	if err != nil {
		return err
	}
	name := stringProperty(body, "host")
	h, err := c.serviceHost(name, stringProperty(body, "binary"))
	if err != nil {
		return err
	}
	off, none, answer := verb != "enable", "", jsonObject{"host": name, "binary": computeBinary}
	change := compute.Service{Disabled: &off, Reason: &none}
	switch verb {
	case "disable-log-reason":
		none = stringProperty(body, "disabled_reason")
		answer["disabled_reason"] = none
	case "force-down":
		down, _ := boolOf(body["forced_down"])
		change = compute.Service{ForcedDown: &down}
		answer["forced_down"] = down
	}
	if change.Disabled != nil {
		answer["status"] = "enabled"
		if off {
			answer["status"] = "disabled"
		}
	}
	if _, err := c.s.Services.Hosts.SetService(c.R.Context(), h.ID, change, c.requester.Asker); err != nil {
		return err
	}
	return c.json(http.StatusOK, jsonObject{"service": answer})
}

func (c hostCall) serviceHost(name, which string) (*compute.Host, error) {
	all, err := c.s.Services.Hosts.List(c.R.Context(), compute.HostFilter{Name: name}, record.Page{})
	if err != nil {
		return nil, err
	}
	if which != computeBinary || len(all) == 0 {
		return nil, problem.NotFoundf("Could not find binary %s on host %s.", truncateText(which), truncateText(name))
	}
	if len(all) > 1 {
		ids := make([]string, len(all))
		for i, h := range all {
			ids[i] = h.ID
		}
		return nil, problem.Conflictf("Multiple hosts are named %s: %s. Name one by its UUID, with microversion 2.53 or later.", truncateText(name), strings.Join(ids, ", "))
	}
	return all[0], nil
}

func (c hostCall) updateService() error {
	h, err := c.service()
	if err != nil {
		return err
	}
	body, err := c.body("", serviceSchema)
	if err != nil {
		return err
	}
	status, reason := stringProperty(body, "status"), stringProperty(body, "disabled_reason")
	switch {
	case len(body) == 0:
		return problem.Invalidf("No updates were requested. Fields 'status' or 'forced_down' should be specified.")
	case reason != "" && status == "enabled":
		return problem.Invalidf("Specifying 'disabled_reason' when status is 'enabled' is invalid.")
	case reason != "" && status == "":
		return problem.Invalidf("Specifying 'disabled_reason' without status 'disabled' is invalid.")
	}
	var change compute.Service
	if status != "" {
		off := status == "disabled"
		change.Disabled, change.Reason = &off, &reason
	}
	if down, ok := boolOf(body["forced_down"]); ok {
		change.ForcedDown = &down
	}
	after, err := c.s.Services.Hosts.SetService(c.R.Context(), h.ID, change, c.requester.Asker)
	if err != nil {
		return err
	}
	lives, err := c.s.Services.Liveness.All(c.R.Context())
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, jsonObject{"service": c.serviceView(&hostWithLiveness{after, lives[after.ID]})})
}

// service finds the host that the path names as a service.
func (c hostCall) service() (*hostWithLiveness, error) {
	id := c.Arg("service")
	h, err := c.hostNamed(id)
	if err == nil && h == nil {
		err = problem.NotFoundf("Service %s not found.", truncateText(id))
	}
	return h, err
}

func (c hostCall) removeService() error {
	h, err := c.service()
	if err != nil {
		return err
	}
	if err := c.s.Services.Hosts.Remove(c.R.Context(), h.ID, "", c.requester.Asker); err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}

// zones groups the hosts that take servers by zone.
func (c hostCall) zones() (names []string, byZone map[string][]hostWithLiveness, err error) {
	all, err := c.hosts(record.Page{})
	if err != nil {
		return nil, nil, err
	}
	byZone = map[string][]hostWithLiveness{}
	for _, h := range all {
		zone := zoneOf(h.Zone)
		if byZone[zone] == nil {
			names = append(names, zone)
		}
		byZone[zone] = append(byZone[zone], h)
	}
	slices.Sort(names)
	return names, byZone, nil
}

func zoneStateView(hosts []hostWithLiveness) jsonObject {
	return jsonObject{"available": slices.ContainsFunc(hosts, func(h hostWithLiveness) bool { return !h.Disabled })}
}

func (c hostCall) listZones() error {
	names, hosts, err := c.zones()
	if err != nil {
		return err
	}
	out := []jsonObject{}
	for _, name := range names {
		out = append(out, jsonObject{"zoneName": name, "zoneState": zoneStateView(hosts[name]), "hosts": nil})
	}
	return c.json(http.StatusOK, jsonObject{"availabilityZoneInfo": out})
}

func (c hostCall) detailZones() error {
	names, byZone, err := c.zones()
	if err != nil {
		return err
	}
	out := []jsonObject{}
	for _, name := range names {
		hosts := jsonObject{}
		for i := range byZone[name] {
			h := &byZone[name][i]
			hosts[h.Name] = jsonObject{computeBinary: jsonObject{"active": !h.Disabled, "available": h.state() == "up", "updated_at": timeOrNil(h.RenewedAt)}}
		}
		out = append(out, jsonObject{"zoneName": name, "zoneState": zoneStateView(byZone[name]), "hosts": hosts})
	}
	return c.json(http.StatusOK, jsonObject{"availabilityZoneInfo": out})
}
