package metal

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
)

// PowerTarget is what a user may ask of the power.
type PowerTarget string

const (
	TurnOn     PowerTarget = "power on"
	TurnOff    PowerTarget = "power off"
	Reboot     PowerTarget = "rebooting"
	SoftReboot PowerTarget = "soft rebooting"
	SoftOff    PowerTarget = "soft power off"
)

// DefaultSoftOffTimeout bounds a soft shutdown where neither the request nor the configuration names a time.
const DefaultSoftOffTimeout = 10 * time.Minute

var powerTargets = []PowerTarget{TurnOn, TurnOff, Reboot, SoftReboot, SoftOff}

// Ends is the power state in which the target leaves the node.
func (t PowerTarget) Ends() Power {
	if t == TurnOff || t == SoftOff {
		return PowerOff
	}
	return PowerOn
}

// Known tells whether the word is a target at all.
func (t PowerTarget) Known() bool { return slices.Contains(powerTargets, t) }

// PowerArgs are the arguments of a power job.
type PowerArgs struct {
	Target  PowerTarget   `json:"target"`
	Timeout time.Duration `json:"timeout,omitempty"` // of a soft shutdown
	// Sync marks a job that power sync made, which asserts what was wanted already.
	Sync bool `json:"sync,omitempty"`
}

// SetPower asks for a change of power: a command, which runs beside a waiting operation.
func (s *Nodes) SetPower(ctx context.Context, ident string, target PowerTarget, timeout time.Duration, asker record.Asker) error {
	if !target.Known() {
		return problem.Invalidf(`The requested action "%s" is no power target; use power on, power off, rebooting, soft rebooting or soft power off.`, target)
	}
	raw, err := json.Marshal(PowerArgs{Target: target, Timeout: timeout})
	if err != nil {
		return err
	}
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		n, err := s.store.Node(ctx, tx, ident)
		if err != nil {
			return err
		}
		if n.Reservation != "" {
			return Locked(n)
		}
		if err := n.admitPower(target); err != nil {
			return err
		}
		j := &job.Job{Kind: "power", Class: job.Command, Subject: job.Node(n.ID), Group: n.ConductorGroup, Args: raw, RequestID: asker.RequestID, User: asker.User}
		if err := s.jobs.Insert(tx, j); err != nil {
			return err
		}
		n.TargetPower, n.LastError = target.Ends(), ""
		if err := s.store.SaveNode(tx, n); err != nil {
			return err
		}
		return s.note(tx, n.ID, asker, "request", "asked for "+string(target))
	})
}

func (n *Node) admitPower(target PowerTarget) error {
	if n.DisablePowerOff && target.Ends() == PowerOff {
		return problem.Invalidf("Node %s has disable_power_off set: it is not switched off; it may be asked for rebooting.", n.ID)
	}
	if err := n.heldOff(); err != nil && target.Ends() == PowerOn {
		return err
	}
	info := n.ProvisionState.Info()
	switch {
	case info.NoPower:
		return invalidState(n, string(target))
	case info.PowerOnHarm != "" && target.Ends() == PowerOn:
		return problem.Conflictf("Node %s is in state %q: %s. Ask for unrescue to boot its own system, or for rescue to boot the rescue ramdisk again.", n.ID, n.ProvisionState, info.PowerOnHarm)
	}
	return nil
}

// JobPowerEvent is the kind of the job that sends Nova a change of power.
const JobPowerEvent job.Kind = "power event"

// SavePower writes a node whose power was before, and inserts the job that sends Nova a change of it. Only a node of an instance concerns
// Nova. The first reading of all counts as a change, as in Ironic.
func (s *Nodes) SavePower(tx job.Tx, n *Node, before Power) error {
	if s.opts.PowerEvents && n.InstanceUUID != "" && n.PowerState != "" && n.PowerState != before {
		if err := s.jobs.Insert(tx, &job.Job{Kind: JobPowerEvent, Class: job.Background, Subject: job.Node(n.ID), Group: n.ConductorGroup}); err != nil {
			return err
		}
	}
	return s.store.SaveNode(tx, n)
}

// Question is what a machine's controller is asked or told.
type Question struct {
	// Class is job.Background for what only reads, job.Command for what locks the node.
	Class job.Class
	Kind  job.Kind
	// Part is the kind of interface that has to answer; where the node has none of it, the question is refused at once.
	Part string
	// Args go into the job's row as JSON.
	Args any
	// Secret is a JSON object that is laid over Args for the driver's eyes; the row keeps it sealed until the job ends.
	Secret secret.Value
	// Settled refuses it while the node's state is changing.
	Settled bool
}

// Ask inserts the job of a question, whose answer the caller may wait for, and returns its id.
func (s *Nodes) Ask(ctx context.Context, ident string, q Question, asker record.Asker) (string, error) {
	raw, err := json.Marshal(q.Args)
	if err != nil {
		return "", err
	}
	j := &job.Job{Kind: q.Kind, Class: q.Class, Args: raw, Secret: q.Secret, RequestID: asker.RequestID, User: asker.User}
	n, err := s.store.Node(ctx, nil, ident)
	if err != nil {
		return "", err
	}
	d, err := s.directory.Driver(ctx, n)
	if err != nil {
		return "", err
	}
	if i, ok := d.Find(n, q.Part); q.Part != "" && (!ok || i.Unsupported) {
		return "", Lacks(n, q.Part)
	}
	err = s.jobs.Do(ctx, func(tx job.Tx) error {
		n, err := s.store.Node(ctx, tx, n.ID)
		if err != nil {
			return err
		}
		if q.Class != job.Background && n.Reservation != "" {
			return Locked(n)
		}
		if phase := n.ProvisionState.Info().Phase; q.Settled && (phase == Working || phase == WaitsForRamdisk) {
			return problem.Conflictf("Node %s is in state %q, in which it is being changed already; ask again when that has ended.", n.ID, n.ProvisionState)
		}
		j.ID, j.Subject, j.Group = "", job.Node(n.ID), n.ConductorGroup
		return s.jobs.Insert(tx, j)
	})
	return j.ID, err
}

// Lacks is the error for what the node's driver cannot do, in Ironic's words.
func Lacks(n *Node, what string) error {
	return problem.Unsupportedf("Driver %s does not support %s (disabled or not implemented).", n.Driver, what)
}

// Answer waits until the job has ended and gives its result; Unavailable when ctx ends first.
func (s *Nodes) Answer(ctx context.Context, id string) (json.RawMessage, error) {
	return job.Await(ctx, s.jobs, id, "the machine's controller")
}

// BootDeviceArgs are the arguments of the command that sets the boot device.
type BootDeviceArgs struct {
	Boot rescue.Boot `json:"boot"`
}
