package system

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// sshRefusal is why one way of logging in over ssh is closed to an account. The zero value: the way is open.
type sshRefusal struct {
	why string             // the end of a sentence
	at  config.SSHDSetting // the setting that closes it; without a keyword, no setting does
}

func (r *sshRefusal) isOpen() bool { return r.why == "" }

// examineSSH works out by which ways sshd and PAM let an account in under one configuration.
func (l *logins) examineSSH(tree *diagnose.Tree, a *login) {
	a.denied = config.SSHDSetting{}
	if at := l.denial(a); at != nil {
		a.denied = *at
		a.keyRefusal = sshRefusal{at.Keyword + " keeps it out", *at}
		a.passwordRefusal = a.keyRefusal
		return
	}
	if r := l.refusesSession(tree, a); !r.isOpen() {
		a.keyRefusal, a.passwordRefusal = r, r
		return
	}
	a.keyRefusal, a.passwordRefusal = l.refusesKeys(tree, a), l.refusesPassword(a)
	if root := l.config.SettingOf("permitrootlogin"); a.UID == 0 && root.Keyword != "" && strings.EqualFold(root.Args[0], "no") {
		a.denied = root
	}
	if methods := l.config.SettingOf("authenticationmethods"); methods.Keyword != "" {
		l.combine(a, methods)
	}
	if a.keyRefusal.isOpen() || a.passwordRefusal.isOpen() {
		l.askPAM(tree, a)
	}
	a.byKey, a.byPassword = a.keyRefusal.isOpen(), a.passwordRefusal.isOpen()
}

// askPAM closes the open ways of an account that PAM refuses, whatever it logs in with.
func (l *logins) askPAM(tree *diagnose.Tree, a *login) {
	if l.pam == nil || !l.config.IsYes("usepam", "no") {
		return
	}
	q := pamRequest{tree: tree, service: "sshd", account: &a.Account, groups: a.groups, closedToUsers: l.closedToUsers}
	line, answer, refused := q.refusal(l.pam)
	if !refused {
		return
	}
	a.pamEvidence = answer.evidence
	r := sshRefusal{"PAM refuses it by " + place(line.file, line.line) + ": " + answer.why,
		config.SSHDSetting{Keyword: line.kind, Args: append([]string{line.control, line.module}, line.args...), File: line.file, Line: line.line}}
	if a.keyRefusal.isOpen() {
		a.keyRefusal = r
	}
	if a.passwordRefusal.isOpen() {
		a.passwordRefusal = r
	}
}

// combine applies AuthenticationMethods: each of its words is a list of methods that a login needs together.
func (l *logins) combine(a *login, methods config.SSHDSetting) {
	if len(methods.Args) == 1 && strings.EqualFold(methods.Args[0], "any") {
		return
	}
	pam := l.config.IsYes("usepam", "no")
	asks := pam && l.config.IsYes("kbdinteractiveauthentication", l.config.First("challengeresponseauthentication", "yes"))
	key, password := a.keyRefusal, a.passwordRefusal
	byPassword := sshRefusal{}
	if !l.config.IsYes("passwordauthentication", "yes") {
		byPassword = sshRefusal{"passwords are off", l.config.SettingOf("passwordauthentication")}
	} else if !password.isOpen() {
		byPassword = password
	}
	refused := sshRefusal{"AuthenticationMethods asks for " + strings.Join(methods.Args, " or "), methods}
	a.keyRefusal, a.passwordRefusal = refused, refused
	for _, list := range methods.Args {
		met, withKey := true, false
		for method := range strings.SplitSeq(list, ",") {
			name, _, _ := strings.Cut(strings.ToLower(method), ":")
			switch name {
			case "publickey":
				met, withKey = met && key.isOpen(), true
			case "password":
				met = met && byPassword.isOpen()
			case "keyboard-interactive": // what PAM asks for may be more, or other, than a password
				met = met && asks && (withKey || password.isOpen() || a.Hash.Usable)
			}
		}
		switch {
		case met && withKey:
			a.keyRefusal = sshRefusal{}
		case met:
			a.passwordRefusal = sshRefusal{}
		}
	}
}

// fileTransfer are programs that give no shell.
var fileTransfer = []string{"internal-sftp", "sftp-server", "false", "true", "nologin"}

