package volume

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"salvor/api"
	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

func volumeLinks(c *api.Call, v *compute.Volume) []jsonObject {
	tail := "/volumes/" + v.ID
	return []jsonObject{
		{"rel": "self", "href": c.Base + "/volume/v3/" + c.Project() + tail},
		{"rel": "bookmark", "href": c.Base + "/volume/" + c.Project() + tail},
	}
}

func (s *server) brief(c *api.Call, v *compute.Volume) jsonObject {
	return jsonObject{"id": v.ID, "name": v.Name, "links": volumeLinks(c, v)}
}

// view shows a volume as its microversion has it.
func (s *server) view(c *api.Call, v *compute.Volume) jsonObject {
	o := jsonObject{
		"id": v.ID, "name": v.Name, "description": nullIfEmpty(v.Description), "links": volumeLinks(c, v), "size": v.SizeGiB, "status": string(v.Status),
		"bootable": strconv.FormatBool(v.Bootable), "availability_zone": s.Zone, "created_at": timeText(v.CreatedAt), "updated_at": timeText(v.UpdatedAt),
		"volume_type": typeName, "metadata": metadataOf(v, c.Admin()), "attachments": s.attached(c, v), "user_id": nullIfEmpty(v.User), "snapshot_id": nil, "source_volid": nil,
		"replication_status": nil, "consistencygroup_id": nil, "encrypted": false, "multiattach": false, "migration_status": nil,
		"os-vol-tenant-attr:tenant_id": v.Project,
	}
	if len(v.ImageProperties) > 0 {
		o["volume_image_metadata"] = v.ImageProperties
	}
	if c.Admin() {
		o["os-vol-host-attr:host"] = v.Portal
		o["os-vol-mig-status-attr:migstat"], o["os-vol-mig-status-attr:name_id"] = nil, nil
	}
	for _, f := range []struct {
		since int
		name  string
		value any
	}{
		{13, "group_id", nil}, {21, "provider_id", nil}, {48, "shared_targets", true}, {48, "service_uuid", nil},
		{61, "cluster_name", nil}, {63, "volume_type_id", typeID}, {65, "consumes_quota", true},
	} {
		if c.Minor >= f.since {
			o[f.name] = f.value
		}
	}
	return o
}

func nullIfEmpty(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// timeText writes times as Cinder does: without a zone.
func timeText(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000")
}

// attachmentID is the same for a volume and its server always: no attachment is a record.
func attachmentID(v *compute.Volume) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("attachment "+v.ID+" "+v.ServerID)).String()
}

func (s *server) attached(c *api.Call, v *compute.Volume) []jsonObject {
	if v.ServerID == "" {
		return []jsonObject{}
	}
	return []jsonObject{{
		"id": v.ID, "attachment_id": attachmentID(v), "volume_id": v.ID, "server_id": v.ServerID, "host_name": nil,
		"device": devicePath(v.Device), "attached_at": timeText(v.AttachedAt),
	}}
}

func devicePath(name string) string {
	if name == "" || strings.HasPrefix(name, "/dev/") {
		return name
	}
	return "/dev/" + name
}

// volume finds the volume of the path, if the asker may see it.
func (s *server) volume(c *api.Call) (*compute.Volume, error) {
	id := c.Arg("volume")
	missing := problem.NotFoundf("Volume %.64s could not be found.", id)
	if !record.IsUUID(id) {
		return nil, missing
	}
	v, err := s.Volumes.Get(c.R.Context(), id)
	if problem.Is(err, problem.NotFound) || err == nil && !canRead(c, v) {
		return nil, missing
	}
	return v, err
}

func canRead(c *api.Call, v *compute.Volume) bool { return c.Admin() || v.Project == c.Project() }

func (s *server) show(c *api.Call) error {
	v, err := s.volume(c)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, jsonObject{"volume": s.view(c, v)})
}

// sortKeys are the words that volumes can be sorted by, with the store's.
var sortKeys = map[string]string{
	"": "", "created_at": "", "id": "uuid", "name": "name", "display_name": "name", "status": "status", "size": "size", "bootable": "bootable",
	"updated_at": "updated_at",
}

