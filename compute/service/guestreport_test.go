package service_test

import (
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

// runs is a guest of a server as its hypervisor tells it.
func runs(s *compute.Server, epoch int64) compute.Guest {
	return compute.Guest{ID: s.ID, Ours: true, Power: compute.PowerOn, Epoch: epoch, Incarnation: "first"}
}

// begin begins the evacuation of a server by a receipt.
func (w *world) begin(id string, receipt *compute.Receipt) (moveID string, err error) {
	err = w.store.Do(w.ctx, func(tx job.Tx) error {
		srv, err := w.store.Servers().Get(w.ctx, tx, id)
		if err != nil {
			return err
		}
		m, err := w.Moves.Begin(w.ctx, tx, srv, &compute.Move{Disposition: compute.Reimage}, receipt, compute.MoveArgs{}, record.Asker{})
		if err == nil {
			moveID = m.ID
		}
		return err
	})
	return moveID, err
}

// claim gives a move its destination.
func (w *world) claim(moveID string) {
	w.t.Helper()
	w.tx(func(tx job.Tx) error {
		_, err := w.Moves.Claim(w.ctx, tx, moveID, compute.MoveArgs{}, nil)
		return err
	})
}

func (w *world) attach(moveID string) error {
	return w.store.Do(w.ctx, func(tx job.Tx) error { return w.Moves.Attach(w.ctx, tx, moveID) })
}

// TestAGuestUnderANewIdentityHoldsTheMove: the host lost its state directory and joined anew. Its guests run, and it tells them. Nothing
// is begun elsewhere, whatever proof there is of the former identity, and however many guests it tells.
func TestAGuestUnderANewIdentityHoldsTheMove(t *testing.T) {
	w := newWorld(t)
	s, free, again := w.server(alice, compute.Active), w.join("host-b"), w.join("host-a")
	all := []compute.Guest{}
	for range 150 {
		all = append(all, compute.Guest{ID: newID(), Ours: true, Power: compute.PowerOn, Epoch: 1})
	}
	w.renew(again, "boot-7", guests(append(all, runs(s, s.Epoch))...))
	receipt, err := w.fence(w.host, compute.PowerCut)
	w.no(err)
	names := []string{"host host-a (" + again.ID + ")", "boot boot-7", "guest " + s.ID, "power on", "salvor fence " + again.ID}
	_, err = w.begin(s.ID, receipt)
	w.refuses(err, names...)
	_, err = w.Moves.Evacuate(w.ctx, s.ID, compute.MoveRequest{DestHost: free.ID}, admin)
	w.refuses(err, names...)
	_, err = w.Moves.Evacuate(w.ctx, s.ID, compute.MoveRequest{DestHost: free.ID, Force: true}, admin)
	w.refuses(err, names...)
	p, err := w.Plans.Draft(w.ctx, compute.PlanRequest{Host: w.host.ID, Consent: []string{s.ID}}, admin)
	w.no(err)
	if p.Items[0].Disposition != compute.Cannot {
		t.Fatalf("%+v", p.Items)
	}
	w.refuses(problem.Conflictf("%s", p.Items[0].Why), names...)
	for name, power := range map[string]compute.Power{"paused": compute.PowerPaused, "nobody knows": compute.PowerUnknown} {
		g := runs(s, s.Epoch)
		g.Power = power
		w.renew(again, "boot-7", guests(g))
		if _, err = w.begin(s.ID, receipt); !problem.Is(err, problem.Conflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	off := runs(s, s.Epoch)
	off.Power = compute.PowerOff
	w.renew(again, "boot-7", guests(off))
	if _, err = w.begin(s.ID, receipt); err != nil {
		t.Fatalf("its guest is off: %v", err)
	}
}

// A guest that is told while the move goes on holds its attachment, until it is told off or its host is fenced.
func TestAGuestThatIsToldLateHoldsTheAttachment(t *testing.T) {
	w := newWorld(t)
	s, _, again := w.server(alice, compute.Active), w.join("host-b"), w.join("host-c")
	receipt, err := w.fence(w.host, compute.PowerCut)
	w.no(err)
	m, err := w.begin(s.ID, receipt)
	w.no(err)
	w.claim(m)
	w.renew(again, "boot-7", guests(runs(s, s.Epoch)))
	if err = w.attach(m); !problem.Is(err, problem.Unavailable) {
		t.Fatalf("%v", err)
	}
	_, err = w.fence(again, compute.PowerCut)
	w.no(err)
	w.no(w.attach(m))
}

// A fenced host answers for the boot that was fenced. A guest that another boot of it tells, or one that it tells while the fence is in
// doubt, is not proven off.
func TestAReceiptAnswersForOneBoot(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	w.join("host-b")
	w.renew(w.host, "boot-1", guests(runs(s, s.Epoch)))
	w.no(w.forceDown(w.host, true)) // which keeps it from being admitted
	receipt, err := w.fence(w.host, compute.PowerCut)
	w.no(err)
	w.pass(10 * time.Second)
	if out := w.renew(w.host, "boot-2", guests(runs(s, s.Epoch))); !out.Hold {
		t.Fatalf("%+v", out)
	}
	_, err = w.begin(s.ID, receipt)
	w.refuses(err, "boot-2", s.ID)
}

// TestASecondFenceAnswersForAnotherBoot: another boot of a fenced host reports a guest and dies. A fence after that proves the guest
// off. A fence before its last report does not, nor does one after which it spoke again, even if it no longer lists its guests.
func TestASecondFenceAnswersForAnotherBoot(t *testing.T) {
	for name, e := range map[string]compute.Evidence{"its power is cut": compute.PowerCut, "it is attested": compute.Attested} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s, free := w.server(alice, compute.Active), w.join("host-b")
			w.renew(w.host, "boot-1", guests(runs(s, s.Epoch)))
			w.no(w.forceDown(w.host, true)) // which keeps it from being admitted
			receipt, err := w.fence(w.host, compute.PowerCut)
			w.no(err)
			w.pass(10 * time.Second)
			w.renew(w.host, "boot-2", guests(runs(s, s.Epoch)))
			w.pass(2 * time.Second)
			old := []compute.Proof{{Evidence: e, Text: "off", At: w.now()}}
			w.pass(2 * time.Second)
			w.renew(w.host, "boot-2")
			err = w.store.Do(w.ctx, func(tx job.Tx) error {
				_, err := w.Fences.Give(w.ctx, tx, w.host.ID, old, "root", "")
				return err
			})
			w.refuses(err, "boot-2")
			_, err = w.begin(s.ID, receipt)
			w.refuses(err, "boot-2", s.ID)
			w.pass(2 * time.Second)
			_, err = w.fence(w.host, e)
			w.no(err)
			again, err := w.fence(w.host, e) // an action that is repeated
			w.no(err)
			if len(again.Proofs) != 2 {
				t.Errorf("proofs: %+v", again.Proofs)
			}
			w.renew(free, "boot-1")
			moved, err := w.begin(s.ID, receipt)
			w.no(err)
			w.claim(moved)
			w.pass(100 * time.Millisecond)
			w.renew(w.host, "boot-2")
			if err = w.attach(moved); !problem.Is(err, problem.Unavailable) {
				t.Fatalf("boot-2 spoke after the second fence: %v", err)
			}
			w.pass(2 * time.Second)
			_, err = w.fence(w.host, e)
			w.no(err)
			w.no(w.attach(moved))
		})
	}
}

