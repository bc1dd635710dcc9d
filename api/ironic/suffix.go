package ironic

import (
	"net/http"
	"salvor/record"
	"strings"
)

// Clients of before 1.91 may end every path with .json, which means nothing.
const (
	jsonSuffix      = ".json"
	noSuffixVersion = 91
)

// find gives the route of a request, in older versions also without the suffix of its path.
func (s *server) find(r *http.Request) (found *apiRoute, args []string, allowed []string) {
	found, args, allowed = s.routes.find(r.Method, r.URL)
	if found != nil || !strings.HasSuffix(r.URL.Path, jsonSuffix) {
		return found, args, allowed
	}
	if v, err := s.versions.Parse(r.Header); err != nil || v >= noSuffixVersion {
		return found, args, allowed
	}
	bare := *r.URL
	bare.Path, bare.RawPath = strings.TrimSuffix(bare.Path, jsonSuffix), strings.TrimSuffix(bare.RawPath, jsonSuffix)
	return s.routes.find(r.Method, &bare)
}

// cutJSON takes the suffix off what the path ends with, if what is left names something:
// a node may be called x.json.
func (c *ironicCall) cutJSON(found *apiRoute) {
	if c.version >= noSuffixVersion || len(c.args) == 0 || !strings.HasSuffix(found.path, "}") {
		return
	}
	last := &c.args[len(c.args)-1]
	bare, ok := strings.CutSuffix(*last, jsonSuffix)
	if !ok {
		return
	}
	if record.IsUUID(bare) {
		*last = strings.ToLower(bare)
		return
	}
	if found.path == "/v1/nodes/{node}" {
		if _, err := c.s.Nodes.Node(c.r.Context(), bare); err == nil {
			*last = bare
		}
	}
}
