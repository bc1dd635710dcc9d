package serve

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"salvor/api"
	"salvor/conductor/node"
	"salvor/config"
	"salvor/job"
	"salvor/metal"
	"salvor/store"
)

// What a process does and does not do, by its roles.

func (p *ControlPlane) has(role string) bool { return hasRole(p.cfg, role) }

func hasRole(c *config.Config, role string) bool { return slices.Contains(c.Default.Roles, role) }

// groups are the conductor groups that this process works for.
func (p *ControlPlane) groups() []string {
	return []string{strings.ToLower(p.cfg.Conductor.ConductorGroup)}
}

// liveGroupQueue is the store of whoever asks for work: it takes none for a group in which nobody would do it.
type liveGroupQueue struct {
	*store.Store
	directory *metal.Directory
}

// Insert is job.Queue's.
func (s liveGroupQueue) Insert(tx job.Tx, j *job.Job) error {
	if err := s.directory.Staffed(j.Group); err != nil {
		return err
	}
	return s.Store.Insert(tx, j)
}

func (p *ControlPlane) queue() liveGroupQueue { return liveGroupQueue{p.Store, p.Directory} }

// backgroundTask is work that goes on as long as the process.
type backgroundTask struct {
	name string
	run  func(context.Context) error
}

// tasks are those of the process's roles.
func (p *ControlPlane) tasks() []backgroundTask {
	tell := func(what string) func(error) {
		return func(err error) { p.log.Error(what, "error", err) }
	}
	// Whoever takes words of machines and hosts writes them down, and must know who lives.
	all := []backgroundTask{
		{"directory", func(ctx context.Context) error { p.Directory.Watch(ctx, tell("look who lives")); return nil }},
		{"heartbeats", func(ctx context.Context) error { p.nodes.RunHeartbeats(ctx, tell("write heartbeats")); return nil }},
		{"boot contacts", func(ctx context.Context) error {
			p.nodes.RunSeen(ctx, tell("write what was seen of machines that boot"))
			return nil
		}},
		{"memory", keepGarbage},
		{"keys", p.rotation.Run},
		{"history", p.watchHistory},
	}
	if p.has(config.RoleNetboot) {
		all = append(all, backgroundTask{"boot services", p.boot.Run})
	}
	if p.has(config.RoleAPI) {
		all = append(all,
			backgroundTask{"timeline", p.feed.Run}, backgroundTask{"tokens", p.noteTokens}, backgroundTask{"certificate", p.watchCertificate}, backgroundTask{"policy", p.watchPolicy},
			backgroundTask{"rescue image", func(ctx context.Context) error { p.offerRescue(ctx); return nil }})
	}
	if !p.has(config.RoleConductor) {
		return append(all, backgroundTask{"leases", func(ctx context.Context) error {
			p.services.Leases.KeepLeases(ctx, tell("write leases of hosts"))
			return nil
		}})
	}
	return append(all,
		backgroundTask{"conductor", func(ctx context.Context) error { return p.Runner.Run(ctx, p.cfg.Conductor.GracefulShutdownTimeout) }},
		backgroundTask{"power sync", func(ctx context.Context) error { p.conductor.Nodes.RunPowerSync(ctx, p.powerSync()); return nil }},
		backgroundTask{"consoles", func(ctx context.Context) error {
			node.ReadConsoles(ctx, p.conductor.Nodes, p.consoleReading())
			return nil
		}},
		backgroundTask{"held readings", p.readHeld},
		backgroundTask{"rescue expiry", func(ctx context.Context) error {
			p.nodes.RunRescueExpiry(ctx, func() bool { return p.Store.Held() != nil }, tell("end rescue sessions"))
			return nil
		}},
		backgroundTask{"leases", func(ctx context.Context) error {
			p.services.Liveness.SetSenses(p.conductor.Servers.HealthSources(ctx))
			p.services.Leases.RunLeases(ctx, tell("tend hosts and servers"))
			return nil
		}},
		backgroundTask{"housekeeping", p.runJanitor})
}

// apiDoors are the doors of people and of machines that boot.
func (p *ControlPlane) apiDoors() ([]listenerSpec, error) {
	var doors []listenerSpec
	ramdiskDoor := p.has(config.RoleNetboot) && p.cfg.Ramdisk.Listen != ""
	if !p.has(config.RoleAPI) && !ramdiskDoor {
		return nil, nil
	}
	main, ramdisk, err := p.Handlers()
	if err != nil {
		return nil, err
	}
	if p.has(config.RoleAPI) {
		secured, err := p.apiTLS()
		if err != nil {
			return nil, err
		}
		doors = append(doors, listenerSpec{"api", net.JoinHostPort(p.cfg.API.HostIP.String(), fmt.Sprint(p.cfg.API.Port)), api.NewServer(main, p.log), secured})
	}
	if ramdiskDoor {
		server := api.NewServer(ramdisk, p.log)
		server.MaxHeaderBytes = api.StrangerHeaders
		doors = append(doors, listenerSpec{"ramdisk", p.cfg.Ramdisk.Listen, server, nil})
	}
	return doors, nil
}

// healthDoor answers who watches processes, and nobody else.
func (p *ControlPlane) healthDoor() api.RouteLister {
	pages := map[string]http.Handler{"/healthz": p.health(true), "/metrics": p.metrics()}
	out := api.RouteLister{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := pages[r.URL.Path]
		if page == nil || r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.NotFound(w, r)
			return
		}
		page.ServeHTTP(w, r)
	})}
	for path := range pages {
		out.Endpoints = append(out.Endpoints, api.Endpoint{Method: http.MethodGet, Path: path, Open: true})
	}
	return out
}
