package system

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
)

// sshdRules are about OpenSSH's server: its configuration, its service, its host keys and what else it needs to start.
func sshdRules() []diagnose.Rule {
	return []diagnose.Rule{
		{IDs: []string{"sshd-config-invalid", "sshd-config-missing"}, Files: true, Look: findSSHDConfig},
		{IDs: []string{"sshd-not-installed", "sshd-not-enabled", "sshd-masked"}, Files: true, Look: findSSHDService},
		{IDs: []string{"sshd-host-keys-missing", "sshd-host-keys-open", "sshd-host-keys-damaged"}, Files: true, Look: findHostKeys},
		{IDs: []string{"sshd-user-missing", "sshd-folder-unsafe"}, Files: true, Look: findSeparation},
		{IDs: []string{"sshd-unit-invalid"}, Files: true, Look: findSSHDUnit},
		{IDs: []string{"sshd-library-missing"}, Files: true, Look: findSSHDLibraries},
	}
}

// sshdProgram returns the path of OpenSSH's server; empty where it is not installed.
func sshdProgram(tree *diagnose.Tree) string {
	return firstExisting(tree, "/usr/sbin/sshd", "/usr/bin/sshd", "/sbin/sshd")
}

// otherSSHServer returns another ssh server that starts by itself; empty where none does.
func otherSSHServer(tree *diagnose.Tree) string {
	for _, name := range []string{"dropbear", "tinysshd", "tinyssh"} {
		if enabled, _ := serviceEnabled(tree, name); enabled {
			return name
		}
	}
	return ""
}

func findSSHDConfig(s *diagnose.System) []diagnose.Finding {
	program := sshdProgram(s.Files)
	if program == "" {
		return nil
	}
	config := readSSHDConfig(s.Files)
	if !config.exists {
		f := diagnose.Finding{
			ID: "sshd-config-missing", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.9,
			Title:    "The file " + sshdConfigFile + " does not exist, and sshd does not start without it.",
			Evidence: []diagnose.Evidence{fileEvidence(sshdConfigFile, 0, "it does not exist")},
			ByHand:   "Restore the file from a backup, or install the package of the ssh server again.",
		}
		if s.Files.Exists(PackagedSSHDConfig) {
			f.Repair = repairFiles("Copy the configuration from "+PackagedSSHDConfig+"; where an account has a key, without logins by password.", sshdConfigFile)
		}
		return []diagnose.Finding{f}
	}
	problems := config.problems
	if text, err := s.Files.Read(program); err == nil {
		problems = config.compareKeywords(text)
	}
	if len(config.all("authorizedkeyscommand")) > 0 && !strings.EqualFold(config.first("authorizedkeyscommand", "none"), "none") &&
		len(config.all("authorizedkeyscommanduser")) == 0 && !config.matched("authorizedkeyscommanduser") && !config.partial {
		at := config.all("authorizedkeyscommand")[0]
		problems = append(problems, sshdProblem{file: at.file, line: at.line, text: "authorizedkeyscommand needs an authorizedkeyscommanduser", confidence: 0.95})
	}
	if len(problems) == 0 {
		return nil
	}
	f := diagnose.Finding{
		ID: "sshd-config-invalid", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess,
		Title:  fmt.Sprintf("The server sshd does not start, because of %s: %s.", place(problems[0].file, problems[0].line), problems[0].text),
		ByHand: "Correct the lines that are named, and check the file with sshd -t.",
	}
	files := map[string]bool{}
	var writes []string
	for _, p := range problems[:min(len(problems), 10)] {
		f.Evidence = append(f.Evidence, fileEvidence(p.file, p.line, p.text))
		f.Confidence = max(f.Confidence, p.confidence)
		if !files[p.file] {
			files[p.file] = true
			writes = append(writes, p.file)
		}
	}
	f.Repair = repairFiles("Comment the lines out that sshd refuses, so that its defaults are in force for them.", writes...)
	return []diagnose.Finding{f}
}

// algorithmKeywords take lists of names that the program itself has to know.
var algorithmKeywords = strings.Fields("ciphers macs kexalgorithms hostkeyalgorithms pubkeyacceptedalgorithms pubkeyacceptedkeytypes hostbasedacceptedalgorithms casignaturealgorithms")

