package metal

import (
	"context"
	"fmt"
	"math"
	"slices"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// LogicalDiskProperties describe what a logical disk of a RAID configuration may hold.
var LogicalDiskProperties = map[string]string{
	"raid_level":               "RAID level of the logical disk: JBOD, 0, 1, 2, 5, 6, 1+0, 5+0 or 6+0. Required.",
	"size_gb":                  "Size of the logical disk in GiB, a whole number, or MAX for what is left. Required.",
	"volume_name":              "Name of the volume. Without one the controller chooses. Optional.",
	"is_root_volume":           "Whether the system lies on this logical disk; at most one may say so. Optional, false without it.",
	"share_physical_disks":     "Whether its physical disks may be used for other logical disks too. Optional, false without it.",
	"disk_type":                "Kind of physical disks to use: hdd or ssd. Optional.",
	"interface_type":           "Interface of the physical disks to use: sata, scsi or sas. Optional.",
	"number_of_physical_disks": "How many physical disks to use; as few as the level allows without it. Optional.",
	"controller":               "The RAID controller to use. Optional, but required beside physical_disks.",
	"physical_disks":           "The physical disks to use, by id. Optional.",
}

var raidWords = map[string][]string{
	"raid_level":     {"JBOD", "0", "1", "2", "5", "6", "1+0", "5+0", "6+0"},
	"disk_type":      {"hdd", "ssd"},
	"interface_type": {"sata", "scsi", "sas"},
}

// maxDisks bounds the logical disks of a configuration, and the physical ones of a logical disk.
const maxDisks = 256

// checkRAID holds a target RAID configuration to its form. Every error is Invalid.
func checkRAID(config Object) error {
	for key := range config {
		if key != "logical_disks" {
			return problem.Invalidf("RAID configuration validation failed: %.100q was unexpected; it holds logical_disks", key)
		}
	}
	disks, ok := config["logical_disks"].([]any)
	if !ok || len(disks) == 0 || len(disks) > maxDisks {
		return problem.Invalidf("RAID configuration validation failed: logical_disks must be a list of 1 to %d disks", maxDisks)
	}
	roots := 0
	for i, d := range disks {
		disk, ok := d.(map[string]any)
		if !ok {
			return problem.Invalidf("RAID configuration validation failed: logical_disks[%d] is no object", i)
		}
		if err := checkLogicalDisk(disk); err != nil {
			return problem.Invalidf("RAID configuration validation failed: logical_disks[%d]: %w", i, err)
		}
		if disk["is_root_volume"] == true {
			roots++
		}
	}
	if roots > 1 {
		return problem.Invalidf("RAID configuration validation failed: more than one logical disk has is_root_volume")
	}
	return nil
}

func checkLogicalDisk(disk map[string]any) error {
	for _, key := range []string{"raid_level", "size_gb"} {
		if disk[key] == nil {
			return fmt.Errorf("it lacks %s", key)
		}
	}
	if disk["physical_disks"] != nil && disk["controller"] == nil {
		return fmt.Errorf("physical_disks need controller")
	}
	for key, v := range disk {
		if _, ok := LogicalDiskProperties[key]; !ok {
			return fmt.Errorf("%.100q was unexpected", key)
		}
		if !raidValue(key, v) {
			return fmt.Errorf("the value of %s is not valid: %s", key, LogicalDiskProperties[key])
		}
	}
	return nil
}

// raidValue tells whether a value has the type, or is one of the words, of its key.
func raidValue(key string, v any) bool {
	switch v := v.(type) {
	case string:
		switch words := raidWords[key]; {
		case words != nil:
			return slices.Contains(words, v)
		case key == "size_gb":
			return v == "MAX"
		}
		return key == "volume_name" || key == "controller"
	case bool:
		return key == "is_root_volume" || key == "share_physical_disks"
	case float64:
		whole := v == math.Trunc(v) && v >= 0 && v < 1<<40
		return whole && (key == "size_gb" || key == "number_of_physical_disks" && v > 0)
	case []any:
		return key == "physical_disks" && physicalDisks(v)
	}
	return false
}

// physicalDisks are ids, or two or more descriptions.
func physicalDisks(list []any) bool {
	if len(list) > maxDisks {
		return false
	}
	ids, hints := 0, 0
	for _, e := range list {
		switch e.(type) {
		case string:
			ids++
		case map[string]any:
			hints++
		}
	}
	return ids == len(list) || hints == len(list) && hints > 1
}

// SetTargetRAID sets the RAID configuration that the next raid.create_configuration is to make; an empty one is none.
// Unsupported where the node's driver knows no RAID.
func (s *Nodes) SetTargetRAID(ctx context.Context, ident string, config Object, asker record.Asker) error {
	n, err := s.store.Node(ctx, nil, ident)
	if err != nil {
		return err
	}
	d, err := s.directory.Driver(ctx, n)
	if err != nil {
		return err
	}
	if i, ok := d.Find(n, "raid"); !ok || i.Unsupported {
		return Lacks(n, "raid")
	}
	if len(config) > 0 {
		if err := checkRAID(config); err != nil {
			return err
		}
	}
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		n, err := s.store.Node(ctx, tx, n.ID)
		if err != nil {
			return err
		}
		if n.Reservation != "" {
			return Locked(n)
		}
		n.TargetRAID = config
		if err := s.store.SaveNode(tx, n); err != nil {
			return err
		}
		return s.note(tx, n.ID, asker, "request", "target RAID configuration set")
	})
}
