package host

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
	wire "salvor/wire/host"
)

// TestJoinRenewOrderResult is the whole life of a host: a token, a certificate, a lease, orders, results, and nothing left.
func TestJoinRenewOrderResult(t *testing.T) {
	w, g := newWorld(t), newGuests()
	c := w.config(g)
	a, _ := w.start(c)
	await(t, "the lease", func() bool { held, _ := a.Leased(); return held })
	await(t, "the inventory", func() bool {
		h, err := w.services.Hosts.Host(t.Context(), a.ID())
		return err == nil && h.Inventory.VCPUs == 8 && len(h.Inventory.Stores) == 1 && h.Name == "vm1"
	})

	content := append(bytes.Repeat([]byte("salvor!\n"), 40000), make([]byte, 3<<20)...)
	digest := w.images.add(content)
	id := uuid.NewString()
	spec := specFor(id,
		compute.SpecDisk{Name: "vda", File: id + "-vda", SizeGiB: 1, Image: &compute.SpecImage{ID: "i", Digest: digest, Size: int64(len(content)), Format: "raw"}},
		compute.SpecDisk{Name: "vdb", BootIndex: -1, SizeGiB: 1})
	spec.Drive = true
	drive := &compute.OrderSecret{Drive: map[string][]byte{"openstack/latest/meta_data.json": []byte(`{"uuid": "x"}`)}}
	w.done(orderFor(a, id, compute.Prepare, compute.Args{Spec: spec}, drive))
	w.done(orderFor(a, id, compute.Prepare, compute.Args{Spec: spec}, drive)) // again, without a word
	w.done(orderFor(a, id, compute.Define, compute.Args{Spec: spec}, nil))
	r := w.done(orderFor(a, id, compute.SetPower, compute.Args{Power: compute.PowerOn}, nil))
	if r.Guest == nil || r.Guest.Power != compute.PowerOn {
		t.Errorf("guest %+v", r.Guest)
	}
	d := g.domains[id]
	for _, disk := range []string{"vda", "vdb"} {
		info, err := os.Stat(d.Paths[disk].Path)
		if err != nil || info.Size() != 1<<30 || d.Paths[disk].Format != "raw" {
			t.Errorf("%s: %v %v", disk, info, err)
		}
	}
	if got := head(t, d.Paths["vda"].Path, len(content)); !bytes.Equal(got, content) {
		t.Error("the disk is not its image")
	}
	if iso := mustRead(t, d.DrivePath); !bytes.Contains(iso, []byte(`{"uuid": "x"}`)) {
		t.Error("the config drive lacks its file")
	}
	if w.images.opens != 1 {
		t.Errorf("the image was fetched %d times", w.images.opens)
	}
	if r := w.send(orderFor(a, id, compute.Discard, compute.Args{Spec: spec}, nil)); r.ErrorKind != "conflict" {
		t.Errorf("a running guest's disk was discarded: %+v", r)
	}
	if r := w.done(orderFor(a, id, compute.Look, compute.Args{}, nil)); r.Guest.ID != id {
		t.Errorf("look: %+v", r)
	}
	w.done(orderFor(a, id, compute.SetPower, compute.Args{Power: compute.PowerOff}, nil))
	w.done(orderFor(a, id, compute.Discard, compute.Args{Spec: spec}, nil))
	if fileIsThere(d.Paths["vda"].Path) || !fileIsThere(d.Paths["vdb"].Path) {
		t.Error("discard is for the root disk alone")
	}
	w.done(orderFor(a, id, compute.Remove, compute.Args{Spec: spec}, nil))
	if fileIsThere(d.Paths["vdb"].Path) || fileIsThere(d.DrivePath) || len(g.all) != 0 {
		t.Error("remove left something")
	}
}

// TestRestartKeepsIdentityAndGuests: the agent comes back as the host that it was, without its token, and touches no guest.
func TestRestartKeepsIdentityAndGuests(t *testing.T) {
	w, g := newWorld(t), newGuests()
	c := w.config(g)
	a, stop := w.start(c)
	await(t, "the lease", func() bool { held, _ := a.Leased(); return held })
	id := uuid.NewString()
	g.set(compute.Guest{ID: id, Ours: true, Power: compute.PowerOn})
	if _, err := Open(c); !problem.Is(err, problem.Conflict) {
		t.Errorf("two agents on one state directory: %v", err)
	}
	stop()
	c.Token = secretOf("")
	b, _ := w.start(c)
	await(t, "the lease again", func() bool { held, _ := b.Leased(); return held })
	if a.ID() != b.ID() || g.changes(id) != 0 || g.get(id).Power != compute.PowerOn {
		t.Errorf("%s became %s; guest %+v", a.ID(), b.ID(), g.get(id))
	}
}

