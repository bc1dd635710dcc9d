package server

import (
	"context"
	"strings"
	"testing"

	"salvor/compute"
	"salvor/job"
	"salvor/storage"
	"salvor/test/must"
)

// exporting is a bareMetalWorld whose storage exports its volumes.
type exporting struct {
	*bareMetalWorld
	exports map[string]bool
}

func (e *exporting) Export(_ context.Context, volumeID, initiator string) (storage.Export, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.exports[initiator] = true
	return storage.Export{Portal: "10.0.0.1:3260", IQN: "iqn.2026-11.test:" + volumeID, LUN: 1}, nil
}

func (e *exporting) Unexport(_ context.Context, _, initiator string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.exports, initiator)
	return nil
}

// TestDeletionRevokesTheAdmittedInitiator: storage takes the leave of the name that it let in, also where the machine's first name is
// another one by now.
func TestDeletionRevokesTheAdmittedInitiator(t *testing.T) {
	t.Parallel()
	y := newDepot(t, begin{none: true})
	y.create(t, true)
	y.work(t)
	if s := y.now(t); s.State != compute.Active || !y.leaves["iqn.node-1"] {
		t.Fatalf("%s, fault %v, admitted %v", s.State, s.Fault, y.leaves)
	}
	y.mu.Lock()
	y.initiator = "iqn.2026-11.test:new"
	y.leaves[y.initiator] = true // by others
	y.mu.Unlock()
	y.act(t, compute.Act{Action: compute.Delete})
	y.work(t)
	if s := y.now(t); s.State != compute.Deleted || y.leaves["iqn.node-1"] || !y.leaves[y.initiator] {
		t.Errorf("%s, admitted %v; want the name that others gave leave to, and no other", s.State, y.leaves)
	}
}

// TestDeletionEndsTheExportOfTheAdmittedInitiator is the same with storage that exports each volume.
func TestDeletionEndsTheExportOfTheAdmittedInitiator(t *testing.T) {
	t.Parallel()
	y := newDepot(t, begin{none: true})
	e := &exporting{bareMetalWorld: y, exports: map[string]bool{}}
	y.con.Storage = e
	v := must.Get(y.store.Volumes().Get(context.Background(), nil, y.volume))(t)
	v.Portal, v.IQN = "", ""
	y.tx(t, func(tx job.Tx) error { return y.store.Volumes().Save(tx, v) })
	y.create(t, true)
	y.work(t)
	if s := y.now(t); s.State != compute.Active || !e.exports["iqn.node-1"] {
		t.Fatalf("%s, fault %v, exports %v", s.State, s.Fault, e.exports)
	}
	y.mu.Lock()
	y.initiator = "iqn.2026-11.test:new"
	y.mu.Unlock()
	y.act(t, compute.Act{Action: compute.Delete})
	y.work(t)
	if s := y.now(t); s.State != compute.Deleted || len(e.exports) > 0 {
		t.Errorf("%s, exports %v", s.State, e.exports)
	}
}

// TestTwoInitiatorsAreRefused: storage lets nobody in for a machine that has two names, since nobody can tell whose the other one is.
func TestTwoInitiatorsAreRefused(t *testing.T) {
	t.Parallel()
	y := newDepot(t, begin{none: true})
	y.planted = "iqn.2026-11.test:planted"
	y.create(t, true)
	y.work(t)
	s := y.now(t)
	if s.State != compute.Errored || s.Fault == nil || !strings.Contains(s.Fault.Message, "2 volume connectors of type iqn") {
		t.Errorf("%s, fault %+v", s.State, s.Fault)
	}
	if len(y.leaves) > 0 {
		t.Errorf("admitted %v", y.leaves)
	}
}
