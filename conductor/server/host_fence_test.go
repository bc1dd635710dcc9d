package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/conductor/conductortest"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/storage"
	"salvor/test/fixture"
	"salvor/test/must"
)

// fenceWorld is a host that is a machine in memory, with servers on it, beside a storage in memory.
type fenceWorld struct {
	*machineWorld
	services *service.Services
	host     *compute.Host
	array    *array
	ahead    atomic.Int64 // by how much the clock of the testHost is ahead
	renews   atomic.Bool  // the host renews its lease whatever happens to the machine
	speak    func()       // what the host says at each turn beside that; nil: nothing
}

// array is a storage that lets in whom it was told to.
type array struct {
	mu      sync.Mutex
	revoked map[string]bool
	broken  error
	refuses error         // of a revocation alone
	hangs   chan struct{} // nil, or a sign that a revocation is under way and does not end
}

func (a *array) Allow(_ context.Context, _, initiator string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken == nil {
		delete(a.revoked, initiator)
	}
	return a.broken
}

func (a *array) Revoke(ctx context.Context, initiators ...string) error {
	if a.hangs != nil {
		a.hangs <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuses != nil {
		return a.refuses
	}
	for _, i := range initiators {
		a.revoked[i] = a.broken == nil
	}
	return a.broken
}

func (a *array) Sessions(context.Context) ([]storage.Session, error) { return nil, a.broken }

// site is how a fenceWorld begins.
type site struct {
	node, volumes, local bool
	watchdog             string
	require              []compute.Evidence
}

func (y *fenceWorld) now() time.Time { return time.Now().Add(time.Duration(y.ahead.Load())) }

func newLot(t *testing.T, s site) *fenceWorld {
	t.Helper()
	y := &fenceWorld{array: &array{revoked: map[string]bool{}}}
	y.machineWorld = newMachineWorld(t, y.now)
	y.services = service.New(y.store, y.store, service.Options{}, y.now)
	y.con = New(Config{Store: y.store, Nodes: y.nodes, Log: slog.New(slog.DiscardHandler), Now: y.now, Compute: y.services, Storage: y.array, PowerState: y.machines.PowerState})
	y.host = &compute.Host{Record: record.Record{ID: uuid.NewString()}, Name: "east", Kind: compute.AgentHost, BootID: "boot-1", Group: "strict", Inventory: compute.Inventory{VCPUs: 8}}
	if s.node {
		y.host.NodeID = y.node
	}
	srv := &compute.Server{Record: record.Record{ID: uuid.NewString()}, Name: "db", GuestName: "db", HostID: y.host.ID, State: compute.Active, Power: compute.PowerOn, Epoch: 1}
	if s.volumes {
		srv.Disks = append(srv.Disks, compute.Disk{Name: "vda", VolumeID: uuid.NewString()})
	}
	if s.local {
		srv.Disks = append(srv.Disks, compute.Disk{Name: "vdb", Store: "local", SizeGiB: 1})
	}
	ctx := context.Background()
	group := &compute.HostGroup{Record: record.Record{ID: uuid.NewString()}, Name: "strict", Require: s.require, MaxHosts: 1, MaxShare: 50, Parallel: 4}
	must.OK(t, y.store.Do(ctx, func(tx job.Tx) error {
		return errors.Join(y.store.HostGroups().Insert(tx, group), y.store.Hosts().Insert(tx, y.host), y.store.Servers().Insert(tx, srv))
	}))
	must.OK(t, y.store.SaveLeases(ctx, []compute.Lease{{HostID: y.host.ID, BootID: "boot-1", RenewedAt: y.now(), Renewals: 1, Watchdog: s.watchdog}}))
	y.heard(t)
	return y
}

// testHost runs jobs on this world.
func (y *fenceWorld) testHost() *testHost {
	return &testHost{store: y.store, con: y.con, machines: y.machines}
}

// heard has the control plane take in the lease.
func (y *fenceWorld) heard(t *testing.T) {
	t.Helper()
	err := y.store.Do(context.Background(), func(tx job.Tx) error {
		_, err := y.services.Fences.Ensure(context.Background(), tx, y.host)
		return err
	})
	if !problem.Is(err, problem.Conflict) {
		t.Fatalf("a receipt of a host that lives: %v", err)
	}
}

// pass is time in which nothing is heard.
func (y *fenceWorld) pass(d time.Duration) { y.ahead.Add(int64(d)) }

func (y *fenceWorld) poke() {
	if y.speak != nil {
		y.speak()
		y.pass(200 * time.Millisecond)
	}
	if !y.renews.Load() {
		return
	}
	_, _ = y.services.Leases.Renew(context.Background(), y.host.ID, "", compute.Renewal{BootID: "boot-1", Name: "east"})
	_ = y.services.Leases.FlushLeases(context.Background())
	y.pass(200 * time.Millisecond)
}

func (y *fenceWorld) ask(t *testing.T, a compute.FenceArgs) string {
	t.Helper()
	id := must.Get(y.services.Fences.Fence(context.Background(), y.host.ID, a, compute.Who{Admin: true, Asker: record.Asker{User: "ann"}}))(t)
	return id
}

func (y *fenceWorld) receipts(t *testing.T) []*compute.Receipt {
	t.Helper()
	all := must.Get(y.services.Fences.List(context.Background(), compute.ReceiptFilter{HostID: y.host.ID}, record.Page{}))(t)
	return all
}

func (y *fenceWorld) held(t *testing.T) string {
	t.Helper()
	n := must.Get(y.store.Node(context.Background(), nil, y.node))(t)
	return n.PowerLock
}

// picture tells all that a fence may leave behind.
func (y *fenceWorld) picture(t *testing.T) string {
	t.Helper()
	out := ""
	for _, r := range y.receipts(t) {
		out += fmt.Sprintf("receipt of boot %s by %s, open %v:", r.BootID, r.By, r.Open())
		for _, p := range r.Proofs {
			out += " " + string(p.Evidence)
		}
	}
	h := must.Get(y.store.Hosts().Get(context.Background(), nil, y.host.ID))(t)
	n := must.Get(y.store.Node(context.Background(), nil, y.node))(t)
	y.array.mu.Lock()
	defer y.array.mu.Unlock()
	return out + fmt.Sprintf("\nfences %d, fenced %v; node %s, held %q, locked %q, is %s; revoked %d", h.Fences, h.Fenced, n.PowerState, n.PowerLock, n.Reservation, y.power, len(y.array.revoked))
}

func (y *fenceWorld) world(start, broken func(t *testing.T)) *jobtest.World {
	w := y.machineWorld.world(compute.JobFence, start, broken)
	w.Subject, w.Poke, w.Picture = compute.HostSubject(y.host.ID), y.poke, y.picture
	return w
}

// TestSweepFence: a fence survives; whatever fails, a node is held exactly while there is a receipt.
func TestSweepFence(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]site{
		"power":   {node: true, volumes: true, local: true, require: []compute.Evidence{compute.PowerCut, compute.StorageRevoked}},
		"storage": {volumes: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
				y := newLot(t, s)
				y.pass(compute.Suspect + time.Second)
				return y.world(func(t *testing.T) { y.ask(t, compute.FenceArgs{}) }, func(t *testing.T) {
					open := len(y.receipts(t)) > 0
					if held := y.held(t) != ""; held != (open && s.node) {
						t.Errorf("held %v: %s", held, y.picture(t))
					}
				})
			})
		})
	}
}

