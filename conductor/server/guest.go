package server

import (
	"context"
	"encoding/json"
	"time"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/job"
	"salvor/problem"
	"salvor/rescue"
)

// Hypervisors finds what drives the guests of a host whose orders a conductor carries out itself.
type Hypervisors interface {
	// Of is the hypervisor of a host; one that cannot be reached is problem.Unavailable.
	Of(ctx context.Context, h *compute.Host) (hypervisor.Hypervisor, error)
}

// managedServer is a server with everything that acts on it, read afresh for each action.
type managedServer struct {
	server *compute.Server
	host   *compute.Host // nil: it is on none
}

// guestAction is an action on a server.
type guestAction func(ctx context.Context, r *job.Run, g *managedServer) job.Outcome

// withGuest makes a job action of a guest action: it reads the server first.
func (c *Conductor) withGuest(do guestAction) func(context.Context, *job.Run) job.Outcome {
	return func(ctx context.Context, r *job.Run) job.Outcome {
		g, err := c.guest(ctx, r.Subject.ID)
		if err != nil {
			return job.From(err)
		}
		return do(ctx, r, g)
	}
}

func (c *Conductor) guest(ctx context.Context, id string) (*managedServer, error) {
	s, err := c.Store.Servers().Get(ctx, nil, id)
	if err != nil {
		return nil, err
	}
	g := &managedServer{server: s}
	if s.HostID != "" {
		if g.host, err = c.Store.Hosts().Get(ctx, nil, s.HostID); err != nil && !problem.Is(err, problem.NotFound) {
			return nil, err
		}
	}
	return g, nil
}

// session is the server's open session; nil: it has none.
func (g *managedServer) session() *rescue.Session {
	if s := g.server.Rescue; s != nil && s.State.Open() {
		return s
	}
	return nil
}

// inRescue tells whether the next start boots the rescue system.
func (g *managedServer) inRescue() bool {
	s := g.session()
	return s != nil && (s.State == rescue.Prepared || s.State == rescue.Booting || s.State == rescue.Ready)
}

// Bounds of what a host does: they end its own tries; a wait for its answer lasts hostSlack longer, so that a host that starts again is awaited.
const (
	quickErrand  = time.Minute
	diskErrand   = 30 * time.Minute
	unlockErrand = 5 * time.Minute
	removeErrand = 10 * time.Minute // it comes after what the host does for the server just now
	hostSlack    = 2 * time.Minute
)

// guestDeadline bounds all tries of an action whose host orders take so long.
func guestDeadline(orderTime time.Duration) time.Duration { return orderTime + hostSlack + time.Minute }

// detachContext is the context of what is written when an action has ended, and its own context with it.
func detachContext(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// editServer changes the server in the transaction that ends the action.
func (c *Conductor) editServer(ctx context.Context, id string, change func(*compute.Server)) func(job.Tx) error {
	return func(tx job.Tx) error { return c.Compute.Servers.Edit(detachContext(ctx), tx, id, change) }
}

// finishServer changes the server and ends its task, in the transaction that ends the action.
func (c *Conductor) finishServer(ctx context.Context, id string, change func(*compute.Server)) func(job.Tx) error {
	return func(tx job.Tx) error { return c.Compute.Servers.Finish(detachContext(ctx), tx, id, change) }
}

// serverFailed shows a failed operation as an error of the server. It is called when a wait took too long, before the undo, and
// again at the end: only the end frees the server. settle, if any, says what else is so in the end; clean: everything could be taken back.
func (c *Conductor) serverFailed(what string, settle func(s *compute.Server, clean bool)) func(context.Context, job.Tx, *job.Job) error {
	return func(ctx context.Context, tx job.Tx, j *job.Job) error {
		servers := c.Compute.Servers
		if j.State != job.Ended {
			return suppressNotFound(servers.Edit(ctx, tx, j.Subject.ID, func(s *compute.Server) {
				s.State, s.Fault = compute.Errored, c.fault(s, j, what)
			}))
		}
		return suppressNotFound(servers.Fail(ctx, tx, j, func(s *compute.Server) {
			s.Fault, s.Wanted = c.fault(s, j, what), s.Power // whoever failed once is asked again by people, not by a mending
			if settle != nil {
				settle(s, j.Memo["stuck"] == "")
			}
		}))
	}
}

func (c *Conductor) fault(s *compute.Server, j *job.Job, what string) *compute.Fault {
	why := "Instance " + s.ID + " cannot be " + what + ": " + j.Problem
	if stuck := j.Memo["stuck"]; stuck != "" {
		why += ". It could not be put back: " + stuck
	}
	return &compute.Fault{Code: 500, Message: why, CreatedAt: c.Now().UTC()}
}

// suppressNotFound is an error about a server that is there; one that is gone needs no word of a failure.
func suppressNotFound(err error) error {
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	return err
}

// parseJobArgs reads a job's arguments.
func parseJobArgs[A any](r *job.Run) (A, error) {
	var a A
	if len(r.Args) == 0 {
		return a, nil
	}
	if err := json.Unmarshal(r.Args, &a); err != nil {
		return a, problem.Invalidf("%s job: %w", r.Kind, err)
	}
	return a, nil
}

// powerOf is the power that the result of a host order tells, or else the power that was wanted.
func powerOf(result compute.Result, wished compute.Power) compute.Power {
	if result.Guest != nil && result.Guest.Power != compute.PowerUnknown {
		return result.Guest.Power
	}
	return wished
}
