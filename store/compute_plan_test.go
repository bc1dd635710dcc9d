package store

import (
	"errors"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/test/must"
)

// TestNoScanOfServers holds that what is asked often of servers and orders finds its rows by an index. Hosts,
// flavors and rescue images are few; a list of all servers walks their own order.
func TestNoScanOfServers(t *testing.T) {
	s := openHere(t)
	r := &recorder{s.engine, map[string][]any{}}
	s.engine = r
	ctx := t.Context()
	do := func(fn func(job.Tx) error) {
		t.Helper()
		if err := s.Do(ctx, fn); err != nil && !problem.Is(err, problem.Conflict) {
			t.Fatal(err)
		}
	}
	net := &compute.Network{Record: record.Record{ID: "n"}, CIDR: "192.0.2.0/24"}
	o := &compute.Order{HostID: "h", JobID: "j"}
	image := &rescue.Image{Record: record.Record{ID: "i"}}
	do(func(tx job.Tx) error { return s.Networks().Insert(tx, net) })
	do(func(tx job.Tx) error { return s.RescueImages().Insert(tx, image) })
	do(func(tx job.Tx) error {
		return s.Servers().Insert(tx, &compute.Server{Record: record.Record{ID: "v"}, HostID: "h", GuestName: "g"})
	})
	for range 2 {
		do(func(tx job.Tx) error { _, err := s.InsertOrder(tx, o); return err })
		do(func(tx job.Tx) error {
			_, err := s.AllocateAddress(tx, net, compute.Address{ServerID: "v"}, "")
			return err
		})
	}
	do(func(tx job.Tx) error { return s.UseRescueImage(tx, image.Num) })
	do(func(tx job.Tx) error { return s.OrderProgress(tx, o.ID, "h", "words") })
	do(func(tx job.Tx) error { return s.MoveOrders(tx, "h", "b") })
	do(func(tx job.Tx) error { return s.VoidOrders(tx, "v", 1) })
	do(func(tx job.Tx) error { return s.DropOrder(tx, "o") })
	do(func(tx job.Tx) error { return s.DropJobOrders(tx, "other") })
	do(func(tx job.Tx) error { return s.VoidAllOrders(tx, errors.New("void")) })
	do(func(tx job.Tx) error { return s.FreeAddresses(tx, "v") })
	do(func(tx job.Tx) error { return s.UseReceipt(tx, "r") })
	servers := func(f compute.ServerFilter) func() error {
		return func() error {
			_, err := s.Servers().List(ctx, nil, f, record.Page{Limit: 1000})
			return err
		}
	}
	moves := func(f compute.MoveFilter) func() error {
		return func() error { return looks(ctx, s.Moves(), f) }
	}
	for _, read := range []func() error{
		servers(compute.ServerFilter{Project: "p"}), servers(compute.ServerFilter{HostID: "h"}), servers(compute.ServerFilter{Name: "n"}),
		servers(compute.ServerFilter{RescueImage: 1}), servers(compute.ServerFilter{InRescue: true}), servers(compute.ServerFilter{ImageID: "i"}),
		servers(compute.ServerFilter{RescueExpired: time.Now()}), servers(compute.ServerFilter{FlavorID: "f"}), servers(compute.ServerFilter{Task: compute.Spawning}),
		func() error { _, err := s.ServerByNum(ctx, nil, 1); return err },
		func() error { _, err := s.Servers().Marked(ctx, []int64{1, 2}); return err },
		func() error { _, err := s.OpenOrders(ctx, "h"); return err },
		func() error { _, err := s.HostsWithOrders(ctx); return err },
		func() error { _, err := s.PruneOrders(ctx, time.Now()); return err },
		func() error { _, err := s.PruneServers(ctx, time.Now()); return err },
		func() error { _, err := s.RescueImageUse(ctx, nil); return err },
		func() error { _, err := s.Addresses(ctx, nil, "n"); return err },
		func() error { return looks(ctx, s.Keypairs(), compute.KeypairFilter{User: "u"}) },
		func() error { return looks(ctx, s.Keypairs(), compute.KeypairFilter{User: "u", Name: "n"}) },
		func() error { return looks(ctx, s.Volumes(), compute.VolumeFilter{ServerID: "v"}) },
		func() error { return looks(ctx, s.Volumes(), compute.VolumeFilter{Project: "p"}) },
		func() error { return looks(ctx, s.JoinTokens(), compute.JoinTokenFilter{Digest: "d"}) },
		moves(compute.MoveFilter{ServerID: "v"}), moves(compute.MoveFilter{SourceID: "h"}), moves(compute.MoveFilter{DestID: "h"}), moves(compute.MoveFilter{PlanID: "p"}),
		moves(compute.MoveFilter{HostID: "h"}), moves(compute.MoveFilter{Open: true}), moves(compute.MoveFilter{SourceID: "h", Uncleaned: true}),
		moves(compute.MoveFilter{SourceID: "h", Open: true}), moves(compute.MoveFilter{SourceID: "h", ServerID: "v", Uncleaned: true}),
		moves(compute.MoveFilter{SourceID: "h", State: compute.MoveFailed}), moves(compute.MoveFilter{SourceID: "h", Kind: compute.Evacuation, Uncleaned: true}),
		func() error { return looks(ctx, s.Receipts(), compute.ReceiptFilter{HostID: "h"}) },
		func() error { return looks(ctx, s.Receipts(), compute.ReceiptFilter{HostID: "h", Open: true}) },
		func() error { return looks(ctx, s.Receipts(), compute.ReceiptFilter{Open: true}) },
		func() error { return looks(ctx, s.Plans(), compute.PlanFilter{HostID: "h"}) },
		func() error {
			return looks(ctx, s.Plans(), compute.PlanFilter{HostID: "h", State: compute.PlanRunning})
		},
		func() error { return looks(ctx, s.Hosts(), compute.HostFilter{NodeID: "n"}) },
		func() error { return looks(ctx, s.Hosts(), compute.HostFilter{Group: "g"}) },
		func() error { _, err := s.MoveSources(ctx); return err },
	} {
		must.OK(t, read())
	}
	if len(r.sent) < 30 {
		t.Fatalf("only %d statements were seen", len(r.sent))
	}
	for text, args := range r.sent {
		for _, step := range explain(t, s, text, args) {
			if walk, scan := strings.CutPrefix(step, "SCAN "); scan && !strings.Contains(walk, " USING ") && !strings.HasPrefix(walk, "CONSTANT ROW") ||
				strings.Contains(step, "TEMP B-TREE FOR ORDER BY") && strings.Contains(text, "host_order") {
				t.Errorf("%s:\n%s", step, text)
			}
		}
	}
}
