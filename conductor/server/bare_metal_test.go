package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/conductor/conductortest"
	"salvor/hypervisor"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/storage"
	"salvor/store"
	"salvor/test/must"
)

// bareMetalWorld is an endpoint of the Bare Metal API in memory, beside a real store. What is asked of a machine goes one step on at each look.
type bareMetalWorld struct {
	mu       sync.Mutex
	machines map[string]*hypervisor.Node
	runs     map[string]string // by machine: what it was given to run
	password map[string]string // by machine: of its rescue
	targets  map[string][]string
	leaves   map[string]bool // initiators that storage lets in
	refuse   error           // of the next Ask
	full     int             // so many times no Ask is accepted
	breaks   map[hypervisor.Verb]string

	store    *store.Store
	services *service.Services
	con      *Conductor
	host     *compute.Host
	server   string
	volume   string
	image    string
	// initiator is the first iqn of every machine; empty: "iqn." and the machine's id.
	initiator string
	planted   string // a second iqn of every machine
}

// begin says how a bareMetalWorld begins; none: the server is yet to be made.
type begin struct {
	at     hypervisor.Provision
	state  compute.VMState
	none   bool
	volume bool
}

func newDepot(t *testing.T, b begin) *bareMetalWorld {
	t.Helper()
	st, _ := conductortest.Store(t, allDefinitions())
	y := &bareMetalWorld{store: st, machines: map[string]*hypervisor.Node{}, runs: map[string]string{}, password: map[string]string{}, targets: map[string][]string{}, leaves: map[string]bool{}, breaks: map[hypervisor.Verb]string{}}
	y.services = service.New(st, st, service.Options{SoftOffTimeout: time.Second}, time.Now)
	y.con = New(Config{Store: st, Compute: y.services, Log: slog.New(slog.DiscardHandler), Now: time.Now, BareMetal: y, FirstLook: time.Millisecond,
		LendImage: func(digest string) string { return "http://salvor/" + digest }, Storage: y, SoftOffTimeout: time.Second, NodeTimeout: time.Minute})
	cluster := &compute.Cluster{Record: record.Record{ID: uuid.NewString()}, Name: "metal", Kind: compute.IronicCluster, URL: "http://ironic:6385"}
	y.host = &compute.Host{Record: record.Record{ID: uuid.NewString()}, Name: "metal", Kind: compute.IronicHost, ClusterID: cluster.ID, Inventory: compute.Inventory{HypervisorType: "ironic", Machines: map[string]int{"CUSTOM_BAREMETAL": 2}}}
	image := &compute.Image{Record: record.Record{ID: uuid.NewString()}, Name: "debian", Status: compute.ImageActive, Visibility: "public", DiskFormat: "raw", Size: 1 << 20, Digest: "sha256:" + strings.Repeat("a", 64)}
	volume := &compute.Volume{Record: record.Record{ID: uuid.NewString()}, Name: "root", SizeGiB: 3, Status: compute.VolumeAvailable, Bootable: true, Portal: "10.0.0.1:3260", IQN: "iqn.2026-11.test:v", LUN: 1}
	flavor := &compute.Flavor{Record: record.Record{ID: uuid.NewString()}, Ref: "1", Name: "metal", VCPUs: 1, RAM: 512, Disk: 2, Public: true, ExtraSpecs: map[string]string{"resources:CUSTOM_BAREMETAL": "1"}}
	y.image, y.volume = image.ID, volume.ID
	for _, id := range []string{"node-1", "node-2"} {
		y.machines[id] = &hypervisor.Node{ID: id, Class: "CUSTOM_BAREMETAL", Provision: hypervisor.Available, Power: compute.PowerOff}
	}
	y.tx(t, func(tx job.Tx) error {
		return errors.Join(st.Clusters().Insert(tx, cluster), st.Hosts().Insert(tx, y.host), st.Images().Insert(tx, image), st.Volumes().Insert(tx, volume), st.Flavors().Insert(tx, flavor))
	})
	if !b.none {
		y.settle(t, b, flavor)
	}
	return y
}

