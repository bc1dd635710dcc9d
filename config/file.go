package config

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/ini.v1"

	"salvor/problem"
)

// file takes what an INI file sets, as oslo.config reads it: comments stand in lines
// of their own, indented lines go on with the value above, of repeated options the
// last one counts, but lists are joined.
func (l *configLoader) file(name string, content []byte) {
	if !utf8.Valid(content) || bytes.IndexByte(content, 0) >= 0 {
		l.fail(problem.Invalidf("%s: not a text file in UTF-8", name))
		return
	}
	parsed, err := ini.LoadSources(ini.LoadOptions{
		AllowShadows: true, AllowDuplicateShadowValues: true, AllowPythonMultilineValues: true,
		IgnoreInlineComment: true, IgnoreContinuation: true,
	}, content)
	if err != nil {
		l.fail(problem.Invalidf("%s", describeSyntaxError(name, content, err)))
		return
	}
	lines := newLocator(name, content)
	for _, s := range parsed.Sections() {
		if l.sections[s.Name()] == nil {
			if len(s.Keys()) > 0 || s.Name() != ini.DefaultSection {
				l.unknownSection(lines.find(s.Name(), ""), s.Name())
			}
			continue
		}
		for _, k := range s.Keys() {
			values := k.ValueWithShadows()
			value := ""
			if len(values) > 0 {
				value = values[len(values)-1]
			}
			if o := l.sections[s.Name()].options[k.Name()]; o != nil && o.Many {
				value = strings.Join(values, ",")
			}
			l.set(lines.find(s.Name(), k.Name()), s.Name(), k.Name(), strings.TrimSpace(value))
		}
	}
}

func (l *configLoader) unknownSection(where, name string) {
	hint := ""
	names := make([]string, 0, len(l.sections))
	for n := range l.sections {
		names = append(names, n)
	}
	if n := problem.Nearest(name, names); n != "" && len(n) > 3 {
		hint = "; did you mean [" + n + "]?"
	}
	l.warn("%s: the section [%s] is not known and does nothing%s", where, strings.Trim(quoteValue(name), `"`), hint)
}

// describeSyntaxError says which line has no form, but not what stands in it: it may be a secret.
func describeSyntaxError(name string, content []byte, err error) string {
	var noDelimiter ini.ErrDelimiterNotFound
	if errors.As(err, &noDelimiter) {
		for n, line := range strings.Split(string(content), "\n") {
			if strings.TrimSpace(line) == strings.TrimSpace(noDelimiter.Line) {
				return name + ":" + strconv.Itoa(n+1) + ": the line is neither [section], option = value nor # comment"
			}
		}
	}
	return name + ": not an INI file: a section or a value is not ended"
}

// optionLocator finds the line of an option, for errors.
type optionLocator struct {
	name  string
	lines map[string]int
}

func newLocator(name string, content []byte) *optionLocator {
	l := &optionLocator{name: name, lines: map[string]int{}}
	section := ini.DefaultSection
	for n, line := range strings.Split(string(content), "\n") {
		bare := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(bare, "[") && strings.HasSuffix(bare, "]"):
			section = strings.TrimSpace(bare[1 : len(bare)-1])
			l.lines[section+"."] = n + 1
		case bare != "" && bare == strings.TrimRight(line, " \t\r"):
			if i := strings.IndexAny(bare, "=:"); i > 0 {
				l.lines[section+"."+strings.TrimSpace(bare[:i])] = n + 1
			}
		}
	}
	return l
}

func (l *optionLocator) find(section, option string) string {
	if n := l.lines[section+"."+option]; n > 0 {
		return l.name + ":" + strconv.Itoa(n)
	}
	return l.name
}
