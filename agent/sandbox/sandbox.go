// Package sandbox runs programs of an installed system on its mounted root, in namespaces of their own. A program has no network, and bounds of time,
// memory, output and processes. A program sees only the devices that its caller names. The package must not know repairs, examinations or rules.
package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// failedStatus is the exit status of the first process where it did not start the program, and tooManyStatus where it ended the program
	// because of its processes.
	failedStatus  = 125
	tooManyStatus = 124
	orderFile     = 3
	maxOrderSize  = 1 << 20
)

// plainDevices are the devices without hardware behind them that a program is given.
var plainDevices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// keptCapabilities are what a program may do as root: with the files of its system, and with its own processes. They count in its own user
// namespace only.
var keptCapabilities = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETFCAP,
}

// RunInSystem is the first process in the namespaces of a program. It reads its order from descriptor 3, makes a root, gives its rights up, runs
// the program, and returns its exit status; the kernel ends everything else in the namespaces then.
func RunInSystem(out io.Writer) int {
	runtime.LockOSThread() // rights are those of a thread
	exit, err := runInSystem()
	if err != nil {
		fmt.Fprintln(out, err)
		return failedStatus
	}
	return exit
}

func runInSystem() (int, error) {
	var order processOrder
	pipe := os.NewFile(orderFile, "order")
	if err := json.NewDecoder(io.LimitReader(pipe, maxOrderSize)).Decode(&order); err != nil {
		return 0, fmt.Errorf("read what to run: %w", err)
	}
	if err := pipe.Close(); err != nil {
		return 0, err
	}
	if os.Getpid() != 1 || len(order.Command) == 0 {
		return 0, errors.New("this is not the first process of its namespaces")
	}
	if err := makeRoot(order); err != nil {
		return 0, err
	}
	if err := unix.Sethostname([]byte("repair")); err != nil {
		return 0, fmt.Errorf("set the host name: %w", err)
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	writable := slices.Concat(order.Writable, order.WritableNodes, []string{"/tmp", optionalTmp, "/run"})
	for _, name := range plainDevices {
		writable = append(writable, "/dev/"+name)
	}
	if err := dropRights(order.Memory, writable, len(order.WritableNodes) > 0); err != nil {
		return 0, err
	}
	// The parent of the agent may have left descriptors open. Pipes and sockets would lead out of the namespaces.
	if err := unix.CloseRange(orderFile, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return 0, fmt.Errorf("close the descriptors of others: %w", err)
	}
	go watchProcesses(func() { os.Exit(tooManyStatus) })
	pid, err := syscall.ForkExec(order.Command[0], order.Command, &syscall.ProcAttr{
		Dir: "/", Env: order.Environment, Files: []uintptr{null.Fd(), 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", order.Command[0], err)
	}
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, err
		case ended != pid:
		case status.Signaled():
			return 128 + int(status.Signal()), nil
		case status.ExitStatus() == failedStatus, status.ExitStatus() == tooManyStatus:
			return 1, nil // a program's own status is not taken for ours
		default:
			return status.ExitStatus(), nil
		}
	}
}

// newMount is a mount of the new root.
type newMount struct {
	place, source, kind, options string
	flags                        uintptr
}

const (
	// optionalTmp is where some programs that build an initramfs put their files.
	optionalTmp = "/var/tmp"
	sysFolder   = "/sys"
)

// protectRoot makes the whole root read-only but for some places, which become mounts of their own.
func protectRoot(root *Root, writable []string) error {
	for _, place := range writable {
		f, err := root.Open(place, unix.O_PATH)
		if err != nil {
			return err
		}
		err = unix.Mount(KernelPath(f), KernelPath(f), "", unix.MS_BIND|unix.MS_REC, "")
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("bind %s: %w", place, err)
		}
	}
	const recursive = unix.AT_EMPTY_PATH | unix.AT_RECURSIVE
	if err := unix.MountSetattr(int(root.Fd()), "", recursive, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make the system read-only: %w", err)
	}
	for _, place := range writable {
		f, err := root.Open(place, unix.O_PATH) // now that of the mount
		if err != nil {
			return err
		}
		err = unix.MountSetattr(int(f.Fd()), "", recursive, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("make %s writable: %w", place, err)
		}
	}
	return nil
}

