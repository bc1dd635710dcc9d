package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/job"
	"salvor/problem"
)

// BareMetalFinder finds what drives servers that are whole machines.
type BareMetalFinder interface {
	// ForHost is that of an IronicHost; Endpoint that of its record.
	ForHost(ctx context.Context, h *compute.Host) (hypervisor.BareMetal, error)
	Endpoint(row *compute.Cluster) (hypervisor.BareMetal, error)
}

// bareMetalServer is a server with its machine at an endpoint of the Bare Metal API, read afresh for each action. The server's job locks the
// server, and the endpoint's own job the node: also where the endpoint is ourselves.
type bareMetalServer struct {
	*managedServer
	api  hypervisor.BareMetal // nil: it is on no host
	node *hypervisor.Node     // nil: it has none
}

// bareMetalAction is an action on a bare-metal server.
type bareMetalAction func(ctx context.Context, r *job.Run, g *bareMetalServer) job.Outcome

// withBareMetal makes a job action of such an action: server and machine are read first, and the lease guards its requests.
func (c bareMetalOperations) withBareMetal(do bareMetalAction) func(context.Context, *job.Run) job.Outcome {
	return func(ctx context.Context, r *job.Run) job.Outcome {
		g, err := c.guest(ctx, r.Subject.ID)
		if err != nil {
			return job.From(err)
		}
		bare := &bareMetalServer{managedServer: g}
		if g.host == nil {
			return do(ctx, r, bare)
		}
		if c.BareMetal == nil {
			return job.Fail(problem.Unsupportedf("host %s: this conductor drives no machines of other endpoints", g.host.Name))
		}
		if err := c.Permission.Refusal(); err != nil {
			return job.From(err)
		}
		if bare.api, err = c.BareMetal.ForHost(ctx, g.host); err != nil {
			return job.From(err)
		}
		bare.node, err = bare.api.Node(ctx, g.server.ID)
		if err != nil && !problem.Is(err, problem.NotFound) {
			return job.From(err)
		}
		return do(ctx, r, bare)
	}
}

// lost is the error of actions that need a machine where there is none.
func (g *bareMetalServer) lost() error {
	if g.node == nil {
		return problem.Conflictf("no node of endpoint %s is its machine any more", g.where())
	}
	return nil
}

func (g *bareMetalServer) where() string {
	if g.host == nil {
		return "none"
	}
	return g.host.Name
}

// Bounds of what is done with machines.
const (
	// bareMetalRetryTime bounds the tries of one request to an endpoint that does not answer.
	bareMetalRetryTime = 5 * time.Minute
	// lockPatience is how long a machine may be locked by others.
	lockPatience = 2 * time.Minute
	nodeTimeout  = time.Hour
	firstLook    = 100 * time.Millisecond
	longestLook  = 5 * time.Second
)

// bareMetalTimeout bounds what a machine is asked for: to be deployed, rescued, put back.
func (c bareMetalOperations) bareMetalTimeout() time.Duration {
	if c.NodeTimeout > 0 {
		return c.NodeTimeout
	}
	return nodeTimeout
}

// pollAgain has the action look again, more seldom with time, with one request per look; when it has done so for as long as bound, it
// fails with giveUp. What was waited is kept in the job: time in which nobody lived does not count.
func (c bareMetalOperations) pollAgain(r *job.Run, what string, bound time.Duration, giveUp error) job.Outcome {
	return c.poll(r, "waited", what, bound, giveUp)
}

// loadWaitMemo is for how long an action has looked; of which of its waits says the word.
func loadWaitMemo(r *job.Run, word string) (memo string, so time.Duration) {
	memo = r.Action + ": " + word
	if r.State == job.Undoing {
		memo = "undo " + memo
	}
	so, _ = time.ParseDuration(r.Memo[memo])
	return memo, so
}

func (c bareMetalOperations) poll(r *job.Run, word, what string, bound time.Duration, giveUp error) job.Outcome {
	memo, waited := loadWaitMemo(r, word)
	if waited >= bound {
		return job.Fail(giveUp)
	}
	first := c.FirstLook
	if first == 0 {
		first = firstLook
	}
	next := min(max(waited/8, first), longestLook)
	r.Note(memo, (waited + next).String())
	return job.Pause(next, what)
}

// fromNode is job.From for what an endpoint says. It asks a locked machine again for lockPatience, and an endpoint that has no room for more
// work for bareMetalTimeout.
func (c bareMetalOperations) fromNode(r *job.Run, g *bareMetalServer, err error, commits ...func(job.Tx) error) job.Outcome {
	if problem.Is(err, problem.Conflict) {
		return c.poll(r, "locked", "endpoint "+g.where()+" to let its node be changed", lockPatience, err)
	}
	if problem.RetryAfterOf(err) > 0 {
		return c.poll(r, "full", "endpoint "+g.where()+" to have room for more work", c.bareMetalTimeout(), err)
	}
	return job.From(err, commits...)
}

// bareMetalPoll is a way from one provision state to another.
type bareMetalPoll struct {
	verb hypervisor.Verb
	// from are the states in which it is asked; under those of the way; failed those in which it ends elsewhere than at to.
	from, under, failed []hypervisor.Provision
	to                  hypervisor.Provision
	// abort are states of another way that is given up for this one.
	abort []hypervisor.Provision
	word  string // "deployment"
	// blame begins what is told of a failure.
	blame string
}

