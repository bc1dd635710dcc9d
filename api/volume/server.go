// Package volume serves the part of OpenStack's block storage API (Cinder v3) that clients need to name volumes of storage systems. salvor
// records where a volume is reached, and neither creates nor erases the volume itself. The compute API attaches volumes. The package knows
// no storage system, no hypervisor and no store.
package volume

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/compute/service"
	"salvor/problem"
)

// maxMinor is the highest microversion that is served: 3.70.
const maxMinor = 70

// Config is what the API stands on.
type Config struct {
	Volumes *service.Volumes
	Auth    api.Authenticator
	// Policy may deny what its file has rules for.
	Policy access.Policy
	// PublicEndpoint begins every link; empty: the host that the client asked.
	PublicEndpoint string
	// Zone is the availability zone that volumes are shown in; empty: nova.
	Zone string
	// Exports: storage makes a volume that has no place reachable for the machine that boots from it.
	Exports bool
	// MaxLimit is the default and the greatest length of a page; 0 means 1000.
	MaxLimit int
	Now      func() time.Time
	Log      *slog.Logger
}

type server struct{ Config }

type jsonObject = map[string]any

// names of faults by status.
var names = map[int]string{
	http.StatusBadRequest: "badRequest", http.StatusUnauthorized: "unauthorized", http.StatusForbidden: "forbidden",
	http.StatusNotFound: "itemNotFound", http.StatusMethodNotAllowed: "badMethod", http.StatusNotAcceptable: "computeFault",
	http.StatusConflict: "conflictingRequest", http.StatusRequestEntityTooLarge: "overLimit", http.StatusServiceUnavailable: "serviceUnavailable",
}

// New serves /volume and what lies below.
func New(c Config) http.Handler {
	if c.Zone == "" {
		c.Zone = "nova"
	}
	if c.MaxLimit <= 0 {
		c.MaxLimit = 1000
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	s := &server{c}
	return api.Router{
		Routes: s.routes(), Auth: c.Auth, Fail: api.Faults(c.Log, names, "computeFault"), Log: c.Log,
		PublicEndpoint: c.PublicEndpoint, Policy: c.Policy, Before: s.speak,
	}.Handler()
}

func (s *server) routes() []api.Route {
	out := []api.Route{
		{Method: "GET", Path: "/volume", Open: true, Do: s.versions},
		{Method: "GET", Path: "/volume/v3", Open: true, Do: s.version},
	}
	// The project is in the path or not, as clients since 3.67 have it.
	for _, prefix := range []string{"/volume/v3", "/volume/v3/{project}"} {
		for _, r := range s.resources() {
			do := r.Do
			r.Rule = rules[r.Method+" "+r.Path]
			r.Path, r.Do = prefix+r.Path, func(c *api.Call) error {
				if err := inProject(c); err != nil {
					return err
				}
				return do(c)
			}
			out = append(out, r)
		}
	}
	return out
}

func (s *server) resources() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/volumes", Do: s.list(s.brief)},
		{Method: "GET", Path: "/volumes/detail", Do: s.list(s.view)},
		{Method: "GET", Path: "/volumes/summary", Do: s.summary},
		{Method: "POST", Path: "/volumes", Do: s.create},
		{Method: "GET", Path: "/volumes/{volume}", Do: s.show},
		{Method: "PUT", Path: "/volumes/{volume}", Do: s.update},
		{Method: "DELETE", Path: "/volumes/{volume}", Do: s.remove},
		{Method: "POST", Path: "/volumes/{volume}/action", Do: s.act},
		{Method: "GET", Path: "/volumes/{volume}/metadata", Do: s.getMetadata},
		{Method: "POST", Path: "/volumes/{volume}/metadata", Do: s.mergeMetadata},
		{Method: "PUT", Path: "/volumes/{volume}/metadata", Do: s.replaceMetadata},
		{Method: "GET", Path: "/volumes/{volume}/metadata/{key}", Do: s.getKey},
		{Method: "PUT", Path: "/volumes/{volume}/metadata/{key}", Do: s.putKey},
		{Method: "DELETE", Path: "/volumes/{volume}/metadata/{key}", Do: s.removeKey},
		{Method: "GET", Path: "/attachments", Do: s.attachments},
		{Method: "GET", Path: "/attachments/detail", Do: s.attachments},
		{Method: "GET", Path: "/attachments/{attachment}", Do: s.attachment},
		{Method: "POST", Path: "/attachments", Do: refuseAttachment},
		{Method: "DELETE", Path: "/attachments/{attachment}", Do: refuseAttachment},
		{Method: "GET", Path: "/types", Do: s.types},
		{Method: "GET", Path: "/types/{type}", Do: s.volumeType},
		{Method: "GET", Path: "/limits", Do: s.limits},
		{Method: "GET", Path: "/os-quota-sets/{owner}", Do: s.quota},
		{Method: "GET", Path: "/os-quota-sets/{owner}/defaults", Do: s.quota},
		{Method: "GET", Path: "/os-availability-zone", Do: s.zones},
		{Method: "GET", Path: "/os-services", Do: serveEmptyList("services")},
		{Method: "GET", Path: "/snapshots", Do: serveEmptyList("snapshots")},
		{Method: "GET", Path: "/snapshots/detail", Do: serveEmptyList("snapshots")},
		{Method: "GET", Path: "/backups", Do: serveEmptyList("backups")},
		{Method: "GET", Path: "/backups/detail", Do: serveEmptyList("backups")},
		{Method: "GET", Path: "/extensions", Do: serveEmptyList("extensions")},
	}
}

var versions = api.Microversions{Major: 3, Min: 0, Max: maxMinor, Service: "volume"}

