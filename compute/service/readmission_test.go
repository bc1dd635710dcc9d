package service_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

// machine is a simulated VM host, which does what it is told and what is true of a host: without power nothing runs.
type machine struct {
	host  *compute.Host
	boot  int
	alive bool
	// runs are the guests that it has, by server.
	runs    map[string]*compute.Guest
	stop    bool
	cleaned []compute.Cleaned
	last    compute.Renewed
}

func (m *machine) bootID() string { return fmt.Sprint("boot-", m.boot) }

func (m *machine) cut() {
	m.alive, m.stop, m.cleaned = false, false, nil
	for _, g := range m.runs {
		g.Power = compute.PowerOff
	}
}

func (m *machine) guests() (out []compute.Guest) {
	for _, id := range slices.Sorted(maps.Keys(m.runs)) {
		out = append(out, *m.runs[id])
	}
	return out
}

// returning is a host whose servers are moved to another one, under a state machine.
type returning struct {
	*world
	rt      *rapid.T
	a, b    *machine
	servers []string
	// lied: a fence was false, so that a guest may run twice until that is known.
	lied bool
	// attached servers run at the destination.
	attached map[string]bool
	plan     *compute.Plan
	// running are the jobs of moves that were claimed, by server.
	running map[string]job.Job
}

func newReturning(t *testing.T, rt *rapid.T) *returning {
	w := newWorld(t)
	f := &returning{world: w, rt: rt, attached: map[string]bool{}, running: map[string]job.Job{}}
	f.a = &machine{host: w.host, boot: 1, alive: true, runs: map[string]*compute.Guest{}}
	w.group(compute.HostGroup{SelfFence: true})
	for range 3 {
		s := w.server(alice, compute.Active)
		f.servers = append(f.servers, s.ID)
		f.a.runs[s.ID] = &compute.Guest{ID: s.ID, Ours: true, Power: compute.PowerOn, Epoch: s.Epoch}
	}
	f.b = &machine{host: w.join("host-b"), boot: 1, alive: true, runs: map[string]*compute.Guest{}}
	return f
}

func (f *returning) moves(m compute.MoveFilter) []*compute.Move {
	found, err := f.store.Moves().List(f.ctx, nil, m, record.Page{})
	f.no(err)
	return found
}

// speak renews, and does what the answer says.
func (f *returning) speak(m *machine, cleans bool) {
	before, jobs, fence := f.hostRow(m.host), f.allJobs(), f.openReceipt(m.host)
	r := compute.Renewal{BootID: m.bootID(), Watchdog: "dog", Stopped: m.stop, Cleaned: m.cleaned, HasGuests: true, Guests: m.guests()}
	silent, _, _ := f.Liveness.Silence(m.host.ID)
	out, err := f.Leases.Renew(f.ctx, m.host.ID, "01", r)
	f.no(err)
	m.last, m.cleaned = out, nil
	after := f.hostRow(m.host)
	if out.Hold != after.Fenced {
		f.rt.Fatalf("told hold %v, and its row says fenced %v", out.Hold, after.Fenced)
	}
	if out.Hold || out.Stop {
		if out.Servers != nil || f.allJobs() != jobs {
			f.rt.Fatalf("something is begun on a host that is held: %+v", out)
		}
		if may, err := f.Leases.MayAct(f.ctx, m.host.ID); err != nil || may {
			f.rt.Fatalf("it is given orders: %v", err)
		}
	}
	// A fence that it contradicted may be followed at once by another one, by its own word; meanwhile it held the lease.
	if now, _, _ := f.Liveness.Silence(m.host.ID); fence != "" && fence == f.openReceipt(m.host) && now < silent {
		f.rt.Fatalf("a host that is held was given the lease")
	}
	if before.Fenced && !after.Fenced {
		f.admitted(before)
	}
	m.obey(f, out, cleans)
}

// openReceipt is the id of the open receipt of a host; empty: it has none.
func (f *returning) openReceipt(h *compute.Host) string {
	open, err := f.Fences.List(f.ctx, compute.ReceiptFilter{HostID: h.ID, Open: true}, record.Page{})
	f.no(err)
	if len(open) == 0 {
		return ""
	}
	return open[0].ID
}