// compareKeywords corrects the problems by the table of keywords in the system's own sshd. A program in which that table cannot be read
// changes nothing.
func (c *sshdConfig) compareKeywords(program []byte) []sshdProblem {
	has := func(keyword string) bool { return bytes.Contains(program, []byte(keyword+"\x00")) }
	if !has("permitrootlogin") || !has("authorizedkeysfile") || !has("x11displayoffset") {
		return c.problems
	}
	var out []sshdProblem
	for _, p := range c.problems {
		if p.keyword == "" || !bytes.Contains(program, []byte("\x00"+p.keyword+"\x00")) {
			if p.keyword != "" {
				p.confidence = max(p.confidence, 0.95)
			}
			out = append(out, p)
		}
	}
	for _, s := range c.settings {
		if slices.Contains(algorithmKeywords, s.keyword) && has("aes128-ctr") && len(s.args) == 1 && s.args[0] != "" && s.args[0][0] != '-' {
			for name := range strings.SplitSeq(strings.TrimLeft(s.args[0], "+^"), ",") {
				if !strings.ContainsAny(name, "*?!") && !has(name) {
					out = append(out, sshdProblem{file: s.file, line: s.line, text: fmt.Sprintf("the installed release of sshd knows no %q for %s", name, s.keyword), confidence: 0.9})
					break
				}
			}
		}
		if !has(s.keyword) && sshdKeywords[s.keyword].kind != nothing {
			out = append(out, sshdProblem{file: s.file, line: s.line, text: "the installed release of sshd knows no keyword " + s.keyword, confidence: 0.9})
		}
	}
	return out
}

func findSSHDService(s *diagnose.System) []diagnose.Finding {
	tree := s.Files
	if otherSSHServer(tree) != "" {
		return nil
	}
	if sshdProgram(tree) == "" {
		return missingServer(tree)
	}
	enabled, known := serviceEnabled(tree, "ssh", "sshd")
	if managerOf(tree) == systemdManager {
		if f := maskedServer(tree); f != nil {
			return []diagnose.Finding{*f}
		}
	}
	stop := "/etc/ssh/sshd_not_to_be_run"
	if enabled && tree.Exists(stop) {
		return []diagnose.Finding{{
			ID: "sshd-not-enabled", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.9,
			Title:    "The server sshd does not start, because " + stop + " exists.",
			Evidence: []diagnose.Evidence{fileEvidence(stop, 0, "it exists")},
			Repair:   repairFiles("Remove the file that keeps sshd from starting.", stop),
		}}
	}
	if enabled || !known {
		return nil
	}
	f := diagnose.Finding{
		ID: "sshd-not-enabled", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.9,
		Title: "Nothing starts sshd when the machine boots.",
	}
	switch managerOf(tree) {
	case systemdManager:
		unit := "ssh.service"
		if unitFile(tree, unit) == "" {
			unit = "sshd.service"
		}
		if unitFile(tree, unit) == "" { // started in a way that is not known
			return nil
		}
		link := "/etc/systemd/system/multi-user.target.wants/" + unit
		f.Title = "The unit " + unit + " is not enabled, so nothing starts sshd when the machine boots."
		f.Evidence = []diagnose.Evidence{fileEvidence(link, 0, "it does not exist, and no other unit wants "+unit)}
		f.Repair = repairFiles("Enable "+unit+" for multi-user.target.", link)
		f.ByHand = "Enable it with systemctl enable " + unit + "."
	case openrcManager:
		link := "/etc/runlevels/default/sshd"
		f.Evidence = []diagnose.Evidence{fileEvidence(link, 0, "it does not exist in any run level")}
		if tree.Exists("/etc/init.d/sshd") {
			f.Repair = repairFiles("Add sshd to the run level default.", link)
		}
		f.ByHand = "Enable it with rc-update add sshd default."
	default:
		f.Evidence = []diagnose.Evidence{fileEvidence("/etc/rc2.d", 0, "it has no link that starts ssh")}
		f.ByHand = "Enable it with update-rc.d ssh defaults."
		if tree.Exists("/etc/init.d/ssh") {
			f.Repair = repairFiles("Start ssh in the run levels 2 to 5.", "/etc/rc2.d/S01ssh", "/etc/rc3.d/S01ssh", "/etc/rc4.d/S01ssh", "/etc/rc5.d/S01ssh")
		}
	}
	return []diagnose.Finding{f}
}

// missingServer is a finding where traces show that a ssh server was there. Machines that never had one are no finding.
func missingServer(tree *diagnose.Tree) []diagnose.Finding {
	trace := firstExisting(tree, "/etc/ssh/sshd_config", "/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_rsa_key")
	if trace == "" || len(tree.Match("/nix/store", "*")) > 0 {
		return nil
	}
	return []diagnose.Finding{{
		ID: "sshd-not-installed", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.85,
		Title: "The program sshd is not installed, although its configuration is there.",
		Evidence: []diagnose.Evidence{
			fileEvidence("/usr/sbin/sshd", 0, "it does not exist"),
			fileEvidence(trace, 0, "it exists"),
		},
		ByHand: "Install the package of the ssh server: openssh-server on Debian, Ubuntu, RHEL and SUSE, openssh on Alpine.",
	}}
}

