package system

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// grubConfigPath returns where GRUB's main configuration is or has to be; empty where the system does not use GRUB. Some systems hold it on
// the EFI system partition.
func grubConfigPath(s *diagnose.System) (file string, found bool) {
	if s.Files == nil {
		return "", false
	}
	folder := ""
	for _, at := range []string{"/boot/grub", "/boot/grub2"} {
		if s.Files.Exists(at + "/grub.cfg") {
			return at + "/grub.cfg", true
		}
		if s.Files.Exists(at+"/grubenv") || len(s.Files.Match(at, "*-efi")) > 0 || s.Files.Exists(at+"/i386-pc") {
			folder = at
		}
	}
	for _, stub := range grubStubs(s) {
		script := config.ParseGrub(string(stub.text))
		if len(script.Entries) > 0 || slices.ContainsFunc(script.Commands, func(c config.GrubCommand) bool { return c.Words[0] == "blscfg" }) {
			return stub.Shown, true
		}
	}
	if folder == "" {
		return "", false
	}
	return folder + "/grub.cfg", false
}

// grubStub is a grub.cfg on an EFI system partition.
type grubStub struct {
	bootFile
	text []byte
}

// grubStubs reads at most config.MaxSmallFiles of them.
func grubStubs(s *diagnose.System) []grubStub {
	var out []grubStub
	for _, d := range espDevices(s) {
		tree, folder := treeOf(s, d)
		if tree == nil {
			continue
		}
		top, ok := foldPath(tree, path.Join(folder, "EFI"))
		if !ok {
			continue
		}
		for _, vendor := range tree.Match(top, "*") {
			file := path.Join(vendor, "grub.cfg")
			if len(out) >= config.MaxSmallFiles {
				return out
			}
			if text, err := tree.ReadAtMost(file, config.MaxSmallFile); err == nil {
				out = append(out, grubStub{bootFile{Tree: tree, Path: file, Shown: file, Found: true}, text})
			}
		}
	}
	return out
}

// grubScript is GRUB's main configuration with the files beside it that it reads by source, such as custom.cfg, and where it lies; nil without one.
func grubScript(s *diagnose.System) (*config.GrubScript, string) {
	file, found := grubConfigPath(s)
	if !found {
		return nil, file
	}
	return diagnose.Once(s.Files, "grub script", func() *config.GrubScript {
		text, err := s.Files.Read(file)
		if err != nil {
			return nil
		}
		read := map[string]bool{file: true}
		return config.ParseGrubFiles(string(text), func(name string) (string, string, bool) {
			for _, folder := range []string{"$config_directory/", "$prefix/"} {
				at := path.Join(path.Dir(file), strings.TrimPrefix(name, folder))
				if !strings.HasPrefix(name, folder) || strings.Contains(at, "$") || read[at] {
					continue
				}
				if text, err := s.Files.ReadAtMost(at, config.MaxSmallFile); err == nil {
					read[at] = true // both branches of the condition that grub-mkconfig writes name the file
					return at, string(text), true
				}
			}
			return "", "", false
		})
	}), file
}

// grubEntries are the menu entries of grub.cfg that GRUB shows, or those of /boot/loader/entries where it asks for them.
func grubEntries(s *diagnose.System) []loadEntry {
	script, file := grubScript(s)
	if script == nil {
		return nil
	}
	environment := parseGrubEnv(s, path.Dir(file)+"/grubenv")
	out := scriptEntries(s, script, file)
	if slices.ContainsFunc(script.Commands, func(c config.GrubCommand) bool { return c.Words[0] == "blscfg" }) {
		out = append(out, specificationEntries(s, s.Files, "/boot/loader/entries", bootDevice(s, script), byGRUB, append(grubSettings(script), environment...))...)
	}
	if len(out) == 0 {
		return nil
	}
	out[grubDefault(script, environment, out)].IsDefault = true
	return out
}

// bootDevice is the device that the last search of a script finds outside of its entries, or that of /boot.
func bootDevice(s *diagnose.System, script *config.GrubScript) *diagnose.Device {
	var out *diagnose.Device
	for _, c := range script.Commands {
		if c.Entry != 0 {
			continue
		}
		if name, ok := config.SearchTarget(c.Words); ok {
			if found := config.FindDevices(s, name); len(found) > 0 {
				out = found[0]
			}
		}
	}
	return out
}

// grubSettings are what a script sets.
func grubSettings(script *config.GrubScript) []config.SettingLine {
	var out []config.SettingLine
	for _, c := range script.Commands {
		if c.Words[0] == "set" && len(c.Words) > 1 {
			if name, value, found := strings.Cut(c.Words[1], "="); found {
				out = append(out, config.SettingLine{Name: name, Value: value, Line: c.Line})
			}
		}
	}
	return out
}

