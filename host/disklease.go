package host

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"salvor/durable"
	"salvor/problem"
)

// A disk in a shared store has an owner lease beside it: the file DISK.lease. The host that runs the guest raises its counter every
// leaseRenewEvery. A guest starts only on the host that owns the lease. Another host takes a lease that is not free only with a fencing
// receipt in its order, and only after the counter stood still for leaseWatch on its own clock.
//
// The owner renews in place, through the file that it opened when it took the lease. A taker puts a new file in its place. So a late
// renewal changes the former file, and never the lease of the new owner.
const (
	leaseSuffix     = ".lease"
	leaseRenewEvery = 2 * time.Second
	leaseWatch      = 6 * time.Second
	leasePoll       = 100 * time.Millisecond
	// leaseGiveUp bounds the wait for a lease that goes from owner to owner.
	leaseGiveUp = 10 * leaseWatch
	// leaseSettle is the time after which a taker reads the lease again: of two hosts that take it at once, one finds the other.
	leaseSettle = 200 * time.Millisecond
	maxLease    = 4 << 10
)

// States of a lease. Both have four letters, so that a lease keeps its length.
const (
	leaseHeld = "held"
	leaseFree = "free"
)

// diskLease is what the file says. A file that cannot be read as a lease is a zero value, whose owner is not known.
type diskLease struct {
	Version int    `json:"version"`
	Host    string `json:"host"`
	Name    string `json:"name"` // the host's, for people
	Boot    string `json:"boot"`
	Server  string `json:"server"`
	Epoch   int64  `json:"epoch"`
	Nonce   string `json:"nonce"` // tells two leases of one owner apart
	State   string `json:"state"`
	Counter string `json:"counter"` // 20 digits
}

// owner names the host, for errors.
func (l diskLease) owner() string {
	if l.Host == "" {
		return "an owner that is not known (the file cannot be read as a lease)"
	}
	return fmt.Sprintf("host %.64q (%.36s), boot %.64s, epoch %d", l.Name, l.Host, l.Boot, l.Epoch)
}

func (l diskLease) encode() []byte { return append(mustEncodeJSON(l), '\n') }

// raised is the lease with a higher counter and the given state. Its text has the same length.
func (l diskLease) raised(state string) diskLease {
	n, _ := strconv.ParseUint(l.Counter, 10, 64) // as parseLease has read it
	l.Counter, l.State = fmt.Sprintf("%020d", n+1), state
	return l
}

func parseLease(raw []byte) (diskLease, bool) {
	var l diskLease
	if json.Unmarshal(raw, &l) != nil || l.Version != 1 || l.Host == "" || l.Nonce == "" || l.State != leaseHeld && l.State != leaseFree || len(l.Counter) != 20 {
		return diskLease{}, false
	}
	return l, true
}

// openLease opens a lease file, which must be a regular file and no link.
func openLease(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, problem.Conflictf("%s is no regular file; remove it", path)
	}
	return f, nil
}

// readLease reads a lease and its bytes. A reader may meet a renewal half way, so it looks again before it says that it is none.
func readLease(path string) (l diskLease, raw []byte, err error) {
	for range 3 {
		f, err := openLease(path, os.O_RDONLY)
		if err != nil {
			return diskLease{}, nil, err
		}
		raw, err = io.ReadAll(io.LimitReader(f, maxLease))
		f.Close()
		if err != nil {
			return diskLease{}, nil, err
		}
		if l, whole := parseLease(raw); whole {
			return l, raw, nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return diskLease{}, raw, nil
}

// heldLease is a lease of this host, with the file in which it is renewed.
type heldLease struct {
	path          string
	server, nonce string
	store         *diskStore

	mu     sync.Mutex
	file   leaseFile
	lease  diskLease
	closed bool
	freed  bool // by this host
}

// leaseFile is the open file of a lease: an *os.File.
type leaseFile interface {
	io.WriterAt
	io.Closer
	Sync() error
}

// write raises the counter in the file that was opened when the lease was taken. A lease that was freed stays free: a renewal that began
// before must not take it from the next owner.
func (h *heldLease) write(state string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.freed && state == leaseHeld {
		return os.ErrClosed
	}
	next := h.lease.raised(state)
	if _, err := h.file.WriteAt(next.encode(), 0); err != nil {
		return err
	}
	h.lease, h.freed = next, state == leaseFree
	return h.file.Sync()
}

// wrote tells whether l is the lease that was written last.
func (h *heldLease) wrote(l diskLease) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease == l
}

// replaceFile continues the renewal of the lease l in another file. false: the lease is closed or was freed.
func (h *heldLease) replaceFile(f *os.File, l diskLease) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.freed {
		return false
	}
	_ = h.file.Close()
	h.file, h.lease = f, l
	return true
}

