package service

import (
	"context"
	"errors"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
)

// errSuperseded ends a waiting job in favour of a deletion.
var errSuperseded = problem.Conflictf("given up: the server is to be deleted")

// pendingAct is one act on its way through its transaction.
type pendingAct struct {
	*compute.Act
	who    compute.Who
	rule   *compute.Rule
	server *compute.Server
	args   any
	secret any // JSON of the job's secret; nil: none
}

// Actions is the service of what users ask of a server: each action becomes a job.
type Actions struct {
	*serviceCore
	reports    *GuestReports
	images     *RescueImages
	servers    *Servers
	moves      *Moves
	reconciler *Reconciler
}

// Act does what is asked: the rule, the server's row, the job and the timeline are one transaction.
// A state that forbids it is a *StateError.
func (s *Actions) Act(ctx context.Context, id string, a compute.Act, who compute.Who) (*compute.Server, error) {
	if a.Action == compute.ResetState && !who.Admin {
		return nil, problem.Forbiddenf("only administrators reset the state of a server")
	}
	cred, err := s.credential(&a)
	if err != nil {
		return nil, err
	}
	var out *compute.Server
	err = s.change(ctx, func(tx job.Tx) error {
		srv, err := s.server(ctx, tx, id, who)
		if err != nil {
			return err
		}
		st := &pendingAct{Act: &a, who: who, server: srv}
		out = srv
		if a.Action == compute.Delete && srv.Task == compute.Deleting {
			return nil // asked before
		}
		if err := compute.MetalRefusal(srv, &a); err != nil {
			return err
		}
		if st.rule, err = compute.Allow(srv, a.Action, a.Semantics(), who.Admin); err != nil {
			return err
		}
		if st.rule.NeedsOneGuest() {
			if err := s.reports.holdChange(ctx, tx, srv, who.Admin); err != nil {
				return err
			}
		}
		if a.Action == compute.Rebuild {
			if err := srv.RefusalToRebuild(who.Admin); err != nil {
				return err
			}
		}
		return s.apply(ctx, tx, st, cred)
	})
	if err != nil {
		return nil, err
	}
	if a.Password != nil && out.Rescue != nil && out.Rescue.Source.Access != rescue.NoAccess {
		*a.Password = cred.clear
	}
	return out, nil
}

// change runs fn in a transaction, again if a row that it saves was changed by somebody else meanwhile.
func (c *serviceCore) change(ctx context.Context, fn func(job.Tx) error) error {
	for range 5 {
		if err := c.jobs.Do(ctx, fn); !errors.Is(err, record.ErrChanged) {
			return err
		}
	}
	return problem.Conflictf("the server keeps changing; ask again")
}

// conflictToChanged has core.change begin again where a row that was to be written is not as it was read.
func conflictToChanged(err error) error {
	if problem.Is(err, problem.Conflict) {
		return record.ErrChanged
	}
	return err
}

// apply writes what the rule says.
func (s *Actions) apply(ctx context.Context, tx job.Tx, st *pendingAct, cred *rescueCredential) error {
	if err := s.prepare(ctx, tx, st, cred); err != nil {
		return err
	}
	srv, r := st.server, st.rule
	srv.Task = r.Task
	if r.Wanted != "" {
		srv.Wanted = r.Wanted
	}
	if r.Wanted == compute.PowerOn {
		srv.Resumes = nil // somebody looks after it: after the next I/O error salvor's own tries begin anew
	}
	if r.Action == compute.ResetState {
		srv.Task = compute.NoTask
	}
	if r.Job != "" {
		if err := s.insert(tx, st); err != nil {
			return err
		}
	}
	if err := s.save(tx, srv); err != nil {
		return err
	}
	return s.note(tx, srv.ID, st.who.Asker, "request", "asked to "+string(st.Action))
}

// insert adds the act's job. A deletion ends what waits and leaves what runs to its end: Tend or Finish begins it then.
func (s *Actions) insert(tx job.Tx, st *pendingAct) error {
	if st.Action == compute.Delete {
		free, err := s.supersede(tx, st.server)
		if err != nil || !free {
			return err
		}
	}
	j, err := compute.NewJob(st.server.ID, st.server.JobKind(st.rule.Job), st.args, st.secret, st.who.Asker)
	if err != nil {
		return err
	}
	err = s.jobs.Insert(tx, j)
	if problem.Is(err, problem.Conflict) {
		srv := *st.server
		srv.Task = compute.NoTask
		return &compute.StateError{Server: &srv, Action: st.Action, Busy: true, Allowed: true}
	}
	return err
}

