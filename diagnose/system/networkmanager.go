package system

import (
	"net/netip"
	"path"
	"strings"

	"salvor/diagnose"
)

// readNetworkManager reads NetworkManager's connections; nil where it is not installed.
func readNetworkManager(tree *diagnose.Tree) *networkManager {
	if firstExisting(tree, "/usr/sbin/NetworkManager", "/usr/bin/NetworkManager") == "" && unitFile(tree, "NetworkManager.service") == "" {
		return nil
	}
	m := &networkManager{name: "NetworkManager", unit: "NetworkManager.service", configuresAll: true}
	m.enabled, _ = serviceEnabled(tree, "NetworkManager", "networkmanager")
	files := append([]string{"/etc/NetworkManager/NetworkManager.conf"}, tree.Match("/etc/NetworkManager/conf.d", "*.conf")...)
	for _, file := range append(files, tree.Match("/usr/lib/NetworkManager/conf.d", "*.conf")...) {
		for _, l := range unitSettings(tree.Lines(file)) {
			if l.Key == "no-auto-default" && strings.Contains(l.Value, "*") {
				m.configuresAll = false
			}
		}
	}
	const folder = "/etc/NetworkManager/system-connections"
	found := tree.Match(folder, "*")
	for _, file := range found[:min(len(found), maxNetworkFiles)] {
		base := path.Base(file)
		info, err := tree.Stat(file)
		if err != nil || !info.Mode().IsRegular() || base[0] == '.' || strings.HasSuffix(base, "~") {
			continue
		}
		if owner := diagnose.OwnerOf(info); owner.UID != 0 || info.Mode()&0o077 != 0 {
			m.problems = append(m.problems, networkProblem{file, 0, "NetworkManager ignores it, because it belongs to another user than root or its mode is not 0600 but " + modeText(info), 0.93})
			l, isWired := parseKeyfile(tree.Lines(file))
			m.ignoredStatic = m.ignoredStatic || isWired && !l.dhcp && len(l.addresses) > 0
			continue
		}
		if l, ok := parseKeyfile(tree.Lines(file)); ok {
			l.file = file
			m.links = append(m.links, l)
		}
	}
	return m
}

// parseKeyfile reads a connection; false for those of no wired interface.
func parseKeyfile(lines []string) (networkLink, bool) {
	l := networkLink{active: true, optional: true}
	kind, named := "", false
	for _, s := range unitSettings(lines) {
		switch s.Section + "." + s.Key {
		case "connection.type":
			kind = s.Value
		case "connection.interface-name":
			l.name, l.line, named = s.Value, s.Line, true
		case "connection.master", "connection.controller":
			l.lower = true
		case "connection.autoconnect":
			l.active = !strings.EqualFold(s.Value, "false") && s.Value != "0"
		case "ethernet.mac-address", "802-3-ethernet.mac-address":
			l.mac = normalMAC(s.Value)
			if !named {
				l.line = s.Line
			}
		case "match.interface-name", "match.path", "match.driver":
			l.unclear = true
		case "ipv4.method", "ipv6.method":
			l.dhcp = l.dhcp || s.Value == "auto" || s.Value == "dhcp"
		case "ipv4.gateway", "ipv6.gateway":
			if a, err := netip.ParseAddr(s.Value); err == nil {
				l.gateways = append(l.gateways, networkGateway{address: a, line: s.Line})
			}
		default:
			number := strings.TrimPrefix(s.Key, "address")
			if (s.Section != "ipv4" && s.Section != "ipv6") || number == s.Key || strings.Trim(number, "0123456789") != "" {
				continue
			}
			address, gateway, _ := strings.Cut(s.Value, ",")
			if prefix, ok := parsePrefix(strings.TrimSpace(address), ""); ok {
				l.addresses = append(l.addresses, prefix)
			}
			if a, err := netip.ParseAddr(strings.TrimSpace(gateway)); err == nil && !a.IsUnspecified() {
				l.gateways = append(l.gateways, networkGateway{address: a, line: s.Line})
			}
		}
	}
	l.virtual = kind != "ethernet" && kind != "802-3-ethernet"
	if l.name == "" && l.mac == "" {
		l.name = "*" // any wired interface
	}
	// NetworkManager itself makes routes to gateways outside of the network.
	for i := range l.gateways {
		l.gateways[i].onLink = true
	}
	return l, kind != "" && kind != "wifi" && kind != "loopback"
}
