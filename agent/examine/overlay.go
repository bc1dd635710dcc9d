package examine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"salvor/agent/disk"
	"salvor/diagnose"
	"salvor/problem"
	"salvor/repair"
)

const (
	// overlayPrefix begins the names of all device-mapper devices that an examination makes. A volume of LVM may have such a name too:
	// see isOwnMapping.
	overlayPrefix = "salvor_"
	// keptPrefix begins the names of the overlays of a session, which stay until it is closed.
	keptPrefix   = "salvorkept_"
	leastOverlay = 16 << 20
	// chunkSectors is the unit in which an overlay keeps what was changed.
	chunkSectors = repair.ChunkSize / 512
)

// prepare loads the drivers of overlays and makes the tmpfs that they lie in.
func (x *examinationRun) prepare(ctx context.Context, disks int) error {
	for _, module := range []string{"loop", "dm_mod", "dm_snapshot", "md_mod"} {
		// What is built in has no module; what is missing shows at its first use.
		if _, err := x.tools.run(ctx, nil, "modprobe", "-q", module); err != nil {
			return err
		}
	}
	// Arrays start read-only, however they are started.
	_ = os.WriteFile("/sys/module/md_mod/parameters/start_ro", []byte("1"), 0)
	room, err := mountStores(workDir)
	x.Log.Info("examining the disks", "disks", disks, "memory for overlays", room)
	return err
}

// mountStores mounts a tmpfs for the files of overlays, and returns how many bytes they may have.
func mountStores(folder string) (int64, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return 0, err
	}
	room := max(availableMemory("/")/overlayShare, leastOverlay)
	if err := unix.Mount("salvor", folder, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, fmt.Sprintf("size=%d,mode=0700", room)); err != nil {
		return 0, fmt.Errorf("mount a tmpfs at %s: %w", folder, err)
	}
	return room, nil
}

// addDisk lays an overlay over a disk and probes the disk and its partitions there.
func (x *examinationRun) addDisk(ctx context.Context, found disk.Found) {
	path := found.Name
	d := &examinedDisk{ExaminedDisk: diagnose.ExaminedDisk{Path: path, Model: diagnose.Excerpt(found.Model), Serial: diagnose.Excerpt(optionalText(found.Serial)), Size: found.Size}, written: writtenBytes(path)}
	x.disks = append(x.disks, d)
	top := &device{Device: diagnose.Device{Path: path, Kind: diagnose.DiskDevice, Size: found.Size, Serial: d.Serial, WWN: diagnose.Excerpt(optionalText(found.WWN)), Drivers: diskDrivers("/", path)}, disk: path}
	x.devices = append(x.devices, top)
	node, err := x.session.coverDisk(ctx, x, d, top.WWN)
	if err != nil {
		top.NotExamined = diagnose.Excerpt(err.Error())
		x.gap(path, "%v", err)
		return
	}
	top.node = node
	x.probe(ctx, []*device{top})
	x.addPartitions(ctx, top)
}

