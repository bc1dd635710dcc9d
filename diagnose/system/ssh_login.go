package system

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/diagnose"
)

// sshRefusal is why one way of logging in over ssh is closed to an account. The zero value: the way is open.
type sshRefusal struct {
	why string      // the end of a sentence
	at  sshdSetting // the setting that closes it; without a keyword, no setting does
}

func (r *sshRefusal) isOpen() bool { return r.why == "" }

// settingOf is the first setting of a keyword that counts outside of Match blocks; the zero value without one.
func (c *sshdConfig) settingOf(keywords ...string) sshdSetting {
	if set := c.all(keywords...); len(set) > 0 {
		return set[0]
	}
	return sshdSetting{}
}

// isYes says whether a keyword has the value yes.
func (c *sshdConfig) isYes(keyword, otherwise string) bool {
	return strings.EqualFold(c.first(keyword, otherwise), "yes")
}

// examineSSH works out by which ways sshd lets an account in, as sshd evaluates its settings outside of Match blocks.
func (l *logins) examineSSH(tree *diagnose.Tree, a *login, groups []userGroup) {
	if at := l.denial(a, groups); at != nil {
		a.denied = *at
		a.keyRefusal = sshRefusal{at.keyword + " keeps it out", *at}
		a.passwordRefusal = a.keyRefusal
		return
	}
	if r := l.refusesSession(tree, a); !r.isOpen() {
		a.keyRefusal, a.passwordRefusal = r, r
		return
	}
	a.keyRefusal, a.passwordRefusal = l.refusesKeys(tree, a), l.refusesPassword(a)
	if root := l.config.settingOf("permitrootlogin"); a.uid == 0 && root.keyword != "" && strings.EqualFold(root.args[0], "no") {
		a.denied = root
	}
	if methods := l.config.settingOf("authenticationmethods"); methods.keyword != "" {
		l.combine(a, methods)
	}
	a.byKey, a.byPassword = a.keyRefusal.isOpen(), a.passwordRefusal.isOpen()
}

