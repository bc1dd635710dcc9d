package metal

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"salvor/job"
	"salvor/problem"
)

// flushEvery is how late the time of a heartbeat that said nothing new may reach the store.
const flushEvery = time.Second

// heard keeps the times of heartbeats that changed nothing until they are written
// together: a fleet that only says it lives must not cost a commit a word.
type heard struct {
	mu    sync.Mutex
	times map[string]lastBeat
}

type lastBeat struct {
	boot int64
	at   time.Time
}

func (h *heard) put(nodeID string, b lastBeat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.times == nil {
		h.times = map[string]lastBeat{}
	}
	h.times[nodeID] = b
}

func (h *heard) take() map[string]lastBeat {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.times
	h.times = nil
	return taken
}

// putBack keeps what could not be written, unless something newer came.
func (h *heard) putBack(times map[string]lastBeat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.Copy(times, h.times)
	h.times = times
}

// nothingNew tells whether a heartbeat only says that its agent still lives.
func nothingNew(n *Node, c Contact, h Heartbeat) bool {
	switch n.ProvisionState {
	case RescueWait:
		if !n.Maintenance || n.Fault != "" {
			return false
		}
		// A rescue waits for the end of maintenance first, whatever its ramdisk says meanwhile.
	case CleanWait, DeployWait, InspectWait, ServiceWait:
		return false // somebody waits for it
	case Cleaning, Deploying, Servicing:
		if n.Reservation != "" {
			return false // somebody may be about to: an agent's command can end before its giver waits for that
		}
	}
	return c.AgentBoot == n.BootNumber && strings.EqualFold(c.AgentURL, h.URL) && c.AgentVersion == h.Version && c.AgentCA == h.CA &&
		c.AgentStatus == h.Status && c.AgentStatusMessage == h.StatusMessage
}

// RunHeartbeats writes the times of heartbeats once a second until ctx ends, and the last of them then.
// An error is no end: the times are kept for the next turn. onError is told of it.
func (s *Nodes) RunHeartbeats(ctx context.Context, onError func(error)) {
	turn := time.NewTicker(flushEvery)
	defer turn.Stop()
	for {
		select {
		case <-ctx.Done():
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushEvery)
			defer cancel()
			if err := s.FlushHeartbeats(bounded); err != nil {
				onError(err)
			}
			return
		case <-turn.C:
		}
		if err := s.FlushHeartbeats(ctx); err != nil && ctx.Err() == nil {
			onError(err)
		}
	}
}

// FlushHeartbeats writes the times of heartbeats that said nothing new, all in one transaction.
func (s *Nodes) FlushHeartbeats(ctx context.Context) error {
	times := s.heard.take()
	if len(times) == 0 {
		return nil
	}
	err := s.jobs.Do(ctx, func(tx job.Tx) error {
		for _, id := range slices.Sorted(maps.Keys(times)) {
			if err := s.writeBeat(ctx, tx, id, times[id]); err != nil && !problem.Is(err, problem.NotFound) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.heard.putBack(times)
	}
	return err
}

// writeBeat leaves alone what a newer heartbeat, or a newer boot, has written.
func (s *Nodes) writeBeat(ctx context.Context, tx job.Tx, nodeID string, b lastBeat) error {
	c, err := s.store.Contact(ctx, tx, nodeID) // which goes with its node
	if err != nil || c.AgentBoot != b.boot || !c.HeartbeatAt.Before(b.at) {
		return err
	}
	c.HeartbeatAt = b.at
	return s.store.SaveContact(tx, c)
}
