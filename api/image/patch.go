package image

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"salvor/api"
	"salvor/compute"
	"salvor/problem"
)

// patchOp is one operation of a patch.
type patchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
	place string // in the list of tags: a number or "-"
}

// patchTypes are the forms of a patch that are taken; both are spelled alike but for the value of tags, which is whole here.
var patchTypes = []string{"application/openstack-images-v2.1-json-patch", "application/openstack-images-v2.0-json-patch"}

func readPatch(b []byte) ([]patchOp, error) {
	v, err := api.Decode(b)
	if err != nil {
		return nil, err
	}
	if _, ok := v.([]any); !ok {
		return nil, problem.Invalidf("Request body must be a JSON array of operation objects.")
	}
	var all []patchOp
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, problem.Invalidf("Operations must be JSON objects with op, path and value.")
	}
	for n := range all {
		path := all[n].Path
		if rest, ok := strings.CutPrefix(path, "/tags/"); ok {
			path, all[n].place = "/tags", rest
		}
		if all[n].Path, err = parseJSONPointer(path); err != nil {
			return nil, err
		}
		switch all[n].Op {
		case "add", "replace":
		case "remove":
			all[n].Value = nil
		default:
			return nil, problem.Invalidf("Operations must be add, remove or replace, not %.20q.", all[n].Op)
		}
	}
	return all, nil
}

// parseJSONPointer reads a JSON pointer of one part.
func parseJSONPointer(path string) (string, error) {
	name, ok := strings.CutPrefix(path, "/")
	if !ok || name == "" || strings.Contains(name, "/") {
		return "", problem.Invalidf("Invalid JSON pointer %.64q: want a slash and the name of an attribute.", path)
	}
	plain := strings.NewReplacer("~0", "", "~1", "").Replace(name)
	if strings.Contains(plain, "~") {
		return "", problem.Invalidf("Invalid JSON pointer %.64q: '~' is not part of a recognised escape sequence.", path)
	}
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(name), nil
}

// tag changes one place in the list of tags, as the difference of two lists has it.
func (ch patchOp) tag(i *compute.Image) error {
	n, err := strconv.Atoi(ch.place)
	if ch.place == "-" && ch.Op == "add" {
		n, err = len(i.Tags), nil
	}
	last := len(i.Tags) - 1
	if ch.Op == "add" {
		last++
	}
	if err != nil || n < 0 || n > last {
		return problem.Invalidf("Invalid JSON pointer \"/tags/%.20s\": the image has %d tags.", ch.place, len(i.Tags))
	}
	var all []any
	for _, t := range i.Tags {
		all = append(all, t)
	}
	switch ch.Op {
	case "add":
		all = slices.Insert(all, n, ch.Value)
	case "replace":
		all[n] = ch.Value
	default:
		all = slices.Delete(all, n, n+1)
	}
	i.Tags, err = decodeTags(all)
	return err
}

// apply makes one change. What is replaced or removed must be there.
func (ch patchOp) apply(c *api.Call, i *compute.Image) error {
	if ch.place != "" {
		return ch.tag(i)
	}
	if f := fieldOf(ch.Path); f != nil {
		if ch.Op == "remove" && f.name != "name" && f.name != "owner" {
			return problem.Forbiddenf("Property %s may not be removed.", f.name)
		}
	} else if _, there := i.Properties[ch.Path]; !there && ch.Op != "add" {
		return problem.Conflictf("Property %.64s does not exist.", ch.Path)
	}
	if ch.Path == "id" {
		return problem.Forbiddenf("Attribute 'id' is read-only.")
	}
	return setAttribute(c, i, ch.Path, ch.Value)
}

func (s *server) patch(c *api.Call) error {
	kind, _, _ := mime.ParseMediaType(c.R.Header.Get("Content-Type"))
	if !slices.Contains(patchTypes, kind) {
		return &api.Error{
			Status: http.StatusUnsupportedMediaType, Text: fmt.Sprintf("Unsupported Content-Type; want %s.", strings.Join(patchTypes, " or ")),
			Header: http.Header{"Accept-Patch": {strings.Join(patchTypes, ", ")}},
		}
	}
	b, err := api.ReadBody(c.W, c.R, api.MaxBody)
	if err != nil {
		return err
	}
	changes, err := readPatch(b)
	if err != nil {
		return err
	}
	i, err := s.edit(c, func(i *compute.Image) error {
		for _, ch := range changes {
			if err := ch.apply(c, i); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, s.view(i))
}
