//go:build causes

package oddsystem

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"salvor/lab/odd"
)

//go:embed testdata/container
var containerScript string

// containerLimit bounds the start of a system in a container, which takes some seconds. The machine decides where it takes longer.
const containerLimit = 3 * time.Minute

// startContainer starts the system below a folder in a container, on the processors of this machine: that takes some seconds, and a machine in QEMU a
// minute. It says what kept the owner out; empty: a shell answered over ssh.
func (w *world) startContainer(i installation, place string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), containerLimit)
	defer cancel()
	group := fmt.Sprintf("oddsystem-%d-%s", os.Getpid(), filepath.Base(filepath.Dir(place)))
	cmd := exec.CommandContext(ctx, "bash", "-c", containerScript, "container", place, i.owner, filepath.Join(w.dir, "owner_key"), group)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS}
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	err = errors.Join(err, removeGroup(group))
	said := strings.TrimSpace(strings.ToValidUTF8(string(out), "?"))
	switch {
	case ctx.Err() != nil:
		return "no shell within " + containerLimit.String(), nil
	case err != nil:
		return "", fmt.Errorf("the start in a container: %w: %.500s", err, said)
	case said == "in":
		return "", nil
	}
	return cmp.Or(said, "nothing was said"), nil
}

// removeGroup removes a control group, whose processes have ended.
func removeGroup(name string) error {
	hierarchy := "/sys/fs/cgroup/unified"
	if _, err := os.Stat(hierarchy); err != nil {
		hierarchy = "/sys/fs/cgroup"
	}
	var all []string
	err := filepath.WalkDir(filepath.Join(hierarchy, name), func(at string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			all = append(all, at)
		}
		return nil
	})
	for _, at := range slices.Backward(all) {
		err = errors.Join(err, unix.Rmdir(at))
	}
	return err
}

// touchedByContainer are the files and folders that the unchanged system reads while it starts in a container.
func (w *world) touchedByContainer(i installation) (*touched, error) {
	disk, err := w.copyDisk(i)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(disk))
	if err := edit(disk, forgetAccess); err != nil {
		return nil, err
	}
	err = mounted(disk, "relatime", func(place string) error {
		said, err := w.startContainer(i, place)
		if err == nil && said != "" {
			err = fmt.Errorf("%s does not start in a container without a change: %s", i.name, said)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	out := newTouched()
	return out, edit(disk, out.addAccessed)
}

// containerSees says whether a start in a container does with a changed file what a start of the machine does. What mounts and checks file systems or
// names devices stands still in a container, by conditions of its unit.
func (r *oddRun) containerSees(i installation, c odd.SystemChange) bool {
	if strings.HasPrefix(c.Path, "boot/") || c.Path == "etc/fstab" || strings.Contains(c.Path, "udev") || !r.containers[i.name].by(c) {
		return false
	}
	unit := path.Base(c.Path)
	if folder, found := strings.CutSuffix(path.Base(path.Dir(c.Path)), ".d"); found && isUnit(folder) {
		unit = folder
	}
	if !isUnit(unit) {
		return true
	}
	for _, folder := range []string{"etc/systemd/system", "usr/lib/systemd/system"} {
		text, err := fs.ReadFile(r.files[i.name], path.Join(folder, unit))
		if err == nil && (strings.Contains(string(text), "ConditionVirtualization") || strings.Contains(string(text), "ConditionPathIsReadWrite")) {
			return false
		}
	}
	return true
}

func isUnit(name string) bool {
	return slices.Contains([]string{".service", ".socket", ".target", ".mount", ".automount", ".timer", ".path", ".slice", ".swap"}, path.Ext(name))
}
