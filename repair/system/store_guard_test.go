package system

import (
	"io/fs"
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"salvor/diagnose"
	"salvor/problem"
	"salvor/repair"
	"salvor/repair/repairtest"
)

// TestStoresAreNotChanged: no edit reaches a file of a content store, by whatever link, and edits beside the stores go on.
func TestStoresAreNotChanged(t *testing.T) {
	const stored = "nix/store/5dj0qzfsxvwz4m1j4i1m4r5mpkdq4r4v-etc/fstab"
	files := fstest.MapFS{
		stored:       {Data: []byte("a"), Mode: 0o444, Sys: &diagnose.Owner{}},
		"etc/fstab":  {Data: []byte("/etc/static/fstab"), Mode: fs.ModeSymlink | 0o777, Sys: &diagnose.Owner{}},
		"etc/static": {Data: []byte("/nix/store/5dj0qzfsxvwz4m1j4i1m4r5mpkdq4r4v-etc"), Mode: fs.ModeSymlink | 0o777, Sys: &diagnose.Owner{}},
		"etc/passwd": {Data: []byte("b"), Mode: 0o644, Sys: &diagnose.Owner{}},
	}
	for name, tc := range map[string]struct {
		edit    func(repair.Editor) error
		refuses bool
	}{
		"write through links":   {func(e repair.Editor) error { return e.Write("/etc/fstab", []byte("c")) }, true},
		"write":                 {func(e repair.Editor) error { return e.Write("/"+stored, []byte("c")) }, true},
		"a new file":            {func(e repair.Editor) error { return e.Write("/etc/static/new", []byte("c")) }, true},
		"mode":                  {func(e repair.Editor) error { return e.Chmod("/etc/fstab", 0o600) }, true},
		"owner":                 {func(e repair.Editor) error { return e.Chown("/etc/fstab", 1, 1) }, true},
		"remove":                {func(e repair.Editor) error { return e.Remove("/etc/static/fstab") }, true},
		"rename":                {func(e repair.Editor) error { return e.Rename("/etc/static/fstab", "old") }, true},
		"a link":                {func(e repair.Editor) error { return e.Link("/etc/static/x", "y") }, true},
		"a folder":              {func(e repair.Editor) error { return e.Mkdir("/etc/static/x") }, true},
		"the link to the store": {func(e repair.Editor) error { return e.Remove("/etc/fstab") }, false},
		"beside":                {func(e repair.Editor) error { return e.Write("/etc/passwd", []byte("c")) }, false},
	} {
		e := repairtest.New(diagnose.System{}, maps.Clone(files))
		err := tc.edit(storeGuard{e})
		if refused := problem.Is(err, problem.Unsupported); refused != tc.refuses || !refused && err != nil {
			t.Errorf("%s: want refused %v, got %v", name, tc.refuses, err)
		}
		if tc.refuses && !strings.Contains(err.Error(), "whose files never change") {
			t.Errorf("%s: want the reason, got %v", name, err)
		}
		if f := e.Snapshot()[stored]; f == nil || string(f.Data) != "a" || f.Mode != 0o444 {
			t.Errorf("%s: want the stored file as it was, got %+v", name, f)
		}
	}
}
