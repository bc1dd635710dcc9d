// Package cyclades serves the compute API of Cyclades over the servers of package compute. As Cyclades' clients expect, ids are numbers,
// only stopped servers can be rescued, and errors of state have status 400. The package knows no rule of the servers themselves, no store
// and no hypervisor: it hands work on as rows.
package cyclades

import (
	"encoding/json"
	"log/slog"
	"net/http"

	"salvor/access"
	"salvor/api"
	"salvor/compute"
	"salvor/compute/service"
	"salvor/record"
)

// root is the path below which the API lies.
const root = "/cyclades/compute/v2.0"

// Config is what the API stands on.
type Config struct {
	Services *service.Services
	Auth     api.Authenticator
	// Policy has the rules of a policy file: by the names of Nova's, for the servers are the same.
	Policy access.Policy
	Log    *slog.Logger
	// PublicEndpoint begins every link; empty: the host that the client asked.
	PublicEndpoint string
	// NoRescue closes the endpoints of rescue and unrescue.
	NoRescue bool
}

type server struct {
	Config
	written *api.JSONCache[serverListView, record.Mark]
}

// serverListView is what a server in a list depends on beside its row.
type serverListView struct {
	detail   bool
	quotes   bool // the reader sees text of hosts
	base     string
	networks string // their numbers
}

// cycladesCall is a request with who asks.
type cycladesCall struct {
	*api.Call
	s         *server
	requester compute.Who
}

// New serves /cyclades/compute/v2.0 and all that lies below it.
func New(c Config) http.Handler {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	s := &server{c, &api.JSONCache[serverListView, record.Mark]{
		Num:      func(m record.Mark) int64 { return m.Num },
		Outdated: func(old, now serverListView) bool { return old.networks != now.networks },
	}}
	d := api.Router{Auth: c.Auth, Fail: newFailer(c.Log), Log: c.Log, PublicEndpoint: c.PublicEndpoint}
	for _, r := range []struct {
		method, path string
		rule         string // of Nova's policy; empty: none
		do           func(*cycladesCall) error
	}{
		{"GET", "", "", (*cycladesCall).version},
		{"GET", "/servers", "servers:index", func(c *cycladesCall) error { return c.listServers(false) }},
		{"GET", "/servers/detail", "servers:detail", func(c *cycladesCall) error { return c.listServers(true) }},
		{"GET", "/servers/{server}", "servers:show", (*cycladesCall).getServer},
		{"DELETE", "/servers/{server}", "servers:delete", (*cycladesCall).deleteServer},
		{"POST", "/servers/{server}/action", "", (*cycladesCall).act},
		{"GET", "/flavors", "", func(c *cycladesCall) error { return c.listFlavors(false) }},
		{"GET", "/flavors/detail", "", func(c *cycladesCall) error { return c.listFlavors(true) }},
		{"GET", "/flavors/{flavor}", "", (*cycladesCall).getFlavor},
		{"GET", "/images", "", func(c *cycladesCall) error { return c.listImages(false) }},
		{"GET", "/images/detail", "", func(c *cycladesCall) error { return c.listImages(true) }},
		{"GET", "/images/{image}", "", (*cycladesCall).getImage},
	} {
		d.Routes = append(d.Routes, api.Route{Method: r.method, Path: root + r.path, Open: r.path == "", Do: func(ac *api.Call) error {
			c := s.of(ac)
			if err := c.permitted(r.rule); err != nil {
				return err
			}
			return cycladesError(r.do(c))
		}})
	}
	return d.Handler()
}

// of settles who asks.
func (s *server) of(c *api.Call) *cycladesCall {
	return &cycladesCall{Call: c, s: s, requester: compute.Who{Asker: c.Asker(), Project: c.Project(), Admin: c.Admin()}}
}

// permitted holds a request to the policy file, if that has the rule.
func (c *cycladesCall) permitted(rule string) error {
	return c.Permitted(c.s.Policy, access.ComputeRules+rule)
}

type jsonObject = map[string]any

func (c *cycladesCall) version() error {
	return c.JSON(http.StatusOK, jsonObject{"version": jsonObject{
		"id": "v2.0", "status": "CURRENT", "updated": "2026-01-01T00:00:00+00:00", "links": c.links(""), "media-types": []jsonObject{
			{"base": "application/json", "type": "application/vnd.openstack.compute.v2+json"}},
	}})
}

// links are those of a thing at a path below the root.
func (c *cycladesCall) links(path string) []jsonObject {
	href := c.Base + root + path
	return []jsonObject{{"rel": "self", "href": href}, {"rel": "bookmark", "href": href}}
}

// faultNames are the names of errors by their status.
var faultNames = map[int]string{
	400: "badRequest", 401: "unauthorized", 403: "forbidden", 404: "itemNotFound", 405: "notAllowed", 409: "conflict",
	413: "overLimit", 415: "badMediaType", 501: "notImplemented", 503: "serviceUnavailable", 504: "serviceUnavailable",
}

// namedFault is an error with a name of its own.
type namedFault struct {
	err  *api.Error
	name string
}

func (f *namedFault) Error() string { return f.err.Text }
func (f *namedFault) Unwrap() error { return f.err }

func newNamedFault(status int, name, text string) error {
	return &namedFault{&api.Error{Status: status, Text: text}, name}
}

// newFailer writes an error as Cyclades does.
func newFailer(log *slog.Logger) api.Failer {
	return func(w http.ResponseWriter, r *http.Request, err error) {
		status, message := api.Explain(w, r, err)
		name := ""
		if f := asFault(err); f != nil {
			name = f.name
		} else if name = faultNames[status]; name == "" {
			name = "internalServerError"
		}
		id := api.Of(r.Context()).ID
		if status == http.StatusInternalServerError {
			log.Error("a request failed", "request_id", id, "error", err)
		}
		b, err := json.Marshal(jsonObject{name: jsonObject{"code": status, "message": message, "details": ""}})
		if err != nil {
			log.Error("encode an error", "request_id", id, "error", err)
		}
		api.WriteJSON(w, status, b)
	}
}
