package service

import (
	"context"
	"sync"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// orphanLook is how often a process looks for disks whose host does not come back.
const orphanLook = 30 * time.Second

// orphanedDisks has hosts put the disks of deleted servers into quarantine that lie in a shared store, and whose own host is gone: it was fenced, or
// removed as lost. One host that sees the store does that.
type orphanedDisks struct {
	*serviceCore
	liveness *Liveness

	mu       sync.Mutex
	lookedAt time.Time
	// tasks are what each host is told, by host and server. done are the moves whose shared disks are gone, and whose source has other disks.
	tasks map[string]map[string]orphanTask
	done  map[string]bool
}

type orphanTask struct {
	clean  compute.Clean
	moveID string
	// all: the server had no disk that only its source sees.
	all bool
}

// add adds to what a host is told the disks that it puts into quarantine. What it is to do with a server of its own comes first.
func (s *orphanedDisks) add(ctx context.Context, hostID string, flags hostFlags, told map[string]compute.Clean) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := s.now().Sub(s.lookedAt); age < 0 || age >= orphanLook {
		tasks, err := s.look(ctx, flags)
		if err != nil {
			return err
		}
		s.tasks, s.lookedAt = tasks, s.now()
	}
	for id, task := range s.tasks[hostID] {
		if _, other := told[id]; !other {
			told[id] = task.clean
		}
	}
	return nil
}

// look finds the disks, and for each server the host that removes them.
func (s *orphanedDisks) look(ctx context.Context, flags hostFlags) (map[string]map[string]orphanTask, error) {
	if len(flags.sources) == 0 {
		return nil, nil
	}
	hosts, err := s.store.Hosts().List(ctx, nil, compute.HostFilter{WithLost: true}, record.Page{})
	if err != nil {
		return nil, err
	}
	live, err := s.liveness.snapshot(ctx, nil)
	if err != nil {
		return nil, err
	}
	tasks := map[string]map[string]orphanTask{}
	for _, source := range hosts {
		gone := flags.sources[source.ID] && !live.isUp(source)
		if gone {
			gone, err = s.isGone(ctx, source)
		}
		if err != nil {
			return nil, err
		}
		if !gone {
			continue
		}
		if err := s.addOrphansOf(ctx, source, hosts, live.isUp, tasks); err != nil {
			return nil, err
		}
	}
	return tasks, nil
}

// addOrphansOf adds the deleted servers that a host which is gone has left in shared stores, each to the tasks of one host.
func (s *orphanedDisks) addOrphansOf(ctx context.Context, source *compute.Host, hosts []*compute.Host, up func(*compute.Host) bool, tasks map[string]map[string]orphanTask) error {
	left, err := s.store.Moves().List(ctx, nil, compute.MoveFilter{SourceID: source.ID, Uncleaned: true}, record.Page{})
	if err != nil {
		return err
	}
	for _, m := range left {
		if m.Clean != compute.CleanDisk || m.Disposition == compute.Reimage || s.done[m.ID] {
			continue
		}
		srv, err := s.store.Servers().Get(ctx, nil, m.ServerID)
		switch {
		case problem.Is(err, problem.NotFound):
			continue
		case err != nil:
			return err
		case srv.State != compute.Deleted || srv.HostID != source.ID:
			continue
		}
		to, spec, all, err := orphansOf(srv, source, hosts, up)
		if err != nil {
			return err
		}
		if to == nil || len(tasks[to.ID]) >= maxCleans {
			continue
		}
		if tasks[to.ID] == nil {
			tasks[to.ID] = map[string]orphanTask{}
		}
		clean := compute.Clean{Do: compute.CleanOrphan, Epoch: max(m.Epoch, srv.Epoch), Spec: spec}
		tasks[to.ID][srv.ID] = orphanTask{clean, m.ID, all}
	}
	return nil
}

// isGone tells whether nothing of a silent host runs or writes any more: it was fenced, or an operator removed it as lost.
func (s *orphanedDisks) isGone(ctx context.Context, h *compute.Host) (bool, error) {
	if h.Kind != compute.AgentHost || !h.Fenced {
		return h.Kind == compute.AgentHost && h.Lost, nil
	}
	receipt, err := s.Receipt(ctx, nil, h.ID)
	if err != nil {
		return false, ignoreNotFound(err)
	}
	return receipt.Proves(), nil
}

// orphansOf gives a host that lives and sees the shared stores of the server's disks, and the server as that host must know it; nil: there is none. A
// server whose disks lie in several shared stores needs a host that sees all of them.
func orphansOf(srv *compute.Server, source *compute.Host, hosts []*compute.Host, up func(*compute.Host) bool) (to *compute.Host, spec *compute.Spec, all bool, err error) {
	was := *srv
	was.Rescue, was.Disks = nil, nil
	all = true
	for _, d := range srv.Disks {
		if d.VolumeID != "" {
			continue
		}
		if store := source.StoreNamed(d.Store); store == nil || !store.Shared || store.Marker == "" {
			all = false
			continue
		}
		d.ImageID = ""
		was.Disks = append(was.Disks, d)
	}
	if len(was.Disks) == 0 {
		return nil, nil, all, nil
	}
	for _, h := range hosts {
		if h.ID == source.ID || h.Kind != compute.AgentHost || h.Lost || h.Revoked || h.Fenced || h.ForcedDown || !up(h) {
			continue
		}
		there := was
		there.HostID = h.ID
		if there.Disks = disksInStoresOf(h, source, was.Disks); there.Disks == nil {
			continue
		}
		b, err := compute.SpecOf(&there, &compute.ServerParts{})
		if err != nil {
			return nil, nil, all, err
		}
		return h, &b.Spec, all, nil
	}
	return nil, nil, all, nil
}

// disksInStoresOf are disks of a server of the source with the names that a host has for their stores; nil: it does not see them all.
func disksInStoresOf(h, source *compute.Host, disks []compute.Disk) (out []compute.Disk) {
	for _, d := range disks {
		store := h.StoreOf(source.StoreNamed(d.Store).Marker)
		if store == nil || !store.Shared {
			return nil
		}
		d.Store = store.Name
		out = append(out, d)
	}
	return out
}

// cleaned takes in that a host has put disks into quarantine. The source, if it comes back, then has only its own part to remove.
func (s *orphanedDisks) cleaned(ctx context.Context, hostID string, c compute.Cleaned) error {
	s.mu.Lock()
	task, ok := s.tasks[hostID][c.ServerID]
	s.mu.Unlock()
	if !ok || c.Epoch != task.clean.Epoch || c.Error != "" {
		return nil // what could not be done is told again, and the agent's log has the reason
	}
	err := s.change(ctx, func(tx job.Tx) error {
		m, err := s.store.Moves().Get(ctx, tx, task.moveID)
		if err != nil || m.State != compute.MoveDone || m.Clean != compute.CleanDisk {
			return ignoreNotFound(err)
		}
		by, err := s.store.Hosts().Get(ctx, tx, hostID)
		if err != nil {
			return err
		}
		if task.all {
			m.Clean = compute.CleanGuest
		}
		if err := s.store.Moves().Save(tx, m); err != nil {
			return conflictToChanged(err)
		}
		return s.jobs.Append(tx, job.Event{Subject: compute.HostSubject(m.SourceID), Type: "contact", Severity: "info",
			Text: "host " + compute.OrID(by) + " has put the disks of server " + m.ServerID + " that lie in shared stores into quarantine: the server was deleted, and this host is gone"})
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tasks[hostID], c.ServerID)
	if s.done == nil {
		s.done = map[string]bool{}
	}
	s.done[task.moveID] = true
	return nil
}
