package diagnose

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Bounds of what is read from a stranger's disk.
const (
	MaxFile    = 4 << 20 // bytes of a file that Read returns
	maxEntries = 20_000  // of a folder
	maxLinks   = 40      // on one path, as in Linux
)

// Errors of what is there and is not examined. A report lists such a path among its gaps.
var (
	// ErrTooLarge is the error of a file or folder that is larger than a rule may read.
	ErrTooLarge = errors.New("it is larger than is examined")
	// ErrNotRegular is the error of a device, a pipe or a socket in the place of a file.
	ErrNotRegular = errors.New("it is a device, a pipe or a socket and no file, so it was not opened")
)

// Owner is what FileInfo.Sys of a tree's base holds.
type Owner struct {
	UID, GID uint32
	// Links is how many names a file has; 0 where the base does not say.
	Links uint64
	// Label is the SELinux label, empty without one.
	Label string
}

// Tree is the files of an examined system below its own root. Its paths are absolute, and links are followed within the root, as the system
// itself would follow them: no path leads out.
type Tree struct {
	base   fs.ReadLinkFS
	unread *unreadFiles
	watch  *stopWatch
	memo   *ruleMemo
}

// NewTree is the tree below base. base need not follow links, because the tree asks it only for names without any. FileInfo.Sys of its files
// is an *Owner or nil. Its errors are ErrUnread where a file may be there and could not be read.
func NewTree(base fs.ReadLinkFS) *Tree {
	unread := &unreadFiles{errs: map[string]error{}}
	watch := &stopWatch{}
	return &Tree{notingFS{base, unread, watch}, unread, watch, &ruleMemo{}}
}

// Resolve follows all links of a path and returns the place where it leads, absolute and without links. Where the last element does not exist,
// the error is fs.ErrNotExist and the place is where it would be.
func (t *Tree) Resolve(name string) (string, error) { return t.resolve(name, true) }

func (t *Tree) resolve(name string, last bool) (string, error) {
	rest := pathElements(name)
	var at []string
	for links := 0; len(rest) > 0; {
		element := rest[0]
		rest = rest[1:]
		if element == ".." {
			at = at[:max(len(at)-1, 0)]
			continue
		}
		next := append(slices.Clone(at), element)
		info, err := t.base.Lstat(strings.Join(next, "/"))
		if err != nil {
			return "/" + path.Join(append(next, rest...)...), err
		}
		if info.Mode()&fs.ModeSymlink == 0 || (!last && len(rest) == 0) {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return name, fmt.Errorf("%s: its links lead in a circle: %w", name, fs.ErrNotExist) // nothing is there for any program
		}
		target, err := t.base.ReadLink(strings.Join(next, "/"))
		if err != nil {
			return name, err
		}
		if strings.HasPrefix(target, "/") {
			at = nil
		}
		rest = append(pathElements(target), rest...)
	}
	return "/" + strings.Join(at, "/"), nil
}

// pathElements cuts a path into elements without empty ones and dots; ".." stays, since a link may stand before it.
func pathElements(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(s string) bool { return s == "" || s == "." })
}

// basePath is a place as the base names it.
func basePath(place string) string {
	if place == "/" {
		return "."
	}
	return strings.TrimPrefix(place, "/")
}

// Stat describes what a path leads to.
func (t *Tree) Stat(name string) (fs.FileInfo, error) {
	place, err := t.resolve(name, true)
	if err != nil {
		return nil, err
	}
	return t.base.Lstat(basePath(place))
}

// Lstat describes a path itself, which may be a link.
func (t *Tree) Lstat(name string) (fs.FileInfo, error) {
	place, err := t.resolve(name, false)
	if err != nil {
		return nil, err
	}
	return t.base.Lstat(basePath(place))
}

// ReadLink returns the target of a link as it is written.
func (t *Tree) ReadLink(name string) (string, error) {
	place, err := t.resolve(name, false)
	if err != nil {
		return "", err
	}
	return t.base.ReadLink(basePath(place))
}

// Exists says whether a path leads to something.
func (t *Tree) Exists(name string) bool {
	_, err := t.Stat(name)
	return err == nil
}

