package metal_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/test/must"
)

// void is a store that answers nothing until it is asked to.
type void struct {
	job.Leases
	silent bool
}

func (v *void) Conductors(ctx context.Context) ([]job.Conductor, error) {
	if v.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return []job.Conductor{{ID: "c", Incarnation: "1", Hostname: "h", Groups: []string{""}, Description: []byte(`{}`)}}, nil
}

// TestDirectoryOfASilentStore: who is told what was read last does not wait for a reading, and who reads is told in time that it failed.
func TestDirectoryOfASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &void{}
		d := metal.NewDirectory(v, time.Now, time.Second, metal.ConductorSilence)
		must.Get(d.Conductors(t.Context()))(t)
		v.silent = true
		time.Sleep(time.Second)
		for range 3 {
			go func() { _, _ = d.Conductors(t.Context()) }()
		}
		synctest.Wait()
		began := time.Now()
		if err := d.Staffed(""); err != nil || time.Since(began) > 0 {
			t.Errorf("who lives, of what was read last: %v after %s", err, time.Since(began))
		}
		if _, _, err := d.Drivers(t.Context()); err == nil || time.Since(began) > 3*time.Second {
			t.Errorf("the drivers from a silent store: %v after %s", err, time.Since(began))
		}
		synctest.Wait()
		v.silent = false
		if _, err := d.Conductors(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// fleet is a store with these conductors, of which each lives in the group of its name's first letter.
type fleet struct {
	job.Leases
	names []string
	beat  int64
}

func (f *fleet) Conductors(context.Context) (all []job.Conductor, err error) {
	f.beat++
	for _, name := range f.names {
		all = append(all, job.Conductor{ID: name, Incarnation: "1", Counter: f.beat, Groups: []string{name[:1]}, Description: []byte(`{"drivers": [{"name": "ipmi"}]}`)})
	}
	return all, nil
}

// TestOneConductorReadsAConsole: each console has one reader of its group, the readers share them, and the death of one moves its own only.
func TestOneConductorReadsAConsole(t *testing.T) {
	f := &fleet{names: []string{"a1", "a2", "a3", "b1"}}
	d := metal.NewDirectory(f, time.Now, 0, 0)
	readers := func() map[string]string {
		must.Get(d.Conductors(t.Context()))(t)
		out := map[string]string{}
		for i := range 300 {
			n := &metal.Node{ID: fmt.Sprint("node", i), Driver: "ipmi", ConductorGroup: "A"}
			for _, name := range []string{"a1", "a2", "a3", "b1"} {
				if !d.ReadsConsole(name, n) {
					continue
				}
				if out[n.ID] != "" || name == "b1" {
					t.Errorf("%s is read by %s too", n.ID, name)
				}
				out[n.ID] = name
			}
		}
		return out
	}
	before, count := readers(), map[string]int{}
	for _, name := range before {
		count[name]++
	}
	if len(before) != 300 || count["a1"] < 50 || count["a2"] < 50 || count["a3"] < 50 {
		t.Errorf("the readers have %v", count)
	}
	f.names = []string{"a1", "a3", "b1"}
	for id, name := range readers() {
		if name != before[id] && before[id] != "a2" || name == "a2" {
			t.Errorf("%s moved from %s to %s", id, before[id], name)
		}
	}
	if d.ReadsConsole("a1", &metal.Node{ID: "x", Driver: "redfish", ConductorGroup: "a"}) || d.ReadsConsole("", &metal.Node{ID: "x", Driver: "ipmi", ConductorGroup: "nobody"}) {
		t.Error("a console that nobody can read has a reader")
	}
}
