package system

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

func grubRules() []diagnose.Rule {
	return []diagnose.Rule{
		{IDs: []string{"grub-config-missing", "grub-config-empty", "grub-config-invalid", "grub-menu-waits", "boot-entries-missing"}, Files: true, Look: lookGrubConfig},
		{IDs: []string{"grub-search-missing", "grub-stub-search-missing"}, Files: true, Look: lookGrubSearch},
		{IDs: []string{"grub-environment-invalid", "grub-default-missing"}, Files: true, Look: lookGrubDefault},
	}
}

// regenerateGrub is the repair of a grub.cfg by the system's own tool.
func regenerateGrub(s *diagnose.System, file string) *diagnose.Repair {
	tool := menuTool(s, file)
	if tool == "" {
		return nil
	}
	return &diagnose.Repair{Summary: fmt.Sprintf("Write %s anew with the system's own %s, without looking for other systems.", file, path.Base(tool)),
		Consent: diagnose.ConsentBoot, Writes: []string{file}}
}

func lookGrubConfig(s *diagnose.System) []diagnose.Finding {
	file, found := grubConfigPath(s)
	if file == "" {
		return emptySystemdBoot(s)
	}
	f := diagnose.Finding{Stage: diagnose.Loader, Severity: diagnose.BlocksBoot, Confidence: 0.95, Repair: regenerateGrub(s, file), Explains: []string{"grub-default-missing"}}
	if f.Repair == nil {
		f.ByHand = "Write the file anew with the grub-mkconfig of the system."
	}
	if !found {
		if len(systemdBootEntries(s)) > 0 || len(extlinuxEntries(s)) > 0 {
			return nil
		}
		f.ID, f.Title = "grub-config-missing", "The file "+file+" does not exist, so that GRUB shows its prompt only."
		f.Evidence = []diagnose.Evidence{config.FileEvidence(file, 0, "it does not exist, though other files of GRUB do")}
		if isBootHidden(s) {
			f.Confidence = 0.4
		}
		return []diagnose.Finding{f}
	}
	text, err := s.Files.Read(file)
	if err != nil {
		return nil
	}
	if strings.Trim(string(text), " \t\r\n\x00") == "" {
		f.ID, f.Title = "grub-config-empty", "The file "+file+" is empty, so that GRUB shows its prompt only."
		f.Evidence = []diagnose.Evidence{config.FileEvidence(file, 0, fmt.Sprintf("it holds %d bytes and no command", len(text)))}
		return []diagnose.Finding{f}
	}
	script, entries := config.ParseGrub(string(text)), grubEntries(s)
	commands := func(name string) bool {
		return slices.ContainsFunc(script.Commands, func(c config.GrubCommand) bool { return c.Words[0] == name })
	}
	switch {
	case script.Error != "":
		f.ID, f.Title = "grub-config-invalid", fmt.Sprintf("Line %d of %s is wrong: %s.", script.ErrorLine, file, script.Error)
		f.Evidence = []diagnose.Evidence{config.FileEvidence(file, script.ErrorLine, script.Error)}
		if len(entries) > 0 { // GRUB runs each whole command of a file, so those entries are shown
			f.Severity, f.Confidence = diagnose.Degrades, 0.9
			f.Title = appendToSentence(f.Title, fmt.Sprintf("; %d entries before it are whole", len(entries)))
		}
		return []diagnose.Finding{f}
	case commands("blscfg") && len(entries) == 0 && !isBootHidden(s):
		f.ID, f.Title, f.Repair = "boot-entries-missing", "The folder /boot/loader/entries holds no entry, so that the menu of GRUB is empty.", nil
		f.Evidence = []diagnose.Evidence{config.FileEvidence("/boot/loader/entries", 0, "no file ends in .conf")}
		proposeEntries(s, byGRUB, &f)
		return []diagnose.Finding{f}
	case len(entries) == 0 && !commands("configfile") && !commands("source") && !commands("chainloader") && !commands("linux") && !commands("normal") && !commands("blscfg"):
		f.ID, f.Title = "grub-config-empty", "The file "+file+" holds no menu entry, so that GRUB shows its prompt only."
		f.Evidence = []diagnose.Evidence{config.FileEvidence(file, 0, fmt.Sprintf("it holds %d bytes and no menu entry", len(text)))}
		return []diagnose.Finding{f}
	}
	return grubWaits(s, script, file)
}

