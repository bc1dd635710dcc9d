package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"salvor/access"
	"salvor/problem"
	"salvor/record"
)

// Route is one door of a Dialect.
type Route struct {
	Method string // GET takes HEAD too
	// Path has arguments in braces: "/image/v2/images/{image}". Where two routes match, the first is taken.
	Path string
	Open bool // nobody is asked who it is
	// Rule is the name by which a policy file may deny the route; empty: it cannot.
	Rule string
	Do   func(*Call) error
}

// Dialect serves a table of routes to whoever proves who it is.
type Dialect struct {
	Routes []Route
	Auth   Authenticator
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
}

// Call is a request on its way through a Dialect.
type Call struct {
	W     http.ResponseWriter
	R     *http.Request
	Who   access.Principal
	Base  string // begins every link, no trailing slash
	Query url.Values
	// Minor is the microversion that the request speaks, where the dialect's Before reads one.
	Minor int
	args  map[string]string
}

// Door is one method of one path of a handler. An open one asks nobody who it is.
type Door struct {
	Method, Path string
	Open         bool
}

// Listed is a handler that tells which doors it has, so that each of them can be tried.
type Listed struct {
	http.Handler
	Doors []Door
}

// Handler serves the routes.
func (d Dialect) Handler() Listed {
	table, doors := make([][]string, len(d.Routes)), make([]Door, len(d.Routes))
	for i, r := range d.Routes {
		table[i], doors[i] = pathParts(r.Path), Door{r.Method, r.Path, r.Open}
	}
	return Listed{d.handler(table), doors}
}

func (d Dialect) handler(table [][]string) http.Handler {
	return Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := d.serve(w, r, table); err != nil {
			d.Fail(w, r, err)
		}
	}), d.Fail, d.Log)
}

func pathParts(path string) []string { return strings.Split(strings.Trim(path, "/"), "/") }

func (d Dialect) serve(w http.ResponseWriter, r *http.Request, table [][]string) error {
	c := &Call{W: w, R: r, Base: Endpoint(r, d.PublicEndpoint)}
	route, wrong := d.find(c, table)
	if err := d.authenticate(c, route, wrong); err != nil {
		return err
	}
	var err error
	Routed(r.Context(), route.Path)
	if c.Query, err = url.ParseQuery(r.URL.RawQuery); err != nil {
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
	if !route.Open {
		need := access.Write
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			need = access.Read
		}
		if err := c.allow(need, r.Method+" "+route.Path); err != nil {
			return err
		}
		if err := c.Permitted(d.Policy, route.Rule); err != nil {
			return err
		}
	}
	return route.Do(c)
}

// Permitted refuses (Forbidden) what the policy file denies by a rule. The rule's target is the asker's own project: what belongs to
// another is not there for whoever is no administrator.
func (c *Call) Permitted(p access.Policy, rule string) error {
	if allowed, said := p.Overruled(rule, c.Who, access.Target{Owner: c.Project()}); rule != "" && said && !allowed {
		return problem.Forbiddenf("Policy doesn't allow %s to be performed.", rule)
	}
	return nil
}

// authenticate finds out who asks, unless the door is open. Who does not say it learns of a path
// at most that there is none.
func (d Dialect) authenticate(c *Call, route *Route, wrong error) (err error) {
	switch {
	case route == nil && Status(wrong) == http.StatusNotFound:
		return cmp.Or(Admit(c.R, ""), wrong)
	case route != nil && route.Open && c.R.Method != http.MethodGet && c.R.Method != http.MethodHead: // what such doors take is a credential
		return AdmitLogin(c.R, "")
	case route != nil && route.Open:
		return Admit(c.R, "")
	}
	if c.Who, err = d.Auth.Authenticate(c.R); err != nil {
		return err
	}
	if Of(c.R.Context()).User = c.Who; !d.Machines {
		c.R = RequestedBy(c.R, c.Who)
	}
	return wrong
}

// allow holds principals with roles of a scope to OpenStack's three: reader, member, admin.
func (c *Call) allow(need access.Need, action string) error {
	if err := c.Who.Allow(need, action); err != nil || c.Who.Role != access.Scoped {
		return err
	}
	if rank := c.Rank(); rank == access.Stranger || need == access.Write && rank < access.Worker {
		return problem.Forbiddenf("%s is not allowed for user %q: it needs the role member or admin, or to read, reader", action, c.Who.User)
	}
	return nil
}

// Again is the call with who asks proved anew, for answers that go on for longer than a request.
func (c *Call) Again(ctx context.Context, auth Authenticator) (*Call, error) {
	again := *c
	again.R = c.R.WithContext(ctx)
	var err error
	if again.Who, err = auth.Authenticate(again.R); err != nil {
		return nil, err
	}
	return &again, again.allow(access.Read, c.R.Method+" "+c.R.URL.Path)
}

