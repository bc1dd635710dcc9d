package server

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"salvor/compute"
	"salvor/diagnose"
	"salvor/diagnose/machine"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// diagnosisOrderTime bounds an examination on a host: the boot of the helper guest, and the examination by its agent, which has 10 minutes.
const diagnosisOrderTime = 15 * time.Minute

// consoleOrderTime bounds the reading of a console log on a host.
const consoleOrderTime = 20 * time.Second

// diagnosisLook is how often the job of a diagnosis looks whether its host has answered.
const diagnosisLook = 500 * time.Millisecond

// diagnosisOperations say why servers do not boot.
type diagnosisOperations struct{ *Conductor }

// diagnose has the host of a server examine its disks. It locks nothing: a start of the server ends the examination.
func (c diagnosisOperations) diagnose() job.Definition {
	const nothing = "looking changes nothing"
	return job.Definition{
		Kind: compute.JobDiagnose, Version: 2, Class: job.Background, Failed: c.diagnosisFailed,
		Actions: []job.Action{
			{Name: "read the console", Do: c.withGuest(c.readConsole), NoUndo: nothing, Deadline: guestDeadline(consoleOrderTime), Since: 2},
			{Name: "examine the disks", Do: c.withGuest(c.examineDisks), NoUndo: nothing, Deadline: guestDeadline(diagnosisOrderTime)},
		},
	}
}

// consoleEvidence is what a gap of a report names where the console log could not be read.
const consoleEvidence = "console"

// readConsole takes the findings in the console log that the host keeps, whether the server is on or off. In a rescue, the log is that of the
// rescue system.
func (c diagnosisOperations) readConsole(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	if g.host == nil || g.host.Kind != compute.AgentHost || g.server.Foreign || g.server.InSession() {
		return job.Done()
	}
	taken := func(result compute.Result) job.Outcome {
		text, started, isMarked := compute.ConsoleSinceStart(result.Console)
		if !isMarked {
			text = result.Console
		}
		return job.Done(c.edit(ctx, r, func(d *diagnose.Record) {
			d.Report.Findings = machine.ConsoleFindings(text)
			if isMarked && g.server.RunsOwnSystem() && machine.StaysAtLogin(text) {
				d.Report.Proof = &diagnose.Proof{Kind: diagnose.ProofLogin, Text: "the console shows that the server, which its host started at " + record.Moment(started) + ", came to the login, and nothing that contradicts"}
			}
		}))
	}
	failed := func(err error) job.Outcome {
		return job.Done(c.edit(ctx, r, func(d *diagnose.Record) { d.AddGap(consoleEvidence, problem.Public(err)) }))
	}
	return c.tryDispatch(ctx, r, g, hostOrder{verb: compute.Console, within: consoleOrderTime, look: diagnosisLook}, taken, failed)
}

// edit changes the diagnosis of the job.
func (c diagnosisOperations) edit(ctx context.Context, r *job.Run, change func(*diagnose.Record)) func(job.Tx) error {
	return func(tx job.Tx) error {
		return c.Compute.Diagnoses.Edit(detachContext(ctx), tx, r.Subject.ID, r.ID, change)
	}
}

// examineDisks gives the host its order and takes the findings.
func (c diagnosisOperations) examineDisks(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	var asked compute.DiagnoseArgs
	if len(r.Args) > 0 {
		if err := json.Unmarshal(r.Args, &asked); err != nil {
			return job.Fail(err)
		}
	}
	epoch := strconv.FormatInt(g.server.Epoch, 10)
	switch r.Memo[orderedNote] {
	case epoch:
	case "":
		if why := compute.DiagnosisHindrance(g.server, g.host, asked); why != "" {
			return c.finish(ctx, r, func(d *diagnose.Record) { d.AddDiskGap(why) })
		}
	default:
		return job.Fail(problem.Conflictf("the server was changed while its disks were examined; diagnose it again"))
	}
	b, err := c.blueprint(ctx, g, false, "")
	if err != nil {
		return job.From(err)
	}
	args := compute.Args{Now: c.Now().UTC(), InRescue: g.server.InSession(), OnlyRead: asked.OnlyRead}
	if !args.InRescue {
		spec := b.Spec
		if spec.Rescue, err = c.Compute.RescueImages.Examiner(ctx); err != nil {
			return job.From(err)
		}
		spec.Restore = nil
		args.Spec = &spec
	}
	r.Note(orderedNote, epoch)
	e := hostOrder{verb: compute.Diagnose, args: args, within: diagnosisOrderTime, look: diagnosisLook}
	if e.secret.LUKSKeys, e.secret.LUKSKeysByUUID, err = diagnose.UnpackLUKSKeys(r.Secret); err != nil {
		return job.Fail(err)
	}
	if addresses, there := b.Secret.Drive[networkData]; there {
		e.secret.Drive = map[string][]byte{networkData: addresses}
	}
	taken := func(result compute.Result) job.Outcome {
		if len(result.Examination) == 0 {
			return job.Fail(problem.Conflictf("host %s sent no examination", g.host.Name))
		}
		var examination diagnose.Examination // anything that a guest may write
		if err := json.Unmarshal(result.Examination, &examination); err != nil {
			return job.Fail(problem.Conflictf("the examination is no JSON of the expected form: %s", problem.Quote(err.Error())))
		}
		return c.finish(ctx, r, func(d *diagnose.Record) {
			for _, disk := range g.server.Disks {
				if disk.VolumeID != "" && !args.InRescue {
					d.AddGap("disk "+disk.Name, "it is a volume, which a host does not examine; rescue the server with the image salvor and ask again")
				}
			}
			d.AddExamination(&examination, asked.OnlyRead)
		})
	}
	return c.dispatch(ctx, r, g, e, taken)
}

// orderedNote is the server's epoch when the host was given its order. The host sees what changes of the server in this epoch; the orders of an
// epoch are void in the next one.
const orderedNote = "ordered"

// finish ends the diagnosis with what was found, and drops the orders: the texts of the disks are kept in the report only.
func (c diagnosisOperations) finish(ctx context.Context, r *job.Run, found func(*diagnose.Record)) job.Outcome {
	return job.Done(func(tx job.Tx) error { return c.Store.DropJobOrders(tx, r.ID) }, c.edit(ctx, r, func(d *diagnose.Record) {
		found(d)
		d.Step = ""
		d.End(diagnose.Finished, c.Now().UTC(), "the host did not examine them")
	}))
}

// diagnosisFailed shows why the disks were not examined, and drops the orders, so that no host examines them for nobody. The server is as it was.
func (c diagnosisOperations) diagnosisFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	if err := c.Store.DropJobOrders(tx, j.ID); err != nil {
		return err
	}
	return c.Compute.Diagnoses.Edit(ctx, tx, j.Subject.ID, j.ID, func(d *diagnose.Record) { d.Fail(c.Now().UTC(), j.Problem) })
}
