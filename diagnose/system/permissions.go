package system

import (
	"fmt"
	"io/fs"
	"slices"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// setuidBit is the mode of programs that run as their owner.
const setuidBit = fs.ModeSetuid

// neededModes are bits without which accounts other than root get nowhere. services: nor do the services that run as such accounts start.
var neededModes = []struct {
	path     string
	needs    fs.FileMode
	services bool
	why      string
}{
	{"/", 0o005, true, "accounts other than root reach no file"},
	{"/etc", 0o005, false, "accounts other than root read no configuration"},
	{"/usr", 0o005, true, "accounts other than root run no program"},
	{"/usr/bin", 0o005, true, "accounts other than root run no program"},
	{"/usr/lib", 0o005, true, "accounts other than root load no library"},
	{"/etc/passwd", 0o004, false, "programs of other accounts than root know no names of users"},
	{"/etc/group", 0o004, false, "programs of other accounts than root know no names of groups"},
	{"/home", 0o001, false, "accounts reach no home"},
}

// networkNeedsAccounts names the manager that alone configures the network and does not run as root, or needs the D-Bus daemon, which does not:
// systemd-networkd is of the user systemd-network. "": none, or root configures an interface.
func networkNeedsAccounts(s *diagnose.System) string {
	n := config.ReadNetwork(s)
	if n.Other != "" || config.ManagerOf(s.Files) != config.SystemdManager {
		return ""
	}
	name := ""
	for _, m := range n.Managers {
		used := m.ConfiguresAll || m.Partial || slices.ContainsFunc(m.Links, func(l config.NetworkLink) bool { return l.Active && l.Name != "lo" })
		switch {
		case !m.Enabled || !used:
		case m.Name == "ifupdown" || m.Name == "ifcfg":
			return ""
		default:
			name = m.Name
		}
	}
	return name
}

func permissionRules() []diagnose.Rule {
	return []diagnose.Rule{
		{IDs: []string{"permissions-lost", "permissions-open", "tmp-unusable"}, Files: true, Look: findPermissions},
		{IDs: []string{"owners-changed"}, Files: true, Look: lookOwners},
	}
}

func findPermissions(s *diagnose.System) []diagnose.Finding {
	tree := s.Files
	var out []diagnose.Finding
	for _, n := range neededModes {
		info, line, err := config.StatAtBoot(tree, n.path)
		if err != nil || info.Mode()&n.needs == n.needs {
			continue
		}
		f := diagnose.Finding{
			ID: "permissions-lost", Stage: diagnose.Login, Severity: diagnose.Degrades, Confidence: 0.93,
			Title:    fmt.Sprintf("The path %s has the mode %s, so %s.", n.path, config.ModeText(info), n.why),
			Evidence: []diagnose.Evidence{config.FileEvidence(n.path, 0, "its mode is "+config.ModeText(info))},
			Repair:   repairFiles("Give others the right to read and enter it again.", n.path),
			ByHand:   "Run chmod o+rX " + n.path + ".",
		}
		if line != nil { // a repair would last until the next boot
			f.Evidence = append(f.Evidence, line.Evidence())
			f.Repair, f.ByHand = nil, "Correct the line "+line.Place()+", which sets the mode at each boot."
		}
		// Where root cannot log in, this concerns everybody.
		if l := readLogins(s); l.elsewhere == "" {
			root := l.find("root")
			if root == nil || !root.byKey && !root.byPassword && !root.onConsole {
				f.Severity = diagnose.BlocksAccess
			}
		}
		if manager := networkNeedsAccounts(s); n.services && manager != "" {
			f.Severity = diagnose.BlocksAccess
			f.Title = fmt.Sprintf("The path %s has the mode %s, so %s, and %s does not configure the network.", n.path, config.ModeText(info), n.why, manager)
		}
		out = append(out, f)
	}
	// chmod -R 777 opens all that lies below.
	var open []diagnose.Evidence
	for _, name := range []string{"/", "/etc", "/usr", "/usr/bin", "/usr/sbin", "/usr/lib", "/etc/passwd", "/etc/shadow", "/etc/ssh", "/var"} {
		if info, err := tree.Stat(name); err == nil && info.Mode()&0o002 != 0 {
			open = append(open, config.FileEvidence(name, 0, "everybody may write it: its mode is "+config.ModeText(info)))
		}
	}
	if len(open) > 0 {
		f := diagnose.Finding{
			ID: "permissions-open", Stage: diagnose.SSHD, Severity: diagnose.Degrades, Confidence: 0.95,
			Title:    fmt.Sprintf("Everybody may write %s, which belongs to the system.", open[0].Path),
			Evidence: open,
			Explains: []string{"sshd-host-keys-open", "sudoers-refused", "sudo-not-setuid", "ssh-key-permissions", "sshd-folder-unsafe"},
			Repair:   repairFiles("Take the right to write from everybody but root, on these paths only; what lies below them stays as it is.", paths(open)...),
			ByHand:   "Run chmod o-w on the paths, and compare what lies below them with the packages: dpkg --verify or rpm -Va.",
		}
		if len(open) >= wholeSystem {
			f.Title = fmt.Sprintf("The modes of the whole system were changed: everybody may write %s and %d more paths that belong to the system.", open[0].Path, len(open)-1)
			f.ByHand = "Restore the modes of all files from the packages (rpm --setperms -a; on Debian, install all packages again) or from a backup; salvor mends the named paths only."
		}
		for _, key := range findHostKeys(s) {
			if key.ID == "sshd-host-keys-open" && key.Severity == diagnose.BlocksAccess {
				f.Severity = diagnose.BlocksAccess
				f.Evidence = append(f.Evidence, key.Evidence...)
				if key.Repair != nil {
					f.Repair.Writes = append(f.Repair.Writes, key.Repair.Writes...)
				}
			}
		}
		out = append(out, f)
	}
	return append(out, findTmp(s)...)
}

// findTmp looks at /tmp, which most systems mend at boot by themselves.
func findTmp(s *diagnose.System) []diagnose.Finding {
	tree := s.Files
	if mountMayHold(s, "/tmp") || config.FirstExisting(tree, "/usr/lib/tmpfiles.d/tmp.conf", "/lib/tmpfiles.d/tmp.conf", "/usr/lib/systemd/system/tmp.mount", "/etc/systemd/system/tmp.mount") != "" ||
		config.ManagerOf(tree) != config.SysvManager {
		return nil
	}
	info, err := tree.Stat("/tmp")
	if err != nil || (info.IsDir() && info.Mode()&0o777 == 0o777 && info.Mode()&fs.ModeSticky != 0) {
		return nil
	}
	return []diagnose.Finding{{
		ID: "tmp-unusable", Stage: diagnose.Login, Severity: diagnose.Degrades, Confidence: 0.85,
		Title:    "The folder /tmp has the mode " + config.ModeText(info) + " and not 01777, so programs cannot make or protect their files there.",
		Evidence: []diagnose.Evidence{config.FileEvidence("/tmp", 0, "its mode is "+config.ModeText(info))},
		Repair:   repairFiles("Give /tmp the mode 01777.", "/tmp"),
		ByHand:   "Run chmod 1777 /tmp.",
	}}
}
