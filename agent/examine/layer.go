package examine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"salvor/diagnose"
)

// maxDevices bounds what a hostile partition table or volume group can make.
const maxDevices = 512

// contents that are recognized and belong to other systems or to layers that are not assembled.
var notAssembled = map[string]string{
	"zfs_member": "a ZFS pool is not examined", "bcache": "a bcache device is not examined", "ceph_bluestore": "a Ceph OSD is not examined",
	"VMFS_volume_member": "a VMFS volume is not examined", "BitLocker": "a BitLocker volume is not examined", "drbd": "a DRBD device is not examined",
	"isw_raid_member": "an array of Intel's firmware RAID is not examined", "ddf_raid_member": "an array of a DDF firmware RAID is not examined",
	"adaptec_raid_member": "an array of a firmware RAID is not examined", "promise_fasttrack_raid_member": "an array of a firmware RAID is not examined",
	"mpath_member": "a path of a multipath device is not examined", "VDO": "a VDO device is not examined", "stratis": "a Stratis pool is not examined",
}

// add adds devices that lie on others, and probes them.
func (x *examinationRun) add(ctx context.Context, added ...*device) bool {
	if room := maxDevices - len(x.devices); len(added) > room {
		x.gap(added[0].disk, "it has more than %d block devices", maxDevices)
		added = added[:max(room, 0)]
	}
	for _, d := range added {
		x.refuseUncovered(blockDevices, d)
	}
	x.devices = append(x.devices, added...)
	x.probe(ctx, added)
	return len(added) > 0
}

// blockDevices is where the kernel lists all block devices and partitions.
const blockDevices = "/sys/class/block"

// refuseUncovered takes the node from a device that does not lie on overlays of this run alone. A clone of a volume group that the ramdisk
// uses has the UUIDs of that group: lvm reports the mapping over the uncovered disk as the volume of the clone.
func (x *examinationRun) refuseUncovered(sys string, d *device) bool {
	if d.node == "" || isCovered(sys, d.node, x.loops) {
		return false
	}
	d.node = ""
	d.NotExamined = "the kernel maps it to a device that no overlay covers"
	x.gap(d.Path, "%s", d.NotExamined)
	return true
}

var loopPartition = regexp.MustCompile(`^(loop\d+)p\d+$`)

// isCovered says whether a device lies on the given loop devices alone. A part of a volume that maps no device, such as an error target in
// place of a missing disk, has nothing to cover.
func isCovered(sys, node string, loops map[string]bool) bool {
	name, ok := strings.CutPrefix(node, "/dev/")
	if !ok || strings.Contains(name, "/") {
		return false
	}
	onLoops := false
	queue, visited := []string{name}, map[string]bool{name: true}
	for len(queue) > 0 {
		name, queue = queue[0], queue[1:]
		if groups := loopPartition.FindStringSubmatch(name); groups != nil {
			name = groups[1]
		}
		if loops[name] {
			onLoops = true
			continue
		}
		below, err := os.ReadDir(filepath.Join(sys, name, "slaves"))
		if err != nil || len(visited) > maxDevices || len(below) == 0 && !strings.HasPrefix(name, "dm-") {
			return false
		}
		for _, b := range below {
			if !visited[b.Name()] {
				visited[b.Name()] = true
				queue = append(queue, b.Name())
			}
		}
	}
	return onLoops
}

// probe asks what devices hold.
func (x *examinationRun) probe(ctx context.Context, devices []*device) {
	args := []string{"-p", "-o", "export"}
	for _, d := range devices {
		if d.node == "" {
			continue
		}
		args = append(args, d.node)
		if size, err := deviceSize(d.node); err == nil && d.Size == 0 {
			d.Size = size
		}
	}
	if len(args) == 3 {
		return
	}
	a, err := x.tools.run(ctx, nil, "blkid", args...)
	for _, d := range devices {
		if d.node == "" {
			continue
		}
		if err != nil || a.cut {
			d.NotExamined = "blkid does not say what it holds"
			x.gap(d.Path, "%s: %v", d.NotExamined, err)
			continue
		}
		found := probedDevice(a.text, d.node)
		d.FS, d.UUID, d.Label, d.Table, d.member = found["TYPE"], found["UUID"], found["LABEL"], found["PTTYPE"], found["UUID_SUB"]
		if d.Kind == diagnose.PartitionDevice {
			d.PartUUID, d.PartLabel, d.PartType = found["PART_ENTRY_UUID"], found["PART_ENTRY_NAME"], found["PART_ENTRY_TYPE"]
		}
	}
}

// probedDevice is what blkid -o export says of one of several devices: records that begin with DEVNAME. One that it says nothing of holds nothing.
func probedDevice(out, node string) map[string]string {
	for _, record := range strings.Split(out, "\n\n") {
		if found := exportedFields(record); found["DEVNAME"] == node {
			return found
		}
	}
	return nil
}

