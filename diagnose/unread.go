package diagnose

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"
)

// ErrUnread is the error of a file that may be there and could not be read: its disk failed, or the machine that reads is short of memory.
var ErrUnread = errors.New("it could not be read")

// unreadFiles notes which files of a tree could not be read, though they may be there. A file that nobody could read is not empty.
type unreadFiles struct {
	mu   sync.Mutex
	errs map[string]error // by absolute paths without links
}

// maxUnread bounds how many are noted.
const maxUnread = 1000

// note keeps an error, if it is ErrUnread, and returns it.
func (u *unreadFiles) note(place string, err error) error {
	if errors.Is(err, ErrUnread) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if len(u.errs) < maxUnread {
			u.errs["/"+place] = err
		}
	}
	return err
}

// IsUnread says whether a file could not be read before, though it may be there.
func (t *Tree) IsUnread(name string) bool {
	place, _ := t.Resolve(name)
	t.unread.mu.Lock()
	defer t.unread.mu.Unlock()
	return t.unread.errs[name] != nil || t.unread.errs[place] != nil
}

// notingFS notes the errors of a base.
type notingFS struct {
	fs.ReadLinkFS
	unread *unreadFiles
	watch  *stopWatch
}

func (n notingFS) Open(name string) (fs.File, error) {
	n.watch.check()
	f, err := n.ReadLinkFS.Open(name)
	return f, n.unread.note(name, err)
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

// dropUnread removes findings whose evidence is a file that could not be read, and names those files.
func dropUnread(t *Tree, found []Finding) ([]Finding, []Gap) {
	if t == nil || t.unread == nil {
		return found, nil
	}
	t.unread.mu.Lock()
	errs := maps.Clone(t.unread.errs)
	t.unread.mu.Unlock()
	if len(errs) == 0 {
		return found, nil
	}
	found = slices.DeleteFunc(found, func(f Finding) bool {
		return slices.ContainsFunc(f.Evidence, func(e Evidence) bool {
			if e.Kind != FromFile {
				return false
			}
			place, _ := t.Resolve(e.Path)
			return errs[e.Path] != nil || errs[place] != nil
		})
	})
	var gaps []Gap
	for i, place := range slices.Sorted(maps.Keys(errs)) {
		if i == maxFindings {
			gaps = append(gaps, Gap{What: "more files", Why: "they could not be read"})
			break
		}
		gaps = append(gaps, Gap{What: Excerpt(place), Why: Excerpt(errs[place].Error())})
	}
	return found, gaps
}
