package image

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/api"
	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

// imagePredicate tells whether an image stays in a list.
type imagePredicate func(*compute.Image) bool

// listQuery is what a list was asked for: filter and page are the store's work, tests are ours.
type listQuery struct {
	filter compute.ImageFilter
	page   record.Page
	tests  []imagePredicate
	limit  int
}

// sortKeys are the fields that images can be sorted by, with the store's words.
var sortKeys = map[string]string{
	"created_at": "", "id": "uuid", "name": "name", "status": "status", "size": "size", "disk_format": "disk_format",
	"container_format": "container_format", "updated_at": "updated_at", "visibility": "visibility", "owner": "owner",
}

// leastPage is how many images are read at once at least.
const leastPage = 100

func (s *server) list(c *api.Call) error {
	q, err := s.query(c)
	if err != nil {
		return err
	}
	found, more, err := s.find(c, q)
	if err != nil {
		return err
	}
	views := make([]jsonObject, len(found))
	for i, image := range found {
		views[i] = s.view(image)
	}
	const path = "/v2/images"
	body := jsonObject{"images": views, "schema": "/v2/schemas/images", "first": path}
	keep := url.Values{}
	for k, v := range c.Query {
		if k != "marker" {
			keep[k] = v
		}
	}
	if len(keep) > 0 {
		body["first"] = path + "?" + keep.Encode()
	}
	if more {
		keep.Set("marker", found[len(found)-1].ID)
		body["next"] = path + "?" + keep.Encode()
	}
	return c.JSON(http.StatusOK, body)
}

// find reads pages until enough images passed the tests; more tells that another one did.
func (s *server) find(c *api.Call, q *listQuery) (found []*compute.Image, more bool, err error) {
	q.page.Limit = max(q.limit+1, leastPage) // some may not pass
	for {
		page, err := s.Images.List(c.R.Context(), q.filter, q.page)
		if err != nil {
			return nil, false, err
		}
		for _, i := range page {
			if i = s.settled(i); !matchesAll(i, q.tests) {
				continue
			}
			if len(found) == q.limit {
				return found, len(found) > 0, nil
			}
			found = append(found, i)
		}
		if len(page) < q.page.Limit {
			return found, false, nil
		}
		q.page.Marker = page[len(page)-1].ID
	}
}

func matchesAll(i *compute.Image, tests []imagePredicate) bool {
	return !slices.ContainsFunc(tests, func(t imagePredicate) bool { return !t(i) })
}

func (s *server) query(c *api.Call) (*listQuery, error) {
	q := &listQuery{page: record.Page{Desc: true}, limit: s.MaxLimit}
	showHidden := false
	for key, values := range c.Query {
		value := values[len(values)-1]
		var err error
		switch key {
		case "limit":
			q.limit, err = parseNumber(key, value)
			q.limit = min(q.limit, s.MaxLimit)
		case "marker":
			q.page.Marker = strings.ToLower(value)
			if !record.IsUUID(value) {
				err = problem.Invalidf("Invalid marker %.64q: want the id of an image.", value)
			}
		case "sort", "sort_key", "sort_dir":
		case "os_hidden":
			showHidden, err = parseBoolean(key, value)
		case "member_status":
		default:
			for _, v := range values {
				if err = q.narrow(key, v); err != nil {
					return nil, err
				}
			}
		}
		if err != nil {
			return nil, err
		}
	}
	q.tests = append(q.tests, func(i *compute.Image) bool { return isHidden(i) == showHidden })
	if !c.Admin() {
		q.filter.Project = c.Project()
		q.tests = append(q.tests, func(i *compute.Image) bool { return canRead(c, i) })
	}
	return q, q.sort(c.Query)
}

