package main

import (
	"testing"

	"salvor/conductor"
	"salvor/conductor/node"
	"salvor/conductor/server"
	"salvor/metal"
)

// TestEveryJobHasItsActions proves that each kind of job that a verb starts is known to the conductor.
func TestEveryJobHasItsActions(t *testing.T) {
	known := map[string]bool{}
	for _, d := range conductor.New(nil, node.Config{}, server.Config{}).Definitions() {
		if err := d.Check(); err != nil {
			t.Error(err)
		}
		known[string(d.Kind)] = true
	}
	for _, tr := range metal.Transitions {
		// No client at a version that is served can ask for service.
		if tr.Job != "" && tr.Job != "service" && !known[string(tr.Job)] {
			t.Errorf("%s in %s starts a job %q that nobody knows", tr.Verb, tr.From, tr.Job)
		}
	}
}