// settle adds a server that was made long ago, on node-1.
func (y *bareMetalWorld) settle(t *testing.T, b begin, flavor *compute.Flavor) {
	t.Helper()
	power := compute.PowerOn
	if b.state == compute.Stopped {
		power = compute.PowerOff
	}
	s := &compute.Server{
		Record: record.Record{ID: uuid.NewString()}, Name: "db", GuestName: "node-1", HostID: y.host.ID, Epoch: 1, State: b.state, Power: power, Wanted: power,
		LaunchedAt: time.Now().Add(-time.Hour), Flavor: *flavor, ImageID: y.image, Disks: []compute.Disk{{Name: "sda", BootIndex: 0, SizeGiB: 2, ImageID: y.image}},
	}
	if b.state == compute.Rescued {
		s.Rescue = &rescue.Session{StartedAt: time.Now(), State: rescue.Ready, Source: &rescue.Source{Access: rescue.ByNode}, Saved: rescue.Boot{Power: "on"}, SavedKnown: true}
	}
	if b.volume {
		s.ImageID, s.Disks[0] = "", compute.Disk{Name: "sda", BootIndex: 0, VolumeID: y.volume}
		y.targets["node-1"], y.leaves["iqn.node-1"] = []string{y.volume}, true
	}
	y.server = s.ID
	m := y.machines["node-1"]
	m.ServerID, m.Provision, m.Power = s.ID, b.at, power
	y.runs["node-1"] = "old"
	y.tx(t, func(tx job.Tx) error {
		if err := y.store.Servers().Insert(tx, s); err != nil || !b.volume {
			return err
		}
		v, err := y.store.Volumes().Get(context.Background(), tx, y.volume)
		if err != nil {
			return err
		}
		v.Status, v.ServerID = compute.VolumeInUse, s.ID
		return y.store.Volumes().Save(tx, v)
	})
}

func (y *bareMetalWorld) tx(t *testing.T, fn func(job.Tx) error) {
	t.Helper()
	must.OK(t, y.store.Do(context.Background(), fn))
}

// ForHost and Endpoint are BareMetalFinder's.
func (y *bareMetalWorld) ForHost(context.Context, *compute.Host) (hypervisor.BareMetal, error) {
	return y, nil
}
func (y *bareMetalWorld) Endpoint(*compute.Cluster) (hypervisor.BareMetal, error) { return y, nil }
func (y *bareMetalWorld) Nodes(context.Context) (all []hypervisor.Node, _ error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(y.machines)) {
		all = append(all, *y.machines[id])
	}
	return all, nil
}

// steps are what a machine becomes by itself, look by look.
var steps = map[hypervisor.Provision]hypervisor.Provision{
	hypervisor.Deploying: hypervisor.DeployWait, hypervisor.DeployWait: hypervisor.InUse, hypervisor.Rescuing: hypervisor.RescueWait, hypervisor.RescueWait: hypervisor.InRescue,
	hypervisor.Unrescuing: hypervisor.InUse, hypervisor.Undeploying: hypervisor.Cleaning, hypervisor.Cleaning: hypervisor.Available,
}

func (y *bareMetalWorld) Node(_ context.Context, serverID string) (*hypervisor.Node, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, m := range y.machines {
		if m.ServerID == serverID {
			y.step(m)
		}
		if m.ServerID == serverID {
			copied := *m
			return &copied, nil
		}
	}
	return nil, problem.NotFoundf("no machine")
}