// refusesSession says why sshd gives an account no shell, whatever it logs in with.
func (l *logins) refusesSession(tree *diagnose.Tree, a *login) sshRefusal {
	if at := l.config.SettingOf("maxsessions"); at.Keyword != "" && at.Args[0] == "0" {
		return sshRefusal{"MaxSessions 0 allows no session", at}
	}
	if at := l.config.SettingOf("maxauthtries"); at.Keyword != "" && at.Args[0] == "0" {
		return sshRefusal{"MaxAuthTries 0 ends each connection before the first try", at}
	}
	if at := l.config.SettingOf("forcecommand"); at.Keyword != "" && !strings.EqualFold(at.Args[0], "none") {
		program, _ := config.CutField(at.Args[0])
		switch {
		case slices.Contains(fileTransfer, path.Base(program)):
			return sshRefusal{"ForceCommand runs " + program + " in the place of a shell", at}
		case path.IsAbs(program) && !tree.Exists(program):
			return sshRefusal{"ForceCommand runs " + program + ", which does not exist", at}
		}
	}
	at := l.config.SettingOf("chrootdirectory")
	if at.Keyword == "" || strings.EqualFold(at.Args[0], "none") {
		return sshRefusal{}
	}
	folder := config.ExpandTokens(at.Args[0], &a.Account)
	if !path.IsAbs(folder) {
		return sshRefusal{"ChrootDirectory " + folder + " is no absolute path", at}
	}
	for place := path.Clean(folder); ; place = path.Dir(place) {
		switch info, err := tree.Stat(place); {
		case config.IsNotExist(err):
			return sshRefusal{"the folder " + place + " of ChrootDirectory does not exist", at}
		case err != nil: // it was not read
		case !info.IsDir():
			return sshRefusal{place + " of ChrootDirectory is no folder", at}
		case diagnose.OwnerOf(info).UID != 0 || info.Mode()&0o022 != 0:
			return sshRefusal{"the folder " + place + " of ChrootDirectory does not belong to root alone", at}
		}
		if place == "/" {
			break
		}
	}
	if !shellRuns(tree, path.Join(folder, config.FirstText(a.Shell, "/bin/sh"))) {
		return sshRefusal{"its shell does not exist below " + folder + " of ChrootDirectory", at}
	}
	return sshRefusal{}
}

// refusesKeys says why sshd takes none of an account's keys for a shell.
func (l *logins) refusesKeys(tree *diagnose.Tree, a *login) sshRefusal {
	c := l.config
	if root := c.First("permitrootlogin", ""); a.UID == 0 && (strings.EqualFold(root, "no") || strings.EqualFold(root, "forced-commands-only")) {
		return sshRefusal{"PermitRootLogin is " + strings.ToLower(root), c.SettingOf("permitrootlogin")}
	}
	if !c.IsYes("pubkeyauthentication", "yes") {
		return sshRefusal{"keys are off", c.SettingOf("pubkeyauthentication")}
	}
	if r := lostRevocations(tree, c); !r.isOpen() {
		return r
	}
	closed := sshRefusal{"it has no key", config.SSHDSetting{}}
	if lost := lostCommand(tree, c, "authorizedkeyscommand"); lost != "" {
		closed = sshRefusal{"it has no key, and " + lost + " of AuthorizedKeysCommand does not exist", c.SettingOf("authorizedkeyscommand")}
	} else if at := c.SettingOf("authorizedkeysfile"); at.Keyword != "" {
		closed = sshRefusal{"it has no key in " + config.ExpandTokens(strings.Join(at.Args, " or "), &a.Account), at}
	}
	for i := range a.keys {
		f := &a.keys[i]
		if over := l.overlaid(f.Path); over != nil && len(f.Keys) > 0 && !(over.IsBind() && strings.HasPrefix(f.Path, path.Clean(over.Source)+"/")) {
			what := "mounts an empty " + over.Type + " over its keys in " + f.Path
			if over.IsBind() {
				what = "shows " + over.Source + " at " + over.Target + ", in the place of its keys in " + f.Path
			}
			closed = sshRefusal{fmt.Sprintf("line %d of %s %s", over.Line, config.FstabPath, what),
				config.SSHDSetting{Keyword: over.Source, Args: []string{over.Target, over.Type}, File: config.FstabPath, Line: over.Line}}
			continue
		}
		if f.Usable() > 0 {
			closed = sshRefusal{}
			break
		}
		for _, k := range f.Keys {
			switch {
			case f.Refused != "":
				closed = sshRefusal{"its keys in " + f.Path + " are ignored, because " + f.Refused, config.SSHDSetting{}}
			case k.Valid && k.Closed != "":
				closed = sshRefusal{"its key in " + place(f.Path, k.Line) + " is refused, because " + k.Closed, k.ClosedBy}
			case k.Valid && k.Command && closed.at.Keyword == "":
				closed = sshRefusal{"its key in " + place(f.Path, k.Line) + " runs one command and no shell", config.SSHDSetting{}}
			}
		}
	}
	switch {
	case !closed.isOpen():
		return closed
	case a.Hash.Locked && !c.IsYes("usepam", "no"):
		return sshRefusal{"sshd takes its account for locked by the ! in " + config.ShadowPath + ", because UsePAM is no", c.SettingOf("usepam")}
	case a.shadow != nil && a.shadow.MustChange(l.day) != "" && !a.Hash.Usable && !a.Hash.Empty:
		return sshRefusal{a.shadow.MustChange(l.day) + ", and it has no password", config.SSHDSetting{}}
	}
	return sshRefusal{}
}

