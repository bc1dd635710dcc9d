package service

import (
	"context"
	"slices"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
)

// checkMetalDisks holds what is asked for to what a machine can be given.
func (c *pendingCreation) checkMetalDisks() error {
	if _, metal := c.flavor.Metal(); !metal {
		return nil
	}
	for _, d := range c.Disks {
		switch {
		case d.VolumeID == "":
			return problem.Invalidf("Block Device Mapping is Invalid: a server on bare metal has the disks of its machine, and no blank ones")
		case c.image != nil:
			return problem.Invalidf("Block Device Mapping is Invalid: a server on bare metal has its system either on its machine's disk, from an image, or on a volume")
		}
	}
	return nil
}

// ObserveMetal takes in how the machines of an endpoint are, by server; one that is gone is in error. seen are the servers from
// before the machines were read (see Seen): one that was changed since is left for the next look.
func (s *Observer) ObserveMetal(ctx context.Context, machines map[string]compute.MachineSight, seen map[string]*compute.Server) error {
	for id, srv := range seen {
		m, there := machines[id]
		if srv.Task != compute.NoTask || !srv.IsSteady() || there && srv.MatchesMachine(m) {
			continue
		}
		if err := s.takeMachine(ctx, srv, m, there); err != nil {
			return err
		}
	}
	return nil
}

// takeMachine writes what was seen, unless somebody works on the server, or did since it was read.
func (s *Observer) takeMachine(ctx context.Context, seen *compute.Server, m compute.MachineSight, there bool) error {
	err := s.change(ctx, func(tx job.Tx) error {
		open, err := s.jobs.Unended(tx, compute.Subject(seen.ID))
		if err != nil {
			return err
		}
		srv, err := s.store.Servers().Get(ctx, tx, seen.ID)
		if err != nil {
			return err
		}
		if srv.Version != seen.Version || slices.ContainsFunc(open, func(j job.Job) bool { return j.Class != job.Background }) {
			return nil
		}
		why := ""
		if _, err := s.servers.edit(ctx, tx, srv.ID, func(srv *compute.Server) { why = s.followMachine(srv, m, there) }); err != nil {
			return err
		}
		return s.note(tx, srv.ID, record.Asker{}, "contact", why)
	})
	return ignoreNotFound(err)
}

// followMachine makes the row what the machine is, and says why.
func (s *Observer) followMachine(srv *compute.Server, m compute.MachineSight, there bool) string {
	switch {
	case !there:
		why := "its machine is gone: no node of its endpoint is this server's"
		srv.State, srv.Power, srv.Wanted = compute.Errored, compute.PowerUnknown, compute.PowerUnknown
		srv.Fault = &compute.Fault{Code: 500, Message: why, CreatedAt: s.now().UTC()}
		return why
	case m.Rescued:
		saved := rescue.Boot{Power: savedPower(srv)}
		srv.State, srv.Power, srv.Wanted = compute.Rescued, m.Power, m.Power
		srv.Rescue = &rescue.Session{StartedAt: s.now(), State: rescue.Ready, Image: compute.MetalImage, Source: compute.MetalSource(), Saved: saved, SavedKnown: true}
		return "found in rescue: so its endpoint says"
	}
	srv.Rescue, srv.State = nil, compute.Stopped
	srv.Settle(m.Power)
	srv.Wanted = m.Power
	return "found " + string(m.Power) + ": so its endpoint says"
}
