package host

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	wire "salvor/wire/host"
)

// observedState is what was last seen of the machine. Seeing is apart from telling: a hypervisor
// that hangs must not cost the lease.
type observedState struct {
	mu        sync.Mutex
	inventory json.RawMessage
	guests    json.RawMessage
	list      map[string]compute.Guest // ours, with what is not told; nil: none was read yet
	changed   chan struct{}
	// away and unread: the hypervisor did not tell its guests, or what it has, when it was last asked.
	away, unread bool
	// restocked: what is in the disk stores has changed since the inventory was read.
	restocked atomic.Bool
}

const (
	lookEvery      = 2 * time.Second
	lookSeldom     = 10 * time.Second // where the hypervisor tells of changes
	inventoryEvery = 30 * time.Second
	lookTimeout    = 20 * time.Second
)

func (o *observedState) latest() (inventory, guests json.RawMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.inventory, o.guests
}

// guestList gives the guests of ours as they were last seen; false: they were not, or the hypervisor does not tell now.
func (o *observedState) guestList() (map[string]compute.Guest, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.list, o.list != nil && !o.away
}

// storesChanged has the inventory read soon.
func (o *observedState) storesChanged() {
	o.restocked.Store(true)
	o.look()
}

// look has the guests read soon.
func (o *observedState) look() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// observe reads guests and inventory until ctx ends.
func (a *Agent) observe(ctx context.Context) error {
	every := lookEvery
	if w, ok := a.Hypervisor.(hypervisor.Watcher); ok {
		every = lookSeldom
		go a.watch(ctx, w)
	}
	var inventoryAt time.Time
	for {
		if (a.observed.restocked.Swap(false) || time.Since(inventoryAt) >= inventoryEvery) && a.readInventory(ctx) {
			inventoryAt = time.Now()
		}
		a.readGuests(ctx)
		a.endAutostart(ctx)
		t := time.NewTimer(every)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		case <-a.observed.changed:
			t.Stop()
		}
	}
}

// watch passes the hypervisor's word of changes on; a broken connection is made again.
func (a *Agent) watch(ctx context.Context, w hypervisor.Watcher) {
	ids := make(chan string, 64)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-ids:
				a.observed.look()
			}
		}
	}()
	for {
		if err := w.Watch(ctx, ids); err != nil && ctx.Err() == nil {
			a.Log.Debug("watch the hypervisor", "error", err)
		}
		if !sleepContext(ctx, time.Second) {
			return
		}
		a.observed.look()
	}
}

func (a *Agent) readGuests(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	guests, err := a.listGuests(ctx)
	a.observed.mu.Lock()
	defer a.observed.mu.Unlock()
	if err != nil {
		if !a.observed.away && ctx.Err() != context.Canceled {
			a.Log.Warn("the hypervisor does not tell its guests", "error", err)
		}
		a.observed.away = true
		return
	}
	a.observed.away = false
	slices.SortFunc(guests, func(x, y compute.Guest) int { return cmp.Compare(x.ID, y.ID) })
	if guests == nil {
		guests = []compute.Guest{}
	}
	text := mustEncodeJSON(guests)
	if !bytes.Equal(text, a.observed.guests) {
		a.leases.lookSoon()
	}
	a.observed.guests, a.observed.list = text, byID(guests)
}

func (a *Agent) readInventory(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	inv, err := a.Hypervisor.Inventory(ctx)
	if err != nil {
		if !a.observed.unread && ctx.Err() != context.Canceled {
			a.Log.Warn("the hypervisor does not tell what it has; a host whose CPUs and memory are not known gets no server", "error", err)
		}
		a.observed.unread = true
		return false
	}
	a.observed.unread = false
	inv.AgentVersion, inv.KeepsSaved, inv.OnlyReads = a.Version, true, true
	if len(inv.Bridges) == 0 {
		inv.Bridges = listLinuxBridges("/sys/class/net")
	}
	if inv.Address == "" {
		inv.Address = a.address()
	}
	inv.Stores, inv.Disk = a.stores.describe(ctx), 0
	for _, ds := range inv.Stores {
		inv.Disk += ds.SizeGiB
	}
	inv.UptimeS = 0 // it would make each inventory differ; the control plane counts from the boot
	a.observed.mu.Lock()
	defer a.observed.mu.Unlock()
	a.observed.inventory = mustEncodeJSON(inv)
	return true
}

