package fleet

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"salvor/client"
	"salvor/test/must"
	"salvor/test/program"
	"salvor/wire/ironic"
)

// TestResumed kills a server on SQLite with 100 operations in flight and starts it again: all are gone on with, and all succeed.
func TestResumed(t *testing.T) {
	f := newBusyFleet(t)
	for _, o := range rescueAndBack {
		f.killedAt(o)
		f.reach(o.reaches)
	}
}

// BenchmarkResumed is the figure: how long it takes from the first answer of a server that was killed with 100 operations in flight
// until all are gone on with. salvor promises a second.
func BenchmarkResumed(b *testing.B) {
	f := newBusyFleet(b)
	var silent, resumed time.Duration
	for b.Loop() {
		for _, o := range rescueAndBack {
			was, took := f.killedAt(o)
			silent, resumed = silent+was, resumed+took
			f.reach(o.reaches)
		}
	}
	kills := float64(b.N * len(rescueAndBack))
	b.ReportMetric(silent.Seconds()/kills, "s-silent/kill")
	b.ReportMetric(resumed.Seconds()/kills, "s-resumed/kill")
}

const phoenix = "phoenix"

// operationOfAll is a verb that all nodes are given, and the provision state that they reach by it.
type operationOfAll struct{ verb, reaches string }

var rescueAndBack = []operationOfAll{{"rescue", "rescue"}, {"unrescue", "active"}}

// busyFleet is 100 nodes whose BMCs take their time, so that each operation is in the middle of a request when its server dies.
type busyFleet struct {
	*fleet
	server *program.Server
}

func newBusyFleet(t testing.TB) busyFleet {
	t.Helper()
	s := program.Serve(t, "[DEFAULT]\nhost = "+phoenix+"\n[conductor]\nworkers_pool_size = 150\n")
	f := newFleet(t, s, 100)
	f.each(func(ctx context.Context, i int) error {
		_, err := f.api.Patch(ctx, client.Nodes, f.ids[i], []ironic.PatchOperation{{Op: "add", Path: "/driver_info/fake_delay", Value: json.RawMessage(`"0.5"`)}})
		return err
	})
	return busyFleet{f, s}
}

// killedAt kills the server when all nodes are worked on, and starts it again. It gives how long it answered nothing, and how long
// it took from its first answer until all were gone on with.
func (f busyFleet) killedAt(o operationOfAll) (silent, took time.Duration) {
	f.t.Helper()
	f.request(o.verb)
	f.workedOn(o)
	return killed(f.t, f.server, func() { f.workedOn(o) })
}

// killed kills the server and starts it again. It gives how long it answered nothing, and how long it took from its first answer
// until all are gone on with.
func killed(t testing.TB, s *program.Server, goneOn func()) (silent, took time.Duration) {
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

// workedOn returns when each node was seen to be worked on, or to have been: on a busy machine some are through before they are looked at.
func (f busyFleet) workedOn(o operationOfAll) {
	f.t.Helper()
	seen := map[string]bool{}
	for end := time.Now().Add(time.Minute); len(seen) < len(f.ids); {
		nodes := must.Get(f.api.Nodes(context.Background(), client.Query{Fields: []string{"uuid", "reservation", "provision_state"}}))(f.t)
		for _, n := range nodes {
			if n.Record.Text("reservation") == phoenix || n.ProvisionState == o.reaches {
				seen[n.UUID] = true
			}
		}
		if time.Now().After(end) {
			f.t.Fatalf("%d of %d operations are worked on", len(seen), len(f.ids))
		}
	}
}
