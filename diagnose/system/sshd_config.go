package system

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"salvor/diagnose"
)

// sshdConfigFile is where every distribution looks for sshd's configuration first.
const sshdConfigFile = "/etc/ssh/sshd_config"

// Bounds of a configuration with all that it includes.
const (
	maxIncludeDepth = 16 // as in OpenSSH
	maxConfigFiles  = 256
	maxConfigLines  = 50_000
)

// sshdSetting is a line of sshd's configuration.
type sshdSetting struct {
	keyword string // lower case
	args    []string
	comment bool // one follows the keyword
	file    string
	line    int
	match   bool // within a Match block, or in a file that one includes
}

// sshdProblem is a line because of which sshd refuses to start.
type sshdProblem struct {
	file       string
	line       int
	text       string // what is wrong, as the end of a sentence
	keyword    string // lower case, of a line whose keyword is unknown
	confidence float64
}

// sshdConfig is the configuration of sshd with its included files.
type sshdConfig struct {
	exists   bool
	settings []sshdSetting
	problems []sshdProblem
	// partial: an included file was not read, so that what is absent here may be there.
	partial bool
	files   int
	lines   int
	// read and included are the files and patterns that have been followed.
	read, included map[string]bool
}

// readSSHDConfig reads sshd's configuration of a system.
func readSSHDConfig(tree *diagnose.Tree) *sshdConfig {
	c := &sshdConfig{read: map[string]bool{}, included: map[string]bool{}}
	file := sshdConfigFile
	if !tree.Exists(file) && tree.Exists("/usr/etc/ssh/sshd_config") { // SUSE
		file = "/usr/etc/ssh/sshd_config"
	}
	c.exists = tree.Exists(file)
	c.include(tree, file, 0, false)
	if c.partial {
		tree.NoteGap("the configuration of sshd", "a part of "+file+", or of what it includes, was not read")
	}
	return c
}

func (c *sshdConfig) include(tree *diagnose.Tree, file string, depth int, match bool) {
	// The first value of a keyword counts, so a file that is included again changes nothing.
	key := fmt.Sprint(match, file)
	if c.read[key] {
		return
	}
	c.read[key] = true
	if c.files++; c.files > maxConfigFiles {
		c.partial = true
		return
	}
	text, whole, err := tree.ReadHead(file, diagnose.MaxFile)
	if err != nil {
		c.partial = c.partial || !errors.Is(err, fs.ErrNotExist)
		return
	}
	c.partial = c.partial || !whole
	c.parse(file, string(text), match, func(patterns []string, line int, match bool) {
		if depth+1 > maxIncludeDepth {
			c.problems = append(c.problems, sshdProblem{file: file, line: line, text: "more than 16 files include each other", confidence: 0.95})
			return
		}
		for _, pattern := range patterns {
			if !path.IsAbs(pattern) {
				pattern = path.Join("/etc/ssh", pattern)
			}
			if key := fmt.Sprint(match, pattern); c.included[key] || len(c.included) == maxConfigFiles {
				c.partial = c.partial || !c.included[key]
				continue
			} else {
				c.included[key] = true
			}
			folder, name := path.Split(pattern)
			if strings.ContainsAny(folder, "*?[") {
				c.partial = true
				continue
			}
			if !strings.ContainsAny(name, "*?[") {
				c.include(tree, pattern, depth+1, match)
				continue
			}
			for _, found := range tree.Match(folder, name) {
				if !strings.HasPrefix(path.Base(found), ".") || strings.HasPrefix(name, ".") {
					c.include(tree, found, depth+1, match)
				}
			}
		}
	})
}

