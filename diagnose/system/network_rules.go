package system

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// networkRules are about the configuration of interfaces and addresses.
func networkRules() []diagnose.Rule {
	return []diagnose.Rule{{Files: true, Look: findNetworkTroubles, IDs: []string{
		"network-config-invalid", "network-none-enabled", "network-interface-missing", "network-mac-changed", "network-nothing-configured",
		"network-managers-conflict", "network-unit-invalid", "network-tool-missing", "network-gateway-unreachable", "network-address-differs", "sshd-listens-nowhere", "network-dhcp-client-missing",
	}}, {IDs: []string{"sh-missing"}, Files: true, Look: findLostShell}, {IDs: []string{"network-driver-blocked", "network-driver-missing"}, Files: true, Look: lookNetworkDrivers}}
}

// findNetworkTroubles reads the configuration of all managers once.
func findNetworkTroubles(s *diagnose.System) []diagnose.Finding {
	n := config.ReadNetwork(s)
	shadowed := findShadowedFiles(s, n, cover(s, n))
	c := cover(s, n)
	return slices.Concat(shadowed, findNetworkOff(s, n, c), findInterfaceHooks(s, n, c), findInvalidNetwork(s, n), findNetworkUnits(s, n), findNetplanTools(s, n), findDHCPClient(s, n), findNoNetwork(s, n), findInterfaces(s, n, c), findAddresses(s, n, c), findListenAddresses(s, n, c))
}

// networkConsequences are ids that a network without an interface explains.
var networkConsequences = []string{"network-nothing-configured", "sshd-listens-nowhere"}

func findInvalidNetwork(s *diagnose.System, n *config.Network) []diagnose.Finding {
	var out []diagnose.Finding
	for _, m := range n.Managers {
		if !m.Enabled || len(m.Problems) == 0 {
			continue
		}
		f := diagnose.Finding{
			ID: "network-config-invalid", Stage: diagnose.Network, Severity: diagnose.BlocksAccess,
			Title:    fmt.Sprintf("The service %s refuses %s: %s.", m.Name, place(m.Problems[0].File, m.Problems[0].Line), m.Problems[0].Text),
			Explains: networkConsequences,
			ByHand:   "Correct the lines that are named.",
		}
		for _, p := range m.Problems[:min(len(m.Problems), 10)] {
			f.Evidence = append(f.Evidence, config.FileEvidence(p.File, p.Line, p.Text))
			f.Confidence = max(f.Confidence, p.Confidence)
		}
		switch m.Name {
		case "NetworkManager":
			f.Repair = repairFiles("Give the connections to root with the mode 0600.", paths(f.Evidence)...)
			if slices.ContainsFunc(paths(f.Evidence), func(name string) bool { return othersWrite(s.Files, name) }) {
				f.Repair.Loses = "NetworkManager obeys the connections, and another account could write them, such as their routes and name servers."
			}
			static := m.IgnoredStatic || len(wantedNetworks(s.NetworkData)) > 0
			if len(m.Links) > 0 { // others are read
				f.Severity = diagnose.Degrades
			} else if m.ConfiguresAll && !static { // it asks a DHCP server, as the connection did
				f.Severity, f.Confidence = diagnose.Degrades, 0.8
			} else if static {
				f.Title = appendToSentence(f.Title, "; without it, nothing gives the interface its static address")
			}
		case "systemd-networkd":
			f.Title = fmt.Sprintf("The service systemd-networkd ignores %s: %s.", m.Problems[0].File, m.Problems[0].Text)
			f.ByHand = "Give the files that are named the mode 0644, or the mode 0640 and the group systemd-network."
			others := slices.ContainsFunc(n.Managers, func(o config.NetworkManager) bool { return o.Enabled && o.Name != m.Name && configuresInterface(o) })
			onlyDevices := !slices.ContainsFunc(m.Problems, func(p config.NetworkProblem) bool { return !strings.HasSuffix(p.File, ".netdev") })
			if others || onlyDevices || configuresInterface(m) && !m.IgnoredStatic {
				f.Severity = diagnose.Degrades // other files are read
			}
		case "ifupdown":
			f.Repair = mayLose(repairFiles("Comment the lines out that ifupdown refuses.", paths(f.Evidence)...), "A stanza that cannot be corrected does nothing, such as to load a firewall or to set routes.")
		case "netplan":
			f.ByHand = "Correct the lines that are named, and check them with netplan generate. netplan configures nothing until all of its files are valid."
		}
		out = append(out, f)
	}
	return out
}

