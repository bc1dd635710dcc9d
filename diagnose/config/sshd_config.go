package config

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

// SSHDConfigFile is where every distribution looks for sshd's configuration first.
const SSHDConfigFile = "/etc/ssh/sshd_config"

// Bounds of a configuration with all that it includes.
const (
	maxIncludeDepth = 16 // as in OpenSSH
	MaxConfigFiles  = 256
	maxConfigLines  = 50_000
)

// SSHDSetting is a line of sshd's configuration.
type SSHDSetting struct {
	Keyword string // lower case
	Args    []string
	comment bool // one follows the keyword
	File    string
	Line    int
	// Option: the setting stands on the command line of sshd, and File names the unit or the file with its variables.
	Option bool
	match  bool // within a Match block, or in a file that one includes
	block  *matchBlock
}

// SSHDProblem is a line because of which sshd refuses to start.
type SSHDProblem struct {
	File       string
	Line       int
	Text       string // what is wrong, as the end of a sentence
	keyword    string // lower case, of a line whose keyword is unknown
	Confidence float64
	// Option: the command line of sshd has the setting, and not a file of its configuration.
	Option bool
}

// SSHDConfig is the configuration of sshd with its included files.
type SSHDConfig struct {
	Exists   bool
	settings []SSHDSetting
	Problems []SSHDProblem
	// Partial: an included file was not read, so that what is absent here may be there.
	Partial bool
	files   int
	lines   int
	// Read and included are the files and patterns that have been followed.
	read, included map[string]bool
}

// ReadSSHDConfig reads sshd's configuration of a system: the options of the command line that starts sshd, and the files.
func ReadSSHDConfig(tree *diagnose.Tree) *SSHDConfig {
	return diagnose.Once(tree, "sshd", func() *SSHDConfig { return makeSSHDConfig(tree) })
}

func makeSSHDConfig(tree *diagnose.Tree) *SSHDConfig {
	c := &SSHDConfig{read: map[string]bool{}, included: map[string]bool{}}
	file := SSHDConfigFile
	if !tree.Exists(file) && tree.Exists("/usr/etc/ssh/sshd_config") { // SUSE
		file = "/usr/etc/ssh/sshd_config"
	}
	other, portsAreSet := c.readOptions(sshdOptions(tree))
	if path.IsAbs(other) && tree.Exists(other) {
		file = other
	}
	c.Exists = tree.Exists(file)
	c.include(tree, file, 0, nil)
	if portsAreSet {
		c.settings = slices.DeleteFunc(c.settings, func(s SSHDSetting) bool { return s.Keyword == "port" && !s.Option })
	}
	if c.Partial {
		tree.NoteGap("the configuration of sshd", "a part of "+file+", or of what it includes, was not read")
	}
	return c
}

func (c *SSHDConfig) include(tree *diagnose.Tree, file string, depth int, block *matchBlock) {
	// The first value of a keyword counts, so a file that is included again changes nothing.
	key := block.key() + file
	if c.read[key] {
		return
	}
	c.read[key] = true
	if c.files++; c.files > MaxConfigFiles {
		c.Partial = true
		return
	}
	text, whole, err := tree.ReadHead(file, diagnose.MaxFile)
	if err != nil {
		c.Partial = c.Partial || !errors.Is(err, fs.ErrNotExist)
		return
	}
	c.Partial = c.Partial || !whole
	c.parse(file, string(text), block, func(patterns []string, line int, block *matchBlock) {
		if depth+1 > maxIncludeDepth {
			c.Problems = append(c.Problems, SSHDProblem{File: file, Line: line, Text: "more than 16 files include each other", Confidence: 0.95})
			return
		}
		for _, pattern := range patterns {
			if !path.IsAbs(pattern) {
				pattern = path.Join("/etc/ssh", pattern)
			}
			if key := block.key() + pattern; c.included[key] || len(c.included) == MaxConfigFiles {
				c.Partial = c.Partial || !c.included[key]
				continue
			} else {
				c.included[key] = true
			}
			folder, name := path.Split(pattern)
			if strings.ContainsAny(folder, "*?[") {
				c.Partial = true
				continue
			}
			if !strings.ContainsAny(name, "*?[") {
				c.include(tree, pattern, depth+1, block)
				continue
			}
			for _, found := range tree.Match(folder, name) {
				if !strings.HasPrefix(path.Base(found), ".") || strings.HasPrefix(name, ".") {
					c.include(tree, found, depth+1, block)
				}
			}
		}
	})
}

