package conductor

import (
	"context"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
)

// blueprint is what the host must know of the server: with its rescue system, or as it is by itself, with the hypervisor's
// settings that a rescue replaced put back.
func (c *Conductor) blueprint(ctx context.Context, g *guest, rescued bool, hash string) (*compute.Blueprint, error) {
	b, err := c.Compute.Servers.Blueprint(ctx, g.server, hash)
	if err != nil {
		return nil, err
	}
	session := g.session()
	if rescued {
		if session == nil || b.Spec.Rescue == nil {
			return nil, problem.Conflictf("server %s has no rescue image", g.server.ID)
		}
		return b, nil
	}
	b.Spec.Rescue, b.Secret.RescueDrive = nil, nil
	if session != nil && session.SavedKnown {
		b.Spec.Restore = session.SavedSettings
		if b.Spec.Restore == nil {
			b.Spec.Restore = map[string]string{}
		}
	}
	return b, nil
}

// defineGuest has the server's definition made what it should be, with its rescue system or without.
func (c *Conductor) defineGuest(ctx context.Context, r *job.Run, g *guest, rescued bool, then func() job.Outcome) job.Outcome {
	b, err := c.blueprint(ctx, g, rescued, "")
	if err != nil {
		return job.From(err)
	}
	hidden := compute.OrderSecret{CHAP: b.Secret.CHAP, RescueDrive: b.Secret.RescueDrive}
	e := errand{verb: compute.Define, args: compute.Args{Spec: &b.Spec}, secret: hidden, within: quickErrand}
	if rescued {
		e.within = diskErrand // its image may have to be fetched
	}
	return c.send(ctx, r, g, e, func(compute.Result) job.Outcome { return then() })
}

// switchOn starts the guest.
func (c *Conductor) switchOn(ctx context.Context, r *job.Run, g *guest, then func() job.Outcome) job.Outcome {
	return c.send(ctx, r, g, errand{verb: compute.SetPower, args: compute.Args{Power: compute.PowerOn}}, func(compute.Result) job.Outcome { return then() })
}
