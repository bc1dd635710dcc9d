package host

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"salvor/compute"
)

const (
	// leaseWriters bounds how many leases are written at once.
	leaseWriters = 8
	// leasePause is the least time between two rounds.
	leasePause = 200 * time.Millisecond
)

// runDiskLeases renews the leases of guests that run, frees those of guests that ended, and ends a guest whose lease another host took.
// It begins before the host has joined, and it needs no control plane: a host that is removed or cut off still owns what it runs.
func (a *Agent) runDiskLeases(ctx context.Context) {
	d := a.leases
	for {
		d.round(ctx)
		if !sleepContext(ctx, min(leasePause, d.every)) {
			return
		}
		t := time.NewTimer(d.every - min(leasePause, d.every))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-d.wakeup:
			t.Stop()
		case <-t.C:
		}
	}
}

// lookSoon has the next round begin at once.
func (d *diskLeases) lookSoon() {
	select {
	case d.wakeup <- struct{}{}:
	default:
	}
}

// seenGuests is one round's view of the guests. The list that the agent has may be some seconds old; now reads a new one, once.
type seenGuests struct {
	agent *Agent
	list  map[string]compute.Guest
	known bool

	once sync.Once
	read map[string]compute.Guest
	err  error
}

func byID(list []compute.Guest) map[string]compute.Guest {
	out := make(map[string]compute.Guest, len(list))
	for _, g := range list {
		if g.Ours || g.Power == compute.PowerUnknown { // whose that is cannot be read now
			out[g.ID] = g
		}
	}
	return out
}

func (v *seenGuests) now(ctx context.Context) (map[string]compute.Guest, error) {
	v.once.Do(func() {
		bounded, cancel := context.WithTimeout(ctx, guestsWithin)
		defer cancel()
		var list []compute.Guest
		if list, v.err = runWithContext(bounded, func() ([]compute.Guest, error) { return v.agent.Hypervisor.Guests(bounded) }); v.err == nil {
			v.read = byID(list)
		}
	})
	return v.read, v.err
}

// mayRun tells whether a guest may write to its disks.
func mayRun(p compute.Power) bool {
	return p != compute.PowerOff && p != compute.PowerSaved && p != compute.PowerCrashed
}

// round looks after all leases once. Stores do not wait for each other, for one may hang: a store that is still at its former round is
// left out. The caller may wait for the end.
func (d *diskLeases) round(ctx context.Context) *sync.WaitGroup {
	all := &sync.WaitGroup{}
	if !d.anyShared() {
		return all
	}
	v := &seenGuests{agent: d.agent}
	if v.list, v.known = d.agent.observed.guestList(); v.list == nil {
		list, err := v.now(ctx)
		v.list, v.known = list, err == nil
	}
	all.Go(func() { d.endLost(ctx, v) })
	for s, list := range d.tasks(ctx, v) {
		if d.begin(s) {
			all.Go(func() { inParallel(leaseWriters, list); d.end(s) })
		}
	}
	d.prune()
	return all
}

// tasks are what this round does in each store.
func (d *diskLeases) tasks(ctx context.Context, v *seenGuests) map[*diskStore][]func() {
	out := map[*diskStore][]func(){}
	for _, h := range d.allHeld() {
		out[h.store] = append(out[h.store], func() { d.renewOrFree(ctx, h, v) })
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range v.list {
		for _, file := range g.Files {
			path := file + leaseSuffix
			s := d.agent.sharedStoreWith(path)
			switch {
			case s == nil || d.held[path] != nil:
			case g.Power == compute.PowerOn:
				out[s] = append(out[s], func() { d.adoptRunning(ctx, s, path, g.ID, v) })
			case !mayRun(g.Power) && !d.listed:
				d.former[path] = formerLease{server: g.ID, store: s}
			}
		}
	}
	d.listed = d.listed || v.known
	for path, f := range d.former {
		out[f.store] = append(out[f.store], func() { d.freeFormer(ctx, path, f) })
	}
	return out
}

// begin tells whether a store's round may begin: its former one has ended.
func (d *diskLeases) begin(s *diskStore) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy[s] {
		return false
	}
	d.busy[s] = true
	return true
}

func (d *diskLeases) end(s *diskStore) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.busy, s)
}

func (d *diskLeases) anyShared() bool {
	for _, s := range d.agent.stores {
		if s.Shared {
			return true
		}
	}
	return false
}

