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
	place, _ := s.Files.Resolve("/sbin/init")
	isBusybox := strings.HasSuffix(place, "/busybox") // which has no run levels
	starts := false
	for i, text := range lines {
		fields := strings.SplitN(strings.TrimSpace(text), ":", 4)
		if len(fields) != 4 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if fields[2] == "initdefault" && !isBusybox && strings.Trim(fields[1], "06") == "" && fields[1] != "" {
			f.Title = fmt.Sprintf("Line %d of %s makes run level %s the default one, which stops the machine.", i+1, inittabPath, fields[1])
			f.Evidence = []diagnose.Evidence{config.FileEvidence(inittabPath, i+1, text)}
			f.Repair = mayLose(repairFiles(fmt.Sprintf("Make run level %s the default one in line %d of %s.", RunLevel(s), i+1, inittabPath), inittabPath),
				fmt.Sprintf("If another run level was the default one, other services start in run level %s.", RunLevel(s)))
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

// RunLevel is the run level in which a distribution starts its services.
func RunLevel(s *diagnose.System) string {
	if s.Files.Exists(debianVersion) {
		return "2"
	}
	return "3"
}
