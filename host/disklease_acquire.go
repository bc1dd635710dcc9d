package host

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"salvor/durable"
	"salvor/problem"
)

// diskLeaseClaim is what somebody wants a lease for.
type diskLeaseClaim struct {
	server string
	epoch  int64
	// receipt is the id of the fencing receipt that the order brought; without one no lease of another host is broken.
	receipt string
	// checkOnly has nothing taken. removes asks only whether another host renews the lease.
	checkOnly, removes bool
}

func diskOf(path string) string { return strings.TrimSuffix(path, leaseSuffix) }

// acquire has this host own the lease at path, or tells why it may not: problem.Forbidden.
func (d *diskLeases) acquire(ctx context.Context, path string, c diskLeaseClaim) error {
	s := d.agent.sharedStoreWith(path)
	if s == nil {
		return nil
	}
	began, err := d.agent.Alive()
	if err != nil {
		return err
	}
	renewals := 0
	for first, looked := true, began; ; first = false {
		if !first {
			if looked, err = d.agent.Alive(); err != nil {
				return err
			}
		}
		l, raw, err := d.look(ctx, s, path)
		if now, clockErr := d.agent.Alive(); clockErr == nil && now-began > leaseGiveUp {
			return problem.Forbiddenf("%s: the lease of its disk %s still changes after %s, last by %s", c.refused(), diskOf(path), leaseGiveUp, l.owner())
		}
		switch {
		case errors.Is(err, os.ErrNotExist):
			if c.checkOnly {
				return nil
			}
			err = d.create(ctx, s, path, c)
		case err != nil:
		case d.owns(path, l) || l.State == leaseFree:
			if c.checkOnly {
				return nil
			}
			if d.owns(path, l) {
				err = d.resume(ctx, s, path)
			} else {
				err = d.take(ctx, s, path, c, looked, false)
			}
		default:
			var age time.Duration
			var renewed, may bool
			if age, renewed, err = d.unchanged(path, l, raw); renewed && !first {
				renewals++
			}
			if err == nil {
				may, err = d.mayBreak(path, l, c, age, renewals)
			}
			if err == nil && !may {
				if !sleepContext(ctx, d.poll) {
					return ctx.Err()
				}
				continue
			}
			if err == nil && !c.checkOnly {
				err = d.take(ctx, s, path, c, looked, true)
			}
		}
		if err != nil && !problem.Is(err, problem.Forbidden) && !problem.Is(err, problem.Conflict) {
			err = problem.Unavailablef("server %s: the lease of disk %s: %w", c.server, diskOf(path), err)
		}
		return err
	}
}

// provingRenewals are how many renewals prove that an owner lives. One may have been on its way to the storage when its host lost power.
const provingRenewals = 2

// mayBreak tells whether a lease of another owner may be taken now; false without an error: it must be watched for longer. The lease has
// said the same for age, and was renewed so many times while it was watched.
func (d *diskLeases) mayBreak(path string, l diskLease, c diskLeaseClaim, age time.Duration, renewals int) (bool, error) {
	former := l.Host == d.agent.identity.id // a former boot of this host
	switch {
	case renewals >= provingRenewals:
		return false, problem.Forbiddenf("%s: its disk %s is in use by %s, which renews its lease now; end the guest there, or cut that host's power",
			c.refused(), diskOf(path), l.owner())
	case age < d.watch:
		return false, nil
	case c.removes:
		return true, nil
	case !former && c.receipt == "":
		return false, problem.Forbiddenf("%s: its disk %s belongs to %s, and the order brings no fencing receipt; fence that host, or, if nothing runs there, remove %s",
			c.refused(), diskOf(path), l.owner(), path)
	case !former && l.Epoch > c.epoch:
		return false, problem.Forbiddenf("%s: its disk %s belongs to %s, which is newer than epoch %d of the order", c.refused(), diskOf(path), l.owner(), c.epoch)
	}
	return true, nil
}

