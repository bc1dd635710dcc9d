package redfish

import (
	"context"
	"slices"
	"strings"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

// mediaTypes are Redfish's words for what a device of Ironic's word takes.
var mediaTypes = map[string][]string{"cdrom": {"CD", "DVD"}, "disk": {"USBStick"}, "floppy": {"Floppy"}}

func (m *virtualMedia) takes(device string) bool {
	return slices.ContainsFunc(m.MediaTypes, func(t string) bool {
		return slices.ContainsFunc(mediaTypes[device], func(word string) bool { return strings.EqualFold(word, t) })
	})
}

// booting tells whether a drive holds what a boot of the node in progress needs. A BMC
// that shows no URL leaves it open, so a filled CD drive is then taken for ours.
func (m *virtualMedia) booting(n *metal.Node) bool {
	return n.Plan != nil && n.Plan.Method == metal.BootMedia && m.inserted() && (isNodeImage(n, m.Image) || m.Image == "" && m.cd())
}

// Media lists all virtual drives.
func (d *Driver) Media(ctx context.Context, n *metal.Node) ([]metal.Medium, error) {
	var out []metal.Medium
	err := d.with(ctx, n, "list virtual media", func(s *bmcSession) error {
		drives, err := s.drives()
		for _, one := range drives {
			image := metal.BareURL(one.Image)
			if isSalvorImage(one.Image) {
				image = "" // its random path is what keeps others from reading it
			}
			out = append(out, metal.Medium{MediaTypes: one.MediaTypes, Inserted: one.inserted(), Image: image})
		}
		return err
	})
	return out, err
}

// AttachMedium fills an empty drive of the type, else the first that no boot of ours needs.
func (d *Driver) AttachMedium(ctx context.Context, n *metal.Node, m metal.MediumArgs) error {
	return d.with(ctx, n, "attach virtual media", func(s *bmcSession) error {
		s.bmc.HideURL(m.ImageURL)
		drives, err := s.drives()
		if err != nil {
			return err
		}
		var free []*virtualMedia
		fits := 0
		for _, one := range drives {
			if !one.takes(m.DeviceType) {
				continue
			}
			if fits++; one.booting(n) {
				continue
			}
			if one.inserted() && one.Image == m.ImageURL {
				return nil
			}
			free = append(free, one)
		}
		switch {
		case fits == 0:
			return s.bmc.Lacking(problem.Invalidf("the BMC has no virtual %s", driver.Sanitize(m.DeviceType)))
		case len(free) == 0:
			return problem.Conflictf("the only virtual %s holds the ramdisk that the machine boots; ask again when that has ended", m.DeviceType)
		}
		return s.fillOne(ctx, free, m.ImageURL)
	})
}

// DetachMedia empties the drives of the types, but for what a boot of ours needs.
func (d *Driver) DetachMedia(ctx context.Context, n *metal.Node, types []string) error {
	return d.with(ctx, n, "detach virtual media", func(s *bmcSession) error {
		s.hideImages(n)
		drives, err := s.drives()
		if err != nil {
			return err
		}
		for _, one := range drives {
			asked := len(types) == 0 || slices.ContainsFunc(types, one.takes)
			if !asked || !one.inserted() || one.booting(n) {
				continue
			}
			if err := s.eject(ctx, one); err != nil {
				return err
			}
		}
		return nil
	})
}
