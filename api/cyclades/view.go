package cyclades

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/api"
	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

// formatTime is how Cyclades writes times.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000+00:00") }

// server reads the one that the path names.
func (c *cycladesCall) server() (*compute.Server, error) {
	num, err := strconv.ParseInt(c.Arg("server"), 10, 64)
	if err != nil {
		return nil, problem.Invalidf("Invalid server ID.")
	}
	srv, err := c.s.Services.Servers.ByNum(c.R.Context(), num, c.requester)
	if problem.Is(err, problem.NotFound) {
		return nil, problem.NotFoundf("Server not found.")
	}
	return srv, err
}

func (c *cycladesCall) getServer() error {
	srv, err := c.server()
	if err != nil {
		return err
	}
	nets, err := c.networks()
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, jsonObject{"server": c.serverView(srv, nets)})
}

func (c *cycladesCall) deleteServer() error {
	srv, err := c.server()
	if err != nil {
		return err
	}
	if srv.State == compute.Deleted {
		return explainRefusal(&compute.StateError{Server: srv}, "DESTROY")
	}
	_, err = c.s.Services.Actions.Act(c.R.Context(), srv.ID, compute.Act{Action: compute.Delete, MustBeOff: true}, c.requester)
	if state, ok := stateOf(err); ok {
		return explainRefusal(state, "DESTROY")
	}
	if err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}

// listServers lists the asker's servers; with changes-since those that changed since then, deleted ones too, or 304 for none.
func (c *cycladesCall) listServers(detail bool) error {
	f := compute.ServerFilter{Project: c.requester.Project}
	since := c.Query.Get("changes-since")
	if since != "" {
		t, err := time.Parse(time.RFC3339, since)
		if err != nil {
			return problem.Invalidf("Invalid changes-since value.")
		}
		f.ChangesSince, f.AnyDeleted = t, true
	}
	if !c.requester.Admin && c.requester.Project == "" {
		return c.JSON(http.StatusOK, jsonObject{"servers": []jsonObject{}}) // an empty project narrows nothing
	}
	marks, err := c.s.Services.Servers.Marks(c.R.Context(), f, record.Page{})
	if err != nil {
		return err
	}
	if since != "" && len(marks) == 0 {
		return c.Empty(http.StatusNotModified)
	}
	texts, err := c.serverTexts(marks, detail)
	if err != nil {
		return err
	}
	texts = slices.DeleteFunc(texts, func(t string) bool { return t == "" }) // gone meanwhile
	return c.Raw(http.StatusOK, []byte(`{"servers":[`+strings.Join(texts, ",")+"]}"))
}

// serverTexts gives servers as a list shows them; those that did not change are not written again.
func (c *cycladesCall) serverTexts(marks []record.Mark, detail bool) ([]string, error) {
	nets, err := c.networks()
	if err != nil {
		return nil, err
	}
	v := serverListView{detail: detail, quotes: c.Principal.SeesQuotations(), base: c.Base, networks: fmt.Sprint(nets)}
	return c.s.written.Render(v, marks, func(nums []int64) (map[int64]api.CachedJSON[record.Mark], error) {
		found, err := c.s.Services.Servers.Marked(c.R.Context(), nums)
		if err != nil {
			return nil, err
		}
		out := make(map[int64]api.CachedJSON[record.Mark], len(found))
		for num, srv := range found {
			o := c.brief(srv)
			if detail {
				o = c.serverView(srv, nets)
			}
			b, err := json.Marshal(o)
			if err != nil {
				return nil, err
			}
			out[num] = api.CachedJSON[record.Mark]{Mark: record.Mark{Num: num, ID: srv.ID, Version: srv.Version}, Text: string(b)}
		}
		return out, nil
	})
}

func (c *cycladesCall) brief(srv *compute.Server) jsonObject {
	return jsonObject{"id": srv.Num, "name": srv.Name, "links": c.links("/servers/" + strconv.FormatInt(srv.Num, 10))}
}

// serverStatus is what clients read first. A rescue changes nothing of it: SNF:rescue tells.
func serverStatus(s *compute.Server) string {
	switch state := serverOperState(s); {
	case state == "STARTED" && (s.Task == compute.Rebooting || s.Task == compute.HardReboot):
		return "REBOOT"
	case state == "STARTED":
		return "ACTIVE"
	case state == "DESTROYED":
		return "DELETED"
	default:
		return state
	}
}

