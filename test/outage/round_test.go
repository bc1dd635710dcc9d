package outage

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/client"
	"salvor/driver/drivertest"
	"salvor/problem"
	"salvor/wire/ironic"
)

var rounds = flag.Int("rounds", 0, "how many rounds; 0: one of each kind, or 1000 with SALVOR_SOAK")

// round is a few boxes in a zone of their own, two servers on the first of them, and what happens to it.
type round struct {
	*site
	n       int
	zone    string
	chance  *rand.Rand
	source  *box
	others  []*box
	servers []string
	story   outage
}

// outage is one way in which a host is lost.
type outage struct {
	name string
	// group is the host group of the boxes; empty: the default.
	group object
	// strike does it, before anybody fences.
	strike func(*round)
	// blocked: what has to be said of the fence, which must not succeed.
	blocked string
	// amid happens while the servers are moved.
	amid func(*round)
	// mend undoes the strike, before the host is restored.
	mend func(*round)
}

func (r *round) pause(atMost time.Duration) {
	time.Sleep(time.Duration(r.chance.Int64N(int64(atMost))))
}

var outages = []outage{
	{
		name: "cable cut", strike: func(r *round) { r.source.cable.cut(true) },
		mend: func(r *round) { r.source.cable.cut(false) },
	},
	{
		name: "frozen, and thawed after the move", strike: func(r *round) { r.source.freeze(true) },
		mend: func(r *round) { r.source.freeze(false) },
	},
	{
		name: "power lost", strike: func(r *round) { r.source.bmc.SetOn(false) },
	},
	{
		name: "BMC dead with the host", blocked: "power", strike: func(r *round) { r.source.bmc.Break(drivertest.HangsUp); r.source.cable.cut(true) },
		mend: func(r *round) { r.source.bmc.Break(0); r.source.cable.cut(false) },
	},
	{
		name: "BMC takes the order and does nothing", blocked: "power", strike: func(r *round) { r.source.bmc.Break(drivertest.Liar); r.source.cable.cut(true) },
		mend: func(r *round) { r.source.bmc.Break(0); r.source.cable.cut(false) },
	},
	{
		name: "BMC of another machine", blocked: "renew", strike: func(r *round) { r.source.disobey(); r.source.bmc.SetOn(false) },
	},
	{
		name: "power comes back in mid-move", strike: func(r *round) { r.source.cable.cut(true) },
		amid: func(r *round) { r.pause(time.Second); r.source.cable.cut(false); r.source.bmc.SetOn(true) },
	},
	{
		name: "destination killed in mid-move", strike: func(r *round) { r.source.cable.cut(true) },
		amid: func(r *round) {
			r.pause(time.Second)
			b := r.others[r.chance.IntN(len(r.others))]
			b.bmc.SetOn(false)
			r.pause(5 * time.Second)
			b.bmc.SetOn(true)
		},
		mend: func(r *round) { r.source.cable.cut(false) },
	},
	{
		name: "destination frozen in mid-move", strike: func(r *round) { r.source.bmc.SetOn(false) },
		amid: func(r *round) {
			r.pause(time.Second)
			b := r.others[r.chance.IntN(len(r.others))]
			b.freeze(true)
			r.pause(5 * time.Second)
			b.freeze(false)
		},
	},
	{
		name: "lying BMC, self-fence", group: object{"self_fence": true, "require": []string{"self-fence"}},
		strike: func(r *round) { r.source.disobey(); r.source.cable.cut(true) },
		mend:   func(r *round) { r.source.cable.cut(false); r.source.obey() },
	},
	{
		name: "frozen, self-fence by the watchdog", group: object{"self_fence": true, "require": []string{"self-fence"}},
		strike: func(r *round) { r.source.freeze(true) },
		mend:   func(r *round) { r.source.freeze(false) },
	},
}

// obey puts the machine under its BMC again.
func (b *box) obey() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ignores = false
}

// disobey parts the machine from its BMC.
func (b *box) disobey() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ignores = true
}

