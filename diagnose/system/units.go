package system

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// Units without which a boot does not reach its default target, and units without which much is lost.
var (
	requiredUnits  = []string{"sysinit.target", "basic.target", "local-fs.target", "multi-user.target", "systemd-udevd.service", "systemd-udev-trigger.service"}
	importantUnits = []string{"systemd-journald.service", "dbus.service", "dbus.socket", "systemd-logind.service", "systemd-tmpfiles-setup.service"}
	rescueTargets  = []string{"rescue.target", "emergency.target", "poweroff.target", "halt.target", "reboot.target", "shutdown.target", "runlevel0.target", "runlevel1.target", "runlevel6.target"}
)

func unitRules() []diagnose.Rule {
	return []diagnose.Rule{
		{IDs: []string{"default-target-missing", "default-target-rescue", "default-target-masked"}, Files: true, Look: lookDefaultTarget},
		{IDs: []string{"inittab-invalid"}, Files: true, Look: lookInittab},
		{IDs: []string{"unit-masked"}, Files: true, Look: lookMaskedUnits},
		{IDs: []string{"selinux-config-invalid", "selinux-policy-missing", "selinux-unlabelled", "selinux-keys-unlabelled", "selinux-port-denied"}, Files: true, Look: lookSELinux},
		{IDs: []string{"machine-id-invalid"}, Files: true, Look: lookMachineID},
	}
}

// unitExists says whether systemd finds a unit of a name.
func unitExists(t *diagnose.Tree, name string) bool {
	return slices.ContainsFunc(config.UnitFolders, func(folder string) bool {
		_, err := t.Lstat(path.Join(folder, name))
		return err == nil
	})
}

func lookDefaultTarget(s *diagnose.System) []diagnose.Finding {
	if !config.UsesSystemd(s.Files) {
		return nil
	}
	const link = "/etc/systemd/system/default.target"
	f := diagnose.Finding{Stage: diagnose.Target, Severity: diagnose.BlocksBoot, Confidence: 0.95}
	f.Repair = &diagnose.Repair{Summary: "Let " + link + " lead to multi-user.target.", Consent: diagnose.ConsentFiles, Writes: []string{link}}
	info, err := s.Files.Lstat(link)
	if err != nil {
		if config.IsNotExist(err) && !unitExists(s.Files, "default.target") && unitExists(s.Files, "basic.target") {
			f.ID, f.Title = "default-target-missing", "The init systemd has no default.target, so that it does not know what to start."
			f.Evidence = []diagnose.Evidence{config.FileEvidence(link, 0, "it does not exist, nor does one below /usr/lib/systemd/system")}
			return []diagnose.Finding{f}
		}
		return nil
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		return nil
	}
	target, err := s.Files.ReadLink(link)
	if err != nil {
		return nil
	}
	f.Evidence = []diagnose.Evidence{config.FileEvidence(link, 0, "a link to "+target)}
	switch name := path.Base(target); {
	case target == "/dev/null":
		f.ID, f.Title = "default-target-masked", "The unit default.target is masked, so that systemd starts nothing."
		f.Repair.Loses = losesRescue
	case slices.Contains(rescueTargets, name):
		f.ID, f.Title, f.Confidence = "default-target-rescue", "The system starts "+name+" by default.", 0.9
		f.Repair.Loses = losesRescue
	case !unitExists(s.Files, name):
		f.ID, f.Title = "default-target-missing", "The unit default.target leads to "+name+", which does not exist."
	case config.IsMasked(s.Files, name):
		f.ID, f.Title = "default-target-masked", "The unit default.target leads to "+name+", which is masked."
		f.Repair = nil
		f.ByHand = "Remove the link /etc/systemd/system/" + name + "."
	default:
		return nil
	}
	return []diagnose.Finding{f}
}

