package server

import (
	"context"
	"encoding/json"
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
	"salvor/hypervisor"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/store"
	"salvor/test/must"
)

// clusterWorld is a cluster in memory beside a real store and a conductor that watches it.
type clusterWorld struct {
	*testing.T
	mu       sync.Mutex
	hosts    []hypervisor.ClusterHost
	guests   []hypervisor.ClusterGuest
	jobs     []hypervisor.ClusterJob
	broken   error
	reading  func() // in the middle of a look
	store    *store.Store
	services *service.Services
	con      *Conductor
	row      *compute.Cluster
}

var operator = compute.Who{Admin: true}

func newCloud(t *testing.T) *clusterWorld {
	t.Helper()
	st, _ := conductortest.Store(t, allDefinitions())
	c := &clusterWorld{T: t, store: st, hosts: []hypervisor.ClusterHost{clusterHost("n1"), clusterHost("n2")}}
	c.services = service.New(st, st, service.Options{RescueImagePath: "/srv/rescue"}, time.Now)
	c.con = New(Config{Store: st, Compute: c.services, Log: slog.New(slog.DiscardHandler), Now: time.Now, Clusters: c})
	c.row = &compute.Cluster{Name: "prod", URL: "https://192.0.2.1", User: "salvor", Password: secret.New("canary")}
	must.OK(t, c.services.Clusters.Create(t.Context(), c.row, operator.Asker))
	return c
}

func clusterHost(name string) hypervisor.ClusterHost {
	return hypervisor.ClusterHost{Name: name, Inventory: compute.Inventory{HypervisorType: "ganeti", VCPUs: 8, RAM: 16384, Disk: 100}}
}

func (c *clusterWorld) Cluster(*compute.Cluster) (hypervisor.Cluster, error) { return c, nil }

func (c *clusterWorld) Hosts(context.Context) ([]hypervisor.ClusterHost, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.hosts), c.broken
}

func (c *clusterWorld) Guests(context.Context) ([]hypervisor.ClusterGuest, error) {
	c.mu.Lock()
	out := slices.Clone(c.guests)
	c.mu.Unlock()
	if c.reading != nil {
		c.reading()
	}
	return out, c.broken
}

func (c *clusterWorld) Jobs(_ context.Context, after int64, also []int64) (out []hypervisor.ClusterJob, more bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.jobs {
		if after >= 0 && j.ID > after || slices.Contains(also, j.ID) || after < 0 && j.ID == int64(len(c.jobs)) {
			out = append(out, j)
		}
	}
	return out, false, c.broken
}

func (c *clusterWorld) Adopt(_ context.Context, name, serverID string) (*hypervisor.ClusterGuest, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.guests {
		if g := &c.guests[i]; g.Name == name {
			if g.Ours && g.ID != serverID {
				return nil, problem.Conflictf("it is server %s already", g.ID)
			}
			g.ID, g.Ours, g.Epoch = serverID, true, 1
			out := *g
			return &out, c.broken
		}
	}
	return nil, problem.NotFoundf("no instance %s", name)
}

func (c *clusterWorld) Release(_ context.Context, name, serverID string) error {
	c.change(name, func(g *hypervisor.ClusterGuest) { g.ID, g.Ours = uuid.NewString(), false })
	return nil
}

// change is what somebody does to an instance beside us.
func (c *clusterWorld) change(name string, do func(*hypervisor.ClusterGuest)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.guests {
		if c.guests[i].Name == name {
			do(&c.guests[i])
		}
	}
}

func (c *clusterWorld) boots(name, cd string) {
	c.change(name, func(g *hypervisor.ClusterGuest) { g.Rescue = cd })
}

// turn is one look of the watch at the cluster.
func (c *clusterWorld) turn() {
	c.Helper()
	var watch job.Job
	err := c.store.Do(c.Context(), func(tx job.Tx) error {
		open, err := c.store.Unended(tx, compute.ClusterSubject(c.row.ID))
		for _, j := range open {
			if j.Kind == compute.JobWatch {
				watch = j
			}
		}
		return err
	})
	if err != nil || watch.ID == "" {
		c.Fatalf("the cluster is not watched: %v", err)
	}
	before := watch.Signals
	stop := c.conduct()
	defer stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		j := must.Get(c.store.Job(c.Context(), nil, watch.ID))(c)
		if j.State == job.Waiting && j.Fence > watch.Fence {
			return
		}
		if j.State == job.Ended {
			c.Fatalf("the watch has ended: %s", j.Problem)
		}
		if j.State == job.Waiting && j.Signals == before {
			c.wake()
		}
	}
	c.Fatal("the watch does not come to its end")
}

