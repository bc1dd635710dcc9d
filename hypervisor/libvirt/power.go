package libvirt

import (
	"context"
	"time"

	"github.com/google/uuid"

	rpc "github.com/digitalocean/go-libvirt"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
)

const (
	// pollEvery is how often a guest is looked at while it shuts down.
	pollEvery = 100 * time.Millisecond
	// pressEvery is how often the power button is pressed meanwhile: a system that boots does not hear it.
	pressEvery = 3 * time.Second
	// maxMoves bounds the way from one power state to another.
	maxMoves = 6
)

func (h *Hypervisor) SetPower(ctx context.Context, id string, p hypervisor.Power) (bool, error) {
	dom, err := h.find(ctx, id)
	if err != nil {
		return false, err
	}
	if p.State != compute.PowerOff && !p.Restart {
		return false, h.reach(ctx, dom, p.State, false)
	}
	soft, err := h.off(ctx, dom, p)
	if err != nil || p.State == compute.PowerOff {
		return soft, err
	}
	return soft, h.reach(ctx, dom, p.State, false)
}

// off ends a guest, softly first if that is asked for. Memory that was saved to disk is given up, unless it is to be kept.
func (h *Hypervisor) off(ctx context.Context, dom rpc.Domain, p hypervisor.Power) (soft bool, err error) {
	soft = p.Soft
	if p.Soft {
		if soft, err = h.shutDown(ctx, dom, p.Within); err != nil {
			return false, err
		}
	}
	return soft, h.reach(ctx, dom, compute.PowerOff, p.KeepSaved)
}

// shutDown asks the guest's own system to end, and tells whether the guest was off in time.
func (h *Hypervisor) shutDown(ctx context.Context, dom rpc.Domain, within time.Duration) (bool, error) {
	look := func() (powerLook, error) { return h.lookAtPower(ctx, dom) }
	return awaitShutdown(ctx, dom.Name, within, look, func() error {
		err := callOnly(ctx, h, "shut down guest "+dom.Name, h.opts.Timeout, func(c *rpc.Libvirt) error {
			return c.DomainShutdownFlags(dom, rpc.DomainShutdownDefault)
		})
		// The guest may have ended since the look, and an agent in it may not answer: the bound decides.
		if problem.Is(err, problem.Conflict) || isCode(err, rpc.ErrAgentUnresponsive) {
			return nil
		}
		return err
	})
}

