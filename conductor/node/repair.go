package node

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"salvor/diagnose"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/repair"
	"salvor/rescue"
	"salvor/secret"
	"salvor/wire/agent"
)

// repairOperations repair machines.
type repairOperations struct{ *Conductor }

// service gives the records of repairs.
func (c repairOperations) service() metal.NodeRepairs { return metal.NewNodeRepairs(c.Nodes) }

// repair has the agent of a rescue plan the repair, and after the owner's consent a job of its own write it. It locks nothing itself: the rescue,
// the writing and the unrescue that it asks for are operations like any other.
func (c repairOperations) repair() job.Definition {
	const nothing = "a repair changes nothing itself; the job that writes takes back what it wrote, and unrescue takes the ramdisk away"
	return job.Definition{
		Kind: metal.JobRepair, Version: 1, Class: job.Ask, Failed: c.repairFailed, NoDeadline: "a rescue waits while an operator's maintenance holds it",
		Actions: []job.Action{
			{Name: "ask for a rescue", Do: c.withNode(c.requestRescue), NoUndo: nothing, Deadline: requestDeadline, Elsewhere: true},
			{Name: "await the rescue", Do: c.withNode(c.awaitRescued), NoUndo: nothing},
			{Name: "plan the repair", Do: c.withNode(c.unlessFailed(c.makePlan)), NoUndo: nothing, Deadline: planDeadline, Elsewhere: true},
			{Name: "await the consent", Do: c.withNode(c.unlessFailed(c.awaitConsent)), NoUndo: nothing},
			{Name: "ask for the writing", Do: c.withNode(c.unlessFailed(c.requestWrite)), NoUndo: nothing, Deadline: requestDeadline, Elsewhere: true},
			{Name: "await the writing", Do: c.withNode(c.unlessFailed(c.awaitWritten)), NoUndo: nothing},
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

// noteFailure notes why the repair fails, while the machine is put back. Nobody needs the keys of its disks any more.
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
	if why := diagnosisOperations(c).hindrance(m); why != "" {
		return job.Fail(problem.Conflictf("the disks cannot be repaired: %s", why))
	}
	power, err := m.power.PowerState(ctx, m.node)
	switch {
	case err != nil:
		return job.From(err)
	case power != metal.PowerOff && !args.Reboot:
		return job.Fail(problem.Conflictf("the machine is on, and only --reboot restarts it"))
	}
	// Nobody knows this password. Who wants to log in asks for a rescue with a password of their own.
	ask := metal.ProvisionArgs{Repair: r.ID, RescuePassword: secret.NewToken(""), OnlyIfOff: !args.Reboot}
	if !args.KeepRescue {
		ask.RescueLasts = diagnosisLasts
	}
	err = c.Nodes.Provision(ctx, m.node.ID, metal.ToRescue, "rescue", ask, record.Asker{RequestID: r.RequestID, User: r.User})
	if problem.Is(err, problem.Conflict) {
		return job.Retry(0, err)
	}
	return job.From(err, c.change(ctx, r, func(k *metal.Repair) { k.Step = "the machine is booted into the rescue ramdisk" }))
}

// awaitRescued waits for the end of the rescue.
func (c repairOperations) awaitRescued(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	inRescue := m.node.ProvisionState == metal.Rescue && m.node.Reservation == ""
	switch {
	case inRescue:
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
	case r.Memo[underWayNote] == "" && !isOwnRescue(r, m):
		kept, err := c.service().Get(ctx, m.node.ID, r.ID)
		if err != nil {
			return noteFailure(r, err)
		}
		if kept.Problem != "" { // of a rescue that never touched the machine
			return noteFailure(r, problem.Conflictf("%s", kept.Problem))
		}
		return noteFailure(r, problem.Conflictf("the rescue failed or was given up, and the node is in state %s", m.node.ProvisionState))
	case m.node.ProvisionState == metal.Rescuing, m.node.ProvisionState == metal.RescueWait, m.node.ProvisionState == metal.Rescue:
		return job.Pause(c.StepPoll/5, "the rescue")
	}
	return noteFailure(r, problem.Conflictf("the rescue failed: the node is in state %s: %s", m.node.ProvisionState, m.node.LastError))
}

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
	answer, wait, err := repairAgent(c).follow(ctx, r, m, agent.PlanRepair, func() (any, error) { return c.planParams(ctx, r, m, &args) })
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
	plan, err := readPlan(answer, args.Consents, args.Method == metal.UndoFiles)
	if err != nil {
		return noteFailure(r, err)
	}
	return job.Done(c.keepPlan(ctx, r, answer, plan))
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
		return c.change(ctx, r, func(k *metal.Repair) { k.Step, k.Digest, k.Needs = "the plan is there", plan.Digest, plan.Consents })(tx)
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
	params := agent.PlanRepairParams{ID: r.ID, Findings: args.Findings, MaxChanged: c.UndoBytes, Consents: []string{}}
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
	for _, need := range plan.Consents {
		if need == diagnose.ConsentData || !undo && !slices.Contains(offered, need) {
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
	if problem.Is(err, problem.Conflict) {
		return job.Retry(0, err)
	}
	return job.From(err)
}

// awaitWritten waits for the end of the job that writes.
func (c repairOperations) awaitWritten(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	kept, err := c.service().Get(ctx, m.node.ID, r.ID)
	if err != nil {
		return noteFailure(r, err)
	}
	switch kept.State {
	case metal.RepairWriting:
		return job.Pause(c.StepPoll/5, "the job that writes to the disks")
	case metal.RepairWritten:
		return job.Done()
	}
	return noteFailure(r, problem.Conflictf("%s", kept.Problem))
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

// requestUnrescue has the machine put back, if the job asked for its rescue. After a repair its own system boots, because it has to prove
// itself, also where the machine was found off.
func (c repairOperations) requestUnrescue(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	args, err := argsOf[metal.RepairArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	kept, err := c.service().Get(ctx, m.node.ID, r.ID)
	if err != nil && !problem.Is(err, problem.NotFound) {
		return job.From(err)
	}
	back := []metal.State{metal.Rescue, metal.RescueFailed}
	if args.KeepRescue || kept.State == metal.RepairInterrupted || !isOwnRescue(r, m) || !slices.Contains(back, m.node.ProvisionState) {
		return job.Done()
	}
	if kept.State == metal.RepairWritten && r.Memo[stoppedNote] == "" {
		r.Note(stoppedNote, "yes")
		err := r.Commit(ctx, c.change(ctx, r, func(k *metal.Repair) { k.Booted, k.Step = true, "the machine's own system boots" }))
		if err != nil {
			return job.From(err)
		}
	}
	err = c.Nodes.Provision(ctx, m.node.ID, metal.Unrescue, "unrescue", metal.ProvisionArgs{}, record.Asker{RequestID: r.RequestID, User: r.User})
	if problem.Is(err, problem.Conflict) || err != nil && m.node.Maintenance {
		return job.Retry(0, err)
	}
	return job.From(err)
}

func (c repairOperations) awaitUnrescued(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	switch {
	case !isOwnRescue(r, m):
		return job.Done()
	case m.node.ProvisionState == metal.Unrescuing:
		return job.Pause(c.StepPoll/5, "the unrescue")
	case m.node.ProvisionState == metal.UnrescueFailed:
		return noteFailure(r, problem.Conflictf("the machine could not be put back: %s", m.node.LastError))
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
	return job.Done(c.change(ctx, r, func(k *metal.Repair) { k.FinishedAt, k.Step = c.Now(), "" }), func(tx job.Tx) error {
		if args.Undoes == "" || !written {
			return nil
		}
		return c.service().SetUndone(ctx, tx, m.node.ID, args.Undoes)
	})
}

// repairFailed ends a repair that failed. What the job that writes has said of the disks stays.
func (c repairOperations) repairFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	err := c.service().Edit(ctx, tx, j.Subject.ID, j.ID, func(k *metal.Repair) {
		switch k.State {
		case metal.RepairPlanning, metal.RepairAwaitingConsent, metal.RepairPlanned:
			k.State = metal.RepairFailed
		case metal.RepairBooting:
			k.State = metal.RepairUnproven
		}
		if k.State != metal.RepairInterrupted && k.State != metal.RepairRolledBack {
			k.Problem = j.Problem
		}
		k.FinishedAt = c.Now()
	})
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
