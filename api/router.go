package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"salvor/access"
	"salvor/problem"
)

// Route is one method of one path of a Router.
type Route struct {
	Method string // GET takes HEAD too, "*" takes every method
	// Path has arguments in braces: "/image/v2/images/{image}". Where two routes match, the first is taken.
	Path string
	Open bool // nobody is asked who it is
	// Admit admits the requests of an open route. Nil: Admit for reads, AdmitLogin for the others, which bring a credential.
	Admit func(*http.Request) error
	// Rule is the name by which a policy file may deny the route; empty: it cannot.
	Rule string
	Do   func(*Call) error

	parts    []string // of Path
	argNames []string
}

// Router serves a table of routes. It authenticates the client of each request first, unless the route is open.
type Router struct {
	Routes []Route
	Auth   Authenticator // nil: nobody is asked
	Fail   Failer
	Log    *slog.Logger
	// PublicEndpoint begins every link; empty: the host that the client asked.
	PublicEndpoint string
	// Policy may deny what its file has rules for.
	Policy access.Policy
	// Machines: the requests carry heartbeats and boots of machines, which do not wait in the queues of users.
	Machines bool
	// Before is asked before each route, the open ones too; nil: nothing is.
	Before func(*Call) error
	// Private: without a credential nobody learns which paths exist.
	Private bool
	// OwnChecks: each route checks the query, the arguments and the permission itself.
	OwnChecks bool
	// Find finds the route of a request whose path may stand for another one, by escaped paths. Then only the routes with the most literal
	// parts match a path, whatever their methods are, and arguments may contain slashes. Nil: the first route of the decoded path is taken.
	Find func(r *http.Request, match func(path string) Match) Match

	byLength map[int][]*Route // the routes by the number of parts of their paths
}

// Match is the route of a path. Without a route, Allowed are the methods that the path has; none: the path does not exist.
type Match struct {
	Route   *Route
	Args    []string
	Allowed []string
}

// Endpoint is one method of one path of a handler. An open one asks nobody who it is.
type Endpoint struct {
	Method, Path string
	Open         bool
}

// RouteLister is a handler that lists its endpoints, so that a test can try each of them.
type RouteLister struct {
	http.Handler
	Endpoints []Endpoint
}

// Handler serves the routes.
func (d Router) Handler() RouteLister {
	d.byLength = map[int][]*Route{}
	endpoints := make([]Endpoint, len(d.Routes))
	for i, r := range d.Routes {
		endpoints[i] = Endpoint{r.Method, r.Path, r.Open}
		r.parts = pathParts(r.Path)
		for _, p := range r.parts {
			if isArgument(p) {
				r.argNames = append(r.argNames, strings.Trim(p, "{}"))
			}
		}
		d.byLength[len(r.parts)] = append(d.byLength[len(r.parts)], &r)
	}
	return RouteLister{Endpoints: endpoints, Handler: Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := d.serve(w, r); err != nil {
			d.Fail(w, r, err)
		}
	}), d.Fail, d.Log)}
}

func pathParts(path string) []string { return strings.Split(strings.Trim(path, "/"), "/") }

func isArgument(part string) bool { return strings.HasPrefix(part, "{") }

func (d *Router) serve(w http.ResponseWriter, r *http.Request) error {
	c := &Call{W: w, R: r, Base: BaseURL(r, d.PublicEndpoint)}
	route, wrong := d.find(c)
	if route != nil {
		Routed(r.Context(), route.Path)
	}
	if err := d.authenticate(c, route, wrong); err != nil {
		return err
	}
	if !d.OwnChecks {
		if err := d.check(c, route); err != nil {
			return err
		}
	}
	return route.Do(c)
}

// check reads the query and checks the permission.
func (d *Router) check(c *Call, route *Route) (err error) {
	if c.Query, err = url.ParseQuery(c.R.URL.RawQuery); err != nil {
		return problem.Invalidf("The query of the request cannot be read.")
	}
	for _, values := range c.Query {
		for _, v := range values {
			if err := CheckText(v); err != nil {
				return err
			}
		}
	}
	if d.Before != nil {
		if err := d.Before(c); err != nil {
			return err
		}
	}
	if route.Open {
		return nil
	}
	need := access.Write
	if reads(c.R) {
		need = access.Read
	}
	if err := c.allow(need, c.R.Method+" "+route.Path); err != nil {
		return err
	}
	return c.Permitted(d.Policy, route.Rule)
}

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// authenticate finds out who asks, unless the endpoint is open. Who does not say it learns of a path
// at most that there is none.
func (d *Router) authenticate(c *Call, route *Route, wrong error) (err error) {
	switch {
	case route == nil && !d.Private && Status(wrong) == http.StatusNotFound:
		return cmp.Or(Admit(c.R, ""), wrong)
	case route != nil && route.Open && route.Admit != nil:
		return route.Admit(c.R)
	case route != nil && route.Open && !reads(c.R): // such routes take a credential
		return AdmitLogin(c.R, "")
	case route != nil && route.Open:
		return Admit(c.R, "")
	}
	if d.Auth != nil {
		if c.Principal, err = d.Auth.Authenticate(c.R); err != nil {
			return err
		}
		if Of(c.R.Context()).User = c.Principal; !d.Machines {
			c.R = RequestedBy(c.R, c.Principal)
		}
	}
	if route == nil && d.Private {
		return cmp.Or(Admit(c.R, ""), wrong)
	}
	return wrong
}

