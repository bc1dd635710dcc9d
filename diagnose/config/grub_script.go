package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// GrubCommand is one simple command of a grub.cfg.
type GrubCommand struct {
	Words []string // without quotes; variables stay as $name
	Line  int      // from 1
	File  string   // a file that the script reads by source; empty for the script itself
	// Entry numbers the menuentry that holds the command, from 1; 0 outside of any.
	Entry int
	// Depth is how many if, while, for and function blocks and submenus surround it in its file.
	Depth int
}

// GrubMenuEntry is a menuentry of a grub.cfg.
type GrubMenuEntry struct {
	Title, ID string
	Line      int
	File      string // as that of a command
	// Restricted: where the variable superusers is set, GRUB asks for a name and a password before it starts the entry or opens a submenu around it.
	Restricted bool
	// Path is by what each menu on the way names the next one, and at last the entry: its number, title and id.
	Path [][3]string
	// Whole: the entry and all that surrounds it are closed, so that GRUB shows it.
	Whole bool
}

// GrubScript is a parsed grub.cfg.
type GrubScript struct {
	Commands []GrubCommand
	Entries  []GrubMenuEntry
	// Error says what is wrong at ErrorLine; empty for a whole file.
	Error     string
	ErrorLine int
}

// Bounds of a grub.cfg; the largest real ones have some ten thousands of tokens and some hundreds of entries.
const (
	maxGrubTokens  = 400_000
	maxGrubDepth   = 64    // blocks that are open at once
	maxGrubEntries = 2_000 // the rest of the file is not examined
	maxGrubPath    = 4_096 // bytes of the titles and ids of an entry and of the submenus around it
)

// grubToken is a token of the lexer of GRUB's scripts.
type grubToken struct {
	text string
	line int
	word bool // not ; newline { } & | < >
	// quoted: a part of the word was quoted, so it is no keyword.
	quoted bool
}

// scanGrub cuts a grub.cfg into tokens and hands each to accept, until accept returns false or there are maxGrubTokens. It returns the count of tokens.
// bad is the line of a quote that does not end, 0 without one.
func scanGrub(text string, accept func(grubToken) bool) (count, bad int) {
	line := 1
	for i := 0; i < len(text) && count < maxGrubTokens; {
		token := grubToken{line: line}
		switch c := text[i]; {
		case c == '\n':
			token.text = "\n"
			line++
			i++
		case c == ' ' || c == '\t' || c == '\r':
			i++
			continue
		case c == '\\' && i+1 < len(text) && text[i+1] == '\n':
			line++
			i += 2
			continue
		case c == '#':
			for i < len(text) && text[i] != '\n' {
				i++
			}
			continue
		case strings.IndexByte(";{}&|<>", c) >= 0:
			token.text = text[i : i+1]
			i++
		default:
			word, next, lines, open := scanGrubWord(text, i)
			if open {
				return count, line
			}
			word.line = line
			token, i, line = word, next, line+lines
		}
		count++
		if !accept(token) {
			return count, 0
		}
	}
	return count, 0
}

// scanGrubWord reads a word that begins at i; open: a quote in it does not end.
func scanGrubWord(text string, i int) (t grubToken, next, lines int, open bool) {
	var out strings.Builder
	t.word = true
	for i < len(text) {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			if text[i+1] == '\n' {
				lines++
			} else {
				out.WriteByte(text[i+1])
			}
			t.quoted = true
			i += 2
			continue
		case c == '\'' || c == '"':
			t.quoted = true
			end := i + 1
			for end < len(text) && text[end] != c {
				if text[end] == '\\' && c == '"' {
					end++
				}
				end++
			}
			if end >= len(text) {
				return t, end, lines, true
			}
			inner := text[i+1 : end]
			lines += strings.Count(inner, "\n")
			out.WriteString(inner)
			i = end + 1
			continue
		case c == '$' && i+1 < len(text) && text[i+1] == '{':
			end := strings.IndexByte(text[i:], '}')
			if end < 0 {
				return t, len(text), lines, true
			}
			out.WriteString("$" + text[i+2:i+end])
			i += end + 1
			continue
		case strings.IndexByte(" \t\r\n;{}&|<>", c) >= 0:
			t.text = out.String()
			return t, i, lines, false
		default:
			out.WriteByte(c)
		}
		i++
	}
	t.text = out.String()
	return t, i, lines, false
}

// grubBlock is a block that is open: what opened it, and where.
type grubBlock struct {
	kind  string // if, loop, do, {
	line  int
	entry int  // the number of the menuentry that it is, or 0
	menu  bool // a submenu
	// restricted: it is a submenu or an entry that GRUB opens for some users only.
	restricted bool
}

// GrubReader returns the file that a script names by source, and its text; false where the file is not read. The name has its variables as $name.
type GrubReader func(name string) (file, text string, found bool)

