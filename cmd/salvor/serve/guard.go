package serve

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"salvor/config"
	"salvor/driver/agent"
	"salvor/fetch"
)

// guard lets the program connect to what is configured, and to its own machine where nobody comes from another.
func (p *ControlPlane) guard(n config.Networks) fetch.Guard {
	g := guardOf(p.cfg, n)
	g.Listeners = p.doors
	return g
}

// guardOf refuses this machine's own addresses, but for a control plane whose every user is an administrator: its BMCs and images may
// lie beside it, as those of a lab do.
func guardOf(c *config.Config, n config.Networks) fetch.Guard {
	g := fetch.Guard{Networks: n.Prefixes, Only: !n.Default, Own: fetch.OwnAddresses}
	if c.Default.AuthStrategy == config.NoAuth && hasRole(c, config.RoleAPI) {
		g.Own = nil
	}
	if n.Default && len(n.Prefixes) == 0 && isLoopbackOnly(c) {
		g.Networks = fetch.Loopback.Networks
	}
	return g
}

// callbackGuard is for agents, which run on other machines than this one.
func (p *ControlPlane) callbackGuard() fetch.Guard {
	g := p.guard(p.cfg.Agent.CallbackNetworks)
	g.Own = fetch.OwnAddresses
	return g
}

// bmcControl is for BMCs, of which projects say where theirs are.
func (p *ControlPlane) bmcControl() agent.Control {
	g := p.guard(p.cfg.Conductor.BMCNetworks)
	return func(_, address string, c syscall.RawConn) error { return g.Control("tcp", address, c) } // IPMI's go by UDP
}

// web is the client for what users name by URL.
func (p *ControlPlane) web() *http.Client { return fetch.Client(p.guard(p.cfg.Fetch.Networks)) }

// noteDoors keeps where we listen, for nobody is to reach our doors through us.
func (p *ControlPlane) noteDoors(doors []httpListener) {
	for _, d := range doors {
		if at, err := netip.ParseAddrPort(d.Addr().String()); err == nil {
			p.opened = append(p.opened, at)
		}
	}
}

func (p *ControlPlane) doors() []netip.AddrPort { return p.opened }

// listenAddress is where processes with a role listen; with any role, where none is named.
type listenAddress struct{ name, address, role string }

func configuredListeners(c *config.Config) []listenAddress {
	return slices.DeleteFunc([]listenAddress{
		{"api", netip.AddrPortFrom(c.API.HostIP, uint16(c.API.Port)).String(), config.RoleAPI},
		{"ramdisk", c.Ramdisk.Listen, config.RoleNetboot}, {"hosts", c.Hosts.Listen, config.RoleAPI}, {"health", c.Health.Listen, ""},
	}, func(l listenAddress) bool { return l.address == "" })
}

// isLoopbackOnly tells whether nobody can come from another machine: every listener, and every URL under which others are told to come,
// is this machine's own. Then agents and web servers are here too, as on a developer's machine.
func isLoopbackOnly(c *config.Config) bool {
	for _, at := range configuredListeners(c) {
		if host, _, err := net.SplitHostPort(at.address); err != nil || !isLoopback(host) {
			return false
		}
	}
	for _, text := range []string{c.ServiceCatalog.EndpointOverride, c.API.PublicEndpoint} {
		if u, err := url.Parse(text); text != "" && (err != nil || !isLoopback(u.Hostname())) {
			return false
		}
	}
	return len(c.Netboot.Interfaces) == 0
}

func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}

// stripErrorURL takes the URL out of an error of net/http: it may hold what opens it.
func stripErrorURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
