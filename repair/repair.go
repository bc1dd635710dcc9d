// Package repair mends what a diagnosis found. It holds the types of a repair: the editor through which a mend changes an installed system, and
// the plan that an owner consents to. It is pure. repair/system holds the mends. The agent in the ramdisk carries them out on overlays in memory, and
// the conductor keeps the plan, the consent and what undoes the repair.
//
// A repair has three steps. The agent mends the system on overlays and examines the result again: that is the plan. The owner consents to the
// plan's digest. Then the agent writes the changed chunks from the overlays to the disks, reads them back, and the machine's own system boots.
package repair

import (
	"context"
	"io/fs"
	"time"

	"salvor/diagnose"
)

// Mend repairs one kind of finding.
type Mend struct {
	// Finding is the id of the findings that it repairs.
	Finding string
	Consent diagnose.Consent
	// Do changes the system. It is given every finding with its id, one after the other. problem.Unsupported: this one cannot be repaired; its text
	// tells the owner why. The caller then puts back what the mend has changed.
	Do func(ctx context.Context, e Editor, f diagnose.Finding) error
}

// Editor changes one installed system on an overlay. Its paths are absolute in the system; links are followed within its root, and no path leads
// out. All that it changes is noted for the plan, with what was there before.
type Editor interface {
	// System is the system with the changes made so far.
	System() *diagnose.System
	// Write puts a regular file in its place by rename. An existing one keeps its owner, mode, extended attributes, ACL and label; a new one has
	// mode 0644, the folder's owner and, where the system uses SELinux, the folder's label.
	Write(path string, content []byte) error
	// Link makes or replaces a symbolic link.
	Link(path, target string) error
	// Mkdir makes a folder with its parents, of mode 0755 and the owner of the nearest existing one.
	Mkdir(path string) error
	// Remove removes a file, a link or an empty folder.
	Remove(path string) error
	// Rename moves a file within its folder, such as one that is set aside.
	Rename(path, name string) error
	// Chmod sets the permission bits, with setuid, setgid and sticky.
	Chmod(path string, mode fs.FileMode) error
	Chown(path string, uid, gid uint32) error
	// Run runs a program of the system itself, such as update-initramfs, in namespaces of its own without a network. What it changes below the
	// given folders is noted. A failure to start and an exit status other than 0 are errors.
	Run(ctx context.Context, r Program) (output string, err error)
	// WriteBlocks writes to a disk, a partition or a volume of the machine, outside of any mounted file system.
	WriteBlocks(device string, offset int64, content []byte) error
	// Setting notes a change outside of the disks, which is carried out after the disks have been written.
	Setting(s Setting) error
}

// Program is a program of the system under repair.
type Program struct {
	// Command is its absolute path in the system and its arguments.
	Command []string
	// Environment in addition to PATH, LC_ALL=C and SOURCE_DATE_EPOCH.
	Environment []string
	// Changes lists the folders and files that it may change, such as /boot; all else is read-only, but for /tmp, /var/tmp and /run, which are its
	// own. A disk, such as /dev/sda, lets it write to what lies before the first partition, and to partitions for BIOS boot code.
	Changes []string
	// Devices lists the devices of the machine that it needs to read, such as /dev/sda1. It is shown no others but those of Changes.
	Devices []string
	// Limit bounds its time; 0: five minutes.
	Limit time.Duration
}

// SettingKind says what a setting is.
type SettingKind string

// Kinds of settings. The value of boot-order is the numbers of Boot#### variables in hexadecimal, separated by commas; of boot-entry it is
// NUMBER,NAME,PARTUUID,LOADER; of clock it is empty, because the ramdisk takes the time from the control plane; of boot-device it is what
// the Bare Metal API calls it: disk, pxe, cdrom.
const (
	BootOrder  SettingKind = "boot-order"
	BootEntry  SettingKind = "boot-entry"
	Clock      SettingKind = "clock"
	BootDevice SettingKind = "boot-device"
)

// Setting is a change outside of the disks.
type Setting struct {
	Kind   SettingKind `json:"kind"`
	Before string      `json:"before"`
	After  string      `json:"after"`
}
