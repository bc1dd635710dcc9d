package libvirt

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	rpc "github.com/digitalocean/go-libvirt"

	"salvor/compute"
	"salvor/problem"
)

// powers are libvirt's states as powers. A guest that is shutting down still runs.
var powers = map[rpc.DomainState]compute.Power{
	rpc.DomainRunning: compute.PowerOn, rpc.DomainBlocked: compute.PowerOn, rpc.DomainShutdown: compute.PowerOn,
	rpc.DomainPaused: compute.PowerPaused, rpc.DomainPmsuspended: compute.PowerPaused,
	rpc.DomainShutoff: compute.PowerOff, rpc.DomainCrashed: compute.PowerCrashed,
}

func (h *Hypervisor) Guests(ctx context.Context) ([]compute.Guest, error) {
	all, err := callLibvirt(ctx, h, "list guests", h.opts.Timeout, func(c *rpc.Libvirt) ([]rpc.Domain, error) {
		domains, _, err := c.ConnectListAllDomains(1, rpc.ConnectListDomainsActive|rpc.ConnectListDomainsInactive)
		return domains, err
	})
	if err != nil {
		return nil, err
	}
	guests := make([]compute.Guest, 0, len(all))
	for _, dom := range all {
		if isHelper(dom) {
			continue
		}
		g, err := h.guest(ctx, dom)
		if problem.Is(err, problem.NotFound) {
			continue // it ended meanwhile
		}
		if errors.Is(err, errDefinition) {
			g.Power = compute.PowerUnknown // of one guest nothing is known; of the others all is
		} else if err != nil {
			return nil, err
		}
		guests = append(guests, g)
	}
	return guests, nil
}

// power is a guest's true power; a guest that is being started is on.
func (h *Hypervisor) power(ctx context.Context, dom rpc.Domain) (compute.Power, error) {
	look, err := h.lookAtPower(ctx, dom)
	return look.power, err
}

// powerLook is a look at the power of a guest.
type powerLook struct {
	power compute.Power
	// starting: libvirt starts the guest at the moment.
	starting bool
	// saving: the guest stands still while somebody writes its memory to a file: virsh managedsave, save, dump, or a snapshot of a backup tool.
	saving bool
	// isSplit: a post-copy migration has sent a part of the guest's memory to another host, where the guest ran on with it.
	isSplit bool
	// pause is why it stands still, where that is neither salvor's work nor libvirt's own for a moment.
	pause compute.PauseReason
}

// pauseReasons are the reasons of libvirt for which a guest stands still until somebody does something.
var pauseReasons = map[rpc.DomainPausedReason]compute.PauseReason{
	rpc.DomainPausedUser: compute.PausedByUser, rpc.DomainPausedIoerror: compute.PausedByIOError,
	rpc.DomainPausedWatchdog: compute.PausedByWatchdog, rpc.DomainPausedCrashed: compute.PausedByPanic,
	rpc.DomainPausedFromSnapshot: compute.PausedBySnapshot, rpc.DomainPausedPostcopyFailed: compute.PausedByPostcopy,
}

// passingPauses are the reasons for which libvirt holds a guest only as long as a call lasts: a migration, a save, a dump, a snapshot, the end of the guest.
var passingPauses = []rpc.DomainPausedReason{
	rpc.DomainPausedMigration, rpc.DomainPausedPostcopy, rpc.DomainPausedSave, rpc.DomainPausedDump, rpc.DomainPausedSnapshot, rpc.DomainPausedShuttingDown,
}

// pauseOf is why a guest stands still that libvirt shows as paused; empty: libvirt holds it for a call that ends. libvirt shows no reason when QEMU
// stopped the guest while libvirt was away, and another one when the end of a call could not let the guest go on (API_ERROR): neither passes by itself, so a
// reason of a later libvirt is taken for such a one too.
func pauseOf(reason rpc.DomainPausedReason) compute.PauseReason {
	known, ok := pauseReasons[reason]
	switch {
	case ok:
		return known
	case slices.Contains(passingPauses, reason):
		return ""
	}
	return compute.PausedUnknown
}