// TestRounds lets hosts be lost in every way at times that chance gives: no disk is ever written by two copies of a server, and
// every round ends in recovery or is blocked by name. SALVOR_SEED reproduces one.
func TestRounds(t *testing.T) {
	count := *rounds
	if count == 0 {
		count = len(outages)
		if os.Getenv("SALVOR_SOAK") != "" {
			count = 1000
		}
	}
	seed := seedOf(t)
	s := newSite(t, "")
	slots := make(chan struct{}, len(outages))
	ctx, calm := context.WithCancel(s.ctx)
	var all, storm sync.WaitGroup
	storm.Go(func() {
		kills := s.killPlane(ctx, rand.New(rand.NewPCG(seed, uint64(count))))
		t.Logf("the control plane was killed %d times", kills)
	})
	for n := range count {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			chance := rand.New(rand.NewPCG(seed, uint64(n)))
			story := outages[n%len(outages)]
			r := &round{site: s, n: n, zone: fmt.Sprint("zone-", n), chance: chance, story: story}
			began := time.Now()
			if err := r.play(t); err != nil {
				t.Errorf("round %d, %s (SALVOR_SEED=%d): %v", n, story.name, seed, err)
				return
			}
			t.Logf("round %d, %s: %.1f s", n, story.name, time.Since(began).Seconds())
		})
	}
	all.Wait()
	calm()
	storm.Wait()
	for _, text := range s.journal.interleaved() {
		t.Errorf("two copies of a server: %s", text)
	}
}

// seedOf is what SALVOR_SEED says, or another seed each time.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SALVOR_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SALVOR_SEED: %v", err)
		}
		seed = n
	}
	t.Logf("SALVOR_SEED=%d", seed)
	return seed
}

func (r *round) play(t *testing.T) error {
	if err := r.prepare(t); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	r.pause(500 * time.Millisecond)
	r.story.strike(r)
	fenced := r.fence(object{})
	for again := 0; fenced != nil && r.story.blocked == "" && again < 4; again++ {
		fenced = r.fence(object{}) // who is killed while it listens has to listen anew
	}
	if r.story.blocked != "" {
		if fenced == nil || !strings.Contains(fenced.Error(), r.story.blocked) {
			return fmt.Errorf("the fence was not blocked by %q: %w", r.story.blocked, fenced)
		}
		return r.blocked()
	}
	if fenced != nil {
		return fmt.Errorf("fence: %w", fenced)
	}
	if err := r.evacuate(); err != nil {
		return fmt.Errorf("evacuate: %w", err)
	}
	return r.comesBack()
}

// prepare makes the boxes, their nodes and the servers on the first of them.
func (r *round) prepare(t *testing.T) error {
	group := ""
	if r.story.group != nil {
		group = fmt.Sprint("group-", r.n)
		wish := object{"name": group}
		for k, v := range r.story.group {
			wish[k] = v
		}
		if err := r.ask(client.Native, http.MethodPost, "/host-groups", wish, nil); err != nil {
			return err
		}
	}
	for i := range 3 {
		b := r.newBox(t, fmt.Sprintf("r%d-%c", r.n, 'a'+i), r.zone, hostRAM)
		if err := b.enroll(group); err != nil {
			return err
		}
		if i == 0 {
			r.source = b
		} else {
			r.others = append(r.others, b)
		}
	}
	for i := range 2 {
		var made struct{ Server struct{ ID string } }
		if err := r.ask(client.Compute, http.MethodPost, "/servers", object{"server": object{
			"name": fmt.Sprintf("s%d-%d", r.n, i), "flavorRef": r.flavor, "imageRef": r.image, "networks": "none", "availability_zone": r.zone + ":" + r.source.name,
		}}, &made); err != nil {
			return err
		}
		r.servers = append(r.servers, made.Server.ID)
	}
	for _, id := range r.servers {
		if err := r.reach(id, func(s server) error { return s.is("ACTIVE", r.source) }); err != nil {
			return err
		}
	}
	if group == "" {
		return nil
	}
	return until(r.ctx, "watchdog of "+r.source.name, patience, func() error {
		h, err := r.host(r.source)
		if err == nil && h.Watchdog == "" {
			err = errors.New("it is not armed")
		}
		return err
	})
}

