package image

import (
	"net/http"
	"strings"
	"time"

	"salvor/api"
	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

const maxText = 255

// imageField is one of those that every image has; all others are properties.
type imageField struct {
	name, kind string
	readOnly   bool
	one        []any // the values that it may have; nil: any
	value      func(i *compute.Image) any
}

var (
	visibilities = []any{"public", "private", "shared", "community"}
	diskFormats  = []any{nil, "raw", "qcow2", "iso", "aki", "ari"}
	containers   = []any{nil, "bare", "aki", "ari"}
)

// fields in the order of Glance's documentation.
var fields = []imageField{
	{name: "id", kind: "string", value: func(i *compute.Image) any { return i.ID }},
	{name: "name", kind: "string", value: func(i *compute.Image) any { return nullIfEmpty(i.Name) }},
	{name: "status", kind: "string", readOnly: true, value: func(i *compute.Image) any { return string(i.Status) }},
	{name: "visibility", kind: "string", one: visibilities, value: func(i *compute.Image) any { return i.Visibility }},
	{name: "protected", kind: "boolean", value: func(i *compute.Image) any { return i.Protected }},
	{name: "os_hidden", kind: "boolean", value: func(i *compute.Image) any { return isHidden(i) }},
	{name: "checksum", kind: "string", readOnly: true, value: func(i *compute.Image) any { return nullIfEmpty(i.MD5) }},
	{name: "os_hash_algo", kind: "string", readOnly: true, value: func(i *compute.Image) any { return hashAlgo(i) }},
	{name: "os_hash_value", kind: "string", readOnly: true, value: func(i *compute.Image) any { return nullIfEmpty(i.SHA512) }},
	{name: "owner", kind: "string", value: func(i *compute.Image) any { return nullIfEmpty(i.Owner) }},
	{name: "size", kind: "integer", readOnly: true, value: func(i *compute.Image) any { return nullIfZero(i.Size) }},
	{name: "virtual_size", kind: "integer", readOnly: true, value: func(i *compute.Image) any { return nullIfZero(i.VirtualSize) }},
	{name: "container_format", kind: "string", one: containers, value: func(i *compute.Image) any { return nullIfEmpty(i.ContainerFormat) }},
	{name: "disk_format", kind: "string", one: diskFormats, value: func(i *compute.Image) any { return nullIfEmpty(i.DiskFormat) }},
	{name: "min_disk", kind: "integer", value: func(i *compute.Image) any { return i.MinDisk }},
	{name: "min_ram", kind: "integer", value: func(i *compute.Image) any { return i.MinRAM }},
	{name: "tags", kind: "array", value: func(i *compute.Image) any { return nonNilTags(i.Tags) }},
	{name: "created_at", kind: "string", readOnly: true, value: func(i *compute.Image) any { return timeText(i.CreatedAt) }},
	{name: "updated_at", kind: "string", readOnly: true, value: func(i *compute.Image) any { return timeText(lastUpdated(i)) }},
	{name: "self", kind: "string", readOnly: true, value: func(i *compute.Image) any { return "/v2/images/" + i.ID }},
	{name: "file", kind: "string", readOnly: true, value: func(i *compute.Image) any { return "/v2/images/" + i.ID + "/file" }},
	{name: "schema", kind: "string", readOnly: true, value: func(*compute.Image) any { return "/v2/schemas/image" }},
}

// fieldOf finds a field by its name; nil: it is a property.
func fieldOf(name string) *imageField {
	for i := range fields {
		if fields[i].name == name {
			return &fields[i]
		}
	}
	return nil
}

// Properties that salvor itself keeps with an image.
const (
	hiddenKey  = "os_hidden"
	uploadKey  = "salvor:upload" // who is bringing the bytes; shown to nobody
	problemKey = "salvor:import_problem"
	failedKey  = "os_glance_failed_import"
)

func isHidden(i *compute.Image) bool { return i.Properties[hiddenKey] == "true" }

func hashAlgo(i *compute.Image) any {
	if i.SHA512 == "" {
		return nil
	}
	return "sha512"
}

func lastUpdated(i *compute.Image) time.Time {
	if i.UpdatedAt.IsZero() {
		return i.CreatedAt
	}
	return i.UpdatedAt
}

func timeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

func nullIfEmpty(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func nullIfZero(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

func nonNilTags(tags []string) []string {
	if tags == nil {
		return []string{}
	}
	return tags
}

// stalled tells whether nobody brings the bytes of a saving image any longer: who does notes it all the time.
func (s *server) stalled(i *compute.Image) bool {
	return i.Status == compute.ImageSaving && s.Now().Sub(lastUpdated(i)) > stallTime
}

// settled is the image as it is told: one whose upload broke off without a word is queued again.
func (s *server) settled(i *compute.Image) *compute.Image {
	if s.stalled(i) {
		c := *i
		c.Status = compute.ImageQueued
		return &c
	}
	return i
}

func (s *server) view(i *compute.Image) jsonObject {
	i = s.settled(i)
	o := jsonObject{}
	for k, v := range i.Properties {
		if k != uploadKey {
			o[k] = v
		}
	}
	for _, f := range fields {
		o[f.name] = f.value(i)
	}
	return o
}

// canRead tells whether the asker may know of the image; owns, whether it may change it.
func canRead(c *api.Call, i *compute.Image) bool {
	return canModify(c, i) || i.Visibility == "public" || i.Visibility == "community"
}

func canModify(c *api.Call, i *compute.Image) bool {
	return c.Admin() || i.Owner != "" && i.Owner == c.Project()
}

// image finds the image of the path, if the asker may see it.
func (s *server) image(c *api.Call) (*compute.Image, error) {
	id := c.Arg("image")
	missing := problem.NotFoundf("No image found with ID %.64s", id)
	if !record.IsUUID(id) { // a name names no image here
		return nil, missing
	}
	i, err := s.Images.Get(c.R.Context(), id)
	if problem.Is(err, problem.NotFound) || err == nil && !canRead(c, i) {
		return nil, missing
	}
	return i, err
}

// ownImage finds the image of the path, if the asker may change it.
func (s *server) ownImage(c *api.Call) (*compute.Image, error) {
	i, err := s.image(c)
	if err == nil && !canModify(c, i) {
		return nil, problem.Forbiddenf("You are not permitted to modify image %s: it belongs to another project.", i.ID)
	}
	return i, err
}

func (s *server) show(c *api.Call) error {
	i, err := s.image(c)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, s.view(i))
}

// methodsHeader tells clients that created an image how its bytes can be brought beside an upload.
func (s *server) methodsHeader(c *api.Call) {
	if methods := s.importMethods(); len(methods) > 0 {
		c.W.Header().Set("OpenStack-image-import-methods", strings.Join(methods, ","))
	}
}
