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

// route is one method of one path.
type route struct {
	method string // "*" takes every method
	path   string
	need   access.Need
	since  metal.Version // older versions see a 404
	do     func(*call) error
	plain  bool // outside of the microversions
	old    bool // one of the old agent doors
	shows  bool // an open door that is shown a proof, by which its handler has it admitted
	before int  // the status for versions before since; 0 means 404
	long   bool // the handler itself says what is wrong with a long argument

	parts  []string
	permit *permit
	rule   string // of the policy
}

// router finds routes by path. The table is small, so it is walked by length of path.
type router struct{ byLength map[int][]route }

// maxPathParts bounds the work on a hostile path.
const maxPathParts = 16

func newRouter(table []route, serve func(*route) bool) *router {
	t := &router{byLength: map[int][]route{}}
	for _, r := range table {
		if !serve(&r) {
			continue
		}
		r.parts = split(r.path)
		r.permit, r.rule = permitOf(r.method, r.path)
		t.byLength[len(r.parts)] = append(t.byLength[len(r.parts)], r)
	}
	return t
}

func (t *router) doors() (out []api.Door) {
	for _, routes := range t.byLength {
		for _, r := range routes {
			out = append(out, api.Door{Method: r.method, Path: r.path, Open: r.need == access.Open})
		}
	}
	return out
}

func split(path string) []string {
	path = strings.Trim(path, "/")
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// find gives the route of a request and the arguments in its path. With no route it
// gives the methods that the path has, sorted; none means that there is no such path.
func (t *router) find(method string, u *url.URL) (found *route, args []string, allowed []string) {
	if found, args, allowed = t.at(method, u.EscapedPath()); found != nil || len(allowed) > 0 {
		return found, args, allowed
	}
	path := u.EscapedPath()
	if node, ok := strings.CutPrefix(path, "/v1/nodes/states/console/"); ok { // Ironic's router takes the words in either order, and its tests use it
		return t.at(method, "/v1/nodes/"+node+"/states/console")
	}
	return t.at(method, "/v1"+path) // without a version: the only one, as in Ironic
}

func (t *router) at(method, path string) (found *route, args []string, allowed []string) {
	parts := split(path)
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
func (r *route) match(parts []string) (args []string, literals int, ok bool) {
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
