package system

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// pamAnswer is what a module of PAM says about an account: the name of the code as controls spell it, and why. An unknown answer counts as success.
type pamAnswer struct {
	code, why string
	evidence  []diagnose.Evidence // beside the line of the stack
}

// pamRequest is an account whose login PAM is asked about.
type pamRequest struct {
	tree    *diagnose.Tree
	service string // of the stack: sshd or login
	account *config.Account
	groups  []string
	// closedToUsers says why the file /run/nologin stays after a boot; empty where the boot removes it.
	closedToUsers string
}

// pamModules are the modules of the stacks account and session whose answer their files give. A module that is not listed counts as success.
var pamModules = map[string]func(*pamRequest, *pamLine) pamAnswer{
	"pam_deny.so": func(*pamRequest, *pamLine) pamAnswer {
		return pamAnswer{code: "acct_expired", why: "pam_deny.so refuses everybody"}
	},
	"pam_nologin.so":    askNologin,
	"pam_access.so":     askAccess,
	"pam_listfile.so":   askListfile,
	"pam_succeed_if.so": askSucceedIf,
	"pam_time.so":       askTime,
	"pam_exec.so":       askExec,
}

// refusal returns the line of the stacks account and session by which PAM refuses an account; ok is false where PAM lets it in, as far as is known.
func (q *pamRequest) refusal(stack []pamLine) (at pamLine, answer pamAnswer, refused bool) {
	if at, answer, refused = q.walk(stack, "account"); refused {
		return at, answer, true
	}
	if at, answer, refused = q.walk(stack, "session"); refused {
		return at, answer, true
	}
	if l := pamUses(stack, "session", "pam_limits.so"); l != nil {
		if at, answer, refused = q.limits(l); refused {
			return at, answer, true
		}
	}
	return pamLine{}, pamAnswer{}, false
}

// limits says which limit keeps pam_limits from opening a session. Only the hard limits are read: pam_limits lowers a soft one to the hard one.
func (q *pamRequest) limits(l *pamLine) (at pamLine, answer pamAnswer, refused bool) {
	if value, where, set := config.ReadLimit(q.tree, q.account, q.groups, "nofile"); set && pamNeeds(*l) {
		if most := mostOpenFiles(q.tree); value > most {
			return *l, pamAnswer{why: fmt.Sprintf("%s asks for %d open files, and the kernel allows %d by fs.nr_open, so that the session is not opened", place(where.Path, where.Line), value, most),
				evidence: []diagnose.Evidence{where}}, true
		}
	}
	if q.account.UID == 0 {
		return pamLine{}, pamAnswer{}, false
	}
	for _, item := range []string{"maxlogins", "nproc"} {
		if value, where, set := config.ReadLimit(q.tree, q.account, q.groups, item); set && value == 0 && (item == "nproc" || pamNeeds(*l)) {
			what := map[string]string{"maxlogins": "no login", "nproc": "no process"}[item]
			return *l, pamAnswer{why: fmt.Sprintf("%s allows it %s by %s 0", place(where.Path, where.Line), what, item), evidence: []diagnose.Evidence{where}}, true
		}
	}
	return pamLine{}, pamAnswer{}, false
}

// Values of fs.nr_open that no file sets: that of the kernel, and the one to which systemd raises it. The systemd of Debian 12 and before does not.
const (
	kernelOpenFiles  = 1 << 20
	systemdOpenFiles = 1_073_741_816
)

// mostOpenFiles is the limit above which the kernel refuses a limit of open files, fs.nr_open.
func mostOpenFiles(tree *diagnose.Tree) int {
	if n, err := strconv.Atoi(sysctlSettings(tree)["fs.nr_open"].value); err == nil {
		return n
	}
	if !config.UsesSystemd(tree) {
		return kernelOpenFiles
	}
	text, err := tree.Read(config.FirstExisting(tree, "/usr/lib/systemd/systemd", "/lib/systemd/systemd"))
	if err != nil || bytes.Contains(text, []byte("Couldn't write fs.nr_open")) {
		return systemdOpenFiles
	}
	return kernelOpenFiles
}