// makeRoot makes the mounted system the root, with a /proc, /sys, /dev, /run and /tmp of its own.
func makeRoot(order processOrder) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("part with the mounts of the ramdisk: %w", err)
	}
	if err := unix.Mount(order.Place, order.Place, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", order.Place, err)
	}
	root, err := OpenRoot(order.Place)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := protectRoot(root, order.Writable); err != nil {
		return err
	}
	const noDevices = unix.MS_NOSUID | unix.MS_NODEV
	for _, m := range []newMount{
		// Root here is root of the ramdisk to the files of proc, such as sysrq-trigger.
		{"/proc", "proc", "proc", "", unix.MS_RDONLY | noDevices | unix.MS_NOEXEC},
		{sysFolder, "sys", "tmpfs", "mode=0755,size=64k", noDevices | unix.MS_NOEXEC},
		{"/dev", "dev", "tmpfs", "mode=0755,size=1m,nr_inodes=2048", unix.MS_NOSUID | unix.MS_NOEXEC},
		{"/run", "run", "tmpfs", fmt.Sprintf("mode=0755,size=%d", order.Files), noDevices},
		{"/tmp", "tmp", "tmpfs", fmt.Sprintf("mode=1777,size=%d", order.Files), noDevices},
		{optionalTmp, "tmp", "tmpfs", fmt.Sprintf("mode=1777,size=%d", order.Files), noDevices},
	} {
		folder, err := root.Open(m.place, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil && (m.place == optionalTmp || m.place == sysFolder) {
			continue // it is missing, or /var/tmp is a link to /tmp
		}
		if err != nil {
			return fmt.Errorf("the system has no folder for %s: %w", m.place, err)
		}
		err = unix.Mount(m.source, KernelPath(folder), m.kind, m.flags, m.options)
		if err := errors.Join(err, folder.Close()); err != nil {
			return fmt.Errorf("mount %s: %w", m.place, err)
		}
	}
	if err := makeFolders(root, order.Folders); err != nil {
		return fmt.Errorf("make its /run: %w", err)
	}
	if err := makeDevices(root, order.Nodes); err != nil {
		return fmt.Errorf("make its /dev: %w", err)
	}
	if err := showSysfs(root, order.Nodes); err != nil {
		return fmt.Errorf("make its /sys: %w", err)
	}
	return changeRoot(root)
}

