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
	"strconv"
	"strings"
	"time"

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

// setReadOnly has the kernel refuse writes to a device, and asks whether it does. The device is listed for takeDown first.
func setReadOnly(node string) error {
	f, err := os.OpenFile(node, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("set it read-only: %w", err)
	}
	defer f.Close()
	on, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKROGET)
	if err != nil {
		return fmt.Errorf("%s: ask whether it is read-only: %w", node, err)
	}
	if on != 0 {
		return nil
	}
	list, err := os.OpenFile(readOnlyFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(list, node)
	if err := errors.Join(err, list.Close()); err != nil {
		return err
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.BLKROSET, 1); err != nil {
		return fmt.Errorf("%s: set it read-only: %w", node, err)
	}
	if on, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKROGET); err != nil || on == 0 {
		return fmt.Errorf("%s: the kernel does not set it read-only: %v", node, err)
	}
	return nil
}

// restoreWritable gives the devices back that a list of setReadOnly names. The list stays until each of them is writable or gone.
func restoreWritable(list string, setWritable func(node string) error) error {
	b, err := os.ReadFile(list)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var failed []error
	for _, node := range strings.Fields(string(b)) {
		if err := setWritable(node); err != nil {
			failed = append(failed, fmt.Errorf("%s: set it writable again: %w", node, err))
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	return os.Remove(list)
}

// setWritable undoes setReadOnly; a disk that has gone is no error.
func setWritable(node string) error {
	f, err := os.OpenFile(node, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.BLKROSET, 0)
}

// partitionNodes lists the kernel's own partitions of a disk.
func partitionNodes(path string) []string {
	var out []string
	names, _ := filepath.Glob(filepath.Join("/sys/class/block", filepath.Base(path), "*", "partition"))
	for _, name := range names {
		out = append(out, "/dev/"+filepath.Base(filepath.Dir(name)))
	}
	return out
}

// writtenBytes is what the kernel counts as written to and discarded from a disk since it was found.
func writtenBytes(path string) int64 {
	b, err := os.ReadFile(filepath.Join("/sys/class/block", filepath.Base(path), "stat"))
	if err != nil {
		return 0
	}
	return writtenSectors(string(b)) * 512
}

// writtenSectors reads the seventh field of a stat file, sectors written, and the fourteenth, sectors discarded.
func writtenSectors(stat string) int64 {
	fields := strings.Fields(stat)
	var sum int64
	for _, i := range []int{6, 13} {
		if i < len(fields) {
			n, _ := strconv.ParseInt(fields[i], 10, 64)
			sum += n
		}
	}
	return sum
}

func deviceSize(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	size, err := f.Seek(0, 2)
	if err == nil && size < 512 {
		err = problem.Unsupportedf("%s: it has %d bytes", path, size)
	}
	return size, err
}

// attachLoop lays a loop device over a file or a device.
func attachLoop(file *os.File, flags uint32, sector int) (string, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer control.Close()
	for range 20 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("get a loop device: %w", err)
		}
		node := "/dev/loop" + strconv.Itoa(n)
		loop, err := os.OpenFile(node, os.O_RDWR, 0)
		if err != nil {
			return "", err
		}
		config := unix.LoopConfig{Fd: uint32(file.Fd()), Size: uint32(sector), Info: unix.LoopInfo64{Flags: flags}}
		copy(config.Info.File_name[:], file.Name())
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		_ = loop.Close()
		if errors.Is(err, unix.EBUSY) {
			continue // somebody else took it
		}
		if err != nil {
			return "", fmt.Errorf("%s: lay it over %s: %w", node, file.Name(), err)
		}
		return node, nil
	}
	return "", errors.New("no loop device is free")
}

// mapperNode finds the kernel's node of a device-mapper device.
func mapperNode(name string) (string, error) {
	names, _ := filepath.Glob("/sys/block/dm-*/dm/name")
	for _, file := range names {
		if b, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(b)) == name {
			return "/dev/" + strings.Split(file, "/")[3], nil
		}
	}
	return "", problem.NotFoundf("the kernel knows no device %s", name)
}

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