// walk goes through one stack as PAM does, with the answers of the modules that are known. A stack in which no module says yes refuses everybody.
func (q *pamRequest) walk(stack []pamLine, kind string) (at pamLine, why pamAnswer, refused bool) {
	lines := linesOfKind(stack, kind)
	if len(lines) == 0 { // PAM takes the stack for unknown services
		other, _ := pamStack(q.tree, "other")
		if lines = linesOfKind(other, kind); len(lines) == 0 {
			return pamLine{}, pamAnswer{}, false
		}
	}
	accepted := false
	for i := 0; i < len(lines); i++ {
		l, answer := lines[i], pamAnswer{code: "success"}
		if ask := pamModules[path.Base(l.module)]; ask != nil && l.problem == "" {
			answer = ask(q, &l)
		}
		if l.silent && l.problem == "" && pamModule(q.tree, l.module) == "" {
			answer = pamAnswer{code: "ignore"}
		}
		action := controlAction(l.control, answer.code)
		switch skip, err := strconv.Atoi(action); {
		case err == nil && i+skip >= len(lines):
			return l, pamAnswer{why: fmt.Sprintf("it jumps over %d lines, and the stack %s has only %d more", skip, kind, len(lines)-1-i)}, true
		case err == nil:
			i += skip
		case action == "die" || action == "bad":
			if !refused {
				at, why, refused = l, answer, true
			}
			if action == "die" {
				return at, why, true
			}
		case (action == "done" || action == "ok") && !refused && answer.code != "ignore":
			if action == "done" {
				return at, why, false
			}
			accepted = true
		}
	}
	if !refused && !accepted {
		why := pamAnswer{why: fmt.Sprintf("no module of the stack %s says yes, so that PAM refuses everybody", kind)}
		if file := emptyInclude(q.tree, q.service, kind); file != "" {
			why.why += ", and the file " + file + " has no line for it"
			why.evidence = []diagnose.Evidence{config.FileEvidence(file, 0, "it has no line of the kind "+kind)}
		}
		return lines[len(lines)-1], why, true
	}
	return at, why, refused
}

// linesOfKind are the lines of a stack for one of auth, account, password and session.
func linesOfKind(stack []pamLine, kind string) []pamLine {
	var out []pamLine
	for _, l := range stack {
		if l.kind == kind {
			out = append(out, l)
		}
	}
	return out
}

// emptyInclude is the file that the stack of a service includes and that has no line of a kind; empty where each included file has one.
func emptyInclude(tree *diagnose.Tree, service, kind string) string {
	for _, folder := range pamFolders {
		file := path.Join(folder, service)
		if !tree.Exists(file) {
			continue
		}
		for _, l := range parsePAM(tree.Lines(file), file) {
			if l.control != "include" && l.control != "substack" || l.kind != kind && l.kind != "" || l.problem != "" {
				continue
			}
			included := path.Join(folder, l.module)
			inner := parsePAM(tree.Lines(included), included)
			if tree.Exists(included) && (len(inner) == 0 || l.kind == kind && len(linesOfKind(inner, kind)) == 0 && len(linesOfKind(inner, "")) == 0) {
				return included
			}
		}
		return ""
	}
	return ""
}

// plainControls are the actions of the controls without brackets.
var plainControls = map[string]string{
	"required": "success=ok new_authtok_reqd=ok ignore=ignore default=bad", "requisite": "success=ok new_authtok_reqd=ok ignore=ignore default=die",
	"sufficient": "success=done new_authtok_reqd=done default=ignore", "optional": "success=ok new_authtok_reqd=ok default=ignore",
	"binding": "success=done new_authtok_reqd=done ignore=ignore default=bad",
}