// isMemoryWritten tells whether a guest is paused because its memory is being written to a file. The guest goes on, or is off, when that ends.
func isMemoryWritten(reason rpc.DomainPausedReason) bool {
	return reason == rpc.DomainPausedSave || reason == rpc.DomainPausedDump || reason == rpc.DomainPausedSnapshot
}

func (h *Hypervisor) lookAtPower(ctx context.Context, dom rpc.Domain) (powerLook, error) {
	return callLibvirt(ctx, h, "read the power of guest "+dom.Name, h.opts.Timeout, func(c *rpc.Libvirt) (powerLook, error) {
		state, reason, err := c.DomainGetState(dom, 0)
		if err != nil {
			return powerLook{}, err
		}
		look := lookAtState(rpc.DomainState(state), reason)
		if look.power != compute.PowerOff {
			return look, nil
		}
		saved, err := c.DomainHasManagedSaveImage(dom, 0)
		if err != nil {
			return powerLook{}, err
		}
		look = powerLook{power: shutoffPower(rpc.DomainShutoffReason(reason), saved != 0, h.wasEndedByHost(dom))}
		if saved == 0 {
			look.pause = shutoffPause(rpc.DomainShutoffReason(reason))
		}
		return look, nil
	})
}

// isBeingSaved tells whether somebody saves the guest's memory at the moment. libvirt begins the job before it pauses a guest that runs, and it keeps the
// former reason of a guest that was paused before. The call waits for other jobs of the guest, so no list of guests makes it. A guest that has ended
// meanwhile, or that is migrating to this host, is being saved by nobody.
func isBeingSaved(c *rpc.Libvirt, dom rpc.Domain) (bool, error) {
	_, params, err := c.DomainGetJobStats(dom, 0)
	if isCode(err, rpc.ErrOperationInvalid) || isCode(err, rpc.ErrOperationUnsupported) {
		return false, nil
	}
	return isSaveJob(params), err
}

// isSaveJob tells whether the statistics of a job of libvirt are of one that saves the guest's memory.
func isSaveJob(params []rpc.TypedParam) bool {
	return slices.ContainsFunc(params, func(p rpc.TypedParam) bool {
		operation, ok := p.Value.I.(int32)
		return ok && p.Field == rpc.DomainJobOperationStr && rpc.DomainJobOperation(operation) == rpc.DomainJobOperationStrSave
	})
}

// lookAtState is what a state of libvirt and its reason tell. Why a guest is off is left to shutoffPower.
func lookAtState(state rpc.DomainState, reason int32) powerLook {
	look := powerLook{power: powers[state]}
	switch {
	case state == rpc.DomainPmsuspended:
		look.pause = compute.PausedBySleep
	case state == rpc.DomainPaused && rpc.DomainPausedReason(reason) == rpc.DomainPausedStartingUp:
		return powerLook{power: compute.PowerOn, starting: true}
	case state == rpc.DomainPaused:
		why := rpc.DomainPausedReason(reason)
		look.pause, look.saving = pauseOf(why), isMemoryWritten(why)
		look.isSplit = why == rpc.DomainPausedPostcopy || why == rpc.DomainPausedPostcopyFailed
	}
	return look
}

// crashReasons are the reasons for which a guest is shut off that are crashes.
var crashReasons = []rpc.DomainShutoffReason{rpc.DomainShutoffCrashed, rpc.DomainShutoffFailed, rpc.DomainShutoffDaemon}

// shutoffPower is the power of a guest that libvirt shows as shut off for a reason. isSaved: its memory lies on the host's disk. A guest that nobody ended has crashed: its QEMU died or was
// killed, did not start, or was ended by libvirt, which could not reach it any more. Its own shutdown and a destroy are a stop. libvirt calls the end of a
// QEMU by SIGTERM a shutdown, too: byHost tells that libvirt's event named the host and not the guest.
func shutoffPower(reason rpc.DomainShutoffReason, isSaved, byHost bool) compute.Power {
	switch {
	case isSaved:
		return compute.PowerSaved
	case byHost && reason == rpc.DomainShutoffShutdown, slices.Contains(crashReasons, reason):
		return compute.PowerCrashed
	}
	return compute.PowerOff
}

