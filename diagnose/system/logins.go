package system

import (
	"path"
	"slices"
	"strings"
	"time"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// maxAccounts bounds the accounts whose logins are examined one by one.
const maxAccounts = 500

// login is what an account of a person, or root, can do to log in.
type login struct {
	config.Account
	shadow *config.ShadowEntry
	keys   []config.KeyFile
	// shellTrouble says why the account's shell does not start; empty where nothing is known against it.
	shellTrouble string
	ends         shellEnds
	// refused says why sshd, PAM or the shell let nobody in as this account, by whatever way; empty where they do.
	refused string
	// Each says whether that way is open.
	byKey, byPassword, onConsole bool
	// denied is where sshd's configuration keeps the account out, although it has a key or a password.
	denied config.SSHDSetting
	// Why sshd closes each way; empty where the way is open, or where refused says why none is.
	keyRefusal, passwordRefusal sshRefusal
	groups                      []string // that it is a member of
	pamEvidence                 []diagnose.Evidence
}

// logins are the accounts that matter, and by which ways they log in.
type logins struct {
	config   *config.SSHDConfig
	sshd     bool // OpenSSH's server is installed
	accounts []login
	shells   map[string]shellCheck // by their places
	// elsewhere says where logins may come from that the files do not show, such as a directory service; empty where nothing is known.
	elsewhere string
	// now is the time after a boot, and day the day of it; clockMoves: systemd sets the clock to the time of a file, which lies in the future.
	day        int
	now        time.Time
	clockMoves bool
	// pam is the stack of sshd; nil where sshd does not ask PAM.
	pam []pamLine
	// overlays are the lines of /etc/fstab that mount an empty file system in memory, or show another folder, over a place.
	overlays []config.FstabLine
	// closedToUsers says why only root logs in after a boot; empty where all accounts may.
	closedToUsers string
}

// clockEpoch is a file to whose time systemd sets a clock that is behind it.
const clockEpoch = "/usr/lib/clock-epoch"

// readLogins works out who can log in to a system.
func readLogins(s *diagnose.System) *logins {
	return diagnose.Once(s.Files, "logins", func() *logins { return makeLogins(s) })
}

func makeLogins(s *diagnose.System) *logins {
	tree := s.Files
	l := &logins{config: config.ReadSSHDConfig(tree), sshd: sshdProgram(tree) != "", now: s.Now, shells: map[string]shellCheck{}}
	if info, err := tree.Stat(clockEpoch); err == nil && config.UsesSystemd(tree) && !s.Now.IsZero() && info.ModTime().After(s.Now) {
		l.now, l.clockMoves = info.ModTime(), true
	}
	l.day = config.DayOf(l.now)
	l.elsewhere = loginsElsewhere(tree, l.config)
	if usesPAM(tree) {
		l.pam, _ = pamStack(tree, "sshd")
	}
	l.closedToUsers = nologinStays(s)
	for _, e := range config.ParseFstab(config.TableLines(s, config.FstabPath)) {
		if !e.Has("noauto", "remount", "move") && (e.Type == "tmpfs" || e.Type == "ramfs" || e.Has("bind", "rbind") && path.IsAbs(e.Source) && !mountMayHold(s, path.Clean(e.Source))) {
			l.overlays = append(l.overlays, e)
		}
	}
	for _, file := range []string{config.PasswdPath, config.ShadowPath, config.GroupPath} {
		if _, err := tree.Read(file); err != nil && !config.IsNotExist(err) && l.elsewhere == "" {
			l.elsewhere = "the file " + file + ", which was not examined"
		}
	}
	accounts := config.ReadAccounts(tree)
	entries, _ := config.ParseShadow(tree.Lines(config.ShadowPath))
	shadow := map[string]*config.ShadowEntry{}
	for i := range entries {
		if shadow[entries[i].Name] == nil {
			shadow[entries[i].Name] = &entries[i]
		}
	}
	groups, _ := config.ParseGroups(tree.Lines(config.GroupPath))
	least := config.FirstUserID(tree)
	for _, a := range accounts {
		if a.UID != 0 && (a.UID < least || a.UID >= 60_000 || !a.LogsIn()) {
			continue
		}
		if len(l.accounts) >= maxAccounts {
			break
		}
		entry := login{Account: a, shadow: shadow[a.Name], groups: groupsOf(&a, groups)}
		if a.InShadow && entry.shadow != nil {
			entry.Hash = entry.shadow.Hash
		}
		l.examine(tree, &entry)
		if l.elsewhere == "" && a.Home != "" && !tree.Exists(a.Home) && mountMayHold(s, a.Home) {
			l.elsewhere = "the home " + a.Home + ", which was not mounted"
		}
		l.accounts = append(l.accounts, entry)
	}
	return l
}

// examine fills in by which ways an account logs in.
func (l *logins) examine(tree *diagnose.Tree, a *login) {
	if a.LogsIn() {
		a.shellTrouble = l.shellTrouble(tree, &a.Account)
		if a.ReturnAtEnd {
			a.shellTrouble = place(config.PasswdPath, a.Line) + " ends with a carriage return, which counts as a part of its name"
		}
	}
	if a.LogsIn() && a.shellTrouble == "" && len(l.accounts) < maxShellEnds {
		a.ends = findShellEnds(tree, &a.Account)
	}
	a.keys = l.keyFiles(tree, l.config, &a.Account)
	switch {
	case !a.LogsIn():
		a.refused = "its shell is " + a.Shell
	case a.shellTrouble != "":
		a.refused = "its shell " + a.Shell + " cannot be run"
	case a.ends.atTerminal != nil && a.ends.forCommands != nil:
		a.refused = "its shell ends at once by " + place(a.ends.forCommands.File, a.ends.forCommands.Line)
	case a.InShadow && a.shadow == nil:
		a.refused = "/etc/shadow has no entry for it"
	case a.shadow != nil:
		a.refused = a.shadow.Expired(l.day)
	}
	if a.refused != "" {
		return
	}
	password := a.Hash.Usable || a.Hash.Empty
	a.onConsole = password
	if !l.sshd {
		return
	}
	// A Match block may open a way for some addresses only: the way counts as open.
	for i, view := range l.config.For(&a.Account, a.groups) {
		one, under := *a, *l
		under.config = view
		if view != l.config {
			one.keys = l.keyFiles(tree, view, &a.Account)
		}
		under.examineSSH(tree, &one)
		if i == 0 || one.byKey && !a.byKey || one.byPassword && !a.byKey && !a.byPassword {
			*a = one
		}
	}
}

// groupsOf are the names of an account's groups.
func groupsOf(a *config.Account, groups []config.UserGroup) []string {
	member := []string{}
	for _, g := range groups {
		if g.GID == a.GID || slices.Contains(g.Members, a.Name) {
			member = append(member, g.Name)
		}
	}
	return member
}

// keyFiles are the files of keys that sshd finds after a boot. Behind them are those that a mount hides.
func (l *logins) keyFiles(tree *diagnose.Tree, sshd *config.SSHDConfig, a *config.Account) []config.KeyFile {
	out := config.KeyFiles(tree, sshd, a, l.now, l.shownAt)
	for _, f := range config.KeyFiles(tree, sshd, a, l.now, func(name string) string { return name }) {
		if !slices.ContainsFunc(out, func(other config.KeyFile) bool { return other.Path == f.Path }) {
			out = append(out, f)
		}
	}
	return out
}

// overlaid returns the last line of /etc/fstab that mounts something over a file; nil without one.
func (l *logins) overlaid(file string) *config.FstabLine {
	for i := range slices.Backward(l.overlays) {
		if at := path.Clean(l.overlays[i].Target); at != "/" && (file == at || strings.HasPrefix(file, at+"/")) {
			return &l.overlays[i]
		}
	}
	return nil
}

// shownAt is the path of the disk that a bind mount shows at a path; the path itself where none does.
func (l *logins) shownAt(name string) string {
	if e := l.overlaid(name); e != nil && e.IsBind() {
		return path.Join(e.Source, strings.TrimPrefix(name, path.Clean(e.Target)))
	}
	return name
}

// denial is the setting by which sshd keeps an account out; nil where none does.
func (l *logins) denial(a *login) *config.SSHDSetting {
	names := []string{a.Name}
	for _, rule := range []struct {
		keyword string
		names   []string
		allow   bool
	}{{"denyusers", names, false}, {"allowusers", names, true}, {"denygroups", a.groups, false}, {"allowgroups", a.groups, true}} {
		set := l.config.All(rule.keyword)
		if len(set) == 0 {
			continue
		}
		matched := false
		for _, s := range set {
			for _, pattern := range s.Args {
				name, host, withHost := strings.Cut(pattern, "@")
				if withHost && !rule.allow && host != "*" {
					continue // it denies some places only
				}
				matched = matched || slices.ContainsFunc(rule.names, func(n string) bool { return config.MatchPattern(name, n) })
			}
		}
		if matched != rule.allow {
			return &set[0]
		}
	}
	return nil
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
func loginsElsewhere(tree *diagnose.Tree, sshd *config.SSHDConfig) string {
	if sshd.Partial {
		return "a part of sshd's configuration that was not read"
	}
	if sshd.HasTooManyBlocks() {
		return "Match blocks of sshd's configuration, which are too many"
	}
	for _, line := range tree.Lines("/etc/nsswitch.conf") {
		name, services, found := strings.Cut(strings.SplitN(line, "#", 2)[0], ":")
		if !found || strings.TrimSpace(name) != "passwd" {
			continue
		}
		for _, service := range strings.Fields(services) {
			if !strings.HasPrefix(service, "[") && !slices.Contains(localSources, service) && nssModule(tree, service) != "" && stoppedDaemon(tree, service) == "" {
				return "the service " + service + " of nsswitch.conf"
			}
		}
	}
	for _, keyword := range []string{"authorizedkeyscommand", "trustedusercakeys", "authorizedprincipalscommand"} {
		if sshd.Matched(keyword) || !strings.EqualFold(sshd.First(keyword, "none"), "none") && lostCommand(tree, sshd, keyword) == "" {
			return keyword + " of sshd"
		}
	}
	if strings.EqualFold(sshd.First("hostbasedauthentication", "no"), "yes") || tree.Exists("/etc/krb5.keytab") {
		return "hosts or tickets that sshd trusts"
	}
	for _, s := range sshd.All("authenticationmethods") {
		for _, list := range s.Args {
			if strings.Contains(list, "hostbased") || strings.Contains(list, "gssapi") {
				return "hosts or tickets that sshd trusts"
			}
		}
	}
	for _, agent := range []string{"google-guest-agent.service", "google-guest-agent-manager.service", "walinuxagent.service", "waagent.service", "afterburn-sshkeys@.service"} {
		if config.UnitFile(tree, agent) != "" {
			return agent
		}
	}
	if config.CloudInitWillRun(tree) {
		return "cloud-init, which has not run yet"
	}
	return ""
}

// lostCommand returns the program or file of a setting that sshd asks for keys, if it does not exist; empty where it may answer.
func lostCommand(tree *diagnose.Tree, sshd *config.SSHDConfig, keyword string) string {
	name, _ := config.CutField(sshd.First(keyword, ""))
	if _, err := tree.Stat(name); path.IsAbs(name) && !strings.Contains(name, "%") && config.IsNotExist(err) {
		return name
	}
	return ""
}

// others says whether another account than this one logs in over ssh, as far as that is known.
func (l *logins) others(name string) bool {
	return l.elsewhere != "" || slices.ContainsFunc(l.accounts, func(a login) bool { return a.Name != name && (a.byKey || a.byPassword) })
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
	i := slices.IndexFunc(l.accounts, func(a login) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &l.accounts[i]
}

// allowedNames are root and the accounts with a usable key whose names can be written into a rule of access.conf.
func (l *logins) allowedNames() []string {
	out := []string{"root"}
	for i := range l.accounts {
		if a := &l.accounts[i]; hasUsableKey(a) && a.Name != "root" && !strings.ContainsAny(a.Name, " \t:#()@") {
			out = append(out, a.Name)
		}
	}
	return out
}
