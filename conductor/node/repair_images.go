package node

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"strconv"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/repair"
	"salvor/wire/agent"
	"salvor/wire/answer"
)

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
	ctx, end := answer.Begin(ctx)
	defer end()
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
			if err := c.savePart(ctx, tx, metal.RepairPart{NodeID: m.node.ID, RepairID: args.Repair, Name: metal.RepairImagesPart(int(number)), Body: raw}); err != nil {
				return err
			}
		}
		return c.service().Edit(ctx, tx, m.node.ID, args.Repair, func(k *metal.Repair) {
			k.UndoBytes, k.UndoPages, k.Step = size, int(number), "what undoes the repair is fetched"
		})
	})
}

// savePart stores what undoes a repair, and drops what undoes the oldest repairs of the project where there is no room. Conflict: repairs that are
// needed now take it all.
func (c repairWrites) savePart(ctx context.Context, tx job.Tx, part metal.RepairPart) error {
	if err := c.service().SavePart(ctx, tx, part); err != nil {
		return err
	}
	isWithin, err := c.service().KeepWithin(ctx, tx, part.NodeID, c.ProjectUndoBytes)
	if err == nil && !isWithin {
		return problem.Conflictf("nothing was written: the repairs under way of this project take more than %d MiB; wait for them, or allow more by [repair]undo_project_max_mib", c.ProjectUndoBytes>>20)
	}
	return err
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
	ctx, end := answer.Begin(ctx)
	defer end()
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
	err = r.Commit(ctx, func(tx job.Tx) error {
		if err := c.savePart(ctx, tx, metal.RepairPart{NodeID: m.node.ID, RepairID: args.Repair, Name: metal.RepairFilesPart, Body: raw}); err != nil {
			return err
		}
		return c.service().Edit(ctx, tx, m.node.ID, args.Repair, func(k *metal.Repair) { k.UndoFiles = restorable })
	})
	if err != nil {
		return job.From(err)
	}
	return job.Done()
}
