package service_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/store"
	"salvor/test/must"
)

func (w *world) renew(h *compute.Host, boot string, change ...func(*compute.Renewal)) compute.Renewed {
	w.t.Helper()
	r := compute.Renewal{BootID: boot}
	for _, f := range change {
		f(&r)
	}
	out := must.Get(w.Leases.Renew(w.ctx, h.ID, "01", r))(w.t)
	return out
}

func stopped(r *compute.Renewal) { r.Stopped = true }

func armed(dog string) func(*compute.Renewal) {
	return func(r *compute.Renewal) { r.Watchdog = dog }
}

func guests(all ...compute.Guest) func(*compute.Renewal) {
	return func(r *compute.Renewal) { r.Guests, r.HasGuests = all, true }
}

// group puts the host into a new group, whose name is g.
func (w *world) group(g compute.HostGroup) {
	w.t.Helper()
	g.Name = "g"
	w.no(w.HostGroups.Create(w.ctx, &g, admin.Asker))
	must.Get(w.Hosts.SetService(w.ctx, w.host.ID, compute.Service{Group: &g.Name}, admin.Asker))(w.t)
}

func (w *world) forceDown(h *compute.Host, down bool) error {
	_, err := w.Hosts.SetService(w.ctx, h.ID, compute.Service{ForcedDown: &down}, admin.Asker)
	return err
}

func (w *world) hostRow(h *compute.Host) *compute.Host {
	w.t.Helper()
	row := must.Get(w.store.Hosts().Get(w.ctx, nil, h.ID))(w.t)
	return row
}

// ensure asks for a receipt as an evacuation does.
func (w *world) ensure(h *compute.Host) (receipt *compute.Receipt, err error) {
	w.t.Helper()
	err = w.store.Do(w.ctx, func(tx job.Tx) error {
		row, err := w.store.Hosts().Get(w.ctx, tx, h.ID)
		if err == nil {
			receipt, err = w.Fences.Ensure(w.ctx, tx, row)
		}
		return err
	})
	return receipt, err
}

func (w *world) fence(h *compute.Host, e ...compute.Evidence) (receipt *compute.Receipt, err error) {
	w.t.Helper()
	var proofs []compute.Proof
	for _, e := range e {
		proofs = append(proofs, compute.Proof{Evidence: e, Text: "proven", At: w.now()})
	}
	err = w.store.Do(w.ctx, func(tx job.Tx) error {
		receipt, err = w.Fences.Give(w.ctx, tx, h.ID, proofs, "root", "")
		return err
	})
	return receipt, err
}

func (w *world) up(h *compute.Host) bool {
	w.t.Helper()
	lives := must.Get(w.Liveness.All(w.ctx))(w.t)
	return lives[h.ID].Up
}

// refuses fails the test unless the error is a Conflict that says all of this.
func (w *world) refuses(err error, says ...string) {
	w.t.Helper()
	w.want(err, problem.Conflict)
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			w.t.Fatalf("%q does not say %q", err, s)
		}
	}
}

func TestAForcedDownHostIsFencedByThatOnceItIsSilent(t *testing.T) {
	w := newWorld(t)
	_, err := w.ensure(w.host)
	w.refuses(err, "it holds its lease", "run: salvor fence host-a")
	w.no(w.forceDown(w.host, true))
	_, err = w.ensure(w.host)
	w.refuses(err, "still held its lease", "told to stop")
	w.pass(compute.Suspect)
	r, err := w.ensure(w.host)
	w.no(err)
	if !r.Has(compute.Attested) || r.By != "root" || r.BootID != "boot-1" || r.Epoch != 1 || !strings.Contains(r.Proofs[0].Text, "forced down by root") {
		t.Fatalf("%+v", r)
	}
	again, err := w.ensure(w.host)
	w.no(err)
	if row := w.hostRow(w.host); again.ID != r.ID || !row.Fenced || row.Fences != 1 || w.up(w.host) {
		t.Fatalf("%+v %+v", again, row)
	}
	if got := (&compute.Needs{}).Refusal(w.hostRow(w.host), true); got != "fenced" {
		t.Errorf("placement says %q", got)
	}
	if may, err := w.Leases.MayAct(w.ctx, w.host.ID); err != nil || may {
		t.Error("a fenced host may be given orders", err)
	}
}

