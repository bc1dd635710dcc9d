package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"salvor/conductor/node"
	"salvor/config"
	"salvor/driver"
	"salvor/driver/network"
	"salvor/fetch"
	"salvor/metal"
	"salvor/problem"
)

// What an operation needs is checked where it is asked for, by the drivers' own rules. A process that is no conductor of the
// node's group applies the rules to what a live conductor of that group published of its configuration.

// publishedConfig is what a conductor tells of its configuration for that. It holds no secret.
type publishedConfig struct {
	URL           string                 `json:"url"`
	Append        string                 `json:"append,omitempty"`
	Dirs          []string               `json:"dirs,omitempty"`
	RescueKernel  string                 `json:"rescue_kernel,omitempty"`
	RescueRamdisk string                 `json:"rescue_ramdisk,omitempty"`
	DeployKernel  string                 `json:"deploy_kernel,omitempty"`
	DeployRamdisk string                 `json:"deploy_ramdisk,omitempty"`
	RescueByArch  map[string]node.Images `json:"rescue_by_arch,omitempty"`
	DeployByArch  map[string]node.Images `json:"deploy_by_arch,omitempty"`
	Bridges       network.Bridges        `json:"bridges,omitempty"`
	Neutron       bool                   `json:"neutron,omitempty"`
	Glance        bool                   `json:"glance,omitempty"`
	Networks      map[driver.Net]string  `json:"networks,omitempty"`
	ImageFormats  []string               `json:"image_formats,omitempty"`
	ImageDirs     []string               `json:"image_dirs,omitempty"`
	InspectionURL string                 `json:"inspection_url,omitempty"`
	Clean         bool                   `json:"automated_clean,omitempty"`
}

// encodePublishedConfig is the configuration of this conductor as others are told of it.
func encodePublishedConfig(d driverConfig, c node.Config) (json.RawMessage, error) {
	return json.Marshal(publishedConfig{
		URL: d.Files.URL, Append: d.Files.Append, Dirs: d.Files.Dirs,
		RescueKernel: c.RescueKernel, RescueRamdisk: c.RescueRamdisk, DeployKernel: c.DeployKernel, DeployRamdisk: c.DeployRamdisk,
		RescueByArch: c.RescueByArch, DeployByArch: c.DeployByArch,
		Bridges: d.Bridges, Neutron: d.Neutron != nil, Glance: c.Glance != nil, Networks: d.Networks.Of, ImageFormats: d.ImageFormats, ImageDirs: d.ImageDirs,
		InspectionURL: c.InspectionURL, Clean: c.AutomatedClean,
	})
}

// checker makes what a conductor published a conductor that checks and does nothing else. glance is what this process asks; nil: none.
func (p publishedConfig) checker(glance node.ImageService) *node.Conductor {
	d := driverConfig{
		Files:   driver.BootFiles{URL: p.URL, APIURL: p.URL, Append: p.Append, Dirs: p.Dirs, Remote: true},
		Bridges: p.Bridges, Networks: network.Networks{Of: p.Networks},
		RescueKernel: p.RescueKernel, RescueRamdisk: p.RescueRamdisk, DeployKernel: p.DeployKernel, DeployRamdisk: p.DeployRamdisk,
		RescueByArch: p.RescueByArch, DeployByArch: p.DeployByArch,
		ImageFormats: p.ImageFormats, ImageDirs: p.ImageDirs, Remote: true,
	}
	if p.Neutron {
		d.Neutron = network.NewCloud(nil)
	}
	if !p.Glance {
		glance = nil
	}
	return node.New(node.Config{
		Glance: glance, GlanceElsewhere: p.Glance && glance == nil, FilesElsewhere: true,
		Drivers: hardwareTypes(d), RescueKernel: p.RescueKernel, RescueRamdisk: p.RescueRamdisk, DeployKernel: p.DeployKernel, DeployRamdisk: p.DeployRamdisk,
		RescueByArch: p.RescueByArch, DeployByArch: p.DeployByArch,
		InspectionURL: p.InspectionURL, AutomatedClean: p.Clean,
	})
}

