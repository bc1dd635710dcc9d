package serve

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/config"
	"salvor/job"
	"salvor/record"
	"salvor/restored"
	"salvor/secret"
	"salvor/store"
	"salvor/test/must"
	wire "salvor/wire/host"
)

// history is a SQLite database that several programs serve one after the other.
type history struct {
	t    *testing.T
	file string
	key  *secret.Key
}

func newHistory(t *testing.T) *history {
	t.Helper()
	key := must.Get(secret.NewKey(secret.GenerateKey()))(t)
	return &history{t, filepath.Join(t.TempDir(), "salvor.db"), key}
}

// serve does something with the database as a program that serves it.
func (h *history) serve(do func(p *ControlPlane)) {
	h.t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	s := must.Get(store.Open(h.t.Context(), "sqlite:"+h.file, h.key, store.Options{NoSync: true, Logger: log}))(h.t)
	cfg := &config.Config{}
	cfg.Default.StatePath = filepath.Dir(h.file)
	do(&ControlPlane{cfg: cfg, log: log, Store: s, key: h.key})
	must.OK(h.t, s.Close())
}

func (h *history) read() []byte {
	h.t.Helper()
	b := must.Get(os.ReadFile(h.file))(h.t)
	return b
}

func (h *history) put(b []byte) {
	h.t.Helper()
	for _, end := range []string{"-wal", "-shm", ".lock"} {
		_ = os.Remove(h.file + end)
	}
	must.OK(h.t, os.WriteFile(h.file, b, 0o600))
}

func addJob(t *testing.T, s *store.Store) {
	t.Helper()
	must.OK(t, s.Do(t.Context(), func(tx job.Tx) error { return s.Insert(tx, &job.Job{Kind: "work", Subject: job.Node("a")}) }))
}

// TestHostIsTheOnlyWitness: an older database without a witness file is held because a host has a witness. A witness that a host
// forged, or that another control plane made, has no effect.
func TestHostIsTheOnlyWitness(t *testing.T) {
	h := newHistory(t)
	h.serve(func(p *ControlPlane) { addJob(t, p.Store) })
	saved := h.read()
	var told wire.Witness
	h.serve(func(p *ControlPlane) {
		must.Get(p.Store.Raise(t.Context()))(t)
		w := &hostWitnesses{program: p, former: map[string]bool{}}
		told = *w.CurrentWitness()
		if err := w.RecordWitness(t.Context(), "vm1", told); err != nil || p.Store.Held() != nil {
			t.Errorf("a witness of now: %v, held %v", err, p.Store.Held())
		}
	})
	h.put(saved)
	h.serve(func(p *ControlPlane) {
		w := &hostWitnesses{program: p, former: map[string]bool{}}
		forged := told
		forged.Counter += 1000
		stranger := newHistory(t)
		foreign := wire.Witness{Incarnation: "another", Counter: 1, Proof: stranger.key.Seal(secret.New(proofOf("another", 1)), witnessPlace)}
		for _, bad := range []wire.Witness{forged, foreign, {Incarnation: "x"}, {}} {
			if err := w.RecordWitness(t.Context(), "vm1", bad); err != nil || p.Store.Held() != nil {
				t.Errorf("%+v: %v, held %v", bad, err, p.Store.Held())
			}
		}
		must.OK(t, w.RecordWitness(t.Context(), "vm1", told))
		if held := p.Store.Held(); held == nil || held.Code != record.HeldWentBack {
			t.Errorf("held: %+v", held)
		}
		if w.CurrentWitness() != nil {
			t.Error("a held database is told to hosts")
		}
	})
}

