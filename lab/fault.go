package lab

import (
	"context"
	"strings"
	"sync"
	"time"

	"salvor/problem"
)

// FaultKind is a way in which a BMC can fail its users.
type FaultKind string

const (
	FaultNone     FaultKind = "none"
	FaultDown     FaultKind = "down"      // connections are refused
	FaultHang     FaultKind = "hang"      // connections are taken, nothing is answered
	FaultSlow     FaultKind = "slow"      // each answer comes late: slow=5s
	Fault503      FaultKind = "503"       // Redfish only: each request is answered 503
	FaultRubbish  FaultKind = "rubbish"   // Redfish only: 200 with a body that is no JSON
	FaultLiePower FaultKind = "lie-power" // power requests succeed, read back as done, and do nothing
	FaultLieOff   FaultKind = "lie-off"   // the power is read as off whatever it is, and power requests succeed and do nothing
)

// Fault is a kind with its delay, if it has one.
type Fault struct {
	Kind  FaultKind
	Delay time.Duration // FaultSlow only
}

const maxDelay = 10 * time.Minute

// ParseFault reads what the command line takes: a kind, or slow=DURATION.
func ParseFault(s string) (Fault, error) {
	kind, arg, hasArg := strings.Cut(s, "=")
	f := Fault{Kind: FaultKind(kind)}
	switch f.Kind {
	case FaultSlow:
		d, err := time.ParseDuration(arg)
		if err != nil || d <= 0 || d > maxDelay {
			return Fault{}, problem.Invalidf("fault %q: want slow= and a duration up to %s, as slow=5s", s, maxDelay)
		}
		f.Delay = d
		return f, nil
	case FaultNone, FaultDown, FaultHang, Fault503, FaultRubbish, FaultLiePower, FaultLieOff:
		if !hasArg {
			return f, nil
		}
	}
	return Fault{}, problem.Invalidf("fault %q: want down, hang, slow=DURATION, 503, rubbish, lie-power, lie-off or none", s)
}

func (f Fault) String() string {
	if f.Kind == "" {
		return string(FaultNone)
	}
	if f.Kind == FaultSlow {
		return string(f.Kind) + "=" + f.Delay.String()
	}
	return string(f.Kind)
}

// faultyChassis stands between a BMC and its chassis: it holds the fault, and tells the lies.
type faultyChassis struct {
	Chassis

	mu      sync.Mutex
	fault   Fault
	claimed Power // what a lying BMC says

	events eventLog
}

func newFaulty(c Chassis) *faultyChassis { return &faultyChassis{Chassis: c} }

func (f *faultyChassis) current() Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fault
}

// set changes the fault. A lie begins with the truth, and ends with it.
func (f *faultyChassis) set(fault Fault) {
	power := f.Chassis.Power()
	f.mu.Lock()
	defer f.mu.Unlock()
	if fault.Kind == FaultLieOff {
		power = PowerOff
	}
	f.fault, f.claimed = fault, power
}

// Power is what the BMC says, which is the truth only while it does not lie.
func (f *faultyChassis) Power() Power {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lies() {
		return f.claimed
	}
	return f.Chassis.Power()
}

func (f *faultyChassis) lies() bool {
	return f.fault.Kind == FaultLiePower || f.fault.Kind == FaultLieOff
}

// Do acts, or claims to have acted.
func (f *faultyChassis) Do(ctx context.Context, action Action) error {
	f.mu.Lock()
	if f.fault.Kind == FaultLieOff {
		f.mu.Unlock()
		return nil
	}
	if f.fault.Kind == FaultLiePower {
		switch action {
		case ActionOn, ActionRestart:
			f.claimed = PowerOn
		case ActionOff, ActionShutdown:
			f.claimed = PowerOff
		}
		f.mu.Unlock()
		return nil
	}
	f.mu.Unlock()
	before := f.Chassis.Power()
	if err := f.Chassis.Do(ctx, action); err != nil {
		return err
	}
	f.logPower(before, action)
	return nil
}

// logPower logs what an order has done to the power. A BMC without a log did it too.
func (f *faultyChassis) logPower(before Power, action Action) {
	var happened []EventKind
	switch {
	case action == ActionOff && before == PowerOn:
		happened = []EventKind{EventPowerOff}
	case action == ActionOn && before == PowerOff:
		happened = []EventKind{EventPowerOn}
	case action == ActionRestart:
		happened = []EventKind{EventPowerOff, EventPowerOn}
	}
	for _, kind := range happened {
		_ = f.events.add(kind)
	}
}

// delay waits as long as a slow BMC would.
func (f *faultyChassis) delay(ctx context.Context) error {
	d := f.current().Delay
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
