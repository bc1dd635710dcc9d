package node

import (
	"context"
	"encoding/json"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
	"salvor/wire/agent"
)

// repairWrites write repairs to disks.
type repairWrites struct{ *Conductor }

func (c repairWrites) service() metal.NodeRepairs { return metal.NewNodeRepairs(c.Nodes) }

// writeArgs are the arguments of the job that writes.
type writeArgs struct {
	Repair string `json:"repair"`
	// Undoes is the repair that is taken back, and Exact whether its before-images are put back.
	Undoes string `json:"undoes,omitempty"`
	Exact  bool   `json:"exact,omitempty"`
}

// images is the repair whose before-images are put back.
func (a *writeArgs) images() string {
	if a.Exact {
		return a.Undoes
	}
	return a.Repair
}

// write carries out the plan of a repair on a node in rescue, and locks the node. Before the first byte changes, the next boot is that of our
// ramdisk, and what undoes the repair is in the store. What fails is taken back by the before-images.
func (c repairWrites) write() job.Definition {
	const kept = "what was fetched is kept with the repair, and dropped with it"
	return job.Definition{
		Kind: metal.JobWriteRepair, Version: 1, Class: job.Operation, Failed: c.writeFailed, Stuck: c.writeStuck,
		NoDeadline: "a half-written disk waits for its agent, which puts it back",
		Actions: []job.Action{
			{Name: "arm the boot", Do: c.withNode(c.armBoot), Undo: c.withNode(c.disarmUnlessHalf), Deadline: c.bmcDeadline()},
			{Name: "fetch the before-images", Do: c.withNode(c.fetchImages), NoUndo: kept, Deadline: fetchTime, Elsewhere: true},
			{Name: "fetch the files", Do: c.withNode(c.fetchFiles), NoUndo: kept, Deadline: fetchTime, Elsewhere: true},
			{Name: "write to the disks", Do: c.withNode(c.writeChunks), Undo: c.withNode(c.restoreChunks), Deadline: rollbackTime, Elsewhere: true},
			{Name: "disarm the boot", Do: c.withNode(c.finishWrite), NoUndo: "the first action's undo disarms it", Deadline: c.bmcDeadline()},
		},
	}
}

const (
	// fetchTime bounds the fetching of what undoes a repair.
	fetchTime = 30 * time.Minute
	// silentTime is how long an agent may be silent. A plan fails then, and what was written is taken back.
	silentTime = 10 * time.Minute
	// restartTime is how long an agent may be silent amid the taking back before its machine is restarted into the armed boot.
	restartTime = 5 * time.Minute
	// rollbackTime bounds the taking back. After it the node is left in maintenance, and its own system does not boot.
	rollbackTime = 4 * time.Hour
)

// Notes of the job that writes.
const (
	imagesCursorNote = "cursor of the before-images"
	imagesPagesNote  = "pages of the before-images"
	imagesBytesNote  = "bytes of the before-images"
	imagesChunkNote  = "chunks of the before-images"
	imagesDoneNote   = "all before-images are kept"
	halfNote         = "the disks may be half-written"
	restoredNote     = "what was written is taken back"
	restartedNote    = "restarted into the armed boot"
)

// armBoot has the next boot of the machine be our ramdisk's, for good, and reads that back. A machine that cannot be armed is not repaired: a
// power cut in the middle would boot half-written disks.
func (c repairWrites) armBoot(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if m.boot == nil {
		return job.Fail(m.lacks("boot"))
	}
	if m.manage == nil {
		return job.Fail(m.lacks("management"))
	}
	if err := c.checkSession(ctx, r, m); err != nil {
		return job.Fail(err)
	}
	if !m.node.BootsRamdisk() {
		number := m.node.BootNumber + 1
		ramdisk := c.rescueRamdisk(m)
		ramdisk.BootNumber = number
		plan, err := glanceImages(c).bootPlan(ctx, m, ramdisk)
		if err != nil {
			return job.From(err)
		}
		if err := c.checkReach(m, plan); err != nil {
			return job.Fail(err)
		}
		err = c.steps().commit(ctx, r, m, c.edit(ctx, m.node.ID, func(n *metal.Node) { n.BootNumber, n.Plan = number, plan }))
		if err != nil {
			return job.From(err)
		}
	}
	switch {
	case m.node.Plan.Method == metal.BootHTTP:
		return job.Fail(problem.Unsupportedf("nothing was written: a BMC keeps a boot by URL for one boot, so a power cut amid the repair could boot half-written disks; use a boot interface with virtual media"))
	case m.node.Rescue.IsForRepair() && !m.node.Plan.CarryToken:
		return job.Fail(problem.Unsupportedf("nothing was written: a ramdisk of driver_info rescue_iso gets its token once, so after a power cut nobody could put the disks back; use a kernel and a ramdisk"))
	}
	if err := m.boot.PrepareRamdisk(ctx, m.node); err != nil {
		return job.From(err)
	}
	want := keptRamdiskBoot(m.node)
	if err := m.manage.SetBootDevice(ctx, m.node, want); err != nil {
		return job.From(err)
	}
	found, err := m.manage.BootDevice(ctx, m.node)
	switch {
	case err != nil:
		return job.From(err)
	case found.Device != want.Device || !found.Persistent:
		return job.Fail(problem.Conflictf("nothing was written: the BMC does not keep %q as the boot device of every boot, so a power cut amid the repair could boot half-written disks", want.Device))
	}
	return job.Done()
}