// Open opens a regular file. Devices, pipes and sockets of a stranger are never opened.
func (t *Tree) Open(name string) (fs.File, error) {
	f, _, err := t.open(name)
	return f, err
}

// open gives the name in the base too.
func (t *Tree) open(name string) (fs.File, string, error) {
	place, err := t.resolve(name, true)
	if err != nil {
		return nil, "", err
	}
	at := basePath(place)
	info, err := t.base.Lstat(at)
	if err != nil {
		return nil, "", err
	}
	if info.IsDir() {
		return nil, "", fmt.Errorf("%s: a folder and no file", name)
	}
	if !info.Mode().IsRegular() {
		return nil, "", fmt.Errorf("%s: %w", name, t.unread.note(at, ErrNotRegular))
	}
	f, err := t.base.Open(at)
	return f, at, err
}

// Read returns a regular file of at most MaxFile bytes; ErrTooLarge for a larger one.
func (t *Tree) Read(name string) ([]byte, error) { return t.ReadAtMost(name, MaxFile) }

// ReadAtMost returns a regular file of at most so many bytes; ErrTooLarge for a larger one.
func (t *Tree) ReadAtMost(name string, most int) ([]byte, error) {
	f, at, err := t.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, t.unread.note(at, err))
	}
	if len(b) > most {
		return nil, fmt.Errorf("%s: %w", name, t.unread.note(at, ErrTooLarge))
	}
	return b, nil
}

// ReadHead returns a regular file, or its first lines of together at most so many bytes where it is larger. What was left out is a gap.
func (t *Tree) ReadHead(name string, most int) (head []byte, whole bool, err error) {
	f, at, err := t.open(name)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", name, t.unread.note(at, err))
	}
	if len(b) > most {
		_ = t.unread.note(at, ErrTooLarge)
		return b[:bytes.LastIndexByte(b[:most], '\n')+1], false, nil
	}
	return b, true, nil
}

// NoteGap makes a path, or another part of the system, a gap of the report: it was not examined, or not whole. why is the end of a sentence.
func (t *Tree) NoteGap(what, why string) { t.unread.noteGap(what, why) }

// ReadThrough reads a regular file to its end, or that many bytes of it, and keeps nothing. It returns how many bytes it has read.
func (t *Tree) ReadThrough(name string, most int64) (int64, error) {
	f, at, err := t.open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := io.Copy(io.Discard, io.LimitReader(f, most))
	if err != nil {
		return n, fmt.Errorf("%s: %w", name, t.unread.note(at, err))
	}
	return n, nil
}

// Lines returns the lines of a file without their ends; no file has none.
func (t *Tree) Lines(name string) []string {
	b, err := t.Read(name)
	if err != nil || len(b) == 0 {
		return nil
	}
	return SplitLines(string(b))
}

// SplitLines returns the lines of a text without their ends.
func SplitLines(text string) []string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	return lines
}

// ReadDir lists the names in a folder in their order; ErrTooLarge where there are more than 20,000.
func (t *Tree) ReadDir(name string) ([]fs.DirEntry, error) {
	place, err := t.resolve(name, true)
	if err != nil {
		return nil, err
	}
	info, err := t.base.Lstat(basePath(place))
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s: not a folder", name)
	}
	f, err := t.base.Open(basePath(place))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	folder, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, fmt.Errorf("%s: not a folder", name)
	}
	entries, err := folder.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, t.unread.note(basePath(place), err)
	}
	if len(entries) > maxEntries {
		return nil, fmt.Errorf("%s: %w", name, t.unread.note(basePath(place), ErrTooLarge))
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// Match lists the paths in one folder whose names match a pattern of path.Match, in their order.
func (t *Tree) Match(folder, pattern string) []string {
	entries, err := t.ReadDir(folder)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if ok, _ := path.Match(pattern, e.Name()); ok {
			out = append(out, path.Join(folder, e.Name()))
		}
	}
	return out
}

// OwnerOf returns who owns a file; root where the base does not say.
func OwnerOf(info fs.FileInfo) Owner {
	if o, ok := info.Sys().(*Owner); ok && o != nil {
		return *o
	}
	return Owner{}
}