// fault is an error of the passage's, in its words.
func (p *bareMetalPoll) fault(err error) error {
	if err == nil || p.blame == "" || problem.Is(err, problem.Unavailable) {
		return err
	}
	return problem.New(problem.KindOf(err), "%s%w", p.blame, err)
}

// driverError is how Nova's users know that their machine's own driver refused.
const driverError = "Driver Error: "

var (
	deployment = bareMetalPoll{
		verb: hypervisor.Deploy, word: "deployment", from: []hypervisor.Provision{hypervisor.Available}, to: hypervisor.InUse,
		under: []hypervisor.Provision{hypervisor.Deploying, hypervisor.DeployWait, hypervisor.DeployHold}, failed: []hypervisor.Provision{hypervisor.DeployFailed},
	}
	redeployment = bareMetalPoll{
		verb: hypervisor.Redeploy, word: "rebuild", from: []hypervisor.Provision{hypervisor.InUse, hypervisor.DeployFailed, hypervisor.UndeployError}, to: hypervisor.InUse,
		under: deployment.under, failed: deployment.failed,
	}
	toRescue = bareMetalPoll{
		verb: hypervisor.Rescue, word: "rescue", blame: driverError, to: hypervisor.InRescue,
		from:   []hypervisor.Provision{hypervisor.InUse, hypervisor.InRescue, hypervisor.RescueFailed, hypervisor.UnrescueFail},
		under:  []hypervisor.Provision{hypervisor.Rescuing, hypervisor.RescueWait},
		failed: []hypervisor.Provision{hypervisor.RescueFailed},
	}
	fromRescue = bareMetalPoll{
		verb: hypervisor.Unrescue, word: "unrescue", blame: driverError, to: hypervisor.InUse,
		from:   []hypervisor.Provision{hypervisor.InRescue, hypervisor.RescueFailed, hypervisor.UnrescueFail},
		under:  []hypervisor.Provision{hypervisor.Unrescuing},
		failed: []hypervisor.Provision{hypervisor.UnrescueFail},
		abort:  []hypervisor.Provision{hypervisor.RescueWait},
	}
)

// underway are the states that a machine leaves by itself.
var underway = slices.Concat(deployment.under, toRescue.under, fromRescue.under, []hypervisor.Provision{hypervisor.Undeploying, hypervisor.Cleaning, hypervisor.CleanWait})

// ask begins a passage, once: that it may have been asked for is durable before it is, so that who comes after a crash takes the way
// that the machine is on for its own. In a state from which it may be asked it is asked again, which repeats harmlessly.
func (c bareMetalOperations) ask(ctx context.Context, r *job.Run, g *bareMetalServer, p bareMetalPoll, request func() (hypervisor.NodeRequest, error)) job.Outcome {
	if err := g.lost(); err != nil {
		return job.Fail(err)
	}
	at, mark := g.node.Provision, "asked for "+p.word
	mine := r.Memo[mark] != "" && (slices.Contains(p.under, at) || slices.Contains(p.failed, at) || at == p.to)
	switch {
	case slices.Contains(p.from, at):
	case mine, at == p.to:
		return job.Done()
	case slices.Contains(p.abort, at):
		if err := g.api.Ask(ctx, g.node.ID, hypervisor.Abort, hypervisor.NodeRequest{}); err != nil {
			return c.fromNode(r, g, err)
		}
		fallthrough
	case slices.Contains(underway, at):
		return c.pollAgain(r, "node "+g.node.ID+" to be no longer in state "+string(at), c.bareMetalTimeout(), g.stays(at))
	default:
		return job.Fail(problem.Conflictf("its node %s is in state %q, from which there is no %s", g.node.ID, at, p.word))
	}
	w, err := request()
	if err != nil {
		return job.From(err)
	}
	r.Note(mark, "yes")
	if err := r.Commit(ctx, nil); err != nil {
		return job.From(err)
	}
	return c.fromNode(r, g, p.fault(g.api.Ask(ctx, g.node.ID, p.verb, w)))
}

func (g *bareMetalServer) stays(at hypervisor.Provision) error {
	return problem.Unavailablef("its node %s stays in state %q", g.node.ID, at)
}

// arrive waits for the end of a passage. Its failure is told in the node's own words.
func (c bareMetalOperations) arrive(r *job.Run, g *bareMetalServer, p bareMetalPoll, commits ...func(job.Tx) error) job.Outcome {
	if err := g.lost(); err != nil {
		return job.Fail(err)
	}
	at := g.node.Provision
	switch {
	case at == p.to:
		return job.Done(commits...)
	case slices.Contains(p.failed, at):
		return job.Fail(p.fault(problem.Conflictf("%s", wordsOr(g.node.LastError, "the "+p.word+" failed, and its node does not say why"))))
	case !slices.Contains(underway, at) && !slices.Contains(p.from, at):
		return job.Fail(problem.Conflictf("its node %s went to state %q instead", g.node.ID, at))
	}
	return c.pollAgain(r, "the "+p.word+" of node "+g.node.ID+", which is in state "+string(at), c.bareMetalTimeout(),
		problem.Unavailablef("the %s of node %s has not ended within %s: it is in state %q", p.word, g.node.ID, c.bareMetalTimeout(), at))
}

// wordsOr is the last error of a node, or else the text silence. An error of our own Bare Metal API already marks its quotations,
// and a time-out quotes nobody. Any other error may hold text of a BMC.
func wordsOr(text, silence string) string {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return silence
	case strings.HasPrefix(text, "Timeout reached while waiting for "), strings.Contains(text, "“"):
		return text
	}
	return problem.Quote(text)
}
