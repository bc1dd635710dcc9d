package image

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"salvor/api"
	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

const (
	maxProperties = 128
	maxTags       = 128
	maxValue      = 4096
)

// setAttribute gives an image's field or property a value as JSON has it; nil takes it away.
func setAttribute(c *api.Call, i *compute.Image, name string, value any) error {
	f := fieldOf(name)
	if f == nil {
		return setProperty(i, name, value)
	}
	if f.readOnly {
		return problem.Forbiddenf("Attribute '%s' is read-only.", name)
	}
	if f.one != nil && !slices.Contains(f.one, value) {
		return problem.Invalidf("Invalid value for '%s': want one of %v.", name, f.one)
	}
	var err error
	switch name {
	case "name":
		i.Name, err = decodeText(name, value)
	case "visibility":
		i.Visibility, _ = value.(string)
		if i.Visibility == "public" && !c.Admin() {
			return problem.Forbiddenf("You are not authorized to make an image public: ask an administrator.")
		}
	case "owner":
		var owner string
		if owner, err = decodeText(name, value); err == nil && owner != i.Owner && !c.Admin() {
			return problem.Forbiddenf("You are not permitted to give images to another project.")
		}
		i.Owner = owner
	case "protected":
		i.Protected, err = decodeBool(name, value)
	case "os_hidden":
		var on bool
		if on, err = decodeBool(name, value); on {
			i.Properties[hiddenKey] = "true"
		} else {
			delete(i.Properties, hiddenKey)
		}
	case "container_format", "disk_format":
		return setFormat(i, name, value)
	case "min_disk":
		i.MinDisk, err = decodeInt(name, value)
	case "min_ram":
		i.MinRAM, err = decodeInt(name, value)
	case "tags":
		i.Tags, err = decodeTags(value)
	default:
		return problem.Forbiddenf("Attribute '%s' cannot be changed.", name)
	}
	return err
}

func setFormat(i *compute.Image, name string, value any) error {
	format, _ := value.(string)
	have := &i.DiskFormat
	if name == "container_format" {
		have = &i.ContainerFormat
	}
	if *have != format && i.Status != compute.ImageQueued {
		return problem.Forbiddenf("Attribute '%s' can only be changed while the image has no data.", name)
	}
	*have = format
	return nil
}

func setProperty(i *compute.Image, name string, value any) error {
	switch {
	case name == "" || len(name) > maxText:
		return problem.Invalidf("The name of a property must have 1 to %d bytes.", maxText)
	case name == uploadKey || name == "locations" || name == "direct_url" || name == "stores":
		return problem.Forbiddenf("Attribute '%s' is reserved.", name)
	}
	if value == nil {
		delete(i.Properties, name)
		return nil
	}
	word, err := propertyText(name, value)
	if err != nil {
		return err
	}
	i.Properties[name] = word
	if len(i.Properties) > maxProperties {
		return problem.Invalidf("An image has at most %d properties.", maxProperties)
	}
	return nil
}

// propertyText takes numbers and truth values for text, as some clients send them.
func propertyText(name string, value any) (string, error) {
	switch v := value.(type) {
	case string:
		if len(v) <= maxValue {
			return v, nil
		}
	case bool, float64:
		b, err := json.Marshal(v)
		return string(b), err
	}
	return "", problem.Invalidf("Invalid value for property '%.64s': want text of at most %d bytes.", name, maxValue)
}

func decodeText(name string, value any) (string, error) {
	if value == nil {
		return "", nil
	}
	v, ok := value.(string)
	if !ok || len(v) > maxText {
		return "", problem.Invalidf("Invalid value for '%s': want text of at most %d bytes.", name, maxText)
	}
	return v, nil
}

func decodeBool(name string, value any) (bool, error) {
	v, ok := value.(bool)
	if !ok {
		return false, problem.Invalidf("Invalid value for '%s': want true or false.", name)
	}
	return v, nil
}

func decodeInt(name string, value any) (int, error) {
	v, ok := value.(float64)
	if !ok || v != math.Trunc(v) || v < 0 || v > math.MaxInt32 {
		return 0, problem.Invalidf("Invalid value for '%s': want a whole number from 0 to %d.", name, math.MaxInt32)
	}
	return int(v), nil
}

