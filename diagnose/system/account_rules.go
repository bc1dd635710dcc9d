package system

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// accountRules are about the files of the accounts, and about what keeps an account from logging in.
func accountRules() []diagnose.Rule {
	return []diagnose.Rule{
		{IDs: []string{"passwd-broken", "account-entry-broken", "shadow-missing"}, Files: true, Look: findBrokenAccounts},
		{IDs: []string{"nsswitch-module-missing"}, Files: true, Look: findNameServices},
		{IDs: []string{"account-expired", "password-must-change", "password-hash-unknown", "shell-missing", "shadow-entry-missing"}, Files: true, Look: findRefusedAccounts},
		{IDs: []string{"login-impossible"}, Files: true, Look: findNoLogin},
		{IDs: []string{"ssh-login-impossible"}, Files: true, Look: findNoSSHLogin},
		{IDs: []string{"hosts-deny-blocks-ssh"}, Files: true, Look: findHostsDeny},
		{IDs: []string{"sshd-users-denied"}, Files: true, Look: findDeniedUsers},
	}
}

func findBrokenAccounts(s *diagnose.System) []diagnose.Finding {
	tree := s.Files
	if loginsElsewhere(tree, &config.SSHDConfig{}) != "" && !tree.Exists(config.PasswdPath) {
		return nil
	}
	var out []diagnose.Finding
	accounts, broken := config.ParsePasswd(tree.Lines(config.PasswdPath))
	backup := func(file string) *diagnose.Repair {
		if !tree.Exists(file + "-") {
			return nil
		}
		return mayLose(repairFiles("Take the lines that are broken or missing from "+file+"-, the system's own backup.", file),
			"The backup is older: the lines lack what was changed last, such as a new password or a lock of an account.")
	}
	if !slices.ContainsFunc(accounts, func(a config.Account) bool { return a.Name == "root" && a.UID == 0 }) {
		text := "it has no line for root with the user id 0"
		if !tree.Exists(config.PasswdPath) {
			text = "it does not exist"
		}
		out = append(out, diagnose.Finding{
			ID: "passwd-broken", Stage: diagnose.Login, Severity: diagnose.BlocksAccess, Confidence: 0.96,
			Title:    "The user root is not in " + config.PasswdPath + ", because " + text + ".",
			Evidence: append([]diagnose.Evidence{config.FileEvidence(config.PasswdPath, 0, text)}, brokenEvidence(config.PasswdPath, broken)...),
			Explains: []string{"account-entry-broken", "login-impossible", "ssh-login-impossible", "sshd-user-missing", "shadow-entry-missing"},
			Repair:   backup(config.PasswdPath),
			ByHand:   "Compare the file with its backup " + config.PasswdPath + "-.",
		})
		broken = nil
	}
	l := readLogins(s)
	out = append(out, brokenEntries(l, config.PasswdPath, broken, backup)...)
	if slices.ContainsFunc(accounts, func(a config.Account) bool { return a.InShadow }) && !tree.Exists(config.ShadowPath) && !tree.Exists("/etc/tcb") {
		return append(out, diagnose.Finding{
			ID: "shadow-missing", Stage: diagnose.Login, Severity: diagnose.BlocksAccess, Confidence: 0.95,
			Title:    "The file " + config.PasswdPath + " refers to " + config.ShadowPath + " for passwords, and that file does not exist.",
			Evidence: []diagnose.Evidence{config.FileEvidence(config.ShadowPath, 0, "it does not exist")},
			Explains: []string{"login-impossible", "ssh-login-impossible", "shadow-entry-missing"},
			Repair:   backup(config.ShadowPath),
			ByHand:   "Restore the file from its backup " + config.ShadowPath + "-, or make it with pwconv and set the passwords.",
		})
	}
	_, broken = config.ParseShadow(tree.Lines(config.ShadowPath))
	out = append(out, brokenEntries(l, config.ShadowPath, broken, backup)...)
	_, broken = config.ParseGroups(tree.Lines(config.GroupPath))
	return append(out, brokenEntries(l, config.GroupPath, broken, backup)...)
}

