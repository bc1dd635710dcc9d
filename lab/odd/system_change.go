package odd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
)

// SystemChangeKind is what a SystemChange does.
type SystemChangeKind string

// The kinds of SystemChange.
const (
	RemoveLine    SystemChangeKind = "line removed"
	RepeatLine    SystemChangeKind = "line duplicated"
	ReplaceLine   SystemChangeKind = "line changed"
	ChangeMode    SystemChangeKind = "mode"
	ChangeOwner   SystemChangeKind = "owner"
	ChangeTarget  SystemChangeKind = "link target"
	RemoveFile    SystemChangeKind = "file removed"
	EmptyFile     SystemChangeKind = "file emptied"
	TruncateFile  SystemChangeKind = "file truncated"
	ReplaceByFile SystemChangeKind = "file of another version"
)

// SystemChange is one change of an installed system: to one line, mode, owner, link or file.
type SystemChange struct {
	Kind SystemChangeKind `json:"kind"`
	// Path lies below the root of the system, without a slash at its beginning.
	Path string `json:"path"`
	// Line counts from 1; Text is the line in its place.
	Line int    `json:"line,omitempty"`
	Text string `json:"text,omitempty"`
	// Mode has the bits of permission, as chmod takes them.
	Mode uint32 `json:"mode,omitempty"`
	// Owner is a user id and a group id.
	Owner int `json:"owner,omitempty"`
	// Target is the new target of a link.
	Target string `json:"target,omitempty"`
	// Size is the new length of a truncated file in bytes.
	Size int64 `json:"size,omitempty"`
}

// String shows the change as one line, such as: /etc/ssh/sshd_config: line changed: line 3: "UsePAM yse".
func (c SystemChange) String() string {
	text := "/" + c.Path + ": " + string(c.Kind)
	switch c.Kind {
	case RemoveLine, RepeatLine:
		text += fmt.Sprintf(": line %d", c.Line)
	case ReplaceLine:
		text += fmt.Sprintf(": line %d: %q", c.Line, c.Text)
	case ChangeMode:
		text += fmt.Sprintf(": %04o", c.Mode)
	case ChangeOwner:
		text += fmt.Sprintf(": %d", c.Owner)
	case ChangeTarget:
		text += ": " + c.Target
	case TruncateFile:
		text += fmt.Sprintf(": %d bytes", c.Size)
	}
	return text
}

// SystemFolders are the folders below which systems are changed.
var SystemFolders = []string{"etc", "boot", "usr/sbin", "usr/lib"}

// maxChangedText is the length in bytes of the longest file whose lines are changed.
const maxChangedText = 1 << 20

// DrawSystemChange draws one change. It walks from one of SystemFolders down, and at each folder takes any entry, so that a file in a small folder is
// drawn more often than one of the thousands of modules of a kernel. other is a system of another release, whose files are taken as other versions.
func DrawSystemChange(system, other fs.FS, seed uint64) (SystemChange, error) {
	r := rand.New(rand.NewPCG(seed, 37))
	for range 1000 {
		at := pick(r, SystemFolders)
		info, err := fs.Stat(system, at)
		for err == nil && info.IsDir() {
			var entries []fs.DirEntry
			if entries, err = fs.ReadDir(system, at); err != nil || len(entries) == 0 || r.IntN(10) == 0 {
				break
			}
			e := pick(r, entries)
			at = path.Join(at, e.Name())
			info, err = e.Info()
		}
		if err != nil {
			return SystemChange{}, err
		}
		kinds := systemChangesOf(system, other, at, info)
		if len(kinds) == 0 || slices.Contains(SystemFolders, at) {
			continue
		}
		if c := kinds[r.IntN(len(kinds))](r); c.Kind != "" {
			c.Path = at
			return c, nil
		}
	}
	return SystemChange{}, errors.New("no change could be drawn: the folders hold nothing that can be changed")
}

func pick[E any](r *rand.Rand, list []E) E { return list[r.IntN(len(list))] }

// systemChangesOf are the ways of changing one file, folder or link. A way may draw a change without a kind, which changes nothing.
func systemChangesOf(system, other fs.FS, at string, info fs.FileInfo) []func(*rand.Rand) SystemChange {
	mode := func(r *rand.Rand) SystemChange {
		modes := []uint32{0o000, 0o600, 0o644, 0o666, 0o755, 0o777}
		if info.IsDir() {
			modes = []uint32{0o000, 0o600, 0o700, 0o750, 0o777}
		}
		if mode := pick(r, modes); fs.FileMode(mode) != info.Mode().Perm() || info.Mode()&fs.ModeSetuid != 0 {
			return SystemChange{Kind: ChangeMode, Mode: mode}
		}
		return SystemChange{}
	}
	owner := func(r *rand.Rand) SystemChange {
		return SystemChange{Kind: ChangeOwner, Owner: pick(r, []int{33, 1000, 65534})}
	}
	remove := func(*rand.Rand) SystemChange { return SystemChange{Kind: RemoveFile} }
	switch {
	case info.IsDir():
		return []func(*rand.Rand) SystemChange{mode, owner}
	case info.Mode()&fs.ModeSymlink != 0:
		target := func(r *rand.Rand) SystemChange {
			return SystemChange{Kind: ChangeTarget, Target: pick(r, []string{"/dev/null", path.Base(at) + ".old", "/", "../" + path.Base(at)})}
		}
		return []func(*rand.Rand) SystemChange{remove, target, target}
	case !info.Mode().IsRegular():
		return nil
	}
	out := []func(*rand.Rand) SystemChange{mode, owner, remove}
	if info.Size() > 0 {
		out = append(out, func(*rand.Rand) SystemChange { return SystemChange{Kind: EmptyFile} })
	}
	if info.Size() > 1 {
		out = append(out, func(r *rand.Rand) SystemChange {
			return SystemChange{Kind: TruncateFile, Size: 1 + r.Int64N(info.Size()-1)}
		})
	}
	if content, err := fs.ReadFile(other, at); err == nil {
		if own, err := fs.ReadFile(system, at); err == nil && !bytes.Equal(own, content) {
			replace := func(*rand.Rand) SystemChange { return SystemChange{Kind: ReplaceByFile} }
			out = append(out, replace, replace)
		}
	}
	if lines := changeableLines(system, at, info); len(lines) > 0 {
		line := func(r *rand.Rand) SystemChange { return lineChange(r, lines) }
		out = append(out, line, line, line, line, line, line)
	}
	return out
}

