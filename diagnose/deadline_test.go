package diagnose

import (
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// endlessFS holds one file that has no end. Each read takes a second of the clock.
type endlessFS struct {
	fstest.MapFS
	passed *time.Duration
}

type endlessFile struct {
	fs.File
	passed *time.Duration
}

func (e endlessFS) Open(name string) (fs.File, error) {
	f, err := e.MapFS.Open(name)
	if err != nil {
		return nil, err
	}
	return &endlessFile{f, e.passed}, nil
}

func (f *endlessFile) Read(b []byte) (int, error) {
	*f.passed += time.Second
	return len(b), nil
}

func (f *endlessFile) ReadAt(b []byte, _ int64) (int, error) { return f.Read(b) }

// TestDeadlineWithinARule: a rule that reads on and on is ended by its reads, and its findings are dropped.
func TestDeadlineWithinARule(t *testing.T) {
	for name, read := range map[string]func(f fs.File){
		"from the begin": func(f fs.File) { _, _ = io.Copy(io.Discard, f) },
		"at any place": func(f fs.File) {
			for at := int64(0); ; at++ {
				if _, err := f.(io.ReaderAt).ReadAt(make([]byte, 512), at); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var passed time.Duration
			tree := NewTree(endlessFS{fstest.MapFS{"var/log/kern.log": &fstest.MapFile{}}, &passed})
			tree.watch.clock = func() time.Time { return time.Unix(0, 0).Add(passed) }
			rule := Rule{IDs: []string{"kernel-crash-recorded"}, Files: true, Look: func(s *System) []Finding {
				f, err := s.Files.Open("/var/log/kern.log")
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				read(f)
				return []Finding{{ID: "kernel-crash-recorded", Stage: Kernel, Severity: BlocksBoot, Confidence: 1, Title: "T.", Evidence: []Evidence{{Kind: FromDevice, Text: "x"}}}}
			}}
			findings, gaps := Run([]Rule{rule}, &System{Files: tree, RuleTime: 20 * time.Second})
			if len(findings) != 0 || len(gaps) != 1 || !strings.Contains(gaps[0].Why, "took more than 20s") {
				t.Errorf("findings %+v, gaps %+v", findings, gaps)
			}
			if passed > 30*time.Second {
				t.Errorf("the rule read for %s", passed)
			}
		})
	}
}

// TestNotedGaps: what is there and was not examined is a gap.
func TestNotedGaps(t *testing.T) {
	tree := NewTree(fstest.MapFS{
		"etc/pipe":   &fstest.MapFile{Mode: fs.ModeNamedPipe},
		"etc/large":  &fstest.MapFile{Data: []byte("first\nsecond\n" + strings.Repeat("x", 100))},
		"dev/null":   &fstest.MapFile{Mode: fs.ModeDevice | fs.ModeCharDevice},
		"etc/folder": &fstest.MapFile{Mode: fs.ModeDir},
	})
	for _, name := range []string{"/etc/pipe", "/dev/null", "/etc/folder", "/etc/none"} {
		if _, err := tree.Read(name); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	head, whole, err := tree.ReadHead("/etc/large", 20)
	if string(head) != "first\nsecond\n" || whole || err != nil {
		t.Errorf("%q, %v, %v", head, whole, err)
	}
	tree.NoteGap("the configuration of x", "it is not understood")
	tree.NoteGap("the configuration of x", "it is not understood")
	line := Finding{ID: "a", Evidence: []Evidence{{Kind: FromFile, Path: "/etc/large", Line: 1}}}
	file := Finding{ID: "b", Evidence: []Evidence{{Kind: FromFile, Path: "/etc/large"}}}
	found, gaps := dropUnread(tree, []Finding{line, file})
	if len(found) != 1 || found[0].ID != "a" {
		t.Errorf("found %+v", found)
	}
	var names []string
	for _, g := range gaps {
		names = append(names, g.What)
	}
	if got := strings.Join(names, " "); got != "the configuration of x /etc/large /etc/pipe" {
		t.Errorf("gaps: %s", got)
	}
}
