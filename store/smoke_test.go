package store

import (
	"context"
	"testing"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/secret"
)

func TestSmoke(t *testing.T) {
	ctx := context.Background()
	key, _ := secret.NewKey(secret.GenerateKey())
	s, err := Open(ctx, "sqlite:"+t.TempDir()+"/a b?.db", key, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	n := &metal.Node{ID: "n1", Name: "x", ProvisionState: metal.Enroll, Driver: "d", DriverInfo: metal.Object{"redfish_password": "pw", "a": "b"}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Do(ctx, func(tx job.Tx) error { return s.InsertNode(tx, n) }))
	got, err := s.Node(ctx, nil, "x")
	must(err)
	t.Log(got)
	got.Plan = &metal.BootPlan{Path: "p", MACs: []string{"aa", "AA", "bb"}}
	must(s.Do(ctx, func(tx job.Tx) error { return s.SaveNode(tx, got) }))
	_, err = s.NodeByMAC(ctx, "aa")
	must(err)
	_, err = s.NodeByBootPath(ctx, "p")
	must(err)
	j := &job.Job{Kind: "rescue", Version: 1, Class: job.Operation, Subject: job.Node("n1"), Secret: secret.New("x")}
	must(s.Do(ctx, func(tx job.Tx) error { return s.Insert(tx, j) }))
	t.Log(s.Do(ctx, func(tx job.Tx) error {
		return s.Insert(tx, &job.Job{Kind: "rescue", Class: job.Operation, Subject: job.Node("n1")})
	}))
	must(s.Register(ctx, job.Conductor{ID: "c", Incarnation: "i", Hostname: "h", Groups: []string{""}}))
	jobs, err := s.Claim(ctx, "c/i", time.Now(), []string{""}, map[job.Kind]int{"rescue": 1}, 10)
	must(err)
	t.Log(jobs)
	jobs[0].State = job.Waiting
	must(s.Do(ctx, func(tx job.Tx) error { return s.Save(tx, &jobs[0], false) }))
	must(s.Do(ctx, func(tx job.Tx) error { return s.Signal(tx, job.Node("n1")) }))
	must(s.Do(ctx, func(tx job.Tx) error { return s.Append(tx, job.Event{Subject: job.Node("n1"), Text: "x"}) }))
	u, err := s.Unended(nil, job.Node("n1"))
	must(err)
	t.Log(u)
	_, err = s.Nodes(ctx, metal.NodeFilter{DescriptionContains: "", Conductor: "h"}, metal.Page{Limit: 3, SortKey: "name"})
	must(err)
	_, err = s.PowerDue(ctx, []string{""}, time.Now(), []metal.State{metal.Rescue}, 10)
	must(err)
	_, err = s.Prune(ctx, time.Now(), 5)
	must(err)
	_, err = s.PruneJobs(ctx, time.Now())
	must(err)
	must(s.Advance(ctx, map[string]int64{"": 0}))
	_, err = s.Expired(ctx, []string{""}, 10)
	must(err)
	_, err = s.TellToken(nil, "n1", 1)
	t.Log(err)
	must(s.Do(ctx, func(tx job.Tx) error { _, err := s.TellToken(tx, "n1", 1); return err }))
	must(s.Do(ctx, func(tx job.Tx) error { return s.DeleteNode(tx, got) }))
}
