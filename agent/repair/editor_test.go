package repair

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"salvor/agent/examine"
	"salvor/diagnose"
	"salvor/problem"
	"salvor/repair"
	"salvor/test/must"
)

// newTestEditor edits a folder as if it were the root of a system.
func newTestEditor(t *testing.T) (*systemEditor, string) {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range []string{"etc", "var/log"} {
		must.OK(t, os.MkdirAll(filepath.Join(dir, folder), 0o755))
	}
	base, ok := os.DirFS(dir).(fs.ReadLinkFS)
	if !ok {
		t.Fatal("no links")
	}
	m := &examine.MountedSystem{System: &diagnose.System{Root: "/dev/vda1", Files: diagnose.NewTree(base)}, Place: dir}
	e := must.Get(newEditor(t.Context(), m, nil))(t)
	t.Cleanup(func() { _ = e.close() })
	e.finding, e.consent = "some-finding", diagnose.ConsentFiles
	return e, dir
}

func planOf(t *testing.T, e *systemEditor) map[string]repair.FileChange {
	t.Helper()
	p := &repair.Plan{}
	must.OK(t, e.finish(p))
	out := map[string]repair.FileChange{}
	for _, f := range p.Files {
		out[f.Path] = f
	}
	return out
}

// TestAttributesHaveABound: attributes that leave no room for the next one are refused, and a program's changes of such a file are not passed over.
func TestAttributesHaveABound(t *testing.T) {
	t.Parallel()
	e, dir := newTestEditor(t)
	file := filepath.Join(dir, "etc/app.conf")
	must.OK(t, os.WriteFile(file, nil, 0o600))
	for _, name := range []string{"user.a", "user.b"} {
		if err := unix.Setxattr(file, name, []byte("1234"), 0); err != nil {
			t.Skipf("no extended attributes: %v", err)
		}
	}
	for room, fits := range map[int]bool{8: true, 7: false, 4: false, 3: false, 0: false} {
		got, err := readAttributes(e.root, "/etc/app.conf", room)
		if fits && (err != nil || len(got) != 2) || !fits && (!problem.Is(err, problem.Unsupported) || errors.Is(err, errSpecialFile)) {
			t.Errorf("%d bytes: %v, %v", room, got, err)
		}
	}
	must.OK(t, unix.Mkfifo(filepath.Join(dir, "etc/pipe"), 0o600))
	if _, err := e.root.metadata("/etc/pipe"); !errors.Is(err, errSpecialFile) || !problem.Is(err, problem.Unsupported) {
		t.Errorf("a pipe: %v", err)
	}
}

// TestWriteKeepsWhatBelongsToAFile: owner, mode and extended attributes travel, and the plan shows what was there before.
func TestWriteKeepsWhatBelongsToAFile(t *testing.T) {
	t.Parallel()
	e, dir := newTestEditor(t)
	file := filepath.Join(dir, "etc/app.conf")
	must.OK(t, os.WriteFile(file, []byte("a=1\npassword=hunter22\n"), 0o600))
	if os.Geteuid() == 0 {
		must.OK(t, os.Chown(file, 12, 34))
	}
	must.OK(t, os.Chmod(file, 0o640))
	withAttribute := unix.Setxattr(file, "user.note", []byte("kept"), 0) == nil
	must.OK(t, os.Symlink("/etc/app.conf", filepath.Join(dir, "var/log/link")))
	must.OK(t, e.Write("/var/log/link", []byte("a=2\npassword=hunter23\n")))
	change := planOf(t, e)["/etc/app.conf"]
	if change.Before == nil || change.After == nil {
		t.Fatalf("%+v", planOf(t, e))
	}
	b, a := change.Before, change.After
	if a.Mode != 0o640 || a.UID != b.UID || a.GID != b.GID || a.SHA256 == b.SHA256 || withAttribute && string(a.Attributes["user.note"]) != "kept" {
		t.Errorf("before %+v, after %+v", b, a)
	}
	if os.Geteuid() == 0 && (a.UID != 12 || a.GID != 34) {
		t.Errorf("owner %d:%d", a.UID, a.GID)
	}
	if strings.Contains(change.Diff, "hunter") || !strings.Contains(change.Diff, "+a=2") || !strings.Contains(change.Diff, "-a=1") {
		t.Errorf("diff %q", change.Diff)
	}
	if left := must.Get(filepath.Glob(filepath.Join(dir, "etc", temporaryName+"*")))(t); len(left) != 0 {
		t.Errorf("left %q", left)
	}
}