// fenced runs a fence to its end.
func (y *fenceWorld) fenced(t *testing.T, a compute.FenceArgs) (job.Job, time.Duration) {
	t.Helper()
	w := y.world(nil, nil)
	h := y.testHost()
	stop := h.conduct(t)
	defer stop()
	id, began := y.ask(t, a), time.Now()
	for end := began.Add(fenceWithin + 10*time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		w.Poke()
		if j, err := y.store.Job(context.Background(), nil, id); err == nil && j.State == job.Ended {
			return j, time.Since(began)
		}
	}
	t.Fatal("the fence has not ended")
	return job.Job{}, 0
}

// TestFence: what is proof, and what is said where there is none.
func TestFence(t *testing.T) {
	t.Parallel()
	volumes, power := []compute.Evidence{compute.StorageRevoked}, []compute.Evidence{compute.PowerCut}
	away := problem.Unavailablef("the array is away")
	for name, c := range map[string]struct {
		site
		args   compute.FenceArgs
		silent time.Duration
		renews bool
		before func(*testing.T, *fenceWorld)
		proofs []compute.Evidence
		said   []string
	}{
		"off by the BMC":              {site: site{node: true}, silent: 9 * time.Second, proofs: power},
		"off before":                  {site: site{node: true}, silent: 9 * time.Second, before: func(_ *testing.T, y *fenceWorld) { y.power = metal.PowerOff }, proofs: power},
		"a BMC that refuses":          {site: site{node: true}, silent: 9 * time.Second, before: func(_ *testing.T, y *fenceWorld) { y.broken = problem.Conflictf("no reset") }, said: []string{"power: ", "no reset", "salvor host set east --forced-down", "salvor fence east --attest"}},
		"another machine's BMC":       {site: site{node: true}, renews: true, said: []string{"the host lives", "not the BMC of this host"}},
		"a node that must not be off": {site: site{node: true}, silent: 9 * time.Second, before: noPowerOff, said: []string{"disable_power_off"}},
		"no node":                     {silent: 9 * time.Second, said: []string{"salvor host set east --node NODE", "self-fence: its newest renewal named no armed watchdog"}},
		"volumes":                     {site: site{volumes: true}, silent: 9 * time.Second, proofs: volumes},
		"volumes and a disk":          {site: site{volumes: true, local: true}, silent: 9 * time.Second, said: []string{"storage: revoked, but disks of db lie elsewhere"}},
		"an array that is away":       {site: site{volumes: true}, silent: 9 * time.Second, before: func(_ *testing.T, y *fenceWorld) { y.array.broken = away }, said: []string{"the array is away"}},
		"an array that refuses":       {site: site{volumes: true}, silent: 9 * time.Second, before: func(_ *testing.T, y *fenceWorld) { y.array.refuses = problem.Conflictf("it stays bound") }, said: []string{"it stays bound"}},
		"both are required":           {site: site{node: true, require: []compute.Evidence{compute.PowerCut, compute.Attested}}, silent: 9 * time.Second, said: []string{"power: proven", "attestation: nobody", `Its group "strict" requires`}},
		"both are there":              {site: site{node: true, require: []compute.Evidence{compute.PowerCut, compute.Attested}}, args: compute.FenceArgs{Words: "I pulled the plug"}, silent: 9 * time.Second, proofs: []compute.Evidence{compute.PowerCut, compute.Attested}},
		"a word":                      {args: compute.FenceArgs{Words: "I pulled the plug"}, silent: 9 * time.Second, proofs: []compute.Evidence{compute.Attested}},
		"a word about one that lives": {args: compute.FenceArgs{Words: "I pulled the plug"}, renews: true, said: []string{"attestation: the host renewed its lease"}},
		"its certificate was revoked": {site: site{node: true}, silent: 9 * time.Second, before: revoked, said: []string{"its certificate was revoked", "salvor fence east --attest"}},
		"revoked, and seen off":       {site: site{}, args: compute.FenceArgs{Words: "I pulled the plug"}, silent: 9 * time.Second, before: revoked, proofs: []compute.Evidence{compute.Attested}},
		"its watchdog":                {site: site{watchdog: "i6300esb"}, silent: 16 * time.Second, proofs: []compute.Evidence{compute.SelfFenced}},
		"its watchdog, in a moment":   {site: site{watchdog: "i6300esb"}, silent: 14500 * time.Millisecond, proofs: []compute.Evidence{compute.SelfFenced}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newLot(t, c.site)
			y.pass(c.silent)
			y.renews.Store(c.renews)
			if c.before != nil {
				c.before(t, y)
			}
			j, took := y.fenced(t, c.args)
			all := y.receipts(t)
			if len(c.said) > 0 {
				for _, word := range c.said {
					if !strings.Contains(j.Problem, word) {
						t.Errorf("said %q, want %q", j.Problem, word)
					}
				}
				if len(all) > 0 || y.held(t) != "" || !problem.Is(j.Cause(), problem.Conflict) {
					t.Errorf("%v left: %s", j.Cause(), y.picture(t))
				}
				return
			}
			if j.Failed() || len(all) != 1 {
				t.Fatalf("%s; %s", j.Problem, y.picture(t))
			}
			var has []compute.Evidence
			for _, p := range all[0].Proofs {
				has = append(has, p.Evidence)
			}
			if !slices.Equal(has, c.proofs) || (y.held(t) != "") != slices.Contains(has, compute.PowerCut) {
				t.Errorf("by %v, want %v: %s", has, c.proofs, y.picture(t))
			}
			t.Logf("%s to the receipt", took.Round(time.Millisecond))
		})
	}
}

