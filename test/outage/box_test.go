package outage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/driver/drivertest"
	"salvor/host"
	"salvor/hypervisor"
	"salvor/lab/sim"
	"salvor/test/must"
	"salvor/test/program"
)

// gate is open, or shut: who comes to a shut one waits there.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while the gate is open
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		if !open {
			g.open = make(chan struct{})
		}
	default:
		if open {
			close(g.open)
		}
	}
}

// pass waits until the gate is open, or ctx ends.
func (g *gate) pass(ctx context.Context) error {
	for {
		g.mu.Lock()
		open := g.open
		g.mu.Unlock()
		select {
		case <-open:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *gate) isOpen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		return true
	default:
		return false
	}
}

// frozen is a machine whose every answer waits at a gate: what was asked before a freeze may happen after the thaw.
type frozen struct {
	*sim.Machine
	thawed *gate
	ram    int // MiB
}

func (f frozen) Inventory(ctx context.Context) (compute.Inventory, error) {
	if err := f.thawed.pass(ctx); err != nil {
		return compute.Inventory{}, err
	}
	inv, err := f.Machine.Inventory(ctx)
	inv.RAM = f.ram
	return inv, err
}

func (f frozen) Guests(ctx context.Context) ([]compute.Guest, error) {
	if err := f.thawed.pass(ctx); err != nil {
		return nil, err
	}
	return f.Machine.Guests(ctx)
}

func (f frozen) Define(ctx context.Context, d hypervisor.Domain) error {
	if err := f.thawed.pass(ctx); err != nil {
		return err
	}
	return f.Machine.Define(ctx, d)
}

func (f frozen) SetPower(ctx context.Context, id string, p hypervisor.Power) (bool, error) {
	if err := f.thawed.pass(ctx); err != nil {
		return false, err
	}
	return f.Machine.SetPower(ctx, id, p)
}

func (f frozen) Remove(ctx context.Context, id string) error {
	if err := f.thawed.pass(ctx); err != nil {
		return err
	}
	return f.Machine.Remove(ctx, id)
}

// cable is a network cable between a host and the control plane: it can be cut, when what is on its way waits, and unplugged at
// once, when connections break.
type cable struct {
	l      net.Listener
	to     string
	whole  *gate
	mu     sync.Mutex
	conns  map[net.Conn]bool
	dead   bool
	pumps  sync.WaitGroup
	closed context.Context
	end    context.CancelFunc
}

func newCable(t testing.TB, to string) *cable {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	c := &cable{l: l, to: to, whole: newGate(), conns: map[net.Conn]bool{}}
	c.closed, c.end = context.WithCancel(context.Background())
	c.pumps.Go(c.accept)
	t.Cleanup(func() {
		c.end()
		_ = l.Close()
		c.unplug(true)
		c.pumps.Wait()
	})
	return c
}

func (c *cable) accept() {
	for {
		in, err := c.l.Accept()
		if err != nil {
			return
		}
		c.pumps.Go(func() {
			defer in.Close()
			if c.whole.pass(c.closed) != nil || !c.addConn(in) {
				return
			}
			out, err := net.DialTimeout("tcp", c.to, 5*time.Second)
			if err != nil || !c.addConn(out) {
				c.drop(in)
				return
			}
			var both sync.WaitGroup
			both.Go(func() { c.pump(out, in) })
			both.Go(func() { c.pump(in, out) })
			both.Wait()
			c.drop(in)
			c.drop(out)
		})
	}
}

func (c *cable) addConn(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		_ = conn.Close()
		return false
	}
	c.conns[conn] = true
	return true
}

func (c *cable) drop(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, conn)
	_ = conn.Close()
}

func (c *cable) pump(to, from net.Conn) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if c.whole.pass(c.closed) != nil {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_ = to.(*net.TCPConn).CloseWrite()
	_ = from.(*net.TCPConn).CloseRead()
}

func (c *cable) cut(yes bool) { c.whole.set(!yes) }

// unplug breaks what is connected and refuses what comes, or ends that.
func (c *cable) unplug(yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = yes
	if yes {
		for conn := range c.conns {
			_ = conn.Close()
		}
	}
}

// box is a machine that runs servers: it has a BMC, a cable, a power button, and the real agent.
type box struct {
	site  *site
	name  string
	zone  string
	id    string // host
	node  string // of the inventory
	state string

	machine *sim.Machine
	thawed  *gate
	cable   *cable
	bmc     *drivertest.BMC
	bmcURL  string
	log     program.Buffer

	mu      sync.Mutex
	powered bool
	end     context.CancelFunc
	// ignores its BMC: that lies.
	ignores bool
	agent   *sim.Host
	boot    string
	ram     int // MiB
	dog     *dog
	// boots are the guests that somebody started by hand, and from when on they write.
	boots  map[string]time.Time
	starts sync.WaitGroup
}