// brokenEntries is one finding about the broken lines of a file; nil where there are none.
func brokenEntries(l *logins, file string, broken []config.BrokenEntry, backup func(string) *diagnose.Repair) []diagnose.Finding {
	if len(broken) == 0 {
		return nil
	}
	f := diagnose.Finding{
		ID: "account-entry-broken", Stage: diagnose.Login, Severity: diagnose.Degrades, Confidence: 0.93,
		Title:    fmt.Sprintf("The file %s is broken: %s.", place(file, broken[0].Line), broken[0].Why),
		Evidence: brokenEvidence(file, broken),
		Explains: []string{"login-impossible", "ssh-login-impossible", "shadow-entry-missing"},
		Repair:   backup(file),
		ByHand:   "Compare the file with its backup " + file + "-, and check it with pwck -r or grpck -r.",
	}
	if file != config.GroupPath {
		for _, b := range broken {
			if !l.others(b.Name) && (b.Name == "root" || len(l.accounts) <= 1 || file == config.PasswdPath || l.find(b.Name) != nil) {
				f.Severity = diagnose.BlocksAccess
			}
		}
	}
	return []diagnose.Finding{f}
}

// brokenEvidence names lines and users. The lines themselves may hold hashes and are not shown.
func brokenEvidence(file string, broken []config.BrokenEntry) []diagnose.Evidence {
	var out []diagnose.Evidence
	for _, b := range broken[:min(len(broken), 10)] {
		text := b.Why
		if isUserName(b.Name) {
			text = "the line of " + b.Name + ": " + b.Why
		}
		out = append(out, config.FileEvidence(file, b.Line, text))
	}
	return out
}

// userName is the usual form of a name.
var userName = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)

// isUserName: what stands in the place of a name in a broken line may be anything, a hash included, and those have capital letters.
func isUserName(name string) bool { return userName.MatchString(name) }

// libraryFolders hold the libraries of all distributions, one level of multiarch included.
func libraryFolders(tree *diagnose.Tree) []string {
	out := []string{"/lib64", "/usr/lib64", "/lib", "/usr/lib"}
	for _, root := range []string{"/lib", "/usr/lib"} {
		out = append(out, tree.Match(root, "*-linux-*")...)
	}
	return out
}

// findLibrary returns the path of a library, which may lie below a folder, as security/pam_unix.so does; empty where there is none.
func findLibrary(tree *diagnose.Tree, name string) string {
	for _, folder := range libraryFolders(tree) {
		if tree.Exists(path.Join(folder, name)) {
			return path.Join(folder, name)
		}
	}
	return ""
}

// nssModule returns the path of the library behind a service of nsswitch.conf; "libc" for those that the C library has in itself.
func nssModule(tree *diagnose.Tree, service string) string {
	if slices.Contains([]string{"files", "dns", "compat", "cache"}, service) {
		return "libc"
	}
	return findLibrary(tree, "libnss_"+service+".so.2")
}

// nssDaemons are the daemons that the libraries of nsswitch.conf ask, by service. Without its daemon, a library finds nobody.
var nssDaemons = map[string][]string{"sss": {"sssd", "sssd-nss"}, "winbind": {"winbind", "winbindd"}, "ldap": {"nslcd"}}

// stoppedDaemon returns the daemon behind a service of nsswitch.conf, if nothing starts it at boot; empty where the service may answer.
func stoppedDaemon(tree *diagnose.Tree, service string) string {
	daemons := nssDaemons[service]
	if len(daemons) == 0 || service == "ldap" && findLibrary(tree, "libnss_ldap.so.2") != "" && !tree.Exists("/etc/nslcd.conf") { // the library of the same name asks the server itself
		return ""
	}
	if enabled, known := config.ServiceEnabled(tree, daemons...); known && !enabled {
		return daemons[0]
	}
	return ""
}

func findNameServices(s *diagnose.System) []diagnose.Finding {
	tree := s.Files
	if findLibrary(tree, "libc.so.6") == "" { // musl reads no nsswitch.conf
		return nil
	}
	var out []diagnose.Finding
	for i, line := range tree.Lines("/etc/nsswitch.conf") {
		name, services, found := strings.Cut(strings.SplitN(line, "#", 2)[0], ":")
		name = strings.TrimSpace(name)
		if !found || (name != "passwd" && name != "shadow" && name != "group") {
			continue
		}
		some, first := false, ""
		for _, service := range strings.Fields(services) {
			if strings.HasPrefix(service, "[") || strings.HasSuffix(service, "]") {
				continue
			}
			if nssModule(tree, service) != "" && stoppedDaemon(tree, service) == "" {
				some = true
			} else if first == "" {
				first = service
			}
		}
		if first == "" || some { // others answer
			continue
		}
		severity := diagnose.BlocksAccess
		if name == "group" {
			severity = diagnose.Degrades
		}
		lacks, why := "library does not exist", config.FileEvidence("libnss_"+first+".so.2", 0, "no folder of libraries has it")
		if nssModule(tree, first) != "" {
			lacks, why = "daemon does not start", config.FileEvidence("/etc/systemd/system", 0, "no unit starts "+stoppedDaemon(tree, first))
		}
		out = append(out, diagnose.Finding{
			ID: "nsswitch-module-missing", Stage: diagnose.Login, Severity: severity, Confidence: 0.94,
			Title:    fmt.Sprintf("The file /etc/nsswitch.conf, line %d, looks for %s with the service %q, whose %s.", i+1, name, first, lacks),
			Evidence: []diagnose.Evidence{config.FileEvidence("/etc/nsswitch.conf", i+1, strings.TrimSpace(services)), why},
			Explains: []string{"login-impossible", "ssh-login-impossible", "sshd-user-missing"},
			Repair:   repairFiles("Write the service files before the others in this line.", "/etc/nsswitch.conf"),
			ByHand:   "Write files as the first service of the line.",
		})
	}
	return out
}

