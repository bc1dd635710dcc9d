package system

import (
	"fmt"
	"net/netip"
	"slices"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// ipv6Off returns the setting that switches IPv6 off for all interfaces; empty where none does.
func ipv6Off(s *diagnose.System) (text string, at diagnose.Evidence) {
	settings := sysctlSettings(s.Files)
	for _, name := range []string{"net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.default.disable_ipv6"} {
		if set := settings[name]; set.value == "1" {
			return place(set.file, set.line), config.FileEvidence(set.file, set.line, set.text)
		}
	}
	if e := defaultEntry(loadEntries(s)); e != nil {
		if value, _ := argument(e.Options, "ipv6.disable"); value == "1" {
			line := max(e.OptionsLine, e.Line)
			return place(e.File, line), config.FileEvidence(e.File, line, "ipv6.disable=1")
		}
	}
	return "", diagnose.Evidence{}
}

// heldLink is the configuration of an interface of the machine that a line keeps from coming up; nil without one.
func heldLink(s *diagnose.System, n *config.Network) *config.NetworkLink {
	c := cover(s, n)
	for i := range n.Managers {
		m := &n.Managers[i]
		for j := range m.Links {
			l := &m.Links[j]
			if m.Enabled && l.HeldBy != nil && !l.Virtual && slices.ContainsFunc(s.NICs, func(nic diagnose.NIC) bool { return l.Matches(nic.MAC, c.names[nic.MAC]) }) {
				return l
			}
		}
	}
	return nil
}

// findNetworkOff finds a NetworkManager that leaves the interfaces of the machine alone: its state file says that networking is off, or
// /etc/network/interfaces names them and no ifupdown is there to configure them.
func findNetworkOff(s *diagnose.System, n *config.Network, c coverage) []diagnose.Finding {
	at := slices.IndexFunc(n.Managers, func(m config.NetworkManager) bool { return m.Name == "NetworkManager" })
	if at < 0 || len(s.NICs) == 0 || n.Other != "" || config.CloudInitWillRun(s.Files) {
		return nil
	}
	manager := &n.Managers[at]
	isUsed := manager.Enabled
	for _, m := range n.Managers {
		isUsed = isUsed || m.Enabled && m.Unit == manager.Unit
		if m.Enabled && m.Unit != manager.Unit && slices.ContainsFunc(m.Links, func(l config.NetworkLink) bool { return l.Active && l.Name != "lo" }) {
			return nil // another one configures an interface
		}
	}
	if !isUsed || config.UnitMask(s.Files, manager.Unit) != "" {
		return nil
	}
	f := diagnose.Finding{ID: "network-nothing-configured", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.9, Explains: []string{"sshd-listens-nowhere"}}
	if off := manager.Off; off != nil {
		f.Title = fmt.Sprintf("The service NetworkManager keeps all interfaces down, because %s says %s.", place(off.File, off.Line), off.Text)
		f.Evidence = []diagnose.Evidence{config.FileEvidence(off.File, off.Line, off.Text)}
		f.ByHand = "Write NetworkingEnabled=true there, or run nmcli networking on."
		return []diagnose.Finding{f}
	}
	if !manager.LeavesToIfupdown || config.ReadIfupdown(s.Files) != nil {
		return nil
	}
	left := 0
	for _, nic := range s.NICs {
		for _, l := range config.StanzasOf(s.Files) {
			if l.Name != "lo" && l.Matches(nic.MAC, c.names[nic.MAC]) {
				left++
				f.Evidence = append(f.Evidence, config.FileEvidence(l.File, l.Line, "iface "+l.Name))
				break
			}
		}
	}
	if left == 0 {
		return nil
	}
	if left < len(s.NICs) {
		f.Severity = diagnose.Degrades
	}
	f.Title = fmt.Sprintf("The service NetworkManager leaves an interface to ifupdown, because %s names it, and ifupdown is not installed.", place(f.Evidence[0].Path, f.Evidence[0].Line))
	f.Evidence = append(f.Evidence, config.FileEvidence("/etc/NetworkManager/NetworkManager.conf", 0, "it uses the plugin ifupdown without managed=true"))
	f.ByHand = "Take the interface out of " + config.InterfacesPath + ", or write managed=true in the section ifupdown of NetworkManager.conf."
	return []diagnose.Finding{f}
}

// findShadowedFiles takes those files of systemd-networkd out that it never reads for an interface, because one before them matches it. A static address
// in such a file is a finding where the file before it has none.
func findShadowedFiles(s *diagnose.System, n *config.Network, c coverage) []diagnose.Finding {
	at := slices.IndexFunc(n.Managers, func(m config.NetworkManager) bool { return m.Name == "systemd-networkd" })
	if at < 0 || !n.Managers[at].Enabled || len(s.NICs) == 0 {
		return nil
	}
	m := &n.Managers[at]
	var out []diagnose.Finding
	isRead := map[string]bool{}
	for _, nic := range s.NICs {
		var first *config.NetworkLink
		for i := range m.Links {
			l := &m.Links[i]
			switch {
			case l.Virtual || !l.Matches(nic.MAC, c.names[nic.MAC]):
				continue
			case l.Unclear: // nobody can tell whether it matches
				return nil
			case first == nil || first.File == l.File:
				if first == nil {
					first = l
				}
				isRead[l.File] = true
				continue
			}
			if len(l.Addresses) == 0 || len(first.Addresses) > 0 {
				continue
			}
			f := diagnose.Finding{
				ID: "network-address-differs", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.8, Explains: networkConsequences,
				Title: fmt.Sprintf("The file %s is the first that systemd-networkd takes for %s, so that the address %s of %s is never set.", first.File, config.FirstText(append(slices.Clone(c.names[nic.MAC]), nic.MAC)...), l.Addresses[0], l.File),
				Evidence: []diagnose.Evidence{config.FileEvidence(first.File, first.Line, "it matches the interface and has no address"),
					config.FileEvidence(l.File, l.Line, "it has the address "+l.Addresses[0].String())},
				ByHand: "Rename or narrow the first file, so that the file with the address comes before it.",
			}
			if first.DHCP && !slices.ContainsFunc(wantedNetworks(s.NetworkData), func(w WantedNetwork) bool { return w.MAC == nic.MAC }) {
				f.Severity = diagnose.Degrades // a lease may let its owner in
			}
			for _, w := range wantedNetworks(s.NetworkData) {
				if w.MAC == nic.MAC && !slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == w.Prefix.Addr() }) {
					f.Severity = diagnose.Degrades // network_data has another address
				}
			}
			out = append(out, f)
			break
		}
	}
	// A file that matches an interface of the machine, and that no interface gets, configures nothing.
	m.Links = slices.DeleteFunc(slices.Clone(m.Links), func(l config.NetworkLink) bool {
		return !isRead[l.File] && !l.Virtual && slices.ContainsFunc(s.NICs, func(nic diagnose.NIC) bool { return l.Matches(nic.MAC, c.names[nic.MAC]) })
	})
	return out
}

