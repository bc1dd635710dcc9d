package config

import (
	"net/netip"
	"time"
)

// Networks say where the program may connect to. The zero value: nowhere.
type Networks struct {
	Prefixes []netip.Prefix
	// Default are those that nothing speaks against: neither this machine nor a cloud's metadata service.
	Default bool
}

// Fetch is [fetch]: what the program fetches for its users.
type Fetch struct {
	Networks Networks
}

// Limits is [limits]: how often somebody may be refused who has proved nothing.
type Limits struct {
	Connections, AllConnections int
	// Refusals and Logins are per second and source address, AllRefusals and AllLogins from all together; 0: no bound.
	Refusals, AllRefusals, Logins, AllLogins int
	// Burst is for how long that many may come at once.
	Burst time.Duration
	// Proxies are believed when they say for whom they ask.
	Proxies []netip.Prefix
}

// OtherNetworks is the word for what nothing speaks against.
const OtherNetworks = "default"

// networks is a list of networks; none means OtherNetworks.
var networks = valueSyntax[Networks]{many: true, allowed: "networks (ADDRESS/BITS) and addresses, separated by commas; " + OtherNetworks + " stands for all but this machine, link-local networks and the metadata services of clouds", parse: func(s string) (Networks, error) {
	return ParseNetworks(splitList(s))
}}

// prefixes is a list of networks.
var prefixes = valueSyntax[[]netip.Prefix]{many: true, allowed: "networks (ADDRESS/BITS) and addresses, separated by commas", parse: func(s string) ([]netip.Prefix, error) {
	n, err := ParseNetworks(splitList(s))
	if err == nil && n.Default && len(splitList(s)) > 0 {
		err = errForm
	}
	return n.Prefixes, err
}}

// ParseNetworks reads networks; no entries at all mean OtherNetworks.
func ParseNetworks(entries []string) (Networks, error) {
	out := Networks{Default: len(entries) == 0}
	for _, w := range entries {
		if w == OtherNetworks {
			out.Default = true
			continue
		}
		p, err := netip.ParsePrefix(w)
		if err != nil {
			a, bad := netip.ParseAddr(w)
			if bad != nil || a.Zone() != "" {
				return Networks{}, errForm
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		out.Prefixes = append(out.Prefixes, p.Masked())
	}
	return out, nil
}

var guardOptions = []Option{
	newOption("agent", "callback_networks", "", networks, func(c *Config) *Networks { return &c.Agent.CallbackNetworks },
		"The networks on which salvor calls agents. It refuses a heartbeat whose callback_url leads elsewhere, and a name that leads elsewhere at the time of the call. Empty: "+OtherNetworks+", without any address of this machine. If the control plane listens on loopback only, it also calls agents there."),
	newOption("conductor", "bmc_networks", "", networks, func(c *Config) *Networks { return &c.Conductor.BMCNetworks },
		"The networks on which salvor talks to BMCs. It refuses a node whose redfish_address or ipmi_address leads elsewhere. Empty: "+OtherNetworks+". The listeners of this control plane are never among them. If the control plane listens on loopback only, it also talks to (simulated) BMCs there."),
	newOption("fetch", "networks", "", networks, func(c *Config) *Networks { return &c.Fetch.Networks },
		"The networks from which salvor fetches kernels, ramdisks and images by URLs that users give. Empty: "+OtherNetworks+". The listeners of this control plane are never among them. If the control plane listens on loopback only, it also fetches there."),
	newOption("limits", "refusals", "100", integerSyntax(0, 1000000), func(c *Config) *int { return &c.Limits.Refusals },
		"How many refusals per second a source address may cause at endpoints without credentials (lookup, heartbeat, boot files ...) before it gets 429. Valid requests do not count, so a fleet behind one address is not throttled. 0: no bound. Addresses of this machine have no bound of their own."),
	newOption("limits", "all_refusals", "2000", integerSyntax(0, 1000000), func(c *Config) *int { return &c.Limits.AllRefusals },
		"The same bound for all source addresses together that were refused lately. All others share a second bound of the same size, so that they do not wait for the failures of strangers."),
	newOption("limits", "logins", "5", integerSyntax(0, 1000000), func(c *Config) *int { return &c.Limits.Logins },
		"How many wrong passwords or tokens per second a source address may send before it gets 429. Credentials that were valid from this address before are not throttled. 0: no bound."),
	newOption("limits", "all_logins", "100", integerSyntax(0, 1000000), func(c *Config) *int { return &c.Limits.AllLogins },
		"The same bound for all source addresses together; those refused lately and all others have one each."),
	newOption("limits", "patience", "20", secondsSyntax(1), func(c *Config) *time.Duration { return &c.Limits.Burst },
		"The burst: a source may use up the refusals of this many seconds at once."),
	newOption("limits", "connections", "1024", integerSyntax(0, 100000), func(c *Config) *int { return &c.Limits.Connections },
		"How many connections a source address (or a /64 of IPv6) may hold on all listeners together that have authenticated no request. At this number the oldest idle one is closed. Connections of hosts, of clients that have authenticated and of trusted_proxies do not count. 0: no bound."),
	newOption("limits", "all_connections", "4096", integerSyntax(0, 100000), func(c *Config) *int { return &c.Limits.AllConnections },
		"The same of all source addresses on one listener; never more than an eighth of the process's open files (ulimit -n). 0: that eighth alone. Sources that have authenticated a request in the last ten minutes are counted separately, to the same number."),
	newOption("limits", "trusted_proxies", "", prefixes, func(c *Config) *[]netip.Prefix { return &c.Limits.Proxies },
		"Proxies in front of the API. salvor takes the source address from their X-Forwarded-For."),
}