// parse adds the settings and problems of one file. include is called for its Include lines.
func (c *sshdConfig) parse(file, text string, match bool, include func(patterns []string, line int, match bool)) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		if c.lines++; c.lines > maxConfigLines {
			c.partial = true
			return
		}
		s, problem := parseSSHDLine(strings.TrimRight(line, " \t\r\n\f"))
		problem.file, problem.line = file, number
		if problem.text == "" && s.keyword != "" {
			s.file, s.line, s.match = file, number, match
			problem.text, problem.confidence = c.check(&s)
			if _, known := sshdKeywords[s.keyword]; !known {
				problem.keyword = s.keyword
			}
		}
		if problem.text != "" {
			c.problems = append(c.problems, problem)
			continue
		}
		switch s.keyword {
		case "":
			continue
		case "match":
			match = !(len(s.args) == 1 && strings.EqualFold(s.args[0], "all"))
			continue
		case "include":
			include(s.args, number, match)
			continue
		}
		c.settings = append(c.settings, s)
	}
}

// parseSSHDLine splits a line into its keyword and arguments. The keyword is empty for comments.
func parseSSHDLine(line string) (sshdSetting, sshdProblem) {
	line = strings.TrimLeft(line, " \t\r")
	if line == "" || line[0] == '#' {
		return sshdSetting{}, sshdProblem{}
	}
	end := strings.IndexAny(line, " \t=\"")
	if end < 0 {
		end = len(line)
	}
	name, rest := line[:end], strings.TrimLeft(line[end:], " \t")
	if after, ok := strings.CutPrefix(rest, "="); ok {
		rest = after
	}
	s := sshdSetting{keyword: strings.ToLower(name)}
	args, ok := splitQuoted(rest)
	if !ok {
		return s, sshdProblem{text: "a quotation mark is not closed", confidence: 0.95}
	}
	s.args, s.comment = args, strings.Contains(rest, "#")
	return s, sshdProblem{}
}

// splitQuoted splits at blanks outside of quotation marks and stops at a comment; false where a mark is not closed.
func splitQuoted(text string) (args []string, closed bool) {
	var arg strings.Builder
	quote, begun := byte(0), false
	for i := 0; i < len(text); i++ {
		ch := text[i]
		switch {
		case quote != 0 && ch == quote:
			quote = 0
		case quote != 0 || (ch != '"' && ch != '\'' && ch != ' ' && ch != '\t' && (ch != '#' || begun)):
			if ch == '\\' && i+1 < len(text) && strings.IndexByte(`"'\`, text[i+1]) >= 0 {
				i++
				ch = text[i]
			}
			arg.WriteByte(ch)
			begun = true
		case ch == '#':
			return args, true
		case ch == ' ' || ch == '\t':
			if begun {
				args = append(args, arg.String())
				arg.Reset()
				begun = false
			}
		default:
			quote, begun = ch, true
		}
	}
	if begun {
		args = append(args, arg.String())
	}
	return args, quote == 0
}

// first returns the value that counts for connections that no Match line changes: sshd takes the first.
func (c *sshdConfig) first(keyword, otherwise string) string {
	for _, s := range c.settings {
		if s.keyword == keyword && !s.match && len(s.args) > 0 {
			return s.args[0]
		}
	}
	return otherwise
}

// all returns the settings of keywords that add up, outside of Match blocks. A line without a value sets nothing.
func (c *sshdConfig) all(keywords ...string) []sshdSetting {
	var out []sshdSetting
	for _, s := range c.settings {
		if slices.Contains(keywords, s.keyword) && !s.match && len(s.args) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// matched says whether a Match block sets one of the keywords.
func (c *sshdConfig) matched(keywords ...string) bool {
	return slices.ContainsFunc(c.settings, func(s sshdSetting) bool { return s.match && slices.Contains(keywords, s.keyword) })
}

// ports that sshd listens on.
func (c *sshdConfig) ports() []int {
	var out []int
	for _, s := range c.all("port") {
		if n, err := strconv.Atoi(s.args[0]); err == nil {
			out = append(out, n)
		}
	}
	for _, s := range c.all("listenaddress") {
		if _, port, ok := splitListen(s.args[0]); ok && port > 0 {
			out = append(out, port)
		}
	}
	if len(out) == 0 {
		out = []int{22}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