// TestJoinTokenLetsOneIn: of two hosts with one token at the same time one joins.
func TestJoinTokenLetsOneIn(t *testing.T) {
	w := newWorld(t)
	token := w.token()
	var errs [2]error
	var all sync.WaitGroup
	for i := range errs {
		c := w.config(newGuests())
		c.Token = token
		a := must.Get(Open(c))(t)
		all.Go(func() { errs[i] = a.join(t.Context()); _ = a.Close() })
	}
	all.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Fatalf("want one winner: %v; %v", errs[0], errs[1])
	}
	if err := errors.Join(errs[:]...); !problem.Is(errors.Unwrap(errs[0]), problem.Forbidden) && !strings.Contains(err.Error(), "403") {
		t.Errorf("the loser: %v", err)
	}
	hosts, err := w.services.Hosts.List(t.Context(), compute.HostFilter{}, record.Page{})
	if err != nil || len(hosts) != 1 {
		t.Errorf("%d hosts, %v", len(hosts), err)
	}
}

// TestForeignControlPlane: a host tells its token to nobody but the control plane that the token is of.
func TestForeignControlPlane(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	c := w.config(newGuests())
	c.Token = other.token()
	a := must.Get(Open(c))(t)
	defer a.Close()
	if err := a.controlPlane.join(t.Context(), c.Token, "x"); err == nil || !strings.Contains(err.Error(), "not the one that the join token is of") {
		t.Error(err)
	}
	for _, bad := range []string{"", "x", "x.y", ".", strings.Repeat("a", 2000)} {
		c.Token = secretOf(bad)
		if err := a.controlPlane.join(t.Context(), c.Token, "x"); !problem.Is(err, problem.Invalid) {
			t.Errorf("token %.20q: %v", bad, err)
		}
	}
}

// TestRevokedHost: no renewal, no order, no certificate, and no new join.
func TestRevokedHost(t *testing.T) {
	w, g := newWorld(t), newGuests()
	c := w.config(g)
	a := must.Get(Open(c))(t)
	defer a.Close()
	must.OK(t, a.join(t.Context()))
	must.OK(t, a.renew(t.Context()))
	must.OK(t, a.controlPlane.recertify(t.Context()))
	must.OK(t, a.renew(t.Context()))
	yes := true
	must.Get(w.services.Hosts.SetService(t.Context(), a.ID(), compute.Service{Revoked: &yes}, record.Asker{}))(t)
	for what, err := range map[string]error{
		"renew": a.renew(t.Context()), "certificate": a.controlPlane.recertify(t.Context()),
		"orders": a.controlPlane.call(t.Context(), "GET", wire.OrdersPath+"?wait=0", nil, nil),
		"join":   a.controlPlane.join(t.Context(), w.token(), "vm1"),
	} {
		if err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("%s of a revoked host: %v", what, err)
		}
	}
}

// TestStaleResult: what another boot or epoch says is 409.
func TestStaleResult(t *testing.T) {
	w := newWorld(t)
	a := must.Get(Open(w.config(newGuests())))(t)
	defer a.Close()
	must.OK(t, errors.Join(a.join(t.Context()), a.renew(t.Context())))
	o := orderFor(a, uuid.NewString(), compute.Look, compute.Args{}, nil)
	w.post(o)
	report := wire.Report{BootID: "another", Epoch: 1, Result: mustEncodeJSON(compute.Result{})}
	path := wire.OrdersPath + "/" + o.ID + "/result"
	if err := a.controlPlane.call(t.Context(), "POST", path, report, nil); !problem.Is(err, problem.Conflict) {
		t.Errorf("another boot: %v", err)
	}
	report.BootID, report.Epoch = a.boot, 2
	if err := a.controlPlane.call(t.Context(), "POST", path, report, nil); !problem.Is(err, problem.Conflict) {
		t.Errorf("another epoch: %v", err)
	}
	report.Epoch = 1
	for range 2 { // a second one is taken, and changes nothing
		if err := a.controlPlane.call(t.Context(), "POST", path, report, nil); err != nil {
			t.Error(err)
		}
	}
}

