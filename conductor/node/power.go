package node

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// power is the command behind states/power. A reboot is off, then on: nothing relative that a repetition would spoil.
func (c powerOperations) power() job.Definition {
	const command = "a user's command is not taken back"
	return job.Definition{
		Kind: "power", Version: 1, Class: job.Command, Failed: c.powerFailed,
		Actions: []job.Action{
			{Name: "shut down", Do: c.withNode(requirePower(c.shutDown)), NoUndo: command, Deadline: c.SoftOffTimeout + c.bmcDeadline()},
			{Name: "power off", Do: c.withNode(requirePower(c.powerDown)), NoUndo: command, Deadline: c.bmcDeadline()},
			{Name: "power on", Do: c.withNode(requirePower(c.powerUp)), NoUndo: command, Deadline: c.bmcDeadline()},
		},
	}
}

// requirePower refuses an action on a machine whose power nobody here can reach.
func requirePower(do nodeAction) nodeAction {
	return func(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
		if m.power == nil {
			return job.Fail(m.lacks("power"))
		}
		return do(ctx, r, m)
	}
}

func powerArgs(r *job.Run) (metal.PowerArgs, error) {
	var a metal.PowerArgs
	if err := json.Unmarshal(r.Args, &a); err != nil {
		return a, problem.Invalidf("power job: %w", err)
	}
	return a, nil
}

// shutDown leaves the system time to end by itself; only who asked for that waits so long.
func (c powerOperations) shutDown(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	a, err := powerArgs(r)
	if err != nil {
		return job.Fail(err)
	}
	// Before anything is switched: volumes that could not be booted are told while the machine is as it was.
	if a.Target.Ends() == metal.PowerOn {
		if err := c.refreshVolumes(ctx, m); err != nil {
			return job.From(err)
		}
	}
	if a.Target != metal.SoftOff && a.Target != metal.SoftReboot || m.node.DisablePowerOff {
		return job.Done()
	}
	return job.From(c.softOff(ctx, m, a.Timeout))
}

func (c powerOperations) powerDown(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	a, err := powerArgs(r)
	if err != nil {
		return job.Fail(err)
	}
	switch a.Target {
	case metal.TurnOn, metal.SoftOff, metal.SoftReboot:
		return job.Done()
	}
	return c.turnOff(ctx, r, m)
}

// softRestart has the system of a machine that must not be switched off restart by itself.
func (c powerOperations) softRestart(ctx context.Context, r *job.Run, m *managedNode) error {
	return restartOnce(ctx, r, m, func() (restartFunc, error) { return softRestarter(m) })
}

// softRestarter is the soft restart of the machine's power interface. Unsupported: the interface has none.
func softRestarter(m *managedNode) (restartFunc, error) {
	d, err := requireInterface[driver.SoftRestarter](m, "power", "a soft reboot that does not switch off")
	if err != nil {
		return nil, err
	}
	return d.SoftRestart, nil
}

// softOff asks the system to end and watches until it has.
func (c powerOperations) softOff(ctx context.Context, m *managedNode, within time.Duration) error {
	if within == 0 {
		within = c.SoftOffTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	state, err := m.power.PowerState(ctx, m.node)
	if err != nil || state == metal.PowerOff {
		return err
	}
	if err := m.power.SoftOff(ctx, m.node); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return problem.Conflictf("the system did not shut down within %s; use power off to force it", within)
		case <-time.After(c.StepPoll / 5):
		}
		if state, err := m.power.PowerState(ctx, m.node); err == nil && state == metal.PowerOff {
			return nil
		}
	}
}

func (c powerOperations) powerUp(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	a, err := powerArgs(r)
	if err != nil {
		return job.Fail(err)
	}
	if a.Target.Ends() == metal.PowerOn {
		turnOn := func() error { return m.power.SetPower(ctx, m.node, metal.PowerOn) }
		var err error
		switch {
		case a.Target == metal.SoftReboot && m.node.DisablePowerOff:
			_, err = softRestarter(m)
			turnOn = func() error { return c.softRestart(ctx, r, m) }
		case a.Target != metal.TurnOn:
			if m.node.DisablePowerOff {
				_, err = restarter(m)
			}
			turnOn = func() error { return c.start(ctx, r, m) }
		}
		if err == nil { // a command that cannot be carried out leaves the awaited boot as it is
			err = c.bootAwaitedRamdisk(ctx, r, m, a.Target)
		}
		if err == nil {
			err = turnOn()
		}
		if err != nil {
			return job.From(err)
		}
	}
	return job.Done(c.edit(ctx, m.node.ID, func(n *metal.Node) { n.PowerState, n.TargetPower = a.Target.Ends(), "" }))
}

// awaitedNote is the number of the boot of the ramdisk that the command has planned, bootReadyNote that of the boot whose ramdisk is prepared:
// the next start of the machine boots it.
const (
	awaitedNote   = "ramdisk planned for boot"
	bootReadyNote = "ramdisk prepared for boot"
)

// bootAwaitedRamdisk has a machine whose operation waits for its ramdisk boot that ramdisk again. The boot before has used up the boot device, which
// counts for one boot, and the agent token, which is told once; its agent is gone. bootAwaitedRamdisk leaves a machine alone that is on and stays on.
func (c powerOperations) bootAwaitedRamdisk(ctx context.Context, r *job.Run, m *managedNode, target metal.PowerTarget) error {
	if m.node.ProvisionState.Info().Phase != metal.WaitsForRamdisk || !m.node.BootsRamdisk() || m.boot == nil || r.Memo[restartMark(r)] != "" {
		return nil
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	isPlanned := r.Memo[awaitedNote] == number(m.node.BootNumber)
	isPrepared := isPlanned && r.Memo[bootReadyNote] == number(m.node.BootNumber)
	if target == metal.TurnOn || isPrepared {
		if state, err := m.power.PowerState(ctx, m.node); err != nil || state == metal.PowerOn {
			return err
		}
	}
	prepare := func() error { return m.boot.PrepareRamdisk(ctx, m.node) }
	if !isPlanned {
		r.Note(awaitedNote, number(m.node.BootNumber+1))
		prepare = func() error { return c.steps().planAgain(ctx, r, m) }
	}
	if err := prepare(); err != nil {
		return err
	}
	r.Note(bootReadyNote, number(m.node.BootNumber))
	return nil
}

func (c powerOperations) powerFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	return c.Nodes.Edit(ctx, tx, j.Subject.ID, func(n *metal.Node) {
		n.TargetPower, n.LastError = "", "Failed to change power state: "+strings.TrimSuffix(j.Problem, ".")+". Once that is mended, ask for it again."
	})
}
