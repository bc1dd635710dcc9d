package nova

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

func (c hostCall) hypervisorView(h *hostWithLiveness, detail bool, servers map[string][]jsonObject) jsonObject {
	o := jsonObject{"id": c.hostID(h.Host), "hypervisor_hostname": h.Name, "state": h.state(), "status": h.status()}
	if servers != nil {
		o["servers"] = servers[h.ID]
		if servers[h.ID] == nil {
			o["servers"] = []jsonObject{}
		}
		if servers[h.ID] == nil && c.Minor < 75 {
			delete(o, "servers")
		}
	}
	if !detail {
		return o
	}
	inv := &h.Inventory
	o["hypervisor_type"], o["hypervisor_version"], o["host_ip"] = inv.HypervisorType, inv.HypervisorVersion, inv.Address
	o["service"] = jsonObject{"id": c.hostID(h.Host), "host": h.Name, "disabled_reason": orNil(h.DisabledReason)}
	if c.Minor >= 88 {
		o["uptime"] = formatUptime(h)
		return o
	}
	for k, v := range hostResources(h) {
		o[k] = v
	}
	o["disk_available_least"] = inv.Disk - h.UsedDisk - inv.QuarantinedGiB()
	o["cpu_info"] = cpuInfo(inv.CPUInfo)
	if c.Minor < 28 {
		b, _ := json.Marshal(o["cpu_info"]) // an object of JSON
		o["cpu_info"] = string(b)
	}
	return o
}

// hostResources is what a host has and what of it is taken.
func hostResources(h *hostWithLiveness) map[string]int {
	inv := &h.Inventory
	return map[string]int{
		"vcpus": inv.VCPUs, "vcpus_used": h.UsedVCPUs, "memory_mb": inv.RAM, "memory_mb_used": h.UsedRAM, "free_ram_mb": inv.RAM - h.UsedRAM,
		"local_gb": inv.Disk, "local_gb_used": h.UsedDisk + inv.QuarantinedGiB(), "free_disk_gb": inv.Disk - h.UsedDisk - inv.QuarantinedGiB(), "running_vms": h.Servers, "current_workload": 0,
	}
}

// cpuInfo is what a host tells of its processor, as an object.
func cpuInfo(reported string) jsonObject {
	var o jsonObject
	if json.Unmarshal([]byte(reported), &o) == nil && o != nil {
		return o
	}
	if reported == "" {
		return jsonObject{}
	}
	return jsonObject{"model": reported}
}

// formatUptime is in the form of uptime(1), as far as the host tells it; nil where it does not.
func formatUptime(h *hostWithLiveness) any {
	s := h.Inventory.UptimeS
	if s <= 0 {
		return nil
	}
	at := h.RenewedAt.UTC().Format("15:04:05")
	return fmt.Sprintf(" %s up %d days, %2d:%02d,  0 users,  load average: 0.00, 0.00, 0.00", at, s/86400, s/3600%24, s/60%60)
}

func (c hostCall) listHypervisors() error   { return c.hypervisorList("/os-hypervisors", false) }
func (c hostCall) detailHypervisors() error { return c.hypervisorList("/os-hypervisors/detail", true) }

func (c hostCall) hypervisorList(path string, detail bool) error {
	if err := c.only(75, "limit", "marker", "hypervisor_hostname_pattern", "with_servers"); err != nil {
		return err
	}
	p := record.Page{Limit: c.s.MaxLimit}
	if c.Minor >= 33 {
		limit, err := c.number("limit", 0)
		if err != nil {
			return err
		}
		if limit > 0 {
			p.Limit = min(p.Limit, limit)
		}
		if marker := c.Query.Get("marker"); marker != "" {
			at, err := c.hostNamed(marker)
			if err != nil || at == nil {
				return noMarker(marker)
			}
			p.Marker = at.ID
		}
	}
	pattern := ""
	if c.Minor >= 53 {
		if pattern = c.Query.Get("hypervisor_hostname_pattern"); pattern != "" && (c.Query.Has("limit") || c.Query.Has("marker")) {
			return problem.Invalidf("Paging over hypervisors with the hypervisor_hostname_pattern query parameter is not supported.")
		}
	}
	all, err := c.hosts(p)
	if err != nil {
		return err
	}
	with, err := c.flag("with_servers")
	if err != nil {
		return err
	}
	var servers map[string][]jsonObject
	if with && c.Minor >= 53 {
		if servers, err = c.serversByHost(""); err != nil {
			return err
		}
	}
	out := []jsonObject{}
	for i := range all {
		if strings.Contains(all[i].Name, pattern) {
			out = append(out, c.hypervisorView(&all[i], detail, servers))
		}
	}
	if pattern != "" && len(out) == 0 {
		return noHypervisor(pattern)
	}
	answer := jsonObject{"hypervisors": out}
	if len(all) > 0 && c.Minor >= 33 {
		if next := c.next(path, len(all), p.Limit, fmt.Sprint(c.hostID(all[len(all)-1].Host))); next != nil {
			answer["hypervisors_links"] = next
		}
	}
	return c.json(http.StatusOK, answer)
}

