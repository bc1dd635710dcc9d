package fleet

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"salvor/client"
	"salvor/test/program"
	"salvor/wire/ironic"
)

// TestResumed is the figure: a server on SQLite is killed with 100 operations in flight and started again. All are gone on
// with within a second of its first answer, and all succeed.
func TestResumed(t *testing.T) {
	const inFlight, host, promised, tries = 100, "phoenix", time.Second, 5
	s := program.Serve(t, "[DEFAULT]\nhost = "+host+"\n[conductor]\nworkers_pool_size = 150\n")
	f := newFleet(t, s, inFlight)
	// Requests that take their time, so that each operation is in the middle of one.
	f.each(func(ctx context.Context, i int) error {
		_, err := f.api.Patch(ctx, client.Nodes, f.ids[i], []ironic.PatchOperation{{Op: "add", Path: "/driver_info/fake_delay", Value: json.RawMessage(`"0.5"`)}})
		return err
	})
	best := map[string]time.Duration{}
	late := func() bool {
		return len(best) < 2 || best["rescue"] > promised || best["unrescue"] > promised
	}
	// The best of some tries: another test's process may have had the processor.
	for try := 0; try < tries && late(); try++ {
		for _, step := range []struct{ verb, want string }{{"rescue", "rescue"}, {"unrescue", "active"}} {
			f.each(func(ctx context.Context, i int) error {
				return f.api.Provision(ctx, f.ids[i], ironic.ProvisionRequest{Target: step.verb, RescuePassword: map[string]string{"rescue": "fleet"}[step.verb]})
			})
			f.held(host)
			before, took := killed(t, s, func() { f.held(host) })
			if was, known := best[step.verb]; !known || took < was {
				best[step.verb] = took
			}
			t.Logf("%s: %d operations in flight; first answer %.2f s after the kill, all gone on with %.2f s after that", step.verb, inFlight, before.Seconds(), took.Seconds())
			f.reach(step.want)
		}
	}
	if late() {
		t.Errorf("all were gone on with after %v at best, want %s", best, promised)
	}
}

// killed kills the server and starts it again. It gives how long it answered nothing, and how long it took from its first answer
// until all are gone on with.
func killed(t *testing.T, s *program.Server, goneOn func()) (silent, took time.Duration) {
	t.Helper()
	s.Kill()
	began := time.Now()
	answered := make(chan time.Time, 1)
	go func() {
		for ; ; time.Sleep(time.Millisecond) {
			if resp, err := http.Get(s.URL + "/healthz"); err == nil {
				_ = resp.Body.Close()
				answered <- time.Now()
				return
			}
		}
	}()
	s.Start(t)
	first := <-answered
	goneOn()
	return first.Sub(began), time.Since(first)
}

// held returns when each node was seen to be worked on by the host.
func (f *fleet) held(host string) {
	f.t.Helper()
	seen := map[string]bool{}
	for end := time.Now().Add(time.Minute); len(seen) < len(f.ids); {
		nodes, err := f.api.Nodes(context.Background(), client.Query{Fields: []string{"uuid", "reservation"}})
		if err != nil {
			f.t.Fatal(err)
		}
		for _, n := range nodes {
			if n.Record.Text("reservation") == host {
				seen[n.UUID] = true
			}
		}
		if time.Now().After(end) {
			f.t.Fatalf("%d of %d operations are worked on", len(seen), len(f.ids))
		}
	}
}
