package system

import (
	"fmt"
	"path"
	"regexp"
	"slices"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// hookName is the form of names that run-parts takes.
var hookName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// findInterfaceHooks finds a command that ifup runs before it sets an address, and that fails for certain: a script of /etc/network/if-pre-up.d, or a
// line pre-up of the interface. ifup of Debian then gives the interface up.
func findInterfaceHooks(s *diagnose.System, n *config.Network, c coverage) []diagnose.Finding {
	tree := s.Files
	at := slices.IndexFunc(n.Managers, func(m config.NetworkManager) bool { return m.Name == "ifupdown" })
	if at < 0 || !n.Managers[at].Enabled || n.Other != "" || !tree.Exists("/etc/debian_version") || config.HasOtherIfup(tree) {
		return nil
	}
	f := diagnose.Finding{ID: "network-config-invalid", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.85, Explains: networkConsequences}
	for _, m := range n.Managers {
		if m.Enabled && m.Name != "ifupdown" && (m.ConfiguresAll || slices.ContainsFunc(m.Links, func(l config.NetworkLink) bool { return l.Active && l.Name != "lo" })) {
			f.Severity = diagnose.Degrades // another manager configures an interface
		}
	}
	for _, file := range tree.Match("/etc/network/if-pre-up.d", "*") {
		info, err := tree.Stat(file)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 || !hookName.MatchString(path.Base(file)) {
			continue
		}
		if lost := config.FindLostCommand(tree, file); lost != nil {
			f.Title = fmt.Sprintf("The program ifup gives each interface up before it sets an address, because %s fails: %s.", place(file, lost.Line), lost.Why)
			f.Evidence = []diagnose.Evidence{config.FileEvidence(file, lost.Line, lost.Text)}
			f.ByHand = "Install the program that the script runs, or take the script out of the folder."
			return []diagnose.Finding{f}
		}
	}
	for i := range n.Managers[at].Links {
		l := &n.Managers[at].Links[i]
		isOurs := slices.ContainsFunc(s.NICs, func(nic diagnose.NIC) bool { return l.Matches(nic.MAC, c.names[nic.MAC]) })
		if !l.Active || l.Virtual || !isOurs {
			continue
		}
		for _, command := range l.PreUp {
			if why := config.LostProgramOf(tree, command.Value); why != "" {
				f.Title = fmt.Sprintf("The program ifup gives %s up before it sets an address, because %s fails: %s.", l.Name, place(l.File, command.Line), why)
				f.Evidence = []diagnose.Evidence{config.FileEvidence(l.File, command.Line, "pre-up "+command.Value)}
				f.ByHand = "Install the program, restore the file, or take the line out."
				if len(s.NICs) > 1 {
					f.Severity = diagnose.Degrades
				}
				return []diagnose.Finding{f}
			}
		}
	}
	return nil
}

// findLostShell finds a /bin/sh that does not start. Scripts, the commands of ifup and of many units run by it.
func findLostShell(s *diagnose.System) []diagnose.Finding {
	const sh = "/bin/sh"
	if !s.Files.Exists("/bin") || mountMayHold(s, "/usr/bin") {
		return nil
	}
	why := brokenProgram(s, sh)
	if why == "" {
		return nil
	}
	f := diagnose.Finding{
		ID: "sh-missing", Stage: diagnose.Target, Severity: diagnose.Degrades, Confidence: 0.93,
		Title:    fmt.Sprintf("The shell %s does not start, so that no script and no command of a unit runs: %s.", sh, why),
		Evidence: []diagnose.Evidence{config.FileEvidence(sh, 0, why)},
		ByHand:   "Install the package of the shell again, dash or bash, or make the link: ln -s dash /bin/sh.",
	}
	if _, err := s.Files.Stat(sh); config.IsNotExist(err) {
		if other := ShellFor(s); other != "" {
			f.Repair = mayLose(repairFiles(fmt.Sprintf("Make %s a link to %s.", sh, path.Base(other)), sh), fmt.Sprintf("If the lost shell was not %s, a script that needs the lost one fails.", path.Base(other)))
		}
	}
	uses := slices.ContainsFunc(config.ReadNetwork(s).Managers, func(m config.NetworkManager) bool {
		return m.Enabled && (m.Name == "ifupdown" || m.Name == "ifcfg") && slices.ContainsFunc(m.Links, func(l config.NetworkLink) bool { return l.Active && l.Name != "lo" })
	})
	switch {
	case config.ManagerOf(s.Files) != config.SystemdManager:
		f.Severity = diagnose.BlocksBoot // its services are scripts
	case uses:
		f.Stage, f.Severity, f.Explains = diagnose.Network, diagnose.BlocksAccess, networkConsequences
		f.Title = fmt.Sprintf("The shell %s does not start, so that nothing configures the network: ifup runs its commands by it. The reason: %s.", sh, why)
	}
	return []diagnose.Finding{f}
}

// ShellFor is the program that a lost /bin/sh can lead to: a shell that starts, that of the distribution first. ShellFor is empty for a system without
// such a shell.
func ShellFor(s *diagnose.System) string {
	shells := []string{"/bin/bash", "/bin/dash", "/bin/busybox"}
	if s.Files.Exists(debianVersion) {
		shells[0], shells[1] = shells[1], shells[0]
	}
	for _, name := range shells {
		if s.Files.Exists(name) && brokenProgram(s, name) == "" {
			return name
		}
	}
	return ""
}

// debianVersion is a file of Debian and of the distributions that are made from it.
const debianVersion = "/etc/debian_version"
