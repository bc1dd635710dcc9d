package system

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// pamFolders hold the stacks of PAM, those of the administrator first.
var pamFolders = []string{"/etc/pam.d", "/usr/lib/pam.d", "/usr/etc/pam.d", "/usr/share/pam.d"}

// pamLine is a line of a stack, with those that it includes in its place.
type pamLine struct {
	kind     string // auth, account, password, session
	silent   bool   // a missing module is no error
	control  string
	module   string
	args     []string
	file     string
	line     int
	problem  string // why PAM cannot use the line
	included bool
}

var (
	pamKinds    = strings.Fields("auth account password session")
	pamControls = strings.Fields("required requisite sufficient optional binding")
)

// parsePAM parses one file. Includes are lines with the control include, substack or @include.
func parsePAM(lines []string, file string) []pamLine {
	var out []pamLine
	for i := 0; i < len(lines) && len(out) < 1000; i++ {
		at, text := i+1, ""
		text, i = config.JoinLines(lines, i, config.Unchanged)
		text, _, _ = strings.Cut(text, "#")
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		l := pamLine{file: file, line: at}
		kind, rest := config.CutField(text)
		rest = strings.TrimSpace(rest)
		if kind == "@include" {
			l.control, l.module = "include", rest
			out = append(out, l)
			continue
		}
		l.kind = strings.ToLower(strings.TrimPrefix(kind, "-"))
		l.silent = strings.HasPrefix(kind, "-")
		if !slices.Contains(pamKinds, l.kind) {
			l.problem = fmt.Sprintf("%q is none of auth, account, password and session", kind)
			out = append(out, l)
			continue
		}
		if strings.HasPrefix(rest, "[") {
			end := strings.IndexByte(rest, ']')
			if end < 0 {
				l.problem = "a bracket is not closed"
				out = append(out, l)
				continue
			}
			l.control, rest = rest[:end+1], rest[end+1:]
		} else {
			l.control, rest = config.CutField(rest)
			l.control = strings.ToLower(l.control)
		}
		fields := strings.Fields(rest)
		switch {
		case l.control == "":
			l.problem = "it has no control and no module"
		case l.control[0] != '[' && !slices.Contains(pamControls, l.control) && l.control != "include" && l.control != "substack":
			l.problem = fmt.Sprintf("%q is no control such as required", l.control)
		case len(fields) == 0:
			l.problem = "it names no module"
		default:
			l.module, l.args = fields[0], fields[1:]
		}
		out = append(out, l)
	}
	return out
}

// maxPAMFiles bounds how often a file is read for one stack. Those of distributions include fewer than 20, once for each kind.
const maxPAMFiles = 64

// pamStack reads the stack of a service with all that it includes; exists is false where PAM has none for the service.
func pamStack(tree *diagnose.Tree, service string) (stack []pamLine, exists bool) {
	files := 0
	var read func(name, kind string, depth int) bool
	read = func(name, kind string, depth int) bool {
		file := name
		if !path.IsAbs(name) {
			file = ""
			for _, folder := range pamFolders {
				if tree.Exists(path.Join(folder, name)) {
					file = path.Join(folder, name)
					break
				}
			}
		}
		if file == "" || !tree.Exists(file) {
			return false
		}
		if files++; files > maxPAMFiles {
			return true
		}
		for _, l := range parsePAM(tree.Lines(file), file) {
			if kind != "" && l.kind != kind && l.kind != "" && slices.Contains(pamKinds, l.kind) {
				continue
			}
			l.included = depth > 0
			if (l.control == "include" || l.control == "substack") && l.problem == "" {
				inner := l.kind
				if inner == "" {
					inner = kind
				}
				if depth < 16 && len(stack) < 4000 && !read(l.module, inner, depth+1) {
					l.problem = "it includes " + l.module + ", which does not exist"
					if !l.silent {
						stack = append(stack, l)
					}
				}
				continue
			}
			stack = append(stack, l)
		}
		return true
	}
	exists = read(service, "", 0)
	return stack, exists
}

