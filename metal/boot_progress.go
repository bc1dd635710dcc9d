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

// BootProgress is what was seen of a machine that boots; a zero time: nothing new.
type BootProgress struct {
	DHCPAt, BootAt     time.Time
	DHCPWord, BootWord string
}

// pendingBootProgress keeps what was seen of machines until it is written together: packets must not cost a commit each.
type pendingBootProgress struct {
	mu   sync.Mutex
	last map[string]BootProgress
}

// FetchWord begins what netboot says of a machine that fetches a file; all else was DHCP.
const FetchWord = "fetching "

// RecordBootProgress takes a word of netboot about a machine that boots. It reaches the store within a second or two.
func (s *Nodes) RecordBootProgress(nodeID, what string) {
	s.sightings.mu.Lock()
	defer s.sightings.mu.Unlock()
	if s.sightings.last == nil {
		s.sightings.last = map[string]BootProgress{}
	}
	progress := s.sightings.last[nodeID]
	if strings.HasPrefix(what, FetchWord) {
		progress.BootAt, progress.BootWord = s.now(), what
	} else {
		progress.DHCPAt, progress.DHCPWord = s.now(), what
	}
	s.sightings.last[nodeID] = progress
}

func (g *pendingBootProgress) take() map[string]BootProgress {
	g.mu.Lock()
	defer g.mu.Unlock()
	taken := g.last
	g.last = nil
	return taken
}

// requeue keeps what could not be written, unless something newer was seen.
func (g *pendingBootProgress) requeue(old map[string]BootProgress) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, newer := range g.last {
		progress := old[id]
		if !newer.DHCPAt.IsZero() {
			progress.DHCPAt, progress.DHCPWord = newer.DHCPAt, newer.DHCPWord
		}
		if !newer.BootAt.IsZero() {
			progress.BootAt, progress.BootWord = newer.BootAt, newer.BootWord
		}
		old[id] = progress
	}
	g.last = old
}

// FlushSeen writes what was seen since the last time, all in one transaction.
func (s *Nodes) FlushSeen(ctx context.Context) error {
	progress := s.sightings.take()
	if len(progress) == 0 {
		return nil
	}
	err := s.jobs.Do(ctx, func(tx job.Tx) error {
		for _, id := range slices.Sorted(maps.Keys(progress)) {
			if err := s.store.SaveSeen(tx, id, progress[id]); err != nil && !problem.Is(err, problem.NotFound) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.sightings.requeue(progress)
	}
	return err
}

// RunSeen writes once a second what was seen, until ctx ends, and the last of it then. onError is told of what could not be
// written, which is tried again.
func (s *Nodes) RunSeen(ctx context.Context, onError func(error)) {
	keepFlushing(ctx, s.FlushSeen, onError)
}
