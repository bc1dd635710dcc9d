package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"salvor/problem"
)

const (
	// ownGroups is where the agent mounts the control groups of the ramdisk if nothing else has.
	ownGroups = "/run/salvor/groups"
	// maxProcesses bounds the processes and threads of a program with its children.
	maxProcesses = 512
)

// tooManyProcesses is why a program was ended.
var tooManyProcesses = fmt.Sprintf("it starts more than %d processes", maxProcesses)

// groupControllers bound a program. All of them have to be there.
var groupControllers = []string{"memory", "pids"}

// hasControllers says whether a folder is the root of control groups of version 2 with all controllers.
func hasControllers(folder string) bool {
	var stat unix.Statfs_t
	if unix.Statfs(folder, &stat) != nil || stat.Type != unix.CGROUP2_SUPER_MAGIC {
		return false
	}
	b, err := os.ReadFile(filepath.Join(folder, "cgroup.controllers"))
	present := strings.Fields(string(b))
	return err == nil && !slices.ContainsFunc(groupControllers, func(c string) bool { return !slices.Contains(present, c) })
}

// enableControllers lets groups below a folder bound memory and processes. In a container, the kernel may refuse that.
func enableControllers(folder string) error {
	if err := os.WriteFile(filepath.Join(folder, "cgroup.subtree_control"), []byte("+"+strings.Join(groupControllers, " +")), 0o644); err != nil {
		return fmt.Errorf("use the controllers of control groups: %w", err)
	}
	return nil
}

// mountedGroups is where control groups are mounted that bound memory and processes; empty where none are.
func mountedGroups() string {
	for _, folder := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", ownGroups} {
		if hasControllers(folder) && enableControllers(folder) == nil {
			return folder
		}
	}
	return ""
}

// prepareGroups mounts control groups where the ramdisk has none mounted, and returns where they are. Without the controllers it is empty: then only
// the memory of each process for itself is bounded, and watchProcesses bounds their number.
func prepareGroups(log *slog.Logger) string {
	if folder := mountedGroups(); folder != "" {
		return folder
	}
	err := os.MkdirAll(ownGroups, 0o755)
	if err == nil {
		err = unix.Mount("salvor", ownGroups, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	}
	if err == nil {
		if !hasControllers(ownGroups) {
			err = errors.New("the kernel has no controllers of memory and processes for control groups of version 2")
		} else {
			err = enableControllers(ownGroups)
		}
		if err != nil {
			err = errors.Join(err, unix.Unmount(ownGroups, 0))
		}
	}
	if err != nil {
		log.Warn("no control group bounds the memory of a program of the system; each of its processes has a limit of its own", "error", err)
		return ""
	}
	return ownGroups
}

// programGroup is the control group of one program with its children.
type programGroup struct {
	folder string
	*os.File
}

// makeGroup makes a control group below root, whose controllers are enabled. It bounds the memory of a program, in bytes, and the number of its processes.
func makeGroup(root string, memory int64) (*programGroup, error) {
	folder, err := os.MkdirTemp(root, "salvor-repair-")
	if err != nil {
		return nil, err
	}
	g := &programGroup{folder: folder}
	for _, limit := range []struct{ name, value string }{
		{"memory.max", strconv.FormatInt(memory, 10)}, {"memory.swap.max", "0"}, {"memory.oom.group", "1"}, {"pids.max", strconv.Itoa(maxProcesses)},
	} {
		err := os.WriteFile(filepath.Join(folder, limit.name), []byte(limit.value), 0o644)
		if err != nil && (limit.name != "memory.swap.max" || !errors.Is(err, fs.ErrNotExist)) { // a kernel without swap has no bound for it
			return nil, errors.Join(fmt.Errorf("set %s of a control group: %w", limit.name, err), g.remove())
		}
	}
	if g.File, err = os.Open(folder); err != nil {
		return nil, errors.Join(err, g.remove())
	}
	return g, nil
}

// exceeded is why the group has ended or refused processes: problem.Unavailable where memory or their number was over; nil otherwise.
func (g *programGroup) exceeded(memory int64) error {
	for _, bound := range []struct{ file, event, why string }{
		{"memory.events", "oom_kill", fmt.Sprintf("it needs more than %d MiB of memory: a machine with more memory has room for it", memory>>20)},
		{"pids.events", "max", tooManyProcesses},
	} {
		b, err := os.ReadFile(filepath.Join(g.folder, bound.file))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if name, count, _ := strings.Cut(strings.TrimSpace(line), " "); name == bound.event && count != "0" {
				return problem.Unavailablef("%s", bound.why)
			}
		}
	}
	return nil
}

// remove ends what is left in the group and removes it.
func (g *programGroup) remove() error {
	if g.File != nil {
		_ = g.Close()
	}
	_ = os.WriteFile(filepath.Join(g.folder, "cgroup.kill"), []byte("1"), 0o644) // older kernels have none; the namespace has ended all
	return unix.Rmdir(g.folder)
}