// TestRebootedHostGetsItsOrders: the new boot carries out what was meant for the former.
func TestRebootedHostGetsItsOrders(t *testing.T) {
	w, g := newWorld(t), newGuests()
	c := w.config(g)
	a, stop := w.start(c)
	await(t, "the lease", func() bool { held, _ := a.Leased(); return held })
	id := uuid.NewString()
	g.set(compute.Guest{ID: id, Ours: true, Epoch: 1, Power: compute.PowerOff})
	stop()
	o := orderFor(a, id, compute.SetPower, compute.Args{Power: compute.PowerOn}, nil)
	w.post(o)
	c.BootID = func() (string, error) { return "boot-2", nil }
	w.start(c)
	await(t, "the order", func() bool {
		got, err := w.store.Order(t.Context(), nil, o.ID)
		return err == nil && got.Result != nil && got.BootID == "boot-2"
	})
	if g.get(id).Power != compute.PowerOn {
		t.Error("the guest does not run")
	}
}

// TestAwayForAnHour: a control plane that is away for an hour of the machine's time costs no guest anything.
func TestAwayForAnHour(t *testing.T) {
	w, g := newWorld(t), newGuests()
	c := w.config(g)
	var mu sync.Mutex
	jump := time.Duration(0)
	c.Alive = func() (time.Duration, error) {
		mu.Lock()
		defer mu.Unlock()
		now, err := sinceBoot()
		return now + jump, err
	}
	a, _ := w.start(c)
	await(t, "the lease", func() bool { held, _ := a.Leased(); return held })
	running, off := uuid.NewString(), uuid.NewString()
	g.set(compute.Guest{ID: running, Ours: true, Power: compute.PowerOn})
	g.set(compute.Guest{ID: off, Ours: true, Power: compute.PowerOff})
	w.away.Store("away", true)
	mu.Lock()
	jump = time.Hour
	mu.Unlock()
	await(t, "that the lease is lost", func() bool { held, ago := a.Leased(); return !held && ago > time.Hour })
	if g.changes(running)+g.changes(off) != 0 || g.get(running).Power != compute.PowerOn {
		t.Errorf("guests were touched: %+v", g.all)
	}
	w.away.Delete("away")
	await(t, "the lease again", func() bool { held, ago := a.Leased(); return held && ago < time.Minute })
	if g.changes(running)+g.changes(off) != 0 {
		t.Errorf("guests were touched: %+v", g.all)
	}
}

// TestHypervisorRestarts: orders wait for a hypervisor that is away, within their bound, and tell why.
func TestHypervisorRestarts(t *testing.T) {
	w, g := newWorld(t), newGuests()
	a, _ := w.start(w.config(g))
	await(t, "the lease", func() bool { held, _ := a.Leased(); return held })
	id := uuid.NewString()
	g.set(compute.Guest{ID: id, Ours: true, Epoch: 1, Power: compute.PowerOff})
	g.setDown(true)
	o := orderFor(a, id, compute.SetPower, compute.Args{Power: compute.PowerOn}, nil)
	w.post(o)
	short := orderFor(a, uuid.NewString(), compute.SetPower, compute.Args{Power: compute.PowerOn}, nil)
	short.Within = 1
	if r := w.send(short); r.ErrorKind != "unavailable" {
		t.Errorf("%+v", r)
	}
	await(t, "the reason why the order is tried again", func() bool {
		got, err := w.store.Order(t.Context(), nil, o.ID)
		return err == nil && strings.HasPrefix(got.Progress, "it tries again, because of “") && strings.Contains(got.Progress, "hypervisor: down")
	})
	g.setDown(false)
	await(t, "the order", func() bool {
		got, err := w.store.Order(t.Context(), nil, o.ID)
		return err == nil && got.Result != nil && got.Result.ErrorKind == ""
	})
	if g.changes(id) != 1 {
		t.Errorf("%d changes", g.changes(id))
	}
}

