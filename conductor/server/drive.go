package server

import (
	"context"
	"time"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/rescue"
	"salvor/secret"
)

// hypervisor finds what drives the guests of a host, if this conductor may still act on it.
func (c *Conductor) hypervisor(ctx context.Context, h *compute.Host) (hypervisor.Hypervisor, error) {
	if c.Hypervisors == nil {
		return nil, problem.Unsupportedf("host %s: this conductor drives no hypervisor", h.Name)
	}
	if err := c.Permission.Refusal(); err != nil {
		return nil, err
	}
	return c.Hypervisors.Of(ctx, h)
}

// drive runs a host order on a hypervisor that no agent of ours sits beside. Disks and images are the hypervisor's own there:
// what only prepares or clears files has nothing to do. It may take as long as an agent's answer would be awaited.
func (c *Conductor) drive(ctx context.Context, g *managedServer, e hostOrder) (compute.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, e.within+hostSlack)
	defer cancel()
	h, err := c.hypervisor(ctx, g.host)
	if err != nil {
		return compute.Result{}, err
	}
	id := g.server.ID
	switch e.verb {
	case compute.Prepare, compute.Release:
		return compute.Result{}, nil
	case compute.Define:
		d, err := c.domain(g, e)
		if err != nil {
			return compute.Result{}, err
		}
		return compute.Result{}, h.Define(ctx, d)
	case compute.SetPower:
		soft, err := h.SetPower(ctx, id, hypervisor.Power{State: e.args.Power, Soft: e.args.Soft, Restart: e.args.Restart, Within: time.Duration(e.args.Within) * time.Second})
		return compute.Result{Soft: soft}, err
	case compute.Remove:
		return compute.Result{}, h.Remove(ctx, id)
	case compute.Look:
		return lookAt(ctx, h, g)
	}
	return compute.Result{}, problem.Unsupportedf("host %s: %s cannot %s", g.host.Name, g.host.Inventory.HypervisorType, orderLabels[e.verb])
}

// lookAt finds the guest wherever it is in its cluster: one that was moved just now is on another node than the row says.
func lookAt(ctx context.Context, h hypervisor.Hypervisor, g *managedServer) (compute.Result, error) {
	if f, everywhere := h.(hypervisor.Finder); everywhere {
		found, err := f.Guest(ctx, g.server.ID)
		if problem.Is(err, problem.NotFound) {
			// What is on its way, or out of sight, is neither known to be off nor to have no settings of its own.
			err = problem.Unavailablef("the cluster of host %s has no guest %s: %w", g.host.Name, g.server.GuestName, err)
		}
		return compute.Result{Guest: found}, err
	}
	all, err := h.Guests(ctx)
	if err != nil {
		return compute.Result{}, err
	}
	for i := range all {
		if all[i].ID == g.server.ID || all[i].Name == g.server.GuestName && g.server.Foreign {
			return compute.Result{Guest: &all[i]}, nil
		}
	}
	// It may be on its way to another node. That it is off, or has no settings of its own, is not known of a guest that is not seen.
	return compute.Result{}, problem.Unavailablef("host %s has no guest %s", g.host.Name, g.server.GuestName)
}

// domain is what the hypervisor is to define, with the rescue image where it reads it itself.
func (c *Conductor) domain(g *managedServer, e hostOrder) (hypervisor.Domain, error) {
	d := hypervisor.Domain{Spec: *e.args.Spec, CHAP: map[string]secret.Value{}, Adopted: g.server.Foreign}
	for volume, password := range e.secret.CHAP {
		d.CHAP[volume] = secret.New(password)
	}
	if d.Rescue == nil {
		return d, nil
	}
	src := d.Rescue.Source
	if src.Kind != rescue.ISO {
		return d, problem.Unsupportedf("rescue image %q is a %s: host %s boots ISO images only", src.Name, src.Kind, g.host.Name)
	}
	if src.LocationType == "" && d.Rescue.Image != nil && d.Rescue.Image.URL != "" {
		d.RescueImage = d.Rescue.Image.URL
		return d, nil
	}
	at, err := compute.RescuePath(c.RescueImagePath, &src)
	if err != nil {
		return d, problem.New(problem.KindOf(err), "host %s: %w", g.host.Name, err)
	}
	d.RescueImage = at
	return d, nil
}