// makeFolders makes folders in the new /run.
func makeFolders(root *Root, folders []string) error {
	if len(folders) == 0 {
		return nil
	}
	run, err := root.Open("/run", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer run.Close()
	for _, name := range folders {
		inside, ok := strings.CutPrefix(path.Clean(name), "/run/")
		if !ok {
			return fmt.Errorf("%s does not lie below /run", name)
		}
		if err := os.MkdirAll(filepath.Join(KernelPath(run), inside), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// virtualBlocks has a folder for each block device that the kernel makes up, such as loop devices and those of the device mapper.
const virtualBlocks = "devices/virtual/block"

// showSysfs mounts of sysfs the folders of the nodes' devices, read-only: grub-probe asks them where partitions begin. A program sees no other device
// there, because to read a register of the machine may change it.
func showSysfs(root *Root, nodes map[string]string) error {
	sys, err := root.Open(sysFolder, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil // the system has no such folder
	}
	defer sys.Close()
	top := KernelPath(sys)
	numbers := filepath.Join(top, "dev/block")
	if err := os.MkdirAll(numbers, 0o755); err != nil {
		return err
	}
	for _, node := range nodes {
		if err := showDevice(top, path.Base(node)); err != nil {
			return fmt.Errorf("%s: %w", node, err)
		}
	}
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	return unix.Mount("", top, "", unix.MS_REMOUNT|unix.MS_BIND|flags, "")
}

// showDevice mounts the folder of a device, or of the one that it is a partition of, and links its number there. What the kernel does not make up
// is left out.
func showDevice(top, name string) error {
	target, err := os.Readlink(filepath.Join("/sys/class/block", name))
	_, inside, isVirtual := strings.Cut(target, virtualBlocks+"/")
	if err != nil || !isVirtual {
		return nil
	}
	number, err := os.ReadFile(filepath.Join("/sys/class/block", name, "dev"))
	if err != nil {
		return err
	}
	link := filepath.Join(top, "dev/block", strings.TrimSpace(string(number)))
	if err := os.Symlink("../../"+virtualBlocks+"/"+inside, link); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	}
	disk, _, _ := strings.Cut(inside, "/")
	place := filepath.Join(top, virtualBlocks, disk)
	if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(place, 0o755); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil // another partition of it is shown
		}
		return err
	}
	if err := unix.Mount(filepath.Join("/sys", virtualBlocks, disk), place, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.MountSetattr(unix.AT_FDCWD, place, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC})
}

// makeDevices shows nodes of the ramdisk's /dev: in a user namespace none can be made.
func makeDevices(root *Root, nodes map[string]string) error {
	dev, err := root.Open("/dev", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dev.Close()
	top := KernelPath(dev)
	show := func(name string) error {
		place := filepath.Join(top, name)
		f, err := os.OpenFile(place, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.Join(f.Close(), unix.Mount("/dev/"+name, place, "", unix.MS_BIND, ""))
	}
	for _, name := range plainDevices {
		if err := show(name); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(target, filepath.Join(top, name)); err != nil {
			return err
		}
	}
	for name, node := range nodes {
		base, ok := strings.CutPrefix(node, "/dev/")
		alias, isDevice := strings.CutPrefix(path.Clean(name), "/dev/")
		if !ok || strings.Contains(base, "/") || !isDevice {
			return fmt.Errorf("%s is no node of an overlay", node)
		}
		if err := show(base); err != nil {
			return err
		}
		if alias == base {
			continue
		}
		if err := os.MkdirAll(filepath.Join(top, filepath.Dir(alias)), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(node, filepath.Join(top, alias)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// changeRoot makes a folder the root of the namespace. The kernel moves the mount of an initramfs nowhere; there the new root lies over it.
func changeRoot(root *Root) error {
	if err := unix.Fchdir(int(root.Fd())); err != nil {
		return err
	}
	err := unix.PivotRoot(".", ".")
	switch {
	case err == nil:
		err = unix.Unmount(".", unix.MNT_DETACH)
	case errors.Is(err, unix.EINVAL):
		if err = unix.Mount(".", "/", "", unix.MS_MOVE, ""); err == nil {
			err = unix.Chroot(".")
		}
	}
	if err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	return os.Chdir("/")
}

// lowPriority is the nice value of the program, so that this process sees a loop of forks in time.
const lowPriority = 10

// dropRights takes from this thread, and from what it starts, what the program does not need. It may write at and below the named paths only.
// A program that writes to a device is refused by a kernel without Landlock, where it could write to each device that it is shown.
func dropRights(memory int64, writable []string, writesDevice bool) error {
	for resource, limit := range map[int]uint64{
		// RLIMIT_DATA bounds the memory that a process alone may write, without the files that the process maps.
		unix.RLIMIT_DATA: uint64(memory), unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: 1024, unix.RLIMIT_MEMLOCK: 0, unix.RLIMIT_MSGQUEUE: 0,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("set limit %d: %w", resource, err)
		}
	}
	// Access is denied where the priority is lower already.
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, lowPriority); err != nil && !errors.Is(err, unix.EACCES) {
		return fmt.Errorf("lower the priority: %w", err)
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if slices.Contains(keptCapabilities, c) {
			continue
		}
		// A capability that the kernel does not know is none.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("refuse new rights: %w", err)
	}
	hasLandlock, err := refuseWrites(writable)
	if err == nil && !hasLandlock && writesDevice {
		err = errLandlock
	}
	if err != nil {
		return err
	}
	return refuseCalls()
}
