// Package ironic serves OpenStack's bare metal API (Ironic v1) over the machines of package metal. It decodes requests, applies the rules
// of the microversion that they ask for, and writes answers as Ironic's clients read them. It knows no rule of the machines themselves, no
// store and no conductor: it hands work on as rows.
package ironic

import (
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/job"
	"salvor/metal"
	"salvor/wire/ironic"
)

// The range of microversions that is served: 1.1 to 1.115.
const (
	MinVersion metal.Version = 1
	MaxVersion metal.Version = 115
)

// Config is what the API stands on.
type Config struct {
	Nodes *metal.Nodes
	metal.Collections
	Directory *metal.Directory
	Timeline  job.Timeline
	Auth      api.Authenticator
	Policy    access.Policy // of principals whose roles have a scope
	Log       *slog.Logger
	// LockPatience is how long a request waits for a node that is worked on; 0: not at all.
	LockPatience time.Duration
	// PublicEndpoint begins every link; empty: the host that the client asked.
	PublicEndpoint string
	// MaxLimit is the default and the greatest length of a page; 0 means 1000.
	MaxLimit int
	// HeartbeatTimeout in seconds is told to ramdisks; 0 means 300.
	HeartbeatTimeout int
	// ImageFormats are told to ramdisks as those that may be deployed; nil: raw, gpt, qcow2 and iso.
	ImageFormats []string
	// LegacyPassthru serves the vendor passthru by which agents of Ironic 6.2 and older look up and heartbeat.
	LegacyPassthru bool
}

type server struct {
	Config
	versions   api.Microversions
	written    *nodeJSONCache
	largePages chan struct{} // places for large pages in the making
	resources  []rootResource
}

// New serves the whole API: /, /v1 and what lies below.
func New(c Config) http.Handler { return newServer(c, false) }

// NewRamdisk serves only what a booting machine needs, none of which takes a
// credential: /, /v1, lookup and heartbeat.
func NewRamdisk(c Config) http.Handler { return newServer(c, true) }

func newServer(c Config, ramdiskOnly bool) http.Handler {
	if c.MaxLimit <= 0 {
		c.MaxLimit = 1000
	}
	if c.ImageFormats == nil {
		c.ImageFormats = []string{"raw", "gpt", "qcow2", "iso"}
	}
	if c.HeartbeatTimeout <= 0 {
		c.HeartbeatTimeout = 300
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	s := &server{Config: c, written: newJSONCache(), largePages: make(chan struct{}, max(4, 2*runtime.GOMAXPROCS(0))), versions: api.Microversions{
		Major: 1, Min: int(MinVersion), Max: int(MaxVersion), Service: "baremetal", Header: ironic.VersionHeader,
	}}
	s.resources = s.rootResources()
	d := api.Router{
		Routes: s.routes(ramdiskOnly), Auth: c.Auth, Fail: s.fail, Log: c.Log, PublicEndpoint: c.PublicEndpoint,
		Private: true, OwnChecks: true, Find: s.find,
	}
	if ramdiskOnly {
		d.Auth = nil // nothing there takes a credential
	}
	return d.Handler()
}

// table is every route, from the table of each part of the API. A path part in braces is an argument.
func (s *server) table() []apiRoute {
	return slices.Concat(s.openRoutes(), s.nodeRoutes(), s.hardwareRoutes(), s.kindRoutes(), s.eventRoutes())
}

// openRoutes are open to machines that boot.
func (s *server) openRoutes() []apiRoute {
	return []apiRoute{
		{method: "GET", path: "/", need: access.Open, do: s.root, plain: true},
		{method: "GET", path: "/v1", need: access.Open, do: s.v1},
		{method: "GET", path: "/v1/lookup", need: access.Open, since: 22, do: s.lookup},
		{method: "POST", path: "/v1/heartbeat/{node}", need: access.Open, since: 22, do: s.heartbeat, shows: true},
		{method: "POST", path: "/v1/continue_inspection", need: access.Open, do: s.continueInspection},
		{method: "POST", path: "/v1/drivers/{driver}/vendor_passthru/lookup", need: access.Open, do: s.oldLookup, old: true},
		{method: "POST", path: "/v1/nodes/{node}/vendor_passthru/heartbeat", need: access.Open, do: s.oldHeartbeat, old: true, shows: true},
	}
}

// nodeRoutes are of nodes, their states and who works on them.
func (s *server) nodeRoutes() []apiRoute {
	return []apiRoute{
		{method: "GET", path: "/v1/nodes", need: access.Read, do: s.listNodes},
		{method: "POST", path: "/v1/nodes", do: s.createNode},
		{method: "GET", path: "/v1/nodes/detail", need: access.Read, do: s.listNodesDetail},
		{method: "GET", path: "/v1/nodes/{node}", need: access.Read, do: s.getNode},
		{method: "PATCH", path: "/v1/nodes/{node}", do: s.patchNode},
		{method: "DELETE", path: "/v1/nodes/{node}", do: s.deleteNode},
		{method: "GET", path: "/v1/nodes/{node}/validate", need: access.Read, do: s.validateNode},
		{method: "PUT", path: "/v1/nodes/{node}/maintenance", do: s.setMaintenance},
		{method: "DELETE", path: "/v1/nodes/{node}/maintenance", do: s.clearMaintenance},
		{method: "GET", path: "/v1/nodes/{node}/states", need: access.Read, do: s.getStates},
		{method: "PUT", path: "/v1/nodes/{node}/states/power", do: s.setPower},
		{method: "PUT", path: "/v1/nodes/{node}/states/provision", do: s.provision},
		{method: "GET", path: "/v1/nodes/{node}/traits", need: access.Read, since: 37, before: http.StatusNotAcceptable, do: s.getTraits},
		{method: "PUT", path: "/v1/nodes/{node}/traits", since: 37, before: http.StatusMethodNotAllowed, do: s.setTraits},
		{method: "DELETE", path: "/v1/nodes/{node}/traits", since: 37, do: s.clearTraits},
		{method: "PUT", path: "/v1/nodes/{node}/traits/{trait}", since: 37, before: http.StatusMethodNotAllowed, long: true, do: s.addTrait},
		{method: "DELETE", path: "/v1/nodes/{node}/traits/{trait}", since: 37, do: s.removeTrait},
		{method: "GET", path: "/v1/nodes/{node}/history", need: access.Read, since: 78, do: s.listHistory},
		{method: "GET", path: "/v1/nodes/{node}/history/{event}", need: access.Read, since: 78, do: s.getHistory},
		{method: "GET", path: "/v1/conductors", need: access.Read, since: 49, do: s.listConductors},
		{method: "GET", path: "/v1/conductors/{host}", need: access.Read, since: 49, do: s.getConductor},
	}
}
