package examine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"salvor/diagnose"
)

// mountAll mounts each file system by itself.
func (x *examinationRun) mountAll(ctx context.Context) {
	for _, d := range x.mountable() {
		if x.timeIsOver(ctx) {
			return
		}
		top := ""
		if d.FS == "btrfs" {
			top = "subvolid=5"
		}
		place, err := x.mountDevice(ctx, d, top)
		if err != nil {
			continue
		}
		d.at = place
		d.Space = x.space(d, place)
		if tree, closer, err := OpenTree(place); err == nil {
			x.closers = append(x.closers, closer)
			d.Tree, d.Places = tree, diagnose.PlacesOf(tree)
			x.session.notePlaces(d)
		}
		if d.FS == "btrfs" {
			x.volumes[d.Path] = x.subvolumes(ctx, d)
		}
	}
}

// mountDevice mounts the file system of a device at a new place below workDir. What the kernel says against it is kept.
func (x *examinationRun) mountDevice(ctx context.Context, d *device, more string) (string, error) {
	x.places++
	place := filepath.Join(workDir, "mount-"+strconv.Itoa(x.places))
	if err := os.Mkdir(place, 0o700); err != nil {
		return "", err
	}
	return place, x.mountAt(ctx, d, place, more)
}

// hasRoom says whether one more file system may be mounted.
func (x *examinationRun) hasRoom(d *device) bool {
	if x.mounts >= maxMounts {
		x.gap(d.Path, "more than %d file systems are not mounted", maxMounts)
		return false
	}
	return true
}

// unmount unmounts what mountAt has mounted.
func (x *examinationRun) unmount(place string) error {
	err := unix.Unmount(place, 0)
	if err == nil {
		x.mounts--
	}
	return err
}

// mountFlags are read-only but for what is mended, where programs of the system may run.
func (x *examinationRun) mountFlags() uintptr {
	if x.mending {
		return unix.MS_NODEV | unix.MS_NOSUID
	}
	return unix.MS_RDONLY | unix.MS_NODEV | unix.MS_NOSUID | unix.MS_NOEXEC
}

// mountAt mounts the file system of a device at a place.
func (x *examinationRun) mountAt(ctx context.Context, d *device, place, more string) error {
	if x.timeIsOver(ctx) {
		return ctx.Err()
	}
	if !x.hasRoom(d) {
		return errors.New("too many file systems are mounted")
	}
	if x.refuseUncovered(blockDevices, d) {
		return errors.New(d.NotExamined)
	}
	fs := fileSystems[d.FS]
	options := []string{}
	for _, o := range []string{fs.options, more} {
		if o != "" {
			options = append(options, o)
		}
	}
	if d.FS == "btrfs" {
		// Disks and their overlays carry the same id: the kernel is to know overlays only.
		if !x.scanned {
			x.scanned = true
			if _, err := x.tools.run(ctx, nil, "btrfs", "device", "scan", "--forget"); err != nil {
				return err
			}
		}
		for _, other := range x.poolDevices(d) {
			if !x.refuseUncovered(blockDevices, other) {
				options = append(options, "device="+other.node)
			}
		}
	}
	x.kernel.skip()
	err := unix.Mount(d.node, place, fs.kernel, x.mountFlags(), strings.Join(options, ","))
	if err == nil {
		x.mounts++
		x.mounted[d.node] = true
		return nil
	}
	said := x.kernel.read()
	x.Log.Info("the kernel does not mount a file system", "device", d.Path, "error", err, "kernel", said)
	switch {
	case newFeature.MatchString(said):
		d.NotExamined = "the kernel of this ramdisk knows not all features of its file system"
		x.gap(d.Path, "%s: %s", d.NotExamined, said)
	case errors.Is(err, unix.ENODEV):
		d.NotExamined = "this ramdisk has no driver of its file system"
		x.gap(d.Path, "%s %s", d.NotExamined, fs.kernel)
	default:
		d.MountError = diagnose.Excerpt(strings.TrimSpace(fmt.Sprintf("%v: %s", err, strings.ReplaceAll(said, d.node, d.Path))))
		if d.FS == "btrfs" && !strings.Contains(more, "degraded") {
			degraded := "degraded"
			if more != "" {
				degraded = more + ",degraded"
			}
			return x.mountAt(ctx, d, place, degraded)
		}
	}
	return err
}

// poolDevices are the devices of the btrfs on a device, without copies.
func (x *examinationRun) poolDevices(d *device) []*device {
	var out []*device
	for _, other := range x.devices {
		if other.FS == "btrfs" && other.UUID == d.UUID && other.node != "" && other.NotExamined == "" {
			out = append(out, other)
		}
	}
	return out
}