func (y *bareMetalWorld) step(m *hypervisor.Node) {
	next, goes := steps[m.Provision]
	if !goes {
		return
	}
	for verb, to := range map[hypervisor.Verb]hypervisor.Provision{hypervisor.Deploy: hypervisor.DeployFailed, hypervisor.Rescue: hypervisor.RescueFailed, hypervisor.Unrescue: hypervisor.UnrescueFail} {
		if why := y.breaks[verb]; why != "" && (next == hypervisor.InUse && verb == hypervisor.Deploy || next == hypervisor.InRescue && verb == hypervisor.Rescue || m.Provision == hypervisor.Unrescuing && verb == hypervisor.Unrescue) {
			m.Provision, m.LastError = to, why
			return
		}
	}
	switch m.Provision = next; next {
	case hypervisor.InUse, hypervisor.InRescue:
		m.Power = compute.PowerOn
	case hypervisor.Cleaning:
		m.Power = compute.PowerOff
	case hypervisor.Available:
		m.ServerID, y.runs[m.ID] = "", ""
		delete(y.targets, m.ID)
	}
}

// of finds a machine; without the lock of the world.
func (y *bareMetalWorld) of(id string) (*hypervisor.Node, error) {
	if m := y.machines[id]; m != nil {
		return m, nil
	}
	return nil, problem.NotFoundf("no machine %s", id)
}

func (y *bareMetalWorld) Claim(_ context.Context, id, serverID string) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	m, err := y.of(id)
	if err == nil && m.ServerID != "" && m.ServerID != serverID {
		err = problem.Conflictf("taken")
	}
	if err == nil {
		m.ServerID = serverID
	}
	return err
}

func (y *bareMetalWorld) Release(_ context.Context, id, serverID string) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	if m := y.machines[id]; m != nil && m.ServerID == serverID {
		m.ServerID, y.runs[id] = "", ""
	}
	return nil
}

func (y *bareMetalWorld) Describe(_ context.Context, id string, s hypervisor.System) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.runs[id] = "system " + s.URL
	return nil
}

func (y *bareMetalWorld) MACs(context.Context, string) ([]string, error) {
	return []string{"52:54:00:00:00:01"}, nil
}
func (y *bareMetalWorld) Plug(context.Context, string, []string) error   { return nil }
func (y *bareMetalWorld) Unplug(context.Context, string, []string) error { return nil }
func (y *bareMetalWorld) Validate(context.Context, string, bool) error   { return nil }
func (y *bareMetalWorld) Connectors(_ context.Context, id string) ([]hypervisor.Connector, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	names := []hypervisor.Connector{{Type: "mac", ID: "52:54:00:00:00:01"}, {Type: "iqn", ID: cmp.Or(y.initiator, "iqn."+id)}}
	if y.planted != "" {
		names = append(names, hypervisor.Connector{Type: "iqn", ID: y.planted})
	}
	return names, nil
}

func (y *bareMetalWorld) SetTargets(_ context.Context, id string, targets []hypervisor.Target) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.targets[id] = nil
	for _, t := range targets {
		if t.Portal == "" || t.IQN == "" {
			return problem.Invalidf("a target lacks its portal")
		}
		y.targets[id] = append(y.targets[id], t.VolumeID)
	}
	return nil
}

func (y *bareMetalWorld) ClearTargets(_ context.Context, id string, volumes []string) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(y.targets[id]), func(v string) bool { return slices.Contains(volumes, v) })
	if y.targets[id] = left; len(left) == 0 {
		delete(y.targets, id)
	}
	return nil
}

func (y *bareMetalWorld) Ask(_ context.Context, id string, v hypervisor.Verb, w hypervisor.NodeRequest) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	m, err := y.of(id)
	if err == nil {
		err, y.refuse = y.refuse, nil
	}
	if err == nil && y.full > 0 {
		y.full--
		err = problem.RetryAfter(time.Second, problem.Unavailablef("too many nodes are deployed"))
	}
	if err != nil {
		return err
	}
	m.LastError = ""
	switch v {
	case hypervisor.Deploy, hypervisor.Redeploy:
		m.Provision = hypervisor.Deploying
	case hypervisor.Rescue:
		m.Provision, y.password[id] = hypervisor.Rescuing, w.Password.Reveal()
	case hypervisor.Unrescue:
		m.Provision = hypervisor.Unrescuing
		delete(y.password, id)
	case hypervisor.Undeploy:
		m.Provision = hypervisor.Undeploying
		delete(y.password, id)
	case hypervisor.Abort:
		m.Provision, m.LastError = hypervisor.RescueFailed, "aborted"
	}
	return nil
}

