// Package outage runs simulated hosts under the real binary. In many rounds it lets them die, freeze, report false states and come back.
// Each host has the real agent, a BMC, a network cable and a disk store that it shares with others. A journal of every disk shows whether
// two copies of a server ever wrote to it.
package outage

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"salvor/client"
	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
	"salvor/test/program"
)

const (
	patience    = 90 * time.Second
	bmcUser     = "admin"
	bmcPassword = "a-secret-of-bmcs"
	// hostRAM in MiB is what a box has.
	hostRAM = 16 * serverRAM
	// serverRAM in MiB is what a server takes of it.
	serverRAM  = 256
	imageBytes = 64 << 10
	// beat is how often guests write.
	beat = 10 * time.Millisecond
)

type object map[string]any

// site is a control plane and the machines around it.
type site struct {
	ctx    context.Context
	tb     testing.TB
	plane  *program.Server
	api    *client.Client
	door   string
	dir    string
	shared string // the disk store that all share
	image  string
	flavor string

	journal journal
	mu      sync.Mutex
	boxes   []*box
	ends    sync.WaitGroup
	tokens  map[string]secret.Value
}

// newSite starts a control plane; more is added to its configuration.
func newSite(tb testing.TB, more string) *site {
	tb.Helper()
	ctx, end := context.WithCancel(context.Background())
	s := &site{ctx: ctx, tb: tb, door: program.FreeAddress(tb), dir: tb.TempDir(), tokens: map[string]secret.Value{}}
	s.shared = filepath.Join(s.dir, "shared")
	for _, dir := range []string{s.shared, filepath.Join(s.dir, "ramdisk")} {
		must.OK(tb, os.MkdirAll(dir, 0o755))
	}
	for _, name := range []string{"kernel", "initramfs"} {
		must.OK(tb, os.WriteFile(filepath.Join(s.dir, "ramdisk", name), []byte("no machine boots this "+name), 0o600))
	}
	s.plane = program.Serve(tb, fmt.Sprintf(`[DEFAULT]
enabled_hardware_types = redfish
[conductor]
rescue_kernel = %[1]s/ramdisk/kernel
rescue_ramdisk = %[1]s/ramdisk/initramfs
[hosts]
listen = %[2]s
[compute]
shutdown_timeout = 1
%[3]s`, s.dir, s.door, more))
	tb.Cleanup(func() {
		if tb.Failed() {
			log := s.plane.Log()
			tb.Logf("the control plane's log:\n%s", log[max(0, len(log)-30_000):])
		}
	})
	var err error
	if s.api, err = client.New(client.Config{Endpoint: s.plane.URL}); err != nil {
		tb.Fatal(err)
	}
	var turns sync.WaitGroup
	turns.Go(func() { s.turn(ctx) })
	tb.Cleanup(func() { s.ends.Wait(); end(); turns.Wait() })
	s.furnish()
	return s
}

// turn is the time of the machines: they follow their BMCs, and their guests write.
func (s *site) turn(ctx context.Context) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		boxes := slices.Clone(s.boxes)
		s.mu.Unlock()
		for _, b := range boxes {
			b.write()
			b.starts.Go(b.follow)
		}
	}
}

func (s *site) add(b *box) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boxes = append(s.boxes, b)
}

// furnish makes the flavor and the image of all servers.
func (s *site) furnish() {
	s.tb.Helper()
	var flavor struct{ Flavor struct{ ID string } }
	s.must(client.Compute, http.MethodPost, "/flavors", object{"flavor": object{"name": "small", "ram": serverRAM, "disk": 1, "vcpus": 1}}, &flavor)
	s.flavor = flavor.Flavor.ID
	var image struct{ ID string }
	s.must(client.Image, http.MethodPost, "/images", object{"name": "debian", "disk_format": "raw", "container_format": "bare"}, &image)
	s.image = image.ID
	file := must.Get(os.Open(os.Args[0]))(s.tb)
	defer file.Close()
	must.OK(s.tb, s.api.Upload(s.ctx, client.Image, "/images/"+image.ID+"/file", io.LimitReader(file, imageBytes), imageBytes))
}

// token lets a box in the first time.
func (s *site) token(b *box) secret.Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.tokens[b.name]; there {
		return secret.New("a host that has joined needs none")
	}
	var made struct{ Token string }
	if err := s.ask(client.Native, http.MethodPost, "/join-tokens", object{"note": b.name}, &made); err != nil {
		s.tb.Errorf("join token: %v", err)
	}
	s.tokens[b.name] = secret.New(made.Token)
	return s.tokens[b.name]
}

// ask sends a request; a control plane that is just being started again is asked again. What it was asked before it died may have been
// done by then: a Conflict of the second time says that.
func (s *site) ask(f client.API, method, path string, body, out any) error {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	at, err := url.Parse(path)
	if err != nil {
		return err
	}
	for again := false; ; again = true {
		err := s.api.Ask(ctx, f, method, at.Path, at.Query(), body, out)
		switch {
		case again && out == nil && problem.Is(err, problem.Conflict):
			return nil
		case !problem.Is(err, problem.Unavailable) || ctx.Err() != nil:
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// killPlane has the control plane die and start again, now and then, until ctx ends.
func (s *site) killPlane(ctx context.Context, chance *rand.Rand) (kills int) {
	for {
		select {
		case <-ctx.Done():
			return kills
		case <-time.After(8*time.Second + time.Duration(chance.Int64N(int64(25*time.Second)))):
		}
		s.plane.Kill()
		kills++
		if err := s.plane.Relaunch(); err != nil {
			s.tb.Errorf("start the control plane again: %v", err)
			return kills
		}
	}
}

// must sends a request that succeeds.
func (s *site) must(f client.API, method, path string, body, out any) {
	s.tb.Helper()
	must.OK(s.tb, s.ask(f, method, path, body, out))
}

// until looks ten times a second whether a condition holds.
func until(ctx context.Context, what string, bound time.Duration, holds func() error) error {
	limit := time.Now().Add(bound)
	for {
		err := holds()
		if err == nil {
			return nil
		}
		if time.Now().After(limit) || ctx.Err() != nil {
			return fmt.Errorf("%s: not within %s: %w", what, bound, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// journal is what was written to each disk: the runs of guests in the order of their writes.
type journal struct {
	mu    sync.Mutex
	disks map[string][]span
}

// span is so many writes of one run without another's between them.
type span struct {
	run   string
	count int
	from  time.Time
}

func (j *journal) write(disk, run string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.disks == nil {
		j.disks = map[string][]span{}
	}
	spans := j.disks[disk]
	if n := len(spans); n > 0 && spans[n-1].run == run {
		spans[n-1].count++
		return
	}
	j.disks[disk] = append(spans, span{run, 1, time.Now()})
}

// interleaved tells of disks on which a run wrote after another had begun: then two copies were alive.
func (j *journal) interleaved() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []string
	for _, disk := range slices.Sorted(maps.Keys(j.disks)) {
		ended := map[string]bool{}
		for i, s := range j.disks[disk] {
			if ended[s.run] {
				out = append(out, fmt.Sprintf("%s: %q wrote again after %q", filepath.Base(disk), s.run, j.disks[disk][i-1].run))
			}
			ended[s.run] = true
		}
	}
	return out
}
