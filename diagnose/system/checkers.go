package system

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// checker is a program of the examined system that checks a part of its system. Its answer may accuse. An answer never says that something is well,
// because a hostile system answers what it likes.
type checker struct {
	id         string
	stage      diagnose.Stage
	severity   diagnose.Severity
	confidence float64
	// refuses is the end of a sentence that begins with the command.
	refuses string
	// files begin the paths of the files that the checker reads; a finding quotes lines of these files only.
	files []string
	// questions are what the checker is asked about a system; none where the system does not use what the checker checks.
	questions func(s *diagnose.System) []diagnose.Question
	// accuses says whether a line of an answer names a fault; nil: each line does.
	accuses *regexp.Regexp
	// loads: the checker is the dynamic loader itself. Any other checker that could not be loaded says nothing about what it was to check.
	loads bool
	// supports lists the ids of rules that find the same faults.
	supports []string
	byHand   string
}

// checkers lists all checkers that are asked.
func checkers() []checker {
	return []checker{
		{
			id: "sshd-check-failed", stage: diagnose.SSHD, severity: diagnose.BlocksAccess, confidence: 0.9, refuses: "refuses its configuration, so that the server does not start",
			files: []string{"/etc/ssh/"}, questions: askSSHD, byHand: "Correct what the program names, and check the files with sshd -t.",
			supports: []string{"sshd-config-invalid", "sshd-config-missing", "sshd-host-keys-missing", "sshd-host-keys-open", "sshd-host-keys-damaged", "sshd-user-missing", "sshd-folder-unsafe", "sshd-library-missing", "preload-library-broken"},
		},
		{
			id: "sudoers-check-failed", stage: diagnose.Login, severity: diagnose.Degrades, confidence: 0.9, refuses: "refuses the rules of sudo",
			files: []string{"/etc/sudoers"}, questions: askVisudo, byHand: "Correct the line with visudo -f FILE.",
			supports: []string{"sudoers-invalid", "sudoers-refused"},
		},
		{
			id: "nftables-check-failed", stage: diagnose.Network, severity: diagnose.Degrades, confidence: 0.85, refuses: "refuses the rules of the firewall, so that none are loaded",
			files: []string{"/etc/nftables"}, questions: askNft, accuses: regexp.MustCompile(`Error: syntax error`), byHand: "Correct the line, and check the file with nft -c -f.",
		},
		{
			id: "netplan-check-failed", stage: diagnose.Network, severity: diagnose.BlocksAccess, confidence: 0.85, refuses: "refuses the configuration of the network",
			files: []string{"/etc/netplan/", "/lib/netplan/", "/usr/lib/netplan/"}, questions: askNetplan, byHand: "Correct the file, and check it with netplan generate.",
			supports: []string{"network-config-invalid", "network-nothing-configured"},
		},
		{
			id: "grub-check-failed", stage: diagnose.Loader, severity: diagnose.BlocksBoot, confidence: 0.8, refuses: "cannot read the menu of the boot loader",
			files: []string{"/boot/grub"}, questions: askGrub, byHand: "Make the menu again with update-grub or grub2-mkconfig, from a rescue.",
			supports: []string{"grub-config-invalid", "grub-config-empty", "grub-config-missing"},
		},
		{
			id: "fstab-check-failed", stage: diagnose.Target, severity: diagnose.Degrades, confidence: 0.7, refuses: "cannot read lines of /etc/fstab",
			files: []string{"/etc/fstab"}, questions: askFindmnt, accuses: regexp.MustCompile(`parse error at line`), byHand: "Correct the line, and check the file with findmnt --verify.",
			supports: []string{"fstab-line-invalid", "fstab-type-unknown", "fstab-option-invalid"},
		},
		{
			id: "unit-check-failed", stage: diagnose.Target, severity: diagnose.Degrades, confidence: 0.7, refuses: "refuses a unit that starts at boot",
			files: []string{"/etc/systemd/", "/lib/systemd/", "/usr/lib/systemd/"}, questions: askSystemd, accuses: refusedUnit, byHand: "Correct the unit, and check it with systemd-analyze verify.",
			supports: []string{"sshd-unit-invalid", "unit-masked", "default-target-missing"},
		},
		loaderChecker("init", diagnose.Init, diagnose.BlocksBoot, func(s *diagnose.System) []string { return []string{initPath(s)} }, "init-missing", "init-interpreter-missing", "init-library-missing", "init-foreign", "preload-library-broken"),
		loaderChecker("sshd", diagnose.SSHD, diagnose.BlocksAccess, func(s *diagnose.System) []string { return []string{sshdProgram(s.Files)} }, "sshd-library-missing", "preload-library-broken"),
		loaderChecker("shell", diagnose.Login, diagnose.Degrades, loginShells, "shell-missing", "preload-library-broken"),
	}
}

