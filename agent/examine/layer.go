package examine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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

// assembleArrays assembles the arrays of mdraid read-only, and lays an overlay over each: a journal replays there and no resync begins.
func (x *examinationRun) assembleArrays(ctx context.Context) {
	var devices []*device
	args := []string{"--examine"}
	for _, d := range x.devices {
		if d.FS == "linux_raid_member" && d.node != "" {
			devices = append(devices, d)
			args = append(args, d.node)
		}
	}
	if len(devices) == 0 {
		return
	}
	said, err := x.tools.run(ctx, nil, "mdadm", args...)
	if err != nil {
		x.gap("RAID", "%v", err)
		return
	}
	found := map[string]*arrayParts{}
	var order []string
	for _, d := range devices {
		m := readMember(said.text, d.node)
		if m.uuid == "" {
			x.gap(d.Path, "mdadm names no array of this member")
			continue
		}
		a := found[m.uuid]
		if a == nil {
			a = &arrayParts{first: m}
			found[m.uuid] = a
			order = append(order, m.uuid)
		}
		a.devices = append(a.devices, d)
		a.members = append(a.members, diagnose.ArrayMember{Path: d.Path, Events: m.events, Role: m.role})
	}
	for i, uuid := range order {
		if i < 64 && !x.timeIsOver(ctx) {
			x.assemble(ctx, i, uuid, found[uuid])
		}
	}
}

// arrayParts are the members of an array that were found.
type arrayParts struct {
	first   arrayMember
	devices []*device
	members []diagnose.ArrayMember
}

// arrayMember is what mdadm reads of one member of an array.
type arrayMember struct {
	uuid, name, level string
	wanted            int
	events            uint64
	role              string
}

var memberField = regexp.MustCompile(`(?m)^ *(Array UUID|UUID|Name|Raid Level|Raid Devices|Events|Device Role) : (.*)$`)

// readMember reads what mdadm --examine says of one of several devices: paragraphs that begin with the device and a colon. The form of
// metadata 0.90 has no name, and a table in place of the role.
func readMember(out, node string) arrayMember {
	var m arrayMember
	at := strings.Index("\n"+out, "\n"+node+":\n")
	if at < 0 {
		return m
	}
	paragraph, _, _ := strings.Cut(out[at:], "\n/dev/")
	m.role = "active"
	for _, groups := range memberField.FindAllStringSubmatch(paragraph, 50) {
		value := strings.TrimSpace(groups[2])
		first, _, _ := strings.Cut(value, " ")
		switch groups[1] {
		case "Array UUID", "UUID":
			m.uuid = first
		case "Name":
			m.name = first
		case "Raid Level":
			m.level = first
		case "Raid Devices":
			m.wanted, _ = strconv.Atoi(first)
		case "Events":
			m.events, _ = strconv.ParseUint(first, 10, 64)
		case "Device Role":
			switch {
			case strings.Contains(value, "spare"):
				m.role = "spare"
			case strings.Contains(value, "faulty"):
				m.role = "faulty"
			}
		}
	}
	return m
}

var arrayName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)

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

// coverArray lays an overlay over an array. One that is mended writes to the overlays of its disks itself; no resync begins there.
func (x *examinationRun) coverArray(ctx context.Context, d *device, number int) (string, error) {
	node := fmt.Sprintf("/dev/md%d", number)
	if !x.mending {
		return x.cover(ctx, x.diskOf(d.disk), node, fmt.Sprintf("md%d", number), 512)
	}
	// Arrays without redundancy have no such file.
	err := os.WriteFile(fmt.Sprintf("/sys/block/md%d/md/sync_action", number), []byte("frozen"), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("keep the array from a resync: %w", err)
	}
	return x.showPartitions(node, 512)
}