// exportedFields reads KEY=value lines as blkid and mdadm write them; a backslash stands before what a shell would read.
func exportedFields(out string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(out) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if !ok || len(found) > 200 {
			continue
		}
		var plain strings.Builder
		for i := 0; i < len(value); i++ {
			if value[i] == '\\' && i+1 < len(value) {
				i++
			}
			plain.WriteByte(value[i])
		}
		found[key] = strings.ToValidUTF8(plain.String(), "?")
	}
	return found
}

// addPartitions adds the partitions that the kernel found on the overlay of a disk or of an array.
func (x *examinationRun) addPartitions(ctx context.Context, parent *device) {
	loop := filepath.Base(parent.node)
	folders, _ := filepath.Glob(filepath.Join("/sys/block", loop, loop+"p*"))
	slices.SortFunc(folders, func(a, b string) int {
		return int(sysNumber(filepath.Join(a, "partition")) - sysNumber(filepath.Join(b, "partition")))
	})
	var added []*device
	for _, folder := range folders {
		number := sysNumber(filepath.Join(folder, "partition"))
		added = append(added, &device{Device: diagnose.Device{
			Path: partitionName(parent.Path, number), Kind: diagnose.PartitionDevice, Parents: []string{parent.Path}, PartNumber: int(number),
			PartStart: sysNumber(filepath.Join(folder, "start")) * 512, Size: sysNumber(filepath.Join(folder, "size")) * 512,
		}, node: "/dev/" + filepath.Base(folder), disk: parent.disk})
	}
	if len(added) > 0 {
		x.add(ctx, added...)
	}
}

// partitionName is the kernel's: /dev/sda1, /dev/nvme0n1p1.
func partitionName(parent string, number int64) string {
	if last := parent[len(parent)-1]; last >= '0' && last <= '9' {
		return fmt.Sprintf("%sp%d", parent, number)
	}
	return fmt.Sprintf("%s%d", parent, number)
}

func sysNumber(file string) int64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n
}

// assemble starts one array. Its path is the one that its own system gives it, as far as its name tells.
func (x *examinationRun) assemble(ctx context.Context, i int, uuid string, parts *arrayParts) {
	a := diagnose.Array{Name: diagnose.Excerpt(parts.first.name), UUID: uuid, Level: parts.first.level, Wanted: parts.first.wanted, Members: parts.members}
	short := parts.first.name[strings.LastIndex(parts.first.name, ":")+1:]
	switch {
	case regexp.MustCompile(`^\d{1,3}$`).MatchString(short):
		a.Path = "/dev/md" + short
	case arrayName.MatchString(short):
		a.Path = "/dev/md/" + short
	default:
		a.Path = fmt.Sprintf("/dev/md%d", 127-i)
	}
	d := &device{Device: diagnose.Device{Path: a.Path, Kind: diagnose.ArrayDevice}, disk: parts.devices[0].disk}
	var nodes []string
	newest := uint64(0)
	for j, other := range parts.devices {
		d.Parents = append(d.Parents, other.Path)
		nodes = append(nodes, other.node)
		if parts.members[j].Role == "active" {
			newest = max(newest, parts.members[j].Events)
		}
	}
	for _, m := range parts.members {
		// mdadm leaves out a member that missed a write.
		if m.Role == "active" && m.Events+1 >= newest {
			a.Present++
		}
	}
	number := freeArray()
	node := fmt.Sprintf("/dev/md%d", number)
	args := []string{"--assemble", "--config=/dev/null", "--run", node}
	if !x.mending {
		args = append(args, "--readonly")
	}
	args = append(args, nodes...)
	said, err := x.tools.run(ctx, nil, "mdadm", args...)
	size, sizeErr := deviceSize(node)
	if err == nil && sizeErr == nil && size > 0 {
		a.Started = true
		if b, err := os.ReadFile(fmt.Sprintf("/sys/block/md%d/md/degraded", number)); err == nil {
			if missing, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && a.Wanted > 0 {
				a.Present = max(a.Wanted-missing, 0)
			}
		}
		d.node, err = x.coverArray(ctx, d, number)
	} else if err == nil {
		err = fmt.Errorf("mdadm does not start it: %s", lastLine(said.text))
	}
	x.arrays = append(x.arrays, a)
	if err != nil {
		d.NotExamined = diagnose.Excerpt(err.Error())
		x.gap(d.Path, "%v", err)
		// What was started and has no overlay is not shown to anybody.
		_, _ = x.tools.run(ctx, nil, "mdadm", "--stop", node)
	}
	if x.add(ctx, d) && d.node != "" {
		x.addPartitions(ctx, d)
	}
}

func (x *examinationRun) diskOf(path string) *examinedDisk {
	for _, d := range x.disks {
		if d.Path == path {
			return d
		}
	}
	return nil
}

var uuidText = regexp.MustCompile(`^[0-9A-Za-z-]{8,64}$`)
