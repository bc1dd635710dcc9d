package system

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"salvor/diagnose"
)

// networkRules are about the configuration of interfaces and addresses.
func networkRules() []diagnose.Rule {
	return []diagnose.Rule{{Files: true, Look: findNetworkTroubles, IDs: []string{
		"network-config-invalid", "network-none-enabled", "network-interface-missing", "network-mac-changed", "network-nothing-configured",
		"network-managers-conflict", "network-gateway-unreachable", "network-address-differs", "sshd-listens-nowhere",
	}}}
}

// findNetworkTroubles reads the configuration of all managers once.
func findNetworkTroubles(s *diagnose.System) []diagnose.Finding {
	n := readNetwork(s)
	c := cover(s, n)
	return slices.Concat(findInvalidNetwork(n), findNoNetwork(s, n), findInterfaces(s, n, c), findAddresses(s, n, c), findListenAddresses(s, n, c))
}

// networkConsequences are ids that a network without an interface explains.
var networkConsequences = []string{"network-nothing-configured", "sshd-listens-nowhere"}

func findInvalidNetwork(n *network) []diagnose.Finding {
	var out []diagnose.Finding
	for _, m := range n.managers {
		if !m.enabled || len(m.problems) == 0 {
			continue
		}
		f := diagnose.Finding{
			ID: "network-config-invalid", Stage: diagnose.Network, Severity: diagnose.BlocksAccess,
			Title:    fmt.Sprintf("The service %s refuses %s: %s.", m.name, place(m.problems[0].file, m.problems[0].line), m.problems[0].text),
			Explains: networkConsequences,
			ByHand:   "Correct the lines that are named.",
		}
		for _, p := range m.problems[:min(len(m.problems), 10)] {
			f.Evidence = append(f.Evidence, fileEvidence(p.file, p.line, p.text))
			f.Confidence = max(f.Confidence, p.confidence)
		}
		switch m.name {
		case "NetworkManager":
			f.Repair = repairFiles("Give the connections to root with the mode 0600.", paths(f.Evidence)...)
			if len(m.links) > 0 { // others are read
				f.Severity = diagnose.Degrades
			} else if m.configuresAll {
				f.Severity, f.Confidence = diagnose.Degrades, 0.8
			}
		case "ifupdown":
			f.Repair = repairFiles("Comment the lines out that ifupdown refuses.", paths(f.Evidence)...)
		case "netplan":
			f.ByHand = "Correct the lines that are named, and check them with netplan generate. netplan configures nothing until all of its files are valid."
		}
		out = append(out, f)
	}
	return out
}

func findNoNetwork(s *diagnose.System, n *network) []diagnose.Finding {
	tree := s.Files
	if !n.known || n.other != "" || cloudInitWillRun(tree) || len(n.managers) == 0 {
		return nil
	}
	if slices.ContainsFunc(n.managers, func(m networkManager) bool { return m.enabled }) {
		return nil
	}
	// The manager to enable is the one that has interfaces to configure.
	best := slices.IndexFunc(n.managers, func(m networkManager) bool {
		return slices.ContainsFunc(m.links, func(l networkLink) bool { return l.active && !l.virtual && !l.unclear })
	})
	if best < 0 {
		best = slices.IndexFunc(n.managers, func(m networkManager) bool { return m.configuresAll })
	}
	if best < 0 {
		return nil // systemd-networkd is always there: nothing says that the machine had a network
	}
	m := n.managers[best]
	f := diagnose.Finding{
		ID: "network-none-enabled", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.85,
		Title:    fmt.Sprintf("Nothing configures the network at boot, because %s of %s is not enabled.", m.unit, m.name),
		Explains: networkConsequences,
		ByHand:   "Enable it with systemctl enable " + m.unit + ".",
	}
	switch managerOf(tree) {
	case systemdManager:
		link := "/etc/systemd/system/multi-user.target.wants/" + m.unit
		f.Evidence = []diagnose.Evidence{fileEvidence(link, 0, "it does not exist, and no other unit wants "+m.unit)}
		f.Repair = repairFiles("Enable "+m.unit+" for multi-user.target.", link)
		if mask := unitMask(tree, m.unit); mask != "" {
			f.Title = fmt.Sprintf("Nothing configures the network at boot, because %s of %s is masked.", m.unit, m.name)
			f.Evidence = []diagnose.Evidence{fileEvidence(mask, 0, "it leads to /dev/null or is empty")}
			f.Repair = repairFiles("Remove the mask of "+m.unit+" and enable it for multi-user.target.", mask, link)
		}
	case openrcManager:
		f.Title = "Nothing configures the network at boot, because the service networking is in no run level."
		f.Evidence = []diagnose.Evidence{fileEvidence("/etc/runlevels/boot/networking", 0, "it does not exist in any run level")}
		f.Repair = repairFiles("Add networking to the run level boot.", "/etc/runlevels/boot/networking")
		f.ByHand = "Enable it with rc-update add networking boot."
	default:
		f.Title = "Nothing configures the network at boot, because no link starts the script networking."
		f.Evidence = []diagnose.Evidence{fileEvidence("/etc/rcS.d", 0, "it has no link that starts networking")}
		f.ByHand = "Enable it with update-rc.d networking defaults."
	}
	return []diagnose.Finding{f}
}