// A host that lives and is forced down is told to stop, keeps its lease until it has, and that is the evidence. Up again it starts what
// it stopped.
func TestANodeThatItsClusterReachesIsNotAttestedByForceDown(t *testing.T) {
	w := newWorld(t)
	h, err := w.Hosts.Ensure(w.ctx, newID(), "node1", compute.Inventory{VCPUs: 4, RAM: 4096})
	w.no(err)
	w.pass(time.Minute)
	w.no(w.forceDown(h, true))
	w.pass(time.Minute)
	_, err = w.ensure(h)
	w.refuses(err, "cluster reached it", "salvor fence node1")
	_, err = w.Hosts.Follow(w.ctx, h.ClusterID, map[string]compute.Inventory{"node1": {VCPUs: 4}})
	w.no(err)
	if r, err := w.ensure(h); err != nil || !r.Has(compute.Attested) {
		t.Errorf("%+v: %v", r, err)
	}
}

func TestAHostThatLivesAcknowledges(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	w.pass(time.Minute)
	w.renew(w.host, "boot-1", guests(compute.Guest{ID: s.ID, Power: compute.PowerOn}))
	w.no(w.forceDown(w.host, true))
	if out := w.renew(w.host, "boot-1", stopped); !out.Stop || out.Hold {
		t.Fatalf("%+v: what it said before it was told counts", out)
	}
	off := guests(compute.Guest{ID: s.ID, Power: compute.PowerOff})
	w.pass(2 * time.Second)
	if out := w.renew(w.host, "boot-1", off); !out.Stop || out.Servers != nil {
		t.Fatalf("%+v", out)
	}
	w.pass(7 * time.Second)
	_, err := w.ensure(w.host)
	w.refuses(err, "still held its lease")
	if out := w.renew(w.host, "boot-1", stopped); out.Stop || !out.Hold {
		t.Fatalf("%+v", out)
	}
	r, err := w.Fences.Receipt(w.ctx, nil, w.host.ID)
	w.no(err)
	if !r.Has(compute.Acknowledged) || r.BootID != "boot-1" {
		t.Fatalf("%+v", r)
	}
	w.pass(time.Minute)
	if out := w.renew(w.host, "boot-1", off); !out.Hold || len(w.jobs(s.ID)) != 0 || w.read(s.ID).Wanted != compute.PowerOn {
		t.Fatalf("%+v: what was stopped for us is taken for what its user wants", out)
	}
	w.no(w.forceDown(w.host, false))
	out := w.renew(w.host, "boot-1", off)
	if jobs := w.jobs(s.ID); out.Hold || out.Stop || len(jobs) != 1 || jobs[0].Kind != compute.JobReconcile || w.hostRow(w.host).Fenced {
		t.Fatalf("%+v, jobs %+v", out, jobs)
	}
}

// Up again before it told: what it ended meanwhile is started again.
func TestForceDownThatIsTakenBackAtOnce(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	w.pass(time.Minute)
	w.no(w.forceDown(w.host, true))
	w.renew(w.host, "boot-1")
	w.no(w.forceDown(w.host, false))
	w.renew(w.host, "boot-1", guests(compute.Guest{ID: s.ID, Power: compute.PowerOn})) // older than the end of it
	w.pass(2 * time.Second)
	w.renew(w.host, "boot-1", guests(compute.Guest{ID: s.ID, Power: compute.PowerOff}))
	if jobs := w.jobs(s.ID); len(jobs) != 1 || w.read(s.ID).Wanted != compute.PowerOn {
		t.Errorf("%+v, wanted %s", jobs, w.read(s.ID).Wanted)
	}
}

