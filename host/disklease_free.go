package host

import (
	"context"
	"errors"
	"io"
	"os"
)

// freeFormer frees the lease that a former boot, or a former run, of this host left on the disk of a guest that is off.
func (d *diskLeases) freeFormer(ctx context.Context, path string, f formerLease) {
	unlock, ok := d.agent.lock(f.server)
	if !ok {
		return
	}
	defer unlock()
	done := func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.former, path)
	}
	l, raw, err := d.look(ctx, f.store, path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		done()
		return
	case err != nil:
		return
	case l.Host != d.agent.identity.id || l.State == leaseFree || d.heldAt(path) != nil:
		done()
		return
	}
	if age, _, err := d.unchanged(path, l, raw); err != nil || !d.mine(l) && age < d.watch {
		return
	}
	if err := d.freeFile(ctx, f.store, path, l); err != nil {
		d.complain(err, path)
		return
	}
	done()
}

// freeFile marks a lease that is not held in memory as free, in the file that says l.
func (d *diskLeases) freeFile(ctx context.Context, s *diskStore, path string, l diskLease) error {
	_, err := withStoreTimeout(ctx, s, func() (bool, error) {
		f, err := openLease(path, os.O_RDWR)
		if err != nil {
			return false, err
		}
		defer f.Close()
		raw, err := io.ReadAll(io.LimitReader(f, maxLease))
		if now, _ := parseLease(raw); err != nil || now.Nonce != l.Nonce {
			return false, err
		}
		h := &heldLease{file: f, lease: l}
		return true, h.write(leaseFree)
	})
	return err
}

// drop stops renewing a lease, and marks it as free where the guest has ended. What cannot be written is tried again by freeFormer.
func (d *diskLeases) drop(ctx context.Context, h *heldLease, free bool) {
	var err error
	if free {
		if _, err = withStoreTimeout(ctx, h.store, func() (bool, error) { return true, h.write(leaseFree) }); err != nil {
			d.complain(err, h.path)
		}
	}
	d.mu.Lock()
	if err != nil {
		d.former[h.path] = formerLease{server: h.server, store: h.store}
	}
	if d.held[h.path] == h {
		delete(d.held, h.path)
	}
	d.mu.Unlock()
	go h.close() // a store that hangs keeps nobody
}

// free gives up the leases of a server whose guest is off: those that are held, and those on these disks that this host left.
func (d *diskLeases) free(ctx context.Context, server string, files []string) {
	for _, h := range d.allHeld() {
		if h.server == server {
			d.drop(ctx, h, true)
		}
	}
	for _, file := range files {
		path := file + leaseSuffix
		s := d.agent.sharedStoreWith(path)
		if s == nil {
			continue
		}
		if l, _, err := d.look(ctx, s, path); err != nil || l.Host != d.agent.identity.id || l.State == leaseFree {
			continue
		}
		// A lease of a former boot is taken first, which watches it.
		c := diskLeaseClaim{server: server}
		if err := d.acquire(ctx, path, c); err != nil {
			d.complain(err, path)
			continue
		}
		if h := d.heldAt(path); h != nil {
			d.drop(ctx, h, true)
		}
	}
}