// taskStates are the words for what is being done to a server.
var taskStates = map[compute.Task]string{
	compute.Scheduling: "BUILDING", compute.Spawning: "BUILDING", compute.Starting: "STARTING", compute.Stopping: "STOPPING",
	compute.Rebooting: "REBOOTING", compute.HardReboot: "REBOOTING", compute.Rescuing: "RESCUING", compute.Unrescuing: "UNRESCUING",
	compute.Deleting: "DESTROYING", compute.Rebuilding: "REBUILDING", compute.Pausing: "PAUSING", compute.Unpausing: "UNPAUSING",
	compute.Suspending: "SUSPENDING", compute.Resuming: "RESUMING",
}

// inRescue tells whether the server's rescue has come about; one that is on its way is told by the task.
func inRescue(s *compute.Server) bool { return s.State == compute.Rescued && s.InSession() }

func (c *cycladesCall) serverView(srv *compute.Server, nets map[string]int64) jsonObject {
	o := c.brief(srv)
	progress := 100
	if srv.State == compute.Building {
		progress = 0
	}
	volumes := []string{}
	for _, d := range srv.Disks {
		if d.VolumeID != "" {
			volumes = append(volumes, d.VolumeID)
		}
	}
	metadata := srv.Metadata
	if metadata == nil {
		metadata = map[string]string{}
	}
	image := any("")
	if srv.ImageID != "" {
		image = jsonObject{"id": srv.ImageID, "links": c.links("/images/" + srv.ImageID)}
	}
	flavor := strconv.FormatInt(srv.Flavor.Num, 10)
	attachments, addresses := viewInterfaces(srv, nets)
	maps.Copy(o, jsonObject{
		"status": serverStatus(srv), "hostId": "", "created": formatTime(srv.CreatedAt), "updated": formatTime(srv.UpdatedAt), "user_id": srv.User,
		"tenant_id": srv.Project, "image": image, "flavor": jsonObject{"id": srv.Flavor.Num, "links": c.links("/flavors/" + flavor)},
		"metadata": metadata, "attachments": attachments, "addresses": addresses, "progress": progress, "suspended": false,
		"deleted": srv.State == compute.Deleted, "volumes": volumes, "diagnostics": c.serverDiagnostics(srv), "security_groups": []jsonObject{{"name": "default"}},
		"key_name": orNull(srv.KeyName), "config_drive": "", "accessIPv4": "", "accessIPv6": "", "SNF:fqdn": "", "SNF:port_forwarding": jsonObject{},
		"SNF:rescue": inRescue(srv), "SNF:task_state": taskStates[srv.Task],
	})
	return o
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// serverDiagnostics tell why the server's last operation failed, and quote hosts to administrators only. They do so even if the operation
// left the server in its state, as a rescue does.
func (c *cycladesCall) serverDiagnostics(s *compute.Server) []jsonObject {
	if s.Fault == nil {
		return []jsonObject{}
	}
	return []jsonObject{{"level": "ERROR", "message": c.Principal.Redact(s.Fault.Message), "source": "salvor", "created": formatTime(s.Fault.CreatedAt), "details": nil, "source_date": formatTime(s.Fault.CreatedAt)}}
}

// viewInterfaces tell of interfaces in the two forms that clients know.
func viewInterfaces(s *compute.Server, nets map[string]int64) ([]jsonObject, map[string][]jsonObject) {
	attachments, addresses := []jsonObject{}, map[string][]jsonObject{}
	for _, nic := range s.NICs {
		key := ""
		a := jsonObject{"id": nic.ID, "network_id": "", "mac_address": nic.MAC, "ipv4": "", "ipv6": "", "firewallProfile": "DISABLED", "OS-EXT-IPS:type": "fixed"}
		if num, ok := nets[nic.NetworkID]; ok {
			key = strconv.FormatInt(num, 10)
			a["network_id"] = key
		}
		for _, text := range nic.Addresses {
			version := 4
			if ip, err := netip.ParseAddr(text); err == nil && ip.Is6() {
				version = 6
			}
			a["ipv"+strconv.Itoa(version)] = text
			addresses[key] = append(addresses[key], jsonObject{"version": version, "addr": text, "OS-EXT-IPS:type": "fixed"})
		}
		attachments = append(attachments, a)
	}
	return attachments, addresses
}

// networks are the numbers of all networks.
func (c *cycladesCall) networks() (map[string]int64, error) {
	all, err := c.s.Services.Networks.List(c.R.Context(), compute.NetworkFilter{}, record.Page{})
	if err != nil {
		return nil, err
	}
	out := make(map[string]int64, len(all))
	for _, n := range all {
		out[n.ID] = n.Num
	}
	return out, nil
}

// flavors are those that the asker may use.
func (c *cycladesCall) flavors() ([]*compute.Flavor, error) {
	f := compute.FlavorFilter{}
	if !c.requester.Admin {
		yes := true
		f.Public = &yes
	}
	return c.s.Services.Flavors.List(c.R.Context(), f, record.Page{})
}

func (c *cycladesCall) listFlavors(detail bool) error {
	all, err := c.flavors()
	if err != nil {
		return err
	}
	out := make([]jsonObject, 0, len(all))
	for _, f := range all {
		if !f.Disabled {
			out = append(out, c.flavorView(f, detail))
		}
	}
	return c.JSON(http.StatusOK, jsonObject{"flavors": out})
}

func (c *cycladesCall) getFlavor() error {
	num, err := strconv.ParseInt(c.Arg("flavor"), 10, 64)
	if err != nil {
		return problem.Invalidf("Invalid flavor ID.")
	}
	all, err := c.flavors()
	if err != nil {
		return err
	}
	for _, f := range all {
		if f.Num == num {
			return c.JSON(http.StatusOK, jsonObject{"flavor": c.flavorView(f, true)})
		}
	}
	return problem.NotFoundf("Flavor not found.")
}

func (c *cycladesCall) flavorView(f *compute.Flavor, detail bool) jsonObject {
	o := jsonObject{"id": f.Num, "name": f.Name, "links": c.links("/flavors/" + strconv.FormatInt(f.Num, 10))}
	if detail {
		o["ram"], o["disk"], o["vcpus"], o["SNF:disk_template"], o["SNF:allow_create"] = f.RAM, f.Disk, f.VCPUs, "file", !f.Disabled
	}
	return o
}

func (c *cycladesCall) listImages(detail bool) error {
	all, err := c.s.Services.Images.List(c.R.Context(), compute.ImageFilter{Project: c.requester.Project}, record.Page{})
	if err != nil {
		return err
	}
	out := make([]jsonObject, 0, len(all))
	for _, i := range all {
		if c.sees(i) {
			out = append(out, c.imageView(i, detail))
		}
	}
	return c.JSON(http.StatusOK, jsonObject{"images": out})
}

func (c *cycladesCall) sees(i *compute.Image) bool {
	return c.requester.Admin || i.Owner != "" && i.Owner == c.requester.Project || i.Visibility == "public" || i.Visibility == "community"
}

func (c *cycladesCall) getImage() error {
	i, err := c.s.Services.Images.Get(c.R.Context(), c.Arg("image"))
	if err != nil && !problem.Is(err, problem.NotFound) {
		return err
	}
	if err != nil || !c.sees(i) {
		return problem.NotFoundf("Image not found.")
	}
	return c.JSON(http.StatusOK, jsonObject{"image": c.imageView(i, true)})
}

// imageStatuses are Cyclades' words.
var imageStatuses = map[compute.ImageStatus]string{
	compute.ImageQueued: "SAVING", compute.ImageSaving: "SAVING", compute.ImageActive: "ACTIVE", compute.ImageKilled: "ERROR", compute.ImageDeactivated: "ERROR",
}

func (c *cycladesCall) imageView(i *compute.Image, detail bool) jsonObject {
	o := jsonObject{"id": i.ID, "name": i.Name, "links": c.links("/images/" + i.ID)}
	if !detail {
		return o
	}
	properties := map[string]string{}
	for k, v := range i.Properties {
		if !strings.HasPrefix(k, "salvor:") { // notes of the image API
			properties[k] = v
		}
	}
	maps.Copy(o, jsonObject{
		"status": imageStatuses[i.Status], "updated": formatTime(i.UpdatedAt), "created": formatTime(i.CreatedAt), "progress": 100,
		"user_id": i.Owner, "tenant_id": i.Owner, "is_snapshot": false, "metadata": properties,
	})
	return o
}
