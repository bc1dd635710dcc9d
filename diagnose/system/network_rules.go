package system

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
)

// networkRules are about the configuration of interfaces and addresses.
func networkRules() []diagnose.Rule {
	return []diagnose.Rule{{Files: true, Look: findNetworkTroubles, IDs: []string{
		"network-config-invalid", "network-none-enabled", "network-interface-missing", "network-mac-changed", "network-nothing-configured",
		"network-managers-conflict", "network-gateway-unreachable", "network-address-differs", "sshd-listens-nowhere", "network-dhcp-client-missing",
	}}, {IDs: []string{"network-driver-blocked", "network-driver-missing"}, Files: true, Look: lookNetworkDrivers}}
}

// findNetworkTroubles reads the configuration of all managers once.
func findNetworkTroubles(s *diagnose.System) []diagnose.Finding {
	n := readNetwork(s)
	c := cover(s, n)
	return slices.Concat(findInvalidNetwork(s, n), findDHCPClient(s, n), findNoNetwork(s, n), findInterfaces(s, n, c), findAddresses(s, n, c), findListenAddresses(s, n, c))
}

// networkConsequences are ids that a network without an interface explains.
var networkConsequences = []string{"network-nothing-configured", "sshd-listens-nowhere"}

func findInvalidNetwork(s *diagnose.System, n *network) []diagnose.Finding {
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
			static := m.ignoredStatic || len(wantedNetworks(s.NetworkData)) > 0
			if len(m.links) > 0 { // others are read
				f.Severity = diagnose.Degrades
			} else if m.configuresAll && !static { // it asks a DHCP server, as the connection did
				f.Severity, f.Confidence = diagnose.Degrades, 0.8
			} else if static {
				f.Title = appendToSentence(f.Title, "; without it, nothing gives the interface its static address")
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
	if line, stanza := findUnreadStanza(s); line != "" {
		f.Title = fmt.Sprintf("The file %s configures %s, and %s does not read it.", place(stanza.file, stanza.line), stanza.name, interfacesPath)
		f.Evidence = append([]diagnose.Evidence{fileEvidence(interfacesPath, 0, "no line source names "+path.Dir(stanza.file)), fileEvidence(stanza.file, stanza.line, "iface "+stanza.name)}, f.Evidence[1:]...)
		f.Confidence = 0.9
		f.Repair = repairFiles(fmt.Sprintf("Add the line %q to %s.", line, interfacesPath), interfacesPath)
		f.ByHand = "Add the line, which the file has lost."
		return f
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
		f.Repair.Loses = "If the machine had a static address, it now has another one, or none where no DHCP server answers."
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
