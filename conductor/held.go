package conductor

import (
	"context"
	"sync"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

// HeldReadings has conductors read the machines of a held database. Nothing is changed, and no lock is taken.
type HeldReadings struct {
	// Held tells whether the database is held.
	Held func() bool
	// Groups are the conductor groups whose machines are read; nil: all.
	Groups []string
	// Workers bounds the machines that are read at once.
	Workers int
	// Every is the pause between two looks for machines without a reading; 0: a second.
	Every time.Duration
}

// heldReadTime bounds all that is read of one machine.
const heldReadTime = driver.CallTimeout

// RunHeldReadings reads until ctx ends: while the database is held, each machine of which there is no reading.
func (c *Conductor) RunHeldReadings(ctx context.Context, h HeldReadings) {
	if h.Every == 0 {
		h.Every = time.Second
	}
	h.Workers = max(h.Workers, 1)
	for ctx.Err() == nil {
		if !h.Held() || !c.readHeld(ctx, h) {
			select {
			case <-ctx.Done():
			case <-time.After(h.Every):
			}
		}
	}
}

// readHeld reads some machines; false if there were none, or something went wrong.
func (c *Conductor) readHeld(ctx context.Context, h HeldReadings) bool {
	nodes, err := c.Store.UnreadNodes(ctx, h.Groups, 4*h.Workers)
	readings := make([]metal.HeldReading, len(nodes))
	var running sync.WaitGroup
	free := make(chan struct{}, h.Workers)
	for i, n := range nodes {
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			readings[i] = c.readMachine(ctx, n)
		})
	}
	running.Wait()
	if ctx.Err() != nil {
		return false // what was cut off says nothing of the machines
	}
	if err == nil && len(readings) > 0 {
		err = c.Store.SaveReadings(ctx, readings)
	}
	if err != nil {
		c.Log.Error("read the machines of the held database", "error", err)
	}
	return err == nil && len(nodes) > 0
}

// readMachine reads what the driver of a node can tell. The node is the conductor's own copy: what drivers note in it is not kept.
func (c *Conductor) readMachine(ctx context.Context, n *metal.Node) metal.HeldReading {
	out := metal.HeldReading{NodeID: n.ID, ReadAt: c.Now(), Facts: metal.HeldFacts{Unreadable: map[string]string{}}}
	m, err := c.assemble(n, nil)
	if err != nil {
		out.Facts.Unreadable[metal.FactPower] = err.Error()
		return out
	}
	ctx, cancel := context.WithTimeout(c.guarded(ctx), heldReadTime)
	defer cancel()
	// failed notes why a fact is missing. One that the machine does not have is no finding.
	failed := func(fact string, err error) bool {
		if err != nil && !problem.Is(err, problem.Unsupported) {
			out.Facts.Unreadable[fact] = err.Error()
		}
		return err != nil
	}
	if m.power != nil {
		power, err := m.power.PowerState(ctx, n)
		if failed(metal.FactPower, err) && !problem.Is(err, problem.Unsupported) {
			return out // a BMC that does not tell its power tells nothing else, and may lock its accounts
		}
		out.Facts.Power = power
	}
	if m.manage != nil {
		if boot, err := m.manage.BootDevice(ctx, n); !failed(metal.FactBoot, err) {
			out.Facts.Boot = &boot
		}
	}
	if media, ok := m.manage.(driver.VirtualMedia); ok {
		found, err := media.Media(ctx, n)
		if !failed(metal.FactMedia, err) {
			out.Facts.Media, out.Facts.MediaRead = found, true
		}
	}
	return out
}
