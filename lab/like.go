package lab

import (
	"context"
	"sync"

	"salvor/lab/personality"
)

// foreignChassis has the boot device of a machine behave like behind the IPMI BMC of others.
type foreignChassis struct {
	Chassis
	like personality.Name

	mu     sync.Mutex
	booted Device // what the machine was started with
}

// newForeign gives the chassis as BMCs like others control it.
func newForeign(c Chassis, like personality.Name) Chassis {
	if !like.BootsForever() && !like.ReadsRunning() {
		return c
	}
	return &foreignChassis{Chassis: c, like: like, booted: c.Override().Device}
}

func (f *foreignChassis) Override() Override {
	if f.like.ReadsRunning() && f.Power() == PowerOn {
		f.mu.Lock()
		defer f.mu.Unlock()
		return Override{Device: f.booted, Persist: true}
	}
	return f.Chassis.Override()
}

func (f *foreignChassis) SetOverride(o Override) {
	if f.like.BootsForever() {
		if o.Device == DeviceDefault {
			return
		}
		o.Persist = true
	}
	f.Chassis.SetOverride(o)
}

func (f *foreignChassis) Do(ctx context.Context, action Action) error {
	if action == ActionOn && f.Power() == PowerOff {
		f.mu.Lock()
		f.booted = f.Chassis.Override().Device
		f.mu.Unlock()
	}
	return f.Chassis.Do(ctx, action)
}
