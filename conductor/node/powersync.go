package node

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// PowerSync reads the power of every node now and then. It takes no lock and never
// commands a BMC: what lasts becomes a power job.
type PowerSync struct {
	// Interval between two readings of a node; 0 switches the sync off.
	Interval time.Duration
	// Retries is how many readings in a row may fail, or differ, before something is done.
	Retries int
	// Force asserts the wanted power on the machine; false believes the machine.
	Force bool
	// Workers bounds readings at once.
	Workers int
	Groups  []string
}

// notSynced are the states in which power sync leaves a node alone.
var notSynced = metal.StatesWhere(func(s metal.StateInfo) bool { return s.NoPowerSync })

func (c powerOperations) syncNode(ctx context.Context, p PowerSync, n *metal.Node, quiet *quietReadings) error {
	m, err := c.assemble(n, nil)
	if err != nil || m.power == nil {
		return err
	}
	ctx = c.guarded(ctx)
	began := c.Now() // what comes late was true then
	bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	state, health, readErr := readPowerHealth(bounded, m)
	cancel()
	if ctx.Err() != nil || readErr != nil && c.Permission.Refusal() != nil {
		return nil // we were stopped: that says nothing about the machine
	}
	if problem.Is(readErr, problem.Unsupported) {
		state, readErr = m.node.PowerState, nil
	}
	if r := (powerReading{state: state, health: health, err: readErr}); r.unremarkable(n) {
		quiet.add(ctx, metal.PowerReading{NodeID: n.ID, Power: state, At: began})
		return nil
	}
	return c.Store.Do(ctx, func(tx job.Tx) error {
		return c.judge(ctx, tx, p, m.node, powerReading{at: began, state: state, health: health, err: readErr})
	})
}

// readPowerHealth reads the power, and the health where the controller tells it in the same look.
func readPowerHealth(ctx context.Context, m *managedNode) (metal.Power, string, error) {
	if d, ok := m.power.(driver.PowerAndHealth); ok {
		return d.ReadPowerAndHealth(ctx, m.node)
	}
	state, err := m.power.PowerState(ctx, m.node)
	return state, m.node.Health, err
}

// judge writes a reading down. It counts only if nothing touched the node since the reading began.
func (c powerOperations) judge(ctx context.Context, tx job.Tx, p PowerSync, read *metal.Node, r powerReading) error {
	now, err := c.Store.Node(ctx, tx, read.ID)
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	held := c.Permission.HeldReason() != nil // record the reading, but act on nothing
	counts := !held && now.Version == read.Version && now.Reservation == "" && read.Reservation == "" && now.TargetPower == ""
	r.differs = counts && r.err == nil && now.PowerState != "" && r.state != "" && r.state != now.PowerState
	contact, err := c.Store.Contact(ctx, tx, now.ID)
	if err != nil {
		return err
	}
	contact.NodeID, contact.PowerError, contact.PowerRefused = now.ID, "", metal.RefusesReading(r.err)
	switch {
	case r.err != nil:
		contact.PowerFailures++
		contact.PowerError, contact.PowerFailedAt = r.err.Error(), r.at
	case r.differs:
		contact.PowerFailures++
		contact.PowerRead, contact.PowerReadAt = r.state, r.at
	default:
		contact.PowerFailures, contact.PowerRead, contact.PowerReadAt = 0, r.state, r.at
	}
	// Rows are written in the order job, subject, others.
	if r.failures = contact.PowerFailures; counts {
		if err := c.conclude(tx, p, now, r); err != nil {
			return err
		}
	}
	if contact.PowerFailures > p.Retries && counts {
		contact.PowerFailures = 0
	}
	return c.Store.SaveContact(tx, contact)
}

// powerReading is one look at the power of a node.
type powerReading struct {
	at       time.Time // when it began
	state    metal.Power
	health   string
	err      error
	differs  bool // from what is wanted
	failures int  // in a row, this one included
}

// conclude draws the consequences of a reading that counts.
func (c powerOperations) conclude(tx job.Tx, p PowerSync, n *metal.Node, r powerReading) error {
	enough := r.failures > p.Retries
	ails := r.err == nil && r.health != n.Health
	if ails {
		n.Health = r.health
	}
	switch {
	case r.err != nil && enough && !n.Maintenance:
		n.Maintenance, n.Fault = true, metal.PowerFailure
		n.MaintenanceReason = fmt.Sprintf("Power sync gave up after %d failed readings: %v. Mend the BMC or its credentials; the next good reading ends this.", r.failures, r.err)
		return c.saveAndTell(tx, n, "BMC does not answer: "+r.err.Error(), "error")
	case r.err == nil && n.Fault == metal.PowerFailure:
		n.Maintenance, n.Fault, n.MaintenanceReason = false, "", ""
		return c.saveAndTell(tx, n, "BMC answers again", "info")
	case r.err == nil && n.PowerState == "" && r.state != "":
		n.PowerState = r.state
		return c.Nodes.SavePower(tx, n, "")
	case r.differs && n.ProvisionState.Info().Phase == metal.WaitsForRamdisk:
		return c.Store.Signal(tx, job.Node(n.ID))
	case r.differs && enough && n.PowerLock == "" && (!p.Force || n.ProvisionState.Info().InRescue):
		// In a rescue, and after one that failed, power on would boot the node's own disk.
		return c.saveReading(tx, n, r.state)
	case r.differs && enough && !n.Maintenance:
		return c.assertPower(tx, n, r.state)
	case ails:
		return c.saveAndTell(tx, n, "health is "+orUnknown(n.Health), "info")
	}
	return nil
}

func orUnknown(word string) string {
	if word == "" {
		return "unknown"
	}
	return word
}

// saveReading takes the power that was read for the node's own.
func (c powerOperations) saveReading(tx job.Tx, n *metal.Node, read metal.Power) error {
	before := n.PowerState
	n.PowerState = read
	if err := c.Nodes.SavePower(tx, n, before); err != nil {
		return err
	}
	return c.note(tx, n, "power is "+string(read), "info")
}

// assertPower makes a job of a lasting mismatch.
func (c powerOperations) assertPower(tx job.Tx, n *metal.Node, found metal.Power) error {
	target := metal.TurnOn
	if n.PowerState == metal.PowerOff {
		target = metal.TurnOff
	}
	raw, err := json.Marshal(metal.PowerArgs{Target: target, Sync: true})
	if err != nil {
		return err
	}
	j := &job.Job{Kind: "power", Class: job.Command, Subject: job.Node(n.ID), Group: n.ConductorGroup, Args: raw}
	if err := c.Store.Insert(tx, j); err != nil {
		return err
	}
	n.TargetPower = target.Ends()
	return c.saveAndTell(tx, n, fmt.Sprintf("power was found %s, wanted is %s: asserting it", found, n.PowerState), "error")
}

func (c powerOperations) saveAndTell(tx job.Tx, n *metal.Node, text, severity string) error {
	if err := c.Store.SaveNode(tx, n); err != nil {
		return err
	}
	return c.note(tx, n, text, severity)
}

func (c powerOperations) note(tx job.Tx, n *metal.Node, text, severity string) error {
	return c.Store.Append(tx, job.Event{Subject: job.Node(n.ID), At: c.Now(), Type: "contact", Text: text, Severity: severity})
}
