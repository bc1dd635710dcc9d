package system

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// sshdRules are about the start of OpenSSH's server: configuration, service, host keys, user, folder and libraries.
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
	return config.FirstExisting(tree, "/usr/sbin/sshd", "/usr/bin/sshd", "/sbin/sshd")
}

// losesClosedSSH says what may be lost where sshd starts again.
const losesClosedSSH = "The machine takes logins over ssh again. Someone may have switched that off on purpose."

// otherSSHServer returns another ssh server that starts by itself; empty where none does.
func otherSSHServer(tree *diagnose.Tree) string {
	for _, name := range []string{"dropbear", "tinysshd", "tinyssh"} {
		if enabled, _ := config.ServiceEnabled(tree, name); enabled {
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
	sshd := config.ReadSSHDConfig(s.Files)
	if !sshd.Exists {
		f := diagnose.Finding{
			ID: "sshd-config-missing", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.9,
			Title:    "The file " + config.SSHDConfigFile + " does not exist, and sshd does not start without it.",
			Evidence: []diagnose.Evidence{config.FileEvidence(config.SSHDConfigFile, 0, "it does not exist")},
			ByHand:   "Restore the file from a backup, or install the package of the ssh server again.",
		}
		if s.Files.Exists(config.PackagedSSHDConfig) {
			f.Repair = mayLose(repairFiles("Copy the configuration from "+config.PackagedSSHDConfig+"; where an account has a key, without logins by password.", config.SSHDConfigFile),
				"What the lost file set holds no more, such as limits of who logs in and from where.")
		}
		return []diagnose.Finding{f}
	}
	problems := sshd.Problems
	if text, err := s.Files.Read(program); err == nil {
		problems = sshd.CompareKeywords(text)
	}
	if len(sshd.All("authorizedkeyscommand")) > 0 && !strings.EqualFold(sshd.First("authorizedkeyscommand", "none"), "none") &&
		len(sshd.All("authorizedkeyscommanduser")) == 0 && !sshd.Matched("authorizedkeyscommanduser") && !sshd.Partial {
		at := sshd.All("authorizedkeyscommand")[0]
		problems = append(problems, config.SSHDProblem{File: at.File, Line: at.Line, Text: "authorizedkeyscommand needs an authorizedkeyscommanduser", Confidence: 0.95})
	}
	if len(problems) == 0 {
		return nil
	}
	f := diagnose.Finding{
		ID: "sshd-config-invalid", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess,
		Title:  fmt.Sprintf("The server sshd does not start, because of %s: %s.", place(problems[0].File, problems[0].Line), problems[0].Text),
		ByHand: "Correct the lines that are named, and check the file with sshd -t.",
	}
	files := map[string]bool{}
	var writes []string
	for _, p := range problems[:min(len(problems), 10)] {
		f.Evidence = append(f.Evidence, config.FileEvidence(p.File, p.Line, p.Text))
		f.Confidence = max(f.Confidence, p.Confidence)
		if !files[p.File] {
			files[p.File] = true
			writes = append(writes, p.File)
		}
	}
	f.Repair = repairFiles("Comment the lines out that sshd refuses, so that its defaults are in force for them.", writes...)
	if limits := limitingWords(s.Files, problems); len(limits) > 0 {
		f.Repair.Loses = fmt.Sprintf("Nothing limits logins by these lines any more: %s. Without them, sshd may take passwords or let each account in.", strings.Join(limits, ", "))
	}
	if slices.ContainsFunc(problems, func(p config.SSHDProblem) bool { return p.Option }) { // the line starts sshd
		f.Repair, f.ByHand = nil, "Correct the options of sshd's command line in the lines that are named."
	}
	return []diagnose.Finding{f}
}

// harmlessKeywords are keywords of sshd whose lines limit neither who logs in, nor from where, nor what for.
var harmlessKeywords = strings.Fields(`acceptenv banner clientalivecountmax clientaliveinterval compression hostkey ipqos keepalive logingracetime loglevel logverbose moduli modulifile
	pidfile port printlastlog printmotd setenv showpatchlevel subsystem syslogfacility tcpkeepalive usedns versionaddendum x11displayoffset xauthlocation`)

// maxLimitingWords bounds the words that a sentence names.
const maxLimitingWords = 5

// limitingWords are the first words of lines that sshd refuses and that may limit logins, each once. A word that sshd does not know may be meant so.
func limitingWords(tree *diagnose.Tree, problems []config.SSHDProblem) []string {
	var out []string
	add := func(file string, number int, line string) {
		word := strings.TrimSpace(keywordForm.FindString(line))
		if word == "" {
			word = place(file, number)
		}
		if len(out) < maxLimitingWords && !slices.Contains(out, word) && !slices.Contains(harmlessKeywords, strings.ToLower(word)) {
			out = append(out, word)
		}
	}
	wrong := map[string]int{}
	for _, p := range problems {
		wrong[p.File]++
		lines := tree.Lines(p.File)
		if p.Line > 0 && p.Line <= len(lines) {
			add(p.File, p.Line, lines[p.Line-1])
		}
		if wrong[p.File] != ManyWrongLines || path.Dir(p.File) == path.Dir(config.SSHDConfigFile) {
			continue
		}
		for i, line := range lines { // the whole file is set aside
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				add(p.File, i+1, line)
			}
		}
	}
	return out
}

// ManyWrongLines is how many lines of one file make it a file of another kind, which a repair sets aside as a whole unless it is sshd_config itself.
const ManyWrongLines = 10

// keywordForm is a keyword at the beginning of a line. Other words may be anything, such as a secret.
var keywordForm = regexp.MustCompile(`^\s*[A-Za-z][A-Za-z0-9]{1,39}\b`)

func findSSHDService(s *diagnose.System) []diagnose.Finding {
	tree := s.Files
	if otherSSHServer(tree) != "" {
		return nil
	}
	if sshdProgram(tree) == "" {
		return missingServer(tree)
	}
	enabled, known := config.ServiceEnabled(tree, "ssh", "sshd")
	if config.ManagerOf(tree) == config.SystemdManager {
		if f := maskedServer(tree); f != nil {
			return []diagnose.Finding{*f}
		}
		if unit := config.SSHDUnit(tree); unit != "" && !config.UnitEnabled(tree, strings.TrimSuffix(unit, ".service")+".socket") {
			e := defaultEntry(loadEntries(s))
			if line, option := maskArgument(e, unit); option != "" {
				return []diagnose.Finding{{
					ID: "sshd-masked", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.93,
					Title:    fmt.Sprintf("The unit %s is masked by line %d of %s, so nothing can start sshd.", unit, line, e.File),
					Evidence: []diagnose.Evidence{config.FileEvidence(e.File, line, option)},
					Explains: []string{"sshd-not-enabled"},
					ByHand:   "Remove " + option + " from the command line of the boot loader.",
				}}
			}
		}
	}
	if f := findDeafSocket(tree); f != nil {
		return []diagnose.Finding{*f}
	}
	const stop = stopFile
	if enabled && tree.Exists(stop) {
		return []diagnose.Finding{{
			ID: "sshd-not-enabled", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.9,
			Title:    "The server sshd does not start, because " + stop + " exists.",
			Evidence: []diagnose.Evidence{config.FileEvidence(stop, 0, "it exists")},
			Repair:   mayLose(repairFiles("Remove the file that keeps sshd from starting.", stop), losesClosedSSH),
		}}
	}
	if enabled || !known {
		return nil
	}
	f := diagnose.Finding{
		ID: "sshd-not-enabled", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.9,
		Title: "Nothing starts sshd when the machine boots.",
	}
	switch config.ManagerOf(tree) {
	case config.SystemdManager:
		unit := "ssh.service"
		if config.UnitFile(tree, unit) == "" {
			unit = "sshd.service"
		}
		if config.UnitFile(tree, unit) == "" { // started in a way that is not known
			return nil
		}
		link := "/etc/systemd/system/multi-user.target.wants/" + unit
		f.Title = "The unit " + unit + " is not enabled, so nothing starts sshd when the machine boots."
		f.Evidence = []diagnose.Evidence{config.FileEvidence(link, 0, "it does not exist, and no other unit wants "+unit)}
		f.Repair = mayLose(repairFiles("Enable "+unit+" for multi-user.target.", link), losesClosedSSH)
		f.ByHand = "Enable it with systemctl enable " + unit + "."
	case config.OpenrcManager:
		link := "/etc/runlevels/default/sshd"
		f.Evidence = []diagnose.Evidence{config.FileEvidence(link, 0, "it does not exist in any run level")}
		if tree.Exists("/etc/init.d/sshd") {
			f.Repair = mayLose(repairFiles("Add sshd to the run level default.", link), losesClosedSSH)
		}
		f.ByHand = "Enable it with rc-update add sshd default."
	default:
		f.Evidence = []diagnose.Evidence{config.FileEvidence("/etc/rc2.d", 0, "it has no link that starts ssh")}
		f.ByHand = "Enable it with update-rc.d ssh defaults."
		if tree.Exists("/etc/init.d/ssh") {
			f.Repair = repairFiles("Start ssh in the run levels 2 to 5.", "/etc/rc2.d/S01ssh", "/etc/rc3.d/S01ssh", "/etc/rc4.d/S01ssh", "/etc/rc5.d/S01ssh")
		}
	}
	return []diagnose.Finding{f}
}

// missingServer is a finding where traces show that a ssh server was there. Machines that never had one are no finding.
func missingServer(tree *diagnose.Tree) []diagnose.Finding {
	trace := config.FirstExisting(tree, "/etc/ssh/sshd_config", "/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_rsa_key")
	if trace == "" || len(tree.Match("/nix/store", "*")) > 0 {
		return nil
	}
	return []diagnose.Finding{{
		ID: "sshd-not-installed", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.85,
		Title: "The program sshd is not installed, although its configuration is there.",
		Evidence: []diagnose.Evidence{
			config.FileEvidence("/usr/sbin/sshd", 0, "it does not exist"),
			config.FileEvidence(trace, 0, "it exists"),
		},
		ByHand: "Install the package of the ssh server: openssh-server on Debian, Ubuntu, RHEL and SUSE, openssh on Alpine.",
	}}
}

// findDeafSocket is a finding where systemd is to listen in the place of sshd, and cannot: its socket names no address, or no service answers behind
// it.
func findDeafSocket(tree *diagnose.Tree) *diagnose.Finding {
	if config.ManagerOf(tree) != config.SystemdManager || config.UnitEnabled(tree, "ssh.service", "sshd.service") {
		return nil
	}
	for _, name := range []string{"ssh", "sshd"} {
		socket := name + ".socket"
		lines := config.UnitLines(tree, socket)
		if !config.UnitEnabled(tree, socket) || len(lines) == 0 {
			continue
		}
		f := &diagnose.Finding{ID: "sshd-unit-invalid", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.92, Explains: []string{"sshd-not-enabled", "sshd-listens-nowhere"}}
		listens := slices.ContainsFunc(lines, func(l config.UnitLine) bool {
			return l.Section == "Socket" && strings.HasPrefix(l.Key, "Listen") && len(settingList(lines, "Socket", l.Key)) > 0
		})
		service := config.FirstText(lastOf(lines, "Socket", "Service"), config.SSHDUnit(tree))
		switch lost := lostUnit(tree, service); {
		case !listens:
			at := lines[len(lines)-1]
			f.Title = fmt.Sprintf("The unit %s starts sshd, and systemd refuses it, because it has no ListenStream= in the end.", socket)
			f.Evidence = []diagnose.Evidence{config.FileEvidence(at.File, at.Line, at.Key+"="+at.Value)}
			f.ByHand = "Write ListenStream= with a port, such as 22, behind the empty one, and check the unit with systemd-analyze verify " + socket + "."
		case lost != "":
			f.Title = fmt.Sprintf("The unit %s starts sshd by %s, which %s.", socket, service, lost)
			f.Evidence = []diagnose.Evidence{config.FileEvidence(config.UnitFile(tree, socket), 0, "its service is "+service)}
			f.ByHand = "Make " + service + " start again with systemctl unmask, or install the package of the ssh server again."
		default:
			return nil
		}
		return f
	}
	return nil
}

// maskedServer is a finding where the unit that would start sshd is masked.
func maskedServer(tree *diagnose.Tree) *diagnose.Finding {
	for _, unit := range []string{"ssh.service", "sshd.service"} {
		mask := config.UnitMask(tree, unit)
		vendor := config.FirstExisting(tree, "/usr/lib/systemd/system/"+unit, "/lib/systemd/system/"+unit)
		if mask == "" || vendor == "" {
			continue
		}
		// Debian's sshd.service is an alias of ssh.service: to mask it harms nothing.
		if _, err := tree.ReadLink(vendor); err == nil {
			continue
		}
		name := strings.TrimSuffix(unit, ".service")
		if config.UnitEnabled(tree, name+".socket") && config.UnitMask(tree, name+"@.service") == "" && config.AcceptsConnections(tree, name+".socket") {
			continue
		}
		return &diagnose.Finding{
			ID: "sshd-masked", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.95,
			Title:    "The unit " + unit + " is masked, so nothing can start sshd.",
			Evidence: []diagnose.Evidence{config.FileEvidence(mask, 0, "it leads to /dev/null or is empty")},
			Explains: []string{"sshd-not-enabled"},
			Repair: mayLose(repairFiles("Remove the mask of "+unit+" and enable it for multi-user.target.", mask,
				"/etc/systemd/system/multi-user.target.wants/"+unit), losesClosedSSH),
			ByHand: "Remove the mask with systemctl unmask " + unit + ", and enable the unit.",
		}
	}
	return nil
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
	accounts, _ := config.ParsePasswd(tree.Lines(config.PasswdPath))
	found := declaredIn(tree, "sysusers.d", "sshd")
	for _, a := range accounts {
		found = found || a.Name == "sshd"
	}
	if !found && loginsElsewhere(tree, &config.SSHDConfig{}) == "" {
		out = append(out, diagnose.Finding{
			ID: "sshd-user-missing", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.93,
			Title:    "The server sshd does not start, because " + config.PasswdPath + " has no user sshd.",
			Evidence: []diagnose.Evidence{config.FileEvidence(config.PasswdPath, 0, "it has no line for sshd")},
			Repair:   repairFiles("Add a system user sshd without a password and a shell.", config.PasswdPath, config.ShadowPath),
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
			why = "it does not belong to root alone: its mode is " + config.ModeText(info)
		}
		if why != "" {
			out = append(out, diagnose.Finding{
				ID: "sshd-folder-unsafe", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.93,
				Title:    "The server sshd does not start, because of its folder " + folder + ": " + why + ".",
				Evidence: []diagnose.Evidence{config.FileEvidence(folder, 0, why)},
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
