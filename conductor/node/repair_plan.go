package node

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"salvor/diagnose"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/repair"
	"salvor/wire/agent"
	"salvor/wire/answer"
)

// makePlan has the agent mend overlays, and stores the plan. The keys leave the job's row once the agent has them.
func (c repairOperations) makePlan(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	args, err := argsOf[metal.RepairArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	if args.Method == metal.UndoExact {
		r.Secret = noSecret // before-images are put back without a look into containers
		return c.adoptPlan(ctx, r, m, args.Undoes)
	}
	if r.Memo[orderNote] == "" && r.Memo[keysNote] == "" {
		r.Note(keysNote, strconv.FormatBool(!r.Secret.Empty()))
	}
	share, end := answer.Begin(ctx)
	defer end()
	made, wait, err := repairAgent(c).follow(share, r, m, agent.PlanRepair, func() (any, error) { return c.planParams(ctx, r, m, &args) })
	if strings.HasPrefix(r.Memo[orderNote], orderID) {
		r.Secret = noSecret
	}
	if errors.Is(err, errRamdiskRestarted) {
		// Nothing is written yet. A second restart may come from the plan itself, for instance for lack of memory.
		if (r.Memo[keysNote] == "false" || !r.Secret.Empty()) && r.Memo[replannedNote] == "" {
			r.Note(orderNote, "")
			r.Note(replannedNote, "yes")
			return job.Pause(c.StepPoll/5, "the agent, which plans the repair again after a restart of its ramdisk")
		}
		err = problem.Conflictf("the ramdisk was restarted while its agent planned the repair, perhaps for lack of memory; ask for the repair again")
	}
	switch inTime := c.Now().Sub(r.ActionStartedAt) < planTime; {
	case wait && inTime:
		rescueAgents(c).silence(r, false)
		return job.Pause(c.StepPoll/5, "the plan of the repair")
	case wait:
		err = problem.Unavailablef("the agent has not planned the repair within %s", planTime)
	case problem.Is(err, problem.Unavailable) && inTime && rescueAgents(c).silence(r, true) < silentTime:
		return job.Pause(c.StepPoll, "the agent, which does not answer: "+problem.Public(err))
	}
	if err != nil {
		return noteFailure(r, err)
	}
	plan, err := readPlan(made, args.Consents, args.Method == metal.UndoFiles)
	if err != nil {
		return noteFailure(r, err)
	}
	return job.Done(c.keepPlan(ctx, r, made, plan))
}

// keepPlan stores the plan as it came, because an undo needs the very paths and attributes.
func (c repairOperations) keepPlan(ctx context.Context, r *job.Run, raw []byte, plan *repair.Plan) func(job.Tx) error {
	if changesNothing(plan) {
		r.Note(noChangeNote, "yes")
	}
	return func(tx job.Tx) error {
		if err := c.service().SavePart(ctx, tx, metal.RepairPart{NodeID: r.Subject.ID, RepairID: r.ID, Name: metal.RepairPlanPart, Body: raw}); err != nil {
			return err
		}
		if _, err := c.service().KeepWithin(ctx, tx, r.Subject.ID, c.ProjectUndoBytes); err != nil { // a plan alone is small, and refused for no bound
			return err
		}
		return c.change(ctx, r, func(k *metal.Repair) {
			k.Step, k.Digest, k.Needs, k.Losses = "the plan is there", plan.Digest, plan.Consents, plan.Sanitize().Losses()
		})(tx)
	}
}

// adoptPlan gives an exact undo the plan of the repair that it takes back: it names the disks, and its digest is what the owner consents to.
func (c repairOperations) adoptPlan(ctx context.Context, r *job.Run, m *managedNode, undone string) job.Outcome {
	plan, err := c.service().Plan(ctx, m.node.ID, undone)
	if err != nil {
		return noteFailure(r, err)
	}
	raw, err := json.Marshal(plan)
	if err != nil {
		return job.Fail(err)
	}
	return job.Done(c.keepPlan(ctx, r, raw, plan))
}

// planParams are what the agent needs for a plan. They hold keys in the open, so they are made when they are sent.
func (c repairOperations) planParams(ctx context.Context, r *job.Run, m *managedNode, args *metal.RepairArgs) (agent.PlanRepairParams, error) {
	params := agent.PlanRepairParams{ID: r.ID, Findings: args.Findings, Root: args.Root, MaxChanged: c.UndoBytes, Consents: []string{}}
	for _, consent := range args.Consents {
		params.Consents = append(params.Consents, string(consent))
	}
	var err error
	if params.ExamineParams, err = examineParams(m.node, c.Now(), r.Secret); err != nil {
		return params, err
	}
	if args.Method == metal.UndoFiles {
		part, err := c.Store.RepairPart(ctx, nil, m.node.ID, args.Undoes, metal.RepairFilesPart)
		if err != nil {
			return params, err
		}
		return params, json.Unmarshal(part.Body, &params.Restore)
	}
	return params, nil
}

// readPlan reads a plan of an agent and refuses one that its digest does not name, or that needs a consent which was not offered.
func readPlan(raw []byte, offered []diagnose.Consent, undo bool) (*repair.Plan, error) {
	if len(raw) > maxPlanSize {
		return nil, problem.Invalidf("the agent's plan has %d bytes, and salvor takes at most %d", len(raw), maxPlanSize)
	}
	plan := &repair.Plan{}
	if err := json.Unmarshal(raw, plan); err != nil {
		return nil, problem.Invalidf("the agent's plan is no JSON of the expected form: %w", err)
	}
	if plan.Version != repair.PlanVersion {
		return nil, problem.Invalidf("the agent's plan has version %d, and this salvor reads version %d; build the ramdisk anew: salvor ramdisk build", plan.Version, repair.PlanVersion)
	}
	check := *plan
	check.Mended = slices.Clone(plan.Mended)
	check.Seal()
	if check.Digest != plan.Digest {
		return nil, problem.Invalidf("the agent's plan does not have the digest that it names")
	}
	if err := plan.Check(); err != nil {
		return nil, problem.Invalidf("the agent's plan is refused: %w", err)
	}
	for _, need := range plan.Consents {
		if !undo && !slices.Contains(offered, need) {
			return nil, problem.Conflictf("the agent's plan needs the consent %q, which was not offered", diagnose.Excerpt(string(need)))
		}
	}
	return plan, nil
}

// changesNothing tells whether there is nothing to carry out.
func changesNothing(p *repair.Plan) bool {
	return len(p.Files) == 0 && len(p.Blocks) == 0 && len(p.Settings) == 0
}

// awaitConsent waits for the consent to the plan, if the request wants that or brings the digest.
func (c repairOperations) awaitConsent(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	args, err := argsOf[metal.RepairArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	kept, err := c.service().Get(ctx, m.node.ID, r.ID)
	if err != nil {
		return noteFailure(r, err)
	}
	end := func(why string) job.Outcome {
		r.Note(noWriteNote, "yes")
		return job.Done(c.change(ctx, r, func(k *metal.Repair) { k.State, k.Problem = metal.RepairPlanned, why }))
	}
	switch {
	case kept.Consent != nil:
		return job.Done()
	case r.Memo[noChangeNote] != "":
		return end("there is nothing to repair")
	case args.Digest != "" && args.Digest != kept.Digest:
		return noteFailure(r, problem.Conflictf("the plan has changed since: its digest is %s now, and the consent was to %s; nothing was written. Read the new plan, and ask again with its digest", kept.Digest, args.Digest))
	case args.Digest != "" && args.Method == "" || args.Digest != "" && covers(args.Consents, kept.Needs):
		return job.Done(c.acceptDigest(ctx, r))
	case !args.WaitForConsent:
		return end("")
	case kept.ConsentUntil.IsZero():
		until := c.Now().Add(metal.ConsentTime)
		return job.Pause(c.StepPoll/5, "the owner's consent", c.change(ctx, r, func(k *metal.Repair) {
			k.State, k.ConsentUntil, k.Step = metal.RepairAwaitingConsent, until, "the plan waits for the owner's consent"
		}))
	case kept.Declined:
		return end("the plan was declined")
	case c.Now().After(kept.ConsentUntil):
		return end("nobody consented to the plan within " + metal.ConsentTime.String())
	}
	return job.Pause(c.StepPoll/5, "the owner's consent")
}

// covers tells whether the given consents are all that are needed.
func covers(given, needed []diagnose.Consent) bool {
	return !slices.ContainsFunc(needed, func(n diagnose.Consent) bool { return !slices.Contains(given, n) })
}

// acceptDigest takes the digest of the request as the consent.
func (c repairOperations) acceptDigest(ctx context.Context, r *job.Run) func(job.Tx) error {
	return func(tx job.Tx) error {
		var failed error
		err := c.change(ctx, r, func(k *metal.Repair) {
			failed = c.service().AcceptDigest(tx, r.Subject.ID, k, record.Asker{RequestID: r.RequestID, User: r.User})
		})(tx)
		if err != nil {
			return err
		}
		return failed
	}
}

// endOverlays frees the memory of the ramdisk if the machine stays in rescue. An agent that is gone has no overlays.
func (c repairOperations) endOverlays(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if m.node.ProvisionState == metal.Rescue {
		if _, err := repairAgent(c).ask(ctx, m, agent.EndRepair, agent.EndRepairParams{ID: r.ID}); err != nil {
			r.Log.Info("take the overlays of a repair down", "error", err)
		}
	}
	return job.Done()
}
