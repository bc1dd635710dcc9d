// Package fleet drives many fake machines at once through the real binary.
package fleet

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"salvor/client"
	"salvor/test/must"
	"salvor/test/program"
	"salvor/wire/ironic"
)

const quiet = "[conductor]\nworkers_pool_size = 100\n"

type fleet struct {
	t   testing.TB
	api *client.Client
	ids []string
}

// newFleet enrolls and adopts nodes until all are active.
func newFleet(t testing.TB, s *program.Server, n int) *fleet {
	t.Helper()
	api := must.Get(client.New(client.Config{Endpoint: s.URL}))(t)
	f := &fleet{t: t, api: api, ids: make([]string, n)}
	f.each(func(ctx context.Context, i int) error {
		node, err := api.CreateNode(ctx, client.Record{"driver": "fake-hardware", "name": fmt.Sprintf("node-%d", i)})
		if err == nil {
			f.ids[i] = node.UUID
		}
		return err
	})
	f.ask("manage", "manageable")
	f.ask("adopt", "active")
	return f
}

// each runs a call for every node, eight at a time.
func (f *fleet) each(call func(ctx context.Context, i int) error) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	next := make(chan int)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range next {
				if err := call(ctx, i); err != nil {
					f.t.Errorf("node %d: %v", i, err)
				}
			}
		})
	}
	for i := range f.ids {
		next <- i
	}
	close(next)
	all.Wait()
	if f.t.Failed() {
		f.t.FailNow()
	}
}

// request asks every node for a provision verb, and returns when all have been accepted.
func (f *fleet) request(verb string) {
	f.t.Helper()
	f.each(func(ctx context.Context, i int) error {
		r := ironic.ProvisionRequest{Target: verb}
		if verb == "rescue" {
			r.RescuePassword = "fleet password"
		}
		return f.api.Provision(ctx, f.ids[i], r)
	})
}

// ask gives every node a verb and waits until all have reached the state.
func (f *fleet) ask(verb, want string) {
	f.t.Helper()
	f.request(verb)
	f.reach(want)
}

func (f *fleet) reach(want string) {
	f.t.Helper()
	end := time.Now().Add(2 * time.Minute)
	for {
		nodes := must.Get(f.api.Nodes(context.Background(), client.Query{Fields: []string{"uuid", "provision_state", "reservation", "last_error"}}))(f.t)
		there := 0
		for _, n := range nodes {
			if n.ProvisionState == want && n.Record.Text("reservation") == "" {
				there++
			}
			if e := n.Record.Text("last_error"); e != "" {
				f.t.Fatalf("node %s: %s", n.UUID, e)
			}
		}
		if there == len(f.ids) {
			return
		}
		if time.Now().After(end) {
			f.t.Fatalf("%d of %d nodes are %s", there, len(f.ids), want)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestManyAtOnce rescues and unrescues a whole fleet at once: all succeed, none is locked after.
func TestManyAtOnce(t *testing.T) {
	s := program.Serve(t, quiet)
	f := newFleet(t, s, 200)
	f.ask("rescue", "rescue")
	f.ask("unrescue", "active")
}

// TestKilledAtWork kills the server while a fleet is in rescue; every rescue goes on where it stood.
func TestKilledAtWork(t *testing.T) {
	s := program.Serve(t, quiet)
	f := newFleet(t, s, 60)
	for _, step := range []struct{ verb, want string }{{"rescue", "rescue"}, {"unrescue", "active"}} {
		f.request(step.verb)
		s.Kill()
		s.Start(t)
		f.reach(step.want)
	}
}

// BenchmarkThousand is the figure: 1,000 nodes rescued and unrescued at once.
func BenchmarkThousand(b *testing.B) {
	s := program.Serve(b, quiet)
	f := newFleet(b, s, 1000)
	b.ResetTimer()
	for range b.N {
		f.ask("rescue", "rescue")
		f.ask("unrescue", "active")
	}
	b.StopTimer()
	peak := must.Get(s.Peak())(b)
	b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
}