// ParseGrub reads a grub.cfg. It follows quotes, braces, and if, while, until and for; it does not evaluate conditions.
func ParseGrub(text string) *GrubScript { return ParseGrubFiles(text, nil) }

// ParseGrubFiles reads a grub.cfg as ParseGrub does, and the files that it names by source where they are read. What is wrong in such a file ends that
// file only.
func ParseGrubFiles(text string, read GrubReader) *GrubScript {
	p := grubParser{script: &GrubScript{}, counts: []int{0}, read: read}
	count, bad, ended := p.scan(text)
	if ended {
		return p.script
	}
	p.end()
	switch {
	case count >= maxGrubTokens: // what is open may be closed behind them
	case bad > 0:
		p.script.Error, p.script.ErrorLine = "a quote does not end", bad
	case len(p.stack) > 0:
		open := p.stack[len(p.stack)-1]
		p.script.Error, p.script.ErrorLine = "no "+map[string]string{"if": "fi", "loop": "do", "do": "done", "{": "}"}[open.kind]+" ends what begins there", open.line
	}
	return p.script
}

// scan accepts the tokens of a text. ended: an error or a bound ended the script before the text ended.
func (p *grubParser) scan(text string) (count, bad int, ended bool) {
	count, bad = scanGrub(text, func(t grubToken) bool {
		p.accept(t)
		ended = p.script.Error != "" || len(p.script.Entries) >= maxGrubEntries
		return !ended
	})
	return count, bad, ended
}

// maxGrubSources bounds how many files a script reads by source.
const maxGrubSources = 8

// source reads a file in the place of the command that names it: its entries follow those before, in the menu that is open.
func (p *grubParser) source(name string) {
	if p.sources++; p.read == nil || p.sources > maxGrubSources {
		return
	}
	file, text, found := p.read(name)
	if !found {
		return
	}
	inner := grubParser{script: &GrubScript{Entries: p.script.Entries}, names: p.names, counts: p.counts, file: file, outer: append(slices.Clone(p.outer), p.stack...)}
	if _, _, ended := inner.scan(text); !ended {
		inner.end()
	}
	whole := len(p.stack) == 0
	for i := len(p.script.Entries); i < len(inner.script.Entries); i++ {
		if inner.script.Entries[i].Whole && !whole { // until what surrounds the command is closed
			inner.script.Entries[i].Whole = false
			p.pending = append(p.pending, i)
		}
	}
	p.script.Entries, p.script.Commands, p.counts = inner.script.Entries, append(p.script.Commands, inner.script.Commands...), inner.counts[:len(p.counts)]
}

type grubParser struct {
	script  *GrubScript
	stack   []grubBlock
	words   []string
	line    int
	pending []int // menu entries whose surroundings are not closed yet
	inFor   bool
	names   [][3]string // of the submenus that are open
	counts  []int       // of entries in each menu that is open
	read    GrubReader
	sources int
	file    string      // that is read by source; empty for the script itself
	outer   []grubBlock // that are open around the file
}

func (p *grubParser) fail(t grubToken) {
	p.script.Error, p.script.ErrorLine = "unexpected "+strings.TrimSpace(t.text), t.line
}

// accept takes the next token.
func (p *grubParser) accept(t grubToken) {
	if t.word {
		if len(p.words) == 0 && !t.quoted && p.keyword(t) {
			return
		}
		if len(p.words) == 0 {
			p.line = t.line
		}
		p.words = append(p.words, t.text)
		return
	}
	switch t.text {
	case "{":
		p.openBrace(t)
	case "}":
		p.end()
		p.pop(t, "{")
	case "<", ">":
	default:
		p.end()
	}
}

// Keyword handles a reserved word where a command may begin.
func (p *grubParser) keyword(t grubToken) bool {
	top := ""
	if len(p.stack) > 0 {
		top = p.stack[len(p.stack)-1].kind
	}
	switch t.text {
	case "if":
		p.push(grubBlock{kind: "if", line: t.line})
	case "then", "elif", "else":
		if top != "if" {
			p.fail(t)
		}
	case "fi":
		p.pop(t, "if")
	case "while", "until", "for":
		p.push(grubBlock{kind: "loop", line: t.line})
		p.inFor = t.text == "for"
		return !p.inFor
	case "do":
		if top != "loop" {
			p.fail(t)
			return true
		}
		p.stack[len(p.stack)-1].kind = "do"
	case "done":
		p.pop(t, "do")
	case "!":
	default:
		return false
	}
	return true
}

func (p *grubParser) push(block grubBlock) {
	if len(p.stack) >= maxGrubDepth {
		p.script.Error, p.script.ErrorLine = fmt.Sprintf("more than %d blocks are open", maxGrubDepth), block.line
		return
	}
	p.stack = append(p.stack, block)
}