// TestEditorStaysInsideOfTheSystem: no path and no link leads out.
func TestEditorStaysInsideOfTheSystem(t *testing.T) {
	t.Parallel()
	e, dir := newTestEditor(t)
	outside := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(outside, "file"), []byte("x"), 0o600))
	must.OK(t, os.Symlink(outside, filepath.Join(dir, "etc/out")))
	must.OK(t, os.Symlink("../../../../../../"+outside+"/file", filepath.Join(dir, "etc/up")))
	for name, err := range map[string]error{
		"folder": e.Write("/etc/out/file", []byte("y")), "relative": e.Write("etc/x", nil), "root": e.Write("/", nil), "dots": e.Write("/etc/../../../"+outside+"/file", []byte("y")),
		"file": e.Write("/etc/up", []byte("y")), "remove": e.Remove("/etc/out/file"), "mkdir": e.Mkdir("/etc/out/new"), "name": e.Rename("/etc/up", "../x"),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if b := must.Get(os.ReadFile(filepath.Join(outside, "file")))(t); string(b) != "x" {
		t.Errorf("outside is %q", b)
	}
	// A link that takes a folder's place after it was resolved is refused by the kernel.
	must.OK(t, os.Rename(filepath.Join(dir, "var/log"), filepath.Join(dir, "var/old")))
	must.OK(t, os.Symlink(outside, filepath.Join(dir, "var/log")))
	if _, err := e.root.Open("/var/log/file", unix.O_RDONLY); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a link in the middle: %v", err)
	}
}

// TestUndoByFiles: each kind of change is put back exactly, and only where nobody else changed the file.
func TestUndoByFiles(t *testing.T) {
	t.Parallel()
	e, dir := newTestEditor(t)
	write := func(name, text string) { must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)) }
	write("etc/edited", "before")
	write("etc/removed", "gone")
	write("etc/renamed", "moved")
	write("etc/mode", "m")
	must.OK(t, os.Symlink("a", filepath.Join(dir, "etc/link")))
	first := snapshotOf(t, e)
	must.OK(t, e.Write("/etc/edited", []byte("after")))
	must.OK(t, e.Write("/etc/new", []byte("made")))
	must.OK(t, e.Remove("/etc/removed"))
	must.OK(t, e.Rename("/etc/renamed", "renamed.off"))
	must.OK(t, e.Chmod("/etc/mode", fs.ModeSetuid|0o711))
	must.OK(t, e.Link("/etc/link", "b"))
	must.OK(t, e.Mkdir("/srv/a/b"))
	must.OK(t, e.Write("/etc/edited", []byte("after again")))
	changes := planOf(t, e)
	if len(changes) != 10 {
		t.Errorf("%d changes: %+v", len(changes), changes)
	}
	if c := changes["/srv/a/b"]; c.After == nil || c.After.Kind != "folder" || c.After.Mode != 0o755 {
		t.Errorf("%+v", c)
	}
	if c := changes["/etc/mode"]; c.After.Mode != 0o4711 {
		t.Errorf("%+v", c.After)
	}
	undo := func(place string) error {
		c := changes[place]
		return e.restore(RestoreFile{Root: c.Root, Path: c.Path, Before: c.Before, After: c.After, Content: e.files[place].content})
	}
	write("etc/new", "changed by someone")
	if err := undo("/etc/new"); !problem.Is(err, problem.Conflict) {
		t.Errorf("a file that was changed since: %v", err)
	}
	write("etc/new", "made")
	for _, place := range []string{"/srv/a/b", "/srv/a", "/srv", "/etc/new", "/etc/edited", "/etc/removed", "/etc/renamed", "/etc/renamed.off", "/etc/mode", "/etc/link"} {
		must.OK(t, undo(place))
		must.OK(t, undo(place)) // said again
	}
	last := snapshotOf(t, e)
	for place, f := range first {
		if !sameState(f.state, last[place].state) {
			t.Errorf("%s: %+v, was %+v", place, last[place].state, f.state)
		}
	}
	if len(last) != len(first) {
		t.Errorf("%d files, %d before", len(last), len(first))
	}
}

