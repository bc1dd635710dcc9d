package native_test

import (
	"testing"

	"salvor/job"
	"salvor/metal"
	"salvor/test/must"
)

// TestEventsNameTheirSubjects: the timeline of all has names beside UUIDs; what is gone or has no name goes without.
func TestEventsNameTheirSubjects(t *testing.T) {
	w := newWorld(t)
	srv := w.server("web1", 0)
	must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error {
		for id, name := range map[string]string{"aa01": "rack1-01", "aa02": ""} {
			if err := w.s.InsertNode(tx, &metal.Node{ID: id, Name: name, ProvisionState: metal.Active}); err != nil {
				return err
			}
			if err := w.s.Append(tx, job.Event{Subject: job.Node(id), Type: "state", Text: "active"}); err != nil {
				return err
			}
		}
		return w.s.Append(tx, job.Event{Subject: job.Subject{Kind: "server", ID: srv.ID}, Type: "state", Text: "active"})
	}))
	want := map[string]string{"aa01": "rack1-01", "aa02": "", srv.ID: "web1"}
	for _, e := range w.many("/events?last=9", "events", 3) {
		subject := e.(object)["subject"].(object)
		name, _ := subject["name"].(string)
		if id := subject["id"].(string); name != want[id] {
			t.Errorf("the event of %s has the name %q, want %q", id, name, want[id])
		}
	}
}
