package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// HeldReadings are the options with which conductors read the machines of a held database. Reading changes nothing and takes no
// lock.
type HeldReadings struct {
	// Held tells whether the database is held.
	Held func() bool
	// Groups are the conductor groups whose machines are read; nil: all.
	Groups []string
	// Workers bounds the machines that are read at once.
	Workers int
	// Every is the pause between two searches for machines without a reading; 0: a second.
	Every time.Duration
}

// heldReadTime bounds the time for all readings of one machine.
const heldReadTime = driver.CallTimeout

// RunHeldReadings runs until ctx ends. While the database is held it reads each machine that has no reading.
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

// readHeld reads some machines. false: there were none, or an error occurred.
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
		return false // readings that were interrupted show nothing about the machines
	}
	if err == nil && len(readings) > 0 {
		err = c.Store.SaveReadings(ctx, readings)
	}
	if err != nil {
		c.Log.Error("read the machines of the held database", "error", err)
	}
	return err == nil && len(nodes) > 0
}

// readMachine reads all facts that the driver of a node supports. The node is a copy of its own, so changes that drivers make in it
// are not stored.
func (c *Conductor) readMachine(ctx context.Context, n *metal.Node) metal.HeldReading {
	out := metal.HeldReading{NodeID: n.ID, ReadAt: c.Now(), Facts: metal.HeldFacts{Unreadable: map[string]string{}}}
	ports, err := c.Store.Ports(ctx, metal.PortFilter{NodeID: n.ID}, record.Page{Limit: 1000})
	var m *managedNode
	if err == nil {
		m, err = c.assemble(n, ports)
	}
	if err != nil {
		out.Facts.Unreadable[metal.FactPower] = err.Error()
		return out
	}
	ctx, cancel := context.WithTimeout(c.guarded(ctx), heldReadTime)
	defer cancel()
	// failed records why a fact is missing. A fact that the machine does not have is no finding.
	failed := func(fact string, err error) bool {
		if err != nil && !problem.Is(err, problem.Unsupported) {
			out.Facts.Unreadable[fact] = err.Error()
		}
		return err != nil
	}
	if net, ok := m.network.(driver.NetworkReader); ok && len(m.ports) > 0 {
		found, err := net.Networks(ctx, n, m.ports)
		if !failed(metal.FactNet, err) {
			out.Facts.Networks, out.Facts.NetsRead = m.namesOfNetworks(found), true
		}
	}
	if m.power != nil {
		power, err := m.power.PowerState(ctx, n)
		if failed(metal.FactPower, err) && !problem.Is(err, problem.Unsupported) {
			return out // without its power a BMC rarely reads anything else, and more logins may lock its accounts
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

// namesOfNetworks lists the names of the networks that were found. Two networks may be one bridge. So those on which the machine would
// also be by the record have the name of the recorded network.
func (m *managedNode) namesOfNetworks(found []driver.Net) []string {
	recorded, known := m.node.RecordedNetwork()
	isRecorded := func(net driver.Net) bool {
		return known && recorded != "" && !m.network.Moves(m.node, m.ports, driver.Net(recorded), net)
	}
	var out []string
	if slices.ContainsFunc(found, isRecorded) {
		out = append(out, recorded)
	}
	for _, net := range found {
		if string(net) != recorded && !isRecorded(net) {
			out = append(out, string(net))
		}
	}
	return out
}