// wake ends the rest of the watch.
func (c *clusterWorld) wake() {
	c.Helper()
	must.OK(c, c.store.Do(c.Context(), func(tx job.Tx) error { return c.store.Signal(tx, compute.ClusterSubject(c.row.ID)) }))
}

func (c *clusterWorld) conduct() (stop func()) {
	c.Helper()
	r := must.Get(job.NewRunner(job.Config{
		Store: c.store, Definitions: c.con.Definitions(), Workers: 2, Log: slog.New(slog.DiscardHandler), Die: func(why string) { panic(why) },
		Conductor: job.Conductor{ID: "c", Incarnation: uuid.NewString(), Hostname: "c", Groups: []string{""}, Description: json.RawMessage(`{}`)},
	}))(c)
	must.OK(c, r.Join(context.Background()))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx, 0) }()
	return func() { cancel(); <-ended }
}

// adopted adds an instance that is off, and makes it a server.
func (c *clusterWorld) adopted(name string) string {
	c.Helper()
	c.mu.Lock()
	c.guests = append(c.guests, hypervisor.ClusterGuest{Host: "n1", System: "debian+default", Disks: []int{2048}, Guest: compute.Guest{
		ID: uuid.NewString(), Name: name, Power: compute.PowerOff, VCPUs: 1, RAM: 512, Settings: map[string]string{"boot_order": "network", "kernel_path": "default"}}})
	c.mu.Unlock()
	id := must.Get(c.adopt(name))(c)
	return id
}

func (c *clusterWorld) adopt(name string) (string, error) {
	question, err := c.services.Reconciler.AskAdoption(c.Context(), "prod", compute.ClusterAdoptArgs{Instance: name}, operator)
	if err != nil {
		return "", err
	}
	var a compute.Adopted
	raw, err := c.answered(question)
	if err == nil {
		err = json.Unmarshal(raw, &a)
	}
	return a.ServerID, err
}

// answered is the answer to a question that a conductor gives.
func (c *clusterWorld) answered(question string) (raw json.RawMessage, err error) {
	defer c.conduct()()
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	defer cancel()
	err = c.services.Reconciler.Answer(ctx, question, &raw)
	return raw, err
}

func (c *clusterWorld) server(id string) *compute.Server {
	c.Helper()
	s := must.Get(c.store.Servers().Get(c.Context(), nil, id))(c)
	return s
}

func (c *clusterWorld) image(location string) *rescue.Image {
	c.Helper()
	img := &rescue.Image{Name: location, Source: rescue.Source{Kind: rescue.ISO, LocationType: rescue.LocationFile, Location: location}}
	must.OK(c, c.services.RescueImages.Create(c.Context(), img, operator.Asker))
	return img
}

// is tells a server in a line, and the images that are in use.
func (c *clusterWorld) is(id string) string {
	c.Helper()
	s := c.server(id)
	use := must.Get(c.services.RescueImages.Use(c.Context()))(c)
	session := "no session"
	if s.Rescue != nil {
		session = fmt.Sprintf("%s with %s", s.Rescue.State, s.Rescue.Source.Location)
	}
	return fmt.Sprintf("%s %s, %s, %d in use", s.State, s.Power, session, len(use))
}

func (c *clusterWorld) want(id, picture string) {
	c.Helper()
	if got := c.is(id); got != picture {
		c.Errorf("it is %q, want %q", got, picture)
	}
}

const plainlyOff = "stopped off, no session, 0 in use"

