package redfish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/link"
	"salvor/driver/redfish/refusal"
	"salvor/metal"
	"salvor/problem"
)

// RAID is the raid interface: volumes of the controllers that the BMC reaches.
type RAID struct{ Driver *Driver }

var (
	_ driver.RAID       = RAID{}
	_ driver.StepRunner = RAID{}
)

// raidLevel is a RAID level in Ironic's word, with Redfish's words for it and the fewest disks that it takes.
type raidLevel struct {
	word, raidType, volumeType string
	disks                      int
}

// levels are RAID levels by Ironic's word and Redfish's, with the fewest disks that each takes.
var levels = []raidLevel{
	{"JBOD", "None", "NonRedundant", 1}, {"0", "RAID0", "NonRedundant", 1}, {"1", "RAID1", "Mirrored", 2}, {"5", "RAID5", "StripedWithParity", 3},
	{"6", "RAID6", "StripedWithParity", 4}, {"1+0", "RAID10", "SpannedMirrors", 4}, {"5+0", "RAID50", "SpannedStripesWithParity", 6}, {"6+0", "RAID60", "SpannedStripesWithParity", 8},
}

// physicalDrive is a physical disk.
type physicalDrive struct {
	ID            string `json:"Id"`
	CapacityBytes *float64
	MediaType     string
	Protocol      string
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
	Links         struct{ Drives link.Links }
	Drives        link.Links // old BMCs have them outside of Links
	path          string
}

// storageController is a Storage resource with what belongs to it.
type storageController struct {
	ID      string `json:"Id"`
	Drives  link.Links
	Volumes link.Link

	disks   []*physicalDrive
	volumes []*raidVolume
	former  []string // paths of all volumes that were shown, of bare disks too
	unread  error    // of volumes that could not be read; nil: volumes has all
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
	var without []string
	_, err = conversation.Each(s.bmc, sys.Storage, maxParts, func(path, _ string, c *storageController) {
		if c.Volumes.Path == "" {
			without = append(without, link.ID(path))
			return
		}
		out = append(out, c)
	})
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, s.bmc.Lacking(problem.Unsupportedf("the BMC shows no storage controller with volumes below %s: %s", s.bmc.Quote(sys.Storage.Path), s.bmc.Quote(strings.Join(without, ", "))))
	}
	for _, c := range out {
		_, err := conversation.EachOf(s.bmc, c.Drives[:min(len(c.Drives), maxParts)], func(path, _ string, d *physicalDrive) {
			d.path = path
			c.disks = append(c.disks, d)
		})
		if err := s.bmc.LeaveOut(err); err != nil { // a drive that cannot be read is not used
			return nil, err
		}
		left, err := conversation.Each(s.bmc, c.Volumes, maxParts, func(path, _ string, v *raidVolume) {
			v.path, c.former = path, append(c.former, link.Trim(path))
			if v.level() != "" || strings.HasPrefix(v.Name, ownVolume) || strings.HasPrefix(v.DisplayName, ownVolume) {
				c.volumes = append(c.volumes, v)
			}
		})
		isGone := func(err error) bool { return errors.Is(err, conversation.ErrMissing) }
		if c.unread = err; len(left) > 0 {
			c.unread = errors.Join(slices.DeleteFunc(left, isGone)...)
		}
		if err := s.bmc.LeaveOut(err); err != nil {
			return nil, err
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
		for _, c := range all { // a volume that is not shown may be there all the same
			if c.unread != nil {
				return problem.New(problem.KindOf(c.unread), "the volumes of controller %s cannot all be read, so none is made or deleted: %w", s.bmc.Quote(c.ID), c.unread)
			}
		}
		switch step.Step {
		case "create_configuration":
			wait, err = s.create(n, step, all)
		case "delete_configuration":
			if wait, err = s.deleteVolumes(n, all, func(*raidVolume) bool { return true }); !wait && err == nil {
				forgetRequest(n)
			}
		default:
			err = problem.Invalidf("there is no such step")
		}
		return err
	})
	return wait, err
}

// ForgetStep has volumes asked for anew.
func (r RAID) ForgetStep(n *metal.Node) { forgetRequest(n) }

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
				return true, s.checkTask(n, requestedKey)
			}
			order, err := s.bmc.Delete(v.path)
			if err = order.Sure(err); err != nil {
				return false, err
			}
			recordRequest(n, ask, order)
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
		forgetRequest(n)
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
		return true, s.checkTask(n, requestedKey)
	}
	order, err := s.make(missing[0], all)
	if err != nil {
		return false, err
	}
	recordRequest(n, ask, order)
	return true, nil
}