// conductorChecker is metal.Checker over all live conductors of a node's group.
type conductorChecker struct {
	p    *ControlPlane
	mu   sync.Mutex
	made map[string]*node.Conductor // by what was published
}

// maxCheckers bounds what is remembered of conductors that are gone.
const maxCheckers = 64

// Preflight gives the reasons of the conductor that has the fewest: if one of the group can do it, the operation is admitted.
func (k *conductorChecker) Preflight(ctx context.Context, n *metal.Node, ports []*metal.Port, op metal.Operation) metal.Preflight {
	best, _ := fewestOf(k, n, func(c *node.Conductor) (metal.Preflight, int) {
		told := c.Preflight(ctx, n, ports, op)
		return told, len(told.Reasons)
	})
	return best
}

// CheckSettings gives the reasons of the conductor that has the fewest.
func (k *conductorChecker) CheckSettings(n *metal.Node) []metal.Reason {
	best, _ := fewestOf(k, n, func(c *node.Conductor) ([]metal.Reason, int) {
		told := c.CheckSettings(n)
		return told, len(told)
	})
	return best
}

// fewestOf asks each live conductor that may work on a node, and gives the answer with the fewest reasons. A conductor whose release
// publishes nothing to check by has no reasons.
func fewestOf[A any](k *conductorChecker, n *metal.Node, ask func(*node.Conductor) (A, int)) (best A, found bool) {
	all, err := k.p.Directory.Conductors(context.Background())
	if err != nil {
		return best, false
	}
	least := 0
	for _, one := range all {
		if _, ok := one.Catalog.Driver(n.Driver); !ok || !one.Alive || !slices.Contains(one.Groups, strings.ToLower(n.ConductorGroup)) {
			continue
		}
		var told A
		reasons := 0
		if c := k.of(one); c != nil {
			told, reasons = ask(c)
		}
		if !found || reasons < least {
			best, least, found = told, reasons, true
		}
	}
	return best, found
}