// A third boot that tells the guest after the second fence holds the move, even before its word is stored with the receipt.
func TestASecondFenceAnswersForNoLaterBoot(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	w.join("host-b")
	w.renew(w.host, "boot-1", guests(runs(s, s.Epoch)))
	w.no(w.forceDown(w.host, true))
	receipt, err := w.fence(w.host, compute.PowerCut)
	w.no(err)
	w.pass(10 * time.Second)
	w.renew(w.host, "boot-2", guests(runs(s, s.Epoch)))
	w.pass(2 * time.Second)
	_, err = w.fence(w.host, compute.PowerCut)
	w.no(err)
	w.pass(time.Second)
	w.tx(func(tx job.Tx) error {
		return w.store.SaveGuestReport(tx, compute.GuestReport{HostID: w.host.ID, ServerID: s.ID, BootID: "boot-3", Epoch: s.Epoch, Power: compute.PowerOn, SeenAt: w.now()})
	})
	_, err = w.begin(s.ID, receipt)
	w.refuses(err, "boot-3", s.ID)
}

// A boot that is admitted ends what a former boot told, even before it lists its own guests: no guest outlives a reboot.
func TestANewBootEndsTheReportsOfTheFormer(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	w.join("host-b")
	w.renew(w.host, "boot-1", guests(runs(s, s.Epoch)))
	w.renew(w.host, "boot-2")
	receipt, err := w.fence(w.host, compute.PowerCut)
	w.no(err)
	if _, err = w.begin(s.ID, receipt); err != nil {
		t.Fatalf("a report of a former boot holds the move: %v", err)
	}
}

