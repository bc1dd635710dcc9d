package compute

import (
	"regexp"
	"slices"
	"strings"

	"salvor/problem"
)

// DiskPrefix is how a guest names the disks of a bus.
func DiskPrefix(properties map[string]string) string {
	switch properties["hw_disk_bus"] {
	case "scsi", "sata", "usb":
		return "sd"
	case "ide":
		return "hd"
	}
	return "vd"
}

// FreeName is the first name in the row of disks that nobody has.
func FreeName(disks []Disk, prefix string) string {
	for i := range 26 * 27 {
		name := prefix + diskLetters(i)
		if !isDiskNameTaken(disks, name) {
			return name
		}
	}
	return ""
}

// isDiskNameTaken tells whether a disk has the place that a name tells: hypervisors place disks by their letters, whatever bus the name is of.
func isDiskNameTaken(disks []Disk, name string) bool {
	place := func(s string) string { return s[min(2, len(s)):] }
	return slices.ContainsFunc(disks, func(d Disk) bool { return place(d.Name) == place(name) })
}

func diskLetters(i int) string {
	if i < 26 {
		return string(rune('a' + i))
	}
	return string(rune('a'+i/26-1)) + string(rune('a'+i%26))
}

var deviceName = regexp.MustCompile(`^[vsh]d[a-z]$`)

func trimDevice(s string) string { return strings.TrimPrefix(s, "/dev/") }

// MaxDisks bounds the disks of a server: a guest's bus has no more places.
const MaxDisks = 26

// PlaceDisk finds the name of a further disk: that of the wanted place (with or without /dev/) on the server's bus, or the first
// that is free.
func PlaceDisk(disks []Disk, wanted, prefix string) (string, error) {
	if len(disks) >= MaxDisks {
		return "", problem.Conflictf("a server has at most %d disks", MaxDisks)
	}
	if wanted == "" {
		return FreeName(disks, prefix), nil
	}
	name := trimDevice(wanted)
	if !deviceName.MatchString(name) {
		return "", problem.Invalidf("device %.50q: want a name from /dev/%sa to /dev/%sz", wanted, prefix, prefix)
	}
	name = prefix + name[2:]
	if isDiskNameTaken(disks, name) {
		return "", problem.Conflictf("device %s is taken", name)
	}
	return name, nil
}

func (s *Server) DropVolume(id string) {
	s.Disks = slices.DeleteFunc(slices.Clone(s.Disks), func(d Disk) bool { return d.VolumeID == id })
}
