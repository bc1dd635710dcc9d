package serve

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"salvor/api"
	"salvor/api/console"
	"salvor/api/ironic"
	"salvor/boot/netboot"
	"salvor/conductor"
	"salvor/conductor/node"
	"salvor/config"
	"salvor/driver"
	"salvor/driver/agent"
	"salvor/driver/ipmi"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	"salvor/store"
	"salvor/wire/native"
)

// What each floor needs of the configuration.

func isSQLite(url string) bool { return strings.HasPrefix(url, "sqlite:") }

// conductorTimeout is how long another conductor of this database may be silent; SQLite has no other.
func conductorTimeout(url string) time.Duration {
	if isSQLite(url) {
		return 0
	}
	return metal.ConductorSilence
}

func (p *ControlPlane) driverConfig(kernel, image string) (driverConfig, error) {
	url := ramdiskURL(p.cfg)
	deployKernel, deployImage := p.deployImages(kernel, image)
	rescueByArch, deployByArch := imagesByArch(p.cfg)
	cloud, err := newNeutronClient(p.cfg.Neutron)
	if err != nil {
		return driverConfig{}, err
	}
	return driverConfig{
		Files:        driver.BootFiles{URL: url, APIURL: url, Append: p.cfg.PXE.KernelAppendParams, Dirs: p.imageRoots(kernel, image)},
		Bridges:      bridgeNetworks(p.cfg.Bridge),
		IPMIClient:   ipmi.Client(p.cfg.IPMI.Client),
		IPMICipher:   p.cfg.IPMI.Cipher,
		RescueKernel: kernel, RescueRamdisk: image,
		DeployKernel: deployKernel, DeployRamdisk: deployImage,
		RescueByArch: rescueByArch, DeployByArch: deployByArch,
		ImageFormats: p.cfg.Conductor.PermittedImageFormats, ImageDirs: p.cfg.Conductor.FileURLAllowedPaths,
		Neutron: cloud, Networks: neutronNetworkConfig(p.cfg.Neutron), Callback: p.callbackGuard().Control, AgentTimeout: p.cfg.Agent.CommandTimeout, BMC: p.bmcControl(),
	}, nil
}

func (p *ControlPlane) nodeOptions() metal.Options {
	c := p.cfg
	return metal.Options{
		HashAlgorithm:          c.Conductor.RescuePasswordHashAlgorithm,
		RestrictLookup:         c.API.RestrictLookup,
		RescuePasswordInLookup: c.Agent.RescuePasswordInLookup,
		RequireTLS:             c.Agent.RequireTLS,
		Callback:               p.callbackGuard().CheckHost,
		AllowDeletingAvailable: c.Conductor.AllowDeletingAvailableNodes,
		PowerInterval:          c.Conductor.SyncPowerStateInterval,
		Checker:                &conductorChecker{p: p},
		ResourceClass:          c.Default.DefaultResourceClass,
		MaxDeploying:           c.Conductor.MaxConcurrentDeploy,
		MaxCleaning:            c.Conductor.MaxConcurrentClean,
		PowerEvents:            c.Nova.SendsPower(),
	}
}

func (p *ControlPlane) newRunner(single bool) error {
	catalog, err := json.Marshal(p.conductor.Nodes.Catalog())
	if err != nil {
		return err
	}
	host := p.cfg.Default.Host
	p.Runner, err = job.NewRunner(job.Config{
		Store: p.Store, Definitions: p.conductor.Definitions(), Workers: p.cfg.Conductor.WorkersPoolSize, Leased: !single,
		Log: p.log, Observer: p.watch,
		Conductor: job.Conductor{
			ID: p.state.id, Incarnation: uuid.NewString(), Hostname: host,
			Groups: p.groups(), Description: catalog, StartedAt: time.Now(),
		},
		Die: func(why string) {
			p.log.Error("ending the process", "why", why)
			os.Exit(70)
		},
	})
	if err == nil {
		p.permission.Alive = p.Runner.Alive // the runner is made after its conductor
	}
	return err
}