// shutoffPause is why a guest without a managed save image is shut off, where that is no end of it: virsh save has written its memory to a file that
// libvirt does not remember. libvirt forgets the reason, too, when it is restarted.
func shutoffPause(reason rpc.DomainShutoffReason) compute.PauseReason {
	if reason == rpc.DomainShutoffSaved {
		return compute.SavedToFile
	}
	return ""
}

func (h *Hypervisor) guest(ctx context.Context, dom rpc.Domain) (compute.Guest, error) {
	g := compute.Guest{ID: uuid.UUID(dom.UUID).String(), Name: dom.Name}
	look, err := h.lookAtPower(ctx, dom)
	if err != nil {
		return g, err
	}
	g.Power, g.Pause.Reason = look.power, look.pause
	live, err := h.describe(ctx, dom, 0)
	if err != nil {
		return g, err
	}
	next, running := live, live.ID != nil
	if running {
		if next, err = h.persistent(ctx, dom); err != nil {
			return g, err
		}
	}
	auto, err := callLibvirt(ctx, h, "read guest "+dom.Name, h.opts.Timeout, func(c *rpc.Libvirt) (int32, error) {
		on, err := c.DomainGetAutostart(dom)
		if isCode(err, rpc.ErrOperationInvalid) || isCode(err, rpc.ErrInternalError) {
			return 0, nil // it has no persistent definition
		}
		return on, err
	})
	if err != nil {
		return g, err
	}
	g.Autostart = auto != 0
	if m := next.mark; m.ID == g.ID {
		g.Ours, g.Epoch, g.Incarnation, g.Rescue = true, m.Epoch, m.Incarnation, m.Rescue
		g.InRescue = running && live.mark.Rescue != ""
		g.Drift, g.NextDisks = h.driftOf(ctx, next), disksOf(&next.Domain)
		g.StateStamp = h.stateStamp(next)
	}
	fillFromDefinition(&g, &live.Domain)
	return g, nil
}

// SetAutostart says whether libvirt starts a guest when it starts itself.
func (h *Hypervisor) SetAutostart(ctx context.Context, id string, on bool) error {
	dom, err := h.find(ctx, id)
	if err != nil {
		return err
	}
	want := int32(0)
	if on {
		want = 1
	}
	return callOnly(ctx, h, "set the autostart of guest "+dom.Name, h.opts.Timeout, func(c *rpc.Libvirt) error { return c.DomainSetAutostart(dom, want) })
}

// fillFromDefinition takes over what a definition says of a guest's size and NICs.
func fillFromDefinition(g *compute.Guest, def *libvirtxml.Domain) {
	if def.VCPU != nil {
		g.VCPUs = int(def.VCPU.Value)
	}
	if def.Memory != nil {
		g.RAM = int(toMebibytes(uint64(def.Memory.Value), def.Memory.Unit))
	}
	if def.Devices == nil {
		return
	}
	for _, d := range def.Devices.Disks {
		if d.Device != "cdrom" {
			g.Files = append(g.Files, chainOf(d.Source, nil)...)
			for _, file := range chainOf(nil, d.BackingStore) {
				if strings.Contains(file, g.ID) { // many guests may be based on one image, which none of them owns
					g.Files = append(g.Files, file)
				}
			}
		}
	}
	g.Disks = disksOf(def)
	for _, n := range def.Devices.Interfaces {
		nic := compute.NIC{}
		if n.MAC != nil {
			nic.MAC = strings.ToLower(n.MAC.Address)
		}
		if n.Source != nil && n.Source.Bridge != nil {
			nic.Bridge = n.Source.Bridge.Bridge
		}
		g.NICs = append(g.NICs, nic)
	}
}

// toMebibytes reads an amount of memory; libvirt itself always tells KiB.
func toMebibytes(value uint64, unit string) uint64 {
	switch unit {
	case "b", "bytes":
		return value >> 20
	case "M", "MiB":
		return value
	case "G", "GiB":
		return value << 10
	}
	return value >> 10
}
