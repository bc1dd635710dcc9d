package system

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

func startJobRules() []diagnose.Rule {
	return []diagnose.Rule{
		{IDs: []string{"shutdown-at-boot"}, Files: true, Look: lookShutdowns},
		{IDs: []string{"unit-waits-at-boot"}, Files: true, Look: lookWaitingUnits},
	}
}

// bootTargets are the targets that a usual start reaches. Links of others, such as poweroff.target, start units at another time.
var bootTargets = append([]string{"default.target", "graphical.target", "multi-user.target", "network.target", "network-online.target", "network-pre.target", "remote-fs.target", "sockets.target", "timers.target",
	"paths.target", "getty.target"}, startTargets...)

// stopVerbs are the verbs of systemctl that end the running system, and stopTargets the targets that do so.
var (
	stopVerbs   = []string{"reboot", "poweroff", "halt", "kexec", "soft-reboot"}
	stopTargets = []string{"reboot.target", "poweroff.target", "halt.target", "kexec.target", "shutdown.target", "runlevel0.target", "runlevel6.target"}
)

// stopsMachine says whether a command switches the machine off or restarts it, within minutes.
func stopsMachine(words []string) bool {
	for len(words) > 1 && slices.Contains([]string{"exec", "sudo", "nohup", "command"}, path.Base(words[0])) {
		words = words[1:]
	}
	if len(words) == 0 {
		return false
	}
	var arguments, options []string
	for _, word := range words[1:] {
		if strings.HasPrefix(word, "-") {
			options = append(options, word)
		} else if !strings.HasPrefix(word, ">") && word != "" {
			arguments = append(arguments, word)
		}
	}
	first := ""
	if len(arguments) > 0 {
		first = arguments[0]
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(options, func(o string) bool {
			name, _, _ := strings.Cut(o, "=")
			return slices.Contains(names, name)
		})
	}
	switch path.Base(words[0]) {
	case "reboot", "poweroff", "halt":
		return !has("-w", "--wtmp-only", "--help")
	case "systemctl":
		isStart := slices.Contains([]string{"start", "isolate"}, first) && len(arguments) > 1 && slices.Contains(stopTargets, arguments[1])
		return (isStart || slices.Contains(stopVerbs, first)) && !has("--when", "--dry-run", "--user", "--help")
	case "shutdown":
		minutes, err := strconv.Atoi(strings.TrimPrefix(first, "+"))
		return !has("-c", "-k", "--help", "--show") && (first == "" || first == "now" || err == nil && !strings.Contains(first, ":") && minutes <= 5)
	case "init", "telinit":
		return first == "0" || first == "6"
	}
	return false
}

// maxScript bounds a script that is read, in bytes.
const maxScript = 64 << 10

// scriptStop is the first command of a shell script that stops the machine each time that the script runs, and its line, from 1. The command is empty
// where none does so for sure: commands in conditions, loops and functions do not count, and nothing counts behind a place at which the script may end.
func scriptStop(lines []string) (line int, command string) {
	depth, isMaybe := 0, false
	endsAtErrors := len(lines) > 0 && strings.HasPrefix(lines[0], "#!") && strings.Contains(lines[0], " -e")
	for i, text := range lines {
		if text = strings.TrimSpace(text); text == "" || text[0] == '#' {
			continue
		}
		tokens := shellTokens(text)
		if len(tokens) == 0 || goesOn(text, tokens[len(tokens)-1]) {
			return 0, ""
		}
		var words []string
		for _, token := range append(tokens, ";") {
			if !slices.Contains(shellSigns, token) {
				if len(words) > 0 || !slices.Contains([]string{"then", "else", "elif", "do", "!", "time"}, token) {
					words = append(words, strings.Trim(token, `"'`))
				}
				if len(words) == 1 {
					switch words[0] {
					case "case", "trap", "return", "break":
						return 0, ""
					case "if", "for", "while", "until", "select":
						depth, words = depth+1, nil
					case "fi", "done":
						depth, words = depth-1, nil
					}
				}
				continue
			}
			if len(words) > 0 {
				isSure := depth == 0 && !isMaybe
				switch {
				case isSure && stopsMachine(words):
					return i + 1, strings.Join(words, " ")
				case words[0] == "exit" || words[0] == "exec" && len(words) > 1, endsAtErrors && !slices.Contains(harmlessCommands, path.Base(words[0])), words[0] == "sleep" && len(words) > 1 && !isSoon(words[1]):
					return 0, ""
				case words[0] == "set" && len(words) > 1 && strings.HasPrefix(words[1], "-") && strings.Contains(words[1], "e"):
					endsAtErrors = true
				}
				words = nil
			}
			switch token {
			case "(", "{":
				depth++
			case ")", "}":
				depth--
			}
			isMaybe = token == "&&" || token == "||" || token == "|"
		}
	}
	return 0, ""
}