// narrow applies one filter.
func (q *listQuery) narrow(key, value string) error {
	if key != "name" && !strings.HasPrefix(value, "in:") && len(value) > maxText {
		return problem.Invalidf("The filter %.40q has a value of more than %d bytes.", key, maxText)
	}
	switch key {
	case "name":
		if names, ok := strings.CutPrefix(value, "in:"); ok {
			return q.oneOf(names, func(i *compute.Image) string { return i.Name })
		}
		q.filter.Name = value
	case "id":
		q.filter.IDs = strings.Split(strings.ToLower(strings.TrimPrefix(value, "in:")), ",")
	case "status":
		// The store does not know of broken uploads, so status is looked at here.
		return q.oneOf(strings.TrimPrefix(value, "in:"), func(i *compute.Image) string { return string(i.Status) })
	case "owner":
		q.filter.Owner = value
	case "visibility":
		if value != "all" {
			q.filter.Visibility = value
		}
	case "disk_format":
		return q.oneOf(strings.TrimPrefix(value, "in:"), func(i *compute.Image) string { return i.DiskFormat })
	case "container_format":
		return q.oneOf(strings.TrimPrefix(value, "in:"), func(i *compute.Image) string { return i.ContainerFormat })
	case "os_hash_value":
		q.filter.OSHash = strings.ToLower(value)
	case "checksum":
		return q.oneOf(strings.ToLower(value), func(i *compute.Image) string { return i.MD5 })
	case "tag":
		q.tests = append(q.tests, func(i *compute.Image) bool { return slices.Contains(i.Tags, value) })
	case "protected":
		want, err := parseBoolean(key, value)
		q.tests = append(q.tests, func(i *compute.Image) bool { return i.Protected == want })
		return err
	case "size_min", "size_max":
		n, err := parseNumber(key, value)
		q.tests = append(q.tests, func(i *compute.Image) bool {
			return key == "size_min" && i.Size >= int64(n) || key == "size_max" && i.Size <= int64(n)
		})
		return err
	case "created_at":
		return q.when(value, func(i *compute.Image) time.Time { return i.CreatedAt })
	case "updated_at":
		return q.when(value, lastUpdated)
	default:
		q.tests = append(q.tests, func(i *compute.Image) bool { return key != uploadKey && i.Properties[key] == value })
	}
	return nil
}

func (q *listQuery) oneOf(words string, of func(*compute.Image) string) error {
	want := strings.Split(words, ",")
	for i := range want {
		want[i] = strings.Trim(want[i], `"`)
	}
	q.tests = append(q.tests, func(i *compute.Image) bool { return slices.Contains(want, of(i)) })
	return nil
}

// when compares a time: "gte:2026-01-02T03:04:05Z"; without a word it must be equal.
func (q *listQuery) when(value string, of func(*compute.Image) time.Time) error {
	word, text := "eq", value
	for _, w := range []string{"gt", "gte", "eq", "neq", "lt", "lte"} {
		if rest, ok := strings.CutPrefix(value, w+":"); ok {
			word, text = w, rest
		}
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return problem.Invalidf("Unable to filter on a time: %.64q is none as 2026-01-02T03:04:05Z.", value)
	}
	q.tests = append(q.tests, func(i *compute.Image) bool {
		c := of(i).Truncate(time.Second).Compare(t)
		return map[string]bool{"gt": c > 0, "gte": c >= 0, "eq": c == 0, "neq": c != 0, "lt": c < 0, "lte": c <= 0}[word]
	})
	return nil
}

// sort takes the first key only: images with an equal one are in the order of their creation.
func (q *listQuery) sort(v url.Values) error {
	key, way := "created_at", "desc"
	if k := v.Get("sort_key"); k != "" {
		key = k
	}
	if w := v.Get("sort_dir"); w != "" {
		way = w
	}
	if both := v.Get("sort"); both != "" {
		first, _, _ := strings.Cut(both, ",")
		var given bool
		if key, way, given = strings.Cut(first, ":"); !given {
			way = "desc"
		}
	}
	word, ok := sortKeys[key]
	if !ok || way != "asc" && way != "desc" {
		return problem.Invalidf("Images cannot be sorted by %.40q, %.10q: %s, and asc or desc.", key, way, problem.WantOneOf(slices.Collect(maps.Keys(sortKeys))))
	}
	q.page.SortKey, q.page.Desc = word, way == "desc"
	return nil
}

func parseNumber(key, value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		return 0, problem.Invalidf("Invalid value %.40q for %s: want a number of at least 0.", value, key)
	}
	return n, nil
}

func parseBoolean(key, value string) (bool, error) {
	switch strings.ToLower(value) {
	case "true", "1", "yes":
		return true, nil
	case "false", "0", "no":
		return false, nil
	}
	return false, problem.Invalidf("Invalid value %.40q for %s: want true or false.", value, key)
}
