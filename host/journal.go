package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/durable"
	"salvor/problem"
)

// orderJournal remembers on disk, for each server, the highest epoch that an order of it had, and
// what came of its newest orders: an order that comes again gets the same answer and has no second effect.
type orderJournal struct {
	dir string
	mu  sync.Mutex
}

// serverJournal is the journal of one server.
type serverJournal struct {
	Epoch  int64          `json:"epoch"`
	Orders []journalEntry `json:"orders"` // oldest first
	// MemoryLost is the order that gives the guest's saved memory up, until the control plane is told: after the order nothing shows that there was any.
	MemoryLost *lostMemory `json:"memory_lost,omitempty"`
}

// lostMemory is an order that gives the saved memory of its guest up, and when it began to.
type lostMemory struct {
	Order string    `json:"order"`
	At    time.Time `json:"at"`
}

// journalEntry is one order. Without a result it was begun: whether it was done is to be seen.
type journalEntry struct {
	ID   string `json:"id"`
	Boot string `json:"boot"`
	// Began is when it was first seen, in the alive time of Boot.
	Began  time.Duration   `json:"began"`
	Result *compute.Result `json:"result,omitempty"`
}

const keptOrders = 32

func openJournal(dir string) (*orderJournal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return &orderJournal{dir: dir}, nil
}

// begin writes down that the order is about to be carried out. Where it was carried out in this boot already, its result is
// given back; an epoch below the highest seen is problem.Conflict. began is when the order was first seen in this boot.
func (j *orderJournal) begin(o *compute.Order, boot string, now time.Duration) (done *compute.Result, began time.Duration, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p, err := j.read(o.ServerID)
	if err != nil {
		return nil, 0, err
	}
	for i := range p.Orders {
		if e := &p.Orders[i]; e.ID == o.ID && e.Boot == boot {
			return e.Result, e.Began, nil
		}
	}
	if o.Epoch < p.Epoch {
		return nil, 0, problem.Conflictf("order %s for server %s is of epoch %d, but %d was seen here", o.ID, o.ServerID, o.Epoch, p.Epoch)
	}
	p.Epoch = o.Epoch
	// What an earlier boot did of it does not last: it is begun again.
	p.put(journalEntry{ID: o.ID, Boot: boot, Began: now})
	return nil, now, j.write(o.ServerID, p)
}

// raise has no order of an epoch below this one carried out any more. One of a later epoch was seen here: problem.Conflict.
func (j *orderJournal) raise(server string, epoch int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	p, err := j.read(server)
	switch {
	case err != nil:
		return err
	case p.Epoch > epoch:
		return problem.Conflictf("server %s: epoch %d was seen here, which is newer than %d", server, p.Epoch, epoch)
	case p.Epoch == epoch:
		return nil
	}
	p.Epoch = epoch
	return j.write(server, p)
}

// end writes the result down before anybody is told of it.
func (j *orderJournal) end(o *compute.Order, boot string, began time.Duration, r compute.Result) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	p, err := j.read(o.ServerID)
	if err != nil {
		return err
	}
	p.put(journalEntry{ID: o.ID, Boot: boot, Began: began, Result: &r})
	if p.MemoryLost != nil && p.MemoryLost.Order == o.ID {
		p.MemoryLost = nil // the result tells it
	}
	return j.write(o.ServerID, p)
}

// lostMemory is what is written down of the server's saved memory that was given up; nil: nothing.
func (j *orderJournal) lostMemory(server string) (*lostMemory, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p, err := j.read(server)
	if err != nil {
		return nil, err
	}
	return p.MemoryLost, nil
}

// setLostMemory writes down that the server's saved memory is about to be given up; nil: that was told, or the memory is there.
func (j *orderJournal) setLostMemory(server string, lost *lostMemory) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	p, err := j.read(server)
	if err != nil {
		return err
	}
	p.MemoryLost = lost
	return j.write(server, p)
}

func (p *serverJournal) put(e journalEntry) {
	remaining := p.Orders[:0]
	for _, o := range p.Orders {
		if o.ID != e.ID {
			remaining = append(remaining, o)
		}
	}
	p.Orders = append(remaining, e)
	if over := len(p.Orders) - keptOrders; over > 0 {
		p.Orders = p.Orders[over:]
	}
}

// stale tells whether a newer owner of the server has given an order meanwhile.
func (j *orderJournal) stale(o *compute.Order) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	p, err := j.read(o.ServerID)
	return err == nil && o.Epoch < p.Epoch
}

func (j *orderJournal) path(server string) string { return filepath.Join(j.dir, server+".json") }

func (j *orderJournal) read(server string) (*serverJournal, error) {
	if uuid.Validate(server) != nil || len(server) != 36 {
		return nil, problem.Invalidf("%.100q is no server's UUID", server)
	}
	b, err := os.ReadFile(j.path(server))
	if errors.Is(err, os.ErrNotExist) {
		return &serverJournal{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal of server %s: %w", server, err)
	}
	p := &serverJournal{}
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("journal of server %s: %w", server, err)
	}
	return p, nil
}

func (j *orderJournal) write(server string, p *serverJournal) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := durable.Write(j.path(server), b, 0o600); err != nil {
		return fmt.Errorf("journal of server %s: %w", server, err)
	}
	return nil
}

// prune removes what was not written to for so long.
func (j *orderJournal) prune(age time.Duration) error {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !strings.HasSuffix(e.Name(), ".json") || time.Since(info.ModTime()) < age {
			continue
		}
		j.mu.Lock()
		err = os.Remove(filepath.Join(j.dir, e.Name()))
		j.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
