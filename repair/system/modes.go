package system

import (
	"io/fs"
	"path"

	"salvor/diagnose"
)

// setMode gives a path permission bits as chmod takes them, such as 0o4755, unless it has them.
func (c *repairCase) setMode(name string, bits uint32) error {
	mode := fs.FileMode(bits & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			mode |= flag
		}
	}
	return c.changeMode(name, func(fs.FileMode) fs.FileMode { return mode })
}

// changeMode changes the permission bits of a path, setuid, setgid and sticky among them.
func (c *repairCase) changeMode(name string, change func(fs.FileMode) fs.FileMode) error {
	info, err := c.system.Files.Stat(name)
	if err != nil {
		return c.unsupported("%s cannot be examined: %v", name, err)
	}
	const bits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
	before := info.Mode() & bits
	if after := change(before) & bits; after != before {
		if err := c.editor.Chmod(name, after); err != nil {
			return err
		}
		c.reload()
	}
	return nil
}

// setOwner gives a path to an owner, unless it is theirs. The kernel clears setuid and setgid then, so the mode is set after it.
func (c *repairCase) setOwner(name string, uid, gid uint32) error {
	info, err := c.system.Files.Stat(name)
	if err != nil {
		return c.unsupported("%s cannot be examined: %v", name, err)
	}
	if owner := diagnose.OwnerOf(info); owner.UID == uid && owner.GID == gid {
		return nil
	}
	if err := c.editor.Chown(name, uid, gid); err != nil {
		return err
	}
	c.reload()
	return nil
}

// exists says whether something lies at a path, a link that leads nowhere included.
func (c *repairCase) exists(name string) bool {
	_, err := c.system.Files.Lstat(name)
	return err == nil
}

// removeFile removes a file or a link that is there.
func (c *repairCase) removeFile(name string) error {
	if !c.exists(name) {
		return nil
	}
	if err := c.editor.Remove(name); err != nil {
		return err
	}
	c.reload()
	return nil
}

// disableFile renames a file so that nothing reads it.
func (c *repairCase) disableFile(name string) error {
	if c.exists(name + DisabledEnding) {
		return c.unsupported("%s exists; move it away, so that %s can be renamed to it", name+DisabledEnding, name)
	}
	if err := c.editor.Rename(name, path.Base(name)+DisabledEnding); err != nil {
		return err
	}
	c.reload()
	return nil
}

// makeLink makes a link and the folder that holds it.
func (c *repairCase) makeLink(name, target string) error {
	if err := c.makeFolderOf(name); err != nil {
		return err
	}
	if err := c.editor.Link(name, target); err != nil {
		return err
	}
	c.reload()
	return nil
}