func findRefusedAccounts(s *diagnose.System) []diagnose.Finding {
	l := readLogins(s)
	var out []diagnose.Finding
	explains := []string{"login-impossible", "ssh-login-impossible"}
	for i := range l.accounts {
		a := &l.accounts[i]
		f := diagnose.Finding{Stage: diagnose.Login, Explains: explains, Confidence: 0.95}
		switch {
		case a.shellTrouble != "" && shellRuns(s.Files, a.Shell):
			f.ID, f.Severity = "shell-missing", l.severity(a.Name, diagnose.Degrades)
			f.Title = fmt.Sprintf("The shell %s of %s does not start, because %s.", a.Shell, a.Name, a.shellTrouble)
			f.Evidence = []diagnose.Evidence{config.FileEvidence(config.PasswdPath, a.Line, a.Name+" has the shell "+a.Shell), config.FileEvidence(a.Shell, 0, a.shellTrouble)}
			f.ByHand = "Install the package that brings the file again, or give the file its mode back."
			if a.ReturnAtEnd {
				f.Evidence, f.ByHand = f.Evidence[:1], "Take the carriage returns out of the file: sed -i 's/\\r$//' "+config.PasswdPath+"."
			}
		case a.ends.atTerminal != nil || a.ends.forCommands != nil:
			f = endedShell(l, a, f)
		case a.LogsIn() && !shellRuns(s.Files, a.Shell) && !mountMayHold(s, a.Shell):
			f.ID, f.Severity = "shell-missing", l.severity(a.Name, diagnose.Degrades)
			f.Title = fmt.Sprintf("The shell %s of %s does not exist or may not be executed.", a.Shell, a.Name)
			f.Evidence = []diagnose.Evidence{config.FileEvidence(config.PasswdPath, a.Line, a.Name+" has the shell "+a.Shell), config.FileEvidence(a.Shell, 0, "it does not exist as an executable file")}
			if slices.Contains(plainShells, path.Base(a.Shell)) { // others may limit what the account does
				f.Repair = repairFiles("Give "+a.Name+" a shell that exists.", config.PasswdPath)
			}
			f.ByHand = "Set another shell with usermod -s /bin/sh " + a.Name + ", or install the shell."
		case a.InShadow && a.shadow == nil && s.Files.Exists(config.ShadowPath):
			f.ID, f.Severity, f.Confidence = "shadow-entry-missing", l.severity(a.Name, diagnose.Info), 0.9
			f.Title = fmt.Sprintf("The file %s has no entry for %s, so PAM lets this account not in.", config.ShadowPath, a.Name)
			f.Evidence = []diagnose.Evidence{config.FileEvidence(config.PasswdPath, a.Line, "the line of "+a.Name+" refers to "+config.ShadowPath), config.FileEvidence(config.ShadowPath, 0, "it has no valid line for "+a.Name)}
			f.Repair = mayLose(repairFiles("Add an entry with a locked password.", config.ShadowPath), fmt.Sprintf("The keys of %s let this account in again.", a.Name))
			f.ByHand = "Add the entry with pwconv, and set a password with passwd " + a.Name + "."
		case a.shadow == nil:
			continue
		case a.shadow.Expired(l.day) != "":
			f.ID, f.Severity = "account-expired", l.severity(a.Name, diagnose.Info)
			f.Title = fmt.Sprintf("The account %s cannot log in: %s.", a.Name, a.shadow.Expired(l.day))
			f.Evidence = []diagnose.Evidence{config.FileEvidence(config.ShadowPath, a.shadow.Line, "the days in the line of "+a.Name)}
			if l.clockMoves {
				f.Evidence = append(f.Evidence, config.FileEvidence(clockEpoch, 0, "systemd sets the clock to its time, "+l.now.UTC().Format("2006-01-02")))
				f.Title = appendToSentence(f.Title, ", after systemd has set the clock to the time of "+clockEpoch)
			}
			f.Repair = repairFiles("Clear the day on which the account expires, and the days after which its password does.", config.ShadowPath)
			f.ByHand = "Clear it with chage -E -1 -I -1 -M -1 " + a.Name + "."
			f.Repair.Loses = fmt.Sprintf("The password of %s no longer expires, whatever the rules of the site say.", a.Name)
			if a.shadow.Ends == 0 || a.shadow.Ends == 1 { // so does usermod --expiredate 1, by which administrators lock accounts
				f.Repair = nil
				f.ByHand = "An administrator seems to have locked the account; unlock it with chage -E -1 " + a.Name + " if that was not meant."
			} else if a.shadow.Ends > 1 { // no tool of a system sets such a day by itself
				f.Repair.Loses = fmt.Sprintf("The account %s logs in again. Someone may have set its last day on purpose.", a.Name)
			}
		case a.shadow.MustChange(l.day) != "" && (a.Hash.Usable || hasUsableKey(a)):
			f.ID, f.Severity, f.Confidence = "password-must-change", l.severity(a.Name, diagnose.Info), 0.7
			f.Title = fmt.Sprintf("The account %s cannot log in without a new password, because %s.", a.Name, a.shadow.MustChange(l.day))
			f.Evidence = []diagnose.Evidence{config.FileEvidence(config.ShadowPath, a.shadow.Line, "the days in the line of "+a.Name)}
			f.Repair = mayLose(repairFiles("Set the day of the last change to today.", config.ShadowPath), fmt.Sprintf("The account %s keeps its password, which someone else may know.", a.Name))
			f.ByHand = "Log in at a terminal and set a new password, or run chage -d today " + a.Name + "."
			if !a.Hash.Usable {
				f.Confidence = 0.92
			}
		case a.Hash.Usable && !knowsScheme(s.Files, a.Hash.Scheme):
			f.ID, f.Severity = "password-hash-unknown", l.severity(a.Name, diagnose.Degrades)
			f.Title = fmt.Sprintf("The password of %s is hashed in a way that this system's libcrypt does not know.", a.Name)
			f.Evidence = []diagnose.Evidence{config.FileEvidence(config.ShadowPath, a.shadow.Line, "the hash of "+a.Name+" is of the scheme "+a.Hash.Scheme)}
			f.ByHand = "Set a new password with passwd " + a.Name + "."
			if a.byKey {
				f.Severity = diagnose.Info
			}
		default:
			continue
		}
		out = append(out, f)
	}
	return out
}

