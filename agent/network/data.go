package network

import (
	"bytes"
	"encoding/json"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"salvor/problem"
)

// Bounds on what a network_data.json may ask for.
const (
	maxLinks    = 256
	maxNetworks = 256
	maxRoutes   = 1024
	maxServers  = 64
)

// Kind is what a Link is.
type Kind int

// The kinds of links.
const (
	Physical Kind = iota
	Bond
	VLAN
)

// Config is a network_data.json that was understood and checked: links come after
// those that they stand on, and every Network names one of them.
type Config struct {
	Links    []Link
	Networks []Network
	DNS      []netip.Addr
}

// Link is one interface to find or to make.
type Link struct {
	ID   string
	Kind Kind
	MAC  net.HardwareAddr // must be there for Physical, may be nil else
	MTU  int              // 0: leave
	// Of a Bond:
	Members    []string
	Mode       string // by the kernel's name: active-backup
	Miimon     int    // milliseconds
	HashPolicy string
	// Of a VLAN:
	Parent string
	Tag    int
}

// Method is how a Network gets its addresses.
type Method int

// The methods of a Network.
const (
	Static  Method = iota
	DHCP4          // ask for an IPv4 lease
	Router6        // router advertisements, which the kernel takes by itself
)

// Network is one set of addresses on one link.
type Network struct {
	Link    string
	Method  Method
	Address netip.Prefix // of Static: the address with its network's length
	Routes  []Route
}

// Route leads to a network by a gateway.
type Route struct {
	To  netip.Prefix
	Via netip.Addr
}

// The wire format. Values that different writers give different types are raw.
type dataFile struct {
	Links    []dataLink    `json:"links"`
	Networks []dataNetwork `json:"networks"`
	Services []dataService `json:"services"`
}

type dataLink struct {
	ID         string          `json:"id"`
	Type       string          `json:"type"`
	MAC        string          `json:"ethernet_mac_address"`
	MTU        json.RawMessage `json:"mtu"`
	BondLinks  []string        `json:"bond_links"`
	BondMode   json.RawMessage `json:"bond_mode"`
	BondMiimon json.RawMessage `json:"bond_miimon"`
	BondHash   string          `json:"bond_xmit_hash_policy"`
	VLANLink   string          `json:"vlan_link"`
	VLANID     json.RawMessage `json:"vlan_id"`
	VLANMAC    string          `json:"vlan_mac_address"`
}

type dataNetwork struct {
	ID       string          `json:"id"`
	Type     string          `json:"type"`
	Link     string          `json:"link"`
	Address  string          `json:"ip_address"`
	Netmask  json.RawMessage `json:"netmask"`
	Gateway  string          `json:"gateway"`
	Routes   []dataRoute     `json:"routes"`
	Services []dataService   `json:"services"`
	DNS      []string        `json:"dns_nameservers"`
}

type dataRoute struct {
	Network string          `json:"network"`
	Netmask json.RawMessage `json:"netmask"`
	Gateway string          `json:"gateway"`
}

type dataService struct {
	Type    string `json:"type"`
	Address string `json:"address"`
}

