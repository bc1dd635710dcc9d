package system

import (
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
)

// readNetworkd reads the .network files of systemd-networkd; nil where it is not installed.
func readNetworkd(tree *diagnose.Tree) *networkManager {
	if unitFile(tree, "systemd-networkd.service") == "" {
		return nil
	}
	m := &networkManager{name: "systemd-networkd", unit: "systemd-networkd.service"}
	m.enabled, _ = serviceEnabled(tree, "systemd-networkd")
	files := map[string]string{}
	for _, folder := range []string{"/usr/lib/systemd/network", "/lib/systemd/network", "/etc/systemd/network"} {
		for _, file := range tree.Match(folder, "*.network") {
			files[path.Base(file)] = file
		}
	}
	for _, base := range slices.Sorted(maps.Keys(files))[:min(len(files), maxNetworkFiles)] {
		lines := tree.Lines(files[base])
		for _, drop := range tree.Match("/etc/systemd/network/"+base+".d", "*.conf") {
			lines = append(lines, tree.Lines(drop)...)
		}
		for _, l := range parseNetworkFile(lines) {
			l.file = files[base]
			m.links = append(m.links, l)
		}
	}
	return m
}

// networkFile is a .network file while it is read.
type networkFile struct {
	link        networkLink
	names, macs []string
	matched     bool
	via         networkGateway // of the route that is being read
	elsewhere   bool           // that route is no default one
}

// parseNetworkFile reads one .network file: a link for each name that it matches. A masked or empty one has none.
func parseNetworkFile(lines []string) []networkLink {
	f := networkFile{link: networkLink{active: true}}
	section := ""
	for _, s := range unitSettings(lines) {
		if s.Section != section || (s.Section == "Route" && s.Key == "Gateway" && f.via.address.IsValid()) {
			f.endRoute()
			section = s.Section
		}
		if s.Section == "Match" {
			f.match(s)
		} else {
			f.set(s)
		}
	}
	f.endRoute()
	if !f.matched {
		return nil
	}
	if len(f.names) == 0 {
		f.names = []string{""}
	}
	if len(f.macs) == 0 {
		f.macs = []string{""}
	}
	var out []networkLink
	for _, name := range f.names[:min(len(f.names), 64)] {
		for _, mac := range f.macs[:min(len(f.macs), 64)] {
			l := f.link
			l.name, l.mac = name, mac
			l.virtual = l.virtual || (name != "" && isVirtualName(name))
			if strings.HasPrefix(name, "!") {
				l.name, l.unclear = "", true
			}
			// Of several names or addresses, only some have to be there.
			l.optional = l.optional || len(f.names) > 1 || len(f.macs) > 1
			l.unclear = l.unclear || name == "" && mac == ""
			out = append(out, l)
		}
	}
	return out
}

func (f *networkFile) endRoute() {
	if f.via.address.IsValid() && !f.elsewhere {
		f.link.gateways = append(f.link.gateways, f.via)
	}
	f.via, f.elsewhere = networkGateway{}, false
}

// match reads a line of [Match].
func (f *networkFile) match(s sectionLine) {
	f.matched = true
	values := strings.Fields(s.Value)
	switch s.Key {
	case "Name":
		f.names, f.link.line = append(f.names, values...), s.Line
	case "MACAddress", "PermanentMACAddress":
		for _, text := range values {
			f.macs = append(f.macs, normalMAC(text))
		}
		if f.link.line == 0 {
			f.link.line = s.Line
		}
	case "Type":
		ethernet := slices.Contains(values, "ether")
		f.link.unclear = f.link.unclear || ethernet
		f.link.virtual = f.link.virtual || !ethernet
	case "Kind":
		f.link.virtual = true
	default:
		f.link.unclear = true
	}
}

// set reads a line of another section.
func (f *networkFile) set(s sectionLine) {
	l := &f.link
	no := strings.EqualFold(s.Value, "no") || strings.EqualFold(s.Value, "false")
	yes := strings.EqualFold(s.Value, "yes") || strings.EqualFold(s.Value, "true")
	switch s.Section + "." + s.Key {
	case "Network.DHCP":
		l.dhcp = !no
	case "Network.Address", "Address.Address":
		if prefix, ok := parsePrefix(s.Value, ""); ok {
			l.addresses = append(l.addresses, prefix)
		}
	case "Network.Gateway":
		if a, err := netip.ParseAddr(s.Value); err == nil {
			l.gateways = append(l.gateways, networkGateway{address: a, line: s.Line})
		}
	case "Route.Gateway":
		f.via.address, _ = netip.ParseAddr(s.Value)
		f.via.line = s.Line
	case "Route.GatewayOnLink", "Route.GatewayOnlink":
		f.via.onLink = yes
	case "Route.Destination":
		f.elsewhere = s.Value != "0.0.0.0/0" && s.Value != "::/0"
	case "Link.RequiredForOnline":
		l.optional = no
	case "Link.Unmanaged":
		l.active = !yes
	case "Link.ActivationPolicy":
		l.active = s.Value != "manual" && s.Value != "down" && s.Value != "always-down"
	}
}
