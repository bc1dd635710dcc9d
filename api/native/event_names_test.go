package native_test

import (
	"slices"
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

// TestEventsOfRecords: administrators ask for the timeline of a record by its name, and by its UUID when it is gone. Others do not learn of it.
func TestEventsOfRecords(t *testing.T) {
	w := newWorld(t)
	made := w.admin("POST", "/networks", `{"name": "lab", "bridge": "br0"}`, 201)
	id := made["id"].(string)
	w.admin("PATCH", "/networks/lab", `{"mtu": 1500}`, 200)
	texts := func(subject string) (out []string) {
		for _, e := range w.admin("GET", "/events?last=9&subject="+subject, "", 200)["events"].([]any) {
			out = append(out, e.(object)["text"].(string))
		}
		return out
	}
	want := []string{"network lab created", "network lab updated: mtu"}
	if got := texts("network:lab"); !slices.Equal(got, want) {
		t.Errorf("the timeline of the network is %q, want %q", got, want)
	}
	w.ask("admin", "DELETE", "/networks/lab", "", 204)
	if got := texts("network:" + id); !slices.Equal(got, append(want, "network lab deleted")) {
		t.Errorf("the timeline of the removed network is %q", got)
	}
	w.ask("admin", "GET", "/events?subject=network:lab", "", 404)
	w.ask("ann", "GET", "/events?subject=network:"+id, "", 404)
	w.ask("admin", "GET", "/events?subject=moon:lab", "", 404)
	w.ask("admin", "GET", "/events?subject=network:", "", 400)
}
