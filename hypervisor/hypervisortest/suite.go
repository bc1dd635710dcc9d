// Package hypervisortest is the contract of package hypervisor as tests: one suite that every
// implementation goes through. It knows the contract and no hypervisor.
package hypervisortest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/test/must"
)

// Subject is a hypervisor under test, with nothing of ours on it. Each part of the suite removes what it defines.
type Subject struct {
	Hypervisor hypervisor.Hypervisor
	// Domain makes a server of its own. If it listens, its system ends when it is asked to, once Up has returned.
	Domain func(t *testing.T, listens bool) hypervisor.Domain
	// Up waits until the system in a running guest listens; nil: it does at once.
	Up func(t *testing.T, d hypervisor.Domain)
	// Rescue makes of a domain the same with a rescue system; nil: the suite leaves rescue out.
	Rescue func(t *testing.T, d hypervisor.Domain) hypervisor.Domain
	// Plug makes of a domain the same with one disk more, and names it; nil: it is left out.
	Plug func(t *testing.T, d hypervisor.Domain) (hypervisor.Domain, string)
	// Powers are those beside on and off that can be set here, of paused and saved.
	Powers []compute.Power
	// Break cuts the hypervisor's daemon off and gives the way to mend it; guests go on. Nil: it is left out.
	Break func(t *testing.T) (mend func())
	// Soft bounds a shutdown that the guest's own system does; IgnoredSoftOff is how long the suite waits for one that does not.
	Soft, IgnoredSoftOff time.Duration
	// Names are not unique here: no guest's name is refused.
	SameName bool
}

// waitTimeout bounds each single wait; it is many times what any of them takes.
const waitTimeout = 90 * time.Second

// bench is a Subject in one part of the suite.
type bench struct {
	Subject
	*testing.T
	ctx context.Context
}

// Run proves the contract on one Subject: its parts use servers of their own.
func Run(t *testing.T, r Subject) {
	parts := []struct {
		name string
		run  func(*bench)
		left bool // out
	}{
		{"inventory", (*bench).inventory, false},
		{"define", (*bench).define, false},
		{"same name", (*bench).sameName, r.SameName},
		{"power", (*bench).power, false},
		{"keeps saved memory", (*bench).keepsSaved, false},
		{"restart", (*bench).restart, false},
		{"soft", (*bench).soft, false},
		{"deaf", (*bench).ignoresSoftOff, false},
		{"rescue", (*bench).rescue, r.Rescue == nil},
		{"plug", (*bench).plug, r.Plug == nil},
		{"remove", (*bench).remove, false},
		{"absent", (*bench).absent, false},
		{"watch", (*bench).watch, false},
		{"broken", (*bench).broken, r.Break == nil},
	}
	for _, part := range parts {
		if part.left {
			continue
		}
		t.Run(part.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*waitTimeout)
			defer cancel()
			part.run(&bench{Subject: r, T: t, ctx: ctx})
		})
	}
}

// made defines a fresh server and sees to its end.
func (b *bench) made(listens bool) hypervisor.Domain {
	b.Helper()
	d := b.Domain(b.T, listens)
	b.mustDefine(d)
	b.Cleanup(func() {
		if err := b.Hypervisor.Remove(context.Background(), d.ServerID); err != nil {
			b.Errorf("remove: %v", err)
		}
	})
	return d
}

func (b *bench) mustDefine(d hypervisor.Domain) {
	b.Helper()
	if err := b.Hypervisor.Define(b.ctx, d); err != nil {
		b.Fatalf("define: %v", err)
	}
}

func (b *bench) set(d hypervisor.Domain, p hypervisor.Power) bool {
	b.Helper()
	soft, err := b.Hypervisor.SetPower(b.ctx, d.ServerID, p)
	if err != nil {
		b.Fatalf("set power %+v: %v", p, err)
	}
	b.is(d, p.State)
	return soft
}

// guest is how the hypervisor shows a server.
func (b *bench) guest(d hypervisor.Domain) (compute.Guest, bool) {
	b.Helper()
	all, err := b.Hypervisor.Guests(b.ctx)
	if err != nil {
		b.Fatalf("guests: %v", err)
	}
	i := slices.IndexFunc(all, func(g compute.Guest) bool { return g.ID == d.ServerID })
	if i < 0 {
		return compute.Guest{}, false
	}
	return all[i], true
}