// controlAction is what a control makes of a code: ok, done, bad, die, ignore, or the number of lines to jump over.
func controlAction(control, code string) string {
	if plain, found := plainControls[control]; found {
		control = plain
	}
	otherwise := "ignore"
	for pair := range strings.FieldsSeq(strings.ToLower(strings.Trim(control, "[]"))) {
		name, action, _ := strings.Cut(pair, "=")
		switch name {
		case code:
			return action
		case "default":
			otherwise = action
		}
	}
	return otherwise
}

func askNologin(q *pamRequest, _ *pamLine) pamAnswer {
	if q.account.UID != 0 && q.tree.Exists("/etc/nologin") {
		return pamAnswer{code: "auth_err", why: "the file /etc/nologin exists"}
	}
	if q.account.UID != 0 && q.closedToUsers != "" {
		return pamAnswer{code: "auth_err", why: "the file /run/nologin stays, because " + q.closedToUsers}
	}
	return pamAnswer{code: "ignore"}
}

// accessFile is the file that a line of pam_access reads.
func accessFile(l *pamLine) string {
	return optionOf(l, "accessfile", "/etc/security/access.conf")
}

func optionOf(l *pamLine, name, otherwise string) string {
	for _, arg := range l.args {
		if value, found := strings.CutPrefix(arg, name+"="); found {
			return value
		}
	}
	return otherwise
}

func askAccess(q *pamRequest, l *pamLine) pamAnswer {
	if len(q.tree.Match("/etc/security/access.d", "*.conf")) > 0 || q.service != "sshd" {
		return pamAnswer{code: "success"}
	}
	file := accessFile(l)
	if r := config.RefusingRule(config.ReadAccessRules(q.tree, file), q.account, q.groups); r != nil {
		return pamAnswer{"perm_denied", place(file, r.Line) + " refuses it", []diagnose.Evidence{config.FileEvidence(file, r.Line, r.Text)}}
	}
	return pamAnswer{code: "success"}
}

// askListfile answers for lists of users and groups. A list that is missing or that others may write counts as an error of the module.
func askListfile(q *pamRequest, l *pamLine) pamAnswer {
	file, item, sense := optionOf(l, "file", ""), optionOf(l, "item", ""), optionOf(l, "sense", "")
	if file == "" || optionOf(l, "apply", "") != "" || item != "user" && item != "group" || sense != "allow" && sense != "deny" {
		return pamAnswer{code: "success"}
	}
	info, err := q.tree.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o002 != 0 {
		if optionOf(l, "onerr", "fail") == "succeed" || err != nil && !config.IsNotExist(err) {
			return pamAnswer{code: "success"}
		}
		return pamAnswer{"auth_err", "the list " + file + " does not exist, or everybody may write it", []diagnose.Evidence{config.FileEvidence(file, 0, "pam_listfile.so cannot use it")}}
	}
	names := []string{q.account.Name}
	if item == "group" {
		names = q.groups
	}
	list := diagnose.Once(q.tree, "list "+file, func() map[string]bool {
		out := map[string]bool{}
		for _, line := range q.tree.Lines(file) {
			out[strings.TrimSpace(line)] = true
		}
		return out
	})
	listed := slices.ContainsFunc(names, func(name string) bool { return list[name] })
	if listed == (sense == "allow") {
		return pamAnswer{code: "success"}
	}
	why := "the list " + file + " does not name it"
	if listed {
		why = "the list " + file + " names it"
	}
	return pamAnswer{"auth_err", why, []diagnose.Evidence{config.FileEvidence(file, 0, why)}}
}