// lostRevocations says why sshd takes every key for revoked: the file of RevokedKeys does not exist, or is no file.
func lostRevocations(tree *diagnose.Tree, c *config.SSHDConfig) sshRefusal {
	at := c.SettingOf("revokedkeys")
	if at.Keyword == "" || strings.EqualFold(at.Args[0], "none") {
		return sshRefusal{}
	}
	switch info, err := tree.Stat(at.Args[0]); {
	case config.IsNotExist(err):
		return sshRefusal{"the file " + at.Args[0] + " of RevokedKeys does not exist, so that sshd takes every key for revoked", at}
	case err == nil && info.IsDir():
		return sshRefusal{at.Args[0] + " of RevokedKeys is a folder, so that sshd takes every key for revoked", at}
	}
	return sshRefusal{}
}

// refusesPassword says why sshd takes no password of an account.
func (l *logins) refusesPassword(a *login) sshRefusal {
	c := l.config
	pam := c.IsYes("usepam", "no")
	switch {
	case a.Hash.Locked:
		return sshRefusal{"its password is locked", config.SSHDSetting{}}
	case a.Hash.Empty && !c.IsYes("permitemptypasswords", "no"):
		return sshRefusal{"its password is empty", config.SSHDSetting{}}
	case !a.Hash.Usable && !a.Hash.Empty:
		return sshRefusal{"it has no password", config.SSHDSetting{}}
	case a.UID == 0 && !c.IsYes("permitrootlogin", "prohibit-password"):
		return sshRefusal{"PermitRootLogin does not take root's password", c.SettingOf("permitrootlogin")}
	case !c.IsYes("passwordauthentication", "yes") && !(pam && c.IsYes("kbdinteractiveauthentication", c.First("challengeresponseauthentication", "yes"))):
		return sshRefusal{"passwords are off", c.SettingOf("passwordauthentication")}
	}
	return sshRefusal{}
}

// sshOutcome says in short by what an account is refused over ssh.
func (a *login) sshOutcome() string {
	if a.refused != "" {
		return a.refused
	}
	if a.keyRefusal.why == a.passwordRefusal.why {
		return a.keyRefusal.why
	}
	return a.keyRefusal.why + "; " + a.passwordRefusal.why
}

// settings are the settings by which sshd refuses an account.
func (a *login) settings() []config.SSHDSetting {
	return slices.DeleteFunc([]config.SSHDSetting{a.keyRefusal.at, a.passwordRefusal.at}, func(s config.SSHDSetting) bool { return s.Keyword == "" })
}

// settingEvidence are lines of sshd's configuration by which accounts are refused, each once.
func settingEvidence(accounts []login) []diagnose.Evidence {
	var out []diagnose.Evidence
	for i := range accounts {
		for _, at := range accounts[i].settings() {
			e := config.FileEvidence(at.File, at.Line, at.Keyword+" "+strings.Join(at.Args, " "))
			out = appendOnce(out, e)
		}
		for _, e := range accounts[i].pamEvidence {
			out = appendOnce(out, e)
		}
	}
	return out
}

// appendOnce adds evidence of a line that is not among the others yet, up to 8.
func appendOnce(all []diagnose.Evidence, e diagnose.Evidence) []diagnose.Evidence {
	if len(all) >= 8 || slices.ContainsFunc(all, func(other diagnose.Evidence) bool { return other.Path == e.Path && other.Line == e.Line }) {
		return all
	}
	return append(all, e)
}

// helpFor says what lets accounts in again that sshd refuses: a correction of settings where an account has a key or a password, or a key.
func helpFor(accounts []login) string {
	for i := range accounts {
		a := &accounts[i]
		if len(a.settings()) > 0 && (hasKeys(a) || a.Hash.Usable) {
			if strings.HasPrefix(a.keyRefusal.why, "PAM ") || a.keyRefusal.at.File == config.FstabPath {
				return "Correct the line that is named. Ask first who wrote it, if it looks meant."
			}
			return fmt.Sprintf("Correct the settings that are named, check them with sshd -T -C user=%s, and restart sshd.", a.Name)
		}
	}
	return "Set a password for an account, or add a key to its .ssh/authorized_keys."
}

