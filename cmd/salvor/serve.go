package main

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
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"salvor/api"
	"salvor/api/host"
	"salvor/blob"
	"salvor/boot/net"
	"salvor/compute"
	"salvor/conductor"
	"salvor/config"
	"salvor/job"
	"salvor/metal"
	"salvor/secret"
	"salvor/storage"
	"salvor/store"
)

func newServeCommand() *cobra.Command {
	var file string
	flags := map[string]*config.Setting{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the control plane: API, conductor and boot services in one process",
		Args:  cobra.NoArgs,
		Example: `  # Everything at its default: SQLite in the state directory, API on 127.0.0.1:6385
  salvor serve

  # A configuration file with Ironic's sections and options
  salvor serve --config /etc/salvor/salvor.conf

  # PostgreSQL, another address
  salvor serve --database postgres://salvor@db/salvor --listen 10.0.0.5:6385

  # Every option, with its meaning and default
  salvor config sample`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			source := config.Source{File: file, Env: os.Environ()}
			if dir := flags["state-dir"]; dir.Value != "" {
				abs, err := filepath.Abs(dir.Value)
				if err != nil {
					return err
				}
				dir.Value = abs
			}
			for _, s := range flags {
				if s.Value != "" && s.Section != "" {
					source.Flags = append(source.Flags, *s)
				}
			}
			if at := flags["listen"].Value; at != "" {
				host, port, err := net.SplitHostPort(at)
				if err != nil {
					return fmt.Errorf("--listen %s: want ADDRESS:PORT", at)
				}
				source.Flags = append(source.Flags, config.Setting{Section: "api", Option: "host_ip", Value: host, From: "--listen"},
					config.Setting{Section: "api", Option: "port", Value: port, From: "--listen"})
			}
			cfg, warnings, err := config.Load(source)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), cfg, warnings)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file")
	for name, s := range map[string]config.Setting{
		"database":  {Section: "database", Option: "connection"},
		"state-dir": {Section: "DEFAULT", Option: "state_path"},
	} {
		s.From = "--" + name
		flags[name] = &s
	}
	listen := &config.Setting{}
	flags["listen"] = listen
	cmd.Flags().StringVar(&listen.Value, "listen", "", "address and port of the API (default 127.0.0.1:6385)")
	cmd.Flags().StringVar(&flags["database"].Value, "database", "", "sqlite:PATH or postgres://... (default: SQLite in the state directory)")
	cmd.Flags().StringVar(&flags["state-dir"].Value, "state-dir", "", "where identity, key and SQLite live")
	return cmd
}

// program is the control plane put together.
type program struct {
	cfg       *config.Config
	log       *slog.Logger
	state     *stateDir
	key       *secret.Key
	store     *store.Store
	directory *metal.Directory
	nodes     *metal.Nodes
	services  *compute.Services
	blobs     *blob.Directory
	storage   storage.Storage // nil: none is spoken to
	authority *host.Authority // nil: no VM hosts are served
	conductor *conductor.Conductor
	runner    *job.Runner
	boot      *netboot.Server
	self      string // where we ourselves reach our API; set before anything runs
}

