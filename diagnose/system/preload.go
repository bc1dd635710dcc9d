package system

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// PreloadPath names the libraries that the dynamic loader of glibc loads into every program.
const PreloadPath = "/etc/ld.so.preload"

// lookPreload finds a library of /etc/ld.so.preload whose own libraries are lost: then every program ends at its start, init too. The loader leaves
// out a preloaded library that does not exist, or that is none for this machine.
func lookPreload(s *diagnose.System) []diagnose.Finding {
	if linkerOf(s) == "" { // musl reads no such file
		return nil
	}
	f := diagnose.Finding{
		ID: "preload-library-broken", Stage: diagnose.Init, Severity: diagnose.BlocksBoot, Confidence: 0.95, Explains: []string{"sshd-library-missing"},
		ByHand: "Take the library out of the line, or install the package that brings what it needs.",
	}
	var broken []string
	var missing []diagnose.Evidence
	for i, line := range s.Files.Lines(PreloadPath) {
		line, _, _ = strings.Cut(line, "#")
		for _, name := range strings.FieldsFunc(line, isPreloadSeparator) {
			lost := preloadTrouble(s, name)
			if lost == nil || len(broken) >= maxPreloads {
				continue
			}
			if len(broken) == 0 {
				f.Title = fmt.Sprintf("Line %d of %s loads %s into every program, and %s, so that no program starts.", i+1, PreloadPath, name, lost)
			}
			broken = append(broken, name)
			f.Evidence = append(f.Evidence, config.FileEvidence(PreloadPath, i+1, name))
			missing = append(missing, lost.evidence()...)
		}
	}
	if len(broken) == 0 {
		return nil
	}
	f.Evidence = append(f.Evidence, missing...)
	f.Repair = mayLose(repairFiles("Take "+strings.Join(broken, " and ")+" out of "+PreloadPath+", and leave the other libraries in it.", PreloadPath),
		"Nothing does what "+strings.Join(broken, " and ")+" did in every program, such as to record what runs.")
	return []diagnose.Finding{f}
}

// preloadTrouble is what a preloaded library needs and what is lost; nil for a whole library, and for one that the loader leaves out.
func preloadTrouble(s *diagnose.System, name string) *lostLibrary {
	if !path.IsAbs(name) || strings.Contains(name, "$") || !s.Files.Exists(name) {
		return nil
	}
	file, err := config.OpenReadAt(s.Files, name)
	if err != nil {
		return nil
	}
	program, err := config.ReadProgram(file)
	_ = file.Close()
	if machines := runnableMachines[s.KernelArch]; err != nil || len(machines) > 0 && program.Machine != machines[0] {
		return nil
	}
	return findLostLibrary(s.Files, name)
}

// maxPreloads bounds the broken libraries of one finding.
const maxPreloads = 8

// isPreloadSeparator says whether a character separates the libraries of /etc/ld.so.preload.
func isPreloadSeparator(r rune) bool { return r == ':' || r == ' ' || r == '\t' }

// WithoutPreloads is a line of /etc/ld.so.preload without those libraries. A comment at its end stays.
func WithoutPreloads(line string, libraries []string) string {
	text, comment, commented := strings.Cut(line, "#")
	kept := slices.DeleteFunc(strings.FieldsFunc(text, isPreloadSeparator), func(name string) bool { return slices.Contains(libraries, name) })
	text = strings.Join(kept, " ")
	if commented {
		text = strings.TrimLeft(text+" #"+comment, " ")
	}
	return text
}

// linkerOf is the dynamic loader of glibc; empty where the system has none.
func linkerOf(s *diagnose.System) string {
	for _, folder := range append([]string{"/lib64", "/lib", "/usr/lib64", "/usr/lib"}, s.Files.Match("/usr/lib", "*-linux-*")...) {
		for _, name := range s.Files.Match(folder, "ld-linux*") {
			return name
		}
		for _, name := range s.Files.Match(folder, "ld64.so*") {
			return name
		}
	}
	return ""
}

