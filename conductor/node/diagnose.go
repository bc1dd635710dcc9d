package node

import (
	"context"
	"time"

	"salvor/diagnose"
	"salvor/diagnose/machine"
	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// diagnosisOperations say why machines do not boot.
type diagnosisOperations struct{ *Conductor }

func (c diagnosisOperations) borrowed() borrowedRescue { return borrowedRescue(c) }

// diagnose reads what a machine's BMC and salvor's records tell, and has its disks examined: in a rescue that is under way, else where the machine
// may be booted for that. It locks nothing itself: the rescue and the unrescue that it asks for are operations like any other, and whoever looks sees their states.
func (c diagnosisOperations) diagnose() job.Definition {
	const nothing = "a diagnosis changes nothing itself; unrescue takes the ramdisk away"
	return job.Definition{
		Kind: metal.JobDiagnose, Version: 2, Class: job.Background, Failed: c.diagnosisFailed, NoDeadline: "a rescue waits while an operator's maintenance holds it",
		Actions: []job.Action{
			{Name: "read the BMC", Do: c.withNode(c.readBMC), NoUndo: nothing, Deadline: 2 * time.Minute},
			{Name: "examine in rescue", Do: c.withNode(c.examineInRescue), NoUndo: nothing, Deadline: examineDeadline, Elsewhere: true, Since: 2},
			{Name: "ask for a rescue", Do: c.withNode(c.requestRescue), NoUndo: nothing, Deadline: requestDeadline, Elsewhere: true},
			{Name: "await the rescue", Do: c.withNode(c.awaitRescued), NoUndo: nothing},
			{Name: "ask for the unrescue", Do: c.withNode(c.requestUnrescue), NoUndo: nothing, Deadline: requestDeadline, Elsewhere: true},
			{Name: "await the unrescue", Do: c.withNode(c.awaitUnrescued), NoUndo: nothing},
			{Name: "finish", Do: c.finish, NoUndo: nothing},
		},
	}
}

// noBootNote marks a diagnosis that does not boot the machine.
const noBootNote = "not booted"

// note changes the diagnosis of the job.
func (c diagnosisOperations) note(ctx context.Context, r *job.Run, change func(*metal.Diagnosis)) func(job.Tx) error {
	return func(tx job.Tx) error { return c.Nodes.EditDiagnosis(ctx, tx, r.Subject.ID, r.ID, change) }
}

// readBMC collects the evidence that needs no boot. What cannot be read is a gap of the report and no failure.
func (c diagnosisOperations) readBMC(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	seen, gaps := c.lookAt(ctx, m)
	log, err := c.readConsoleLog(ctx, m)
	if err != nil {
		gaps = append(gaps, diagnose.Gap{What: "console", Why: diagnose.Reason(problem.Public(err))})
	}
	symptoms := machine.ConsoleFindings(log.Text())
	proof, answer, err := c.proof(ctx, m, &seen, &log)
	if err != nil {
		gaps = append(gaps, diagnose.Gap{What: "sshd at the machine's addresses", Why: diagnose.Excerpt(problem.Public(err))})
	}
	return job.Done(c.note(ctx, r, func(d *metal.Diagnosis) {
		if len(d.Report.Symptoms()) == 0 { // a text that came with the request goes before the kept one
			d.Report.Findings = append(d.Report.Findings, symptoms...)
		}
		d.Step, d.Report = "the BMC and the records have been read", seen.Report(&d.Report, gaps)
		if d.Report.Proof = proof; answer != nil {
			d.Report.Observed = append(d.Report.Observed, *answer)
		}
	}))
}

// proof is what shows that the machine's own system works; nil: nothing does. Only a machine in use that is on can show it: in a rescue, in cleaning and
// the like another system answers. The answer of an sshd goes before a login prompt, because people log in by it. An sshd that proves nothing is observed.
func (c diagnosisOperations) proof(ctx context.Context, m *managedNode, seen *machine.State, log *metal.ConsoleLog) (*diagnose.Proof, *diagnose.Observation, error) {
	if m.node.ProvisionState != metal.Active || seen.Power != string(metal.PowerOn) {
		return nil, nil, nil
	}
	proof, answer, err := machineProof(c).sshd(ctx, m)
	if proof == nil {
		proof = loginProof(m.node, log)
	}
	return proof, answer, err
}

// readConsoleLog reads the kept console log while the console is enabled. The error says why the console is not read.
func (c diagnosisOperations) readConsoleLog(ctx context.Context, m *managedNode) (metal.ConsoleLog, error) {
	if !m.node.ConsoleEnabled {
		return metal.ConsoleLog{}, nil
	}
	log, _, err := metal.ReadConsoleLog(ctx, c.Store, nil, m.node.ID)
	if err == nil && log.Problem != "" {
		err = problem.Unavailablef("%s", log.Problem)
	}
	return log, err
}

// lookAt asks the BMC.
func (c diagnosisOperations) lookAt(ctx context.Context, m *managedNode) (machine.State, []diagnose.Gap) {
	n := m.node
	elsewhere := n.Plan != nil || m.info.FromVolumes(n)
	seen := machine.State{Provision: string(n.ProvisionState), InUse: n.ProvisionState == metal.Active, BootsElsewhere: elsewhere, Fault: n.Fault, Maintenance: n.MaintenanceReason}
	var gaps []diagnose.Gap
	part := func(name string, read func(ctx context.Context) error) {
		bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)
		defer cancel()
		if err := read(bounded); err != nil && !problem.Is(err, problem.Unsupported) {
			gaps = append(gaps, diagnose.Gap{What: name, Why: diagnose.Reason(problem.Public(err))})
		}
	}
	if m.power != nil {
		part("power", func(ctx context.Context) error {
			state, err := m.power.PowerState(ctx, n)
			seen.Power = string(state)
			return err
		})
	}
	if m.manage != nil {
		part("boot device", func(ctx context.Context) error {
			boot, err := m.manage.BootDevice(ctx, n)
			seen.BootDevice, seen.BootPersistent = boot.Device, boot.Persistent
			return err
		})
	}
	if log, err := requireInterface[driver.EventLog](m, "management", "event log"); err == nil {
		part("event log of the BMC", func(ctx context.Context) error {
			found, err := log.ReadEventLog(ctx, n, metal.MaxLogEntries)
			for _, e := range found.Entries {
				seen.Events = append(seen.Events, machine.Event{At: e.Time, Critical: e.Severity == metal.HealthCritical, Sensor: e.Sensor, Message: e.Message, State: string(e.State)})
			}
			return err
		})
	}
	if health, err := requireInterface[driver.Health](m, "management", "health"); err == nil {
		part("health", func(ctx context.Context) error {
			found, err := health.ReadHealth(ctx, n)
			seen.Health = string(found.Health)
			for _, c := range found.Unhealthy {
				seen.Unhealthy = append(seen.Unhealthy, machine.Component{Kind: c.Component, Name: c.Name, State: c.State, Message: c.Message, Critical: c.Health == metal.HealthCritical})
			}
			return err
		})
	}
	for _, p := range m.ports {
		seen.Ports = append(seen.Ports, p.Address)
	}
	part("network_data", func(context.Context) (err error) {
		seen.NetworkData, err = networkData(n)
		return err
	})
	return seen, append(gaps, diagnosisRecords(c).collect(ctx, m, &seen)...)
}

