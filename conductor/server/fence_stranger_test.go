package server

import (
	"context"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/record"
	"salvor/storage"
	"salvor/test/must"
)

// visited is a storage to which somebody is connected from an address.
type visited struct {
	*array
	from string
}

func (v visited) Sessions(context.Context) ([]storage.Session, error) {
	return []storage.Session{{Initiator: "iqn.2026-01.example:stranger", Target: "iqn.2026-01.example:disk", Address: v.from}}, nil
}

// A connection from the host's address by a name that is none of its is no proof that the storage lets it in no more.
func TestAStrangerFromTheHostsAddressIsNoProof(t *testing.T) {
	for from, proven := range map[string]bool{"192.0.2.7": false, "192.0.2.8": true} {
		y := newLot(t, site{volumes: true})
		y.host.Inventory.Address = "192.0.2.7"
		must.OK(t, y.store.Do(context.Background(), func(tx job.Tx) error { return y.store.Hosts().Save(tx, y.host) }))
		y.con.Config.Storage = visited{y.array, from}
		y.con = New(y.con.Config)
		j, _ := y.fenced(t, compute.FenceArgs{})
		if got := len(y.receipts(t)) == 1; got != proven || !proven && !strings.Contains(j.Problem, "stranger") {
			t.Errorf("from %s: receipt %v, %q", from, got, j.Problem)
		}
	}
}

// TestASecondFenceOfAnotherBoot: another boot of a fenced host tells a guest. While it speaks no fence answers for it, whatever its BMC
// or a person says; once it is silent the next one does.
func TestASecondFenceOfAnotherBoot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		site
		again  compute.FenceArgs
		proof  compute.Evidence
		speaks bool
		said   []string
	}{
		"its power is cut":     {site: site{node: true}, proof: compute.PowerCut},
		"it is attested":       {again: compute.FenceArgs{Words: "I pulled the plug"}, proof: compute.Attested},
		"its BMC is another's": {site: site{node: true}, speaks: true, said: []string{"the host lives"}},
		"attested, and speaks": {again: compute.FenceArgs{Words: "I pulled the plug"}, speaks: true, said: []string{"attestation: the host spoke"}},
		"nothing proves it":    {said: []string{"salvor fence east --attest"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newLot(t, c.site)
			must.OK(t, y.store.Do(context.Background(), func(tx job.Tx) error {
				first := []compute.Proof{{Evidence: compute.Attested, Text: "it was off", At: y.now()}}
				_, err := y.services.Fences.Give(context.Background(), tx, y.host.ID, first, "ann", "")
				return err
			}))
			down := true
			must.Get(y.services.Hosts.SetService(context.Background(), y.host.ID, compute.Service{ForcedDown: &down}, record.Asker{}))(t)
			servers := must.Get(y.store.Servers().List(context.Background(), nil, compute.ServerFilter{HostID: y.host.ID}, record.Page{}))(t)
			guest := compute.Guest{ID: servers[0].ID, Ours: true, Power: compute.PowerOn, Epoch: 1}
			speak := func() {
				_, err := y.services.Leases.Renew(context.Background(), y.host.ID, "", compute.Renewal{BootID: "boot-2", Name: "east", HasGuests: true, Guests: []compute.Guest{guest}})
				if err != nil {
					t.Error(err)
				}
			}
			speak()
			y.pass(9 * time.Second)
			y.speak = nil
			if c.speaks {
				y.speak = speak
				speak() // the fence may be decided before the next turn
			}
			before := len(y.receipts(t)[0].Proofs)
			j, _ := y.fenced(t, c.again)
			now := y.receipts(t)[0].Proofs
			for _, word := range c.said {
				if !strings.Contains(j.Problem, word) {
					t.Errorf("said %q, want %q", j.Problem, word)
				}
			}
			switch {
			case len(c.said) > 0 && len(now) != before:
				t.Errorf("proofs: %+v", now)
			case len(c.said) == 0 && (j.Failed() || len(now) != before+1 || now[before].Evidence != c.proof):
				t.Errorf("%q: %+v", j.Problem, now)
			}
		})
	}
}
