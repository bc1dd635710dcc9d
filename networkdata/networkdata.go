// Package networkdata reads a network_data.json, OpenStack's description of a machine's network, link by link and address by address. A line that cannot
// be followed costs itself only, and is told in plain words. The agent sets up what Parse returns; the control plane tells by the same code,
// before it touches a machine, what the agent will leave out.
package networkdata

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"salvor/problem"
	"salvor/wire/loose"
)

// Bounds on what is read of one network_data.json; the rest is left out.
const (
	maxLinks    = 256
	maxNetworks = 256
	maxRoutes   = 1024
	maxServers  = 64
	// maxLeftOut bounds the sentences of one Data.
	maxLeftOut = 32
)

// Data is what can be followed of a network_data.json. Links come after those that they stand on, and each Network is on one of the Links.
type Data struct {
	Links    []Link
	Networks []Network
	DNS      []netip.Addr
	// LeftOut says what cannot be followed and why, a clause each, such as `link "p2": it has no ethernet_mac_address`.
	LeftOut []string
	// lost has the reason for each link that was left out, by id.
	lost map[string]string
	// sameNIC has for the id of a link the id of the one before it on the same NIC.
	sameNIC map[string]string
	routes  int
	more    int // things left out beyond maxLeftOut
	// asked tells whether the text names networks at all.
	asked bool
}

// Kind is what a Link is.
type Kind int

// The kinds of links.
const (
	Physical Kind = iota
	Bond
	VLAN
)

// Link is one interface to find or to make.
type Link struct {
	ID   string
	Kind Kind
	MAC  string // six bytes as 02:00:00:00:00:01; always set for Physical, empty where nothing is asked for
	MTU  int    // 0: leave
	// Of a Bond:
	Members    []string
	Mode       string // the kernel's name, such as active-backup
	Miimon     int    // milliseconds
	HashPolicy string // the kernel's name; empty: the kernel's default
	// Of a VLAN:
	Parent string
	Tag    int
}

// Method is how a Network gets its addresses.
type Method int

// The methods of a Network.
const (
	Static  Method = iota
	DHCP4          // a lease of IPv4
	Router6        // router advertisements only, which the kernel follows by itself
	Info6          // router advertisements; DHCPv6 gives name servers
	DHCP6          // an address by DHCPv6, routes by router advertisements
)

// Network is one address on a link, or one way to ask for addresses.
type Network struct {
	ID      string
	Link    string
	Method  Method
	Address netip.Prefix // of Static: the address with the length of its network
	Routes  []Route      // of Static
	// Metric is that of the first route to each destination. Networks that come first have smaller ones.
	Metric int
}

// Route leads to a network by a gateway.
type Route struct {
	To  netip.Prefix
	Via netip.Addr // not valid: To is on the link
	// Metric orders the routes to one destination; smaller goes first.
	Metric int
}

// IsDefault tells whether the route leads everywhere.
func (r Route) IsDefault() bool { return r.To.Bits() == 0 }

// The wire format. loose.Decode makes text of numbers.
type dataFile struct {
	Links    []json.RawMessage `json:"links"`
	Networks []json.RawMessage `json:"networks"`
	Services []dataService     `json:"services"`
}

type dataLink struct {
	ID         string   `json:"id"`
	Type       string   `json:"type"`
	MAC        string   `json:"ethernet_mac_address"`
	MTU        string   `json:"mtu"`
	BondLinks  []string `json:"bond_links"`
	BondMode   string   `json:"bond_mode"`
	BondMiimon string   `json:"bond_miimon"`
	BondHash   string   `json:"bond_xmit_hash_policy"`
	VLANLink   string   `json:"vlan_link"`
	VLANID     string   `json:"vlan_id"`
	VLANMAC    string   `json:"vlan_mac_address"`
}

type dataNetwork struct {
	ID       string            `json:"id"`
	Type     string            `json:"type"`
	Link     string            `json:"link"`
	Address  string            `json:"ip_address"`
	Netmask  string            `json:"netmask"`
	Gateway  string            `json:"gateway"`
	Routes   []json.RawMessage `json:"routes"`
	Services []dataService     `json:"services"`
	DNS      []string          `json:"dns_nameservers"`
}

type dataRoute struct {
	Network string `json:"network"`
	Netmask string `json:"netmask"`
	Gateway string `json:"gateway"`
}

type dataService struct {
	Type    string `json:"type"`
	Address string `json:"address"`
}

// Parse reads a network_data.json as OpenStack writes it. Unknown keys are ignored. Invalid: the text is no JSON object, or is beyond the bounds of
// loose.Decode; everything else that cannot be followed is in LeftOut.
func Parse(text []byte) (*Data, error) {
	var file dataFile
	odd, err := loose.Decode(text, &file)
	if err != nil {
		return nil, problem.Invalidf("network data: %w", err)
	}
	d := &Data{lost: map[string]string{}, sameNIC: map[string]string{}}
	for _, path := range odd {
		d.leaveOutValue(path)
	}
	d.addLinks(elements[dataLink](d, "links", bounded(d, "links", file.Links, maxLinks)))
	for _, service := range bounded(d, "services", file.Services, maxServers) {
		d.addDNS(service)
	}
	left := len(d.LeftOut) + d.more
	networks := elements[dataNetwork](d, "networks", bounded(d, "networks", file.Networks, maxNetworks))
	d.asked = len(networks) > 0 || len(d.LeftOut)+d.more > left
	for _, n := range networks {
		d.addNetwork(n.index, n.value)
	}
	d.finish()
	return d, nil
}

// element is an element of a list, with its position in the data.
type element[T any] struct {
	index int
	value T
}

