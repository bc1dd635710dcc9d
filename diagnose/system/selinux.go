package system

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// unreadLabels are types of SELinux that files of keys have where they were moved or restored without their labels. sshd may not read them.
var unreadLabels = strings.Fields("unlabeled_t default_t file_t tmp_t user_tmp_t mnt_t")

// isUnreadLabel says whether a label is missing, or of a type that sshd may not read.
func isUnreadLabel(info fs.FileInfo) bool {
	label := diagnose.OwnerOf(info).Label
	fields := strings.Split(label, ":")
	return label == "" || len(fields) > 2 && slices.Contains(unreadLabels, fields[2])
}

// lookKeyLabels finds keys that SELinux keeps sshd from reading. Where no file of the system has a label, none could be read.
func lookKeyLabels(s *diagnose.System, mode diagnose.Evidence) []diagnose.Finding {
	if info, err := s.Files.Stat(config.PasswdPath); err != nil || diagnose.OwnerOf(info).Label == "" || s.Files.Exists("/.autorelabel") {
		return nil
	}
	l := readLogins(s)
	f := diagnose.Finding{
		ID: "selinux-keys-unlabelled", Stage: diagnose.Login, Severity: diagnose.BlocksAccess, Confidence: 0.9, Explains: []string{"login-impossible", "ssh-login-impossible"},
		Evidence: []diagnose.Evidence{mode},
		Repair: &diagnose.Repair{Summary: "Make /.autorelabel, so that the next boot labels all files and starts once more.", Consent: diagnose.ConsentFiles,
			Writes: []string{"/.autorelabel"}, Loses: losesLabels},
		ByHand: "Run restorecon -R on the homes, from the system itself.",
	}
	whole := l.elsewhere != ""
	for i := range l.accounts {
		a := &l.accounts[i]
		bare := bareKeyPath(s, a)
		if bare == "" {
			whole = whole || a.byKey || a.byPassword
			continue
		}
		whole = whole || a.byPassword
		if f.Title == "" {
			f.Title = fmt.Sprintf("SELinux is enforcing, and %s has no label by which sshd may read the keys of %s.", bare, a.Name)
		}
		if len(f.Evidence) < 10 {
			f.Evidence = append(f.Evidence, config.FileEvidence(bare, 0, "it has no SELinux label that sshd may read"))
		}
	}
	if f.Title == "" {
		return nil
	}
	if whole {
		f.Severity, f.Explains = diagnose.Degrades, nil
	}
	return []diagnose.Finding{f}
}

// bareKeyPath is the first path above and of an account's keys that sshd may not read; empty where all have labels, or where there is no key.
func bareKeyPath(s *diagnose.System, a *login) string {
	for i := range a.keys {
		if !hasKey(&a.keys[i]) {
			continue
		}
		for _, name := range []string{a.Home, path.Dir(a.keys[i].Path), a.keys[i].Path} {
			if info, err := s.Files.Stat(name); err == nil && isUnreadLabel(info) {
				return name
			}
		}
	}
	return ""
}

// lookLabelledPort finds ports on which the policy does not let sshd listen: all but 22, and those that an administrator gave the type ssh_port_t.
func lookLabelledPort(s *diagnose.System, mode diagnose.Evidence, kind string) []diagnose.Finding {
	sshd := config.ReadSSHDConfig(s.Files)
	unit := config.SSHDUnit(s.Files)
	if sshdProgram(s.Files) == "" || sshd.Partial || unit == "" || config.UnitEnabled(s.Files, "sshd.socket", "ssh.socket") {
		return nil // systemd itself may listen on each port
	}
	ports := sshd.Ports()
	if slices.ContainsFunc(ports, func(port int) bool { return port == 22 || policyHasPort(s.Files, kind, port) }) {
		return nil
	}
	f := diagnose.Finding{
		ID: "selinux-port-denied", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.85,
		Evidence: []diagnose.Evidence{mode},
		ByHand:   fmt.Sprintf("Run semanage port -a -t ssh_port_t -p tcp %d on the system, or let sshd listen on port 22 too.", ports[0]),
		Title:    fmt.Sprintf("SELinux is enforcing, and its policy does not let sshd listen on port %d, because the port does not have the type ssh_port_t.", ports[0]),
	}
	for _, at := range append(sshd.All("port"), sshd.All("listenaddress")...) {
		f.Evidence = append(f.Evidence, config.FileEvidence(at.File, at.Line, at.Keyword+" "+strings.Join(at.Args, " ")))
	}
	f.Evidence = f.Evidence[:min(len(f.Evidence), 8)]
	if len(s.Files.Match("/var/lib/selinux/"+kind+"/active/modules/400", "*")) > 0 { // a module of the owner's may allow the port
		f.Confidence = 0.4
	}
	return []diagnose.Finding{f}
}

// policyHasPort says whether semanage gave a port, alone or in a range, to sshd.
func policyHasPort(tree *diagnose.Tree, kind string, port int) bool {
	for _, file := range []string{"/var/lib/selinux/" + kind + "/active/ports.local", "/etc/selinux/" + kind + "/active/ports.local", "/etc/selinux/" + kind + "/modules/active/ports.local"} {
		for _, line := range tree.Lines(file) {
			fields := strings.Fields(line)
			if len(fields) < 4 || fields[0] != "portcon" || fields[1] != "tcp" || !strings.Contains(fields[3], ":ssh_port_t") {
				continue
			}
			from, to, isRange := strings.Cut(fields[2], "-")
			if !isRange {
				to = from
			}
			first, err1 := strconv.Atoi(from)
			last, err2 := strconv.Atoi(to)
			if err1 == nil && err2 == nil && port >= first && port <= last {
				return true
			}
		}
	}
	return false
}
