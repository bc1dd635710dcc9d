package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"salvor/api"
	"salvor/api/console"
	"salvor/api/ironic"
	"salvor/boot/netboot"
	"salvor/boot/ramdisk"
	"salvor/conductor"
	"salvor/conductor/node"
	"salvor/config"
	"salvor/driver"
	"salvor/driver/agent"
	"salvor/driver/ipmi"
	"salvor/driver/network"
	"salvor/job"
	"salvor/metal"
	"salvor/openstack"
	"salvor/openstack/glance"
	"salvor/openstack/nova"
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

// rescueImages are the kernel and ramdisk for nodes that name none: configured, or
// built by "salvor ramdisk build" into the state directory.
func rescueImages(cfg *config.Config) (kernel, image string) {
	if c := cfg.Conductor; c.RescueKernel != "" || c.RescueRamdisk != "" {
		return c.RescueKernel, c.RescueRamdisk
	}
	dir := ramdiskDir(cfg)
	kernel, image = filepath.Join(dir, ramdisk.FileKernel), filepath.Join(dir, ramdisk.FileInitramfs)
	for _, f := range []string{kernel, image} {
		if _, err := os.Stat(f); err != nil {
			return "", ""
		}
	}
	return kernel, image
}

func ramdiskDir(c *config.Config) string { return filepath.Join(c.Default.StatePath, "ramdisk") }

// imageRoots are the directories whose files machines may be given: those that are configured, and those of the configured
// kernels and ramdisks themselves.
func (p *ControlPlane) imageRoots(files ...string) []string { return imageRoots(p.cfg, files...) }

func imageRoots(cfg *config.Config, files ...string) []string {
	roots := append([]string{ramdiskDir(cfg)}, cfg.Conductor.FileURLAllowedPaths...)
	files = append(files, cfg.Conductor.DeployKernel, cfg.Conductor.DeployRamdisk)
	c := cfg.Conductor
	for _, byArch := range []map[string]string{c.RescueKernelByArch, c.RescueRamdiskByArch, c.DeployKernelByArch, c.DeployRamdiskByArch} {
		files = slices.AppendSeq(files, maps.Values(byArch))
	}
	for _, f := range files {
		if f = localPath(f); filepath.IsAbs(f) {
			roots = append(roots, filepath.Dir(f))
		}
	}
	return roots
}

// ramdiskURL is where ramdisks reach us: as configured, or the ramdisk door unless it is a wildcard.
func ramdiskURL(c *config.Config) string {
	if url := c.ServiceCatalog.EndpointOverride; url != "" {
		return strings.TrimRight(url, "/")
	}
	host, _, err := net.SplitHostPort(c.Ramdisk.Listen)
	if err != nil {
		return ""
	}
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.IsUnspecified() {
		return ""
	}
	return "http://" + c.Ramdisk.Listen
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

// newNeutronClient is the client of Neutron; nil if the configuration names none.
func newNeutronClient(c config.Neutron) (*network.Cloud, error) {
	client, err := newOpenStackClient(openstack.Network, "neutron", c.Credentials)
	if client == nil || err != nil {
		return nil, err
	}
	return network.NewCloud(client), nil
}

// wireNova has the conductor send Nova changes of power, if the configuration says how Nova is reached.
func (p *ControlPlane) wireNova(settings *node.Config) error {
	if !p.cfg.Nova.SendsPower() {
		return nil
	}
	client, err := newOpenStackClient(openstack.Compute, "nova", p.cfg.Nova.Credentials)
	if err == nil {
		settings.PowerEvents = nova.New(client)
	}
	return err
}

// newOpenStackClient is the client of the service that a section of the configuration names; nil if it names none.
func newOpenStackClient(s openstack.Service, section string, c config.Credentials) (*openstack.Client, error) {
	if !c.Reachable() {
		return nil, nil
	}
	a := openstack.Access{
		Section: section, Endpoint: c.EndpointOverride, AuthURL: c.AuthURL, Region: c.RegionName, Interfaces: c.ValidInterfaces,
		Username: c.Username, UserDomainID: c.UserDomainID, UserDomainName: c.UserDomainName, Password: c.Password,
		ProjectName: c.ProjectName, ProjectDomainID: c.ProjectDomainID, ProjectDomainName: c.ProjectDomainName,
		Insecure: c.Insecure, Timeout: c.Timeout,
	}
	if c.AuthType == "none" {
		a.AuthURL = ""
	}
	if c.CAFile != "" {
		var err error
		if a.CA, err = os.ReadFile(c.CAFile); err != nil {
			return nil, fmt.Errorf("[%s]cafile: %w", section, err)
		}
	}
	return openstack.New(s, a)
}

// newGlanceClient is the client of Glance; nil if the configuration names none.
func newGlanceClient(c config.Glance) (*glance.Client, error) {
	client, err := newOpenStackClient(openstack.Image, "glance", c.Credentials)
	if client == nil || err != nil {
		return nil, err
	}
	return glance.New(client), nil
}

// imageService is Glance for operations on machines; nil if the configuration names none.
func (p *ControlPlane) imageService() node.ImageService {
	if p.glance == nil {
		return nil
	}
	return p.glance
}

func neutronNetworkConfig(c config.Neutron) network.Networks {
	return network.Networks{
		Of: map[driver.Net]string{
			driver.CleaningNet: c.CleaningNetwork, driver.Provisioning: c.ProvisioningNetwork, driver.Rescuing: c.RescuingNetwork, driver.Inspection: c.InspectionNetwork,
		},
		SecurityGroups: map[driver.Net][]string{
			driver.CleaningNet: c.CleaningSecurityGroups, driver.Provisioning: c.ProvisioningSecurityGroups,
			driver.Rescuing: c.RescuingSecurityGroups, driver.Inspection: c.InspectionSecurityGroups,
		},
	}
}

// bridgeNetworks are the networks by role; none configured: the bridge interface is not offered.
func bridgeNetworks(c config.Bridge) network.Bridges {
	out := network.Bridges{}
	for net, name := range map[driver.Net]string{
		driver.Provisioning: c.ProvisioningNetwork, driver.CleaningNet: c.CleaningNetwork, driver.Inspection: c.InspectionNetwork,
		driver.Rescuing: c.RescuingNetwork, driver.Tenant: c.TenantNetwork,
	} {
		if name != "" {
			out[net] = name
		}
	}
	return out
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

// janitorInterval is how often ended jobs are dropped: asks pile up by the second.
const janitorInterval = 10 * time.Minute

// runJanitor drops ended jobs, the rows of deleted servers, and old timeline rows as often as the configuration says.
func (p *ControlPlane) runJanitor(ctx context.Context) error {
	var turns sync.WaitGroup
	turns.Go(func() { everyTurn(ctx, janitorInterval, janitorInterval, p.unlessHeld(p.dropJobs)) })
	turns.Go(func() { everyTurn(ctx, janitorInterval, 24*time.Hour, p.unlessHeld(p.dropServers)) })
	if every := p.cfg.Conductor.NodeHistoryCleanupInterval; every > 0 {
		turns.Go(func() { everyTurn(ctx, min(every, janitorInterval), every, p.unlessHeld(p.dropHistory)) })
	}
	turns.Wait()
	return nil
}

// unlessHeld skips a turn while the database is held, because an operator may need the rows that it would delete.
func (p *ControlPlane) unlessHeld(fn func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		if p.Store.Held() == nil {
			fn(ctx)
		}
	}
}

// everyTurn runs fn after first, and then once per period, until ctx ends.
func everyTurn(ctx context.Context, first, period time.Duration, fn func(context.Context)) {
	turn := time.NewTimer(first)
	defer turn.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-turn.C:
		}
		fn(ctx)
		turn.Reset(period)
	}
}

