package host

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

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
	nonce string // of the newest text that could be read as a lease
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
	nonce := cmp.Or(l.Nonce, last.nonce) // a lease that is read amid a write tells none
	d.sight[path] = leaseSight{raw: string(raw), nonce: nonce, since: now, at: now}
	return 0, known && nonce == last.nonce, nil
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
