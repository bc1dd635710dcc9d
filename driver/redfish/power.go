package redfish

import (
	"context"
	"slices"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

// Reset types of the ComputerSystem.Reset action.
const (
	resetOn       = "On"
	resetForceOn  = "ForceOn"
	resetForceOff = "ForceOff"
	resetSoftOff  = "GracefulShutdown"
)

// PowerState reads the power. A machine on its way up or down counts as on: it is
// not off before the BMC says so.
func (d *Driver) PowerState(ctx context.Context, n *metal.Node) (metal.Power, error) {
	power, _, err := d.ReadPowerAndHealth(ctx, n)
	return power, err
}

func (sys *computerSystem) power() metal.Power {
	switch sys.PowerState {
	case "On", "PoweringOn", "PoweringOff", "Paused":
		return metal.PowerOn
	case "Off":
		return metal.PowerOff
	}
	return metal.PowerUnknown
}

// settled tells whether the power is what is wanted and no longer changing.
func (sys *computerSystem) settled(want metal.Power) bool {
	return sys.power() == want && (want == metal.PowerOff || sys.PowerState == "On")
}

// resets are the types by which a power state is ordered, the preferred first.
var resets = map[metal.Power][]string{metal.PowerOn: {resetOn, resetForceOn}, metal.PowerOff: {resetForceOff}}

// SetPower orders on or forced off and reads until it is so.
func (d *Driver) SetPower(ctx context.Context, n *metal.Node, want metal.Power) error {
	if resets[want] == nil {
		return problem.Unsupportedf("set power of node %s: redfish: cannot be %q", n.ID, want)
	}
	return d.with(ctx, n, "set "+string(want), func(s *bmcSession) error { return s.setPower(ctx, want) })
}

func (s *bmcSession) setPower(ctx context.Context, want metal.Power) error {
	sys, err := s.read()
	if err != nil || sys.settled(want) {
		return err
	}
	refusal, err := s.reset(sys, resets[want])
	if err != nil {
		return err
	}
	if err := s.provePower(ctx, want, refusal); err != nil || want != metal.PowerOff {
		return err
	}
	return s.conf.facts.settle(ctx)
}

// reset sends the first of the types that the BMC allows. An error means that the
// order was not sent or surely not taken; refusal is the BMC's no, or the wire's
// silence, which a look at the machine may yet prove harmless.
func (s *bmcSession) reset(sys *computerSystem, types []string) (refusal, err error) {
	action := sys.Actions.Reset
	if action.Target == "" {
		return nil, problem.Unsupportedf("the BMC offers no reset of the system")
	}
	chosen := ""
	for _, t := range types {
		if len(action.Allowed) == 0 || slices.Contains(action.Allowed, t) {
			chosen = t
			break
		}
	}
	if chosen == "" {
		return nil, problem.Unsupportedf("the BMC does not allow reset type %s", types[0])
	}
	definite, refusal := s.post(action.Target, map[string]string{"ResetType": chosen})
	if refusal == nil || !definite {
		return nil, nil
	}
	return refusal, nil
}

// provePower reads until the power is as wanted. After a refusal it looks only once:
// BMCs refuse to turn on what has just come on.
func (s *bmcSession) provePower(ctx context.Context, want metal.Power, refusal error) error {
	began, last := time.Now(), ""
	look := func(context.Context) (bool, error) {
		sys, err := s.read()
		if err != nil {
			return false, err
		}
		last = sys.PowerState
		return sys.settled(want), nil
	}
	if refusal != nil {
		if done, _ := look(ctx); done {
			return nil
		}
		return refusal
	}
	done, err := driver.PollUntil(ctx, look)
	if done {
		return nil
	}
	waited := time.Since(began).Round(100 * time.Millisecond)
	if err != nil {
		return problem.New(problem.KindOf(err), "after %s it last read %s: %w", waited, s.quote(last), err)
	}
	return problem.Unavailablef("the BMC took the order, but the power still reads %s after %s", s.quote(last), waited)
}

// SoftOff asks the system to shut down.
func (d *Driver) SoftOff(ctx context.Context, n *metal.Node) error {
	return d.with(ctx, n, "soft power off", func(s *bmcSession) error {
		sys, err := s.read()
		if err != nil || sys.settled(metal.PowerOff) {
			return err
		}
		refusal, err := s.reset(sys, []string{resetSoftOff})
		if err != nil {
			return err
		}
		return refusal
	})
}
