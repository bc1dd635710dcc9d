// Package native serves salvor's own API, /salvor/v1. The API has rescue images, rescue sessions, VM hosts, host groups, join tokens,
// Ganeti clusters, networks, tokens of the API and an overview of all machines. It also has the fences, plans and moves of the servers of a
// host that died. The package knows JSON and the services of servers, and no store, no hypervisor and no conductor. It puts each question
// to a cluster into the row of a job.
package native

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/compute"
	"salvor/compute/service"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// Config is what the API is made of.
type Config struct {
	Services *service.Services
	// Nodes are the machines whose rescue sessions are listed beside those of servers; nil: none are.
	Nodes Nodes
	// Repairs repairs those machines.
	Repairs Repairs
	// Fleet counts and lists machines for those whom Policy shows them.
	Fleet metal.FleetStore
	// PowerReadSince is metal.Nodes'.
	PowerReadSince func() time.Time
	Policy         access.Policy
	// Jobs tell of what was asked, Conductors of who could do it.
	Jobs       Jobs
	Conductors Conductors
	// Stalled says why nothing can be changed now, empty where it can; nil: nobody knows.
	Stalled func() string
	// Feed is the timeline of all subjects; nil: nobody can follow it.
	Feed *Feed
	// Seal is the key of the database's secrets; nil: none is told of.
	Seal Seal
	// Restored takes the decisions about a held database; nil: there is none.
	Restored Restored
	// Sites are the boot services that know no database; nil: there are none.
	Sites *metal.Sites
	// JoinToken adds to a fresh join token what a host must know of the control plane; nil: no host can join.
	JoinToken func(secret.Value) secret.Value
	// Tokens are those of the API; nil: Keystone keeps them.
	Tokens         *access.Tokens
	Auth           api.Authenticator
	PublicEndpoint string
	Log            *slog.Logger
	Now            func() time.Time
}

type server struct{ Config }

const root = "/salvor/v1"

// New makes the handler of all below /salvor/v1.
func New(c Config) http.Handler {
	s := &server{c}
	routes := slices.Concat(s.rescueImages(), s.hosts(), s.hostGroups(), s.quarantine(), s.evacuation(), s.clusters(), s.networks(), s.servers(), s.secrets(), s.sites(), s.restoredRoutes(), s.probeRoutes())
	for i := range routes {
		routes[i].Do = requireAdmin(routes[i].Do)
	}
	routes = slices.Concat(s.rescueImageLists(), s.fleetRoutes(), s.whyRoutes(), s.sessionRoutes(), s.eventRoutes(), s.tokenRoutes(), s.ownServers(), s.diagnosisRoutes(), serverDiagnoses{s}.routes(), consoleLogs{s}.routes(), repairRequests{s}.routes(), s.nodeRescueRoutes(), routes)
	for i, r := range routes {
		routes[i].Rule, routes[i].Path = ruleOf(r.Method, r.Path), root+r.Path
	}
	routes = append(routes, api.Route{Method: http.MethodGet, Path: root, Open: true, Do: func(c *api.Call) error {
		return c.JSON(http.StatusOK, map[string]any{"name": "salvor", "version": "v1"})
	}})
	return api.Router{Routes: routes, Auth: c.Auth, Policy: c.Policy, Fail: api.Faults(c.Log, nil, "error"), Log: c.Log, PublicEndpoint: c.PublicEndpoint}.Handler()
}

// requireAdmin lets nobody else in: what is here concerns all projects.
func requireAdmin(do func(*api.Call) error) func(*api.Call) error {
	return func(c *api.Call) error {
		if !c.Admin() {
			return problem.Forbiddenf("This is for administrators.")
		}
		return do(c)
	}
}

func requesterOf(c *api.Call) compute.Who {
	return compute.Who{Asker: c.Asker(), Admin: c.Admin(), Project: ""}
}

// timeOrNull writes a time; null for none.
func timeOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// resourceCollection is the list and show of a kind.
type resourceCollection[R, F any] struct {
	path, many string
	list       func(c *api.Call, f F, p record.Page) ([]*R, error)
	get        func(c *api.Call, ident string) (*R, error)
	filter     func(c *api.Call) (F, error)
	// view writes records: several at once, so that what is counted for them is counted once.
	view func(c *api.Call, all []*R) ([]map[string]any, error)
	id   func(r *R) string
}

const maxPage = 1000

func (k resourceCollection[R, F]) routes() []api.Route {
	return []api.Route{
		{Method: http.MethodGet, Path: k.path, Do: k.page},
		{Method: http.MethodGet, Path: k.path + "/{ident}", Do: k.one},
	}
}

func (k resourceCollection[R, F]) one(c *api.Call) error {
	r, err := k.get(c, c.Arg("ident"))
	if err != nil {
		return err
	}
	return k.show(c, http.StatusOK, r)
}

func (k resourceCollection[R, F]) show(c *api.Call, status int, r *R) error {
	views, err := k.view(c, []*R{r})
	if err != nil {
		return err
	}
	return c.JSON(status, views[0])
}

func (k resourceCollection[R, F]) page(c *api.Call) error {
	var f F
	var err error
	if k.filter != nil {
		if f, err = k.filter(c); err != nil {
			return err
		}
	}
	limit, err := pageSize(c)
	if err != nil {
		return err
	}
	found, err := k.list(c, f, record.Page{Limit: limit + 1, Marker: c.Query.Get("marker")})
	if err != nil {
		return err
	}
	out := map[string]any{}
	if len(found) > limit {
		found = found[:limit]
		c.Query.Set("marker", k.id(found[limit-1])) // what narrows the list stays
		out["next"] = c.Base + root + k.path + "?" + c.Query.Encode()
	}
	views, err := k.view(c, found)
	if err != nil {
		return err
	}
	if views == nil {
		views = []map[string]any{}
	}
	out[k.many] = views
	return c.JSON(http.StatusOK, out)
}

// pageSize is how many items the asker wants at once: limit, which has a maximum.
func pageSize(c *api.Call) (int, error) {
	text := c.Query.Get("limit")
	if text == "" {
		return maxPage, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPage {
		return 0, problem.Invalidf("Invalid value for limit: %.40q; want 1 to %d.", text, maxPage)
	}
	return n, nil
}

// oneOf reads a query parameter that is one of these words, or is absent.
func oneOf[T ~string](c *api.Call, name string, words ...T) (T, error) {
	v := T(c.Query.Get(name))
	if v != "" && !slices.Contains(words, v) {
		return "", problem.Invalidf("Invalid value for %s: %.40q; want one of %q.", name, v, words)
	}
	return v, nil
}

// withoutBody has a route that needs no body refuse one that says something.
func withoutBody(do func(*api.Call) error) func(*api.Call) error {
	return func(c *api.Call) error {
		b, err := api.ReadBody(c.W, c.R, api.MaxBody)
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(b)) > 0 {
			c.R.Body = io.NopCloser(bytes.NewReader(b))
			if err := c.ReadExactly(&struct{}{}); err != nil {
				return err
			}
		}
		return do(c)
	}
}

// parseBoolQuery reads a query parameter that is true or false.
func parseBoolQuery(c *api.Call, name string) (bool, error) {
	switch v := c.Query.Get(name); v {
	case "", "false", "False", "0":
		return false, nil
	case "true", "True", "1":
		return true, nil
	default:
		return false, problem.Invalidf("Invalid value for %s: %.40q; want true or false.", name, v)
	}
}
