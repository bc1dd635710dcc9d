package system

import (
	"path"
	"slices"
	"strings"
	"time"

	"salvor/diagnose"
)

// maxAccounts bounds the accounts whose logins are examined one by one.
const maxAccounts = 500

// login is what an account of a person, or root, can do to log in.
type login struct {
	account
	shadow *shadowEntry
	keys   []keyFile
	// refused says why sshd, PAM or the shell let nobody in as this account, by whatever way; empty where they do.
	refused string
	// Each says whether that way is open.
	byKey, byPassword, onConsole bool
	// denied is where sshd's configuration keeps the account out, although it has a key or a password.
	denied sshdSetting
	// Why sshd closes each way; empty where the way is open, or where refused says why none is.
	keyRefusal, passwordRefusal sshRefusal
}

// logins are the accounts that matter, and by which ways they log in.
type logins struct {
	config   *sshdConfig
	sshd     bool // OpenSSH's server is installed
	accounts []login
	// elsewhere says where logins may come from that the files do not show, such as a directory service; empty where nothing is known.
	elsewhere string
	day       int
	now       time.Time
}

// readLogins works out who can log in to a system.
func readLogins(s *diagnose.System) *logins {
	tree := s.Files
	l := &logins{config: readSSHDConfig(tree), sshd: sshdProgram(tree) != "", day: dayOf(s.Now), now: s.Now}
	l.elsewhere = loginsElsewhere(tree, l.config)
	for _, file := range []string{passwdPath, shadowPath, groupPath} {
		if _, err := tree.Read(file); err != nil && !isNotExist(err) && l.elsewhere == "" {
			l.elsewhere = "the file " + file + ", which was not examined"
		}
	}
	accounts, _ := parsePasswd(tree.Lines(passwdPath))
	entries, _ := parseShadow(tree.Lines(shadowPath))
	shadow := map[string]*shadowEntry{}
	for i := range entries {
		if shadow[entries[i].name] == nil {
			shadow[entries[i].name] = &entries[i]
		}
	}
	groups, _ := parseGroups(tree.Lines(groupPath))
	least := firstUserID(tree)
	for _, a := range accounts {
		if a.uid != 0 && (a.uid < least || a.uid >= 60_000 || !a.logsIn()) {
			continue
		}
		if len(l.accounts) >= maxAccounts {
			break
		}
		entry := login{account: a, shadow: shadow[a.name]}
		if a.inShadow && entry.shadow != nil {
			entry.hash = entry.shadow.hash
		}
		l.examine(tree, &entry, groups)
		if l.elsewhere == "" && a.home != "" && !tree.Exists(a.home) && mountMayHold(s, a.home) {
			l.elsewhere = "the home " + a.home + ", which was not mounted"
		}
		l.accounts = append(l.accounts, entry)
	}
	return l
}

// examine fills in by which ways an account logs in.
func (l *logins) examine(tree *diagnose.Tree, a *login, groups []userGroup) {
	a.keys = keyFiles(tree, l.config, &a.account, l.now)
	switch {
	case !a.logsIn():
		a.refused = "its shell is " + a.shell
	case !shellRuns(tree, a.shell):
		a.refused = "its shell " + a.shell + " cannot be run"
	case a.inShadow && a.shadow == nil:
		a.refused = "/etc/shadow has no entry for it"
	case a.shadow != nil:
		a.refused = a.shadow.expired(l.day)
	}
	if a.refused != "" {
		return
	}
	password := a.hash.usable || a.hash.empty
	a.onConsole = password
	if !l.sshd {
		return
	}
	l.examineSSH(tree, a, groups)
}

// denial is the setting by which sshd keeps an account out; nil where none does.
func (l *logins) denial(a *login, groups []userGroup) *sshdSetting {
	member := []string{}
	for _, g := range groups {
		if g.gid == a.gid || slices.Contains(g.members, a.name) {
			member = append(member, g.name)
		}
	}
	names := []string{a.name}
	for _, rule := range []struct {
		keyword string
		names   []string
		allow   bool
	}{{"denyusers", names, false}, {"allowusers", names, true}, {"denygroups", member, false}, {"allowgroups", member, true}} {
		set := l.config.all(rule.keyword)
		if len(set) == 0 {
			continue
		}
		matched := false
		for _, s := range set {
			for _, pattern := range s.args {
				name, host, withHost := strings.Cut(pattern, "@")
				if withHost && !rule.allow && host != "*" {
					continue // it denies some places only
				}
				matched = matched || slices.ContainsFunc(rule.names, func(n string) bool { return matchPattern(name, n) })
			}
		}
		if matched != rule.allow {
			return &set[0]
		}
	}
	return nil
}