// requestRescue asks for the rescue in which the disks are examined.
func (c diagnosisOperations) requestRescue(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if isOwnRescue(r, m) || r.Memo[noBootNote] != "" {
		r.Secret = noSecret // the rescue has it
		return job.Done()
	}
	if err := c.Permission.Refusal(); err != nil {
		return job.Retry(0, err)
	}
	args, err := argsOf[metal.DiagnoseArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	why := c.borrowed().hindrance(m)
	if why == "" && !args.Reboot {
		switch power, err := m.power.PowerState(ctx, m.node); {
		case err != nil:
			why = "the BMC does not tell whether the machine is on: " + problem.Public(err)
		case power != metal.PowerOff:
			why = "the machine is on, and only --reboot restarts it"
		}
	}
	if why != "" {
		r.Note(noBootNote, "yes")
		r.Secret = noSecret
		return job.Done(c.note(ctx, r, func(d *metal.Diagnosis) { d.AddDiskGap(why) }))
	}
	err = c.borrowed().request(ctx, r, m, metal.ProvisionArgs{Diagnosis: r.ID, LUKSKeys: r.Secret}, args.Reboot, args.KeepRescue)
	if err == nil {
		r.Secret = noSecret
	}
	return fromRequest(err, c.note(ctx, r, func(d *metal.Diagnosis) { d.Step = "the machine is booted into the rescue ramdisk" }))
}

// awaitRescued waits for the end of the rescue, which examines the disks on its way.
func (c diagnosisOperations) awaitRescued(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if r.Memo[noBootNote] != "" {
		return job.Done()
	}
	wait, err := c.borrowed().await(r, m, false)
	switch {
	case err != nil:
		r.Note(failureNote, "the rescue that was to examine the disks failed: "+problem.Public(err))
	case wait:
		return c.borrowed().pollAgain("the rescue")
	}
	return job.Done()
}

// requestUnrescue has the machine put back as it was found.
func (c diagnosisOperations) requestUnrescue(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	args, err := argsOf[metal.DiagnoseArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	if r.Memo[noBootNote] != "" || !c.borrowed().mustEnd(r, m, args.KeepRescue) {
		return job.Done()
	}
	return c.borrowed().end(ctx, r, m, c.note(ctx, r, func(d *metal.Diagnosis) { d.Step = "the machine is put back" }))
}

func (c diagnosisOperations) awaitUnrescued(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	ending, err := c.borrowed().isEnding(r, m)
	if ending {
		return c.borrowed().pollAgain("the unrescue")
	}
	return job.From(err)
}

func (c diagnosisOperations) finish(ctx context.Context, r *job.Run) job.Outcome {
	if why := r.Memo[failureNote]; why != "" {
		return job.Fail(problem.Conflictf("%s", why))
	}
	return job.Done(c.note(ctx, r, func(d *metal.Diagnosis) {
		d.End(diagnose.Finished, c.Now(), "the rescue did not examine them")
		d.Step = ""
	}))
}

// returnUntouched ends the rescue of a diagnosis or a repair that never touched its machine. The node is as it was. The report or the repair says why.
func (c diagnosisOperations) returnUntouched(ctx context.Context, tx job.Tx, j *job.Job, n *metal.Node) error {
	if n.Rescue.IsForRepair() {
		if err := metal.NewNodeRepairs(c.Nodes).Edit(ctx, tx, n.ID, n.Rescue.Repair, func(k *metal.Repair) { k.Problem = j.Problem }); err != nil {
			return err
		}
	} else if err := c.Nodes.EditDiagnosis(ctx, tx, n.ID, n.Rescue.Diagnosis, func(d *metal.Diagnosis) { d.AddDiskGap(j.Problem) }); err != nil {
		return err
	}
	return c.Nodes.Advance(ctx, tx, n.ID, metal.ReturnEvent, func(n *metal.Node) { n.Rescue = nil })
}

// diagnosisFailed keeps what was found until the failure.
func (c diagnosisOperations) diagnosisFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	err := c.Nodes.EditDiagnosis(ctx, tx, j.Subject.ID, j.ID, func(d *metal.Diagnosis) { d.Fail(c.Now(), j.Problem) })
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	return err
}

// onlyIfOff refuses a rescue that must not interrupt a machine which is found on.
func (c diagnosisOperations) onlyIfOff(off nodeAction) nodeAction {
	return func(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
		args, err := argsOf[metal.ProvisionArgs](r)
		if err != nil {
			return job.Fail(err)
		}
		if args.OnlyIfOff && r.Memo[powerFoundNote] == "" {
			state, err := m.power.PowerState(ctx, m.node)
			if err != nil {
				return job.From(err)
			}
			if state != metal.PowerOff {
				return job.Fail(problem.Conflictf("the machine is on, and nobody allowed its restart with --reboot"))
			}
		}
		return off(ctx, r, m)
	}
}
