package server

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/secret"
)

// hostOrder is one thing that is to be done with a guest where it lives.
type hostOrder struct {
	verb   compute.Verb
	args   compute.Args
	secret compute.OrderSecret
	within time.Duration // for all tries there; 0: quickErrand
	// ignoreNotFound: a guest that is not there is as good as one that is off.
	ignoreNotFound bool
	// look is after how long the action runs again while the host has not answered, to see whether it still should wait; 0: never.
	look time.Duration
}

// orderTries bounds how often a host order that ended as Unavailable is sent again: the host has tried long by then.
const orderTries = 3

// dispatch has a host order run and goes on with its result. A host with an agent is given an order, and the job waits for the
// answer; whoever comes after a crash finds the order, or its result, under the same name. For others the conductor runs it itself.
func (c *Conductor) dispatch(ctx context.Context, r *job.Run, g *managedServer, e hostOrder, then func(compute.Result) job.Outcome) job.Outcome {
	return c.tryDispatch(ctx, r, g, e, then, job.Fail)
}

// tryDispatch is send for callers that go another way when the order fails.
func (c *Conductor) tryDispatch(ctx context.Context, r *job.Run, g *managedServer, e hostOrder, then func(compute.Result) job.Outcome, failed func(error) job.Outcome) job.Outcome {
	if g.host == nil {
		return job.Fail(problem.Conflictf("server %s is on no host", g.server.ID))
	}
	if e.within == 0 {
		e.within = quickErrand
	}
	if g.host.Kind == compute.IronicHost {
		return failed(problem.Unsupportedf("server %s is a machine of its own: it cannot be asked to %s", g.server.ID, orderLabels[e.verb]))
	}
	if g.host.Kind == compute.GanetiHost {
		result, err := c.drive(ctx, g, e)
		if err != nil && !(e.ignoreNotFound && problem.Is(err, problem.NotFound)) {
			return job.From(err)
		}
		return then(result)
	}
	if r.State == job.Undoing && g.host.Fenced {
		return failed(problem.Conflictf("host %s is fenced: nothing runs there that could be taken back", g.host.Name))
	}
	name := orderName(r, e.verb)
	tries, _ := strconv.Atoi(r.Memo[name])
	id := orderID(r, g, e.verb)
	o, err := c.Store.Order(ctx, nil, id)
	switch {
	case problem.Is(err, problem.NotFound) && g.host.Fenced && logsIn(e.verb):
		return c.storageAccess().keepOut(r, g, e, failed)
	case problem.Is(err, problem.NotFound):
		return c.issue(ctx, r, g, e, compute.Order{ID: id, Action: name + " " + strconv.Itoa(tries)})
	case err != nil:
		return job.From(err)
	case o.Result == nil && e.look > 0 && c.Now().Sub(o.CreatedAt) > e.within+hostSlack:
		return failed(problem.Unavailablef("host %s did not %s within %s", g.host.Name, orderLabels[e.verb], e.within))
	case o.Result == nil:
		return c.awaitAnswer(r, g, e, o.Progress)
	case o.Result.ErrorKind == "":
		return then(*o.Result)
	}
	err = errorOf(*o.Result, g.host, e.verb)
	if e.ignoreNotFound && problem.Is(err, problem.NotFound) {
		return then(compute.Result{})
	}
	if problem.Is(err, problem.Unavailable) && tries+1 < orderTries {
		r.Note(name, strconv.Itoa(tries+1))
		return job.Retry(0, err)
	}
	return failed(err)
}

// errorOf is the error of an order that failed at a host. A failure without a kind, such as that of a system call or a QEMU that did not start, is one of the
// host and no fault of the conductor, whose own are shown without their words.
func errorOf(r compute.Result, h *compute.Host, v compute.Verb) error {
	kind := problem.ParseKind(r.ErrorKind)
	if kind == problem.Internal {
		return problem.Conflictf("host %s could not %s: %s", h.Name, orderLabels[v], problem.Quote(r.Error))
	}
	return problem.New(kind, "%s", problem.Quote(r.Error))
}

// abortedUndos is the total time that the undos of an aborted job wait for hosts. A host that is alive answers sooner. The end of
// the job makes the orders of a silent host void, and its work does not count as undone.
const abortedUndos = 3 * time.Second

// orderName tells a host order from every other of its job.
func orderName(r *job.Run, v compute.Verb) string {
	if r.State == job.Undoing {
		return "undo " + r.Action + ": " + string(v)
	}
	return r.Action + ": " + string(v)
}

