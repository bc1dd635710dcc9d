// Package system holds the rules about an installed operating system: each looks at one cause for which machines do not boot or take no login.
// It is pure, reads through diagnose.Tree only, and asks programs of the examined system through diagnose.Asker only.
package system

import (
	"slices"

	"salvor/diagnose"
)

// Rules lists all rules. Their order is of no consequence.
func Rules() []diagnose.Rule {
	return slices.Concat(bootRules(), accessRules(), checkerRules())
}

// bootRules are about the stages from firmware to target.
func bootRules() []diagnose.Rule {
	return slices.Concat(fstabRules(), cryptRules(), spaceRules(), storageRules(), unitRules(), grubRules(), grubModuleRules(), entryRules(),
		argumentRules(), initRules(), startJobRules(), packageRules(), fileSystemRules(), firmwareRules(), secureBootRules(), bootSectorRules(), crashRules())
}