// eventDays is how long events are kept that are within the bound of their number.
const eventDays = 30

// dropHistory keeps the newest entries of each node, all that are younger than the minimum, and nothing else beyond eventDays.
func (p *ControlPlane) dropHistory(ctx context.Context) {
	c, now := p.cfg.Conductor, p.Store.Now()
	oldest := now.AddDate(0, 0, -max(c.NodeHistoryMinimumDays, eventDays))
	if _, err := p.Store.Prune(ctx, oldest, now.AddDate(0, 0, -c.NodeHistoryMinimumDays), c.NodeHistoryMaxEntries); err != nil && ctx.Err() == nil {
		p.log.Error("drop old timeline rows", "error", err)
	}
}

func (p *ControlPlane) dropServers(ctx context.Context) {
	oldest := p.Store.Now().AddDate(0, 0, -max(p.cfg.Conductor.NodeHistoryMinimumDays, eventDays))
	if _, err := p.Store.PruneServers(ctx, oldest); err != nil && ctx.Err() == nil {
		p.log.Error("drop the rows of deleted servers", "error", err)
	}
}

// dropJobs drops ended jobs: their story is in the timeline; asks and commands are of no use once answered.
func (p *ControlPlane) dropJobs(ctx context.Context) {
	for class, keep := range map[job.Class]time.Duration{job.Ask: 10 * time.Minute, job.Command: 24 * time.Hour, job.Operation: 7 * 24 * time.Hour} {
		if _, err := p.Store.PruneJobs(ctx, p.Store.Now().Add(-keep), class); err != nil && ctx.Err() == nil {
			p.log.Error("drop ended jobs", "class", class, "error", err)
		}
	}
	// Longer than any operation: one that runs an action again looks for the order of its first run.
	if _, err := p.Store.PruneOrders(ctx, p.Store.Now().Add(-7*24*time.Hour)); err != nil && ctx.Err() == nil {
		p.log.Error("drop finished orders", "error", err)
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
	return "the database takes no changes since " + since.UTC().Format(time.RFC3339) + ": " + why
}

// unchangeable gives the reason why nothing can be changed now; empty: changes are possible.
func (p *ControlPlane) unchangeable() string {
	if held := p.Store.Held(); held != nil {
		return "nothing acts on the database since " + held.Since.UTC().Format(time.RFC3339) + ": " + held.Summary() + "; see: " + record.HeldNext
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

// reapDeadConductors frees what the conductors of another database hold in a SQLite file that was made of it: the lock proves that they
// do not serve this one. On PostgreSQL their silence tells.
func (p *ControlPlane) reapDeadConductors(ctx context.Context) error {
	if !isSQLite(p.cfg.Database.Connection.Reveal()) {
		return nil
	}
	all, err := p.Store.Conductors(ctx)
	for _, c := range all {
		if err == nil && c.ID != p.state.id {
			p.log.Info("a conductor of the database that this one was made of: its jobs are free", "conductor", c.Hostname)
			err = p.Store.Retire(ctx, c)
		}
	}
	return err
}