// maskedServer is a finding where the unit that would start sshd is masked.
func maskedServer(tree *diagnose.Tree) *diagnose.Finding {
	for _, unit := range []string{"ssh.service", "sshd.service"} {
		mask := unitMask(tree, unit)
		vendor := firstExisting(tree, "/usr/lib/systemd/system/"+unit, "/lib/systemd/system/"+unit)
		if mask == "" || vendor == "" {
			continue
		}
		// Debian's sshd.service is an alias of ssh.service: to mask it harms nothing.
		if _, err := tree.ReadLink(vendor); err == nil {
			continue
		}
		name := strings.TrimSuffix(unit, ".service")
		if unitEnabled(tree, name+".socket") && unitMask(tree, name+"@.service") == "" && acceptsConnections(tree, name+".socket") {
			continue
		}
		return &diagnose.Finding{
			ID: "sshd-masked", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.95,
			Title:    "The unit " + unit + " is masked, so nothing can start sshd.",
			Evidence: []diagnose.Evidence{fileEvidence(mask, 0, "it leads to /dev/null or is empty")},
			Explains: []string{"sshd-not-enabled"},
			Repair: repairFiles("Remove the mask of "+unit+" and enable it for multi-user.target.", mask,
				"/etc/systemd/system/multi-user.target.wants/"+unit),
			ByHand: "Remove the mask with systemctl unmask " + unit + ", and enable the unit.",
		}
	}
	return nil
}

// acceptsConnections says whether a socket starts one service for each connection.
func acceptsConnections(tree *diagnose.Tree, socket string) bool {
	for _, l := range unitSettings(tree.Lines(unitFile(tree, socket))) {
		if l.Key == "Accept" && (strings.EqualFold(l.Value, "yes") || strings.EqualFold(l.Value, "true")) {
			return true
		}
	}
	return false
}

func paths(evidence []diagnose.Evidence) []string {
	var out []string
	for _, e := range evidence {
		out = append(out, e.Path)
	}
	return out
}

// findSeparation looks at the user and the folder into which sshd locks the processes of those who have not logged in yet.
func findSeparation(s *diagnose.System) []diagnose.Finding {
	tree := s.Files
	program := sshdProgram(tree)
	if program == "" {
		return nil
	}
	var out []diagnose.Finding
	accounts, _ := parsePasswd(tree.Lines(passwdPath))
	found := len(accounts) == 0 || declaredIn(tree, "sysusers.d", "sshd")
	for _, a := range accounts {
		found = found || a.name == "sshd"
	}
	if !found && loginsElsewhere(tree, &sshdConfig{}) == "" {
		out = append(out, diagnose.Finding{
			ID: "sshd-user-missing", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.93,
			Title:    "The server sshd does not start, because " + passwdPath + " has no user sshd.",
			Evidence: []diagnose.Evidence{fileEvidence(passwdPath, 0, "it has no line for sshd")},
			Repair:   repairFiles("Add a system user sshd without a password and a shell.", passwdPath, shadowPath),
			ByHand:   "Add it with useradd --system --home-dir /run/sshd --shell /usr/sbin/nologin sshd.",
		})
	}
	text, err := tree.Read(program)
	if err != nil {
		return out
	}
	for _, folder := range []string{"/var/empty/sshd", "/usr/share/empty.sshd", "/var/lib/empty", "/var/empty"} {
		if !bytes.Contains(text, []byte("\x00"+folder+"\x00")) || declaredIn(tree, "tmpfiles.d", folder) {
			continue
		}
		why := ""
		switch info, err := tree.Stat(folder); {
		case err != nil:
			why = "it does not exist"
		case !info.IsDir():
			why = "it is no folder"
		case diagnose.OwnerOf(info).UID != 0 || info.Mode()&0o022 != 0:
			why = "it does not belong to root alone: its mode is " + modeText(info)
		}
		if why != "" {
			out = append(out, diagnose.Finding{
				ID: "sshd-folder-unsafe", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.93,
				Title:    "The server sshd does not start, because of its folder " + folder + ": " + why + ".",
				Evidence: []diagnose.Evidence{fileEvidence(folder, 0, why)},
				Repair:   repairFiles("Make "+folder+" a folder of root with the mode 0711.", folder),
			})
		}
		break
	}
	return out
}

// declaredIn says whether a file of sysusers.d or tmpfiles.d names an entry that the boot makes.
func declaredIn(tree *diagnose.Tree, folder, name string) bool {
	for _, root := range []string{"/etc", "/usr/lib", "/lib"} {
		for _, file := range tree.Match(path.Join(root, folder), "*.conf") {
			for _, line := range tree.Lines(file) {
				fields := strings.Fields(line)
				if len(fields) >= 2 && fields[0][0] != '#' && fields[1] == name {
					return true
				}
			}
		}
	}
	return false
}
