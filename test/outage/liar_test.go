package outage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/client"
	"salvor/compute"
	"salvor/host"
	"salvor/hypervisor"
	"salvor/lab/sim"
	"salvor/problem"
	"salvor/secret"
)

// lies are the ways in which an operator, or a false report to an operator, says that a host is off while it is alive. The control
// plane may be deceived; then the owner leases of the disks keep a second guest from writing.
var lies = []outage{
	{name: "a false attestation", strike: func(r *round) { r.source.cable.cut(true) },
		mend: func(r *round) { r.source.cable.cut(false) }},
	{name: "a false power reading", strike: func(r *round) { r.source.disobey(); r.source.cable.cut(true) },
		mend: func(r *round) { r.source.cable.cut(false) }},
	{name: "a rejoined identity", strike: func(*round) {}},
	{name: "a removed host that returns", strike: func(r *round) { r.source.bmc.SetOn(false) }},
}

// TestLies: two hosts that live see one disk store, and the control plane is told that one of them is off. No disk is ever written by two
// copies of a server. SALVOR_SEED reproduces the rounds.
func TestLies(t *testing.T) {
	count := len(lies)
	if os.Getenv("SALVOR_SOAK") != "" {
		count = 50
	}
	seed := seedOf(t)
	s := newSite(t, "")
	slots := make(chan struct{}, 10)
	var all sync.WaitGroup
	for n := range count {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			lie := lies[n%len(lies)]
			r := &round{site: s, n: n, zone: fmt.Sprint("zone-", n), chance: rand.New(rand.NewPCG(seed, uint64(n))), story: lie}
			began := time.Now()
			if err := r.believed(t); err != nil {
				t.Errorf("round %d, %s (SALVOR_SEED=%d): %v", n, lie.name, seed, err)
				return
			}
			t.Logf("round %d, %s: %.1f s", n, lie.name, time.Since(began).Seconds())
		})
	}
	all.Wait()
	for _, text := range s.journal.interleaved() {
		t.Errorf("two copies of a server: %s", text)
	}
}

// believed plays a round to the end at which each server runs once.
func (r *round) believed(t *testing.T) error {
	if err := r.prepare(t); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if r.story.name == "a false attestation" || r.story.name == "a rejoined identity" { // nothing but the word of a person is there
		if err := r.ask(client.Native, http.MethodPatch, "/hosts/"+r.source.id, object{"node": ""}, nil); err != nil {
			return err
		}
	}
	r.pause(500 * time.Millisecond)
	r.story.strike(r)
	switch r.story.name {
	case "a rejoined identity":
		return r.rejoins()
	case "a removed host that returns":
		return r.returns()
	}
	if err := r.falseReceipt(); err != nil {
		return err
	}
	if err := r.isRefused(r.source.id); err != nil {
		return err
	}
	r.story.mend(r)
	for _, id := range r.servers { // the host speaks: its false receipt is void, or it has ended its guests and is taken back
		if err := r.runsAt(id, r.source); err != nil {
			return err
		}
	}
	return nil
}

// falseReceipt has the source fenced though it lives.
func (r *round) falseReceipt() error {
	if r.story.name == "a false attestation" {
		return r.attest("I saw that it is off")
	}
	return r.fence(object{})
}

// isRefused evacuates a host whose guests write on: each move ends, and nothing runs elsewhere.
func (r *round) isRefused(hostID string) error {
	state, err := r.plan(hostID)
	if err != nil {
		return err
	}
	for _, b := range r.others {
		guests, err := b.machine.Guests(r.ctx)
		if err != nil {
			return err
		}
		for _, g := range guests {
			if g.Power == compute.PowerOn {
				return fmt.Errorf("guest %s runs on %s as well; the plan is %s", g.ID, b.name, state)
			}
		}
	}
	return nil
}

// plan evacuates a host, waits for the end of the plan, and gives its state.
func (r *round) plan(hostID string) (state string, err error) {
	var p struct{ ID, State string }
	if err := r.ask(client.Native, http.MethodPost, "/plans", object{"host": hostID}, &p); err != nil {
		return "", err
	}
	if err := r.ask(client.Native, http.MethodPost, "/plans/"+p.ID+"/run", object{}, nil); err != nil {
		return "", err
	}
	return p.State, until(r.ctx, "the plan's end", patience, func() error {
		err := r.ask(client.Native, http.MethodGet, "/plans/"+p.ID, nil, &p)
		if err == nil && p.State == "running" {
			err = errors.New("it runs")
		}
		return err
	})
}

// movesAtLast evacuates a host again and again, until each server runs elsewhere.
func (r *round) movesAtLast(hostID string) error {
	return until(r.ctx, "the servers run elsewhere", 2*patience, func() error {
		_, planned := r.plan(hostID)
		for _, id := range r.servers {
			var s struct{ Server server }
			if err := r.ask(client.Compute, http.MethodGet, "/servers/"+id, nil, &s); err != nil {
				return err
			}
			if err := s.Server.is("ACTIVE", r.others...); err != nil {
				return fmt.Errorf("server %s: %w; plan: %v", id, err, planned)
			}
		}
		return nil
	})
}