// TestWatchBelievesTheCluster: our image first in boot order means in rescue, by whomever; otherwise not, and the image is released.
func TestWatchBelievesTheCluster(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := c.adopted("web")
	c.image("a.iso")
	c.image("sub/b.iso")
	for _, step := range []struct {
		cd    string
		power compute.Power
		want  string
	}{
		{"", compute.PowerOff, plainlyOff},
		{"/srv/rescue/a.iso", compute.PowerOff, "rescued off, prepared with a.iso, 1 in use"},
		{"/srv/rescue/sub/b.iso", compute.PowerOff, "rescued off, prepared with sub/b.iso, 1 in use"},
		{"/srv/rescue/sub/b.iso", compute.PowerOn, "rescued on, ready with sub/b.iso, 1 in use"},
		{"/srv/rescue/sub/b.iso", compute.PowerOff, "rescued off, prepared with sub/b.iso, 1 in use"},
		{"/srv/install.iso", compute.PowerOff, plainlyOff},
		{"", compute.PowerOn, "active on, no session, 0 in use"},
		{"", compute.PowerOff, plainlyOff},
	} {
		c.change("web", func(g *hypervisor.ClusterGuest) { g.Rescue, g.Power = step.cd, step.power })
		c.turn()
		c.turn() // its power is taken in first
		c.want(id, step.want)
	}
}

// TestDefect5NoImageIsHeldByWhatFailed: the reference takes the last action for use, so that a failed rescue holds its image for ever.
func TestDefect5NoImageIsHeldByWhatFailed(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := c.adopted("web")
	img := c.image("a.iso")
	must.OK(t, c.store.Do(t.Context(), func(tx job.Tx) error {
		return c.services.Servers.Edit(t.Context(), tx, id, func(s *compute.Server) {
			src := img.Source
			src.ImageID = img.Num
			s.State, s.Rescue = compute.Errored, &rescue.Session{State: rescue.Failed, Source: &src, SavedKnown: true}
		})
	}))
	c.want(id, "error off, failed with a.iso, 1 in use")
	c.turn()
	c.want(id, plainlyOff)
	if err := c.services.RescueImages.Remove(t.Context(), fmt.Sprint(img.Num), false, operator.Asker); err != nil {
		t.Error(err)
	}
	// A failed session whose guest is in that rescue is in it.
	c.image("b.iso")
	c.boots("web", "/srv/rescue/b.iso")
	c.turn()
	c.want(id, "rescued off, prepared with b.iso, 1 in use")
}

// TestDefect6LocationsAreComparedWhole: absolute with absolute, and a session's own image is itself though its row has moved on.
func TestDefect6LocationsAreComparedWhole(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := c.adopted("web")
	img := c.image("a.iso")
	for _, near := range []string{"/srv/rescue-a.iso", "/srv/rescuea.iso", "a.iso", "/a.iso", "/srv/rescue/a.iso/", "/srv/rescue/../rescue/a.iso", "/srv/rescue/A.iso"} {
		c.boots("web", near)
		c.turn()
		c.want(id, plainlyOff)
	}
	c.boots("web", "/srv/rescue/a.iso")
	c.turn()
	version := c.server(id).Version
	c.turn()
	if now := c.server(id).Version; now != version {
		t.Error("a look that sees what is known writes")
	}
	must.OK(t, c.services.RescueImages.Remove(t.Context(), fmt.Sprint(img.Num), true, operator.Asker))
	c.turn()
	c.want(id, "rescued off, prepared with a.iso, 1 in use")
}

// TestDefect10AnAdministratorsCDIsNoRescue, and a kernel's path in the rescue directory is none either.
func TestDefect10AnAdministratorsCDIsNoRescue(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := c.adopted("web")
	kernel := &rescue.Image{Name: "k", Source: rescue.Source{Kind: rescue.Kernel, LocationType: rescue.LocationFile, Location: "vmlinuz", Ramdisk: "initrd"}}
	must.OK(t, c.services.RescueImages.Create(t.Context(), kernel, operator.Asker))
	for _, cd := range []string{"/isos/debian.iso", "http://mirror.example.test/a.iso", "/srv/rescue/nobody-knows.iso", "/srv/rescue/vmlinuz"} {
		c.boots("web", cd)
		c.turn()
		c.want(id, plainlyOff)
	}
}

// TestForeignRescueEndsAsItBegan: what somebody else's rescue replaced is not known, so the cluster's defaults come back.
func TestForeignRescueEndsAsItBegan(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := c.adopted("web")
	c.image("a.iso")
	c.boots("web", "/srv/rescue/a.iso")
	c.change("web", func(g *hypervisor.ClusterGuest) { g.Settings["kernel_path"] = "/boot/mine" })
	c.turn()
	s := c.server(id).Rescue
	if !s.SavedKnown || s.Saved.Power != "off" || len(s.SavedSettings) != 1 || s.SavedSettings["kernel_path"] != "/boot/mine" {
		t.Errorf("saved: %+v", s)
	}
}

