// Package repairtest is a repair.Editor over files in memory, for tests of mends. It changes what an agent would change, and records programs and
// settings.
package repairtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing/fstest"

	"salvor/diagnose"
	"salvor/repair"
)

// FakeProgram does what a program of the system would write. Its first argument is the editor that runs it.
type FakeProgram func(e *Editor, p repair.Program) error

// Editor is a system in memory. Its methods are those of repair.Editor.
type Editor struct {
	files  fstest.MapFS
	system diagnose.System
	// Programs are fakes by the base name of the program; one without a fake fails.
	Programs map[string]FakeProgram
	// Runs, Settings and Blocks are what the mends did beside files.
	Runs     []repair.Program
	Settings []repair.Setting
	Blocks   []string
	// Touched lists the paths of files that Write changed, without those of programs.
	Touched []string
}

// New is an editor of a system whose files are given; s.Files is not used. Files are copied when they are changed, so the given ones stay.
func New(s diagnose.System, files fstest.MapFS) *Editor {
	return &Editor{system: s, files: maps.Clone(files), Programs: map[string]FakeProgram{}}
}

// Snapshot is a copy of the table of files.
func (e *Editor) Snapshot() fstest.MapFS { return maps.Clone(e.files) }

// System is the system with the changes made so far, settings among them.
func (e *Editor) System() *diagnose.System {
	s := e.system
	s.Files = diagnose.NewTree(e.files)
	s.Devices = slices.Clone(s.Devices)
	for i := range s.Devices {
		d := &s.Devices[i]
		if d.Tree != nil && strings.Trim(d.MountedAt, "/") != "" {
			d.Tree = diagnose.NewTree(e.below(d.MountedAt))
		}
	}
	s.Firmware.Entries, s.Firmware.Order = slices.Clone(s.Firmware.Entries), slices.Clone(s.Firmware.Order)
	for _, set := range e.Settings {
		applySetting(&s, set)
	}
	return &s
}

func (e *Editor) below(folder string) fstest.MapFS {
	out, prefix := fstest.MapFS{}, strings.Trim(folder, "/")+"/"
	for name, f := range e.files {
		if rest, found := strings.CutPrefix(name, prefix); found {
			out[rest] = f
		}
	}
	return out
}

func applySetting(s *diagnose.System, set repair.Setting) {
	switch set.Kind {
	case repair.Clock:
		s.Clock = s.Now
	case repair.BootOrder:
		s.Firmware.Order = nil
		for number := range strings.SplitSeq(set.After, ",") {
			if n, err := strconv.ParseUint(number, 16, 16); err == nil {
				s.Firmware.Order = append(s.Firmware.Order, uint16(n))
			}
		}
	case repair.BootEntry:
		fields := strings.SplitN(set.After, ",", 4)
		if len(fields) != 4 {
			return
		}
		if n, err := strconv.ParseUint(fields[0], 16, 16); err == nil {
			s.Firmware.Entries = append(s.Firmware.Entries, diagnose.BootEntry{Number: uint16(n), Name: fields[1], PartUUID: fields[2], Path: fields[3], Active: true})
		}
	}
}

// place is where a path leads, as the table of files names it.
func (e *Editor) place(name string) (string, error) {
	at, err := diagnose.NewTree(e.files).Resolve(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return tableName(at), nil
}

// placeOf is the place of a path itself, which may be a link.
func (e *Editor) placeOf(name string) (string, error) {
	folder, err := e.place(path.Dir(path.Clean(name)))
	if err != nil {
		return "", err
	}
	return path.Join(folder, path.Base(name)), nil
}

func tableName(at string) string {
	if at = strings.Trim(path.Clean(at), "/"); at == "" {
		return "."
	}
	return at
}

// entry returns a copy of a file or folder that exists; folders that no table entry names have the mode 0755 and belong to root.
func (e *Editor) entry(at string) (*fstest.MapFile, error) {
	if f := e.files[at]; f != nil {
		c := *f
		return &c, nil
	}
	if info, err := e.files.Lstat(at); err == nil && info.IsDir() {
		return &fstest.MapFile{Mode: fs.ModeDir | 0o755, Sys: &diagnose.Owner{}}, nil
	}
	return nil, fmt.Errorf("/%s: %w", at, fs.ErrNotExist)
}

// Write implements repair.Editor.
func (e *Editor) Write(name string, content []byte) error {
	at, err := e.place(name)
	if err != nil {
		return err
	}
	info, err := e.files.Lstat(path.Dir(at))
	if err != nil || !info.IsDir() {
		return fmt.Errorf("%s: its folder does not exist", name)
	}
	f, err := e.entry(at)
	switch {
	case err != nil:
		f = &fstest.MapFile{Mode: 0o644, Sys: &diagnose.Owner{UID: diagnose.OwnerOf(info).UID, GID: diagnose.OwnerOf(info).GID}}
	case !f.Mode.IsRegular():
		return fmt.Errorf("%s: not a regular file", name)
	}
	f.Data = slices.Clone(content)
	e.files[at] = f
	e.Touched = append(e.Touched, "/"+at)
	return nil
}

// Link implements repair.Editor.
func (e *Editor) Link(name, target string) error {
	at, err := e.placeOf(name)
	if err != nil {
		return err
	}
	if f, err := e.entry(at); err == nil && f.Mode.IsDir() {
		return fmt.Errorf("%s: it is a folder", name)
	}
	if info, err := e.files.Lstat(path.Dir(at)); err != nil || !info.IsDir() {
		return fmt.Errorf("%s: its folder does not exist", name)
	}
	e.files[at] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777, Sys: &diagnose.Owner{}}
	return nil
}

