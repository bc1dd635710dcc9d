package config

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
)

// UnitLine is a setting of a unit with the file that it stands in.
type UnitLine struct {
	sectionLine
	File string
}

// isEmptied says whether systemd takes a drop-in for none: a link to /dev/null, or an empty file.
func isEmptied(tree *diagnose.Tree, name string) bool {
	info, err := tree.Lstat(name)
	if err != nil {
		return false
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := tree.ReadLink(name)
		return err == nil && target == "/dev/null"
	}
	return info.Mode().IsRegular() && info.Size() == 0
}

// unitNames are the names under which systemd looks for drop-ins of a unit: its own, and those of its aliases.
func unitNames(tree *diagnose.Tree, unit string) []string {
	out := []string{unit}
	add := func(name string) {
		if path.Ext(name) == path.Ext(unit) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	if at, err := tree.Resolve(UnitFile(tree, unit)); err == nil {
		add(path.Base(at))
	}
	for _, link := range tree.Match("/etc/systemd/system", "*"+path.Ext(unit)) {
		if target, err := tree.ReadLink(link); err == nil && slices.Contains(out, path.Base(target)) {
			add(path.Base(link))
		}
	}
	return out
}

// maxDropIns bounds the files of one unit.
const maxDropIns = 64

// UnitLines are the settings of a unit as systemd reads them: those of its file, then those of its drop-ins by their names, of which a stronger
// folder replaces a weaker one.
func UnitLines(tree *diagnose.Tree, unit string) []UnitLine {
	var out []UnitLine
	read := func(file string) {
		for _, l := range UnitSettings(tree.Lines(file)) {
			out = append(out, UnitLine{l, file})
		}
	}
	read(UnitFile(tree, unit))
	dropIns := map[string]string{}
	for _, folder := range UnitFolders {
		for _, name := range unitNames(tree, unit) {
			for _, file := range tree.Match(path.Join(folder, name+".d"), "*.conf") {
				if dropIns[path.Base(file)] == "" && len(dropIns) < maxDropIns {
					dropIns[path.Base(file)] = file
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(dropIns)) {
		if !isEmptied(tree, dropIns[name]) {
			read(dropIns[name])
		}
	}
	return out
}

// UnitCommand is a command line of a unit.
type UnitCommand struct {
	UnitLine
	MayFail bool
	Words   []string
}

// ParseCommand splits a command line of a unit, with the values of variables that files of the unit set.
func ParseCommand(l UnitLine, variables map[string]string) UnitCommand {
	c := UnitCommand{UnitLine: l}
	words, _ := splitQuoted(l.Value)
	for i, word := range words {
		if i == 0 {
			plain := strings.TrimLeft(word, "@-:+!")
			c.MayFail = strings.Contains(word[:len(word)-len(plain)], "-")
			word = plain
		}
		if name, found := strings.CutPrefix(word, "$"); found {
			c.Words = append(c.Words, strings.Fields(variables[strings.Trim(name, "{}")])...)
			continue
		}
		c.Words = append(c.Words, word)
	}
	return c
}
