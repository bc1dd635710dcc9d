package storetest

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

func testHostGroups(b *testEnv) {
	tableCase[compute.HostGroup, compute.HostGroupFilter]{b.s.HostGroups(), "Host group", fillRecord[compute.HostGroup], (*compute.HostGroup).Head,
		func(g *compute.HostGroup) string { return g.Name }, []string{"name"}}.test(b)
	taken := fillRecord[compute.HostGroup](1)
	taken.ID = "x"
	refusedBoth(b, b.s.HostGroups(), taken, fillRecord[compute.HostGroup](8), func(g *compute.HostGroup) { g.Name = taken.Name },
		"A host group with name "+taken.Name+" already exists.")
	checkListCounts(b, b.s.HostGroups(), map[string]listCase[compute.HostGroupFilter]{"name": {compute.HostGroupFilter{Name: taken.Name}, 1}})
	for i, node := range []string{"", "", "n1"} {
		b.do(func(tx job.Tx) error {
			return b.s.Hosts().Insert(tx, &compute.Host{Record: record.Record{ID: fmt.Sprint("h", i)}, NodeID: node, Group: "g", ForcedDown: i == 0})
		})
	}
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error {
		return b.s.Hosts().Insert(tx, &compute.Host{Record: record.Record{ID: "h9"}, NodeID: "n1"})
	}), problem.Conflict, "Node n1 is another host already.")
	checkListCounts(b, b.s.Hosts(), map[string]listCase[compute.HostFilter]{
		"node": {compute.HostFilter{NodeID: "n1"}, 1}, "group": {compute.HostFilter{Group: "g"}, 3}, "forced down": {compute.HostFilter{ForcedDown: true}, 1},
	})
}

func receiptOf(id, host string, closed time.Time) *compute.Receipt {
	return &compute.Receipt{Record: record.Record{ID: id}, HostID: host, BootID: "boot", ClosedAt: closed}
}

func (b *testEnv) receipt(id, host string, closed time.Time) *compute.Receipt {
	b.Helper()
	r := receiptOf(id, host, closed)
	b.do(func(tx job.Tx) error { return b.s.Receipts().Insert(tx, r) })
	return r
}

func testReceipts(b *testEnv) {
	tableCase[compute.Receipt, compute.ReceiptFilter]{b.s.Receipts(), "Receipt", fillRecord[compute.Receipt], (*compute.Receipt).Head, nil, []string{"host_id"}}.test(b)
	open := b.receipt("a", "h1", time.Time{})
	b.receipt("b", "h1", beginning)
	b.receipt("c", "h1", beginning)
	b.receipt("d", "h2", time.Time{})
	twice := "Host h1 is fenced already: its receipt is open."
	refusedBoth(b, b.s.Receipts(), receiptOf("e", "h1", time.Time{}), receiptOf("f", "h3", time.Time{}), func(r *compute.Receipt) { r.HostID = "h1" }, twice)
	checkListCounts(b, b.s.Receipts(), map[string]listCase[compute.ReceiptFilter]{
		"host": {compute.ReceiptFilter{HostID: "h1"}, 3}, "open": {compute.ReceiptFilter{HostID: "h1", Open: true}, 1}, "all open": {compute.ReceiptFilter{Open: true}, 3},
	})
	b.do(func(tx job.Tx) error { return b.s.UseReceipt(tx, "a") })
	open.ClosedAt = beginning
	b.do(func(tx job.Tx) error { return b.s.Receipts().Save(tx, open) })
	for _, id := range []string{"a", "b", "nobody"} {
		b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.UseReceipt(tx, id) }), problem.Conflict, "")
	}
	b.receipt("g", "h1", time.Time{})
}

// testReceiptOnce: whoever proves that a host is off at the same time as another one, one receipt is written.
func testReceiptOnce(b *testEnv) {
	stores := bothStores(b)
	if won := countConcurrentWins(8, func(i int) bool {
		s := stores[i%2]
		return s.Do(b.ctx, func(tx job.Tx) error { return s.Receipts().Insert(tx, receiptOf(fmt.Sprint("r", i), "h", time.Time{})) }) == nil
	}); won != 1 {
		b.Errorf("%d open receipts of one host", won)
	}
}