func serve(ctx context.Context, cfg *config.Config, warnings []string) error {
	log := newLogger(cfg)
	for _, w := range warnings {
		log.Warn(w)
	}
	p, err := assemble(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer p.close()
	return p.run(ctx)
}

func newLogger(cfg *config.Config) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Default.LogLevel)); err != nil {
		level = slog.LevelInfo
	}
	if cfg.Default.Debug {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// assemble opens what lasts (state directory, key, store) and wires the floors.
func assemble(ctx context.Context, cfg *config.Config, log *slog.Logger) (*program, error) {
	p := &program{cfg: cfg, log: log}
	var err error
	if p.state, err = openStateDir(cfg.Default.StatePath); err != nil {
		return nil, err
	}
	if err := p.wire(ctx); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *program) wire(ctx context.Context) error {
	keyFile := p.cfg.Secrets.KeyFile
	if keyFile == "" {
		keyFile = filepath.Join(p.state.path, "secrets.key")
	}
	var err error
	if p.key, err = loadKey(keyFile); err != nil {
		return err
	}
	url := p.databaseURL()
	if p.store, err = store.Open(ctx, url, p.key, store.Options{Logger: p.log}); err != nil {
		return err
	}
	kernel, ramdisk := p.rescueImages()
	p.directory = metal.NewDirectory(p.store, time.Now, 500*time.Millisecond, silence(url))
	p.nodes = metal.NewNodes(p.store, p.store, p.key, p.directory, nodeOptions(p.cfg), time.Now)
	if err := p.wireCompute(ctx); err != nil {
		return err
	}
	hardware, err := p.driverConfig(kernel, ramdisk)
	if err != nil {
		return err
	}
	types, warnings, err := enabled(hardwareTypes(hardware), p.cfg.Default)
	for _, w := range warnings {
		p.log.Warn(w)
	}
	if err != nil {
		return err
	}
	p.conductor = conductor.New(p.operating(p.deploying(hardware, conductor.Config{
		Store: p.store, Nodes: p.nodes, Key: p.key, Log: p.log, Now: time.Now,
		Drivers:      types,
		RescueKernel: kernel, RescueRamdisk: ramdisk,
		RescueTimeout:     p.cfg.Conductor.RescueCallbackTimeout,
		GoOnInMaintenance: p.cfg.Conductor.AllowProvisioningMaintenance,
		PasswordInLookup:  p.cfg.Agent.RescuePasswordInLookup,
		RescueRoot:        p.cfg.Agent.RescueRootPassword,
		SoftOffTimeout:    p.cfg.Conductor.SoftPowerOffTimeout,
		PowerTimeout:      p.cfg.Conductor.PowerStateChangeTimeout,
	})))
	if err := p.newRunner(isSQLite(url)); err != nil {
		return err
	}
	p.warnOfInterfaces()
	p.boot, err = netboot.New(p.netbootConfig(kernel, ramdisk))
	return err
}

func (p *program) close() {
	if p.blobs != nil {
		_ = p.blobs.Close()
	}
	if p.store != nil {
		if err := p.store.Close(); err != nil {
			p.log.Error("close the database", "error", err)
		}
	}
	_ = p.state.Close()
}

// grace is how long running actions may take to end at a stop.
const grace = 20 * time.Second

// run opens the doors and works until ctx ends or something that must not end does.
func (p *program) run(ctx context.Context) error {
	listeners, err := p.listen()
	if err != nil {
		return err
	}
	// Before any door answers: what it would ask for a driver must find one.
	if err := p.runner.Join(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	start := func(name string, fn func(context.Context) error) {
		running.Go(func() {
			if err := fn(ctx); err != nil && ctx.Err() == nil {
				stop(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	start("conductor", func(ctx context.Context) error { return p.runner.Run(ctx, grace) })
	start("boot services", p.boot.Run)
	start("power sync", func(ctx context.Context) error { p.conductor.RunPowerSync(ctx, p.powerSync()); return nil })
	start("heartbeats", func(ctx context.Context) error {
		p.nodes.RunHeartbeats(ctx, func(err error) { p.log.Error("write heartbeats", "error", err) })
		return nil
	})
	start("leases", func(ctx context.Context) error {
		p.services.Hosts.SetSenses(p.conductor.Senses(ctx))
		p.services.Hosts.RunLeases(ctx, func(err error) { p.log.Error("tend hosts and servers", "error", err) })
		return nil
	})
	start("rescue image", func(ctx context.Context) error { p.offerRescue(ctx); return nil })
	start("housekeeping", p.keepHouse)
	start("memory", keepGarbage)
	for _, l := range listeners {
		start(l.name, l.serve)
		p.log.Info("listening", "door", l.name, "address", l.Addr().String())
	}
	<-ctx.Done()
	running.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// door is a listener with what answers on it.
type door struct {
	net.Listener
	name   string
	server *http.Server
}

func (d door) serve(ctx context.Context) error {
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

// wanted is a door that is not open yet; tls is nil where it speaks plain HTTP.
type wanted struct {
	name, address string
	server        *http.Server
	tls           *tls.Config
}

// reachable is where a listener is reached from its own machine.
func reachable(at net.Addr) string {
	if a, err := netip.ParseAddrPort(at.String()); err == nil && a.Addr().IsUnspecified() {
		return net.JoinHostPort("localhost", fmt.Sprint(a.Port()))
	}
	return at.String()
}

// listen opens every door before anything runs, so that a taken port ends the start.
func (p *program) listen() ([]door, error) {
	main, ramdisk, err := p.handlers()
	if err != nil {
		return nil, err
	}
	doors := []wanted{{"api", net.JoinHostPort(p.cfg.API.HostIP.String(), fmt.Sprint(p.cfg.API.Port)), api.NewServer(main, p.log), nil}}
	if p.cfg.Ramdisk.Listen != "" {
		doors = append(doors, wanted{"ramdisk", p.cfg.Ramdisk.Listen, api.NewServer(ramdisk, p.log), nil})
	}
	if p.authority != nil {
		hosts, err := p.hostsDoor()
		if err != nil {
			return nil, err
		}
		doors = append(doors, hosts)
	}
	var out []door
	for _, w := range doors {
		l, err := net.Listen("tcp", w.address)
		if err != nil {
			for _, d := range out {
				d.Close()
			}
			return nil, fmt.Errorf("listen for the %s door: %w", w.name, err)
		}
		if w.tls != nil {
			l = tls.NewListener(l, w.tls)
		}
		out = append(out, door{l, w.name, w.server})
	}
	p.self = "http://" + reachable(out[0].Addr())
	return out, nil
}
