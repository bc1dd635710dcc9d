package system

import (
	"fmt"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// accessRules are about the stages network, sshd and login.
func accessRules() []diagnose.Rule {
	return slices.Concat(sshdRules(), keyRules(), accountRules(), networkRules(), sudoersRules(), permissionRules(), pamRules(), firewallRules(), cloudInitRules(), managerRules())
}

// isBlocking says whether a finding of this severity keeps a machine from its work.
func isBlocking(severity diagnose.Severity) bool {
	return severity == diagnose.BlocksBoot || severity == diagnose.BlocksAccess
}

// place names a line of a file for a sentence.
func place(path string, line int) string {
	if line == 0 {
		return path
	}
	return fmt.Sprintf("%s, line %d", path, line)
}

// mayLose adds to a repair, in a sentence, what the repair may lose.
func mayLose(r *diagnose.Repair, text string) *diagnose.Repair {
	r.Loses = text
	return r
}

// dropSetting is the repair that makes a setting of a drop-in, or of systemd's own configuration, a comment. The unit then has what its package says.
// It is nil for a line of the unit itself, which may not start without the line.
func dropSetting(at config.UnitLine) *diagnose.Repair {
	isDropIn := strings.HasSuffix(at.File, ".conf") && strings.HasPrefix(at.File, "/etc/systemd/")
	if !isDropIn || at.Line == 0 {
		return nil
	}
	return mayLose(repairFiles(fmt.Sprintf("Make line %d of %s a comment.", at.Line, at.File), at.File),
		fmt.Sprintf("The setting %s= of %s no longer holds. Someone may have made it on purpose.", at.Key, at.File))
}

// dropMask is the repair that removes the mask of a unit. It is nil for a mask that only the running system has, or that a package brings.
func dropMask(at string) *diagnose.Repair {
	if !strings.HasPrefix(at, "/etc/systemd/system/") {
		return nil
	}
	return mayLose(repairFiles("Remove "+at+".", at), "The unit starts again. Someone may have masked it on purpose.")
}

// dropStart is the repair that removes the link by which a start of the system starts a unit. It is nil for a link that a package brings.
func dropStart(unit, link string) *diagnose.Repair {
	if !strings.HasPrefix(link, "/etc/systemd/system/") {
		return nil
	}
	return mayLose(repairFiles(fmt.Sprintf("Remove %s, so that no start of the system starts %s.", link, unit), link),
		fmt.Sprintf("The unit %s no longer does what it was made for.", unit))
}

// repairFiles is a repair that changes files and loses nothing.
func repairFiles(summary string, writes ...string) *diagnose.Repair {
	slices.Sort(writes)
	writes = slices.Compact(writes)
	return &diagnose.Repair{Summary: summary, Consent: diagnose.ConsentFiles, Writes: writes}
}
