package system

import (
	"fmt"
	"slices"
	"strings"

	"salvor/diagnose"
)

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
