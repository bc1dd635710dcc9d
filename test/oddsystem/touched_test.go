//go:build causes

package oddsystem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"salvor/diagnose"
	"salvor/lab/odd"
)

// touched are the paths that something looked at: each file, folder and link by its own place, below the root and without a slash at its beginning.
type touched struct {
	mu    sync.Mutex
	Paths map[string]bool `json:"paths"`
	// Listed are the folders whose names were read.
	Listed map[string]bool `json:"listed"`
}

func newTouched() *touched { return &touched{Paths: map[string]bool{}, Listed: map[string]bool{}} }

// add notes a path as a program names it, with all links on the way, and where it leads.
func (t *touched) add(files fs.FS, name string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	rest, at := strings.Split(name, "/"), ""
	for links := 0; len(rest) > 0; {
		element := rest[0]
		rest = rest[1:]
		switch element {
		case "", ".":
			continue
		case "..":
			at = strings.TrimPrefix(path.Dir(at), ".")
			continue
		}
		next := path.Join(at, element)
		t.Paths[next] = true
		target, err := fs.ReadLink(files, next)
		if err != nil {
			at = next
			continue
		}
		if links++; links > 40 {
			break
		}
		if strings.HasPrefix(target, "/") {
			at = ""
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at
}

// list notes a folder whose names were read.
func (t *touched) list(files fs.FS, name string) {
	at := t.add(files, name)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Listed[at] = true
}

// by says whether a change may be seen by what looked at the paths. A change of the entries of a folder is seen by who lists the folder.
func (t *touched) by(c odd.SystemChange) bool {
	if t.Paths[c.Path] {
		return true
	}
	return t.Listed[path.Dir(c.Path)] && slices.Contains([]odd.SystemChangeKind{odd.RemoveFile, odd.ChangeTarget, odd.ChangeMode, odd.ChangeOwner, odd.EmptyFile}, c.Kind)
}

// recordingFS notes what the rules look at.
type recordingFS struct {
	fs.ReadLinkFS
	touched *touched
}

func (r recordingFS) Open(name string) (fs.File, error) {
	r.touched.add(r.ReadLinkFS, name)
	f, err := r.ReadLinkFS.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		r.touched.list(r.ReadLinkFS, name)
	}
	return f, nil
}

func (r recordingFS) Lstat(name string) (fs.FileInfo, error) {
	r.touched.add(r.ReadLinkFS, name)
	info, err := r.ReadLinkFS.Lstat(name)
	if err != nil {
		return nil, err
	}
	return recordedInfo{info}, nil
}

// recordedInfo has the owner of a file as rules read it.
type recordedInfo struct{ fs.FileInfo }

func (i recordedInfo) Sys() any {
	stat, ok := i.FileInfo.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return &diagnose.Owner{UID: stat.Uid, GID: stat.Gid, Links: uint64(stat.Nlink)}
}

var (
	quotedPath = regexp.MustCompile(`"(/[^"]*)"`)
	openedPath = regexp.MustCompile(`<(/[^>]*)>`)
)

// touchedByPrograms are the paths that the programs of an unchanged system look at while they are asked. strace names them.
func (w *world) touchedByPrograms(i installation, files fs.FS) (*touched, error) {
	o, err := w.newOverlay(i)
	if o != nil {
		defer func() { _ = o.remove() }()
	}
	if err != nil {
		return nil, err
	}
	trace := filepath.Join(w.dir, "trace-"+i.name)
	w.strace = []string{"strace", "-f", "-y", "-q", "-s", "400", "-e", "trace=%file,getdents64", "-o", trace}
	defer func() { w.strace = nil }()
	out := newTouched()
	ask := func() error {
		text, err := os.ReadFile(trace)
		if err != nil {
			return err
		}
		for _, line := range strings.Split(string(text), "\n") {
			for _, m := range quotedPath.FindAllStringSubmatch(line, -1) {
				out.add(files, strings.TrimPrefix(m[1], o.place))
			}
			for _, m := range openedPath.FindAllStringSubmatch(line, -1) {
				if below, found := strings.CutPrefix(m[1], o.place); found {
					out.add(files, below)
					if strings.Contains(line, "getdents64(") {
						out.list(files, below)
					}
				}
			}
		}
		return os.Remove(trace)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*truthLimit)
	defer cancel()
	if said, err := w.isolated(ctx, i, o, "ask").CombinedOutput(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return nil, fmt.Errorf("strace: %w: %.500s", err, said)
		}
	}
	if err := ask(); err != nil {
		return nil, err
	}
	if said := w.consoleLogin(i, o); said != "" {
		return nil, fmt.Errorf("the login at a console below strace: %s", said)
	}
	if err := ask(); err != nil {
		return nil, err
	}
	out.add(files, "/lib64/ld-linux-x86-64.so.2") // the kernel opens the loader, and strace does not see that
	return out, nil
}
