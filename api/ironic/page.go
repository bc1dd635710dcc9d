package ironic

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"salvor/api"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// pageArgs are the query arguments of every list.
var pageArgs = []string{"limit", "marker", "sort_key", "sort_dir", "fields", "detail"}

// page reads limit, marker, sort_key and sort_dir. keys are the fields that can be sorted
// by, with their first versions.
func (c *ironicCall) page(keys map[string]metal.Version) (record.Page, error) {
	p := record.Page{Limit: c.s.MaxLimit, Marker: c.Query.Get("marker")}
	if c.has("limit") {
		n, err := strconv.Atoi(c.Query.Get("limit"))
		if err != nil {
			return p, problem.Invalidf("Invalid value for limit: %q is no number", truncateInput(c.Query.Get("limit")))
		}
		if n <= 0 {
			return p, problem.Invalidf("Limit must be positive")
		}
		p.Limit = min(n, c.s.MaxLimit)
	}
	if len(p.Marker) > maxIdent {
		return p, problem.NotFoundf("The marker could not be found.")
	}
	switch dir := c.Query.Get("sort_dir"); dir {
	case "", "asc":
	case "desc":
		p.Desc = true
	default:
		return p, problem.Invalidf("Invalid sort direction: %s. Acceptable values are 'asc' or 'desc'", truncateInput(dir))
	}
	if key := c.Query.Get("sort_key"); key != "" && key != "id" {
		since, ok := keys[key]
		if !ok {
			return p, problem.Invalidf(`The sort_key value "%s" is an invalid field for sorting: %s`, truncateInput(key), problem.WantOneOf(knownFields(keys, c.version)))
		}
		if since > c.version {
			return p, newerField(key, since)
		}
		p.SortKey = key
	}
	return p, nil
}

// next is the link to the page after a full one, its filters kept; empty otherwise.
func (c *ironicCall) next(path string, p record.Page, got int, last string) string {
	if got < p.Limit || got == 0 {
		return ""
	}
	q := url.Values{}
	for k, v := range c.Query {
		q[k] = v
	}
	q.Set("limit", strconv.Itoa(p.Limit))
	q.Set("marker", last)
	return c.Base + "/v1/" + path + "?" + q.Encode()
}

// fieldNames reads the fields argument; nil if there is none.
func (c *ironicCall) fieldNames() ([]string, error) {
	if !c.has("fields") {
		return nil, nil
	}
	if c.version < 8 {
		return nil, api.NotAcceptablef("Request not acceptable: fields needs API version 1.8.")
	}
	var names []string
	for word := range strings.SplitSeq(strings.Join(c.Query["fields"], ","), ",") {
		if word = strings.TrimSpace(word); word != "" && !slices.Contains(names, word) {
			if len(names) == 200 {
				return nil, problem.Invalidf("More than 200 fields are asked for.")
			}
			names = append(names, word)
		}
	}
	if len(names) == 0 {
		return nil, problem.Invalidf("fields names no field.")
	}
	return names, nil
}

// detail reads the detail argument of a list, which excludes fields.
func (c *ironicCall) detail(names []string) (bool, error) { return c.detailSince(names, 43) }

func (c *ironicCall) detailSince(names []string, since metal.Version) (bool, error) {
	detail, err := c.boolean("detail")
	if err != nil || detail == nil {
		return false, err
	}
	if c.version < since {
		return false, api.NotAcceptablef("Request not acceptable: detail needs API version %s.", versionText(since))
	}
	if *detail && names != nil {
		return false, problem.Invalidf("Can't fetch a subset of fields with 'detail' set")
	}
	return *detail, nil
}

// unknownField is the error for a field that an answer cannot show; valid are those that it can.
func unknownField(name string, valid []string) error {
	return problem.Invalidf(`Field(s) "%s" are not valid: %s`, truncateInput(name), problem.WantOneOf(valid))
}

// knownFields are the fields that a version knows, of fields with their first versions.
func knownFields(fields map[string]metal.Version, v metal.Version) (out []string) {
	for name, since := range fields {
		if since <= v {
			out = append(out, name)
		}
	}
	return out
}

func newerField(name string, since metal.Version) error {
	return api.NotAcceptablef("Request not acceptable: the field %s needs API version %s.", name, versionText(since))
}
