// Package fleet is a simulated fleet of bare metal to rehearse on: machines behind Redfish BMCs that listen, agents that look up and
// heartbeat, and faults. It speaks to a control plane as machines and an administrator do, and knows nothing of its internals. A seed
// decides the same things in every run.
package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"salvor/client"
	"salvor/problem"
)

// MaxNodes is how many machines have an address of their own on the loopback network.
const MaxNodes = 1 << 20

// Config of a fleet.
type Config struct {
	API   *client.Client
	Nodes int
	Seed  uint64
	// Host is the one address of all BMCs; empty: each has its own in 127.64.0.0/10, for a control plane on this machine.
	Host string
	Port int // of the BMCs; 0: a free one. Agents have a free one of their own.
	// BootInterface of the nodes.
	BootInterface string
	// BIOS: the firmware of the nodes boots by BIOS, whose boot loaders may be any files; else by UEFI.
	BIOS bool
	// Rescued is the share of nodes that are put into rescue, 0 to 1; their agents end with that, as real ones do. Held is the share
	// that is kept waiting in a rescue by maintenance: their agents heartbeat until their power is cut.
	Rescued, Held float64
	// HeartbeatInterval is the time between two heartbeats of an agent, Boot how long a machine takes from its power to its agent.
	HeartbeatInterval, Boot time.Duration
	Faults                  Rates
	// Workers is how many requests go to the control plane at once, of an administrator's and of agents'.
	Workers int
	// Commands answers in the place of agents that are asked for their commands, for tests of what a hostile agent can do; nil: the agents do.
	Commands http.HandlerFunc
	// Complain hears of what went wrong with one machine; may be nil. It may be called by several goroutines.
	Complain func(machine string, err error)
}

// Fleet is the machines. It is safe for use by several goroutines.
type Fleet struct {
	config    Config
	machines  []simulatedMachine
	port      int // of the BMCs
	agents    int // port of the agents
	authority *certificateAuthority
	ends      context.Context // of all machines
	faulty    atomic.Bool     // from the moment when all are enrolled
	slots     chan struct{}   // of agents' requests to the control plane
	asks      chan struct{}   // of an administrator's
	paces     map[string]*meanDuration
	counts    fleetCounters
	tokens    tokenIndex
	media     *http.Client
	wheel     []tickGroup
}

// New makes the machines, which are on and run systems of their own. They are there from Run on.
func New(c Config) (*Fleet, error) {
	switch {
	case c.Nodes < 1 || c.Nodes > MaxNodes:
		return nil, problem.Invalidf("a fleet of %d nodes: want 1 to %d", c.Nodes, MaxNodes)
	case !(c.Rescued >= 0 && c.Held >= 0 && c.Rescued+c.Held <= 1):
		return nil, problem.Invalidf("shares of %g and %g of the nodes in rescue: want 0 to 1 together", c.Rescued, c.Held)
	case c.HeartbeatInterval < time.Second:
		return nil, problem.Invalidf("a heartbeat every %s: want 1s or more", c.HeartbeatInterval)
	case c.Boot < 0 || c.Workers < 1:
		return nil, problem.Invalidf("want a boot time of 0 or more and 1 worker or more")
	}
	if err := c.Faults.check(); err != nil {
		return nil, err
	}
	f := &Fleet{config: c, machines: make([]simulatedMachine, c.Nodes), slots: make(chan struct{}, c.Workers), asks: make(chan struct{}, c.Workers), media: &http.Client{Timeout: mediaTimeout}}
	f.paces = map[string]*meanDuration{"manage": {}, "adopt": {}, "rescue": {}}
	var err error
	if f.authority, err = newAuthority(); err != nil {
		return nil, err
	}
	f.wheel = make([]tickGroup, max(1, int(c.HeartbeatInterval/tick)))
	for i := range f.machines {
		m, dice := &f.machines[i], f.random(i, "machine")
		at := dice.Float64()
		m.on, m.fault = true, c.Faults.pick(dice)
		m.rescued, m.held = at < c.Rescued, at >= c.Rescued && at < c.Rescued+c.Held
		s := &f.wheel[dice.IntN(len(f.wheel))]
		s.machines = append(s.machines, i)
	}
	return f, nil
}

// random are the same for the same seed, machine and purpose.
func (f *Fleet) random(i int, purpose string) *rand.Rand {
	d := f.digest(i, purpose)
	return rand.New(rand.NewPCG(binary.BigEndian.Uint64(d[:]), binary.BigEndian.Uint64(d[8:])))
}

func (f *Fleet) digest(i int, purpose string) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "salvor sim %d %d %s", f.config.Seed, i, purpose))
}

// Name of the node of a machine.
func (f *Fleet) Name(i int) string { return fmt.Sprintf("sim-%d-%06d", f.config.Seed, i) }

// UUID of the node of a machine.
func (f *Fleet) UUID(i int) string {
	b := f.digest(i, "uuid")
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80 // version 8: made by a rule of its own
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// MAC of a machine: locally administered.
func (f *Fleet) MAC(i int) string {
	b := f.digest(0, "mac")
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", b[0], b[1], i>>16&0xff, i>>8&0xff, i&0xff)
}

// host is the address of a machine's BMC.
func (f *Fleet) host(i int) string {
	if f.config.Host != "" {
		return f.config.Host
	}
	// Neither the first nor the last of a row of 256: some programs take those for networks.
	return fmt.Sprintf("127.%d.%d.%d", 64+i/(250*256), i/250%256, 1+i%250)
}

func (f *Fleet) complain(i int, err error) {
	f.counts.errors.Add(1)
	if f.config.Complain != nil {
		f.config.Complain(f.Name(i), err)
	}
}

// enter waits for one of the slots of requests.
func (f *Fleet) enter(ctx context.Context) (leave func(), err error) {
	select {
	case f.slots <- struct{}{}:
		return func() { <-f.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Run serves BMCs and agents until ctx ends. ready is called, in a goroutine of its own, once they listen.
func (f *Fleet) Run(ctx context.Context, ready func(context.Context)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.ends = ctx
	bmcs, err := f.listen(ctx, f.config.Port)
	if err != nil {
		return err
	}
	defer bmcs.Close()
	agents, err := f.guarded(ctx)
	if err != nil {
		return err
	}
	defer agents.Close()
	f.port, f.agents = portOf(bmcs), portOf(agents)
	server := f.server(ctx)
	failed := make(chan error, 2)
	go func() { failed <- server.Serve(bmcs) }()
	go func() { failed <- server.Serve(agents) }()
	turned, readied := make(chan struct{}), make(chan struct{})
	go func() { defer close(turned); f.turn(ctx) }()
	go func() { defer close(readied); ready(ctx) }()
	select {
	case <-ctx.Done():
	case err = <-failed:
		cancel()
	}
	_ = server.Close()
	<-turned
	<-readied
	return err
}