// testMoveAgainstAdmission: of a move by a receipt and its closing for want of moves one wins, in whatever order they look and write.
func testMoveAgainstAdmission(b *testEnv) {
	stores := bothStores(b)
	for round := range 12 {
		host := fmt.Sprint("h", round)
		receipt := b.receipt("r"+host, host, time.Time{})
		var moved, admitted, twice atomic.Bool
		admit := func(s interface {
			compute.Store
			job.Transactor
		}) bool {
			return s.Do(b.ctx, func(tx job.Tx) error {
				now, err := s.Receipts().Get(b.ctx, tx, receipt.ID)
				if err != nil {
					return err
				}
				if err := s.UseReceipt(tx, now.ID); err != nil {
					return err
				}
				open, err := s.Moves().List(b.ctx, tx, compute.MoveFilter{SourceID: host, Open: true}, record.Page{})
				if err != nil || len(open) > 0 {
					return problem.Conflictf("a move goes on: %v", err)
				}
				now.ClosedAt = beginning
				return s.Receipts().Save(tx, now)
			}) == nil
		}
		countConcurrentWins(3, func(i int) bool {
			s := stores[(i+round)%2]
			switch i {
			case 0:
				moved.Store(s.Do(b.ctx, func(tx job.Tx) error {
					if err := s.UseReceipt(tx, receipt.ID); err != nil {
						return err
					}
					return s.Moves().Insert(tx, moveOf("m"+host, "v"+host, host, compute.MoveAccepted))
				}) == nil)
			case 1:
				admitted.Store(admit(s))
			case 2:
				twice.Store(admit(s))
			}
			return true
		})
		wins := 0
		for _, won := range []bool{moved.Load(), admitted.Load(), twice.Load()} {
			if won {
				wins++
			}
		}
		if wins != 1 {
			b.Fatalf("round %d: moved %v, admitted %v and %v", round, moved.Load(), admitted.Load(), twice.Load())
		}
	}
}

func testPlans(b *testEnv) {
	tableCase[compute.Plan, compute.PlanFilter]{b.s.Plans(), "Plan", fillRecord[compute.Plan], (*compute.Plan).Head, nil, []string{"host_id", "state"}}.test(b)
	plan := func(id, host string, state compute.PlanState) *compute.Plan {
		return &compute.Plan{Record: record.Record{ID: id}, HostID: host, State: state}
	}
	for _, p := range []*compute.Plan{
		plan("a", "h1", compute.PlanRunning), plan("b", "h1", compute.PlanDrafted), plan("c", "h1", compute.PlanDrafted), plan("d", "h2", compute.PlanRunning),
		plan("e", "h1", compute.PlanDone),
	} {
		b.do(func(tx job.Tx) error { return b.s.Plans().Insert(tx, p) })
	}
	refusedBoth(b, b.s.Plans(), plan("x", "h1", compute.PlanRunning), plan("y", "h1", compute.PlanDrafted), func(p *compute.Plan) { p.State = compute.PlanRunning },
		"Another plan for host h1 is running.")
	checkListCounts(b, b.s.Plans(), map[string]listCase[compute.PlanFilter]{
		"host": {compute.PlanFilter{HostID: "h1"}, 5}, "running": {compute.PlanFilter{State: compute.PlanRunning}, 2},
		"both": {compute.PlanFilter{HostID: "h1", State: compute.PlanDrafted}, 3},
	})
}

func moveOf(id, server, source string, state compute.MoveState, change ...func(*compute.Move)) *compute.Move {
	m := &compute.Move{Record: record.Record{ID: id}, ServerID: server, SourceID: source, State: state}
	for _, c := range change {
		c(m)
	}
	return m
}

func testMoves(b *testEnv) {
	tableCase[compute.Move, compute.MoveFilter]{b.s.Moves(), "Move", fillRecord[compute.Move], (*compute.Move).Head, nil,
		[]string{"server_id", "source_id", "state", "updated_at"}}.test(b)
	to := func(dest, plan, receipt string) func(*compute.Move) {
		return func(m *compute.Move) {
			m.DestID, m.PlanID, m.ReceiptID, m.Kind, m.User, m.Project = dest, plan, receipt, compute.Evacuation, "u", "p"
		}
	}
	for _, m := range []*compute.Move{
		moveOf("a", "v1", "h1", compute.MoveAttached, to("h2", "p1", "r1")), moveOf("b", "v1", "h3", compute.MoveDone, to("h1", "p1", "r1")),
		moveOf("c", "v2", "h1", compute.MoveDone, to("h2", "", "")), moveOf("d", "v2", "h2", compute.MoveCompleted), moveOf("e", "v3", "h4", compute.MoveAccepted),
		moveOf("f", "v2", "h1", compute.MoveFailed), moveOf("g", "v4", "h3", compute.MovePreparing), moveOf("i", "v4", "h1", compute.MoveCancelled),
	} {
		b.do(func(tx job.Tx) error { return b.s.Moves().Insert(tx, m) })
	}
	for _, state := range compute.OpenMoves {
		refusedBoth(b, b.s.Moves(), moveOf("x", "v1", "h9", state), moveOf("y", "w"+string(state), "h9", compute.MoveError), func(m *compute.Move) {
			m.ServerID, m.State = "v1", state
		}, "Server v1 is being moved already.")
		b.do(func(tx job.Tx) error {
			y, err := b.s.Moves().Get(b.ctx, tx, "free"+fmt.Sprint(len("Server v1 is being moved already.")))
			if err != nil {
				return err
			}
			return b.s.Moves().Delete(tx, y)
		})
	}
	later := time.Now().Add(time.Hour)
	checkListCounts(b, b.s.Moves(), map[string]listCase[compute.MoveFilter]{
		"server": {compute.MoveFilter{ServerID: "v2"}, 3}, "source": {compute.MoveFilter{SourceID: "h1"}, 4}, "dest": {compute.MoveFilter{DestID: "h2"}, 2},
		"host": {compute.MoveFilter{HostID: "h1"}, 5}, "plan": {compute.MoveFilter{PlanID: "p1"}, 2}, "receipt": {compute.MoveFilter{ReceiptID: "r1"}, 2},
		"kind": {compute.MoveFilter{Kind: compute.Evacuation}, 3}, "state": {compute.MoveFilter{State: compute.MoveDone}, 2},
		"project": {compute.MoveFilter{Project: "p"}, 3}, "user": {compute.MoveFilter{User: "u", Project: "q"}, 0},
		"open": {compute.MoveFilter{ServerID: "v1", Open: true}, 1}, "uncleaned": {compute.MoveFilter{SourceID: "h1", Uncleaned: true}, 1},
		"since": {compute.MoveFilter{ServerID: "v1", ChangesSince: beginning}, 2}, "since later": {compute.MoveFilter{ChangesSince: later}, 0},
		"since, never changed": {compute.MoveFilter{ServerID: "v3", ChangesSince: beginning}, 1},
		"before":               {compute.MoveFilter{ServerID: "v1", ChangesBefore: later}, 2}, "long before": {compute.MoveFilter{ServerID: "v1", ChangesBefore: beginning}, 0},
	})
	sources := must.Get(b.s.MoveSources(b.ctx))(b)
	slices.Sort(sources)
	if fmt.Sprint(sources) != "[h1 h3 h4]" {
		b.Errorf("hosts with moves: %v", sources)
	}
}

