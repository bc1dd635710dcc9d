package nova

import (
	"net/http"
	"slices"
	"time"

	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

// usageRoutes are those of which clients want an answer and salvor has nothing, or nothing more than a sum.
func (s *apiServer) usageRoutes() []versionedRoute {
	return []versionedRoute{
		{method: "GET", path: "/extensions", need: reader, do: handlerOf(usageCall.listExtensions)},
		{method: "GET", path: "/extensions/{alias}", need: reader, do: handlerOf(usageCall.getExtension)},
		{method: "GET", path: "/limits", need: reader, do: handlerOf(usageCall.limits)},
		{method: "GET", path: "/os-quota-sets/{project}", need: reader, do: handlerOf(usageCall.quota)},
		{method: "GET", path: "/os-quota-sets/{project}/defaults", need: reader, do: handlerOf(usageCall.quota)},
		{method: "GET", path: "/os-quota-sets/{project}/detail", need: reader, do: handlerOf(usageCall.quotaDetail)},
		{method: "GET", path: "/os-aggregates", need: admin, do: emptyList("aggregates")},
		{method: "GET", path: "/os-server-groups", need: reader, do: emptyList("server_groups")},
		{method: "GET", path: "/os-security-groups", need: reader, do: emptyList("security_groups")},
		{method: "GET", path: "/os-floating-ips", need: reader, do: emptyList("floating_ips")},
		{method: "GET", path: "/os-simple-tenant-usage", need: admin, do: handlerOf(usageCall.listUsage)},
		{method: "GET", path: "/os-simple-tenant-usage/{project}", need: reader, do: handlerOf(usageCall.projectUsage)},
	}
}

// emptyList answers with an empty list: there are no such things here.
func emptyList(key string) func(*novaCall) error {
	return func(c *novaCall) error { return c.json(http.StatusOK, jsonObject{key: []any{}}) }
}

// servedExtensions are those whose fields and paths clients look for.
var servedExtensions = []struct{ alias, name string }{
	{"os-extended-availability-zone", "ExtendedAvailabilityZone"}, {"os-extended-server-attributes", "ExtendedServerAttributes"},
	{"os-extended-status", "ExtendedStatus"}, {"os-extended-volumes", "ExtendedVolumes"}, {"os-server-usage", "ServerUsage"},
	{"os-keypairs", "Keypairs"}, {"os-rescue", "Rescue"}, {"os-services", "Services"}, {"os-hypervisors", "Hypervisors"},
	{"os-volumes", "Volumes"}, {"os-networks", "Networks"}, {"os-tenant-networks", "OSTenantNetworks"}, {"os-instance-actions", "InstanceActions"},
	{"os-console-output", "ConsoleOutput"}, {"os-availability-zone", "AvailabilityZone"}, {"os-flavor-extra-specs", "FlavorExtraSpecs"},
	{"os-lock-server", "LockServer"}, {"os-pause-server", "PauseServer"}, {"os-suspend-server", "SuspendServer"}, {"os-quota-sets", "Quotas"},
}

func extensionView(i int) jsonObject {
	e := servedExtensions[i]
	return jsonObject{
		"alias": e.alias, "name": e.name, "description": e.name, "namespace": "http://docs.openstack.org/compute/ext/fake_xml",
		"updated": "2014-12-03T00:00:00Z", "links": []any{},
	}
}

func (c usageCall) listExtensions() error {
	out := []jsonObject{}
	for i := range servedExtensions {
		out = append(out, extensionView(i))
	}
	return c.json(http.StatusOK, jsonObject{"extensions": out})
}

func (c usageCall) getExtension() error {
	for i := range servedExtensions {
		if servedExtensions[i].alias == c.Arg("alias") {
			return c.json(http.StatusOK, jsonObject{"extension": extensionView(i)})
		}
	}
	return notThere()
}

// quotaResources are the resources that have a quota in Nova. salvor bounds few of them.
var quotaResources = []struct {
	name  string
	until int
}{
	{"instances", 0}, {"cores", 0}, {"ram", 0}, {"metadata_items", 0}, {"key_pairs", 0}, {"server_groups", 0}, {"server_group_members", 0},
	{"floating_ips", 35}, {"fixed_ips", 35}, {"security_groups", 35}, {"security_group_rules", 35},
	{"injected_files", 56}, {"injected_file_content_bytes", 56}, {"injected_file_path_bytes", 56},
}

// mayQuota refuses to tell a project of another one.
func (c usageCall) mayQuota() error {
	if !c.admin && c.Arg("project") != c.requester.Project {
		return problem.Forbiddenf(policyForbidden, "os_compute_api:os-quota-sets:show")
	}
	return nil
}

func (c usageCall) quota() error {
	if err := c.mayQuota(); err != nil {
		return err
	}
	o := jsonObject{"id": c.Arg("project")}
	for _, q := range quotaResources {
		if q.until == 0 || c.Minor <= q.until {
			o[q.name] = limitOf(q.name)
		}
	}
	return c.json(http.StatusOK, jsonObject{"quota_set": o})
}

func limitOf(quota string) int {
	switch quota {
	case "metadata_items":
		return maxMetadata
	case "injected_files", "injected_file_content_bytes", "injected_file_path_bytes",
		"server_groups", "server_group_members", "security_groups", "security_group_rules", "floating_ips": // there are none
		return 0
	}
	return -1
}

func (c usageCall) quotaDetail() error {
	if err := c.mayQuota(); err != nil {
		return err
	}
	used, err := c.used(c.Arg("project"))
	if err != nil {
		return err
	}
	o := jsonObject{"id": c.Arg("project")}
	for _, q := range quotaResources {
		if q.until == 0 || c.Minor <= q.until {
			o[q.name] = jsonObject{"in_use": used[q.name], "reserved": 0, "limit": limitOf(q.name)}
		}
	}
	return c.json(http.StatusOK, jsonObject{"quota_set": o})
}

// used counts what the servers of a project take; empty: of all.
func (c usageCall) used(project string) (map[string]int, error) {
	all, err := c.s.Services.Servers.List(c.R.Context(), compute.ServerFilter{Project: project}, record.Page{})
	if err != nil {
		return nil, err
	}
	out := map[string]int{"instances": len(all)}
	for _, srv := range all {
		out["cores"] += srv.Flavor.VCPUs
		out["ram"] += srv.Flavor.RAM
	}
	return out, nil
}

func (c usageCall) limits() error {
	project := c.requester.Project
	if asked := c.Query.Get("tenant_id"); asked != "" {
		if !c.admin && asked != project {
			return problem.Forbiddenf(policyForbidden, "os_compute_api:limits:other_project")
		}
		project = asked
	}
	used, err := c.used(project)
	if err != nil {
		return err
	}
	o := jsonObject{
		"maxTotalInstances": -1, "maxTotalCores": -1, "maxTotalRAMSize": -1, "maxServerMeta": maxMetadata, "maxTotalKeypairs": -1,
		"maxServerGroups": 0, "maxServerGroupMembers": 0, "totalInstancesUsed": used["instances"], "totalCoresUsed": used["cores"],
		"totalRAMUsed": used["ram"], "totalServerGroupsUsed": 0,
	}
	if c.Minor < 36 {
		for _, name := range []string{"maxSecurityGroups", "maxSecurityGroupRules", "maxTotalFloatingIps"} {
			o[name] = 0
		}
		o["totalSecurityGroupsUsed"], o["totalFloatingIpsUsed"] = 0, 0
	}
	if c.Minor < 39 {
		o["maxImageMeta"] = maxMetadata
	}
	if c.Minor < 57 {
		o["maxPersonality"], o["maxPersonalitySize"] = 0, 0
	}
	return c.json(http.StatusOK, jsonObject{"limits": jsonObject{"rate": []any{}, "absolute": o}})
}

// usagePeriod is the time that a usage is asked for.
type usagePeriod struct{ from, to time.Time }

func (c usageCall) span() (s usagePeriod, err error) {
	s.to = c.s.Now().UTC()
	s.from = s.to.AddDate(0, 0, -28)
	for name, at := range map[string]*time.Time{"start": &s.from, "end": &s.to} {
		if word := c.Query.Get(name); word != "" {
			t, ok := parseQueryTime(word)
			if !ok {
				return s, problem.Invalidf("Invalid datetime format for %s: %s", name, truncateText(word))
			}
			*at = t
		}
	}
	if s.from.After(s.to) {
		return s, problem.Invalidf("Invalid start time. The start time cannot occur after the end time.")
	}
	return s, nil
}

// usage sums what a project's servers took in the span: hours of what they have.
func (c usageCall) usage(project string, servers []*compute.Server, s usagePeriod, detailed bool) jsonObject {
	var hours, vcpus, ram, disk float64
	list := []jsonObject{}
	now := c.s.Now()
	for _, srv := range servers {
		from, to := srv.CreatedAt, min(now.UnixNano(), s.to.UnixNano())
		if srv.LaunchedAt.IsZero() {
			continue
		}
		if !srv.TerminatedAt.IsZero() {
			to = min(to, srv.TerminatedAt.UnixNano())
		}
		took := time.Duration(to - max(from.UnixNano(), s.from.UnixNano())).Hours()
		if took <= 0 {
			continue
		}
		f := srv.Flavor
		hours, vcpus, ram, disk = hours+took, vcpus+took*float64(f.VCPUs), ram+took*float64(f.RAM), disk+took*float64(f.Disk+f.Ephemeral)
		state := string(srv.State)
		if srv.State == compute.Deleted {
			state = "terminated"
		}
		list = append(list, jsonObject{
			"instance_id": srv.ID, "name": srv.Name, "hours": took, "vcpus": f.VCPUs, "memory_mb": f.RAM, "local_gb": f.Disk + f.Ephemeral, "flavor": f.Name,
			"tenant_id": srv.Project, "started_at": timeOrNil(from), "ended_at": timeOrNil(srv.TerminatedAt), "state": state, "uptime": int(now.Sub(from).Seconds()),
		})
	}
	o := jsonObject{
		"tenant_id": project, "start": timeOrNil(s.from), "stop": timeOrNil(s.to), "total_hours": hours, "total_vcpus_usage": vcpus,
		"total_memory_mb_usage": ram, "total_local_gb_usage": disk,
	}
	if detailed {
		o["server_usages"] = list
	}
	return o
}

func (c usageCall) listUsage() error {
	s, err := c.span()
	if err != nil {
		return err
	}
	all, err := c.s.Services.Servers.List(c.R.Context(), compute.ServerFilter{AnyDeleted: true}, record.Page{})
	if err != nil {
		return err
	}
	byProject := map[string][]*compute.Server{}
	for _, srv := range all {
		byProject[srv.Project] = append(byProject[srv.Project], srv)
	}
	projects := make([]string, 0, len(byProject))
	for p := range byProject {
		projects = append(projects, p)
	}
	slices.Sort(projects)
	out := []jsonObject{}
	for _, p := range projects {
		out = append(out, c.usage(p, byProject[p], s, c.Query.Get("detailed") == "1"))
	}
	if c.Minor >= 40 && c.Query.Has("marker") { // all of it was in the first page
		out = []jsonObject{}
	}
	return c.json(http.StatusOK, jsonObject{"tenant_usages": out})
}

func (c usageCall) projectUsage() error {
	project := c.Arg("project")
	if !c.admin && project != c.requester.Project {
		return problem.Forbiddenf(policyForbidden, "os_compute_api:os-simple-tenant-usage:show")
	}
	s, err := c.span()
	if err != nil {
		return err
	}
	all, err := c.s.Services.Servers.List(c.R.Context(), compute.ServerFilter{Project: project, AnyDeleted: true}, record.Page{})
	if err != nil {
		return err
	}
	if len(all) == 0 || c.Minor >= 40 && c.Query.Has("marker") {
		return c.json(http.StatusOK, jsonObject{"tenant_usage": jsonObject{}})
	}
	return c.json(http.StatusOK, jsonObject{"tenant_usage": c.usage(project, all, s, true)})
}
