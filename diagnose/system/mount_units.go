package system

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// startTargets are the targets without which systemd starts no service that waits for the usual start: where one of them fails, the boot ends in a
// shell for emergencies.
var startTargets = []string{"local-fs.target", "sysinit.target", "basic.target"}

// requirement is a unit that a target of the start cannot do without, and what says so.
type requirement struct {
	unit, by string
	at       diagnose.Evidence
}

// requirements are the units that the targets of the start require, by links or by settings.
func requirements(tree *diagnose.Tree) []requirement {
	var out []requirement
	for _, l := range config.UnitLinks(tree) {
		if l.Required && slices.Contains(startTargets, l.By) {
			out = append(out, requirement{l.Unit, l.By, config.FileEvidence(l.Path, 0, l.By+" requires the unit")})
		}
	}
	for _, target := range startTargets {
		lines := config.UnitLines(tree, target)
		for _, l := range append(settingList(lines, "Unit", "Requires"), settingList(lines, "Unit", "BindsTo")...) {
			for unit := range strings.FieldsSeq(l.Value) {
				out = append(out, requirement{unit, target, config.FileEvidence(l.File, l.Line, l.Key+"="+l.Value)})
			}
		}
	}
	return out
}

// hasCondition says whether a setting of a unit may keep systemd from starting the unit, without a failure or with one.
func hasCondition(lines []config.UnitLine) bool {
	return slices.ContainsFunc(lines, func(l config.UnitLine) bool {
		return l.Section == "Unit" && l.Value != "" && (strings.HasPrefix(l.Key, "Condition") || strings.HasPrefix(l.Key, "Assert"))
	})
}

// lookMountUnits finds units of mounts that a target of the start requires, and whose device is not there. Lines of /etc/fstab become such units too,
// and have their own findings. A unit that is only wanted ends no boot.
func lookMountUnits(s *diagnose.System) []diagnose.Finding {
	if !config.UsesSystemd(s.Files) {
		return nil
	}
	var out []diagnose.Finding
	done := map[string]bool{}
	for _, required := range requirements(s.Files) {
		file := config.UnitFile(s.Files, required.unit)
		if path.Ext(required.unit) != ".mount" || file == "" || done[required.unit] {
			continue
		}
		done[required.unit] = true
		lines := config.UnitLines(s.Files, required.unit)
		e := config.FstabLine{Source: lastOf(lines, "Mount", "What"), Target: lastOf(lines, "Mount", "Where"), Type: lastOf(lines, "Mount", "Type"),
			Options: strings.Split(lastOf(lines, "Mount", "Options"), ",")}
		name := config.ParseDeviceName(e.Source)
		if hasCondition(lines) || strings.Contains(e.Source, "%") || e.IsNetwork() || e.IsBind() || e.Has("loop") || name.Tag == "" || len(config.FindDevices(s, name)) > 0 ||
			config.IsUncertainName(s, name) || name.Tag == "path" && isCryptName(s, name.Value) {
			continue
		}
		f := diagnose.Finding{
			ID: "fstab-device-missing", Stage: diagnose.Target, Severity: diagnose.BlocksBoot, Confidence: 0.85,
			Title:    fmt.Sprintf("The unit %s, which %s requires, mounts %s from %s, which no device of the machine has.", required.unit, required.by, e.Target, e.Source),
			Evidence: []diagnose.Evidence{config.FileEvidence(file, 0, "What="+e.Source), required.at},
			ByHand:   fmt.Sprintf("Attach the device again, or let the target only want the unit: systemctl disable %s, and WantedBy= in place of RequiredBy=.", required.unit),
		}
		if name.Kernel || len(config.HidesDevices(s)) > 0 {
			f.Confidence = 0.4
		}
		out = append(out, f)
	}
	return out
}
