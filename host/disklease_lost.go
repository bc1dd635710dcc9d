package host

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	wire "salvor/wire/host"
)

// lose ends the guest of a disk that another host took.
func (d *diskLeases) lose(ctx context.Context, h *heldLease, l diskLease) {
	server := h.server
	d.drop(ctx, h, false)
	d.mu.Lock()
	d.lost[server] = l
	d.mu.Unlock()
	go d.endGuest(ctx, server, l)
}

// endGuest ends at once, by force, a guest whose disk belongs to another host. No order that is in hand is waited for.
func (d *diskLeases) endGuest(ctx context.Context, server string, l diskLease) {
	a := d.agent
	a.Log.Error("the guest is ended: its disk belongs to another host", "server", server, "owner", l.owner())
	bounded, cancel := context.WithTimeout(ctx, endWithin)
	defer cancel()
	_, err := runWithContext(bounded, func() (bool, error) {
		return a.Hypervisor.SetPower(bounded, server, hypervisor.Power{State: compute.PowerOff})
	})
	if err != nil && !problem.Is(err, problem.NotFound) {
		a.Log.Error("end a guest whose disk belongs to another host", "server", server, "error", err)
		return
	}
	d.mu.Lock()
	delete(d.lost, server)
	d.mu.Unlock()
	a.lease.note(wire.LocalAction{ServerID: server, Text: "ended it: its disk belongs to " + l.owner(), At: time.Now().UTC()})
	a.observed.look()
}

// endLost ends again what could not be ended.
func (d *diskLeases) endLost(ctx context.Context, v *seenGuests) {
	d.mu.Lock()
	lost := make(map[string]diskLease, len(d.lost))
	for server, l := range d.lost {
		lost[server] = l
	}
	d.mu.Unlock()
	var all sync.WaitGroup
	defer all.Wait()
	for server, l := range lost {
		now, err := v.now(ctx)
		if g, there := now[server]; err == nil && (!there || !mayRun(g.Power)) {
			d.mu.Lock()
			delete(d.lost, server)
			d.mu.Unlock()
			continue
		}
		all.Go(func() { d.endGuest(ctx, server, l) })
	}
}

// adoptRunning gets the lease of a guest that runs here without one: the agent is new, or of a new release, or has a new identity.
func (d *diskLeases) adoptRunning(ctx context.Context, s *diskStore, path, server string, v *seenGuests) {
	unlock, ok := d.agent.lock(server)
	if !ok {
		return
	}
	defer unlock()
	d.mu.Lock()
	arriving := d.arriving[server]
	d.mu.Unlock()
	now, err := v.now(ctx)
	g, there := now[server]
	if arriving || err != nil || !there || g.Power != compute.PowerOn || d.heldAt(path) != nil {
		return
	}
	c := diskLeaseClaim{server: server, epoch: g.Epoch}
	looked, err := d.agent.Alive()
	if err != nil {
		return
	}
	l, raw, err := d.look(ctx, s, path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if there, statErr := withStoreTimeout(ctx, s, func() (bool, error) { return fileIsThere(diskOf(path)), nil }); statErr == nil && there {
			err = d.create(ctx, s, path, c)
		}
	case err != nil:
	case d.mine(l) || l.Boot == d.agent.boot && l.Epoch <= g.Epoch:
		// The same boot under another identity is this machine, whose agent lost its state directory.
		err = d.resume(ctx, s, path)
	case l.Host != d.agent.identity.id && l.Epoch > g.Epoch:
		go d.endGuest(ctx, server, l)
		return
	case l.State == leaseFree:
		err = d.take(ctx, s, path, c, looked, false)
	default:
		err = d.adoptHeld(ctx, s, path, l, raw, g, looked)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.complain(err, path)
	}
}

// adoptHeld decides on a guest that runs here while the lease of its disk says that another owner, which is no newer, has it. An owner that
// does not renew it has gone. Of two that live the newer one stays.
func (d *diskLeases) adoptHeld(ctx context.Context, s *diskStore, path string, l diskLease, raw []byte, g compute.Guest, looked time.Duration) error {
	age, renewed, err := d.unchanged(path, l, raw)
	c := diskLeaseClaim{server: g.ID, epoch: g.Epoch}
	switch {
	case err != nil:
		return err
	case renewed && l.Epoch == g.Epoch:
		go d.endGuest(ctx, g.ID, l)
		return nil
	case renewed || age >= d.watch:
		return d.take(ctx, s, path, c, looked, true)
	}
	return nil
}
