package diagnose

import (
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"
)

// failingFS fails at one file: when it is opened, or when it is read.
type failingFS struct {
	fstest.MapFS
	name    string
	reading bool
	err     error
}

func (f failingFS) Open(name string) (fs.File, error) {
	file, err := f.MapFS.Open(name)
	if err != nil || name != f.name {
		return file, err
	}
	if !f.reading {
		return nil, &fs.PathError{Op: "open", Path: name, Err: f.err}
	}
	return failingFile{file, f.err}, nil
}

type failingFile struct {
	fs.File
	err error
}

func (f failingFile) Read([]byte) (int, error) { return 0, f.err }

// TestUnreadFileIsNoFinding: what a rule says of a file that could not be read, by a link too, is a gap. An error of the file itself is none.
func TestUnreadFileIsNoFinding(t *testing.T) {
	rule := Rule{IDs: []string{"passwd-broken"}, Files: true, Look: func(s *System) []Finding {
		if len(s.Files.Lines("/link")) > 0 {
			return nil
		}
		return []Finding{
			{ID: "passwd-broken", Title: "It has no line.", Evidence: []Evidence{{Kind: FromFile, Path: "/link", Text: "no line"}}},
			{ID: "other", Title: "Other.", Evidence: []Evidence{{Kind: FromFile, Path: "/etc/other", Text: "x"}}},
		}
	}}
	for name, c := range map[string]struct {
		err     error
		reading bool
		gaps    int
	}{
		"not opened": {ErrUnread, false, 1}, "not read": {ErrUnread, true, 1}, "no file": {fs.ErrNotExist, false, 0}, "another error": {errors.New("x"), true, 0},
	} {
		base := failingFS{fstest.MapFS{"etc/passwd": {Data: []byte("root\n")}, "etc/other": {}, "link": {Data: []byte("etc/passwd"), Mode: fs.ModeSymlink}}, "etc/passwd", c.reading, c.err}
		found, gaps := Run([]Rule{rule}, &System{Files: NewTree(base)})
		if len(gaps) != c.gaps || len(found) != 2-c.gaps || c.gaps == 1 && (gaps[0].What != "/etc/passwd" || found[0].ID != "other") {
			t.Errorf("%s: findings %+v, gaps %+v", name, found, gaps)
		}
	}
}