// scriptEntries turns the menu entries of a script into loadEntries.
func scriptEntries(s *diagnose.System, script *config.GrubScript, file string) []loadEntry {
	outside, hidden := bootDevice(s, script), bootHiddenOnce(s)
	entries := make([]loadEntry, len(script.Entries))
	devices := make([]*diagnose.Device, len(script.Entries))
	for i, e := range script.Entries {
		entries[i] = loadEntry{Loader: byGRUB, Title: e.Title, ID: grubMenuPath(e), File: config.FirstText(e.File, file), Line: e.Line, IsSourced: e.File != "", IsRestricted: e.Restricted}
		devices[i] = outside
	}
	for _, c := range script.Commands {
		if c.Entry == 0 {
			continue
		}
		e, words := &entries[c.Entry-1], c.Words
		if name, ok := config.SearchTarget(words); ok {
			if found := config.FindDevices(s, name); len(found) > 0 {
				devices[c.Entry-1] = found[0]
			}
			continue
		}
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "linux", "linux16", "linuxefi", "$linux":
			e.Kernel, e.Options, e.Line, e.OptionsLine = findBootFile(s, devices[c.Entry-1], words[1], hidden), words[2:], c.Line, c.Line
		case "initrd", "initrd16", "initrdefi", "$initrd":
			for _, name := range words[1:] {
				e.Initrds = append(e.Initrds, findBootFile(s, devices[c.Entry-1], name, hidden))
			}
		}
	}
	var out []loadEntry
	for i, e := range entries {
		if script.Entries[i].Whole {
			out = append(out, e)
		}
	}
	return out
}

// grubMenuPath is the id by which a default names an entry, with those of its submenus.
func grubMenuPath(e config.GrubMenuEntry) string {
	var names []string
	for _, p := range e.Path {
		if p[2] != "" {
			names = append(names, p[2])
		} else {
			names = append(names, p[1])
		}
	}
	return strings.Join(names, ">")
}

// wantedDefault is what GRUB starts by itself: a number, a title or an id.
func wantedDefault(script *config.GrubScript, environment []config.SettingLine) string {
	wanted := "0"
	for _, set := range grubSettings(script) {
		if set.Name != "default" || strings.Contains(set.Value, "next_entry") {
			continue
		}
		if isSavedDefault(set) {
			saved, _ := config.LastSetting(environment, "saved_entry")
			wanted = saved.Value
		} else {
			wanted = set.Value
		}
	}
	if wanted == "" {
		return "0"
	}
	return wanted
}

// isSavedDefault: a script takes its default from the environment block.
func isSavedDefault(set config.SettingLine) bool {
	return set.Name == "default" && strings.Contains(set.Value, "saved_entry")
}

// grubDefault is the index of the default among entries; the first where nothing else is named.
func grubDefault(script *config.GrubScript, environment []config.SettingLine, entries []loadEntry) int {
	wanted := wantedDefault(script, environment)
	if at := matchDefault(script, wanted, entries); at >= 0 {
		return at
	}
	return 0
}

// matchDefault is the index of the entry that a default names, or -1.
func matchDefault(script *config.GrubScript, wanted string, entries []loadEntry) int {
	parts := strings.Split(wanted, ">")
	id, found := "", false
	for _, e := range script.Entries {
		if e.Whole && len(e.Path) == len(parts) && slices.EqualFunc(e.Path, parts, func(names [3]string, part string) bool { return part != "" && slices.Contains(names[:], part) }) {
			id, found = grubMenuPath(e), true
			break
		}
	}
	for i, e := range entries {
		if e.ID == wanted || e.Title == wanted || found && e.ID == id {
			return i
		}
	}
	if n, err := strconv.Atoi(wanted); err == nil && len(script.Entries) == 0 && n >= 0 && n < len(entries) {
		return n
	}
	return -1
}

const (
	grubEnvHeader = "# GRUB Environment Block\n"
	grubEnvSize   = 1024
)

// parseGrubEnv reads the settings of an environment block.
func parseGrubEnv(s *diagnose.System, file string) []config.SettingLine {
	var out []config.SettingLine
	for i, line := range s.Files.Lines(file) {
		if name, value, found := strings.Cut(line, "="); found && !strings.HasPrefix(line, "#") {
			out = append(out, config.SettingLine{Name: name, Value: value, Line: i + 1})
		}
	}
	return out
}