// configuresInterface says whether a manager brings an interface of hardware up.
func configuresInterface(m config.NetworkManager) bool {
	return slices.ContainsFunc(m.Links, func(l config.NetworkLink) bool { return l.Active && !l.Virtual && l.Name != "lo" })
}

// netplanGenerator writes the configuration of the manager that netplan's files name, before systemd reads any unit.
const netplanGenerator = "/usr/lib/systemd/system-generators/netplan"

// findNetworkUnits finds an enabled manager that does not start.
func findNetworkUnits(s *diagnose.System, n *config.Network) []diagnose.Finding {
	var out []diagnose.Finding
	for _, m := range n.Managers {
		if !m.Enabled || config.ManagerOf(s.Files) != config.SystemdManager {
			continue
		}
		unit := m.Unit
		text, at := unitTrouble(s, unit)
		var masks []string
		if text == "" && lastOf(config.UnitLines(s.Files, unit), "Service", "Type") == "dbus" {
			unit = "dbus.service"
			text, at = unitTrouble(s, unit)
			for _, bus := range []string{"dbus.socket", unit} { // a service of the type dbus requires the socket
				if mask := config.UnitMask(s.Files, bus); mask != "" && (text == "" || len(masks) > 0) {
					masks = append(masks, mask)
					unit, text = path.Base(masks[0]), "it is masked"
				}
			}
		}
		evidence := []diagnose.Evidence{config.FileEvidence(at.File, at.Line, at.Key+"="+at.Value+": "+text)}
		mend := dropSetting(s.Files, at)
		if len(masks) > 0 {
			evidence[0] = config.FileEvidence(masks[0], 0, "it masks the unit")
			mend = dropMasks(masks...)
		}
		if text == "" && m.Name == "netplan" {
			generator := cmp.Or(config.FirstExisting(s.Files, netplanGenerator, strings.TrimPrefix(netplanGenerator, "/usr")), netplanGenerator)
			if why := brokenProgram(s, generator); why != "" {
				mend = nil
				text, evidence = "systemd runs "+generator+" before it, and that does not start: "+why, []diagnose.Evidence{config.FileEvidence(generator, 0, why)}
			}
		}
		told := slices.ContainsFunc(out, func(f diagnose.Finding) bool { return f.Evidence[0].Path == evidence[0].Path })
		if text == "" || told || mountMayHold(s, path.Dir(evidence[0].Path)) {
			continue // netplan has the unit of its renderer
		}
		out = append(out, diagnose.Finding{
			ID: "network-unit-invalid", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.85, Explains: networkConsequences,
			Title:    fmt.Sprintf("The unit %s does not start, so that %s configures no interface: %s.", unit, m.Name, text),
			Evidence: evidence,
			ByHand:   "Install the package that brings the file again, or correct the unit, and check it with systemd-analyze verify " + unit + ".",
			Repair:   mend,
		})
	}
	return out
}

// netplanTools are what people and programs change the network with. The generator at boot needs neither.
var netplanTools = []string{"/usr/sbin/netplan", "/usr/lib/netplan/generate", "/usr/libexec/netplan/generate"}