// checkerRules are one rule for each checker.
func checkerRules() []diagnose.Rule {
	var out []diagnose.Rule
	for _, c := range checkers() {
		out = append(out, diagnose.Rule{IDs: []string{c.id}, Files: true, Supports: c.supports, Look: c.look})
	}
	return out
}

// look asks the checker until it accuses.
func (c *checker) look(s *diagnose.System) []diagnose.Finding {
	if s.Asker == nil {
		return nil
	}
	for _, q := range c.questions(s) {
		a, ok := s.Ask(q)
		if !ok || a.Trouble != "" {
			return nil // its next question would end likewise
		}
		if f := c.judge(s, a); f != nil {
			return []diagnose.Finding{*f}
		}
	}
	return nil
}

// mostQuoted bounds the lines of an answer, and the lines of files, that a finding quotes.
const mostQuoted = 4

// judge makes a finding of an answer that accuses; nil of any other.
func (c *checker) judge(s *diagnose.System, a diagnose.Answer) *diagnose.Finding {
	if a.Trouble != "" || a.Exit <= 0 || a.Exit > endedBySignal && a.Exit <= endedBySignal+lastSignal {
		return nil
	}
	if c.accuses == nil && unsureAnswer.MatchString(a.Output) || !c.loads && unloadedProgram.MatchString(a.Output) {
		return nil
	}
	said := slices.DeleteFunc(diagnose.SplitLines(a.Output), func(line string) bool {
		return !hasWord.MatchString(line) || isMadeByStart(s.Files, line) || c.accuses != nil && (!c.accuses.MatchString(line) || unsureAnswer.MatchString(line))
	})
	if len(said) == 0 {
		return nil
	}
	command := strings.Join(a.Command, " ")
	f := &diagnose.Finding{
		ID: c.id, Stage: c.stage, Severity: c.severity, Confidence: c.confidence, ByHand: c.byHand,
		Title: fmt.Sprintf("The system's own %s %s.", command, c.refuses),
	}
	for _, line := range said[:min(len(said), mostQuoted)] {
		exit := a.Exit
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: diagnose.FromTool, Command: a.Command, Exit: &exit, Text: line})
	}
	f.Evidence = append(f.Evidence, c.quoteFiles(s.Files, said)...)
	return f
}

// endedBySignal plus the number of a signal is the exit status of a program that a signal has ended: its memory may have been too small.
const (
	endedBySignal = 128
	lastSignal    = 64
)

// hasWord matches a line that says something; others mark the place in the line above.
var hasWord = regexp.MustCompile(`[A-Za-z]{2}`)

// unsureAnswer matches what programs say of the sandbox and not of the system: it has no network, no devices, no rights and little memory.
var unsureAnswer = regexp.MustCompile(`(?i)operation not (permitted|supported)|protocol not supported|permission denied|read-only file system|not implemented|must be root|` +
	`name resolution|name or service not known|cannot allocate|out of memory|no space left|temporarily unavailable|too many open files|netlink|/(proc|sys)/|no hostkeys available`)

// lostUser matches what sshd says of the user in whose name it locks strangers in.
var lostUser = regexp.MustCompile(`(?i)privilege separation user (\S+) does not exist`)

// isMadeByStart says whether a program misses what the next start of the system makes before the program runs.
func isMadeByStart(tree *diagnose.Tree, line string) bool {
	user := lostUser.FindStringSubmatch(line)
	return user != nil && declaredIn(tree, "sysusers.d", user[1])
}

// unloadedProgram matches what the loaders of glibc and musl say where a program does not start, because a library is lost, broken or of another version.
var unloadedProgram = regexp.MustCompile(`(?i)error while loading shared librar|error loading shared library|error relocating |symbol lookup error|version .* not found \(required by`)

// namedLine matches a path with the number of a line: /etc/a:3, /etc/a line 3, /etc/a: line 3.
var namedLine = regexp.MustCompile(`(/[A-Za-z0-9._/@+-]*[A-Za-z0-9_])(?::|:? line |:? near line )([0-9]{1,6})\b`)

// quoteFiles shows the lines of the checker's files that its answer names.
func (c *checker) quoteFiles(files *diagnose.Tree, said []string) (out []diagnose.Evidence) {
	shown := map[string]bool{}
	for _, m := range namedLine.FindAllStringSubmatch(strings.Join(said, "\n"), -1) {
		number, _ := strconv.Atoi(m[2])
		place, err := files.Resolve(m[1])
		if err != nil || shown[m[0]] || len(out) == mostQuoted || !slices.ContainsFunc(c.files, func(folder string) bool { return strings.HasPrefix(place, folder) }) {
			continue
		}
		shown[m[0]] = true
		if lines := files.Lines(place); number > 0 && number <= len(lines) {
			out = append(out, config.FileEvidence(m[1], number, lines[number-1]))
		}
	}
	return out
}
