package ironic

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"salvor/access"
	"salvor/api"
	"salvor/metal"
)

// apiRoute is one method of one path.
type apiRoute struct {
	method string // "*" takes every method
	path   string
	need   access.Need
	since  metal.Version // older versions see a 404
	do     func(*ironicCall) error
	plain  bool // outside of the microversions
	old    bool // one of the old agent doors
	shows  bool // an open door that is shown a proof, by which its handler has it admitted
	before int  // the status for versions before since; 0 means 404
	long   bool // the handler itself says what is wrong with a long argument

	parts  []string
	permit *pathPolicy
	rule   string // of the policy
}

// pathRouter finds routes by path. The table is small, so it is walked by length of path.
type pathRouter struct{ byLength map[int][]apiRoute }

// maxPathParts bounds the work on a hostile path.
const maxPathParts = 16

func newRouter(table []apiRoute, serve func(*apiRoute) bool) *pathRouter {
	t := &pathRouter{byLength: map[int][]apiRoute{}}
	for _, r := range table {
		if !serve(&r) {
			continue
		}
		r.parts = splitPath(r.path)
		r.permit, r.rule = permitOf(r.method, r.path)
		t.byLength[len(r.parts)] = append(t.byLength[len(r.parts)], r)
	}
	return t
}

func (t *pathRouter) doors() (out []api.Door) {
	for _, routes := range t.byLength {
		for _, r := range routes {
			out = append(out, api.Door{Method: r.method, Path: r.path, Open: r.need == access.Open})
		}
	}
	return out
}

func splitPath(path string) []string {
	path = strings.Trim(path, "/")
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// find gives the route of a request and the arguments in its path. With no route it
// gives the methods that the path has, sorted; none means that there is no such path.
func (t *pathRouter) find(method string, u *url.URL) (found *apiRoute, args []string, allowed []string) {
	if found, args, allowed = t.at(method, u.EscapedPath()); found != nil || len(allowed) > 0 {
		return found, args, allowed
	}
	path := u.EscapedPath()
	if node, ok := strings.CutPrefix(path, "/v1/nodes/states/console/"); ok { // Ironic's router takes the words in either order, and its tests use it
		return t.at(method, "/v1/nodes/"+node+"/states/console")
	}
	return t.at(method, "/v1"+path) // without a version: the only one, as in Ironic
}

func (t *pathRouter) at(method, path string) (found *apiRoute, args []string, allowed []string) {
	parts := splitPath(path)
	if len(parts) > maxPathParts {
		return nil, nil, nil
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	literal := -1
	candidates := t.byLength[len(parts)]
	for i := range candidates {
		r := &candidates[i]
		a, literals, ok := r.match(parts)
		if !ok || literals < literal {
			continue
		}
		if literals > literal { // "detail" is no node's name
			literal, found, allowed = literals, nil, nil
		}
		if r.method == method || r.method == "*" {
			found, args = r, a
		}
		allowed = append(allowed, r.method)
	}
	if found != nil {
		return found, args, nil
	}
	slices.Sort(allowed)
	return nil, nil, allowed
}

// match compares the path part by part and collects its arguments.
func (r *apiRoute) match(parts []string) (args []string, literals int, ok bool) {
	for i, p := range r.parts {
		if p[0] != '{' {
			if p != parts[i] {
				return nil, 0, false
			}
			literals++
			continue
		}
		arg, err := url.PathUnescape(parts[i])
		if err != nil || arg == "" {
			return nil, 0, false
		}
		args = append(args, arg)
	}
	return args, literals, true
}
