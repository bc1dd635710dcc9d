// Package ironic serves OpenStack's bare metal API (Ironic v1) over the machines of
// package metal: it decodes requests, holds them to the microversion that they speak,
// and writes answers as Ironic's clients read them. It knows no rule of the machines
// themselves, no store and no conductor: work is handed on as rows.
package ironic

import (
	"log/slog"
	"net/http"

	"salvor/access"
	"salvor/api"
	"salvor/job"
	"salvor/metal"
	"salvor/wire/ironic"
)

// The range of microversions that is served: 1.1 to 1.82.
const (
	MinVersion metal.Version = 1
	MaxVersion metal.Version = 82
)

// Config is what the API stands on.
type Config struct {
	Nodes     *metal.Nodes
	Ports     *metal.Ports
	Directory *metal.Directory
	Timeline  job.Timeline
	Auth      api.Authenticator
	Log       *slog.Logger
	// PublicEndpoint begins every link; empty: the host that the client asked.
	PublicEndpoint string
	// MaxLimit is the default and the greatest length of a page; 0 means 1000.
	MaxLimit int
	// HeartbeatTimeout in seconds is told to ramdisks; 0 means 300.
	HeartbeatTimeout int
	// OldAgentDoors serves the vendor passthru by which agents of Ironic 6.2 and older look up and heartbeat.
	OldAgentDoors bool
}

type server struct {
	Config
	versions api.Microversions
	routes   *router
	open     bool // serves nothing that takes a credential
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
	if c.HeartbeatTimeout <= 0 {
		c.HeartbeatTimeout = 300
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	s := &server{Config: c, open: ramdiskOnly, versions: api.Microversions{
		Min: int(MinVersion), Max: int(MaxVersion), Service: "baremetal", Header: ironic.VersionHeader,
	}}
	s.routes = newRouter(s.table(), func(r *route) bool {
		if r.old && !c.OldAgentDoors {
			return false
		}
		return !ramdiskOnly || r.need == access.Open
	})
	return api.Serve(http.HandlerFunc(s.serve), s.fail, c.Log)
}

// table is every route. A path part in braces is an argument.
func (s *server) table() []route {
	return []route{
		{method: "GET", path: "/", need: access.Open, do: s.root, plain: true},
		{method: "GET", path: "/v1", need: access.Open, do: s.v1},
		{method: "GET", path: "/v1/lookup", need: access.Open, since: 22, do: s.lookup},
		{method: "POST", path: "/v1/heartbeat/{node}", need: access.Open, since: 22, do: s.heartbeat},
		{method: "POST", path: "/v1/drivers/{driver}/vendor_passthru/lookup", need: access.Open, do: s.oldLookup, old: true},
		{method: "POST", path: "/v1/nodes/{node}/vendor_passthru/heartbeat", need: access.Open, do: s.oldHeartbeat, old: true},

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
		{method: "PUT", path: "/v1/nodes/{node}/states/raid", since: 12, do: s.unsupported("raid")},
		{method: "GET", path: "/v1/nodes/{node}/states/console", need: access.Read, do: s.unsupported("console")},
		{method: "PUT", path: "/v1/nodes/{node}/states/console", do: s.unsupported("console")},
		{method: "PUT", path: "/v1/nodes/{node}/states/boot_mode", since: 76, do: s.unsupported("set_boot_mode")},
		{method: "PUT", path: "/v1/nodes/{node}/states/secure_boot", since: 76, do: s.unsupported("set_secure_boot_state")},
		{method: "GET", path: "/v1/nodes/{node}/management/boot_device", need: access.Read, do: s.getBootDevice},
		{method: "PUT", path: "/v1/nodes/{node}/management/boot_device", do: s.setBootDevice},
		{method: "GET", path: "/v1/nodes/{node}/management/boot_device/supported", need: access.Read, do: s.supportedBootDevices},
		{method: "PUT", path: "/v1/nodes/{node}/management/inject_nmi", since: 29, do: s.unsupported("inject_nmi")},
		{method: "GET", path: "/v1/nodes/{node}/management/indicators", need: access.Read, since: 63, do: s.unsupported("get_supported_indicators")},
		{method: "GET", path: "/v1/nodes/{node}/vendor_passthru/methods", need: access.Read, do: s.nodeMethods},
		{method: "*", path: "/v1/nodes/{node}/vendor_passthru", do: s.unsupported("vendor_passthru")},
		{method: "GET", path: "/v1/nodes/{node}/traits", need: access.Read, since: 37, do: s.getTraits},
		{method: "PUT", path: "/v1/nodes/{node}/traits", since: 37, do: s.setTraits},
		{method: "DELETE", path: "/v1/nodes/{node}/traits", since: 37, do: s.clearTraits},
		{method: "PUT", path: "/v1/nodes/{node}/traits/{trait}", since: 37, do: s.addTrait},
		{method: "DELETE", path: "/v1/nodes/{node}/traits/{trait}", since: 37, do: s.removeTrait},
		{method: "GET", path: "/v1/nodes/{node}/vifs", need: access.Read, since: 28, do: s.listVIFs},
		{method: "POST", path: "/v1/nodes/{node}/vifs", since: 28, do: s.attachVIF},
		{method: "DELETE", path: "/v1/nodes/{node}/vifs/{vif}", since: 28, do: s.detachVIF},
		{method: "GET", path: "/v1/nodes/{node}/bios", need: access.Read, since: 40, do: s.listBIOS},
		{method: "GET", path: "/v1/nodes/{node}/bios/{setting}", need: access.Read, since: 40, do: s.getBIOS},
		{method: "GET", path: "/v1/nodes/{node}/inventory", need: access.Read, since: 81, do: s.getInventory},
		{method: "GET", path: "/v1/nodes/{node}/history", need: access.Read, since: 78, do: s.listHistory},
		{method: "GET", path: "/v1/nodes/{node}/history/{event}", need: access.Read, since: 78, do: s.getHistory},
		{method: "GET", path: "/v1/nodes/{node}/ports", need: access.Read, do: s.listNodePorts},
		{method: "GET", path: "/v1/nodes/{node}/ports/detail", need: access.Read, do: s.listNodePortsDetail},

		{method: "GET", path: "/v1/ports", need: access.Read, do: s.listPorts},
		{method: "POST", path: "/v1/ports", do: s.createPort},
		{method: "GET", path: "/v1/ports/detail", need: access.Read, do: s.listPortsDetail},
		{method: "GET", path: "/v1/ports/{port}", need: access.Read, do: s.getPort},
		{method: "PATCH", path: "/v1/ports/{port}", do: s.patchPort},
		{method: "DELETE", path: "/v1/ports/{port}", do: s.deletePort},

		{method: "GET", path: "/v1/drivers", need: access.Read, do: s.listDrivers},
		{method: "GET", path: "/v1/drivers/{driver}", need: access.Read, do: s.getDriver},
		{method: "GET", path: "/v1/drivers/{driver}/properties", need: access.Read, do: s.driverProperties},
		{method: "GET", path: "/v1/drivers/{driver}/vendor_passthru/methods", need: access.Read, do: s.driverMethods},
		{method: "GET", path: "/v1/conductors", need: access.Read, since: 49, do: s.listConductors},
		{method: "GET", path: "/v1/conductors/{host}", need: access.Read, since: 49, do: s.getConductor},
	}
}
