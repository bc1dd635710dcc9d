package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

const (
	// maxCleans bounds how many clean-ups a host is told at once; the next ones are told when those are done.
	maxCleans = 64
	// maxStrays bounds how many are kept in the host's row.
	maxStrays = 100
	// settledAfter is how old the last change of a server must be before a guest of it that should not be there is one to ask about:
	// what a host tells of its guests may be older.
	settledAfter = time.Minute
)

// hostCleanup tells hosts what to remove of servers that moved away, and notes what they removed.
type hostCleanup struct {
	*serviceCore
	cache   *hostCache
	hosts   *Hosts
	reports *GuestReports
}

// cleanUps tells a host that holds its lease what it has of servers that it lost. here are the servers that should be on it, where it
// told its guests. isSource tells whether moves from the host go on, or left something behind.
func (s *hostCleanup) cleanUps(ctx context.Context, hostID string, r compute.Renewal, isSource bool, here map[string]compute.WantedServer) (out map[string]compute.Clean, err error) {
	out = map[string]compute.Clean{}
	if isSource {
		if out, err = s.owed(ctx, hostID); err != nil {
			return nil, err
		}
	}
	if r.HasGuests {
		staying := make(map[string]bool, len(here))
		for id := range here {
			staying[id] = true
		}
		err = s.judgeStrays(ctx, hostID, oursOf(r.Guests), staying, out)
	}
	return out, err
}

