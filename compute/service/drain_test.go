package service_test

import (
	"testing"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// TestADrainBeginsNothingAtADeadHost: the next item of a drain stays where it is once the host has gone.
func TestADrainBeginsNothingAtADeadHost(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	p := &compute.Plan{Record: record.Record{ID: newID()}, HostID: w.host.ID, State: compute.PlanRunning, Drain: true}
	item := &compute.PlanItem{ServerID: s.ID, Disposition: compute.KeepDisk}
	begin := func() error {
		return w.store.Do(w.ctx, func(tx job.Tx) error { return w.Plans.BeginDrained(w.ctx, tx, p, item, admin.Asker) })
	}
	w.pass(compute.Suspect)
	err := begin()
	w.want(err, problem.Conflict)
	if w.refuses(err, "is down"); compute.Transient(err) {
		t.Errorf("%v: asked again and again", err)
	}
	w.renew(w.host, "boot-1")
	w.no(begin())
}
