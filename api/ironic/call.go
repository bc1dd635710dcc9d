package ironic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"salvor/access"
	"salvor/api"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/wire/ironic"
)

// ironicCall is one request on its way through a handler.
type ironicCall struct {
	*api.Call
	s       *server
	version metal.Version
	project string // that a list is confined to; empty: to none
	owner   string // project that what is created belongs to where the body names none
	leave   func() // gives the place among large pages back; nil: the page is small
	shared  bool   // the texts of its page lie in the cache that all clients share
}

// begin settles version, permission and query.
func (c *ironicCall) begin(found *apiRoute) error {
	if len(c.R.Host) > maxIdent { // a page repeats it ten thousand times
		return problem.Invalidf("The name in the header Host is longer than %d bytes.", maxIdent)
	}
	if !found.plain {
		v, err := c.s.versions.Parse(c.R.Header)
		h := c.W.Header()
		var bad *api.BadVersion
		if !errors.As(err, &bad) || bad.Parsed {
			h.Set(ironic.MinVersionHeader, versionText(MinVersion))
			h.Set(ironic.MaxVersionHeader, versionText(MaxVersion))
		}
		if err != nil {
			return &api.Error{Status: http.StatusNotAcceptable, Text: err.Error(), Router: true}
		}
		c.version = metal.Version(v)
		h.Set(ironic.VersionHeader, versionText(c.version))
		if c.version >= 107 {
			h.Set("X-Openstack-Request-Id", h.Get("Openstack-Request-Id"))
		}
		if c.version < found.since {
			return tooOld(found)
		}
	}
	if err := c.Principal.Allow(found.need, c.R.Method+" "+found.path); err != nil {
		return err
	}
	q, err := url.ParseQuery(c.R.URL.RawQuery)
	if err != nil {
		return problem.Invalidf("The query is malformed.")
	}
	for k, values := range q {
		if err := api.CheckText(k + strings.Join(values, "")); err != nil {
			return err
		}
	}
	for i, a := range c.Args {
		if record.IsUUID(a) {
			c.Args[i] = strings.ToLower(a)
		}
		if err := api.CheckText(a); err != nil {
			return err
		}
		if len(a) > maxIdent && !found.long {
			return problem.NotFoundf("The resource could not be found: its name is longer than %d characters.", maxIdent)
		}
	}
	c.Query = q
	c.cutJSON(found)
	return c.permitted(found)
}

// tooOld refuses a request that speaks a version from before the path. Most paths are not
// there for it; of a few Ironic's router answers otherwise.
func tooOld(r *apiRoute) error {
	text := fmt.Sprintf("The resource could not be found: %s needs API version %s.", r.path, versionText(r.since))
	if r.before != 0 {
		return &api.Error{Status: r.before, Text: text}
	}
	return problem.NotFoundf("%s", text)
}

// maxIdent bounds what may name a resource in a path or a query, in bytes.
const maxIdent = 255

func versionText(v metal.Version) string { return "1." + strconv.Itoa(int(v)) }

// fail writes an error as Ironic does: JSON inside of a JSON string.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	info := api.Of(r.Context())
	status, message := api.Explain(w, r, err)
	if info.User.Role == access.Scoped && !s.Policy.Allows(wholeNode, info.User, access.Target{}) {
		message = problem.Redact(message)
	}
	if status == http.StatusInternalServerError {
		s.Log.Error("request failed", "request_id", info.ID, "method", r.Method, "path", r.URL.Path, "error", err)
	}
	var inner any
	var known *api.Error
	errors.As(err, &known)
	if known != nil && known.Router {
		inner = ironic.RouterFault{Code: status, Title: http.StatusText(status), Description: message}
	} else {
		code := "Client"
		if status >= 500 {
			code = "Server"
		}
		inner = ironic.Fault{Code: code, String: message}
	}
	text, _ := json.Marshal(inner) // strings and numbers: cannot fail
	body, _ := json.Marshal(ironic.ErrorBody{Message: string(text)})
	if known != nil && known.Guard {
		body = slices.Concat([]byte(`{"error_message":`), text, []byte("}"))
	}
	api.WriteJSON(w, status, body)
}

// object reads a JSON object from the body.
func (c *ironicCall) object() (map[string]any, error) {
	return c.objectOr(false)
}

// objectOr is object, but takes an empty body for {} if bare.
func (c *ironicCall) objectOr(bare bool) (map[string]any, error) {
	b, err := api.ReadBody(c.W, c.R, api.MaxBody)
	if err != nil {
		return nil, err
	}
	if bare && len(bytes.TrimSpace(b)) == 0 {
		return nil, nil
	}
	return api.DecodeObject(b)
}

// knownOnly refuses a body with other keys than the known ones.
func knownOnly(body map[string]any, known ...string) error {
	for k := range body {
		if !slices.Contains(known, k) {
			return problem.Invalidf("Unexpected arguments: %s", truncateInput(k))
		}
	}
	return nil
}

// only refuses query arguments beside the known ones.
func (c *ironicCall) only(known ...string) error {
	var unknown []string
	for k := range c.Query {
		if !slices.Contains(known, k) {
			unknown = append(unknown, truncateInput(k))
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return problem.Invalidf("Unexpected arguments: %s", strings.Join(unknown[:min(len(unknown), 10)], ", "))
}

// truncateInput keeps a hostile word from filling an error.
func truncateInput(s string) string {
	if len(s) > 100 {
		return s[:100] + "..."
	}
	return s
}

func (c *ironicCall) has(name string) bool { return c.Query.Has(name) }

// boolean reads a query argument as oslo does; nil if it is not there.
func (c *ironicCall) boolean(name string) (*bool, error) {
	if !c.has(name) {
		return nil, nil
	}
	b, ok := parseBool(c.Query.Get(name))
	if !ok {
		return nil, problem.Invalidf("Invalid value for %s: unrecognized value '%s', acceptable values are: 0, 1, f, false, n, no, off, on, t, true, y, yes", name, truncateInput(c.Query.Get(name)))
	}
	return &b, nil
}

func parseBool(s string) (value, ok bool) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "1", "t", "true", "on", "y", "yes":
		return true, true
	case "0", "f", "false", "off", "n", "no":
		return false, true
	}
	return false, false
}

// links are a resource's own two links: the second has no version in it.
func (c *ironicCall) links(path string) []ironic.Link {
	return []ironic.Link{{Href: c.Base + "/v1/" + path, Rel: "self"}, {Href: c.Base + "/" + path, Rel: "bookmark"}}
}

func (c *ironicCall) location(path string) { c.W.Header().Set("Location", c.Base+"/v1/"+path) }
