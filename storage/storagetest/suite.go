// Package storagetest is the contract suite of storages: what Allow, Revoke, Sessions, Export
// and Unexport promise, held against one that serves real or played initiators. It knows
// no storage by name.
package storagetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"salvor/problem"
	"salvor/storage"
)

// World is a storage with two targets that nobody uses.
type World struct {
	Storage storage.Storage
	// Targets are two; Initiators two names.
	Targets, Initiators [2]string
	// Login has an initiator log in to a target and stay: an error if it is refused. The connection ends with logout.
	Login func(t *testing.T, target, initiator string) (logout func(), err error)
	// Volume is the id of a volume that can be exported; empty: the storage is no Exporter.
	Volume string
}

// Run holds a storage to its contract.
func Run(t *testing.T, w World) {
	t.Run("allow", func(t *testing.T) { w.allow(t) })
	t.Run("revoke", func(t *testing.T) { w.revoke(t) })
	t.Run("export", func(t *testing.T) { w.export(t) })
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (w World) allow(t *testing.T) {
	ctx, one, two := within(t), w.Initiators[0], w.Initiators[1]
	for range 2 {
		must(t, "allow", w.Storage.Allow(ctx, w.Targets[0], one))
	}
	logout, err := w.Login(t, w.Targets[0], one)
	must(t, "who is allowed logs in", err)
	if !w.connected(t, w.Targets[0], one) {
		t.Error("who is logged in is not among the sessions")
	}
	logout()
	if _, err := w.Login(t, w.Targets[0], two); err == nil {
		t.Error("who is not allowed logged in")
	}
	if err := w.Storage.Allow(ctx, w.Targets[0]+"-none", one); err == nil {
		t.Error("a target that is not there was allowed to someone")
	}
	if err := w.Storage.Allow(ctx, w.Targets[0], "no name at all\n"); !problem.Is(err, problem.Invalid) {
		t.Errorf("a name that is none: %v", err)
	}
}

func (w World) revoke(t *testing.T) {
	ctx, one, two := within(t), w.Initiators[0], w.Initiators[1]
	for _, target := range w.Targets {
		must(t, "allow", w.Storage.Allow(ctx, target, one))
		must(t, "allow", w.Storage.Allow(ctx, target, two))
	}
	for _, target := range w.Targets {
		logout, err := w.Login(t, target, one)
		must(t, "log in", err)
		defer logout()
	}
	other, err := w.Login(t, w.Targets[0], two)
	must(t, "log in", err)
	defer other()
	for range 2 {
		must(t, "revoke", w.Storage.Revoke(ctx, one))
		for _, target := range w.Targets {
			if w.connected(t, target, one) {
				t.Errorf("%s is still connected to %s", one, target)
			}
			if _, err := w.Login(t, target, one); err == nil {
				t.Errorf("%s came back to %s", one, target)
			}
		}
	}
	if !w.connected(t, w.Targets[0], two) {
		t.Error("another initiator lost its connection")
	}
	must(t, "allow again", w.Storage.Allow(ctx, w.Targets[1], one))
	logout, err := w.Login(t, w.Targets[1], one)
	must(t, "log in again", err)
	logout()
	must(t, "revoke again", w.Storage.Revoke(ctx, one))
	must(t, "revoke one that was never there", w.Storage.Revoke(ctx, one+"-never"))
}

func (w World) export(t *testing.T) {
	if w.Volume == "" {
		return
	}
	ctx, x := within(t), w.Storage.(storage.Exporter)
	var e storage.Export
	for range 2 {
		again, err := x.Export(ctx, w.Volume, w.Initiators[0])
		must(t, "export", err)
		if e.VolumeID != "" && again != e {
			t.Errorf("exported twice: %+v, then %+v", e, again)
		}
		e = again
	}
	logout, err := w.Login(t, e.IQN, w.Initiators[0])
	must(t, "log in to the export", err)
	defer logout()
	if _, err := w.Login(t, e.IQN, w.Initiators[1]); err == nil {
		t.Error("someone else logged in to the export")
	}
	for range 2 {
		must(t, "unexport", x.Unexport(ctx, w.Volume, w.Initiators[0]))
		if _, err := w.Login(t, e.IQN, w.Initiators[0]); err == nil || w.connected(t, e.IQN, w.Initiators[0]) {
			t.Error("what is not exported can be used")
		}
	}
	if _, err := x.Export(ctx, w.Volume+"-none", w.Initiators[0]); err == nil {
		t.Error("a volume that is not there was exported")
	}
	if _, err := x.Export(ctx, "../etc/passwd", w.Initiators[0]); err == nil {
		t.Error("a path was taken for a volume")
	}
}

// connected reads whether the initiator is among the sessions of a target.
func (w World) connected(t *testing.T, target, initiator string) bool {
	t.Helper()
	all, err := w.Storage.Sessions(within(t))
	must(t, "sessions", err)
	return slices.ContainsFunc(all, func(s storage.Session) bool { return s.Target == target && s.Initiator == initiator })
}
