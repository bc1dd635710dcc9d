package config

import (
	"net/netip"
	"time"
)

// Networks say where the program may connect to. The zero value: nowhere.
type Networks struct {
	Listed []netip.Prefix
	// Others are those that nothing speaks against: neither this machine nor a cloud's metadata service.
	Others bool
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
	// Patience is for how long that many may come at once.
	Patience time.Duration
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
	if err == nil && n.Others && len(splitList(s)) > 0 {
		err = errForm
	}
	return n.Listed, err
}}

// ParseNetworks reads networks; no words at all mean OtherNetworks.
func ParseNetworks(words []string) (Networks, error) {
	out := Networks{Others: len(words) == 0}
	for _, w := range words {
		if w == OtherNetworks {
			out.Others = true
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
		out.Listed = append(out.Listed, p.Masked())
	}
	return out, nil
}

var guardOptions = []Option{
	newOption("agent", "callback_networks", "", networks, func(c *Config) *Networks { return &c.Agent.CallbackNetworks },
		"The networks on which agents are called back; a heartbeat whose callback_url leads elsewhere is refused, and so is a name that leads elsewhere when it is called. Empty: "+OtherNetworks+", without any address of this machine. A control plane that nobody reaches but its own machine takes agents there too."),
	newOption("conductor", "bmc_networks", "", networks, func(c *Config) *Networks { return &c.Conductor.BMCNetworks },
		"The networks on which BMCs are spoken to; a node whose redfish_address or ipmi_address leads elsewhere is not. Empty: "+OtherNetworks+". The doors of this control plane are never among them. A control plane that nobody reaches but its own machine speaks to BMCs there too, as simulated ones."),
	newOption("fetch", "networks", "", networks, func(c *Config) *Networks { return &c.Fetch.Networks },
		"The networks from which kernels, ramdisks and images are fetched whose URLs users give. Empty: "+OtherNetworks+". The doors of this control plane are never among them. A control plane that nobody reaches but its own machine fetches there too."),
	newOption("limits", "refusals", "100", integerSyntax(0, 1000000), func(c *Config) *int { return &c.Limits.Refusals },
		"How often in a second a source address may be refused at the doors that take no credential (lookup, heartbeat, boot files ...), before it has to wait (429). What is proved costs nothing: a fleet behind one address is not held up. 0: no bound. Addresses of this machine have none of their own."),
	newOption("limits", "all_refusals", "2000", integerSyntax(0, 1000000), func(c *Config) *int { return &c.Limits.AllRefusals },
		"The same of all sources together that were refused lately. Those that were not have as many of their own: they do not wait for what they did not do."),
	newOption("limits", "logins", "5", integerSyntax(0, 1000000), func(c *Config) *int { return &c.Limits.Logins },
		"How often in a second a source address may give a wrong password or token. Passwords and tokens that were right before from there are not held up. 0: no bound."),
	newOption("limits", "all_logins", "100", integerSyntax(0, 1000000), func(c *Config) *int { return &c.Limits.AllLogins },
		"The same of all sources together, those apart that were refused lately and those that were not."),
	newOption("limits", "patience", "20", secondsSyntax(1), func(c *Config) *time.Duration { return &c.Limits.Patience },
		"For how many seconds' worth a source may be refused at once."),
	newOption("limits", "connections", "1024", integerSyntax(0, 100000), func(c *Config) *int { return &c.Limits.Connections },
		"How many connections a source address (or a /64 of IPv6) may hold on all listeners together that have authenticated no request. At this number the oldest idle one is closed. Connections of hosts, of clients that have authenticated and of trusted_proxies do not count. 0: no bound."),
	newOption("limits", "all_connections", "4096", integerSyntax(0, 100000), func(c *Config) *int { return &c.Limits.AllConnections },
		"The same of all source addresses on one listener; never more than an eighth of the process's open files (ulimit -n). 0: that eighth alone. Sources that have authenticated a request in the last ten minutes are counted separately, to the same number."),
	newOption("limits", "trusted_proxies", "", prefixes, func(c *Config) *[]netip.Prefix { return &c.Limits.Proxies },
		"Proxies in front of the API whose X-Forwarded-For is believed when sources are told apart."),
}