type volumePredicate func(*compute.Volume) bool

// filter reads what a list was asked for; tests are those that the store does not make.
func (s *server) filter(c *api.Call) (f compute.VolumeFilter, tests []volumePredicate, err error) {
	f.Project = c.Project()
	if all, _ := strconv.ParseBool(c.Query.Get("all_tenants")); all && c.Admin() {
		f.Project = c.Query.Get("project_id")
	}
	for key, values := range c.Query {
		value := values[len(values)-1]
		switch key {
		case "name", "display_name":
			f.Name = value
		case "status":
			f.Status = compute.VolumeStatus(value)
		case "name~", "description", "user_id", "availability_zone", "bootable", "metadata", "id":
			t, err := testOf(key, value, s.Zone, c.Admin())
			if err != nil {
				return f, nil, err
			}
			tests = append(tests, t)
		case "limit", "marker", "offset", "sort", "sort_key", "sort_dir", "all_tenants", "project_id", "with_count", "consumes_quota":
		default:
			return f, nil, problem.Invalidf("Invalid filters %.64s are found in query options.", key)
		}
	}
	return f, tests, nil
}

func testOf(key, value, zone string, admin bool) (volumePredicate, error) {
	switch key {
	case "name~":
		return func(v *compute.Volume) bool { return strings.Contains(v.Name, value) }, nil
	case "description":
		return func(v *compute.Volume) bool { return v.Description == value }, nil
	case "user_id":
		return func(v *compute.Volume) bool { return v.User == value }, nil
	case "availability_zone":
		return func(*compute.Volume) bool { return zone == value }, nil
	case "id":
		return func(v *compute.Volume) bool { return v.ID == strings.ToLower(value) }, nil
	case "bootable":
		want, err := strconv.ParseBool(strings.ToLower(value))
		if err != nil {
			return nil, problem.Invalidf("Invalid input for query parameters bootable: want true or false.")
		}
		return func(v *compute.Volume) bool { return v.Bootable == want }, nil
	}
	pairs, err := parsePairs(value)
	return func(v *compute.Volume) bool {
		have := metadataOf(v, admin)
		for k, want := range pairs {
			if is, ok := have[k]; !ok || is != want {
				return false
			}
		}
		return true
	}, err
}

// parsePairs reads a dictionary as Python prints it: {'key': 'value', 'other': 'one'}.
func parsePairs(text string) (map[string]string, error) {
	bad := problem.Invalidf("Invalid input for query parameters metadata: want {'KEY': 'VALUE'}.")
	inner, ok := strings.CutPrefix(strings.TrimSpace(text), "{")
	inner, closed := strings.CutSuffix(inner, "}")
	if !ok || !closed || len(text) > 4096 {
		return nil, bad
	}
	out := map[string]string{}
	for rest := strings.TrimSpace(inner); rest != ""; {
		var key, value string
		if key, rest, ok = cutQuoted(rest); !ok || !strings.HasPrefix(rest, ":") {
			return nil, bad
		}
		if value, rest, ok = cutQuoted(rest[1:]); !ok {
			return nil, bad
		}
		out[key] = value
		if rest != "" && !strings.HasPrefix(rest, ",") {
			return nil, bad
		}
		rest = strings.TrimSpace(strings.TrimPrefix(rest, ","))
	}
	return out, nil
}

// cutQuoted takes a word in quotation marks, of either kind and with or without u before it, off the text.
func cutQuoted(text string) (word, rest string, ok bool) {
	text = strings.TrimPrefix(strings.TrimSpace(text), "u")
	if text == "" || text[0] != '\'' && text[0] != '"' {
		return "", "", false
	}
	word, rest, ok = strings.Cut(text[1:], text[:1])
	return word, strings.TrimSpace(rest), ok
}