func noHypervisor(pattern string) error {
	return problem.NotFoundf("No hypervisor matching '%s' could be found.", truncateText(pattern))
}

// serversByHost names the servers of one host, or of all.
func (c hostCall) serversByHost(host string) (map[string][]jsonObject, error) {
	all, err := c.s.Services.Servers.List(c.R.Context(), compute.ServerFilter{HostID: host}, record.Page{})
	if err != nil {
		return nil, err
	}
	out := map[string][]jsonObject{}
	for _, srv := range all {
		if srv.HostID != "" {
			out[srv.HostID] = append(out[srv.HostID], jsonObject{"uuid": srv.ID, "name": srv.GuestName})
		}
	}
	return out, nil
}

// hypervisor finds the host that the path names as a hypervisor; one that does not exist is NotFound for any kind of id.
func (c hostCall) hypervisor() (*hostWithLiveness, error) {
	id := c.Arg("hypervisor")
	h, err := c.hostNamed(id)
	if err == nil && h == nil {
		err = problem.NotFoundf("Hypervisor with ID '%s' could not be found.", truncateText(id))
	}
	return h, err
}

func (c hostCall) getHypervisor() error {
	h, err := c.hypervisor()
	if err != nil {
		return err
	}
	with, err := c.flag("with_servers")
	if err != nil {
		return err
	}
	var servers map[string][]jsonObject
	if with && c.Minor >= 53 {
		if servers, err = c.serversByHost(h.ID); err != nil {
			return err
		}
	}
	return c.json(http.StatusOK, jsonObject{"hypervisor": c.hypervisorView(h, true, servers)})
}

func (c hostCall) hypervisorUptime() error {
	h, err := c.hypervisor()
	if err != nil {
		return err
	}
	up := formatUptime(h)
	if up == nil {
		return notImplemented("Unable to get uptime of this hypervisor: it tells none")
	}
	return c.json(http.StatusOK, jsonObject{"hypervisor": jsonObject{
		"id": c.hostID(h.Host), "hypervisor_hostname": h.Name, "state": h.state(), "status": h.status(), "uptime": up,
	}})
}

func (c hostCall) hypervisorStatistics() error {
	all, err := c.hosts(record.Page{})
	if err != nil {
		return err
	}
	sum, count := hostResources(&hostWithLiveness{Host: &compute.Host{}}), 0
	sum["disk_available_least"] = 0
	for i := range all {
		if all[i].Disabled {
			continue
		}
		count++
		for k, v := range hostResources(&all[i]) {
			sum[k] += v
		}
		sum["disk_available_least"] += all[i].Inventory.Disk - all[i].UsedDisk - all[i].Inventory.QuarantinedGiB()
	}
	sum["count"] = count
	return c.json(http.StatusOK, jsonObject{"hypervisor_statistics": sum})
}

func (c hostCall) searchHypervisors() error { return c.matchingHypervisors(false) }
func (c hostCall) hypervisorServers() error { return c.matchingHypervisors(true) }

func (c hostCall) matchingHypervisors(with bool) error {
	pattern := c.Arg("hypervisor")
	all, err := c.hosts(record.Page{})
	if err != nil {
		return err
	}
	servers := map[string][]jsonObject{}
	if with {
		if servers, err = c.serversByHost(""); err != nil {
			return err
		}
	}
	out := []jsonObject{}
	for i := range all {
		if !strings.Contains(all[i].Name, pattern) {
			continue
		}
		o := c.hypervisorView(&all[i], false, nil)
		if l := servers[all[i].ID]; len(l) > 0 {
			o["servers"] = l
		}
		out = append(out, o)
	}
	if len(out) == 0 {
		return noHypervisor(pattern)
	}
	return c.json(http.StatusOK, jsonObject{"hypervisors": out})
}
