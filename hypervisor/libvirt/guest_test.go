package libvirt

import (
	"testing"

	rpc "github.com/digitalocean/go-libvirt"

	"salvor/compute"
)

// TestShutoffReasons: only a guest that nobody ended is told as crashed; it is started again, and a shutdown from inside stays a stop.
func TestShutoffReasons(t *testing.T) {
	for reason, want := range map[rpc.DomainShutoffReason]compute.Power{
		rpc.DomainShutoffUnknown:      compute.PowerOff,
		rpc.DomainShutoffShutdown:     compute.PowerOff,
		rpc.DomainShutoffDestroyed:    compute.PowerOff,
		rpc.DomainShutoffCrashed:      compute.PowerCrashed,
		rpc.DomainShutoffMigrated:     compute.PowerOff,
		rpc.DomainShutoffSaved:        compute.PowerOff,
		rpc.DomainShutoffFailed:       compute.PowerCrashed,
		rpc.DomainShutoffFromSnapshot: compute.PowerOff,
		rpc.DomainShutoffDaemon:       compute.PowerCrashed,
	} {
		if got := shutoffPower(reason, false, false); got != want {
			t.Errorf("reason %d: %s instead of %s", reason, got, want)
		}
		if got := shutoffPower(reason, true, true); got != compute.PowerSaved {
			t.Errorf("reason %d, with saved memory: %s instead of saved", reason, got)
		}
		pause := compute.PauseReason("")
		if reason == rpc.DomainShutoffSaved {
			pause = compute.SavedToFile
		}
		if got := shutoffPause(reason); got != pause {
			t.Errorf("reason %d: pause %q instead of %q", reason, got, pause)
		}
		if reason == rpc.DomainShutoffShutdown {
			want = compute.PowerCrashed
		}
		if got := shutoffPower(reason, false, true); got != want {
			t.Errorf("reason %d, ended by a signal of the host: %s instead of %s", reason, got, want)
		}
	}
}

// TestPausedStates: a guest that stands still tells why, unless libvirt stops it for as long as a call of libvirt lasts. A guest that libvirt starts at the
// moment is on.
func TestPausedStates(t *testing.T) {
	for reason, want := range map[rpc.DomainPausedReason]powerLook{
		rpc.DomainPausedUnknown:        {power: compute.PowerPaused, pause: compute.PausedUnknown},
		rpc.DomainPausedUser:           {power: compute.PowerPaused, pause: compute.PausedByUser},
		rpc.DomainPausedMigration:      {power: compute.PowerPaused},
		rpc.DomainPausedSave:           {power: compute.PowerPaused, saving: true},
		rpc.DomainPausedDump:           {power: compute.PowerPaused, saving: true},
		rpc.DomainPausedIoerror:        {power: compute.PowerPaused, pause: compute.PausedByIOError},
		rpc.DomainPausedWatchdog:       {power: compute.PowerPaused, pause: compute.PausedByWatchdog},
		rpc.DomainPausedFromSnapshot:   {power: compute.PowerPaused, pause: compute.PausedBySnapshot},
		rpc.DomainPausedShuttingDown:   {power: compute.PowerPaused},
		rpc.DomainPausedSnapshot:       {power: compute.PowerPaused, saving: true},
		rpc.DomainPausedCrashed:        {power: compute.PowerPaused, pause: compute.PausedByPanic},
		rpc.DomainPausedStartingUp:     {power: compute.PowerOn, starting: true},
		rpc.DomainPausedPostcopy:       {power: compute.PowerPaused, isSplit: true},
		rpc.DomainPausedPostcopyFailed: {power: compute.PowerPaused, isSplit: true, pause: compute.PausedByPostcopy},
		rpc.DomainPausedAPIError:       {power: compute.PowerPaused, pause: compute.PausedUnknown},
		rpc.DomainPausedAPIError + 1:   {power: compute.PowerPaused, pause: compute.PausedUnknown}, // of a later libvirt
	} {
		if got := lookAtState(rpc.DomainPaused, int32(reason)); got != want {
			t.Errorf("paused for reason %d: %+v, want %+v", reason, got, want)
		}
	}
	for state, want := range map[rpc.DomainState]powerLook{
		rpc.DomainRunning: {power: compute.PowerOn}, rpc.DomainShutdown: {power: compute.PowerOn}, rpc.DomainShutoff: {power: compute.PowerOff},
		rpc.DomainCrashed: {power: compute.PowerCrashed}, rpc.DomainPmsuspended: {power: compute.PowerPaused, pause: compute.PausedBySleep},
	} {
		if got := lookAtState(state, int32(rpc.DomainPausedStartingUp)); got != want {
			t.Errorf("state %d: %+v, want %+v", state, got, want)
		}
	}
}

// TestEndsByASignal: the end of a QEMU by a signal of the host is remembered of that guest until it starts again, or is undefined.
func TestEndsByASignal(t *testing.T) {
	guest, other := rpc.Domain{UUID: rpc.UUID{1}}, rpc.Domain{UUID: rpc.UUID{2}}
	type event struct {
		kind   rpc.DomainEventType
		detail int32
	}
	bySignal, byItself := event{rpc.DomainEventShutdown, int32(rpc.DomainEventShutdownHost)}, event{rpc.DomainEventShutdown, int32(rpc.DomainEventShutdownGuest)}
	for name, c := range map[string]struct {
		events []event
		want   bool
	}{
		"nothing":                    {nil, false},
		"by its own system":          {[]event{byItself}, false},
		"by libvirt":                 {[]event{{rpc.DomainEventShutdown, int32(rpc.DomainEventShutdownFinished)}}, false},
		"by a signal":                {[]event{bySignal}, true},
		"by a signal, and stopped":   {[]event{bySignal, {rpc.DomainEventStopped, 0}}, true},
		"by a signal, and started":   {[]event{bySignal, {rpc.DomainEventStarted, 0}, byItself}, false},
		"by a signal, and undefined": {[]event{bySignal, {rpc.DomainEventUndefined, 0}}, false},
		"suspended":                  {[]event{{rpc.DomainEventSuspended, int32(rpc.DomainEventShutdownHost)}}, false},
	} {
		h := &Hypervisor{}
		for _, e := range c.events {
			h.noteEnd(rpc.DomainEventLifecycleMsg{Dom: guest, Event: int32(e.kind), Detail: e.detail})
		}
		if got := h.wasEndedByHost(guest); got != c.want || h.wasEndedByHost(other) {
			t.Errorf("%s: ended by the host: %v, another guest too: %v; want %v, false", name, got, h.wasEndedByHost(other), c.want)
		}
	}
}
