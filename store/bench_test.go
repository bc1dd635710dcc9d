package store_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

// BenchmarkStore measures the store as production opens it: SQLite syncs every commit.
func BenchmarkStore(b *testing.B) {
	for _, engine := range []struct {
		name  string
		fresh func(testing.TB) storetest.Database
	}{{"sqlite", storetest.CopiedSQLite}, {"postgres", storetest.CopiedPostgres}} {
		for _, c := range []struct {
			name string
			run  func(*testing.B, *store.Store)
		}{
			{"transaction/1", func(b *testing.B, s *store.Store) { transactions(b, s, 1) }},
			{"transaction/8", func(b *testing.B, s *store.Store) { transactions(b, s, 8) }},
			{"transaction/64", func(b *testing.B, s *store.Store) { transactions(b, s, 64) }},
			{"claim and save", claimAndSave},
			{"node get", nodeGet},
			{"node list 1000", nodeList},
		} {
			b.Run(engine.name+"/"+c.name, func(b *testing.B) {
				d := engine.fresh(b)
				s := must.Get(store.Open(context.Background(), d.URL, d.Key, store.Options{Logger: slog.New(slog.DiscardHandler)}))(b)
				defer s.Close()
				c.run(b, s)
			})
		}
	}
}

// fill inserts n nodes as Ironic users have them.
func fill(b *testing.B, s *store.Store, n int) {
	b.Helper()
	must.OK(b, s.Do(b.Context(), func(tx job.Tx) error {
		for i := range n {
			err := s.InsertNode(tx, &metal.Node{ID: nodeID(i), Name: fmt.Sprint("node-", i), Driver: "redfish", ProvisionState: metal.Active,
				DriverInfo: metal.Object{"redfish_address": "https://192.0.2.1", "redfish_username": "admin", "redfish_password": "secret"},
				Properties: metal.Object{"cpu_arch": "x86_64", "memory_mb": 65536.0}, InstanceInfo: metal.Object{"image_source": "http://image"}})
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

func nodeID(i int) string { return fmt.Sprintf("6f5e0c0e-7b2e-4a3e-9d5a-%012d", i) }

// transactions is what a request does: change a node, insert its job, tell the timeline; then the job's end.
func transactions(b *testing.B, s *store.Store, callers int) {
	const nodes = 256
	fill(b, s, nodes)
	var next atomic.Int64
	b.ResetTimer()
	start := time.Now()
	done := make(chan error, callers)
	for caller := range callers {
		go func() {
			for turn := 0; next.Add(1) <= int64(b.N); turn++ {
				id := nodeID((caller + turn*callers) % nodes)
				err := s.Do(b.Context(), func(tx job.Tx) error {
					n, err := s.Node(b.Context(), tx, id)
					if err != nil {
						return err
					}
					if err := s.SaveNode(tx, n); err != nil {
						return err
					}
					if err := s.Insert(tx, &job.Job{Kind: "work", Version: 1, Class: job.Background, Subject: job.Node(id)}); err != nil {
						return err
					}
					return s.Append(tx, job.Event{Subject: job.Node(id), Type: "request", Text: "asked"})
				})
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range callers {
		must.OK(b, <-done)
	}
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "tx/s")
}

// claimAndSave claims 64 jobs at a time and ends each in a transaction of its own, eight at once.
func claimAndSave(b *testing.B, s *store.Store) {
	must.OK(b, s.Do(b.Context(), func(tx job.Tx) error {
		for i := range b.N {
			if err := s.Insert(tx, &job.Job{Kind: "work", Version: 1, Class: job.Operation, Subject: job.Node(fmt.Sprint(i))}); err != nil {
				return err
			}
		}
		return nil
	}))
	b.ResetTimer()
	start := time.Now()
	work := make(chan job.Job, 64)
	done := make(chan error, 8)
	for range 8 {
		go func() {
			var failed error
			for j := range work {
				j.State = job.Ended
				if err := s.Do(b.Context(), func(tx job.Tx) error { return s.Save(tx, &j, false) }); err != nil {
					failed = err
				}
			}
			done <- failed
		}()
	}
	for left := b.N; left > 0; {
		jobs := must.Get(s.Claim(b.Context(), "c/1", time.Now(), []string{""}, map[job.Kind]int{"work": 1}, 64))(b)
		left -= len(jobs)
		for _, j := range jobs {
			work <- j
		}
	}
	close(work)
	for range 8 {
		must.OK(b, <-done)
	}
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "jobs/s")
}

func nodeGet(b *testing.B, s *store.Store) {
	fill(b, s, 1000)
	b.ResetTimer()
	for i := range b.N {
		must.Get(s.Node(b.Context(), nil, nodeID(i%1000)))(b)
	}
}

func nodeList(b *testing.B, s *store.Store) {
	fill(b, s, 1500)
	b.ResetTimer()
	for range b.N {
		got, err := s.Nodes(b.Context(), nil, metal.NodeFilter{}, record.Page{Limit: 1000})
		if err != nil || len(got) != 1000 {
			b.Fatal(len(got), err)
		}
	}
}
