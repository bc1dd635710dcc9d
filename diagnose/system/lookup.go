package system

import (
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
)

// deviceName is a name by which files of a system refer to a block device.
type deviceName struct {
	// Tag is UUID, LABEL, PARTUUID or PARTLABEL; "path" for a path below /dev. It is empty for what names no block device.
	Tag, Value string
	// Kernel: the path is one that the kernel gives in the order of discovery, such as /dev/sda1.
	Kernel bool
}

// parseDeviceName understands what fstab, crypttab and root= write.
func parseDeviceName(text string) deviceName {
	if tag, value, found := strings.Cut(text, "="); found {
		tag = strings.ToUpper(tag)
		if slices.Contains([]string{"UUID", "LABEL", "PARTUUID", "PARTLABEL"}, tag) {
			return deviceName{Tag: tag, Value: strings.Trim(value, `"'`)}
		}
		return deviceName{}
	}
	if !strings.HasPrefix(text, "/dev/") {
		return deviceName{}
	}
	text = path.Clean(text)
	for folder, tag := range map[string]string{"by-uuid": "UUID", "by-label": "LABEL", "by-partuuid": "PARTUUID", "by-partlabel": "PARTLABEL"} {
		if value, found := strings.CutPrefix(text, "/dev/disk/"+folder+"/"); found {
			return deviceName{Tag: tag, Value: unescapeUdev(value)}
		}
	}
	if strings.HasPrefix(text, "/dev/disk/") { // by-id and by-path need udev's rules
		return deviceName{}
	}
	return deviceName{Tag: "path", Value: text, Kernel: isKernelName(text)}
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
func isRemovableName(name string) bool {
	base := path.Base(name)
	return strings.HasPrefix(base, "sr") || strings.HasPrefix(base, "fd") || strings.HasPrefix(base, "cdrom") || strings.HasPrefix(base, "dvd") ||
		strings.HasPrefix(base, "floppy")
}

// findDevices returns the devices of the machine that a name leads to.
func findDevices(s *diagnose.System, n deviceName) []*diagnose.Device {
	return findDevicesByPaths(s, n, func(i int) []string { return devicePaths(s, &s.Devices[i]) })
}

// findDevicesByPaths is findDevices for a caller that knows the paths of each device.
func findDevicesByPaths(s *diagnose.System, n deviceName, paths func(i int) []string) []*diagnose.Device {
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

// devicePaths lists the paths under which the system itself may know a device.
func devicePaths(s *diagnose.System, d *diagnose.Device) []string {
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
		for _, c := range parseCrypttab(tableLines(s, crypttabPath)) {
			for _, source := range findSource(s, c) {
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

// isKnownFileSystem: what a probe names so holds no other device.
func isKnownFileSystem(kind string) bool {
	return mountableTypes[kind] || typeGroup(kind) != "" || isReadOnlyType(kind) || kind == "swap" || kind == "exfat" || kind == "ntfs"
}

// isUncertainName: the number in the name of an array or of a mapped device depends on the order in which a system assembles them.
func isUncertainName(s *diagnose.System, n deviceName) bool {
	return n.Tag == "path" && (strings.HasPrefix(n.Value, "/dev/dm-") || strings.HasPrefix(n.Value, "/dev/md") && len(s.Arrays) > 0)
}

// hidesDevices says which parts of the machine could not be looked into, and so may hold a device that seems to be missing.
func hidesDevices(s *diagnose.System) []string {
	var out []string
	for i := range s.Devices {
		d := &s.Devices[i]
		switch {
		case d.NotExamined != "" && (d.FS == "" || isContainer(d.FS) || !isKnownFileSystem(d.FS)):
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
		if strings.HasPrefix(gap.What, "/dev/") && deviceAt(s, gap.What) == nil {
			out = append(out, gap.What+": "+gap.Why)
		}
	}
	return out
}

func hasChild(s *diagnose.System, parent string) bool {
	return slices.ContainsFunc(s.Devices, func(d diagnose.Device) bool { return slices.Contains(d.Parents, parent) })
}

// rootDevice is the device of the root file system; nil where it is not known.
func rootDevice(s *diagnose.System) *diagnose.Device { return deviceAt(s, s.Root) }

// deviceAt returns the device of a path, or nil.
func deviceAt(s *diagnose.System, name string) *diagnose.Device {
	for i := range s.Devices {
		if s.Devices[i].Path == name {
			return &s.Devices[i]
		}
	}
	return nil
}

// mountedAt returns the device that is mounted at a place of the system, or nil.
func mountedAt(s *diagnose.System, place string) *diagnose.Device {
	for i := range s.Devices {
		if s.Devices[i].MountedAt == place {
			return &s.Devices[i]
		}
	}
	return nil
}

// ancestors returns a device and all that it lies on, each once.
func ancestors(s *diagnose.System, name string) []*diagnose.Device {
	var out []*diagnose.Device
	names := []string{name}
	for i := 0; i < len(names); i++ {
		d := deviceAt(s, names[i])
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
		for _, line := range tableLines(s, file) {
			fields := strings.Fields(line)
			if len(fields) > 2 && strings.EqualFold(fields[0], "ARRAY") && slices.ContainsFunc(fields[2:], func(f string) bool { return strings.EqualFold(f, "UUID="+uuid) }) {
				name := strings.TrimPrefix(fields[1], "/dev/md/")
				out = append(out, fields[1], "/dev/md/"+name, "/dev/md"+name)
			}
		}
	}
	return out
}