// supersede ends the waiting jobs of a server that is to be deleted; false: one runs just now.
func (s *Actions) supersede(tx job.Tx, srv *compute.Server) (bool, error) {
	open, err := s.jobs.Unended(tx, compute.Subject(srv.ID))
	if err != nil {
		return false, err
	}
	for i := range open {
		if open[i].Locks() {
			return false, nil
		}
	}
	for i := range open {
		if open[i].Class == job.Background {
			continue
		}
		if err := s.jobs.Interrupt(tx, open[i].ID, job.Ended, errSuperseded); err != nil {
			return false, err
		}
		if err := s.moves.dropMove(context.Background(), tx, srv, &open[i], true); err != nil {
			return false, err
		}
		srv.Epoch++ // what the host was told before is void
	}
	return true, s.store.VoidOrders(tx, srv.ID, srv.Epoch)
}

// prepare fills in what the action changes beside its task, and the arguments of its job.
func (s *Actions) prepare(ctx context.Context, tx job.Tx, st *pendingAct, cred *rescueCredential) error {
	srv := st.server
	within := int(s.opts.SoftOffTimeout / time.Second)
	switch st.Action {
	case compute.Start, compute.Unpause, compute.Resume:
		st.args = compute.PowerArgs{Power: compute.PowerOn}
	case compute.Stop:
		st.args = compute.PowerArgs{Power: compute.PowerOff, Soft: true, Within: within}
	case compute.Reboot:
		st.args = compute.PowerArgs{Power: compute.PowerOn, Restart: true, Soft: true, Within: within}
	case compute.RebootHard:
		st.args = compute.PowerArgs{Power: compute.PowerOn, Restart: true}
	case compute.Pause:
		st.args = compute.PowerArgs{Power: compute.PowerPaused}
	case compute.Suspend:
		st.args = compute.PowerArgs{Power: compute.PowerSaved}
	case compute.Rescue:
		st.args = compute.RescueArgs{Boot: !st.MustBeOff, Within: within, State: srv.State}
		return s.openSession(ctx, tx, st, cred)
	case compute.Unrescue:
		st.args = s.leaveSession(srv, st.MustBeOff || st.Restore)
	case compute.Rebuild:
		return s.prepareRebuild(ctx, tx, st)
	case compute.AttachVolume:
		return s.prepareAttach(ctx, tx, st)
	case compute.DetachVolume:
		return s.prepareDetach(ctx, tx, st)
	case compute.LockServer:
		if !srv.LockedByAdmin || st.who.Admin { // a member's lock takes nothing from an administrator's
			srv.Locked, srv.LockedReason, srv.LockedByAdmin = true, st.Reason, st.who.Admin && st.who.Project != srv.Project
		}
	case compute.UnlockServer:
		if srv.LockedByAdmin && !st.who.Admin {
			return problem.Forbiddenf("server %s was locked by an administrator: only administrators unlock it", srv.ID)
		}
		srv.Locked, srv.LockedReason, srv.LockedByAdmin = false, "", false
	case compute.ResetState:
		return s.reset(ctx, tx, st)
	}
	return nil
}

// reset gives a server the state that an operator says it has. What waits for it is given up, and what its host was told is void.
func (s *Actions) reset(ctx context.Context, tx job.Tx, st *pendingAct) error {
	if st.Reset != compute.Active && st.Reset != compute.Errored {
		return problem.Invalidf("server %s: a state is reset to %s or %s, not to %.50q", st.server.ID, compute.Active, compute.Errored, st.Reset)
	}
	if st.Reset == compute.Active && st.server.HostID == "" {
		return problem.Conflictf("server %s has no host on which it could be %s: delete it, and create it anew", st.server.ID, compute.Active)
	}
	open, err := s.jobs.Unended(tx, compute.Subject(st.server.ID))
	if err != nil {
		return err
	}
	for i := range open {
		if open[i].Class == job.Background {
			continue
		}
		err := s.jobs.Interrupt(tx, open[i].ID, job.Ended, problem.Conflictf("given up: the server's state was reset"))
		if problem.Is(err, problem.Conflict) {
			return &compute.StateError{Server: st.server, Action: compute.ResetState, Busy: true, Allowed: true}
		}
		if err != nil {
			return err
		}
		if err := s.servers.volumesReset(ctx, tx, st.server, &open[i]); err != nil {
			return err
		}
		if err := s.moves.dropMove(ctx, tx, st.server, &open[i], false); err != nil {
			return err
		}
	}
	srv := st.server
	srv.Epoch++
	if err := s.store.VoidOrders(tx, srv.ID, srv.Epoch); err != nil {
		return err
	}
	if open := srv.Rescue; open != nil && open.State != rescue.Closed && (open.State == rescue.Preparing || open.State == rescue.Leaving) {
		open.State = rescue.Failed // nobody works on it any more: unrescue may be asked
	}
	srv.State = st.Reset
	if st.Reset == compute.Active {
		srv.Fault = nil
	}
	return nil
}
