package examine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"salvor/diagnose"
)

// maxRoots bounds how many installed systems are examined.
const maxRoots = 8

// rootMarks are files that a root file system has; two of them make one.
var rootMarks = []string{"/etc/os-release", "/usr/lib/os-release", "/etc/fstab", "/etc/passwd", "/sbin/init", "/usr/lib/systemd/systemd", "/etc/machine-id"}

// isRoot says whether a tree is the root file system of an installed system, though it may be a damaged one.
func isRoot(t *diagnose.Tree) bool {
	marks := 0
	for _, m := range rootMarks {
		if _, err := t.Lstat(m); err == nil {
			marks++
		}
	}
	return marks >= 2
}

// rootVolumes are the names under which distributions keep a root in a btrfs; the default subvolume goes before them.
var rootVolumes = []string{"@", "root", "@rootfs"}

// rootCandidate is a place where a root may be.
type rootCandidate struct {
	device    *device
	options   string
	subvolume string // its path; empty for the top of a btrfs and for other file systems
}

// rootCandidates lists where roots may be, in their order of preference within one file system.
func rootCandidates(d *device, volumes []btrfsVolume) []rootCandidate {
	if d.FS != "btrfs" {
		return []rootCandidate{{device: d}}
	}
	var out []rootCandidate
	for _, name := range append([]string{d.Default}, rootVolumes...) {
		for _, v := range volumes {
			if c := (rootCandidate{d, fmt.Sprintf("subvolid=%d", v.id), v.path}); v.path == name && !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	return append(out, rootCandidate{device: d, options: "subvolid=5"})
}

// systems mounts each installed system as its own boot would, and returns what rules are asked about; without any it is one without files.
func (x *examinationRun) systems(ctx context.Context, base diagnose.System) []*diagnose.System {
	var out []*diagnose.System
	for _, d := range slices.Clone(x.devices) {
		if d.at == "" && !x.isMendable(d) || d.FS == "vfat" || d.FS == "iso9660" {
			continue
		}
		for _, c := range rootCandidates(d, x.volumes[d.Path]) {
			if x.timeIsOver(ctx) {
				break
			}
			if len(out) == maxRoots {
				x.gap(d.Path, "more than %d installed systems are not examined", maxRoots)
				break
			}
			if s := x.system(ctx, base, c); s != nil {
				out = append(out, s)
				break
			}
		}
	}
	if len(out) == 0 {
		s := base
		s.Devices = x.plainDevices()
		out = append(out, &s)
	}
	return out
}

// system mounts a candidate with all that its fstab names; nil where it is no root.
func (x *examinationRun) system(ctx context.Context, base diagnose.System, c rootCandidate) *diagnose.System {
	place, err := x.mountDevice(ctx, c.device, c.options)
	if err != nil {
		return nil
	}
	tree, closer, err := OpenTree(place)
	if err != nil {
		return nil
	}
	named := c.device.Path
	restore := x.nameContainers(c.device, tree.Lines("/etc/crypttab"))
	defer restore()
	if !isRoot(tree) || x.mending && !x.wanted[c.device.Path] {
		if err := errors.Join(closer.Close(), x.unmount(place)); err != nil {
			x.Log.Info("a file system that is no root stays mounted", "device", c.device.Path, "error", err)
		}
		return nil
	}
	x.closers = append(x.closers, closer)
	s := base
	x.roots[c.device.Path] = place
	s.Files, s.Root, s.RootDevice, s.RootSubvolume, s.Devices = tree, c.device.Path, named, c.subvolume, x.plainDevices()
	s.Checks = slices.Clone(x.checks)
	mounted := map[string]string{c.device.Path: "/"}
	for _, e := range wantedMounts(tree.Lines("/etc/fstab")) {
		if x.timeIsOver(ctx) {
			return nil // rules would miss the files of what is not mounted
		}
		x.mountEntry(ctx, tree, place, c.device, e, mounted)
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		d.MountedAt = mounted[d.Path]
		if x.mending && d.MountedAt != "" {
			x.readMounted(d, x.devices[i], filepath.Join(place, d.MountedAt))
		}
	}
	s.Release = ReadRelease(tree.Lines("/etc/os-release"))
	return &s
}

// nameContainers gives opened LUKS containers the names of a system's crypttab, under which its fstab knows them, until the returned function
// is called.
func (x *examinationRun) nameContainers(root *device, crypttab []string) (restore func()) {
	former := map[*device]string{}
	for _, line := range crypttab {
		fields := strings.Fields(line)
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") || !volumeName.MatchString(fields[0]) {
			continue
		}
		container := x.named(strings.ReplaceAll(fields[1], `"`, ""), root)
		for _, d := range x.devices {
			if container != nil && d.Kind == diagnose.CryptDevice && d.Parents[0] == container.Path && former[d] == "" {
				former[d] = d.Path
				x.rename(d.Path, "/dev/mapper/"+fields[0])
			}
		}
	}
	return func() {
		for d, path := range former {
			x.rename(d.Path, path)
		}
	}
}

// rename changes the path of a device wherever it is named.
func (x *examinationRun) rename(from, to string) {
	for _, d := range x.devices {
		if d.Path == from {
			d.Path = to
		}
		parents := slices.Clone(d.Parents) // systems hold the former ones
		for i := range parents {
			if parents[i] == from {
				parents[i] = to
			}
		}
		d.Parents = parents
	}
	for i := range x.checks {
		if x.checks[i].Device == from {
			x.checks[i].Device = to
		}
	}
	if volumes, ok := x.volumes[from]; ok {
		delete(x.volumes, from)
		x.volumes[to] = volumes
	}
}

func (x *examinationRun) plainDevices() []diagnose.Device {
	out := make([]diagnose.Device, len(x.devices))
	for i, d := range x.devices {
		out[i] = d.Device
	}
	return out
}

// fstabEntry is what is used of a line of fstab.
type fstabEntry struct{ source, place, kind, options string }

// wantedMounts reads an fstab: the entries with a place below the root, parents before children.
func wantedMounts(lines []string) []fstabEntry {
	var out []fstabEntry
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) < 3 || strings.HasPrefix(fields[0], "#") || len(out) == 40 {
			continue
		}
		e := fstabEntry{source: diagnose.UnescapeOctal(strings.ReplaceAll(fields[0], `"`, "")), place: filepath.Clean(diagnose.UnescapeOctal(fields[1])), kind: fields[2]}
		if len(fields) > 3 {
			e.options = fields[3]
		}
		if strings.HasPrefix(e.place, "/") && e.place != "/" && e.kind != "swap" && !slices.ContainsFunc(out, func(o fstabEntry) bool { return o.place == e.place }) {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b fstabEntry) int { return strings.Count(a.place, "/") - strings.Count(b.place, "/") })
	return out
}

