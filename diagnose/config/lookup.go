package config

import (
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
)

// DeviceName is a name by which files of a system refer to a block device.
type DeviceName struct {
	// Tag is UUID, LABEL, PARTUUID or PARTLABEL; "path" for a path below /dev. It is empty for what names no block device.
	Tag, Value string
	// Kernel: the path is one that the kernel gives in the order of discovery, such as /dev/sda1.
	Kernel bool
}

// ParseDeviceName understands what fstab, crypttab and root= write.
func ParseDeviceName(text string) DeviceName {
	if tag, value, found := strings.Cut(text, "="); found {
		tag = strings.ToUpper(tag)
		if slices.Contains([]string{"UUID", "LABEL", "PARTUUID", "PARTLABEL"}, tag) {
			return DeviceName{Tag: tag, Value: strings.Trim(value, `"'`)}
		}
		return DeviceName{}
	}
	if !strings.HasPrefix(text, "/dev/") {
		return DeviceName{}
	}
	text = path.Clean(text)
	for folder, tag := range map[string]string{"by-uuid": "UUID", "by-label": "LABEL", "by-partuuid": "PARTUUID", "by-partlabel": "PARTLABEL"} {
		if value, found := strings.CutPrefix(text, "/dev/disk/"+folder+"/"); found {
			return DeviceName{Tag: tag, Value: unescapeUdev(value)}
		}
	}
	if strings.HasPrefix(text, "/dev/disk/") { // by-id and by-path need udev's rules
		return DeviceName{}
	}
	return DeviceName{Tag: "path", Value: text, Kernel: isKernelName(text)}
}