// enroll makes the box a node of the inventory, and a host of a group in its zone.
func (b *box) enroll(group string) error {
	ctx, cancel := context.WithTimeout(b.site.ctx, patience)
	defer cancel()
	n, err := b.site.api.Create(ctx, client.Nodes, client.Record{
		"driver": "redfish", "name": b.name,
		"driver_info": object{"redfish_address": b.bmcURL, "redfish_username": bmcUser, "redfish_password": bmcPassword},
	})
	if err != nil {
		return err
	}
	b.node, _ = n["uuid"].(string)
	if err := b.site.api.Provision(ctx, b.node, ironic.ProvisionRequest{Target: "manage"}); err != nil {
		return err
	}
	if err := until(ctx, "node of "+b.name, patience, func() error {
		n, err := b.site.api.Node(ctx, b.node)
		if err == nil && n.ProvisionState != "manageable" {
			err = fmt.Errorf("it is %s: %s", n.ProvisionState, n.LastError)
		}
		return err
	}); err != nil {
		return err
	}
	return b.site.ask(client.Native, http.MethodPatch, "/hosts/"+b.id, object{"zone": b.zone, "node": b.node, "group": group}, nil)
}

// server is what the Compute API tells of one.
type server struct {
	Status string
	Host   string  `json:"OS-EXT-SRV-ATTR:host"`
	Task   *string `json:"OS-EXT-STS:task_state"`
	Fault  any
}

func (s server) is(status string, on ...*box) error {
	for _, b := range on {
		if s.Status == status && s.Host == b.name && s.Task == nil {
			return nil
		}
	}
	task := ""
	if s.Task != nil {
		task = *s.Task
	}
	return fmt.Errorf("it is %s on %s, task %q, fault %v", s.Status, s.Host, task, s.Fault)
}

func (r *round) reach(id string, is func(server) error) error {
	return until(r.ctx, "server "+id, patience, func() error {
		var s struct{ Server server }
		if err := r.ask(client.Compute, http.MethodGet, "/servers/"+id, nil, &s); err != nil {
			return err
		}
		return is(s.Server)
	})
}

// hostView is what the native API tells of a host.
type hostView struct {
	State    string
	Watchdog string
	Fenced   any
}

func (r *round) host(b *box) (h hostView, err error) {
	return h, r.ask(client.Native, http.MethodGet, "/hosts/"+b.id, nil, &h)
}

// goesOn is how a host says that it is being fenced already.
var goesOn = regexp.MustCompile(`a host fence is going on \(job ([0-9a-f-]{36})\)`)

// contradictions are the codes of live evidence that an attestation is refused by.
var contradictions = regexp.MustCompile(`neighbours-reach-it|joined-again|bmc-reads-on`)

// attest fences the source by a person's word. Its simulated neighbours always reach its address, and its BMC may lie: the person knows
// better. Evidence comes and goes with a control plane that is killed, so the person asks anew with what the refusal lists.
func (r *round) attest(words string) error {
	var disputes []string
	return until(r.ctx, r.source.name+" is fenced by a person's word", patience, func() error {
		err := r.fence(object{"attest": words, "disputes": disputes})
		disputes = codesIn(err)
		return err
	})
}

// codesIn are the codes of evidence that a refusal lists.
func codesIn(err error) []string {
	if err == nil || strings.Contains(err.Error(), "ask without disputes") {
		return nil
	}
	codes := contradictions.FindAllString(err.Error(), -1)
	slices.Sort(codes)
	return slices.Compact(codes)
}

