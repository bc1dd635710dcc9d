// Package image serves the part of OpenStack's image API (Glance v2) that clients need to upload the images that servers are made from. It
// decodes requests, receives and sends the bytes of images, and keeps images as records of package compute. It knows the stores of rows and
// of bytes only by the methods that it calls, and it knows no hypervisor.
package image

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/compute/service"
	"salvor/problem"
)

// Blobs keeps bytes by their digest, "sha256:" and digits.
type Blobs interface {
	// Put reads to the end and keeps what it read; nothing is kept if r fails. Bytes that are there already are no error.
	Put(ctx context.Context, r io.Reader) (digest string, size int64, err error)
	// Open reads what was put; problem.NotFound if there is none.
	Open(ctx context.Context, digest string) (io.ReadSeekCloser, error)
	// Remove forgets the bytes; none is no error.
	Remove(ctx context.Context, digest string) error
}

// Config is what the API stands on.
type Config struct {
	Images *service.Images
	Blobs  Blobs
	Auth   api.Authenticator
	// Policy may deny what its file has rules for.
	Policy access.Policy
	// PublicEndpoint begins every link; empty: the host that the client asked.
	PublicEndpoint string
	// MaxBytes bounds one image; 0 means 64 GiB.
	MaxBytes int64
	// MaxTransfers bounds the uploads and imports at a time; 0 means 8.
	MaxTransfers int
	// ImportHosts are those that images may be fetched from on request (web-download), as HOST or HOST:PORT;
	// "*" is every host. None: nothing is fetched.
	ImportHosts []string
	// Web fetches them; nil: nothing is fetched.
	Web *http.Client
	// Held tells whether others than images need the bytes of a digest, which then stay; nil: nobody does.
	Held func(ctx context.Context, digest string) (bool, error)
	// Lifetime ends the imports in the background; nil: they end with the process.
	Lifetime context.Context
	// MaxLimit is the default and the greatest length of a page; 0 means 1000.
	MaxLimit int
	Now      func() time.Time
	Log      *slog.Logger
}

type server struct {
	Config
	transfers chan struct{}
	// bytes is held from a look at who uses some bytes to what follows from it, so that none are removed under an image.
	bytes sync.Mutex
}

type jsonObject = map[string]any

