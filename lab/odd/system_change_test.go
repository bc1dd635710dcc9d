package odd_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"salvor/lab/odd"
	"salvor/test/must"
)

// makeSystem writes a small system into a folder.
func makeSystem(t *testing.T, release string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"etc/ssh/sshd_config":   "# comment\n\nUsePAM yes\nPort 22\n",
		"etc/hostname":          "web",
		"etc/empty":             "",
		"boot/grub/grub.cfg":    "set timeout=5\nmenuentry 'Debian' {\n}\n",
		"usr/sbin/sshd":         "\x7fELF\x00" + release,
		"usr/lib/libc.so.6.0.0": "\x7fELF\x00" + release,
	} {
		must.OK(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	must.OK(t, os.Symlink("libc.so.6.0.0", filepath.Join(dir, "usr/lib/libc.so.6")))
	return dir
}

// stateOf describes each entry of a system: mode, owner, content.
func stateOf(t *testing.T, files fs.FS) map[string]string {
	t.Helper()
	out := map[string]string{}
	must.OK(t, fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := ""
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			text, err = fs.ReadLink(files, name)
		case info.Mode().IsRegular():
			var content []byte
			content, err = fs.ReadFile(files, name)
			text = string(content)
		}
		out[name] = fmt.Sprintf("%s %s %q", info.Mode(), ownerText(info), text)
		return err
	}))
	return out
}

// TestSystemChangesChangeOnePath: each seed gives the same change twice, and the change touches its own path only. All kinds are drawn.
func TestSystemChangesChangeOnePath(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root changes owners, and reads what has no mode")
	}
	other := os.DirFS(makeSystem(t, "another release"))
	drawn := map[odd.SystemChangeKind]int{}
	for seed := uint64(1); seed <= 400; seed++ {
		root := must.Get(os.OpenRoot(makeSystem(t, "a release")))(t)
		before := stateOf(t, root.FS())
		c := must.Get(odd.DrawSystemChange(root.FS(), other, seed))(t)
		if again := must.Get(odd.DrawSystemChange(root.FS(), other, seed))(t); again != c {
			t.Fatalf("seed %d: %v, and then %v; want the same change", seed, c, again)
		}
		must.OK(t, c.Apply(root, other))
		after := stateOf(t, root.FS())
		for name, was := range before {
			if is := after[name]; (is != was) != (name == c.Path) {
				t.Errorf("seed %d, %v: %s was %s and is %s", seed, c, name, was, is)
			}
		}
		if len(after) > len(before) {
			t.Errorf("seed %d, %v: the system has %d entries, and had %d", seed, c, len(after), len(before))
		}
		drawn[c.Kind]++
		must.OK(t, root.Close())
	}
	for _, kind := range []odd.SystemChangeKind{odd.RemoveLine, odd.RepeatLine, odd.ReplaceLine, odd.ChangeMode, odd.ChangeOwner, odd.ChangeTarget, odd.RemoveFile, odd.EmptyFile, odd.TruncateFile, odd.ReplaceByFile} {
		if drawn[kind] == 0 {
			t.Errorf("400 seeds draw no change of the kind %q", kind)
		}
	}
}

func TestSystemChangeString(t *testing.T) {
	for want, c := range map[string]odd.SystemChange{
		`/etc/ssh/sshd_config: line changed: line 3: "UsePAM yse"`: {Kind: odd.ReplaceLine, Path: "etc/ssh/sshd_config", Line: 3, Text: "UsePAM yse"},
		"/boot/grub/grub.cfg: mode: 0600":                          {Kind: odd.ChangeMode, Path: "boot/grub/grub.cfg", Mode: 0o600},
		"/etc/fstab: file removed":                                 {Kind: odd.RemoveFile, Path: "etc/fstab"},
	} {
		if got := c.String(); got != want {
			t.Errorf("%+v is shown as %s, want %s", c, got, want)
		}
	}
	root := must.Get(os.OpenRoot(t.TempDir()))(t)
	defer root.Close()
	if err := (odd.SystemChange{Kind: odd.RemoveFile, Path: "etc/none"}).Apply(root, nil); err == nil || !strings.Contains(err.Error(), "etc/none") {
		t.Errorf("a change of a file that does not exist: %v, want an error that names the file", err)
	}
}

// ownerText is the owner of a file as text.
func ownerText(info fs.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprint(stat.Uid, ":", stat.Gid)
}
