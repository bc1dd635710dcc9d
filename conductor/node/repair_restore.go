package node

import (
	"context"
	"encoding/json"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
	"salvor/wire/agent"
)

// restoreChunks puts the before-images back. It takes any agent that the machine has now; a machine without one is restarted into the armed boot.
func (c repairWrites) restoreChunks(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	args, err := argsOf[writeArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	if r.Memo[halfNote] == "" {
		return job.Done()
	}
	writing, err := repairAgent(c).isBusy(ctx, m)
	if writing {
		rescueAgents(c).silence(r, false)
		return job.Pause(c.StepPoll/5, "the agent, which still writes")
	}
	if err == nil {
		err = c.restorePages(ctx, m, args.images(), false)
	}
	if problem.Is(err, problem.Unavailable) || problem.Is(err, problem.Unsupported) {
		return c.awaitAgent(ctx, r, m, err)
	}
	if err != nil {
		return job.Fail(err)
	}
	r.Note(halfNote, "")
	r.Note(restoredNote, "yes")
	return job.Done(c.edit(ctx, m.node.ID, func(n *metal.Node) { n.EditRescue(func(s *rescue.Session) { s.HalfWritten = "" }) }))
}

// awaitAgent waits for an agent that is needed to put the disks back, and restarts its machine once. A database that is away is no silent agent.
func (c repairWrites) awaitAgent(ctx context.Context, r *job.Run, m *managedNode, cause error) job.Outcome {
	if problem.IsDatabase(cause) {
		return job.From(cause)
	}
	if rescueAgents(c).silence(r, true) > restartTime && r.Memo[restartedNote] == "" && m.power != nil && !m.node.DisablePowerOff {
		if err := m.power.SetPower(ctx, m.node, metal.PowerOff); err != nil {
			return job.From(err)
		}
		if err := m.power.SetPower(ctx, m.node, metal.PowerOn); err != nil {
			return job.From(err)
		}
		r.Note(restartedNote, "yes")
	}
	return job.Pause(c.StepPoll, "an agent that puts the disks back: "+problem.Public(cause))
}

// restorePages has the agent write all before-images of a repair, or only compare them.
func (c repairWrites) restorePages(ctx context.Context, m *managedNode, id string, check bool) error {
	plan, err := c.service().Plan(ctx, m.node.ID, id)
	if err != nil {
		return err
	}
	kept, err := c.service().Get(ctx, m.node.ID, id)
	if err != nil {
		return err
	}
	params := agent.RestoreImagesParams{Check: check, Disks: []agent.RestoreDisk{}}
	for _, d := range plan.Disks {
		params.Disks = append(params.Disks, agent.RestoreDisk{Path: d.Path, Serial: d.Serial, WWN: d.WWN, Size: d.Size})
	}
	for page := 1; page <= kept.UndoPages; page++ {
		part, err := c.Store.RepairPart(ctx, nil, m.node.ID, id, metal.RepairImagesPart(page))
		if err != nil {
			return err
		}
		images, err := readPage(part.Body, plan)
		if err != nil {
			return err
		}
		params.Chunks = images.Chunks
		if _, err := repairAgent(c).ask(ctx, m, agent.RestoreImages, params); err != nil {
			return err
		}
	}
	return nil
}

// finishWrite notes that the repair is written. It gives the boot back to the machine where disarmUnlessHalf does. The unrescue sets a boot device
// that the plan changes.
func (c repairWrites) finishWrite(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	args, err := argsOf[writeArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	plan, err := c.service().Plan(ctx, m.node.ID, args.Repair)
	if err != nil {
		return job.From(err)
	}
	out := unlessForRepair(c.cleanUpRamdisk)(ctx, r, m)
	return out.With(c.edit(ctx, m.node.ID, func(n *metal.Node) {
		n.EditRescue(func(s *rescue.Session) {
			s.HalfWritten = ""
			if boot := bootSetting(plan, s.Saved); boot != nil && !args.Exact {
				s.Saved = *boot
			}
			if s.IsForRepair() && args.Undoes == "" {
				s.Saved.Power = "" // the repaired system boots to prove itself, whoever asks for the unrescue
			}
		})
		if metal.IsRepairFault(n) {
			n.Maintenance, n.Fault, n.MaintenanceReason = false, "", ""
		}
	}), func(tx job.Tx) error {
		return c.service().Edit(ctx, tx, m.node.ID, args.Repair, func(k *metal.Repair) {
			k.Write(c.Now())
			if m.node.Rescue != nil {
				k.Session, k.SessionBegun = m.node.Rescue.StartedAt, m.node.Rescue.Begun
			}
		})
	})
}

// unknownDisks says of a job that was ended where it stood that the disks may hold anything, and what to do next. The release of a restored database
// ends jobs so: the history that was lost may have written what the restored history only prepares.
func (a *writeArgs) unknownDisks(j *job.Job) string {
	next := "salvor diagnose " + j.Subject.ID
	if a.hasImages(j) {
		next = "salvor repair undo " + j.Subject.ID + " " + a.images()
	}
	return "nobody knows whether the disks were written; next: " + next + ". " + j.Problem
}

// hasImages tells whether all before-images are kept, so that an undo can make the disks whole.
func (a *writeArgs) hasImages(j *job.Job) bool {
	return a.Exact || j.Memo[imagesDoneNote] != "" && readCount(&job.Run{Job: *j}, imagesPagesNote) > 0
}

// writeFailed says what became of the disks.
func (c repairWrites) writeFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	var args writeArgs
	if err := json.Unmarshal(j.Args, &args); err != nil {
		return err
	}
	err := c.service().Edit(ctx, tx, j.Subject.ID, args.Repair, func(k *metal.Repair) {
		k.State, k.Problem = metal.RepairFailed, j.Problem
		switch {
		case j.Memo[restoredNote] != "" && args.Exact:
			k.Problem = "the before-images are put back, and then: " + j.Problem
		case j.Memo[restoredNote] != "":
			k.State, k.Problem = metal.RepairRolledBack, "rolled back, and nothing is changed: "+j.Problem
		case j.EndsWithoutUndo():
			k.State, k.Problem = metal.RepairInterrupted, args.unknownDisks(j)
			if !args.hasImages(j) { // some of them would not make the disks whole
				k.UndoBytes, k.UndoPages = 0, 0
			}
		}
	})
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	return err
}

// writeStuck marks a node whose disks are half-written: its own system must not boot.
func (c repairWrites) writeStuck(ctx context.Context, tx job.Tx, j *job.Job, why string) error {
	var args writeArgs
	if err := json.Unmarshal(j.Args, &args); err != nil {
		return err
	}
	switch {
	case j.Memo[halfNote] == "" && j.Memo[restoredNote] == "" && j.EndsWithoutUndo():
		return c.stuck(ctx, tx, j, args.unknownDisks(j))
	case j.Memo[halfNote] == "":
		return c.stuck(ctx, tx, j, why)
	}
	err := c.service().Edit(ctx, tx, j.Subject.ID, args.Repair, func(k *metal.Repair) {
		k.State, k.Problem = metal.RepairInterrupted, "the disks are half-written: "+why
	})
	if err != nil && !problem.Is(err, problem.NotFound) {
		return err
	}
	return c.stuck(ctx, tx, j, "the disks are half-written, and the machine's own system must not boot; next: salvor repair undo "+j.Subject.ID+" "+args.Repair+". "+why)
}
