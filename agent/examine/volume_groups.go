package examine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"salvor/diagnose"
)

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
