package repair

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"salvor/problem"
	"salvor/repair"
)

// Write implements repair.Editor.
func (e *systemEditor) Write(name string, content []byte) error {
	if len(content) > maxContent {
		return problem.Unsupportedf("%s: %d bytes are more than a repair writes to one file", name, len(content))
	}
	place, err := e.resolve(name, false)
	if err != nil {
		return err
	}
	wanted, err := e.root.metadata(place)
	if err != nil {
		return err
	}
	if wanted != nil && wanted.Kind != "file" {
		return problem.Unsupportedf("%s is a %s", name, wanted.Kind)
	}
	if wanted == nil {
		if wanted, err = e.newState(name, place, "file", 0o644); err != nil {
			return err
		}
	}
	if err := e.put(place, wanted, content); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// newState describes what is to be made at a place: it gets the owner and the SELinux label of its folder.
func (e *systemEditor) newState(name, place, kind string, mode uint32) (*repair.FileState, error) {
	folder, err := e.root.metadata(path.Dir(place))
	if err != nil {
		return nil, err
	}
	if folder == nil || folder.Kind != "folder" {
		return nil, problem.NotFoundf("%s: it lies in no folder", name)
	}
	return &repair.FileState{Kind: kind, Mode: mode, UID: folder.UID, GID: folder.GID, Attributes: labelOf(folder)}, nil
}

// present describes what lies at a place without its content; fs.ErrNotExist without anything there.
func (e *systemEditor) present(operation, name, place string) (*repair.FileState, error) {
	s, err := e.root.metadata(place)
	if err == nil && s == nil {
		err = &os.PathError{Op: operation, Path: name, Err: fs.ErrNotExist}
	}
	return s, err
}

// labelOf is the SELinux label of a folder, which what is made in it gets.
func labelOf(folder *repair.FileState) map[string][]byte {
	const label = "security.selinux"
	if value, ok := folder.Attributes[label]; ok {
		return map[string][]byte{label: value}
	}
	return nil
}

// replace has something made under a temporary name, filled, and renamed into its place.
func (e *systemEditor) replace(place string, create func(folder int, temporary string) error, fill func(at string) error) error {
	folder, name, err := e.root.openFolder(place)
	if err != nil {
		return err
	}
	defer folder.Close()
	e.temporary++
	temporary := fmt.Sprintf("%s%d", temporaryName, e.temporary)
	if err := create(int(folder.Fd()), temporary); err != nil {
		return err
	}
	err = fill(path.Join(path.Dir(place), temporary))
	if err == nil {
		err = unix.Renameat(int(folder.Fd()), temporary, int(folder.Fd()), name)
	}
	if err != nil {
		return errors.Join(err, unix.Unlinkat(int(folder.Fd()), temporary, 0))
	}
	return folder.Sync()
}

// put makes a file as a state describes it.
func (e *systemEditor) put(place string, wanted *repair.FileState, content []byte) error {
	var f *os.File
	create := func(folder int, temporary string) error {
		fd, err := unix.Openat(folder, temporary, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err == nil {
			f = os.NewFile(uintptr(fd), temporary)
		}
		return err
	}
	return e.replace(place, create, func(at string) error {
		_, err := f.Write(content)
		if err == nil {
			err = e.applyMetadata(at, wanted)
		}
		if err == nil {
			err = f.Sync()
		}
		return errors.Join(err, f.Close())
	})
}

// applyMetadata gives what lies at a place the owner, the extended attributes and the mode of a state. File systems without owners take what they have.
func (e *systemEditor) applyMetadata(place string, wanted *repair.FileState) error {
	present, err := e.present("describe", place, place)
	if err != nil {
		return err
	}
	if present.Kind == "link" && wanted.Kind != "link" { // a change of the mode would follow it
		return problem.Conflictf("%s is a link and was a %s", place, wanted.Kind)
	}
	name, closer, err := e.root.linkPath(place)
	if err != nil {
		return err
	}
	defer closer()
	if present.UID != wanted.UID || present.GID != wanted.GID {
		if err := unix.Lchown(name, int(wanted.UID), int(wanted.GID)); err != nil {
			return fmt.Errorf("give it to %d:%d: %w", wanted.UID, wanted.GID, err)
		}
	}
	// An ACL changes the mode, and a change of the owner takes setuid and capabilities away: so the mode is last but one.
	if err := applyAttributes(name, wanted.Attributes, present.Attributes); err != nil {
		return err
	}
	if present, err = e.present("describe", place, place); err != nil {
		return err
	}
	if wanted.Kind != "link" && present.Mode != wanted.Mode {
		if err := unix.Fchmodat(unix.AT_FDCWD, name, wanted.Mode, 0); err != nil {
			return fmt.Errorf("give it the mode %#o: %w", wanted.Mode, err)
		}
	}
	return nil
}

// Link implements repair.Editor.
func (e *systemEditor) Link(name, target string) error {
	place, err := e.resolve(name, true)
	if err != nil {
		return err
	}
	wanted, err := e.root.metadata(place)
	if err != nil {
		return err
	}
	if wanted != nil && wanted.Kind == "folder" {
		return problem.Unsupportedf("%s is a folder", name)
	}
	if wanted == nil || wanted.Kind != "link" {
		if wanted, err = e.newState(name, place, "link", 0); err != nil {
			return err
		}
	}
	if err := e.putLink(place, target, wanted); err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	return nil
}

// putLink makes a link with the owner and the extended attributes of a state.
func (e *systemEditor) putLink(place, target string, wanted *repair.FileState) error {
	create := func(folder int, temporary string) error { return unix.Symlinkat(target, folder, temporary) }
	return e.replace(place, create, func(at string) error { return e.applyMetadata(at, wanted) })
}

// Mkdir implements repair.Editor.
func (e *systemEditor) Mkdir(name string) error {
	if info, err := e.System().Files.Stat(name); err == nil && info.IsDir() {
		return nil
	}
	if parent := path.Dir(path.Clean(name)); parent != "/" {
		if err := e.Mkdir(parent); err != nil {
			return err
		}
	}
	place, err := e.resolve(name, false)
	if err != nil {
		return err
	}
	wanted, err := e.newState(name, place, "folder", 0o755)
	if err != nil {
		return err
	}
	return e.makeFolder(place, wanted)
}

func (e *systemEditor) makeFolder(place string, wanted *repair.FileState) error {
	folder, base, err := e.root.openFolder(place)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := unix.Mkdirat(int(folder.Fd()), base, 0o700); err != nil {
		return &os.PathError{Op: "mkdir", Path: place, Err: err}
	}
	if err := e.applyMetadata(place, wanted); err != nil {
		return fmt.Errorf("make the folder %s: %w", place, err)
	}
	return folder.Sync()
}

// Remove implements repair.Editor.
func (e *systemEditor) Remove(name string) error {
	place, err := e.resolve(name, true)
	if err != nil {
		return err
	}
	return e.remove(place)
}

func (e *systemEditor) remove(place string) error {
	present, err := e.present("remove", place, place)
	if err != nil {
		return err
	}
	folder, base, err := e.root.openFolder(place)
	if err != nil {
		return err
	}
	defer folder.Close()
	flags := 0
	if present.Kind == "folder" {
		flags = unix.AT_REMOVEDIR
	}
	if err := unix.Unlinkat(int(folder.Fd()), base, flags); err != nil {
		return &os.PathError{Op: "remove", Path: place, Err: err}
	}
	return folder.Sync()
}

// Rename implements repair.Editor.
func (e *systemEditor) Rename(name, to string) error {
	if to == "" || to == "." || to == ".." || strings.Contains(to, "/") {
		return problem.Invalidf("rename %s: %q is no name within its folder", name, to)
	}
	place, err := e.resolve(name, true)
	if err != nil {
		return err
	}
	present, err := e.present("rename", name, place)
	if err != nil {
		return err
	}
	if present.Kind == "folder" {
		return problem.Unsupportedf("rename %s: it is a folder", name)
	}
	if err := e.note(path.Join(path.Dir(place), to)); err != nil {
		return err
	}
	folder, base, err := e.root.openFolder(place)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := unix.Renameat2(int(folder.Fd()), base, int(folder.Fd()), to, unix.RENAME_NOREPLACE); err != nil {
		return fmt.Errorf("rename %s to %s: %w", name, to, err)
	}
	return folder.Sync()
}
