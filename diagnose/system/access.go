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

// dropSetting is the repair that makes a setting of a drop-in, or of systemd's own configuration, a comment. Without the setting, the unit has what
// its package says. The repair is nil for a line of the unit itself and for a command, without which the unit may not start, and for a drop-in that is
// a link, because other units may share its file.
func dropSetting(tree *diagnose.Tree, at config.UnitLine) *diagnose.Repair {
	place, err := tree.Resolve(at.File)
	isDropIn := strings.HasSuffix(at.File, ".conf") && strings.HasPrefix(at.File, "/etc/systemd/") && err == nil && place == at.File
	if !isDropIn || at.Line == 0 || at.Key == "ExecStart" {
		return nil
	}
	return mayLose(repairFiles(fmt.Sprintf("Make line %d of %s a comment.", at.Line, at.File), at.File),
		fmt.Sprintf("The setting %s= of %s no longer holds. Someone may have made it on purpose.", at.Key, at.File))
}

// dropMasks is the repair that removes the masks of units. The repair is nil for a mask outside of the system's own configuration.
func dropMasks(masks ...string) *diagnose.Repair {
	if slices.ContainsFunc(masks, func(at string) bool { return !strings.HasPrefix(at, "/etc/systemd/system/") }) {
		return nil
	}
	return mayLose(repairFiles("Remove "+strings.Join(masks, " and ")+".", masks...), "The unit starts again. Someone may have masked it on purpose.")
}

// dropStart is the repair that removes the link by which a start of the system starts a unit. The repair is nil for a link that a package brings, and
// for a unit that another link or another unit starts too.
func dropStart(tree *diagnose.Tree, unit, link string) *diagnose.Repair {
	if !strings.HasPrefix(link, "/etc/systemd/system/") || isWantedBeside(tree, unit, link) {
		return nil
	}
	return mayLose(repairFiles(fmt.Sprintf("Remove %s, so that no start of the system starts %s.", link, unit), link),
		fmt.Sprintf("The unit %s no longer does what it was made for.", unit))
}

// isWantedBeside says whether anything but a link starts a unit: another link, or a setting of a unit that a usual start runs.
func isWantedBeside(tree *diagnose.Tree, unit, link string) bool {
	if slices.ContainsFunc(config.UnitLinks(tree), func(l config.UnitLink) bool { return l.Unit == unit && l.Path != link }) {
		return true
	}
	return slices.ContainsFunc(startedUnits(tree), func(l config.UnitLink) bool {
		return l.Unit != unit && slices.ContainsFunc(config.UnitLines(tree, l.Unit), func(line config.UnitLine) bool {
			return slices.Contains([]string{"Wants", "Requires", "BindsTo", "Upholds"}, line.Key) && slices.Contains(strings.Fields(line.Value), unit)
		})
	})
}

// repairFiles is a repair that changes files and loses nothing.
func repairFiles(summary string, writes ...string) *diagnose.Repair {
	slices.Sort(writes)
	writes = slices.Compact(writes)
	return &diagnose.Repair{Summary: summary, Consent: diagnose.ConsentFiles, Writes: writes}
}
