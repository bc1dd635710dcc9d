package redfish

import (
	"strings"

	"salvor/metal"
	"salvor/problem"
)

// logicalDisk is one of the target configuration.
type logicalDisk struct {
	level, name, controller, media, protocol string
	own                                      string  // the name that we give it where nobody else does
	bytes                                    float64 // 0: all that there is
	count                                    int
	disks                                    []string
	share                                    bool
}

func wantedDisk(v any) (logicalDisk, error) {
	o, _ := v.(map[string]any)
	w := logicalDisk{level: metal.Text(o["raid_level"]), name: metal.Text(o["volume_name"]), controller: metal.Text(o["controller"]), share: o["share_physical_disks"] == true}
	w.media = strings.ToUpper(metal.Text(o["disk_type"]))
	w.protocol = strings.ToUpper(metal.Text(o["interface_type"]))
	if size, ok := o["size_gb"].(float64); ok {
		w.bytes = size * gib
	}
	if count, ok := o["number_of_physical_disks"].(float64); ok {
		w.count = int(count)
	}
	list, _ := o["physical_disks"].([]any)
	for _, e := range list {
		id, ok := e.(string)
		if !ok {
			return w, problem.Invalidf("physical_disks must be ids of drives")
		}
		w.disks = append(w.disks, id)
	}
	return w, nil
}

// ownVolume begins the names of volumes that salvor makes. With 8 digits they are as long as any controller takes.
const ownVolume = "salvor-"

// missingDisks lists what of the target configuration is not there, and takes what is. The name tells what was asked for
// already by who died before that was noted, whatever the controller has made of its size so far.
func missingDisks(n *metal.Node, targets []any, all []*storageController, taken map[*raidVolume]bool) ([]logicalDisk, error) {
	var rest, missing []logicalDisk
	for i, t := range targets {
		w, err := wantedDisk(t)
		if err != nil {
			return nil, err
		}
		if w.name == "" {
			w.own = ownVolume + metal.Digest([]any{"volume", n.ID, i, t})[:8]
		}
		if !w.made(all, taken) {
			rest = append(rest, w)
		}
	}
	for _, w := range rest {
		if !w.found(all, taken) {
			missing = append(missing, w)
		}
	}
	return missing, nil
}

// made looks for a volume that bears the name that we give and takes it.
func (w logicalDisk) made(all []*storageController, taken map[*raidVolume]bool) bool {
	for _, c := range all {
		for _, v := range c.volumes {
			if w.own != "" && !taken[v] && (v.Name == w.own || v.DisplayName == w.own) {
				taken[v] = true
				return true
			}
		}
	}
	return false
}

// found looks for a volume that is the wanted one and takes it.
func (w logicalDisk) found(all []*storageController, taken map[*raidVolume]bool) bool {
	for _, c := range all {
		for _, v := range c.volumes {
			// What a controller makes of a size is a little more or less.
			fits := w.bytes == 0 || v.CapacityBytes != nil && *v.CapacityBytes > w.bytes*0.95 && *v.CapacityBytes < w.bytes*1.05
			if !taken[v] && v.level() == w.level && fits && (w.name == "" || v.Name == w.name) && (w.controller == "" || w.controller == c.ID) {
				taken[v] = true
				return true
			}
		}
	}
	return false
}