// elements decodes a list. An element that cannot be decoded, or that says that there is none, does not move the positions of those behind it.
func elements[T any](d *Data, name string, list []json.RawMessage) []element[T] {
	var out []element[T]
	for i, text := range list {
		var one []T
		odd, err := loose.Decode(slices.Concat([]byte("["), text, []byte("]")), &one)
		if err != nil { // the text was decoded as a part of the whole, so that only its bounds can be wrong
			odd = []string{"[0]"}
		}
		for _, path := range odd {
			d.leaveOutValue(fmt.Sprintf("%s[%d]%s", name, i, strings.TrimPrefix(path, "[0]")))
		}
		if len(one) > 0 {
			out = append(out, element[T]{i, one[0]})
		}
	}
	return out
}

// leaveOutValue notes a value that cannot be read, by its path in the data.
func (d *Data) leaveOutValue(path string) {
	d.leaveOut("%s: its value has a type that cannot be read", path)
}

// bounded cuts a list, and tells that.
func bounded[T any](d *Data, name string, all []T, most int) []T {
	if len(all) <= most {
		return all
	}
	d.leaveOut("%s: only the first %d of %d are used", name, most, len(all))
	return all[:most]
}

// Link finds a link by its id; nil: there is none.
func (d *Data) Link(id string) *Link {
	i := slices.IndexFunc(d.Links, func(l Link) bool { return l.ID == id })
	if i < 0 {
		return nil
	}
	return &d.Links[i]
}

// Name names the network in a sentence.
func (n Network) Name() string {
	if n.Method == Static {
		return fmt.Sprintf("network %s (%s)", quote(n.ID), n.Address)
	}
	return "network " + quote(n.ID)
}

// BondOf is the bond that a link is a member of; nil: none.
func (d *Data) BondOf(id string) *Link {
	i := slices.IndexFunc(d.Links, func(l Link) bool { return l.Kind == Bond && slices.Contains(l.Members, id) })
	if i < 0 {
		return nil
	}
	return &d.Links[i]
}

// LinksOn gives the ids of the links on NICs for which a condition holds, and of what stands on them.
func (d *Data) LinksOn(holds func(mac string) bool) map[string]bool {
	on := map[string]bool{}
	for _, link := range d.Links { // in an order in which parents come first
		switch link.Kind {
		case Physical:
			on[link.ID] = holds(link.MAC)
		case Bond:
			on[link.ID] = holds(link.MAC) || slices.ContainsFunc(link.Members, func(id string) bool { return on[id] })
		case VLAN:
			on[link.ID] = holds(link.MAC) || on[link.Parent]
		}
	}
	return on
}

// leaveOut notes one thing that cannot be followed, once.
func (d *Data) leaveOut(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	switch {
	case slices.Contains(d.LeftOut, text):
	case len(d.LeftOut) < maxLeftOut:
		d.LeftOut = append(d.LeftOut, text)
	default:
		d.more++
	}
}

// finish bounds the mtu of links that carry IPv6 and tells how much more was left out.
func (d *Data) finish() {
	for i := range d.Links {
		if d.Links[i].Kind == Bond {
			d.settleBondMTU(&d.Links[i])
		}
	}
	for i := range d.Links {
		l := &d.Links[i]
		if l.MTU != 0 && l.MTU < leastMTU6 && d.carriesIPv6(l.ID) {
			d.leaveOut("link %s: mtu %d: IPv6 needs at least %d, so the mtu is not changed", quote(l.ID), l.MTU, leastMTU6)
			l.MTU = 0
		}
	}
	if d.more > 0 {
		d.LeftOut = append(d.LeftOut, fmt.Sprintf("%d more things", d.more))
	}
}

// settleBondMTU gives a bond the mtu that its members name, if the bond names none: the kernel gives all members the mtu of their bond.
func (d *Data) settleBondMTU(bond *Link) {
	named := bond.MTU
	for _, id := range bond.Members {
		if mtu := d.Link(id).MTU; named == 0 && mtu != 0 && (bond.MTU == 0 || mtu < bond.MTU) {
			bond.MTU = mtu
		}
	}
	for _, id := range bond.Members {
		member := d.Link(id)
		if member.MTU != 0 && member.MTU != bond.MTU {
			d.leaveOut("link %s: mtu %d: it has the mtu %d of its bond %s", quote(id), member.MTU, bond.MTU, quote(bond.ID))
		}
		member.MTU = 0
	}
}

// carriesIPv6 tells whether a network on the link, or on what stands on the link, has IPv6.
func (d *Data) carriesIPv6(id string) bool {
	for _, n := range d.Networks {
		if n.Link == id && (n.Method >= Router6 || n.Method == Static && n.Address.Addr().Is6()) {
			return true
		}
	}
	return slices.ContainsFunc(d.Links, func(l Link) bool {
		return (l.Parent == id || slices.Contains(l.Members, id)) && d.carriesIPv6(l.ID)
	})
}

// addDNS takes each server once.
func (d *Data) addDNS(service dataService) {
	if !strings.EqualFold(strings.TrimSpace(service.Type), "dns") {
		return
	}
	for _, text := range strings.FieldsFunc(service.Address, func(r rune) bool { return r == ',' || r == ' ' || r == ';' }) {
		a, err := netip.ParseAddr(text)
		a = a.Unmap()
		switch {
		case err != nil || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback():
			d.leaveOut("name server %s: it is no address of a server", quote(text))
		case slices.Contains(d.DNS, a):
		case len(d.DNS) == maxServers:
			d.leaveOut("name server %s: there are more than %d", a, maxServers)
		default:
			d.DNS = append(d.DNS, a)
		}
	}
	if strings.TrimSpace(service.Address) == "" {
		d.leaveOut("a name server has no address")
	}
}

// quote shows a word of the data in an error: bounded, on one line.
func quote(text string) string { return fmt.Sprintf("%.60q", text) }