func lookMaskedUnits(s *diagnose.System) []diagnose.Finding {
	if !config.UsesSystemd(s.Files) {
		return nil
	}
	var out []diagnose.Finding
	e := defaultEntry(loadEntries(s))
	for _, name := range slices.Concat(requiredUnits, importantUnits) {
		at := path.Join("/etc/systemd/system", name)
		if !config.IsMasked(s.Files, name) {
			if line, option := maskArgument(e, name); option != "" {
				f := diagnose.Finding{
					ID: "unit-masked", Stage: diagnose.Target, Severity: diagnose.Degrades, Confidence: 0.9,
					Title:    fmt.Sprintf("The unit %s is masked by line %d of %s, and other units need it.", name, line, e.File),
					Evidence: []diagnose.Evidence{config.FileEvidence(e.File, line, option)},
					ByHand:   "Remove " + option + " from the command line of the boot loader.",
				}
				if slices.Contains(requiredUnits, name) {
					f.Severity = diagnose.BlocksBoot
				}
				out = append(out, f)
			}
			continue
		}
		f := diagnose.Finding{
			ID: "unit-masked", Stage: diagnose.Target, Severity: diagnose.Degrades, Confidence: 0.9,
			Title:    fmt.Sprintf("The unit %s is masked, and other units need it.", name),
			Evidence: []diagnose.Evidence{config.FileEvidence(at, 0, "it masks the unit")},
			Repair:   dropMasks(at),
		}
		if slices.Contains(requiredUnits, name) {
			f.Severity = diagnose.BlocksBoot
		}
		out = append(out, f)
	}
	return out
}

// maskArgument returns the argument of an entry's command line that masks a unit, with its line; empty where none does, or where e is nil.
func maskArgument(e *loadEntry, unit string) (line int, option string) {
	if e == nil {
		return 0, ""
	}
	for _, option := range e.Options {
		if value, found := strings.CutPrefix(option, "systemd.mask="); found && (value == unit || value+".service" == unit) {
			return max(e.OptionsLine, e.Line), option
		}
	}
	return 0, ""
}

const selinuxPath = "/etc/selinux/config"

// selinuxMode is the mode of SELinux after a start, and where it is written: the file of the system says so, and the command line is stronger. The mode
// is empty where the kernel does not start SELinux.
func selinuxMode(s *diagnose.System, settings []config.SettingLine) (mode config.SettingLine, at diagnose.Evidence) {
	mode, _ = config.LastSetting(settings, "SELINUX")
	at = config.FileEvidence(selinuxPath, mode.Line, "SELINUX="+mode.Value)
	e := defaultEntry(loadEntries(s))
	if e == nil {
		return mode, at
	}
	on, _ := argument(e.Options, "selinux")
	security, _ := argument(e.Options, "security")
	modules, _ := argument(e.Options, "lsm")
	enforcing, _ := argument(e.Options, "enforcing")
	isStarted := mode.Value != "" || on == "1" && (security == "selinux" || slices.Contains(strings.Split(modules, ","), "selinux"))
	switch {
	case on == "0" || enforcing == "0" || security != "" && security != "selinux" || !isStarted || strings.EqualFold(mode.Value, "disabled"):
		return config.SettingLine{}, at
	case enforcing == "1":
		mode.Value, at = "enforcing", config.FileEvidence(e.File, max(e.OptionsLine, e.Line), "enforcing=1")
	}
	return mode, at
}

// lookSELinux finds what keeps a system with SELinux from its boot.
func lookSELinux(s *diagnose.System) []diagnose.Finding {
	settings := config.ShellSettings(s.Files.Lines(selinuxPath))
	mode, evidence := selinuxMode(s, settings)
	switch strings.ToLower(mode.Value) {
	case "", "disabled", "permissive":
		return nil
	case "enforcing":
	default:
		return []diagnose.Finding{{
			ID: "selinux-config-invalid", Stage: diagnose.Init, Severity: diagnose.Degrades, Confidence: 0.8,
			Title:    fmt.Sprintf("Line %d of %s sets SELINUX to %s, which is no mode.", mode.Line, selinuxPath, mode.Value),
			Evidence: []diagnose.Evidence{evidence},
			Repair: &diagnose.Repair{Summary: fmt.Sprintf("Write SELINUX=permissive into line %d of %s.", mode.Line, selinuxPath), Consent: diagnose.ConsentFiles,
				Writes: []string{selinuxPath}, Loses: "SELinux only reports until someone sets it to enforcing."},
		}}
	}
	kind := config.SettingLine{Value: "targeted"}
	if set, found := config.LastSetting(settings, "SELINUXTYPE"); found {
		kind = set
	}
	if folder := "/etc/selinux/" + kind.Value + "/policy"; !strings.ContainsAny(kind.Value, "/ ") && len(s.Files.Match(folder, "policy.*")) == 0 {
		f := diagnose.Finding{
			ID: "selinux-policy-missing", Stage: diagnose.Init, Severity: diagnose.BlocksBoot, Confidence: 0.95,
			Title:    fmt.Sprintf("SELinux is enforcing, and its policy %s is missing, so that init stops.", kind.Value),
			Evidence: []diagnose.Evidence{evidence, config.FileEvidence(folder, 0, "it holds no policy")},
			ByHand:   "Install the package of the policy again, or boot once with enforcing=0.",
		}
		var whole []string
		for _, other := range s.Files.Match("/etc/selinux", "*") {
			if len(s.Files.Match(other+"/policy", "policy.*")) > 0 {
				whole = append(whole, path.Base(other))
			}
		}
		if len(whole) == 1 && kind.Line > 0 {
			f.Repair = &diagnose.Repair{Summary: fmt.Sprintf("Write SELINUXTYPE=%s into line %d of %s, the only policy that is there.", whole[0], kind.Line, selinuxPath),
				Consent: diagnose.ConsentFiles, Writes: []string{selinuxPath}, Loses: fmt.Sprintf("The policy %s is in force in the place of %s, and may forbid less.", whole[0], kind.Value)}
		}
		return []diagnose.Finding{f}
	}
	return slices.Concat(lookLabels(s, evidence), lookKeyLabels(s, evidence), lookLabelledPort(s, evidence, kind.Value))
}