func (y *bareMetalWorld) Switch(_ context.Context, id string, to compute.Power, _ bool, _ time.Duration) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	m, err := y.of(id)
	if err == nil {
		m.Power = to
	}
	return err
}

// Allow and the rest are storage.Storage's.
func (y *bareMetalWorld) Allow(_ context.Context, _, initiator string) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.leaves[initiator] = true
	return nil
}

func (y *bareMetalWorld) Revoke(_ context.Context, initiators ...string) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, i := range initiators {
		delete(y.leaves, i)
	}
	return nil
}

func (y *bareMetalWorld) Sessions(context.Context) ([]storage.Session, error) { return nil, nil }

// picture tells all that an operation may leave behind.
func (y *bareMetalWorld) picture(t *testing.T) string {
	t.Helper()
	ctx := context.Background()
	var out strings.Builder
	s := must.Get(y.store.Servers().Get(ctx, nil, y.server))(t)
	session, fault := "none", ""
	if r := s.Rescue; r != nil {
		session = fmt.Sprint(r.State, " ", r.Saved, r.SavedKnown, " ", r.Source.Access)
	}
	if s.Fault != nil {
		fault = s.Fault.Message
	}
	v := must.Get(y.store.Volumes().Get(ctx, nil, y.volume))(t)
	fmt.Fprintf(&out, "server: %s task %q power %s wanted %s host %v nics %v\nsession: %s\nfault: %s\nvolume %s\n", s.State, s.Task, s.Power, s.Wanted, s.HostID != "", s.NICs, session, fault, v.Status)
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(y.machines)) {
		m := y.machines[id]
		fmt.Fprintf(&out, "%s: %s %s taken %v runs %q password %q targets %d\n", id, m.Provision, m.Power, m.ServerID != "", y.runs[id], y.password[id], len(y.targets[id]))
	}
	fmt.Fprintf(&out, "leaves %v", y.leaves)
	return strings.NewReplacer(y.server, "SERVER", y.volume, "VOLUME").Replace(out.String())
}

func (y *bareMetalWorld) act(t *testing.T, a compute.Act) {
	t.Helper()
	must.Get(y.services.Actions.Act(context.Background(), y.server, a, compute.Who{Admin: true}))(t)
}

// now reads the server.
func (y *bareMetalWorld) now(t *testing.T) *compute.Server {
	t.Helper()
	s := must.Get(y.store.Servers().Get(context.Background(), nil, y.server))(t)
	return s
}

// create inserts a server that its job is to make; only node-1 is free, so that every run ends alike.
func (y *bareMetalWorld) create(t *testing.T, volume bool) {
	t.Helper()
	y.mu.Lock()
	y.machines["node-2"].Maintenance = true
	y.mu.Unlock()
	c := compute.Creation{Name: "db", Flavor: "1", Image: y.image}
	if volume {
		c.Image, c.Disks = "", []compute.DiskRequest{{VolumeID: y.volume}}
	}
	made := must.Get(y.services.Servers.Create(context.Background(), c, compute.Who{Admin: true}))(t)
	y.server = made[0].ID
}

func (y *bareMetalWorld) world(kind job.Kind, start, broken func(t *testing.T)) *jobtest.World {
	return &jobtest.World{
		Store: y.store, Definitions: y.con.Definitions(), Conductor: job.Conductor{ID: "c", Hostname: "c", Groups: []string{""}, Description: json.RawMessage(`{}`)},
		Kind: kind, Subject: compute.Subject(y.server), Start: start, Poke: func() {}, Picture: y.picture, Broken: broken,
	}
}

