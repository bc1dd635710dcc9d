package config

import (
	"net/netip"
	"path"
	"strings"

	"salvor/diagnose"
)

// readNetworkManager reads NetworkManager's connections; nil where it is not installed.
func readNetworkManager(tree *diagnose.Tree) *NetworkManager {
	if FirstExisting(tree, "/usr/sbin/NetworkManager", "/usr/bin/NetworkManager") == "" && UnitFile(tree, "NetworkManager.service") == "" {
		return nil
	}
	m := &NetworkManager{Name: "NetworkManager", Unit: "NetworkManager.service", ConfiguresAll: true}
	m.Enabled, _ = ServiceEnabled(tree, "NetworkManager", "networkmanager")
	files := append([]string{"/etc/NetworkManager/NetworkManager.conf"}, tree.Match("/etc/NetworkManager/conf.d", "*.conf")...)
	plugin, managed := false, false // of ifupdown
	for _, file := range append(files, tree.Match("/usr/lib/NetworkManager/conf.d", "*.conf")...) {
		for _, l := range UnitSettings(tree.Lines(file)) {
			switch l.Section + "." + l.Key {
			case "main.no-auto-default":
				m.ConfiguresAll = m.ConfiguresAll && !strings.Contains(l.Value, "*")
			case "main.plugins":
				plugin = strings.Contains(l.Value, "ifupdown")
			case "ifupdown.managed":
				managed = strings.EqualFold(l.Value, "true") || l.Value == "1"
			}
		}
	}
	m.LeavesToIfupdown = plugin && !managed
	const state = "/var/lib/NetworkManager/NetworkManager.state"
	for _, l := range UnitSettings(tree.Lines(state)) {
		if l.Section == "main" && l.Key == "NetworkingEnabled" {
			m.Off = nil
			if strings.EqualFold(l.Value, "false") || l.Value == "0" || strings.EqualFold(l.Value, "no") {
				m.Off = &NetworkProblem{File: state, Line: l.Line, Text: "NetworkingEnabled=" + l.Value}
			}
		}
	}
	const folder = "/etc/NetworkManager/system-connections"
	others := false // connections over radio and the like, by which the machine may be reached
	found := tree.Match(folder, "*")
	for _, file := range found[:min(len(found), MaxNetworkFiles)] {
		base := path.Base(file)
		info, err := tree.Stat(file)
		if err != nil || !info.Mode().IsRegular() || base[0] == '.' || strings.HasSuffix(base, "~") {
			continue
		}
		if owner := diagnose.OwnerOf(info); owner.UID != 0 || info.Mode()&0o077 != 0 {
			m.Problems = append(m.Problems, NetworkProblem{file, 0, "NetworkManager ignores it, because it belongs to another user than root or its mode is not 0600 but " + ModeText(info), 0.93})
			l, isWired := ParseKeyfile(tree.Lines(file))
			m.IgnoredStatic = m.IgnoredStatic || isWired && !l.DHCP && len(l.Addresses) > 0
			continue
		}
		if l, ok := ParseKeyfile(tree.Lines(file)); ok {
			l.File = file
			if l.HeldBy != nil {
				l.HeldBy.File = file
			}
			m.Links = append(m.Links, l)
			if !l.Active && !l.Virtual && !l.Unclear { // NetworkManager makes no connection of its own for an interface that has one
				m.Inactive = append(m.Inactive, l)
			}
		} else {
			others = true
		}
	}
	if others {
		m.Inactive = nil
	}
	return m
}

// ParseKeyfile reads a connection; false for those of no wired interface.
func ParseKeyfile(lines []string) (NetworkLink, bool) {
	l := NetworkLink{Active: true, Optional: true}
	kind, named := "", false
	for _, s := range UnitSettings(lines) {
		switch s.Section + "." + s.Key {
		case "connection.type":
			kind = s.Value
		case "connection.interface-name":
			l.Name, l.Line, named = s.Value, s.Line, true
		case "connection.master", "connection.controller":
			l.Lower = true
		case "connection.autoconnect":
			if l.Active = !strings.EqualFold(s.Value, "false") && s.Value != "0"; !l.Active {
				l.HeldBy = &NetworkProblem{Line: s.Line, Text: "autoconnect=" + s.Value}
			}
		case "ethernet.mac-address", "802-3-ethernet.mac-address":
			l.MAC = NormalMAC(s.Value)
			if !named {
				l.Line = s.Line
			}
		case "match.interface-name", "match.path", "match.driver":
			l.Unclear = true
		case "ipv4.method", "ipv6.method":
			l.DHCP = l.DHCP || s.Value == "auto" || s.Value == "dhcp"
		case "ipv4.gateway", "ipv6.gateway":
			if a, err := netip.ParseAddr(s.Value); err == nil {
				l.Gateways = append(l.Gateways, NetworkGateway{Address: a, Line: s.Line})
			}
		default:
			number := strings.TrimPrefix(s.Key, "address")
			if (s.Section != "ipv4" && s.Section != "ipv6") || number == s.Key || strings.Trim(number, "0123456789") != "" {
				continue
			}
			address, gateway, _ := strings.Cut(s.Value, ",")
			if prefix, ok := ParsePrefix(strings.TrimSpace(address), ""); ok {
				l.Addresses = append(l.Addresses, prefix)
			}
			if a, err := netip.ParseAddr(strings.TrimSpace(gateway)); err == nil && !a.IsUnspecified() {
				l.Gateways = append(l.Gateways, NetworkGateway{Address: a, Line: s.Line})
			}
		}
	}
	l.Virtual = kind != "ethernet" && kind != "802-3-ethernet"
	if l.Name == "" && l.MAC == "" {
		l.Name = "*" // any wired interface
	}
	// NetworkManager itself makes routes to gateways outside of the network.
	for i := range l.Gateways {
		l.Gateways[i].OnLink = true
	}
	return l, kind != "" && kind != "wifi" && kind != "loopback"
}
