package config

import (
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
)

// readNetworkd reads the .network files of systemd-networkd; nil where it is not installed.
func readNetworkd(tree *diagnose.Tree) *NetworkManager {
	if UnitFile(tree, "systemd-networkd.service") == "" {
		return nil
	}
	m := &NetworkManager{Name: "systemd-networkd", Unit: "systemd-networkd.service"}
	m.Enabled, _ = ServiceEnabled(tree, "systemd-networkd")
	files := map[string]string{}
	for _, folder := range []string{"/usr/lib/systemd/network", "/lib/systemd/network", "/etc/systemd/network"} {
		for _, file := range tree.Match(folder, "*.network") {
			files[path.Base(file)] = file
		}
	}
	for _, base := range slices.Sorted(maps.Keys(files))[:min(len(files), MaxNetworkFiles)] {
		lines := tree.Lines(files[base])
		for _, drop := range tree.Match("/etc/systemd/network/"+base+".d", "*.conf") {
			lines = append(lines, tree.Lines(drop)...)
		}
		for _, l := range ParseNetworkFile(lines) {
			l.File = files[base]
			m.Links = append(m.Links, l)
		}
	}
	return m
}

// networkFile is a .network file while it is read.
type networkFile struct {
	link        NetworkLink
	names, macs []string
	matched     bool
	via         NetworkGateway // of the route that is being read
	elsewhere   bool           // that route is no default one
}

// ParseNetworkFile reads one .network file: a link for each name that it matches. A masked or empty one has none.
func ParseNetworkFile(lines []string) []NetworkLink {
	f := networkFile{link: NetworkLink{Active: true}}
	section := ""
	for _, s := range UnitSettings(lines) {
		if s.Section != section || (s.Section == "Route" && s.Key == "Gateway" && f.via.Address.IsValid()) {
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
	var out []NetworkLink
	for _, name := range f.names[:min(len(f.names), 64)] {
		for _, mac := range f.macs[:min(len(f.macs), 64)] {
			l := f.link
			l.Name, l.MAC = name, mac
			l.Virtual = l.Virtual || (name != "" && IsVirtualName(name))
			if strings.HasPrefix(name, "!") {
				l.Name, l.Unclear = "", true
			}
			// Of several names or addresses, only some have to be there.
			l.Optional = l.Optional || len(f.names) > 1 || len(f.macs) > 1
			l.Unclear = l.Unclear || name == "" && mac == ""
			out = append(out, l)
		}
	}
	return out
}

func (f *networkFile) endRoute() {
	if f.via.Address.IsValid() && !f.elsewhere {
		f.link.Gateways = append(f.link.Gateways, f.via)
	}
	f.via, f.elsewhere = NetworkGateway{}, false
}

// match reads a line of [Match].
func (f *networkFile) match(s sectionLine) {
	f.matched = true
	values := strings.Fields(s.Value)
	switch s.Key {
	case "Name":
		f.names, f.link.Line = append(f.names, values...), s.Line
	case "MACAddress", "PermanentMACAddress":
		for _, text := range values {
			f.macs = append(f.macs, NormalMAC(text))
		}
		if f.link.Line == 0 {
			f.link.Line = s.Line
		}
	case "Type":
		ethernet := slices.Contains(values, "ether")
		f.link.Unclear = f.link.Unclear || ethernet
		f.link.Virtual = f.link.Virtual || !ethernet
	case "Kind":
		f.link.Virtual = true
	default:
		f.link.Unclear = true
	}
}

// set reads a line of another section.
func (f *networkFile) set(s sectionLine) {
	l := &f.link
	no := strings.EqualFold(s.Value, "no") || strings.EqualFold(s.Value, "false")
	yes := strings.EqualFold(s.Value, "yes") || strings.EqualFold(s.Value, "true")
	switch s.Section + "." + s.Key {
	case "Network.DHCP":
		l.DHCP = !no
	case "Network.Address", "Address.Address":
		if prefix, ok := ParsePrefix(s.Value, ""); ok {
			l.Addresses = append(l.Addresses, prefix)
		}
	case "Network.Gateway":
		if a, err := netip.ParseAddr(s.Value); err == nil {
			l.Gateways = append(l.Gateways, NetworkGateway{Address: a, Line: s.Line})
		}
	case "Route.Gateway":
		f.via.Address, _ = netip.ParseAddr(s.Value)
		f.via.Line = s.Line
	case "Route.GatewayOnLink", "Route.GatewayOnlink":
		f.via.OnLink = yes
	case "Route.Destination":
		f.elsewhere = s.Value != "0.0.0.0/0" && s.Value != "::/0"
	case "Link.RequiredForOnline":
		l.Optional = no
	case "Link.Unmanaged":
		l.Active = !yes
	case "Link.ActivationPolicy":
		l.Active = s.Value != "manual" && s.Value != "down" && s.Value != "always-down"
	}
}
