package storetest

import (
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/test/must"
)

// testCensus: what is counted for those who watch, by kinds.
func testCensus(b *testEnv) {
	at := b.s.Now()
	heard := map[string]time.Duration{"a": 10 * time.Second, "b": 90 * time.Second, "c": 3 * time.Hour}
	for id, age := range heard {
		b.do(func(tx job.Tx) error {
			n := &metal.Node{ID: id, ProvisionState: metal.CleanWait, ProvisionedAt: at.Add(-5 * time.Hour), Maintenance: id == "a"}
			if err := b.s.InsertNode(tx, n); err != nil {
				return err
			}
			return b.s.SaveContact(tx, metal.Contact{NodeID: id, HeartbeatAt: at.Add(-age)})
		})
	}
	b.do(func(tx job.Tx) error {
		if err := b.s.InsertNode(tx, &metal.Node{ID: "d", ProvisionState: metal.Active, ProvisionedAt: at}); err != nil {
			return err
		}
		for _, id := range []string{"a", "b"} {
			if err := b.s.Insert(tx, &job.Job{Kind: "clean", Class: job.Operation, Subject: job.Node(id)}); err != nil {
				return err
			}
		}
		return nil
	})
	c := must.Get(b.s.CountRows(b.ctx))(b)
	if c.Jobs[[2]string{"clean", "ready"}] != 2 || len(c.Jobs) != 1 || c.Oldest["clean"].IsZero() {
		b.Errorf("jobs %v, oldest %v", c.Jobs, c.Oldest)
	}
	if c.Nodes["clean wait"] != 3 || c.Nodes["active"] != 1 || c.Maintenance["clean wait"] != 1 || len(c.Servers) != 0 {
		b.Errorf("%+v", c)
	}
	if want := []int{1, 0, 1, 0, 0, 0, 1}; len(c.Heartbeats) != len(want) || c.Heartbeats[0] != 1 || c.Heartbeats[2] != 1 || c.Heartbeats[6] != 1 {
		b.Errorf("heartbeats %v, want %v", c.Heartbeats, want)
	}
}
