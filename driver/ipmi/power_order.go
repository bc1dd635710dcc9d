package ipmi

import (
	"context"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

// orderEvery is the time between two orders to a BMC that refuses them for now.
const orderEvery = 3 * time.Second

// powerOrder is an order for a power state, which is given until the BMC takes it.
type powerOrder struct {
	want    metal.Power
	command byte

	last    metal.Power // what was read last
	isTaken bool
	given   int       // how often the order was given
	refusal error     // of the last time; nil: the BMC took the order, or none was given
	next    time.Time // no order is given before
}

// lookAndOrder reads the power, and gives the order where the BMC has not taken it. An order is absolute, so an order that the BMC has taken
// without an answer may be given again. Only a refusal that does not pass is an error of the order.
func (o *powerOrder) lookAndOrder(ctx context.Context, c commandSender) error {
	now, err := readPowerState(ctx, c)
	if err != nil {
		return err
	}
	o.last = now
	if o.isDone() || o.isTaken || time.Now().Before(o.next) {
		return nil
	}
	o.given++
	_, err = sendChassisCommand(ctx, c, commandControl, o.command)
	if err != nil && !problem.Is(err, problem.Unavailable) {
		return err
	}
	o.refusal, o.isTaken, o.next = err, err == nil, time.Now().Add(orderEvery)
	return nil
}

func (o *powerOrder) isDone() bool { return o.last == o.want }

// unfulfilled says why the machine is not as it was ordered to be.
func (o *powerOrder) unfulfilled(began time.Time) error {
	after := time.Since(began).Round(100 * time.Millisecond)
	if o.refusal == nil {
		return problem.Unavailablef("the BMC took the order, but still reads %q after %s", o.last, after)
	}
	if refused, _ := isRefusedForNow(netFnChassis, commandControl, o.refusal); refused {
		return problem.Unavailablef("the order was given %d times within %s, and the machine still reads %q: %w", o.given, after, o.last, o.refusal)
	}
	return problem.Unavailablef("the order was given %d times within %s without an answer, and the machine still reads %q: %w", o.given, after, o.last, o.refusal)
}

// SetPower orders on or forced off and reads until it is so.
func (d *Driver) SetPower(ctx context.Context, n *metal.Node, want metal.Power) error {
	command, ok := map[metal.Power]byte{metal.PowerOn: orderOn, metal.PowerOff: orderOff}[want]
	if !ok {
		return problem.Unsupportedf("set power of node %s: ipmi: cannot be %q", n.ID, want)
	}
	op := "set " + string(want)
	order := &powerOrder{want: want, command: command}
	if err := d.with(ctx, n, op, order.lookAndOrder); err != nil || order.isDone() {
		return err
	}
	began := time.Now()
	_, err := driver.PollUntil(ctx, func(ctx context.Context) (bool, error) {
		err := d.with(ctx, n, op, order.lookAndOrder)
		return order.isDone(), err
	})
	switch {
	case order.isDone():
		return nil
	case err != nil:
		return problem.New(problem.KindOf(err), "%w; %s after the order it had last read %q", err, time.Since(began).Round(100*time.Millisecond), order.last)
	}
	return d.named(n, op, func(ipmiSettings) error { return order.unfulfilled(began) })
}

// onceOnly gives an order whose repetition is another order, such as a reset. A BMC that refuses the order for now, and has done nothing, gets
// the order again every few seconds until it takes the order. allowed tells from the power before each order whether to give the order.
func (d *Driver) onceOnly(ctx context.Context, n *metal.Node, op string, order byte, allowed func(metal.Power) (bool, error)) error {
	var refusal error
	var next time.Time
	_, err := driver.PollUntil(ctx, func(ctx context.Context) (bool, error) {
		if refusal != nil && time.Now().Before(next) {
			return false, refusal
		}
		var refused, done, sent bool
		refusal = d.with(ctx, n, op, func(ctx context.Context, c commandSender) error {
			power, err := readPowerState(ctx, c)
			if err != nil {
				return err
			}
			if ok, err := allowed(power); !ok || err != nil {
				return err
			}
			sent = true
			_, err = sendChassisCommand(ctx, c, commandControl, order)
			refused, done = isRefusedForNow(netFnChassis, commandControl, err)
			return err
		})
		if !sent || refused && !done {
			refusal = driver.NotTaken(refusal)
		}
		next = time.Now().Add(orderEvery)
		return !refused || done, refusal
	})
	return err
}

// SoftOff asks the system to shut down by an ACPI event.
func (d *Driver) SoftOff(ctx context.Context, n *metal.Node) error {
	return d.onceOnly(ctx, n, "soft power off", orderSoft, func(now metal.Power) (bool, error) { return now != metal.PowerOff, nil })
}

// single gives an order that leaves the machine on to one that is on.
func (d *Driver) single(ctx context.Context, n *metal.Node, op string, order byte) error {
	return d.onceOnly(ctx, n, op, order, func(now metal.Power) (bool, error) {
		if now != metal.PowerOn {
			return false, problem.Conflictf("the machine is not on")
		}
		return true, nil
	})
}

// Restart resets a machine that is on.
func (d *Driver) Restart(ctx context.Context, n *metal.Node) error {
	return d.single(ctx, n, "restart", orderReset)
}

// InjectNMI interrupts a machine that is on.
func (d *Driver) InjectNMI(ctx context.Context, n *metal.Node) error {
	return d.single(ctx, n, "inject NMI", orderNMI)
}