// awaitShutdown presses the power button of a guest until the guest is off, and tells whether it was off within the bound. A guest that stands still
// hears no button, so awaitShutdown returns at once. A guest whose memory is being written is waited for: it may go on.
func awaitShutdown(ctx context.Context, guest string, within time.Duration, look func() (powerLook, error), press func() error) (bool, error) {
	deadline := time.Now().Add(within)
	var pressed time.Time
	for {
		now, err := look()
		switch {
		case err != nil:
			return false, err
		case now.power == compute.PowerOff:
			return true, nil
		case now.power != compute.PowerOn && !now.saving || !time.Now().Before(deadline):
			return false, nil
		}
		if !now.saving && time.Since(pressed) >= pressEvery {
			pressed = time.Now()
			if err := press(); err != nil {
				return false, err
			}
		}
		select {
		case <-ctx.Done():
			return false, problem.Unavailablef("shut down guest %s: %w", guest, ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

// powerStep is one call on the way from a power state to another.
type powerStep func(c *rpc.Libvirt, dom rpc.Domain) error

func startDomain(c *rpc.Libvirt, dom rpc.Domain) error { return c.DomainCreate(dom) }
func resumeDomain(c *rpc.Libvirt, dom rpc.Domain) error {
	state, _, err := c.DomainGetState(dom, 0)
	if err == nil && rpc.DomainState(state) == rpc.DomainPmsuspended {
		return c.DomainPmWakeup(dom, 0)
	}
	return c.DomainResume(dom)
}
func suspendDomain(c *rpc.Libvirt, dom rpc.Domain) error { return c.DomainSuspend(dom) }
func destroyDomain(c *rpc.Libvirt, dom rpc.Domain) error {
	return c.DomainDestroyFlags(dom, rpc.DomainDestroyDefault)
}
func saveDomain(c *rpc.Libvirt, dom rpc.Domain) error { return c.DomainManagedSave(dom, 0) }
func removeManagedSave(c *rpc.Libvirt, dom rpc.Domain) error {
	return c.DomainManagedSaveRemove(dom, 0)
}
func startPaused(c *rpc.Libvirt, dom rpc.Domain) error {
	_, err := c.DomainCreateWithFlags(dom, uint32(rpc.DomainStartPaused))
	return err
}

// moves are the next call from the first state to the second; a way that is not here is a Conflict.
var moves = map[[2]compute.Power]powerStep{
	{compute.PowerOff, compute.PowerOn}:       startDomain,
	{compute.PowerCrashed, compute.PowerOn}:   startDomain,
	{compute.PowerSaved, compute.PowerOn}:     startDomain,
	{compute.PowerPaused, compute.PowerOn}:    resumeDomain,
	{compute.PowerOn, compute.PowerOff}:       destroyDomain,
	{compute.PowerPaused, compute.PowerOff}:   destroyDomain,
	{compute.PowerSaved, compute.PowerOff}:    removeManagedSave,
	{compute.PowerOn, compute.PowerPaused}:    suspendDomain,
	{compute.PowerSaved, compute.PowerPaused}: startPaused,
	{compute.PowerOn, compute.PowerSaved}:     saveDomain,
	{compute.PowerPaused, compute.PowerSaved}: saveDomain,
}

// reach goes from whatever a guest is to a power state, looking again after each move. keepSaved: memory that is saved to disk is not given up, not even
// if it was saved after the caller's own look; reach refuses then. libvirt has no call that ends a guest only if nobody saves it, and a destroy cuts a save
// off. So the last call before the destroy asks for a save: a save that begins between these two calls is lost.
func (h *Hypervisor) reach(ctx context.Context, dom rpc.Domain, want compute.Power, keepSaved bool) error {
	look := func() (powerLook, error) {
		now, err := h.lookAtPower(ctx, dom)
		if err != nil || !keepSaved || now.saving || now.power != compute.PowerOn && now.power != compute.PowerPaused {
			return now, err
		}
		now.saving, err = callLibvirt(ctx, h, "read the job of guest "+dom.Name, h.opts.Timeout, func(c *rpc.Libvirt) (bool, error) { return isBeingSaved(c, dom) })
		return now, err
	}
	before := func() error { return h.beforeStart(ctx, dom, want) }
	return reachPower(ctx, dom.Name, h.opts.LongTimeout, want, keepSaved, look, before, func(next powerStep) error {
		return callOnly(ctx, h, "make guest "+dom.Name+" "+string(want), h.opts.LongTimeout, func(c *rpc.Libvirt) error { return next(c, dom) })
	})
}

// reachPower is reach with the calls to libvirt as arguments. before is called before each move of a guest that does not run.
func reachPower(ctx context.Context, guest string, within time.Duration, want compute.Power, keepSaved bool, look func() (powerLook, error),
	before func() error, move func(powerStep) error,
) error {
	var failed error
	for range maxMoves {
		settled, err := awaitSettled(ctx, guest, within, want, keepSaved, look)
		now := settled.power
		if err != nil {
			return err
		}
		if settled.isSplit && want != compute.PowerOff && want != compute.PowerPaused {
			return problem.Conflictf("guest %s: a post-copy migration that someone else began has sent a part of its memory to another host, where it ran on; it must not go on here with the rest. "+
				"If the migration failed, complete it with virsh migrate --postcopy-resume, or reboot the server hard, which gives the memory up", guest)
		}
		if now == want || want == compute.PowerOff && now == compute.PowerCrashed {
			return nil
		}
		if keepSaved && now == compute.PowerSaved && want == compute.PowerOff {
			return hypervisor.RefusalOfSaved(guest)
		}
		if failed != nil && !problem.Is(failed, problem.Conflict) {
			return failed
		}
		next, possible := moves[[2]compute.Power{now, want}]
		if !possible {
			return problem.Conflictf("guest %s: it is %s and cannot become %s", guest, now, want)
		}
		if now == compute.PowerSaved || now == compute.PowerOff || now == compute.PowerCrashed {
			if err := before(); err != nil {
				return err
			}
		}
		// A Conflict is a guest that changed since the look: the next look decides.
		failed = move(next)
	}
	if failed != nil {
		return failed
	}
	return problem.Conflictf("guest %s: it does not become %s", guest, want)
}

const lockedHint = " (if libvirt was killed amid the start, stop it, delete /run/libvirt/qemu/GUEST.xml, and start it: guests outlive that)"

// awaitSettled looks at a guest until nobody starts it and nobody writes its memory to a file. A guest that is to be off is waited for only while its
// memory is being written and keepSaved is set: whoever cuts the power does not wait.
//
// A daemon that was killed while it started a guest shows the guest as being started when it comes back, and then ends it: such a guest is not on.
// libvirt 9.0 that was killed just before it started the QEMU never ends it, and locks the guest; docs/hosts.md says what frees it.
func awaitSettled(ctx context.Context, guest string, within time.Duration, want compute.Power, keepSaved bool, look func() (powerLook, error)) (powerLook, error) {
	deadline := time.Now().Add(within)
	for {
		now, err := look()
		doing, hint := "", ""
		switch {
		case err != nil:
			return now, err
		case now.starting && want != compute.PowerOff:
			doing, hint = "started", lockedHint
		case now.saving && (want != compute.PowerOff || keepSaved):
			doing = "saved, dumped or snapshotted by someone else"
		default:
			return now, nil
		}
		if !time.Now().Before(deadline) {
			return now, problem.Unavailablef("guest %s: it has been being %s for %s%s", guest, doing, within, hint)
		}
		select {
		case <-ctx.Done():
			return now, problem.Unavailablef("guest %s: it is being %s%s: %w", guest, doing, hint, ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

// beforeStart brings back what a daemon forgot.
func (h *Hypervisor) beforeStart(ctx context.Context, dom rpc.Domain, want compute.Power) error {
	if want == compute.PowerOff {
		return nil
	}
	if err := h.endHelper(ctx, uuid.UUID(dom.UUID).String()); err != nil {
		return err
	}
	def, err := h.persistent(ctx, dom)
	if err != nil {
		return err
	}
	return h.restoreSecrets(ctx, &def.Domain)
}

// destroy ends a guest by force; one that does not run is no error.
func (h *Hypervisor) destroy(ctx context.Context, dom rpc.Domain) error {
	return h.reach(ctx, dom, compute.PowerOff, false)
}
