package system

import (
	"io/fs"
	"path"
	"strings"

	"salvor/problem"
	"salvor/repair"
)

// contentStores are folders whose files are named by checksums of their content. The package manager never changes a file there, and several generations
// of a system share it: NixOS and Guix keep /etc there by links.
var contentStores = []string{"/nix/store", "/gnu/store", "/ostree/repo"}

// storeGuard is an editor that changes nothing in a content store.
type storeGuard struct{ repair.Editor }

// refuse returns problem.Unsupported where a path leads into a content store.
func (g storeGuard) refuse(name string) error {
	place, err := g.System().Files.Resolve(name)
	if err != nil && place == "" {
		return nil // the editor says what is wrong
	}
	for _, store := range contentStores {
		if strings.HasPrefix(path.Clean(place), store+"/") {
			return problem.Unsupportedf("%s lies in %s, whose files never change; change the configuration that it is made from, or boot a former generation of the system", name, store)
		}
	}
	return nil
}

// refuseEntry is refuse for a path itself, which may be a link.
func (g storeGuard) refuseEntry(name string) error {
	return g.refuse(path.Dir(path.Clean(name)) + "/.")
}

// Write implements repair.Editor.
func (g storeGuard) Write(name string, content []byte) error {
	if err := g.refuse(name); err != nil {
		return err
	}
	return g.Editor.Write(name, content)
}

// Link implements repair.Editor.
func (g storeGuard) Link(name, target string) error {
	if err := g.refuseEntry(name); err != nil {
		return err
	}
	return g.Editor.Link(name, target)
}

// Mkdir implements repair.Editor.
func (g storeGuard) Mkdir(name string) error {
	if err := g.refuse(name); err != nil {
		return err
	}
	return g.Editor.Mkdir(name)
}

// Remove implements repair.Editor.
func (g storeGuard) Remove(name string) error {
	if err := g.refuseEntry(name); err != nil {
		return err
	}
	return g.Editor.Remove(name)
}

// Rename implements repair.Editor.
func (g storeGuard) Rename(name, base string) error {
	if err := g.refuseEntry(name); err != nil {
		return err
	}
	return g.Editor.Rename(name, base)
}

// Chmod implements repair.Editor.
func (g storeGuard) Chmod(name string, mode fs.FileMode) error {
	if err := g.refuse(name); err != nil {
		return err
	}
	return g.Editor.Chmod(name, mode)
}

// Chown implements repair.Editor.
func (g storeGuard) Chown(name string, uid, gid uint32) error {
	if err := g.refuse(name); err != nil {
		return err
	}
	return g.Editor.Chown(name, uid, gid)
}
