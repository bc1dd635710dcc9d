package service

import (
	"context"
	"errors"
	"slices"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/rescue"
	"salvor/secret"
)

// evacuable are the states from which a server is evacuated. Nova refuses the last three; the specification asks for them.
var evacuable = []compute.VMState{compute.Active, compute.Stopped, compute.Errored, compute.Paused, compute.Suspended, compute.Rescued}

// evacuateTries bounds how often a server that is worked on this very moment is asked again, after each busyPause.
const (
	evacuateTries = 40
	busyPause     = 50 * time.Millisecond
)

// Evacuate moves one server away from a host that is fenced. Its name is the consent to re-image it, unless its host's group says never.
// The problems carry the Compute API's own texts, in its order.
func (s *Moves) Evacuate(ctx context.Context, id string, w compute.MoveRequest, who compute.Who) (*compute.Move, error) {
	if !who.Admin {
		return nil, problem.Forbiddenf("only administrators evacuate servers")
	}
	hidden, err := s.firstSecret(w.Password)
	if err != nil {
		return nil, err
	}
	for range evacuateTries {
		m, err := s.evacuate(ctx, id, w, hidden, who)
		if !errors.Is(err, compute.ErrServerBusy) {
			return m, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(busyPause):
		}
	}
	return nil, compute.ErrServerBusy
}

// firstSecret is the secret of a job that makes a system with a password; empty: with none.
func (s *Moves) firstSecret(password secret.Value) (secret.Value, error) {
	if password.Empty() {
		return secret.Value{}, nil
	}
	hash, err := rescue.HashPassword(password, s.opts.HashAlgorithm)
	if err != nil {
		return secret.Value{}, err
	}
	return compute.MarshalSecret(compute.JobSecret{Hash: hash.Reveal()})
}

func (s *Moves) evacuate(ctx context.Context, id string, w compute.MoveRequest, hidden secret.Value, who compute.Who) (*compute.Move, error) {
	srv, err := s.server(ctx, nil, id, who)
	if err != nil {
		return nil, err
	}
	args := compute.MoveArgs{Force: w.Force && w.DestHost != ""}
	if w.DestHost != "" {
		dest, err := s.host(ctx, w.DestHost)
		if problem.Is(err, problem.NotFound) {
			return nil, problem.NotFoundf("Compute host %s not found.", compute.TruncateText(w.DestHost))
		}
		if err != nil {
			return nil, err
		}
		if dest.ID == srv.HostID {
			return nil, problem.Invalidf("The target host can't be the same one.")
		}
		args.DestID = dest.ID
	}
	if !slices.Contains(evacuable, srv.State) || srv.HostID == "" {
		return nil, &compute.StateError{Server: srv, Action: compute.Evacuating, Allowed: false}
	}
	source, err := s.store.Hosts().Get(ctx, nil, srv.HostID)
	if err != nil {
		return nil, err
	}
	if err := s.stillInUse(ctx, source); err != nil {
		return nil, err
	}
	item, err := s.planOne(ctx, srv, source, args)
	if err != nil {
		return nil, err
	}
	if item.Disposition == compute.Reimage {
		if w.OnSharedStorage {
			return nil, problem.Conflictf("server %s: its disk is not on shared storage, though onSharedStorage is true (%s). "+
				"Nothing was changed: mount the store on another host, or evacuate again with onSharedStorage false to give up what is on the disk", srv.ID, item.Why)
		}
		args.Hidden = hidden
	}
	return s.beginEvacuation(ctx, srv.ID, source.ID, &compute.Move{Disposition: item.Disposition, MayLoseVariables: item.MayLoseVariables || item.LosesVariables}, args, who)
}

// stillInUse refuses while the host lives, and is not fenced.
func (s *Moves) stillInUse(ctx context.Context, source *compute.Host) error {
	live, err := s.liveness.snapshot(ctx, nil)
	if err != nil || !live.isUp(source) {
		return err
	}
	return problem.Invalidf("Compute service of %s is still in use.", compute.OrID(source))
}

// planOne drafts a plan for one server, whose name is the consent; the job asks the destination before it does anything.
func (s *Moves) planOne(ctx context.Context, srv *compute.Server, source *compute.Host, a compute.MoveArgs) (*compute.PlanItem, error) {
	wish := compute.PlanRequest{Servers: []string{srv.ID}, Consent: []string{srv.ID}, Dest: a.DestID}
	o, err := s.inputs.readPlanInput(ctx, source, &wish)
	if err != nil {
		return nil, err
	}
	o.Forced = a.Force
	item := compute.DraftPlan(o)[0]
	if item.Disposition == compute.Cannot {
		return nil, problem.Conflictf("server %s cannot be evacuated: %s", srv.ID, item.Why)
	}
	return &item, nil
}

func (s *Moves) beginEvacuation(ctx context.Context, id, sourceID string, m *compute.Move, a compute.MoveArgs, who compute.Who) (*compute.Move, error) {
	var out *compute.Move
	err := s.change(ctx, func(tx job.Tx) error {
		srv, err := s.server(ctx, tx, id, who)
		if err != nil {
			return err
		}
		if srv.HostID != sourceID {
			return problem.Conflictf("server %s is not on host %s any more", id, sourceID)
		}
		source, err := s.store.Hosts().Get(ctx, tx, sourceID)
		if err != nil {
			return err
		}
		receipt, err := s.fences.Ensure(ctx, tx, source)
		if err != nil {
			return err
		}
		fresh := *m
		out, err = s.Begin(ctx, tx, srv, &fresh, receipt, a, who.Asker)
		return err
	})
	return out, err
}
