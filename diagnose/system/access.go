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

// repairFiles is a repair that changes files and loses nothing.
func repairFiles(summary string, writes ...string) *diagnose.Repair {
	slices.Sort(writes)
	writes = slices.Compact(writes)
	return &diagnose.Repair{Summary: summary, Consent: diagnose.ConsentFiles, Writes: writes}
}

// editDistance is the number of letters to insert, remove, replace or swap with a neighbour that makes b of a; more than 2 is reported as 3.
func editDistance(a, b string) int {
	if len(a) > 64 || len(b) > 64 || max(len(a)-len(b), len(b)-len(a)) > 2 {
		return 3
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return min(rows[len(a)][len(b)], 3)
}
