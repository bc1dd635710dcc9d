package system

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"salvor/diagnose"
)

// Bounds of files whose texts a rule holds together, such as the entries of a boot loader.
const (
	maxSmallFiles = 64
	maxSmallFile  = 256 << 10 // bytes
)

// maxJoinedLine bounds a line that goes on behind a backslash, in bytes.
const maxJoinedLine = 64 << 10

// joinLines returns lines[i] with those that follow while a backslash ends it, and the index of the last one. It joins no more when the line has
// maxJoinedLine bytes. clean is applied to each line.
func joinLines(lines []string, i int, clean func(string) string) (text string, last int) {
	part := clean(lines[i])
	if !strings.HasSuffix(part, `\`) {
		return part, i
	}
	var out strings.Builder
	for strings.HasSuffix(part, `\`) && i+1 < len(lines) && out.Len() < maxJoinedLine {
		out.WriteString(strings.TrimSuffix(part, `\`))
		out.WriteByte(' ')
		i++
		part = clean(lines[i])
	}
	out.WriteString(part)
	return out.String(), i
}

func unchanged(line string) string { return line }

// settingLine is one NAME=VALUE of a file.
type settingLine struct {
	Name, Value string
	Line        int // from 1
}

// shellSettings parses the assignments of a file that a shell sources, such as /etc/default/grub: NAME=VALUE, NAME="VALUE", export NAME=VALUE.
// Comments and everything else are left out. Quotes are removed, substitutions stay as they are.
func shellSettings(lines []string) []settingLine {
	var out []settingLine
	for i, line := range lines {
		line = strings.TrimPrefix(strings.TrimSpace(line), "export ")
		name, value, found := strings.Cut(line, "=")
		if !found || !isSettingName(name) {
			continue
		}
		out = append(out, settingLine{Name: name, Value: unquoteShell(value), Line: i + 1})
	}
	return out
}

// lastSetting returns the last assignment of a name, as a shell would see it.
func lastSetting(all []settingLine, name string) (settingLine, bool) {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Name == name {
			return all[i], true
		}
	}
	return settingLine{}, false
}

func isSettingName(name string) bool {
	for i, r := range name {
		if r != '_' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// unquoteShell removes the quotes of a shell's first argument, and what follows it.
func unquoteShell(text string) string {
	var out strings.Builder
	quote := byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote == 0 && (c == ' ' || c == '\t' || c == ';'):
			return out.String()
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\' && quote != '\'' && i+1 < len(text):
			i++
			out.WriteByte(text[i])
		default:
			out.WriteByte(c)
		}
	}
	return out.String()
}

// splitArguments cuts a kernel command line at blanks outside of double quotes, and removes the quotes.
func splitArguments(text string) []string {
	var out []string
	var at strings.Builder
	quoted, any := false, false
	for _, r := range text {
		switch {
		case r == '"':
			quoted, any = !quoted, true
		case (r == ' ' || r == '\t' || r == '\n') && !quoted:
			if any {
				out = append(out, at.String())
			}
			at.Reset()
			any = false
		default:
			at.WriteRune(r)
			any = true
		}
	}
	if any {
		out = append(out, at.String())
	}
	return out
}

// sectionLine is one Key=Value of a file in the style of systemd, with the section that it stands in.
type sectionLine struct {
	Section, Key, Value string
	Line                int // from 1
}

// unitSettings parses a file in the style of systemd's units, NetworkManager's keyfiles and .network files: [Section] and Key=Value lines,
// comments with # or ;, and lines that end in a backslash and go on.
func unitSettings(lines []string) []sectionLine {
	var out []sectionLine
	section := ""
	for i := 0; i < len(lines); i++ {
		line, at := strings.TrimSpace(lines[i]), i+1
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		line, i = joinLines(lines, i, strings.TrimSpace)
		if line[0] == '[' {
			section = strings.Trim(line, "[]")
			continue
		}
		if key, value, found := strings.Cut(line, "="); found {
			out = append(out, sectionLine{section, strings.TrimSpace(key), strings.TrimSpace(value), at})
		}
	}
	return out
}

// fileEvidence is a line of a file, or what is wrong with a file where line is 0.
func fileEvidence(name string, line int, text string) diagnose.Evidence {
	return diagnose.Evidence{Kind: diagnose.FromFile, Path: name, Line: line, Text: text}
}

// deviceEvidence is what was read of a device.
func deviceEvidence(name, text string) diagnose.Evidence {
	return diagnose.Evidence{Kind: diagnose.FromDevice, Path: name, Text: text}
}

// usesSystemd says whether the system's init is systemd.
func usesSystemd(t *diagnose.Tree) bool {
	for _, name := range []string{"/sbin/init", "/usr/sbin/init", "/init"} {
		if place, err := t.Resolve(name); err == nil {
			return path.Base(place) == "systemd"
		}
	}
	return t.Exists("/usr/lib/systemd/systemd") || t.Exists("/lib/systemd/systemd")
}

// isNotExist says whether an error means that a file is not there; a folder that could not be read is no such error.
func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
