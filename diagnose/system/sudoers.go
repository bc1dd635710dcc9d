package system

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"salvor/diagnose"
)

const sudoersPath = "/etc/sudoers"

// sudoersFile is a file of sudoers that was read, or what is wrong with it.
type sudoersFile struct {
	path     string
	refused  string // why sudo ignores the file; empty where it reads it
	problems []brokenEntry
}

// readSudoers reads sudoers with all that it includes, each file and folder once.
func readSudoers(tree *diagnose.Tree) []sudoersFile {
	var out []sudoersFile
	seen := map[string]bool{}
	var include func(file string, depth int)
	include = func(file string, depth int) {
		if depth > 8 || len(out) >= maxConfigFiles || seen[file] {
			return
		}
		seen[file] = true
		f := sudoersFile{path: file, refused: sudoersRefusal(tree, file)}
		at := len(out)
		out = append(out, f)
		if f.refused != "" {
			return
		}
		problems, includes := parseSudoers(tree.Lines(file))
		out[at].problems = problems
		for _, i := range includes {
			if !path.IsAbs(i.path) {
				i.path = path.Join(path.Dir(file), i.path)
			}
			if !i.folder {
				if !tree.Exists(i.path) && !strings.Contains(i.path, "%") {
					out[at].problems = append(out[at].problems, brokenEntry{line: i.line, why: "it includes " + i.path + ", which does not exist"})
				} else if tree.Exists(i.path) {
					include(i.path, depth+1)
				}
				continue
			}
			if len(out) >= maxConfigFiles || seen[i.path] {
				continue
			}
			seen[i.path] = true
			for _, found := range tree.Match(i.path, "*") {
				info, err := tree.Stat(found)
				if err == nil && info.Mode().IsRegular() && !strings.Contains(path.Base(found), ".") && !strings.HasSuffix(found, "~") {
					include(found, depth+1)
				}
			}
		}
	}
	include(sudoersPath, 0)
	return out
}

// sudoersRefusal says why sudo does not read a file: it wants it to belong to root, and nobody else may write it.
func sudoersRefusal(tree *diagnose.Tree, file string) string {
	info, err := tree.Stat(file)
	if err != nil {
		return "it does not exist"
	}
	owner := diagnose.OwnerOf(info)
	switch {
	case !info.Mode().IsRegular():
		return "it is no regular file"
	case owner.UID != 0:
		return fmt.Sprintf("it belongs to the user id %d and not to root", owner.UID)
	case info.Mode()&0o002 != 0:
		return "everybody may write it: its mode is " + modeText(info)
	case info.Mode()&0o020 != 0 && owner.GID != 0:
		return "a group may write it: its mode is " + modeText(info)
	}
	return ""
}

// sudoersInclude is a line that includes another file, or all files of a folder.
type sudoersInclude struct {
	path   string
	folder bool
	line   int
}

var (
	sudoersAlias   = regexp.MustCompile(`^(User_Alias|Runas_Alias|Host_Alias|Cmnd_Alias|Cmd_Alias)\s+(.*)$`)
	sudoersName    = regexp.MustCompile(`^[A-Z][A-Z0-9_]*\s*=\s*\S`)
	sudoersNumber  = regexp.MustCompile(`^#-?[0-9]`)
	sudoersComma   = regexp.MustCompile(`\s*,\s*`)
	sudoersTags    = strings.Fields("PASSWD NOPASSWD EXEC NOEXEC SETENV NOSETENV LOG_INPUT NOLOG_INPUT LOG_OUTPUT NOLOG_OUTPUT FOLLOW NOFOLLOW MAIL NOMAIL INTERCEPT NOINTERCEPT")
	sudoersTag     = regexp.MustCompile(`^([A-Z_]+)\s*(:?)\s*`)
	sudoersSetting = regexp.MustCompile(`^(ROLE|TYPE|CWD|CHROOT|TIMEOUT|NOTBEFORE|NOTAFTER|PRIVS|LIMITPRIVS|APPARMOR_PROFILE)\s*=\s*("[^"]*"|\S+)\s*`)
)

