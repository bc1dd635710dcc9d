package host

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"slices"
	"sync"
	"time"

	"salvor/compute"
	"salvor/problem"
	wire "salvor/wire/host"
)

// cleanupTracker takes away what this host still has of servers that live elsewhere. It does so by an explicit word of the control plane
// alone, which is repeated until the end of it was heard: whatever was cut off is done again.
type cleanupTracker struct {
	slots    chan struct{}
	mu       sync.Mutex
	busy     map[string]bool
	failedAt map[string]time.Time // of those that failed
}

const (
	cleanAtOnce = 4
	cleanWithin = 2 * time.Minute
	// cleanAgain is after how long a clean-up that could not be done is tried again.
	cleanAgain = 5 * time.Second
)

func newCleaner() cleanupTracker {
	return cleanupTracker{slots: make(chan struct{}, cleanAtOnce), busy: map[string]bool{}, failedAt: map[string]time.Time{}}
}

// begin tells whether a server's clean-up is to be begun now.
func (c *cleanupTracker) begin(server string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy[server] || time.Since(c.failedAt[server]) < cleanAgain {
		return false
	}
	c.busy[server] = true
	return true
}

func (c *cleanupTracker) end(server string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, server)
	delete(c.failedAt, server)
	if err != nil {
		c.failedAt[server] = time.Now()
	}
}

// isDestructiveClean tells whether a word is one to act by. All others, those that are not known too, have nothing done.
func isDestructiveClean(do string) bool {
	return do == string(compute.CleanGuest) || do == string(compute.CleanDisk) || do == string(compute.CleanOrphan)
}

// cleanUp begins what is asked for and was not done yet.
func (a *Agent) cleanUp(ctx context.Context, asked map[string]wire.Clean) {
	for server, c := range asked {
		if !isDestructiveClean(c.Do) {
			continue
		}
		a.lease.mu.Lock()
		former, known := a.lease.cleaned[server]
		a.lease.mu.Unlock()
		if known && former.Epoch == c.Epoch && former.Error == "" || !a.cleaner.begin(server) {
			continue
		}
		go func() {
			var err error
			select {
			case a.cleaner.slots <- struct{}{}:
				err = a.clean(ctx, server, c)
				<-a.cleaner.slots
			case <-ctx.Done():
				err = ctx.Err()
			}
			a.cleaner.end(server, err)
			if ctx.Err() != nil {
				return
			}
			a.lease.mu.Lock()
			a.lease.cleaned[server] = cleanedOf(server, c.Epoch, err)
			a.lease.mu.Unlock()
		}()
	}
}

func cleanedOf(server string, epoch int64, err error) wire.Cleaned {
	out := wire.Cleaned{ServerID: server, Epoch: epoch}
	if err != nil {
		out.Error = newFailedResult(err).Error
	}
	return out
}

