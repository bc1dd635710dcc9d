package metal

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Refusals are the heartbeats of one boot that were refused.
type Refusals struct {
	RefusedBoot int64
	// Refused counts heartbeats that had the token of the boot; RefusedAt and RefusedReason are of the last of them.
	Refused       int
	RefusedAt     time.Time
	RefusedReason string
	// Unproven counts heartbeats and findings without that token. Anybody can send such, so nothing that they say is stored.
	Unproven int
}

// maxRefusedReason bounds how many bytes of a refusal's reason are stored.
const maxRefusedReason = 500

// maxRefusedNodes bounds the nodes whose refusals wait to be written; maxUnprovenNodes those of which only unproven ones came.
const (
	maxRefusedNodes  = 1000
	maxUnprovenNodes = 100
)

// refusedHeartbeats counts refused heartbeats until they are written together.
type refusedHeartbeats struct {
	mu    sync.Mutex
	nodes map[string]Refusals
}

// add counts one refused heartbeat. With a reason it had the token of the boot. Boot 0 means the present boot, whichever that is.
func (r *refusedHeartbeats) add(nodeID string, boot int64, reason string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nodes == nil {
		r.nodes = map[string]Refusals{}
	}
	was, known := r.nodes[nodeID]
	switch {
	case !known && (len(r.nodes) >= maxRefusedNodes || reason == "" && len(r.nodes) >= maxUnprovenNodes):
		return
	case was.RefusedBoot == 0 || boot > was.RefusedBoot:
		if was.RefusedBoot != 0 {
			was = Refusals{}
		}
		was.RefusedBoot = boot
	}
	if reason == "" {
		was.Unproven++
	} else {
		was.Refused, was.RefusedAt, was.RefusedReason = was.Refused+1, at, reason
	}
	r.nodes[nodeID] = was
}

func (r *refusedHeartbeats) take() map[string]Refusals {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.nodes
	r.nodes = nil
	return taken
}

// refuse counts a heartbeat that had the token of the node's boot, if the error is a refusal. It returns the error.
func (s *Nodes) refuse(n *Node, err error) error {
	if problem.Is(err, problem.Invalid) {
		s.refused.add(n.ID, n.BootNumber, problem.Abridge(err.Error(), maxRefusedReason), s.now())
	}
	return err
}

// RefuseTokenless counts a heartbeat without a token for a node named by UUID, and returns the refusal. It reads no row.
func (s *Nodes) RefuseTokenless(ident string) error {
	if record.IsUUID(ident) {
		s.refused.add(strings.ToLower(ident), 0, "", time.Time{})
	}
	return errNoToken
}

// flushRefused writes the counts of refused heartbeats in one transaction. Counts that cannot be written are lost.
func (s *Nodes) flushRefused(ctx context.Context) error {
	counts := s.refused.take()
	if len(counts) == 0 {
		return nil
	}
	for id, c := range counts {
		if c.RefusedBoot != 0 {
			continue
		}
		n, err := s.store.Node(ctx, nil, id)
		if problem.Is(err, problem.NotFound) {
			delete(counts, id)
			continue
		}
		if err != nil {
			return err
		}
		c.RefusedBoot = n.BootNumber
		counts[id] = c
	}
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		for _, id := range slices.Sorted(maps.Keys(counts)) {
			if err := s.store.SaveRefusals(tx, id, counts[id]); err != nil {
				return err
			}
		}
		return nil
	})
}

// RefusedWords tells of the refused heartbeats and findings of a boot; empty if there were none.
func (r Refusals) RefusedWords(boot int64) string {
	if r.RefusedBoot != boot || boot == 0 {
		return ""
	}
	var text []string
	if r.Refused > 0 {
		text = append(text, fmt.Sprintf("%s refused, the last one because: %s", formatCountWere(r.Refused, "heartbeat"), r.RefusedReason))
	}
	if r.Unproven > 0 {
		text = append(text, fmt.Sprintf("%s refused because the token of this boot was missing or wrong (anybody can send such)", formatCountWere(r.Unproven, "call")))
	}
	return strings.Join(text, "; ")
}

func formatCountWere(n int, what string) string {
	if n == 1 {
		return "1 " + what + " was"
	}
	return fmt.Sprintf("%d %ss were", n, what)
}
