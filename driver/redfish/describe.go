package redfish

import (
	"context"
	"errors"
	"slices"
	"time"

	"salvor/driver"
	"salvor/metal"
)

var (
	_ driver.BMCDescriber = (*Driver)(nil)
	_ driver.BMCNeeds     = (*Media)(nil)
)

// errForbidden is what a BMC answers to who lacks a right, and some to whom it lacks a licence for.
var errForbidden = errors.New("403: the BMC does not let this user do it")

// DescribeBMC reads which virtual drives and boot devices the BMC has. It changes nothing.
func (d *Driver) DescribeBMC(ctx context.Context, n *metal.Node) (metal.BMC, error) {
	out := metal.BMC{ReadAt: time.Now()}
	err := d.with(ctx, n, "describe the BMC", func(s *bmcSession) error {
		sys, err := s.read()
		if err != nil {
			return err
		}
		for _, dev := range devices {
			if slices.Contains(sys.Boot.Allowed, dev.target) && !slices.Contains(out.BootTargets, dev.word) {
				out.BootTargets = append(out.BootTargets, dev.word)
			}
		}
		drives, err := s.drives()
		switch {
		case errors.Is(err, errForbidden), errors.Is(err, driver.ErrLicence):
			out.DrivesRefused = true
			return nil
		case errors.Is(err, errMissing):
			out.DrivesKnown = true
			return nil
		case err != nil:
			return err
		}
		out.DrivesKnown = true
		for _, drive := range drives {
			types := drive.MediaTypes
			for _, t := range types[:min(len(types), maxSlots)] {
				if t := driver.Sanitize(t); !slices.Contains(out.Drives, t) && len(out.Drives) < maxSlots {
					out.Drives = append(out.Drives, t)
				}
			}
		}
		return nil
	})
	return out, err
}

// CheckBMC wants a virtual CD drive that the machine can boot from.
func (m *Media) CheckBMC(n *metal.Node, b metal.BMC) error {
	if err := b.NeedsDrive(n); err != nil {
		return err
	}
	return b.NeedsTarget(n, "cdrom")
}