// grubWaits finds a menu that waits for a key.
func grubWaits(s *diagnose.System, script *config.GrubScript, file string) []diagnose.Finding {
	recorded, _ := config.LastSetting(parseGrubEnv(s, path.Dir(file)+"/grubenv"), "recordfail")
	endless, others := 0, false // the line of a timeout without end, and whether there are timeouts with one
	for _, c := range script.Commands {
		if c.Words[0] != "set" || len(c.Words) < 2 || c.Entry != 0 {
			continue
		}
		switch value, found := strings.CutPrefix(c.Words[1], "timeout="); {
		case found && value == "-1":
			endless = c.Line
		case found:
			others = true
		}
	}
	switch {
	case endless > 0 && !others: // in all branches of its conditions
		return grubWaitFinding(file, endless, "the timeout is -1")
	case endless > 0 && recorded.Value == "1":
		return grubWaitFinding(file, endless, "the last boot was recorded as failed")
	}
	return nil
}

func grubWaitFinding(file string, line int, why string) []diagnose.Finding {
	return []diagnose.Finding{{
		ID: "grub-menu-waits", Stage: diagnose.Loader, Severity: diagnose.BlocksBoot, Confidence: 0.8,
		Title:    fmt.Sprintf("Line %d of %s makes the menu of GRUB wait for a key, because %s.", line, file, why),
		Evidence: []diagnose.Evidence{config.FileEvidence(file, line, "set timeout=-1")},
		Repair: &diagnose.Repair{Summary: fmt.Sprintf("Write a timeout of 5 seconds into line %d of %s and into /etc/default/grub.", line, file), Consent: diagnose.ConsentBoot,
			Writes: []string{file, "/etc/default/grub"}},
	}}
}

// lookGrubSearch finds file systems that GRUB is to read and that no device holds.
func lookGrubSearch(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	hidden := len(config.HidesDevices(s)) > 0
	stubs := grubStubs(s)
	boot := deviceOfBoot(s)
	for _, stub := range stubs {
		if !ownsStub(s, stub.Path, len(stubs)) {
			continue
		}
		script := config.ParseGrub(string(stub.text))
		if len(script.Entries) > 0 {
			continue
		}
		missing := map[string]bool{}
		for _, c := range script.Commands {
			name, ok := config.SearchTarget(c.Words)
			if !ok || missing[name.Value] || len(config.FindDevices(s, name)) > 0 {
				continue
			}
			if missing[name.Value] = true; len(missing) > maxSearches {
				break
			}
			f := diagnose.Finding{
				ID: "grub-stub-search-missing", Stage: diagnose.Loader, Severity: diagnose.BlocksBoot, Confidence: 0.95,
				Title:    fmt.Sprintf("Line %d of %s looks for the file system %s, which no device holds.", c.Line, stub.Shown, name.Value),
				Evidence: []diagnose.Evidence{config.FileEvidence(stub.Shown, c.Line, strings.Join(c.Words, " "))},
			}
			if hidden {
				f.Confidence = 0.4
			}
			if d := boot; d != nil && d.UUID != "" {
				f.Repair = &diagnose.Repair{Summary: fmt.Sprintf("Let line %d of %s look for %s, the file system that holds /boot.", c.Line, stub.Shown, d.UUID),
					Consent: diagnose.ConsentBoot, Writes: []string{stub.Shown}}
			} else {
				f.ByHand = "Write the UUID of the file system that holds /boot into the line."
			}
			out = append(out, f)
		}
	}
	return append(out, searchInConfig(s, hidden)...)
}

// maxSearches bounds the findings about the searches of one file; a report lists fewer.
const maxSearches = 100