func snapshotOf(t *testing.T, e *systemEditor) map[string]walkedFile {
	t.Helper()
	return must.Get(e.walk([]string{"/etc", "/srv", "/var"}, maxWalkedKept))(t)
}

// TestPasswordsAreMasked: neither a hash of any kind nor a key is in a diff.
func TestPasswordsAreMasked(t *testing.T) {
	t.Parallel()
	for place, text := range map[string]string{
		"/etc/shadow": "root:ab12cd34ef56g:19000:0:99999:7:::\n", "/etc/x": "token: s3cr3tvalue\n", "/etc/key": "-----BEGIN OPENSSH PRIVATE KEY-----\ns3cr3t\n",
	} {
		diff := MaskedDiff(place, []byte(text), []byte(text+"more\n")) + MaskedDiff(place, nil, []byte(text))
		if strings.Contains(diff, "ab12") || strings.Contains(diff, "s3cr3t") {
			t.Errorf("%s: %s", place, diff)
		}
	}
	if diff := MaskedDiff("/etc/x", []byte("a\n\tb\n"), []byte("a\n\tc\x1b[2J\n")); !strings.Contains(diff, "-\tb\n") || strings.Contains(diff, "\x1b") {
		t.Errorf("diff %q", diff)
	}
}

// TestUndoOfFolders: the order of a plan, in which a folder stands before its content, puts all back, with the times.
func TestUndoOfFolders(t *testing.T) {
	t.Parallel()
	e, dir := newTestEditor(t)
	must.OK(t, os.MkdirAll(filepath.Join(dir, "etc/old/deep"), 0o750))
	must.OK(t, os.WriteFile(filepath.Join(dir, "etc/old/deep/file"), []byte("x"), 0o600))
	must.OK(t, os.Symlink("file", filepath.Join(dir, "etc/old/deep/link")))
	long := time.Date(2020, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, name := range []string{"etc/old/deep/file", "etc/old/deep", "etc/old"} {
		must.OK(t, os.Chtimes(filepath.Join(dir, name), long, long))
	}
	times := []unix.Timespec{unix.NsecToTimespec(long.UnixNano()), unix.NsecToTimespec(long.UnixNano())}
	must.OK(t, unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(dir, "etc/old/deep/link"), times, unix.AT_SYMLINK_NOFOLLOW))
	first := snapshotOf(t, e)
	must.OK(t, e.Mkdir("/srv/a/b"))
	must.OK(t, e.Write("/srv/a/b/file", []byte("new")))
	before := must.Get(e.walk([]string{"/etc/old"}, maxWalkedKept))(t)
	must.OK(t, os.RemoveAll(filepath.Join(dir, "etc/old")))
	must.OK(t, e.noteWalked([]string{"/etc/old"}, "", before))
	changes := planOf(t, e)
	p := newPlanner(examinationOf("/dev/vda1"), examinationOf("/dev/vda1"))
	for _, place := range slices.Sorted(maps.Keys(changes)) {
		c := changes[place]
		p.Restore = append(p.Restore, RestoreFile{Root: "/dev/vda1", Path: place, Before: c.Before, After: c.After, Content: e.files[place].content})
	}
	must.OK(t, p.restoreAll(map[string]*systemEditor{"/dev/vda1": e}))
	if len(p.plan.NotMended) != 0 {
		t.Errorf("not put back: %+v", p.plan.NotMended)
	}
	last := snapshotOf(t, e)
	if len(last) != len(first) {
		t.Errorf("%d files, %d before", len(last), len(first))
	}
	for place, f := range first {
		s := last[place].state
		if !sameState(f.state, s) || strings.HasPrefix(place, "/etc/old") && s.ModTime != f.state.ModTime {
			t.Errorf("%s: %+v, was %+v", place, s, f.state)
		}
	}
}