func inParallel(n int, list []func()) {
	next := make(chan func())
	var workers sync.WaitGroup
	for range min(n, len(list)) {
		workers.Go(func() {
			for do := range next {
				do()
			}
		})
	}
	for _, do := range list {
		next <- do
	}
	close(next)
	workers.Wait()
}

func (d *diskLeases) allHeld() []*heldLease {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]*heldLease, 0, len(d.held))
	for _, h := range d.held {
		out = append(out, h)
	}
	return out
}

// renewOrFree renews a lease, or frees it where a fresh look proves that the guest does not run and no order is in hand for it.
func (d *diskLeases) renewOrFree(ctx context.Context, h *heldLease, v *seenGuests) {
	server := h.server
	if g, there := v.list[server]; v.known && (!there || !mayRun(g.Power)) {
		if unlock, ok := d.agent.lock(server); ok {
			defer unlock()
			now, err := v.now(ctx)
			if g, there := now[server]; err == nil && (!there || !mayRun(g.Power)) {
				d.drop(ctx, h, true)
				return
			}
		}
	}
	if g, there := v.list[server]; v.known && there && !slices.Contains(g.Files, diskOf(h.path)) && d.dropMerged(ctx, h) {
		return
	}
	_, err := withStoreTimeout(ctx, h.store, func() (bool, error) { return true, h.write(leaseHeld) })
	// Whether it was written or not: what is there now decides whose the disk is.
	l, _, readErr := d.look(ctx, h.store, h.path)
	if readErr == nil && l.Nonce == h.nonce && (err != nil || !h.wrote(l)) { // check err first, because a hung write holds the lock
		err = d.reopen(ctx, h)
	}
	switch {
	case readErr == nil && l.Nonce != "" && l.Nonce != h.nonce:
		d.lose(ctx, h, l)
	case errors.Is(readErr, os.ErrNotExist):
		d.drop(ctx, h, false) // somebody removed it: if the guest runs, the next round makes it anew
	case err != nil || readErr != nil:
		d.complain(errors.Join(err, readErr), h.path)
	}
}

// dropMerged removes the lease of a file that is gone and that the guest uses no more, such as an overlay that a backup tool merged and removed. It
// returns false where the file is there, or its store cannot be read.
func (d *diskLeases) dropMerged(ctx context.Context, h *heldLease) bool {
	if h.store.there(ctx) != nil {
		return false
	}
	gone, err := withStoreTimeout(ctx, h.store, func() (bool, error) {
		if _, err := os.Lstat(diskOf(h.path)); !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
		if err := os.Remove(h.path); !errors.Is(err, os.ErrNotExist) {
			return err == nil, err
		}
		return true, nil
	})
	if err != nil || !gone {
		return false
	}
	d.drop(ctx, h, false)
	return true
}

// reopen continues the renewal in the file that is now at the path, because the open file is stale, as after a remount of a share.
// It does not touch a lease of another owner.
func (d *diskLeases) reopen(ctx context.Context, h *heldLease) error {
	_, err := withStoreTimeout(ctx, h.store, func() (bool, error) {
		f, err := openLease(h.path, os.O_RDWR)
		if err != nil {
			return false, err
		}
		raw, err := io.ReadAll(io.NewSectionReader(f, 0, maxLease))
		now, _ := parseLease(raw)
		if err != nil || now.Nonce != h.nonce || now.State != leaseHeld || !h.replaceFile(f, now) {
			return false, errors.Join(err, f.Close())
		}
		return true, h.write(leaseHeld)
	})
	return err
}

// acquireAll has this host own the leases of all of these disks.
func (d *diskLeases) acquireAll(ctx context.Context, files []string, c diskLeaseClaim) error {
	for _, file := range files {
		if err := d.acquire(ctx, filepath.Clean(file)+leaseSuffix, c); err != nil {
			return err
		}
	}
	return nil
}

// complain says now and then that a lease cannot be looked after.
func (d *diskLeases) complain(err error, path string) {
	d.mu.Lock()
	loud := time.Since(d.lastWarned) >= complainEvery
	if loud {
		d.lastWarned = time.Now()
	}
	d.mu.Unlock()
	if loud && !errors.Is(err, context.Canceled) {
		d.agent.Log.Warn("the lease of a disk is not looked after", "disk", diskOf(path), "error", err)
	}
}

// prune forgets what was seen of leases that nobody asked for lately.
func (d *diskLeases) prune() {
	now, err := d.agent.Alive()
	d.mu.Lock()
	defer d.mu.Unlock()
	for path, s := range d.sight {
		if err == nil && now-s.at > 10*time.Minute {
			delete(d.sight, path)
		}
	}
}
