package system

import (
	"fmt"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// coverage says which interfaces of the machine the enabled managers configure.
type coverage struct {
	names   map[string][]string // by address, the names that the interface may have
	covered map[string]bool     // by address
	// automatic: a manager uses DHCP on whatever its files do not name.
	automatic bool
	unclear   bool
	given     map[string]*config.GivenName // by address, the only name that an interface gets
}

func cover(s *diagnose.System, n *config.Network) coverage {
	c := coverage{names: map[string][]string{}, covered: map[string]bool{}, unclear: n.Other != "", given: map[string]*config.GivenName{}}
	predictable := config.PredictableNames(s.Files)
	kernelOnly := usesKernelNames(s)
	for _, nic := range s.NICs {
		c.names[nic.MAC] = config.NamesOf(s, n, nic, predictable)
		if kernelOnly {
			c.names[nic.MAC] = slices.DeleteFunc(c.names[nic.MAC], func(name string) bool { return slices.Contains(nic.Names, name) && !config.IsKernelInterface(name) })
			for i := range s.NICs { // the kernel numbers the interfaces as it finds them
				c.names[nic.MAC] = append(c.names[nic.MAC], fmt.Sprintf("eth%d", i))
			}
		}
		if given := config.LinkName(s.Files, nic.MAC); given != nil {
			c.names[nic.MAC], c.given[nic.MAC] = []string{given.Name}, given
		}
		for _, m := range n.Managers {
			if !m.Enabled {
				continue
			}
			c.unclear = c.unclear || m.Partial
			for i := range m.Links {
				l := &m.Links[i]
				if (l.Active || l.Lower) && !l.Virtual && l.Matches(nic.MAC, c.names[nic.MAC]) {
					c.covered[nic.MAC] = true
				}
				c.unclear = c.unclear || l.Unclear && l.Active && !l.Virtual && (l.Name == "" || l.Matches(nic.MAC, c.names[nic.MAC]))
			}
			c.automatic = c.automatic || m.ConfiguresAll && !slices.ContainsFunc(m.Inactive, func(l config.NetworkLink) bool { return l.Matches(nic.MAC, c.names[nic.MAC]) })
		}
	}
	return c
}

// usesKernelNames says whether the kernel's command line keeps udev from giving interfaces names of its policy.
func usesKernelNames(s *diagnose.System) bool {
	e := defaultEntry(loadEntries(s))
	if e == nil || config.FirstExisting(s.Files, "/sbin/biosdevname", "/usr/sbin/biosdevname") != "" {
		return false
	}
	value, _ := argument(e.Options, "net.ifnames")
	return value == "0"
}

func findInterfaces(s *diagnose.System, n *config.Network, c coverage) []diagnose.Finding {
	if len(s.NICs) == 0 || config.CloudInitWillRun(s.Files) {
		return nil
	}
	var out []diagnose.Finding
	asked, problems := false, false
	for _, m := range n.Managers {
		if !m.Enabled {
			continue
		}
		asked = true
		problems = problems || len(m.Problems) > 0
		for i := range m.Links {
			l := &m.Links[i]
			if f := c.missing(s, n, &m, l); f != nil && !slices.ContainsFunc(out, func(o diagnose.Finding) bool { return o.ID == f.ID && o.Title == f.Title }) {
				out = append(out, *f)
			}
		}
	}
	if names := lostInterfaces(out); len(names) > 1 {
		for i := range out { // one interface cannot take the place of several
			out[i].Repair, out[i].ByHand = nil, "Write the name or the address of an interface that the machine has. The machine lacks several: "+strings.Join(names, ", ")+"."
		}
	}
	if asked && !problems && len(c.covered) == 0 && !c.unclear && !c.automatic && len(out) == 0 {
		out = append(out, nothingConfigured(s, n))
	}
	if asked && !problems && len(out) == 0 {
		out = append(out, findNoAddress(s, n, c)...)
	}
	return append(out, conflicts(s, n, c)...)
}

// lostInterfaces are the lines of the interfaces that findings call missing, each once.
func lostInterfaces(findings []diagnose.Finding) []string {
	var out []string
	for _, f := range findings {
		if text := f.Evidence[0].Text; f.Repair != nil && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// missing is a finding where a link means an interface that the machine does not have; nil where it has it, or where nobody can tell.
func (c *coverage) missing(s *diagnose.System, n *config.Network, m *config.NetworkManager, l *config.NetworkLink) *diagnose.Finding {
	if l.Virtual || l.Unclear || !l.Active && !l.Lower || (l.MAC == "" && strings.ContainsAny(l.Name, "*?[/")) || strings.ContainsAny(l.Name, "%$") || config.IsVirtualName(l.Name) {
		return nil
	}
	// biosdevname gives names of its own: em1, p3p1.
	if biosName(l.Name) && config.FirstExisting(s.Files, "/sbin/biosdevname", "/usr/sbin/biosdevname") != "" {
		return nil
	}
	byMAC := l.MAC != ""
	for mac, names := range c.names {
		if (byMAC && l.MAC == mac) || (!byMAC && l.Matches(mac, names)) {
			return nil
		}
	}
	f := diagnose.Finding{ID: "network-interface-missing", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.9, Explains: networkConsequences}
	what := "the interface " + l.Name
	if byMAC {
		f.ID, what = "network-mac-changed", "an interface with the address "+l.MAC
	}
	f.Title = fmt.Sprintf("The service %s configures %s in %s, and the machine has none like that.", m.Name, what, place(l.File, l.Line))
	f.Evidence = []diagnose.Evidence{config.FileEvidence(l.File, l.Line, m.Name+" configures "+what)}
	for _, nic := range s.NICs[:min(len(s.NICs), 8)] {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: diagnose.FromDevice, Path: config.FirstText(append(slices.Clone(c.names[nic.MAC]), nic.MAC)...),
			Text: "the machine has an interface with the address " + nic.MAC + ", in the system " + strings.Join(c.names[nic.MAC], " or ")})
	}
	if given := staleName(s.Files, l.Name, c); given != nil {
		f.Evidence = append(f.Evidence, config.FileEvidence(given.File, given.Line, "the name "+given.Name+" is given to the address "+given.MAC+", which the machine does not have"))
		f.Title = fmt.Sprintf("The service %s configures %s, which %s gives to an address that the machine does not have.", m.Name, what, place(given.File, given.Line))
	}
	for _, nic := range s.NICs {
		if given := c.given[nic.MAC]; given != nil && slices.Contains(nic.Names, l.Name) {
			f.Confidence = 0.8
			f.Evidence = append(f.Evidence, config.FileEvidence(given.File, given.Line, "it names this interface "+given.Name))
			f.Title = fmt.Sprintf("The service %s configures %s in %s, which %s renames to %s.", m.Name, what, place(l.File, l.Line), place(given.File, given.Line), given.Name)
		}
	}
	f.ByHand = "Write the name or the address of an interface that the machine has."
	if nic, ok := onlyUncovered(s, c); ok {
		target := config.FirstText(append(slices.Clone(c.names[nic]), nic)...)
		if byMAC {
			target = nic
		}
		f.Repair = repairFiles("Configure "+target+" in the place of "+config.FirstText(l.Name, l.MAC)+".", l.File)
		if byMAC && len(l.Addresses) > 0 {
			f.Repair.Loses = fmt.Sprintf("If the machine is a copy of one that still runs, both have the address %s.", l.Addresses[0].Addr())
		}
		if len(s.NICs) > 1 {
			f.Repair.Loses = strings.TrimSpace(f.Repair.Loses + fmt.Sprintf(" If %s is connected to another network than the lost interface was, the machine takes the addresses of %s there.", target, config.FirstText(l.Name, l.MAC)))
		}
	}
	switch {
	case len(c.covered) == 0 && !c.unclear && (!c.automatic || len(l.Addresses) > 0 || l.Lower):
	case l.Optional || !l.Active:
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
func staleName(tree *diagnose.Tree, name string, c *coverage) *config.GivenName {
	for _, given := range config.GivenNames(tree) {
		if _, there := c.names[given.MAC]; given.Name == name && name != "" && !there && given.MAC != "" {
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