// freeArray is the highest number of an array that is not in use.
func freeArray() int {
	for n := 127; n > 0; n-- {
		if _, err := os.Stat(fmt.Sprintf("/sys/block/md%d/md/array_state", n)); err != nil {
			return n
		}
		if b, _ := os.ReadFile(fmt.Sprintf("/sys/block/md%d/md/array_state", n)); strings.TrimSpace(string(b)) == "clear" {
			return n
		}
	}
	return 0
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

// keysOf are the keys to try on the container of a UUID.
func (r Request) keysOf(uuid string) []Key {
	return slices.Concat(r.KeysByUUID[strings.ToLower(uuid)], r.Keys)
}

// openContainers opens LUKS containers that are not open yet, and says whether it opened one.
func (x *examinationRun) openContainers(ctx context.Context) bool {
	opened := false
	for i, d := range slices.Clone(x.devices) {
		if d.FS != "crypto_LUKS" || d.node == "" || d.NotExamined != "" || x.isParent(d.Path) {
			continue
		}
		if x.timeIsOver(ctx) {
			break
		}
		keys := x.keysOf(d.UUID)
		if len(keys) == 0 {
			d.NotExamined = "it is a LUKS container, and no key was given; to open it: salvor diagnose NODE --luks-key FILE"
			x.gap(d.Path, "%s", d.NotExamined)
			continue
		}
		name := fmt.Sprintf("%scrypt%d", overlayPrefix, i)
		why := "no key that was given opens it"
		for _, key := range keys {
			said, err := x.tools.run(ctx, key, "cryptsetup", "open", "--type", "luks", "--key-file", "-", "--disable-keyring", d.node, name)
			if err != nil {
				why = err.Error()
				break
			}
			if said.exit == 0 {
				why = ""
				break
			}
			if said.exit == 3 {
				why = "there is too little memory to derive its key"
			}
		}
		if why != "" {
			d.NotExamined = diagnose.Excerpt(why)
			x.gap(d.Path, "it is a LUKS container: %s", why)
			continue
		}
		node, err := mapperNode(name)
		if err != nil {
			x.gap(d.Path, "%v", err)
			continue
		}
		label := filepath.Base(d.Path)
		if uuidText.MatchString(d.UUID) {
			label = d.UUID
		}
		opened = x.add(ctx, &device{Device: diagnose.Device{Path: "/dev/mapper/luks-" + label, Kind: diagnose.CryptDevice, Parents: []string{d.Path}}, node: node, disk: d.disk}) || opened
	}
	return opened
}

func (x *examinationRun) isParent(path string) bool {
	return slices.ContainsFunc(x.devices, func(d *device) bool { return slices.Contains(d.Parents, path) && d.Kind != diagnose.PartitionDevice })
}

// activateGroups activates the volume groups on the devices that are open, and says whether a new volume came of it.
func (x *examinationRun) activateGroups(ctx context.Context) bool {
	var physical []*device
	for _, d := range x.devices {
		if d.FS == "LVM2_member" && d.node != "" {
			physical = append(physical, d)
		}
	}
	if len(physical) == x.physical {
		return false
	}
	x.physical = len(physical)
	config := lvmConfig(physical)
	// The filter shows lvm the overlays only; of two groups with one name it takes each by its UUID.
	said, err := x.tools.run(ctx, nil, "lvm", "vgchange", "--config", config, "-ay", "--activationmode", "degraded", "--ignoremonitoring")
	if err != nil {
		x.gap("LVM", "%v", err)
		return false
	}
	if said.exit != 0 {
		x.gap("LVM", "not every volume can be activated: %s", lastLine(said.text))
	}
	report, err := x.tools.run(ctx, nil, "lvm", "fullreport", "--config", config, "--reportformat=json", "--units=b", "--nosuffix",
		"--configreport=vg", "-o", "vg_name,vg_uuid,vg_size,vg_free", "--configreport=pv", "-o", "pv_name,pv_uuid,pv_missing",
		"--configreport=lv", "-o", "lv_name,lv_path,lv_health_status,data_percent,metadata_percent,lv_kernel_minor,lv_active",
		"--configreport=pvseg", "-o", "pvseg_start", "--configreport=seg", "-o", "segtype")
	if err == nil && report.cut {
		err = errors.New("lvm reports more than is read")
	}
	if err != nil {
		x.gap("LVM", "%v", err)
		return false
	}
	groups, volumes := readGroups(report.output, physical)
	x.groups = groups
	added := volumes[:0]
	for _, d := range volumes {
		switch {
		case slices.ContainsFunc(x.devices, func(other *device) bool { return other.Path == d.Path }):
			continue
		case d.node == "":
			d.NotExamined = "lvm does not activate it"
			x.gap(d.Path, "lvm does not activate it")
		}
		// The node is checked by add: lvm takes a mapping of another group with the same UUIDs for this volume.
		added = append(added, d)
	}
	return len(added) > 0 && x.add(ctx, added...)
}

// lvmConfig has lvm see the given devices only, without udev, daemons, backups of metadata or checks of thin pools.
func lvmConfig(devices []*device) string {
	var accept []string
	for _, d := range devices {
		accept = append(accept, fmt.Sprintf("%q", "a|^"+d.node+"$|"))
	}
	accept = append(accept, `"r|.*|"`)
	return "devices{use_devicesfile=0 obtain_device_list_from_udev=0 external_device_info_source=\"none\" multipath_component_detection=0 filter=[" + strings.Join(accept, ",") + "] global_filter=[" +
		strings.Join(accept, ",") + "]} backup{backup=0 archive=0} log{syslog=0} activation{udev_sync=0 udev_rules=0 monitoring=0 verify_udev_operations=0} " +
		"global{use_lvmpolld=0 use_lvmlockd=0 locking_dir=\"/run/salvor/lvm\" thin_check_executable=\"\" cache_check_executable=\"\" event_activation=0}"
}

// lvmReport is what lvm fullreport prints as JSON: for each group its tables, all values as texts.
type lvmReport struct {
	Report []struct {
		Group    []map[string]string `json:"vg"`
		Physical []map[string]string `json:"pv"`
		Logical  []map[string]string `json:"lv"`
	} `json:"report"`
}

var volumeName = regexp.MustCompile(`^[A-Za-z0-9+_.][A-Za-z0-9+_.-]{0,127}$`)

// readGroups reads a report of lvm, which follows its warnings. It returns the groups and the devices of their volumes; a volume that is not
// active has no node.
func readGroups(out string, physical []*device) ([]diagnose.VolumeGroup, []*device) {
	var report lvmReport
	at := strings.Index(out, "{")
	if at < 0 || json.NewDecoder(strings.NewReader(out[at:])).Decode(&report) != nil {
		return nil, nil
	}
	var groups []diagnose.VolumeGroup
	var devices []*device
	for _, r := range report.Report {
		if len(r.Group) != 1 || !volumeName.MatchString(r.Group[0]["vg_name"]) {
			continue // physical volumes without a group
		}
		g := diagnose.VolumeGroup{Name: r.Group[0]["vg_name"], UUID: r.Group[0]["vg_uuid"]}
		g.Size, _ = strconv.ParseInt(r.Group[0]["vg_size"], 10, 64)
		g.Free, _ = strconv.ParseInt(r.Group[0]["vg_free"], 10, 64)
		var parents []string
		disk := ""
		for _, row := range r.Physical {
			if row["pv_missing"] != "" {
				g.Missing = append(g.Missing, row["pv_uuid"])
			}
			for _, d := range physical {
				if d.node == row["pv_name"] {
					parents, disk = append(parents, d.Path), cmp.Or(disk, d.disk)
				}
			}
		}
		for _, row := range r.Logical {
			if !volumeName.MatchString(row["lv_name"]) {
				continue
			}
			v := diagnose.LogicalVolume{Name: row["lv_name"], Path: "/dev/mapper/" + diagnose.MapperName(g.Name, row["lv_name"]), Health: row["lv_health_status"]}
			v.DataPercent, _ = strconv.ParseFloat(row["data_percent"], 64)
			v.MetadataPercent, _ = strconv.ParseFloat(row["metadata_percent"], 64)
			g.Volumes = append(g.Volumes, v)
			if row["lv_path"] == "" { // a pool or a part of another volume
				continue
			}
			d := &device{Device: diagnose.Device{Path: v.Path, Kind: diagnose.VolumeDevice, Parents: parents}, disk: disk}
			if minor, err := strconv.Atoi(row["lv_kernel_minor"]); err == nil && minor >= 0 && row["lv_active"] == "active" {
				d.node = fmt.Sprintf("/dev/dm-%d", minor)
			}
			devices = append(devices, d)
		}
		groups = append(groups, g)
	}
	return groups, devices
}
