package diagnose

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
)

// ErrUnread is the error of a file that may be there and could not be read: its disk failed, or the machine that reads is short of memory.
var ErrUnread = errors.New("it could not be read")

// unreadFiles notes which files of a tree were not examined, though they are or may be there. A file that nobody could read is not empty.
type unreadFiles struct {
	mu   sync.Mutex
	errs map[string]error // by absolute paths without links
	gaps []Gap            // that rules noted
}

// maxUnread bounds how many are noted.
const maxUnread = 1000

// filledAtBoot are folders whose devices and pipes say nothing about a machine that is off.
var filledAtBoot = []string{"dev", "proc", "sys", "run", "var/run"}

// note keeps an error, if the file is or may be there and was not examined, and returns the error.
func (u *unreadFiles) note(place string, err error) error {
	switch {
	case errors.Is(err, ErrUnread), errors.Is(err, ErrTooLarge):
	case errors.Is(err, ErrNotRegular):
		if slices.ContainsFunc(filledAtBoot, func(folder string) bool { return strings.HasPrefix(place, folder+"/") }) {
			return err
		}
	default:
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.errs) < maxUnread {
		u.errs["/"+place] = err
	}
	return err
}

func (u *unreadFiles) noteGap(what, why string) {
	gap := Gap{What: Excerpt(what), Why: Reason(why)}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.gaps) < maxUnread && !slices.Contains(u.gaps, gap) {
		u.gaps = append(u.gaps, gap)
	}
}

// IsUnread says whether a file could not be read before, though it may be there.
func (t *Tree) IsUnread(name string) bool {
	place, _ := t.Resolve(name)
	t.unread.mu.Lock()
	defer t.unread.mu.Unlock()
	return errors.Is(t.unread.errs[name], ErrUnread) || errors.Is(t.unread.errs[place], ErrUnread)
}

// notingFS notes the errors of a base, and ends a rule that takes too long.
type notingFS struct {
	fs.ReadLinkFS
	unread *unreadFiles
	watch  *stopWatch
}

func (n notingFS) Open(name string) (fs.File, error) {
	n.watch.check()
	f, err := n.ReadLinkFS.Open(name)
	if err != nil {
		return nil, n.unread.note(name, err)
	}
	return &watchedFile{f, n.watch}, nil
}

func (n notingFS) Lstat(name string) (fs.FileInfo, error) {
	n.watch.check()
	info, err := n.ReadLinkFS.Lstat(name)
	return info, n.unread.note(name, err)
}

func (n notingFS) ReadLink(name string) (string, error) {
	n.watch.check()
	target, err := n.ReadLinkFS.ReadLink(name)
	return target, n.unread.note(name, err)
}

// watchedFile is an open file or folder whose reads fail once the rule that reads has taken too long. They do not panic, because a decompressor
// may read in a goroutine of its own.
type watchedFile struct {
	fs.File
	watch *stopWatch
}

func (f *watchedFile) Read(b []byte) (int, error) {
	if err := f.watch.overrun(); err != nil {
		return 0, err
	}
	return f.File.Read(b)
}

func (f *watchedFile) ReadAt(b []byte, at int64) (int, error) {
	if err := f.watch.overrun(); err != nil {
		return 0, err
	}
	r, ok := f.File.(io.ReaderAt)
	if !ok {
		return 0, fmt.Errorf("read at %d: %w", at, errors.ErrUnsupported)
	}
	return r.ReadAt(b, at)
}

func (f *watchedFile) ReadDir(n int) ([]fs.DirEntry, error) {
	if err := f.watch.overrun(); err != nil {
		return nil, err
	}
	folder, ok := f.File.(fs.ReadDirFile)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return folder.ReadDir(n)
}

// dropUnread removes findings whose evidence is a file that was not examined, and names those files. A line of a file that is too large was read.
func dropUnread(t *Tree, found []Finding) ([]Finding, []Gap) {
	if t == nil || t.unread == nil {
		return found, nil
	}
	t.unread.mu.Lock()
	errs, gaps := maps.Clone(t.unread.errs), slices.Clone(t.unread.gaps)
	t.unread.mu.Unlock()
	found = slices.DeleteFunc(found, func(f Finding) bool {
		return len(errs) > 0 && slices.ContainsFunc(f.Evidence, func(e Evidence) bool {
			if e.Kind != FromFile {
				return false
			}
			place, _ := t.Resolve(e.Path)
			for _, err := range []error{errs[e.Path], errs[place]} {
				if err != nil && (e.Line == 0 || !errors.Is(err, ErrTooLarge)) {
					return true
				}
			}
			return false
		})
	})
	for i, place := range slices.Sorted(maps.Keys(errs)) {
		if i == maxFindings {
			gaps = append(gaps, Gap{What: "more files", Why: "they could not be read"})
			break
		}
		gaps = append(gaps, Gap{What: Excerpt(place), Why: Reason(errs[place].Error())})
	}
	return found, gaps[:min(len(gaps), maxParts)]
}
