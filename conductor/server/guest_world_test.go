package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/conductor/conductortest"
	"salvor/conductor/node"
	"salvor/hypervisor"
	"salvor/hypervisor/fake"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/store"
	"salvor/test/fixture"
	"salvor/test/must"
)

// testHost is a VM host in memory beside a real store: its hypervisor, its files, and an agent that takes orders from the
// store as a real one takes them from the wire.
type testHost struct {
	mu     sync.Mutex
	hv     *fake.Hypervisor
	disks  map[string]string                       // of the server, by name: what it was made from
	drive  string                                  // the hash in the config drive
	copies bool                                    // the rescue left copies, or a config drive
	keys   compute.OrderSecret                     // LUKS keys of the newest examination
	opened string                                  // the hash that opened the rescue system
	refuse func(compute.Verb, *compute.Args) error // nil: it does what it is told
	did    []compute.Verb                          // orders that were carried out
	dies   bool                                    // after each deed, once, before it tells of it
	former bool                                    // its agent is of a former release, which gives saved memory up
	// quarantined are disks by their ids, as disks tells of those of the server.
	quarantined map[string]string

	store    *store.Store
	machines *node.Conductor // nil: there are no nodes
	services *service.Services
	con      *Conductor
	host     *compute.Host
	server   string
	image    string // of the image API
	volume   string

	// tells changes what the host answers.
	tells func(compute.Verb, *compute.Result)
	// copied is the copy of the guest's state beside its disk in a shared store; nil: there is none.
	copied *compute.GuestState
}

// hostOptions is how a testHost begins.
type hostOptions struct {
	kind    compute.HostKind
	state   compute.VMState
	volumes bool // the server boots from a volume
	access  rescue.Access
	new     bool // the server is yet to be made
	silent  bool // the host holds no lease
}

// Of is Hypervisors's.
func (h *testHost) Of(context.Context, *compute.Host) (hypervisor.Hypervisor, error) {
	return h.hv, nil
}

func newTestHost(t *testing.T, q hostOptions) *testHost {
	t.Helper()
	st, _ := conductortest.Store(t, allDefinitions())
	h := &testHost{hv: fake.New(), disks: map[string]string{}, store: st}
	h.services = service.New(st, st, service.Options{SoftOffTimeout: time.Second, RescueImagePath: "/srv/rescue"}, time.Now)
	h.con = New(Config{Store: st, Compute: h.services, Log: slog.New(slog.DiscardHandler), Now: time.Now, Hypervisors: h, RescueImagePath: "/srv/rescue"})
	if q.access == "" {
		q.access = rescue.ByChannel
	}
	if q.kind == "" {
		q.kind = compute.AgentHost
	}
	h.furnish(t, q)
	if !q.new {
		h.settle(t, q)
	}
	return h
}

// furnish fills the store with what servers are made of.
func (h *testHost) furnish(t *testing.T, q hostOptions) {
	t.Helper()
	h.host = &compute.Host{Record: record.Record{ID: uuid.NewString()}, Name: "east", Kind: q.kind, BootID: "boot-1", Inventory: compute.Inventory{
		HypervisorType: "fake", VCPUs: 8, RAM: 16384, Disk: 100, InitiatorIQN: "iqn.2026-11.test:east", KeepsSaved: true, OnlyReads: true, Stores: []compute.DiskStore{{Name: "local", Marker: localMarker, SizeGiB: 100, FreeGiB: 100}}}}
	image := &compute.Image{Record: record.Record{ID: uuid.NewString()}, Name: "debian", Status: compute.ImageActive, Visibility: "public", DiskFormat: "qcow2",
		Size: 1 << 20, Digest: "sha256:" + strings.Repeat("a", 64), Properties: map[string]string{"os_distro": "debian", "os_type": "linux"}}
	volume := &compute.Volume{Record: record.Record{ID: uuid.NewString()}, Name: "data", SizeGiB: 3, Status: compute.VolumeAvailable, Bootable: true,
		Portal: "10.0.0.1:3260", IQN: "iqn.2026-11.test:v", LUN: 1, CHAPUser: "u", CHAPPassword: secret.New("chap-password")}
	flavor := &compute.Flavor{Record: record.Record{ID: uuid.NewString()}, Ref: "1", Name: "small", VCPUs: 1, RAM: 512, Disk: 2, Public: true}
	rescuer := &rescue.Image{Record: record.Record{ID: uuid.NewString()}, Name: "finnix", Default: true, Source: rescue.Source{
		Kind: rescue.ISO, Access: q.access, LocationType: rescue.LocationFile, Location: "finnix.iso", Digest: "sha256:" + strings.Repeat("b", 64)}}
	h.image, h.volume = image.ID, volume.ID
	h.tx(t, func(tx job.Tx) error {
		return errors.Join(h.store.Hosts().Insert(tx, h.host), h.store.Images().Insert(tx, image), h.store.Volumes().Insert(tx, volume),
			h.store.Flavors().Insert(tx, flavor), h.store.RescueImages().Insert(tx, rescuer))
	})
	if q.silent {
		return
	}
	must.OK(t, h.store.SaveLeases(context.Background(), []compute.Lease{{HostID: h.host.ID, BootID: "boot-1", RenewedAt: time.Now().Add(time.Hour)}}))
}

