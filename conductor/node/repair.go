package node

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/repair"
	"salvor/rescue"
)

// repairOperations repair machines.
type repairOperations struct{ *Conductor }

func (c repairOperations) borrowed() borrowedRescue { return borrowedRescue(c) }

// service gives the records of repairs.
func (c repairOperations) service() metal.NodeRepairs { return metal.NewNodeRepairs(c.Nodes) }

// repair has the agent of a rescue plan the repair, and after the owner's consent a job of its own write it. It locks nothing itself: the rescue,
// the writing and the unrescue that it asks for are operations like any other.
func (c repairOperations) repair() job.Definition {
	const nothing = "a repair changes nothing itself; the job that writes takes back what it wrote, and unrescue takes the ramdisk away"
	return job.Definition{
		Kind: metal.JobRepair, Version: 1, Class: job.Background, Failed: c.repairFailed, NoDeadline: "a rescue waits while an operator's maintenance holds it",
		Actions: []job.Action{
			{Name: "ask for a rescue", Do: c.withNode(c.requestRescue), NoUndo: nothing, Deadline: requestDeadline, Elsewhere: true},
			{Name: "await the rescue", Do: c.withNode(c.awaitRescued), NoUndo: nothing},
			{Name: "plan the repair", Do: c.withNode(c.unlessFailed(c.makePlan)), NoUndo: nothing, Deadline: planDeadline, Elsewhere: true},
			{Name: "await the consent", Do: c.withNode(c.unlessFailed(c.awaitConsent)), NoUndo: nothing},
			{Name: "ask for the writing", Do: c.withNode(c.unlessFailed(c.requestWrite)), NoUndo: nothing, Deadline: requestDeadline, Elsewhere: true},
			{Name: "await the writing", Do: c.withNode(c.awaitWritten), NoUndo: nothing},
			{Name: "take the overlays down", Do: c.withNode(c.endOverlays), NoUndo: nothing, Elsewhere: true},
			{Name: "ask for the unrescue", Do: c.withNode(c.requestUnrescue), NoUndo: nothing, Deadline: requestDeadline, Elsewhere: true},
			{Name: "await the unrescue", Do: c.withNode(c.awaitUnrescued), NoUndo: nothing},
			{Name: "await the proof", Do: c.withNode(c.unlessFailed(c.awaitProof)), NoUndo: nothing},
			{Name: "restore the power", Do: c.withNode(c.restoreFoundPower), NoUndo: nothing, Deadline: requestDeadline, Elsewhere: true},
			{Name: "finish", Do: c.withNode(c.finishRepair), NoUndo: nothing},
		},
	}
}

const (
	// planTime bounds the time of a plan, in which programs of the machine may make an initramfs on an overlay. planDeadline is for an agent
	// that takes connections and answers nothing.
	planTime     = 30 * time.Minute
	planDeadline = 35 * time.Minute
	// maxPlanSize bounds a plan in bytes, as the agent does.
	maxPlanSize = 8 << 20
)

// Notes of a repair.
const (
	underWayNote  = "in a rescue under way"  // the rescue was there before
	noWriteNote   = "not written"            // the repair ends with its plan
	noChangeNote  = "nothing to change"      // the plan is empty
	writeNote     = "job that writes"        // its id
	powerOffNote  = "switched off afterward" // the power has been asked for
	stoppedNote   = "unrescue asked"
	keysNote      = "with LUKS keys" // true or false: whether a plan made again would lack keys
	replannedNote = "planned again"
)

// change changes the repair of the job.
func (c repairOperations) change(ctx context.Context, r *job.Run, change func(*metal.Repair)) func(job.Tx) error {
	return func(tx job.Tx) error { return c.service().Edit(ctx, tx, r.Subject.ID, r.ID, change) }
}

// unlessFailed skips an action once something has failed. What follows puts the machine back.
func (c repairOperations) unlessFailed(do nodeAction) nodeAction {
	return func(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
		if r.Memo[failureNote] != "" || r.Memo[noWriteNote] != "" {
			return job.Done()
		}
		return do(ctx, r, m)
	}
}

// noteFailure notes why the repair fails, while the machine is put back. Nobody needs the keys of its disks any more. A database that is away
// fails no repair: the runner drops the note and runs the action again.
func noteFailure(r *job.Run, why error) job.Outcome {
	r.Secret = noSecret
	r.Note(failureNote, problem.Public(why))
	return job.Done()
}

