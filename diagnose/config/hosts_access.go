package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"salvor/diagnose"
)

// HostsRule is a line of /etc/hosts.allow or /etc/hosts.deny, as hosts_access(5) describes it.
type HostsRule struct {
	File, Text string
	Line       int
	Clients    []string
	Denies     bool
	// Unread says why libwrap does not read this line, and no line behind it; empty where it does.
	Unread string
}

// maxHostsLine is the length of a line, without its end, beyond which libwrap 7.6 reads no more, in bytes.
const maxHostsLine = 2046

// HostsRules are the lines of such a file that are about sshd. libwrap ends at a line without a newline and at one that is too long, whatever the
// line says. In hosts.deny, such a line refuses all clients.
func HostsRules(tree *diagnose.Tree, file string, denies bool) []HostsRule {
	content, err := tree.Read(file)
	if err != nil || len(content) == 0 {
		return nil
	}
	var out []HostsRule
	lines := diagnose.SplitLines(string(content))
	for i := 0; i < len(lines); i++ {
		at, text, unread := i+1, "", ""
		text, i = JoinLines(lines, i, Unchanged)
		switch last := i == len(lines)-1; {
		case last && (content[len(content)-1] != '\n' || strings.HasSuffix(lines[i], `\`)):
			unread = "no newline ends it"
		case len(text) > maxHostsLine:
			unread = fmt.Sprintf("it has more than %d bytes", maxHostsLine)
		}
		if unread != "" {
			if denies {
				out = append(out, HostsRule{File: file, Text: text[:min(len(text), 200)], Line: at, Clients: []string{"ALL"}, Denies: true, Unread: unread})
			}
			return out
		}
		if text = strings.TrimSpace(text); text == "" || text[0] == '#' {
			continue
		}
		daemons, rest, found := strings.Cut(text, ":")
		if !found || !listMatches(daemons, "sshd") {
			continue
		}
		r := HostsRule{File: file, Text: text, Line: at, Denies: denies}
		rest = hostsAddress.ReplaceAllStringFunc(rest, func(address string) string { // it holds colons
			if strings.HasPrefix(address, "[::1]") {
				return "localhost"
			}
			return "IPv6"
		})
		fields := strings.Split(rest, ":")
		r.Clients = splitList(fields[0])
		for _, option := range fields[1:] {
			switch strings.ToLower(strings.TrimSpace(option)) {
			case "deny":
				r.Denies = true
			case "allow":
				r.Denies = false
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
		return name == "ALL" || MatchPattern(name, daemon)
	})
}