// TestMendThatGivesUp leaves nothing: each kind of change is put back, and what a former mend changed stays as that one left it.
func TestMendThatGivesUp(t *testing.T) {
	t.Parallel()
	e, dir := newTestEditor(t)
	for name, text := range map[string]string{"edited": "before", "removed": "gone", "renamed": "moved", "mode": "m", "twice": "first"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, "etc", name), []byte(text), 0o644))
	}
	must.OK(t, os.Symlink("a", filepath.Join(dir, "etc/link")))
	disk := filepath.Join(dir, "disk")
	must.OK(t, os.WriteFile(disk, bytes.Repeat([]byte{'d'}, 4096), 0o600))
	e.node = func(string) (string, error) { return disk, nil }
	e.finding = "former"
	must.OK(t, e.attempt(t.Context(), func(context.Context) error { return e.Write("/etc/twice", []byte("second")) }))
	first := snapshotOf(t, e)
	e.finding = "some-finding"
	gaveUp := problem.Unsupportedf("it cannot go on")
	err := e.attempt(t.Context(), func(context.Context) error {
		return errors.Join(
			e.Write("/etc/edited", []byte("after")), e.Write("/etc/new", []byte("made")), e.Remove("/etc/removed"), e.Rename("/etc/renamed", "renamed.off"),
			e.Chmod("/etc/mode", fs.ModeSetuid|0o711), e.Link("/etc/link", "b"), e.Mkdir("/srv/a/b"), e.Write("/srv/a/b/c", nil), e.Write("/etc/twice", []byte("third")),
			e.Setting(repair.Setting{Kind: repair.Clock}), e.WriteBlocks("/dev/vda", 512, []byte("boot code")), e.WriteBlocks("/dev/vda", 514, []byte("again")), gaveUp)
	})
	if !problem.Is(err, problem.Unsupported) {
		t.Fatal(err)
	}
	last := snapshotOf(t, e)
	for place, f := range first {
		if !sameState(f.state, last[place].state) || f.state.Kind != "folder" && f.state.ModTime != last[place].state.ModTime {
			t.Errorf("%s: %+v, was %+v", place, last[place].state, f.state)
		}
	}
	if len(last) != len(first) || len(e.settings)+len(e.blocks) != 0 || !bytes.Equal(must.Get(os.ReadFile(disk))(t), bytes.Repeat([]byte{'d'}, 4096)) {
		t.Errorf("%d files, %d before; settings %v, blocks %v", len(last), len(first), e.settings, e.blocks)
	}
	changes := planOf(t, e)
	if c := changes["/etc/twice"]; len(changes) != 1 || c.Before == nil || c.Before.SHA256 != hashText([]byte("first")) || !slices.Equal(c.Findings, []string{"former"}) {
		t.Errorf("the plan has %+v", changes)
	}
}

// TestOtherKindIsNotPutBack: a folder whose place a link or a file has taken is refused, and what the link leads to keeps its mode.
func TestOtherKindIsNotPutBack(t *testing.T) {
	t.Parallel()
	e, dir := newTestEditor(t)
	must.OK(t, os.WriteFile(filepath.Join(dir, "etc/shadow"), []byte("secret"), 0o600))
	must.OK(t, os.Symlink("shadow", filepath.Join(dir, "etc/link")))
	owner := must.Get(e.root.metadata("/etc/shadow"))(t)
	folder := &repair.FileState{Kind: "folder", Mode: 0o755, UID: owner.UID, GID: owner.GID}
	for _, place := range []string{"/etc/link", "/etc/shadow"} {
		present := must.Get(e.root.metadata(place))(t)
		if err := e.putState(place, present, folder, nil); !problem.Is(err, problem.Conflict) {
			t.Errorf("%s as a folder: %v", place, err)
		}
	}
	if err := e.applyMetadata("/etc/link", &repair.FileState{Kind: "file", Mode: 0o644, UID: owner.UID, GID: owner.GID}); !problem.Is(err, problem.Conflict) {
		t.Errorf("a link as a file: %v", err)
	}
	if got := must.Get(e.root.metadata("/etc/shadow"))(t); got.Mode != 0o600 {
		t.Errorf("the mode is %#o", got.Mode)
	}
}