// A planned move looks as well: the server runs at its source, and nowhere else.
func TestAPlannedMoveIsHeldByAGuestElsewhere(t *testing.T) {
	w := newWorld(t)
	s, again := w.server(alice, compute.Active), w.join("host-b")
	w.renew(w.host, "boot-1", guests(runs(s, s.Epoch)))
	w.renew(again, "boot-7", guests(runs(s, s.Epoch)))
	_, err := w.Moves.Migrate(w.ctx, s.ID, compute.MigrationRequest{}, admin)
	w.refuses(err, again.ID, "boot-7", s.ID)
	w.renew(again, "boot-7", guests())
	_, err = w.Moves.Migrate(w.ctx, s.ID, compute.MigrationRequest{}, admin)
	w.no(err)
}

// A live migration is no reason to leave a server on a dead host: the guest that waits at its other end is ended when the server is
// evacuated. It holds the attachment until then.
func TestTheOtherEndOfAMigrationHoldsNoEvacuation(t *testing.T) {
	for name, handed := range map[string]bool{"its source dies": false, "its destination dies": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s, there, free := w.server(alice, compute.Active), w.join("host-b"), w.join("host-c")
			_, err := w.Moves.Migrate(w.ctx, s.ID, compute.MigrationRequest{}, admin)
			w.no(err)
			w.run(w.jobs(s.ID)[0], job.Waiting) // for an answer of a host
			dead, lives := w.host, there
			w.tx(func(tx job.Tx) error {
				open := must.Get(w.store.Moves().List(w.ctx, tx, compute.MoveFilter{ServerID: s.ID, Open: true}, record.Page{}))(w.t)
				m := open[0]
				m.Kind, m.State, m.DestID = compute.LiveMigration, compute.MovePreparing, there.ID
				if handed {
					dead, lives = there, w.host
					m.State, m.Clean = compute.MoveAttached, compute.CleanGuest
					srv := must.Get(w.store.Servers().Get(w.ctx, tx, s.ID))(w.t)
					srv.HostID = there.ID
					w.no(w.store.Servers().Save(tx, srv))
				}
				return w.store.Moves().Save(tx, m)
			})
			w.renew(dead, "boot-1", guests(runs(s, s.Epoch)))
			paused := runs(s, s.Epoch)
			paused.Power = compute.PowerPaused
			w.renew(lives, "boot-7", guests(paused))
			against, err := w.Fences.Contradictions(w.ctx, dead)
			w.no(err)
			if len(against) != 0 {
				t.Errorf("against its end speaks: %+v", against)
			}
			receipt, err := w.fence(dead, compute.PowerCut)
			w.no(err)
			p, err := w.Plans.Draft(w.ctx, compute.PlanRequest{Host: dead.ID, Consent: []string{s.ID}}, admin)
			w.no(err)
			if why := p.Items[0].Why; strings.Contains(why, "may run already") || strings.Contains(why, "on its way") {
				t.Errorf("planned: %s", why)
			}
			m, err := w.begin(s.ID, receipt)
			w.no(err)
			w.tx(func(tx job.Tx) error {
				_, err := w.Moves.Claim(w.ctx, tx, m, compute.MoveArgs{DestID: free.ID}, nil)
				return err
			})
			if err = w.attach(m); !problem.Is(err, problem.Unavailable) {
				t.Errorf("attached beside a guest that is held: %v", err)
			}
		})
	}
}

// TestAFormerGuestIsEndedWhereItIsSeen: its server was moved, lives elsewhere and is seen running there. The guest goes, its disk stays.
// Nothing is ended whose server is not seen running, or that is of the same epoch.
func TestAFormerGuestIsEndedWhereItIsSeen(t *testing.T) {
	w := newWorld(t)
	s, there, again := w.server(alice, compute.Active), w.join("host-b"), w.join("host-a")
	w.moved(s, w.host, there, compute.CleanGuest)
	w.pass(2 * time.Minute)
	w.renew(there, "boot-1")
	tell := func(h *compute.Host, epoch int64) compute.Clean {
		return w.renew(h, "boot-1", guests(runs(s, epoch))).Clean[s.ID]
	}
	if c := tell(again, s.Epoch); c.Do != compute.CleanAsk {
		t.Fatalf("nobody saw the server run: %+v", c)
	}
	tell(there, s.Epoch+1)
	c := tell(again, s.Epoch)
	if c.Do != compute.CleanGuest || c.Epoch != s.Epoch+1 || c.Spec == nil || c.Spec.ServerID != s.ID || len(c.Spec.Disks) != 0 {
		t.Fatalf("%+v", c)
	}
	w.saw(again, "warning", "a former guest of server "+s.ID)
	if c = tell(again, s.Epoch+1); c.Do != compute.CleanAsk {
		t.Fatalf("a guest of the same epoch: %+v", c)
	}
	if c = tell(again, 0); c.Do != compute.CleanAsk {
		t.Fatalf("a guest of no epoch: %+v", c)
	}
	w.pass(compute.Suspect)
	w.renew(again, "boot-1")
	if c = tell(again, s.Epoch); c.Do != compute.CleanAsk {
		t.Fatalf("the host of the server is silent: %+v", c)
	}
	w.renew(there, "boot-1")
	tell(again, s.Epoch)
	w.renew(again, "boot-1", func(r *compute.Renewal) { r.Cleaned = []compute.Cleaned{{ServerID: s.ID, Epoch: s.Epoch + 1}} })
	left := must.Get(w.store.GuestReports(w.ctx, nil, compute.GuestReportFilter{HostID: again.ID}))(w.t)
	if len(left) != 0 {
		t.Errorf("what was cleaned up is still told: %+v", left)
	}
}