// clean ends the guest of a server that lives elsewhere, and removes what is this host's own of it; with compute.CleanDisk its local
// disks too. With compute.CleanOrphan another host had the server: then only its disks in shared stores go. A guest of the same epoch as the word, or a later one, is touched by nobody.
func (a *Agent) clean(ctx context.Context, server string, c wire.Clean) error {
	ctx, cancel := context.WithTimeout(ctx, cleanWithin)
	defer cancel()
	// First of all: from here on no older order is carried out, whatever comes between.
	if err := a.journal.raise(server, c.Epoch); err != nil {
		return err
	}
	a.orders.cancelOlder(server, c.Epoch)
	unlock, ok := a.lock(server)
	for !ok && sleepContext(ctx, 20*time.Millisecond) {
		unlock, ok = a.lock(server)
	}
	if !ok {
		return problem.Unavailablef("clean up server %s: something else works on it", server)
	}
	defer unlock()
	if err := a.journal.raise(server, c.Epoch); err != nil { // an order of a later epoch may have come meanwhile
		return err
	}
	g, err := a.guest(ctx, server)
	switch {
	case err != nil:
		return err
	case g != nil && c.Do == string(compute.CleanOrphan):
		return problem.Conflictf("clean up server %s: a guest of it is on this host, so its disks stay", server)
	case g != nil && !g.Ours:
		return problem.Conflictf("clean up server %s: the guest of its UUID is none of salvor's", server)
	case g != nil && c.Incarnation != "" && g.Incarnation != c.Incarnation:
		// Epochs of two incarnations cannot be compared. What runs nowhere may lose its definition, but not its disks or its memory.
		if off := g.Power == compute.PowerOff || g.Power == compute.PowerCrashed; !off || c.Do != string(compute.CleanGuest) {
			return problem.Conflictf("clean up server %[1]s: the epoch of its guest here is of incarnation %.12[2]q of the database, and not of %.12[3]q. "+
				"If the guest may go, switch it off and run on this host: virsh undefine %[1]s", server, g.Incarnation, c.Incarnation)
		}
	case g != nil && g.Epoch >= c.Epoch:
		return problem.Conflictf("clean up server %s: its guest here is of epoch %d, and not below %d", server, g.Epoch, c.Epoch)
	}
	var spec compute.Spec
	untold := json.Unmarshal(c.Spec, &spec) != nil || spec.ServerID != server
	overlays, _, err := a.rememberOverlays(ctx, server, g, spec.Disks)
	if err != nil {
		return err
	}
	if g != nil {
		if err := a.Hypervisor.Remove(ctx, server); err != nil {
			return err
		}
		a.leases.setArriving(server, false)
		a.leases.free(ctx, server, g.Files)
	}
	if c.Do == string(compute.CleanDisk) || c.Do == string(compute.CleanOrphan) {
		if untold {
			return problem.Invalidf("clean up server %s: what disks it has is not told", server)
		}
		if err := a.cleanDisks(ctx, &spec, c, overlays); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(a.identity.path("servers", server)); err != nil {
		return err
	}
	a.Log.Info("cleaned up", "server", server, "epoch", c.Epoch, "did", c.Do)
	a.observed.look()
	return nil
}

// cleanDisks puts the disks that the host gives up into quarantine, and leaves those in stores that others see. With Erase the server was
// deleted: its disks are removed, also from shared stores, unless another host renews their leases. With compute.CleanOrphan the disks in
// shared stores alone go into quarantine, on the same condition.
func (a *Agent) cleanDisks(ctx context.Context, spec *compute.Spec, c wire.Clean, overlays []string) error {
	orphan, reason := c.Do == string(compute.CleanOrphan), compute.QuarantineReturned
	if orphan {
		reason = compute.QuarantineOrphan
	}
	erase := c.Erase && !orphan
	server := spec.ServerID
	for _, d := range spec.Disks {
		if d.VolumeID != "" {
			continue
		}
		s := a.stores.of(d)
		if s == nil {
			return problem.Conflictf("clean up server %s: this host has no disk store %q", server, cmp.Or(d.Store, "for disk "+d.Name))
		}
		if s.Shared && !erase && !orphan || !s.Shared && orphan {
			continue // a server that lives on another host uses its disk in a shared store, and an orphan has no disk in a store of this host alone
		}
		if err := s.there(ctx); err != nil {
			return err // what is not mounted now may be again
		}
		if s.Shared {
			path, err := s.place(server, d)
			if err == nil {
				err = a.leases.acquireAll(ctx, []string{path}, diskLeaseClaim{server: server, epoch: c.Epoch, checkOnly: true, removes: true})
			}
			if err != nil {
				return err // another host uses it, or nobody can tell
			}
		}
		if _, err := withStoreTimeout(ctx, s, func() (bool, error) {
			if erase {
				return true, a.stores.erase(ctx, server, d)
			}
			return true, a.quarantine(ctx, server, d, reason)
		}); err != nil {
			return err
		}
		over := slices.DeleteFunc(slices.Clone(overlays), func(file string) bool { return a.storeWith(file) != s })
		if err := a.dropOverlays(ctx, server, over, erase, reason); err != nil {
			return err
		}
	}
	return nil
}