// fence asks for the proof that the source is off, and waits for it, or for why there is none.
func (r *round) fence(wish object) error {
	var begun struct{ Job string }
	err := r.ask(client.Native, http.MethodPost, "/hosts/"+r.source.id+"/fence", wish, &begun)
	// The control plane may have died between the job and its answer; asked again it names the job.
	if named := goesOn.FindStringSubmatch(fmt.Sprint(err)); problem.Is(err, problem.Conflict) && named != nil {
		begun.Job, err = named[1], nil
	}
	if err != nil {
		return err
	}
	var j struct{ State, Problem string }
	if err := until(r.ctx, "fence of "+r.source.name, patience, func() error {
		if err := r.ask(client.Native, http.MethodGet, "/jobs/"+begun.Job, nil, &j); err != nil {
			return err
		}
		if j.State != "ended" {
			return errors.New("it goes on")
		}
		return nil
	}); err != nil {
		return err
	}
	if j.Problem != "" {
		return errors.New(j.Problem)
	}
	return r.source.obeyed(r.ctx)
}

// evacuate runs a plan to its end; what came between is tried again.
func (r *round) evacuate() error {
	var plan struct{ ID, State string }
	if err := r.ask(client.Native, http.MethodPost, "/plans", object{"host": r.source.id}, &plan); err != nil {
		return err
	}
	if err := r.ask(client.Native, http.MethodPost, "/plans/"+plan.ID+"/run", object{}, nil); err != nil {
		return err
	}
	if r.story.amid != nil {
		r.story.amid(r)
	}
	for _, id := range r.servers {
		if err := r.reach(id, func(s server) error { return s.is("ACTIVE", r.others...) }); err != nil {
			return r.withPlan(plan.ID, err)
		}
	}
	return r.withPlan(plan.ID, until(r.ctx, "the plan's end", patience, func() error {
		var p struct{ State string }
		if err := r.ask(client.Native, http.MethodGet, "/plans/"+plan.ID, nil, &p); err != nil {
			return err
		}
		if p.State == "running" {
			return errors.New("it runs")
		}
		return nil
	}))
}

// withPlan adds the plan to an error.
func (r *round) withPlan(plan string, err error) error {
	if err == nil {
		return nil
	}
	var text json.RawMessage
	_ = r.ask(client.Native, http.MethodGet, "/plans/"+plan, nil, &text)
	return fmt.Errorf("%w; plan %s", err, text)
}

// blocked proves that nothing may be moved, and that a person's word is enough once the host is off.
func (r *round) blocked() error {
	err := r.ask(client.Compute, http.MethodPost, "/servers/"+r.servers[0]+"/action", object{"evacuate": object{}}, nil)
	if err == nil {
		return errors.New("a server was evacuated without a receipt")
	}
	r.source.disobey()
	r.source.switchOff()
	if err := until(r.ctx, r.source.name+" is down", patience, func() error {
		h, err := r.host(r.source)
		if err == nil && h.State != "down" {
			err = errors.New("it is up")
		}
		return err
	}); err != nil {
		return err
	}
	if err := r.attest("its cable was pulled"); err != nil {
		return fmt.Errorf("attest: %w", err)
	}
	if err := r.evacuate(); err != nil {
		return fmt.Errorf("evacuate: %w", err)
	}
	r.source.obey()
	return r.comesBack()
}

// comesBack lets the source live again: it shows nothing of what moved, and takes servers.
func (r *round) comesBack() error {
	if r.story.mend != nil {
		r.story.mend(r)
	}
	if err := r.ask(client.Native, http.MethodPost, "/hosts/"+r.source.id+"/restore", object{}, nil); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return until(r.ctx, "host "+r.source.name+" is back", patience, func() error {
		h, err := r.host(r.source)
		if err != nil {
			return err
		}
		guests, err := r.source.machine.Guests(r.ctx)
		if err != nil {
			return err
		}
		if len(guests) > 0 || h.Fenced != nil || h.State != "up" {
			return fmt.Errorf("%d guests, host %+v", len(guests), h)
		}
		return nil
	})
}