// allow holds principals with roles of a scope to OpenStack's three: reader, member, admin.
func (c *Call) allow(need access.Need, action string) error {
	if err := c.Principal.Allow(need, action); err != nil || c.Principal.Role != access.Scoped {
		return err
	}
	if rank := c.Rank(); rank == access.Stranger || need == access.Write && rank < access.Worker {
		return problem.Forbiddenf("%s is not allowed for user %q: it needs the role member or admin, or to read, reader", action, c.Principal.User)
	}
	return nil
}

// find gives the route of a request and takes the arguments out of its path.
func (d *Router) find(c *Call) (*Route, error) {
	var m Match
	if d.Find != nil {
		m = d.Find(c.R, func(path string) Match { return d.match(c.R.Method, path) })
	} else {
		m = d.match(c.R.Method, c.R.URL.Path)
	}
	if m.Route == nil {
		return nil, NoRoute(c.R, m.Allowed)
	}
	if c.Args, c.argNames = m.Args, m.Route.argNames; !d.OwnChecks {
		for _, a := range c.Args {
			if err := CheckText(a); err != nil {
				return nil, err
			}
		}
	}
	return m.Route, nil
}

// NoRoute is the error for a path that has no route (404), or has only routes of the allowed methods (405).
func NoRoute(r *http.Request, allowed []string) error {
	if len(allowed) == 0 {
		return &Error{Status: http.StatusNotFound, Text: "The resource could not be found.", Router: true}
	}
	slices.Sort(allowed)
	return &Error{
		Status: http.StatusMethodNotAllowed, Text: fmt.Sprintf("The method %.20q is not allowed for this resource.", r.Method),
		Router: true, Header: http.Header{"Allow": {strings.Join(slices.Compact(allowed), ", ")}},
	}
}

// match finds the route of a path.
func (d *Router) match(method, path string) (m Match) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	parts, most := pathParts(path), -1
	for _, r := range d.byLength[len(parts)] {
		literals, ok := r.match(parts)
		if !ok || d.Find != nil && literals < most {
			continue
		}
		if d.Find != nil && literals > most { // "detail" is no node's name
			most, m = literals, Match{}
		}
		if m.Route == nil && (r.Method == method || r.Method == "*") {
			m.Route = r
		}
		m.Allowed = append(m.Allowed, r.Method)
	}
	if m.Route == nil {
		return m
	}
	for i, p := range m.Route.parts {
		if isArgument(p) {
			arg := parts[i]
			if d.Find != nil {
				arg, _ = url.PathUnescape(arg) // no request has a URL with a bad escape
			}
			m.Args = append(m.Args, arg)
		}
	}
	return m
}

// match tells whether a path has the form of the route, and how many of its parts are literal.
func (r *Route) match(parts []string) (literals int, ok bool) {
	for i, p := range r.parts {
		switch {
		case isArgument(p) && parts[i] != "":
		case p == parts[i]:
			literals++
		default:
			return 0, false
		}
	}
	return literals, true
}

// Faults writes errors as {"NAME": {"code": N, "message": "..."}}, the form of all services
// but Ironic. names are by status; other is the name of those that have none.
func Faults(log *slog.Logger, names map[int]string, other string) Failer {
	return func(w http.ResponseWriter, r *http.Request, err error) {
		info := Of(r.Context())
		status, message := Explain(w, r, err)
		if status == http.StatusInternalServerError {
			log.Error("request failed", "request_id", info.ID, "method", r.Method, "path", r.URL.Path, "error", err)
		}
		name := names[status]
		if name == "" {
			name = other
		}
		fault := map[string]any{"code": status, "message": message}
		if name == "error" {
			fault["title"] = http.StatusText(status)
		}
		b, _ := json.Marshal(map[string]any{name: fault}) // strings and a number
		WriteJSON(w, status, b)
	}
}