// unescapeUdev decodes the \x2f of udev's links.
func unescapeUdev(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if i+3 < len(text) && text[i] == '\\' && text[i+1] == 'x' {
			high, low := hexDigit(text[i+2]), hexDigit(text[i+3])
			if high >= 0 && low >= 0 {
				out.WriteByte(byte(high<<4 | low))
				i += 3
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

func hexDigit(c byte) int { return strings.IndexByte("0123456789abcdef", c|0x20) }

// isKernelName: sd, vd, xvd, hd, nvme and mmcblk disks are numbered in the order of discovery.
func isKernelName(name string) bool {
	name = strings.TrimPrefix(name, "/dev/")
	for _, prefix := range []string{"sd", "vd", "xvd", "hd", "nvme", "mmcblk"} {
		if rest, found := strings.CutPrefix(name, prefix); found && rest != "" && !strings.Contains(rest, "/") {
			return true
		}
	}
	return false
}

// Names that nothing of this machine may answer to, and that are no fault: drives for removable media.
func IsRemovableName(name string) bool {
	base := path.Base(name)
	return strings.HasPrefix(base, "sr") || strings.HasPrefix(base, "fd") || strings.HasPrefix(base, "cdrom") || strings.HasPrefix(base, "dvd") ||
		strings.HasPrefix(base, "floppy")
}

// FindDevices returns the devices of the machine that a name leads to.
func FindDevices(s *diagnose.System, n DeviceName) []*diagnose.Device {
	return FindDevicesByPaths(s, n, func(i int) []string { return DevicePaths(s, &s.Devices[i]) })
}

// FindDevicesByPaths is FindDevices for a caller that knows the paths of each device.
func FindDevicesByPaths(s *diagnose.System, n DeviceName, paths func(i int) []string) []*diagnose.Device {
	var out []*diagnose.Device
	for i := range s.Devices {
		d := &s.Devices[i]
		match := false
		switch n.Tag {
		case "UUID":
			match = strings.EqualFold(d.UUID, n.Value)
		case "LABEL":
			match = d.Label == n.Value
		case "PARTUUID":
			match = strings.EqualFold(d.PartUUID, n.Value)
		case "PARTLABEL":
			match = d.PartLabel == n.Value
		case "path":
			match = slices.Contains(paths(i), n.Value)
		}
		if match && n.Value != "" {
			out = append(out, d)
		}
	}
	return withoutMembers(out)
}

// withoutMembers drops the members of mdraid with metadata at their end: they answer to the UUID of the array's file system too.
func withoutMembers(found []*diagnose.Device) []*diagnose.Device {
	if len(found) < 2 {
		return found
	}
	return slices.DeleteFunc(found, func(d *diagnose.Device) bool {
		return slices.ContainsFunc(found, func(other *diagnose.Device) bool { return other != d && slices.Contains(other.Parents, d.Path) })
	})
}

// DevicePaths lists the paths under which the system itself may know a device.
func DevicePaths(s *diagnose.System, d *diagnose.Device) []string {
	out := []string{d.Path}
	for _, a := range s.Arrays {
		if a.Path != d.Path {
			continue
		}
		_, name, found := strings.Cut(a.Name, ":") // host:name
		if !found {
			name = a.Name
		}
		out = append(out, "/dev/md/"+name, "/dev/md"+name)
		out = append(out, configuredArrays(s, a.UUID)...)
	}
	for _, g := range s.Groups {
		for _, v := range g.Volumes {
			mapped := "/dev/mapper/" + diagnose.MapperName(g.Name, v.Name)
			if d.Path == v.Path || d.Path == mapped || d.Path == "/dev/"+g.Name+"/"+v.Name {
				out = append(out, mapped, "/dev/"+g.Name+"/"+v.Name)
			}
		}
	}
	if d.Kind == diagnose.CryptDevice && s.Files != nil {
		for _, c := range ParseCrypttab(TableLines(s, CrypttabPath)) {
			for _, source := range FindSource(s, c) {
				if slices.Contains(d.Parents, source.Path) {
					out = append(out, "/dev/mapper/"+c.Name)
				}
			}
		}
		for _, parent := range d.Parents { // dracut's name for one that no crypttab names
			for i := range s.Devices {
				if s.Devices[i].Path == parent && s.Devices[i].UUID != "" {
					out = append(out, "/dev/mapper/luks-"+s.Devices[i].UUID)
				}
			}
		}
	}
	return out
}

// IsKnownFileSystem: what a probe names so holds no other device.
func IsKnownFileSystem(kind string) bool {
	return MountableTypes[kind] || TypeGroup(kind) != "" || IsReadOnlyType(kind) || kind == "swap" || kind == "exfat" || kind == "ntfs"
}

// IsUncertainName: the number in the name of an array or of a mapped device depends on the order in which a system assembles them.
func IsUncertainName(s *diagnose.System, n DeviceName) bool {
	return n.Tag == "path" && (strings.HasPrefix(n.Value, "/dev/dm-") || strings.HasPrefix(n.Value, "/dev/md") && len(s.Arrays) > 0)
}

// HidesDevices says which parts of the machine could not be looked into, and so may hold a device that seems to be missing.
func HidesDevices(s *diagnose.System) []string {
	var out []string
	for i := range s.Devices {
		d := &s.Devices[i]
		switch {
		case d.NotExamined != "" && (d.FS == "" || IsContainer(d.FS) || !IsKnownFileSystem(d.FS)):
			out = append(out, d.Path+": "+d.NotExamined)
		case d.FS == "crypto_LUKS" && !hasChild(s, d.Path):
			out = append(out, d.Path+" is an encrypted container that was not opened")
		}
	}
	for _, a := range s.Arrays {
		if !a.Started {
			out = append(out, a.Path+" is an array that was not started")
		}
	}
	for _, g := range s.Groups {
		if len(g.Missing) > 0 {
			out = append(out, "the volume group "+g.Name+" lacks physical volumes")
		}
	}
	for _, gap := range s.Gaps {
		if strings.HasPrefix(gap.What, "/dev/") && DeviceAt(s, gap.What) == nil {
			out = append(out, gap.What+": "+gap.Why)
		}
	}
	return out
}

func hasChild(s *diagnose.System, parent string) bool {
	return slices.ContainsFunc(s.Devices, func(d diagnose.Device) bool { return slices.Contains(d.Parents, parent) })
}

// RootDevice is the device of the root file system; nil where it is not known.
func RootDevice(s *diagnose.System) *diagnose.Device { return DeviceAt(s, s.Root) }

// DeviceAt returns the device of a path, or nil.
func DeviceAt(s *diagnose.System, name string) *diagnose.Device {
	for i := range s.Devices {
		if s.Devices[i].Path == name {
			return &s.Devices[i]
		}
	}
	return nil
}

// MountedAt returns the device that is mounted at a place of the system, or nil.
func MountedAt(s *diagnose.System, place string) *diagnose.Device {
	for i := range s.Devices {
		if s.Devices[i].MountedAt == place {
			return &s.Devices[i]
		}
	}
	return nil
}

// Ancestors returns a device and all that it lies on, each once.
func Ancestors(s *diagnose.System, name string) []*diagnose.Device {
	var out []*diagnose.Device
	names := []string{name}
	for i := 0; i < len(names); i++ {
		d := DeviceAt(s, names[i])
		if d == nil || slices.Contains(out, d) {
			continue
		}
		out = append(out, d)
		names = append(names, d.Parents...)
	}
	return out
}

// configuredArrays are the paths that mdadm.conf gives to an array.
func configuredArrays(s *diagnose.System, uuid string) []string {
	if s.Files == nil || uuid == "" {
		return nil
	}
	var out []string
	for _, file := range []string{"/etc/mdadm/mdadm.conf", "/etc/mdadm.conf"} {
		for _, line := range TableLines(s, file) {
			fields := strings.Fields(line)
			if len(fields) > 2 && strings.EqualFold(fields[0], "ARRAY") && slices.ContainsFunc(fields[2:], func(f string) bool { return strings.EqualFold(f, "UUID="+uuid) }) {
				name := strings.TrimPrefix(fields[1], "/dev/md/")
				out = append(out, fields[1], "/dev/md/"+name, "/dev/md"+name)
			}
		}
	}
	return out
}

// IsReadOnlyType: file systems that are always full.
func IsReadOnlyType(kind string) bool {
	return kind == "squashfs" || kind == "iso9660" || kind == "erofs" || kind == "udf" || kind == "cramfs"
}