// findNetplanTools finds a netplan that brings the network up and can no longer be changed.
func findNetplanTools(s *diagnose.System, n *config.Network) []diagnose.Finding {
	if !slices.ContainsFunc(n.Managers, func(m config.NetworkManager) bool { return m.Name == "netplan" && m.Enabled }) {
		return nil
	}
	for _, tool := range netplanTools {
		if _, err := s.Files.Lstat(path.Dir(tool)); err != nil {
			continue
		}
		if why := brokenProgram(s, tool); why != "" {
			return []diagnose.Finding{{
				ID: "network-tool-missing", Stage: diagnose.Network, Severity: diagnose.Degrades, Confidence: 0.8,
				Title:    fmt.Sprintf("The program %s does not start, so that no change of netplan's files can be applied: %s.", tool, why),
				Evidence: []diagnose.Evidence{config.FileEvidence(tool, 0, why)},
				ByHand:   "Install the package that brings the program again.",
			}}
		}
	}
	return nil
}

// othersWrite says whether an account other than root could write a file.
func othersWrite(tree *diagnose.Tree, name string) bool {
	info, err := tree.Stat(name)
	return err == nil && (diagnose.OwnerOf(info).UID != 0 || info.Mode()&0o022 != 0)
}

func findNoNetwork(s *diagnose.System, n *config.Network) []diagnose.Finding {
	tree := s.Files
	if !n.Known || n.Other != "" || config.CloudInitWillRun(tree) || len(n.Managers) == 0 {
		return nil
	}
	if slices.ContainsFunc(n.Managers, func(m config.NetworkManager) bool { return m.Enabled }) {
		return nil
	}
	// The manager to enable is the one that has interfaces to configure.
	best := slices.IndexFunc(n.Managers, func(m config.NetworkManager) bool {
		return slices.ContainsFunc(m.Links, func(l config.NetworkLink) bool { return l.Active && !l.Virtual && !l.Unclear })
	})
	if best < 0 {
		best = slices.IndexFunc(n.Managers, func(m config.NetworkManager) bool { return m.ConfiguresAll })
	}
	if best < 0 {
		return nil // systemd-networkd is always there: nothing says that the machine had a network
	}
	m := n.Managers[best]
	f := diagnose.Finding{
		ID: "network-none-enabled", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.85,
		Title:    fmt.Sprintf("Nothing configures the network at boot, because %s of %s is not enabled.", m.Unit, m.Name),
		Explains: networkConsequences,
		ByHand:   "Enable it with systemctl enable " + m.Unit + ".",
	}
	switch config.ManagerOf(tree) {
	case config.SystemdManager:
		link := "/etc/systemd/system/multi-user.target.wants/" + m.Unit
		f.Evidence = []diagnose.Evidence{config.FileEvidence(link, 0, "it does not exist, and no other unit wants "+m.Unit)}
		f.Repair = repairFiles("Enable "+m.Unit+" for multi-user.target.", link)
		if mask := config.UnitMask(tree, m.Unit); mask != "" {
			f.Title = fmt.Sprintf("Nothing configures the network at boot, because %s of %s is masked.", m.Unit, m.Name)
			f.Evidence = []diagnose.Evidence{config.FileEvidence(mask, 0, "it leads to /dev/null or is empty")}
			f.Repair = repairFiles("Remove the mask of "+m.Unit+" and enable it for multi-user.target.", mask, link)
		}
	case config.OpenrcManager:
		f.Title = "Nothing configures the network at boot, because the service networking is in no run level."
		f.Evidence = []diagnose.Evidence{config.FileEvidence("/etc/runlevels/boot/networking", 0, "it does not exist in any run level")}
		f.Repair = repairFiles("Add networking to the run level boot.", "/etc/runlevels/boot/networking")
		f.ByHand = "Enable it with rc-update add networking boot."
	default:
		f.Title = "Nothing configures the network at boot, because no link starts the script networking."
		f.Evidence = []diagnose.Evidence{config.FileEvidence("/etc/rcS.d", 0, "it has no link that starts networking")}
		f.ByHand = "Enable it with update-rc.d networking defaults."
	}
	if f.Repair != nil {
		f.Repair.Loses = "If something else configures the network, such as a script, both may do so now."
	}
	return []diagnose.Finding{f}
}

