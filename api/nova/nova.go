// Package nova serves OpenStack's Compute API (Nova v2.1) over the servers of package compute. It decodes requests, checks them against the
// schema of the microversion that they ask for, and writes answers as Nova's clients read them. It knows no rule of the servers themselves,
// no store and no hypervisor: it hands work on as rows.
package nova

import (
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/compute/service"
	"salvor/job"
	"salvor/record"
)

// The range of microversions that is served: 2.1 to 2.88.
const (
	MinVersion = 1
	MaxVersion = 88
)

// The paths below which the API lies.
const (
	rootPath    = "/compute"
	currentPath = "/compute/v2.1"
	legacyPath  = "/compute/v2"
)

// Config is what the API stands on.
type Config struct {
	Services *service.Services
	Timeline job.Timeline
	Auth     api.Authenticator
	// Policy has the rules of a policy file; those of Nova's defaults are in the routes.
	Policy access.Policy
	Log    *slog.Logger
	// PublicEndpoint begins every link; empty: the host that the client asked.
	PublicEndpoint string
	// MaxLimit is the default and the greatest length of a page; 0 means 1000.
	MaxLimit int
	// NoPasswords leaves adminPass out of answers, and out of servers.
	NoPasswords bool
	Now         func() time.Time // nil: the clock
}

type apiServer struct {
	Config
	versions api.Microversions
	names    *nameLookupCache
	written  *api.JSONCache[serverViewKey, record.Mark]
}

// New serves /compute and all that lies below it.
func New(c Config) http.Handler {
	if c.MaxLimit <= 0 {
		c.MaxLimit = 1000
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &apiServer{
		Config:   c,
		versions: api.Microversions{Major: 2, Min: MinVersion, Max: MaxVersion, Service: "compute", Header: versionHeader},
		names:    &nameLookupCache{services: c.Services, now: c.Now},
		written: &api.JSONCache[serverViewKey, record.Mark]{
			Num:      func(m record.Mark) int64 { return m.Num },
			Outdated: func(old, now serverViewKey) bool { return old.names != now.names },
		},
	}
	d := api.Router{
		Routes: s.routes(), Auth: c.Auth, Fail: newFailer(c.Log), Log: c.Log, PublicEndpoint: c.PublicEndpoint, Before: s.speak,
	}
	h := d.Handler()
	return api.RouteLister{Endpoints: h.Endpoints, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, normalizeRequestPath(r)) })}
}

// accessLevel is what a principal must be at least.
type accessLevel int

const (
	admin  accessLevel = iota // the zero level, so a forgotten one closes the endpoint
	member                    // may change what belongs to the project
	reader                    // may see what belongs to the project
	anyone                    // the endpoint is open
)

// versionedRoute is one method of one path, below /compute/v2.1.
type versionedRoute struct {
	method, path string
	need         accessLevel
	since, until int // microversions that have it; 0 until: all later ones
	do           func(*novaCall) error
}

// routes is every route: the tables of each part of the API as the dialect takes them.
func (s *apiServer) routes() []api.Route {
	var out []api.Route
	for _, r := range slices.Concat(
		s.serverRoutes(), s.attachmentRoutes(), s.flavorRoutes(), s.keypairRoutes(), s.hostRoutes(), s.migrationRoutes(), s.networkRoutes(), s.usageRoutes(),
	) {
		out = append(out, api.Route{Method: r.method, Path: currentPath + r.path, Open: r.need == anyone, Do: s.through(r)})
	}
	for _, path := range []string{rootPath, currentPath, legacyPath} {
		out = append(out, api.Route{Method: http.MethodGet, Path: path, Open: true, Do: s.version(path)})
	}
	return mergeRoutes(out)
}

// mergeRoutes makes one route of those that share method and path and differ in their microversions.
func mergeRoutes(all []api.Route) []api.Route {
	var out []api.Route
	at := map[string]int{}
	for _, r := range all {
		key := r.Method + " " + r.Path
		i, ok := at[key]
		if !ok {
			at[key] = len(out)
			out = append(out, r)
			continue
		}
		first := out[i].Do
		out[i].Do = func(c *api.Call) error {
			if err := first(c); err != errOtherVersion {
				return err
			}
			return r.Do(c)
		}
	}
	for i := range out {
		do := out[i].Do
		out[i].Do = func(c *api.Call) error {
			err := do(c)
			if err == errOtherVersion {
				return notThere()
			}
			return err
		}
	}
	return out
}

var (
	versionPath = regexp.MustCompile(`^/compute/v2(?:\.1)?(?:/|$)`)
	projectPath = regexp.MustCompile(`^[0-9a-fA-F-]{32,36}$`)
)

// topCollections are the first words of paths: anything else there is the id of a project.
var topCollections = []string{"servers", "flavors", "images", "limits", "extensions"}

// normalizeRequestPath gives a request the path that the table has: /compute/v2 is /compute/v2.1 and the id of a project is left out.
func normalizeRequestPath(r *http.Request) *http.Request {
	path := r.URL.Path
	if !versionPath.MatchString(path) || strings.Trim(path, "/") == "compute/v2" {
		return r
	}
	rest := path[len(versionPath.FindString(path)):]
	first, below, more := strings.Cut(rest, "/")
	if first != "" && (more || projectPath.MatchString(first)) && !slices.Contains(topCollections, first) && !strings.HasPrefix(first, "os-") {
		rest = below
	}
	u := *r.URL
	u.Path, u.RawPath = strings.TrimSuffix(currentPath+"/"+rest, "/"), ""
	out := *r
	out.URL = &u
	return &out
}