// pop closes the innermost block; menu entries are whole when nothing is open around them.
func (p *grubParser) pop(t grubToken, kind string) {
	if len(p.stack) == 0 || p.stack[len(p.stack)-1].kind != kind {
		p.fail(t)
		return
	}
	if p.stack[len(p.stack)-1].menu {
		p.names, p.counts = p.names[:len(p.names)-1], p.counts[:len(p.counts)-1]
	}
	p.stack = p.stack[:len(p.stack)-1]
	if len(p.stack) == 0 {
		for _, i := range p.pending {
			p.script.Entries[i].Whole = true
		}
		p.pending = nil
	}
}

// openBrace begins a block: of a menuentry, a submenu, a function or a bare one.
func (p *grubParser) openBrace(t grubToken) {
	block := grubBlock{kind: "{", line: t.line}
	if len(p.words) > 1 && (p.words[0] == "menuentry" || p.words[0] == "submenu") {
		last := len(p.counts) - 1
		name := [3]string{strconv.Itoa(p.counts[last]), p.words[1]}
		p.counts[last]++
		for i := 2; i+1 < len(p.words); i++ {
			if p.words[i] == "--id" || p.words[i] == "$menuentry_id_option" {
				name[2] = p.words[i+1]
			}
		}
		length := len(name[1]) + len(name[2])
		for _, outer := range p.names {
			length += len(outer[1]) + len(outer[2])
		}
		if length > maxGrubPath {
			p.script.Error, p.script.ErrorLine = fmt.Sprintf("the title of an entry is longer than %d bytes", maxGrubPath), p.line
			return
		}
		block.restricted = isRestricted(p.words[1:]) || slices.ContainsFunc(slices.Concat(p.outer, p.stack), func(b grubBlock) bool { return b.menu && b.restricted })
		if block.menu = p.words[0] == "submenu"; block.menu {
			p.names, p.counts = append(p.names, name), append(p.counts, 0)
		} else {
			e := GrubMenuEntry{Title: name[1], ID: name[2], Line: p.line, File: p.file, Restricted: block.restricted, Path: append(slices.Clone(p.names), name)}
			p.script.Entries = append(p.script.Entries, e)
			p.pending = append(p.pending, len(p.script.Entries)-1)
			block.entry = len(p.script.Entries)
		}
	}
	p.words = nil
	p.push(block)
}

// end finishes a simple command.
func (p *grubParser) end() {
	if len(p.words) == 0 {
		return
	}
	if p.words[0] == "menuentry" || p.words[0] == "submenu" {
		p.script.Error, p.script.ErrorLine = "the "+p.words[0]+" has no commands in braces", p.line
	}
	c := GrubCommand{Words: slices.Clone(p.words), Line: p.line, File: p.file}
	for _, b := range p.stack {
		c.Entry = max(c.Entry, b.entry)
		if b.entry == 0 {
			c.Depth++
		}
	}
	p.words = nil
	p.script.Commands = append(p.script.Commands, c)
	if (c.Words[0] == "source" || c.Words[0] == ".") && len(c.Words) > 1 && c.Entry == 0 {
		p.source(c.Words[1])
	}
}

// isRestricted says whether the options of an entry or a submenu leave it to superusers, and to the users that --users names. An option in a variable may
// be --unrestricted.
func isRestricted(options []string) bool {
	return !slices.ContainsFunc(options, func(o string) bool {
		return o == "--unrestricted" || strings.HasPrefix(o, "$") && o != "$menuentry_id_option"
	})
}

// GrubSearch returns what a search command on a line of a grub.cfg looks for: UUID or LABEL, and its value; both are empty where it looks for neither.
func GrubSearch(line string) (tag, value string) {
	for _, c := range ParseGrub(line + "\n").Commands {
		if name, ok := SearchTarget(c.Words); ok {
			return name.Tag, name.Value
		}
	}
	return "", ""
}

// SearchTarget returns what a search command looks for: a UUID or a label, and whether it is one of these.
func SearchTarget(words []string) (DeviceName, bool) {
	tag := map[string]string{"search.fs_uuid": "UUID", "search.fs_label": "LABEL"}[words[0]]
	if tag == "" && words[0] != "search" {
		return DeviceName{}, false
	}
	value := ""
	for i := 1; i < len(words); i++ {
		switch w := words[i]; {
		case w == "--fs-uuid" || w == "-u":
			tag = "UUID"
		case w == "--label" || w == "-l" || w == "--fs-label":
			tag = "LABEL"
		case w == "--file" || w == "-f":
			return DeviceName{}, false
		case w == "--set" || w == "-s" || w == "--hint" || w == "-h":
			i++
		case strings.HasPrefix(w, "-"):
		case value == "":
			value = w
		}
	}
	if tag == "" || value == "" || strings.Contains(value, "$") {
		return DeviceName{}, false
	}
	return DeviceName{Tag: tag, Value: value}, true
}