// New serves /image and what lies below.
func New(c Config) http.Handler {
	if c.MaxBytes <= 0 {
		c.MaxBytes = 64 << 30
	}
	if c.MaxTransfers <= 0 {
		c.MaxTransfers = 8
	}
	if c.MaxLimit <= 0 {
		c.MaxLimit = 1000
	}
	if c.Lifetime == nil {
		c.Lifetime = context.Background()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	s := &server{Config: c, transfers: make(chan struct{}, c.MaxTransfers)}
	routes := s.routes()
	for i, r := range routes {
		routes[i].Rule = rules[r.Method+" "+strings.TrimPrefix(r.Path, root)]
	}
	return api.Router{
		Routes: routes, Auth: c.Auth, Policy: c.Policy, Fail: api.Faults(c.Log, nil, "error"), Log: c.Log, PublicEndpoint: c.PublicEndpoint,
	}.Handler()
}

const root = "/image/v2"

func (s *server) routes() []api.Route {
	const one = root + "/images/{image}"
	return []api.Route{
		{Method: "GET", Path: "/image", Open: true, Do: serveVersions(http.StatusMultipleChoices)},
		{Method: "GET", Path: "/image/versions", Open: true, Do: serveVersions(http.StatusOK)},
		{Method: "GET", Path: "/image/v2", Open: true, Do: serveVersions(http.StatusMultipleChoices)},
		{Method: "GET", Path: "/image/v2/schemas/{schema}", Do: s.schema},
		{Method: "GET", Path: "/image/v2/info/import", Do: s.importInfo},
		{Method: "GET", Path: "/image/v2/info/stores", Do: s.storesInfo},
		{Method: "GET", Path: "/image/v2/images", Do: s.list},
		{Method: "POST", Path: "/image/v2/images", Do: s.create},
		{Method: "GET", Path: one, Do: s.show},
		{Method: "PATCH", Path: one, Do: s.patch},
		{Method: "DELETE", Path: one, Do: s.remove},
		{Method: "PUT", Path: one + "/file", Do: s.upload},
		{Method: "GET", Path: one + "/file", Do: s.download},
		{Method: "POST", Path: one + "/import", Do: s.importImage},
		{Method: "PUT", Path: one + "/tags/{tag}", Do: s.addTag},
		{Method: "DELETE", Path: one + "/tags/{tag}", Do: s.removeTag},
		{Method: "POST", Path: one + "/actions/deactivate", Do: s.deactivate},
		{Method: "POST", Path: one + "/actions/reactivate", Do: s.reactivate},
		{Method: "GET", Path: one + "/members", Do: s.members},
		{Method: "POST", Path: one + "/members", Do: s.addMember},
	}
}

// minors of v2 that clients look for.
var minors = []string{"v2.15", "v2.13", "v2.12", "v2.11", "v2.10", "v2.9", "v2.8", "v2.7", "v2.6", "v2.5", "v2.4", "v2.3", "v2.2", "v2.1", "v2.0"}

// serveVersions answers with all of them, in the status that Glance has for the path.
func serveVersions(status int) func(*api.Call) error {
	return func(c *api.Call) error {
		var all []jsonObject
		for i, id := range minors {
			status := "SUPPORTED"
			if i == 0 {
				status = "CURRENT"
			}
			all = append(all, jsonObject{"id": id, "status": status, "links": []jsonObject{{"rel": "self", "href": c.Base + "/image/v2/"}}})
		}
		return c.JSON(status, jsonObject{"versions": all})
	}
}

// schema tells clients which fields an image has.
func (s *server) schema(c *api.Call) error {
	name := c.Arg("schema")
	switch name {
	case "image":
		return c.JSON(http.StatusOK, imageSchema())
	case "images":
		return c.JSON(http.StatusOK, jsonObject{
			"name": "images", "properties": jsonObject{
				"images": jsonObject{"type": "array", "items": imageSchema()}, "first": jsonObject{"type": "string"},
				"next": jsonObject{"type": "string"}, "schema": jsonObject{"type": "string"},
			},
			"links": []jsonObject{{"rel": "first", "href": "{first}"}, {"rel": "next", "href": "{next}"}, {"rel": "describedby", "href": "{schema}"}},
		})
	}
	return problem.NotFoundf("There is no schema %.40q here.", name)
}

func imageSchema() jsonObject {
	properties := jsonObject{}
	for _, f := range fields {
		p := jsonObject{"type": []string{"null", f.kind}}
		if f.kind == "array" {
			p["items"] = jsonObject{"type": "string", "maxLength": maxText}
		}
		if f.readOnly {
			p["readOnly"] = true
		}
		if f.one != nil {
			p["enum"] = f.one
		}
		properties[f.name] = p
	}
	return jsonObject{
		"name": "image", "properties": properties, "additionalProperties": jsonObject{"type": "string"},
		"links": []jsonObject{{"rel": "self", "href": "{self}"}, {"rel": "enclosure", "href": "{file}"}, {"rel": "describedby", "href": "{schema}"}},
	}
}

func (s *server) importMethods() []string {
	if len(s.ImportHosts) == 0 {
		return []string{}
	}
	return []string{webDownload}
}

func (s *server) importInfo(c *api.Call) error {
	return c.JSON(http.StatusOK, jsonObject{"import-methods": jsonObject{
		"description": "Import methods available.", "type": "array", "value": s.importMethods(),
	}})
}

func (s *server) storesInfo(c *api.Call) error {
	return c.JSON(http.StatusOK, jsonObject{"stores": []jsonObject{{"id": "file", "default": "true", "description": "files by digest"}}})
}

func (s *server) members(c *api.Call) error {
	if _, err := s.image(c); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, jsonObject{"members": []jsonObject{}, "schema": "/v2/schemas/members"})
}

func (s *server) addMember(*api.Call) error {
	return problem.Forbiddenf("Images are not shared with single projects here: set visibility to public or community.")
}