// plainShells are shells that run whatever an account asks for.
var plainShells = strings.Fields("sh ash bash dash csh tcsh ksh ksh93 mksh pdksh zsh fish")

// endedShell is a finding about an account whose shell ends at once by its start files.
func endedShell(l *logins, a *login, f diagnose.Finding) diagnose.Finding {
	end, what := a.ends.forCommands, "each session"
	f.ID, f.Severity = "shell-missing", l.severity(a.Name, diagnose.Degrades)
	switch {
	case end == nil:
		end, what, f.Severity, f.Explains = a.ends.atTerminal, "each session at a terminal", diagnose.Degrades, nil
	case a.ends.atTerminal == nil:
		what, f.Severity, f.Explains = "each command and file transfer over ssh", diagnose.Degrades, nil
	}
	f.Title = fmt.Sprintf("The shell %s of %s ends at once by %s, and %s with it.", a.Shell, a.Name, place(end.File, end.Line), what)
	f.Evidence = []diagnose.Evidence{config.FileEvidence(end.File, end.Line, end.Text)}
	f.ByHand = "Take the line out, or let it end shells only that the condition is meant for."
	return f
}

func hasUsableKey(a *login) bool {
	return slices.ContainsFunc(a.keys, func(f config.KeyFile) bool { return f.Usable() > 0 })
}

// knowsScheme says whether the system can check hashes of a scheme. What cannot be found out is taken as known.
func knowsScheme(tree *diagnose.Tree, scheme string) bool {
	switch scheme {
	case "1", "5", "6", "des":
		return true
	case "2", "2a", "2b", "2x", "2y", "y", "gy", "7", "sha1", "md5", "sm3", "sm3y", "_":
	default:
		return false
	}
	name := findLibrary(tree, "libcrypt.so.1")
	if next := findLibrary(tree, "libcrypt.so.2"); next != "" {
		name = next
	}
	if name == "" {
		return true
	}
	text, err := tree.Read(name)
	// The library of glibc itself knows the first schemes only; libxcrypt, which replaced it, has functions of this name.
	return err != nil || !bytes.Contains(text, []byte("crypt_r")) || bytes.Contains(text, []byte("crypt_gensalt")) || (scheme[0] == '2' && bytes.Contains(text, []byte("$2a$")))
}