// losesLabels says what may be lost where all files get the labels of the policy.
const losesLabels = "Labels that someone set with chcon alone, and that no rule of the policy names, are lost."

// lookLabels finds files without a label that a boot or a login needs. Where no file has a label, none could be read.
func lookLabels(s *diagnose.System, mode diagnose.Evidence) []diagnose.Finding {
	labelled := 0
	var bare []string
	for _, name := range []string{"/usr/lib/systemd/systemd", "/etc/passwd", "/etc/shadow", "/usr/sbin/sshd", "/etc/ld.so.cache", "/etc/fstab", "/etc/ssh/sshd_config"} {
		info, err := s.Files.Stat(name)
		if err != nil {
			continue
		}
		if label := diagnose.OwnerOf(info).Label; label == "" || strings.Contains(label, ":unlabeled_t:") {
			bare = append(bare, name)
		} else {
			labelled++
		}
	}
	if labelled == 0 || len(bare) == 0 || s.Files.Exists("/.autorelabel") {
		return nil
	}
	f := diagnose.Finding{
		ID: "selinux-unlabelled", Stage: diagnose.Login, Severity: diagnose.BlocksAccess, Confidence: 0.9,
		Title:    fmt.Sprintf("SELinux is enforcing, and %s has no label.", strings.Join(bare, ", ")),
		Evidence: []diagnose.Evidence{mode, config.FileEvidence(bare[0], 0, "it has no SELinux label")},
		Repair: &diagnose.Repair{Summary: "Make /.autorelabel, so that the next boot labels all files and starts once more.", Consent: diagnose.ConsentFiles,
			Writes: []string{"/.autorelabel"}, Loses: losesLabels},
	}
	if bare[0] == "/usr/lib/systemd/systemd" {
		f.Stage, f.Severity = diagnose.Init, diagnose.BlocksBoot
	}
	return []diagnose.Finding{f}
}

// lookMachineID finds an id that systemd and dbus refuse. One that is missing or empty is made by the next boot.
func lookMachineID(s *diagnose.System) []diagnose.Finding {
	const name = "/etc/machine-id"
	lines := s.Files.Lines(name)
	if len(lines) == 0 || !config.UsesSystemd(s.Files) {
		return nil
	}
	id := strings.TrimSpace(lines[0])
	isHex := len(id) == 32 && strings.Trim(id, "0123456789abcdef") == "" && strings.Trim(id, "0") != ""
	if id == "" || id == "uninitialized" || isHex {
		return nil
	}
	return []diagnose.Finding{{
		ID: "machine-id-invalid", Stage: diagnose.Init, Severity: diagnose.Degrades, Confidence: 0.85,
		Title:    "Line 1 of /etc/machine-id is not an id of 32 hexadecimal digits, so that the journal and dbus fail.",
		Evidence: []diagnose.Evidence{config.FileEvidence(name, 1, id)},
		Repair: &diagnose.Repair{Summary: "Empty /etc/machine-id, so that the next boot writes a new id.", Consent: diagnose.ConsentFiles, Writes: []string{name},
			Loses: "Leases of DHCP and the journal go on under a new id."},
	}}
}
