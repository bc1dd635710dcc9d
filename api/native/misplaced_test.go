package native_test

import (
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/test/must"
)

// TestMisplacedGuestsAreShown: a host tells the guests that run on it and belong elsewhere, with their boot, and no other host does.
func TestMisplacedGuestsAreShown(t *testing.T) {
	w := newWorld(t)
	home, away := w.host("vm1"), w.host("vm2")
	s := w.on(home, "db")
	w.has(w.admin("GET", "/hosts/vm2", "", 200), object{"misplaced": 0, "misplaced_guests": "[]"})
	for _, h := range []*compute.Host{home, away} {
		must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error {
			return w.s.SaveGuestReport(tx, compute.GuestReport{HostID: h.ID, ServerID: s.ID, BootID: "b9", Epoch: 7, Power: compute.PowerOn, SeenAt: time.Now().Add(-time.Hour)})
		}))
	}
	w.has(w.admin("GET", "/hosts/vm1", "", 200), object{"misplaced": 0, "misplaced_guests": "[]"})
	shown := w.admin("GET", "/hosts/vm2", "", 200)
	w.has(shown, object{"misplaced": 1})
	guests := shown["misplaced_guests"].([]any)
	if len(guests) != 1 {
		t.Fatalf("%v", guests)
	}
	w.has(guests[0].(object), object{"server_id": s.ID, "boot_id": "b9", "epoch": 7, "power": compute.PowerOn})
	for _, one := range w.many("/hosts", "hosts", 2) {
		if h := one.(object); h["misplaced"] != map[any]any{"vm1": 0.0, "vm2": 1.0}[h["name"]] {
			t.Errorf("%v lists %v", h["name"], h["misplaced"])
		}
	}
}

// TestALostHostIsAskedForByItsReason: a fenced host is removed by a reason in one line, only while it is silent, and is not lost by a
// change of its record.
func TestALostHostIsAskedForByItsReason(t *testing.T) {
	w := newWorld(t)
	w.fence(w.host("vm1"))
	w.says("DELETE", "/hosts/vm1", "", 409, "--lost REASON")
	w.says("DELETE", "/hosts/vm1?lost=two%0Alines", "", 400, "one line")
	w.says("DELETE", "/hosts/vm1?lost=sold", "", 409, "it speaks")
	w.says("PATCH", "/hosts/vm1", `{"lost":true}`, 400, "salvor host remove HOST --lost REASON")
	w.has(w.many("/hosts", "hosts", 1)[0].(object), object{"lost": false})
	w.many("/hosts?lost=true", "hosts", 0)
}
