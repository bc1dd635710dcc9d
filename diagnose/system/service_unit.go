package system

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
)

// unitLine is a setting of a unit with the file that it stands in.
type unitLine struct {
	sectionLine
	file string
}

// isEmptied says whether systemd takes a drop-in for none: a link to /dev/null, or an empty file.
func isEmptied(tree *diagnose.Tree, name string) bool {
	info, err := tree.Lstat(name)
	if err != nil {
		return false
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := tree.ReadLink(name)
		return err == nil && target == "/dev/null"
	}
	return info.Mode().IsRegular() && info.Size() == 0
}

// unitNames are the names under which systemd looks for drop-ins of a unit: its own, and those of its aliases.
func unitNames(tree *diagnose.Tree, unit string) []string {
	out := []string{unit}
	add := func(name string) {
		if path.Ext(name) == path.Ext(unit) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	if at, err := tree.Resolve(unitFile(tree, unit)); err == nil {
		add(path.Base(at))
	}
	for _, link := range tree.Match("/etc/systemd/system", "*"+path.Ext(unit)) {
		if target, err := tree.ReadLink(link); err == nil && slices.Contains(out, path.Base(target)) {
			add(path.Base(link))
		}
	}
	return out
}

// maxDropIns bounds the files of one unit.
const maxDropIns = 64

// unitLines are the settings of a unit as systemd reads them: those of its file, then those of its drop-ins by their names, of which a stronger
// folder replaces a weaker one.
func unitLines(tree *diagnose.Tree, unit string) []unitLine {
	var out []unitLine
	read := func(file string) {
		for _, l := range unitSettings(tree.Lines(file)) {
			out = append(out, unitLine{l, file})
		}
	}
	read(unitFile(tree, unit))
	dropIns := map[string]string{}
	for _, folder := range unitFolders {
		for _, name := range unitNames(tree, unit) {
			for _, file := range tree.Match(path.Join(folder, name+".d"), "*.conf") {
				if dropIns[path.Base(file)] == "" && len(dropIns) < maxDropIns {
					dropIns[path.Base(file)] = file
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(dropIns)) {
		if !isEmptied(tree, dropIns[name]) {
			read(dropIns[name])
		}
	}
	return out
}

// settingList is a setting that adds up, such as ExecStart, with what an empty value takes back removed.
func settingList(lines []unitLine, section, key string) []unitLine {
	var out []unitLine
	for _, l := range lines {
		switch {
		case l.Section != section || l.Key != key:
		case l.Value == "":
			out = nil
		default:
			out = append(out, l)
		}
	}
	return out
}

// lastOf is the value of a setting of which the last one counts.
func lastOf(lines []unitLine, section, key string) string {
	value := ""
	for _, l := range lines {
		if l.Section == section && l.Key == key {
			value = l.Value
		}
	}
	return value
}

// sshdUnit is the unit of systemd that starts sshd at boot, or for a connection; empty where none is enabled.
func sshdUnit(tree *diagnose.Tree) string {
	if managerOf(tree) != systemdManager {
		return ""
	}
	for _, name := range []string{"ssh", "sshd"} {
		if unitEnabled(tree, name+".service") {
			return name + ".service"
		}
	}
	for _, name := range []string{"ssh", "sshd"} {
		if unitEnabled(tree, name+".socket") {
			if acceptsConnections(tree, name+".socket") {
				return name + "@.service"
			}
			return name + ".service"
		}
	}
	return ""
}

// unitCommand is a command line of a unit.
type unitCommand struct {
	unitLine
	mayFail bool
	words   []string
}

// parseCommand splits a command line of a unit, with the values of variables that files of the unit set.
func parseCommand(l unitLine, variables map[string]string) unitCommand {
	c := unitCommand{unitLine: l}
	words, _ := splitQuoted(l.Value)
	for i, word := range words {
		if i == 0 {
			plain := strings.TrimLeft(word, "@-:+!")
			c.mayFail = strings.Contains(word[:len(word)-len(plain)], "-")
			word = plain
		}
		if name, found := strings.CutPrefix(word, "$"); found {
			c.words = append(c.words, strings.Fields(variables[strings.Trim(name, "{}")])...)
			continue
		}
		c.words = append(c.words, word)
	}
	return c
}

// configOf is the file that -f names on a command line of sshd; empty without one.
func configOf(words []string) string {
	for i, word := range words {
		switch {
		case i == 0:
		case word == "-f" && i+1 < len(words):
			return words[i+1]
		case strings.HasPrefix(word, "-f/"):
			return word[2:]
		}
	}
	return ""
}

// unitTrouble is why systemd does not start a service, and where that is written.
func unitTrouble(tree *diagnose.Tree, unit string) (text string, at unitLine) {
	lines := unitLines(tree, unit)
	start := settingList(lines, "Service", "ExecStart")
	oneshot := strings.EqualFold(lastOf(lines, "Service", "Type"), "oneshot")
	switch {
	case len(lines) == 0:
		return "", unitLine{}
	case len(start) == 0 && !oneshot && len(settingList(lines, "Service", "ExecStop")) == 0:
		return "it has no ExecStart=, so that systemd refuses the unit", lines[len(lines)-1]
	case len(start) > 1 && !oneshot:
		return "it adds a second ExecStart= without an empty one before it, so that systemd refuses the unit", start[1]
	}
	variables := map[string]string{}
	for _, l := range settingList(lines, "Service", "EnvironmentFile") {
		file, optional := strings.CutPrefix(l.Value, "-")
		if _, err := tree.Stat(file); isNotExist(err) && !optional && path.IsAbs(file) && !strings.ContainsAny(file, "*?[%$") {
			return "it reads the file " + file + ", which does not exist", l
		}
		for _, set := range shellSettings(tree.Lines(file)) {
			variables[set.Name] = set.Value
		}
	}
	if folder := settingList(lines, "Service", "WorkingDirectory"); len(folder) > 0 {
		l := folder[len(folder)-1]
		if _, err := tree.Stat(l.Value); path.IsAbs(l.Value) && !strings.Contains(l.Value, "%") && isNotExist(err) {
			return "it works in the folder " + l.Value + ", which does not exist", l
		}
	}
	for _, l := range append(settingList(lines, "Service", "ExecStartPre"), start...) {
		c := parseCommand(l, variables)
		if len(c.words) == 0 || c.mayFail || strings.Contains(c.words[0], "%") {
			continue
		}
		if _, err := tree.Stat(c.words[0]); path.IsAbs(c.words[0]) && isNotExist(err) {
			return "it runs " + c.words[0] + ", which does not exist", l
		}
		config := configOf(c.words)
		if path.Base(c.words[0]) != "sshd" || !path.IsAbs(config) || strings.Contains(config, "%") {
			continue
		}
		if _, err := tree.Stat(config); isNotExist(err) {
			return "it starts sshd with the configuration " + config + ", which does not exist", l
		}
		if config != sshdConfigFile {
			tree.NoteGap(config, "the unit "+unit+" starts sshd with this configuration, and "+sshdConfigFile+" was examined")
		}
	}
	return "", unitLine{}
}

// findSSHDUnit finds a unit of sshd that systemd does not start, or whose command fails at once.
func findSSHDUnit(s *diagnose.System) []diagnose.Finding {
	tree := s.Files
	unit := sshdUnit(tree)
	if unit == "" || sshdProgram(tree) == "" {
		return nil
	}
	text, at := unitTrouble(tree, unit)
	if text == "" || mountMayHold(s, path.Dir(at.file)) {
		return nil
	}
	return []diagnose.Finding{{
		ID: "sshd-unit-invalid", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.92,
		Title:    fmt.Sprintf("The unit %s does not start sshd, because of %s: %s.", unit, place(at.file, at.Line), text),
		Evidence: []diagnose.Evidence{fileEvidence(at.file, at.Line, at.Key+"="+at.Value)},
		ByHand:   "Correct the line, or remove the drop-in, and check the unit with systemd-analyze verify " + unit + ".",
	}}
}
