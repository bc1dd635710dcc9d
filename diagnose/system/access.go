package system

import (
	"fmt"
	"slices"

	"salvor/diagnose"
)

// accessRules are about the stages network, sshd and login.
func accessRules() []diagnose.Rule {
	return slices.Concat(sshdRules(), keyRules(), accountRules(), networkRules(), sudoersRules(), permissionRules(), pamRules(), firewallRules(), cloudInitRules())
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

// repairFiles is a repair that changes files and loses nothing.
func repairFiles(summary string, writes ...string) *diagnose.Repair {
	slices.Sort(writes)
	writes = slices.Compact(writes)
	return &diagnose.Repair{Summary: summary, Consent: diagnose.ConsentFiles, Writes: writes}
}
