package system

import (
	"fmt"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

const inittabPath = "/etc/inittab"

// lookInittab finds an /etc/inittab from which init starts no services: those of OpenRC under busybox, and the run levels of sysvinit.
func lookInittab(s *diagnose.System) []diagnose.Finding {
	manager := config.ManagerOf(s.Files)
	lines := s.Files.Lines(inittabPath)
	if manager != config.OpenrcManager && manager != config.SysvManager || len(lines) == 0 {
		return nil
	}
	f := diagnose.Finding{ID: "inittab-invalid", Stage: diagnose.Target, Severity: diagnose.BlocksBoot, Confidence: 0.9,
		ByHand: "Restore /etc/inittab from its package."}
	starts := false
	for i, text := range lines {
		fields := strings.SplitN(strings.TrimSpace(text), ":", 4)
		if len(fields) != 4 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if fields[2] == "initdefault" && strings.Trim(fields[1], "06") == "" && fields[1] != "" {
			f.Title = fmt.Sprintf("Line %d of %s makes run level %s the default one, which stops the machine.", i+1, inittabPath, fields[1])
			f.Evidence = []diagnose.Evidence{config.FileEvidence(inittabPath, i+1, text)}
			return []diagnose.Finding{f}
		}
		program, _ := config.CutField(fields[3])
		name := program[strings.LastIndexByte(program, '/')+1:]
		starts = starts || slices.Contains([]string{"sysinit", "wait", "once", "bootwait", "boot", "respawn"}, fields[2]) && (strings.HasPrefix(name, "rc") || strings.HasPrefix(name, "openrc"))
	}
	if starts || slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, ".sh") }) { // a script of the administrator may start them
		return nil
	}
	f.Title = "The file " + inittabPath + " starts none of the system's services, because it has no line for " + map[bool]string{true: "openrc", false: "rc"}[manager == config.OpenrcManager] + "."
	f.Evidence = []diagnose.Evidence{config.FileEvidence(inittabPath, 0, "no line starts the run levels")}
	return []diagnose.Finding{f}
}

// lookExtlinuxDefault finds an extlinux whose default names neither a label nor a file, so that it stops at its prompt.
func lookExtlinuxDefault(s *diagnose.System) []diagnose.Finding {
	for _, file := range extlinuxFiles {
		if !s.Files.Exists(file) {
			continue
		}
		folder := file[:strings.LastIndexByte(file, '/')]
		if config.FirstExisting(s.Files, folder+"/ldlinux.sys", "/boot/ldlinux.sys") == "" { // U-Boot reads the file by rules of its own
			return nil
		}
		wanted, line, labels := "", 0, []string{}
		for i, text := range s.Files.Lines(file) {
			key, value := config.CutField(text)
			value = strings.TrimSpace(value)
			switch strings.ToLower(key) {
			case "ui", "ontimeout", "include":
				return nil
			case "default":
				wanted, line = value, i+1
			case "label":
				labels = append(labels, value)
			}
		}
		name, _ := config.CutField(wanted)
		if wanted == "" || slices.Contains(labels, wanted) || slices.Contains(labels, name) || strings.HasSuffix(name, ".c32") || s.Files.Exists(folder+"/"+name) || s.Files.Exists("/boot/"+name) {
			return nil
		}
		return []diagnose.Finding{{
			ID: "extlinux-default-missing", Stage: diagnose.Loader, Severity: diagnose.BlocksBoot, Confidence: 0.9,
			Title:    fmt.Sprintf("Line %d of %s boots %s by default, which is neither a label of the file nor a kernel.", line, file, wanted),
			Evidence: []diagnose.Evidence{config.FileEvidence(file, line, "DEFAULT "+wanted+"; the labels are "+strings.Join(labels[:min(len(labels), 8)], ", "))},
			ByHand:   "Write one of the labels after DEFAULT.",
		}}
	}
	return nil
}