// newBox makes a machine that is on, and waits until it has joined.
func (s *site) newBox(t testing.TB, name, zone string, ram int) *box {
	t.Helper()
	b := &box{
		site: s, name: name, zone: zone, state: filepath.Join(s.dir, name), ram: ram, machine: sim.NewMachine(), thawed: newGate(), cable: newCable(t, s.door),
		bmc: drivertest.NewBMC(bmcUser, bmcPassword),
	}
	must.OK(t, os.MkdirAll(b.state, 0o700))
	server := httptest.NewServer(b.bmc)
	b.bmcURL = server.URL
	t.Cleanup(func() { b.bmc.Release(); server.Close() })
	b.dog = &dog{box: b}
	b.bmc.SetOn(true)
	if err := b.switchOn(s.ctx); err != nil {
		t.Fatalf("box %s: %v", name, err)
	}
	b.id = b.agent.ID
	s.add(b)
	t.Cleanup(func() {
		b.cable.unplug(true)
		b.bmc.SetOn(false)     // else the next turn switches the machine on again, and its agent writes while the directory goes
		s.ends.Go(b.switchOff) // agents take their time to let go
		if t.Failed() && testing.Verbose() {
			t.Logf("the log of %s:\n%s", b.name, b.log.String())
		}
	})
	return b
}

// switchOn boots the machine: a new boot id, no guest runs, and the agent starts.
func (b *box) switchOn(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.powered {
		return nil
	}
	b.cable.unplug(false)
	b.thawed.set(true)
	b.boot = uuid.NewString()
	boot := b.boot
	alive, end := context.WithCancel(b.site.ctx)
	b.dog.boot(alive)
	agent, err := sim.StartHost(ctx, sim.Config{
		API: b.site.plane.URL, Controller: "https://" + b.cable.l.Addr().String(), StateDir: b.state, Name: b.name,
		Token: b.site.token(b), Stores: []host.Store{{Name: "shared", Dir: b.site.shared, Shared: true}},
		BootID: func() (string, error) { return boot, nil }, Watchdog: b.dog,
		Log: slog.New(slog.NewTextHandler(&b.log, nil)),
	}, frozen{b.machine, b.thawed, b.ram})
	if err != nil {
		end()
		return err
	}
	b.agent, b.powered, b.end = agent, true, end
	return nil
}

// switchOff is the end of all that ran: no agent has a last word, no guest another write.
func (b *box) switchOff() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.powered {
		return
	}
	b.powered = false
	b.cable.unplug(true)
	b.thawed.set(false)
	b.end()
	b.dog.stop()
	_ = b.agent.Stop()
	b.agent = nil
	guests, _ := b.machine.Guests(context.Background())
	for _, g := range guests {
		_, _ = b.machine.SetPower(context.Background(), g.ID, hypervisor.Power{State: compute.PowerOff})
	}
	b.thawed.set(true)
}

// crash is a reset by the machine itself: off, and on again.
func (b *box) crash() {
	b.starts.Go(func() {
		b.switchOff()
		if b.bmc.On() {
			_ = b.switchOn(b.site.ctx)
		}
	})
}

// follow brings the power to what the BMC says, unless the BMC has no hold of it.
func (b *box) follow() {
	b.mu.Lock()
	powered, ignores := b.powered, b.ignores
	b.mu.Unlock()
	switch on := b.bmc.On(); {
	case ignores || on == powered:
	case on:
		_ = b.switchOn(b.site.ctx)
	default:
		b.switchOff()
	}
}

// obeyed waits until the machine is off if its BMC says so and has a hold of it. Real machines are off when a BMC says off; this
// one follows at its next turn, and on a busy machine would renew its leases until then.
func (b *box) obeyed(ctx context.Context) error {
	return until(ctx, b.name+" follows its BMC", patience, func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.powered && !b.ignores && !b.bmc.On() {
			return errors.New("it is still on")
		}
		return nil
	})
}

func (b *box) freeze(yes bool) {
	b.thawed.set(!yes)
	b.cable.cut(yes)
}

// write lets every guest that runs write to its disks.
func (b *box) write() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.powered || !b.thawed.isOpen() {
		return
	}
	guests, _ := b.machine.Guests(context.Background())
	for _, g := range guests {
		s, ok := b.machine.State(g.ID)
		if !ok || s.Runs == nil || s.Power != compute.PowerOn || time.Now().Before(b.boots[g.ID]) {
			continue
		}
		run := fmt.Sprintf("%s on %s, boot %s, start %d", g.ID, b.name, b.boot[:8], s.Starts)
		for _, d := range s.Runs.Paths {
			b.site.journal.write(d.Path, run)
		}
	}
}

// dog is the machine's hardware watchdog: a timer that nothing of the machine can stop but who pets it.
type dog struct {
	box   *box
	mu    sync.Mutex
	alive context.Context
	timer *time.Timer
	limit time.Duration
}

// life ends with the machine's power: who is frozen then has no last deed.
func (d *dog) life() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.alive
}

// boot is a reset: whatever was armed is not any more.
func (d *dog) boot(alive context.Context) {
	d.stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.alive = alive
}

func (d *dog) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

func (d *dog) Arm(timeout time.Duration) (string, error) {
	if err := d.Disarm(); err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limit, d.timer = timeout, time.AfterFunc(timeout, d.box.crash)
	return "simulated hardware", nil
}

func (d *dog) Pet() error { return d.wait(d.limit) }

func (d *dog) Expire() error { return d.wait(0) }

// wait has it bite after so long. A machine that is frozen pets nothing.
func (d *dog) wait(limit time.Duration) error {
	if err := d.box.thawed.pass(d.life()); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer == nil {
		return errors.New("it is not armed")
	}
	d.timer.Reset(limit)
	return nil
}

func (d *dog) Disarm() error {
	if err := d.box.thawed.pass(d.life()); err != nil {
		return err
	}
	d.stop()
	return nil
}