// pamModule returns the path of a module; empty where it does not exist.
func pamModule(tree *diagnose.Tree, module string) string {
	if path.IsAbs(module) {
		if tree.Exists(module) {
			return module
		}
		return ""
	}
	for _, folder := range libraryFolders(tree) {
		for _, below := range []string{"security", "pam"} {
			if name := path.Join(folder, below, module); tree.Exists(name) {
				return name
			}
		}
	}
	return ""
}

// moduleTrouble says why PAM cannot load a module, as the end of a sentence; empty where nothing is known against it.
func moduleTrouble(tree *diagnose.Tree, module string) string {
	at := pamModule(tree, module)
	if at == "" {
		return "does not exist"
	}
	if lost := findLostLibrary(tree, at); lost != nil {
		return "cannot be loaded: " + lost.String()
	}
	return ""
}

// usesPAM says whether sshd asks PAM, and the system has it.
func usesPAM(tree *diagnose.Tree) bool {
	sshd := config.ReadSSHDConfig(tree)
	return sshd.Exists && strings.EqualFold(sshd.First("usepam", "no"), "yes") && tree.Exists("/etc/pam.d") && pamModule(tree, "pam_permit.so") != ""
}

func pamRules() []diagnose.Rule {
	return []diagnose.Rule{
		{IDs: []string{"pam-module-missing", "pam-config-broken"}, Files: true, Look: findPAM},
		{IDs: []string{"nologin-present", "access-conf-denies", "shell-not-listed"}, Files: true, Look: findRefusals},
	}
}

func findPAM(s *diagnose.System) []diagnose.Finding {
	tree := s.Files
	if sshdProgram(tree) == "" || !usesPAM(tree) {
		return nil
	}
	stack, exists := pamStack(tree, "sshd")
	if !exists {
		return []diagnose.Finding{{
			ID: "pam-config-broken", Stage: diagnose.Login, Severity: diagnose.BlocksAccess, Confidence: 0.85, Explains: []string{"login-impossible", "ssh-login-impossible"},
			Title:    "PAM has no stack for sshd, so its stack for unknown services lets nobody in.",
			Evidence: []diagnose.Evidence{config.FileEvidence("/etc/pam.d/sshd", 0, "it does not exist")},
			ByHand:   "Restore /etc/pam.d/sshd from the package of the ssh server.",
		}}
	}
	var out []diagnose.Finding
	reported := map[string]bool{}
	byKey := readLogins(s).anyByKey()
	for _, l := range stack {
		if l.kind == "password" { // changes of passwords only
			continue
		}
		f := diagnose.Finding{Stage: diagnose.Login, Severity: diagnose.BlocksAccess, Confidence: 0.94, Explains: []string{"login-impossible", "ssh-login-impossible"}, Evidence: []diagnose.Evidence{config.FileEvidence(l.file, l.line, l.problem)}}
		switch {
		case l.problem != "":
			f.ID = "pam-config-broken"
			f.Title = fmt.Sprintf("PAM cannot use %s: %s.", place(l.file, l.line), l.problem)
			f.ByHand = "Correct the line. Until then, logins through this stack fail."
			if l.kind == "auth" && l.control != "include" && l.control != "substack" && byKey {
				onlyPasswords(&f)
			}
		case l.silent || l.module == "" || reported[l.module] || !pamNeeds(l) || moduleTrouble(tree, l.module) == "":
			continue
		default:
			reported[l.module] = true
			f.ID = "pam-module-missing"
			f.Title = fmt.Sprintf("The file %s needs the module %s of PAM, which %s.", place(l.file, l.line), l.module, moduleTrouble(tree, l.module))
			f.Evidence[0].Text = strings.Join([]string{l.kind, l.control, l.module}, " ")
			if at := pamModule(tree, l.module); at != "" {
				f.Evidence = append(f.Evidence, config.FileEvidence(at, 0, moduleTrouble(tree, l.module)))
			} else {
				f.Evidence = append(f.Evidence, config.FileEvidence(path.Join("security", path.Base(l.module)), 0, "no folder of libraries has it"))
			}
			f.ByHand = "Install the package of the module, or take the line out of the stack."
			switch {
			case path.Base(l.module) == "pam_unix.so":
				f.ByHand = "Install the package of PAM's modules again."
			case l.kind == "auth": // without the line, the stack may ask for less than it did
			default:
				f.Repair = mayLose(repairFiles("Comment the line out.", l.file), fmt.Sprintf("Nothing checks or does what %s did at each login, such as to keep accounts out.", l.module))
			}
			if l.kind == "auth" && byKey && !isAsked(stack, l.module, "account", "session") {
				onlyPasswords(&f)
			}
		}
		out = append(out, f)
	}
	return out
}