// TestARemovalWaitsForNobody: what is made for a server gives way to its removal, and to a newer owner.
func TestARemovalWaitsForNobody(t *testing.T) {
	w, g := newWorld(t), newGuests()
	a, _ := w.start(w.config(g))
	await(t, "the lease", func() bool { held, _ := a.Leased(); return held })
	begun, over := make(chan struct{}, 2), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		select { // an image that does not end
		case <-r.Context().Done():
		case <-over:
		}
	}))
	defer slow.Close()
	defer close(over)
	for _, next := range []compute.Verb{compute.Remove, compute.SetPower} {
		id := uuid.NewString()
		g.set(compute.Guest{ID: id, Ours: true, Epoch: 1, Power: compute.PowerOff})
		spec := specFor(id, compute.SpecDisk{Name: "vda", File: id + "-vda", SizeGiB: 1,
			Image: &compute.SpecImage{ID: "i", Digest: "sha256:" + strings.Repeat("0a", 32), Size: 1 << 20, Format: "raw", URL: slow.URL}})
		long, waiting := orderFor(a, id, compute.Prepare, compute.Args{Spec: spec}, nil), orderFor(a, id, compute.Define, compute.Args{Spec: spec}, nil)
		w.post(long)
		<-begun
		w.post(waiting)
		newer := orderFor(a, id, next, compute.Args{Power: compute.PowerOn}, nil)
		if next != compute.Remove {
			newer.Epoch = 2
		}
		w.done(newer)
		for _, o := range []*compute.Order{long, waiting} {
			await(t, "the result of what was overtaken", func() bool {
				got, err := w.store.Order(t.Context(), nil, o.ID)
				return err == nil && got.Result != nil && got.Result.ErrorKind == "conflict" && strings.Contains(got.Result.Error, "overtaken")
			})
		}
	}
}

// TestReconcile: what should run is started, autostart is off, what is busy, unknown, or not ours is left alone.
func TestReconcile(t *testing.T) {
	w, g := newWorld(t), newGuests()
	a := must.Get(Open(w.config(g)))(t)
	defer a.Close()
	want := map[string]wire.Wanted{}
	add := func(guest compute.Guest, wanted *wire.Wanted) string {
		guest.ID = uuid.NewString()
		g.set(guest)
		if wanted != nil {
			want[guest.ID] = *wanted
		}
		return guest.ID
	}
	on := wire.Wanted{Power: "on", Epoch: 1}
	off := compute.Guest{Ours: true, Epoch: 1, Power: compute.PowerOff}
	lost := add(off, &on)
	auto := add(compute.Guest{Ours: true, Epoch: 1, Power: compute.PowerOn, Autostart: true}, &on)
	busy := add(off, &wire.Wanted{Power: "on", Epoch: 1, Busy: true})
	stopped := add(off, &wire.Wanted{Power: "off", Epoch: 1})
	former := add(off, &wire.Wanted{Power: "on", Epoch: 2})
	unknown := add(off, nil)
	foreign := add(compute.Guest{Epoch: 1, Power: compute.PowerOff}, &on)
	crashed := add(compute.Guest{Ours: true, Epoch: 1, Power: compute.PowerCrashed}, &on)
	toFile := add(compute.Guest{Ours: true, Epoch: 1, Power: compute.PowerOff, Pause: compute.GuestPause{Reason: compute.SavedToFile}}, &on)
	ordered := add(off, &on)
	a.orders.count, a.orders.last[ordered] = 7, 7
	list := must.Get(g.Guests(t.Context()))(t)
	a.reconcile(t.Context(), mustEncodeJSON(list), 6, want) // without a lease nothing is
	answer(t, a, wire.Renewed{})
	a.reconcile(t.Context(), mustEncodeJSON(list), 6, want)
	a.readGuests(t.Context())
	a.endAutostart(t.Context())
	await(t, "the mending", func() bool {
		a.lease.mu.Lock()
		defer a.lease.mu.Unlock()
		return len(a.lease.did) == 2
	})
	if g.get(lost).Power != compute.PowerOn || g.get(auto).Autostart {
		t.Errorf("not mended: %+v %+v", g.get(lost), g.get(auto))
	}
	for what, id := range map[string]string{"busy": busy, "stopped": stopped, "former": former, "unknown": unknown, "foreign": foreign, "ordered": ordered, "crashed": crashed, "virsh save": toFile} {
		if g.changes(id) != 0 {
			t.Errorf("%s was started", what)
		}
	}
}

// TestStoresShareAMarker: two agents that see one directory call it the same, and a missing directory is no store.
func TestStoresShareAMarker(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	var markers [2]string
	for i := range markers {
		c := w.config(newGuests())
		c.Stores = []Store{{Name: "nfs", Dir: dir, Shared: true}}
		a := must.Get(Open(c))(t)
		markers[i] = a.stores[0].knownMarker
		_ = a.Close()
	}
	if markers[0] != markers[1] || markers[0] == "" {
		t.Errorf("%q", markers)
	}
	c := w.config(newGuests())
	c.Stores = []Store{{Name: "gone", Dir: filepath.Join(dir, "gone")}}
	if _, err := Open(c); !problem.Is(err, problem.Invalid) {
		t.Error(err)
	}
}
