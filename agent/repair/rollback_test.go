package repair

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/problem"
	"salvor/repair"
	"salvor/test/must"
)

// TestChangedBlocksLast: where a program has changed blocks of a disk, a mend that gives up fails the whole plan, because nothing puts the blocks back.
func TestChangedBlocksLast(t *testing.T) {
	t.Parallel()
	e, dir := newTestEditor(t)
	disk := filepath.Join(dir, "disk")
	must.OK(t, os.WriteFile(disk, make([]byte, 64<<10), 0o600))
	e.mounted.Devices = []diagnose.Device{{Path: "/dev/vda", Kind: diagnose.DiskDevice, Size: 64 << 10}}
	e.node = func(string) (string, error) { return disk, nil }
	e.nodes = map[string]string{"/dev/vda": disk}
	e.run = func(context.Context, repair.Program, *programScope) (string, int, error) {
		return "", 0, writeRange(disk, 0, []byte("code"))
	}
	err := e.attempt(t.Context(), func(ctx context.Context) error {
		must.Get(e.Run(ctx, repair.Program{Command: []string{"/sbin/grub-install"}, Changes: []string{"/dev/vda"}}))(t)
		return problem.Unsupportedf("it cannot go on")
	})
	if err == nil || problem.Is(err, problem.Unsupported) || !strings.Contains(err.Error(), "/sbin/grub-install has changed blocks of /dev/vda") {
		t.Errorf("a mend that gave up after a program changed blocks: %v", err)
	}
}

// TestFailedProgramIsNoted: what a program changed before it failed is in the plan, and a mend that gives up puts that back.
func TestFailedProgramIsNoted(t *testing.T) {
	t.Parallel()
	e, dir := newTestEditor(t)
	made := filepath.Join(dir, "etc/made")
	must.OK(t, os.WriteFile(made, []byte("before"), 0o644))
	crashed := errors.New("it crashed")
	for name, c := range map[string]struct {
		exit int
		err  error
	}{"an exit status": {1, nil}, "no exit": {-1, crashed}} {
		e.run = func(context.Context, repair.Program, *programScope) (string, int, error) {
			must.OK(t, os.WriteFile(made, []byte("half"), 0o644))
			return "last words", c.exit, c.err
		}
		err := e.attempt(t.Context(), func(ctx context.Context) error {
			if _, err := e.Run(ctx, repair.Program{Command: []string{"/sbin/make"}, Changes: []string{"/etc"}}); err == nil || c.err != nil && !errors.Is(err, c.err) {
				t.Errorf("%s: the program ended with %v", name, err)
			}
			if f := e.files["/etc/made"]; f == nil || string(f.content) != "before" || f.MadeBy != "/sbin/make" {
				t.Errorf("%s: the plan has %+v of the file that the program left half written", name, f)
			}
			return problem.Unsupportedf("it cannot go on")
		})
		if !problem.Is(err, problem.Unsupported) || string(must.Get(os.ReadFile(made))(t)) != "before" || len(planOf(t, e)) != 0 {
			t.Errorf("%s: %v; the plan has %+v", name, err, planOf(t, e))
		}
	}
}

// TestBlocksBelowAMountAreRefused: a mend writes no blocks in which a file system is mounted, whose kernel would not see them.
func TestBlocksBelowAMountAreRefused(t *testing.T) {
	t.Parallel()
	e, dir := newTestEditor(t)
	disk := filepath.Join(dir, "disk")
	must.OK(t, os.WriteFile(disk, make([]byte, 64<<10), 0o600))
	e.mounted.Devices = []diagnose.Device{
		{Path: "/dev/vda", Kind: diagnose.DiskDevice, Size: 64 << 10},
		{Path: "/dev/vda1", Kind: diagnose.PartitionDevice, Parents: []string{"/dev/vda"}, PartStart: 8 << 10, Size: 8 << 10},
		{Path: "/dev/vda2", Kind: diagnose.PartitionDevice, Parents: []string{"/dev/vda"}, PartStart: 32 << 10, Size: 8 << 10},
		{Path: "/dev/mapper/vg-root", Kind: diagnose.VolumeDevice, Parents: []string{"/dev/vda2"}},
	}
	mounted := map[string]bool{"/dev/vda1": true, "/dev/mapper/vg-root": true}
	e.node = func(device string) (string, error) {
		if mounted[device] {
			return "", problem.Conflictf("mounted")
		}
		return disk, nil
	}
	for _, c := range []struct {
		name, device string
		offset       int64
		fails        bool
	}{
		{"before the first partition", "/dev/vda", 0, false},
		{"up to a mounted partition", "/dev/vda", 8<<10 - 4, false},
		{"into a mounted partition", "/dev/vda", 8<<10 - 3, true},
		{"the end of a mounted partition", "/dev/vda", 16<<10 - 1, true},
		{"behind a mounted partition", "/dev/vda", 16 << 10, false},
		{"below a mounted volume", "/dev/vda", 33 << 10, true},
		{"a partition below a mounted volume", "/dev/vda2", 0, true},
		{"a mounted partition", "/dev/vda1", 0, true},
		{"a negative offset", "/dev/vda", -4, true},
	} {
		before := must.Get(os.ReadFile(disk))(t)
		err := e.WriteBlocks(c.device, c.offset, []byte(c.name)[:4])
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", c.name, err)
		}
		if written := string(must.Get(os.ReadFile(disk))(t)) != string(before); written == c.fails {
			t.Errorf("%s: written %v", c.name, written)
		}
	}
}

// TestSameState: a file with another content, owner, mode, label or target is another one; its time does not count.
func TestSameState(t *testing.T) {
	t.Parallel()
	file := func() *repair.FileState {
		return &repair.FileState{Kind: "file", Size: 3, SHA256: "a", Mode: 0o600, Target: "t", Attributes: map[string][]byte{"security.selinux": []byte("x")}}
	}
	if other := file(); !sameState(file(), other) || !sameState(nil, nil) || sameState(file(), nil) || sameState(nil, file()) {
		t.Error("a file is not the same as itself, or is the same as none")
	}
	for name, change := range map[string]func(*repair.FileState){
		"kind": func(s *repair.FileState) { s.Kind = "link" }, "size": func(s *repair.FileState) { s.Size = 4 }, "content": func(s *repair.FileState) { s.SHA256 = "b" },
		"mode": func(s *repair.FileState) { s.Mode = 0o644 }, "owner": func(s *repair.FileState) { s.UID = 1 }, "group": func(s *repair.FileState) { s.GID = 1 },
		"target": func(s *repair.FileState) { s.Target = "u" }, "label": func(s *repair.FileState) { s.Attributes["security.selinux"] = []byte("y") },
		"time": func(s *repair.FileState) { s.ModTime = 1 },
	} {
		changed := file()
		change(changed)
		if same := sameState(file(), changed); same != (name == "time") {
			t.Errorf("a file with another %s counts as the same: %v", name, same)
		}
	}
}