// coverage says which interfaces of the machine the enabled managers configure.
type coverage struct {
	names   map[string][]string // by address, the names that the interface may have
	covered map[string]bool     // by address
	// automatic: a manager uses DHCP on whatever its files do not name.
	automatic bool
	unclear   bool
}

func cover(s *diagnose.System, n *network) coverage {
	c := coverage{names: map[string][]string{}, covered: map[string]bool{}, unclear: n.other != ""}
	predictable := predictableNames(s.Files)
	for _, nic := range s.NICs {
		c.names[nic.MAC] = namesOf(s, n, nic, predictable)
		for _, m := range n.managers {
			if !m.enabled {
				continue
			}
			c.unclear = c.unclear || m.partial
			for i := range m.links {
				l := &m.links[i]
				if (l.active || l.lower) && !l.virtual && l.matches(nic.MAC, c.names[nic.MAC]) {
					c.covered[nic.MAC] = true
				}
				c.unclear = c.unclear || l.unclear && l.active && !l.virtual && (l.name == "" || l.matches(nic.MAC, c.names[nic.MAC]))
			}
			c.automatic = c.automatic || m.configuresAll
		}
	}
	return c
}

func findInterfaces(s *diagnose.System, n *network, c coverage) []diagnose.Finding {
	if len(s.NICs) == 0 || cloudInitWillRun(s.Files) {
		return nil
	}
	var out []diagnose.Finding
	asked, problems := false, false
	for _, m := range n.managers {
		if !m.enabled {
			continue
		}
		asked = true
		problems = problems || len(m.problems) > 0
		for i := range m.links {
			l := &m.links[i]
			if f := c.missing(s, n, &m, l); f != nil && !slices.ContainsFunc(out, func(o diagnose.Finding) bool { return o.ID == f.ID && o.Title == f.Title }) {
				out = append(out, *f)
			}
		}
	}
	if asked && !problems && len(c.covered) == 0 && !c.unclear && !c.automatic && len(out) == 0 {
		out = append(out, nothingConfigured(s, n))
	}
	return append(out, conflicts(s, n, c)...)
}

