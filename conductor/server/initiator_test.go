package server

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/compute"
	"salvor/conductor/conductortest"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/storage"
	"salvor/test/fixture"
	"salvor/test/must"
)

// gate is a storage that notes whom it let in to what.
type gate struct {
	mu     sync.Mutex
	let    []string
	broken error
	mute   error // of what takes leave away
	asked  int   // how often leave was to be taken away
}

func (g *gate) Allow(_ context.Context, target, initiator string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if word := target + " " + initiator; g.broken == nil && !slices.Contains(g.let, word) {
		g.let = append(g.let, word)
	}
	return g.broken
}

func (g *gate) Revoke(_ context.Context, initiators ...string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	if g.mute == nil {
		g.let = slices.DeleteFunc(g.let, func(word string) bool { _, name, _ := strings.Cut(word, " "); return slices.Contains(initiators, name) })
	}
	return g.mute
}

func (g *gate) Sessions(context.Context) ([]storage.Session, error) { return nil, g.broken }

// TestAdmitted: a host is let in to a volume before the guest is told of it, by its own name or the guest's; where the storage says no,
// the guest is told nothing.
func TestAdmitted(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Active})
	g := &gate{}
	h.con.Config.Storage = g
	h.con = New(h.con.Config)
	attach := func() { h.act(t, compute.Act{Action: compute.AttachVolume, VolumeID: h.volume}); h.work(t) }
	attach()
	if want := []string{"iqn.2026-11.test:v iqn.2026-11.test:east"}; !slices.Equal(g.let, want) {
		t.Errorf("let in: %v, want %v", g.let, want)
	}
	own := *h.host
	own.Inventory.InitiatorIQN = ""
	if err := h.con.storageAccess().admitInitiators(t.Context(), &managedServer{server: h.now(t), host: &own}); err != nil || len(g.let) != 2 || g.let[1] != "iqn.2026-11.test:v "+compute.GuestInitiator(own.ID, h.server) {
		t.Errorf("let in: %v, %v", g.let, err)
	}
	if a, b := compute.GuestInitiator("a", "s"), compute.GuestInitiator("b", "s"); a == b {
		t.Errorf("the guest has the name %s on two hosts", a)
	}

	h = newTestHost(t, hostOptions{state: compute.Active})
	h.con.Config.Storage = &gate{broken: problem.NotFoundf("there is no such target")}
	h.con = New(h.con.Config)
	attach()
	if slices.Contains(h.did, compute.Attach) || len(h.now(t).Disks) != 2 {
		t.Errorf("attached though the storage refused: %v", h.did)
	}
}

// TestFencedIsKeptOut: a user's command lets a fenced host in to nothing, and what a job had let in meanwhile is shut out before the
// server has its volumes elsewhere. Only where the fence rests on the storage alone, one that says no stops the move.
func TestFencedIsKeptOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		proofs []compute.Evidence
		mute   error
		stays  bool
	}{
		"by the storage":              {proofs: []compute.Evidence{compute.StorageRevoked}},
		"by the storage, that errs":   {proofs: []compute.Evidence{compute.StorageRevoked}, mute: problem.Conflictf("it is back"), stays: true},
		"by power, the storage errs":  {proofs: []compute.Evidence{compute.PowerCut, compute.StorageRevoked}, mute: problem.Conflictf("it is back")},
		"by a word, the storage errs": {proofs: []compute.Evidence{compute.Attested}, mute: problem.Conflictf("it is back")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active, volumes: true}, others: 1})
			west := s.others[0].host
			s.tx(t, func(tx job.Tx) error {
				west.Inventory.InitiatorIQN = "iqn.2026-11.test:west"
				if err := s.store.Hosts().Save(tx, west); err != nil {
					return err
				}
				var proofs []compute.Proof
				for _, e := range c.proofs {
					proofs = append(proofs, compute.Proof{Evidence: e, Text: "proven", At: time.Now()})
				}
				_, err := s.services.Fences.Give(t.Context(), tx, s.host.ID, proofs, "", "")
				return err
			})
			g := &gate{mute: c.mute}
			s.con.Config.Storage = g
			s.con = New(s.con.Config)
			s.act(t, compute.Act{Action: compute.RebootHard})
			s.waitsFor(t, "which is fenced, to be admitted")
			if len(g.let) > 0 {
				t.Fatalf("let in: %v", g.let)
			}
			const volume = "iqn.2026-11.test:v "
			for _, late := range []string{"iqn.2026-11.test:east", compute.GuestInitiator(s.host.ID, s.server)} {
				g.let = append(g.let, volume+late)
			}
			s.evacuate(t)
			s.workAll(t)
			if m := s.lastMove(t); (m.State == compute.MoveFailed) != c.stays {
				t.Fatalf("the move has ended as %s: %s", m.State, m.Problem)
			}
			if want := []string{volume + "iqn.2026-11.test:west"}; c.mute == nil && !slices.Equal(g.let, want) {
				t.Errorf("let in: %v, want %v", g.let, want)
			}
		})
	}
}

