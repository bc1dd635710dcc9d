// Package config reads the configuration of an installed system: fstab, GRUB's script, sshd_config, netplan, accounts, unit files and others. Its
// functions turn text into structures, and judge no system. It is pure, and must not know rules or repairs.
package config

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"salvor/diagnose"
)

// Bounds of files whose texts a rule holds together, such as the entries of a boot loader.
const (
	MaxSmallFiles = 64
	MaxSmallFile  = 256 << 10 // bytes
)

// MaxJoinedLine bounds a line that goes on behind a backslash, in bytes.
const MaxJoinedLine = 64 << 10

// JoinLines returns lines[i] with those that follow while a backslash ends it, and the index of the last one. It joins no more when the line has
// MaxJoinedLine bytes. clean is applied to each line.
func JoinLines(lines []string, i int, clean func(string) string) (text string, last int) {
	part := clean(lines[i])
	if !strings.HasSuffix(part, `\`) {
		return part, i
	}
	var out strings.Builder
	for strings.HasSuffix(part, `\`) && i+1 < len(lines) && out.Len() < MaxJoinedLine {
		out.WriteString(strings.TrimSuffix(part, `\`))
		out.WriteByte(' ')
		i++
		part = clean(lines[i])
	}
	out.WriteString(part)
	return out.String(), i
}

func Unchanged(line string) string { return line }

// SettingLine is one NAME=VALUE of a file.
type SettingLine struct {
	Name, Value string
	Line        int // from 1
}

// ShellSettings parses the assignments of a file that a shell sources, such as /etc/default/grub: NAME=VALUE, NAME="VALUE", export NAME=VALUE.
// Comments and everything else are left out. Quotes are removed, substitutions stay as they are.
func ShellSettings(lines []string) []SettingLine {
	var out []SettingLine
	for i, line := range lines {
		line = strings.TrimPrefix(strings.TrimSpace(line), "export ")
		name, value, found := strings.Cut(line, "=")
		if !found || !isSettingName(name) {
			continue
		}
		out = append(out, SettingLine{Name: name, Value: unquoteShell(value), Line: i + 1})
	}
	return out
}

// LastSetting returns the last assignment of a name, as a shell would see it.
func LastSetting(all []SettingLine, name string) (SettingLine, bool) {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Name == name {
			return all[i], true
		}
	}
	return SettingLine{}, false
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

// SplitArguments cuts a kernel command line at blanks outside of double quotes, and removes the quotes.
func SplitArguments(text string) []string {
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

// UnitSettings parses a file in the style of systemd's units, NetworkManager's keyfiles and .network files: [Section] and Key=Value lines,
// comments with # or ;, and lines that end in a backslash and go on.
func UnitSettings(lines []string) []sectionLine {
	var out []sectionLine
	section := ""
	for i := 0; i < len(lines); i++ {
		line, at := strings.TrimSpace(lines[i]), i+1
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		line, i = JoinLines(lines, i, strings.TrimSpace)
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

// FileEvidence is a line of a file, or what is wrong with a file where line is 0.
func FileEvidence(name string, line int, text string) diagnose.Evidence {
	return diagnose.Evidence{Kind: diagnose.FromFile, Path: name, Line: line, Text: text}
}

// DeviceEvidence is what was read of a device.
func DeviceEvidence(name, text string) diagnose.Evidence {
	return diagnose.Evidence{Kind: diagnose.FromDevice, Path: name, Text: text}
}

// UsesSystemd says whether the system's init is systemd.
func UsesSystemd(t *diagnose.Tree) bool {
	for _, name := range []string{"/sbin/init", "/usr/sbin/init", "/init"} {
		if place, err := t.Resolve(name); err == nil {
			return path.Base(place) == "systemd"
		}
	}
	return t.Exists("/usr/lib/systemd/systemd") || t.Exists("/lib/systemd/systemd")
}

// IsNotExist says whether an error means that a file is not there; a folder that could not be read is no such error.
func IsNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// editDistance is the number of letters to insert, remove, replace or swap with a neighbour that makes b of a; more than 2 is reported as 3.
func editDistance(a, b string) int {
	if len(a) > 64 || len(b) > 64 || max(len(a)-len(b), len(b)-len(a)) > 2 {
		return 3
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return min(rows[len(a)][len(b)], 3)
}
