package repair

import (
	"slices"

	"salvor/agent/examine"
	"salvor/diagnose"
	"salvor/problem"
	"salvor/repair"
)

// maxDepth bounds how many devices lie on each other.
const maxDepth = 16

// diskRange is a range of a disk, in bytes.
type diskRange struct {
	disk           string
	offset, length int64
}

// accountedRanges are the ranges of disks whose changes a plan shows: the blocks that it notes, and what holds a file system that was mounted.
func accountedRanges(editors []*systemEditor, blocks []repair.BlockChange) []diskRange {
	var out []diskRange
	for _, e := range editors {
		finder := rangeFinder{devices: e.mounted.Devices}
		for _, d := range e.mounted.Devices {
			_, err := e.node(d.Path)
			isMounted := problem.Is(err, problem.Conflict)
			// An array is started writable and then writes to its members.
			if isMounted || d.Kind == diagnose.ArrayDevice {
				finder.addDevice(d, 0)
			}
			if isMounted && d.FS == "btrfs" && d.UUID != "" {
				finder.addPool(d.UUID)
			}
		}
		for _, b := range blocks {
			finder.addBlocks(b)
		}
		out = append(out, finder.found...)
	}
	return out
}

// rangeFinder finds the ranges of disks that devices lie on.
type rangeFinder struct {
	devices []diagnose.Device
	found   []diskRange
}

func (r *rangeFinder) deviceAt(name string) *diagnose.Device {
	i := slices.IndexFunc(r.devices, func(d diagnose.Device) bool { return d.Path == name })
	if i < 0 {
		return nil
	}
	return &r.devices[i]
}

// addDevice adds all ranges that a device lies on. Of what lies on several members, all members count.
func (r *rangeFinder) addDevice(d diagnose.Device, depth int) {
	if d.Kind == diagnose.DiskDevice {
		r.found = append(r.found, diskRange{d.Path, 0, d.Size})
		return
	}
	if depth > maxDepth {
		return
	}
	for _, name := range d.Parents {
		parent := r.deviceAt(name)
		switch {
		case parent == nil:
		case parent.Kind == diagnose.DiskDevice && d.Kind == diagnose.PartitionDevice:
			r.found = append(r.found, diskRange{name, d.PartStart, d.Size})
		default:
			r.addDevice(*parent, depth+1)
		}
	}
}

// addPool adds all devices of a btrfs.
func (r *rangeFinder) addPool(uuid string) {
	for _, d := range r.devices {
		if d.FS == "btrfs" && d.UUID == uuid {
			r.addDevice(d, 0)
		}
	}
}

// addBlocks adds noted blocks of a disk. Those of another device count for all that it lies on.
func (r *rangeFinder) addBlocks(b repair.BlockChange) {
	d := r.deviceAt(b.Device)
	switch {
	case d == nil:
	case d.Kind == diagnose.DiskDevice:
		r.found = append(r.found, diskRange{b.Device, b.Offset, b.Length})
	default:
		r.addDevice(*d, 0)
	}
}

// checkAccounted is problem.Conflict where a chunk of a disk changed that no part of the plan shows: a program that was given the disk wrote there.
func checkAccounted(d examine.CoveredDisk, chunks []changedChunk, ranges []diskRange) error {
	for _, c := range chunks {
		isShown := slices.ContainsFunc(ranges, func(r diskRange) bool {
			return r.disk == d.Path && c.offset < r.offset+r.length && r.offset < c.offset+int64(c.length)
		})
		if !isShown {
			return problem.Conflictf("the repair is not offered: it changes %d bytes at %d of %s, which the plan does not show: a program of the system wrote there", c.length, c.offset, d.Path)
		}
	}
	return nil
}