// orderID is the id of the newest try of a host order.
func orderID(r *job.Run, g *managedServer, v compute.Verb) string {
	name := orderName(r, v)
	tries, _ := strconv.Atoi(r.Memo[name])
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(r.ID+"\x00"+name+"\x00"+strconv.Itoa(tries)+"\x00"+strconv.FormatInt(g.server.Epoch, 10))).String()
}

// issue gives the order out in the transaction that parks the job.
func (c *Conductor) issue(ctx context.Context, r *job.Run, g *managedServer, e hostOrder, o compute.Order) job.Outcome {
	if logsIn(e.verb) {
		if err := c.storageAccess().admitInitiators(ctx, g); err != nil {
			return job.From(err)
		}
	}
	args, err := json.Marshal(e.args)
	if err != nil {
		return job.Fail(err)
	}
	hidden, err := json.Marshal(e.secret)
	if err != nil {
		return job.Fail(err)
	}
	if string(hidden) != "{}" {
		o.Secret = secret.New(string(hidden))
	}
	o.HostID, o.ServerID, o.Epoch, o.Verb, o.Args = g.host.ID, g.server.ID, g.server.Epoch, e.verb, args
	o.Within, o.JobID, o.CreatedAt = int(e.within/time.Second), r.ID, c.Now().UTC()
	return c.awaitAnswer(r, g, e, "", func(tx job.Tx) error {
		host, err := c.Store.Hosts().Get(detachContext(ctx), tx, o.HostID)
		if err != nil {
			return err
		}
		fresh := o
		fresh.BootID = host.BootID
		_, err = c.Store.InsertOrder(tx, &fresh)
		return err
	})
}

// awaitAnswer parks the job; the host's latest word on a long order goes to the timeline with that.
func (c *Conductor) awaitAnswer(r *job.Run, g *managedServer, e hostOrder, progress string, commits ...func(job.Tx) error) job.Outcome {
	what := waitedHost(g.host) + " to " + orderLabels[e.verb]
	if progress != "" {
		what += " (" + progress + ")"
	}
	bound := e.within + hostSlack
	if r.State == job.Undoing && r.AbortCause != "" {
		return pauseUndo(r, "aborted waited", what, abortedUndos, commits...)
	}
	if r.State == job.Undoing {
		return pauseUndo(r, orderName(r, e.verb)+" waited", what, bound, commits...)
	}
	if r.Class == job.Background { // no signal wakes it
		return job.Pause(e.look, what, commits...)
	}
	if e.look > 0 {
		return job.Rest(what, e.look, commits...)
	}
	return job.Wait(what, bound, commits...)
}

// pauseUndo is a Wait for undos, which no signal wakes: they look again and again, more seldom with time, until bound is over.
// What was waited is kept in the job, so that time in which nobody lived does not count.
func pauseUndo(r *job.Run, memo, what string, bound time.Duration, commits ...func(job.Tx) error) job.Outcome {
	waited, _ := time.ParseDuration(r.Memo[memo])
	if waited > bound {
		return job.Fail(problem.Unavailablef("waited %s in vain for %s", bound, what))
	}
	next := min(max(waited/8, 100*time.Millisecond), 5*time.Second)
	r.Note(memo, (waited + next).String())
	return job.Pause(next, what, commits...)
}

// orderLabels end the sentence "waits for host X to ...".
var orderLabels = map[compute.Verb]string{
	compute.Prepare: "prepare the disks", compute.Define: "define the guest", compute.SetPower: "switch the guest",
	compute.Unlock: "unlock the rescue system", compute.Attach: "attach the volume", compute.Detach: "detach the volume",
	compute.FindFiles: "look for files", compute.Release: "remove what the rescue left", compute.Remove: "remove the guest", compute.Console: "read the console",
	compute.Diagnose: "examine the disks", compute.Look: "look at the guest", compute.Export: "give what of the guest lies there alone", compute.Discard: "discard the root disk", compute.Probe: "tell what it sees",
	compute.MigrateBegin: "begin the migration", compute.MigratePrepare: "take the guest in", compute.MigratePerform: "send the guest",
	compute.Stage: "make the new root disk", compute.RestoreDisk: "restore the disk",
	compute.MigrateFinish: "let the guest run", compute.MigrateConfirm: "end the migration",
}
