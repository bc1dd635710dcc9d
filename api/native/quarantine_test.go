package native_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
)

// quarantines plays, until the test ends, the agent of a host that has many disks in quarantine. It renews the host's lease.
func (w *world) quarantines(h *compute.Host, many int) {
	var done sync.WaitGroup
	done.Go(func() {
		renewed := time.Now()
		for n := int64(2); w.Context().Err() == nil; {
			if time.Since(renewed) > time.Second {
				renewed = time.Now()
				_ = w.s.SaveLeases(w.Context(), []compute.Lease{{HostID: h.ID, BootID: h.BootID, RenewedAt: renewed, Renewals: n}})
				n++
			}
			orders, _ := w.s.OpenOrders(w.Context(), h.ID)
			for _, o := range orders {
				var args compute.Args
				_ = json.Unmarshal(o.Args, &args)
				var r compute.Result
				for i := range many {
					if d := (compute.QuarantinedDisk{ID: fmt.Sprintf("disk%d", i), Bytes: 1}); d.ID > args.After && len(r.Quarantine) < args.Limit {
						r.Quarantine = append(r.Quarantine, d)
					}
				}
				_ = w.s.Do(w.Context(), func(tx job.Tx) error {
					_, err := w.s.FinishOrder(tx, o.ID, h.ID, o.BootID, o.Epoch, r)
					return err
				})
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	w.Cleanup(done.Wait) // after the context has ended
}

// TestQuarantineIsListedInPages: the quarantine has pages like every list, and its last page has no next one.
func TestQuarantineIsListedInPages(t *testing.T) {
	w := newWorld(t)
	h := w.host("vm1")
	w.quarantines(h, 5)
	var got []string
	pages := 0
	for path := "/hosts/vm1/quarantine?limit=2"; path != ""; pages++ {
		page := w.admin("GET", path, "", 200)
		for _, d := range page["quarantine"].([]any) {
			got = append(got, d.(object)["id"].(string))
		}
		path = ""
		if next, ok := page["next"].(string); ok {
			path = next[len(next)-len("/hosts/vm1/quarantine?limit=2&marker=diskN"):]
		}
	}
	if want := []string{"disk0", "disk1", "disk2", "disk3", "disk4"}; !slices.Equal(got, want) || pages != 3 {
		t.Errorf("%d pages: %v", pages, got)
	}
	w.says("GET", "/hosts/vm1/quarantine?limit=0", "", 400, "want 1 to 1000")
	w.says("GET", "/hosts/vm1/quarantine?marker="+fmt.Sprintf("%0200d", 1), "", 400, "Invalid value for marker")
}