// TestAReleaseAcceptsTheWitnesses: what a host and a file remember at the release does not hold the database again. A witness that this process did
// not see then does.
func TestAReleaseAcceptsTheWitnesses(t *testing.T) {
	h := newHistory(t)
	h.serve(func(p *ControlPlane) {
		addJob(t, p.Store)
		p.services = service.New(p.Store, p.Store, service.Options{}, time.Now)
		p.hostWitnesses = &hostWitnesses{program: p, former: map[string]bool{}}
		hosts := []string{"00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"}
		for i, id := range hosts {
			host := &compute.Host{Record: record.Record{ID: id}, Name: fmt.Sprintf("vm%d", i), Kind: compute.AgentHost}
			must.OK(t, p.Store.Do(t.Context(), func(tx job.Tx) error { return p.Store.Hosts().Insert(tx, host) }))
		}
		hear := func(host, id string) {
			t.Helper()
			w := wire.Witness{Incarnation: id, Counter: 9, Proof: h.key.Seal(secret.New(proofOf(id, 9)), witnessPlace)}
			must.OK(t, p.hostWitnesses.RecordWitness(t.Context(), host, w))
		}
		i := must.Get(p.Store.Incarnation(t.Context()))(t)
		file := witnessFiles(p.cfg)[0]
		must.OK(t, writeWitness(file, record.Witness{ID: i.ID, Counter: i.Counter + 100}))
		hear(hosts[0], "another")
		if held := p.Store.Held(); held == nil || held.Code != record.HeldReplaced {
			t.Fatalf("held: %+v", held)
		}
		s := p.restored()
		r := must.Get(s.Report(t.Context()))(t)
		if len(r.Witnesses) != 2 || r.Witnesses[0].Contradicts == "" || r.Witnesses[1].Contradicts == "" || r.Witnesses[1].Name != "host vm0" {
			t.Errorf("the list has the witnesses %+v, want the file and host vm0, which contradict the database", r.Witnesses)
		}
		lines := must.Get(s.Release(t.Context(), restored.Wanted{Decision: restored.AsItIs}, record.Asker{User: "op"}))(t)
		if text := strings.Join(lines, "\n"); !strings.Contains(text, "witness host vm0: ") || !strings.Contains(text, "witness "+file+": ") {
			t.Errorf("the release says %q, want a line for each of both witnesses", text)
		}
		w, err := readWitness(file)
		if err == nil {
			err = p.Store.Compare(t.Context(), w, file)
		}
		hear(hosts[0], "another")
		if held := p.Store.Held(); err != nil || held != nil {
			t.Errorf("held again by a lost witness: %+v %v", held, err)
		}
		hear(hosts[1], "a third")
		if held := p.Store.Held(); held == nil || held.Code != record.HeldReplaced {
			t.Errorf("another witness: held %+v", held)
		}
	})
}

// TestOnlyAHostThatKnowsTheStartEndsTheWait: a host with a lower counter than the start found, or without a valid proof, does not
// end the wait for the other hosts.
func TestOnlyAHostThatKnowsTheStartEndsTheWait(t *testing.T) {
	h := newHistory(t)
	h.serve(func(p *ControlPlane) {
		addJob(t, p.Store)
		w := &hostWitnesses{program: p, former: map[string]bool{"former": true}}
		var told []wire.Witness
		for range 2 {
			must.Get(p.Store.Raise(t.Context()))(t)
			told = append(told, *w.CurrentWitness())
		}
		i := p.Store.Known()
		p.found = record.Witness{ID: i.ID, Counter: i.Counter}
		must.Get(p.Store.Raise(t.Context()))(t)
		p.Store.StandBy(time.Hour)
		unproved := told[1]
		unproved.Proof = ""
		for _, less := range []wire.Witness{{}, {Incarnation: "former", Counter: 99}, told[0], unproved} {
			if err := w.RecordWitness(t.Context(), "vm1", less); err != nil || !p.Store.StandsBy() {
				t.Errorf("%+v ended the wait: %v", less, err)
			}
		}
		if err := w.RecordWitness(t.Context(), "vm1", told[1]); err != nil || p.Store.StandsBy() {
			t.Errorf("a host that knows the start did not end the wait: %v", err)
		}
	})
}