func (b *bench) is(d hypervisor.Domain, want compute.Power) compute.Guest {
	b.Helper()
	g, found := b.guest(d)
	if !found || g.Power != want {
		b.Fatalf("the guest is %+v (found: %v), want it %s", g, found, want)
	}
	return g
}

func (b *bench) wantKind(what string, err error, kind problem.Kind) {
	b.Helper()
	if !problem.Is(err, kind) {
		b.Errorf("%s: %v, want a problem of kind %s", what, err, kind)
	}
}

func (b *bench) inventory() {
	i := must.Get(b.Hypervisor.Inventory(b.ctx))(b)
	if i.HypervisorType == "" || i.HypervisorVersion <= 0 || i.VCPUs < 1 || i.RAM < 1 || len(i.Firmware) == 0 {
		b.Errorf("a host without something: %+v", i)
	}
}

// define: twice is once; what is defined is shown; a change is taken over.
func (b *bench) define() {
	d := b.made(false)
	b.mustDefine(d)
	g := b.is(d, compute.PowerOff)
	if !g.Ours || g.Epoch != d.Epoch || g.Name != d.GuestName || g.Rescue != "" || g.InRescue || g.Autostart {
		b.Errorf("defined %s at epoch %d, shown as %+v", d.GuestName, d.Epoch, g)
	}
	if g.VCPUs != d.VCPUs || g.RAM != d.RAM || len(g.NICs) != len(d.NICs) {
		b.Errorf("defined with %d CPUs, %d MiB and %d NICs, shown as %+v", d.VCPUs, d.RAM, len(d.NICs), g)
	}
	for i, n := range d.NICs {
		if i < len(g.NICs) && (!strings.EqualFold(g.NICs[i].MAC, n.MAC) || g.NICs[i].Bridge != n.Bridge) {
			b.Errorf("NIC %d is %+v, want %+v", i, g.NICs[i], n)
		}
	}
	d.Epoch++
	d.RAM += 64
	b.mustDefine(d)
	if g := b.is(d, compute.PowerOff); g.Epoch != d.Epoch || g.RAM != d.RAM {
		b.Errorf("after the change: %+v, want epoch %d and %d MiB", g, d.Epoch, d.RAM)
	}
}

func (b *bench) sameName() {
	d := b.made(false)
	other := b.Domain(b.T, false)
	other.GuestName = d.GuestName
	b.wantKind("define a second guest of one name", b.Hypervisor.Define(b.ctx, other), problem.Conflict)
	if _, found := b.guest(other); found {
		b.Error("the second guest of one name is there")
	}
}

// power: every way between the states that this hypervisor has, each state twice.
func (b *bench) power() {
	d := b.made(false)
	states := append([]compute.Power{compute.PowerOn, compute.PowerOff}, b.Powers...)
	way := []compute.Power{compute.PowerOff, compute.PowerOn, compute.PowerPaused, compute.PowerOn, compute.PowerSaved, compute.PowerOn,
		compute.PowerPaused, compute.PowerSaved, compute.PowerOff, compute.PowerOn, compute.PowerPaused, compute.PowerOff}
	for _, state := range way {
		if !slices.Contains(states, state) {
			continue
		}
		b.set(d, hypervisor.Power{State: state})
		b.set(d, hypervisor.Power{State: state})
	}
	for _, state := range b.Powers {
		_, err := b.Hypervisor.SetPower(b.ctx, d.ServerID, hypervisor.Power{State: state})
		b.wantKind("a guest that is off made "+string(state), err, problem.Conflict)
	}
}

// keepsSaved: a guest whose memory is saved is not switched off where the memory is to be kept, softly or not. It goes on with that memory.
func (b *bench) keepsSaved() {
	if !slices.Contains(b.Powers, compute.PowerSaved) {
		b.Skip("this hypervisor saves no memory")
	}
	d := b.made(false)
	b.set(d, hypervisor.Power{State: compute.PowerOn})
	b.set(d, hypervisor.Power{State: compute.PowerOff, KeepSaved: true})
	b.set(d, hypervisor.Power{State: compute.PowerOn})
	b.set(d, hypervisor.Power{State: compute.PowerSaved})
	for _, p := range []hypervisor.Power{{State: compute.PowerOff}, {State: compute.PowerOff, Soft: true, Within: b.Soft}, {State: compute.PowerOn, Restart: true}} {
		p.KeepSaved = true
		_, err := b.Hypervisor.SetPower(b.ctx, d.ServerID, p)
		b.wantKind(fmt.Sprintf("a guest with saved memory, SetPower %+v", p), err, problem.Conflict)
		b.is(d, compute.PowerSaved)
	}
	b.mustDefine(d)
	b.is(d, compute.PowerSaved)
	b.set(d, hypervisor.Power{State: compute.PowerOn})
	b.set(d, hypervisor.Power{State: compute.PowerSaved})
	b.set(d, hypervisor.Power{State: compute.PowerOff})
}