// address is the one from which this host reaches the control plane.
func (a *Agent) address() string {
	port := a.controlPlane.root.Port()
	if port == "" {
		port = "443"
	}
	c, err := net.Dial("udp", net.JoinHostPort(a.controlPlane.root.Hostname(), port))
	if err != nil {
		return ""
	}
	defer c.Close()
	host, _, _ := net.SplitHostPort(c.LocalAddr().String())
	return host
}

// listLinuxBridges lists the Linux bridges of the machine.
func listLinuxBridges(sysfs string) []string {
	entries, _ := os.ReadDir(sysfs)
	var out []string
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(sysfs, e.Name(), "bridge")); err == nil {
			out = append(out, e.Name())
		}
	}
	return out
}

// guest is one of ours as it was last seen; nil: none.
func (a *Agent) guest(ctx context.Context, id string) (*compute.Guest, error) {
	guests, err := a.Hypervisor.Guests(ctx)
	if err != nil {
		return nil, err
	}
	for i := range guests {
		if g := &guests[i]; g.ID == id {
			if g.Ours {
				a.addDrift(ctx, g)
				a.addRoom(ctx, g)
			}
			return g, nil
		}
	}
	return nil, nil
}

// endAutostart has no guest of ours started by the hypervisor: whether it is still this host's, the control plane says, and nobody
// before that.
func (a *Agent) endAutostart(ctx context.Context) {
	s, ok := a.Hypervisor.(hypervisor.Autostarter)
	if !ok {
		return
	}
	_, text := a.observed.latest()
	var list []compute.Guest
	_ = json.Unmarshal(text, &list)
	for _, g := range list {
		if !g.Ours || !g.Autostart {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		err := s.SetAutostart(bounded, g.ID, false)
		cancel()
		if err != nil {
			a.Log.Warn("have a guest not started by the hypervisor", "server", g.ID, "error", err)
			continue
		}
		a.lease.note(wire.LocalAction{ServerID: g.ID, Text: "turned off that the hypervisor starts it by itself", At: time.Now().UTC()})
		a.observed.look()
	}
}

// reconcile starts guests of ours that should run and do not. What is not known here is left alone; it is in the list of guests. An
// answer that is older than a lease says nothing any more. A guest that crashed is the control plane's to start: it counts the tries.
//
// The list is the one that the answer was made for, and since is the newest order known when it was sent: what an order has done to
// a server meanwhile is newer than the answer.
func (a *Agent) reconcile(ctx context.Context, sent json.RawMessage, since int64, wanted map[string]wire.Wanted) {
	var list []compute.Guest
	if err := json.Unmarshal(sent, &list); err != nil {
		return
	}
	if age, known := a.age(); !known || age >= compute.Suspect || a.halted() {
		return
	}
	ctx = a.orders.begin(ctx)
	for _, g := range list {
		want, known := wanted[g.ID]
		if !g.Ours || !known || want.Busy || g.Epoch != want.Epoch {
			continue
		}
		if want.Power == string(compute.PowerOn) && g.Power == compute.PowerOff && g.Pause.Reason != compute.SavedToFile {
			a.runCleanup(ctx, g.ID, since, "started it: it should run and was "+string(g.Power), func(ctx context.Context) (bool, error) {
				if err := a.prepareStart(ctx, diskLeaseClaim{server: g.ID, epoch: want.Epoch}, false); err != nil {
					return false, err
				}
				_, err := a.Hypervisor.SetPower(ctx, g.ID, hypervisor.Power{State: compute.PowerOn})
				return true, err
			})
		}
	}
}

// runCleanup does one thing for a server that no order works on, beside the lease loop, and notes it.
func (a *Agent) runCleanup(ctx context.Context, server string, since int64, text string, do func(context.Context) (bool, error)) {
	unlock, ok := a.lock(server)
	if !ok {
		return
	}
	if a.orders.newest(server) > since {
		unlock()
		return
	}
	leave, ok := a.orders.admit()
	if !ok {
		unlock()
		return
	}
	go func() {
		defer unlock()
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		done, err := do(ctx)
		leave(err == nil || !problem.Is(err, problem.Unavailable) && ctx.Err() == nil)
		if err != nil {
			a.Log.Warn("mend", "server", server, "wanted", text, "error", err)
			return
		}
		if done {
			a.Log.Info("mended", "server", server, "did", text)
			a.lease.note(wire.LocalAction{ServerID: server, Text: text, At: time.Now().UTC()})
			a.observed.look()
		}
	}()
}