// ParseData reads a network_data.json as OpenStack writes it. What it does not know
// it leaves alone; what it knows and cannot follow is an error of the kind Invalid,
// since a machine with half of its network is worse than a clear refusal.
func ParseData(text []byte) (*Config, error) {
	var file dataFile
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, problem.Invalidf("network data: not the JSON expected: %w", err)
	}
	if len(file.Links) > maxLinks || len(file.Networks) > maxNetworks || len(file.Services) > maxServers {
		return nil, problem.Invalidf("network data: more than %d links, %d networks or %d services", maxLinks, maxNetworks, maxServers)
	}
	config := &Config{}
	if err := config.addLinks(file.Links); err != nil {
		return nil, err
	}
	for _, service := range file.Services {
		config.addDNS(service)
	}
	routes := 0
	for _, given := range file.Networks {
		if routes += len(given.Routes); routes > maxRoutes {
			return nil, problem.Invalidf("network data: more than %d routes", maxRoutes)
		}
		if err := config.addNetwork(given); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// Link finds a link by its id; nil if there is none.
func (c *Config) Link(id string) *Link {
	for i := range c.Links {
		if c.Links[i].ID == id {
			return &c.Links[i]
		}
	}
	return nil
}

// addLinks sorts them: what others stand on first.
func (c *Config) addLinks(given []dataLink) error {
	for _, kind := range []Kind{Physical, Bond, VLAN} {
		for _, d := range given {
			if kindOf(d.Type) != kind {
				continue
			}
			if d.ID == "" || c.Link(d.ID) != nil {
				return problem.Invalidf("network data: a link's id is missing or given twice: %.60q", d.ID)
			}
			link, err := c.readLink(d, kind)
			if err != nil {
				return err
			}
			c.Links = append(c.Links, link)
		}
	}
	return nil
}

// kindOf: every word that is not ours (phy, vif, tap, ovs, bridge, ...) is a port of
// the machine, named after how the cloud plugs it.
func kindOf(word string) Kind {
	switch strings.ToLower(word) {
	case "bond":
		return Bond
	case "vlan":
		return VLAN
	}
	return Physical
}

func (c *Config) readLink(d dataLink, kind Kind) (Link, error) {
	link := Link{ID: d.ID, Kind: kind}
	text := d.MAC
	if kind == VLAN && d.VLANMAC != "" {
		text = d.VLANMAC
	}
	if text != "" {
		mac, err := net.ParseMAC(text)
		if err != nil || len(mac) != 6 {
			return link, problem.Invalidf("network data: link %.60q: %.60q is no MAC address", d.ID, text)
		}
		link.MAC = mac
	}
	var err error
	if link.MTU, err = parseBoundedInt(d.MTU, 0, 65535); err != nil {
		return link, problem.Invalidf("network data: link %.60q: mtu: %w", d.ID, err)
	}
	switch kind {
	case Bond:
		err = c.readBond(&link, d)
	case VLAN:
		err = c.readVLAN(&link, d)
	default:
		if link.MAC == nil {
			err = problem.Invalidf("network data: link %.60q has no ethernet_mac_address", d.ID)
		}
	}
	return link, err
}

// bondModes are the kernel's, by number.
var bondModes = []string{"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"}

func (c *Config) readBond(link *Link, d dataLink) error {
	if len(d.BondLinks) == 0 {
		return problem.Invalidf("network data: bond %.60q has no bond_links", d.ID)
	}
	for _, id := range d.BondLinks {
		if member := c.Link(id); member == nil || member.Kind != Physical {
			return problem.Invalidf("network data: bond %.60q: %.60q is no physical link", d.ID, id)
		}
	}
	link.Members, link.HashPolicy, link.Mode = d.BondLinks, d.BondHash, bondModes[1]
	if mode := jsonText(d.BondMode); mode != "" {
		link.Mode = ""
		for i, name := range bondModes {
			if mode == name || mode == strconv.Itoa(i) {
				link.Mode = name
			}
		}
		if link.Mode == "" {
			return problem.Invalidf("network data: bond %.60q: bond_mode %.60q is not known", d.ID, mode)
		}
	}
	var err error
	if link.Miimon, err = parseBoundedInt(d.BondMiimon, 0, 60000); err != nil {
		return problem.Invalidf("network data: bond %.60q: bond_miimon: %w", d.ID, err)
	}
	if link.Miimon == 0 {
		link.Miimon = 100 // without it the kernel never sees a dead member
	}
	return nil
}

func (c *Config) readVLAN(link *Link, d dataLink) error {
	parent := c.Link(d.VLANLink)
	if parent == nil || parent.Kind == VLAN {
		return problem.Invalidf("network data: vlan %.60q: its vlan_link %.60q is no physical link or bond", d.ID, d.VLANLink)
	}
	tag, err := parseBoundedInt(d.VLANID, 1, 4094)
	if err != nil || tag == 0 {
		return problem.Invalidf("network data: vlan %.60q: vlan_id: want 1 to 4094", d.ID)
	}
	link.Parent, link.Tag = d.VLANLink, tag
	return nil
}

// jsonText gives a JSON string or number as text; null and absence give "".
func jsonText(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return strings.TrimSpace(s)
	}
	return string(raw)
}

// parseBoundedInt reads a whole number within bounds, 0 for null and absence.
func parseBoundedInt(raw json.RawMessage, low, high int) (int, error) {
	text := jsonText(raw)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, problem.Invalidf("%.40q is not within %d to %d", text, low, high)
	}
	return n, nil
}
