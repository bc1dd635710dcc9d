// Package serve runs a control plane: it puts the packages together that the configuration asks for, opens the listeners, and does the periodic
// work. It also examines a configuration before it is run. It knows no command line.
package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/api/host"
	"salvor/api/native"
	"salvor/blob"
	"salvor/boot/netboot"
	"salvor/compute/service"
	"salvor/conductor"
	"salvor/conductor/node"
	"salvor/config"
	"salvor/driver/redfish"
	"salvor/job"
	"salvor/keyring"
	"salvor/metal"
	"salvor/openstack/glance"
	"salvor/record"
	"salvor/secret"
	"salvor/storage"
	"salvor/store"
	"salvor/version"
)

// ControlPlane is a control plane that was put together by New. Run serves it until its context ends.
type ControlPlane struct {
	cfg       *config.Config
	log       *slog.Logger
	state     *stateDir
	key       *secret.Key
	pulse     databaseProbe
	sessions  redfish.SessionPool
	rotation  *keyring.Ring
	Store     *store.Store
	tokens    *access.Tokens  // nil: Keystone's are taken
	tokenAuth *api.TokenAuth  // nil: Keystone's are taken
	rules     *api.PolicyFile // nil: Ironic's and Nova's defaults alone
	// certificates are those of the API's own TLS; nil: it has none.
	certificates  *api.Certificates
	Directory     *metal.Directory
	nodes         *metal.Nodes
	feed          *native.Feed
	watch         *processMetrics
	services      *service.Services
	blobs         *blob.Directory
	storage       storage.Storage // nil: none is spoken to
	authority     *host.Authority // nil: no VM hosts are served
	conductor     *conductor.Conductor
	permission    job.Permission // of both halves of the conductor; set before the first action and never after
	Runner        *job.Runner
	boot          *netboot.Server
	glance        *glance.Client // nil: no image service is configured
	limits        *api.Limits
	opened        []netip.AddrPort     // our listeners
	self          string               // where we ourselves reach our API; set before anything runs
	hostWitnesses *hostWitnesses       // nil: no host can join
	found         record.Witness       // the incarnation of the database at the start of this process
	witnessed     record.Witness       // the content of the witness files
	unwritten     map[string]time.Time // witness files that cannot be written, and the time of the last log line
	heldBefore    bool                 // the database was held when it was read last
}

