package service

import (
	"context"
	"maps"
	"slices"
	"strings"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// maxIncarnation bounds the id of an incarnation that a host reports.
const maxIncarnation = 64

// GuestReports are what hosts report of guests: they hold what would start a second copy of a server.
type GuestReports struct {
	*serviceCore
	liveness *Liveness
}

// takeGuests keeps the list of guests that a host told, in place of the one before. Of a list that tells nothing new it writes nothing.
func (s *GuestReports) takeGuests(ctx context.Context, hostID, bootID string, guests []compute.Guest) error {
	known, err := s.store.GuestReports(ctx, nil, compute.GuestReportFilter{HostID: hostID})
	if err != nil {
		return err
	}
	before := make(map[string]compute.GuestReport, len(known))
	for _, g := range known {
		before[g.ServerID] = g
	}
	var fresh []compute.GuestReport
	for _, g := range guests {
		if !g.Ours || g.Power.ProvenOff() || !record.IsUUID(g.ID) {
			continue
		}
		now := compute.GuestReport{HostID: hostID, ServerID: strings.ToLower(g.ID), BootID: bootID, Epoch: g.Epoch, Power: g.Power}
		if len(g.Incarnation) <= maxIncarnation {
			now.Incarnation = g.Incarnation
		}
		was, told := before[now.ServerID]
		delete(before, now.ServerID)
		if now.SeenAt = was.SeenAt; told && now == was {
			continue
		}
		now.SeenAt = s.now()
		fresh = append(fresh, now)
	}
	if len(fresh) == 0 && len(before) == 0 {
		return nil
	}
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		for _, g := range fresh {
			if err := s.store.SaveGuestReport(tx, g); err != nil {
				return err
			}
		}
		for id := range before {
			if err := s.store.DropGuestReport(tx, hostID, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// TakeClusterGuests keeps the guests that a cluster told, by the id of the node that runs them. nodes are all of its nodes.
func (s *GuestReports) TakeClusterGuests(ctx context.Context, nodes []string, guests map[string][]compute.Guest) error {
	for _, id := range nodes {
		if err := s.takeGuests(ctx, id, "", guests[id]); err != nil {
			return err
		}
	}
	return nil
}

// answeredFor tells whether the open receipt of its host proves that a reported guest is off.
func (s *GuestReports) answeredFor(ctx context.Context, tx job.Tx, g compute.GuestReport) (bool, error) {
	r, err := s.Receipt(ctx, tx, g.HostID)
	if err != nil {
		return false, ignoreNotFound(err)
	}
	return r.AnswersFor(g), nil
}

// heldBy tells in words which guest holds a move of a server: one that any host or cluster tells, and that is not proven off. besides
// are the hosts where the server may run. Of the host that a receipt fenced only another boot counts here; of the fenced boot
// Receipt.Doubted tells. Empty: none.
func (s *GuestReports) heldBy(ctx context.Context, tx job.Tx, serverID string, receipt *compute.Receipt, besides ...string) (words string, hosts []string, err error) {
	reports, err := s.store.GuestReports(ctx, tx, compute.GuestReportFilter{ServerID: serverID})
	if err != nil {
		return "", nil, err
	}
	reports = slices.DeleteFunc(reports, func(g compute.GuestReport) bool {
		return slices.Contains(besides, g.HostID) || receipt != nil && receipt.HostID == g.HostID && receipt.BootID == g.BootID
	})
	return s.runsThere(ctx, tx, reports)
}

// runsThere describes the reported guests that are not proven off, and lists their hosts; empty: all guests are off.
func (s *GuestReports) runsThere(ctx context.Context, tx job.Tx, reports []compute.GuestReport) (string, []string, error) {
	var words, hosts []string
	for _, g := range reports {
		off, err := s.answeredFor(ctx, tx, g)
		if err != nil {
			return "", nil, err
		}
		if off {
			continue
		}
		h, err := s.store.Hosts().Get(ctx, tx, g.HostID)
		if problem.Is(err, problem.NotFound) {
			continue
		}
		if err != nil {
			return "", nil, err
		}
		words, hosts = append(words, g.Describe(h, s.Incarnation())), append(hosts, h.ID)
	}
	return strings.Join(words, "; "), hosts, nil
}

// moveEnds lists by server the hosts from or to which open planned moves of the filter bring it, but not the one that is left out. Until
// the move ends, its guest may be held on both sides.
func (c *serviceCore) moveEnds(ctx context.Context, tx job.Tx, f compute.MoveFilter, without string) (map[string][]string, error) {
	f.Open = true
	moves, err := c.store.Moves().List(ctx, tx, f, record.Page{})
	out := map[string][]string{}
	for _, m := range moves {
		for _, end := range []string{m.SourceID, m.DestID} {
			if m.IsPlanned() && end != "" && end != without {
				out[m.ServerID] = append(out[m.ServerID], end)
			}
		}
	}
	return out, err
}

// reportedElsewhere lists the guests of a host's servers that other hosts tell, but for those that a planned move holds at its other
// end: an evacuation ends such a guest before it attaches the server anywhere.
func (s *GuestReports) reportedElsewhere(ctx context.Context, hostID string) ([]compute.GuestReport, error) {
	reports, err := s.store.GuestReports(ctx, nil, compute.GuestReportFilter{OfHostID: hostID})
	if err != nil || len(reports) == 0 {
		return nil, err
	}
	ends, err := s.moveEnds(ctx, nil, compute.MoveFilter{HostID: hostID}, hostID)
	return slices.DeleteFunc(reports, func(g compute.GuestReport) bool {
		return g.Power != compute.PowerOn && slices.Contains(ends[g.ServerID], g.HostID)
	}), err
}

// elsewhere tells of the servers of a host, by server, which guest of theirs another host or another boot tells.
func (s *GuestReports) elsewhere(ctx context.Context, source *compute.Host) (map[string]string, error) {
	reports, err := s.reportedElsewhere(ctx, source.ID)
	if err != nil {
		return nil, err
	}
	if source.Fenced {
		own, err := s.store.GuestReports(ctx, nil, compute.GuestReportFilter{HostID: source.ID})
		if err != nil {
			return nil, err
		}
		reports = append(reports, slices.DeleteFunc(own, func(g compute.GuestReport) bool { return g.BootID == source.BootID })...)
	}
	byServer := map[string][]compute.GuestReport{}
	for _, g := range reports {
		byServer[g.ServerID] = append(byServer[g.ServerID], g)
	}
	out := map[string]string{}
	for id, all := range byServer {
		words, hosts, err := s.runsThere(ctx, nil, all)
		if err != nil {
			return nil, err
		}
		if words != "" {
			out[id] = compute.HeldMove(id, words, hosts)
		}
	}
	return out, nil
}

// staleGuest tells whether a guest that a host told is of before a finished move of its server, which is seen running where it lives
// now; then it gives what the host is told: to end the guest, and to leave its disks. Both guests must be of the current incarnation
// of the database. A release raises all epochs, so a move with a higher epoch than such a guest is of that incarnation too.
func (s *GuestReports) staleGuest(ctx context.Context, hostID string, srv *compute.Server) (*compute.Clean, error) {
	if srv.HostID == "" || srv.HostID == hostID || srv.State == compute.Deleted || srv.Task == compute.Migrating {
		return nil, nil
	}
	reports, err := s.store.GuestReports(ctx, nil, compute.GuestReportFilter{ServerID: srv.ID})
	if err != nil {
		return nil, err
	}
	var here, there *compute.GuestReport
	for i := range reports {
		switch reports[i].HostID {
		case hostID:
			here = &reports[i]
		case srv.HostID:
			there = &reports[i]
		}
	}
	if here == nil || here.Epoch == 0 || there == nil || there.Power != compute.PowerOn || there.Epoch <= here.Epoch {
		return nil, nil
	}
	if now := s.Incarnation(); now == "" || here.Incarnation != now || there.Incarnation != now {
		return nil, nil
	}
	if lives, err := s.liveness.isUp(ctx, srv.HostID); err != nil || !lives {
		return nil, err
	}
	moves, err := s.store.Moves().List(ctx, nil, compute.MoveFilter{ServerID: srv.ID}, record.Page{})
	if err != nil {
		return nil, err
	}
	for _, m := range moves {
		done := m.State == compute.MoveDone || m.State == compute.MoveCompleted
		if done && m.Epoch > here.Epoch && m.Epoch <= there.Epoch {
			return &compute.Clean{Do: compute.CleanGuest, Epoch: m.Epoch, Incarnation: here.Incarnation, Spec: &compute.Spec{ServerID: srv.ID, Epoch: m.Epoch}}, nil
		}
	}
	return nil, nil
}

// isUp tells whether a host lives.
func (s *Liveness) isUp(ctx context.Context, hostID string) (bool, error) {
	h, err := s.store.Hosts().Get(ctx, nil, hostID)
	if err != nil {
		return false, ignoreNotFound(err)
	}
	live, err := s.snapshot(ctx, nil)
	return err == nil && live.isUp(h), err
}

// holdMove refuses to begin the move of a server while a guest of it that is not proven off is told where it should not run (see heldBy).
func (s *GuestReports) holdMove(ctx context.Context, tx job.Tx, serverID string, receipt *compute.Receipt, besides ...string) error {
	by, hosts, err := s.heldBy(ctx, tx, serverID, receipt, besides...)
	if err == nil && by != "" {
		err = problem.Conflictf("%s", compute.HeldMove(serverID, by, hosts))
	}
	return err
}

// holdChange refuses an action that may start, continue or change the disks of a server at its host while another host reports a guest of it
// that is not proven off. Only the error for an administrator names hosts and boots. problem.Conflict.
func (s *GuestReports) holdChange(ctx context.Context, tx job.Tx, srv *compute.Server, admin bool) error {
	by, hosts, err := s.guestElsewhere(ctx, tx, srv)
	switch {
	case err != nil || by == "":
		return err
	case !admin:
		return problem.Conflictf("server %s may run already on another host, so it is neither started nor changed. Ask an administrator to run: salvor why server:%s", srv.ID, srv.ID)
	}
	return problem.Conflictf("%s", compute.HeldMove(srv.ID, by, hosts))
}

// guestElsewhere is heldBy for a server that stays at its host.
func (s *GuestReports) guestElsewhere(ctx context.Context, tx job.Tx, srv *compute.Server) (words string, hosts []string, err error) {
	reports, err := s.store.GuestReports(ctx, tx, compute.GuestReportFilter{ServerID: srv.ID})
	reports = slices.DeleteFunc(reports, func(g compute.GuestReport) bool { return g.HostID == srv.HostID })
	if err != nil || len(reports) == 0 {
		return "", nil, err
	}
	besides, err := s.guestMayBeAt(ctx, tx, srv, reports)
	if err != nil {
		return "", nil, err
	}
	return s.heldBy(ctx, tx, srv.ID, nil, besides...)
}

// isOffElsewhere tells whether no other host reports a guest of the server that is not proven off.
func (s *GuestReports) isOffElsewhere(ctx context.Context, tx job.Tx, id string) (bool, error) {
	srv, err := s.store.Servers().Get(ctx, tx, id)
	if err != nil {
		return false, err
	}
	by, _, err := s.guestElsewhere(ctx, tx, srv)
	return by == "", err
}

// guestMayBeAt lists the hosts at which a reported guest is no second copy of the server. These are its own host and the other nodes of its
// cluster, which runs an instance once. They are also both ends of planned moves that ended just now, whose newest reports may be older, and
// destinations that died while a planned move that failed brought a guest there.
func (s *GuestReports) guestMayBeAt(ctx context.Context, tx job.Tx, srv *compute.Server, reports []compute.GuestReport) ([]string, error) {
	out := []string{srv.HostID}
	home, err := s.store.Hosts().Get(ctx, tx, srv.HostID)
	if err != nil {
		return out, ignoreNotFound(err)
	}
	for _, g := range reports {
		h, err := s.store.Hosts().Get(ctx, tx, g.HostID)
		if err != nil && !problem.Is(err, problem.NotFound) {
			return nil, err
		}
		if err == nil && home.ClusterID != "" && h.ClusterID == home.ClusterID {
			out = append(out, h.ID)
		}
	}
	moves, err := s.store.Moves().List(ctx, tx, compute.MoveFilter{ServerID: srv.ID}, record.Page{})
	for _, m := range moves {
		if m.IsPlanned() && !m.EndedAt.IsZero() && s.now().Sub(m.EndedAt) < young {
			out = append(out, m.SourceID, m.DestID)
		}
		if slices.ContainsFunc(reports, m.LeftUnfinished) {
			out = append(out, m.DestID)
		}
	}
	return out, err
}

// holdAttach is hold of a move that goes on: it is asked again, within the bounds of its action.
func (s *GuestReports) holdAttach(ctx context.Context, tx job.Tx, m *compute.Move, receipt *compute.Receipt, besides ...string) error {
	err := s.holdMove(ctx, tx, m.ServerID, receipt, besides...)
	if problem.Is(err, problem.Conflict) {
		err = problem.Unavailablef("%w", err)
	}
	return err
}

// noteOnce writes once down, on a host and a server, what becomes of a guest there that a clean-up of that epoch is about.
func (s *hostCleanup) noteOnce(ctx context.Context, hostID, serverID string, epoch int64, text string) error {
	noted := false
	s.cache.change(hostID, func(h *cachedHost) {
		if noted = h.ending[serverID] == epoch; !noted {
			h.ending = maps.Clone(h.ending) // copies of it are read without the lock
			if h.ending == nil {
				h.ending = map[string]int64{}
			}
			h.ending[serverID] = epoch
		}
	})
	if noted {
		return nil
	}
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		for _, subject := range []job.Subject{compute.HostSubject(hostID), compute.Subject(serverID)} {
			if err := s.jobs.Append(tx, job.Event{Subject: subject, Type: "contact", Severity: "warning", Text: text}); err != nil {
				return err
			}
		}
		return nil
	})
}

// MisplacedGuests lists the guests that run where they should not: their server is deleted, lives on another host, or is known to
// nobody. Those are left out whose host is proven off, from or to whose host a move of the server goes on, or that were told only now.
func (s *GuestReports) MisplacedGuests(ctx context.Context) ([]compute.GuestReport, error) {
	all, err := s.store.GuestReports(ctx, nil, compute.GuestReportFilter{Misplaced: true})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	open, err := s.store.Moves().List(ctx, nil, compute.MoveFilter{Open: true}, record.Page{})
	if err != nil {
		return nil, err
	}
	var out []compute.GuestReport
	for _, g := range all {
		moved := slices.ContainsFunc(open, func(m *compute.Move) bool {
			return m.ServerID == g.ServerID && (m.SourceID == g.HostID || m.DestID == g.HostID)
		})
		if moved || s.now().Sub(g.SeenAt) < young {
			continue
		}
		off, err := s.answeredFor(ctx, nil, g)
		if err != nil {
			return nil, err
		}
		if !off {
			out = append(out, g)
		}
	}
	return out, nil
}

// Elsewhere tells in words of each guest of a server that another host than its own tells and that is not proven off.
func (s *GuestReports) Elsewhere(ctx context.Context, srv *compute.Server) (words []string, hosts []*compute.Host, err error) {
	all, err := s.MisplacedGuests(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, g := range all {
		if g.ServerID != srv.ID {
			continue
		}
		h, err := s.store.Hosts().Get(ctx, nil, g.HostID)
		if err != nil {
			return nil, nil, err
		}
		words, hosts = append(words, g.Describe(h, s.Incarnation())), append(hosts, h)
	}
	return words, hosts, nil
}