// admitted holds what must be true when a fence is over.
func (f *returning) admitted(before *compute.Host) {
	all, err := f.Fences.List(f.ctx, compute.ReceiptFilter{HostID: before.ID}, record.Page{})
	f.no(err)
	last := all[len(all)-1]
	if last.Open() || last.BackBootID != f.a.bootID() {
		f.rt.Fatalf("admitted with %+v", last)
	}
	if last.Closed == "contradicted" {
		if !f.lied {
			f.rt.Fatalf("a true fence was contradicted: %+v", last)
		}
		return
	}
	if left := append(f.moves(compute.MoveFilter{SourceID: before.ID, Open: true}), f.moves(compute.MoveFilter{SourceID: before.ID, Uncleaned: true})...); len(left) > 0 || f.plan != nil || before.ForcedDown {
		f.rt.Fatalf("admitted in spite of %d moves, plan %v, forced down %v", len(left), f.plan != nil, before.ForcedDown)
	}
}

func (m *machine) obey(f *returning, out compute.Renewed, cleans bool) {
	if out.Stop {
		for _, g := range m.runs {
			g.Power = compute.PowerOff
		}
	}
	m.stop = out.Stop
	for id, c := range out.Clean {
		g := m.runs[id]
		switch {
		case c.Do == compute.CleanAsk:
			f.rt.Fatalf("server %s is none that nobody knows", id)
		case c.Do != compute.CleanGuest && c.Do != compute.CleanDisk:
		case g != nil && g.Epoch >= c.Epoch:
			f.rt.Fatalf("told to destroy a guest of epoch %d below %d", g.Epoch, c.Epoch)
		case c.Spec == nil || c.Spec.ServerID != id:
			f.rt.Fatalf("no specification of what goes: %+v", c)
		case f.read(id).HostID == m.host.ID:
			f.rt.Fatalf("told to destroy a server that is its own")
		case cleans:
			delete(m.runs, id)
			m.cleaned = append(m.cleaned, compute.Cleaned{ServerID: id, Epoch: c.Epoch})
		default:
			m.cleaned = append(m.cleaned, compute.Cleaned{ServerID: id, Epoch: c.Epoch, Error: "busy"})
		}
	}
}

func (f *returning) allJobs() (n int) {
	for _, id := range f.servers {
		n += len(f.jobs(id))
	}
	return n
}

// reconcile does what jobs were begun on the source, as a conductor and its orders would.
func (f *returning) reconcile() {
	claimed, err := f.store.Claim(f.ctx, "conductor", f.now().Add(time.Hour), []string{""}, map[job.Kind]int{compute.JobReconcile: 9}, 100)
	f.no(err)
	for _, j := range claimed {
		var args compute.PowerArgs
		f.no(json.Unmarshal(j.Args, &args))
		srv := f.read(j.Subject.ID)
		may, err := f.Leases.MayAct(f.ctx, f.a.host.ID)
		f.no(err)
		j.State, j.EndedAt = job.Ended, f.now()
		f.tx(func(tx job.Tx) error { return f.store.Save(tx, &j, false) })
		done := may && f.a.alive && srv.HostID == f.a.host.ID
		if done {
			f.a.runs[srv.ID] = &compute.Guest{ID: srv.ID, Ours: true, Power: args.Power, Epoch: srv.Epoch}
		}
		f.tx(func(tx job.Tx) error {
			return f.Servers.Finish(f.ctx, tx, srv.ID, func(s *compute.Server) {
				if done {
					s.Settle(args.Power)
				}
			})
		})
	}
}

// begin moves a server away by the receipt of its host.
func (f *returning) begin(id string) {
	err := f.store.Do(f.ctx, func(tx job.Tx) error {
		srv, err := f.store.Servers().Get(f.ctx, tx, id)
		if err != nil {
			return err
		}
		receipt, err := f.Fences.Receipt(f.ctx, tx, f.a.host.ID)
		if err != nil {
			return err
		}
		if srv.HostID != f.a.host.ID {
			return problem.Conflictf("not there")
		}
		_, err = f.Moves.Begin(f.ctx, tx, srv, &compute.Move{Disposition: compute.Reimage}, receipt, compute.MoveArgs{}, record.Asker{})
		return err
	})
	if err != nil && !problem.Is(err, problem.NotFound) && !problem.Is(err, problem.Conflict) {
		f.rt.Fatal(err)
	}
	if fenced := f.hostRow(f.a.host).Fenced; err == nil && !fenced {
		f.rt.Fatal("moved without a receipt")
	}
}