// Parse adds the settings and problems of one file. include is called for its Include lines.
func (c *SSHDConfig) parse(file, text string, block *matchBlock, include func(patterns []string, line int, block *matchBlock)) {
	number, outer := 0, block
	for line := range strings.Lines(text) {
		number++
		if c.lines++; c.lines > maxConfigLines {
			c.Partial = true
			return
		}
		s, problem := parseSSHDLine(strings.TrimRight(line, " \t\r\n\f"))
		problem.File, problem.Line = file, number
		if problem.Text == "" && s.Keyword != "" {
			s.File, s.Line, s.block = file, number, block
			s.match = block != nil && !block.isAll()
			problem.Text, problem.Confidence = c.check(&s)
			if _, known := sshdKeywords[s.Keyword]; !known {
				problem.keyword = s.Keyword
			}
		}
		if problem.Text != "" {
			c.Problems = append(c.Problems, problem)
			continue
		}
		switch s.Keyword {
		case "":
			continue
		case "match":
			block = &matchBlock{criteria: s.Args, outer: outer, place: fmt.Sprint(file, ":", number)}
			continue
		case "include":
			include(s.Args, number, block)
			continue
		}
		c.settings = append(c.settings, s)
	}
}

// parseSSHDLine splits a line into its keyword and arguments. The keyword is empty for comments.
func parseSSHDLine(line string) (SSHDSetting, SSHDProblem) {
	line = strings.TrimLeft(line, " \t\r")
	if line == "" || line[0] == '#' {
		return SSHDSetting{}, SSHDProblem{}
	}
	end := strings.IndexAny(line, " \t=\"")
	if end < 0 {
		end = len(line)
	}
	name, rest := line[:end], strings.TrimLeft(line[end:], " \t")
	if after, ok := strings.CutPrefix(rest, "="); ok {
		rest = after
	}
	s := SSHDSetting{Keyword: strings.ToLower(name)}
	args, ok := splitQuoted(rest)
	if !ok {
		return s, SSHDProblem{Text: "a quotation mark is not closed", Confidence: 0.95}
	}
	s.Args, s.comment = args, strings.Contains(rest, "#")
	return s, SSHDProblem{}
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

// First returns the value that counts for connections that no Match line changes: sshd takes the first.
func (c *SSHDConfig) First(keyword, otherwise string) string {
	for _, s := range c.settings {
		if s.Keyword == keyword && !s.match && len(s.Args) > 0 {
			return s.Args[0]
		}
	}
	return otherwise
}

// All returns the settings of keywords that add up, outside of Match blocks. A line without a value sets nothing.
func (c *SSHDConfig) All(keywords ...string) []SSHDSetting {
	var out []SSHDSetting
	for _, s := range c.settings {
		if slices.Contains(keywords, s.Keyword) && !s.match && len(s.Args) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// Matched says whether a Match block sets one of the keywords.
func (c *SSHDConfig) Matched(keywords ...string) bool {
	return slices.ContainsFunc(c.settings, func(s SSHDSetting) bool { return s.match && slices.Contains(keywords, s.Keyword) })
}

// Ports that sshd listens on.
func (c *SSHDConfig) Ports() []int {
	var out []int
	for _, s := range c.All("port") {
		if n, err := strconv.Atoi(s.Args[0]); err == nil {
			out = append(out, n)
		}
	}
	for _, s := range c.All("listenaddress") {
		if _, port, ok := SplitListen(s.Args[0]); ok && port > 0 {
			out = append(out, port)
		}
	}
	if len(out) == 0 {
		out = []int{22}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// PackagedSSHDConfig is where Debian's package of sshd keeps the configuration that it installs.
const PackagedSSHDConfig = "/usr/share/openssh/sshd_config"