// combine applies AuthenticationMethods: each of its words is a list of methods that a login needs together.
func (l *logins) combine(a *login, methods sshdSetting) {
	if len(methods.args) == 1 && strings.EqualFold(methods.args[0], "any") {
		return
	}
	pam := l.config.isYes("usepam", "no")
	asks := pam && l.config.isYes("kbdinteractiveauthentication", l.config.first("challengeresponseauthentication", "yes"))
	key, password := a.keyRefusal, a.passwordRefusal
	byPassword := sshRefusal{}
	if !l.config.isYes("passwordauthentication", "yes") {
		byPassword = sshRefusal{"passwords are off", l.config.settingOf("passwordauthentication")}
	} else if !password.isOpen() {
		byPassword = password
	}
	refused := sshRefusal{"AuthenticationMethods asks for " + strings.Join(methods.args, " or "), methods}
	a.keyRefusal, a.passwordRefusal = refused, refused
	for _, list := range methods.args {
		met, withKey := true, false
		for method := range strings.SplitSeq(list, ",") {
			name, _, _ := strings.Cut(strings.ToLower(method), ":")
			switch name {
			case "publickey":
				met, withKey = met && key.isOpen(), true
			case "password":
				met = met && byPassword.isOpen()
			case "keyboard-interactive": // what PAM asks for may be more, or other, than a password
				met = met && asks && (withKey || password.isOpen() || a.hash.usable)
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
	if at := l.config.settingOf("maxsessions"); at.keyword != "" && at.args[0] == "0" {
		return sshRefusal{"MaxSessions 0 allows no session", at}
	}
	if at := l.config.settingOf("forcecommand"); at.keyword != "" && !strings.EqualFold(at.args[0], "none") {
		program, _ := cutField(at.args[0])
		switch {
		case slices.Contains(fileTransfer, path.Base(program)):
			return sshRefusal{"ForceCommand runs " + program + " in the place of a shell", at}
		case path.IsAbs(program) && !tree.Exists(program):
			return sshRefusal{"ForceCommand runs " + program + ", which does not exist", at}
		}
	}
	at := l.config.settingOf("chrootdirectory")
	if at.keyword == "" || strings.EqualFold(at.args[0], "none") {
		return sshRefusal{}
	}
	folder := expandTokens(at.args[0], &a.account)
	if !path.IsAbs(folder) {
		return sshRefusal{"ChrootDirectory " + folder + " is no absolute path", at}
	}
	for place := path.Clean(folder); ; place = path.Dir(place) {
		switch info, err := tree.Stat(place); {
		case isNotExist(err):
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
	if !shellRuns(tree, path.Join(folder, firstText(a.shell, "/bin/sh"))) {
		return sshRefusal{"its shell does not exist below " + folder + " of ChrootDirectory", at}
	}
	return sshRefusal{}
}

// expandTokens replaces the tokens of paths in sshd's configuration.
func expandTokens(pattern string, a *account) string {
	return strings.NewReplacer("%%", "%", "%h", a.home, "%u", a.name, "%U", strconv.FormatUint(uint64(a.uid), 10)).Replace(pattern)
}

// refusesKeys says why sshd takes none of an account's keys for a shell.
func (l *logins) refusesKeys(tree *diagnose.Tree, a *login) sshRefusal {
	c := l.config
	if root := c.first("permitrootlogin", ""); a.uid == 0 && (strings.EqualFold(root, "no") || strings.EqualFold(root, "forced-commands-only")) {
		return sshRefusal{"PermitRootLogin is " + strings.ToLower(root), c.settingOf("permitrootlogin")}
	}
	if !c.isYes("pubkeyauthentication", "yes") {
		return sshRefusal{"keys are off", c.settingOf("pubkeyauthentication")}
	}
	if at := c.settingOf("revokedkeys"); at.keyword != "" && !strings.EqualFold(at.args[0], "none") {
		if _, err := tree.Stat(at.args[0]); isNotExist(err) {
			return sshRefusal{"the file " + at.args[0] + " of RevokedKeys does not exist, so that sshd takes every key for revoked", at}
		}
	}
	closed := sshRefusal{"it has no key", sshdSetting{}}
	if at := c.settingOf("authorizedkeysfile"); at.keyword != "" {
		closed = sshRefusal{"it has no key in " + expandTokens(strings.Join(at.args, " or "), &a.account), at}
	}
	for i := range a.keys {
		f := &a.keys[i]
		if f.usable() > 0 {
			closed = sshRefusal{}
			break
		}
		for _, k := range f.keys {
			switch {
			case f.refused != "":
				closed = sshRefusal{"its keys in " + f.path + " are ignored, because " + f.refused, sshdSetting{}}
			case k.valid && k.closed != "":
				closed = sshRefusal{"its key in " + place(f.path, k.line) + " is refused, because " + k.closed, k.closedBy}
			case k.valid && k.command && closed.at.keyword == "":
				closed = sshRefusal{"its key in " + place(f.path, k.line) + " runs one command and no shell", sshdSetting{}}
			}
		}
	}
	switch {
	case !closed.isOpen():
		return closed
	case a.hash.locked && !c.isYes("usepam", "no"):
		return sshRefusal{"sshd takes its account for locked by the ! in " + shadowPath + ", because UsePAM is no", c.settingOf("usepam")}
	case a.shadow != nil && a.shadow.mustChange(l.day) != "" && !a.hash.usable && !a.hash.empty:
		return sshRefusal{a.shadow.mustChange(l.day) + ", and it has no password", sshdSetting{}}
	}
	return sshRefusal{}
}

// refusesPassword says why sshd takes no password of an account.
func (l *logins) refusesPassword(a *login) sshRefusal {
	c := l.config
	pam := c.isYes("usepam", "no")
	switch {
	case a.hash.locked:
		return sshRefusal{"its password is locked", sshdSetting{}}
	case a.hash.empty && !c.isYes("permitemptypasswords", "no"):
		return sshRefusal{"its password is empty", sshdSetting{}}
	case !a.hash.usable && !a.hash.empty:
		return sshRefusal{"it has no password", sshdSetting{}}
	case a.uid == 0 && !c.isYes("permitrootlogin", "prohibit-password"):
		return sshRefusal{"PermitRootLogin does not take root's password", c.settingOf("permitrootlogin")}
	case !c.isYes("passwordauthentication", "yes") && !(pam && c.isYes("kbdinteractiveauthentication", c.first("challengeresponseauthentication", "yes"))):
		return sshRefusal{"passwords are off", c.settingOf("passwordauthentication")}
	}
	return sshRefusal{}
}

// keyAlgorithms are the signatures by which sshd takes a key of a type. Releases since 8.8 take no ssh-rsa, unless it is named.
func keyAlgorithms(kind string) []string {
	switch kind {
	case "ssh-rsa":
		return []string{"rsa-sha2-512", "rsa-sha2-256", "ssh-rsa"}
	case "ssh-rsa-cert-v01@openssh.com":
		return []string{"rsa-sha2-512-cert-v01@openssh.com", "rsa-sha2-256-cert-v01@openssh.com", kind}
	case "sk-ecdsa-sha2-nistp256@openssh.com":
		return []string{kind, "webauthn-sk-ecdsa-sha2-nistp256@openssh.com"}
	}
	return []string{kind}
}

// matchesList says whether a name matches a comma-separated list of patterns, in which ! excludes.
func matchesList(list, name string) bool {
	matched := false
	for pattern := range strings.SplitSeq(list, ",") {
		excluded, isExclusion := strings.CutPrefix(pattern, "!")
		switch {
		case isExclusion && matchPattern(excluded, name):
			return false
		case !isExclusion && matchPattern(pattern, name):
			matched = true
		}
	}
	return matched
}

// takesKeyType says whether PubkeyAcceptedAlgorithms takes keys of a type; at is the setting where it does not.
func (c *sshdConfig) takesKeyType(kind string) (takes bool, at sshdSetting) {
	at = c.settingOf("pubkeyacceptedalgorithms", "pubkeyacceptedkeytypes")
	if at.keyword == "" || at.args[0] == "" {
		return true, at
	}
	list := at.args[0]
	for _, algorithm := range keyAlgorithms(kind) {
		switch {
		case list[0] == '+' || list[0] == '^':
			return true, at
		case list[0] == '-':
			takes = takes || !matchesList(list[1:], algorithm) && (algorithm != "ssh-rsa" && !strings.HasPrefix(algorithm, "ssh-rsa-cert"))
		default:
			takes = takes || matchesList(list, algorithm)
		}
	}
	return takes, at
}

// localZones is how far the time of a machine without the zone of an expiry-time may lie from UTC.
const localZones = 14 * time.Hour

// isOver says whether an expiry-time of authorized_keys has passed: YYYYMMDD or YYYYMMDDHHMM[SS] in the machine's own time, with Z in UTC. sshd
// refuses a key whose time cannot be read.
func isOver(text string, now time.Time) bool {
	plain, isUTC := strings.CutSuffix(text, "Z")
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		at, err := time.Parse(layout, plain)
		if err != nil || len(plain) != len(layout) {
			continue
		}
		if !isUTC {
			at = at.Add(localZones)
		}
		return !now.IsZero() && now.After(at)
	}
	return true
}

// closeKey fills in why sshd does not take a valid key for a shell from elsewhere.
func (k *keyLine) closeKey(c *sshdConfig, now time.Time) {
	takes, at := c.takesKeyType(k.kind)
	least, _ := strconv.Atoi(c.first("requiredrsasize", "1024"))
	switch {
	case !k.valid || k.isAuthority:
	case k.expiry != "" && isOver(k.expiry, now):
		k.closed = "its expiry-time " + k.expiry + " is over"
	case k.isLocal:
		k.closed = "its option from lets in the machine itself only"
	case !takes:
		k.closed, k.closedBy = fmt.Sprintf("%s leaves its type %s out", at.keyword, k.kind), at
	case k.kind == "ssh-rsa" && k.bits > 0 && k.bits < least:
		k.closed, k.closedBy = fmt.Sprintf("it has %d bits, and RequiredRSASize asks for %d", k.bits, least), c.settingOf("requiredrsasize")
	}
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
func (a *login) settings() []sshdSetting {
	return slices.DeleteFunc([]sshdSetting{a.keyRefusal.at, a.passwordRefusal.at}, func(s sshdSetting) bool { return s.keyword == "" })
}

// settingEvidence are lines of sshd's configuration by which accounts are refused, each once.
func settingEvidence(accounts []login) []diagnose.Evidence {
	var out []diagnose.Evidence
	for i := range accounts {
		for _, at := range accounts[i].settings() {
			e := fileEvidence(at.file, at.line, at.keyword+" "+strings.Join(at.args, " "))
			if len(out) < 8 && !slices.ContainsFunc(out, func(other diagnose.Evidence) bool { return other.Path == e.Path && other.Line == e.Line }) {
				out = append(out, e)
			}
		}
	}
	return out
}

// helpFor says what lets accounts in again that sshd refuses: a correction of settings where an account has a key or a password, or a key.
func helpFor(accounts []login) string {
	for i := range accounts {
		a := &accounts[i]
		if len(a.settings()) > 0 && (hasKeys(a) || a.hash.usable) {
			return fmt.Sprintf("Correct the settings that are named, check them with sshd -T -C user=%s, and restart sshd.", a.name)
		}
	}
	return "Set a password for an account, or add a key to its .ssh/authorized_keys."
}

// hasKeys says whether an account has a valid key, whatever sshd makes of it.
func hasKeys(a *login) bool {
	return slices.ContainsFunc(a.keys, func(f keyFile) bool { return hasKey(&f) })
}

// findNoSSHLogin is a finding where sshd lets no account in, whatever the console allows: administrators of servers come over ssh.
func findNoSSHLogin(s *diagnose.System) []diagnose.Finding {
	l := readLogins(s)
	if !l.sshd || l.elsewhere != "" || len(l.accounts) == 0 || otherSSHServer(s.Files) != "" {
		return nil
	}
	if enabled, known := serviceEnabled(s.Files, "ssh", "sshd"); known && !enabled {
		return nil // the rule about the service names that
	}
	f := diagnose.Finding{
		ID: "ssh-login-impossible", Stage: diagnose.Login, Severity: diagnose.BlocksAccess, Confidence: 0.85,
		Evidence: settingEvidence(l.accounts), ByHand: helpFor(l.accounts),
	}
	var told *login // the account that comes nearest
	for i := range l.accounts {
		a := &l.accounts[i]
		if a.byKey || a.byPassword {
			return nil
		}
		if told == nil || !hasKeys(told) && hasKeys(a) || len(told.settings()) == 0 && len(a.settings()) > 0 && hasKeys(told) == hasKeys(a) {
			told = a
		}
		if len(f.Evidence) < 16 {
			f.Evidence = append(f.Evidence, fileEvidence(passwdPath, a.line, a.name+": "+a.sshOutcome()))
		}
	}
	f.Title = fmt.Sprintf("The server sshd lets no account in; of %s it says no because: %s.", told.name, strings.TrimSuffix(told.sshOutcome(), "."))
	return []diagnose.Finding{f}
}

// hostsRule is a line of /etc/hosts.allow or /etc/hosts.deny, as hosts_access(5) describes it.
type hostsRule struct {
	file, text string
	line       int
	clients    []string
	denies     bool
}

// hostsRules are the lines of such a file that are about sshd.
func hostsRules(tree *diagnose.Tree, file string, denies bool) []hostsRule {
	var out []hostsRule
	lines := tree.Lines(file)
	for i := 0; i < len(lines); i++ {
		at, text := i+1, ""
		text, i = joinLines(lines, i, unchanged)
		if text = strings.TrimSpace(text); text == "" || text[0] == '#' {
			continue
		}
		daemons, rest, found := strings.Cut(text, ":")
		if !found || !listMatches(daemons, "sshd") {
			continue
		}
		r := hostsRule{file: file, text: text, line: at, denies: denies}
		rest = hostsAddress.ReplaceAllStringFunc(rest, func(address string) string { // it holds colons
			if strings.HasPrefix(address, "[::1]") {
				return "localhost"
			}
			return "IPv6"
		})
		fields := strings.Split(rest, ":")
		r.clients = splitList(fields[0])
		for _, option := range fields[1:] {
			switch strings.ToLower(strings.TrimSpace(option)) {
			case "deny":
				r.denies = true
			case "allow":
				r.denies = false
			}
		}
		out = append(out, r)
	}
	return out
}

// hostsAddress is an IPv6 address or network in brackets.
var hostsAddress = regexp.MustCompile(`\[[0-9a-fA-F:.]*\](?:/[0-9]+)?`)

func splitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
}

// listMatches says whether a list of daemons names one: by its name, with an address behind an @, by a wildcard or by ALL, and not behind EXCEPT.
func listMatches(list, daemon string) bool {
	words := splitList(list)
	if at := slices.Index(words, "EXCEPT"); at >= 0 {
		return listMatches(strings.Join(words[:at], " "), daemon) && !listMatches(strings.Join(words[at+1:], " "), daemon)
	}
	return slices.ContainsFunc(words, func(word string) bool {
		name, _, _ := strings.Cut(word, "@")
		return name == "ALL" || matchPattern(name, daemon)
	})
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
	for _, r := range append(hostsRules(tree, "/etc/hosts.allow", false), hostsRules(tree, "/etc/hosts.deny", true)...) {
		switch all := slices.Equal(r.clients, []string{"ALL"}); {
		case !r.denies && !slices.ContainsFunc(r.clients, func(c string) bool { return !isLocalClient(c) }):
			continue // it lets in the machine itself only
		case !r.denies:
			return nil
		case !all: // some are refused, and nobody can tell whom that leaves
			continue
		}
		return []diagnose.Finding{{
			ID: "hosts-deny-blocks-ssh", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.92,
			Title:    fmt.Sprintf("The file %s refuses all connections to sshd, which asks it by libwrap.", place(r.file, r.line)),
			Evidence: []diagnose.Evidence{fileEvidence(r.file, r.line, r.text)},
			ByHand:   "Name the networks that may connect in /etc/hosts.allow, such as: sshd: 192.0.2.0/24. Ask first who refused them.",
		}}
	}
	return nil
}

// asksLibwrap says whether OpenSSH's server, or the program that it starts for a session, is linked with libwrap.
func asksLibwrap(tree *diagnose.Tree) bool {
	for _, name := range []string{sshdProgram(tree), "/usr/lib/openssh/sshd-session", "/usr/libexec/openssh/sshd-session"} {
		if name == "" {
			continue
		}
		file, err := openReadAt(tree, name)
		if err != nil {
			continue
		}
		program, err := readProgram(file)
		_ = file.Close()
		if err == nil && slices.ContainsFunc(program.Libraries, func(l string) bool { return strings.HasPrefix(l, "libwrap.so") }) {
			return true
		}
	}
	return false
}