// A host says of each clean-up again and again that it is done. A guest that came after it is told still.
func TestAnOldCleanUpEndsNoNewReport(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	w.renew(w.host, "boot-1", guests(runs(s, 3)), func(r *compute.Renewal) { r.Cleaned = []compute.Cleaned{{ServerID: s.ID, Epoch: 3}} })
	told := func() int {
		all := must.Get(w.store.GuestReports(w.ctx, nil, compute.GuestReportFilter{HostID: w.host.ID}))(w.t)
		return len(all)
	}
	if told() != 1 {
		t.Error("a guest of the epoch of the clean-up is told no more")
	}
	w.renew(w.host, "boot-1", func(r *compute.Renewal) { r.Cleaned = []compute.Cleaned{{ServerID: s.ID, Epoch: 4}} })
	if told() != 0 {
		t.Error("a guest that was cleaned up is still told")
	}
}

// TestAGuestThatShouldNotRunIsTold: with its server and its host, and in words of an operator, who sees both stuck. A server on its way
// and a guest of a fenced boot are nobody's worry.
func TestAGuestThatShouldNotRunIsTold(t *testing.T) {
	w := newWorld(t)
	s, again := w.server(alice, compute.Active), w.join("host-b")
	nobody := compute.Guest{ID: newID(), Ours: true, Power: compute.PowerOn, Epoch: 1}
	w.renew(w.host, "boot-1", guests(runs(s, s.Epoch)))
	w.renew(again, "boot-7", guests(nobody, runs(s, s.Epoch)))
	misplaced := func() []compute.GuestReport {
		all := must.Get(w.GuestReports.MisplacedGuests(w.ctx))(w.t)
		return all
	}
	if all := misplaced(); len(all) != 0 {
		t.Fatalf("what was told just now may be older than what happened: %+v", all)
	}
	w.pass(time.Minute)
	if all := misplaced(); len(all) != 2 || all[0].HostID != again.ID || all[1].HostID != again.ID {
		t.Fatalf("%+v", all)
	}
	words, on, err := w.GuestReports.Elsewhere(w.ctx, s)
	w.no(err)
	if len(words) != 1 || on[0].ID != again.ID {
		t.Fatalf("%v %v", words, on)
	}
	server := compute.ServerSituation{Server: s, Host: w.host, Life: compute.HostLiveness{Up: true}, Elsewhere: words, ElsewhereOn: on, Operator: true}
	why := server.Why()
	if text := why.Text("server", s.Name, w.now()); why.Status != record.Stuck || !strings.Contains(text, "boot boot-7") || !strings.Contains(text, again.ID) {
		t.Errorf("%s", text)
	}
	server.Operator = false
	why = server.Why()
	if text := why.Text("server", s.Name, w.now()); strings.Contains(text, "boot-7") || strings.Contains(text, again.ID) {
		t.Errorf("an owner is told of another host: %s", text)
	}
	host := compute.HostSituation{Host: again, Now: w.now(), Life: compute.HostLiveness{Up: true}, Misplaced: misplaced()}
	why = host.Why()
	if text := why.Text("host", again.Name, w.now()); why.Status != record.Stuck || !strings.Contains(text, s.ID) || !strings.Contains(text, nobody.ID) {
		t.Errorf("%s", text)
	}
	m := &compute.Move{Record: record.Record{ID: newID()}, ServerID: s.ID, SourceID: w.host.ID, DestID: again.ID, State: compute.MovePreparing}
	w.tx(func(tx job.Tx) error { return w.store.Moves().Insert(tx, m) })
	if all := misplaced(); len(all) != 1 || all[0].ServerID != nobody.ID {
		t.Errorf("%+v", all)
	}
	_, err = w.fence(again, compute.PowerCut)
	w.no(err)
	if all := misplaced(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}