// requestRescue asks for the rescue in which the disks are repaired, or takes the one that is under way.
func (c repairOperations) requestRescue(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if isOwnRescue(r, m) {
		return job.Done()
	}
	if err := c.Permission.Refusal(); err != nil {
		return job.Retry(0, err)
	}
	args, err := argsOf[metal.RepairArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	if m.node.ProvisionState == metal.Rescue {
		r.Note(underWayNote, "yes")
		return job.Done(c.change(ctx, r, func(k *metal.Repair) { k.Step = "the rescue under way is used" }))
	}
	if args.Method == metal.UndoExact {
		return job.Fail(problem.Conflictf("the rescue of the repair has ended, so its own system may have booted; ask for the undo again"))
	}
	if why := c.borrowed().hindrance(m); why != "" {
		return job.Fail(problem.Conflictf("the disks cannot be repaired: %s", why))
	}
	power, err := m.power.PowerState(ctx, m.node)
	switch {
	case err != nil:
		return job.From(err)
	case power != metal.PowerOff && !args.Reboot:
		return job.Fail(problem.Conflictf("the machine is on, and only --reboot restarts it"))
	}
	err = c.borrowed().request(ctx, r, m, metal.ProvisionArgs{Repair: r.ID}, args.Reboot, args.KeepRescue)
	return fromRequest(err, c.change(ctx, r, func(k *metal.Repair) { k.Step = "the machine is booted into the rescue ramdisk" }))
}

// awaitRescued waits for the end of the rescue.
func (c repairOperations) awaitRescued(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	wait, err := c.borrowed().await(r, m, r.Memo[underWayNote] != "")
	if wait {
		return c.borrowed().pollAgain("the rescue")
	}
	if err != nil {
		kept, lost := c.service().Get(ctx, m.node.ID, r.ID)
		if lost == nil && kept.Problem != "" { // of a rescue that never touched the machine
			return noteFailure(r, problem.Conflictf("%s", kept.Problem))
		}
		return noteFailure(r, problem.Conflictf("the rescue failed: %w", err))
	}
	own := isOwnRescue(r, m)
	addresses, err := c.proofAddresses(ctx, m, own)
	if err != nil {
		return job.From(err)
	}
	return job.Done(c.change(ctx, r, func(k *metal.Repair) {
		k.Step, k.Addresses = "the repair is planned", addresses
		if m.node.Rescue != nil {
			k.Session, k.SessionBegun = m.node.Rescue.StartedAt, m.node.Rescue.Begun
			k.FoundOff = own && m.node.Rescue.Saved.Power == "off"
		}
	}))
}

// requestWrite inserts the job that writes to the disks.
func (c repairOperations) requestWrite(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if r.Memo[writeNote] != "" {
		return job.Done()
	}
	args, err := argsOf[metal.RepairArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	if m.node.ProvisionState != metal.Rescue {
		return noteFailure(r, problem.Conflictf("the node left the rescue before anything was written; it is in state %s", m.node.ProvisionState))
	}
	raw, err := json.Marshal(writeArgs{Repair: r.ID, Undoes: args.Undoes, Exact: args.Method == metal.UndoExact})
	if err != nil {
		return job.Fail(err)
	}
	next := &job.Job{ID: uuid.NewString(), Kind: metal.JobWriteRepair, Class: job.Operation, Subject: r.Subject, Group: m.node.ConductorGroup, Args: raw, RequestID: r.RequestID, User: r.User}
	r.Note(writeNote, next.ID)
	err = r.Commit(ctx, func(tx job.Tx) error {
		inserted := *next
		if err := c.Store.Insert(tx, &inserted); err != nil {
			return err
		}
		return c.change(ctx, r, func(k *metal.Repair) { k.State, k.Step = metal.RepairWriting, "the disks are written" })(tx)
	})
	if err == nil {
		return job.Done()
	}
	r.Note(writeNote, "")
	return fromRequest(err)
}

// awaitWritten waits for the end of the job that writes, also when the repair has failed meanwhile: what follows takes the overlays down that the
// job writes from, and the rescue that it may need to take back what it wrote.
func (c repairOperations) awaitWritten(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if r.Memo[writeNote] == "" {
		return job.Done()
	}
	write, err := c.Store.Job(ctx, nil, r.Memo[writeNote])
	switch {
	case problem.Is(err, problem.NotFound): // it ended long ago
	case err != nil:
		return job.From(err)
	case write.State != job.Ended:
		return job.Pause(c.StepPoll/5, "the job that writes to the disks")
	}
	kept, err := c.service().Get(ctx, m.node.ID, r.ID)
	switch {
	case err != nil:
		return noteFailure(r, err)
	case kept.State != metal.RepairWritten && r.Memo[failureNote] == "":
		return noteFailure(r, problem.Conflictf("%s", cmp.Or(kept.Problem, write.Problem, "the job that writes to the disks is gone")))
	}
	return job.Done()
}

// requestUnrescue has the machine put back, if the job asked for its rescue. After a repair the machine's own system boots, because it has to prove
// itself, also where the machine was found off, and where somebody else has asked for the unrescue already.
func (c repairOperations) requestUnrescue(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	args, err := argsOf[metal.RepairArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	kept, err := c.service().Get(ctx, m.node.ID, r.ID)
	if err != nil && !problem.Is(err, problem.NotFound) {
		return job.From(err)
	}
	booted := c.change(ctx, r, func(k *metal.Repair) { k.Booted, k.Step = true, "the machine's own system boots" })
	switch {
	case kept.State == metal.RepairInterrupted:
		return job.Done()
	case c.borrowed().mustEnd(r, m, args.KeepRescue):
	case kept.State == metal.RepairWritten && hasToProve(r, args) && (!isOwnRescue(r, m) || m.node.ProvisionState == metal.Unrescuing):
		return job.Done(booted)
	default:
		return job.Done()
	}
	if kept.State == metal.RepairWritten && r.Memo[stoppedNote] == "" {
		r.Note(stoppedNote, "yes")
		if err := r.Commit(ctx, booted); err != nil {
			return job.From(err)
		}
	}
	return c.borrowed().end(ctx, r, m)
}

// hasToProve tells whether the repair awaits a proof that the machine works: not an undo, and not in a rescue that stays.
func hasToProve(r *job.Run, args metal.RepairArgs) bool {
	return args.Undoes == "" && !args.KeepRescue && r.Memo[underWayNote] == ""
}

func (c repairOperations) awaitUnrescued(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	ending, err := c.borrowed().isEnding(r, m)
	switch {
	case err != nil:
		return noteFailure(r, err)
	case ending:
		return c.borrowed().pollAgain("the unrescue")
	}
	return job.Done()
}

// finishRepair ends the repair in the state that it has come to.
func (c repairOperations) finishRepair(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if why := r.Memo[failureNote]; why != "" {
		return job.Fail(problem.Conflictf("%s", why))
	}
	args, err := argsOf[metal.RepairArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	written := r.Memo[writeNote] != ""
	return job.Done(c.change(ctx, r, func(k *metal.Repair) {
		if k.State == metal.RepairWritten && hasToProve(r, args) {
			k.Fail(c.Now(), "no proof was awaited")
		}
		k.FinishedAt, k.Step = c.Now(), ""
	}), func(tx job.Tx) error {
		if args.Undoes == "" || !written {
			return nil
		}
		return c.service().SetUndone(ctx, tx, m.node.ID, args.Undoes)
	})
}

// repairFailed ends a repair that failed. An undo that is written has taken its repair back all the same.
func (c repairOperations) repairFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	undone := ""
	err := c.service().Edit(ctx, tx, j.Subject.ID, j.ID, func(k *metal.Repair) {
		if k.State == metal.RepairWritten {
			undone = k.Args.Undoes
		}
		k.Fail(c.Now(), j.Problem)
	})
	if err == nil && undone != "" {
		err = c.service().SetUndone(ctx, tx, j.Subject.ID, undone)
	}
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	return err
}

// bootSetting is the boot device that a plan wants; nil: it wants none.
func bootSetting(p *repair.Plan, saved rescue.Boot) *rescue.Boot {
	for _, s := range p.Settings {
		if s.Kind == repair.BootDevice {
			return &rescue.Boot{Device: s.After, Persistent: true, Mode: saved.Mode, Power: saved.Power}
		}
	}
	return nil
}
