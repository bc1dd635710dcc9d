package outage

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"salvor/client"
	"salvor/compute"
	"salvor/test/must"
)

// crowd is one host full of servers, and others that have just room for them.
type crowd struct {
	*round
	of map[string]string // names by server id
}

// gather makes the hosts and fills the first.
func (s *site) gather(t testing.TB, servers, hosts int) *crowd {
	t.Helper()
	r := &round{site: s, zone: "crowd"}
	group := object{"name": "crowd", "parallel": 64}
	s.must(client.Native, http.MethodPost, "/host-groups", group, nil)
	boxes := make([]*box, hosts+1)
	for i := range boxes {
		ram := hostRAM
		if i == 0 {
			ram = servers * serverRAM
		}
		boxes[i] = s.newBox(t, fmt.Sprint("crowd-", i), r.zone, ram)
	}
	r.source, r.others = boxes[0], boxes[1:]
	s.atOnce(t, len(boxes), func(i int) error { return boxes[i].enroll("crowd") })
	c := &crowd{round: r, of: map[string]string{}}
	var mu sync.Mutex
	s.atOnce(t, servers, func(i int) error {
		var made struct{ Server struct{ ID string } }
		name := fmt.Sprint("c", i)
		err := s.ask(client.Compute, http.MethodPost, "/servers", object{"server": object{
			"name": name, "flavorRef": s.flavor, "imageRef": s.image, "networks": "none", "availability_zone": r.zone + ":" + r.source.name,
		}}, &made)
		mu.Lock()
		defer mu.Unlock()
		c.of[made.Server.ID] = name
		return err
	})
	for id := range c.of {
		must.OK(t, r.reach(id, func(v server) error { return v.is("ACTIVE", r.source) }))
	}
	return c
}

// atOnce runs n calls, sixteen at a time.
func (s *site) atOnce(t testing.TB, n int, call func(i int) error) {
	t.Helper()
	slots := make(chan struct{}, 16)
	var all sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if err := call(i); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// empty loses the full host and moves what was on it; it returns how long the moving took, from the plan to the last server that runs.
func (c *crowd) empty(t testing.TB) time.Duration {
	t.Helper()
	c.source.bmc.SetOn(false)
	if err := c.fence(object{}); err != nil {
		t.Fatalf("fence: %v", err)
	}
	began := time.Now()
	var plan struct{ ID, State string }
	c.must(client.Native, http.MethodPost, "/plans", object{"host": c.source.id}, &plan)
	c.must(client.Native, http.MethodPost, "/plans/"+plan.ID+"/run", object{}, nil)
	must.OK(t, until(c.ctx, "the plan", 5*time.Minute, func() error {
		c.must(client.Native, http.MethodGet, "/plans/"+plan.ID, nil, &plan)
		if plan.State != "done" {
			return fmt.Errorf("it is %s", plan.State)
		}
		return nil
	}))
	return time.Since(began)
}

// count proves that each server runs once, and that no host was given more than it has.
func (c *crowd) count(t testing.TB) {
	t.Helper()
	on := map[string]string{}
	for _, b := range c.others {
		guests := must.Get(b.machine.Guests(context.Background()))(t)
		running := 0
		for _, g := range guests {
			if g.Power != compute.PowerOn {
				continue
			}
			running++
			if other, twice := on[g.ID]; twice {
				t.Errorf("%s runs on %s and on %s", c.of[g.ID], other, b.name)
			}
			on[g.ID] = b.name
		}
		if running*serverRAM > hostRAM {
			t.Errorf("%s runs %d servers of %d MiB", b.name, running, serverRAM)
		}
	}
	for id, name := range c.of {
		if on[id] == "" {
			t.Errorf("%s is lost", name)
		}
	}
	for _, text := range c.journal.interleaved() {
		t.Errorf("two copies of a server: %s", text)
	}
}

// TestCrowd empties a host onto others that have room for exactly so many.
func TestCrowd(t *testing.T) {
	c := newSite(t, "").gather(t, 48, 3)
	took := c.empty(t)
	c.count(t)
	t.Logf("48 servers onto 3 hosts: %.1f s", took.Seconds())
}

// BenchmarkEvacuate moves the 500 servers of one host onto 50. The goal is 60 s on 2 cores.
func BenchmarkEvacuate(b *testing.B) {
	for range b.N {
		s := newSite(b, "")
		// Disks are sparse, but counted as what they may become.
		if err := unix.Mount("tmpfs", s.shared, "tmpfs", 0, "size=1t"); err != nil {
			b.Fatalf("a large disk store: %v (root is needed)", err)
		}
		b.Cleanup(func() { _ = unix.Unmount(s.shared, unix.MNT_DETACH) })
		c := s.gather(b, 500, 50)
		took := c.empty(b)
		c.count(b)
		b.ReportMetric(took.Seconds(), "s/evacuation")
		b.ReportMetric(500/took.Seconds(), "servers/s")
	}
}