func TestSelfFence(t *testing.T) {
	for name, c := range map[string]struct {
		groups bool
		dog    string
		silent time.Duration
		says   string
	}{
		"armed":           {true, "iTCO_wdt", compute.SelfFenceEvidence, ""},
		"too early":       {true, "iTCO_wdt", compute.SelfFenceEvidence - time.Second, "proof after 15s"},
		"no watchdog":     {true, "", time.Hour, "a suspicion, no proof"},
		"told to disarm":  {false, "iTCO_wdt", time.Hour, "a suspicion, no proof"},
		"still its lease": {true, "iTCO_wdt", 7 * time.Second, "it holds its lease"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.group(compute.HostGroup{SelfFence: c.groups})
			w.pass(2 * time.Second)
			if out := w.renew(w.host, "boot-1", armed(c.dog)); out.SelfFence != c.groups {
				t.Fatalf("%+v", out)
			}
			w.pass(c.silent)
			r, err := w.ensure(w.host)
			if c.says != "" {
				w.refuses(err, c.says)
				return
			}
			w.no(err)
			if !r.Has(compute.SelfFenced) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// What fenced itself in a short silence is started again, though its guests look as if they had ended by themselves.
func TestAShortSilenceOfAHostThatFencesItself(t *testing.T) {
	w := newWorld(t)
	w.group(compute.HostGroup{SelfFence: true})
	s := w.server(alice, compute.Active)
	w.pass(time.Minute)
	w.renew(w.host, "boot-1", armed("dog"), guests(compute.Guest{ID: s.ID, Power: compute.PowerOn}))
	w.pass(time.Minute)
	w.renew(w.host, "boot-1", armed("dog"))
	w.pass(7900 * time.Millisecond)
	w.renew(w.host, "boot-1", armed("dog"), guests(compute.Guest{ID: s.ID, Power: compute.PowerOff}))
	if jobs := w.jobs(s.ID); len(jobs) != 1 || w.read(s.ID).Wanted != compute.PowerOn {
		t.Errorf("%+v, wanted %s", jobs, w.read(s.ID).Wanted)
	}
}

func TestAGroupRequiresEvidence(t *testing.T) {
	w := newWorld(t)
	w.group(compute.HostGroup{Require: []compute.Evidence{compute.PowerCut, compute.Attested}})
	w.pass(time.Second)
	_, err := w.fence(w.host, compute.PowerCut)
	w.refuses(err, "its group g requires evidence of attestation besides", "salvor fence host-a")
	w.no(w.forceDown(w.host, true))
	w.pass(compute.Suspect)
	_, err = w.ensure(w.host)
	w.refuses(err, "requires evidence of power besides")
	r, err := w.fence(w.host, compute.PowerCut) // what is known besides is added
	w.no(err)
	if !r.Has(compute.PowerCut) || !r.Has(compute.Attested) {
		t.Errorf("%+v", r)
	}
	_, err = w.fence(w.join("host-b"))
	w.refuses(err, "nothing proves")
}

// A BMC that says off while the host speaks is another machine's.
func TestABMCThatLies(t *testing.T) {
	w := newWorld(t)
	said := w.now()
	w.pass(time.Second)
	w.renew(w.host, "boot-1")
	err := w.store.Do(w.ctx, func(tx job.Tx) error {
		_, err := w.Fences.Give(w.ctx, tx, w.host.ID, []compute.Proof{{Evidence: compute.PowerCut, Text: "off", At: said}}, "", "")
		return err
	})
	w.refuses(err, "renewed its lease after it was said to be off")
	w.pass(time.Second)
	r, err := w.fence(w.host, compute.PowerCut)
	w.no(err)
	w.pass(time.Second)
	if out := w.renew(w.host, "boot-1"); !out.Hold {
		t.Fatalf("%+v: what was under way when the power was cut speaks against it", out)
	}
	w.pass(2 * time.Second)
	if out := w.renew(w.host, "boot-1"); out.Hold {
		t.Fatalf("%+v", out)
	}
	r, err = w.store.Receipts().Get(w.ctx, nil, r.ID)
	w.no(err)
	if row := w.hostRow(w.host); r.Closed != "contradicted" || r.Open() || row.Fenced || !w.up(w.host) {
		t.Errorf("%+v, host %+v", r, row)
	}
	w.want(w.store.Do(w.ctx, func(tx job.Tx) error { return w.store.UseReceipt(tx, r.ID) }), problem.Conflict)
	w.saw(w.host, "warning", "contradicted")
}

// saw fails the test unless the host's timeline says this, once.
func (w *world) saw(h *compute.Host, severity, text string) {
	w.t.Helper()
	events := must.Get(w.store.Events(w.ctx, compute.HostSubject(h.ID), 0, 1000))(w.t)
	n := 0
	for _, e := range events {
		if e.Severity == severity && strings.Contains(e.Text, text) {
			n++
		}
	}
	if n != 1 {
		w.t.Errorf("the timeline says %q %d times", text, n)
	}
}

// ill is a store of which leases can be out of reach.
type ill struct {
	*store.Store
	away bool
}

var errAway = errors.New("the database is away")

func (s *ill) SaveLeases(ctx context.Context, l []compute.Lease) error {
	if s.away {
		return errAway
	}
	return s.Store.SaveLeases(ctx, l)
}

func (s *ill) Leases(ctx context.Context) (map[string]compute.Lease, error) {
	if s.away {
		return nil, errAway
	}
	return s.Store.Leases(ctx)
}

// other is another process on the same database, whose clock on the wall is wrong by skew.
func (w *world) other(skew time.Duration) (*service.Services, *ill) {
	st := &ill{Store: w.store}
	return service.New(st, w.store, service.Options{}, func() time.Time { return w.now().Add(skew) }), st
}

// Whoever answers a host, and whatever its clock says, another process hears of it in time, and by nothing but its own clock.
func TestSilenceIsHeardAcrossProcesses(t *testing.T) {
	for _, skew := range []time.Duration{0, -time.Hour, time.Hour} {
		t.Run(fmt.Sprint(skew), func(t *testing.T) {
			w := newWorld(t)
			w.no(w.Leases.FlushLeases(w.ctx))
			there, _ := w.other(skew)
			listen := func() time.Duration {
				w.tx(func(tx job.Tx) error {
					_, err := there.Fences.Ensure(w.ctx, tx, w.hostRow(w.host))
					w.want(err, problem.Conflict)
					return nil
				})
				silent, _, known := there.Liveness.Silence(w.host.ID)
				if !known {
					t.Fatal("nothing is known")
				}
				return silent
			}
			if got := listen(); got != 0 {
				t.Fatalf("a process that has just begun counts %s", got)
			}
			w.pass(5 * time.Second)
			if got := listen(); got != 5*time.Second {
				t.Fatal(got)
			}
			w.renew(w.host, "boot-1")
			if got := listen(); got != 0 { // it is in the store before it is answered: the former one there is older than 3 s
				t.Fatal(got)
			}
			for range 5 { // and now the other one answers, while this one listens
				w.pass(2 * time.Second)
				_, err := there.Leases.Renew(w.ctx, w.host.ID, "01", compute.Renewal{BootID: "boot-1"})
				w.no(err)
				w.no(there.Leases.FlushLeases(w.ctx))
				_, err = w.ensure(w.host)
				w.refuses(err, "it holds its lease")
			}
			w.pass(10 * time.Second)
			if got, _, _ := w.Liveness.Silence(w.host.ID); got != 10*time.Second {
				t.Fatal(got)
			}
		})
	}
}

// A lease that nobody else can see is none; while the store is away nobody is silent.
func TestTheStoreIsAway(t *testing.T) {
	w := newWorld(t)
	there, st := w.other(0)
	renew := func() error {
		_, err := there.Leases.Renew(w.ctx, w.host.ID, "01", compute.Renewal{BootID: "boot-1"})
		return err
	}
	w.no(renew())
	st.away = true
	w.pass(2 * time.Second)
	w.no(renew())
	if there.Leases.FlushLeases(w.ctx) == nil {
		t.Fatal("flushed to nowhere")
	}
	if _, _, known := there.Liveness.Silence(w.host.ID); known {
		t.Error("who cannot hear calls others silent")
	}
	w.pass(2 * time.Second)
	w.want(renew(), problem.Unavailable)
	w.pass(time.Hour)
	w.want(w.store.Do(w.ctx, func(tx job.Tx) error { _, err := there.Fences.Ensure(w.ctx, tx, w.hostRow(w.host)); return err }), problem.Unavailable)
	st.away = false
	w.tx(func(tx job.Tx) error {
		_, err := there.Fences.Ensure(w.ctx, tx, w.hostRow(w.host))
		w.refuses(err, "it holds its lease")
		return nil
	})
	w.pass(3 * time.Second)
	if silent, _, known := there.Liveness.Silence(w.host.ID); !known || silent != 3*time.Second {
		t.Errorf("silent for %s, %v: it counts from when it could be heard again", silent, known)
	}
	w.no(renew())
}

// A watchdog that a host disarms, because of what it is answered, is not armed in the store any more by then.
func TestAWatchdogIsWithdrawn(t *testing.T) {
	w := newWorld(t)
	w.group(compute.HostGroup{SelfFence: true})
	w.pass(6 * time.Second)
	w.renew(w.host, "boot-1", armed("dog"))
	stored := func() string {
		t.Helper()
		all := must.Get(w.store.Leases(w.ctx))(w.t)
		return all[w.host.ID].Watchdog
	}
	if got := stored(); got != "dog" {
		t.Fatalf("armed, and stored as %q", got)
	}
	w.pass(time.Second)
	w.renew(w.host, "boot-1")
	if got := stored(); got != "" {
		t.Errorf("disarmed, and still stored as %q", got)
	}
	there, _ := w.other(0)
	w.no(there.Liveness.Listen(w.ctx))
	w.pass(compute.SelfFenceEvidence)
	w.want(w.store.Do(w.ctx, func(tx job.Tx) error {
		_, err := there.Fences.Ensure(w.ctx, tx, w.hostRow(w.host))
		return err
	}), problem.Conflict)
}

// A process that looks at the store for the first time has not heard the host; one that stood still looks before it believes.
func TestWhatIsNoWordOfAHost(t *testing.T) {
	w := newWorld(t)
	w.no(w.Leases.FlushLeases(w.ctx))
	there, _ := w.other(0)
	give := func(s *service.Services, e compute.Evidence, at time.Time) error {
		return w.store.Do(w.ctx, func(tx job.Tx) error {
			_, err := s.Fences.Give(w.ctx, tx, w.host.ID, []compute.Proof{{Evidence: e, Text: "off", At: at}}, "", "")
			return err
		})
	}
	w.pass(20 * time.Second)
	_, err := there.Leases.Renew(w.ctx, w.host.ID, "01", compute.Renewal{BootID: "boot-1"}) // while this one stood still
	w.no(err)
	w.refuses(give(w.Services, compute.SelfFenced, w.now().Add(-time.Millisecond)), "renewed its lease after it was said to be off")
	w.pass(10 * time.Second)
	off := w.now()
	w.pass(time.Second)
	after, _ := w.other(0)
	w.no(after.Liveness.Listen(w.ctx))
	w.no(give(after, compute.PowerCut, off))

	b := w.join("host-b")
	off = w.now()
	w.pass(4 * time.Second)
	w.renew(b, "boot-1")
	later, _ := w.other(0)
	w.no(later.Liveness.Listen(w.ctx))
	err = w.store.Do(w.ctx, func(tx job.Tx) error {
		_, err := later.Fences.Give(w.ctx, tx, b.ID, []compute.Proof{{Evidence: compute.PowerCut, Text: "off", At: off}}, "", "")
		return err
	})
	w.refuses(err, "renewed its lease after it was said to be off")
}

// A host that speaks again at the moment at which its silence is taken for its end: one comes first.
func TestAHostSpeaksWhileItIsFenced(t *testing.T) {
	w := newWorld(t)
	w.no(w.forceDown(w.host, true))
	w.pass(compute.Suspect)
	row := w.hostRow(w.host)
	err := w.store.Do(w.ctx, func(tx job.Tx) error {
		row, err := w.store.Hosts().Get(w.ctx, tx, row.ID)
		w.no(err)
		_, err = w.Fences.Ensure(w.ctx, tx, row)
		return err
	})
	w.no(err)
	if out := w.renew(w.host, "boot-1"); !out.Hold {
		t.Fatalf("%+v", out)
	}
	// The other way round, by another process: the row that the receipt was to be written by is another one by now.
	b := w.join("host-b")
	w.no(w.forceDown(b, true))
	w.pass(compute.Suspect)
	before := w.hostRow(b)
	w.renew(b, "boot-1")
	if after := w.hostRow(b); after.Version == before.Version {
		t.Error("a lease that had lapsed is held again, and the host's row says nothing of it")
	}
	_, err = w.ensure(b)
	w.refuses(err, "still held its lease")
}

func TestHostGroups(t *testing.T) {
	w := newWorld(t)
	for _, bad := range []compute.HostGroup{
		{}, {Name: "a/b"}, {Name: newID()}, {Name: "g", MaxShare: 101}, {Name: "g", MaxHosts: -1}, {Name: "g", Parallel: 501}, {Name: "g", Reimage: "maybe"},
		{Name: "g", Require: []compute.Evidence{"hope"}}, {Name: "g", Require: []compute.Evidence{compute.PowerCut, compute.PowerCut}}, {Name: strings.Repeat("g", 101)},
	} {
		w.want(w.HostGroups.Create(w.ctx, &bad, admin.Asker), problem.Invalid)
	}
	g := &compute.HostGroup{Name: " rack-1 "}
	w.no(w.HostGroups.Create(w.ctx, g, admin.Asker))
	if g.Name != "rack-1" || g.Parallel != 16 || g.MaxShare != 50 || g.MaxHosts != 1 || g.Reimage != compute.ReimageAsk {
		t.Errorf("%+v", g)
	}
	w.want(w.HostGroups.Create(w.ctx, &compute.HostGroup{Name: "rack-1"}, admin.Asker), problem.Conflict)
	none, name := "nowhere", "rack-1"
	_, err := w.Hosts.SetService(w.ctx, w.host.ID, compute.Service{Group: &none}, admin.Asker)
	w.want(err, problem.Invalid)
	h, err := w.Hosts.SetService(w.ctx, w.host.ID, compute.Service{Group: &name}, admin.Asker)
	w.no(err)
	if followed, err := w.Hosts.Group(w.ctx, nil, h); err != nil || followed.ID != g.ID {
		t.Error(followed, err)
	}
	w.want(w.HostGroups.Remove(w.ctx, "rack-1", admin.Asker), problem.Conflict)
	_, err = w.HostGroups.Update(w.ctx, "rack-1", admin.Asker, func(g *compute.HostGroup) error { g.Name = "rack-2"; return nil })
	w.want(err, problem.Conflict)
	_, err = w.HostGroups.Update(w.ctx, "rack-1", admin.Asker, func(g *compute.HostGroup) error { g.Healing = true; return nil })
	w.no(err)
	empty := ""
	h, err = w.Hosts.SetService(w.ctx, w.host.ID, compute.Service{Group: &empty}, admin.Asker)
	w.no(err)
	if usual, err := w.Hosts.Group(w.ctx, nil, h); err != nil || usual.Name != "" || usual.Parallel != 16 {
		t.Error(usual, err)
	}
	w.no(w.HostGroups.Remove(w.ctx, "rack-1", admin.Asker))
}

func TestANodeIsOneHost(t *testing.T) {
	w := newWorld(t)
	node, junk, none, other := newID(), "node-7", "", w.join("host-b")
	_, err := w.Hosts.SetService(w.ctx, w.host.ID, compute.Service{NodeID: &junk}, admin.Asker)
	w.want(err, problem.Invalid)
	_, err = w.Hosts.SetService(w.ctx, w.host.ID, compute.Service{NodeID: &node}, admin.Asker)
	w.no(err)
	_, err = w.Hosts.SetService(w.ctx, other.ID, compute.Service{NodeID: &node}, admin.Asker)
	w.refuses(err, "is host host-a already")
	_, err = w.Hosts.SetService(w.ctx, w.host.ID, compute.Service{NodeID: &none}, admin.Asker)
	w.no(err)
	_, err = w.Hosts.SetService(w.ctx, other.ID, compute.Service{NodeID: &node}, admin.Asker)
	w.no(err)
	found, err := w.Hosts.List(w.ctx, compute.HostFilter{NodeID: node}, record.Page{})
	w.no(err)
	if len(found) != 1 || found[0].ID != other.ID {
		t.Error(found)
	}
}
