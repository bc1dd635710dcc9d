//go:build e2e

package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

// TestBackupOnASmallDisk: where the disk has no room for a backup and its journal, there is a whole backup or none, and nothing is
// left behind.
func TestBackupOnASmallDisk(t *testing.T) {
	d := storetest.OnSQLite(t)
	peopled(t, d)
	from := opened(t, d.URL, store.Look)
	whole := filepath.Join(t.TempDir(), "whole.db")
	must.Get(from.Backup(t.Context(), whole, nil))(t)
	info := must.Get(os.Stat(whole))(t)
	made := map[bool][]int{}
	for _, percent := range []int{70, 125, 190, 220, 400} {
		dir := t.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", info.Size()*int64(percent)/100)); err != nil {
			t.Fatalf("mount a tmpfs (needs root): %v", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		file := filepath.Join(dir, "b.db")
		_, err := from.Backup(t.Context(), file, nil)
		made[err == nil] = append(made[err == nil], percent)
		left := must.Get(filepath.Glob(filepath.Join(dir, "*")))(t)
		if err != nil {
			if len(left) > 0 {
				t.Errorf("%d %%: %v, and left behind is %v", percent, err, left)
			}
			continue
		}
		if len(left) != 1 {
			t.Errorf("%d %%: left behind is %v", percent, left)
		}
		// It is served elsewhere: there is no room here.
		b, err := os.ReadFile(file)
		back := storetest.Database{URL: "sqlite:" + filepath.Join(t.TempDir(), "back.db"), Key: d.Key}
		if err == nil {
			err = os.WriteFile(back.URL[len("sqlite:"):], b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		lived(t, back)
	}
	t.Logf("of a backup of %d bytes: made with room for %v %% of it, not with %v %%", info.Size(), made[true], made[false])
	if len(made[true]) == 0 || len(made[false]) < 3 {
		t.Error("no disk was too small, or all were")
	}
}
