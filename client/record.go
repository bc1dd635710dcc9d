package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"salvor/problem"
	"salvor/wire/ironic"
)

// newest is the highest microversion whose answers this package was written for.
const newest = Version(115)

// Record is a resource as the server sent it, every field included; numbers are json.Number.
type Record map[string]any

// Text reads a field that is a string; empty where it is null or something else.
func (r Record) Text(field string) string {
	s, _ := r[field].(string)
	return s
}

// version is what a call speaks: as configured, else the highest that both sides know.
func (c *Client) version(ctx context.Context) (Version, error) {
	if c.config.Version != 0 {
		return c.config.Version, nil
	}
	served, err := c.Versions(ctx)
	if err != nil {
		return 0, err
	}
	v := served.Pick(newest)
	if v == 0 {
		return 0, problem.Unsupportedf("%s serves microversions %s to %s only; this program speaks up to %s", c.Endpoint(), served.Min, served.Max, newest)
	}
	return v, nil
}

// call sends a request in the negotiated version. out is decoded with numbers kept as written.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, body, out any) error {
	v, err := c.version(ctx)
	if err != nil {
		return err
	}
	request := Request{Method: method, Path: path, Query: query, Body: body, Version: v}
	answer, err := c.Do(ctx, request, nil)
	if err != nil || out == nil {
		return err
	}
	if err := decodeJSON(answer.Body, out); err != nil {
		return problem.Unavailablef("%s: answer is not the JSON expected: %w", request, err)
	}
	return nil
}

func decodeJSON(text []byte, out any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(out)
}

// Query says what a list shows. The zero Query lists everything in its short form.
type Query struct {
	// Filter holds the list's own parameters: provision_state, driver, maintenance, node, address, ...
	Filter url.Values
	// Fields to show; empty: the short form, or all of them where Detail is set.
	Fields []string
	Detail bool
	// Limit bounds the items; 0: all of them, page after page.
	Limit int
	// Marker is the UUID after which to begin.
	Marker string
	// SortKey is a field; SortDescending turns the order around.
	SortKey        string
	SortDescending bool
}

func (q Query) values() url.Values {
	v := url.Values{}
	for key, values := range q.Filter {
		v[key] = values
	}
	if len(q.Fields) > 0 {
		v.Set("fields", strings.Join(q.Fields, ","))
	} else if q.Detail {
		v.Set("detail", "true")
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Marker != "" {
		v.Set("marker", q.Marker)
	}
	if q.SortKey != "" {
		v.Set("sort_key", q.SortKey)
	}
	if q.SortDescending {
		v.Set("sort_dir", "desc")
	}
	return v
}

// maxPages bounds a list whose server never says that it ends.
const maxPages = 100000

// listPages reads the pages of a list. envelope is the key of the items: "nodes".
func listPages[T any](ctx context.Context, c *Client, path, envelope string, q Query) ([]T, error) {
	var all []T
	for range maxPages {
		var page map[string]json.RawMessage
		if err := c.call(ctx, http.MethodGet, path, q.values(), nil, &page); err != nil {
			return nil, err
		}
		var items []T
		if err := decodeJSON(page[envelope], &items); err != nil {
			return nil, problem.Unavailablef("GET %s: answer holds no %s: %w", path, envelope, err)
		}
		all = append(all, items...)
		marker := nextMarker(page["next"])
		if marker == "" || marker == q.Marker || len(items) == 0 || (q.Limit > 0 && len(all) >= q.Limit) {
			if q.Limit > 0 && len(all) > q.Limit {
				all = all[:q.Limit]
			}
			return all, nil
		}
		q.Marker = marker
	}
	return nil, problem.Unavailablef("GET %s: the list does not end after %d pages", path, maxPages)
}

// nextMarker takes the marker out of the link to the next page. The link itself may
// name a host that only the server's neighbours know.
func nextMarker(link json.RawMessage) string {
	var next string
	if len(link) == 0 || json.Unmarshal(link, &next) != nil {
		return ""
	}
	u, err := url.Parse(next)
	if err != nil {
		return ""
	}
	return u.Query().Get("marker")
}

// fieldsQuery is the query of a single resource.
func fieldsQuery(names []string) url.Values {
	if len(names) == 0 {
		return nil
	}
	return url.Values{"fields": {strings.Join(names, ",")}}
}

// Set and Remove make the operations of a patch. path is "/driver_info/redfish_address".
func Set(path string, value any) (ironic.PatchOperation, error) {
	text, err := json.Marshal(value)
	return ironic.PatchOperation{Op: "add", Path: path, Value: text}, err
}

// Remove is the operation that takes a field back to its default.
func Remove(path string) ironic.PatchOperation {
	return ironic.PatchOperation{Op: "remove", Path: path}
}
