package sandbox

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rights over files that Landlock watches: to write to them, devices among them, and to move them to another folder. The second one would be
// refused everywhere if no rule named it.
const (
	writeAccess = unix.LANDLOCK_ACCESS_FS_WRITE_FILE
	moveAccess  = unix.LANDLOCK_ACCESS_FS_REFER
	// moveVersion is the first version of Landlock that knows the second one.
	moveVersion = 2
)

// errLandlock is why a program that writes to a device does not run.
var errLandlock = errors.New("it writes to a device, and the kernel of this ramdisk has no Landlock, which keeps it from the others: start a ramdisk whose kernel has it")

// refuseWrites lets this thread, and what it starts, write to files at and below some paths only. A read-only mount does not keep a program from
// writing to a device. hasLandlock is false on a kernel without it, where nothing is refused.
func refuseWrites(except []string) (hasLandlock bool, err error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errors.Is(errno, unix.ENOSYS) || errors.Is(errno, unix.EOPNOTSUPP) || errno == 0 && version < moveVersion {
		return false, nil
	}
	if errno != 0 {
		return false, fmt.Errorf("ask for the version of Landlock: %w", errno)
	}
	attributes := unix.LandlockRulesetAttr{Handled_access_fs: writeAccess | moveAccess}
	// Later fields of the structure are not known to each kernel that knows the first one.
	rules, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attributes)), unsafe.Sizeof(attributes.Handled_access_fs), 0)
	if errno != 0 {
		return false, fmt.Errorf("make rules of Landlock: %w", errno)
	}
	defer unix.Close(int(rules))
	for _, name := range except {
		if err := allowWrites(rules, name); err != nil && !errors.Is(err, unix.ENOENT) {
			return false, fmt.Errorf("allow writes to %s: %w", name, err)
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0, 0); errno != 0 {
		return false, fmt.Errorf("keep the rules of Landlock: %w", errno)
	}
	return true, nil
}

// allowWrites adds a rule for what lies at and below a path.
func allowWrites(rules uintptr, name string) error {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: writeAccess, Parent_fd: int32(fd)}
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR { // a file has no right of folders
		rule.Allowed_access |= moveAccess
	}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, rules, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
