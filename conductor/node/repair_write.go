package node

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"strconv"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/repair"
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

// fetchImages brings what the changed chunks hold now into the store, page by page. A page and the cursor behind it are stored together.
func (c repairWrites) fetchImages(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	args, err := argsOf[writeArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	if args.Exact {
		return job.Done()
	}
	plan, err := c.service().Plan(ctx, m.node.ID, args.Repair)
	if err != nil {
		return job.From(err)
	}
	for r.Memo[imagesDoneNote] == "" {
		if err := c.fetchPage(ctx, r, m, &args, plan); err != nil {
			return job.From(err)
		}
	}
	var want int64
	for _, d := range plan.Disks {
		want += d.Chunks
	}
	if have := readCount(r, imagesChunkNote); have != want {
		return job.Fail(problem.Conflictf("nothing was written: the agent gave the before-images of %d chunks, and its plan changes %d", have, want))
	}
	return job.Done()
}

// fetchPage fetches the next page and stores it.
func (c repairWrites) fetchPage(ctx context.Context, r *job.Run, m *managedNode, args *writeArgs, plan *repair.Plan) error {
	cursor := r.Memo[imagesCursorNote]
	raw, err := repairAgent(c).ask(ctx, m, agent.BeforeImages, agent.BeforeImagesParams{ID: args.Repair, Cursor: cursor})
	if err != nil {
		return err
	}
	page, err := readPage(raw, plan)
	switch {
	case err != nil:
		return err
	case page.Next != "" && (page.Next == cursor || len(page.Chunks) == 0):
		return problem.Invalidf("the agent gives the same page of before-images again")
	}
	number, size := readCount(r, imagesPagesNote), readCount(r, imagesBytesNote)+int64(len(raw))
	if size > c.UndoBytes {
		return problem.Conflictf("nothing was written: what undoes the repair takes more than %d MiB; [repair]undo_max_mib allows more", c.UndoBytes>>20)
	}
	if len(page.Chunks) > 0 {
		number++
	}
	r.Note(imagesCursorNote, page.Next)
	r.Note(imagesPagesNote, strconv.FormatInt(number, 10))
	r.Note(imagesBytesNote, strconv.FormatInt(size, 10))
	r.Note(imagesChunkNote, strconv.FormatInt(readCount(r, imagesChunkNote)+int64(len(page.Chunks)), 10))
	if page.Next == "" {
		r.Note(imagesDoneNote, "yes")
	}
	return r.Commit(ctx, func(tx job.Tx) error {
		if len(page.Chunks) > 0 {
			part := metal.RepairPart{NodeID: m.node.ID, RepairID: args.Repair, Name: metal.RepairImagesPart(int(number)), Body: raw}
			if err := c.service().SavePart(ctx, tx, part); err != nil {
				return err
			}
		}
		return c.service().Edit(ctx, tx, m.node.ID, args.Repair, func(k *metal.Repair) {
			k.UndoBytes, k.UndoPages, k.Step = size, int(number), "what undoes the repair is fetched"
		})
	})
}

// readCount reads a number that a note holds; 0 if there is none.
func readCount(r *job.Run, note string) int64 {
	n, err := strconv.ParseInt(r.Memo[note], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// maxChunkSize bounds the compressed content of a chunk, which may be a little more than the content.
const maxChunkSize = repair.ChunkSize + 1024

// readPage reads a page of before-images. Of an agent that lies, nothing is stored that could be written beside the disks of the plan.
func readPage(raw json.RawMessage, plan *repair.Plan) (agent.ImagePage, error) {
	var page agent.ImagePage
	if err := json.Unmarshal(raw, &page); err != nil {
		return page, problem.Invalidf("the agent's page of before-images is no JSON of the expected form: %w", err)
	}
	for _, k := range page.Chunks {
		switch {
		case k.Disk < 0 || k.Disk >= len(plan.Disks), k.Offset < 0, k.Offset%repair.ChunkSize != 0,
			k.Length <= 0, k.Length > repair.ChunkSize, k.Offset+int64(k.Length) > plan.Disks[k.Disk].Size:
			return page, problem.Invalidf("the agent gives a before-image that lies on no disk of its plan")
		case len(k.Before) == 0, len(k.Before) > maxChunkSize, len(k.After) != sha256.Size:
			return page, problem.Invalidf("the agent gives a before-image of a wrong size")
		}
	}
	return page, nil
}

// fetchFiles brings the contents of the changed files, as they were, into the store.
func (c repairWrites) fetchFiles(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	args, err := argsOf[writeArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	if args.Exact {
		return job.Done()
	}
	raw, err := repairAgent(c).ask(ctx, m, agent.FileContents, agent.EndRepairParams{ID: args.Repair})
	if err != nil {
		return job.From(err)
	}
	var files []agent.RestoreFile
	if err := json.Unmarshal(raw, &files); err != nil {
		return job.Fail(problem.Invalidf("the agent's contents of files are no JSON of the expected form: %w", err))
	}
	restorable := 0
	for _, f := range files {
		if f.LeftOut == "" {
			restorable++
		}
	}
	if readCount(r, imagesBytesNote)+int64(len(raw)) > c.UndoBytes {
		return job.Fail(problem.Conflictf("nothing was written: what undoes the repair takes more than %d MiB; [repair]undo_max_mib allows more", c.UndoBytes>>20))
	}
	return job.Done(func(tx job.Tx) error {
		part := metal.RepairPart{NodeID: m.node.ID, RepairID: args.Repair, Name: metal.RepairFilesPart, Body: raw}
		if err := c.service().SavePart(ctx, tx, part); err != nil {
			return err
		}
		return c.service().Edit(ctx, tx, m.node.ID, args.Repair, func(k *metal.Repair) { k.UndoFiles = restorable })
	})
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

// awaitAgent waits for an agent that is needed to put the disks back, and restarts its machine once.
func (c repairWrites) awaitAgent(ctx context.Context, r *job.Run, m *managedNode, cause error) job.Outcome {
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
			k.State, k.WrittenAt, k.Step = metal.RepairWritten, c.Now(), "the disks are written"
			if m.node.Rescue != nil {
				k.Session, k.SessionBegun = m.node.Rescue.StartedAt, m.node.Rescue.Begun
			}
		})
	})
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
		}
	})
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	return err
}

// writeStuck marks a node whose disks are half-written: its own system must not boot.
func (c repairWrites) writeStuck(ctx context.Context, tx job.Tx, j *job.Job, why string) error {
	if j.Memo[halfNote] == "" {
		return c.stuck(ctx, tx, j, why)
	}
	var args writeArgs
	if err := json.Unmarshal(j.Args, &args); err != nil {
		return err
	}
	err := c.service().Edit(ctx, tx, j.Subject.ID, args.Repair, func(k *metal.Repair) {
		k.State, k.Problem = metal.RepairInterrupted, "the disks are half-written: "+why
	})
	if err != nil && !problem.Is(err, problem.NotFound) {
		return err
	}
	return c.stuck(ctx, tx, j, "the disks are half-written, and the machine's own system must not boot; next: salvor repair undo "+j.Subject.ID+" "+args.Repair+". "+why)
}