// step brings a move on.
func (f *returning) step(m *compute.Move) {
	receipt, err := f.store.Receipts().Get(f.ctx, nil, m.ReceiptID)
	f.no(err)
	err = f.store.Do(f.ctx, func(tx job.Tx) error {
		switch m.State {
		case compute.MoveAccepted:
			_, err := f.Moves.Claim(f.ctx, tx, m.ID, compute.MoveArgs{}, nil)
			return err
		case compute.MovePreparing:
			return f.Moves.Attach(f.ctx, tx, m.ID)
		}
		return f.Moves.Finish(f.ctx, tx, m.ID, func(s *compute.Server) { s.Settle(compute.PowerOn) })
	})
	switch {
	case err == nil && m.State == compute.MovePreparing && !receipt.Open():
		f.rt.Fatal("attached though the receipt is closed")
	case err == nil && m.State == compute.MovePreparing:
		f.attached[m.ServerID] = true
	case err == nil && m.State == compute.MoveAttached:
		f.endJob(m.ServerID)
	case err != nil && !problem.Is(err, problem.Conflict):
		f.rt.Fatal(err)
	case err != nil:
		f.fail(m)
	}
}

func (f *returning) fail(m *compute.Move) {
	f.tx(func(tx job.Tx) error { return f.Moves.Fail(f.ctx, tx, m.ID, "it failed") })
	f.endJob(m.ServerID)
}

// endJob ends the job of a move.
func (f *returning) endJob(id string) {
	claimed, err := f.store.Claim(f.ctx, "conductor", f.now().Add(time.Hour), []string{""}, map[job.Kind]int{compute.JobMove: 9}, 100)
	f.no(err)
	for _, j := range claimed {
		f.running[j.Subject.ID] = j
	}
	if j, found := f.running[id]; found {
		j.State, j.EndedAt = job.Ended, f.now()
		f.tx(func(tx job.Tx) error { return f.store.Save(tx, &j, false) })
		delete(f.running, id)
	}
}

// no fails the check, so that it is made smaller.
func (f *returning) no(err error) {
	if err != nil {
		f.rt.Fatal(err)
	}
}

// truth: no server runs on both hosts, unless a fence was false.
func (f *returning) truth() {
	row := f.hostRow(f.a.host)
	open, err := f.Fences.List(f.ctx, compute.ReceiptFilter{HostID: row.ID, Open: true}, record.Page{})
	f.no(err)
	if row.Fenced != (len(open) == 1) || f.up(f.a.host) && row.Fenced {
		f.rt.Fatalf("fenced %v, %d open receipts", row.Fenced, len(open))
	}
	if f.lied {
		return
	}
	for id := range f.attached {
		if g := f.a.runs[id]; f.a.alive && g != nil && g.Power == compute.PowerOn {
			f.rt.Fatalf("server %s runs on both hosts", id)
		}
	}
}

func (f *returning) pass(d time.Duration) {
	for d > 0 {
		turn := min(d, 4*time.Second)
		f.world.pass(turn)
		f.speak(f.b, true)
		d -= turn
	}
}

// fence proves that the source is off, as it is, or as somebody says though it is not.
func (f *returning) fence(e compute.Evidence, lie bool) {
	if f.hostRow(f.a.host).Fenced {
		return
	}
	alive := f.a.alive
	switch e {
	case compute.PowerCut:
		if !lie {
			f.a.cut()
		}
		_, err := f.world.fence(f.a.host, e)
		f.no(err)
		f.lied = f.lied || lie && alive
	default:
		f.a.cut()
		if e == compute.Attested {
			must.OK(f.rt, f.forceDown(f.a.host, true))
		}
		f.pass(compute.SelfFenceEvidence)
		if _, err := f.ensure(f.a.host); err != nil {
			f.want(err, problem.Conflict)
		}
	}
}