// restart: from on and from off; a change of the definition counts from then on.
func (b *bench) restart() {
	d := b.made(false)
	b.set(d, hypervisor.Power{State: compute.PowerOn, Restart: true})
	before := b.is(d, compute.PowerOn)
	d.RAM += 64
	b.mustDefine(d)
	if g := b.is(d, compute.PowerOn); g.RAM != before.RAM {
		b.Errorf("a running guest has %d MiB after a change of its definition, had %d", g.RAM, before.RAM)
	}
	b.set(d, hypervisor.Power{State: compute.PowerOn, Restart: true})
	if g := b.is(d, compute.PowerOn); g.RAM != d.RAM {
		b.Errorf("after a restart it has %d MiB, want %d", g.RAM, d.RAM)
	}
}

func (b *bench) soft() {
	d := b.made(true)
	b.set(d, hypervisor.Power{State: compute.PowerOn})
	if b.Up != nil {
		b.Up(b.T, d)
	}
	start := time.Now()
	if !b.set(d, hypervisor.Power{State: compute.PowerOff, Soft: true, Within: b.Soft}) {
		b.Errorf("a system that listens had to be forced after %s", time.Since(start))
	}
	if !b.set(d, hypervisor.Power{State: compute.PowerOff, Soft: true, Within: b.Soft}) {
		b.Error("a guest that is off had to be forced")
	}
}

// ignoresSoftOff: the bound of a soft power-off is kept, then force is used.
func (b *bench) ignoresSoftOff() {
	d := b.made(false)
	b.set(d, hypervisor.Power{State: compute.PowerOn})
	start := time.Now()
	if b.set(d, hypervisor.Power{State: compute.PowerOff, Soft: true, Within: b.IgnoredSoftOff}) {
		b.Error("a deaf system is said to have listened")
	}
	if took := time.Since(start); took < b.IgnoredSoftOff || took > b.IgnoredSoftOff+waitTimeout/3 {
		b.Errorf("it took %s to give up waiting for %s", took, b.IgnoredSoftOff)
	}
}

// rescue: it counts from the next start, and so does its end.
func (b *bench) rescue() {
	d := b.made(false)
	b.set(d, hypervisor.Power{State: compute.PowerOn})
	rescued := b.Rescue(b.T, d)
	b.mustDefine(rescued)
	b.mustDefine(rescued)
	if g := b.is(d, compute.PowerOn); g.Rescue == "" || g.InRescue {
		b.Errorf("before it boots the rescue: %+v", g)
	}
	b.set(d, hypervisor.Power{State: compute.PowerOn, Restart: true})
	if g := b.is(d, compute.PowerOn); g.Rescue == "" || !g.InRescue {
		b.Errorf("in rescue: %+v", g)
	}
	b.mustDefine(d)
	if g := b.is(d, compute.PowerOn); g.Rescue != "" || !g.InRescue {
		b.Errorf("before it boots its own disks again: %+v", g)
	}
	b.set(d, hypervisor.Power{State: compute.PowerOff})
	b.mustDefine(rescued)
	if g := b.is(d, compute.PowerOff); g.Rescue == "" || g.InRescue {
		b.Errorf("a rescue that is prepared and off: %+v", g)
	}
	b.mustDefine(d)
	b.set(d, hypervisor.Power{State: compute.PowerOn})
	if g := b.is(d, compute.PowerOn); g.Rescue != "" || g.InRescue {
		b.Errorf("back: %+v", g)
	}
}

