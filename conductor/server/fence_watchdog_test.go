package server

import (
	"context"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/test/fixture"
	"salvor/test/must"
)

// TestAWatchdogHasItsTime: a host whose watchdog is armed is proven off when the watchdog has reset it, and no earlier.
func TestAWatchdogHasItsTime(t *testing.T) {
	t.Parallel()
	y := newLot(t, site{watchdog: "i6300esb"})
	y.pass(9 * time.Second)
	w := y.world(nil, nil)
	h := y.testHost()
	stop := h.conduct(t)
	defer stop()
	id, waited := y.ask(t, compute.FenceArgs{}), false
	fixture.Poll(t, "the fence ends", func() bool {
		w.Poke()
		j := must.Get(y.store.Job(context.Background(), nil, id))(t)
		if !waited && strings.Contains(j.WaitFor, "the watchdog of host") {
			waited = true
			y.pass(compute.SelfFenceEvidence - 9*time.Second)
		}
		return j.State == job.Ended
	}, y.picture)
	if !waited {
		t.Error("the host counts as fenced before its watchdog has reset it")
	}
	if all := y.receipts(t); len(all) != 1 || len(all[0].Proofs) != 1 || all[0].Proofs[0].Evidence != compute.SelfFenced {
		t.Errorf("no receipt by the watchdog: %s", y.picture(t))
	}
}