func nothingConfigured(s *diagnose.System, n *config.Network) diagnose.Finding {
	f := diagnose.Finding{
		ID: "network-nothing-configured", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.85,
		Explains: []string{"sshd-listens-nowhere"},
		ByHand:   "Add the interface to the configuration, with DHCP or its address.",
	}
	var names []string
	file := ""
	for _, m := range n.Managers {
		if !m.Enabled {
			continue
		}
		names = append(names, m.Name)
		switch m.Name {
		case "ifupdown":
			file = config.InterfacesPath
		case "netplan":
			file = "/etc/netplan"
		case "systemd-networkd":
			file = config.FirstText(file, "/etc/systemd/network")
		case "NetworkManager":
			file = config.FirstText(file, "/etc/NetworkManager/system-connections")
		default:
			file = config.FirstText(file, "/etc/sysconfig")
		}
	}
	f.Title = fmt.Sprintf("The network is managed by %s, which configures no interface that the machine has.", strings.Join(names, " and "))
	f.Evidence = []diagnose.Evidence{config.FileEvidence(file, 0, "no interface of the machine is named")}
	for _, nic := range s.NICs[:min(len(s.NICs), 8)] {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: diagnose.FromDevice, Path: config.FirstText(append(slices.Clone(nic.Names), nic.MAC)...), Text: "the machine has an interface with the address " + nic.MAC})
	}
	if held := heldLink(s, n); held != nil {
		name := config.FirstText(held.Name, held.MAC)
		f.Title = fmt.Sprintf("The interface %s is not brought up at boot, because %s says %s.", name, place(held.HeldBy.File, held.HeldBy.Line), held.HeldBy.Text)
		f.Evidence = append([]diagnose.Evidence{config.FileEvidence(held.HeldBy.File, held.HeldBy.Line, held.HeldBy.Text)}, f.Evidence[1:]...)
		f.ByHand = "Take the setting out, so that the interface comes up."
		return f
	}
	if line, stanza := config.FindUnreadStanza(s); line != "" {
		f.Title = fmt.Sprintf("The file %s configures %s, and %s does not read it.", place(stanza.File, stanza.Line), stanza.Name, config.InterfacesPath)
		f.Evidence = append([]diagnose.Evidence{config.FileEvidence(config.InterfacesPath, 0, "no line source names "+path.Dir(stanza.File)), config.FileEvidence(stanza.File, stanza.Line, "iface "+stanza.Name)}, f.Evidence[1:]...)
		f.Confidence = 0.9
		f.Repair = repairFiles(fmt.Sprintf("Add the line %q to %s.", line, config.InterfacesPath), config.InterfacesPath)
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
func conflicts(s *diagnose.System, n *config.Network, c coverage) []diagnose.Finding {
	for _, nic := range s.NICs {
		var by []config.NetworkManager
		var evidence []diagnose.Evidence
		for _, m := range n.Managers {
			if !m.Enabled || m.Name == "NetworkManager" || m.Name == "ifcfg" {
				continue // NetworkManager leaves alone what others configure
			}
			i := slices.IndexFunc(m.Links, func(l config.NetworkLink) bool {
				return l.Active && !l.Virtual && !l.Unclear && (l.DHCP || len(l.Addresses) > 0) && !strings.ContainsAny(l.Name, "*?[") && l.Matches(nic.MAC, c.names[nic.MAC])
			})
			if i >= 0 {
				by = append(by, m)
				evidence = append(evidence, config.FileEvidence(m.Links[i].File, m.Links[i].Line, m.Name+" configures the interface "+config.FirstText(m.Links[i].Name, m.Links[i].MAC)))
			}
		}
		if len(by) < 2 {
			continue
		}
		return []diagnose.Finding{{
			ID: "network-managers-conflict", Stage: diagnose.Network, Severity: diagnose.Degrades, Confidence: 0.75,
			Title:    fmt.Sprintf("The interface with the address %s is configured by %s and by %s.", nic.MAC, by[0].Name, by[1].Name),
			Evidence: evidence,
			ByHand:   "Take the interface out of the configuration of one of the two.",
		}}
	}
	return nil
}