// findNoAddress is a finding where the managers bring interfaces up, and give none of them an address: neither a static one nor by DHCP.
func findNoAddress(s *diagnose.System, n *config.Network, c coverage) []diagnose.Finding {
	if len(c.covered) == 0 || c.unclear || c.automatic {
		return nil
	}
	off, where := ipv6Off(s)
	var first *config.NetworkLink
	sixOnly := false
	for i := range n.Managers {
		m := &n.Managers[i]
		if !m.Enabled {
			continue
		}
		for j := range m.Links {
			l := &m.Links[j]
			if !l.Active || l.Name == "lo" {
				continue
			}
			if l.DHCP || l.Unclear || slices.ContainsFunc(l.Addresses, func(a netip.Prefix) bool { return off == "" || a.Addr().Is4() }) {
				return nil
			}
			if m.Name == "ifupdown" && len(l.Addresses) == 0 { // commands of the stanza, or of other files, may give it one
				return nil
			}
			sixOnly = sixOnly || len(l.Addresses) > 0
			if first == nil && !l.Virtual {
				first = l
			}
		}
	}
	if first == nil {
		return nil
	}
	name := config.FirstText(first.Name, first.MAC)
	f := diagnose.Finding{
		ID: "network-nothing-configured", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.75, Explains: []string{"sshd-listens-nowhere"},
		Title:    fmt.Sprintf("The file %s brings %s up without an address and without DHCP, and no other interface gets one.", place(first.File, first.Line), name),
		Evidence: []diagnose.Evidence{config.FileEvidence(first.File, first.Line, name+" has no address")},
		ByHand:   "Give the interface its address, or DHCP.",
	}
	if sixOnly {
		f.Title = fmt.Sprintf("The network has IPv6 addresses only, such as that of %s in %s, and %s switches IPv6 off.", name, place(first.File, first.Line), off)
		f.Evidence = append([]diagnose.Evidence{where}, f.Evidence...)
		f.Evidence[1].Text = name + " has no address of IPv4"
		f.ByHand = "Remove the line that switches IPv6 off, or give the interface an address of IPv4."
	}
	return []diagnose.Finding{f}
}