// numberedLine is a line of a text file.
type numberedLine struct {
	number int
	text   string
}

// changeableLines are the lines of a text file that say something: neither empty nor a comment. A file of comments only gives them all.
func changeableLines(system fs.FS, at string, info fs.FileInfo) []numberedLine {
	if info.Size() == 0 || info.Size() > maxChangedText {
		return nil
	}
	content, err := fs.ReadFile(system, at)
	if err != nil || bytes.IndexByte(content, 0) >= 0 {
		return nil
	}
	var all, out []numberedLine
	for i, text := range strings.Split(strings.TrimSuffix(string(content), "\n"), "\n") {
		l := numberedLine{i + 1, text}
		all = append(all, l)
		if trimmed := strings.TrimSpace(text); trimmed != "" && trimmed[0] != '#' {
			out = append(out, l)
		}
	}
	if len(out) == 0 {
		return all
	}
	return out
}

func lineChange(r *rand.Rand, lines []numberedLine) SystemChange {
	l := pick(r, lines)
	switch kind := pick(r, []SystemChangeKind{RemoveLine, RepeatLine, ReplaceLine, ReplaceLine, ReplaceLine}); kind {
	case ReplaceLine:
		text := mistype(r, l.text)
		if text == l.text {
			return SystemChange{}
		}
		return SystemChange{Kind: kind, Line: l.number, Text: text}
	default:
		return SystemChange{Kind: kind, Line: l.number}
	}
}

// mistype changes a line as people do by mistake: a letter, a word, a digit, a sign.
func mistype(r *rand.Rand, line string) string {
	if line == "" {
		return "x"
	}
	i := r.IntN(len(line))
	fields := strings.Fields(line)
	switch r.IntN(7) {
	case 0: // two letters swapped
		if i+1 < len(line) {
			return line[:i] + line[i+1:i+2] + line[i:i+1] + line[i+2:]
		}
	case 1: // a letter lost
		return line[:i] + line[i+1:]
	case 2: // a letter twice
		return line[:i] + line[i:i+1] + line[i:]
	case 3: // a word lost
		if len(fields) > 1 {
			return strings.Replace(line, pick(r, fields), "", 1)
		}
	case 4: // another digit
		if at := strings.IndexAny(line, "0123456789"); at >= 0 {
			return line[:at] + string('0'+(line[at]-'0'+byte(1+r.IntN(9)))%10) + line[at+1:]
		}
	case 5: // cut off
		return line[:i]
	case 6: // the other of two values
		for _, pair := range [][2]string{{"yes", "no"}, {"no", "yes"}, {"required", "requisite"}, {"true", "false"}, {"/usr/", "/opt/"}, {"=", " "}} {
			if strings.Contains(line, pair[0]) {
				return strings.Replace(line, pair[0], pair[1], 1)
			}
		}
	}
	return line + pick(r, []string{"x", " x", "\\", "\"", ":"})
}

// Apply makes the change in a system. other is the tree of another release with which the change was drawn.
func (c SystemChange) Apply(system *os.Root, other fs.FS) error {
	info, err := system.Lstat(c.Path)
	if err != nil {
		return err
	}
	switch c.Kind {
	case ChangeMode:
		return system.Chmod(c.Path, fs.FileMode(c.Mode))
	case ChangeOwner:
		return system.Lchown(c.Path, c.Owner, c.Owner)
	case RemoveFile:
		return system.Remove(c.Path)
	case ChangeTarget:
		return errors.Join(system.Remove(c.Path), system.Symlink(c.Target, c.Path))
	}
	content, err := system.ReadFile(c.Path)
	if err != nil {
		return err
	}
	switch c.Kind {
	case EmptyFile:
		content = nil
	case TruncateFile:
		content = content[:min(c.Size, int64(len(content)))]
	case ReplaceByFile:
		if content, err = fs.ReadFile(other, c.Path); err != nil {
			return err
		}
	case RemoveLine, RepeatLine, ReplaceLine:
		if content, err = c.changeLine(string(content)); err != nil {
			return err
		}
	default:
		return fmt.Errorf("a change of the kind %q is not known", c.Kind)
	}
	return system.WriteFile(c.Path, content, info.Mode().Perm())
}

// changeLine gives a text with its line changed.
func (c SystemChange) changeLine(text string) ([]byte, error) {
	lines := strings.SplitAfter(text, "\n")
	if c.Line < 1 || c.Line > len(lines) {
		return nil, fmt.Errorf("/%s has no line %d", c.Path, c.Line)
	}
	line, isWhole := strings.CutSuffix(lines[c.Line-1], "\n")
	end := ""
	if isWhole {
		end = "\n"
	}
	switch c.Kind {
	case RemoveLine:
		lines[c.Line-1] = ""
	case RepeatLine:
		lines[c.Line-1] = line + "\n" + line + end
	case ReplaceLine:
		lines[c.Line-1] = c.Text + end
	}
	return []byte(strings.Join(lines, "")), nil
}