// parseSudoers finds the lines that sudo cannot parse. It looks at the shape only, and takes what it does not know for right.
func parseSudoers(lines []string) (problems []brokenEntry, includes []sudoersInclude) {
	for i := 0; i < len(lines) && i < maxConfigLines; i++ {
		at, line := i+1, ""
		if line, i = joinLines(lines, i, unchanged); len(line) > maxJoinedLine {
			continue
		}
		line = strings.TrimSpace(line)
		if fields := strings.Fields(line); len(fields) == 2 && slices.Contains([]string{"#include", "@include", "#includedir", "@includedir"}, fields[0]) {
			includes = append(includes, sudoersInclude{strings.Trim(fields[1], `"`), strings.HasSuffix(fields[0], "dir"), at})
			continue
		}
		if line == "" || (line[0] == '#' && !sudoersNumber.MatchString(line)) {
			continue
		}
		if why := sudoersFault(line); why != "" {
			problems = append(problems, brokenEntry{line: at, why: why})
		}
	}
	return problems, includes
}

// sudoersFault says what is wrong with a line; empty where nothing is seen.
func sudoersFault(line string) string {
	if strings.Count(strings.ReplaceAll(line, `\"`, ""), `"`)%2 == 1 {
		return "a quotation mark is not closed"
	}
	if rest, found := strings.CutPrefix(line, "Defaults"); found {
		if strings.TrimSpace(rest) == "" {
			return "Defaults names no setting"
		}
		return ""
	}
	if line[0] == '@' {
		return ""
	}
	if m := sudoersAlias.FindStringSubmatch(line); m != nil {
		if !sudoersName.MatchString(m[2]) {
			return "the alias has no name in capital letters, or no value"
		}
		return ""
	}
	if at := strings.IndexByte(line, '#'); at > 0 && (line[at-1] == ' ' || line[at-1] == '\t') && !sudoersNumber.MatchString(line[at:]) {
		line = strings.TrimSpace(line[:at])
	}
	left, right, found := strings.Cut(line, "=")
	if !found {
		return "it grants nothing: it has no equals sign"
	}
	left = strings.TrimSpace(left)
	if strings.ContainsAny(left, `"\`) || strings.ContainsAny(right, `"\`) || strings.Contains(right, " : ") {
		return ""
	}
	if fields := strings.Fields(strings.ReplaceAll(sudoersComma.ReplaceAllString(left, ","), "! ", "!")); len(fields) != 2 {
		return fmt.Sprintf("%d fields stand before the equals sign, where a user and a host belong", len(fields))
	}
	return sudoersCommands(strings.TrimSpace(right))
}

// sudoersCommands looks at what stands behind the equals sign of a rule.
func sudoersCommands(text string) string {
	if text == "" {
		return "it names no command"
	}
	if rest, found := strings.CutPrefix(text, "("); found {
		inner, after, closed := strings.Cut(rest, ")")
		if !closed || strings.Contains(inner, "(") {
			return "a bracket is not closed"
		}
		text = strings.TrimSpace(after)
	}
	if strings.Contains(text, "(") && !strings.Contains(text, ")") {
		return "a bracket is not closed"
	}
	for {
		rest := text
		if at := sudoersSetting.FindStringIndex(text); at != nil {
			rest = text[at[1]:]
		}
		m := sudoersTag.FindStringSubmatch(rest)
		switch {
		case m != nil && m[2] == ":":
			if !slices.Contains(sudoersTags, m[1]) {
				if near := nearestTag(m[1]); near != "" {
					return fmt.Sprintf("%s is no tag; %s is near", m[1], near)
				}
				return ""
			}
			rest = rest[len(m[0]):]
		case m != nil && slices.Contains(sudoersTags, m[1]):
			return "no colon stands after " + m[1]
		}
		if rest == text {
			break
		}
		text = strings.TrimSpace(rest)
	}
	switch first := strings.Fields(text); {
	case len(first) == 0:
		return "it names no command"
	case first[0] == "ALL" && len(first) > 1 && !strings.HasPrefix(first[1], ",") && !strings.HasPrefix(first[1], ":"):
		return "something stands after ALL"
	case strings.Trim(first[0][:1], "abcdefghijklmnopqrstuvwxyz") == "" && first[0] != "sudoedit" && first[0] != "list" && !strings.HasPrefix(first[0], "sha"):
		return "the command " + first[0] + " has no full path"
	}
	return ""
}

func nearestTag(tag string) string {
	for _, known := range sudoersTags {
		if editDistance(tag, known) <= 2 {
			return known
		}
	}
	return ""
}