// goesOn says whether a line of a script ends in the next line, or holds an open quote or the beginning of a text that follows.
func goesOn(text, last string) bool {
	return strings.HasSuffix(text, `\`) || slices.Contains([]string{"&&", "||", "|"}, last) || strings.Contains(text, "<<") || strings.ContainsAny(shellToken.ReplaceAllString(text, ""), `"'`)
}

// isSoon says whether a span is one that every start reaches before anybody has worked on the machine.
func isSoon(span string) bool {
	n := spanSeconds(span)
	return n >= 0 && n <= soon
}

// shellSigns end a command of a shell.
var shellSigns = []string{";", "&", "&&", "|", "||", "(", ")", "{", "}"}

// shellToken is a sign of a shell, or a word with its quotes.
var shellToken = regexp.MustCompile(`&&|\|\||[;&|()]|(?:[^\s;&|()"']|"(?:[^"\\]|\\.)*"|'[^']*')+`)

// shellTokens cuts a line of a shell's script into words and signs, up to its comment.
func shellTokens(text string) []string {
	tokens := shellToken.FindAllString(text, -1)
	if at := slices.IndexFunc(tokens, func(t string) bool { return t[0] == '#' }); at >= 0 {
		tokens = tokens[:at]
	}
	return tokens
}

// commandStop is the command by which a command line of a unit stops the machine, itself, by a text for a shell, or by a script; empty for others.
func commandStop(tree *diagnose.Tree, words []string) string {
	if len(words) == 0 {
		return ""
	}
	if stopsMachine(words) {
		return strings.Join(words, " ")
	}
	if text := shellText(words); text != "" {
		_, command := scriptStop(strings.Split(text, "\n"))
		return command
	}
	script := words[0]
	if slices.Contains(shells, path.Base(script)) && len(words) > 1 && path.IsAbs(words[1]) {
		script = words[1]
	}
	if !isScript(tree, script) {
		return ""
	}
	head, whole, err := tree.ReadHead(script, maxScript)
	if first, _, _ := strings.Cut(string(head), "\n"); err != nil || !whole || !strings.HasPrefix(first, "#!") ||
		!slices.ContainsFunc(strings.Fields(first[2:]), func(word string) bool { return slices.Contains(shells, path.Base(word)) }) {
		return ""
	}
	_, command := scriptStop(diagnose.SplitLines(string(head)))
	return command
}

// isScript says whether a file begins as a script does. Any other file is a program, whose size is no gap of an examination.
func isScript(tree *diagnose.Tree, name string) bool {
	file, err := config.OpenReadAt(tree, name)
	if err != nil {
		return false
	}
	defer file.Close()
	head := make([]byte, 2)
	n, _ := file.ReadAt(head, 0)
	return string(head[:n]) == "#!"
}

// shellText is the text that a command line gives to a shell by -c; empty for others.
func shellText(words []string) string {
	for i, word := range words {
		if i == 0 && !slices.Contains(shells, path.Base(word)) {
			return ""
		}
		if i > 0 && strings.HasPrefix(word, "-") && strings.HasSuffix(word, "c") && i+1 < len(words) {
			return words[i+1]
		}
	}
	return ""
}

// soon is a time of a timer that every start reaches before anybody has worked on the machine, in seconds.
const soon = 15 * 60

// startedUnits are the services that a usual start runs, by their names, with the link of the service or of its timer.
func startedUnits(tree *diagnose.Tree) []config.UnitLink {
	var out []config.UnitLink
	for _, l := range config.UnitLinks(tree) {
		if !slices.Contains(bootTargets, l.By) {
			continue
		}
		if path.Ext(l.Unit) == ".timer" {
			lines := config.UnitLines(tree, l.Unit)
			isEarly := false
			for _, key := range []string{"OnBootSec", "OnStartupSec", "OnActiveSec"} {
				for _, set := range settingList(lines, "Timer", key) {
					isEarly = isEarly || isSoon(set.Value)
				}
			}
			if !isEarly || hasCondition(lines) {
				continue
			}
			l.Unit = config.FirstText(lastOf(lines, "Timer", "Unit"), strings.TrimSuffix(l.Unit, ".timer")+".service")
		}
		if path.Ext(l.Unit) == ".service" && config.UnitFile(tree, l.Unit) != "" && config.UnitMask(tree, l.Unit) == "" && !slices.ContainsFunc(out, func(other config.UnitLink) bool { return other.Unit == l.Unit }) {
			out = append(out, l)
		}
	}
	return out
}

// timeSpan is a span of systemd.time(7) with one unit.
var timeSpan = regexp.MustCompile(`^([0-9]{1,6})\s*(s|sec|seconds?|m|min|minutes?|h|hr|hours?)?$`)

// spanSeconds is a span in seconds; -1 for a span that is not of the usual form.
func spanSeconds(text string) int {
	m := timeSpan.FindStringSubmatch(text)
	if m == nil {
		return -1
	}
	n, _ := strconv.Atoi(m[1])
	switch m[2] {
	case "m", "min", "minute", "minutes":
		return n * 60
	case "h", "hr", "hour", "hours":
		return n * 3600
	}
	return n
}

// lookShutdowns finds what each start runs and what switches the machine off or restarts it: units, rc.local, and jobs of cron.
func lookShutdowns(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	add := func(what, command, byHand string, mend *diagnose.Repair, evidence ...diagnose.Evidence) {
		out = append(out, diagnose.Finding{
			ID: "shutdown-at-boot", Stage: diagnose.Target, Severity: diagnose.BlocksBoot, Confidence: 0.85,
			Title:    fmt.Sprintf("Each start of the system runs %s, and its command %q stops or restarts the machine.", what, command),
			Evidence: evidence, ByHand: byHand, Repair: mend,
		})
	}
	if config.ManagerOf(s.Files) == config.SystemdManager {
		for _, l := range startedUnits(s.Files) {
			if command, at := unitStop(s.Files, l.Unit); command != "" {
				add("the unit "+l.Unit, command, "Disable the unit: systemctl disable "+l.Unit+".", dropStart(s.Files, l.Unit, l.Path), config.FileEvidence(at.File, at.Line, at.Key+"="+at.Value), config.FileEvidence(l.Path, 0, l.By+" starts the unit"))
			}
		}
	}
	for _, file := range []string{"/etc/rc.local", "/etc/rc.d/rc.local"} {
		info, err := s.Files.Stat(file)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 || config.IsMasked(s.Files, "rc-local.service") {
			continue
		}
		lines := s.Files.Lines(file)
		if line, command := scriptStop(lines); command != "" {
			add(file, command, fmt.Sprintf("Remove line %d of %s.", line, file), dropLine(file, line, lines[line-1]), config.FileEvidence(file, line, lines[line-1]))
			break // one of the two mostly is a link to the other
		}
	}
	if enabled, _ := config.ServiceEnabled(s.Files, "cron", "crond", "cronie"); !enabled {
		return out
	}
	for _, job := range frequentJobs(s.Files) {
		if _, command := scriptStop([]string{job.command}); command != "" {
			add(fmt.Sprintf("line %d of %s", job.line, job.file), command, fmt.Sprintf("Correct or remove line %d of %s.", job.line, job.file), dropCommand(job.file, job.line), config.FileEvidence(job.file, job.line, job.text))
		}
	}
	return out
}

// dropLine is the repair that makes a line of a script a comment. The repair is nil for a line with another command, or with the end of a block, which
// the script still needs.
func dropLine(file string, line int, text string) *diagnose.Repair {
	tokens := shellTokens(text)
	if len(tokens) > 0 && tokens[len(tokens)-1] == "&" {
		tokens = tokens[:len(tokens)-1]
	}
	if slices.ContainsFunc(tokens, func(token string) bool { return slices.Contains(shellSigns, token) }) {
		return nil
	}
	return dropCommand(file, line)
}

// dropCommand is the repair that makes a line of a table of cron, or of a script, a comment.
func dropCommand(file string, line int) *diagnose.Repair {
	return mayLose(repairFiles(fmt.Sprintf("Make line %d of %s a comment.", line, file), file), fmt.Sprintf("Line %d of %s no longer does what it was written for.", line, file))
}

// harmlessCommands succeed wherever they run.
var harmlessCommands = strings.Fields("sleep echo sync logger wall true set")

// unitStop is the command of a service that stops the machine, and its line; empty for other services, and for those with a condition.
func unitStop(tree *diagnose.Tree, unit string) (string, config.UnitLine) {
	lines := config.UnitLines(tree, unit)
	if hasCondition(lines) {
		return "", config.UnitLine{}
	}
	isOneshot := strings.EqualFold(lastOf(lines, "Service", "Type"), "oneshot")
	for _, key := range []string{"ExecCondition", "ExecStartPre", "ExecStart", "ExecStartPost"} {
		for _, l := range settingList(lines, "Service", key) {
			if key == "ExecCondition" {
				return "", config.UnitLine{}
			}
			c := config.ParseCommand(l, nil)
			if command := commandStop(tree, c.Words); command != "" {
				return command, l
			}
			if !c.MayFail && len(c.Words) > 0 && !slices.Contains(harmlessCommands, path.Base(c.Words[0])) {
				return "", config.UnitLine{} // systemd goes on only if the command succeeds
			}
		}
	}
	for _, l := range settingList(lines, "Unit", "SuccessAction") {
		verb, _, _ := strings.Cut(l.Value, "-")
		remains := lastOf(lines, "Service", "RemainAfterExit")
		if isOneshot && slices.Contains(stopVerbs, verb) && lastOf(lines, "Unit", "SuccessAction") == l.Value && !slices.Contains([]string{"yes", "true", "on", "1"}, remains) {
			return "SuccessAction=" + l.Value, l
		}
	}
	return "", config.UnitLine{}
}

// cronJob is a line of a crontab.
type cronJob struct {
	file, text, command string
	line                int
}

// maxCronFiles bounds the crontabs that are read.
const maxCronFiles = 64

// debianCronName is a name of a file that cron of Debian reads in /etc/cron.d.
var debianCronName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// frequentJobs are root's jobs of cron that run at each start, or each quarter of an hour and more often.
func frequentJobs(tree *diagnose.Tree) []cronJob {
	var out []cronJob
	isDebian := tree.Exists("/etc/debian_version")
	files := append([]string{"/etc/crontab"}, tree.Match("/etc/cron.d", "*")...)
	for i, file := range append(files[:min(len(files), maxCronFiles)], "/var/spool/cron/crontabs/root", "/var/spool/cron/root") {
		hasUser := i < len(files)
		info, err := tree.Stat(file)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o022 != 0 || diagnose.OwnerOf(info).UID != 0 || isDebian && hasUser && !debianCronName.MatchString(path.Base(file)) {
			continue // cron leaves such a file out
		}
		for n, text := range tree.Lines(file) {
			if command := frequentCommand(strings.Fields(text), hasUser); command != "" {
				out = append(out, cronJob{file, text, command, n + 1})
			}
		}
	}
	return out
}

// frequentCommand is the command of a line of a crontab, of which the fields are given; empty for a line that runs rarely, or not as root.
func frequentCommand(fields []string, hasUser bool) string {
	times := 5
	if len(fields) > 0 && fields[0] == "@reboot" {
		times = 1
	}
	if len(fields) <= times {
		return ""
	}
	if times == 5 {
		every, isEvery := strings.CutPrefix(fields[0], "*/")
		n, err := strconv.Atoi(every)
		if fields[0] != "*" && (!isEvery || err != nil || n > soon/60) || slices.ContainsFunc(fields[1:5], func(f string) bool { return f != "*" }) {
			return ""
		}
	}
	fields = fields[times:]
	if hasUser {
		if fields[0] != "root" {
			return ""
		}
		fields = fields[1:]
	}
	return strings.Join(fields, " ")
}

// waitLoop is a text for a shell that waits until a path exists, and does nothing else.
var waitLoop = regexp.MustCompile(`^\s*(?:until\s+(?:\[\s+-[a-zL]\s+(\S+)\s+\]|test\s+-[a-zL]\s+([^\s;]+))|while\s+(?:!\s+\[\s+-[a-zL]\s+(\S+)\s+\]|\[\s+!\s+-[a-zL]\s+(\S+)\s+\]|!\s+test\s+-[a-zL]\s+([^\s;]+)|test\s+!\s+-[a-zL]\s+([^\s;]+)))\s*;\s*do\s+(?:sleep\s+[0-9.]+|:|true)\s*;?\s*done\s*;?\s*$`)

// lookWaitingUnits finds services without a time limit that wait for a device which is not there, and before which systemd starts nothing else.
func lookWaitingUnits(s *diagnose.System) []diagnose.Finding {
	if config.ManagerOf(s.Files) != config.SystemdManager {
		return nil
	}
	var out []diagnose.Finding
	for _, l := range startedUnits(s.Files) {
		lines := config.UnitLines(s.Files, l.Unit)
		before := ""
		for _, set := range settingList(lines, "Unit", "Before") {
			for target := range strings.FieldsSeq(set.Value) {
				if slices.Contains(startTargets, target) {
					before = target
				}
			}
		}
		isEndless := func(section string, keys ...string) bool {
			return !slices.ContainsFunc(keys, func(key string) bool {
				value := lastOf(lines, section, key)
				return value != "" && value != "infinity" && value != "0"
			})
		}
		if before == "" || hasCondition(lines) || !strings.EqualFold(lastOf(lines, "Service", "Type"), "oneshot") || !isEndless("Service", "TimeoutStartSec", "TimeoutSec", "RuntimeMaxSec") ||
			!isEndless("Unit", "JobTimeoutSec", "JobRunningTimeoutSec") {
			continue
		}
		for _, set := range append(settingList(lines, "Service", "ExecStartPre"), settingList(lines, "Service", "ExecStart")...) {
			device := awaitedPath(shellText(config.ParseCommand(set, nil).Words))
			name := config.ParseDeviceName(device)
			if !strings.HasPrefix(device, "/dev/") || name.Tag == "" || name.Kernel || len(config.HidesDevices(s)) > 0 || len(config.FindDevices(s, name)) > 0 || config.IsUncertainName(s, name) ||
				isCryptName(s, device) {
				continue
			}
			out = append(out, diagnose.Finding{
				ID: "unit-waits-at-boot", Stage: diagnose.Target, Severity: diagnose.BlocksBoot, Confidence: 0.85,
				Title:    fmt.Sprintf("The unit %s waits without a time limit for %s, which no device of the machine has, and %s waits for the unit.", l.Unit, device, before),
				Evidence: []diagnose.Evidence{config.FileEvidence(set.File, set.Line, set.Key+"="+set.Value), config.FileEvidence(l.Path, 0, l.By+" starts the unit")},
				ByHand:   "Attach the device, or disable the unit: systemctl disable " + l.Unit + ". TimeoutStartSec= bounds how long a unit waits.",
				Repair:   dropStart(s.Files, l.Unit, l.Path),
			})
			break
		}
	}
	return out
}

// awaitedPath is the path that a text for a shell waits for; empty for other texts.
func awaitedPath(text string) string {
	m := waitLoop.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	return strings.Trim(strings.Join(m[1:], ""), `"'`)
}