func revoked(t *testing.T, y *fenceWorld) {
	must.OK(t, y.store.Do(context.Background(), func(tx job.Tx) error {
		h, err := y.store.Hosts().Get(context.Background(), tx, y.host.ID)
		if err != nil {
			return err
		}
		h.Revoked = true
		return y.store.Hosts().Save(tx, h)
	}))
}

func noPowerOff(t *testing.T, y *fenceWorld) {
	must.OK(t, y.store.Do(context.Background(), func(tx job.Tx) error {
		return y.nodes.Edit(context.Background(), tx, y.node, func(n *metal.Node) { n.DisablePowerOff = true })
	}))
}

// cutDeadline is how long an attempt to switch a node off by force may take.
func cutDeadline(t *testing.T) time.Duration {
	for _, d := range allDefinitions() {
		if d.Kind == metal.JobForcePowerOff {
			return d.Actions[0].Deadline
		}
	}
	t.Fatal("no such operation")
	return 0
}

// TestFenceDeadBMC: a BMC that does not answer is no fence, and holds nobody up for ever.
func TestFenceDeadBMC(t *testing.T) {
	t.Parallel()
	y := newLot(t, site{node: true})
	y.pass(9 * time.Second)
	y.broken = problem.Unavailablef("no answer")
	j, took := y.fenced(t, compute.FenceArgs{Words: "the rack burned down"})
	all := y.receipts(t)
	if j.Failed() || len(all) != 1 || !all[0].Has(compute.Attested) || all[0].Has(compute.PowerCut) || took > cutDeadline(t)+15*time.Second {
		t.Errorf("after %s: %s; %s", took, j.Problem, y.picture(t))
	}
}