// owed lists what the records of moves say that a host has to do with servers that it lost.
func (s *hostCleanup) owed(ctx context.Context, hostID string) (map[string]compute.Clean, error) {
	out := map[string]compute.Clean{}
	done, err := s.store.Moves().List(ctx, nil, compute.MoveFilter{SourceID: hostID, Uncleaned: true}, pageOf(maxCleans))
	if err != nil {
		return nil, err
	}
	var source *compute.Host
	if len(done) > 0 {
		if source, err = s.store.Hosts().Get(ctx, nil, hostID); err != nil {
			return nil, err
		}
	}
	var hosts []*compute.Host
	if slices.ContainsFunc(done, func(m *compute.Move) bool { return m.Clean == compute.CleanDisk }) {
		if hosts, err = s.store.Hosts().List(ctx, nil, compute.HostFilter{WithLost: true}, record.Page{}); err != nil {
			return nil, err
		}
	}
	for _, m := range done {
		c, err := s.verdict(ctx, source, m, hosts)
		if err == nil && c != nil {
			out[m.ServerID], err = s.limitToIncarnation(ctx, m, *c)
		}
		if err != nil {
			return nil, err
		}
	}
	going, err := s.store.Moves().List(ctx, nil, compute.MoveFilter{SourceID: hostID, Open: true}, pageOf(0))
	if err != nil {
		return nil, err
	}
	for _, m := range going {
		out[m.ServerID] = compute.Clean{Do: compute.CleanWait, Epoch: m.Epoch}
		// The epoch is below the one of the end of the move, so that this answers not for that.
		if epoch := m.SourceEpoch + 1; m.ReceiptID != "" && m.State == compute.MoveAttached && epoch < m.Epoch {
			// There is no way back, and its guest here must not run beside the new one; its disks may still be asked for.
			c := compute.Clean{Do: compute.CleanGuest, Epoch: epoch, Spec: &compute.Spec{ServerID: m.ServerID, Epoch: epoch}}
			if out[m.ServerID], err = s.limitToIncarnation(ctx, m, c); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// limitToIncarnation limits a clean-up to guests of the incarnation that gave the move its epochs. A move of a former incarnation proves
// nothing about guests of another one, or about guests that the lost history started on the host again. An operator decides about those.
func (s *hostCleanup) limitToIncarnation(ctx context.Context, m *compute.Move, c compute.Clean) (compute.Clean, error) {
	if m.Incarnation == "" {
		return c, nil
	}
	c.Epoch, c.Incarnation = min(c.Epoch, m.Epoch), m.Incarnation
	reports, err := s.store.GuestReports(ctx, nil, compute.GuestReportFilter{HostID: m.SourceID, ServerID: m.ServerID})
	if err != nil {
		return c, err
	}
	for _, g := range reports {
		if g.Incarnation != m.Incarnation || g.Epoch >= c.Epoch {
			text := fmt.Sprintf("a guest of server %[1]s on host %[2]s is not what move %[3]s left there: it is not ended. If it may go, switch it off and run on that host: virsh undefine %[1]s; its disks stay",
				m.ServerID, m.SourceID, m.ID)
			return compute.Clean{Do: compute.CleanAsk}, s.noteOnce(ctx, m.SourceID, m.ServerID, c.Epoch, text)
		}
	}
	return c, nil
}

// verdict is what the source of a finished move does with what it has of the server; nil: nothing, for the server is there again. hosts
// are all that may have a disk store of the source.
func (s *hostCleanup) verdict(ctx context.Context, source *compute.Host, m *compute.Move, hosts []*compute.Host) (*compute.Clean, error) {
	out := &compute.Clean{Do: m.Clean, Epoch: m.Epoch, Spec: &compute.Spec{ServerID: m.ServerID, Epoch: m.Epoch}}
	if out.Do == "" {
		out.Do = compute.CleanGuest
	}
	srv, err := s.store.Servers().Get(ctx, nil, m.ServerID)
	if problem.Is(err, problem.NotFound) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	if srv.HostID == source.ID && srv.State != compute.Deleted {
		return nil, s.endMove(ctx, m, func(now *compute.Move) { now.State = compute.MoveCompleted }, "")
	}
	out.Epoch = max(m.Epoch, srv.Epoch)
	if srv.State == compute.Deleted { // nobody wants its disk; the host that had it last removes its own
		hosts = slices.DeleteFunc(slices.Clone(hosts), func(h *compute.Host) bool { return h.ID != srv.HostID })
		out.Erase = m.Disposition != compute.Reimage // the owner of a server that was re-imaged has deleted another disk than this one
	}
	out.Spec, err = buildCleanupSpec(srv, source, hosts, out.Do == compute.CleanDisk)
	return out, err
}

// buildCleanupSpec is a server as its former host must know it to remove it: of its disks only those that go, which lie in stores of the source.
// A store that one of seers has as well may hold the disk that the server lives on, or its data: whatever the record says, that one
// stays.
func buildCleanupSpec(srv *compute.Server, source *compute.Host, seers []*compute.Host, disks bool) (*compute.Spec, error) {
	was := *srv
	was.HostID, was.Rescue, was.Disks = source.ID, nil, nil
	for _, d := range srv.Disks {
		if !disks || d.VolumeID != "" {
			continue
		}
		store := source.StoreNamed(d.Store)
		if store == nil {
			store = source.StoreNamed("") // the destination's has another name
		}
		if store == nil || compute.HostWithStore(seers, source, store.Marker) != nil {
			continue
		}
		d.Store, d.ImageID = store.Name, ""
		was.Disks = append(was.Disks, d)
	}
	b, err := compute.SpecOf(&was, &compute.ServerParts{})
	if err != nil {
		return nil, err
	}
	return &b.Spec, nil
}

// applyCleanup ends the moves whose sources have cleaned up. What could not be done is noted once, and told again.
func (s *hostCleanup) applyCleanup(ctx context.Context, hostID string, cleaned []compute.Cleaned) error {
	for _, c := range cleaned {
		if !record.IsUUID(c.ServerID) {
			continue
		}
		if c.Error == "" {
			if err := s.dropCleaned(ctx, hostID, c); err != nil {
				return err
			}
		}
		found, err := s.store.Moves().List(ctx, nil, compute.MoveFilter{SourceID: hostID, ServerID: c.ServerID, Uncleaned: true}, pageOf(0))
		if err != nil {
			return err
		}
		for _, m := range found {
			former, rest, _ := strings.Cut(m.Problem, compute.NotCleanedUp)
			why := oneLine(c.Error)
			if m.Epoch > c.Epoch || why != "" && rest == why {
				continue
			}
			text := "cleaned up what it had of server " + m.ServerID
			if why != "" {
				text = "could not clean up what it has of server " + m.ServerID + ": " + why
			}
			if err := s.endMove(ctx, m, func(now *compute.Move) {
				if now.Problem = former; why != "" {
					now.Problem += compute.NotCleanedUp + why
				} else {
					now.State = compute.MoveCompleted
				}
			}, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropCleaned drops the report of a guest that was cleaned up: the list that told it may be from before that. A clean-up ends no guest
// of its own epoch or a later one, so such a guest came after it.
func (s *hostCleanup) dropCleaned(ctx context.Context, hostID string, c compute.Cleaned) error {
	reports, err := s.store.GuestReports(ctx, nil, compute.GuestReportFilter{HostID: hostID, ServerID: strings.ToLower(c.ServerID)})
	if err != nil {
		return err
	}
	for _, g := range reports {
		if g.Epoch >= c.Epoch {
			continue
		}
		if err := s.jobs.Do(ctx, func(tx job.Tx) error { return s.store.DropGuestReport(tx, hostID, g.ServerID) }); err != nil {
			return err
		}
	}
	return nil
}

// endMove changes a move that is Done still, and says so on the timeline of its source.
func (s *hostCleanup) endMove(ctx context.Context, seen *compute.Move, change func(*compute.Move), text string) error {
	return s.change(ctx, func(tx job.Tx) error {
		m, err := s.store.Moves().Get(ctx, tx, seen.ID)
		if err != nil || m.State != compute.MoveDone {
			return ignoreNotFound(err)
		}
		change(m)
		if err := s.saveMove(tx, m); err != nil || text == "" {
			return err
		}
		e := job.Event{Subject: compute.HostSubject(m.SourceID), Type: "contact", Text: text, Severity: "info"}
		if m.State != compute.MoveCompleted {
			e.Severity = "warning"
		}
		return s.jobs.Append(tx, e)
	})
}

func (c *serviceCore) saveMove(tx job.Tx, m *compute.Move) error {
	return conflictToChanged(c.store.Moves().Save(tx, m))
}

// reviveCleanUps has moves cleaned up that came as far as their destination and failed there, where another move brought the server on:
// their source has what it had.
func (s *hostCleanup) reviveCleanUps(ctx context.Context, hostID string) error {
	failed, err := s.store.Moves().List(ctx, nil, compute.MoveFilter{SourceID: hostID, State: compute.MoveFailed}, pageOf(0))
	if err != nil {
		return err
	}
	for _, m := range failed {
		if m.Clean == "" {
			continue
		}
		srv, err := s.store.Servers().Get(ctx, nil, m.ServerID)
		if err != nil && !problem.Is(err, problem.NotFound) {
			return err
		}
		if err == nil && srv.HostID == hostID {
			continue
		}
		if err := s.change(ctx, func(tx job.Tx) error {
			now, err := s.store.Moves().Get(ctx, tx, m.ID)
			if err != nil || now.State != compute.MoveFailed {
				return ignoreNotFound(err)
			}
			now.State = compute.MoveDone
			return s.saveMove(tx, now)
		}); err != nil {
			return err
		}
	}
	return nil
}

// judgeStrays adds to what a host is told the guests with our mark that should not be there, and of which no record says more. They are
// kept with the host, and noted once.
func (s *hostCleanup) judgeStrays(ctx context.Context, hostID string, ours, staying map[string]bool, told map[string]compute.Clean) error {
	var strays []string
	for _, id := range slices.Sorted(maps.Keys(ours)) {
		if _, known := told[id]; known || staying[id] {
			continue
		}
		ask, err := s.isStray(ctx, hostID, id)
		if err != nil {
			return err
		}
		switch {
		case ask == nil:
			continue
		case ask.Do == compute.CleanGuest:
			text := fmt.Sprintf("a former guest of server %s runs on host %s, below epoch %d: it is ended there, its disks stay", id, hostID, ask.Epoch)
			if err := s.noteOnce(ctx, hostID, id, ask.Epoch, text); err != nil {
				return err
			}
		}
		told[id], strays = *ask, append(strays, id)
	}
	if strays = strays[:min(len(strays), maxStrays)]; ours == nil || slices.Equal(strays, s.cache.get(hostID).strays) {
		return nil
	}
	_, err := s.hosts.edit(ctx, hostID, func(tx job.Tx, h *compute.Host) error {
		for _, id := range strays {
			if slices.Contains(h.Strays, id) {
				continue
			}
			e := job.Event{Subject: compute.HostSubject(hostID), Type: "contact", Severity: "warning",
				Text: "guest " + compute.TruncateText(id) + " is marked as ours, and no record says what it does here: it is left alone, an operator must say"}
			if err := s.jobs.Append(tx, e); err != nil {
				return err
			}
		}
		h.Strays = strays
		return nil
	})
	return err
}

// isStray looks for the server of a guest; nil: what the host told may be older than what happened.
func (s *hostCleanup) isStray(ctx context.Context, hostID, id string) (*compute.Clean, error) {
	if !record.IsUUID(id) {
		return &compute.Clean{Do: compute.CleanAsk}, nil
	}
	srv, err := s.store.Servers().Get(ctx, nil, id)
	switch {
	case problem.Is(err, problem.NotFound):
		return &compute.Clean{Do: compute.CleanAsk}, nil
	case err != nil:
		return nil, err
	}
	if stale, err := s.reports.staleGuest(ctx, hostID, srv); err != nil || stale != nil {
		return stale, err
	}
	switch {
	case s.now().Sub(srv.UpdatedAt) < settledAfter, s.now().Sub(srv.CreatedAt) < settledAfter, srv.Task == compute.Migrating, srv.HostID == hostID && srv.State != compute.Deleted:
		return nil, nil
	}
	return &compute.Clean{Do: compute.CleanAsk, Epoch: srv.Epoch}, nil
}
