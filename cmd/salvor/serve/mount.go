package serve

import (
	"net/http"
	"net/url"
	"os"
	"strings"

	"salvor/api"
	"salvor/config"
	"salvor/metal"
)

// pathHandler is what answers at a path, or below one that ends in a slash.
type pathHandler struct {
	path    string
	handler http.Handler
}

func (p pathHandler) holds(path string) bool {
	return path == p.path || strings.HasSuffix(p.path, "/") && strings.HasPrefix(path, p.path)
}

// places are the parts of a listener that belong to no API, on the listener of ramdisks as on the main one.
func (p *ControlPlane) places() []pathHandler {
	return []pathHandler{
		{metal.FilePrefix, admitByPath(p.boot.Handler())},
		{lendPrefix, admitByPath(http.HandlerFunc(p.signedImage))},
		{"/healthz", allowMethod(http.MethodGet, admitAnonymous(p.health(false)))},
	}
}

// mount adds the places and the other faces to a dialect. It is no ServeMux: that would answer paths like //v1 by
// redirects of its own, past the dialect's errors. Whoever is refused too often here is held up.
func (p *ControlPlane) mount(dialect http.Handler, faces map[string]http.Handler, more ...pathHandler) http.Handler {
	places := append(p.places(), more...)
	doors := listDoors("/", dialect)
	for path, f := range faces {
		doors = append(doors, listDoors(path, f)...)
	}
	for _, at := range places {
		doors = append(doors, listDoors(at.path, at.handler)...)
	}
	return api.RouteLister{Endpoints: doors, Handler: p.sameSite(p.limits.Guard(api.WhileHeld(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, at := range places {
			if at.holds(r.URL.Path) {
				at.handler.ServeHTTP(w, r)
				return
			}
		}
		if other := findAPIHandler(faces, r.URL.Path); other != nil {
			other.ServeHTTP(w, r)
			return
		}
		dialect.ServeHTTP(w, r)
	}), p.Store.Held)))}
}

// sameSite keeps pages of other sites out: where nobody has to prove who it is, those too that say to be of this one.
func (p *ControlPlane) sameSite(h http.Handler) http.Handler {
	h = api.SameSite(h)
	if p.cfg.Default.AuthStrategy != config.NoAuth {
		return h
	}
	names := []string{strings.ToLower(p.cfg.Default.Host)}
	for _, at := range []string{p.cfg.API.PublicEndpoint, p.cfg.ServiceCatalog.EndpointOverride} {
		if u, err := url.Parse(at); err == nil {
			names = append(names, strings.ToLower(u.Hostname()))
		}
	}
	if p.cfg.Origin("DEFAULT", "auth_strategy") == "" {
		h = api.Unproxied(h)
	}
	return api.NamedHere(h, append(names, machineName()))
}

func machineName() string {
	name, _ := os.Hostname()
	return strings.ToLower(name)
}

// listDoors are the doors of what answers at a path; of who does not tell them there is that path.
func listDoors(path string, h http.Handler) []api.Endpoint {
	if l, ok := h.(api.RouteLister); ok {
		return l.Endpoints
	}
	return []api.Endpoint{{Method: http.MethodGet, Path: path, Open: true}}
}

// admitByPath is a door whose paths nobody can guess: they are the proof.
func admitByPath(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A machine fetches several files of one folder.
		if err := api.Admit(r, r.URL.Path[:strings.LastIndexByte(r.URL.Path, '/')+1]); err != nil {
			api.Faults(nil, nil, "error")(w, r, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// admitAnonymous has an answer that anybody gets cost its source what an open door costs.
func admitAnonymous(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := api.Admit(r, ""); err != nil {
			api.Faults(nil, nil, "error")(w, r, err)
			return
		}
		h(w, r)
	}
}

// allowMethod serves one method; others find nothing.
func allowMethod(method string, h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method {
			http.NotFound(w, r)
			return
		}
		h(w, r)
	})
}

func newLimits(c config.Limits) *api.Limits {
	return api.NewLimits(api.LimitConfig{
		Refusals: c.Refusals, AllRefusals: c.AllRefusals, Logins: c.Logins, AllLogins: c.AllLogins, Burst: c.Burst, Proxies: c.Proxies,
	})
}

// counted has wrong credentials counted. Without authentication nobody has to show one.
func (p *ControlPlane) counted(a api.Authenticator) api.Authenticator {
	return p.limits.Auth(p.certified(a), p.cfg.Default.AuthStrategy != config.NoAuth)
}