func optionalText(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// coverDisk sets a disk read-only and returns a loop device over its overlay.
func (x *examinationRun) coverDisk(ctx context.Context, d *examinedDisk) (string, error) {
	sector, err := protectDisk(d)
	if err != nil {
		return "", err
	}
	return x.cover(ctx, d, d.Path, filepath.Base(d.Path), sector)
}

// protectDisk sets a disk with its partitions read-only and returns the size of its sectors.
func protectDisk(d *examinedDisk) (int, error) {
	if !nodePath.MatchString(d.Path) {
		return 0, problem.Unsupportedf("disks with a name like %q are not examined", d.Path)
	}
	// Who uses the disk in this ramdisk would lose it.
	f, err := os.OpenFile(d.Path, os.O_RDONLY|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		return 0, problem.Conflictf("it is in use in this ramdisk: unmount it and stop its RAID or volume group, then examine again")
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	sector, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKSSZGET)
	if err != nil {
		return 0, fmt.Errorf("ask for its sector size: %w", err)
	}
	if err := f.Close(); err != nil {
		return 0, err
	}
	nodes := append([]string{d.Path}, partitionNodes(d.Path)...)
	if err := refuseWriters(nodes); err != nil {
		return 0, err
	}
	for _, node := range nodes {
		if err := setReadOnly(node); err != nil {
			return 0, err
		}
	}
	return sector, nil
}

// cover lays an overlay over a device and returns a loop device, with partitions, over the overlay.
func (x *examinationRun) cover(ctx context.Context, d *examinedDisk, origin, name string, sector int) (string, error) {
	label := overlayPrefix + name
	node, err := x.tools.layOverlay(ctx, origin, filepath.Join(workDir, "overlay-"+name), label, temporaryOverlay)
	if err != nil {
		return "", err
	}
	if d != nil {
		d.overlays = append(d.overlays, label)
	}
	return x.showPartitions(node, sector)
}

// overlayKind is the dm-snapshot's word for whether the list of changed chunks lies in the overlay's file.
type overlayKind string

const (
	temporaryOverlay  overlayKind = "N"
	persistentOverlay overlayKind = "P"
)

// layOverlay lays an overlay with that name in device-mapper over a device, and returns its node. A new file holds what changes.
func (t toolRunner) layOverlay(ctx context.Context, origin, file, label string, kind overlayKind) (string, error) {
	size, err := deviceSize(origin)
	if err != nil {
		return "", err
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(file), &stat); err != nil {
		return "", err
	}
	changed, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer changed.Close()
	// The file is sparse: the size of the tmpfs bounds all overlays together.
	if err := changed.Truncate(int64(stat.Blocks) * stat.Bsize); err != nil {
		return "", err
	}
	store, err := attachLoop(changed, 0, 512)
	if err != nil {
		return "", fmt.Errorf("lay an overlay over %s: %w", origin, err)
	}
	table := fmt.Sprintf("0 %d snapshot %s %s %s %d", size/512, origin, store, kind, chunkSectors)
	if _, err := t.must(ctx, "dmsetup", "create", label, "--noudevsync", "--noudevrules", "--table", table); err != nil {
		return "", fmt.Errorf("lay an overlay over %s: %w", origin, err)
	}
	return mapperNode(label)
}

// showPartitions returns a loop device over a device of this run, on which the kernel finds partitions.
func (x *examinationRun) showPartitions(node string, sector int) (string, error) {
	over, err := os.OpenFile(node, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer over.Close()
	loop, err := attachLoop(over, unix.LO_FLAGS_PARTSCAN, sector)
	if err != nil {
		return "", fmt.Errorf("show the partitions of %s: %w", node, err)
	}
	x.loops[filepath.Base(loop)] = true
	return loop, nil
}

// measureOverlays notes how much each overlay took. It returns why what was read of a disk is not reliable, by the disk's path. The kernel is
// asked also where the time of the examination is over.
func (x *examinationRun) measureOverlays(ctx context.Context) map[string]string {
	status, err := x.tools.must(context.WithoutCancel(ctx), "dmsetup", "status", "--target", "snapshot")
	unreliable := map[string]string{}
	for _, d := range x.disks {
		d.Changed = 0
		for _, name := range d.overlays {
			used, whole := snapshotStatus(status, name)
			d.Changed += used
			if !whole {
				unreliable[d.Path] = "it cannot be examined fully: its overlay in memory is full; a machine with more memory has room for more"
			}
		}
		if err != nil && len(d.overlays) > 0 {
			unreliable[d.Path] = diagnose.Excerpt(fmt.Sprintf("it is not known whether its overlay in memory is whole: %v", err))
		}
		if why := unreliable[d.Path]; why != "" {
			x.gap(d.Path, "%s", why)
		}
	}
	return unreliable
}

// dropUnreliable takes back what was read of unreliable disks, because an overlay that is full answers with errors that look like damage.
// A system with a file system on such a disk has no files, and its rules judge the rest.
func (x *examinationRun) dropUnreliable(unreliable map[string]string, systems []*diagnose.System) {
	if len(unreliable) == 0 {
		return
	}
	dropped := map[string]string{} // why, by the path of a device
	for i, d := range x.devices {
		why := unreliable[d.disk]
		for _, parent := range d.Parents {
			why = cmp.Or(why, dropped[parent])
		}
		if why == "" {
			continue
		}
		dropped[d.Path] = why
		dropReadings(&d.Device, why)
		for _, s := range systems {
			dropReadings(&s.Devices[i], why)
			// A system knows an opened LUKS container by a name of its own.
			path := s.Devices[i].Path
			s.Checks = slices.DeleteFunc(slices.Clone(s.Checks), func(c diagnose.Check) bool { return c.Device == path })
			if s.Root == path || s.Devices[i].MountedAt != "" {
				s.Files = nil
			}
		}
	}
}

func dropReadings(d *diagnose.Device, why string) {
	d.NotExamined, d.MountError, d.Content, d.Tree = cmp.Or(d.NotExamined, why), "", nil, nil
}

// snapshotStatus reads dmsetup status: "salvor_sda: 0 655360 snapshot 240/204800 0" has 240 sectors in use. whole is false for an overlay
// that the kernel has given up.
func snapshotStatus(status, name string) (used int64, whole bool) {
	for line := range strings.Lines(status) {
		fields := strings.Fields(line)
		if len(fields) < 5 || fields[0] != name+":" || fields[3] != "snapshot" {
			continue
		}
		count, _, ok := strings.Cut(fields[4], "/")
		n, err := strconv.ParseInt(count, 10, 64)
		return n * 512, ok && err == nil
	}
	return 0, false
}