// list answers with a page of volumes, each shown by view.
func (s *server) list(view func(*api.Call, *compute.Volume) jsonObject) func(*api.Call) error {
	return func(c *api.Call) error {
		f, tests, err := s.filter(c)
		if err != nil {
			return err
		}
		page, limit, err := s.page(c)
		if err != nil {
			return err
		}
		found, more, err := s.find(c, f, tests, page, limit)
		if err != nil {
			return err
		}
		shown := make([]jsonObject, len(found))
		for i, v := range found {
			shown[i] = view(c, v)
		}
		body := jsonObject{"volumes": shown}
		if more {
			keep := url.Values{}
			for k, values := range c.Query {
				keep[k] = values
			}
			keep.Del("offset")
			keep.Set("marker", found[len(found)-1].ID)
			body["volumes_links"] = []jsonObject{{"rel": "next", "href": c.Base + c.R.URL.Path + "?" + keep.Encode()}}
		}
		if counted, _ := strconv.ParseBool(c.Query.Get("with_count")); counted && c.Minor >= 45 {
			all, _, err := s.find(c, f, tests, record.Page{}, everything)
			if err != nil {
				return err
			}
			body["count"] = len(all)
		}
		return c.JSON(http.StatusOK, body)
	}
}

func (s *server) page(c *api.Call) (record.Page, int, error) {
	page, limit := record.Page{Desc: true}, s.MaxLimit
	if text := c.Query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return page, 0, problem.Invalidf("Invalid input for query parameters limit: want a number of at least 0.")
		}
		limit = min(n, s.MaxLimit)
	}
	if offset := c.Query.Get("offset"); offset != "" && offset != "0" {
		return page, 0, problem.Invalidf("Lists are paged by marker, not by offset.")
	}
	if page.Marker = strings.ToLower(c.Query.Get("marker")); page.Marker != "" && !record.IsUUID(page.Marker) {
		return page, 0, problem.Invalidf("Invalid marker %.64q: want the id of a volume.", page.Marker)
	}
	key, way := c.Query.Get("sort_key"), c.Query.Get("sort_dir")
	if both := c.Query.Get("sort"); both != "" {
		first, _, _ := strings.Cut(both, ",")
		key, way, _ = strings.Cut(first, ":")
	}
	word, ok := sortKeys[key]
	if !ok || way != "" && way != "asc" && way != "desc" {
		return page, 0, problem.Invalidf("Volumes cannot be sorted by %.40q, %.10q: %s, and asc or desc.", key, way, problem.WantOneOf(slices.Collect(maps.Keys(sortKeys))))
	}
	page.SortKey, page.Desc = word, way != "asc"
	return page, limit, nil
}

const (
	// leastPage is how many volumes are read at once at least.
	leastPage = 100
	// everything is the limit of a list without one.
	everything = -1
)

// find reads pages until enough volumes passed the tests; more tells that another one did.
func (s *server) find(c *api.Call, f compute.VolumeFilter, tests []volumePredicate, page record.Page, limit int) (found []*compute.Volume, more bool, err error) {
	if page.Limit = s.MaxLimit + 1; limit != everything {
		page.Limit = max(limit+1, leastPage) // some may not pass
	}
	for {
		part, err := s.Volumes.List(c.R.Context(), f, page)
		if err != nil {
			return nil, false, err
		}
		for _, v := range part {
			if !matchesAll(v, tests) {
				continue
			}
			if len(found) == limit {
				return found, len(found) > 0, nil
			}
			found = append(found, v)
		}
		if len(part) < page.Limit {
			return found, false, nil
		}
		page.Marker = part[len(part)-1].ID
	}
}

func matchesAll(v *compute.Volume, tests []volumePredicate) bool {
	for _, t := range tests {
		if !t(v) {
			return false
		}
	}
	return true
}

// used counts the volumes of the asker's project and their GiB.
func (s *server) used(c *api.Call) (count, size int, err error) {
	all, _, err := s.find(c, compute.VolumeFilter{Project: c.Project()}, nil, record.Page{}, everything)
	for _, v := range all {
		size += v.SizeGiB
	}
	return len(all), size, err
}

func (s *server) summary(c *api.Call) error {
	count, size, err := s.used(c)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, jsonObject{"volume-summary": jsonObject{"total_count": count, "total_size": size, "metadata": jsonObject{}}})
}