// of gives what checks for a conductor; nil where its release publishes nothing to check by.
func (k *conductorChecker) of(one metal.LiveConductor) *node.Conductor {
	if k.p.conductor != nil && one.ID == k.p.state.id {
		return k.p.conductor.Nodes
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	text := string(one.Catalog.Preflight)
	if c, ok := k.made[text]; ok || text == "" {
		return c
	}
	var p publishedConfig
	if err := json.Unmarshal(one.Catalog.Preflight, &p); err != nil {
		return nil
	}
	if k.made == nil || len(k.made) >= maxCheckers {
		k.made = map[string]*node.Conductor{}
	}
	c := p.checker(k.p.imageService())
	c.CheckPlan, c.KernelArch = k.p.checkPlan(), k.p.kernelArch() // boot files are served here, or given to sites
	k.made[text] = c
	return c
}

// webFile asks web servers for images. Our routes, names, proxies, keys and trust store say nothing of what an agent or a firmware
// reaches: only a server that has no such file, or leads where no agent follows, refuses for all.
func (p *ControlPlane) webFile() func(context.Context, string, node.Fetcher) error {
	prober := fetch.NewProber(p.guard(p.cfg.Fetch.Networks), time.Now)
	return func(ctx context.Context, url string, by node.Fetcher) error {
		err := prober.Ask(ctx, url)
		if by == node.FetchedByUs || errors.Is(err, fetch.ErrMissing) || by == node.FetchedByAgent && errors.Is(err, fetch.ErrRedirect) {
			return err
		}
		return nil
	}
}

// checkFileReadable tells why a kernel, ramdisk or image of this machine cannot be given to machines. webFile checks URLs.
func checkFileReadable(file string) error {
	if strings.Contains(file, "://") {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return problem.Invalidf("%w", stripErrorURL(err))
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return problem.Invalidf("%w", stripErrorURL(err))
	case !info.Mode().IsRegular():
		return problem.Invalidf("it is no regular file")
	case info.Size() == 0:
		return problem.Invalidf("it is empty")
	}
	return nil
}

// localFiles gives readable where this process itself serves boot files; elsewhere they lie on another machine.
func (p *ControlPlane) localFiles() func(string) error {
	if !p.has(config.RoleAPI) {
		return nil
	}
	return checkFileReadable
}

// checkPlan gives the check of boot plans where this process itself serves boot files.
func (p *ControlPlane) checkPlan() func(ctx context.Context, plan *metal.BootPlan, cpuArch string) error {
	if !p.has(config.RoleAPI) {
		return nil
	}
	own := strings.TrimRight(ramdiskURL(p.cfg), "/")
	return func(ctx context.Context, plan *metal.BootPlan, cpuArch string) error {
		return p.boot.CheckPlan(ctx, plan, cpuArch, plan.URL == own) // a site has a URL of its own
	} // p.boot is made after the conductor
}

// kernelArch reads the architecture of kernels where this process itself serves boot files.
func (p *ControlPlane) kernelArch() func(string) string {
	if !p.has(config.RoleAPI) {
		return nil
	}
	return func(kernel string) string { return p.boot.KernelArch(kernel) } // as above
}

// freeAddress tells why this process's DHCP has no address for a machine.
func (p *ControlPlane) freeAddress(n *metal.Node, ports []*metal.Port) error {
	if p.boot == nil {
		return nil
	}
	macs := make([]string, len(ports))
	for i, port := range ports {
		macs[i] = port.Address
	}
	if err := p.boot.FreeAddress(macs); err != nil {
		return problem.Invalidf("node %s: %w", n.ID, err)
	}
	return nil
}

// configuredRamdisks tells what is wrong with the configured rescue and deploy ramdisks, as the check of an operation would.
func configuredRamdisks(cfg *config.Config) []error {
	var out []error
	kernel, image := rescueImages(cfg)
	deployKernel, deployImage := deployImages(cfg, kernel, image)
	files := driver.BootFiles{URL: "-", APIURL: "-", Append: cfg.PXE.KernelAppendParams, Dirs: imageRoots(cfg, kernel, image)}
	type images struct{ options, kernel, image string }
	pairs := []images{{"rescue_kernel and rescue_ramdisk", kernel, image}}
	if deployKernel != kernel || deployImage != image {
		pairs = append(pairs, images{"deploy_kernel and deploy_ramdisk", deployKernel, deployImage})
	}
	rescueByArch, deployByArch := imagesByArch(cfg)
	for _, arch := range slices.Sorted(maps.Keys(deployByArch)) {
		of, rescues := deployByArch[arch], rescueByArch[arch]
		pairs = append(pairs, images{"rescue_kernel_by_arch and rescue_ramdisk_by_arch of " + arch, rescues.Kernel, rescues.Ramdisk})
		if of != rescues {
			pairs = append(pairs, images{"deploy_kernel_by_arch and deploy_ramdisk_by_arch of " + arch, of.Kernel, of.Ramdisk})
		}
	}
	for _, pair := range pairs {
		if pair.kernel == "" && pair.image == "" {
			continue
		}
		err := files.Check(driver.Ramdisk{Kernel: pair.kernel, Image: pair.image})
		if err == nil {
			for _, file := range []string{pair.kernel, pair.image} {
				if wrong := checkFileReadable(localPath(file)); wrong != nil && err == nil {
					err = fmt.Errorf("%s: %w", file, wrong)
				}
			}
		}
		if err != nil {
			out = append(out, problem.Invalidf("[conductor]%s: %w", pair.options, err))
		}
	}
	return out
}

// localPath is the path of a file URL; anything else is as it is.
func localPath(file string) string { return strings.TrimPrefix(file, "file://") }