// TestStaleLooksChangeNothing: a server that was changed while the cluster was read is left for the next look.
func TestStaleLooksChangeNothing(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := c.adopted("web")
	c.turn()
	img := c.image("a.iso")
	c.reading = func() {
		c.reading = nil
		err := c.store.Do(t.Context(), func(tx job.Tx) error {
			return c.services.Servers.Edit(t.Context(), tx, id, func(s *compute.Server) {
				src := img.Source
				src.ImageID = img.Num
				s.State, s.Rescue = compute.Rescued, &rescue.Session{State: rescue.Prepared, Source: &src, SavedKnown: true, SavedSettings: map[string]string{"boot_order": "network"}}
			})
		})
		if err != nil {
			t.Error(err)
		}
		c.boots("web", "/srv/rescue/a.iso")
	}
	c.turn()
	c.turn()
	c.want(id, "rescued off, prepared with a.iso, 1 in use")
	if c.server(id).Rescue.SavedSettings["boot_order"] != "network" {
		t.Error("the session was replaced")
	}
}

// TestNodesAndGuestsAreFollowed: hosts come and go with nodes, servers move with their instances.
func TestNodesAndGuestsAreFollowed(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := c.adopted("web")
	c.turn()
	names := func() (out []string) {
		hosts := must.Get(c.store.Hosts().List(t.Context(), nil, compute.HostFilter{ClusterID: c.row.ID}, record.Page{}))(t)
		for _, h := range hosts {
			out = append(out, h.Name)
			if h.ID == c.server(id).HostID {
				out[len(out)-1] += "*"
			}
		}
		slices.Sort(out)
		return out
	}
	if got := names(); !slices.Equal(got, []string{"n1*", "n2"}) {
		t.Fatal(got)
	}
	c.change("web", func(g *hypervisor.ClusterGuest) { g.Host = "n2" })
	c.turn()
	if got := names(); !slices.Equal(got, []string{"n1", "n2*"}) {
		t.Fatal(got)
	}
	c.mu.Lock()
	c.hosts = []hypervisor.ClusterHost{clusterHost("n2"), clusterHost("n3")}
	c.mu.Unlock()
	c.turn()
	if got := names(); !slices.Equal(got, []string{"n2*", "n3"}) {
		t.Fatal(got)
	}
	c.mu.Lock()
	c.hosts = []hypervisor.ClusterHost{clusterHost("n3")}
	c.mu.Unlock()
	c.turn()
	if got := names(); !slices.Equal(got, []string{"n2*", "n3"}) {
		t.Errorf("a node with a server on it: %v", got)
	}
	if err := c.services.Clusters.Remove(t.Context(), "prod", operator.Asker); !problem.Is(err, problem.Conflict) {
		t.Errorf("a cluster with servers is removed: %v", err)
	}
}

// TestClusterThatDoesNotAnswer is named, changes nothing, and comes back.
func TestClusterThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := c.adopted("web")
	c.image("a.iso")
	c.turn()
	read := func() *compute.Cluster {
		row := must.Get(c.store.Clusters().Get(t.Context(), nil, c.row.ID))(t)
		return row
	}
	c.broken = problem.Unavailablef("RAPI of 192.0.2.1 does not answer")
	c.boots("web", "/srv/rescue/a.iso")
	c.turn()
	c.want(id, plainlyOff)
	if row := read(); row.Problem != "RAPI of 192.0.2.1 does not answer" {
		t.Errorf("problem %q", row.Problem)
	}
	if _, err := c.adopt("db"); err == nil {
		t.Error("adopted from a cluster that does not answer")
	}
	c.broken = nil
	c.turn()
	c.want(id, "rescued off, prepared with a.iso, 1 in use")
	row := read()
	if row.Problem != "" {
		t.Errorf("problem %q", row.Problem)
	}
	version := row.Version
	c.turn()
	if row := read(); row.Version != version {
		t.Error("a quiet turn writes the cluster's row")
	}
}

