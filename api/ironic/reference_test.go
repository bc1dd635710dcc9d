package ironic

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"salvor/api"
	"salvor/metal"
	"salvor/test/must"
)

var update = flag.Bool("update", false, "write docs/api/openapi.json again")

const referenceFile = "../../docs/api/openapi.json"

// TestReference holds the reference to the tables of routes and fields: what is served and
// not written down, or written down and not served, is an error here.
func TestReference(t *testing.T) {
	made := reference(t)
	if *update {
		must.OK(t, os.WriteFile(referenceFile, made, 0o644))
	}
	stored := must.Get(os.ReadFile(referenceFile))(t)
	if !bytes.Equal(stored, made) {
		t.Error("docs/api/openapi.json is not what the tables say: run make api")
	}
}

type object = map[string]any

func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// reference writes the document: routes and fields from the tables, what they mean from operations.
func reference(t *testing.T) []byte {
	t.Helper()
	s := &server{}
	kinds := described()
	paths := map[string]object{}
	used := map[string]bool{}
	for _, r := range s.table() {
		if r.old || r.plain {
			continue
		}
		for _, method := range methodsOf(r) {
			op := operationOf(r, method, kinds, used)
			if op == nil {
				t.Errorf("%s %s is served and not described: add it to operations", method, r.path)
				continue
			}
			if paths[r.path] == nil {
				paths[r.path] = object{"parameters": pathParameters(r.path)}
			}
			paths[r.path][strings.ToLower(method)] = op
		}
	}
	for key := range operations {
		if !used[key] {
			t.Errorf("%s is described and not served", key)
		}
	}
	schemas := object{"Error": errorSchema, "Node": nodeSchema(), "Link": linkSchema}
	for _, k := range kinds {
		schemas[k.schema] = k.properties
	}
	out := must.Get(json.MarshalIndent(object{
		"openapi": "3.0.3",
		"info": object{
			"title": "Bare Metal API", "version": fmt.Sprintf("1.%d", MaxVersion),
			"description": fmt.Sprintf("OpenStack's Bare Metal API v1 as salvor serves it, microversions 1.%d to 1.%d. x-since is the first microversion that knows a path, an argument or a field; below it a path is 404, an argument or a field that is sent 406, and a field is not in answers. Times are UTC, timeouts are seconds, sizes are in the unit that the field's name ends with. Secrets are shown as ******.", MinVersion, MaxVersion),
		},
		"paths": paths,
		"components": object{"schemas": schemas, "parameters": object{"version": object{
			"name": "X-OpenStack-Ironic-API-Version", "in": "header", "schema": object{"type": "string"}, "description": "1.N or latest; 1.1 if left out",
		}}},
	}, "", " "))(t)
	return append(out, '\n')
}

func methodsOf(r apiRoute) []string {
	if r.method == "*" {
		return []string{"GET", "POST", "PUT", "PATCH", "DELETE"}
	}
	return []string{r.method}
}

var argument = regexp.MustCompile(`\{(\w+)\}`)