func (b *bench) plug() {
	plugger, able := b.Hypervisor.(hypervisor.Plugger)
	if !able {
		b.Fatal("this hypervisor plugs nothing")
	}
	d := b.made(true)
	more, name := b.Plug(b.T, d)
	for _, on := range []bool{true, true, false, false} { // off
		if err := plugger.Plug(b.ctx, more, name, on); err != nil {
			b.Fatalf("plug %s %v into a guest that is off: %v", name, on, err)
		}
	}
	b.set(d, hypervisor.Power{State: compute.PowerOn})
	if b.Up != nil {
		b.Up(b.T, d)
	}
	for _, on := range []bool{true, true, false, false, true} {
		if err := plugger.Plug(b.ctx, more, name, on); err != nil {
			b.Fatalf("plug %s %v: %v", name, on, err)
		}
	}
	b.mustDefine(more)
	b.wantKind("plug a disk that is none", plugger.Plug(b.ctx, more, "vdy", true), problem.NotFound)
}

func (b *bench) remove() {
	d := b.made(false)
	b.set(d, hypervisor.Power{State: compute.PowerOn})
	for range 2 {
		must.OK(b, b.Hypervisor.Remove(b.ctx, d.ServerID))
		if g, found := b.guest(d); found {
			b.Fatalf("removed, and there: %+v", g)
		}
	}
}

func (b *bench) absent() {
	d := b.Domain(b.T, false)
	_, err := b.Hypervisor.SetPower(b.ctx, d.ServerID, hypervisor.Power{State: compute.PowerOn})
	b.wantKind("start a guest that is not there", err, problem.NotFound)
	if err := b.Hypervisor.Remove(b.ctx, d.ServerID); err != nil {
		b.Errorf("remove a guest that is not there: %v", err)
	}
	gone, cancel := context.WithCancel(b.ctx)
	cancel()
	_, err = b.Hypervisor.Guests(gone)
	if !problem.Is(err, problem.Unavailable) && !errors.Is(err, context.Canceled) {
		b.Errorf("asked by one who has gone away: %v", err)
	}
}

func (b *bench) watch() {
	watcher, able := b.Hypervisor.(hypervisor.Watcher)
	if !able {
		return
	}
	ctx, cancel := context.WithCancel(b.ctx)
	changed, ended := make(chan string, 64), make(chan error, 1)
	go func() { ended <- watcher.Watch(ctx, changed) }()
	d := b.made(false)
	// The watch begins at some time of its own: whoever misses a change looks at all guests.
	deadline := time.Now().Add(waitTimeout)
	for seen := false; !seen; {
		if time.Now().After(deadline) {
			b.Fatal("no change was told")
		}
		b.set(d, hypervisor.Power{State: compute.PowerOn})
		b.set(d, hypervisor.Power{State: compute.PowerOff})
		for drained := false; !drained; {
			select {
			case id := <-changed:
				seen = seen || id == d.ServerID
			case err := <-ended:
				b.Fatalf("the watch ended: %v", err)
			case <-time.After(100 * time.Millisecond):
				drained = true
			}
		}
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil && !errors.Is(err, context.Canceled) {
			b.Errorf("the end of a watch: %v", err)
		}
	case <-time.After(waitTimeout):
		b.Error("the watch does not end")
	}
}

// broken: a daemon that went away is Unavailable; when it is back its guests are as they were.
func (b *bench) broken() {
	d := b.made(false)
	b.set(d, hypervisor.Power{State: compute.PowerOn})
	mend := b.Break(b.T)
	_, err := b.Hypervisor.Guests(b.ctx)
	b.wantKind("guests", err, problem.Unavailable)
	b.wantKind("define", b.Hypervisor.Define(b.ctx, d), problem.Unavailable)
	_, err = b.Hypervisor.SetPower(b.ctx, d.ServerID, hypervisor.Power{State: compute.PowerOff})
	b.wantKind("power off", err, problem.Unavailable)
	mend()
	deadline := time.Now().Add(waitTimeout)
	for {
		_, err := b.Hypervisor.Guests(b.ctx)
		if err == nil {
			break
		}
		b.wantKind("guests", err, problem.Unavailable)
		if time.Now().After(deadline) {
			b.Fatalf("it does not come back: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if g := b.is(d, compute.PowerOn); !g.Ours || g.Epoch != d.Epoch {
		b.Errorf("the guest after the daemon's return: %+v", g)
	}
	if _, err := b.Hypervisor.SetPower(b.ctx, d.ServerID, hypervisor.Power{State: compute.PowerOff}); err != nil {
		b.Fatalf("power off: %v", err)
	}
	// A daemon that still looks for its guests may note that one ended, and not that it was asked to.
	if g, found := b.guest(d); !found || g.Power != compute.PowerOff && g.Power != compute.PowerCrashed {
		b.Errorf("the guest is %+v (found: %v), want it off", g, found)
	}
}