// matchPattern compares a name with a pattern of sshd_config, in which * and ? stand for any letters.
func matchPattern(pattern, name string) bool {
	pattern = strings.NewReplacer(`\`, `\\`, `[`, `\[`).Replace(pattern)
	ok, _ := path.Match(pattern, strings.ReplaceAll(name, "/", "_"))
	return ok
}

// shellRuns says whether a shell exists and may be executed.
func shellRuns(tree *diagnose.Tree, shell string) bool {
	if shell == "" {
		shell = "/bin/sh"
	}
	info, err := tree.Stat(shell)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// localSources are the services of nsswitch.conf whose accounts are in the files that are read.
var localSources = []string{"files", "compat", "systemd", "db", "cache"}

// loginsElsewhere says where logins may come from that /etc/passwd and authorized_keys do not show.
func loginsElsewhere(tree *diagnose.Tree, config *sshdConfig) string {
	if config.partial {
		return "a part of sshd's configuration that was not read"
	}
	for _, line := range tree.Lines("/etc/nsswitch.conf") {
		name, services, found := strings.Cut(strings.SplitN(line, "#", 2)[0], ":")
		if !found || strings.TrimSpace(name) != "passwd" {
			continue
		}
		for _, service := range strings.Fields(services) {
			if !strings.HasPrefix(service, "[") && !slices.Contains(localSources, service) && nssModule(tree, service) != "" {
				return "the service " + service + " of nsswitch.conf"
			}
		}
	}
	for _, keyword := range []string{"authorizedkeyscommand", "trustedusercakeys", "authorizedprincipalscommand"} {
		if config.matched(keyword) || !strings.EqualFold(config.first(keyword, "none"), "none") {
			return keyword + " of sshd"
		}
	}
	if strings.EqualFold(config.first("hostbasedauthentication", "no"), "yes") || tree.Exists("/etc/krb5.keytab") {
		return "hosts or tickets that sshd trusts"
	}
	if config.matched("permitrootlogin", "passwordauthentication", "kbdinteractiveauthentication", "pubkeyauthentication", "allowusers", "allowgroups",
		"authenticationmethods", "authorizedkeysfile", "denyusers", "denygroups", "forcecommand", "chrootdirectory", "pubkeyacceptedalgorithms", "pubkeyacceptedkeytypes",
		"maxsessions", "revokedkeys") {
		return "Match blocks of sshd's configuration"
	}
	for _, s := range config.all("authenticationmethods") {
		for _, list := range s.args {
			if strings.Contains(list, "hostbased") || strings.Contains(list, "gssapi") {
				return "hosts or tickets that sshd trusts"
			}
		}
	}
	for _, agent := range []string{"google-guest-agent.service", "google-guest-agent-manager.service", "walinuxagent.service", "waagent.service", "afterburn-sshkeys@.service"} {
		if unitFile(tree, agent) != "" {
			return agent
		}
	}
	if cloudInitWillRun(tree) {
		return "cloud-init, which has not run yet"
	}
	return ""
}

// others says whether another account than this one logs in over ssh, as far as that is known.
func (l *logins) others(name string) bool {
	return l.elsewhere != "" || slices.ContainsFunc(l.accounts, func(a login) bool { return a.name != name && (a.byKey || a.byPassword) })
}

// anyByKey says whether an account logs in by its key over ssh, as far as that is known.
func (l *logins) anyByKey() bool {
	return slices.ContainsFunc(l.accounts, func(a login) bool { return a.byKey })
}

// severity of a finding about one account: it blocks access where no other account logs in.
func (l *logins) severity(name string, otherwise diagnose.Severity) diagnose.Severity {
	if l.others(name) {
		return otherwise
	}
	return diagnose.BlocksAccess
}

// find returns the account of a name, or nil.
func (l *logins) find(name string) *login {
	i := slices.IndexFunc(l.accounts, func(a login) bool { return a.name == name })
	if i < 0 {
		return nil
	}
	return &l.accounts[i]
}
