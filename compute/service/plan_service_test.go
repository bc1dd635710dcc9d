package service_test

import (
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

// plan inserts one for the world's host.
func (w *world) plan(state compute.PlanState, items ...compute.PlanItem) *compute.Plan {
	w.t.Helper()
	p := &compute.Plan{Record: record.Record{ID: newID(), CreatedAt: w.now()}, HostID: w.host.ID, State: state, Parallel: 4, Items: items}
	w.tx(func(tx job.Tx) error { return w.store.Plans().Insert(tx, p) })
	return p
}

// TestConsentWhileAPlanRuns: it is heard, and the server's turn comes.
func TestConsentWhileAPlanRuns(t *testing.T) {
	w := newWorld(t)
	p := w.plan(compute.PlanRunning, compute.PlanItem{ServerID: newID(), Name: "web", Disposition: compute.Reimage, NeedsConsent: true, DestID: newID()})
	id := p.Items[0].ServerID
	_, err := w.Plans.Run(w.ctx, p.ID, compute.PlanConsent{Servers: []string{newID()}}, admin)
	w.want(err, problem.Invalid)
	_, err = w.Plans.Run(w.ctx, p.ID, compute.PlanConsent{}, admin)
	w.no(err)
	if at, err := w.Plans.Progress(w.ctx, p.ID); err != nil || len(at.Next) != 0 {
		t.Fatalf("%+v, %v", at, err)
	}
	_, err = w.Plans.Run(w.ctx, p.ID, compute.PlanConsent{Servers: []string{id}}, admin)
	w.no(err)
	if at, err := w.Plans.Progress(w.ctx, p.ID); err != nil || len(at.Next) != 1 || at.Next[0].ServerID != id {
		t.Fatalf("%+v, %v", at, err)
	}
}

// TestOldDraftsGo: with the next plan for the host those go that nobody ran for a day.
func TestOldDraftsGo(t *testing.T) {
	w := newWorld(t)
	old, ran := w.plan(compute.PlanDrafted), w.plan(compute.PlanDone)
	w.pass(23 * time.Hour)
	young := w.plan(compute.PlanDrafted)
	w.pass(2 * time.Hour)
	other := w.join("host-b")
	for _, host := range []*compute.Host{other, w.host} {
		must.Get(w.store.Plans().Get(w.ctx, nil, old.ID))(w.t)
		must.Get(w.Plans.Draft(w.ctx, compute.PlanRequest{Host: host.ID}, admin))(w.t)
	}
	_, err := w.store.Plans().Get(w.ctx, nil, old.ID)
	w.want(err, problem.NotFound)
	for _, p := range []*compute.Plan{ran, young} {
		must.Get(w.store.Plans().Get(w.ctx, nil, p.ID))(w.t)
	}
}
