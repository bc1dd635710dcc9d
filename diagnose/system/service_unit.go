package system

import (
	"fmt"
	"path"
	"slices"
	"strconv"
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

// isLost says whether an absolute path does not exist, and neither the boot nor a file system that was not examined brings it.
func isLost(s *diagnose.System, name string) bool {
	if !path.IsAbs(name) || isMadeAtBoot(path.Clean(name)) {
		return false
	}
	_, err := s.Files.Stat(name)
	return config.IsNotExist(err) && !mountMayHold(s, path.Clean(name))
}

// brokenProgram says why a program of an absolute path does not start; empty where it may.
func brokenProgram(s *diagnose.System, name string) string {
	if isLost(s, name) {
		return "the file does not exist"
	}
	if !path.IsAbs(name) || isMadeAtBoot(path.Clean(name)) || mountMayHold(s, path.Clean(name)) {
		return ""
	}
	place, err := s.Files.Resolve(name)
	info, err2 := s.Files.Stat(place)
	switch {
	case err != nil || err2 != nil:
		return ""
	case !info.Mode().IsRegular():
		return place + " is no file"
	case info.Mode().Perm()&0o111 == 0:
		return fmt.Sprintf("the file %s has the mode %04o, so that nobody may run it", place, info.Mode().Perm())
	}
	if lost := findLostLibrary(s.Files, place); lost != nil {
		return lost.String()
	}
	return ""
}

// unitTrouble is why systemd does not start a service, and where that is written.
func unitTrouble(s *diagnose.System, unit string) (text string, at config.UnitLine) {
	tree := s.Files
	lines := config.UnitLines(tree, unit)
	if text, at = startTrouble(s, lines); text != "" {
		return text, at
	}
	start := settingList(lines, "Service", "ExecStart")
	oneshot := strings.EqualFold(lastOf(lines, "Service", "Type"), "oneshot")
	switch {
	case len(lines) == 0:
		return "", config.UnitLine{}
	case len(start) == 0 && !oneshot && len(settingList(lines, "Service", "ExecStop")) == 0:
		at := lines[len(lines)-1]
		for _, l := range lines {
			if l.Section == "Service" && l.Key == "ExecStart" { // an empty one that takes back the others
				at = l
			}
		}
		return "it has no ExecStart=, so that systemd refuses the unit", at
	case len(start) > 1 && !oneshot:
		return "it adds a second ExecStart= without an empty one before it, so that systemd refuses the unit", start[1]
	}
	variables := map[string]string{}
	for _, l := range settingList(lines, "Service", "EnvironmentFile") {
		file, optional := strings.CutPrefix(l.Value, "-")
		if !optional && !strings.ContainsAny(file, "*?[%$") && isLost(s, file) {
			return "it reads the file " + file + ", which does not exist", l
		}
		for _, set := range config.ShellSettings(tree.Lines(file)) {
			variables[set.Name] = set.Value
		}
	}
	if folder := settingList(lines, "Service", "WorkingDirectory"); len(folder) > 0 {
		l := folder[len(folder)-1]
		if !strings.Contains(l.Value, "%") && isLost(s, l.Value) {
			return "it works in the folder " + l.Value + ", which does not exist", l
		}
	}
	for _, l := range append(settingList(lines, "Service", "ExecStartPre"), start...) {
		c := config.ParseCommand(l, variables)
		if len(c.Words) == 0 || c.MayFail || strings.Contains(c.Words[0], "%") {
			continue
		}
		if why := brokenProgram(s, c.Words[0]); why != "" {
			return "it runs " + c.Words[0] + ", which does not start: " + why, l
		}
		sshd := configOf(c.Words)
		if path.Base(c.Words[0]) != "sshd" || !path.IsAbs(sshd) || strings.Contains(sshd, "%") {
			continue
		}
		if isLost(s, sshd) {
			return "it starts sshd with the configuration " + sshd + ", which does not exist", l
		}
	}
	return "", config.UnitLine{}
}

// startTrouble is a condition of a unit that does not hold, or a unit without which systemd does not start this one.
func startTrouble(s *diagnose.System, lines []config.UnitLine) (text string, at config.UnitLine) {
	for _, key := range []string{"ConditionPathExists", "ConditionPathIsDirectory", "ConditionFileNotEmpty", "ConditionFileIsExecutable", "ConditionDirectoryNotEmpty"} {
		for _, name := range []string{key, "Assert" + strings.TrimPrefix(key, "Condition")} {
			for _, l := range settingList(lines, "Unit", name) {
				file, negated := strings.CutPrefix(l.Value, "!")
				if strings.ContainsAny(file, "|%*?") || negated && key != "ConditionPathExists" {
					continue
				}
				switch {
				case !negated && isLost(s, file):
					return "it starts only if " + file + " exists, which is not there", l
				case negated && file != stopFile && !isMadeAtBoot(path.Clean(file)) && s.Files.Exists(file):
					return "it starts only if " + file + " does not exist, which is there", l
				}
			}
		}
	}
	for _, name := range []string{"Requires", "BindsTo", "Requisite"} {
		for _, l := range settingList(lines, "Unit", name) {
			for other := range strings.FieldsSeq(l.Value) {
				if why := lostUnit(s.Files, other); why != "" {
					return "it needs " + other + ", which " + why, l
				}
			}
		}
	}
	return "", config.UnitLine{}
}

// stopFile keeps Debian's sshd from starting; a rule of its own says so.
const stopFile = "/etc/ssh/sshd_not_to_be_run"

// lostUnit says why systemd cannot start a unit that another one needs; empty where it may. Units of devices and of mounts are made at boot.
func lostUnit(tree *diagnose.Tree, unit string) string {
	switch path.Ext(unit) {
	case ".service", ".socket", ".target", ".path", ".timer":
	default:
		return ""
	}
	if strings.Contains(unit, "%") {
		return ""
	}
	file := unit
	if at := strings.IndexByte(unit, '@'); at >= 0 {
		file = unit[:at+1] + path.Ext(unit)
	}
	switch {
	case config.UnitMask(tree, unit) != "" || config.UnitMask(tree, file) != "":
		return "is masked"
	case config.UnitFile(tree, unit) == "" && config.UnitFile(tree, file) == "" && !isStartedByScript(tree, unit):
		return "does not exist"
	}
	return ""
}

// isStartedByScript says whether systemd makes a service from a script of /etc/init.d.
func isStartedByScript(tree *diagnose.Tree, unit string) bool {
	return tree.Exists("/etc/init.d/" + strings.TrimSuffix(unit, ".service"))
}

// managerLines are the settings of systemd itself.
func managerLines(tree *diagnose.Tree) []config.UnitLine {
	var out []config.UnitLine
	for _, file := range append([]string{"/etc/systemd/system.conf"}, tree.Match("/etc/systemd/system.conf.d", "*.conf")...) {
		for _, l := range config.UnitSettings(tree.Lines(file)) {
			if l.Section == "Manager" {
				out = append(out, config.UnitLine{File: file})
				out[len(out)-1].Section, out[len(out)-1].Key, out[len(out)-1].Value, out[len(out)-1].Line = l.Section, l.Key, l.Value, l.Line
			}
		}
	}
	return out
}

// managerDefaults are the settings that systemd gives to all services, as lines of a service.
func managerDefaults(tree *diagnose.Tree) []config.UnitLine {
	var out []config.UnitLine
	for _, l := range managerLines(tree) {
		if key, found := strings.CutPrefix(l.Key, "Default"); found {
			l.Section, l.Key = "Service", key
			out = append(out, l)
		}
	}
	return out
}

// sliceLines are the settings of the slices around a service, of which the lines are given. Each slice bounds what lies in it.
func sliceLines(tree *diagnose.Tree, lines []config.UnitLine) []config.UnitLine {
	name := strings.TrimSuffix(config.FirstText(lastOf(lines, "Service", "Slice"), "system.slice"), ".slice")
	out := config.UnitLines(tree, "-.slice")
	for i := range name {
		if name[i] == '-' && i > 0 {
			out = append(out, config.UnitLines(tree, name[:i]+".slice")...)
		}
	}
	if name != "-" {
		out = append(out, config.UnitLines(tree, name+".slice")...)
	}
	return out
}

// closedAddresses is the setting by which a service, or a slice around the service, talks to the machine itself only. The addresses that are allowed in
// any of these units count for all of them.
func closedAddresses(lines []config.UnitLine) (at config.UnitLine, isClosed bool) {
	for _, section := range []string{"Service", "Slice"} {
		for _, l := range settingList(lines, section, "IPAddressAllow") {
			for address := range strings.FieldsSeq(l.Value) {
				if !slices.Contains([]string{"localhost", "link-local", "multicast", "127.0.0.0/8", "127.0.0.1", "127.0.0.1/32", "::1", "::1/128"}, address) {
					return config.UnitLine{}, false
				}
			}
		}
		for _, l := range settingList(lines, section, "IPAddressDeny") {
			if fields := strings.Fields(l.Value); slices.Contains(fields, "any") || slices.Contains(fields, "0.0.0.0/0") {
				at, isClosed = l, true
			}
		}
	}
	return at, isClosed
}

// lostCapability is the first of the needed capabilities that CapabilityBoundingSet= takes away, and the line that does so; empty where all are left.
func lostCapability(lines []config.UnitLine, section string, needed ...string) (name string, at config.UnitLine) {
	for _, name := range needed {
		isLeft, isSet := true, false
		var last config.UnitLine
		for _, l := range lines {
			if l.Section != section || l.Key != "CapabilityBoundingSet" {
				continue
			}
			list, isInverted := strings.CutPrefix(l.Value, "~")
			isNamed := slices.ContainsFunc(strings.Fields(list), func(c string) bool { return strings.EqualFold(c, name) })
			was := isLeft
			switch {
			case l.Value == "" || l.Value == "~":
				isLeft = isInverted
			case isInverted:
				isLeft = isLeft && !isNamed
			default:
				isLeft = isNamed || isSet && isLeft
			}
			if isSet = true; was && !isLeft {
				last = l
			}
		}
		if !isLeft {
			return name, last
		}
	}
	return "", config.UnitLine{}
}

// environmentTrouble is a variable of a service by which the dynamic loader finds a damaged library before the whole one, or loads a library whose own
// libraries are lost.
func environmentTrouble(s *diagnose.System, lines []config.UnitLine, program string) (text string, at config.UnitLine) {
	values, places := map[string]string{}, map[string]config.UnitLine{}
	for _, l := range settingList(lines, "Service", "Environment") {
		for _, word := range config.ParseCommand(l, nil).Words {
			if name, value, found := strings.Cut(word, "="); found {
				values[name], places[name] = value, l
			}
		}
	}
	for _, name := range strings.FieldsFunc(values["LD_PRELOAD"], isPreloadSeparator) {
		if lost := preloadTrouble(s, name); lost != nil && lost.place != name {
			return fmt.Sprintf("it has %s loaded into each program, and %s", name, lost), places["LD_PRELOAD"]
		}
	}
	folders := slices.DeleteFunc(strings.FieldsFunc(values["LD_LIBRARY_PATH"], func(r rune) bool { return r == ':' || r == ';' }), func(f string) bool { return !path.IsAbs(f) })
	place, err := s.Files.Resolve(program)
	if len(folders) == 0 || len(folders) > maxPreloads || err != nil {
		return "", config.UnitLine{}
	}
	if _, lost := startFilesFrom(s.Files, place, folders); lost != nil && lost.place != "" && slices.Contains(folders, path.Dir(lost.place)) {
		return fmt.Sprintf("it has libraries looked for in %s first, and %s", path.Dir(lost.place), lost), places["LD_LIBRARY_PATH"]
	}
	return "", config.UnitLine{}
}

// leastMemory is less than sshd and one session take, in bytes.
const leastMemory = 2 << 20

// isFamilyAllowed says whether a value of RestrictAddressFamilies= leaves one of the families of addresses.
func isFamilyAllowed(value string, families ...string) bool {
	list, isInverted := strings.CutPrefix(value, "~")
	named := strings.Fields(list)
	return slices.ContainsFunc(families, func(f string) bool { return slices.Contains(named, f) != isInverted })
}

// sshdCapabilities are the capabilities without which sshd serves no login.
var sshdCapabilities = []string{"CAP_SETUID", "CAP_SETGID", "CAP_SYS_CHROOT"}

func managerRules() []diagnose.Rule {
	return []diagnose.Rule{{IDs: []string{"manager-setting-invalid"}, Files: true, Look: lookManager}}
}

// lookManager finds settings of systemd itself that take from all services what the network or logins need.
func lookManager(s *diagnose.System) []diagnose.Finding {
	if config.ManagerOf(s.Files) != config.SystemdManager {
		return nil
	}
	lines := managerLines(s.Files)
	f := diagnose.Finding{ID: "manager-setting-invalid", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.9, Explains: []string{"sshd-unit-invalid"}}
	name, at := lostCapability(lines, "Manager", "CAP_NET_ADMIN")
	effect := "none of them can set an address"
	if name == "" {
		name, at = lostCapability(lines, "Manager", sshdCapabilities...)
		f.Stage, effect = diagnose.SSHD, "sshd cannot change to a user"
	}
	if name == "" {
		return nil
	}
	f.Title = fmt.Sprintf("Line %d of %s takes %s from systemd and all services, so that %s.", at.Line, at.File, name, effect)
	f.Evidence = []diagnose.Evidence{config.FileEvidence(at.File, at.Line, at.Key+"="+at.Value)}
	f.ByHand = fmt.Sprintf("Leave %s in CapabilityBoundingSet= of %s, or remove the line.", name, at.File)
	f.Repair = dropSetting(s.Files, at)
	return []diagnose.Finding{f}
}

// settingTrouble is a setting under which sshd starts and cannot serve logins.
func settingTrouble(lines []config.UnitLine) (text string, at config.UnitLine) {
	if at, isClosed := closedAddresses(lines); isClosed {
		return "it denies all addresses but those of the machine itself", at
	}
	if name, at := lostCapability(lines, "Service", sshdCapabilities...); name != "" {
		return "it takes " + name + " away, without which sshd cannot change to a user", at
	}
	for _, l := range lines {
		isSlice := l.Section == "Slice" && slices.Contains([]string{"TasksMax", "MemoryMax", "MemoryLimit", "RestrictNetworkInterfaces"}, l.Key)
		if l.Section != "Service" && !isSlice || lastOf(lines, l.Section, l.Key) != l.Value {
			continue
		}
		n, err := strconv.Atoi(l.Value)
		memory, isSize := parseBytes(l.Value)
		isYes := slices.Contains([]string{"yes", "true", "on", "1"}, strings.ToLower(l.Value))
		switch {
		case l.Key == "TasksMax" && err == nil && n < 3:
			return fmt.Sprintf("it allows %d tasks, and sshd needs one more for each login", n), l
		case l.Key == "LimitNOFILE" && err == nil && n < 8:
			return fmt.Sprintf("it allows %d open files, fewer than sshd needs", n), l
		case (l.Key == "MemoryMax" || l.Key == "MemoryLimit") && isSize && memory < leastMemory:
			return fmt.Sprintf("it allows %s of memory, less than one session of sshd takes", l.Value), l
		case l.Key == "RestrictAddressFamilies" && len(settingList(lines, l.Section, l.Key)) == 1 && !isFamilyAllowed(l.Value, "AF_INET", "AF_INET6"):
			return "it lets sshd open no socket of the network", l
		case l.Key == "RestrictNetworkInterfaces" && l.Value == "lo" && len(settingList(lines, l.Section, l.Key)) == 1:
			return "it leaves only the interface lo to sshd", l
		case l.Key == "PrivateNetwork" && isYes:
			return "it hides the network from sshd", l
		case l.Key == "ProtectHome" && (isYes || l.Value == "tmpfs"):
			return "it hides the homes, and the keys in them, from sshd", l
		case l.Key == "User" && l.Value != "" && l.Value != "root" && l.Value != "0":
			return "it runs sshd as " + l.Value + ", who may not read the host keys", l
		}
	}
	return "", config.UnitLine{}
}

// findSSHDUnit finds a unit of sshd that systemd does not start, or whose command fails at once.
func findSSHDUnit(s *diagnose.System) []diagnose.Finding {
	tree := s.Files
	unit := config.SSHDUnit(tree)
	if unit == "" || sshdProgram(tree) == "" {
		return nil
	}
	text, at := unitTrouble(s, unit)
	verb := "start sshd"
	if text == "" {
		lines := append(managerDefaults(tree), config.UnitLines(tree, unit)...)
		if text, at = environmentTrouble(s, lines, sshdProgram(tree)); text == "" {
			text, at = settingTrouble(append(lines, sliceLines(tree, lines)...))
			verb = "let sshd serve logins"
		}
	}
	if text == "" || mountMayHold(s, path.Dir(at.File)) {
		return nil
	}
	return []diagnose.Finding{{
		ID: "sshd-unit-invalid", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.92,
		Title:    fmt.Sprintf("The unit %s does not %s, because of %s: %s.", unit, verb, place(at.File, at.Line), text),
		Evidence: []diagnose.Evidence{config.FileEvidence(at.File, at.Line, at.Key+"="+at.Value)},
		ByHand:   "Correct the line, or remove the drop-in, and check the unit with systemd-analyze verify " + unit + ".",
		Repair:   dropSetting(tree, at),
	}}
}
