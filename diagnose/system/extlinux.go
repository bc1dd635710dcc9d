package system

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// extlinuxFiles are where extlinux looks for its configuration.
var extlinuxFiles = []string{"/boot/extlinux.conf", "/boot/extlinux/extlinux.conf", "/boot/syslinux/syslinux.cfg", "/boot/syslinux/extlinux.conf", "/extlinux.conf"}

// extlinuxEntries are those of extlinux and of boards with U-Boot.
func extlinuxEntries(s *diagnose.System) []loadEntry {
	if s.Files == nil {
		return nil
	}
	for _, file := range extlinuxFiles {
		if s.Files.Exists(file) {
			return parseExtlinux(s, file)
		}
	}
	return nil
}

func parseExtlinux(s *diagnose.System, file string) []loadEntry {
	var out []loadEntry
	wanted, hidden := "", bootHiddenOnce(s)
	resolve := func(name string) bootFile {
		if !strings.HasPrefix(name, "/") { // relative to the file
			if at := path.Join(path.Dir(file), name); s.Files.Exists(at) {
				return bootFile{Tree: s.Files, Path: at, Shown: at, Found: true}
			}
		}
		return findBootFile(s, nil, name, hidden)
	}
	for i, line := range s.Files.Lines(file) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		value = strings.TrimSpace(value)
		key = strings.ToLower(key)
		if key == "label" {
			out = append(out, loadEntry{Loader: byExtlinux, File: file, Line: i + 1, ID: value, Title: value})
		}
		if key == "default" {
			wanted = value
		}
		if len(out) == 0 {
			continue
		}
		e := &out[len(out)-1]
		switch key {
		case "linux", "kernel":
			if !strings.HasSuffix(value, ".c32") && !strings.HasSuffix(value, ".bin") {
				e.Kernel = resolve(value)
			}
		case "initrd":
			for name := range strings.SplitSeq(value, ",") {
				e.Initrds = append(e.Initrds, resolve(name))
			}
		case "append":
			e.Options, e.OptionsLine = config.SplitArguments(value), i+1
		}
	}
	out = slices.DeleteFunc(out, func(e loadEntry) bool { return e.Kernel.Path == "" })
	at := max(slices.IndexFunc(out, func(e loadEntry) bool { return e.ID == wanted }), 0)
	if len(out) > 0 {
		out[at].IsDefault = true
	}
	return out
}

// lookExtlinuxDefault finds an extlinux whose default names neither a label nor a file, so that it stops at its prompt.
func lookExtlinuxDefault(s *diagnose.System) []diagnose.Finding {
	for _, file := range extlinuxFiles {
		if !s.Files.Exists(file) {
			continue
		}
		folder := file[:strings.LastIndexByte(file, '/')]
		if config.FirstExisting(s.Files, folder+"/ldlinux.sys", "/boot/ldlinux.sys") == "" { // U-Boot reads the file by rules of its own
			return nil
		}
		wanted, line, labels := "", 0, []string{}
		for i, text := range s.Files.Lines(file) {
			key, value := config.CutField(text)
			value = strings.TrimSpace(value)
			switch strings.ToLower(key) {
			case "ui", "ontimeout", "include":
				return nil
			case "default":
				wanted, line = value, i+1
			case "label":
				labels = append(labels, value)
			}
		}
		name, _ := config.CutField(wanted)
		if wanted == "" || slices.Contains(labels, wanted) || slices.Contains(labels, name) || strings.HasSuffix(name, ".c32") || s.Files.Exists(folder+"/"+name) || s.Files.Exists("/boot/"+name) {
			return nil
		}
		return []diagnose.Finding{{
			ID: "extlinux-default-missing", Stage: diagnose.Loader, Severity: diagnose.BlocksBoot, Confidence: 0.9,
			Title:    fmt.Sprintf("Line %d of %s boots %s by default, which is neither a label of the file nor a kernel.", line, file, wanted),
			Evidence: []diagnose.Evidence{config.FileEvidence(file, line, "DEFAULT "+wanted+"; the labels are "+strings.Join(labels[:min(len(labels), 8)], ", "))},
			ByHand:   "Write one of the labels after DEFAULT.",
			Repair:   otherLabel(s, file),
		}}
	}
	return nil
}

// otherLabel is the repair that makes an entry of extlinux's menu the default one. The repair is nil for a menu without an entry that is whole.
func otherLabel(s *diagnose.System, file string) *diagnose.Repair {
	label := WholeLabel(s, file)
	if label == "" {
		return nil
	}
	r := repairFiles(fmt.Sprintf("Write DEFAULT %s into %s.", label, file), file)
	r.Consent = diagnose.ConsentBoot
	return mayLose(r, fmt.Sprintf("The machine boots %s by default. Someone may have meant another entry.", label))
}

// WholeLabel is the label of the first entry of extlinux's menu whose kernel and initramfs are whole, as far as can be seen; empty if no entry is.
func WholeLabel(s *diagnose.System, file string) string {
	e := newEntryChecker(s).wholeEntry(loadEntries(s), &loadEntry{})
	if e == nil || e.File != file {
		return ""
	}
	return e.ID
}