// waitsFor runs a conductor until a job of the server waits for this.
func (h *testHost) waitsFor(t *testing.T, what string) {
	t.Helper()
	stop := h.conduct(t)
	defer stop()
	fixture.Poll(t, "a job waits for "+what, func() bool {
		open := conductortest.OpenJobs(t, h.store, compute.Subject(h.server))
		return len(open) > 0 && open[0].State == job.Waiting && strings.Contains(open[0].WaitFor, what)
	}, h.picture)
}

// excluding is a gate that can take single initiators off a target.
type excluding struct{ *gate }

func (e excluding) Exclude(_ context.Context, target string, goes func(string) bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mute == nil {
		e.let = slices.DeleteFunc(e.let, func(word string) bool { at, name, _ := strings.Cut(word, " "); return at == target && goes(name) })
	}
	return e.mute
}

// west gives the other host an initiator of its own.
func (s *moveWorld) west(t *testing.T) *compute.Host {
	t.Helper()
	h := s.others[0].host
	h.Inventory.InitiatorIQN = "iqn.2026-11.test:west"
	s.tx(t, func(tx job.Tx) error { return s.store.Hosts().Save(tx, h) })
	return h
}

const targetOfVolume = "iqn.2026-11.test:v"

// TestOneHolderOfAVolume: before a guest is defined, every name of ours is off the target that has nothing to do there by the records: that of
// the same server on another host, that of another server, and that of another host. Names that are not
// ours stay: those of other programs, of QEMU guests that are not salvor's, and of another salvor.
func TestOneHolderOfAVolume(t *testing.T) {
	t.Parallel()
	s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active, volumes: true}, others: 1})
	west := s.west(t)
	const unknown = "11111111-2222-4333-8444-555555555555"
	strangers := []string{"iqn.2001-04.com.example:backup", "iqn.2008-11.org.linux-kvm:" + unknown, "iqn.2008-11.org.linux-kvm:mailserver", compute.GuestInitiator(unknown, unknown)}
	g := &gate{}
	for _, name := range append(slices.Clone(strangers), west.Inventory.InitiatorIQN, compute.GuestInitiator("former", s.server), compute.GuestInitiator(s.host.ID, "deleted"), "iqn.2008-11.org.linux-kvm:"+s.server) {
		g.let = append(g.let, targetOfVolume+" "+name)
	}
	s.con.Config.Storage = excluding{g}
	s.con = New(s.con.Config)
	must.OK(t, s.con.storageAccess().admitInitiators(t.Context(), &managedServer{server: s.now(t), host: s.host}))
	var want []string
	for _, name := range append(strangers, compute.Initiator(s.host, s.server)) {
		want = append(want, targetOfVolume+" "+name)
	}
	if !slices.Equal(g.let, want) {
		t.Errorf("let in: %v, want %v", g.let, want)
	}
	g.mute = problem.Unavailablef("it does not answer")
	if err := s.con.storageAccess().admitInitiators(t.Context(), &managedServer{server: s.now(t), host: s.host}); !problem.Is(err, problem.Unavailable) {
		t.Errorf("admitted by a storage that takes nobody off: %v", err)
	}
}

