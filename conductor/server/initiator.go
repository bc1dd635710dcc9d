package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/storage"
)

// logsIn tells whether a guest may log in to its volumes because of such an order, now or at its next start.
func logsIn(v compute.Verb) bool {
	return v == compute.Define || v == compute.Attach || v == compute.MigratePrepare
}

// admitInitiators lets the host of a server in to the server's volumes, before the server is defined there or gets a volume. A fence takes
// that permission from this host again. Without a storage driver it lets nobody in, but still refuses a volume that is another server's
// by now.
func (c storageAccess) admitInitiators(ctx context.Context, g *managedServer) error {
	if g.host == nil || g.host.Kind != compute.AgentHost {
		return nil
	}
	targets, err := c.Compute.Servers.Targets(ctx, g.server)
	if err != nil || c.Storage == nil {
		return err
	}
	if err := c.Permission.Refusal(); err != nil {
		return err
	}
	initiator := compute.Initiator(g.host, g.server.ID)
	for _, target := range targets {
		if err := c.allowInitiator(ctx, target, initiator); err != nil {
			return fmt.Errorf("let host %s in to target %s as %s: %w", g.host.Name, target, initiator, err)
		}
	}
	return nil
}

// allowInitiator lets an initiator in to a target. Before that, a storage that can takes all those of ours off it that have nothing to do there by the
// records: whatever a receipt says, a guest that writes elsewhere has lost the volume by then. After it they are looked for again: a target
// that let everybody in does not any more, and a server may have gone elsewhere meanwhile. One at a time does this to a target: another that is let in
// between the reading of the records and the exclusion would be taken off.
func (c storageAccess) allowInitiator(ctx context.Context, target, initiator string) error {
	unlock, err := c.targets.lock(ctx, target)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.excludeStale(ctx, target, ""); err != nil {
		return err
	}
	if err := c.Storage.Allow(ctx, target, initiator); err != nil {
		return err
	}
	return c.excludeStale(ctx, target, initiator)
}

// targetLocks has one lock for each target that is being changed.
type targetLocks struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// lock waits until nobody else in this process holds the target. Unavailable: ctx has ended before.
func (l *targetLocks) lock(ctx context.Context, target string) (unlock func(), err error) {
	mine := make(chan struct{})
	for {
		l.mu.Lock()
		theirs, taken := l.held[target]
		if !taken {
			if l.held == nil {
				l.held = map[string]chan struct{}{}
			}
			l.held[target] = mine
		}
		l.mu.Unlock()
		if !taken {
			return func() { l.unlock(target, mine) }, nil
		}
		select {
		case <-theirs:
		case <-ctx.Done():
			return nil, problem.Unavailablef("another job changes target %s: %w", target, ctx.Err())
		}
	}
}

func (l *targetLocks) unlock(target string, mine chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, target)
	close(mine)
}

// excludeStale takes off a target whom the records do not name. Conflict: fresh, which has just been let in, is one of those.
func (c storageAccess) excludeStale(ctx context.Context, target, fresh string) error {
	x, ok := c.Storage.(storage.Excluder)
	if !ok {
		return nil
	}
	isStale, err := c.Compute.Servers.StaleInitiators(ctx, target)
	if err != nil {
		return err
	}
	var unread error
	goes := func(initiator string) bool {
		out, err := isStale(initiator)
		unread = cmp.Or(err, unread)
		return out
	}
	err = x.Exclude(ctx, target, goes)
	gone := err == nil && fresh != "" && goes(fresh)
	switch {
	case err != nil || unread != nil:
		return cmp.Or(err, unread)
	case gone:
		return problem.Conflictf("%w of target %s there any more", errNoVolumeThere, target)
	}
	return nil
}

// errNoVolumeThere: a server left, or lost its volume, while its host was let in to it.
var errNoVolumeThere = errors.New("no server has a volume")

// keepOut has an order that would let a fenced host in to volumes wait until the host is admitted, or the server lives elsewhere: what the
// fence took away is not given back by a user's command. Work that waits for silent hosts waits on, and the timeline says so once the time of the order is
// over. Other work has the bound of the order.
func (c storageAccess) keepOut(r *job.Run, g *managedServer, e hostOrder, failed func(error) job.Outcome) job.Outcome {
	memo := orderName(r, e.verb) + " kept from"
	since, err := time.Parse(time.RFC3339Nano, r.Memo[memo])
	if err != nil {
		since = c.Now()
		r.Note(memo, since.UTC().Format(time.RFC3339Nano))
	}
	rest := waitedHost(g.host) + ", which is fenced, to be admitted"
	if c.Now().Sub(since) <= e.within+hostSlack {
		return job.Rest(rest, moveLook)
	}
	err = problem.Unavailablef("host %s is fenced: it cannot be asked to %s", g.host.Name, orderLabels[e.verb])
	if !slices.Contains(keptWork, r.Kind) {
		return failed(err)
	}
	if r.Memo[memo+" told"] != "" {
		return job.Rest(rest, moveLook)
	}
	r.Note(memo+" told", "yes")
	return job.Rest(rest, moveLook, func(tx job.Tx) error {
		return c.Store.Append(tx, job.Event{Subject: r.Subject, Type: "action", Severity: "error", JobID: r.ID, Action: r.Action, RequestID: r.RequestID, User: r.User,
			Text: r.Action + ": failed: " + problem.Public(err) + "; " + keptText(r.Subject.ID)})
	})
}

