package metal

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// flushEvery is how late the time of a heartbeat that said nothing new may reach the store.
const flushEvery = time.Second

// flushMost bounds how many times are written in one transaction, so that nobody, a rescue least of all, waits long for the writer.
const flushMost = 250

// provenMost bounds the heartbeats that are remembered; past it all are forgotten, and each is looked at in full once more.
const provenMost = 1 << 18

// pendingHeartbeats keeps the times of heartbeats that changed nothing until they are written
// together: a fleet that only says it lives must not cost a commit a word. It also
// remembers whose heartbeats these were, so that the next need not be proved anew.
type pendingHeartbeats struct {
	mu     sync.Mutex
	times  map[string]lastHeartbeat
	proven map[string]agentTokenProof
}

type lastHeartbeat struct {
	boot int64
	at   time.Time
}

// agentTokenProof is that a node, as long as its row has this version, takes heartbeats with this token, and nobody waits for one.
type agentTokenProof struct {
	version, boot int64
	group         string
	token         string // digest
}

func (h *pendingHeartbeats) prove(nodeID string, p agentTokenProof) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.proven == nil || len(h.proven) >= provenMost {
		h.proven = map[string]agentTokenProof{}
	}
	h.proven[nodeID] = p
}

func (h *pendingHeartbeats) proofOf(nodeID string) (agentTokenProof, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.proven[nodeID]
	return p, ok
}

func (h *pendingHeartbeats) put(nodeID string, b lastHeartbeat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.times == nil {
		h.times = map[string]lastHeartbeat{}
	}
	h.times[nodeID] = b
}

func (h *pendingHeartbeats) take() map[string]lastHeartbeat {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.times
	h.times = nil
	return taken
}

// requeue keeps what could not be written, unless something newer came.
func (h *pendingHeartbeats) requeue(times map[string]lastHeartbeat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.Copy(times, h.times)
	h.times = times
}

// isUnchanged tells whether a heartbeat only says that its agent still lives.
func isUnchanged(n *Node, c Contact, h Heartbeat) bool {
	return !awaitsCallback(n) && c.says(n.BootNumber, h)
}

// awaitsCallback tells whether somebody may wait for the next heartbeat of a node.
func awaitsCallback(n *Node) bool {
	switch info := n.ProvisionState.Info(); {
	case n.ProvisionState == RescueWait:
		// A rescue waits for the end of maintenance first, whatever its ramdisk says meanwhile.
		return !n.Maintenance || n.Fault != ""
	case info.Phase == WaitsForRamdisk:
		return true
	case info.Steps:
		return n.Reservation != "" // somebody may be about to: an agent's command can end before its giver waits for that
	}
	return false
}

// says tells whether the agent of this boot has said the same before.
func (c Contact) says(boot int64, h Heartbeat) bool {
	return c.AgentBoot == boot && strings.EqualFold(c.AgentURL, h.URL) && c.AgentVersion == h.Version && c.AgentCA == h.CA &&
		c.AgentStatus == h.Status && c.AgentStatusMessage == h.StatusMessage
}

// RunHeartbeats writes the times of heartbeats once a second until ctx ends, and the last of them then.
// An error is no end: the times are kept for the next turn. onError is told of it.
func (s *Nodes) RunHeartbeats(ctx context.Context, onError func(error)) {
	keepFlushing(ctx, s.FlushHeartbeats, onError)
}

// keepFlushing writes once a second until ctx ends, and once more then; what fails is told, and in the next turn again.
func keepFlushing(ctx context.Context, flush func(context.Context) error, onError func(error)) {
	turn := time.NewTicker(flushEvery)
	defer turn.Stop()
	for {
		select {
		case <-ctx.Done():
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushEvery)
			defer cancel()
			if err := flush(bounded); err != nil {
				onError(err)
			}
			return
		case <-turn.C:
		}
		if err := flush(ctx); err != nil && ctx.Err() == nil {
			onError(err)
		}
	}
}

// RepeatedHeartbeat takes a heartbeat that says what one before has said to the same node, unchanged since, and tells whether
// it was such: nearly all are, and they cost one narrow look at the rows. All others are HeartbeatOf's to judge.
func (s *Nodes) RepeatedHeartbeat(ctx context.Context, nodeID string, h Heartbeat) (bool, error) {
	p, ok := s.heartbeats.proofOf(nodeID)
	if !ok || p.token != h.Token.Digest() || !(&Node{ConductorGroup: p.group}).within(ctx) {
		return false, nil
	}
	version, c, err := s.store.AgentContact(ctx, nodeID)
	if err != nil || version != p.version || !c.says(p.boot, h) {
		return false, err
	}
	s.heartbeats.put(nodeID, lastHeartbeat{p.boot, s.now()})
	return true, nil
}

// touchHeartbeat keeps the time of a heartbeat that says nothing new.
func (s *Nodes) touchHeartbeat(n *Node, h Heartbeat) {
	s.heartbeats.put(n.ID, lastHeartbeat{n.BootNumber, s.now()})
	if !h.Token.Empty() && !n.ProvisionState.Info().Steps {
		s.heartbeats.prove(n.ID, agentTokenProof{n.Version, n.BootNumber, n.ConductorGroup, h.Token.Digest()})
	}
}

// FlushHeartbeats writes the times of heartbeats that said nothing new, many in one transaction, and the counts of refused ones.
func (s *Nodes) FlushHeartbeats(ctx context.Context) error {
	times := s.heartbeats.take()
	var beats []HeartbeatTime
	for _, id := range slices.Sorted(maps.Keys(times)) {
		beats = append(beats, HeartbeatTime{NodeID: id, Boot: times[id].boot, At: times[id].at})
	}
	for some := range slices.Chunk(beats, flushMost) {
		if err := s.store.SaveHeartbeats(ctx, some); err != nil {
			s.heartbeats.requeue(times)
			return err
		}
	}
	return s.flushRefused(ctx)
}
