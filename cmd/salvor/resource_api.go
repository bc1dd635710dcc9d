package main

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/problem"
	"salvor/record"
)

// send asks the API of the kind for a path below its list.
func (r *resourceSpec) send(c *kit.Call, method, path string, query url.Values, body, out any) error {
	if r.isBaremetal() {
		return c.API.Call(c.Context(), method, r.at.Path+path, query, body, out)
	}
	return c.API.Ask(c.Context(), r.api, method, r.path+path, query, body, out)
}

// wrap puts a record under the key that stands for one.
func (r *resourceSpec) wrap(fields client.Record) any {
	if r.one == "" {
		return fields
	}
	return client.Record{r.one: fields}
}

// ask sends a request whose answer is one record.
func (r *resourceSpec) ask(c *kit.Call, method, path string, query url.Values, body any) (client.Record, error) {
	var got client.Record
	if err := r.send(c, method, path, query, body, &got); err != nil {
		return nil, err
	}
	if inner, ok := got[r.one].(map[string]any); ok && r.one != "" {
		return inner, nil
	}
	return got, nil
}

// all reads the list.
func (r *resourceSpec) all(c *kit.Call, query url.Values) ([]client.Record, error) {
	path := kit.FirstOf(r.detail, r.path)
	var out []client.Record
	for {
		var got map[string]any
		if err := c.API.Ask(c.Context(), r.api, http.MethodGet, path, query, nil, &got); err != nil {
			return nil, err
		}
		rows, _ := got[r.many].([]any)
		for _, row := range rows {
			if item, ok := row.(map[string]any); ok {
				// Some lists wrap each of their items too.
				if inner, ok := item[r.one].(map[string]any); ok && len(item) == 1 {
					item = inner
				}
				out = append(out, item)
			}
		}
		next, ok := nextPage(got, r.many)
		if !ok {
			return out, nil
		}
		query = next
	}
}

// nextPage is the query of the page that the answer names as the next.
func nextPage(got map[string]any, many string) (url.Values, bool) {
	next, _ := got["next"].(string)
	links, _ := got[many+"_links"].([]any)
	for _, l := range links {
		if link, ok := l.(map[string]any); ok && link["rel"] == "next" {
			next, _ = link["href"].(string)
		}
	}
	at, err := url.Parse(next)
	return at.Query(), err == nil && next != ""
}

var wholeNumber = regexp.MustCompile(`^[0-9]+$`)

// mayBeID tells whether the API can be asked for ident as it is. A path that would end in dots leads elsewhere.
func (r *resourceSpec) mayBeID(ident string) bool {
	return record.IsUUID(ident) || wholeNumber.MatchString(ident) || r.keyed && ident != "." && ident != ".."
}

// idsOf gives the ids of the records in a list whose name is ident.
func (r *resourceSpec) idsOf(c *kit.Call, ident string, query url.Values) (ids []string, err error) {
	found, err := r.all(c, query)
	for _, one := range found {
		if one.Text(kit.FirstOf(r.called, "name")) == ident {
			ids = append(ids, fmt.Sprint(one["id"]))
		}
	}
	return ids, err
}

// find gives the id of the one that is called ident, or ident itself where it is an id.
func (r *resourceSpec) find(c *kit.Call, ident string) (string, error) {
	if ident == "" {
		return "", kit.UsageErrorf(c.Command, "an empty word names no %s", r.title)
	}
	if r.isBaremetal() {
		return ident, nil // its API takes names too
	}
	if r.mayBeID(ident) {
		err := r.send(c, http.MethodGet, "/"+url.PathEscape(ident), nil, nil, nil)
		if err == nil {
			return ident, nil
		}
		if status := client.StatusOf(err); status != http.StatusNotFound && status != http.StatusBadRequest {
			return "", err
		}
	}
	var query url.Values
	if r.named != nil {
		query = r.named(ident)
	}
	ids, err := r.idsOf(c, ident, query)
	if err == nil && len(ids) == 0 && r.everywhere != nil { // administrators may name servers of other projects
		all, failed := r.idsOf(c, ident, r.everywhere(query))
		if status := client.StatusOf(failed); status != http.StatusForbidden {
			ids, err = all, failed
		}
	}
	if err != nil {
		return "", err
	}
	switch len(ids) {
	case 0:
		return "", problem.NotFoundf("no %s has the id or name %s: see%s list", r.title, kit.StripControlChars(ident), strings.TrimRight(r.call("")[1:], " "))
	case 1:
		return ids[0], nil
	}
	return "", kit.WithStatus(kit.StatusFailed, fmt.Errorf("%d %s are called %s: name one by its id: %s", len(ids), r.plural, kit.StripControlChars(ident), strings.Join(ids, ", ")))
}

// byName narrows a list by the parameter name.
func byName(name string) url.Values { return url.Values{"name": {name}} }

// byLabel narrows a list by the parameter label.
func byLabel(name string) url.Values { return url.Values{"label": {name}} }

// byImageName narrows a list of images. The image API takes what begins with in: for several names.
func byImageName(name string) url.Values {
	if strings.HasPrefix(name, "in:") {
		return nil
	}
	return byName(name)
}

// inEveryProject extends a list of servers to all projects.
func inEveryProject(query url.Values) url.Values {
	out := maps.Clone(query)
	if out == nil {
		out = url.Values{}
	}
	out.Set("all_tenants", "True")
	return out
}

// byServerName narrows a list of servers. Nova's name filter is a regular expression. Dots stay unescaped: they match the
// name too, and a name without other special characters is looked up at once.
func byServerName(name string) url.Values {
	return byName("^" + strings.ReplaceAll(regexp.QuoteMeta(name), `\.`, ".") + "$")
}

// findByLookUp gives the UUID of the one whose field lookUp has the value.
func (r *resourceSpec) findByLookUp(c *kit.Call, value string) (string, error) {
	found, err := c.API.List(c.Context(), r.at, client.Query{Filter: url.Values{r.lookUp: {value}}})
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", fmt.Errorf("no %s has the %s %s", r.title, r.lookUp, kit.StripControlChars(value))
	}
	return found[0].Text("uuid"), nil
}

// allFields are a record's, in the order of the alphabet.
func allFields(r client.Record) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r)), func(f string) bool { return slices.Contains(kit.HiddenFields, f) })
}

// patchOf replaces fields by a JSON patch; of an object, only the keys that are given.
func patchOf(cmd *cobra.Command, values []fieldValue) (any, error) {
	p := &patchBuilder{}
	for _, v := range values {
		object, ok := v.value.(client.Record)
		if !ok {
			p.set("/"+v.name, v.value)
		}
		for _, key := range slices.Sorted(maps.Keys(object)) {
			p.set("/"+v.name+"/"+escapeJSONPointer(key), object[key])
		}
	}
	return p.done(cmd)
}

// escapeJSONPointer escapes a key for a path of a patch.
func escapeJSONPointer(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}