// runsAt waits until a server runs on a box, and nowhere else.
func (r *round) runsAt(id string, at *box) error {
	return until(r.ctx, "server "+id+" runs on "+at.name, patience, func() error {
		for _, b := range append([]*box{r.source}, r.others...) {
			s, there := b.machine.State(id)
			if runs := there && s.Power == compute.PowerOn; runs != (b == at) {
				return fmt.Errorf("on %s it runs: %v", b.name, runs)
			}
		}
		h, err := r.host(at)
		if err == nil && (h.State != "up" || h.Fenced != nil) {
			err = fmt.Errorf("host %+v", h)
		}
		return err
	})
}

// rejoins has the agent of the source lose its state directory and join again, and sometimes fall silent at once. Its former row is
// attested to be dead.
func (r *round) rejoins() error {
	old := r.source.id
	if err := r.source.rejoin(r.ctx); err != nil {
		return err
	}
	cut := r.chance.IntN(2) == 0
	if r.pause(time.Second); cut {
		r.source.cable.cut(true)
	}
	if err := until(r.ctx, "the former row is down", patience, func() error {
		h, err := r.host(&box{id: old})
		if err == nil && h.State != "down" {
			err = errors.New("it is up")
		}
		return err
	}); err != nil {
		return err
	}
	former := *r
	former.source = &box{id: old, name: r.source.name}
	if err := former.attestOrHold("it was installed anew"); err != nil {
		return err
	}
	if err := r.isRefused(old); err != nil && !problem.Is(err, problem.Conflict) {
		return err
	}
	r.source.cable.cut(false)
	for _, id := range r.servers { // they are off at last: what was attested is true now
		if _, err := r.source.machine.SetPower(r.ctx, id, hypervisor.Power{State: compute.PowerOff}); err != nil && !problem.Is(err, problem.NotFound) {
			return err
		}
	}
	if err := former.attest("its guests are off"); err != nil {
		return err
	}
	return r.movesAtLast(old)
}

// attestOrHold attests as attest does, but a guest that is seen running may hold it.
func (r *round) attestOrHold(words string) error {
	var disputes []string
	return until(r.ctx, r.source.name+" is attested or held", patience, func() error {
		err := r.fence(object{"attest": words, "disputes": disputes})
		if err != nil && strings.Contains(err.Error(), "guest-seen-running") {
			return nil
		}
		disputes = codesIn(err)
		return err
	})
}

// rejoin starts the agent as one that knows nothing, beside the guests that run on.
func (b *box) rejoin(ctx context.Context) error {
	var made struct{ Token string }
	if err := b.site.ask(client.Native, http.MethodPost, "/join-tokens", object{"note": b.name + " again"}, &made); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.agent.Stop()
	b.state = filepath.Join(b.site.dir, b.name+"-again")
	if err := os.MkdirAll(b.state, 0o700); err != nil {
		return err
	}
	boot := b.boot
	agent, err := sim.StartHost(ctx, sim.Config{
		API: b.site.plane.URL, Controller: "https://" + b.cable.l.Addr().String(), StateDir: b.state, Name: b.name, Token: secret.New(made.Token),
		Stores: []host.Store{{Name: "shared", Dir: b.site.shared, Shared: true}}, BootID: func() (string, error) { return boot, nil },
		Log: slog.New(slog.NewTextHandler(&b.log, nil)),
	}, frozen{b.machine, b.thawed, b.ram})
	if err != nil {
		return err
	}
	b.agent, b.id = agent, agent.ID
	return nil
}

// returns has the source, which lost its power, evacuated and removed as lost. It comes back, and somebody starts its old guests by hand.
func (r *round) returns() error {
	if err := r.fence(object{}); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	if err := r.evacuate(); err != nil {
		return fmt.Errorf("evacuate: %w", err)
	}
	if err := r.ask(client.Native, http.MethodDelete, "/hosts/"+r.source.id+"?lost="+url.QueryEscape("burnt"), nil, nil); err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	r.source.disobey()
	if err := r.source.switchOn(r.ctx); err != nil {
		return err
	}
	for range 3 {
		r.pause(time.Second)
		for _, id := range r.servers {
			r.source.startByHand(r.ctx, id)
		}
		if err := until(r.ctx, "its old guests are off", patience, func() error {
			for _, id := range r.servers {
				if s, there := r.source.machine.State(id); there && s.Power == compute.PowerOn {
					return fmt.Errorf("guest %s runs", id)
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	for _, id := range r.servers {
		if err := r.reach(id, func(s server) error { return s.is("ACTIVE", r.others...) }); err != nil {
			return err
		}
	}
	return nil
}

// bootTime is how long a guest that somebody starts by hand takes before it writes: an agent ends one within a round of its leases.
const bootTime = 6 * time.Second

// startByHand starts a guest behind the agent's back.
func (b *box) startByHand(ctx context.Context, id string) {
	b.mu.Lock()
	if b.boots == nil {
		b.boots = map[string]time.Time{}
	}
	b.boots[id] = time.Now().Add(bootTime)
	b.mu.Unlock()
	_, _ = b.machine.SetPower(ctx, id, hypervisor.Power{State: compute.PowerOn})
}