// settle adds a server that was made long ago.
func (h *testHost) settle(t *testing.T, q hostOptions) {
	t.Helper()
	power := compute.PowerOn
	if q.state == compute.Stopped {
		power = compute.PowerOff
	}
	s := &compute.Server{
		Record: record.Record{ID: uuid.NewString()}, Name: "db", GuestName: "salvor-db", HostID: h.host.ID, Epoch: 1, State: q.state, Power: power, Wanted: power,
		LaunchedAt: time.Now().Add(-time.Hour), Flavor: compute.Flavor{Name: "small", VCPUs: 1, RAM: 512, Disk: 2}, ImageID: h.image, Firmware: compute.BIOS, ConfigDrive: true, PublicKey: "ssh-ed25519 own",
		Disks: []compute.Disk{{Name: "vda", BootIndex: 0, Store: "local", SizeGiB: 2, ImageID: h.image}, {Name: "vdb", BootIndex: -1, Store: "local", SizeGiB: 1}},
	}
	h.server, h.disks["vda"], h.disks["vdb"] = s.ID, "aged "+h.image, "aged"
	if q.volumes {
		s.ImageID, s.Disks[0] = "", compute.Disk{Name: "vda", BootIndex: 0, VolumeID: h.volume}
		delete(h.disks, "vda")
	}
	h.tx(t, func(tx job.Tx) error {
		if err := h.store.Servers().Insert(tx, s); err != nil || !q.volumes {
			return err
		}
		v, err := h.store.Volumes().Get(context.Background(), tx, h.volume)
		if err != nil {
			return err
		}
		v.Status, v.ServerID, v.Device = compute.VolumeInUse, s.ID, "vda"
		return h.store.Volumes().Save(tx, v)
	})
	b := must.Get(h.services.Servers.Blueprint(context.Background(), s, ""))(t)
	domain := domainOf(&b.Spec)
	as := fake.State{Defined: domain, Power: power, Ours: true, Variables: "enrolled keys", Settings: map[string]string{fake.BootOrder: "network", "vga": "std"}}
	if power == compute.PowerOn {
		as.Runs = &domain
	}
	h.hv.Put(s.ID, as)
}

func (h *testHost) tx(t *testing.T, fn func(job.Tx) error) {
	t.Helper()
	must.OK(t, h.store.Do(context.Background(), fn))
}

// poke plays the agent of the host once: it carries its open orders out and tells of it.
func (h *testHost) poke() { h.answer(h.openOrders()) }

func (h *testHost) openOrders() []compute.Order {
	orders, err := h.store.OpenOrders(context.Background(), h.host.ID)
	if err != nil {
		return nil // the next poke reads them
	}
	return orders
}

// answer carries these orders out.
func (h *testHost) answer(orders []compute.Order) {
	ctx := context.Background()
	for _, o := range orders {
		result, err := h.carry(ctx, &o)
		if err != nil {
			result.ErrorKind, result.Error = problem.KindOf(err).String(), err.Error()
		}
		if h.tells != nil {
			h.tells(o.Verb, &result)
		}
		if h.dies && o.BootID == "boot-1" {
			_ = h.store.Do(ctx, func(tx job.Tx) error { return h.store.MoveOrders(tx, h.host.ID, "boot-2") })
		}
		_ = h.store.Do(ctx, func(tx job.Tx) error {
			if _, err := h.store.FinishOrder(tx, o.ID, h.host.ID, o.BootID, o.Epoch, result); err != nil {
				return err
			}
			return h.store.Signal(tx, compute.Subject(o.ServerID))
		})
	}
}