// TestAChangedInitiatorCutsOffNoGuest: a host is given a name of its own while its guests run. Each guest is still logged in by the name that
// it had at its start, and keeps it until it ends; its name on a former host goes.
func TestAChangedInitiatorCutsOffNoGuest(t *testing.T) {
	t.Parallel()
	s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active, volumes: true}, others: 1})
	running := compute.GuestInitiator(s.host.ID, s.server)
	g := &gate{let: []string{targetOfVolume + " " + running, targetOfVolume + " " + compute.GuestInitiator(s.others[0].host.ID, s.server)}}
	s.con.Config.Storage = excluding{g}
	s.con = New(s.con.Config)
	must.OK(t, s.con.storageAccess().admitInitiators(t.Context(), &managedServer{server: s.now(t), host: s.host}))
	if want := []string{targetOfVolume + " " + running, targetOfVolume + " " + s.host.Inventory.InitiatorIQN}; !slices.Equal(g.let, want) {
		t.Errorf("let in: %v, want %v", g.let, want)
	}
}

// TestOneServerInConflictHoldsNoHostUp: a host is readmitted; a volume of one of its servers is another's by now. The others are let in all the
// same, and the readmission goes well. A storage that refuses is an error.
func TestOneServerInConflictHoldsNoHostUp(t *testing.T) {
	t.Parallel()
	s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active, volumes: true}, others: 1})
	twin := *s.now(t)
	twin.Record, twin.Num, twin.GuestName = record.Record{ID: "11111111-2222-4333-8444-555555555555"}, 0, "twin" // the record of its volume names the other server
	s.tx(t, func(tx job.Tx) error { return s.store.Servers().Insert(tx, &twin) })
	g := &gate{}
	s.con.Config.Storage = excluding{g}
	s.con = New(s.con.Config)
	if err := s.con.storageAccess().letIn(t.Context(), s.host); err != nil {
		t.Error(err)
	}
	if want := []string{targetOfVolume + " " + compute.Initiator(s.host, s.server)}; !slices.Equal(g.let, want) {
		t.Errorf("let in: %v, want %v", g.let, want)
	}
	g.broken = problem.Conflictf("tgtadm was not found")
	if err := s.con.storageAccess().letIn(t.Context(), s.host); !problem.Is(err, problem.Conflict) {
		t.Errorf("the storage refuses, and the readmission says %v", err)
	}
}

// slowStorage is a storage that notes its calls, and whose first one waits a moment for another.
type slowStorage struct {
	*gate
	calls chan string
}

func (s slowStorage) note(what string) {
	s.calls <- what
	for end := time.Now().Add(100 * time.Millisecond); len(s.calls) == 1 && time.Now().Before(end); {
		runtime.Gosched()
	}
}

func (s slowStorage) Allow(context.Context, string, string) error { s.note("allow"); return nil }

func (s slowStorage) Exclude(context.Context, string, func(string) bool) error {
	s.note("exclude")
	return nil
}

// TestOneJobAtATimeChangesATarget: a job that reads the records before another server has the volume, and excludes after that server was let
// in, would take it off.
func TestOneJobAtATimeChangesATarget(t *testing.T) {
	t.Parallel()
	s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active, volumes: true}, others: 1})
	storage := slowStorage{&gate{}, make(chan string, 6)}
	s.con.Config.Storage = storage
	s.con = New(s.con.Config)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if err := s.con.storageAccess().allowInitiator(t.Context(), targetOfVolume, compute.Initiator(s.host, s.server)); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	close(storage.calls)
	var calls []string
	for c := range storage.calls {
		calls = append(calls, c)
	}
	if want := []string{"exclude", "allow", "exclude", "exclude", "allow", "exclude"}; !slices.Equal(calls, want) {
		t.Errorf("calls: %v, want %v", calls, want)
	}
	unlock := must.Get(s.con.targets.lock(t.Context(), targetOfVolume))(t)
	defer unlock()
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.con.storageAccess().allowInitiator(ended, targetOfVolume, "iqn.2026-11.test:late"); !problem.Is(err, problem.Unavailable) {
		t.Errorf("waiting for a target beyond its time says %v", err)
	}
}

