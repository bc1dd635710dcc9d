package redfish

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

// RAID is the raid interface: volumes of the controllers that the BMC reaches.
type RAID struct{ Driver *Driver }

var (
	_ driver.RAID       = RAID{}
	_ driver.StepRunner = RAID{}
)

// levels are RAID levels by Ironic's word and Redfish's, with the fewest disks that each takes.
var levels = []struct {
	word, raidType, volumeType string
	disks                      int
}{
	{"JBOD", "None", "NonRedundant", 1}, {"0", "RAID0", "NonRedundant", 1}, {"1", "RAID1", "Mirrored", 2}, {"5", "RAID5", "StripedWithParity", 3},
	{"6", "RAID6", "StripedWithParity", 4}, {"1+0", "RAID10", "SpannedMirrors", 4}, {"5+0", "RAID50", "SpannedStripesWithParity", 6}, {"6+0", "RAID60", "SpannedStripesWithParity", 8},
}

// physicalDrive is a physical disk.
type physicalDrive struct {
	ID            string `json:"Id"`
	CapacityBytes *float64
	MediaType     string
	Protocol      string
	Links         struct{ Volumes []resourceLink }
	path          string
}

// raidVolume is a logical one.
type raidVolume struct {
	ID            string `json:"Id"`
	Name          string
	DisplayName   string
	RAIDType      string
	VolumeType    string
	CapacityBytes *float64
	Links         struct{ Drives []resourceLink }
	path          string
}

// storageController is a Storage resource with what belongs to it.
type storageController struct {
	ID      string `json:"Id"`
	Drives  []resourceLink
	Volumes resourceLink

	disks   []*physicalDrive
	volumes []*raidVolume
}

func (s *bmcSession) controllers() ([]*storageController, error) {
	sys, err := s.read()
	if err != nil {
		return nil, err
	}
	if sys.Storage.Path == "" {
		return nil, problem.Unsupportedf("the BMC shows no storage controllers")
	}
	var out []*storageController
	if err := forEachMember(s, sys.Storage, func(c storageController) { out = append(out, &c) }); err != nil {
		return nil, err
	}
	out = slices.DeleteFunc(out, func(c *storageController) bool { return c.Volumes.Path == "" })
	if len(out) == 0 {
		return nil, problem.Unsupportedf("the BMC shows no storage controller with volumes")
	}
	for _, c := range out {
		for _, at := range c.Drives[:min(len(c.Drives), maxParts)] {
			d := &physicalDrive{path: at.Path}
			if _, err := s.get(at.Path, d); err != nil {
				return nil, err
			}
			c.disks = append(c.disks, d)
		}
		all, err := s.members(c.Volumes.Path, maxParts)
		if err != nil {
			return nil, err
		}
		for _, at := range all {
			v := &raidVolume{path: at.Path}
			if _, err := s.get(at.Path, v); err != nil {
				return nil, err
			}
			if v.level() != "" || strings.HasPrefix(v.Name, ownVolume) || strings.HasPrefix(v.DisplayName, ownVolume) {
				c.volumes = append(c.volumes, v)
			}
		}
	}
	return out, nil
}

// level is the RAID level in Ironic's word; empty for what is no volume of a RAID: a bare disk that the controller passes through.
func (v *raidVolume) level() string {
	if v.VolumeType == "RawDevice" {
		return ""
	}
	for _, l := range levels {
		if v.RAIDType == l.raidType {
			return l.word
		}
	}
	for _, l := range levels[1:] {
		if v.RAIDType == "" && v.VolumeType == l.volumeType {
			return l.word
		}
	}
	return ""
}

const gib = 1 << 30

// RAIDConfig lists the volumes of all controllers.
func (r RAID) RAIDConfig(ctx context.Context, n *metal.Node) (metal.Object, error) {
	var config metal.Object
	err := r.Driver.with(ctx, n, "read volumes", func(s *bmcSession) error {
		all, err := s.controllers()
		if err != nil {
			return err
		}
		disks := []any{}
		for _, c := range all {
			for _, v := range c.volumes {
				if v.level() == "" {
					continue // it is being made
				}
				size := 0.0
				if v.CapacityBytes != nil {
					size = float64(int64(*v.CapacityBytes / gib))
				}
				disks = append(disks, map[string]any{"size_gb": size, "raid_level": v.level(), "controller": c.ID, "volume_name": v.Name, "id": v.ID})
			}
		}
		config = metal.Object{"logical_disks": disks}
		return nil
	})
	return config, err
}

// Steps are those that Ironic has.
func (r RAID) Steps(context.Context, *metal.Node) ([]driver.Step, error) {
	return driver.RAIDSteps, nil
}

// RunStep does one of them. A controller that works on it is asked again by and by.
func (r RAID) RunStep(ctx context.Context, n *metal.Node, step metal.Step) (bool, error) {
	wait := false
	err := r.Driver.with(ctx, n, "step "+driver.Sanitize(step.Interface+"."+step.Step), func(s *bmcSession) (err error) {
		all, err := s.controllers()
		if err != nil {
			return err
		}
		switch step.Step {
		case "create_configuration":
			wait, err = s.create(n, step, all)
		case "delete_configuration":
			if wait, err = s.deleteVolumes(n, all, func(*raidVolume) bool { return true }); !wait && err == nil {
				recordRequest(n, nil)
			}
		default:
			err = problem.Invalidf("there is no such step")
		}
		return err
	})
	return wait, err
}