// missing is a finding where a link means an interface that the machine does not have; nil where it has it, or where nobody can tell.
func (c *coverage) missing(s *diagnose.System, n *network, m *networkManager, l *networkLink) *diagnose.Finding {
	if l.virtual || l.unclear || !l.active && !l.lower || (l.mac == "" && strings.ContainsAny(l.name, "*?[/")) || strings.ContainsAny(l.name, "%$") || isVirtualName(l.name) {
		return nil
	}
	// biosdevname gives names of its own: em1, p3p1.
	if biosName(l.name) && firstExisting(s.Files, "/sbin/biosdevname", "/usr/sbin/biosdevname") != "" {
		return nil
	}
	byMAC := l.mac != ""
	for mac, names := range c.names {
		if (byMAC && l.mac == mac) || (!byMAC && l.matches(mac, names)) {
			return nil
		}
	}
	f := diagnose.Finding{ID: "network-interface-missing", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.9, Explains: networkConsequences}
	what := "the interface " + l.name
	if byMAC {
		f.ID, what = "network-mac-changed", "an interface with the address "+l.mac
	}
	f.Title = fmt.Sprintf("The service %s configures %s in %s, and the machine has none like that.", m.name, what, place(l.file, l.line))
	f.Evidence = []diagnose.Evidence{fileEvidence(l.file, l.line, m.name+" configures "+what)}
	for _, nic := range s.NICs[:min(len(s.NICs), 8)] {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: diagnose.FromDevice, Path: firstText(append(slices.Clone(c.names[nic.MAC]), nic.MAC)...),
			Text: "the machine has an interface with the address " + nic.MAC + ", in the system " + strings.Join(c.names[nic.MAC], " or ")})
	}
	if given := staleName(s.Files, l.name, c); given != nil {
		f.Evidence = append(f.Evidence, fileEvidence(given.file, given.line, "the name "+given.name+" is given to the address "+given.mac+", which the machine does not have"))
		f.Title = fmt.Sprintf("The service %s configures %s, which %s gives to an address that the machine does not have.", m.name, what, place(given.file, given.line))
	}
	f.ByHand = "Write the name or the address of an interface that the machine has."
	if nic, ok := onlyUncovered(s, c); ok {
		target := firstText(append(slices.Clone(c.names[nic]), nic)...)
		if byMAC {
			target = nic
		}
		f.Repair = repairFiles("Configure "+target+" in the place of "+firstText(l.name, l.mac)+".", l.file)
	}
	switch {
	case len(c.covered) == 0 && !c.unclear && (!c.automatic || len(l.addresses) > 0 || l.lower):
	case l.optional || !l.active:
		f.Severity = diagnose.Info
	default:
		f.Severity = diagnose.Degrades
	}
	return &f
}

func biosName(name string) bool {
	rest := strings.TrimLeft(name, "emp")
	return rest != name && strings.Trim(rest, "0123456789p_") == ""
}

// staleName is a rule that gives a name to an address which the machine does not have; nil without one.
func staleName(tree *diagnose.Tree, name string, c *coverage) *givenName {
	for _, given := range givenNames(tree) {
		if _, there := c.names[given.mac]; given.name == name && name != "" && !there && given.mac != "" {
			return &given
		}
	}
	return nil
}

// onlyUncovered is the one interface that nothing configures; false where there is none or a choice.
func onlyUncovered(s *diagnose.System, c *coverage) (mac string, ok bool) {
	for _, nic := range s.NICs {
		if !c.covered[nic.MAC] {
			if mac != "" {
				return "", false
			}
			mac = nic.MAC
		}
	}
	return mac, mac != ""
}

func nothingConfigured(s *diagnose.System, n *network) diagnose.Finding {
	f := diagnose.Finding{
		ID: "network-nothing-configured", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.85,
		Explains: []string{"sshd-listens-nowhere"},
		ByHand:   "Add the interface to the configuration, with DHCP or its address.",
	}
	var names []string
	file := ""
	for _, m := range n.managers {
		if !m.enabled {
			continue
		}
		names = append(names, m.name)
		switch m.name {
		case "ifupdown":
			file = interfacesPath
		case "netplan":
			file = "/etc/netplan"
		case "systemd-networkd":
			file = firstText(file, "/etc/systemd/network")
		case "NetworkManager":
			file = firstText(file, "/etc/NetworkManager/system-connections")
		default:
			file = firstText(file, "/etc/sysconfig")
		}
	}
	f.Title = fmt.Sprintf("The network is managed by %s, which configures no interface that the machine has.", strings.Join(names, " and "))
	f.Evidence = []diagnose.Evidence{fileEvidence(file, 0, "no interface of the machine is named")}
	for _, nic := range s.NICs[:min(len(s.NICs), 8)] {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: diagnose.FromDevice, Path: firstText(append(slices.Clone(nic.Names), nic.MAC)...), Text: "the machine has an interface with the address " + nic.MAC})
	}
	if len(s.NICs) == 1 {
		writes := file
		switch file {
		case "/etc/netplan":
			writes = "/etc/netplan/60-salvor.yaml"
		case "/etc/systemd/network":
			writes = "/etc/systemd/network/60-salvor.network"
		case "/etc/NetworkManager/system-connections":
			writes = "/etc/NetworkManager/system-connections/salvor.nmconnection"
		case "/etc/sysconfig":
			return f
		}
		f.Repair = repairFiles("Configure the only interface with DHCP.", writes)
	}
	return f
}

