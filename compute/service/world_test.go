package service_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

// world is a fresh store with the services over it, a clock that tests set, and what servers are made of.
type world struct {
	t     *testing.T
	ctx   context.Context
	store *store.Store
	*service.Services
	flavor *compute.Flavor
	image  *compute.Image
	host   *compute.Host
	// incarnation is the id of the database's incarnation.
	incarnation string

	mu   sync.Mutex
	time time.Time
}

var (
	admin = compute.Who{Admin: true, Asker: record.Asker{User: "root"}}
	alice = compute.Who{Project: "alice", Asker: record.Asker{User: "alice"}}
	bob   = compute.Who{Project: "bob", Asker: record.Asker{User: "bob"}}
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.time
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.time = w.time.Add(d)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	st, _ := storetest.SQLite(t)
	w := &world{t: t, ctx: t.Context(), store: st, time: time.Now(), incarnation: "first"}
	w.Services = service.New(st, st, service.Options{
		Incarnation:    func() string { return w.incarnation },
		SoftOffTimeout: 5 * time.Second, HashAlgorithm: rescue.SHA256, RescueImagePath: "/srv/rescue",
		HeadURL: func(url string) error {
			if url == "http://gone.example/x.iso" {
				return errors.New("404 Not Found")
			}
			return nil
		},
	}, w.now)
	w.flavor = &compute.Flavor{Name: "small", VCPUs: 1, RAM: 512, Disk: 2, Public: true}
	w.no(w.Flavors.Create(w.ctx, w.flavor, admin.Asker))
	w.image = &compute.Image{Name: "cirros", Visibility: "public", Status: compute.ImageActive, DiskFormat: "raw", Size: 1 << 20, Digest: digest,
		Properties: map[string]string{"OS": "debian", "OSFAMILY": "linux"}}
	w.no(w.Images.Create(w.ctx, w.image, admin.Asker))
	w.host = w.join("host-a")
	w.no(w.RescueImages.EnsureBuiltIn(w.ctx, compute.BuiltIn{KernelDigest: digest, RamdiskDigest: digest, Append: "quiet"}))
	return w
}

// no fails the test for an error.
func (w *world) no(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// want fails the test unless err is of the kind.
func (w *world) want(err error, kind problem.Kind) {
	w.t.Helper()
	if err == nil || problem.KindOf(err) != kind {
		w.t.Fatalf("%v is not %s", err, kind)
	}
}

func (w *world) join(name string) *compute.Host {
	w.t.Helper()
	_, token, err := w.JoinTokens.Issue(w.ctx, time.Hour, "", admin.Asker)
	w.no(err)
	id := newID()
	_, err = w.Hosts.Join(w.ctx, token, id, name, compute.Certificate{Serial: "01"}, id, record.Asker{})
	w.no(err)
	_, err = w.Leases.Renew(w.ctx, id, "01", compute.Renewal{BootID: "boot-1", Name: name, HasGuests: true, Inventory: &compute.Inventory{
		VCPUs: 2, RAM: 4096, Disk: 100, Bridges: []string{"br0"}, Stores: []compute.DiskStore{{Name: "local", SizeGiB: 100}},
		Firmware: []compute.Firmware{compute.BIOS, compute.UEFI}, InitiatorIQN: "iqn.2026-01.example:host",
	}})
	w.no(err)
	h, err := w.Hosts.Host(w.ctx, id)
	w.no(err)
	return h
}

// create makes a server and leaves its job be.
func (w *world) create(who compute.Who, change ...func(*compute.Creation)) *compute.Server {
	w.t.Helper()
	c := compute.Creation{Name: "vm", Flavor: w.flavor.ID, Image: w.image.ID, User: who.User}
	for _, f := range change {
		f(&c)
	}
	made := must.Get(w.Servers.Create(w.ctx, c, who))(w.t)
	return made[0]
}

// server makes a server in a state, as if its jobs had run.
func (w *world) server(who compute.Who, state compute.VMState, change ...func(*compute.Creation)) *compute.Server {
	w.t.Helper()
	s := w.create(who, change...)
	w.tx(func(tx job.Tx) error {
		_, _, err := w.Servers.Place(w.ctx, tx, s.ID, compute.CreateArgs{})
		return err
	})
	w.finish(s.ID, func(s *compute.Server) {
		s.LaunchedAt, s.PublicKey = w.now(), "ssh-ed25519 own"
		s.Settle(map[compute.VMState]compute.Power{compute.Stopped: compute.PowerOff, compute.Paused: compute.PowerPaused,
			compute.Suspended: compute.PowerSaved}[state])
		if state == compute.Active {
			s.Settle(compute.PowerOn)
		}
		s.State, s.Wanted = state, s.Power
	})
	return w.read(s.ID)
}

func (w *world) tx(fn func(job.Tx) error) {
	w.t.Helper()
	w.no(w.store.Do(w.ctx, fn))
}

// finish ends whatever job there is, well.
func (w *world) finish(id string, change func(*compute.Server)) {
	w.t.Helper()
	w.endJobs(id)
	w.tx(func(tx job.Tx) error { return w.Servers.Finish(w.ctx, tx, id, change) })
}

// fail ends the server's job with a problem.
func (w *world) fail(id string) {
	w.t.Helper()
	j := w.endJobs(id)
	j.SetCause(problem.Unavailablef("the host does not answer"))
	w.tx(func(tx job.Tx) error { return w.Servers.Fail(w.ctx, tx, &j, nil) })
}

// endJobs claims and ends the jobs of a server, and gives the last one.
func (w *world) endJobs(id string) (last job.Job) {
	w.t.Helper()
	for _, j := range w.jobs(id) {
		w.run(j, job.Ended)
		last = j
	}
	return last
}

// run brings a job into a state, as its conductor would.
func (w *world) run(j job.Job, to job.State) job.Job {
	w.t.Helper()
	claimed := must.Get(w.store.Claim(w.ctx, "conductor", w.now().Add(time.Hour), []string{""}, map[job.Kind]int{j.Kind: 9}, 100))(w.t)
	for _, c := range claimed {
		if c.ID != j.ID {
			continue
		}
		if to == job.Running {
			return c
		}
		c.State = to
		if to == job.Ended {
			c.EndedAt = w.now()
			c.Secret = j.Secret
			var none job.Job
			c.Secret = none.Secret
		}
		w.tx(func(tx job.Tx) error { return w.store.Save(tx, &c, false) })
		return c
	}
	w.t.Fatalf("job %s could not be claimed", j.Kind)
	return j
}

func (w *world) jobs(id string) (out []job.Job) {
	w.t.Helper()
	w.tx(func(tx job.Tx) (err error) {
		out, err = w.store.Unended(tx, compute.Subject(id))
		return err
	})
	return out
}

func (w *world) read(id string) *compute.Server {
	w.t.Helper()
	s := must.Get(w.store.Servers().Get(w.ctx, nil, id))(w.t)
	return s
}

// act does something that must be allowed.
func (w *world) act(id string, a compute.Act, who compute.Who) *compute.Server {
	w.t.Helper()
	s := must.Get(w.Actions.Act(w.ctx, id, a, who))(w.t)
	return s
}

// rescueImage adds one that boots a file.
func (w *world) rescueImage(location string, change ...func(*rescue.Image)) *rescue.Image {
	w.t.Helper()
	img := &rescue.Image{Source: rescue.Source{Location: location}}
	for _, f := range change {
		f(img)
	}
	w.no(w.RescueImages.Create(w.ctx, img, admin.Asker))
	return img
}
