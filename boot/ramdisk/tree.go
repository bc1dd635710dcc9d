package ramdisk

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"salvor/boot/media"
)

// Tree is the content of an initramfs. Paths are slash separated without a leading
// slash; parent directories are made as needed. The same content gives the same
// archive, whatever the order and the time.
//
// It is exported for those who build other small systems from the same parts, such
// as the lab's tenant system: see Source.
type Tree struct {
	entries map[string]media.Entry
}

// NewTree gives the directories that every system has, /usr merged.
func NewTree() *Tree {
	t := &Tree{entries: map[string]media.Entry{}}
	for _, d := range []string{"proc", "sys", "dev", "run", "mnt", "root", "usr/bin", "usr/sbin", "usr/lib64", "var/log", "etc"} {
		t.Dir(d, 0o755)
	}
	t.Dir("tmp", 0o777)
	t.Dir("root", 0o700)
	for _, d := range mergedDirs {
		t.Symlink(d, "usr/"+d)
	}
	t.Symlink("var/run", "/run")
	return t
}

func (t *Tree) put(e media.Entry) {
	for dir := path.Dir(e.Path); dir != "."; dir = path.Dir(dir) {
		if _, ok := t.entries[dir]; ok {
			break
		}
		t.entries[dir] = media.Entry{Path: dir, Mode: fs.ModeDir | 0o755}
	}
	t.entries[e.Path] = e
}

// Dir makes a directory or changes its mode.
func (t *Tree) Dir(path string, mode fs.FileMode) {
	t.put(media.Entry{Path: path, Mode: fs.ModeDir | mode.Perm()})
}

// File puts a regular file, replacing what is there.
func (t *Tree) File(path string, mode fs.FileMode, data []byte) {
	t.put(media.Entry{Path: path, Mode: mode.Perm(), Data: io.NewSectionReader(bytes.NewReader(data), 0, int64(len(data)))})
}

// Symlink puts a symbolic link.
func (t *Tree) Symlink(path, target string) {
	t.put(media.Entry{Path: path, Mode: fs.ModeSymlink | 0o777, Link: target})
}

// Copy puts the content of a file of the building machine, following links.
func (t *Tree) Copy(path, from string, mode fs.FileMode) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copy into ramdisk: %w", err)
	}
	t.File(path, mode, b)
	return nil
}

// Has tells whether the path is in the tree.
func (t *Tree) Has(path string) bool { _, ok := t.entries[path]; return ok }

// Archive writes the tree as an uncompressed newc archive.
func (t *Tree) Archive(w io.Writer) error {
	entries := make([]media.Entry, 0, len(t.entries))
	for _, e := range t.entries {
		entries = append(entries, e)
	}
	return media.WriteCPIO(w, entries)
}

// Initramfs writes the tree as the kernel wants it, compressed.
func (t *Tree) Initramfs(w io.Writer, c Compression) error {
	z, err := c.writer(w)
	if err != nil {
		return err
	}
	if err := t.Archive(z); err != nil {
		return err
	}
	return z.Close()
}

// accounts writes the users of a ramdisk: root and rescue, neither of whom can log
// in until the agent writes a hash. rescue has user id 0, for he is there to repair.
func (t *Tree) accounts() {
	shell := "/bin/sh"
	if t.Has("usr/bin/bash") {
		shell = "/bin/bash"
	}
	t.File("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:"+shell+"\nrescue:x:0:0:rescue:/home/rescue:"+shell+"\n"))
	t.File("etc/shadow", 0o600, []byte("root:*:19000:0:99999:7:::\nrescue:*:19000:0:99999:7:::\n"))
	t.File("etc/group", 0o644, []byte("root:x:0:\n"))
	t.File("etc/shells", 0o644, []byte("/bin/sh\n/bin/bash\n"))
	t.File("etc/nsswitch.conf", 0o644, []byte("passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"))
	t.File("etc/hosts", 0o644, []byte("127.0.0.1 localhost\n::1 localhost\n"))
	t.File("etc/hostname", 0o644, []byte("rescue\n"))
	t.Dir("home/rescue", 0o700)
	t.Dir("etc/dropbear", 0o700)
}

// busybox puts busybox with a link for each applet.
func (t *Tree) busybox(file string, applets []string) error {
	if err := t.Copy("usr/bin/busybox", file, 0o755); err != nil {
		return err
	}
	for _, name := range applets {
		if name == "" || name == "busybox" || strings.ContainsRune(name, '/') || t.Has("usr/bin/"+name) || t.Has("usr/sbin/"+name) {
			continue
		}
		t.Symlink("usr/bin/"+name, "busybox")
	}
	// The kernel asks for modules by this path.
	t.Symlink("usr/sbin/modprobe", "../bin/busybox")
	return nil
}
