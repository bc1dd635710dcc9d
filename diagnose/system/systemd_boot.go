package system

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// specificationEntries reads at most config.MaxSmallFiles entries in a folder, the newest first. d is the device that their paths start from; nil: /boot or the root.
func specificationEntries(s *diagnose.System, t *diagnose.Tree, folder string, d *diagnose.Device, loader string, variables []config.SettingLine) []loadEntry {
	files := t.Match(folder, "*.conf")
	slices.SortStableFunc(files, func(a, b string) int {
		return compareVersions(strings.TrimSuffix(b, ".conf"), strings.TrimSuffix(a, ".conf"))
	})
	var out []loadEntry
	hidden := bootHiddenOnce(s)
	for _, file := range files[:min(len(files), config.MaxSmallFiles)] {
		text, err := t.ReadAtMost(file, config.MaxSmallFile)
		if err != nil {
			continue
		}
		fields := config.ParseEntryFile(diagnose.SplitLines(string(text)))
		e := loadEntry{Loader: loader, File: file, ID: strings.TrimSuffix(path.Base(file), ".conf"), Line: 1}
		for _, v := range fields["title"] {
			e.Title = v.Value
		}
		for _, v := range fields["linux"] {
			e.Kernel, e.Line = findBootFile(s, d, v.Value, hidden), v.Line
		}
		for _, v := range fields["initrd"] {
			for _, name := range strings.Fields(v.Value) {
				if strings.HasPrefix(name, "$") { // $tuned_initrd
					continue
				}
				e.Initrds = append(e.Initrds, findBootFile(s, d, name, hidden))
			}
		}
		for _, v := range fields["options"] {
			e.OptionsLine = v.Line
			for _, option := range config.SplitArguments(v.Value) {
				if name, found := strings.CutPrefix(option, "$"); found {
					if set, ok := config.LastSetting(variables, name); ok {
						e.Options = append(e.Options, config.SplitArguments(set.Value)...)
					}
					continue
				}
				e.Options = append(e.Options, option)
			}
		}
		out = append(out, e)
	}
	return out
}

// systemdBootEntries are those on the EFI system partitions and on the extended boot partition, and unified kernel images.
func systemdBootEntries(s *diagnose.System) []loadEntry {
	var out []loadEntry
	wanted := ""
	for i := range s.Devices {
		d := &s.Devices[i]
		isESP := strings.EqualFold(d.PartType, espTypeGUID)
		tree, folder := treeOf(s, d)
		if len(out) >= config.MaxSmallFiles {
			break
		}
		if tree == nil || (!isESP && !strings.EqualFold(d.PartType, bootTypeGUID)) {
			continue
		}
		if isESP {
			for _, v := range config.ParseEntryFile(tree.Lines(path.Join(folder, "loader/loader.conf")))["default"] {
				wanted = v.Value
			}
		}
		out = append(out, specificationEntries(s, tree, path.Join(folder, "loader/entries"), d, bySystemdBoot, nil)...)
		images := tree.Match(path.Join(folder, "EFI/Linux"), "*.efi")
		for _, file := range images[:min(len(images), config.MaxSmallFiles)] {
			out = append(out, loadEntry{Loader: bySystemdBoot, File: file, ID: path.Base(file),
				Kernel: bootFile{Tree: tree, Path: file, Shown: file, Found: true}, Options: config.UnifiedOptions(tree, file)})
		}
	}
	for i := range out {
		id := out[i].ID
		matched, _ := path.Match(strings.TrimSuffix(wanted, ".conf"), strings.TrimSuffix(id, ".efi"))
		if exact, _ := path.Match(wanted, id); wanted != "" && (matched || exact) {
			out[i].IsDefault = true
			return out
		}
	}
	if len(out) > 0 {
		out[0].IsDefault = true
	}
	return out
}

// emptySystemdBoot finds a systemd-boot without anything to start. It says nothing where another loader lies beside it, which it may find by itself.
func emptySystemdBoot(s *diagnose.System) []diagnose.Finding {
	var loader []diagnose.Evidence
	for i := range s.Devices {
		d := &s.Devices[i]
		isESP := strings.EqualFold(d.PartType, espTypeGUID)
		if !isESP && !strings.EqualFold(d.PartType, bootTypeGUID) {
			continue
		}
		tree, folder := treeOf(s, d)
		if tree == nil {
			return nil
		}
		if !isESP || len(tree.Match(path.Join(folder, "EFI/systemd"), "systemd-boot*.efi")) == 0 {
			continue
		}
		vendors, err := tree.ReadDir(path.Join(folder, "EFI"))
		if err != nil || slices.ContainsFunc(vendors, func(e fs.DirEntry) bool {
			return !slices.Contains([]string{"systemd", "boot", "linux"}, strings.ToLower(e.Name()))
		}) {
			return nil
		}
		loader = append(loader, config.DeviceEvidence(d.Path, "no file in loader/entries ends in .conf, and none in EFI/Linux in .efi"))
	}
	if len(loader) == 0 || len(systemdBootEntries(s))+len(extlinuxEntries(s)) > 0 {
		return nil
	}
	f := diagnose.Finding{
		ID: "boot-entries-missing", Stage: diagnose.Loader, Severity: diagnose.BlocksBoot, Confidence: 0.95, Evidence: loader,
		Title: "No boot entry lies on " + loader[0].Path + ", so that systemd-boot has nothing to start.",
	}
	proposeEntries(s, bySystemdBoot, &f)
	return []diagnose.Finding{f}
}