// Rank is what the asker is to rules that know three roles and no owner.
func (c *Call) Rank() access.Rank {
	return c.Who.Rank(c.R.Method == http.MethodGet || c.R.Method == http.MethodHead)
}

// Admin tells whether the asker may see, or with this request change, what belongs to others.
func (c *Call) Admin() bool { return c.Rank() == access.Oversight }

// Project is the id of the project that the asker works in; empty: none.
func (c *Call) Project() string { return c.Who.Scope.Project }

// find gives the route of a request and takes the arguments out of its path.
func (d Dialect) find(c *Call, table [][]string) (*Route, error) {
	parts, method := pathParts(c.R.URL.Path), c.R.Method
	var allowed []string
	for i, pattern := range table {
		args, ok := matchPath(pattern, parts)
		if !ok {
			continue
		}
		r := &d.Routes[i]
		if r.Method == method || r.Method == http.MethodGet && method == http.MethodHead {
			c.args = args
			for _, a := range args {
				if err := CheckText(a); err != nil {
					return nil, err
				}
			}
			return r, nil
		}
		allowed = append(allowed, r.Method)
	}
	if len(allowed) == 0 {
		return nil, problem.NotFoundf("The resource could not be found.")
	}
	slices.Sort(allowed)
	return nil, &Error{
		Status: http.StatusMethodNotAllowed, Text: fmt.Sprintf("The method %.20q is not allowed for this resource.", method),
		Header: http.Header{"Allow": {strings.Join(slices.Compact(allowed), ", ")}},
	}
}

func matchPath(pattern, parts []string) (map[string]string, bool) {
	if len(pattern) != len(parts) {
		return nil, false
	}
	var args map[string]string
	for i, p := range pattern {
		name, isArg := strings.CutPrefix(p, "{")
		switch {
		case isArg && parts[i] != "":
			if args == nil {
				args = map[string]string{}
			}
			args[strings.TrimSuffix(name, "}")] = parts[i]
		case p != parts[i]:
			return nil, false
		}
	}
	return args, true
}

// Endpoint is what every link of an answer begins with, without a trailing slash.
func Endpoint(r *http.Request, public string) string {
	if public != "" {
		return strings.TrimSuffix(public, "/")
	}
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// Arg is an argument of the path; UUIDs are in lower case.
func (c *Call) Arg(name string) string {
	a := c.args[name]
	if record.IsUUID(a) {
		return strings.ToLower(a)
	}
	return a
}

// Asker is who asks, for the timeline.
func (c *Call) Asker() record.Asker {
	info := Of(c.R.Context())
	return record.Asker{RequestID: info.ID, User: c.Who.User}
}

// ReadInto decodes the body, a JSON object of bounded size and depth, into v.
func (c *Call) ReadInto(v any) error { return c.readInto(v, false) }

// ReadExactly is ReadInto for what costs data if it is not understood: a key that v has not is refused.
func (c *Call) ReadExactly(v any) error { return c.readInto(v, true) }

func (c *Call) readInto(v any, exact bool) error {
	b, err := ReadBody(c.W, c.R, MaxBody)
	if err != nil {
		return err
	}
	if _, err := DecodeObject(b); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if exact {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(v); err != nil {
		if key, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
			return problem.Invalidf("Unknown field/attribute %.100s; nothing was done.", key)
		}
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return problem.Invalidf("Invalid input for field/attribute %s: a %s is not what belongs there.", kind.Field, kind.Value)
		}
		return problem.Invalidf("Malformed JSON in the request body: %s", jsonWords(err))
	}
	return nil
}

// JSON answers with a value.
func (c *Call) JSON(status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	c.W.Header().Set("Content-Type", "application/json")
	c.W.WriteHeader(status)
	_, _ = c.W.Write(b) // a client that went away is nobody's error
	return nil
}

// Empty answers without a body.
func (c *Call) Empty(status int) error {
	c.W.WriteHeader(status)
	return nil
}

// Faults writes errors as {"NAME": {"code": N, "message": "..."}}, the form of all services
// but Ironic. names are by status; other is the name of those that have none.
func Faults(log *slog.Logger, names map[int]string, other string) Failer {
	return func(w http.ResponseWriter, r *http.Request, err error) {
		info := Of(r.Context())
		status, words := Explain(w, r, err)
		if status == http.StatusInternalServerError {
			log.Error("request failed", "request_id", info.ID, "method", r.Method, "path", r.URL.Path, "error", err)
		}
		name := names[status]
		if name == "" {
			name = other
		}
		fault := map[string]any{"code": status, "message": words}
		if name == "error" {
			fault["title"] = http.StatusText(status)
		}
		b, _ := json.Marshal(map[string]any{name: fault}) // strings and a number
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(b)
	}
}