// onlyPasswords weakens a finding about lines that ask for a password: sshd asks the stack of auth for no login by key.
func onlyPasswords(f *diagnose.Finding) {
	f.Severity, f.Explains = diagnose.Degrades, nil
	f.Title = appendToSentence(f.Title, "; logins by key go on, but those by password and sudo fail")
}

// isAsked says whether a line of one of the kinds needs a module too.
func isAsked(stack []pamLine, module string, kinds ...string) bool {
	return slices.ContainsFunc(stack, func(l pamLine) bool {
		return l.module == module && slices.Contains(kinds, l.kind) && !l.silent && pamNeeds(l)
	})
}

// pamNeeds says whether a login fails where the module of a line is missing.
func pamNeeds(l pamLine) bool {
	if path.Base(l.module) == "pam_unix.so" {
		return l.kind != "session"
	}
	if strings.HasPrefix(l.control, "[") {
		return !strings.Contains(l.control, "module_unknown=ignore") && !strings.Contains(l.control, "default=ignore") &&
			(strings.Contains(l.control, "default=bad") || strings.Contains(l.control, "default=die"))
	}
	return l.control == "required" || l.control == "requisite"
}

// pamUses returns the line of a stack that uses a module for a kind; nil without one.
func pamUses(stack []pamLine, kind, module string) *pamLine {
	for i := range stack {
		if stack[i].kind == kind && path.Base(stack[i].module) == module && stack[i].problem == "" {
			return &stack[i]
		}
	}
	return nil
}

// findRefusals looks at what keeps accounts out that are in order themselves.
func findRefusals(s *diagnose.System) []diagnose.Finding {
	tree := s.Files
	l := readLogins(s)
	root := l.find("root")
	rootComes := root != nil && (root.byKey || root.byPassword)
	var out []diagnose.Finding
	stack, _ := pamStack(tree, "sshd")
	pam := usesPAM(tree)
	if info, err := tree.Stat("/etc/nologin"); err == nil && l.sshd && (!pam || pamUses(stack, "account", "pam_nologin.so") != nil || pamUses(stack, "auth", "pam_nologin.so") != nil || len(stack) == 0) {
		f := diagnose.Finding{
			ID: "nologin-present", Stage: diagnose.Login, Severity: diagnose.BlocksAccess, Confidence: 0.92, Explains: []string{"login-impossible", "ssh-login-impossible"},
			Title:    "The file /etc/nologin exists, so nobody but root may log in.",
			Evidence: []diagnose.Evidence{config.FileEvidence("/etc/nologin", 0, "it exists since "+info.ModTime().UTC().Format("2006-01-02"))},
			Repair:   mayLose(repairFiles("Remove /etc/nologin.", "/etc/nologin"), "All accounts log in again. Someone may have kept them out on purpose, such as during maintenance."),
			ByHand:   "Remove the file when the maintenance is over for which it was made.",
		}
		if info.ModTime().IsZero() {
			f.Evidence[0].Text = "it exists"
		}
		if rootComes || pam && pamUses(stack, "account", "pam_nologin.so") == nil && l.anyByKey() { // PAM's auth is not asked for a key
			f.Severity = diagnose.Degrades
		}
		out = append(out, f)
	}
	if f := closedToUsers(s, l); f != nil && pam && pamUses(stack, "account", "pam_nologin.so") != nil {
		if rootComes {
			f.Severity = diagnose.Degrades
		}
		out = append(out, *f)
	}
	if at := pamUses(stack, "account", "pam_access.so"); pam && at != nil {
		if f := accessDenial(tree, l, at); f != nil {
			out = append(out, *f)
		}
	}
	at, forKeys := pamUses(stack, "account", "pam_shells.so"), true
	if at == nil {
		at, forKeys = pamUses(stack, "auth", "pam_shells.so"), false
	}
	if pam && at != nil && (at.control == "required" || at.control == "requisite") {
		listed := tree.Lines("/etc/shells")
		for i := range l.accounts {
			a := &l.accounts[i]
			if a.Shell == "" || slices.Contains(listed, a.Shell) || !a.LogsIn() || !tree.Exists("/etc/shells") {
				continue
			}
			severity := l.severity(a.Name, diagnose.Degrades)
			if !forKeys && a.byKey {
				severity = diagnose.Degrades
			}
			out = append(out, diagnose.Finding{
				ID: "shell-not-listed", Stage: diagnose.Login, Severity: severity, Confidence: 0.9, Explains: []string{"login-impossible", "ssh-login-impossible"},
				Title:    fmt.Sprintf("The shell %s of %s is not in /etc/shells, and PAM asks for that.", a.Shell, a.Name),
				Evidence: []diagnose.Evidence{config.FileEvidence("/etc/shells", 0, "it has no line "+a.Shell), config.FileEvidence(at.file, at.line, "pam_shells.so is "+at.control)},
				Repair:   mayLose(repairFiles("Add the shell to /etc/shells.", "/etc/shells"), fmt.Sprintf("All accounts with the shell %s log in again. Someone may have taken it from the list on purpose.", a.Shell)),
			})
		}
	}
	return out
}