// askSucceedIf answers for conditions on the name, the ids and the groups of the account. Another condition counts as true.
func askSucceedIf(q *pamRequest, l *pamLine) pamAnswer {
	words := slices.DeleteFunc(slices.Clone(l.args), func(a string) bool {
		return slices.Contains([]string{"debug", "use_uid", "quiet", "quiet_fail", "quiet_success", "audit"}, a)
	})
	values := map[string]string{"user": q.account.Name, "uid": fmt.Sprint(q.account.UID), "gid": fmt.Sprint(q.account.GID), "shell": q.account.Shell, "home": q.account.Home, "service": q.service}
	for ; len(words) >= 3; words = words[3:] {
		value, known := values[words[0]]
		if !known {
			continue
		}
		number, err1 := strconv.Atoi(value)
		bound, err2 := strconv.Atoi(words[2])
		numbers := err1 == nil && err2 == nil
		holds := true
		switch words[1] {
		case "=", "eq":
			holds = value == words[2]
		case "!=", "ne":
			holds = value != words[2]
		case "<", "lt":
			holds = !numbers || number < bound
		case "<=", "le":
			holds = !numbers || number <= bound
		case ">", "gt":
			holds = !numbers || number > bound
		case ">=", "ge":
			holds = !numbers || number >= bound
		case "in":
			holds = slices.Contains(strings.Split(words[2], ":"), value)
		case "notin":
			holds = !slices.Contains(strings.Split(words[2], ":"), value)
		case "ingroup", "notingroup":
			member := slices.ContainsFunc(strings.Split(words[2], ":"), func(g string) bool { return slices.Contains(q.groups, g) })
			holds = member == (words[1] == "ingroup")
		}
		if !holds {
			return pamAnswer{code: "auth_err", why: "pam_succeed_if.so asks for " + strings.Join(words[:3], " ")}
		}
	}
	return pamAnswer{code: "success"}
}

func askTime(q *pamRequest, _ *pamLine) pamAnswer {
	terminal := map[string]string{"sshd": "ssh", "login": "tty1"}[q.service]
	for _, r := range config.ReadTimeRules(q.tree) {
		if r.IsForAccount(q.service, terminal, q.account.Name) && r.IsNever() {
			const file = "/etc/security/time.conf"
			return pamAnswer{"perm_denied", place(file, r.Line) + " allows it no time", []diagnose.Evidence{config.FileEvidence(file, r.Line, r.Text)}}
		}
	}
	return pamAnswer{code: "success"}
}

// askExec answers for a program that PAM runs: one that does not exist or may not be executed refuses the login.
func askExec(q *pamRequest, l *pamLine) pamAnswer {
	if kind := optionOf(l, "type", ""); kind != "" && kind != "open_session" && kind != l.kind {
		return pamAnswer{code: "ignore"}
	}
	for _, word := range l.args {
		if !path.IsAbs(word) {
			continue
		}
		info, err := q.tree.Stat(word)
		switch {
		case config.IsNotExist(err):
			return pamAnswer{"system_err", "it runs " + word + ", which does not exist", []diagnose.Evidence{config.FileEvidence(word, 0, "it does not exist")}}
		case err == nil && info.Mode().IsRegular() && info.Mode()&0o111 == 0:
			return pamAnswer{"system_err", "it runs " + word + ", which nobody may execute", []diagnose.Evidence{config.FileEvidence(word, 0, "its mode is "+config.ModeText(info))}}
		}
		break
	}
	return pamAnswer{code: "success"}
}

// userSessionsUnit removes /run/nologin, which tmpfiles.d makes at each boot, and without which only root logs in through PAM.
const userSessionsUnit = "systemd-user-sessions.service"

// nologinStays says why /run/nologin stays after a boot; empty where the boot removes the file, or does not make it.
func nologinStays(s *diagnose.System) string {
	tree := s.Files
	if !slices.ContainsFunc(config.ReadTmpfiles(tree), func(l config.TmpfilesLine) bool { return l.Makes("/run/nologin") || l.Makes("/var/run/nologin") }) {
		return ""
	}
	switch {
	case config.UnitMask(tree, userSessionsUnit) != "":
		return userSessionsUnit + " is masked"
	case config.UnitFile(tree, userSessionsUnit) == "":
		return userSessionsUnit + " does not exist"
	}
	if _, option := maskArgument(defaultEntry(loadEntries(s)), userSessionsUnit); option != "" {
		return userSessionsUnit + " is masked by " + option
	}
	if text, _ := unitTrouble(s, userSessionsUnit); text != "" {
		return userSessionsUnit + " does not start: " + text
	}
	return ""
}
