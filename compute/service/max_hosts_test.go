package service_test

import (
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/test/must"
)

// TestTheGateIsOneForAllControlPlanes: whoever heals, and after whatever restart, no more hosts of a group than may be are healed in a
// cycle; that a fence was blocked, or that its receipt was closed, opens the gate for nobody.
func TestTheGateIsOneForAllControlPlanes(t *testing.T) {
	w := newWorld(t)
	hosts := w.healing(100, "host-b", "host-c", "host-d")
	begun := 0
	end := func() {
		for _, h := range hosts {
			for _, j := range w.hostJobs(h) {
				begun++
				w.run(j, job.Ended)
			}
		}
	}
	for range 4 { // each is a process that has just begun, and has listened
		w.no(w.Leases.FlushLeases(w.ctx))
		there, _ := w.other(0)
		there.Liveness.SetSenses(offSense{})
		for range 6 {
			w.no(there.Liveness.ListenOnce(w.ctx))
			w.pass(2 * time.Second)
			for _, h := range hosts[2:] {
				must.Get(there.Leases.Renew(w.ctx, h.ID, "01", compute.Renewal{BootID: "boot-1"}))(w.t)
			}
		}
		w.no(there.Liveness.ListenOnce(w.ctx))
		w.no(there.Leases.TendSuspects(w.ctx))
		end()
	}
	if begun != 1 {
		t.Errorf("%d hosts were healed in one cycle, of 1", begun)
	}
}