func findNoLogin(s *diagnose.System) []diagnose.Finding {
	l := readLogins(s)
	if l.elsewhere != "" || len(l.accounts) == 0 {
		return nil
	}
	f := diagnose.Finding{
		ID: "login-impossible", Stage: diagnose.Login, Severity: diagnose.BlocksAccess, Confidence: 0.85,
		Title: "No account can log in, by key or password, over ssh or on the console.", Explains: []string{"ssh-login-impossible"},
		// salvor has no key of the owner's that it could add, and sets no password.
		ByHand: helpFor(l.accounts),
	}
	for i := range l.accounts {
		a := &l.accounts[i]
		if a.byKey || a.byPassword || a.onConsole {
			return nil
		}
		if len(f.Evidence) < 10 {
			f.Evidence = append(f.Evidence, config.FileEvidence(config.PasswdPath, a.Line, a.Name+": "+l.reason(a)))
		}
	}
	f.Evidence = append(f.Evidence, settingEvidence(l.accounts)...)
	return []diagnose.Finding{f}
}

// reason says in short why an account cannot log in.
func (l *logins) reason(a *login) string {
	if !l.sshd && a.refused == "" {
		return "no password, no sshd"
	}
	return a.sshOutcome()
}

// mayBeLetIn: the account has a key, or a password with which sshd lets accounts other than root in.
func (a *login) mayBeLetIn() bool { return hasUsableKey(a) || a.UID != 0 && a.Hash.Usable }

// findDeniedUsers is a finding where sshd's settings keep all those out who have a key or a password.
func findDeniedUsers(s *diagnose.System) []diagnose.Finding {
	l := readLogins(s)
	if l.elsewhere != "" {
		return nil
	}
	f := diagnose.Finding{ID: "sshd-users-denied", Stage: diagnose.Login, Severity: diagnose.BlocksAccess, Confidence: 0.85, Explains: []string{"login-impossible", "ssh-login-impossible"}}
	writes, denies := map[string]bool{}, false
	var names []string
	for i := range l.accounts {
		a := &l.accounts[i]
		if a.byKey || a.byPassword {
			return nil
		}
		if a.denied.Keyword == "" || !a.mayBeLetIn() || len(f.Evidence) >= 10 {
			continue
		}
		// PermitRootLogin no is a usual protection: where somebody else is meant to log in, what refuses that account is the cause.
		if a.denied.Keyword == "permitrootlogin" && slices.ContainsFunc(l.accounts, func(other login) bool { return other.denied.Keyword == "" && other.mayBeLetIn() }) {
			continue
		}
		if f.Title == "" {
			f.Title = fmt.Sprintf("The server sshd lets nobody in who has a key or a password, because %s keeps %s out by %s.", place(a.denied.File, a.denied.Line), a.Name, a.denied.Keyword)
		}
		if a.denied.Keyword == "permitrootlogin" {
			f.Confidence = 0.75
		}
		f.Evidence = append(f.Evidence, config.FileEvidence(a.denied.File, a.denied.Line, a.denied.Keyword+" "+strings.Join(a.denied.Args, " ")))
		writes[a.denied.File] = true
		name := a.Name
		if a.denied.Keyword == "allowgroups" {
			name += " with all of its group"
		}
		names = append(names, name)
		denies = denies || strings.HasPrefix(a.denied.Keyword, "deny")
	}
	if len(f.Evidence) == 0 {
		return nil
	}
	f.ByHand = "Name an account in AllowUsers or AllowGroups that has a key, and restart sshd."
	if denies { // somebody refused this very account
		f.ByHand = "Take an account that has a key out of DenyUsers or DenyGroups, and restart sshd."
		return []diagnose.Finding{f}
	}
	if slices.ContainsFunc(l.accounts, func(a login) bool { return a.denied.Option }) {
		return []diagnose.Finding{f}
	}
	f.Repair = mayLose(repairFiles("Add the accounts that have keys to the setting, or set PermitRootLogin to prohibit-password for root.", slices.Sorted(maps.Keys(writes))...),
		"Accounts log in over ssh that someone kept out: "+strings.Join(names, ", ")+".")
	return []diagnose.Finding{f}
}