// Mkdir implements repair.Editor.
func (e *Editor) Mkdir(name string) error {
	at, err := e.place(name)
	if err != nil {
		return err
	}
	if f, err := e.entry(at); err == nil {
		if f.Mode.IsDir() {
			return nil
		}
		return fmt.Errorf("%s: it exists and is no folder", name)
	}
	owner, missing := &diagnose.Owner{}, []string(nil)
	for parent := path.Dir(at); ; parent = path.Dir(parent) {
		if info, err := e.files.Lstat(parent); err == nil {
			owner.UID, owner.GID = diagnose.OwnerOf(info).UID, diagnose.OwnerOf(info).GID
			break
		}
	}
	for at != "." {
		if _, err := e.files.Lstat(at); err == nil {
			break
		}
		missing = append(missing, at)
		at = path.Dir(at)
	}
	for _, name := range missing {
		e.files[name] = &fstest.MapFile{Mode: fs.ModeDir | 0o755, Sys: owner}
	}
	return nil
}

// Remove implements repair.Editor.
func (e *Editor) Remove(name string) error {
	at, err := e.placeOf(name)
	if err != nil {
		return err
	}
	if _, err := e.entry(at); err != nil {
		return err
	}
	for other := range e.files {
		if strings.HasPrefix(other, at+"/") {
			return fmt.Errorf("%s: the folder is not empty", name)
		}
	}
	delete(e.files, at)
	return nil
}

// Rename implements repair.Editor.
func (e *Editor) Rename(name, base string) error {
	if base == "" || strings.Contains(base, "/") {
		return fmt.Errorf("%q is no name of a file", base)
	}
	at, err := e.placeOf(name)
	if err != nil {
		return err
	}
	f, err := e.entry(at)
	if err != nil {
		return err
	}
	to := path.Join(path.Dir(at), base)
	if e.files[to] != nil {
		return fmt.Errorf("/%s exists", to)
	}
	delete(e.files, at)
	e.files[to] = f
	return nil
}

// Chmod implements repair.Editor.
func (e *Editor) Chmod(name string, mode fs.FileMode) error {
	return e.change(name, func(f *fstest.MapFile) { f.Mode = f.Mode&fs.ModeType | mode&^fs.ModeType })
}

// Chown implements repair.Editor. As in Linux, it clears setuid and setgid of files.
func (e *Editor) Chown(name string, uid, gid uint32) error {
	return e.change(name, func(f *fstest.MapFile) {
		owner := diagnose.Owner{}
		if o, ok := f.Sys.(*diagnose.Owner); ok && o != nil {
			owner = *o
		}
		owner.UID, owner.GID = uid, gid
		f.Sys = &owner
		if f.Mode.IsRegular() {
			f.Mode &^= fs.ModeSetuid | fs.ModeSetgid
		}
	})
}

func (e *Editor) change(name string, change func(*fstest.MapFile)) error {
	at, err := e.place(name)
	if err != nil {
		return err
	}
	f, err := e.entry(at)
	if err != nil {
		return err
	}
	change(f)
	e.files[at] = f
	return nil
}

// Run implements repair.Editor by a fake of the program.
func (e *Editor) Run(_ context.Context, p repair.Program) (string, error) {
	if len(p.Command) == 0 || !path.IsAbs(p.Command[0]) {
		return "", fmt.Errorf("the command %q names no absolute path", p.Command)
	}
	info, err := diagnose.NewTree(e.files).Stat(p.Command[0])
	if err != nil {
		return "", err
	}
	if info.Mode()&0o111 == 0 {
		return "", fmt.Errorf("%s is not executable", p.Command[0])
	}
	e.Runs = append(e.Runs, p)
	fake := e.Programs[path.Base(p.Command[0])]
	if fake == nil {
		return "", fmt.Errorf("the test has no fake of %s", p.Command[0])
	}
	touched := e.Touched
	err = fake(e, p)
	e.Touched = touched
	return "", err
}

// WriteBlocks implements repair.Editor.
func (e *Editor) WriteBlocks(device string, offset int64, content []byte) error {
	for i := range e.system.Devices {
		d := &e.system.Devices[i]
		if d.Path != device {
			continue
		}
		if d.Content == nil || offset < 0 || offset+int64(len(content)) > d.Size {
			return fmt.Errorf("%s: %d bytes at %d are not in the device", device, len(content), offset)
		}
		devices := slices.Clone(e.system.Devices)
		devices[i].Content = &changedBlocks{base: d.Content, at: offset, content: slices.Clone(content)}
		e.system.Devices = devices
		e.Blocks = append(e.Blocks, device)
		return nil
	}
	return fmt.Errorf("the machine has no device %s", device)
}

// Setting implements repair.Editor.
func (e *Editor) Setting(s repair.Setting) error {
	e.Settings = append(e.Settings, s)
	return nil
}

// changedBlocks is a device with a range that was written.
type changedBlocks struct {
	base    io.ReaderAt
	at      int64
	content []byte
}

// ReadAt implements io.ReaderAt.
func (b *changedBlocks) ReadAt(p []byte, at int64) (int, error) {
	n, err := b.base.ReadAt(p, at)
	from, to := max(at, b.at), min(at+int64(n), b.at+int64(len(b.content)))
	if from < to {
		copy(p[from-at:to-at], b.content[from-b.at:to-b.at])
	}
	return n, err
}