func (f *returning) actions(lies bool) map[string]func(*rapid.T) {
	pick := func(t *rapid.T) string { return rapid.SampledFrom(f.servers).Draw(t, "server") }
	going := func(t *rapid.T, do func(*compute.Move)) {
		if open := f.moves(compute.MoveFilter{Open: true}); len(open) > 0 {
			do(rapid.SampledFrom(open).Draw(t, "move"))
		}
	}
	out := map[string]func(*rapid.T){
		"": func(*rapid.T) { f.truth() },
		"fence": func(t *rapid.T) {
			e := rapid.SampledFrom([]compute.Evidence{compute.PowerCut, compute.SelfFenced, compute.Attested}).Draw(t, "evidence")
			f.fence(e, lies && e == compute.PowerCut && rapid.Bool().Draw(t, "lie"))
		},
		"speak": func(t *rapid.T) {
			if f.a.alive {
				f.speak(f.a, rapid.Bool().Draw(t, "cleans"))
			}
		},
		"boot": func(*rapid.T) {
			if !f.a.alive {
				f.a.alive = true
				f.a.boot++
			}
		},
		"reset": func(*rapid.T) {
			f.a.cut()
			f.a.alive = true
			f.a.boot++
		},
		"pass":      func(t *rapid.T) { f.pass(time.Duration(rapid.IntRange(1, 4).Draw(t, "s")) * time.Second) },
		"begin":     func(t *rapid.T) { f.begin(pick(t)) },
		"step":      func(t *rapid.T) { going(t, f.step) },
		"step on":   func(t *rapid.T) { going(t, f.step) },
		"fail":      func(t *rapid.T) { going(t, f.fail) },
		"reconcile": func(*rapid.T) { f.reconcile() },
		"force":     func(t *rapid.T) { f.force(rapid.Bool().Draw(t, "down")) },
		"plan":      func(*rapid.T) { f.endOrBeginPlan() },
	}
	return out
}

func (f *returning) force(down bool) {
	left := len(f.moves(compute.MoveFilter{SourceID: f.a.host.ID, Uncleaned: true})) + len(f.moves(compute.MoveFilter{SourceID: f.a.host.ID, Open: true}))
	was := f.hostRow(f.a.host).ForcedDown
	err := f.forceDown(f.a.host, down)
	if refused := was && !down && left > 0; refused != problem.Is(err, problem.Invalid) || !refused && err != nil {
		f.rt.Fatalf("forced down %v -> %v with %d moves: %v", was, down, left, err)
	}
}

func (f *returning) endOrBeginPlan() {
	f.tx(func(tx job.Tx) error {
		if f.plan != nil {
			f.plan.State = compute.PlanDone
			err := f.store.Plans().Save(tx, f.plan)
			f.plan = nil
			return err
		}
		p := &compute.Plan{Record: record.Record{ID: newID()}, HostID: f.a.host.ID, State: compute.PlanRunning}
		if _, err := f.Fences.Receipt(f.ctx, tx, p.HostID); err != nil {
			return nil
		}
		f.plan = p
		return f.store.Plans().Insert(tx, p)
	})
}

// converge: when all ends and the host speaks, it is free, nothing is left to clean up, and what should run there runs.
func (f *returning) converge() {
	if f.plan != nil {
		f.endOrBeginPlan()
	}
	for _, m := range f.moves(compute.MoveFilter{Open: true}) {
		f.fail(m)
	}
	if !f.a.alive {
		f.a.alive = true
		f.a.boot++
	}
	for range 6 {
		f.pass(8 * time.Second)
		f.speak(f.a, true)
		f.speak(f.a, true)
		f.reconcile()
		f.truth()
		if f.hostRow(f.a.host).ForcedDown {
			f.force(false)
		}
	}
	row := f.hostRow(f.a.host)
	if left := f.moves(compute.MoveFilter{SourceID: row.ID, Uncleaned: true}); row.Fenced || row.ForcedDown || f.a.last.Hold || f.a.last.Stop || len(left) > 0 || row.BootID != f.a.bootID() {
		f.rt.Fatalf("the host is not back: %+v, %d moves, %+v", row, len(left), f.a.last)
	}
	for _, id := range f.servers {
		srv, g := f.read(id), f.a.runs[id]
		if srv.HostID == row.ID && srv.Wanted == compute.PowerOn && srv.State == compute.Active && (g == nil || g.Power != compute.PowerOn) {
			f.rt.Fatalf("server %s should run, and does not: %+v, guest %+v", id, srv, g)
		}
		if srv.HostID == row.ID && srv.Wanted != compute.PowerOn && srv.State != compute.Errored {
			f.rt.Fatalf("server %s is %s, wanted %s: nobody asked for that", id, srv.State, srv.Wanted)
		}
		if srv.HostID != row.ID && g != nil {
			f.rt.Fatalf("server %s lives on %s, and its former host has it still", id, srv.HostID)
		}
	}
}

// TestFencesAndReturns walks through fences, moves, returns and what operators say in any order: no server ever runs on two hosts, no
// host is admitted too early, nothing is begun on one that is held, and in the end all is as it should be; in the end that is so, too,
// where a BMC said off of a host that lives.
func TestFencesAndReturns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newReturning(t, rt)
		rt.Repeat(f.actions(rapid.Bool().Draw(rt, "lies")))
		f.converge()
	})
}