// TestUnknownChangesLast: where nobody knows what a program has changed, a mend that gives up fails the whole plan.
func TestUnknownChangesLast(t *testing.T) {
	t.Parallel()
	e, dir := newTestEditor(t)
	must.OK(t, os.WriteFile(filepath.Join(dir, "etc/made"), []byte("before"), 0o644))
	e.run = func(context.Context, repair.Program, *programScope) (string, int, error) {
		e.root.stopped = func() error { return errors.New("the file cannot be read") }
		return "", 0, os.WriteFile(filepath.Join(dir, "etc/made"), []byte("after"), 0o644)
	}
	err := e.attempt(t.Context(), func(ctx context.Context) error {
		if _, err := e.Run(ctx, repair.Program{Command: []string{"/sbin/make"}, Changes: []string{"/etc"}}); err == nil {
			t.Error("its changes were noted")
		}
		e.root.stopped = nil
		return problem.Unsupportedf("it cannot go on")
	})
	if err == nil || problem.Is(err, problem.Unsupported) || !strings.Contains(err.Error(), "/sbin/make changed is not known") {
		t.Errorf("%v", err)
	}
}

// TestMendThatCannotBePutBack fails the whole plan: a large file was changed.
func TestMendThatCannotBePutBack(t *testing.T) {
	t.Parallel()
	e, dir := newTestEditor(t)
	must.OK(t, os.WriteFile(filepath.Join(dir, "etc/large"), make([]byte, maxKept+1), 0o644))
	err := e.attempt(t.Context(), func(context.Context) error {
		return errors.Join(e.Write("/etc/large", []byte("short")), problem.Unsupportedf("it cannot go on"))
	})
	if err == nil || problem.Is(err, problem.Unsupported) {
		t.Errorf("%v", err)
	}
}

// TestSparseFiles: a file of holes costs neither time nor memory without a bound.
func TestSparseFiles(t *testing.T) {
	t.Parallel()
	e, dir := newTestEditor(t)
	must.OK(t, os.WriteFile(filepath.Join(dir, "etc/holes"), nil, 0o644))
	must.OK(t, os.Truncate(filepath.Join(dir, "etc/holes"), 1<<40))
	if err := e.Chmod("/etc/holes", 0o600); !problem.Is(err, problem.Unsupported) {
		t.Errorf("an edit: %v", err)
	}
	if _, err := e.walk([]string{"/etc"}, maxWalkedKept); !problem.Is(err, problem.Unsupported) {
		t.Errorf("a walk: %v", err)
	}
	must.OK(t, os.Truncate(filepath.Join(dir, "etc/holes"), maxHashed))
	ended := errors.New("ended")
	reads := 0
	e.root.stopped = func() error {
		if reads++; reads > 3 {
			return ended
		}
		return nil
	}
	if err := e.Chmod("/etc/holes", 0o600); !errors.Is(err, ended) || reads > 4 {
		t.Errorf("an end in the middle: %v after %d reads", err, reads)
	}
}

// TestContentsAreBounded: what is kept of the files that a program may change has a bound for all of them together.
func TestContentsAreBounded(t *testing.T) {
	t.Parallel()
	e, dir := newTestEditor(t)
	for _, name := range []string{"a", "b", "c"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, "etc", name), make([]byte, 1000), 0o644))
	}
	kept := 0
	for _, f := range must.Get(e.walk([]string{"/etc"}, 2500))(t) {
		kept += len(f.content)
	}
	if kept != 2000 {
		t.Errorf("a walk keeps %d bytes", kept)
	}
	e.room = 1500
	for _, name := range []string{"/etc/a", "/etc/b", "/etc/c"} {
		must.OK(t, e.Chmod(name, 0o600))
	}
	if len(e.files["/etc/a"].content) != 1000 || e.files["/etc/b"].content != nil || e.room != 500 {
		t.Errorf("%d bytes are left", e.room)
	}
}
