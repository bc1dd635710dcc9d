package nova

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"salvor/access"
	"salvor/api"
	"salvor/compute"
	"salvor/problem"
)

const (
	versionHeader   = "X-OpenStack-Nova-API-Version"
	standardHeader  = "OpenStack-API-Version"
	maxIdent        = 255 // bytes of what names a thing in a path
	maxQuery        = 64  // values of one argument of a query
	notFoundWords   = "The resource could not be found."
	policyForbidden = "Policy doesn't allow %s to be performed."
)

// novaCall is one request on its way through a handler.
type novaCall struct {
	*api.Call
	s         *apiServer
	requester compute.Who
	admin     bool   // sees what Nova shows to administrators
	base      string // begins the links that have a version
	user      string // whose keypairs are meant
}

// The types that follow hold the handlers of one subject. Each shares all that a novaCall has.
type (
	serverCall         struct{ *novaCall }
	actionCall         struct{ *novaCall }
	instanceActionCall struct{ *novaCall }
	attachmentCall     struct{ *novaCall }
	migrationCall      struct{ *novaCall }
	flavorCall         struct{ *novaCall }
	keypairCall        struct{ *novaCall }
	hostCall           struct{ *novaCall }
	networkCall        struct{ *novaCall }
	usageCall          struct{ *novaCall }
)

// handler makes a route's handler of one that takes the type of its subject.
func handlerOf[T ~struct{ *novaCall }](do func(T) error) func(*novaCall) error {
	return func(c *novaCall) error { return do(T{c}) }
}

var errOtherVersion = errors.New("another microversion has this path")

func notThere() error { return problem.NotFoundf(notFoundWords) }

// through leads a request to its handler: version, principal, permission.
func (s *apiServer) through(r versionedRoute) func(*api.Call) error {
	return func(ac *api.Call) error {
		if ac.Minor < r.since || r.until != 0 && ac.Minor > r.until {
			return errOtherVersion
		}
		c := &novaCall{Call: ac, s: s, base: ac.Base + currentPath}
		for name, values := range ac.Query {
			if err := api.CheckText(name); err != nil {
				return err
			}
			if len(values) > maxQuery {
				return problem.Invalidf("Invalid input for query parameters %s. It comes more than %d times.", truncateText(name), maxQuery)
			}
		}
		if err := c.identify(r); err != nil {
			return err
		}
		return novaError(r.do(c))
	}
}

// identify settles who asks and what that principal may do at most.
func (c *novaCall) identify(r versionedRoute) error {
	p := c.Principal
	c.user = p.Owner()
	c.requester = compute.Who{Asker: c.Asker(), Project: p.Scope.Project}
	got := map[access.Rank]accessLevel{access.Oversight: admin, access.Worker: member, access.Observer: reader, access.Stranger: anyone}[c.Rank()]
	c.admin = got == admin
	c.requester.Admin = c.admin
	if r.need == anyone {
		return nil
	}
	doing := strings.ToLower(r.method) + " " + truncateText(r.path)
	if !c.admin && c.requester.Project == "" {
		return problem.Forbiddenf(policyForbidden, doing)
	}
	return c.permitted(routeRules[r.method+" "+r.path], got <= r.need, doing)
}

// faultNames are the names of errors by their status.
var faultNames = map[int]string{
	400: "badRequest", 401: "unauthorized", 403: "forbidden", 404: "itemNotFound", 405: "badMethod", 409: "conflictingRequest",
	413: "overLimit", 429: "overLimit", 415: "badMediaType", 501: "notImplemented", 503: "serviceUnavailable",
}

// newFailer writes an error as Nova does; only that of a version that is not served looks otherwise.
func newFailer(log *slog.Logger) api.Failer {
	plain := api.Faults(log, faultNames, "computeFault")
	return func(w http.ResponseWriter, r *http.Request, err error) {
		setVaryHeader(w.Header())
		plain(w, r, err)
	}
}

// novaError puts an error of the core into Nova's words.
func novaError(err error) error {
	var state *compute.StateError
	if errors.As(err, &state) {
		return problem.Conflictf("%s", stateWords(state))
	}
	if problem.Is(err, problem.Unsupported) {
		var known *api.Error
		if !errors.As(err, &known) {
			return problem.Invalidf("%s", err.Error())
		}
	}
	return err
}

func notImplemented(what string) error {
	return &api.Error{Status: http.StatusNotImplemented, Text: what}
}

// body reads the JSON object of a request and holds it to a schema; the object below key, unless key is empty.
func (c *novaCall) body(key string, schema schemaRule) (map[string]any, error) {
	b, err := api.ReadBody(c.W, c.R, api.MaxBody)
	if err != nil {
		return nil, err
	}
	o, err := api.DecodeObject(b)
	if err != nil {
		return nil, err
	}
	if key == "" {
		return o, schema("body", o, c.Minor)
	}
	if err := objectSchema(schemaProperty{name: key, required: true, rule: schema})("body", o, c.Minor); err != nil {
		return nil, err
	}
	inner, _ := o[key].(map[string]any)
	return inner, nil
}

// arg is an argument of the path, of bounded length.
func (c *novaCall) arg(name string) (string, error) {
	a := c.Arg(name)
	if len(a) > maxIdent {
		return "", notThere()
	}
	return a, nil
}

// only refuses arguments of the query beside the known ones, from the microversion on that does so.
func (c *novaCall) only(since int, known ...string) error {
	if c.Minor < since {
		return nil
	}
	for _, name := range sortedKeys(c.Query) {
		if !slices.Contains(known, name) {
			return problem.Invalidf("Invalid input for query parameters %s. Additional properties are not allowed ('%s' was unexpected)", truncateText(name), truncateText(name))
		}
	}
	return nil
}

func sortedKeys(q url.Values) []string {
	keys := make([]string, 0, len(q))
	for k := range q {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// number reads a whole number of the query that is not negative; absent: the given one.
func (c *novaCall) number(name string, absent int) (int, error) {
	if !c.Query.Has(name) {
		return absent, nil
	}
	n, err := strconv.Atoi(c.Query.Get(name))
	if err != nil || n < 0 {
		return 0, problem.Invalidf("Invalid input for query parameters %s. Value: %s. '%s' does not match '^[0-9]*$'", name, truncateText(c.Query.Get(name)), truncateText(c.Query.Get(name)))
	}
	return n, nil
}

// flag reads a boolean of the query; false where there is none.
func (c *novaCall) flag(name string) (bool, error) {
	if !c.Query.Has(name) {
		return false, nil
	}
	word := c.Query.Get(name)
	if v, ok := boolWords[word]; ok {
		return v, nil
	}
	if word == "" { // ?all_tenants alone
		return true, nil
	}
	return false, problem.Invalidf("Invalid input for query parameters %s. Value: %s. It is not a boolean", name, truncateText(word))
}

// raw answers with JSON that is written already.
func (c *novaCall) raw(status int, body []byte) error {
	return c.Raw(status, body)
}

// jsonObject is a JSON object of an answer.
type jsonObject = map[string]any

func (c *novaCall) json(status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.raw(status, b)
}

type resourceLink struct {
	Rel  string `json:"rel"`
	Href string `json:"href"`
}

// links are a resource's own two links: the second has no version in it.
func (c *novaCall) links(path string) []resourceLink {
	return []resourceLink{{"self", c.base + path}, c.bookmark(path)}
}

func (c *novaCall) bookmark(path string) resourceLink {
	return resourceLink{"bookmark", c.Base + rootPath + path}
}
