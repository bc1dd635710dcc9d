package compute

import (
	"context"
	"errors"
	"slices"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/rescue"
	"salvor/secret"
)

// MoveRequest is what an administrator asks of the evacuation of one server.
type MoveRequest struct {
	// DestHost is a UUID or a name; empty: the best host. Force: it may be disabled, full or in another zone, and there is no other.
	DestHost string
	Force    bool
	// OnSharedStorage is the administrator's word that the disk lies on shared storage: a server whose disk does not is not re-imaged.
	OnSharedStorage bool
	// Password, in clear, of the system on a disk that is made anew; a disk that is kept keeps its passwords.
	Password secret.Value
}

// evacuable are the states from which a server is evacuated. Nova refuses the last three; the specification asks for them.
var evacuable = []VMState{Active, Stopped, Errored, Paused, Suspended, Rescued}

// evacuateTries bounds how often a server that is worked on this very moment is asked again, after each busyPause.
const (
	evacuateTries = 40
	busyPause     = 50 * time.Millisecond
)

// Evacuate moves one server away from a host that is fenced. Its name is the consent to re-image it, unless its host's group says never.
// The problems carry the Compute API's own texts, in its order.
func (s *Servers) Evacuate(ctx context.Context, id string, w MoveRequest, who Who) (*Move, error) {
	if !who.Admin {
		return nil, problem.Forbiddenf("only administrators evacuate servers")
	}
	hidden, err := s.firstSecret(w.Password)
	if err != nil {
		return nil, err
	}
	for range evacuateTries {
		m, err := s.evacuate(ctx, id, w, hidden, who)
		if !errors.Is(err, ErrServerBusy) {
			return m, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(busyPause):
		}
	}
	return nil, ErrServerBusy
}

// firstSecret is the secret of a job that makes a system with a password; empty: with none.
func (s *Servers) firstSecret(password secret.Value) (secret.Value, error) {
	if password.Empty() {
		return secret.Value{}, nil
	}
	hash, err := rescue.HashPassword(password, s.opts.HashAlgorithm)
	if err != nil {
		return secret.Value{}, err
	}
	return marshalSecret(JobSecret{Hash: hash.Reveal()})
}

func (s *Servers) evacuate(ctx context.Context, id string, w MoveRequest, hidden secret.Value, who Who) (*Move, error) {
	srv, err := s.get(ctx, nil, id, who)
	if err != nil {
		return nil, err
	}
	args := MoveArgs{Force: w.Force && w.DestHost != ""}
	if w.DestHost != "" {
		dest, err := s.host(ctx, w.DestHost)
		if problem.Is(err, problem.NotFound) {
			return nil, problem.NotFoundf("Compute host %s not found.", truncateText(w.DestHost))
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
		return nil, &StateError{Server: srv, Action: Evacuating, Allowed: false}
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
	if item.Disposition == Reimage {
		if w.OnSharedStorage {
			return nil, problem.Conflictf("server %s: its disk is not on shared storage, though onSharedStorage is true (%s). "+
				"Nothing was changed: mount the store on another host, or evacuate again with onSharedStorage false to give up what is on the disk", srv.ID, item.Why)
		}
		args.hidden = hidden
	}
	return s.beginEvacuation(ctx, srv.ID, source.ID, &Move{Disposition: item.Disposition}, args, who)
}

// stillInUse refuses while the host lives, and is not fenced.
func (s *Servers) stillInUse(ctx context.Context, source *Host) error {
	live, err := s.hosts.livenessSnapshot(ctx, nil)
	if err != nil || !live.isUp(source) {
		return err
	}
	return problem.Invalidf("Compute service of %s is still in use.", orID(source))
}

// planOne drafts a plan for one server, whose name is the consent; the job asks the destination before it does anything.
func (s *Servers) planOne(ctx context.Context, srv *Server, source *Host, a MoveArgs) (*PlanItem, error) {
	wish := PlanRequest{Servers: []string{srv.ID}, Consent: []string{srv.ID}, Dest: a.DestID}
	o, err := s.hosts.outlook(ctx, source, &wish)
	if err != nil {
		return nil, err
	}
	o.Forced = a.Force
	item := DraftPlan(o)[0]
	if item.Disposition == Cannot {
		return nil, problem.Conflictf("server %s cannot be evacuated: %s", srv.ID, item.Why)
	}
	return &item, nil
}

func (s *Servers) beginEvacuation(ctx context.Context, id, sourceID string, m *Move, a MoveArgs, who Who) (*Move, error) {
	var out *Move
	err := s.change(ctx, func(tx job.Tx) error {
		srv, err := s.get(ctx, tx, id, who)
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
		receipt, err := s.hosts.EnsureReceipt(ctx, tx, source)
		if err != nil {
			return err
		}
		fresh := *m
		out, err = s.BeginMove(ctx, tx, srv, &fresh, receipt, a, who.Asker)
		return err
	})
	return out, err
}