// sessionPrograms are the programs that sshd starts for each connection since OpenSSH 9.8, sshd-session and sshd-auth. The program of sshd names their
// paths, unless its configuration does, and sshd does not start without them.
func sessionPrograms(tree *diagnose.Tree) []string {
	program := sshdProgram(tree)
	if program == "" {
		return nil
	}
	text, err := tree.Read(program)
	if err != nil {
		return nil
	}
	sshd := config.ReadSSHDConfig(tree)
	var out []string
	for _, name := range []string{"sshd-session", "sshd-auth"} {
		at := sshd.First(strings.ReplaceAll(name, "-", "")+"path", "")
		if end := bytes.Index(text, []byte("/"+name+"\x00")); end >= 0 && at == "" {
			begin := bytes.LastIndexByte(text[:end], 0) + 1
			at = string(text[begin : end+1+len(name)])
		}
		if path.IsAbs(at) {
			out = append(out, at)
		}
	}
	return out
}

// findSSHDLibraries finds a sshd that does not start, because a file that it needs is lost or damaged.
func findSSHDLibraries(s *diagnose.System) []diagnose.Finding {
	programs := append([]string{sshdProgram(s.Files)}, sessionPrograms(s.Files)...)
	for _, name := range programs {
		if why := brokenProgram(s, name); name != "" && name != programs[0] && why != "" {
			return []diagnose.Finding{{
				ID: "sshd-library-missing", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.93,
				Title:    fmt.Sprintf("The server sshd does not start, because it needs its program %s: %s.", name, why),
				Evidence: []diagnose.Evidence{config.FileEvidence(name, 0, why), config.FileEvidence(programs[0], 0, "it names this program")},
				ByHand:   "Install the package of the ssh server again.",
			}}
		}
		place, err := s.Files.Resolve(name)
		if name == "" || err != nil {
			continue
		}
		lost := findLostLibrary(s.Files, place)
		if lost == nil || mountMayHold(s, "/usr/lib") {
			continue
		}
		return []diagnose.Finding{{
			ID: "sshd-library-missing", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.93, Explains: []string{"sshd-unit-invalid"},
			Title:    fmt.Sprintf("The server sshd does not start, because %s.", lost),
			Evidence: lost.evidence(),
			ByHand:   "Install the package that brings the file again.",
		}}
	}
	return nil
}

// lookOwners finds a system whose owner was changed as a whole, such as by chown -R on the root.
func lookOwners(s *diagnose.System) []diagnose.Finding {
	owners, seen := map[uint32][]diagnose.Evidence{}, 0
	for _, name := range systemPaths {
		info, err := s.Files.Lstat(name)
		if err != nil {
			continue
		}
		seen++
		if uid := diagnose.OwnerOf(info).UID; uid != 0 {
			owners[uid] = append(owners[uid], config.FileEvidence(name, 0, fmt.Sprintf("it belongs to the user id %d and not to root", uid)))
		}
	}
	for uid, changed := range owners {
		if len(changed) < wholeSystem || len(changed) < seen/2 {
			continue
		}
		f := diagnose.Finding{
			ID: "owners-changed", Stage: diagnose.SSHD, Severity: diagnose.Degrades, Confidence: 0.95,
			Title:    fmt.Sprintf("The owner of the whole system was changed: %s and %d more paths of the system belong to the user id %d.", changed[0].Path, len(changed)-1, uid),
			Evidence: changed,
			Explains: []string{"ssh-key-permissions", "sudo-not-setuid", "sudoers-refused", "sshd-folder-unsafe", "sshd-host-keys-open", "network-config-invalid", "login-impossible", "ssh-login-impossible"},
			ByHand:   "Restore owners and modes from the packages (rpm --setugids -a; on Debian, install all packages again) or from a backup; salvor does not know who owned the rest.",
		}
		if l := readLogins(s); l.elsewhere == "" && !slices.ContainsFunc(l.accounts, func(a login) bool { return a.byKey }) {
			f.Severity = diagnose.BlocksAccess
		}
		return []diagnose.Finding{f}
	}
	return nil
}

// wholeSystem is how many of systemPaths have to be changed alike before the whole system was.
const wholeSystem = 5

// systemPaths belong to root on each system, and only root may write them.
var systemPaths = []string{"/etc", "/usr", "/usr/bin", "/usr/sbin", "/usr/lib", "/etc/passwd", "/etc/ssh", "/etc/sudoers", "/etc/fstab", "/root", "/var", "/boot", "/usr/sbin/sshd", "/usr/bin/sudo", "/home", "/opt"}