// conflicts are interfaces that two managers configure by name.
func conflicts(s *diagnose.System, n *network, c coverage) []diagnose.Finding {
	for _, nic := range s.NICs {
		var by []networkManager
		var evidence []diagnose.Evidence
		for _, m := range n.managers {
			if !m.enabled || m.name == "NetworkManager" || m.name == "ifcfg" {
				continue // NetworkManager leaves alone what others configure
			}
			i := slices.IndexFunc(m.links, func(l networkLink) bool {
				return l.active && !l.virtual && !l.unclear && (l.dhcp || len(l.addresses) > 0) && !strings.ContainsAny(l.name, "*?[") && l.matches(nic.MAC, c.names[nic.MAC])
			})
			if i >= 0 {
				by = append(by, m)
				evidence = append(evidence, fileEvidence(m.links[i].file, m.links[i].line, m.name+" configures the interface "+firstText(m.links[i].name, m.links[i].mac)))
			}
		}
		if len(by) < 2 {
			continue
		}
		return []diagnose.Finding{{
			ID: "network-managers-conflict", Stage: diagnose.Network, Severity: diagnose.Degrades, Confidence: 0.75,
			Title:    fmt.Sprintf("The interface with the address %s is configured by %s and by %s.", nic.MAC, by[0].name, by[1].name),
			Evidence: evidence,
			ByHand:   "Take the interface out of the configuration of one of the two.",
		}}
	}
	return nil
}

// networkData is the part of OpenStack's network_data.json that is compared.
type networkData struct {
	Links []struct {
		ID  string `json:"id"`
		MAC string `json:"ethernet_mac_address"`
	} `json:"links"`
	Networks []struct {
		Link    string `json:"link"`
		Type    string `json:"type"`
		Address string `json:"ip_address"`
		Netmask string `json:"netmask"`
		Routes  []struct {
			Network string `json:"network"`
			Netmask string `json:"netmask"`
			Gateway string `json:"gateway"`
		} `json:"routes"`
	} `json:"networks"`
}

// WantedNetwork is a static network that network_data gives to an interface. MAC is in lower case with colons.
type WantedNetwork struct {
	MAC      string
	Prefix   netip.Prefix
	Gateways []netip.Addr
}

// wantedNetworks reads the static networks of network_data.json.
func wantedNetworks(text json.RawMessage) []WantedNetwork {
	var data networkData
	if len(text) == 0 || len(text) > maxYAML || json.Unmarshal(text, &data) != nil {
		return nil
	}
	var out []WantedNetwork
	for _, network := range data.Networks[:min(len(data.Networks), 256)] {
		prefix, ok := parsePrefix(network.Address, network.Netmask)
		if !ok || strings.Contains(network.Type, "dhcp") {
			continue
		}
		w := WantedNetwork{Prefix: prefix}
		for _, link := range data.Links {
			if link.ID == network.Link {
				w.MAC = normalMAC(link.MAC)
			}
		}
		for _, r := range network.Routes {
			if a, err := netip.ParseAddr(r.Gateway); err == nil && (r.Network == "0.0.0.0" || r.Network == "::") {
				w.Gateways = append(w.Gateways, a)
			}
		}
		out = append(out, w)
	}
	return out
}

func findAddresses(s *diagnose.System, n *network, c coverage) []diagnose.Finding {
	wanted := wantedNetworks(s.NetworkData)
	var networks []netip.Prefix
	for _, m := range n.managers {
		for _, l := range m.links {
			networks = append(networks, l.addresses...)
		}
	}
	var out []diagnose.Finding
	for _, m := range n.managers {
		if !m.enabled || m.partial {
			continue
		}
		for i := range m.links {
			l := &m.links[i]
			if f := unreachableGateway(&m, l, networks, wanted); f != nil {
				out = append(out, *f)
			} else if f := differingAddress(&m, l, c, wanted); f != nil {
				out = append(out, *f)
			}
		}
	}
	return out
}

