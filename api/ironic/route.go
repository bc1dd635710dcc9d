package ironic

import (
	"net/http"
	"strings"

	"salvor/access"
	"salvor/api"
	"salvor/metal"
	"salvor/record"
)

// apiRoute is one method of one path.
type apiRoute struct {
	method string // "*" takes every method
	path   string
	need   access.Need
	since  metal.Version // older versions see a 404
	do     func(*ironicCall) error
	plain  bool // outside of the microversions
	old    bool // one of the old agent endpoints
	shows  bool // an open route whose handler admits the request by a proof in it
	before int  // the status for versions before since; 0 means 404
	long   bool // the handler itself says what is wrong with a long argument

	permit *pathPolicy
	rule   string // of the policy
}

// routes are the routes of the table as the shared router takes them. Those for ramdisks take no credential.
func (s *server) routes(ramdiskOnly bool) (out []api.Route) {
	for _, r := range s.table() {
		if r.old && !s.LegacyPassthru || ramdiskOnly && r.need != access.Open {
			continue
		}
		r.permit, r.rule = permitOf(r.method, r.path)
		admit := func(req *http.Request) error { return api.Admit(req, "") }
		if r.shows {
			admit = func(*http.Request) error { return nil }
		}
		out = append(out, api.Route{Method: r.method, Path: r.path, Open: r.need == access.Open, Admit: admit, Do: func(ac *api.Call) error {
			c := &ironicCall{Call: ac, s: s}
			if err := c.begin(&r); err != nil {
				return err
			}
			return c.retryWhileLocked(r.do)
		}})
	}
	return out
}

// Clients of before 1.91 may end every path with .json, which means nothing.
const (
	jsonSuffix      = ".json"
	noSuffixVersion = 91
)

// find gives the route of a request, in older versions also without the suffix of its path.
func (s *server) find(r *http.Request, match func(path string) api.Match) api.Match {
	m := findSpelling(r.URL.EscapedPath(), match)
	if m.Route != nil || !strings.HasSuffix(r.URL.Path, jsonSuffix) {
		return m
	}
	if v, err := s.versions.Parse(r.Header); err != nil || v >= noSuffixVersion {
		return m
	}
	bare := *r.URL
	bare.Path, bare.RawPath = strings.TrimSuffix(bare.Path, jsonSuffix), strings.TrimSuffix(bare.RawPath, jsonSuffix)
	return findSpelling(bare.EscapedPath(), match)
}

// findSpelling gives the route of a path, or of the one that it stands for in Ironic.
func findSpelling(path string, match func(path string) api.Match) api.Match {
	if m := match(path); m.Route != nil || len(m.Allowed) > 0 {
		return m
	}
	if node, ok := strings.CutPrefix(path, "/v1/nodes/states/console/"); ok { // Ironic's router takes the words in either order, and its tests use it
		return match("/v1/nodes/" + node + "/states/console")
	}
	return match("/v1" + path) // without a version: the only one, as in Ironic
}

// cutJSON takes the suffix off what the path ends with, if what is left names something:
// a node may be called x.json.
func (c *ironicCall) cutJSON(found *apiRoute) {
	if c.version >= noSuffixVersion || len(c.Args) == 0 || !strings.HasSuffix(found.path, "}") {
		return
	}
	last := &c.Args[len(c.Args)-1]
	bare, ok := strings.CutSuffix(*last, jsonSuffix)
	if !ok {
		return
	}
	if record.IsUUID(bare) {
		*last = strings.ToLower(bare)
		return
	}
	if found.path == "/v1/nodes/{node}" {
		if _, err := c.s.Nodes.Node(c.R.Context(), bare); err == nil {
			*last = bare
		}
	}
}