// mountEntry mounts what an entry names, if it is a file system on the machine's own devices and its place is a folder of the system.
func (x *examinationRun) mountEntry(ctx context.Context, tree *diagnose.Tree, top string, root *device, e fstabEntry, mounted map[string]string) {
	d := x.named(e.source, root)
	if d == nil || d.node == "" || d.NotExamined != "" {
		return
	}
	if _, ok := fileSystems[d.FS]; !ok {
		return
	}
	// Links are followed within the system; below a place without any, mount(2) cannot be led out.
	place, err := tree.Resolve(e.place)
	if err != nil || place == "/" {
		return
	}
	if info, err := tree.Lstat(place); err != nil || !info.IsDir() {
		return
	}
	options := ""
	if d.FS == "btrfs" {
		id := 0
		for _, v := range x.volumes[x.pool(d).Path] {
			if v.path == strings.Trim(mountOption(e.options, "subvol"), "/") {
				id = v.id
			}
		}
		if id == 0 {
			return
		}
		options = fmt.Sprintf("subvolid=%d", id)
	}
	if err := x.mountAt(ctx, d, filepath.Join(top, place), options); err == nil && mounted[d.Path] == "" {
		mounted[d.Path] = e.place
	}
}

// pool is the device by which a btrfs on several devices is mounted.
func (x *examinationRun) pool(d *device) *device {
	for _, other := range x.devices {
		if other.FS == "btrfs" && other.UUID == d.UUID && other.at != "" {
			return other
		}
	}
	return d
}

// mountOption is the value of an option as key=value; empty without one.
func mountOption(options, key string) string {
	for _, o := range strings.Split(options, ",") {
		if value, ok := strings.CutPrefix(o, key+"="); ok {
			return value
		}
	}
	return ""
}

// named finds the device that a source of an fstab names within the machine. Of several, the one on the disk of the root is meant, or none.
func (x *examinationRun) named(source string, root *device) *device {
	var found []*device
	for _, d := range x.devices {
		if isNamedBy(d, source) {
			found = append(found, d)
		}
	}
	if len(found) > 1 {
		found = slices.DeleteFunc(found, func(d *device) bool { return d.disk != root.disk })
	}
	if len(found) != 1 {
		return nil
	}
	return found[0]
}

// isNamedBy says whether a source of an fstab names a device.
func isNamedBy(d *device, source string) bool {
	tag, value, isTag := strings.Cut(source, "=")
	if !isTag {
		folder, base := filepath.Split(source)
		tag = map[string]string{
			"/dev/disk/by-uuid/": "UUID", "/dev/disk/by-label/": "LABEL", "/dev/disk/by-partuuid/": "PARTUUID", "/dev/disk/by-partlabel/": "PARTLABEL",
		}[folder]
		value = base
		if tag == "" {
			return d.Path == source || d.Kind == diagnose.VolumeDevice && d.Path == volumePath(source)
		}
	}
	switch {
	case value == "":
		return false
	case tag == "UUID":
		return strings.EqualFold(d.UUID, value)
	case tag == "LABEL":
		return d.Label == value
	case tag == "PARTUUID":
		return strings.EqualFold(d.PartUUID, value)
	case tag == "PARTLABEL":
		return d.PartLabel == value
	}
	return false
}

// volumePath is the path below /dev/mapper of /dev/GROUP/VOLUME.
func volumePath(source string) string {
	parts := strings.Split(source, "/")
	if len(parts) != 4 || parts[1] != "dev" {
		return ""
	}
	return "/dev/mapper/" + diagnose.MapperName(parts[2], parts[3])
}

// ReadRelease reads the lines of an os-release.
func ReadRelease(lines []string) diagnose.Release {
	var r diagnose.Release
	for _, line := range lines {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `"'`)
		switch key {
		case "ID":
			r.ID = value
		case "ID_LIKE":
			r.Like = strings.Fields(value)
		case "VERSION_ID":
			r.Version = value
		case "PRETTY_NAME":
			r.Pretty = value
		}
	}
	return r
}
