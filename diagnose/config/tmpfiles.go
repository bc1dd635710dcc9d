package config

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"salvor/diagnose"
)

// TmpfilesLine is a line of tmpfiles.d that systemd-tmpfiles carries out at each boot.
type TmpfilesLine struct {
	kind byte // the letter of its type
	// pattern is the path that the line names. It may be a pattern of path.Match for the types m, r, R, z, Z, a and A.
	pattern  string
	hasMode  bool
	mode     fs.FileMode // the permissions
	uid, gid *uint32
	isOpen   bool // an access control list gives others the right to write
	File     string
	Line     int
	Text     string
}

// Bounds of tmpfiles.d. Distributions have fewer than 300 lines.
const (
	maxTmpfiles      = 256
	maxTmpfilesLines = 1000
)

// tmpfilesFolders are where systemd looks for files of tmpfiles.d, the strongest first.
var tmpfilesFolders = []string{"/etc/tmpfiles.d", "/usr/local/lib/tmpfiles.d", "/usr/lib/tmpfiles.d", "/lib/tmpfiles.d"}

// ReadTmpfiles reads the lines of tmpfiles.d that change modes, owners or existence of files at boot; none where nothing carries them out.
func ReadTmpfiles(tree *diagnose.Tree) []TmpfilesLine {
	return diagnose.Once(tree, "tmpfiles", func() []TmpfilesLine { return makeTmpfiles(tree) })
}

func makeTmpfiles(tree *diagnose.Tree) []TmpfilesLine {
	const unit = "systemd-tmpfiles-setup.service"
	if ManagerOf(tree) != SystemdManager || UnitMask(tree, unit) != "" {
		return nil
	}
	files := map[string]string{}
	for _, folder := range tmpfilesFolders {
		for _, file := range tree.Match(folder, "*.conf") {
			if files[path.Base(file)] == "" && len(files) < maxTmpfiles { // a link to /dev/null takes the place of a weaker one too
				files[path.Base(file)] = file
			}
		}
	}
	ids := readIDs(tree)
	var out []TmpfilesLine
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if isEmptied(tree, files[name]) {
			continue
		}
		for i, text := range tree.Lines(files[name]) {
			l, ok := parseTmpfilesLine(ids, text)
			if ok && len(out) < maxTmpfilesLines {
				l.File, l.Line = files[name], i+1
				out = append(out, l)
			}
		}
	}
	return out
}

// parseTmpfilesLine parses one line. ok is false for comments, for lines with specifiers such as %h, and for types that leave existing files alone.
func parseTmpfilesLine(ids *namedIDs, text string) (l TmpfilesLine, ok bool) {
	fields := strings.Fields(text)
	if len(fields) < 2 || fields[0][0] == '#' || strings.Contains(fields[1], "%") || !path.IsAbs(fields[1]) || !strings.ContainsRune("dDevqQfFmzZaArR", rune(fields[0][0])) {
		return l, false
	}
	l = TmpfilesLine{kind: fields[0][0], pattern: path.Clean(fields[1]), Text: strings.Join(fields, " ")}
	field := func(i int) string {
		if len(fields) <= i || fields[i] == "-" || strings.HasPrefix(fields[i], ":") { // a colon: for new files only
			return ""
		}
		return fields[i]
	}
	if strings.ContainsRune("aA", rune(l.kind)) {
		l.isOpen = len(fields) > 6 && opensToOthers(fields[6])
		return l, l.isOpen
	}
	if mode := strings.TrimLeft(field(2), "~"); mode != "" && mode == field(2) {
		n, err := strconv.ParseUint(mode, 8, 12)
		l.hasMode, l.mode = err == nil, fs.FileMode(n)&fs.ModePerm
	}
	l.uid, l.gid = numberOf(field(3), ids.users), numberOf(field(4), ids.groups)
	return l, l.hasMode || l.uid != nil || l.gid != nil || strings.ContainsRune("DrR", rune(l.kind))
}

// namedIDs are the ids of users and groups by their names.
type namedIDs struct{ users, groups map[string]uint32 }

