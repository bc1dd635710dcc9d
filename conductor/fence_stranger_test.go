package conductor

import (
	"context"
	"strings"
	"testing"

	"salvor/compute"
	"salvor/job"
	"salvor/storage"
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
		if err := y.store.Do(context.Background(), func(tx job.Tx) error { return y.store.Hosts().Save(tx, y.host) }); err != nil {
			t.Fatal(err)
		}
		y.con.Config.Storage = visited{y.array, from}
		y.con = New(y.con.Config)
		j, _ := y.fenced(t, compute.FenceArgs{})
		if got := len(y.receipts(t)) == 1; got != proven || !proven && !strings.Contains(j.Problem, "stranger") {
			t.Errorf("from %s: receipt %v, %q", from, got, j.Problem)
		}
	}
}
