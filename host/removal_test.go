package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/problem"
	"salvor/test/must"
)

// TestRemovalLooksAtTheMarkerFirst: in a directory that is not the store that it was, no file is removed, whoever asks for it.
func TestRemovalLooksAtTheMarkerFirst(t *testing.T) {
	w := newWorld(t)
	removals := map[string]func(t *testing.T, l *lost) error{
		"discard": func(t *testing.T, l *lost) error {
			l.g.set(compute.Guest{ID: l.id, Ours: true, Epoch: 1, Power: compute.PowerOff})
			return l.carryOut(t, compute.Discard, compute.Args{Spec: l.spec})
		},
		"discard and erase": func(t *testing.T, l *lost) error {
			l.g.set(compute.Guest{ID: l.id, Ours: true, Epoch: 1, Power: compute.PowerOff})
			return l.carryOut(t, compute.Discard, compute.Args{Spec: l.spec, Erase: true})
		},
		"remove": func(t *testing.T, l *lost) error {
			return l.carryOut(t, compute.Remove, compute.Args{Spec: l.spec})
		},
		"sweep": func(t *testing.T, l *lost) error {
			return l.carryOut(t, compute.Remove, compute.Args{})
		},
		"clean up": func(t *testing.T, l *lost) error {
			return l.clean(t.Context(), l.id, l.cleanRequest(compute.CleanDisk, 2))
		},
		"clean up and erase": func(t *testing.T, l *lost) error {
			c := l.cleanRequest(compute.CleanDisk, 2)
			c.Erase = true
			return l.clean(t.Context(), l.id, c)
		},
	}
	markers := map[string]func(path string) error{
		"no marker":      os.Remove,
		"another marker": func(path string) error { return os.WriteFile(path, []byte(uuid.NewString()+"\n"), 0o600) },
		"broken marker":  func(path string) error { return os.WriteFile(path, []byte("?"), 0o600) },
	}
	for what, removal := range removals {
		for how, change := range markers {
			t.Run(what+", "+how, func(t *testing.T) {
				l := loseServer(t, w, newGuests())
				old := filepath.Join(l.config.Stores[0].Dir, l.id, "vda.old") // as agents of long ago named it
				put(t, old, []byte("data"))
				must.OK(t, change(filepath.Join(l.config.Stores[0].Dir, markerFile)))
				if err := removal(t, l); what != "sweep" && err == nil {
					t.Error("it says that it was done")
				}
				if !fileExists(l.own) || !fileExists(l.own+".json") || !fileExists(old) {
					t.Errorf("disk %v, proof %v, old disk %v", fileExists(l.own), fileExists(l.own+".json"), fileExists(old))
				}
				if what == "remove" && !l.hasGuest() {
					t.Error("the guest was removed though its disks could not be")
				}
			})
		}
	}
}

// carryOut does what an order asks for.
func (l *lost) carryOut(t *testing.T, verb compute.Verb, args compute.Args) error {
	t.Helper()
	o := &compute.Order{ID: uuid.NewString(), HostID: l.ID(), BootID: l.boot, ServerID: l.id, Epoch: 1, Verb: verb, Args: mustEncodeJSON(args)}
	_, err := l.do(t.Context(), orderTask{order: o})
	return err
}

// TestDeletionOfAServerErases: the owner's own delete removes the disks at once, and one on a shared store too.
func TestDeletionOfAServerErases(t *testing.T) {
	l := loseServer(t, newWorld(t), newGuests())
	must.OK(t, l.carryOut(t, compute.Remove, compute.Args{Spec: l.spec}))
	if fileExists(l.own) || fileExists(l.seen) || l.hasGuest() {
		t.Errorf("own %v, shared %v, guest %v", fileExists(l.own), fileExists(l.seen), l.hasGuest())
	}
	if err := l.carryOut(t, compute.Look, compute.Args{}); !problem.Is(err, problem.NotFound) {
		t.Error(err)
	}
}

// TestAMoveThatCameToNothingRemovesOnlyItsOwn: what a destination had of the server before is no waste of the move.
func TestAMoveThatCameToNothingRemovesOnlyItsOwn(t *testing.T) {
	w := newWorld(t)
	for what, c := range map[string]struct {
		epoch                    int64 // of the order
		guest                    bool  // of epoch 1
		own, quarantine, running bool  // what is left
	}{
		"disk of the move":            {epoch: 1},
		"disk from before":            {epoch: 2, quarantine: true},
		"guest and disk from before":  {epoch: 2, guest: true, own: true, running: true},
		"guest and disk of this move": {epoch: 1, guest: true},
	} {
		t.Run(what, func(t *testing.T) {
			l := loseServer(t, w, newGuests())
			if !c.guest {
				delete(l.g.all, l.id)
			}
			put(t, l.own+".json", mustEncodeJSON(diskProof{Server: l.id, Disk: "vda", Epoch: 1}))
			spec := *l.spec
			spec.Disks, spec.Epoch = spec.Disks[:1], c.epoch
			o := &compute.Order{ID: uuid.NewString(), HostID: l.ID(), BootID: l.boot, ServerID: l.id, Epoch: c.epoch, Verb: compute.Remove,
				Args: mustEncodeJSON(compute.Args{Spec: &spec, SameEpoch: true})}
			must.Get(l.do(t.Context(), orderTask{order: o}))(t)
			if all := l.quarantineOf(t); fileExists(l.own) != c.own || (len(all) == 1) != c.quarantine || l.hasGuest() != c.running {
				t.Errorf("disk %v, in quarantine %v, guest %v", fileExists(l.own), all, l.hasGuest())
			}
		})
	}
}