func readIDs(tree *diagnose.Tree) *namedIDs {
	ids := &namedIDs{map[string]uint32{}, map[string]uint32{}}
	accounts, _ := ParsePasswd(tree.Lines(PasswdPath))
	for _, a := range accounts {
		ids.users[a.Name] = a.UID
	}
	groups, _ := ParseGroups(tree.Lines(GroupPath))
	for _, g := range groups {
		ids.groups[g.Name] = g.GID
	}
	return ids
}

// numberOf is the id that a field names by a number or a name; nil where the field is empty or the name is unknown.
func numberOf(text string, names map[string]uint32) *uint32 {
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		id := uint32(n)
		return &id
	}
	if id, found := names[text]; found {
		return &id
	}
	return nil
}

// opensToOthers says whether an access control list gives another user or group the right to write: the mode of the file then shows this right for
// the group.
func opensToOthers(list string) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(entry string) bool {
		parts := strings.Split(entry, ":")
		return len(parts) == 3 && parts[1] != "" && slices.Contains([]string{"u", "user", "g", "group"}, parts[0]) && strings.Contains(parts[2], "w")
	})
}

// names says whether the line is about a path: the path itself, or one below it for the types that go into folders.
func (l *TmpfilesLine) names(name string) bool {
	for at := name; ; at = path.Dir(at) {
		if at == l.pattern {
			return true
		}
		if found, _ := path.Match(l.pattern, at); found && strings.ContainsRune("mzZaArR", rune(l.kind)) {
			return true
		}
		if at == "/" || at == "." || !strings.ContainsRune("ZAR", rune(l.kind)) {
			return false
		}
	}
}

// stateAtBoot is a file with the mode and the owner that it has after a boot.
type stateAtBoot struct {
	fs.FileInfo
	mode  fs.FileMode
	owner diagnose.Owner
}

func (s *stateAtBoot) Mode() fs.FileMode { return s.mode }
func (s *stateAtBoot) Sys() any          { return &s.owner }

// StatAtBoot is Stat with the mode and the owner that the boot gives to a file; line is the last line of tmpfiles.d that changes one of them, or nil.
func StatAtBoot(tree *diagnose.Tree, name string) (info fs.FileInfo, line *TmpfilesLine, err error) {
	if info, err = tree.Stat(name); err != nil {
		return nil, nil, err
	}
	after := &stateAtBoot{info, info.Mode(), diagnose.OwnerOf(info)}
	all := ReadTmpfiles(tree)
	for i := range all {
		l := &all[i]
		if strings.ContainsRune("rR", rune(l.kind)) || !l.names(name) {
			continue
		}
		before := *after
		if l.hasMode {
			after.mode = after.mode&^fs.ModePerm | l.mode
			if l.kind == 'Z' && !info.IsDir() && info.Mode()&0o111 == 0 { // x stays with what has it
				after.mode &^= 0o111
			}
		}
		if l.uid != nil {
			after.owner.UID = *l.uid
		}
		if l.gid != nil {
			after.owner.GID = *l.gid
		}
		if l.isOpen {
			after.mode |= 0o020
		}
		if before.mode != after.mode || before.owner.UID != after.owner.UID || before.owner.GID != after.owner.GID {
			line = l
		}
	}
	return after, line, nil
}

// RemovedAtBoot is the line of tmpfiles.d that removes a file at each boot; nil where none does.
func RemovedAtBoot(tree *diagnose.Tree, name string) *TmpfilesLine {
	all := ReadTmpfiles(tree)
	for i := range all {
		l := &all[i]
		switch {
		case l.kind == 'D' && strings.HasPrefix(name, l.pattern+"/"):
			return l
		case (l.kind == 'r' || l.kind == 'R') && l.names(name):
			return l
		}
	}
	return nil
}

// Makes says whether the line makes a file or a folder of a path.
func (l *TmpfilesLine) Makes(name string) bool {
	return l.pattern == name && strings.ContainsRune("dDevqQfF", rune(l.kind))
}

// Evidence is the line as evidence of a finding.
func (l *TmpfilesLine) Evidence() diagnose.Evidence { return FileEvidence(l.File, l.Line, l.Text) }

// Place names the line for a sentence.
func (l *TmpfilesLine) Place() string { return fmt.Sprintf("%s, line %d", l.File, l.Line) }
