package netboot

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
)

// Mode is how DHCP works on an interface.
type Mode string

const (
	// Authoritative serves addresses as the only DHCP server of the network.
	Authoritative Mode = "authoritative"
	// Proxy tells firmware what to boot, beside another server that gives the addresses.
	Proxy Mode = "proxy"
)

// Interface is a network interface that is served. No other is ever answered on. One that is listed
// again, with the same settings, has the ranges of both.
type Interface struct {
	Name string
	Mode Mode
	// Ranges are needed in authoritative mode. That of the interface's own network is for
	// machines on it; the others are for requests that a relay in their network sends.
	Ranges []Range
	// LeaseTime defaults to ten minutes: half of it is how soon a machine whose plan is
	// gone is told so.
	LeaseTime time.Duration
	// Guests lets machines without a plan have an address, without anything to boot. Only for labs.
	Guests bool
	// Advertise answers IPv6 router solicitations with an advertisement of nothing. Without any answer
	// iPXE waits 13 s before it goes on with IPv4. Only for networks without an IPv6 router.
	Advertise bool
}

// Config is all that a Server needs.
type Config struct {
	Plans Plans
	// Token derives the agent token of the node's current boot; nil: no plan carries one.
	Token func(*metal.Node) secret.Value
	// RecordProgress hears of contacts of a machine with a plan: "boot loader named", "fetching kernel".
	// The same of the same boot is told at most every 30 s, by any goroutine. It must return at once. May be nil.
	RecordProgress func(n *metal.Node, what string)
	// Volumes gives what a node boots whose plan leads to its volumes; nil: nobody's does.
	Volumes func(context.Context, *metal.Node) (metal.VolumePlan, error)
	// ConfigDrive gives the image of a node's config drive; NotFound where it has none. nil: none is served.
	ConfigDrive func(context.Context, *metal.Node) ([]byte, error)
	// Failed hears why a machine did not start from its volumes, at most every two seconds of each boot. May be nil.
	Failed func(ctx context.Context, n *metal.Node, why string)
	// Refused hears of a boot file that a machine with a plan asked for and did not get, at most every two seconds for each file of a boot.
	// May be nil.
	Refused func(ctx context.Context, n *metal.Node, r metal.BootRefusal)
	// Roots are the directories below which kernels and ramdisks may lie; none: only URLs are served.
	Roots []string
	// Loaders are for images; empty paths are Debian's.
	Loaders Loaders
	// SignedLoaders gives the paths of the signed boot loaders for a kernel, as a site has them of its centre; empty paths, or nil: those
	// beside the kernel, or of Loaders.
	SignedLoaders func(kernel string) (shim, grub string)
	// CacheDir takes kernels and ramdisks that plans name by URL while images are made of them: the
	// system's folder for temporary files if empty. Its files have no names.
	CacheDir string
	// Client fetches them and bounds the time until an answer begins; nil: none is fetched. Node records name
	// the URLs: give one that reaches nothing but what their writers may reach.
	Client *http.Client

	// Glance has the images that plans name as glance://UUID; nil: none is served.
	Glance ImageService

	// Interfaces may be empty: then there is no DHCP and no TFTP.
	Interfaces []Interface
	// HTTPPort is the port of our HTTP listener on each interface's address, for plans without a URL.
	HTTPPort int
	// TFTPDir holds the boot loaders, as Debian's package ipxe installs them. /usr/lib/ipxe if empty.
	TFTPDir string
	// BIOSLoader and UEFILoader name the files in it: undionly.kpxe and snponly.efi if empty.
	BIOSLoader, UEFILoader string

	Log *slog.Logger
}

const (
	defaultLease      = 10 * time.Minute
	defaultTFTPDir    = "/usr/lib/ipxe"
	defaultBIOSLoader = "undionly.kpxe"
	defaultUEFILoader = "snponly.efi"
)

// Server answers booting machines. Its HTTP side works without Run.
type Server struct {
	cfg      Config
	log      *slog.Logger
	images   *imageCache
	contacts *contactLog
	// reports bounds how often a machine is heard that fails.
	reports *contactLog

	poolMu sync.Mutex
	pools  map[string][]*addressPool // by interface; of those that lease addresses
}