func (p *ControlPlane) powerSync() node.PowerSync {
	c := p.cfg.Conductor
	return node.PowerSync{
		Interval: c.SyncPowerStateInterval, Retries: c.PowerStateSyncMaxRetries, Force: c.ForcePowerStateDuringSync,
		Workers: c.SyncPowerStateWorkers, Groups: p.groups(),
	}
}

func (p *ControlPlane) consoleReading() node.ConsoleReading {
	return node.ConsoleReading{ReadsHere: func(n *metal.Node) bool { return p.Directory.ReadsConsole(p.state.id, n) }}
}

func (p *ControlPlane) netbootConfig(kernel, image string) netboot.Config {
	n := p.cfg.Netboot
	out := netboot.Config{
		Plans: bootPlans{p.Store}, Roots: p.imageRoots(kernel, image), TFTPDir: n.TFTPRoot, HTTPPort: p.cfg.API.Port, CacheDir: filepath.Join(p.state.path, cacheFolder), Client: p.web(), Log: p.log,
		Token: func(n *metal.Node) secret.Value { return n.AgentToken(p.key) },
		RecordProgress: func(n *metal.Node, what string) {
			p.log.Info("boot", "node", n.ID, "saw", what)
			p.nodes.RecordBootProgress(n.ID, what)
		},
		Volumes:     p.nodes.VolumePlan,
		ConfigDrive: p.configDrive,
		Failed: func(ctx context.Context, n *metal.Node, why string) {
			p.log.Warn("boot failed", "node", n.ID, "why", why)
			if err := p.nodes.BootFailed(ctx, n.ID, n.BootNumber, why); err != nil {
				p.log.Error("note a failed boot", "node", n.ID, "error", err)
			}
		},
		Refused: func(ctx context.Context, n *metal.Node, r metal.BootRefusal) {
			if err := p.nodes.RecordBootRefusal(ctx, n.ID, n.BootNumber, r); err != nil {
				p.log.Error("note a refused boot file", "node", n.ID, "error", err)
			}
		},
	}
	if p.glance != nil {
		out.Glance = p.glance
	}
	for _, i := range n.Interfaces {
		if !p.has(config.RoleNetboot) {
			break
		}
		out.Interfaces = append(out.Interfaces, bootInterface(i, n.Lease))
	}
	return out
}

// configDrive gives the image of the config drive of the node's instance; NotFound where it has none.
func (p *ControlPlane) configDrive(ctx context.Context, n *metal.Node) ([]byte, error) {
	stored, err := p.nodes.ConfigDrive(ctx, n)
	if err != nil {
		return nil, err
	}
	return agent.ConfigDriveImage(n.ID, stored)
}

// bootPlans gives the boot plans of the store, and none while the database is held. A machine that boots then gets no plan of an old
// history.
type bootPlans struct{ *store.Store }

// NodeByMAC implements netboot.Plans.
func (b bootPlans) NodeByMAC(ctx context.Context, mac string) (*metal.Node, error) {
	if b.Held() != nil {
		return nil, errHeldBoot
	}
	return b.Store.NodeByMAC(ctx, mac)
}

// NodeByBootPath implements netboot.Plans.
func (b bootPlans) NodeByBootPath(ctx context.Context, path string) (*metal.Node, error) {
	if b.Held() != nil {
		return nil, errHeldBoot
	}
	return b.Store.NodeByBootPath(ctx, path)
}

var errHeldBoot = problem.NotFoundf("no boot plan: the database is held")

func bootInterface(i config.BootInterface, lease time.Duration) netboot.Interface {
	out := netboot.Interface{Name: i.Name, Mode: netboot.Mode(i.Mode), LeaseTime: lease, Guests: i.Guests, Advertise: i.Advertise}
	if i.From.IsValid() {
		r := netboot.Range{From: i.From, To: i.To, Gateway: i.Gateway, DNS: i.DNS}
		if i.Bits > 0 {
			r.Network = netip.PrefixFrom(i.From, i.Bits).Masked()
		}
		out.Ranges = []netboot.Range{r}
	}
	return out
}