// hasKeys says whether an account has a valid key, whatever sshd makes of it.
func hasKeys(a *login) bool {
	return slices.ContainsFunc(a.keys, func(f config.KeyFile) bool { return hasKey(&f) })
}

// findNoSSHLogin is a finding where sshd lets no account in, whatever the console allows: administrators of servers come over ssh.
func findNoSSHLogin(s *diagnose.System) []diagnose.Finding {
	l := readLogins(s)
	if !l.sshd || l.elsewhere != "" || len(l.accounts) == 0 || otherSSHServer(s.Files) != "" {
		return nil
	}
	if enabled, known := config.ServiceEnabled(s.Files, "ssh", "sshd"); known && !enabled {
		return nil // the rule about the service names that
	}
	f := diagnose.Finding{
		ID: "ssh-login-impossible", Stage: diagnose.Login, Severity: diagnose.BlocksAccess, Confidence: 0.85,
		Evidence: settingEvidence(l.accounts), ByHand: helpFor(l.accounts),
	}
	var told *login // the account that the title names: with keys rather than without, and refused by a setting rather than by none
	for i := range l.accounts {
		a := &l.accounts[i]
		if a.byKey || a.byPassword {
			return nil
		}
		if told == nil || told.denied.Keyword == "permitrootlogin" && a.mayBeLetIn() || !hasKeys(told) && hasKeys(a) && a.denied.Keyword != "permitrootlogin" || len(told.settings()) == 0 && len(a.settings()) > 0 && hasKeys(told) == hasKeys(a) {
			told = a
		}
		if len(f.Evidence) < 16 {
			f.Evidence = append(f.Evidence, config.FileEvidence(config.PasswdPath, a.Line, a.Name+": "+a.sshOutcome()))
		}
	}
	f.Title = fmt.Sprintf("The server sshd lets no account in, and refuses %s for this reason: %s.", told.Name, strings.TrimSuffix(told.sshOutcome(), "."))
	return []diagnose.Finding{f}
}

// isLocalClient: the pattern names the machine itself, or hosts whose name has no dot.
func isLocalClient(pattern string) bool {
	return slices.Contains([]string{"LOCAL", "localhost", "PARANOID", "UNKNOWN"}, pattern) || strings.HasPrefix(pattern, "127.")
}

// findHostsDeny finds an /etc/hosts.deny that refuses every connection to a sshd that asks libwrap.
func findHostsDeny(s *diagnose.System) []diagnose.Finding {
	tree := s.Files
	if !asksLibwrap(tree) {
		return nil
	}
	for _, r := range append(config.HostsRules(tree, "/etc/hosts.allow", false), config.HostsRules(tree, "/etc/hosts.deny", true)...) {
		switch all := slices.Equal(r.Clients, []string{"ALL"}); {
		case !r.Denies && !slices.ContainsFunc(r.Clients, func(c string) bool { return !isLocalClient(c) }):
			continue // it lets in the machine itself only
		case !r.Denies:
			return nil
		case !all: // some are refused, and nobody can tell whom that leaves
			continue
		}
		f := diagnose.Finding{
			ID: "hosts-deny-blocks-ssh", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.92,
			Title:    fmt.Sprintf("The file %s refuses all connections to sshd, which asks it by libwrap.", place(r.File, r.Line)),
			Evidence: []diagnose.Evidence{config.FileEvidence(r.File, r.Line, r.Text)},
			ByHand:   "Name the networks that may connect in /etc/hosts.allow, such as: sshd: 192.0.2.0/24. Ask first who refused them.",
		}
		if r.Unread != "" {
			f.Title = fmt.Sprintf("The file %s refuses all connections to sshd, because libwrap cannot read the line: %s.", place(r.File, r.Line), r.Unread)
			f.ByHand = "Write the line anew, with a newline at its end. Someone may have cut the file short, so compare it with a backup."
		}
		return []diagnose.Finding{f}
	}
	return nil
}

// asksLibwrap says whether OpenSSH's server, or the program that it starts for a session, is linked with libwrap.
func asksLibwrap(tree *diagnose.Tree) bool {
	for _, name := range append([]string{sshdProgram(tree)}, sessionPrograms(tree)...) {
		if name == "" {
			continue
		}
		file, err := config.OpenReadAt(tree, name)
		if err != nil {
			continue
		}
		program, err := config.ReadProgram(file)
		_ = file.Close()
		if err == nil && slices.ContainsFunc(program.Libraries, func(l string) bool { return strings.HasPrefix(l, "libwrap.so") }) {
			return true
		}
	}
	return false
}