// speak reads the microversion and tells it back.
func (s *server) speak(c *api.Call) error {
	minor, err := versions.Parse(c.R.Header)
	if bad, ok := err.(*api.BadVersion); ok {
		if bad.Parsed {
			return api.NotAcceptablef("%s", bad.Text)
		}
		return problem.Invalidf("%s", bad.Text)
	}
	if err != nil {
		return err
	}
	c.Minor = minor
	h := c.W.Header()
	h.Set("OpenStack-API-Version", "volume "+versions.Text(minor))
	h.Add("Vary", "OpenStack-API-Version")
	return nil
}

// inProject holds the project in the path to the one that the asker works in; an
// administrator without one works in that of the path. Whoever else works in no project has no volumes, and sees none. Where nobody authenticates, the word in
// the path is any word that the client needs, and volumes belong to no project, as servers do.
func inProject(c *api.Call) error {
	project := strings.ToLower(c.Arg("project"))
	if p := c.Principal; p.Role == access.Admin && p.Owner() == "" && p.TokenID == "" {
		return nil
	}
	if !c.Admin() && c.Project() == "" {
		return problem.Forbiddenf("Volumes belong to projects, and the token is for none: ask for one that is for a project.")
	}
	if project == "" || project == c.Project() {
		return nil
	}
	if !c.Admin() {
		return problem.Invalidf("Malformed request url: the project in it is not the one that the token is for.")
	}
	if len(project) > maxText {
		return problem.Invalidf("Malformed request url: its project has more than %d bytes.", maxText)
	}
	c.Principal.Scope.Project = project
	return nil
}

func versionDocument(c *api.Call) jsonObject {
	return jsonObject{"versions": []jsonObject{{
		"id": "v3.0", "status": "CURRENT", "version": versions.Text(maxMinor), "min_version": versions.Text(0), "updated": "2022-03-30T00:00:00Z",
		"links": []jsonObject{
			{"rel": "describedby", "type": "text/html", "href": "https://docs.openstack.org/"},
			{"rel": "self", "href": c.Base + "/volume/v3/"},
		},
		"media-types": []jsonObject{{"base": "application/json", "type": "application/vnd.openstack.volume+json;version=3"}},
	}}}
}

func (s *server) versions(c *api.Call) error {
	return c.JSON(http.StatusMultipleChoices, versionDocument(c))
}

func (s *server) version(c *api.Call) error { return c.JSON(http.StatusOK, versionDocument(c)) }

// serveEmptyList answers with a list of what salvor has none of.
func serveEmptyList(name string) func(*api.Call) error {
	return func(c *api.Call) error { return c.JSON(http.StatusOK, jsonObject{name: []jsonObject{}}) }
}

// refuseAttachment says who attaches.
func refuseAttachment(*api.Call) error {
	return problem.Invalidf("Volumes are attached and detached by the compute API: openstack server add volume, openstack server remove volume.")
}

// The one type of volumes.
const (
	typeName = "iscsi"
	typeID   = "5f3a9a5e-52c1-5d0b-9f0e-6a1f1d6b7c3a"
)

func typeView() jsonObject {
	return jsonObject{
		"id": typeID, "name": typeName, "description": "a LUN of a storage system, reached by iSCSI", "is_public": true,
		"os-volume-type-access:is_public": true, "extra_specs": jsonObject{}, "qos_specs_id": nil,
	}
}

func (s *server) types(c *api.Call) error {
	return c.JSON(http.StatusOK, jsonObject{"volume_types": []jsonObject{typeView()}})
}

func (s *server) volumeType(c *api.Call) error {
	switch t := c.Arg("type"); t {
	case typeID, typeName, "default":
		return c.JSON(http.StatusOK, jsonObject{"volume_type": typeView()})
	default:
		return problem.NotFoundf("Volume type %.64s could not be found: there is one, %s.", t, typeName)
	}
}

// limits: salvor sets none, and tells what there is.
func (s *server) limits(c *api.Call) error {
	count, size, err := s.used(c)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, jsonObject{"limits": jsonObject{"rate": []jsonObject{}, "absolute": jsonObject{
		"maxTotalVolumes": -1, "maxTotalVolumeGigabytes": -1, "maxTotalSnapshots": 0, "maxTotalBackups": 0, "maxTotalBackupGigabytes": 0,
		"totalVolumesUsed": count, "totalGigabytesUsed": size, "totalSnapshotsUsed": 0, "totalBackupsUsed": 0, "totalBackupGigabytesUsed": 0,
	}}})
}

func (s *server) quota(c *api.Call) error {
	set := jsonObject{"id": c.Arg("owner")}
	for _, what := range []string{"volumes", "gigabytes", "per_volume_gigabytes", "snapshots", "backups", "backup_gigabytes", "groups"} {
		set[what] = -1
		if c.Query.Get("usage") == "True" || c.Query.Get("usage") == "true" {
			set[what] = jsonObject{"limit": -1, "in_use": 0, "reserved": 0}
		}
	}
	if usage, ok := set["volumes"].(jsonObject); ok {
		count, size, err := s.used(c)
		if err != nil {
			return err
		}
		usage["in_use"] = count
		set["gigabytes"] = jsonObject{"limit": -1, "in_use": size, "reserved": 0}
	}
	return c.JSON(http.StatusOK, jsonObject{"quota_set": set})
}

func (s *server) zones(c *api.Call) error {
	return c.JSON(http.StatusOK, jsonObject{"availabilityZoneInfo": []jsonObject{{"zoneName": s.Zone, "zoneState": jsonObject{"available": true}}}})
}