// TestJobsAreToldOnce: of our instances, ours or foreign, when they have ended.
func TestJobsAreToldOnce(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := c.adopted("web")
	jobs := func(all ...hypervisor.ClusterJob) { c.mu.Lock(); defer c.mu.Unlock(); c.jobs = all }
	j := func(id int64, summary string, ended bool, failure string) hypervisor.ClusterJob {
		return hypervisor.ClusterJob{ID: id, Summary: summary, Guests: []string{"web", "other"}, Ended: ended, Failure: failure}
	}
	jobs(j(1, "OLD", true, ""))
	c.turn()
	jobs(j(1, "OLD", true, ""), j(2, "SLOW", false, ""), j(3, "QUICK", true, ""), j(4, "BAD", true, "Ganeti's job 4 (BAD) failed: words"))
	c.turn()
	jobs(j(1, "OLD", true, ""), j(2, "SLOW", true, ""), j(3, "QUICK", true, ""))
	c.turn()
	c.turn()
	events := c.clusterEvents(id)
	want := []string{"info: Ganeti did QUICK", "error: Ganeti's job 4 (BAD) failed: words", "info: Ganeti did SLOW"}
	if !slices.Equal(events, want) {
		t.Errorf("told %q, want %q", events, want)
	}
}

// clusterEvents is what a server's timeline has of its cluster.
func (c *clusterWorld) clusterEvents(id string) (out []string) {
	c.Helper()
	events := must.Get(c.store.Events(c.Context(), compute.Subject(id), 0, 100))(c)
	for _, e := range events {
		if strings.Contains(e.Text, "Ganeti") {
			out = append(out, e.Severity+": "+e.Text)
		}
	}
	return out
}

// TestReconcileTellsAndMends in both directions, and without fix only tells.
func TestReconcileTellsAndMends(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := c.adopted("web")
	c.image("a.iso")
	c.turn()
	reconcile := func(fix bool) []compute.Unsynced {
		t.Helper()
		questions, err := c.services.Reconciler.AskReconcile(t.Context(), "", fix, operator)
		if err != nil || len(questions) != 1 {
			t.Fatal(questions, err)
		}
		var found []compute.Unsynced
		raw, err := c.answered(questions[0])
		if err == nil {
			err = json.Unmarshal(raw, &found)
		}
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	c.boots("web", "/srv/rescue/a.iso")
	if got := reconcile(false); len(got) != 1 || got[0].ServerID != id || got[0].Cluster != "/srv/rescue/a.iso" || got[0].Server != "" || got[0].Fixed {
		t.Errorf("%+v", got)
	}
	c.want(id, plainlyOff)
	if got := reconcile(true); len(got) != 1 || !got[0].Fixed {
		t.Errorf("%+v", got)
	}
	c.want(id, "rescued off, prepared with a.iso, 1 in use")
	c.boots("web", "")
	if got := reconcile(true); len(got) != 1 || !got[0].Fixed || got[0].Cluster != "" || got[0].Server != "/srv/rescue/a.iso" {
		t.Errorf("%+v", got)
	}
	c.want(id, plainlyOff)
	if got := reconcile(true); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestAdoption: what is there once, with its size, and what is not.
func TestAdoption(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := c.adopted("web.example.test")
	s := c.server(id)
	if !s.Foreign || s.Name != "web" || s.GuestName != "web.example.test" || s.OS != "debian" || s.OSFamily != "linux" || s.Flavor.Disk != 2 || s.Epoch != 1 {
		t.Errorf("%+v", s)
	}
	if _, err := c.adopt("web.example.test"); !problem.Is(err, problem.Conflict) {
		t.Errorf("twice: %v", err)
	}
	if _, err := c.adopt("nosuch"); !problem.Is(err, problem.NotFound) {
		t.Errorf("none: %v", err)
	}
	if _, err := c.services.Reconciler.AskAdoption(t.Context(), "prod", compute.ClusterAdoptArgs{Instance: "web"}, compute.Who{Project: "p"}); !problem.Is(err, problem.Forbidden) {
		t.Errorf("by a user: %v", err)
	}
	// No ISO, no rescue: the reason is told at the door.
	if _, err := c.services.Actions.Act(t.Context(), id, compute.Act{Action: compute.Rescue, MustBeOff: true}, operator); !problem.Is(err, problem.NotFound) || !strings.Contains(err.Error(), "ISO") {
		t.Errorf("%v", err)
	}
}
