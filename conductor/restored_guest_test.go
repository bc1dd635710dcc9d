package conductor

import (
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/restored"
	"salvor/secret"
)

// waitsForHost gives a house in a held database, whose server has an open job that waits for its silent host.
func waitsForHost(t *testing.T, a compute.Act) (*house, *restored.Service) {
	t.Helper()
	h := newHouse(t, quarters{state: compute.Active})
	h.act(t, a)
	stop := h.conduct(t)
	for end := time.Now().Add(30 * time.Second); h.lead(t).State != job.Waiting; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%+v", h.lead(t))
		}
	}
	stop()
	if err := h.store.Hold(t.Context(), record.HeldBackup, "a test"); err != nil {
		t.Fatal(err)
	}
	nodes := metal.NewNodes(h.store, h.store, &secret.Key{}, metal.NewDirectory(h.store, time.Now, 0, 0), metal.Options{}, time.Now)
	return h, restored.New(h.store, nodes, h.services, time.Now)
}

// TestAContinuedJobAsksItsHostAgain: the release voids the order that a job waits for; the job gives it out anew and ends well.
func TestAContinuedJobAsksItsHostAgain(t *testing.T) {
	t.Parallel()
	h, s := waitsForHost(t, compute.Act{Action: compute.Stop})
	if _, err := s.Release(t.Context(), restored.Wanted{Rest: record.ContinueJob}, record.Asker{User: "op"}); err != nil {
		t.Fatal(err)
	}
	if j := h.lead(t); j == nil || j.State != job.Ready || j.Deadline != 0 {
		t.Fatalf("after the release: %+v", j)
	}
	h.work(t)
	if srv := h.now(t); srv.State != compute.Stopped || srv.Fault != nil {
		t.Errorf("%s", h.picture(t))
	}
}