// refused begins the words of a refusal.
func (c diskLeaseClaim) refused() string {
	if c.removes {
		return "the disk of server " + c.server + " is not removed"
	}
	return "server " + c.server + " may not start here"
}

func (d *diskLeases) fresh(c diskLeaseClaim) diskLease {
	a := d.agent
	return diskLease{Version: 1, Host: a.identity.id, Name: a.Name, Boot: a.boot, Server: c.server, Epoch: c.epoch, Nonce: rand.Text(), State: leaseHeld,
		Counter: fmt.Sprintf("%020d", 0)}
}

// create makes the lease of a disk that has none; of several hosts one makes it.
func (d *diskLeases) create(ctx context.Context, s *diskStore, path string, c diskLeaseClaim) error {
	if _, err := s.marker(ctx); err != nil {
		return err
	}
	l := d.fresh(c)
	_, err := withStoreTimeout(ctx, s, func() (bool, error) {
		_, err := durable.ReadOrMake(path, 0o644, func() ([]byte, error) { return l.encode(), nil })
		return true, err
	})
	if err != nil {
		return err
	}
	return d.hold(ctx, s, path, l, c)
}

// take replaces a lease, which was read after looked, by a lease of this host. Then it waits and reads again, because another host may take
// the lease at the same time.
func (d *diskLeases) take(ctx context.Context, s *diskStore, path string, c diskLeaseClaim, looked time.Duration, broke bool) error {
	l := d.fresh(c)
	if _, err := withStoreTimeout(ctx, s, func() (bool, error) { return true, durable.Replace(path, l.encode(), 0o644) }); err != nil {
		return err
	}
	if broke {
		d.agent.Log.Warn("the lease of a disk was taken from its former owner", "server", c.server, "disk", path, "receipt", c.receipt)
	}
	ended, err := d.agent.Alive()
	if err != nil {
		return err
	}
	wait := d.settle
	if ended-looked > d.settle { // another host may own the lease by now, and finds out at its next renewal
		wait = d.watch
	}
	if !sleepContext(ctx, wait) {
		return ctx.Err()
	}
	return d.hold(ctx, s, path, l, c)
}

// resume goes on with a lease that this boot of the host has.
func (d *diskLeases) resume(ctx context.Context, s *diskStore, path string) error {
	l, _, err := d.look(ctx, s, path)
	if err != nil {
		return err
	}
	if h := d.heldAt(path); h != nil && h.nonce == l.Nonce && l.State == leaseHeld {
		return nil
	}
	if err := d.hold(ctx, s, path, l, diskLeaseClaim{server: l.Server}); err != nil {
		return err
	}
	if _, err := withStoreTimeout(ctx, s, func() (bool, error) { return true, d.heldAt(path).write(leaseHeld) }); err != nil {
		return err
	}
	now, _, err := d.look(ctx, s, path)
	if err == nil && now.Nonce != l.Nonce {
		err = problem.Forbiddenf("server %s may not start here: the lease of its disk %s went to %s", l.Server, diskOf(path), now.owner())
	}
	return err
}

// hold opens the lease that is at path, which must be l, and renews it from now on.
func (d *diskLeases) hold(ctx context.Context, s *diskStore, path string, l diskLease, c diskLeaseClaim) error {
	f, err := withStoreTimeout(ctx, s, func() (*os.File, error) { return openLease(path, os.O_RDWR) })
	if err != nil {
		return err
	}
	raw, err := withStoreTimeout(ctx, s, func() ([]byte, error) { return io.ReadAll(io.NewSectionReader(f, 0, maxLease)) })
	if err != nil {
		f.Close()
		return err
	}
	now, _ := parseLease(raw)
	if now.Nonce != l.Nonce {
		f.Close()
		return problem.Forbiddenf("server %s may not start here: the lease of its disk %s went to %s", c.server, diskOf(path), now.owner())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if former := d.held[path]; former != nil {
		former.close()
	}
	d.held[path] = &heldLease{path: path, server: now.Server, nonce: now.Nonce, store: s, file: f, lease: now}
	delete(d.sight, path)
	return nil
}
