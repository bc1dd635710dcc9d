package image

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"slices"

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