func sudoersRules() []diagnose.Rule {
	return []diagnose.Rule{{IDs: []string{"sudoers-refused", "sudoers-invalid", "sudo-not-setuid"}, Files: true, Look: findSudoTroubles}}
}

func findSudoTroubles(s *diagnose.System) []diagnose.Finding {
	tree := s.Files
	program := firstExisting(tree, "/usr/bin/sudo", "/usr/local/bin/sudo")
	if program == "" || strings.HasSuffix(resolved(tree, program), "sudo-rs") {
		return nil
	}
	severity := diagnose.Degrades
	if l := readLogins(s); l.elsewhere == "" && !slices.ContainsFunc(l.accounts, func(a login) bool { return a.uid == 0 && (a.byKey || a.byPassword || a.onConsole) }) {
		severity = diagnose.BlocksAccess // nobody becomes root without sudo
	}
	var out []diagnose.Finding
	if info, err := tree.Stat(program); err == nil && (diagnose.OwnerOf(info).UID != 0 || info.Mode()&setuidBit == 0) {
		out = append(out, diagnose.Finding{
			ID: "sudo-not-setuid", Stage: diagnose.Login, Severity: severity, Confidence: 0.95,
			Title:    "The program " + program + " does not belong to root or lost its setuid bit, so nobody becomes root with it.",
			Evidence: []diagnose.Evidence{fileEvidence(program, 0, fmt.Sprintf("its mode is %s, its owner %d; sudo wants 04755 and root", modeText(info), diagnose.OwnerOf(info).UID))},
			Repair:   repairFiles("Give "+program+" to root with the mode 04755.", program),
			ByHand:   "Run chown root " + program + " and chmod 4755 " + program + " as root.",
		})
	}
	for _, f := range readSudoers(tree) {
		if f.refused != "" {
			finding := diagnose.Finding{
				ID: "sudoers-refused", Stage: diagnose.Login, Severity: severity, Confidence: 0.95,
				Title:    fmt.Sprintf("The program sudo does not read %s, because %s.", f.path, f.refused),
				Evidence: []diagnose.Evidence{fileEvidence(f.path, 0, f.refused)},
				ByHand:   "Give the file to root with the mode 0440, and check it with visudo -c.",
			}
			if f.refused != "it does not exist" {
				finding.Repair = repairFiles("Give the file to root with the mode 0440.", f.path)
			}
			if f.path != sudoersPath { // sudo goes on without it
				finding.Severity = diagnose.Degrades
			}
			out = append(out, finding)
			continue
		}
		if len(f.problems) == 0 {
			continue
		}
		finding := diagnose.Finding{
			ID: "sudoers-invalid", Stage: diagnose.Login, Severity: diagnose.Degrades, Confidence: 0.93,
			Title:  fmt.Sprintf("The program sudo cannot parse %s: %s.", place(f.path, f.problems[0].line), f.problems[0].why),
			Repair: repairFiles("Comment the lines out that sudo cannot parse.", f.path),
			ByHand: "Correct the lines, and check them with visudo -c.",
		}
		for _, p := range f.problems[:min(len(f.problems), 10)] {
			finding.Evidence = append(finding.Evidence, fileEvidence(f.path, p.line, p.why))
		}
		if sudoStopsAtErrors(tree) {
			finding.Severity = severity
		}
		out = append(out, finding)
	}
	return out
}

// sudoStopsAtErrors says whether the installed sudo is older than 1.9.3, from which on it skips lines that it cannot parse.
func sudoStopsAtErrors(tree *diagnose.Tree) bool {
	in := false
	for _, line := range tree.Lines("/var/lib/dpkg/status") {
		if name, found := strings.CutPrefix(line, "Package: "); found {
			in = name == "sudo"
		}
		if version, found := strings.CutPrefix(line, "Version: "); found && in {
			return strings.HasPrefix(version, "1.8.") || strings.HasPrefix(version, "1.9.0") || strings.HasPrefix(version, "1.9.1-") || strings.HasPrefix(version, "1.9.2")
		}
	}
	return false
}

// resolved is the place of a path without links, or the path itself.
func resolved(tree *diagnose.Tree, name string) string {
	if at, err := tree.Resolve(name); err == nil {
		return at
	}
	return name
}
