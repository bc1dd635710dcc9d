package node

import (
	"context"
	"strings"

	"salvor/diagnose/machine"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/repair"
)

// proofAddresses are those at which the machine's own system may answer. In a rescue of somebody else they are those of the rescue system.
func (c repairOperations) proofAddresses(ctx context.Context, m *managedNode, own bool) ([]string, error) {
	switch {
	case own:
		return machineProof(c).addresses(ctx, m)
	case m.node.Rescue == nil:
		return nil, nil
	}
	return m.node.Rescue.Addresses, nil
}

// awaitProof waits until the machine has proved that it works, by the host key of its sshd, a login prompt on its console or a person.
func (c repairOperations) awaitProof(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	kept, err := c.service().Get(ctx, m.node.ID, r.ID)
	if err != nil {
		return noteFailure(r, err)
	}
	if kept.State == metal.RepairWritten && kept.Booted && kept.Args.Undoes == "" {
		until := c.Now().Add(c.ProofTime)
		return job.Pause(c.StepPoll/5, "the proof that the machine works", c.change(ctx, r, func(k *metal.Repair) {
			if k.State == metal.RepairWritten {
				k.State, k.ProofUntil, k.Step = metal.RepairBooting, until, "the machine has to prove that it works"
			}
		}))
	}
	if kept.State != metal.RepairBooting {
		return job.Done()
	}
	plan, err := c.service().Plan(ctx, m.node.ID, r.ID)
	if err != nil {
		return job.From(err)
	}
	console, err := c.consoleProof(ctx, m, &kept, plan)
	if err != nil {
		return job.From(err)
	}
	if address, _ := machineProof(c).askSSH(ctx, kept.Addresses, plan.HostKeys); address != "" {
		return job.Done(c.judge(ctx, r, metal.RepairProven, "its sshd answers at "+address+" with the host key that lies on its disk", ""))
	}
	if console.proves {
		return job.Done(c.judge(ctx, r, metal.RepairProven, "its console shows that its own system booted to the login", ""))
	}
	switch {
	case console.awaited:
	case len(kept.Addresses) == 0:
		return job.Done(c.judge(ctx, r, metal.RepairUnproven, "", "salvor knows no address of the machine; give the node network_data with fixed addresses, enable its console, or confirm that it works"))
	case len(plan.HostKeys) == 0:
		return job.Done(c.judge(ctx, r, metal.RepairUnproven, "", "no ssh host key lies on its disks; confirm that it works"))
	}
	if c.Now().After(kept.ProofUntil) {
		why := "the machine did not prove that it works within " + c.ProofTime.String()
		for _, shown := range console.shows {
			why += ". " + strings.TrimSuffix(shown, ".")
		}
		return job.Done(c.judge(ctx, r, metal.RepairUnproven, "", why))
	}
	return job.Pause(c.StepPoll, "the proof that the machine works")
}

// consoleProof is what the console log shows of the boot after a repair.
type consoleProof struct {
	// awaited: a login prompt would prove the repair, and the console is enabled. proves: it is there.
	awaited, proves bool
	// shows are sentences about what hinders the boot, or about why the console is not read.
	shows []string
}

// consoleProof looks for a login prompt. It proves nothing where the repair was to let people in over the network or by a login, or where another system
// than the repaired one may have booted.
func (c repairOperations) consoleProof(ctx context.Context, m *managedNode, kept *metal.Repair, plan *repair.Plan) (proof consoleProof, err error) {
	log, found, err := metal.ReadConsoleLog(ctx, c.Store, nil, m.node.ID)
	if err != nil || !found || !m.node.ConsoleEnabled {
		return proof, err
	}
	proof.awaited = plan.LoginProves()
	boot := log.BootAfter(kept.Session, kept.SessionBegun)
	if boot != nil {
		proof.proves = proof.awaited && machine.ReachesLogin(boot.Text)
		for _, f := range machine.ConsoleFindings(boot.Text) {
			proof.shows = append(proof.shows, f.Title)
		}
	} else if log.Problem != "" {
		proof.shows = []string{"Its console cannot be read: " + log.Problem}
	}
	return proof, nil
}

// judge ends the wait for the proof, unless a person was faster. A machine that was found off and has not proved itself stays on, and the repair says so;
// restoreFoundPower says why.
func (c repairOperations) judge(ctx context.Context, r *job.Run, state metal.RepairState, by, why string) func(job.Tx) error {
	return c.change(ctx, r, func(k *metal.Repair) {
		if k.State == metal.RepairBooting {
			k.State, k.ProvenBy, k.Problem = state, by, why
			if k.FoundOff && state == metal.RepairUnproven {
				k.Problem += ". The machine was found off, and stays on so that someone can look"
			}
		}
	})
}

// restoreFoundPower shuts a machine down again that was found off, once it is proven. A machine that is unproven stays on, though it was found off:
// its first boot may still check a file system or label files, and a system that takes no soft shutdown yet would be cut off amid that. Only a running
// machine shows a person whether it works, who then confirms or undoes the repair.
func (c repairOperations) restoreFoundPower(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	kept, err := c.service().Get(ctx, m.node.ID, r.ID)
	if err != nil && !problem.Is(err, problem.NotFound) {
		return job.From(err)
	}
	if !kept.FoundOff || kept.State != metal.RepairProven || r.Memo[powerOffNote] != "" || m.node.ProvisionState != metal.Active {
		return job.Done()
	}
	if m.node.PowerState == metal.PowerOff || m.node.TargetPower == metal.PowerOff {
		return job.Done()
	}
	err = c.Nodes.SetPower(ctx, m.node.ID, metal.SoftOff, c.SoftOffTimeout, askerOf(r))
	if err == nil {
		r.Note(powerOffNote, "yes")
	}
	return fromRequest(err)
}