// work runs a conductor until nothing is left to be done on the server.
func (y *bareMetalWorld) work(t *testing.T) {
	t.Helper()
	h := &testHost{store: y.store, con: y.con}
	stop := h.conduct(t)
	defer stop()
	h.untilEnded(t, func() {}, compute.Subject(y.server))
}

// TestSweepBareMetal kills, repeats and fails every action of every operation on a machine.
func TestSweepBareMetal(t *testing.T) {
	t.Parallel()
	rescueNow := func(*bareMetalWorld) compute.Act {
		wanted := secret.Value{}
		return compute.Act{Action: compute.Rescue, Password: &wanted, Rescue: rescue.Request{Password: secret.New("wanted")}}
	}
	for name, c := range map[string]struct {
		begin begin
		kind  job.Kind
		act   func(y *bareMetalWorld) compute.Act
	}{
		"power": {begin{at: hypervisor.InUse, state: compute.Active}, compute.JobMetalPower, func(*bareMetalWorld) compute.Act { return compute.Act{Action: compute.RebootHard} }},
		"rebuild": {begin{at: hypervisor.InUse, state: compute.Stopped}, compute.JobMetalRebuild, func(y *bareMetalWorld) compute.Act {
			return compute.Act{Action: compute.Rebuild, Rebuild: &compute.RebuildArgs{ImageID: y.image}}
		}},
		"rescue":          {begin{at: hypervisor.InUse, state: compute.Active}, compute.JobMetalRescue, rescueNow},
		"unrescue":        {begin{at: hypervisor.InRescue, state: compute.Rescued}, compute.JobMetalUnrescue, func(*bareMetalWorld) compute.Act { return compute.Act{Action: compute.Unrescue} }},
		"delete":          {begin{at: hypervisor.InRescue, state: compute.Rescued}, compute.JobMetalDelete, func(*bareMetalWorld) compute.Act { return compute.Act{Action: compute.Delete} }},
		"delete a volume": {begin{at: hypervisor.InUse, state: compute.Active, volume: true}, compute.JobMetalDelete, func(*bareMetalWorld) compute.Act { return compute.Act{Action: compute.Delete} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
				y := newDepot(t, c.begin)
				return y.world(c.kind, func(t *testing.T) { y.act(t, c.act(y)) }, func(t *testing.T) {
					if s := y.now(t); s.Task != compute.NoTask && s.State != compute.Deleted || s.Fault == nil && s.State != compute.Deleted {
						t.Errorf("after a failure: %s task %q fault %v", s.State, s.Task, s.Fault)
					}
				})
			})
		})
	}
	for _, volume := range []bool{false, true} {
		t.Run(fmt.Sprintf("create volume=%v", volume), func(t *testing.T) {
			t.Parallel()
			conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
				y := newDepot(t, begin{none: true})
				w := y.world(compute.JobMetalCreate, nil, func(t *testing.T) {
					if s := y.now(t); s.State != compute.Errored {
						t.Errorf("after a failure: %s", s.State)
					}
				})
				w.Start = func(t *testing.T) {
					y.create(t, volume)
					w.Subject = compute.Subject(y.server)
				}
				return w
			})
		})
	}
}

