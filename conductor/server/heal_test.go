package server

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

// TestHealing: a host that dies is called dead by its lease and its BMC, fenced, and evacuated by its group's policy; nobody asked.
func TestHealing(t *testing.T) {
	t.Parallel()
	y := newLot(t, site{node: true})
	ctx, cancel := context.WithCancel(t.Context())
	y.power = metal.PowerOff
	others := []*compute.Host{{Name: "west"}, {Name: "north"}}
	must.OK(t, y.store.Do(ctx, func(tx job.Tx) error {
		groups, err := y.store.HostGroups().List(ctx, tx, compute.HostGroupFilter{Name: "strict"}, record.Page{Limit: 1})
		if err != nil {
			return err
		}
		groups[0].Healing = true
		for _, h := range others {
			h.Record, h.Kind, h.BootID, h.Group, h.Inventory = record.Record{ID: uuid.NewString()}, compute.AgentHost, "b", "strict", y.host.Inventory
			if err := y.store.Hosts().Insert(tx, h); err != nil {
				return err
			}
		}
		return y.store.HostGroups().Save(tx, groups[0])
	}))
	y.services.Liveness.SetSenses(y.con.HealthSources(ctx))
	h := y.testHost()
	stop := h.conduct(t)
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { y.services.Leases.RunLeases(ctx, func(error) {}) })
	began, suspected, fenced := y.now(), "", time.Duration(0)
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not healed: %s; thought %q", y.picture(t), suspected)
		}
		y.pass(25 * time.Millisecond)
		for _, o := range others {
			must.Get(y.services.Leases.Renew(ctx, o.ID, "", compute.Renewal{BootID: "b", Name: o.Name}))(t)
			y.refuse(t, o.ID)
		}
		lives := must.Get(y.services.Liveness.All(ctx))(t)
		if now := lives[y.host.ID].Verdict; now != "" {
			if dead := strings.Contains(now, "its BMC says off"); dead != lives[y.host.ID].Suspected {
				t.Errorf("suspected: %v; thought %q", !dead, now)
			}
			if suspected != now {
				t.Logf("after %s: %s", y.now().Sub(began).Round(100*time.Millisecond), now)
			}
			suspected = now
		}
		if fenced == 0 && len(y.receipts(t)) > 0 {
			fenced = y.now().Sub(began)
		}
		plans := must.Get(y.services.Plans.List(ctx, compute.PlanFilter{HostID: y.host.ID}, record.Page{}))(t)
		if len(plans) > 0 && plans[0].State != compute.PlanDrafted {
			break
		}
	}
	receipts := y.receipts(t)
	if len(receipts) != 1 || !receipts[0].Has(compute.PowerCut) || receipts[0].By != "" {
		t.Errorf("receipts: %s", y.picture(t))
	}
	// What is thought of a host is replaced soon; its timeline keeps it.
	events := must.Get(y.store.Events(ctx, compute.HostSubject(y.host.ID), 0, 1000))(t)
	if !slices.ContainsFunc(events, func(e job.Event) bool {
		return strings.HasPrefix(e.Text, "suspected to be dead") && strings.Contains(e.Text, "its BMC says off")
	}) {
		t.Errorf("events %+v", events)
	}
	t.Logf("fenced %s after its last word, evacuating after %s", fenced.Round(100*time.Millisecond), y.now().Sub(began).Round(100*time.Millisecond))
}

// refuse plays a host that answers each order with a no.
func (y *fenceWorld) refuse(t *testing.T, hostID string) {
	t.Helper()
	ctx := context.Background()
	orders := must.Get(y.store.OpenOrders(ctx, hostID))(t)
	for _, o := range orders {
		must.OK(t, y.store.Do(ctx, func(tx job.Tx) error {
			_, err := y.store.FinishOrder(tx, o.ID, hostID, o.BootID, o.Epoch, compute.Result{ErrorKind: problem.Unsupported.String(), Error: "not here"})
			return err
		}))
	}
}
