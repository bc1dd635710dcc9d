package redfish

import (
	"context"
	"errors"
	"slices"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/link"
	"salvor/metal"
	"salvor/problem"
)

// Reset types beside those of power.
const (
	resetNMI         = "Nmi"
	resetRestart     = "ForceRestart"
	resetSoftRestart = "GracefulRestart"
)

// systemHealth is the Status of a ComputerSystem.
type systemHealth struct{ Health, HealthRollup string }

// summary is the health of the whole where the BMC sums it up.
func (h systemHealth) summary() string {
	for _, word := range []string{h.HealthRollup, h.Health} {
		if slices.Contains([]string{"OK", "Warning", "Critical"}, word) {
			return word
		}
	}
	return ""
}

// ReadPowerAndHealth reads power and health from one look at the system.
func (d *Driver) ReadPowerAndHealth(ctx context.Context, n *metal.Node) (metal.Power, string, error) {
	var power metal.Power
	var health string
	err := d.with(ctx, n, "read power", func(s *bmcSession) error {
		sys, err := s.read()
		if err != nil {
			return err
		}
		if power = sys.power(); power == metal.PowerUnknown {
			return problem.Unavailablef("the BMC gives %s for the power state", s.bmc.Reading(sys.PowerState))
		}
		health = sys.Status.summary()
		return nil
	})
	return power, health, err
}

// single sends one reset type to a machine that is on.
func (s *bmcSession) single(ctx context.Context, reset string) error {
	sys, err := s.read()
	if err != nil {
		return driver.NotTaken(err)
	}
	if sys.power() != metal.PowerOn {
		return driver.NotTaken(problem.Conflictf("the machine is not on"))
	}
	order, err := s.reset(sys, []string{reset})
	if err != nil {
		return driver.NotTaken(err)
	}
	return s.bmc.Follow(ctx, order)
}

// Restart resets a machine that is on.
func (d *Driver) Restart(ctx context.Context, n *metal.Node) error {
	return d.with(ctx, n, "restart", func(s *bmcSession) error { return s.single(ctx, resetRestart) })
}

// SoftRestart asks the system of a machine that is on to restart.
func (d *Driver) SoftRestart(ctx context.Context, n *metal.Node) error {
	return d.with(ctx, n, "soft restart", func(s *bmcSession) error { return s.single(ctx, resetSoftRestart) })
}

// InjectNMI interrupts a machine that is on.
func (d *Driver) InjectNMI(ctx context.Context, n *metal.Node) error {
	return d.with(ctx, n, "inject NMI", func(s *bmcSession) error { return s.single(ctx, resetNMI) })
}

// BootMode reads the mode of the boot override, which is what BMCs tell of the firmware's.
func (d *Driver) BootMode(ctx context.Context, n *metal.Node) (string, error) {
	mode := ""
	err := d.with(ctx, n, "read boot mode", func(s *bmcSession) error {
		sys, err := s.read()
		if err != nil {
			return err
		}
		if mode = sys.Boot.current().Mode; mode == "" {
			return problem.Unsupportedf("the BMC does not tell the boot mode of %s", s.bmc.Quote(s.system))
		}
		return nil
	})
	return mode, err
}

// SetBootMode sets the mode, beside the override as it is, and reads it back.
func (d *Driver) SetBootMode(ctx context.Context, n *metal.Node, mode string) error {
	return d.with(ctx, n, "set boot mode", func(s *bmcSession) error {
		sys, err := s.read()
		if err != nil {
			return err
		}
		want := modeOf(mode)
		switch {
		case want == "":
			return problem.Invalidf("unknown boot mode %q", driver.Sanitize(mode))
		case sys.Boot.Mode == "":
			return problem.Unsupportedf("the BMC does not let the boot mode be set")
		case sys.Boot.Mode == want:
			return nil
		}
		err = s.override(ctx, sys, bootOverrides{Mode: want})
		if problem.Is(err, problem.Invalid) {
			// Some take the mode only with a target beside it.
			err = s.override(ctx, sys, bootOverrides{Mode: want, Target: sys.Boot.Target, Enabled: sys.Boot.Enabled})
		}
		return err
	})
}

// secureBoot is a SecureBoot resource.
type secureBoot struct {
	Enable   *bool `json:"SecureBootEnable"`
	Settings struct {
		SettingsObject link.Link
	} `json:"@Redfish.Settings"`
	etag string
}

func (s *bmcSession) secureBoot() (path string, doc secureBoot, err error) {
	sys, err := s.read()
	if err != nil {
		return "", doc, err
	}
	path = sys.SecureBoot.Path
	if path == "" {
		return "", doc, problem.Unsupportedf("the BMC has no secure boot")
	}
	doc.etag, err = s.bmc.Get(path, &doc)
	if errors.Is(err, conversation.ErrMissing) || err == nil && doc.Enable == nil {
		err = problem.Unsupportedf("the BMC has no secure boot")
	}
	return path, doc, err
}

// SecureBoot reads whether the firmware boots only what is signed.
func (d *Driver) SecureBoot(ctx context.Context, n *metal.Node) (bool, error) {
	on := false
	err := d.with(ctx, n, "read secure boot", func(s *bmcSession) error {
		_, doc, err := s.secureBoot()
		if err == nil {
			on = *doc.Enable
		}
		return err
	})
	return on, err
}

// SetSecureBoot sets it and reads it back; it is in force from the next boot on.
func (d *Driver) SetSecureBoot(ctx context.Context, n *metal.Node, on bool) error {
	return d.with(ctx, n, "set secure boot", func(s *bmcSession) error {
		path, doc, err := s.secureBoot()
		if err != nil || *doc.Enable == on {
			return err
		}
		at := patchTarget{path: path, etag: doc.etag, settings: doc.Settings.SettingsObject.Path}
		order, err := s.patchEither(&at, map[string]bool{"SecureBootEnable": on})
		if err != nil {
			return err
		}
		done, err := s.bmc.Prove(ctx, order, func(context.Context) (bool, error) {
			_, now, err := s.secureBoot()
			return err == nil && *now.Enable == on, err
		})
		if !done && err == nil {
			err = problem.Unavailablef("%s, but secure boot still reads %t", s.bmc.Taken(order), !on)
		}
		return err
	})
}