// unreachableGateway is a finding where a static address has a gateway outside of all networks of the machine.
func unreachableGateway(m *networkManager, l *networkLink, networks []netip.Prefix, wanted []WantedNetwork) *diagnose.Finding {
	if !l.active || l.dhcp || len(l.addresses) == 0 {
		return nil
	}
	for _, g := range l.gateways {
		if g.onLink || g.address.IsLinkLocalUnicast() || slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Masked().Contains(g.address) }) {
			continue
		}
		if slices.ContainsFunc(l.addresses, func(p netip.Prefix) bool { return p.Addr().Is4() == g.address.Is4() && p.IsSingleIP() }) {
			continue // hosters route to single addresses
		}
		line := g.line
		if line == 0 {
			line = l.line
		}
		f := &diagnose.Finding{
			ID: "network-gateway-unreachable", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.7,
			Title:    fmt.Sprintf("The gateway %s in %s lies in no network of %s.", g.address, place(l.file, line), firstText(l.name, l.mac)),
			Evidence: []diagnose.Evidence{fileEvidence(l.file, line, "the gateway is "+g.address.String())},
			ByHand:   "Write a gateway that lies in the network of the interface's address.",
		}
		for _, p := range l.addresses[:min(len(l.addresses), 4)] {
			f.Evidence = append(f.Evidence, fileEvidence(l.file, l.line, "the interface has the address "+p.String()))
		}
		for _, w := range wanted {
			for _, gateway := range w.Gateways {
				if gateway.Is4() == g.address.Is4() && gateway != g.address && slices.ContainsFunc(l.addresses, func(p netip.Prefix) bool { return p.Masked().Contains(gateway) }) {
					f.Confidence = 0.95
					f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: diagnose.FromRecord, Text: "network_data says that the gateway is " + gateway.String()})
					f.Repair = repairFiles("Write the gateway "+gateway.String()+" of network_data.", l.file)
				}
			}
		}
		return f
	}
	return nil
}

// differingAddress is a finding where the system has a static address in another network than network_data gives to the interface.
func differingAddress(m *networkManager, l *networkLink, c coverage, wanted []WantedNetwork) *diagnose.Finding {
	if !l.active || l.dhcp || len(l.addresses) == 0 || l.unclear {
		return nil
	}
	for mac, names := range c.names {
		if l.virtual || !l.matches(mac, names) {
			continue
		}
		var mine []WantedNetwork
		for _, w := range wanted {
			if w.MAC == mac {
				mine = append(mine, w)
			}
		}
		for _, w := range mine {
			same := slices.ContainsFunc(l.addresses, func(p netip.Prefix) bool { return p.Addr() == w.Prefix.Addr() })
			family := slices.ContainsFunc(l.addresses, func(p netip.Prefix) bool { return p.Addr().Is4() == w.Prefix.Addr().Is4() })
			if same || !family {
				return nil
			}
		}
		if len(mine) == 0 {
			return nil
		}
		w := mine[0]
		f := &diagnose.Finding{
			ID: "network-address-differs", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.85,
			Title: fmt.Sprintf("The file %s gives %s the address %s, and network_data says %s.", place(l.file, l.line), firstText(l.name, l.mac), l.addresses[0], w.Prefix),
			Evidence: []diagnose.Evidence{
				fileEvidence(l.file, l.line, "the address is "+l.addresses[0].String()),
				{Kind: diagnose.FromRecord, Text: "network_data gives " + w.Prefix.String() + " to the interface " + mac},
			},
			Repair: repairFiles("Write the address "+w.Prefix.String()+" and the gateway of network_data.", l.file),
			ByHand: "Write the address of network_data, or change the port if the other one is meant.",
		}
		if slices.ContainsFunc(l.addresses, func(p netip.Prefix) bool { return w.Prefix.Masked().Contains(p.Addr()) }) {
			f.Severity, f.Confidence = diagnose.Info, 0.6 // the machine can be reached, by another address
		}
		return f
	}
	return nil
}
