package fake

import (
	"context"
	"encoding/json"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
)

var _ hypervisor.Migrator = (*Hypervisor)(nil)

// memory is what is sent of a running guest.
type memory struct {
	Starts    int                `json:"starts"`
	Variables string             `json:"variables"`
	Runs      *hypervisor.Domain `json:"runs"`
}

// Begin tells what the guest is.
func (h *Hypervisor) Begin(ctx context.Context, id string) ([]byte, error) {
	if err := h.enter(ctx, "Begin"); err != nil {
		return nil, err
	}
	defer h.mu.Unlock()
	g := h.guests[id]
	switch {
	case g == nil:
		return nil, problem.NotFoundf("there is no guest %s", id)
	case g.Power != compute.PowerOn:
		return nil, problem.Conflictf("guest %s is %s: only a running guest is moved live", id, g.Power)
	}
	return json.Marshal(memory{Starts: g.Starts, Variables: g.Variables, Runs: g.Runs})
}

// Prepare holds a place for the guest, which is there from now on and does not run.
func (h *Hypervisor) Prepare(ctx context.Context, d hypervisor.Domain, listen string, cookie []byte) ([]byte, string, error) {
	if err := h.enter(ctx, "Prepare"); err != nil {
		return nil, "", err
	}
	defer h.mu.Unlock()
	var from memory
	if json.Unmarshal(cookie, &from) != nil || from.Runs == nil {
		return nil, "", problem.Invalidf("guest %s: what the source tells of it is not understood", d.ServerID)
	}
	if g := h.guests[d.ServerID]; g != nil && (!g.Ours || g.Power == compute.PowerOn) {
		return nil, "", problem.Conflictf("guest %s is here already", d.ServerID)
	}
	runs := *from.Runs
	runs.Spec.Epoch, runs.Spec.Incarnation = d.Epoch, d.Incarnation
	h.guests[d.ServerID] = &State{Defined: d, Runs: &runs, Power: compute.PowerPaused, Ours: true, Starts: from.Starts, Variables: from.Variables}
	return cookie, "fake://" + listen, nil
}

// Perform holds the guest: all of it is sent.
func (h *Hypervisor) Perform(ctx context.Context, id, peer string, cookie []byte) ([]byte, error) {
	if err := h.enter(ctx, "Perform"); err != nil {
		return nil, err
	}
	defer h.mu.Unlock()
	if g := h.guests[id]; g != nil {
		g.Power = compute.PowerPaused
	}
	return cookie, nil
}

// Finish lets the guest run, or throws it away.
func (h *Hypervisor) Finish(ctx context.Context, d hypervisor.Domain, cookie []byte, cancelled bool) ([]byte, error) {
	if err := h.enter(ctx, "Finish"); err != nil {
		return nil, err
	}
	defer h.mu.Unlock()
	g := h.guests[d.ServerID]
	switch {
	case cancelled && g != nil && g.Power == compute.PowerOn:
		return nil, problem.Conflictf("guest %s runs here", d.ServerID)
	case cancelled:
		delete(h.guests, d.ServerID)
		return nil, nil
	case g == nil:
		return nil, problem.NotFoundf("there is no guest %s", d.ServerID)
	}
	g.Power, g.Defined = compute.PowerOn, d
	return cookie, nil
}

// Confirm forgets the guest, or lets it go on.
func (h *Hypervisor) Confirm(ctx context.Context, id string, cookie []byte, cancelled bool) error {
	if err := h.enter(ctx, "Confirm"); err != nil {
		return err
	}
	defer h.mu.Unlock()
	g := h.guests[id]
	switch {
	case g == nil && cancelled:
		return problem.NotFoundf("there is no guest %s", id)
	case g == nil:
	case cancelled:
		g.Power = compute.PowerOn
	default:
		delete(h.guests, id)
	}
	return nil
}