func decodeTags(value any) ([]string, error) {
	all, ok := value.([]any)
	if !ok && value != nil {
		return nil, problem.Invalidf("Invalid value for 'tags': want a list of text.")
	}
	out := []string{}
	for _, v := range all {
		t, ok := v.(string)
		if !ok || t == "" || len(t) > maxText {
			return nil, problem.Invalidf("Invalid value for 'tags': want text of 1 to %d bytes each.", maxText)
		}
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	if len(out) > maxTags {
		return nil, problem.Invalidf("An image has at most %d tags.", maxTags)
	}
	return out, nil
}

func (s *server) create(c *api.Call) error {
	b, err := api.ReadBody(c.W, c.R, api.MaxBody)
	if err != nil {
		return err
	}
	body, err := api.DecodeObject(b)
	if err != nil {
		return err
	}
	i := &compute.Image{Owner: c.Project(), Visibility: "shared", Status: compute.ImageQueued, Properties: map[string]string{}}
	if id, given := body["id"]; given {
		if i.ID, _ = id.(string); !record.IsUUID(i.ID) {
			return problem.Invalidf("Invalid value for 'id': want a UUID.")
		}
		delete(body, "id")
	}
	for _, name := range slices.Sorted(maps.Keys(body)) {
		if err := setAttribute(c, i, name, body[name]); err != nil {
			return err
		}
	}
	if err := s.Images.Create(c.R.Context(), i, c.Asker()); err != nil {
		return err
	}
	c.W.Header().Set("Location", c.Base+"/image/v2/images/"+i.ID)
	s.methodsHeader(c)
	return c.JSON(http.StatusCreated, s.view(i))
}

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

// edit changes the image of the path on request.
func (s *server) edit(c *api.Call, do func(*compute.Image) error) (*compute.Image, error) {
	i, err := s.ownImage(c)
	if err != nil {
		return nil, err
	}
	return s.update(c.R.Context(), i.ID, c.Asker(), do)
}

// update changes an image; do works on its own copies of what an image shares with others.
func (s *server) update(ctx context.Context, id string, requester record.Asker, do func(*compute.Image) error) (*compute.Image, error) {
	return s.Images.Update(ctx, id, requester, func(i *compute.Image) error {
		if i.Properties = maps.Clone(i.Properties); i.Properties == nil {
			i.Properties = map[string]string{}
		}
		i.Tags = slices.Clone(i.Tags)
		return do(i)
	})
}

func (s *server) addTag(c *api.Call) error {
	tag := c.Arg("tag")
	_, err := s.edit(c, func(i *compute.Image) error {
		all := []any{}
		for _, t := range i.Tags {
			all = append(all, t)
		}
		var err error
		i.Tags, err = decodeTags(append(all, tag))
		return err
	})
	if err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}

func (s *server) removeTag(c *api.Call) error {
	tag := c.Arg("tag")
	_, err := s.edit(c, func(i *compute.Image) error {
		n := slices.Index(i.Tags, tag)
		if n < 0 {
			return problem.NotFoundf("Image %s has no tag %.64q.", i.ID, tag)
		}
		i.Tags = slices.Delete(i.Tags, n, n+1)
		return nil
	})
	if err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}

func (s *server) deactivate(c *api.Call) error {
	return s.swap(c, compute.ImageActive, compute.ImageDeactivated)
}

func (s *server) reactivate(c *api.Call) error {
	return s.swap(c, compute.ImageDeactivated, compute.ImageActive)
}

func (s *server) swap(c *api.Call, from, to compute.ImageStatus) error {
	if !c.Admin() {
		return problem.Forbiddenf("Only administrators deactivate and reactivate images.")
	}
	_, err := s.edit(c, func(i *compute.Image) error {
		if i.Status != from && i.Status != to {
			return problem.Forbiddenf("Not allowed to set status %s on an image in status %s.", to, i.Status)
		}
		i.Status = to
		return nil
	})
	if err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}