// ownsStub: a stub in the folder of another system is not ours to judge. count is how many stubs there are.
func ownsStub(s *diagnose.System, stub string, count int) bool {
	vendor := strings.ToLower(path.Base(path.Dir(stub)))
	names := append([]string{s.Release.ID, "boot"}, s.Release.Like...)
	switch {
	case strings.HasPrefix(s.Release.ID, "rhel"):
		names = append(names, "redhat")
	case strings.HasPrefix(s.Release.ID, "opensuse") || strings.HasPrefix(s.Release.ID, "sle"):
		names = append(names, "opensuse", "sles", "suse")
	}
	return slices.Contains(names, vendor) && !(vendor == "boot" && count > 1)
}

// deviceOfBoot is the device that holds /boot.
func deviceOfBoot(s *diagnose.System) *diagnose.Device {
	if d := config.MountedAt(s, "/boot"); d != nil {
		return d
	}
	if isBootHidden(s) {
		return nil
	}
	return config.RootDevice(s)
}

// searchInConfig looks at the searches of grub.cfg. One that finds nothing leaves the device that GRUB itself was read from, which mostly is right.
func searchInConfig(s *diagnose.System, hidden bool) []diagnose.Finding {
	file, found := grubConfigPath(s)
	if !found {
		return nil
	}
	text, err := s.Files.Read(file)
	if err != nil {
		return nil
	}
	done := map[string]bool{}
	var out []diagnose.Finding
	for _, c := range config.ParseGrub(string(text)).Commands {
		name, ok := config.SearchTarget(c.Words)
		if !ok || done[name.Value] || len(config.FindDevices(s, name)) > 0 {
			continue
		}
		if done[name.Value] = true; len(done) > maxSearches {
			break
		}
		f := diagnose.Finding{
			ID: "grub-search-missing", Stage: diagnose.Loader, Severity: diagnose.Degrades, Confidence: 0.7,
			Title:    fmt.Sprintf("Line %d of %s looks for the file system %s, which no device holds.", c.Line, file, name.Value),
			Evidence: []diagnose.Evidence{config.FileEvidence(file, c.Line, strings.Join(c.Words, " "))},
			Repair:   regenerateGrub(s, file), ByHand: "Write the file anew with the grub-mkconfig of the system.",
		}
		if hidden {
			f.Confidence = 0.4
		}
		out = append(out, f)
	}
	return out
}

func lookGrubDefault(s *diagnose.System) []diagnose.Finding {
	file, found := grubConfigPath(s)
	if !found {
		return nil
	}
	var out []diagnose.Finding
	block := path.Dir(file) + "/grubenv"
	if text, err := s.Files.Read(block); err == nil && (len(text) != grubEnvSize || !strings.HasPrefix(string(text), grubEnvHeader)) {
		out = append(out, diagnose.Finding{
			ID: "grub-environment-invalid", Stage: diagnose.Loader, Severity: diagnose.Degrades, Confidence: 0.8,
			Title:    fmt.Sprintf("The file %s is no environment block of %d bytes, so that GRUB does not know its default.", block, grubEnvSize),
			Evidence: []diagnose.Evidence{config.FileEvidence(block, 0, fmt.Sprintf("it holds %d bytes", len(text)))},
			Repair:   &diagnose.Repair{Summary: "Write a new environment block with the settings that can be read of the old one.", Consent: diagnose.ConsentFiles, Writes: []string{block}},
		})
	}
	text, err := s.Files.Read(file)
	entries := grubEntries(s)
	if err != nil || len(entries) == 0 {
		return out
	}
	script := config.ParseGrub(string(text))
	wanted := wantedDefault(script, parseGrubEnv(s, block))
	if matchDefault(script, wanted, entries) < 0 {
		out = append(out, diagnose.Finding{
			ID: "grub-default-missing", Stage: diagnose.Loader, Severity: diagnose.Info, Confidence: 0.8,
			Title:    fmt.Sprintf("The default entry of GRUB is %q, which no entry has, so that the first one starts.", wanted),
			Evidence: []diagnose.Evidence{config.FileEvidence(file, 0, "default "+wanted)},
		})
	}
	return out
}