// warnOfInterfaces says once, at the start, what an operator should know of the chosen networks.
func (p *ControlPlane) warnOfInterfaces() {
	said := map[string]bool{}
	for _, d := range p.conductor.Nodes.Catalog().Drivers {
		for _, set := range d.Interfaces {
			for _, i := range set.Enabled {
				if i.Warning != "" && !said[i.Warning] {
					said[i.Warning] = true
					p.log.Warn(i.Warning, "interface", i.Name)
				}
			}
		}
	}
}

// Handlers make what answers on the main and on the ramdisk listener.
func (p *ControlPlane) Handlers() (main, ramdisks http.Handler, err error) {
	auth, err := p.authenticator()
	if err != nil {
		return nil, nil, err
	}
	main, ramdisks = p.handlersFor(auth)
	return main, ramdisks, nil
}

func (p *ControlPlane) handlersFor(auth api.Authenticator) (main, ramdisks http.Handler) {
	if p.cfg.API.LegacyRamdiskPassthru {
		p.log.Warn("[api]legacy_ramdisk_passthru is deprecated and will go: build ramdisks whose agent uses /v1/lookup and /v1/heartbeat")
	}
	cfg := ironic.Config{
		Nodes: p.nodes, Collections: metal.NewCollections(p.Store, p.nodes, p.cfg.API.StrictConnectors), Directory: p.Directory, Timeline: p.Store,
		Auth: p.counted(auth), Policy: p.policy(), LockPatience: time.Duration(p.cfg.Conductor.NodeLockedRetryAttempts) * p.cfg.Conductor.NodeLockedRetryInterval, MaxLimit: p.cfg.API.MaxLimit, PublicEndpoint: p.cfg.API.PublicEndpoint,
		HeartbeatTimeout: int(p.cfg.API.RamdiskHeartbeatTimeout / time.Second), ImageFormats: p.cfg.Conductor.PermittedImageFormats, LegacyPassthru: p.cfg.API.LegacyRamdiskPassthru, Log: p.log,
	}
	return p.mount(console.RedirectBrowsers(ironic.New(cfg), p.log), p.faces(auth), pathHandler{native.SitePath + "/", p.sitesDoor(cfg)}), p.mount(ironic.NewRamdisk(cfg), nil)
}

// stalled says since when the database takes no changes, and why; empty: it does.
func (p *ControlPlane) stalled() string {
	since, why := p.Store.WriteFailure()
	if why == "" {
		return ""
	}
	return "the database takes no changes since " + record.Moment(since) + ": " + why
}

// unchangeable gives the reason why nothing can be changed now; empty: changes are possible.
func (p *ControlPlane) unchangeable() string {
	if held := p.Store.Held(); held != nil {
		return "nothing acts on the database since " + record.Moment(held.Since) + ": " + held.Summary() + "; see: " + record.HeldNext
	}
	return p.stalled()
}

// storeOptions are those of the store of a program that serves.
func (p *ControlPlane) storeOptions(url string) store.Options {
	return store.Options{
		Logger: p.log, Now: databaseClock(url), Migrate: store.AutoMigrate(p.cfg.Database.AutoMigrate), MaxConns: p.cfg.Database.MaxPoolSize,
		PoolMode: store.PoolMode(p.cfg.Database.PoolMode), Direct: p.cfg.Database.DirectConnection.Reveal(),
		Versions: conductor.Versions(), BacklogLimit: p.cfg.Conductor.BacklogLimit,
		NoNodeHistory: !p.cfg.Conductor.NodeHistory, PruneBatch: p.cfg.Conductor.NodeHistoryCleanupBatchCount,
	}
}