// TestWitnessFileNeverGoesBack: the file in the state directory follows the counter and keeps the highest value. At the next start
// it holds a database that is behind it, and that start does not change the file.
func TestWitnessFileNeverGoesBack(t *testing.T) {
	h := newHistory(t)
	remembered := func() record.Witness {
		t.Helper()
		w := must.Get(readWitness(filepath.Join(filepath.Dir(h.file), witnessFile)))(t)
		return w
	}
	start := func(p *ControlPlane) {
		t.Helper()
		for _, path := range witnessFiles(p.cfg) {
			w, err := readWitness(path)
			if err == nil {
				err = p.Store.Compare(t.Context(), w, path)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		must.OK(t, p.raise(t.Context()))
	}
	h.serve(func(p *ControlPlane) { addJob(t, p.Store); start(p) })
	saved, first := h.read(), remembered()
	h.serve(start)
	last := remembered()
	if first.ID != last.ID || last.Counter != first.Counter+1 {
		t.Errorf("remembered %+v and then %+v", first, last)
	}
	h.put(saved)
	h.serve(func(p *ControlPlane) {
		start(p)
		if held := p.Store.Held(); held == nil || held.Code != record.HeldWentBack {
			t.Errorf("held: %+v", held)
		}
	})
	if now := remembered(); now != last {
		t.Errorf("the held start changed the witness from %+v to %+v", last, now)
	}
	must.OK(t, os.Remove(h.file))
	h.put(nil)
	_ = os.Remove(h.file)
	h.serve(func(p *ControlPlane) {
		start(p)
		if p.Store.Held() != nil {
			t.Errorf("a new database is held: %+v", p.Store.Held())
		}
		if now := remembered(); now != last {
			t.Errorf("an empty database changed the witness from %+v to %+v", last, now)
		}
		addJob(t, p.Store)
		p.remember(t.Context(), p.Store.Known())
		if now := remembered(); now.ID != p.Store.Known().ID {
			t.Error("the witness still remembers the database that is gone")
		}
	})
}

// TestWitnessSurvivesAnEmptyDatabase: a start on an empty database by mistake does not hold the right one at the next start.
func TestWitnessSurvivesAnEmptyDatabase(t *testing.T) {
	h := newHistory(t)
	start := func(p *ControlPlane) {
		t.Helper()
		w, err := readWitness(witnessFiles(p.cfg)[0])
		if err == nil {
			err = p.Store.Compare(t.Context(), w, "the file")
		}
		if err == nil {
			err = p.raise(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	h.serve(func(p *ControlPlane) { addJob(t, p.Store); start(p) })
	right := h.file
	h.file = filepath.Join(filepath.Dir(right), "empty.db")
	h.serve(start)
	h.file = right
	h.serve(func(p *ControlPlane) {
		start(p)
		if held := p.Store.Held(); held != nil {
			t.Errorf("held: %+v", held)
		}
	})
}

// TestUnwritableWitnessIsSaidOnce: a witness file that cannot be written is tried again each second, and said once a minute.
func TestUnwritableWitnessIsSaidOnce(t *testing.T) {
	h := newHistory(t)
	h.serve(func(p *ControlPlane) {
		addJob(t, p.Store)
		var log bytes.Buffer
		p.log = slog.New(slog.NewTextHandler(&log, nil))
		dir := filepath.Join(t.TempDir(), "away")
		p.cfg.Database.WitnessFile = filepath.Join(dir, "witness.json")
		turn := func(errors, again int) {
			t.Helper()
			p.remember(t.Context(), p.Store.Known())
			if e, a := strings.Count(log.String(), "level=ERROR"), strings.Count(log.String(), "works again"); e != errors || a != again {
				t.Errorf("%d errors and %d ends, want %d and %d:\n%s", e, a, errors, again, log.String())
			}
		}
		turn(1, 0)
		turn(1, 0)
		p.unwritten[p.cfg.Database.WitnessFile] = time.Now().Add(-2 * time.Minute)
		turn(2, 0)
		turn(2, 0)
		must.OK(t, os.Mkdir(dir, 0o700))
		turn(2, 1)
		turn(2, 1)
	})
}
