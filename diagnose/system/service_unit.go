package system

import (
	"fmt"
	"path"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// settingList is a setting that adds up, such as ExecStart, with what an empty value takes back removed.
func settingList(lines []config.UnitLine, section, key string) []config.UnitLine {
	var out []config.UnitLine
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
func lastOf(lines []config.UnitLine, section, key string) string {
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
	if config.ManagerOf(tree) != config.SystemdManager {
		return ""
	}
	for _, name := range []string{"ssh", "sshd"} {
		if config.UnitEnabled(tree, name+".service") {
			return name + ".service"
		}
	}
	for _, name := range []string{"ssh", "sshd"} {
		if config.UnitEnabled(tree, name+".socket") {
			if acceptsConnections(tree, name+".socket") {
				return name + "@.service"
			}
			return name + ".service"
		}
	}
	return ""
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
func unitTrouble(tree *diagnose.Tree, unit string) (text string, at config.UnitLine) {
	lines := config.UnitLines(tree, unit)
	start := settingList(lines, "Service", "ExecStart")
	oneshot := strings.EqualFold(lastOf(lines, "Service", "Type"), "oneshot")
	switch {
	case len(lines) == 0:
		return "", config.UnitLine{}
	case len(start) == 0 && !oneshot && len(settingList(lines, "Service", "ExecStop")) == 0:
		return "it has no ExecStart=, so that systemd refuses the unit", lines[len(lines)-1]
	case len(start) > 1 && !oneshot:
		return "it adds a second ExecStart= without an empty one before it, so that systemd refuses the unit", start[1]
	}
	variables := map[string]string{}
	for _, l := range settingList(lines, "Service", "EnvironmentFile") {
		file, optional := strings.CutPrefix(l.Value, "-")
		if _, err := tree.Stat(file); config.IsNotExist(err) && !optional && path.IsAbs(file) && !strings.ContainsAny(file, "*?[%$") {
			return "it reads the file " + file + ", which does not exist", l
		}
		for _, set := range config.ShellSettings(tree.Lines(file)) {
			variables[set.Name] = set.Value
		}
	}
	if folder := settingList(lines, "Service", "WorkingDirectory"); len(folder) > 0 {
		l := folder[len(folder)-1]
		if _, err := tree.Stat(l.Value); path.IsAbs(l.Value) && !strings.Contains(l.Value, "%") && config.IsNotExist(err) {
			return "it works in the folder " + l.Value + ", which does not exist", l
		}
	}
	for _, l := range append(settingList(lines, "Service", "ExecStartPre"), start...) {
		c := config.ParseCommand(l, variables)
		if len(c.Words) == 0 || c.MayFail || strings.Contains(c.Words[0], "%") {
			continue
		}
		if _, err := tree.Stat(c.Words[0]); path.IsAbs(c.Words[0]) && config.IsNotExist(err) {
			return "it runs " + c.Words[0] + ", which does not exist", l
		}
		sshd := configOf(c.Words)
		if path.Base(c.Words[0]) != "sshd" || !path.IsAbs(sshd) || strings.Contains(sshd, "%") {
			continue
		}
		if _, err := tree.Stat(sshd); config.IsNotExist(err) {
			return "it starts sshd with the configuration " + sshd + ", which does not exist", l
		}
		if sshd != config.SSHDConfigFile {
			tree.NoteGap(sshd, "the unit "+unit+" starts sshd with this configuration, and "+config.SSHDConfigFile+" was examined")
		}
	}
	return "", config.UnitLine{}
}

// findSSHDUnit finds a unit of sshd that systemd does not start, or whose command fails at once.
func findSSHDUnit(s *diagnose.System) []diagnose.Finding {
	tree := s.Files
	unit := sshdUnit(tree)
	if unit == "" || sshdProgram(tree) == "" {
		return nil
	}
	text, at := unitTrouble(tree, unit)
	if text == "" || mountMayHold(s, path.Dir(at.File)) {
		return nil
	}
	return []diagnose.Finding{{
		ID: "sshd-unit-invalid", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.92,
		Title:    fmt.Sprintf("The unit %s does not start sshd, because of %s: %s.", unit, place(at.File, at.Line), text),
		Evidence: []diagnose.Evidence{config.FileEvidence(at.File, at.Line, at.Key+"="+at.Value)},
		ByHand:   "Correct the line, or remove the drop-in, and check the unit with systemd-analyze verify " + unit + ".",
	}}
}