// letIn lets the servers that are on a host in to their volumes. One that cannot be does not hold the others up, and one that has lost a volume
// by the records, or the host, is left out. A storage that refuses is an error.
func (c storageAccess) letIn(ctx context.Context, h *compute.Host) error {
	servers, err := c.Compute.Servers.On(ctx, h.ID)
	if err != nil {
		return err
	}
	var first error
	for _, s := range servers {
		err := c.admitInitiators(ctx, &managedServer{server: s, host: h})
		switch {
		case problem.Is(err, problem.NotFound):
		case errors.Is(err, compute.ErrNotItsVolume) || errors.Is(err, errNoVolumeThere):
			c.Log.Warn("a server is not let in to its volumes again", "server", s.ID, "host", h.Name, "error", err)
		default:
			first = cmp.Or(first, err)
		}
	}
	return first
}

// hostReadmit gives a host whose fence was contradicted its volumes back: it lives, and so do its servers.
func (c storageAccess) hostReadmit() job.Definition {
	return job.Definition{
		Kind: compute.JobReadmit, Version: 1, Class: job.Background, Failed: c.readmitFailed,
		Actions: []job.Action{{Name: "give the volumes back", Do: c.readmitHost, NoUndo: "the host lives", Deadline: readmitWithin}},
	}
}

// readmitWithin is for how long a storage is asked that does not answer.
const readmitWithin = 30 * time.Minute

// readmitHost goes on until no move is left that may bring a server back, because it cannot attach any more.
func (c storageAccess) readmitHost(ctx context.Context, r *job.Run) job.Outcome {
	h, err := c.Store.Hosts().Get(ctx, nil, r.Subject.ID)
	if err != nil || h.Fenced || c.Storage == nil {
		return job.From(err)
	}
	going, err := c.Compute.Moves.List(ctx, compute.MoveFilter{SourceID: h.ID, Open: true}, record.Page{})
	if err == nil {
		err = c.letIn(ctx, h)
	}
	back := func(m *compute.Move) bool { return m.State == compute.MoveAccepted || m.State == compute.MovePreparing }
	if err == nil && slices.ContainsFunc(going, back) {
		return job.Pause(moveLook, "the moves that cannot go on to end")
	}
	return job.From(err)
}

func (c storageAccess) readmitFailed(_ context.Context, tx job.Tx, j *job.Job) error {
	return c.Store.Append(tx, job.Event{Subject: j.Subject, Type: "contact", Severity: "error", JobID: j.ID,
		Text: "the volumes that the fence took away could not be given back: " + j.Problem + "; a hard reboot of its servers tries again"})
}

// shutOut takes the server's volumes away from its fenced source once more, right before another host gets them: a job that ran when the
// host was fenced may have let it in again. A storage that does not answer delays the move, whatever evidence the fence has: that evidence
// may be false. A storage that refuses delays the move only if no other evidence proves that the source cannot write.
func (c storageAccess) shutOut(ctx context.Context, v *moveContext) error {
	some, _ := v.server.HasVolumes()
	if c.Storage == nil || !some || v.move.ReceiptID == "" || v.move.State != compute.MovePreparing {
		return nil
	}
	receipt, err := c.Store.Receipts().Get(ctx, nil, v.move.ReceiptID)
	if err != nil || !receipt.Open() { // then nothing is attached
		return err
	}
	source, err := c.Store.Hosts().Get(ctx, nil, v.move.SourceID)
	if problem.Is(err, problem.NotFound) {
		source, err = &compute.Host{Record: record.Record{ID: v.move.SourceID}, Kind: compute.AgentHost}, nil
	}
	if err != nil || source.Kind != compute.AgentHost {
		return err
	}
	if err := c.Permission.Refusal(); err != nil {
		return err
	}
	theirs := compute.Initiator(v.host, v.server.ID) // hosts that share a name share its leave: the living one keeps it
	names := slices.DeleteFunc(compute.Initiators(source, []*compute.Server{v.server}), func(name string) bool { return name == theirs })
	bounded, cancel := context.WithTimeout(ctx, spareStorage)
	defer cancel()
	err = c.Storage.Revoke(bounded, names...)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case bounded.Err() != nil || problem.Is(err, problem.Unavailable):
		err = problem.Unavailablef("%w", err)
	case !receipt.Has(compute.StorageRevoked) || receipt.Has(compute.PowerCut):
		c.Log.Warn("a server goes on elsewhere, and its volumes could not be taken from its fenced host once more", "server", v.server.ID, "host", source.Name, "error", err)
		return nil
	}
	return fmt.Errorf("take the volumes of server %s from its fenced host %s: %w", v.server.ID, source.Name, err)
}