// closedToUsers is a finding where a boot leaves /run/nologin; nil where the boot removes the file.
func closedToUsers(s *diagnose.System, l *logins) *diagnose.Finding {
	if l.closedToUsers == "" || !l.sshd {
		return nil
	}
	f := &diagnose.Finding{
		ID: "nologin-present", Stage: diagnose.Login, Severity: diagnose.BlocksAccess, Confidence: 0.92, Explains: []string{"login-impossible", "ssh-login-impossible"},
		Title:    "The file /run/nologin stays after the boot, so nobody but root may log in, because " + l.closedToUsers + ".",
		Evidence: []diagnose.Evidence{config.FileEvidence("/etc/systemd/system/"+userSessionsUnit, 0, l.closedToUsers)},
		ByHand:   "Let systemd start the unit again, such as with systemctl unmask " + userSessionsUnit + ".",
	}
	if config.UnitMask(s.Files, userSessionsUnit) == "" {
		f.Evidence[0].Path = config.FirstText(config.UnitFile(s.Files, userSessionsUnit), "/usr/lib/systemd/system/"+userSessionsUnit)
	}
	return f
}

// accessDenial is a finding where pam_access refuses every account that could log in over the network; nil where it lets one in.
func accessDenial(tree *diagnose.Tree, l *logins, at *pamLine) *diagnose.Finding {
	var first *config.AccessRule
	file := accessFile(at)
	rules := config.ReadAccessRules(tree, file)
	for i := range l.accounts {
		r := config.RefusingRule(rules, &l.accounts[i].Account, l.accounts[i].groups)
		if r == nil {
			return nil
		}
		if first == nil {
			first = r
		}
	}
	if first == nil || len(tree.Match("/etc/security/access.d", "*.conf")) > 0 || l.elsewhere != "" {
		return nil
	}
	return &diagnose.Finding{
		ID: "access-conf-denies", Stage: diagnose.Login, Severity: diagnose.BlocksAccess, Confidence: 0.9, Explains: []string{"login-impossible", "ssh-login-impossible"},
		Title:    fmt.Sprintf("The file %s, line %d, refuses all logins over the network.", file, first.Line),
		Evidence: []diagnose.Evidence{config.FileEvidence(file, first.Line, first.Text), config.FileEvidence(at.file, at.line, "the stack of sshd asks pam_access.so")},
		Repair:   mayLose(repairFiles("Allow root and the accounts that have keys before this line.", file), "Accounts log in from everywhere that someone kept out: "+strings.Join(l.allowedNames(), " ")+"."),
		ByHand:   "Write a line such as + : root : ALL before it.",
	}
}
