package server

import (
	"context"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
)

// blueprint is what the host must know of the server: with its rescue system, or as it is by itself, with the hypervisor's
// settings that a rescue replaced put back.
func (c *Conductor) blueprint(ctx context.Context, g *managedServer, rescued bool, hash string) (*compute.Blueprint, error) {
	srv, session := *g.server, g.session()
	if !rescued {
		srv.Rescue = nil // whose image may be gone: that keeps nobody from going back
	}
	b, err := c.Compute.Servers.Blueprint(ctx, &srv, hash)
	switch {
	case err != nil:
		return nil, err
	case rescued && b.Spec.Rescue == nil:
		return nil, problem.Conflictf("server %s has no rescue image", srv.ID)
	case rescued:
		return b, nil
	}
	if session != nil && session.SavedKnown {
		b.Spec.Restore = session.SavedSettings
		if b.Spec.Restore == nil {
			b.Spec.Restore = map[string]string{}
		}
	}
	return b, nil
}

func defineErrand(b *compute.Blueprint) hostOrder {
	return hostOrder{verb: compute.Define, args: compute.Args{Spec: &b.Spec}, secret: compute.OrderSecret{CHAP: b.Secret.CHAP}}
}

// defineGuest has the server's definition made what it should be, with its rescue system or without. The files of a rescue system
// are brought first; nothing else of the server is prepared then, so that a disk that is lost is not made anew beside what may be saved of it.
func (c *Conductor) defineGuest(ctx context.Context, r *job.Run, g *managedServer, rescued bool, then func() job.Outcome) job.Outcome {
	b, err := c.blueprint(ctx, g, rescued, "")
	if err != nil {
		return job.From(err)
	}
	define := func(compute.Result) job.Outcome {
		return c.dispatch(ctx, r, g, defineErrand(b), func(compute.Result) job.Outcome { return then() })
	}
	if !rescued {
		return define(compute.Result{})
	}
	files := b.Spec
	files.Disks, files.NICs, files.Drive = nil, nil, false
	bring := hostOrder{verb: compute.Prepare, args: compute.Args{Spec: &files}, secret: compute.OrderSecret{RescueDrive: b.Secret.RescueDrive}, within: diskErrand}
	return c.dispatch(ctx, r, g, bring, define)
}

// switchOn starts the guest.
func (c *Conductor) switchOn(ctx context.Context, r *job.Run, g *managedServer, then func() job.Outcome) job.Outcome {
	return c.dispatch(ctx, r, g, hostOrder{verb: compute.SetPower, args: compute.Args{Power: compute.PowerOn}}, func(compute.Result) job.Outcome { return then() })
}