// TestAHostThatTheServerLeftIsNotLetIn: the job that lets it in was held up while the server went elsewhere.
func TestAHostThatTheServerLeftIsNotLetIn(t *testing.T) {
	t.Parallel()
	s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active, volumes: true}, others: 1})
	s.west(t)
	g := &gate{}
	s.con.Config.Storage = excluding{g}
	s.con = New(s.con.Config)
	late := &managedServer{server: s.now(t), host: s.host}
	s.tx(t, func(tx job.Tx) error {
		return s.services.Servers.Edit(t.Context(), tx, s.server, func(srv *compute.Server) { srv.HostID = s.others[0].host.ID })
	})
	if err := s.con.storageAccess().admitInitiators(t.Context(), late); !problem.Is(err, problem.Conflict) || len(g.let) > 0 {
		t.Errorf("let in: %v, %v", g.let, err)
	}
}

// TestAMoveWaitsForTheStorage: while the storage does not answer, nobody knows whether the fenced host still has the volumes: the evidence
// of the fence may be false.
func TestAMoveWaitsForTheStorage(t *testing.T) {
	t.Parallel()
	for _, evidence := range []compute.Evidence{compute.Attested, compute.PowerCut} {
		t.Run(string(evidence), func(t *testing.T) {
			t.Parallel()
			s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active, volumes: true}, others: 1})
			s.west(t)
			s.tx(t, func(tx job.Tx) error {
				_, err := s.services.Fences.Give(t.Context(), tx, s.host.ID, []compute.Proof{{Evidence: evidence, Text: "said", At: time.Now()}}, "", "")
				return err
			})
			g := &gate{mute: problem.Unavailablef("it does not answer"), let: []string{targetOfVolume + " " + compute.Initiator(s.host, s.server)}}
			s.con.Config.Storage = g
			s.con = New(s.con.Config)
			s.evacuate(t)
			stop := s.conduct(t)
			fixture.Poll(t, "the storage is asked twice", func() bool {
				s.pokeAll()
				g.mu.Lock()
				defer g.mu.Unlock()
				return g.asked > 1
			}, s.whereabouts)
			if m := s.lastMove(t); m.State != compute.MovePreparing {
				t.Errorf("the move is %s", m.State)
			}
			g.mu.Lock()
			g.mute = nil
			g.mu.Unlock()
			stop()
			s.workAll(t)
			if m := s.lastMove(t); m.State != compute.MoveDone || slices.Contains(g.let, targetOfVolume+" "+compute.Initiator(s.host, s.server)) {
				t.Errorf("the move is %s (%s), let in: %v", m.State, m.Problem, g.let)
			}
		})
	}
}

// TestAVolumeOfAnotherServerIsNotDefined: an administrator set a volume free while a server had it, and another server attached it. Neither a
// start nor a rescue gives it back to the first server, and it can be detached from that server.
func TestAVolumeOfAnotherServerIsNotDefined(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Active})
	h.act(t, compute.Act{Action: compute.AttachVolume, VolumeID: h.volume})
	h.work(t)
	const other = "11111111-2222-4333-8444-555555555555"
	h.tx(t, func(tx job.Tx) error {
		v, err := h.store.Volumes().Get(t.Context(), tx, h.volume)
		if err != nil {
			return err
		}
		v.ServerID = other
		return h.store.Volumes().Save(tx, v)
	})
	for _, a := range []compute.Act{{Action: compute.RebootHard}, {Action: compute.Rescue}} {
		h.did = nil
		h.act(t, a)
		h.work(t)
		if s := h.now(t); slices.Contains(h.did, compute.Define) || s.Fault == nil || !strings.Contains(s.Fault.Message, "openstack server remove volume "+h.server) {
			t.Errorf("%s: did %v, fault %+v", a.Action, h.did, s.Fault)
		}
		h.tx(t, func(tx job.Tx) error {
			return h.services.Servers.Edit(t.Context(), tx, h.server, func(s *compute.Server) { s.State, s.Fault, s.Rescue = compute.Active, nil, nil })
		})
	}
	h.act(t, compute.Act{Action: compute.DetachVolume, VolumeID: h.volume})
	h.work(t)
	v, err := h.store.Volumes().Get(t.Context(), nil, h.volume)
	if err != nil || len(volumesOf(h.now(t))) > 0 || v.ServerID != other || v.Status != compute.VolumeInUse {
		t.Errorf("disks %v; the volume is %+v, %v", h.now(t).Disks, v, err)
	}
}