// TestHeldNode: what is held off is switched on by nobody, until it is let go.
func TestHeldNode(t *testing.T) {
	t.Parallel()
	y := newLot(t, site{node: true})
	y.pass(9 * time.Second)
	if j, _ := y.fenced(t, compute.FenceArgs{}); j.Failed() {
		t.Fatal(j.Problem)
	}
	ctx := context.Background()
	for _, target := range []metal.PowerTarget{metal.TurnOn, metal.Reboot, metal.SoftReboot} {
		err := y.nodes.SetPower(ctx, y.node, target, 0, record.Asker{})
		if !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "salvor host restore east") {
			t.Errorf("%s: %v", target, err)
		}
	}
	for _, v := range []metal.Verb{metal.ToRescue, metal.Rebuild, metal.Delete} {
		if err := y.nodes.Provision(ctx, y.node, v, string(v), metal.ProvisionArgs{}, record.Asker{}); !problem.Is(err, problem.Conflict) {
			t.Errorf("%s: %v", v, err)
		}
	}
	must.OK(t, y.store.Do(ctx, func(tx job.Tx) error { return y.nodes.UnlockPower(ctx, tx, y.node) }))
	if err := y.nodes.SetPower(ctx, y.node, metal.TurnOn, 0, record.Asker{}); err != nil {
		t.Error(err)
	}
}

// TestFenceAcrossARestart: a control plane that goes on with a fence hears for itself that the host is silent; that it has just begun to
// listen speaks against nothing, however long it was away.
func TestFenceAcrossARestart(t *testing.T) {
	t.Parallel()
	y := newLot(t, site{node: true, volumes: true})
	y.pass(9 * time.Second)
	y.array.hangs = make(chan struct{})
	h := y.testHost()
	stop := h.conduct(t)
	id := y.ask(t, compute.FenceArgs{})
	<-y.array.hangs
	stop()
	y.array.hangs = nil
	y.pass(2 * fenceWithin)
	y.services = service.New(y.store, y.store, service.Options{}, y.now)
	y.con.Config.Compute = y.services
	y.con = New(y.con.Config)
	y.heard(t)
	began := y.now()
	stop = y.testHost().conduct(t)
	defer stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		y.pass(20 * time.Millisecond)
		j := must.Get(y.store.Job(context.Background(), nil, id))(t)
		if j.State != job.Ended {
			continue
		}
		if all := y.receipts(t); j.Failed() || len(all) != 1 || !all[0].Has(compute.PowerCut) || y.held(t) == "" {
			t.Errorf("%s; %s", j.Problem, y.picture(t))
		}
		if heard := y.now().Sub(began); heard < compute.Suspect {
			t.Errorf("it listened for %s only", heard)
		}
		return
	}
	t.Fatal("the fence has not ended")
}

// TestContradictedGetsItsVolumesBack: a host that was fenced by another machine's BMC, and speaks again.
func TestContradictedGetsItsVolumesBack(t *testing.T) {
	t.Parallel()
	y := newLot(t, site{node: true, volumes: true})
	ctx := context.Background()
	servers := must.Get(y.services.Servers.On(ctx, y.host.ID))(t)
	name := compute.GuestInitiator(y.host.ID, servers[0].ID)
	must.OK(t, y.store.Do(ctx, func(tx job.Tx) error {
		return y.store.Volumes().Insert(tx, &compute.Volume{Record: record.Record{ID: servers[0].Disks[0].VolumeID}, Name: "v", SizeGiB: 1, Status: compute.VolumeInUse, ServerID: servers[0].ID, IQN: "iqn.2026-11.test:v"})
	}))
	taken := func() bool {
		y.array.mu.Lock()
		defer y.array.mu.Unlock()
		return y.array.revoked[name]
	}
	y.pass(9 * time.Second)
	if j, _ := y.fenced(t, compute.FenceArgs{}); j.Failed() || !taken() {
		t.Fatalf("%s; %s", j.Problem, y.picture(t))
	}
	y.pass(5 * time.Second)
	must.Get(y.services.Leases.Renew(ctx, y.host.ID, "", compute.Renewal{BootID: "boot-1", Name: "east"}))(t)
	if all := y.receipts(t); len(all) != 1 || all[0].Closed != "contradicted" {
		t.Fatal(y.picture(t))
	}
	stop := y.testHost().conduct(t)
	defer stop()
	fixture.Poll(t, "the volumes are given back", func() bool { return !taken() })
}