// keptRamdiskBoot is the setting by which a machine goes on booting the ramdisk that is prepared for it.
func keptRamdiskBoot(n *metal.Node) rescue.Boot {
	boot := rescue.Boot{Device: "pxe", Mode: driver.BootMode(n), Persistent: true}
	if n.Plan.Method == metal.BootMedia {
		boot.Device = "cdrom"
	}
	return boot
}

// checkSession refuses an exact undo once the machine's own system may have booted. The job has the node's lock.
func (c repairWrites) checkSession(ctx context.Context, r *job.Run, m *managedNode) error {
	args, err := argsOf[writeArgs](r)
	if err != nil || !args.Exact || r.Memo[halfNote] != "" {
		return err
	}
	undone, err := c.service().Get(ctx, m.node.ID, args.Undoes)
	if err != nil {
		return err
	}
	if undone.Undo(m.node) != metal.UndoExact {
		return problem.Conflictf("nothing was written: the machine's own system may have booted since the undo was asked for; ask for it again")
	}
	return nil
}

// checkReach refuses a boot over a network that the machine in rescue is not on: its firmware would go on to the disk.
func (c repairWrites) checkReach(m *managedNode, plan *metal.BootPlan) error {
	if plan.Method == metal.BootMedia || m.network == nil || !m.network.Moves(m.node, m.ports, driver.Rescuing, driver.Tenant) {
		return nil
	}
	return problem.Unsupportedf("nothing was written: the machine boots over the rescuing network and is on its tenant's network now, so a power cut amid the repair would boot half-written disks; use a boot interface with virtual media")
}

// disarmUnlessHalf gives the boot back to the machine, if its disks are whole. A rescue that was made for the repair stays armed until unrescue.
func (c repairWrites) disarmUnlessHalf(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if r.Memo[halfNote] != "" {
		return job.Fail(problem.Conflictf("the disks may be half-written, so the machine goes on booting the rescue ramdisk"))
	}
	return unlessForRepair(c.cleanUpRamdisk)(ctx, r, m)
}

// writeChunks has the agent write. An exact undo writes the before-images instead, once all chunks have been compared.
func (c repairWrites) writeChunks(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	args, err := argsOf[writeArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	kept, err := c.service().Get(ctx, m.node.ID, args.Repair)
	if err != nil {
		return job.From(err)
	}
	if args.Exact && r.Memo[halfNote] == "" {
		err := c.restorePages(ctx, m, args.images(), true)
		if problem.Is(err, problem.Unavailable) || problem.Is(err, problem.Unsupported) {
			return c.awaitAgent(ctx, r, m, err)
		}
		if err != nil {
			return job.Fail(err)
		}
	}
	if r.Memo[halfNote] == "" {
		r.Note(halfNote, "yes")
		if err := r.Commit(ctx, c.edit(ctx, m.node.ID, func(n *metal.Node) { n.EditRescue(func(s *rescue.Session) { s.HalfWritten = args.images() }) })); err != nil {
			return job.From(err)
		}
	}
	if args.Exact {
		return c.restoreChunks(ctx, r, m)
	}
	outcome, wait, err := repairAgent(c).follow(ctx, r, m, agent.WriteRepair, func() (any, error) { return agent.WriteRepairParams{ID: args.Repair, Digest: kept.Digest}, nil })
	switch {
	case wait:
		rescueAgents(c).silence(r, false)
		return job.Pause(c.StepPoll/5, "the agent, which writes to the disks")
	case problem.Is(err, problem.Unavailable) && rescueAgents(c).silence(r, true) < silentTime:
		return job.Pause(c.StepPoll/5, "the agent, which does not answer")
	case err != nil:
		return job.Fail(err)
	}
	var written agent.WrittenRepair
	if err := json.Unmarshal(outcome, &written); err != nil {
		return job.Fail(problem.Invalidf("the agent's answer about the writing is no JSON of the expected form: %w", err))
	}
	return job.Done()
}