// carry does what an order says, as a host does: it reads first and repeats harmlessly.
func (h *testHost) carry(ctx context.Context, o *compute.Order) (result compute.Result, err error) {
	var args compute.Args
	var hidden compute.OrderSecret
	if err := json.Unmarshal(o.Args, &args); err != nil {
		return result, err
	}
	if !o.Secret.Empty() {
		if err := json.Unmarshal([]byte(o.Secret.Reveal()), &hidden); err != nil {
			return result, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.did = append(h.did, o.Verb)
	if h.refuse != nil {
		if err := h.refuse(o.Verb, &args); err != nil {
			return result, err
		}
	}
	if o.Verb.LeavesDisks(&args) {
		if now, err := h.look(ctx, o.ServerID); err == nil && now.Guest.RefusalToLeave() != nil {
			return result, now.Guest.RefusalToLeave()
		}
	}
	switch o.Verb {
	case compute.Diagnose:
		h.keys = hidden
	case compute.Probe:
		for _, p := range args.Probes {
			result.Sights = append(result.Sights, h.sight(&p))
		}
	case compute.Prepare:
		if args.NeedsState && h.copied == nil {
			return result, problem.Conflictf("no copy lies beside its disk")
		}
		h.copies = h.copies || args.Spec.Rescue != nil
		for _, d := range args.Spec.Disks {
			if _, there := h.disks[d.Name]; !there && d.VolumeID == "" {
				if args.Found {
					return result, problem.Conflictf("disk %s is not there", d.Name)
				}
				h.disks[d.Name] = "blank"
				if d.Image != nil {
					h.disks[d.Name] = d.Image.ID
				}
			}
		}
		for _, content := range hidden.Drive {
			if strings.Contains(string(content), "$5$") {
				h.drive = "with a password"
			}
		}
	case compute.Discard:
		d := args.Disk
		if d == nil {
			d = &args.Spec.Disks[0]
		}
		if args.Erase {
			delete(h.disks, d.Name)
		}
		h.quarantine(d.Name)
	case compute.ListQuarantine:
		for id := range h.quarantined {
			result.Quarantine = append(result.Quarantine, compute.QuarantinedDisk{ID: id, Store: "local", Marker: localMarker, Bytes: 1 << 30})
		}
	case compute.RestoreDisk:
		return result, h.restoreDisk(args.Quarantine, args.Disk.Name)
	case compute.Define:
		if args.Spec.Rescue != nil && !h.copies {
			return result, problem.Conflictf("the rescue image is not there; prepare it first")
		}
		if now, there := h.hv.State(o.ServerID); args.Fresh && there && now.Defined.Epoch != args.Spec.Epoch {
			return result, problem.Conflictf("another guest of that UUID is there")
		}
		d := domainOf(args.Spec)
		d.State = args.State
		if _, there := h.hv.State(o.ServerID); args.CopiedState && !there {
			d.State = h.copied
		}
		result.StateTaken = args.CopiedState && h.copied != nil
		return result, h.hv.Define(ctx, d)
	case compute.SetPower:
		before, _ := h.hv.State(o.ServerID)
		args.KeepSaved = args.KeepSaved && !h.former
		result.MemoryLost = args.Power == compute.PowerOff && !args.KeepSaved && before.Power == compute.PowerSaved
		result.Soft, err = h.hv.SetPower(ctx, o.ServerID, hypervisor.Power{State: args.Power, Soft: args.Soft, Restart: args.Restart, KeepSaved: args.KeepSaved, Within: time.Duration(args.Within) * time.Second})
		if args.Power != compute.PowerOn {
			h.opened = ""
		}
		if now, looked := h.look(ctx, o.ServerID); err == nil && looked == nil {
			result.Guest = now.Guest
		}
		return result, err
	case compute.Unlock:
		now, _ := h.hv.State(o.ServerID)
		if now.Runs == nil || now.Runs.Rescue == nil {
			return result, problem.Conflictf("no rescue system runs")
		}
		if hidden.Hash == "" && len(hidden.Keys) == 0 || len(hidden.Drive) != 1 || len(hidden.Drive[networkData]) == 0 {
			return result, problem.Invalidf("no credential, or not the addresses alone: %d files", len(hidden.Drive))
		}
		h.opened, result.Fingerprint, result.HostKey = hidden.Hash, guestFingerprint, guestKey+" root@rescue"
	case compute.MigrateBegin, compute.MigratePrepare, compute.MigratePerform, compute.MigrateFinish, compute.MigrateConfirm:
		return h.migrate(ctx, o, &args)
	case compute.Release:
		h.copies = false
	case compute.Remove:
		if !args.KeepDisks {
			clear(h.disks)
		}
		h.copies = false
		return result, h.hv.Remove(ctx, o.ServerID)
	case compute.Look:
		return h.look(ctx, o.ServerID)
	case compute.Export:
		result.State, err = h.hv.Export(ctx, o.ServerID, false)
		return result, err
	case compute.Attach, compute.Detach:
		return result, h.hv.Plug(ctx, domainOf(args.Spec), args.Disk.Name, o.Verb == compute.Attach)
	}
	return result, nil
}

// domainOf tells a rescue's file as Ganeti's are told, so that both kinds of hosts end alike.
func domainOf(s *compute.Spec) hypervisor.Domain {
	d := hypervisor.Domain{Spec: *s, Paths: map[string]hypervisor.DiskFile{}}
	for _, disk := range s.Disks {
		if disk.VolumeID == "" {
			d.Paths[disk.Name] = hypervisor.DiskFile{Path: "/pool/" + disk.Name, Format: "raw"}
		}
	}
	if s.Rescue != nil {
		d.RescueImage = "/srv/rescue/" + s.Rescue.Location
	}
	return d
}

func (h *testHost) look(ctx context.Context, id string) (compute.Result, error) {
	all, err := h.hv.Guests(ctx)
	if err != nil {
		return compute.Result{}, err
	}
	i := slices.IndexFunc(all, func(g compute.Guest) bool { return g.ID == id })
	if i < 0 {
		return compute.Result{}, problem.NotFoundf("there is no guest %s", id)
	}
	return compute.Result{Guest: &all[i]}, nil
}

// now reads the server.
func (h *testHost) now(t *testing.T) *compute.Server {
	t.Helper()
	s := must.Get(h.store.Servers().Get(context.Background(), nil, h.server))(t)
	return s
}

// act asks for something as an administrator.
func (h *testHost) act(t *testing.T, a compute.Act) {
	t.Helper()
	must.Get(h.services.Actions.Act(context.Background(), h.server, a, compute.Who{Admin: true}))(t)
}

// picture tells all that an operation may leave behind, on the host and in the store.
func (h *testHost) picture(t *testing.T) string {
	t.Helper()
	ctx := context.Background()
	var out strings.Builder
	if s, err := h.store.Servers().Get(ctx, nil, h.server); err == nil {
		session := "none"
		if r := s.Rescue; r != nil {
			session = fmt.Sprint(r.State, " ", r.Saved, r.SavedKnown, r.SavedSettings, r.Source.Name, " credential ", !r.Credential.Hash.Empty(), " ", r.Fingerprint)
		}
		fault := ""
		if s.Fault != nil {
			fault = s.Fault.Message
		}
		fmt.Fprintf(&out, "server: %s task %q power %s wanted %s host %v image %v disks %v\nsession: %s\nfault: %s\n",
			s.State, s.Task, s.Power, s.Wanted, s.HostID != "", s.ImageID == h.image, s.Disks, session, fault)
	}
	uses := must.Get(h.store.RescueImageUse(ctx, nil))(t)
	v := must.Get(h.store.Volumes().Get(ctx, nil, h.volume))(t)
	open := must.Get(h.store.OpenOrders(ctx, h.host.ID))(t)
	host := must.Get(h.store.Hosts().Get(ctx, nil, h.host.ID))(t)
	fmt.Fprintf(&out, "rescue images in use: %d; volume %s %s; open orders %d; host uses %d vcpus\n", len(uses), v.Status, v.Device, len(open), host.UsedVCPUs)
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Fprintf(&out, "files: disks %v drive %q copies %v\nguest: %s opened %v", h.disks, h.drive, h.copies, h.guest(), h.opened != "")
	return strings.NewReplacer(h.image, "IMAGE", h.volume, "VOLUME", h.server, "SERVER").Replace(out.String())
}

// guest tells how the hypervisor has it; without the lock of the testHost.
func (h *testHost) guest() string {
	g, ok := h.hv.State(h.server)
	if !ok {
		return "none"
	}
	boots := func(d *hypervisor.Domain) string {
		switch {
		case d == nil:
			return "nothing"
		case d.Rescue != nil:
			return "rescue " + d.Rescue.Name + disksOf(d)
		}
		return "system" + disksOf(d)
	}
	return fmt.Sprintf("%s, defined %s, runs %s, settings %v, starts %d, variables %q", g.Power, boots(&g.Defined), boots(g.Runs), g.Settings, g.Starts, g.Variables)
}

func disksOf(d *hypervisor.Domain) string {
	out := ""
	for _, disk := range d.Disks {
		out += " " + disk.Name
	}
	return out
}

// world puts the testHost before the sweep.
func (h *testHost) world(kind job.Kind, start, broken func(t *testing.T)) *jobtest.World {
	return &jobtest.World{
		Store: h.store, Definitions: h.con.Definitions(), Conductor: job.Conductor{ID: "c", Hostname: "c", Groups: []string{""}, Description: json.RawMessage(`{}`)},
		Kind: kind, Subject: compute.Subject(h.server), Start: start, Poke: h.poke, Picture: h.picture, Broken: broken,
	}
}

// conduct starts a conductor; the returned function ends it.
func (h *testHost) conduct(t *testing.T) (stop func()) {
	t.Helper()
	all := h.con.Definitions()
	if h.machines != nil {
		all = append(all, h.machines.Definitions()...)
	}
	r := must.Get(job.NewRunner(job.Config{
		Store: h.store, Definitions: all, Workers: 2, Log: slog.New(slog.DiscardHandler), Die: func(why string) { panic(why) },
		Conductor: job.Conductor{ID: "c", Incarnation: uuid.NewString(), Hostname: "c", Groups: []string{""}, Description: json.RawMessage(`{}`)},
	}))(t)
	must.OK(t, r.Join(context.Background()))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx, 0) }()
	return func() { cancel(); <-ended }
}

