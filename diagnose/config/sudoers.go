package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// SudoersInclude is a line that includes another file, or all files of a folder.
type SudoersInclude struct {
	Path   string
	Folder bool
	Line   int
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

// ParseSudoers finds the lines that sudo cannot parse. It looks at the shape only, and takes what it does not know for right.
func ParseSudoers(lines []string) (problems []BrokenEntry, includes []SudoersInclude) {
	for i := 0; i < len(lines) && i < maxConfigLines; i++ {
		at, line := i+1, ""
		if line, i = JoinLines(lines, i, Unchanged); len(line) > MaxJoinedLine {
			continue
		}
		line = strings.TrimSpace(line)
		if fields := strings.Fields(line); len(fields) == 2 && slices.Contains([]string{"#include", "@include", "#includedir", "@includedir"}, fields[0]) {
			includes = append(includes, SudoersInclude{strings.Trim(fields[1], `"`), strings.HasSuffix(fields[0], "dir"), at})
			continue
		}
		if line == "" || (line[0] == '#' && !sudoersNumber.MatchString(line)) {
			continue
		}
		if why := sudoersFault(line); why != "" {
			problems = append(problems, BrokenEntry{Line: at, Why: why})
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