// New checks the configuration; problem.Invalid says what is wrong with it.
func New(cfg Config) (*Server, error) {
	if cfg.Plans == nil {
		return nil, problem.Invalidf("boot server: no source of boot plans")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	for _, dir := range cfg.Roots {
		if !filepath.IsAbs(dir) {
			return nil, problem.Invalidf("boot server: directory %q is not an absolute path", dir)
		}
	}
	setDefault(&cfg.TFTPDir, defaultTFTPDir)
	setDefault(&cfg.BIOSLoader, defaultBIOSLoader)
	setDefault(&cfg.UEFILoader, defaultUEFILoader)
	for _, name := range []string{cfg.BIOSLoader, cfg.UEFILoader} {
		if name != filepath.Base(name) || name[0] == '.' {
			return nil, problem.Invalidf("boot server: boot loader %q is not a plain file name", name)
		}
	}
	var err error
	if cfg.Interfaces, err = checkInterfaces(cfg.Interfaces); err != nil {
		return nil, err
	}
	cfg.Loaders = cfg.Loaders.or(DebianLoaders)
	d := &downloadCache{client: cfg.Client, glance: cfg.Glance, dir: cfg.CacheDir, now: time.Now}
	return &Server{cfg: cfg, log: cfg.Log, images: &imageCache{roots: cfg.Roots, loaders: cfg.Loaders, signed: cfg.SignedLoaders, downloads: d}, contacts: newContactLog(cfg.RecordProgress, seenPause), reports: newContactLog(nil, reportPause)}, nil
}

func setDefault(s *string, value string) {
	if *s == "" {
		*s = value
	}
}

// checkInterfaces sets defaults and joins the ranges of an interface that is listed again.
func checkInterfaces(in []Interface) ([]Interface, error) {
	var out []Interface
	for _, c := range in {
		if err := c.check(); err != nil {
			return nil, err
		}
		i := slices.IndexFunc(out, func(o Interface) bool { return o.Name == c.Name })
		if i < 0 {
			out = append(out, c)
			continue
		}
		if o := out[i]; o.Mode != c.Mode || o.LeaseTime != c.LeaseTime || o.Guests != c.Guests || o.Advertise != c.Advertise {
			return nil, problem.Invalidf("boot server: interface %s is listed twice with different settings", c.Name)
		}
		out[i].Ranges = slices.Concat(out[i].Ranges, c.Ranges)
	}
	return out, nil
}

func (c *Interface) check() error {
	if c.Name == "" {
		return problem.Invalidf("boot server: an interface has no name")
	}
	if c.Mode != Authoritative && c.Mode != Proxy {
		return problem.Invalidf("boot server: interface %s: mode %q is neither %s nor %s", c.Name, c.Mode, Authoritative, Proxy)
	}
	if c.Mode == Authoritative && len(c.Ranges) == 0 {
		return problem.Invalidf("boot server: interface %s: mode %s needs an address range", c.Name, c.Mode)
	}
	for _, r := range c.Ranges {
		if !r.Network.IsValid() && r.From.Is4() {
			continue // checked with the interface's own network
		}
		if err := r.check(); err != nil {
			return problem.Invalidf("boot server: interface %s: %w", c.Name, err)
		}
	}
	if c.LeaseTime == 0 {
		c.LeaseTime = defaultLease
	}
	if c.LeaseTime < time.Minute || c.LeaseTime > 24*time.Hour {
		return problem.Invalidf("boot server: interface %s: lease time %s is not between a minute and a day", c.Name, c.LeaseTime)
	}
	return nil
}

// Run serves DHCP and TFTP on the listed interfaces until ctx ends; then it returns
// nil. An interface that cannot be served at the start is an error; one that fails later is
// opened again.
func (s *Server) Run(ctx context.Context) error {
	defer s.images.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, c := range s.cfg.Interfaces {
		l, err := s.listen(ctx, c)
		if err != nil {
			cancel()
			return err
		}
		s.log.Info("boot server listens", "interface", c.Name, "mode", c.Mode, "address", l.resp.addr)
		wg.Go(func() { s.serveInterface(ctx, c, l) })
	}
	<-ctx.Done()
	return nil
}

// serveInterface serves an interface and opens it again when it was lost, as when a bridge is remade.
func (s *Server) serveInterface(ctx context.Context, c Interface, l *servedLink) {
	for {
		err := l.serve(ctx)
		for ctx.Err() == nil {
			s.log.Warn("boot server lost an interface", "interface", c.Name, "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(2 * time.Second):
			}
			if l, err = s.listen(ctx, c); err == nil {
				break
			}
		}
		if ctx.Err() != nil {
			if l != nil {
				l.close()
			}
			return
		}
	}
}

// responder makes the part that answers for an interface with this address.
func (s *Server) responder(c Interface, addr netip.Addr) *dhcpResponder {
	r := &dhcpResponder{
		Interface: c, plans: s.cfg.Plans, recordContact: s.contacts.record, addr: addr, now: time.Now,
		bios: s.cfg.BIOSLoader, uefi: s.cfg.UEFILoader,
	}
	if s.cfg.HTTPPort != 0 {
		r.baseURL = "http://" + netip.AddrPortFrom(addr, uint16(s.cfg.HTTPPort)).String()
	}
	for _, rng := range c.Ranges {
		r.pools = append(r.pools, newPool(rng, addr))
	}
	s.poolMu.Lock()
	defer s.poolMu.Unlock()
	if s.pools == nil {
		s.pools = map[string][]*addressPool{}
	}
	s.pools[c.Name] = r.pools
	return r
}

// FreeAddress tells why a machine with these MACs would get no address: every address of every range is leased to others. A
// network that some other server leases addresses on is not judged.
func (s *Server) FreeAddress(macs []string) error {
	s.poolMu.Lock()
	defer s.poolMu.Unlock()
	leases := ""
	for _, c := range s.cfg.Interfaces {
		if c.Mode != Authoritative || len(s.pools[c.Name]) == 0 {
			return nil
		}
		for _, p := range s.pools[c.Name] {
			if p.free(macs, time.Now()) {
				return nil
			}
			leases += ", " + p.From.String() + " to " + p.To.String()
		}
	}
	if leases == "" {
		return nil
	}
	return problem.Invalidf("the boot network has no free address for the machine: all of %s are leased; widen the range in [netboot]interfaces, or wait for a lease to end", leases[2:])
}

// ownAddress is what an interface answers with: its own address, and its configuration with the
// network of each range that named none.
func ownAddress(c Interface) (Interface, netip.Addr, error) {
	prefixes, err := prefixesOf(c.Name)
	if err != nil {
		return c, netip.Addr{}, err
	}
	addr := prefixes[0].Addr()
	local := c.Mode == Proxy
	c.Ranges = slices.Clone(c.Ranges)
	for i := range c.Ranges {
		r := &c.Ranges[i]
		for _, p := range prefixes {
			if !r.Network.IsValid() && p.Contains(r.From) {
				r.Network = p.Masked()
			}
			if r.Network.IsValid() && r.Network.Contains(p.Addr()) && !local {
				addr, local = p.Addr(), true
			}
		}
		if !r.Network.IsValid() {
			return c, addr, problem.Invalidf("boot server: interface %s has no address in the network of %s: the range needs its prefix length", c.Name, r.From)
		}
		if err := r.check(); err != nil {
			return c, addr, problem.Invalidf("boot server: interface %s: %w", c.Name, err)
		}
	}
	return c, addr, nil
}

// prefixesOf lists the IPv4 addresses of an interface; there is at least one.
func prefixesOf(name string) ([]netip.Prefix, error) {
	ifc, err := net.InterfaceByName(name)
	if err != nil {
		return nil, problem.Unavailablef("boot server: interface %s: %w", name, err)
	}
	addrs, err := ifc.Addrs()
	if err != nil {
		return nil, problem.Unavailablef("boot server: interface %s: %w", name, err)
	}
	var out []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return nil, problem.Unavailablef("boot server: interface %s has no IPv4 address", name)
	}
	return out, nil
}

// isClosed tells the end of a socket that we closed from its failure.
func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) }