// TestMetalFaults: a node's own words are its server's fault, and the password is nowhere once it was handed on.
func TestMetalFaults(t *testing.T) {
	t.Parallel()
	y := newDepot(t, begin{at: hypervisor.InUse, state: compute.Active})
	y.breaks[hypervisor.Rescue] = "Timeout reached while waiting for rescue ramdisk callback"
	wanted := secret.Value{}
	y.act(t, compute.Act{Action: compute.Rescue, Password: &wanted})
	if wanted.Empty() {
		t.Error("no password was told")
	}
	y.work(t)
	s := y.now(t)
	if want := "Instance " + s.ID + " cannot be rescued: Driver Error: " + y.breaks[hypervisor.Rescue]; s.State != compute.Errored || s.Fault == nil || s.Fault.Message != want || s.Rescue.State != rescue.Failed {
		t.Fatalf("%s, fault %v, want %q", s.State, s.Fault, want)
	}
	if y.password["node-1"] != wanted.Reveal() {
		t.Error("another password was handed on than was told")
	}
	y.breaks[hypervisor.Unrescue] = "no power"
	y.act(t, compute.Act{Action: compute.Unrescue})
	y.work(t)
	if s = y.now(t); s.State != compute.Errored || s.Fault.Message != "Instance "+s.ID+" cannot be unrescued: Driver Error: "+problem.Quote("no power") {
		t.Fatalf("%s, fault %v", s.State, s.Fault)
	}
	delete(y.breaks, hypervisor.Unrescue)
	y.refuse = problem.Conflictf("Node is locked by host x, please retry after the current operation is completed.")
	y.act(t, compute.Act{Action: compute.Unrescue})
	y.work(t)
	if s = y.now(t); s.State != compute.Active || s.Fault != nil || s.Rescue != nil {
		t.Fatalf("%s, fault %v, session %v", s.State, s.Fault, s.Rescue)
	}
}

// TestMetalRescueIsBounded: a node that never comes to an end does not hold its server for ever.
func TestMetalRescueIsBounded(t *testing.T) {
	t.Parallel()
	y := newDepot(t, begin{at: hypervisor.InUse, state: compute.Active})
	y.con.NodeTimeout = 5 * time.Millisecond
	y.machines["node-1"].Provision = hypervisor.DeployHold // it stays there
	wanted := secret.Value{}
	y.act(t, compute.Act{Action: compute.Rescue, Password: &wanted})
	y.work(t)
	if s := y.now(t); s.State != compute.Errored || !strings.Contains(s.Fault.Message, "stays in state") {
		t.Fatalf("%s, fault %v", s.State, s.Fault)
	}
}

// TestAFullEndpointIsAskedAgain: an endpoint that has no room for more work is asked again for as long as that work may take. Its words tell
// why the server has failed then.
func TestAFullEndpointIsAskedAgain(t *testing.T) {
	t.Parallel()
	for refusals, want := range map[int]compute.VMState{2: compute.Active, 1 << 30: compute.Errored} {
		y := newDepot(t, begin{none: true})
		if y.full = refusals; want == compute.Errored {
			y.con.NodeTimeout = 5 * time.Millisecond
		}
		y.create(t, true)
		y.work(t)
		if s := y.now(t); s.State != want || want == compute.Errored && !strings.Contains(s.Fault.Message, "too many nodes are deployed") {
			t.Errorf("%d refusals: %s, fault %v", refusals, s.State, s.Fault)
		}
		if refusals == 2 && y.full != 0 {
			t.Errorf("%d refusals are left", y.full)
		}
	}
}

// TestMetalDeployFailure: the server is in error with the node's words, and its volumes are no longer the machine's.
func TestMetalDeployFailure(t *testing.T) {
	t.Parallel()
	y := newDepot(t, begin{none: true})
	y.breaks[hypervisor.Deploy] = "no bootable device"
	y.create(t, true)
	y.work(t)
	s := y.now(t)
	if s.State != compute.Errored || !strings.Contains(s.Fault.Message, "cannot be created: "+problem.Quote("no bootable device")) || len(y.targets) != 0 {
		t.Fatalf("%s, fault %v, targets %v", s.State, s.Fault, y.targets)
	}
	y.act(t, compute.Act{Action: compute.Delete})
	y.work(t)
	if m := y.machines["node-1"]; m.Provision != hypervisor.Available || m.ServerID != "" || len(y.leaves) != 0 {
		t.Errorf("after the deletion: %+v, leaves %v", m, y.leaves)
	}
}
