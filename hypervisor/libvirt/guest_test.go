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
		if got := shutoffPower(reason, false); got != want {
			t.Errorf("reason %d: %s instead of %s", reason, got, want)
		}
	}
}
