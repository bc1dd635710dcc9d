package config

import (
	"path"
	"strings"

	"salvor/diagnose"
)

// sshdOption is a word of the command line that starts sshd, with the line of the file that it stands in.
type sshdOption struct {
	word, file string
	line       int
}

// AcceptsConnections says whether a socket starts one service for each connection.
func AcceptsConnections(tree *diagnose.Tree, socket string) bool {
	accepts := false
	for _, l := range UnitLines(tree, socket) {
		if l.Section == "Socket" && l.Key == "Accept" {
			accepts = isYes(l.Value)
		}
	}
	return accepts
}

// isYes says whether systemd takes a value for true.
func isYes(value string) bool {
	switch strings.ToLower(value) {
	case "1", "yes", "y", "true", "t", "on":
		return true
	}
	return false
}

// SSHDUnit is the unit of systemd that starts sshd at boot, or for a connection; empty where none is enabled.
func SSHDUnit(tree *diagnose.Tree) string {
	if ManagerOf(tree) != SystemdManager {
		return ""
	}
	for _, name := range []string{"ssh", "sshd"} {
		if UnitEnabled(tree, name+".service") {
			return name + ".service"
		}
	}
	for _, name := range []string{"ssh", "sshd"} {
		if socket := name + ".socket"; UnitEnabled(tree, socket) {
			if AcceptsConnections(tree, socket) {
				return name + "@.service"
			}
			return name + ".service"
		}
	}
	return ""
}

// sshdOptions are the words of sshd's command line behind the program: those of the unit, with the variables that the unit sets, or those of the file
// that a script of another service manager reads.
func sshdOptions(tree *diagnose.Tree) []sshdOption {
	variables := map[string]sshdOption{}
	split := func(text string, at sshdOption) (out []sshdOption) {
		words, _ := splitQuoted(text)
		for _, word := range words {
			out = append(out, sshdOption{word, at.file, at.line})
		}
		return out
	}
	readVariables := func(file string) {
		for _, set := range ShellSettings(tree.Lines(file)) {
			variables[set.Name] = sshdOption{set.Value, file, set.Line}
		}
	}
	if ManagerOf(tree) != SystemdManager {
		for _, file := range []string{"/etc/default/ssh", "/etc/conf.d/sshd"} {
			readVariables(file)
		}
		at := variables["SSHD_OPTS"]
		return split(at.word, at)
	}
	var start UnitLine
	var files []string // their variables win over those of Environment=
	for _, l := range UnitLines(tree, SSHDUnit(tree)) {
		switch {
		case l.Section != "Service":
		case l.Key == "Environment":
			words, _ := splitQuoted(l.Value)
			for _, word := range words {
				name, value, _ := strings.Cut(word, "=")
				variables[name] = sshdOption{value, l.File, l.Line}
			}
		case l.Key == "EnvironmentFile" && l.Value == "":
			files = nil
		case l.Key == "EnvironmentFile":
			files = append(files, strings.TrimPrefix(l.Value, "-"))
		case l.Key == "ExecStart" && l.Value != "":
			start = l
		}
	}
	for _, file := range files {
		readVariables(file)
	}
	words := split(start.Value, sshdOption{file: start.File, line: start.Line})
	if len(words) == 0 || path.Base(words[0].word) != "sshd" {
		return nil
	}
	var out []sshdOption
	for _, w := range words[1:] {
		name, isVariable := strings.CutPrefix(w.word, "$")
		switch at := variables[strings.Trim(name, "{}")]; {
		case isVariable && strings.HasPrefix(name, "{"): // it stays one word
			out = append(out, at)
		case isVariable:
			out = append(out, split(at.word, at)...)
		default:
			out = append(out, w)
		}
	}
	return out
}

// sshdFlags are the options of sshd that have a value, and the keyword of the configuration that an option stands for.
var sshdFlags = map[byte]string{'o': "", 'p': "port", 'h': "hostkey", 'f': "", 'b': "", 'C': "", 'c': "", 'E': "", 'g': "", 'k': "", 'u': "", 'V': ""}

// readOptions adds the settings of the command line, which sshd reads before its files, and returns the file that the option -f names. Ports of the
// option -p take the place of those that files set: portsAreSet says that there are some.
func (c *SSHDConfig) readOptions(options []sshdOption) (file string, portsAreSet bool) {
	for i := 0; i < len(options); i++ {
		at := options[i]
		word, isFlag := strings.CutPrefix(at.word, "-")
		if !isFlag || word == "" {
			continue
		}
		for len(word) > 0 {
			flag, rest := word[0], word[1:]
			keyword, hasValue := sshdFlags[flag]
			if !hasValue {
				word = rest
				continue
			}
			if rest == "" && i+1 < len(options) {
				i++
				at, rest = options[i], options[i].word
			}
			switch {
			case flag == 'f':
				file = rest
			case flag == 'o':
				c.option(rest, at)
			case keyword != "":
				portsAreSet = portsAreSet || flag == 'p'
				c.option(keyword+" "+rest, at)
			}
			break
		}
	}
	return file, portsAreSet
}

// option adds one setting of the command line.
func (c *SSHDConfig) option(text string, at sshdOption) {
	s, problem := parseSSHDLine(text)
	s.File, s.Line, s.Option = at.file, at.line, true
	if problem.Text == "" && s.Keyword != "" {
		problem.Text, problem.Confidence = c.check(&s)
		if _, known := sshdKeywords[s.Keyword]; !known {
			problem.keyword = s.Keyword
		}
	}
	if problem.Text != "" {
		problem.File, problem.Line, problem.Option = at.file, at.line, true
		c.Problems = append(c.Problems, problem)
		return
	}
	if s.Keyword != "" {
		c.settings = append(c.settings, s)
	}
}
