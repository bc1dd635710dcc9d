// Package identity serves OpenStack's identity API (Keystone v3) where there is no Keystone: with the authentication strategies noauth,
// http_basic and token. It serves the part that clients need to find the other APIs and to authenticate. Nobody has to create a project,
// because a project is only a name, and there is one domain. The package signs the tokens that it issues to users and does not store them;
// each makes its user an administrator. Tokens of the API may grant less, and the package passes them through unchanged. It knows no store.
package identity

import (
	"log/slog"
	"net/http"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/problem"
)

// Config is what the API stands on.
type Config struct {
	Tokens *Tokens
	// Auth asks who comes to endpoints that are not for everybody: Tokens, with what is wrong counted.
	Auth api.Authenticator
	// PublicEndpoint begins every link and the endpoints of the catalog; empty: the host that the client asked.
	PublicEndpoint string
	// Region of the endpoints; empty: RegionOne.
	Region string
	// Services of the catalog; nil: DefaultServices.
	Services []Service
	Now      func() time.Time
	Log      *slog.Logger
}

type server struct{ Config }

// The one domain, and what everybody is.
const (
	domainID   = access.DefaultDomain
	domainName = "Default"
	maxName    = 64
)

var roles = []string{"admin", "member", "reader"}

type jsonObject = map[string]any

// New serves /identity and what lies below.
func New(c Config) http.Handler {
	if c.Region == "" {
		c.Region = "RegionOne"
	}
	if c.Services == nil {
		c.Services = DefaultServices
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	s := &server{c}
	return api.Router{
		Routes: s.routes(), Auth: c.Auth, Fail: api.Faults(c.Log, nil, "error"), Log: c.Log, PublicEndpoint: c.PublicEndpoint,
	}.Handler()
}

func (s *server) routes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/identity", Open: true, Do: s.versions},
		{Method: "GET", Path: "/identity/v3", Open: true, Do: s.version},
		{Method: "POST", Path: "/identity/v3/auth/tokens", Open: true, Do: s.authenticate},
		{Method: "GET", Path: "/identity/v3/auth/tokens", Do: s.validate},
		{Method: "DELETE", Path: "/identity/v3/auth/tokens", Do: s.revoke},
		{Method: "GET", Path: "/identity/v3/auth/catalog", Do: s.catalog},
		{Method: "GET", Path: "/identity/v3/auth/projects", Do: s.projects},
		{Method: "GET", Path: "/identity/v3/auth/domains", Do: s.domains},
		{Method: "GET", Path: "/identity/v3/projects", Do: s.projects},
		{Method: "GET", Path: "/identity/v3/projects/{project}", Do: s.project},
		{Method: "GET", Path: "/identity/v3/users", Do: s.users},
		{Method: "GET", Path: "/identity/v3/users/{user}", Do: s.user},
		{Method: "GET", Path: "/identity/v3/users/{user}/projects", Do: s.projects},
		{Method: "GET", Path: "/identity/v3/domains", Do: s.domains},
		{Method: "GET", Path: "/identity/v3/domains/{domain}", Do: s.domain},
	}
}

func versionDocument(base string) jsonObject {
	return jsonObject{
		"id": "v3.14", "status": "stable", "updated": "2020-04-07T00:00:00Z",
		"links":       []jsonObject{{"rel": "self", "href": base + "/identity/v3/"}},
		"media-types": []jsonObject{{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}},
	}
}

func (s *server) versions(c *api.Call) error {
	return c.JSON(http.StatusMultipleChoices, jsonObject{"versions": jsonObject{"values": []jsonObject{versionDocument(c.Base)}}})
}

func (s *server) version(c *api.Call) error {
	return c.JSON(http.StatusOK, jsonObject{"version": versionDocument(c.Base)})
}

// namedResource shows a thing that is no more than its name.
func namedResource(c *api.Call, kind, id, name string) jsonObject {
	return jsonObject{
		"id": id, "name": name, "domain_id": domainID, "enabled": true, "description": "",
		"links": jsonObject{"self": c.Base + "/identity/v3/" + kind + "/" + id},
	}
}

func (s *server) list(c *api.Call, kind string, found []jsonObject) error {
	if found == nil {
		found = []jsonObject{}
	}
	return c.JSON(http.StatusOK, jsonObject{kind: found, "links": jsonObject{"self": c.Base + "/identity/v3/" + kind, "previous": nil, "next": nil}})
}

func projectObject(c *api.Call, id, name string) jsonObject {
	o := namedResource(c, "projects", id, name)
	o["is_domain"], o["parent_id"], o["tags"], o["options"] = false, domainID, []string{}, jsonObject{}
	return o
}

// projects lists the one that is asked for by name, or else the asker's own.
func (s *server) projects(c *api.Call) error {
	if name := c.Query.Get("name"); name != "" {
		if err := checkName("project", name); err != nil {
			return err
		}
		return s.list(c, "projects", []jsonObject{projectObject(c, access.ProjectID(name), name)})
	}
	if own := c.Principal.Scope; own.Project != "" {
		return s.list(c, "projects", []jsonObject{projectObject(c, own.Project, own.ProjectName)})
	}
	return s.list(c, "projects", nil)
}

func (s *server) project(c *api.Call) error {
	id := c.Arg("project")
	if !access.IsID(id) {
		return problem.NotFoundf("Could not find project: %.64s.", id)
	}
	name := id
	if c.Principal.Scope.Project == id {
		name = c.Principal.Scope.ProjectName
	}
	return c.JSON(http.StatusOK, jsonObject{"project": projectObject(c, id, name)})
}

func (s *server) users(c *api.Call) error {
	name := c.Query.Get("name")
	if name == "" {
		name = c.Principal.User
	}
	if name == "" {
		return s.list(c, "users", nil)
	}
	if err := checkName("user", name); err != nil {
		return err
	}
	return s.list(c, "users", []jsonObject{namedResource(c, "users", UserID(name), name)})
}

func (s *server) user(c *api.Call) error {
	id := c.Arg("user")
	if !access.IsID(id) {
		return problem.NotFoundf("Could not find user: %.64s.", id)
	}
	name := id
	if UserID(c.Principal.User) == id {
		name = c.Principal.User
	}
	return c.JSON(http.StatusOK, jsonObject{"user": namedResource(c, "users", id, name)})
}

func domainObject(c *api.Call) jsonObject {
	return jsonObject{"id": domainID, "name": domainName, "enabled": true, "description": "", "links": jsonObject{"self": c.Base + "/identity/v3/domains/" + domainID}}
}

func (s *server) domains(c *api.Call) error {
	if name := c.Query.Get("name"); name != "" && !isDomain(name) {
		return s.list(c, "domains", nil)
	}
	return s.list(c, "domains", []jsonObject{domainObject(c)})
}

func (s *server) domain(c *api.Call) error {
	if c.Arg("domain") != domainID {
		return problem.NotFoundf("Could not find domain: %.64s.", c.Arg("domain"))
	}
	return c.JSON(http.StatusOK, jsonObject{"domain": domainObject(c)})
}
