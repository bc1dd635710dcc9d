package examine

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"salvor/diagnose"
	"salvor/problem"
)

// takeDown unmounts what is mounted below workDir, and removes all overlays with what lies on them. Without a session it takes down those of
// sessions too, and gives the disks back. It needs to know nothing of the run that made them, so that it works for one that was killed.
func (x *examinationRun) takeDown(ctx context.Context) error {
	failed := []error{unmountBelow(workDir)}
	kept := x.session != nil
	names, _ := filepath.Glob("/sys/block/dm-*/dm/name")
	for _, file := range names {
		folder, device := filepath.Dir(file), strings.Split(file, "/")[3]
		switch {
		case isOwnMapping(folder, overlayPrefix), !kept && isOwnMapping(folder, keptPrefix):
			failed = append(failed, x.release(ctx, device, 0))
		case isOwnMapping(folder, keptPrefix):
			failed = append(failed, x.releaseHolders(ctx, device, 0))
		}
	}
	failed = append(failed, x.removeStores(ctx, workDir))
	if kept {
		return errors.Join(failed...)
	}
	failed = append(failed, unmountBelow(keptDir), x.removeStores(ctx, keptDir))
	return errors.Join(append(failed, restoreWritable(readOnlyFile, setWritable))...)
}

// unmountBelow unmounts what is mounted below a folder.
func unmountBelow(folder string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var failed []error
	for _, place := range mountsBelow(string(mounts), folder) {
		if place == folder {
			continue
		}
		if err := unix.Unmount(place, 0); err != nil {
			failed = append(failed, fmt.Errorf("unmount %s: %w", place, err), unix.Unmount(place, unix.MNT_DETACH))
		}
	}
	return errors.Join(failed...)
}

// removeStores removes the tmpfs at a folder with the files of overlays in it.
func (x *examinationRun) removeStores(ctx context.Context, folder string) error {
	var failed []error
	for _, loop := range loopsOver(func(backing string) bool { return strings.HasPrefix(backing, folder+"/") }) {
		failed = append(failed, x.release(ctx, loop, 0))
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if slices.Contains(mountsBelow(string(mounts), folder), folder) {
		if err := unix.Unmount(folder, 0); err != nil {
			failed = append(failed, fmt.Errorf("unmount %s: %w", folder, err))
		}
	}
	return errors.Join(failed...)
}

// isOwnMapping says by the folder of a device-mapper device in sysfs whether this package made it with a name of that prefix. A volume group may have a name like
// those of overlays; lvm gives its volumes a UUID that begins with LVM-.
func isOwnMapping(folder, prefix string) bool {
	name, err := os.ReadFile(filepath.Join(folder, "name"))
	uuid, uuidErr := os.ReadFile(filepath.Join(folder, "uuid"))
	return err == nil && uuidErr == nil && strings.HasPrefix(string(name), prefix) && !strings.HasPrefix(string(uuid), "LVM-")
}

// mountsBelow lists the mount points at and below a folder, the last mounted first.
func mountsBelow(mountinfo, folder string) []string {
	var out []string
	scanner := bufio.NewScanner(strings.NewReader(mountinfo))
	for scanner.Scan() {
		if fields := strings.Fields(scanner.Text()); len(fields) > 4 && (fields[4] == folder || strings.HasPrefix(fields[4], folder+"/")) {
			out = append(out, diagnose.UnescapeOctal(fields[4]))
		}
	}
	slices.Reverse(out)
	return out
}

// maxLayers bounds how deep devices may lie on each other.
const maxLayers = 16

// release removes a block device (dm-0, md127, loop3) after everything that lies on it and on its partitions.
func (x *examinationRun) release(ctx context.Context, name string, depth int) error {
	top := filepath.Join("/sys/block", name)
	if _, err := os.Stat(top); err != nil || depth > maxLayers {
		return nil // it went with another one
	}
	return errors.Join(x.releaseHolders(ctx, name, depth), x.remove(ctx, name))
}

// releaseHolders removes everything that lies on a block device and on its partitions.
func (x *examinationRun) releaseHolders(ctx context.Context, name string, depth int) error {
	top := filepath.Join("/sys/block", name)
	var failed []error
	holders, _ := filepath.Glob(filepath.Join(top, "holders", "*"))
	more, _ := filepath.Glob(filepath.Join(top, name+"p*", "holders", "*"))
	for _, holder := range append(holders, more...) {
		failed = append(failed, x.release(ctx, filepath.Base(holder), depth+1))
	}
	for _, loop := range loopsOver(func(backing string) bool { return backing == "/dev/"+name }) {
		failed = append(failed, x.release(ctx, loop, depth+1))
	}
	return errors.Join(failed...)
}

// remove removes a device on which nothing lies. The kernel lets go of its users a moment after they have ended.
func (x *examinationRun) remove(ctx context.Context, name string) error {
	var err error
	for range 50 {
		switch {
		case strings.HasPrefix(name, "dm-"):
			var minor string
			if b, readErr := os.ReadFile(filepath.Join("/sys/block", name, "dev")); readErr == nil {
				minor = strings.TrimSpace(string(b))
			}
			major, minor, _ := strings.Cut(minor, ":")
			_, err = x.tools.must(ctx, "dmsetup", "remove", "--noudevsync", "-j", cmp.Or(major, "0"), "-m", cmp.Or(minor, "0"))
		case strings.HasPrefix(name, "md"):
			_, err = x.tools.must(ctx, "mdadm", "--stop", "/dev/"+name)
		case strings.HasPrefix(name, "loop"):
			err = detachLoop("/dev/" + name)
		default:
			return problem.Unsupportedf("%s lies on an overlay and is neither an array nor a volume", name)
		}
		if err == nil || errors.Is(err, context.Canceled) {
			return err
		}
		if _, gone := os.Stat(filepath.Join("/sys/block", name)); gone != nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

func detachLoop(node string) error {
	f, err := os.OpenFile(node, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
	if errors.Is(err, unix.ENXIO) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("detach %s: %w", node, err)
	}
	return nil
}

// loopsOver lists the loop devices whose backing file is wanted.
func loopsOver(wanted func(string) bool) []string {
	var out []string
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil && wanted(strings.TrimSpace(string(b))) {
			out = append(out, strings.Split(file, "/")[3])
		}
	}
	return out
}