// make asks a controller for one volume: the first that has the disks and takes the request.
func (s *bmcSession) make(w logicalDisk, all []*storageController) (order conversation.Order, err error) {
	i := slices.IndexFunc(levels, func(l raidLevel) bool { return l.word == w.level })
	if i < 0 {
		return order, problem.Unsupportedf("Redfish has no RAID level %s", driver.Sanitize(w.level))
	}
	level := levels[i]
	var first error
	for _, c := range all {
		if w.controller != "" && w.controller != c.ID {
			continue
		}
		disks := w.choose(c, max(w.count, level.disks))
		if disks == nil {
			continue
		}
		_, err := refusal.Negotiate(w.members(level, disks), func(body map[string]any) (err error) {
			order, err = s.bmc.Post(c.Volumes.Path, body)
			return err
		})
		switch {
		case err == nil && order.Unsure != nil:
			return order, s.findMade(c, order)
		case !refusal.IsForGood(err):
			return order, err
		}
		first = cmp.Or(first, err)
	}
	if first != nil {
		return order, first
	}
	var names []string
	for _, c := range all {
		names = append(names, fmt.Sprintf("%s shows %d disks", link.ID(path.Dir(link.Join(conversation.RootPath, c.Volumes.Path))), len(c.disks)))
	}
	return order, s.bmc.Lacking(problem.Invalidf("no controller has the disks for a logical disk of RAID level %s and %d GiB: %s", w.level, int64(w.bytes/gib), s.bmc.Quote(strings.Join(names, ", "))))
}

// findMade looks for the volume of a request whose answer was lost: some controllers show a volume only after a while, and would make another
// of the same request. Without a new volume the error is that of the request.
func (s *bmcSession) findMade(c *storageController, order conversation.Order) error {
	done, err := s.bmc.Prove(s.bmc.Context(), order, func(context.Context) (bool, error) {
		now, err := s.bmc.Members(c.Volumes.Path, maxParts)
		for _, v := range now {
			if slices.Contains(c.former, link.Trim(v.Path)) {
				continue
			}
			if _, err := s.bmc.Get(v.Path, new(raidVolume)); err == nil {
				return true, nil
			}
		}
		return false, err
	})
	if done || err != nil {
		return err
	}
	return order.Unsure
}

// members are the body of the request for a volume. Newer schemas have no VolumeType, older ones no RAIDType, and some controllers name
// volumes themselves.
func (w logicalDisk) members(level raidLevel, disks []link.Link) []refusal.Member {
	members := []refusal.Member{
		{Name: "RAIDType", Values: []any{level.raidType}},
		{Name: "VolumeType", Values: []any{level.volumeType}},
		{Name: "Links", Values: []any{map[string]any{"Drives": disks}}, Required: true},
		{Name: "Name", Values: []any{cmp.Or(w.name, w.own)}, Required: w.name != ""},
	}
	if w.bytes > 0 {
		members = append(members, refusal.Member{Name: "CapacityBytes", Values: []any{int64(w.bytes)}, Required: true})
	}
	return members
}

// choose picks disks of a controller; nil if it has too few that fit.
func (w logicalDisk) choose(c *storageController, count int) []link.Link {
	var out []link.Link
	for _, d := range c.disks {
		if len(w.disks) > 0 {
			if slices.Contains(w.disks, d.ID) {
				out = append(out, link.Link{Path: d.path})
			}
			continue
		}
		busy := slices.ContainsFunc(c.volumes, func(v *raidVolume) bool {
			return slices.ContainsFunc(slices.Concat(v.Links.Drives, v.Drives), func(l link.Link) bool { return link.Same(l.Path, d.path) })
		})
		if (busy && !w.share) || (w.media != "" && !strings.EqualFold(d.MediaType, w.media)) || (w.protocol != "" && !strings.EqualFold(d.Protocol, w.protocol)) {
			continue
		}
		if len(out) < count {
			out = append(out, link.Link{Path: d.path})
		}
	}
	if len(w.disks) > 0 && len(out) < len(w.disks) || len(out) < count && len(w.disks) == 0 {
		return nil
	}
	return out
}
