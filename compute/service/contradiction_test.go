package service_test

import (
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/problem"
	"salvor/test/must"
)

// onSense is a BMC that says of each node that it is on.
type onSense struct{ offSense }

func (onSense) Power(string) compute.Signal { return compute.Lives }

// contradicted is a silent host with one kind of live evidence that it is not off.
var contradicted = map[compute.ContradictionCode]func(*world){
	compute.JoinedAgain: func(w *world) { w.join("HOST-A") },
	compute.BMCReadsOn: func(w *world) {
		node := newID()
		w.Liveness.SetSenses(onSense{})
		must.Get(w.Hosts.SetService(w.ctx, w.host.ID, compute.Service{NodeID: &node}, admin.Asker))(w.t)
	},
	compute.NeighboursReachIt: func(w *world) {
		inv := w.host.Inventory
		inv.Address = "192.0.2.7"
		w.renew(w.host, "boot-1", func(r *compute.Renewal) { r.Inventory = &inv })
		other := w.join("host-b")
		w.pass(6 * time.Second)
		w.renew(other, "boot-1")
		w.no(w.Leases.TendSuspects(w.ctx))
		w.pass(2 * time.Second)
		look := w.renew(other, "boot-1").Look
		if len(look) != 1 {
			w.t.Fatalf("it is to look at %v", look)
		}
		look[0].Reached = true
		w.renew(other, "boot-1", func(r *compute.Renewal) { r.Neighbours = look })
	},
}

// TestAnAttestationAgainstLiveEvidenceIsRefused, with the codes of the evidence, and passes with exactly these as disputes.
func TestAnAttestationAgainstLiveEvidenceIsRefused(t *testing.T) {
	for code, arrange := range contradicted {
		t.Run(string(code), func(t *testing.T) {
			w := newWorld(t)
			w.pass(compute.Suspect)
			arrange(w)
			attest := func(disputes ...compute.ContradictionCode) error {
				_, err := w.Fences.Fence(w.ctx, w.host.ID, compute.FenceArgs{Words: "I saw it", Disputes: disputes}, admin)
				return err
			}
			w.refuses(attest(), string(code), "--dispute "+string(code))
			other := compute.JoinedAgain
			if code == other {
				other = compute.BMCReadsOn
			}
			w.refuses(attest(code, other), string(code))
			w.want(attest("nonsense"), problem.Invalid)
			if len(w.hostJobs(w.host)) != 0 {
				t.Fatal("a fence was begun")
			}
			w.no(attest(code))
		})
	}
}

// A guest that is seen running cannot be disputed away. A word against which there is nothing needs no disputes.
func TestAGuestThatIsSeenRunningCannotBeDisputed(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	w.pass(compute.Suspect)
	again := w.join("host-b")
	w.renew(again, "boot-7", guests(runs(s, s.Epoch)))
	fence := func(a compute.FenceArgs) error {
		_, err := w.Fences.Fence(w.ctx, w.host.ID, a, admin)
		return err
	}
	w.refuses(fence(compute.FenceArgs{Words: "I saw it"}), string(compute.GuestSeenRunning), again.ID, "boot-7", s.ID)
	w.refuses(fence(compute.FenceArgs{Words: "I saw it", Disputes: []compute.ContradictionCode{compute.GuestSeenRunning}}), "cannot be disputed")
	w.renew(again, "boot-7", guests())
	w.refuses(fence(compute.FenceArgs{Words: "I saw it", Disputes: []compute.ContradictionCode{compute.JoinedAgain}}), "nothing contradicts")
	w.want(fence(compute.FenceArgs{Disputes: []compute.ContradictionCode{compute.JoinedAgain}}), problem.Invalid)
	w.no(fence(compute.FenceArgs{Words: "I saw it"}))
}

// TestForceDownAgainstAGuestThatIsSeenRunning: the refusal tells to end the guest, and recommends no dispute, which would be refused.
func TestForceDownAgainstAGuestThatIsSeenRunning(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	w.no(w.forceDown(w.host, true))
	w.pass(compute.Suspect)
	w.renew(w.join("host-b"), "boot-7", guests(runs(s, s.Epoch)))
	_, err := w.ensure(w.host)
	w.refuses(err, string(compute.GuestSeenRunning), "end that guest, and run: salvor fence host-a")
	if strings.Contains(err.Error(), "--dispute") || strings.Count(err.Error(), "run: ") != 1 {
		t.Errorf("the refusal is %v; want one command, and no dispute", err)
	}
}

// TestForceDownGivesNoReceiptAgainstLiveEvidence, though nobody is refused who says it, and gives one when the evidence is over.
func TestForceDownGivesNoReceiptAgainstLiveEvidence(t *testing.T) {
	for code, arrange := range contradicted {
		t.Run(string(code), func(t *testing.T) {
			w := newWorld(t)
			w.no(w.forceDown(w.host, true))
			w.pass(compute.Suspect)
			arrange(w)
			_, err := w.ensure(w.host)
			w.refuses(err, string(code))
			if last := "run: salvor fence host-a --attest \"who saw what\" --dispute "; (code != compute.GuestSeenRunning) != strings.Contains(err.Error(), last) || strings.Count(err.Error(), "run: ") != 1 {
				t.Errorf("%s: %v; want one command, and the dispute unless a guest was seen", code, err)
			}
			w.Liveness.SetSenses(offSense{})
			w.pass(time.Minute)
			_, err = w.ensure(w.host)
			w.no(err)
		})
	}
}