// work runs a conductor until nothing is left to be done on the server.
func (h *testHost) work(t *testing.T) {
	t.Helper()
	stop := h.conduct(t)
	defer stop()
	h.untilEnded(t, h.poke, compute.Subject(h.server))
}

// untilEnded plays the agents until no job of the subjects is open.
func (h *testHost) untilEnded(t *testing.T, poke func(), subjects ...job.Subject) {
	t.Helper()
	var open []job.Job
	fixture.PollActing(t, "all jobs have ended", poke, func() bool {
		open = nil
		h.tx(t, func(tx job.Tx) error {
			var all []error
			for _, subject := range subjects {
				more, err := h.store.Unended(tx, subject)
				open, all = append(open, more...), append(all, err)
			}
			return errors.Join(all...)
		})
		return len(open) == 0
	}, func(*testing.T) string {
		return fmt.Sprintf("%s %s %q waits for %q: %s", open[0].Kind, open[0].State, open[0].Action, open[0].WaitFor, open[0].Problem)
	})
}

// waits lets a conductor work until the server's job waits for the host, which does not answer.
func (h *testHost) waits(t *testing.T) {
	t.Helper()
	stop := h.conduct(t)
	defer stop()
	fixture.Poll(t, "a job waits", func() bool {
		open := conductortest.OpenJobs(t, h.store, compute.Subject(h.server))
		return len(open) == 1 && open[0].State == job.Waiting
	}, h.picture)
}

// The ssh host key of every rescue system here, and its fingerprint.
const (
	guestKey         = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG6zbRXkp9CdSvOtcMjNVOyEAsdcbK/jYlSmblVCW5FM"
	guestFingerprint = "SHA256:X2fWlozMuWktFTH2MKvcoebOVFAaBXGllnN/QncU6IM"
)
