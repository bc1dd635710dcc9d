package redfish

import (
	"context"
	"slices"
	"strings"
	"time"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/refusal"
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
	switch strings.ToLower(sys.PowerState) {
	case "on", "poweringon", "poweringoff", "paused":
		return metal.PowerOn
	case "off":
		return metal.PowerOff
	}
	return metal.PowerUnknown
}

// isChanging tells whether the machine is between two power states.
func (sys *computerSystem) isChanging() bool {
	return strings.HasPrefix(strings.ToLower(sys.PowerState), "powering")
}

// settled tells whether the power is what is wanted and no longer changing.
func (sys *computerSystem) settled(want metal.Power) bool {
	return sys.power() == want && (want == metal.PowerOff || strings.EqualFold(sys.PowerState, "On"))
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
	if err := s.orderPower(ctx, sys, want); err != nil || want != metal.PowerOff {
		return err
	}
	return s.conf.facts.settle(ctx)
}

// What happens after a power order that a BMC refuses because the power is on its way: BMCs refuse to turn on what is just coming on.
const (
	// settleLook is the time between two looks until the power settles.
	settleLook = 500 * time.Millisecond
	// settleLooks is how often the power is looked at after a refusal for good where the BMC shows no change: some change it unseen.
	settleLooks = 10
	// settleTime is how long the power may take to settle before the refusal counts.
	settleTime = 30 * time.Second
	// maxOrders bounds how often an order is given that is refused while the power changes.
	maxOrders = 3
)

// orderPower orders until the machine is as wanted. An order that is refused while the power changes is given again when the power has
// settled. What is refused for now without a change is the caller's to repeat.
func (s *bmcSession) orderPower(ctx context.Context, sys *computerSystem, want metal.Power) error {
	var refused error
	for range maxOrders {
		var order conversation.Order
		order, refused = s.reset(sys, resets[want])
		if want == metal.PowerOn && problem.Is(refused, problem.Unsupported) && sys.Actions.Reset.Target != "" && refusal.StatusOf(refused) == 0 {
			sys.Actions.Reset.Allowed = nil // a list may lack what the BMC takes, and a machine is not left off for that
			order, refused = s.reset(sys, resets[want])
		}
		switch {
		case refused == nil:
			return s.provePower(ctx, want, order)
		case refusal.StatusOf(refused) == 0:
			return refused
		}
		looks := settleLooks
		if refusal.IsForNow(refused) {
			looks = 1
		}
		now, changed, err := s.awaitSettled(ctx, want, looks)
		switch {
		case err != nil:
			return refused
		case now.settled(want):
			return nil
		case !sys.isChanging() && !changed:
			return refused
		}
		sys = now
	}
	return refused
}

// awaitSettled looks until the power is as wanted or does not change, so many times at least. changed: it was on its way meanwhile.
func (s *bmcSession) awaitSettled(ctx context.Context, want metal.Power, looks int) (now *computerSystem, changed bool, err error) {
	deadline := time.Now().Add(settleTime)
	for look := 1; ; look++ {
		if now, err = s.read(); err != nil {
			return now, changed, err
		}
		changed = changed || now.isChanging()
		if now.settled(want) || !now.isChanging() && look >= looks || time.Now().After(deadline) {
			return now, changed, nil
		}
		if err := driver.Pause(ctx, settleLook); err != nil {
			return now, changed, err
		}
	}
}

// reset sends the first of the types that the BMC allows. An error means that the order was not sent or surely not taken.
func (s *bmcSession) reset(sys *computerSystem, types []string) (conversation.Order, error) {
	action := sys.Actions.Reset
	if action.Target == "" {
		return conversation.Order{}, problem.Unsupportedf("the BMC offers no reset of the system %s", s.bmc.Quote(s.system))
	}
	for _, t := range types {
		i := slices.IndexFunc(action.Allowed, func(allowed string) bool { return strings.EqualFold(allowed, t) })
		switch {
		case len(action.Allowed) == 0:
			return s.bmc.Post(action.Target, map[string]string{"ResetType": t})
		case i >= 0:
			order, err := s.bmc.Post(action.Target, map[string]string{"ResetType": action.Allowed[i]})
			if refusal.IsForGood(err) && action.Allowed[i] != t { // the list is in another case than what the BMC takes
				order, err = s.bmc.Post(action.Target, map[string]string{"ResetType": t})
			}
			return order, err
		}
	}
	return conversation.Order{}, problem.Unsupportedf("the BMC does not allow reset type %s; it allows %s", types[0], s.bmc.Quote(strings.Join(action.Allowed, ", ")))
}

// provePower reads until the power is as wanted.
func (s *bmcSession) provePower(ctx context.Context, want metal.Power, order conversation.Order) error {
	began, last := time.Now(), ""
	done, err := s.bmc.Prove(ctx, order, func(context.Context) (bool, error) {
		sys, err := s.read()
		if err != nil {
			return false, err
		}
		last = sys.PowerState
		return sys.settled(want), nil
	})
	if done {
		return nil
	}
	waited := time.Since(began).Round(100 * time.Millisecond)
	if err != nil {
		return problem.New(problem.KindOf(err), "after %s it last read %s: %w", waited, s.bmc.Reading(last), err)
	}
	return problem.Unavailablef("%s, but the power still reads %s after %s", s.bmc.Taken(order), s.bmc.Reading(last), waited)
}

// SoftOff asks the system to shut down.
func (d *Driver) SoftOff(ctx context.Context, n *metal.Node) error {
	return d.with(ctx, n, "soft power off", func(s *bmcSession) error {
		sys, err := s.read()
		if err != nil || sys.settled(metal.PowerOff) {
			return err
		}
		order, err := s.reset(sys, []string{resetSoftOff})
		if err != nil || order.Unsure != nil { // who waits for the machine to be off sees what became of the order
			return err
		}
		return s.bmc.Follow(ctx, order)
	})
}