func pathParameters(path string) []any {
	out := []any{object{"$ref": "#/components/parameters/version"}}
	for _, m := range argument.FindAllStringSubmatch(path, -1) {
		out = append(out, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	return out
}

// description is what the reference needs to know of a kind.
type description struct {
	path, list, name, schema string
	properties               object
	writable                 object // what a creation takes
	required                 []string
	filters                  []any
	detailPath               bool
}

func described() (all []description) {
	for _, k := range (&server{}).kinds() {
		all = append(all, k.kind.(interface{ describe() description }).describe())
	}
	return all
}

func (k *recordKind[R, F]) describe() description {
	d := description{path: "/v1/" + k.path, list: k.list, name: k.name, detailPath: k.detailPath, writable: object{}}
	for _, word := range strings.Fields(strings.NewReplacer("_", " ").Replace(k.name)) {
		d.schema += strings.ToUpper(word[:1]) + word[1:]
	}
	c := &ironicCall{Call: &api.Call{Base: "http://host"}, version: MaxVersion}
	properties := object{}
	for _, f := range k.fields {
		if f.write != nil {
			shape := shapeOf(f.name, f.write(nil, k.blank(c), c))
			shape["x-since"] = fmt.Sprintf("1.%d", max(f.since, k.since))
			properties[f.name] = shape
		}
		if f.use&creatable != 0 {
			d.writable[f.name] = object{"x-since": fmt.Sprintf("1.%d", max(f.since, k.since)), "x-patch": f.use&patchable != 0}
		}
		if f.use&required != 0 {
			d.required = append(d.required, f.name)
		}
	}
	d.properties = object{"type": "object", "properties": properties, "additionalProperties": false}
	for _, f := range k.filters {
		d.filters = append(d.filters, query(f.name, max(f.since, k.since), "keeps those with this value"))
	}
	return d
}

// shapes of fields that are empty in a blank record, so that it does not tell.
var shapes = map[string]object{
	"automated_clean": {"type": "boolean", "nullable": true},
	"secure_boot":     {"type": "boolean", "nullable": true},
	"reservation":     {"type": "string", "nullable": true},
	"conditions":      {"type": "array", "items": object{}, "nullable": true}, // of a sensitive rule, as its actions
	"actions":         {"type": "array", "items": object{}, "nullable": true},
}

// shapeOf tells the schema of a field by what a blank record writes.
func shapeOf(name string, blank []byte) object {
	if s, ok := shapes[name]; ok {
		return maps.Clone(s)
	}
	var v any
	_ = json.Unmarshal(blank, &v)
	switch v.(type) {
	case bool:
		return object{"type": "boolean"}
	case float64:
		return object{"type": "integer"}
	case []any:
		return object{"type": "array", "items": object{}}
	case map[string]any:
		return object{"type": "object"}
	}
	shape := object{"type": "string", "nullable": true}
	if strings.HasSuffix(name, "_at") {
		shape["format"] = "date-time"
	}
	return shape
}

func nodeSchema() object {
	properties := object{}
	c := &ironicCall{Call: &api.Call{Base: "http://host"}, version: MaxVersion}
	for _, f := range nodeFields {
		shape := shapeOf(f.name, f.write(nil, &nodeView{Node: &metal.Node{}}, c))
		shape["x-since"] = fmt.Sprintf("1.%d", f.since)
		if f.use&patchable != 0 {
			shape["x-create"], shape["x-patch"] = f.use&creatable != 0, true
		}
		properties[f.name] = shape
	}
	return object{"type": "object", "properties": properties, "additionalProperties": false}
}

var errorSchema = object{
	"type": "object", "required": []string{"error_message"},
	"description": "error_message is JSON again, in a string: {faultcode, faultstring, debuginfo}, or {code, title, description} for paths, methods and versions; of bodies that are too large or too deep it is an object.",
	"properties":  object{"error_message": object{}},
}

var linkSchema = object{
	"type": "object", "required": []string{"href", "rel"},
	"properties": object{"href": object{"type": "string"}, "rel": object{"type": "string"}, "type": object{"type": "string"}},
}

func query(name string, since metal.Version, words string) object {
	return object{"name": name, "in": "query", "schema": object{"type": "string"}, "description": words, "x-since": fmt.Sprintf("1.%d", since)}
}

// pageQuery are the arguments of every list.
func pageQuery() []any {
	return []any{
		query("limit", 1, "at most so many; the server's own limit stands over it"), query("marker", 1, "begin after the one with this UUID"),
		query("sort_key", 1, "a field"), query("sort_dir", 1, "asc or desc"), query("fields", 8, "the fields to show, separated by commas"),
		query("detail", 43, "true: every field"),
	}
}

func listOf(key string, item object) object {
	return object{"type": "object", "required": []string{key}, "properties": object{
		key: object{"type": "array", "items": item}, "next": object{"type": "string", "description": "the next page"},
	}}
}

// operationOf describes a method of a route: by its kind's table, or by hand.
func operationOf(r apiRoute, method string, kinds []description, used map[string]bool) object {
	key := method + " " + r.path
	o, ok := operations[key]
	if ok {
		used[key] = true
	} else if o, ok = derived(r, method, kinds); !ok {
		return nil
	}
	responses := object{fmt.Sprint(o.status): answerOf(o), "default": object{"description": "refused", "content": content(ref("Error"))}}
	if o.later {
		responses["202"] = object{"description": "accepted"}
	}
	op := object{"summary": o.summary, "x-since": fmt.Sprintf("1.%d", max(r.since, 1)), "responses": responses}
	if rule := ruleOf(method, r.path); rule != "" {
		op["x-policy"] = rule
	}
	if len(o.query) > 0 {
		op["parameters"] = o.query
	}
	if o.body != nil {
		op["requestBody"] = object{"content": content(o.body), "required": !o.optional}
	}
	return op
}

func ruleOf(method, path string) string { _, rule := permitOf(method, path); return rule }

func content(schema object) object {
	return object{"application/json": object{"schema": schema}}
}

func answerOf(o operation) object {
	if o.answer == nil {
		return object{"description": "done"}
	}
	return object{"description": "done", "content": content(o.answer)}
}

// derived describes the routes that follow from the table of a kind.
func derived(r apiRoute, method string, kinds []description) (operation, bool) {
	i := slices.IndexFunc(kinds, func(k description) bool {
		return r.path == k.path || r.path == k.path+"/detail" || r.path == k.path+"/{id}"
	})
	if i < 0 {
		return belowAnother(r, method, kinds)
	}
	k := kinds[i]
	one, many := ref(k.schema), listOf(k.list, ref(k.schema))
	switch {
	case method == "POST":
		return operation{summary: "Make a " + k.name, status: 201, body: object{"type": "object", "properties": k.writable, "required": k.required}, answer: one, optional: len(k.required) == 0}, true
	case method == "PATCH":
		return operation{summary: "Change a " + k.name, status: 200, body: patchSchema, answer: one}, true
	case method == "DELETE":
		return operation{summary: "Forget a " + k.name, status: 204}, true
	case strings.HasSuffix(r.path, "{id}"):
		return operation{summary: "One " + k.name, status: 200, answer: one, query: []any{query("fields", 8, "the fields to show, separated by commas")}}, true
	}
	return operation{summary: "List: " + k.name, status: 200, answer: many, query: append(pageQuery(), k.filters...)}, true
}

// belowAnother are lists of a kind below what they belong to.
func belowAnother(r apiRoute, method string, kinds []description) (operation, bool) {
	for _, k := range kinds {
		tail := strings.TrimPrefix(k.path, "/v1")
		if method == "GET" && (strings.HasSuffix(r.path, "}"+tail) || strings.HasSuffix(r.path, "}"+tail+"/detail")) {
			return operation{summary: "List what belongs to it: " + k.name, status: 200, answer: listOf(k.list, ref(k.schema)), query: pageQuery()}, true
		}
	}
	return operation{}, false
}

var patchSchema = object{"type": "array", "description": "RFC 6902; ~0 and ~1 in paths from 1.98", "items": object{
	"type": "object", "required": []string{"op", "path"},
	"properties": object{"op": object{"type": "string", "enum": []string{"add", "replace", "remove"}}, "path": object{"type": "string"}, "value": object{"nullable": true}},
}}
