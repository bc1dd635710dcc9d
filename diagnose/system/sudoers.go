package system

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

const sudoersPath = "/etc/sudoers"

// sudoersFile is a file of sudoers that was read, or what is wrong with it.
type sudoersFile struct {
	path     string
	refused  string // why sudo ignores the file; empty where it reads it
	problems []config.BrokenEntry
}

// readSudoers reads sudoers with all that it includes, each file and folder once.
func readSudoers(tree *diagnose.Tree) []sudoersFile {
	var out []sudoersFile
	seen := map[string]bool{}
	var include func(file string, depth int)
	include = func(file string, depth int) {
		if depth > 8 || len(out) >= config.MaxConfigFiles || seen[file] {
			return
		}
		seen[file] = true
		f := sudoersFile{path: file, refused: sudoersRefusal(tree, file)}
		at := len(out)
		out = append(out, f)
		if f.refused != "" {
			return
		}
		problems, includes := config.ParseSudoers(tree.Lines(file))
		out[at].problems = problems
		for _, i := range includes {
			if !path.IsAbs(i.Path) {
				i.Path = path.Join(path.Dir(file), i.Path)
			}
			if !i.Folder {
				if !tree.Exists(i.Path) && !strings.Contains(i.Path, "%") {
					out[at].problems = append(out[at].problems, config.BrokenEntry{Line: i.Line, Why: "it includes " + i.Path + ", which does not exist"})
				} else if tree.Exists(i.Path) {
					include(i.Path, depth+1)
				}
				continue
			}
			if len(out) >= config.MaxConfigFiles || seen[i.Path] {
				continue
			}
			seen[i.Path] = true
			for _, found := range tree.Match(i.Path, "*") {
				info, err := tree.Stat(found)
				if err == nil && info.Mode().IsRegular() && !strings.Contains(path.Base(found), ".") && !strings.HasSuffix(found, "~") {
					include(found, depth+1)
				}
			}
		}
	}
	include(sudoersPath, 0)
	return out
}

// sudoersRefusal says why sudo does not read a file: it wants it to belong to root, and nobody else may write it.
func sudoersRefusal(tree *diagnose.Tree, file string) string {
	info, err := tree.Stat(file)
	if err != nil {
		return "it does not exist"
	}
	owner := diagnose.OwnerOf(info)
	switch {
	case !info.Mode().IsRegular():
		return "it is no regular file"
	case owner.UID != 0:
		return fmt.Sprintf("it belongs to the user id %d and not to root", owner.UID)
	case info.Mode()&0o002 != 0:
		return "everybody may write it: its mode is " + config.ModeText(info)
	case info.Mode()&0o020 != 0 && owner.GID != 0:
		return "a group may write it: its mode is " + config.ModeText(info)
	}
	return ""
}

func sudoersRules() []diagnose.Rule {
	return []diagnose.Rule{{IDs: []string{"sudoers-refused", "sudoers-invalid", "sudo-not-setuid"}, Files: true, Look: findSudoTroubles}}
}

func findSudoTroubles(s *diagnose.System) []diagnose.Finding {
	tree := s.Files
	program := config.FirstExisting(tree, "/usr/bin/sudo", "/usr/local/bin/sudo")
	if program == "" || strings.HasSuffix(resolved(tree, program), "sudo-rs") {
		return nil
	}
	severity := diagnose.Degrades
	if l := readLogins(s); l.elsewhere == "" && !slices.ContainsFunc(l.accounts, func(a login) bool { return a.UID == 0 && (a.byKey || a.byPassword || a.onConsole) }) {
		severity = diagnose.BlocksAccess // nobody becomes root without sudo
	}
	var out []diagnose.Finding
	if info, err := tree.Stat(program); err == nil && (diagnose.OwnerOf(info).UID != 0 || info.Mode()&setuidBit == 0) {
		out = append(out, diagnose.Finding{
			ID: "sudo-not-setuid", Stage: diagnose.Login, Severity: severity, Confidence: 0.95,
			Title:    "The program " + program + " does not belong to root or lost its setuid bit, so nobody becomes root with it.",
			Evidence: []diagnose.Evidence{config.FileEvidence(program, 0, fmt.Sprintf("its mode is %s, its owner %d; sudo wants 04755 and root", config.ModeText(info), diagnose.OwnerOf(info).UID))},
			Repair:   mayLose(repairFiles("Give "+program+" to root with the mode 04755.", program), "Accounts become root by sudo again. Someone may have taken that from them on purpose."),
			ByHand:   "Run chown root " + program + " and chmod 4755 " + program + " as root.",
		})
	}
	for _, f := range readSudoers(tree) {
		if f.refused != "" {
			finding := diagnose.Finding{
				ID: "sudoers-refused", Stage: diagnose.Login, Severity: severity, Confidence: 0.95,
				Title:    fmt.Sprintf("The program sudo does not read %s, because %s.", f.path, f.refused),
				Evidence: []diagnose.Evidence{config.FileEvidence(f.path, 0, f.refused)},
				ByHand:   "Give the file to root with the mode 0440, and check it with visudo -c.",
			}
			if f.refused != "it does not exist" {
				finding.Repair = mayLose(repairFiles("Give the file to root with the mode 0440.", f.path), "The program sudo obeys the file, and whoever could write it may have taken rights there.")
			}
			if info, err := tree.Stat(f.path); err == nil && diagnose.OwnerOf(info).UID != 0 { // its owner would get what the file says
				finding.Repair = nil
				finding.ByHand = "Read the file first, because another account could write it. Then give it to root with the mode 0440, and check it with visudo -c."
			}
			if f.path != sudoersPath { // sudo goes on without it
				finding.Severity = diagnose.Degrades
			}
			out = append(out, finding)
			continue
		}
		if len(f.problems) == 0 {
			continue
		}
		finding := diagnose.Finding{
			ID: "sudoers-invalid", Stage: diagnose.Login, Severity: diagnose.Degrades, Confidence: 0.93,
			Title:  fmt.Sprintf("The program sudo cannot parse %s: %s.", place(f.path, f.problems[0].Line), f.problems[0].Why),
			Repair: mayLose(repairFiles("Comment the lines out that sudo cannot parse.", f.path), "What the lines allow and what they forbid is not in force until they are right."),
			ByHand: "Correct the lines, and check them with visudo -c.",
		}
		for _, p := range f.problems[:min(len(f.problems), 10)] {
			finding.Evidence = append(finding.Evidence, config.FileEvidence(f.path, p.Line, p.Why))
		}
		if sudoStopsAtErrors(tree) {
			finding.Severity = severity
		}
		out = append(out, finding)
	}
	return out
}

// sudoStopsAtErrors says whether the installed sudo is older than 1.9.3, from which on it skips lines that it cannot parse.
func sudoStopsAtErrors(tree *diagnose.Tree) bool {
	in := false
	for _, line := range tree.Lines("/var/lib/dpkg/status") {
		if name, found := strings.CutPrefix(line, "Package: "); found {
			in = name == "sudo"
		}
		if version, found := strings.CutPrefix(line, "Version: "); found && in {
			return strings.HasPrefix(version, "1.8.") || strings.HasPrefix(version, "1.9.0") || strings.HasPrefix(version, "1.9.1-") || strings.HasPrefix(version, "1.9.2")
		}
	}
	return false
}

// resolved is the place of a path without links, or the path itself.
func resolved(tree *diagnose.Tree, name string) string {
	if at, err := tree.Resolve(name); err == nil {
		return at
	}
	return name
}
