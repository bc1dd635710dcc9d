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