// ForgetStep has volumes asked for anew.
func (r RAID) ForgetStep(n *metal.Node) { recordRequest(n, nil) }

// deleteVolumes asks for the removal of volumes, one in each call and each once: a controller that is at it refuses to be
// asked again. There are none left when it need not be called again.
func (s *bmcSession) deleteVolumes(n *metal.Node, all []*storageController, which func(*raidVolume) bool) (wait bool, err error) {
	for _, c := range all {
		for _, v := range c.volumes {
			if !which(v) {
				continue
			}
			ask := []any{"delete", v.path}
			if wasRequested(n, ask) {
				return true, nil
			}
			if err := s.delete(v.path); err != nil {
				return false, err
			}
			recordRequest(n, ask)
			return true, nil
		}
	}
	return false, nil
}

// create makes the volumes of the target configuration that are not there yet, one in each call.
func (s *bmcSession) create(n *metal.Node, step metal.Step, all []*storageController) (wait bool, err error) {
	targets, err := driver.WantedDisks(n, step)
	if err != nil {
		return false, err
	}
	taken := map[*raidVolume]bool{}
	missing, err := missingDisks(n, targets, all, taken)
	if err != nil {
		return false, err
	}
	if step.Args["delete_existing"] == true && len(missing) > 0 {
		if wait, err := s.deleteVolumes(n, all, func(v *raidVolume) bool { return !taken[v] }); wait || err != nil {
			return wait, err
		}
	}
	if len(missing) == 0 {
		recordRequest(n, nil)
		return false, nil
	}
	// MAX takes what the others leave.
	slices.SortStableFunc(missing, func(a, b logicalDisk) int {
		switch {
		case a.bytes == 0 && b.bytes != 0:
			return 1
		case a.bytes != 0 && b.bytes == 0:
			return -1
		}
		return 0
	})
	ask := []any{"raid", len(missing), targets}
	if wasRequested(n, ask) {
		return true, nil
	}
	if err := s.make(missing[0], all); err != nil {
		return false, err
	}
	recordRequest(n, ask)
	return true, nil
}

// make asks a controller for one volume.
func (s *bmcSession) make(w logicalDisk, all []*storageController) error {
	i := slices.IndexFunc(levels, func(l struct {
		word, raidType, volumeType string
		disks                      int
	}) bool {
		return l.word == w.level
	})
	if i < 0 {
		return problem.Unsupportedf("Redfish has no RAID level %s", driver.Sanitize(w.level))
	}
	level := levels[i]
	for _, c := range all {
		if w.controller != "" && w.controller != c.ID {
			continue
		}
		disks := w.choose(c, max(w.count, level.disks))
		if disks == nil {
			continue
		}
		body := map[string]any{"RAIDType": level.raidType, "VolumeType": level.volumeType, "Links": map[string]any{"Drives": disks}}
		if w.bytes > 0 {
			body["CapacityBytes"] = int64(w.bytes)
		}
		body["Name"] = cmp.Or(w.name, w.own)
		_, err := s.post(c.Volumes.Path, body)
		if w.name == "" && problem.Is(err, problem.Invalid) {
			// Some controllers name volumes themselves. What is refused was not made.
			delete(body, "Name")
			_, err = s.post(c.Volumes.Path, body)
		}
		return err
	}
	return problem.Invalidf("no controller has the disks for a logical disk of RAID level %s and %d GiB", w.level, int64(w.bytes/gib))
}

// choose picks disks of a controller; nil if it has too few that fit.
func (w logicalDisk) choose(c *storageController, count int) []resourceLink {
	var out []resourceLink
	for _, d := range c.disks {
		if len(w.disks) > 0 {
			if slices.Contains(w.disks, d.ID) {
				out = append(out, resourceLink{d.path})
			}
			continue
		}
		busy := slices.ContainsFunc(c.volumes, func(v *raidVolume) bool {
			return slices.ContainsFunc(v.Links.Drives, func(l resourceLink) bool { return l.Path == d.path })
		})
		if (busy && !w.share) || (w.media != "" && d.MediaType != w.media) || (w.protocol != "" && d.Protocol != w.protocol) {
			continue
		}
		if len(out) < count {
			out = append(out, resourceLink{d.path})
		}
	}
	if len(w.disks) > 0 && len(out) < len(w.disks) || len(out) < count && len(w.disks) == 0 {
		return nil
	}
	return out
}

// delete removes a resource; one that is gone is success.
func (s *bmcSession) delete(path string) error {
	if !isLocalPath(path) {
		return problem.Unavailablef("it links to %s, which is no path on it", problem.Quote(driver.Sanitize(path)))
	}
	resp, err := s.ask(http.MethodDelete, path, nil, nil)
	if err != nil {
		if err = s.fault(err); isMissing(err) {
			return nil
		}
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return problem.Unavailablef("%d: the BMC does not delete it", resp.StatusCode)
	}
	return nil
}