// testGuestReports writes what hosts tell of guests, and reads what is told elsewhere than where the records have it.
func testGuestReports(b *testEnv) {
	for _, id := range []string{"gh1", "gh2"} {
		h := &compute.Host{Record: record.Record{ID: id}, Name: id, Kind: compute.AgentHost, Lost: id == "gh2", LostReason: "burnt"}
		b.do(func(tx job.Tx) error { return b.s.Hosts().Insert(tx, h) })
	}
	for id, state := range map[string]compute.VMState{"gs1": compute.Active, "gs2": compute.Deleted} {
		srv := &compute.Server{Record: record.Record{ID: id}, HostID: "gh1", State: state}
		b.do(func(tx job.Tx) error { return b.s.Servers().Insert(tx, srv) })
	}
	report := func(host, server string) compute.GuestReport {
		return compute.GuestReport{HostID: host, ServerID: server, BootID: "b", Epoch: 3, Incarnation: "i", Power: compute.PowerPaused, SeenAt: time.UnixMicro(7).UTC()}
	}
	b.do(func(tx job.Tx) error {
		for _, g := range []compute.GuestReport{report("gh1", "gs1"), report("gh1", "gs2"), report("gh2", "gs1"), report("gh2", "nobody"), report("gh1", "gs1")} {
			if err := b.s.SaveGuestReport(tx, g); err != nil {
				return err
			}
		}
		return nil
	})
	for name, c := range map[string]struct {
		filter compute.GuestReportFilter
		want   string
	}{
		"host": {compute.GuestReportFilter{HostID: "gh1"}, "gh1/gs1 gh1/gs2 "}, "server": {compute.GuestReportFilter{ServerID: "gs1"}, "gh1/gs1 gh2/gs1 "},
		"elsewhere": {compute.GuestReportFilter{OfHostID: "gh1"}, "gh2/gs1 "}, "misplaced": {compute.GuestReportFilter{Misplaced: true}, "gh1/gs2 gh2/gs1 gh2/nobody "},
	} {
		all := must.Get(b.s.GuestReports(b.ctx, nil, c.filter))(b)
		got := ""
		for _, g := range all {
			got += g.HostID + "/" + g.ServerID + " "
			if want := report(g.HostID, g.ServerID); !g.SeenAt.Equal(want.SeenAt) || g.Epoch != 3 || g.Incarnation != "i" || g.BootID != "b" || g.Power != compute.PowerPaused {
				b.Errorf("%s: %+v", name, g)
			}
		}
		if got != c.want {
			b.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
	checkListCounts(b, b.s.Hosts(), map[string]listCase[compute.HostFilter]{
		"there": {compute.HostFilter{}, 1}, "lost": {compute.HostFilter{Lost: true}, 1}, "all": {compute.HostFilter{WithLost: true}, 2}, "lost, by name": {compute.HostFilter{Name: "gh2"}, 0},
	})
	b.do(func(tx job.Tx) error { return b.s.DropGuestReport(tx, "gh1", "gs1") })
	h := must.Get(b.s.Hosts().Get(b.ctx, nil, "gh2"))(b)
	if !h.Lost || h.LostReason != "burnt" {
		b.Errorf("%+v", h)
	}
	b.do(func(tx job.Tx) error { return b.s.Hosts().Delete(tx, h) }) // and what it told
	left := must.Get(b.s.GuestReports(b.ctx, nil, compute.GuestReportFilter{}))(b)
	if len(left) != 1 {
		b.Errorf("%+v", left)
	}
}
