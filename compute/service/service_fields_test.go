package service_test

import (
	"reflect"
	"testing"

	"salvor/compute"
	"salvor/test/must"
)

// TestEachFieldOfAHostHasAnEvent: what an operator says of a host stands in its timeline, whichever field it is, and by the operator's name.
func TestEachFieldOfAHostHasAnEvent(t *testing.T) {
	kind := reflect.TypeFor[compute.Service]()
	for i := range kind.NumField() {
		field := kind.Field(i)
		w := newWorld(t)
		g := compute.DefaultHostGroup()
		g.Name = "canary"
		must.OK(t, w.HostGroups.Create(w.ctx, g, admin.Asker))
		var v compute.Service
		at := reflect.ValueOf(&v).Elem().Field(i)
		word, yes := "canary", true
		switch {
		case field.Name == "NodeID":
			word = "0dd1e5c4-0001-4000-8000-00000000beef"
			at.Set(reflect.ValueOf(&word))
		case field.Name == "Found": // of a host that was removed with a reason
			continue
		case at.Type() == reflect.TypeFor[*string]():
			at.Set(reflect.ValueOf(&word))
		default:
			at.Set(reflect.ValueOf(&yes))
		}
		if field.Name == "Reason" {
			v.Disabled = nil
		}
		must.Get(w.Hosts.SetService(w.ctx, w.host.ID, v, admin.Asker))(t)
		events := must.Get(w.store.Latest(w.ctx, compute.HostSubject(w.host.ID), 9))(t)
		told := false
		for _, e := range events {
			told = told || e.User == admin.User
		}
		if !told {
			t.Errorf("a change of %s has no event of %s: %+v", field.Name, admin.User, events)
		}
	}
}
