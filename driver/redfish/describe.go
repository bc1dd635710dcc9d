package redfish

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/metal"
	"salvor/problem"
)

var (
	_ driver.BMCDescriber = (*Driver)(nil)
	_ driver.BMCNeeds     = (*Media)(nil)
)

// DescribeBMC reads which virtual drives and boot devices the BMC has. It changes nothing.
func (d *Driver) DescribeBMC(ctx context.Context, n *metal.Node) (metal.BMC, error) {
	out := metal.BMC{ReadAt: time.Now()}
	err := d.with(ctx, n, "describe the BMC", func(s *bmcSession) error {
		sys, err := s.readBoot()
		if err != nil {
			return err
		}
		if err := s.identify(sys, &out); err != nil {
			return err
		}
		out.BootTargets = sys.Boot.listedDevices()
		_, err = s.describeDrives(&out)
		return err
	})
	return out, err
}

// describeDrives reads the virtual drives. A BMC that denies them, or has none, is described too.
func (s *bmcSession) describeDrives(out *metal.BMC) ([]*virtualMedia, error) {
	drives, err := s.drives()
	switch {
	case errors.Is(err, conversation.ErrForbidden), errors.Is(err, driver.ErrLicence):
		out.DrivesRefused = true
		return nil, nil
	case errors.Is(err, conversation.ErrMissing):
		out.DrivesKnown = true
		return nil, nil
	case err != nil:
		return nil, s.bmc.LeaveOut(err)
	}
	takesStick := func(m *virtualMedia) bool { return m.takes("disk") }
	out.DrivesKnown, out.OneDriveOnly = true, slices.ContainsFunc(drives, takesStick)
	for _, cd := range drives {
		for _, stick := range drives {
			if cd != stick && cd.cd() && takesStick(stick) {
				out.OneDriveOnly = false
			}
		}
	}
	for _, drive := range drives {
		types := drive.MediaTypes
		for _, t := range types[:min(len(types), maxSlots)] {
			if t := driver.Sanitize(t); !slices.Contains(out.Drives, t) && len(out.Drives) < maxSlots {
				out.Drives = append(out.Drives, t)
			}
		}
	}
	return drives, nil
}

// identify reads who made the machine and its BMC, and what salvor knows of those. What the BMC does not tell stays empty.
func (s *bmcSession) identify(sys *computerSystem, out *metal.BMC) error {
	of := &s.conf.facts.identity
	var top struct {
		Vendor string
		OEM    map[string]any `json:"Oem"`
	}
	if _, err := s.bmc.Get(conversation.RootPath, &top); problem.Is(err, problem.Unavailable) && s.bmc.LeaveOut(err) != nil {
		return err
	}
	if sys.Manufacturer == "" {
		of.vendor = top.Vendor
	}
	if keys := slices.Sorted(maps.Keys(top.OEM)); of.vendor == "" && len(keys) > 0 { // old iDRACs name their maker only here
		of.vendor = keys[0]
	}
	of.bmcModel, of.firmware = "", ""
	for _, at := range sys.Links.ManagedBy[:min(len(sys.Links.ManagedBy), 1)] {
		var manager struct{ Model, FirmwareVersion string }
		if _, err := s.bmc.Get(at.Path, &manager); problem.Is(err, problem.Unavailable) && s.bmc.LeaveOut(err) != nil {
			return err
		}
		of.bmcModel, of.firmware = manager.Model, manager.FirmwareVersion
	}
	out.Vendor, out.Model, out.BMCModel, out.Firmware = driver.Sanitize(of.vendor), driver.Sanitize(of.model), driver.Sanitize(of.bmcModel), driver.Sanitize(of.firmware)
	out.Quirks, out.QuirkTexts = s.conf.facts.texts(), s.conf.facts.inWords()
	return nil
}

// CheckBMC wants a virtual CD drive that the machine can boot from.
func (m *Media) CheckBMC(n *metal.Node, b metal.BMC) error {
	facts, err := factsOf(n)
	switch {
	case err != nil:
		return err
	case facts.fact(quirkMedia) == "none":
		return problem.Invalidf("the BMC of node %s (%s %s) has virtual media, but not by Redfish: set boot_interface to ipxe or http", n.ID, b.Vendor, b.Model)
	case facts.fact(quirkCDBoot) == "physical":
		return problem.Invalidf("the BMC of node %s (%s %s, firmware %s) boots a physical CD drive, not the virtual one: update it, or set boot_interface to ipxe or http", n.ID, b.Vendor, b.Model, b.Firmware)
	}
	if err := b.NeedsDrive(n); err != nil {
		return err
	}
	return b.NeedsTarget(n, "cdrom")
}
