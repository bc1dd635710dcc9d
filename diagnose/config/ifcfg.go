package config

import (
	"net/netip"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
)

// readIfcfg reads the ifcfg files of RHEL's scripts, which NetworkManager reads up to RHEL 9, and of SUSE's wicked; nil without any.
func readIfcfg(tree *diagnose.Tree) *NetworkManager {
	m := &NetworkManager{Name: "ifcfg", Unit: "network.service"}
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
		names, m.Unit = []string{"wicked", "network"}, "wicked.service"
	} else if FirstExisting(tree, "/usr/lib64/NetworkManager", "/usr/lib/NetworkManager") != "" || UnitFile(tree, "NetworkManager.service") != "" {
		names, m.Unit = append(names, "NetworkManager"), "NetworkManager.service"
	}
	m.Enabled, _ = ServiceEnabled(tree, names...)
	for _, file := range found[:min(len(found), MaxNetworkFiles)] {
		name := strings.TrimPrefix(path.Base(file), "ifcfg-")
		if name == "lo" || strings.ContainsAny(name, "~") || hasAnySuffix(name, ".bak", ".orig", ".rpmnew", ".rpmorig", ".rpmsave", ".old", ".template") {
			continue
		}
		l := ParseIfcfg(tree.Lines(file), name, suse)
		l.File = file
		m.Links = append(m.Links, l)
	}
	if suse {
		for i, line := range tree.Lines(folder + "/routes") {
			fields := strings.Fields(line)
			if len(fields) < 2 || fields[0] != "default" {
				continue
			}
			if a, err := netip.ParseAddr(fields[1]); err == nil && len(m.Links) > 0 {
				m.Links[0].Gateways = append(m.Links[0].Gateways, NetworkGateway{Address: a, Line: i + 1})
			}
		}
	}
	return m
}

func hasAnySuffix(name string, suffixes ...string) bool {
	return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

// ParseIfcfg reads one file; name is what stands behind ifcfg-.
func ParseIfcfg(lines []string, name string, suse bool) NetworkLink {
	settings := ShellSettings(lines)
	get := func(key string) string {
		s, _ := LastSetting(settings, key)
		return s.Value
	}
	l := NetworkLink{Active: !strings.EqualFold(get("ONBOOT"), "no")}
	if suse {
		l.Name = name
		mode := strings.ToLower(get("STARTMODE"))
		l.Active, l.Optional = mode != "off" && mode != "manual" && mode != "", mode == "hotplug" || mode == "ifplugd"
	} else {
		l.Name = get("DEVICE")
		l.MAC = NormalMAC(get("HWADDR"))
		if l.Name == "" && l.MAC == "" {
			l.Name = name
		}
	}
	for _, key := range []string{"DEVICE", "HWADDR"} {
		if s, ok := LastSetting(settings, key); ok && l.Line == 0 {
			l.Line = s.Line
		}
	}
	protocol := strings.ToLower(get("BOOTPROTO"))
	l.DHCP = strings.Contains(protocol, "dhcp") || protocol == "bootp" || strings.EqualFold(get("DHCPV6C"), "yes")
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
				own = FirstText(get("PREFIX"+suffix), get("NETMASK"+suffix), mask)
			}
			if prefix, ok := ParsePrefix(s.Value, own); ok {
				l.Addresses = append(l.Addresses, prefix)
			}
		}
		if s.Name == "GATEWAY" || s.Name == "GATEWAY0" {
			if a, err := netip.ParseAddr(s.Value); err == nil {
				l.Gateways = append(l.Gateways, NetworkGateway{Address: a, Line: s.Line})
			}
		}
	}
	kind := strings.ToLower(get("TYPE"))
	l.Virtual = IsVirtualName(l.Name) || (kind != "" && kind != "ethernet") || get("BONDING_OPTS") != "" || get("BONDING_MASTER") != "" || get("ETHERDEVICE") != "" ||
		get("VLAN") == "yes" || get("BRIDGE_PORTS") != "" || (get("BRIDGE") == "yes" && suse) || get("TUNNEL") != ""
	l.Lower = get("MASTER") != "" || get("SLAVE") == "yes" || (!suse && get("BRIDGE") != "")
	return l
}

func FirstText(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// FirstNumber returns the first of the numbers that is not 0.
func FirstNumber(numbers ...int) int {
	for _, n := range numbers {
		if n != 0 {
			return n
		}
	}
	return 0
}
