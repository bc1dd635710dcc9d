package system

import (
	"net/netip"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
)

// readIfcfg reads the ifcfg files of RHEL's scripts, which NetworkManager reads up to RHEL 9, and of SUSE's wicked; nil without any.
func readIfcfg(tree *diagnose.Tree) *networkManager {
	m := &networkManager{name: "ifcfg", unit: "network.service"}
	folder, suse := "/etc/sysconfig/network-scripts", false
	if !tree.Exists(folder) {
		folder, suse = "/etc/sysconfig/network", true
	}
	found := tree.Match(folder, "ifcfg-*")
	if len(found) == 0 {
		return nil
	}
	names := []string{"network"}
	if suse {
		names, m.unit = []string{"wicked", "network"}, "wicked.service"
	} else if firstExisting(tree, "/usr/lib64/NetworkManager", "/usr/lib/NetworkManager") != "" || unitFile(tree, "NetworkManager.service") != "" {
		names, m.unit = append(names, "NetworkManager"), "NetworkManager.service"
	}
	m.enabled, _ = serviceEnabled(tree, names...)
	for _, file := range found[:min(len(found), maxNetworkFiles)] {
		name := strings.TrimPrefix(path.Base(file), "ifcfg-")
		if name == "lo" || strings.ContainsAny(name, "~") || hasAnySuffix(name, ".bak", ".orig", ".rpmnew", ".rpmorig", ".rpmsave", ".old", ".template") {
			continue
		}
		l := parseIfcfg(tree.Lines(file), name, suse)
		l.file = file
		m.links = append(m.links, l)
	}
	if suse {
		for i, line := range tree.Lines(folder + "/routes") {
			fields := strings.Fields(line)
			if len(fields) < 2 || fields[0] != "default" {
				continue
			}
			if a, err := netip.ParseAddr(fields[1]); err == nil && len(m.links) > 0 {
				m.links[0].gateways = append(m.links[0].gateways, networkGateway{address: a, line: i + 1})
			}
		}
	}
	return m
}

func hasAnySuffix(name string, suffixes ...string) bool {
	return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

// parseIfcfg reads one file; name is what stands behind ifcfg-.
func parseIfcfg(lines []string, name string, suse bool) networkLink {
	settings := shellSettings(lines)
	get := func(key string) string {
		s, _ := lastSetting(settings, key)
		return s.Value
	}
	l := networkLink{active: !strings.EqualFold(get("ONBOOT"), "no")}
	if suse {
		l.name = name
		mode := strings.ToLower(get("STARTMODE"))
		l.active, l.optional = mode != "off" && mode != "manual" && mode != "", mode == "hotplug" || mode == "ifplugd"
	} else {
		l.name = get("DEVICE")
		l.mac = normalMAC(get("HWADDR"))
		if l.name == "" && l.mac == "" {
			l.name = name
		}
	}
	for _, key := range []string{"DEVICE", "HWADDR"} {
		if s, ok := lastSetting(settings, key); ok && l.line == 0 {
			l.line = s.Line
		}
	}
	protocol := strings.ToLower(get("BOOTPROTO"))
	l.dhcp = strings.Contains(protocol, "dhcp") || protocol == "bootp" || strings.EqualFold(get("DHCPV6C"), "yes")
	mask := get("PREFIX")
	if mask == "" {
		mask = get("PREFIXLEN")
	}
	if mask == "" {
		mask = get("NETMASK")
	}
	for _, s := range settings {
		if strings.HasPrefix(s.Name, "IPADDR") || s.Name == "IPV6ADDR" {
			own := mask
			if suffix := strings.TrimPrefix(s.Name, "IPADDR"); suffix != s.Name && suffix != "" {
				own = firstText(get("PREFIX"+suffix), get("NETMASK"+suffix), mask)
			}
			if prefix, ok := parsePrefix(s.Value, own); ok {
				l.addresses = append(l.addresses, prefix)
			}
		}
		if s.Name == "GATEWAY" || s.Name == "GATEWAY0" {
			if a, err := netip.ParseAddr(s.Value); err == nil {
				l.gateways = append(l.gateways, networkGateway{address: a, line: s.Line})
			}
		}
	}
	kind := strings.ToLower(get("TYPE"))
	l.virtual = isVirtualName(l.name) || (kind != "" && kind != "ethernet") || get("BONDING_OPTS") != "" || get("BONDING_MASTER") != "" || get("ETHERDEVICE") != "" ||
		get("VLAN") == "yes" || get("BRIDGE_PORTS") != "" || (get("BRIDGE") == "yes" && suse) || get("TUNNEL") != ""
	l.lower = get("MASTER") != "" || get("SLAVE") == "yes" || (!suse && get("BRIDGE") != "")
	return l
}

func firstText(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
