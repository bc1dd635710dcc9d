package ironic_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"salvor/api/ironic"
	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/test/must"
)

// TestNeverStale: whatever was answered before, an answer is the one that a server gives which never answered anything.
func TestNeverStale(t *testing.T) {
	w, seed := newWorld(t), rand.Uint64()
	t.Logf("seed %d", seed)
	f := &fleetOfThree{world: w, dice: rand.New(rand.NewPCG(seed, 0)), nodes: map[string]*metal.Node{}, targets: map[string]*metal.Target{}}
	for step := range 150 {
		f.change(step)
		fresh := ironic.New(w.config)
		for _, path := range []string{
			"/v1/nodes", "/v1/nodes/detail", "/v1/nodes/detail?limit=2", "/v1/nodes?fields=uuid,extra,reservation", "/v1/nodes/" + ids[0], "/v1/nodes/" + ids[1] + "?fields=driver_internal_info",
			"/v1/volume/targets?detail=True", "/v1/volume/targets",
		} {
			have, want := w.ask("GET", path, "1.82", ""), ask(fresh, "GET", path, "1.82", "")
			if have.Status != want.Status || have.Status == 200 && have.Body != want.Body {
				t.Fatalf("step %d, GET %s: %d %s\na server without memory: %d %s", step, path, have.Status, have.Body, want.Status, want.Body)
			}
		}
	}
}

var ids = []string{"11111111-2222-4333-8444-000000000000", "11111111-2222-4333-8444-000000000001", "11111111-2222-4333-8444-000000000002"}

// fleetOfThree is what the rows hold.
type fleetOfThree struct {
	*world
	dice    *rand.Rand
	nodes   map[string]*metal.Node
	targets map[string]*metal.Target
	claimed []job.Job
}

func (f *fleetOfThree) do(fn func(job.Tx) error) {
	must.OK(f, f.store.Do(context.Background(), fn))
}

// change does one thing to a node, or makes it where there is none.
func (f *fleetOfThree) change(step int) {
	id, s := ids[f.dice.IntN(len(ids))], f.store
	n := f.nodes[id]
	if n == nil {
		n = &metal.Node{ID: id, Driver: "fake-hardware", ProvisionState: metal.Active, BootNumber: 1, Plan: &metal.BootPlan{BootNumber: 1, Path: id}}
		f.nodes[id] = n
		f.do(func(tx job.Tx) error { return s.InsertNode(tx, n) })
		return
	}
	switch []string{"save", "heartbeat", "lock", "unlock", "away", "target"}[f.dice.IntN(6)] {
	case "save":
		n.Extra = metal.Object{"step": float64(step)}
		f.do(func(tx job.Tx) error { return s.SaveNode(tx, n) })
	case "heartbeat":
		f.do(func(tx job.Tx) error {
			return s.SaveContact(tx, metal.Contact{NodeID: id, AgentBoot: 1, AgentURL: fmt.Sprint("http://step", step)})
		})
	case "lock":
		err := s.Do(context.Background(), func(tx job.Tx) error {
			return s.Insert(tx, &job.Job{Kind: "work", Class: job.Operation, Subject: job.Node(id)})
		})
		_ = err // it is locked already
		jobs, err := s.Claim(context.Background(), "c1/i1", born.AddDate(100, 0, 0), []string{""}, map[job.Kind]int{"work": 0}, 1)
		if err != nil {
			f.Fatal(err)
		}
		f.claimed = append(f.claimed, jobs...)
	case "unlock":
		f.unlock()
	case "away":
		for len(f.claimed) > 0 {
			f.unlock()
		}
		f.do(func(tx job.Tx) error { return s.DeleteNode(tx, n) })
		delete(f.nodes, id)
		delete(f.targets, id)
	case "target":
		v := f.targets[id]
		if v == nil {
			v = &metal.Target{Record: record.Record{ID: id}, NodeID: id, VolumeType: "iscsi", VolumeID: "v"}
			f.do(func(tx job.Tx) error { return s.Targets().Insert(tx, v) })
		} else {
			v.Properties = metal.Object{"step": float64(step)}
			f.do(func(tx job.Tx) error { return s.Targets().Save(tx, v) })
		}
		f.targets[id] = v
	}
}

func (f *fleetOfThree) unlock() {
	if len(f.claimed) == 0 {
		return
	}
	j := f.claimed[0]
	f.claimed = f.claimed[1:]
	j.State = job.Ended
	f.do(func(tx job.Tx) error { return f.store.Save(tx, &j, false) })
}