// Run runs the roles that the configuration gives to this process until ctx ends, or until one of them cannot go on. It logs warnings first.
func Run(ctx context.Context, cfg *config.Config, warnings []string) error {
	setUmask()
	if err := HardenProcess(); err != nil {
		return err
	}
	log := newLog(cfg, os.Stderr)
	for _, w := range warnings {
		log.Warn(w)
	}
	if cfg.Site.Centre != "" {
		return serveSite(ctx, cfg, log)
	}
	p, err := New(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer p.Close()
	if cfg.Default.AuthStrategy == config.NoAuth {
		log.Warn("[DEFAULT]auth_strategy is noauth: anyone who can reach the API is an administrator")
	}
	return p.run(ctx)
}

// New opens the state directory, the key and the store, and puts the control plane together. Close releases them.
func New(ctx context.Context, cfg *config.Config, log *slog.Logger) (*ControlPlane, error) {
	p := &ControlPlane{cfg: cfg, log: log}
	p.limits = newLimits(cfg.Limits)
	var err error
	if p.state, err = openStateDir(cfg.Default.StatePath); err != nil {
		return nil, err
	}
	if err := p.wire(ctx); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *ControlPlane) wire(ctx context.Context) error {
	source, err := p.readKeys(ctx)
	if err != nil {
		return err
	}
	url := p.cfg.Database.Connection.Reveal()
	if p.Store, err = store.Open(ctx, url, p.key, p.storeOptions(url)); err != nil {
		return source.Blamed(err)
	}
	p.rotation = keyring.New(keyring.Config{Source: source, Key: p.key, Store: p.Store, Host: p.cfg.Default.Host, Alone: isSQLite(url), Now: time.Now, Log: p.log})
	kernel, ramdisk := rescueImages(p.cfg)
	p.Directory = metal.NewDirectory(p.Store, time.Now, 500*time.Millisecond, conductorTimeout(url))
	p.feed = native.NewFeed(p.Store, p.log)
	traces, err := newTracer(ctx, p.cfg.OTel, p.cfg.Default.Host, p.log)
	if err != nil {
		return err
	}
	p.watch = newWatcher(traces)
	p.watch.registry.MustRegister(&fleetGauges{program: p})
	p.nodes = metal.NewNodes(p.Store, p.queue(), p.key, p.Directory, p.nodeOptions(), machineClock())
	if err := p.wireCompute(ctx); err != nil {
		return err
	}
	if p.glance, err = newGlanceClient(p.cfg.Glance); err != nil {
		return err
	}
	if p.has(config.RoleConductor) {
		if err := p.wireConductor(kernel, ramdisk, isSQLite(url)); err != nil {
			return err
		}
	}
	p.boot, err = netboot.New(p.netbootConfig(kernel, ramdisk))
	return err
}

// wireConductor makes what runs jobs: the drivers, the operations and their runner.
func (p *ControlPlane) wireConductor(kernel, ramdisk string, single bool) error {
	hardware, err := p.driverConfig(kernel, ramdisk)
	if err != nil {
		return err
	}
	hardware.Sessions = &p.sessions
	types, warnings, err := filterEnabledHardware(hardwareTypes(hardware), p.cfg.Default)
	for _, w := range warnings {
		p.log.Warn(w)
	}
	if err != nil {
		return err
	}
	p.permission.Held = func() error { return p.Store.Held().Refusal() }
	settings := p.deploying(hardware, node.Config{
		Store: p.Store, Nodes: p.nodes, Key: p.key, Log: p.log, Meter: p.watch.machine, Now: p.Store.Now,
		Drivers: types, Groups: p.groups(),
		RescueKernel: kernel, RescueRamdisk: ramdisk,
		RescueTimeout:     p.cfg.Conductor.RescueCallbackTimeout,
		GoOnInMaintenance: p.cfg.Conductor.AllowProvisioningMaintenance,
		PasswordInLookup:  p.cfg.Agent.RescuePasswordInLookup,
		RescueRoot:        p.cfg.Agent.RescueRootPassword,
		SoftOffTimeout:    p.cfg.Conductor.SoftPowerOffTimeout,
		PowerTimeout:      p.cfg.Conductor.PowerStateChangeTimeout,
		Readable:          p.localFiles(), WebFile: p.webFile(), FreeAddresses: p.freeAddress, CheckPlan: p.checkPlan(), KernelArch: p.kernelArch(),
		Glance: p.imageService(),
	})
	if err := p.wireNova(&settings); err != nil {
		return err
	}
	if settings.Published, err = encodePublishedConfig(hardware, settings); err != nil {
		return err
	}
	for _, wrong := range configuredRamdisks(p.cfg) {
		p.log.Warn("no machine can be booted into the configured ramdisk", "error", wrong)
	}
	p.conductor = conductor.New(&p.permission, settings, p.operating())
	if err := p.newRunner(single); err != nil {
		return err
	}
	p.warnOfInterfaces()
	return nil
}

// Close ends what New opened. It may be called for a control plane that New could not finish.
func (p *ControlPlane) Close() {
	p.sessions.Close()
	if p.watch != nil {
		p.watch.tracer.close()
	}
	if p.blobs != nil {
		_ = p.blobs.Close()
	}
	if p.Store != nil {
		if err := p.Store.Close(); err != nil {
			p.log.Error("close the database", "error", err)
		}
	}
	_ = p.state.Close()
}

// run opens the doors and works until ctx ends or something that must not end does.
func (p *ControlPlane) run(ctx context.Context) error {
	listeners, err := p.listen()
	if err != nil {
		return err
	}
	// This comes before anything acts on the database.
	if err := p.compareHistory(ctx); err != nil {
		return err
	}
	// Before any door answers: what it would ask for a driver must find one.
	if p.Runner != nil {
		if err := p.Runner.Join(ctx); err != nil {
			return err
		}
		if err := p.reapDeadConductors(ctx); err != nil {
			return err
		}
	}
	if _, err := p.Directory.Conductors(ctx); err != nil {
		return err
	}
	err = runAll(ctx, p.log, p.cfg, p.liveness, p.tasks(), listeners, func() startMessage { return p.startMessage(ctx, listeners) })
	p.rememberEnd()
	return err
}

// runAll works until ctx ends, or a task or door that must not end does. check tells systemd how the process is,
// message tells people.
func runAll(ctx context.Context, log *slog.Logger, cfg *config.Config, check func(context.Context) Liveness, tasks []backgroundTask, doors []httpListener,
	message func() startMessage,
) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	for _, d := range doors {
		tasks = append(tasks, backgroundTask{d.name, d.serve})
		log.Info("listening", "door", d.name, "address", d.Addr().String())
	}
	for _, t := range tasks {
		running.Go(func() {
			if err := t.run(ctx); err != nil && ctx.Err() == nil {
				stop(fmt.Errorf("%s: %w", t.name, err))
			}
		})
	}
	running.Go(func() { NotifySystemd(ctx, log, check) })
	build := version.Current()
	log.Info("serving", "roles", strings.Join(cfg.Default.Roles, ","), "version", build.Release, "commit", build.Commit)
	message().write(cfg, log, os.Stdout)
	<-ctx.Done()
	running.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// httpListener is a listener with what answers on it.
type httpListener struct {
	net.Listener
	name   string
	server *http.Server
}

func (d httpListener) serve(ctx context.Context) error {
	over := make(chan struct{})
	stopped := context.AfterFunc(ctx, func() {
		defer close(over)
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = d.server.Shutdown(bounded)
	})
	err := d.server.Serve(d.Listener)
	if !stopped() {
		<-over // Serve returns at once, the requests that it began with do not
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// listenerSpec is a door that is not open yet; tls is nil where it speaks plain HTTP.
type listenerSpec struct {
	name, address string
	server        *http.Server
	tls           *tls.Config
}

// localListenerAddress is where a listener is reached from its own machine.
func localListenerAddress(at net.Addr) string {
	if a, err := netip.ParseAddrPort(at.String()); err == nil && a.Addr().IsUnspecified() {
		return net.JoinHostPort("localhost", fmt.Sprint(a.Port()))
	}
	return at.String()
}

// listen opens every door before anything runs, so that a taken port ends the start.
func (p *ControlPlane) listen() ([]httpListener, error) {
	doors, err := p.apiDoors()
	if err != nil {
		return nil, err
	}
	if at := p.cfg.Health.Listen; at != "" {
		doors = append(doors, listenerSpec{"health", at, api.NewServer(p.healthDoor(), p.log), nil})
	}
	if p.authority != nil {
		hosts, err := p.hostsDoor()
		if err != nil {
			return nil, err
		}
		doors = append(doors, hosts)
	}
	for _, d := range doors {
		d.server.Handler = api.Observed(d.server.Handler, p.watch.request)
	}
	out, err := openDoors(doors, newConnections(p.cfg.Limits, p.log))
	p.noteDoors(out)
	if p.self = strings.TrimRight(p.cfg.API.PublicEndpoint, "/"); err == nil && p.has(config.RoleAPI) {
		p.self = OwnURL(p.cfg, out[0].Addr())
	}
	return out, err
}

// hostsListener is where hosts renew their leases: descriptors are kept for it.
const hostsListener = "hosts"

// openDoors opens all of them or none.
func openDoors(doors []listenerSpec, bounds *api.Connections) ([]httpListener, error) {
	var out []httpListener
	for _, w := range doors {
		l, err := net.Listen("tcp", w.address)
		if err != nil {
			for _, d := range out {
				d.Close()
			}
			return nil, fmt.Errorf("listen for the %s listener: %w", w.name, err)
		}
		l = bounds.Listener(l, w.name, w.name == hostsListener)
		if w.tls != nil {
			l = tls.NewListener(l, w.tls)
		}
		out = append(out, httpListener{l, w.name, w.server})
	}
	return out, nil
}