func (h *heldLease) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	_ = h.file.Close()
}

// leaseSight is what a lease said, and since when it says so, in the machine's alive time.
type leaseSight struct {
	raw   string
	since time.Duration
	at    time.Duration
}

// diskLeases are the leases of this host, and what it saw of others.
type diskLeases struct {
	agent        *Agent
	every, watch time.Duration
	poll, settle time.Duration
	wakeup       chan struct{}

	mu    sync.Mutex
	held  map[string]*heldLease // by path
	sight map[string]leaseSight // by path
	// arriving are servers whose guests come by a live migration: the source has their leases.
	arriving map[string]bool
	// lost are servers whose lease another host took, until their guests are ended here.
	lost map[string]diskLease
	// former are disks of guests that were off when this agent began, whose leases of former boots are freed, and of guests that ended
	// while their lease could not be freed.
	former map[string]formerLease
	listed bool
	// busy are the stores in which a round goes on.
	busy       map[*diskStore]bool
	lastWarned time.Time
}

type formerLease struct {
	server string
	store  *diskStore
}

func newDiskLeases(a *Agent) *diskLeases {
	return &diskLeases{agent: a, every: leaseRenewEvery, watch: leaseWatch, poll: leasePoll, settle: leaseSettle, wakeup: make(chan struct{}, 1),
		held: map[string]*heldLease{}, sight: map[string]leaseSight{}, arriving: map[string]bool{}, lost: map[string]diskLease{}, former: map[string]formerLease{},
		busy: map[*diskStore]bool{}}
}

// storeOf is the shared store in which a file lies; nil: none, and the file has no lease.
func (d *diskLeases) storeOf(path string) *diskStore {
	for _, s := range d.agent.stores {
		if s.Shared && strings.HasPrefix(path, s.Dir+"/") {
			return s
		}
	}
	return nil
}

func (d *diskLeases) mine(l diskLease) bool {
	return l.Host == d.agent.identity.id && l.Boot == d.agent.boot
}

// owns tells whether the lease at path, which says l, is this host's.
func (d *diskLeases) owns(path string, l diskLease) bool {
	h := d.heldAt(path)
	return d.mine(l) || h != nil && h.nonce == l.Nonce
}

// unchanged tells for how long a lease has said the same, and whether its owner was seen to renew it since the last look.
func (d *diskLeases) unchanged(path string, l diskLease, raw []byte) (age time.Duration, renewed bool, err error) {
	now, err := d.agent.Alive()
	if err != nil {
		return 0, false, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	last, known := d.sight[path]
	if known && last.raw == string(raw) {
		last.at = now
		d.sight[path] = last
		return now - last.since, false, nil
	}
	d.sight[path] = leaseSight{raw: string(raw), since: now, at: now}
	before, _ := parseLease([]byte(last.raw))
	return 0, known && (before.Nonce == l.Nonce || l.Nonce == ""), nil
}

// setArriving notes that the guest of a server comes by a live migration, or that it came, or does not come any more.
func (d *diskLeases) setArriving(server string, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if delete(d.arriving, server); on {
		d.arriving[server] = true
	}
}

func (d *diskLeases) heldAt(path string) *heldLease {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held[path]
}

// look reads a lease within the store's bound.
func (d *diskLeases) look(ctx context.Context, s *diskStore, path string) (diskLease, []byte, error) {
	type sight struct {
		l   diskLease
		raw []byte
	}
	got, err := withStoreTimeout(ctx, s, func() (sight, error) {
		l, raw, err := readLease(path)
		return sight{l, raw}, err
	})
	return got.l, got.raw, err
}

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
	s := d.storeOf(path)
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
