package ironic_test

import (
	"context"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"salvor/api/ironic"
	"salvor/job"
	"salvor/metal"
)

// TestNeverStale: whatever was answered before, an answer is the one that a server gives which never answered anything.
func TestNeverStale(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newWorld(t)
		f := &fleetOfThree{w: w, nodes: map[string]*metal.Node{}, targets: map[string]*metal.Target{}}
		for step := range 12 {
			f.change(r, step)
			fresh := ironic.New(w.config)
			for _, path := range []string{
				"/v1/nodes", "/v1/nodes/detail", "/v1/nodes/detail?limit=2", "/v1/nodes?fields=uuid,extra,reservation", "/v1/nodes/" + ids[0], "/v1/nodes/" + ids[1] + "?fields=driver_internal_info",
				"/v1/volume/targets?detail=True", "/v1/volume/targets",
			} {
				for _, version := range []string{"1.38", "1.82"} {
					if path == "/v1/volume/targets?detail=True" && version == "1.38" {
						continue // not known yet
					}
					have, want := w.ask("GET", path, version, ""), ask(fresh, "GET", path, version, "")
					if have.status != want.status || have.status == 200 && have.body != want.body {
						r.Fatalf("step %d, GET %s at %s: %d %s\na server without memory: %d %s", step, path, version, have.status, have.body, want.status, want.body)
					}
				}
			}
		}
	})
}

var ids = []string{"11111111-2222-4333-8444-000000000000", "11111111-2222-4333-8444-000000000001", "11111111-2222-4333-8444-000000000002"}

// fleetOfThree is what the rows hold.
type fleetOfThree struct {
	w       *world
	nodes   map[string]*metal.Node
	targets map[string]*metal.Target
	claimed []job.Job
}

func (f *fleetOfThree) do(r *rapid.T, fn func(job.Tx) error) {
	if err := f.w.store.Do(context.Background(), fn); err != nil {
		r.Fatal(err)
	}
}

// change does one thing to a node, or makes it where there is none.
func (f *fleetOfThree) change(r *rapid.T, step int) {
	id, s := rapid.SampledFrom(ids).Draw(r, "node"), f.w.store
	n := f.nodes[id]
	if n == nil {
		n = &metal.Node{ID: id, Driver: "fake-hardware", ProvisionState: metal.Active, BootNumber: 1, Plan: &metal.BootPlan{BootNumber: 1, Path: id}}
		f.nodes[id] = n
		f.do(r, func(tx job.Tx) error { return s.InsertNode(tx, n) })
		return
	}
	switch rapid.SampledFrom([]string{"save", "heartbeat", "lock", "unlock", "away", "target"}).Draw(r, "change") {
	case "save":
		n.Extra = metal.Object{"step": float64(step)}
		f.do(r, func(tx job.Tx) error { return s.SaveNode(tx, n) })
	case "heartbeat":
		f.do(r, func(tx job.Tx) error {
			return s.SaveContact(tx, metal.Contact{NodeID: id, AgentBoot: 1, AgentURL: fmt.Sprint("http://step", step)})
		})
	case "lock":
		err := s.Do(context.Background(), func(tx job.Tx) error {
			return s.Insert(tx, &job.Job{Kind: "work", Class: job.Operation, Subject: job.Node(id)})
		})
		_ = err // it is locked already
		jobs, err := s.Claim(context.Background(), "c1/i1", born.AddDate(100, 0, 0), []string{""}, map[job.Kind]int{"work": 0}, 1)
		if err != nil {
			r.Fatal(err)
		}
		f.claimed = append(f.claimed, jobs...)
	case "unlock":
		f.unlock(r)
	case "away":
		for len(f.claimed) > 0 {
			f.unlock(r)
		}
		f.do(r, func(tx job.Tx) error { return s.DeleteNode(tx, n) })
		delete(f.nodes, id)
		delete(f.targets, id)
	case "target":
		v := f.targets[id]
		if v == nil {
			v = &metal.Target{Record: metal.Record{ID: id}, NodeID: id, VolumeType: "iscsi", VolumeID: "v"}
			f.do(r, func(tx job.Tx) error { return s.Targets().Insert(tx, v) })
		} else {
			v.Properties = metal.Object{"step": float64(step)}
			f.do(r, func(tx job.Tx) error { return s.Targets().Save(tx, v) })
		}
		f.targets[id] = v
	}
}

func (f *fleetOfThree) unlock(r *rapid.T) {
	if len(f.claimed) == 0 {
		return
	}
	j := f.claimed[0]
	f.claimed = f.claimed[1:]
	j.State = job.Ended
	f.do(r, func(tx job.Tx) error { return f.w.store.Save(tx, &j, false) })
}
