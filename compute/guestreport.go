package compute

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// GuestReport is a guest with our mark that is not off, as its host, or the cluster of its host, told it in its newest list.
type GuestReport struct {
	HostID, ServerID string
	// BootID is the boot of the host that told it; Epoch is the one in the guest's mark, 0 where that tells none.
	BootID string
	Epoch  int64
	// Incarnation is the incarnation of the database that gave Epoch, as the guest's mark names it; empty: the mark names none.
	Incarnation string
	Power       Power
	// SeenAt is when it was first told as it is now.
	SeenAt time.Time
}

// GuestReportFilter narrows a list of reports; zero fields do not narrow.
type GuestReportFilter struct {
	HostID, ServerID string
	// OfHostID keeps the guests of that host's servers that another host tells.
	OfHostID string
	// Misplaced keeps the guests of servers that are deleted, that live on another host, or that nobody knows.
	Misplaced bool
}

// provenOff tells whether a guest in this power holds no disk: no process of it runs.
func (p Power) provenOff() bool { return p == PowerOff || p == PowerSaved || p == PowerCrashed }

// maxIncarnation bounds the id of an incarnation that a host reports.
const maxIncarnation = 64

// takeGuests keeps the list of guests that a host told, in place of the one before. Of a list that tells nothing new it writes nothing.
func (s *Hosts) takeGuests(ctx context.Context, hostID, bootID string, guests []Guest) error {
	known, err := s.store.GuestReports(ctx, nil, GuestReportFilter{HostID: hostID})
	if err != nil {
		return err
	}
	before := make(map[string]GuestReport, len(known))
	for _, g := range known {
		before[g.ServerID] = g
	}
	var fresh []GuestReport
	for _, g := range guests {
		if !g.Ours || g.Power.provenOff() || !record.IsUUID(g.ID) {
			continue
		}
		now := GuestReport{HostID: hostID, ServerID: strings.ToLower(g.ID), BootID: bootID, Epoch: g.Epoch, Power: g.Power}
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
func (s *Hosts) TakeClusterGuests(ctx context.Context, nodes []string, guests map[string][]Guest) error {
	for _, id := range nodes {
		if err := s.takeGuests(ctx, id, "", guests[id]); err != nil {
			return err
		}
	}
	return nil
}

// answeredFor tells whether the open receipt of its host proves that a reported guest is off.
func (s *Hosts) answeredFor(ctx context.Context, tx job.Tx, g GuestReport) (bool, error) {
	r, err := s.Receipt(ctx, tx, g.HostID)
	if err != nil {
		return false, ignoreNotFound(err)
	}
	return r.answersFor(g), nil
}

// answersFor tells whether a receipt proves that a guest of its host is off. Either the boot that reported the guest was fenced and
// has not spoken since, or the host was proven off after another boot reported it. A former receipt answers for no guest.
func (r *Receipt) answersFor(g GuestReport) bool {
	return r.Proves() && (r.BootID == g.BootID || r.otherBootOff(g.SeenAt))
}

// heldBy tells in words which guest holds a move of a server: one that any host or cluster tells, and that is not proven off. besides
// are the hosts where the server may run. Of the host that a receipt fenced only another boot counts here; of the fenced boot
// Receipt.Doubted tells. Empty: none.
func (s *Hosts) heldBy(ctx context.Context, tx job.Tx, serverID string, receipt *Receipt, besides ...string) (words string, hosts []string, err error) {
	reports, err := s.store.GuestReports(ctx, tx, GuestReportFilter{ServerID: serverID})
	if err != nil {
		return "", nil, err
	}
	reports = slices.DeleteFunc(reports, func(g GuestReport) bool {
		return slices.Contains(besides, g.HostID) || receipt != nil && receipt.HostID == g.HostID && receipt.BootID == g.BootID
	})
	return s.runsThere(ctx, tx, reports)
}

// runsThere describes the reported guests that are not proven off, and lists their hosts; empty: all guests are off.
func (s *Hosts) runsThere(ctx context.Context, tx job.Tx, reports []GuestReport) (string, []string, error) {
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
		words, hosts = append(words, g.describe(h, s.Incarnation())), append(hosts, h.ID)
	}
	return strings.Join(words, "; "), hosts, nil
}

// describe names the host, its boot and the guest. current is the incarnation of the database.
func (g GuestReport) describe(h *Host, current string) string {
	boot := ""
	if g.BootID != "" {
		boot = ", boot " + g.BootID + ","
	}
	words := fmt.Sprintf("host %s (%s)%s reports guest %s: power %s, epoch %d", orID(h), h.ID, boot, g.ServerID, g.power(), g.Epoch)
	if why := g.leftAlone(current); why != "" && g.BootID != "" { // clusters mark no incarnation, and salvor ends nothing there
		words += " (" + why + ")"
	}
	return words
}

// leftAlone gives the reason why salvor does not end the guest by itself, although its epoch may be lower than the server's. Epochs
// are compared within one incarnation of the database only. Empty: the guest's epoch is of the current one.
func (g GuestReport) leftAlone(current string) string {
	switch g.Incarnation {
	case current:
		return ""
	case "":
		return "its mark names no incarnation of the database, so nothing ends it by itself"
	}
	return fmt.Sprintf("its epoch is of incarnation %.12s of the database, which is %.12s now, so nothing ends it by itself", g.Incarnation, current)
}

func (g GuestReport) power() string {
	if g.Power == PowerUnknown {
		return "unknown"
	}
	return string(g.Power)
}

// fenceCommands are the commands that prove hosts off.
func fenceCommands(hosts []string) string {
	var out []string
	for _, id := range hosts {
		if line := "salvor fence " + id; !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "; ")
}

// heldMove is the refusal of a move because of a guest that heldBy found.
func heldMove(serverID, by string, hosts []string) string {
	return "server " + serverID + " may run already: " + by + ". End that guest, or prove its host off with: " + fenceCommands(hosts)
}

// moveEnds lists by server the hosts from or to which open planned moves of the filter bring it, but not the one that is left out. Until
// the move ends, its guest may be held on both sides.
func (c *serviceCore) moveEnds(ctx context.Context, tx job.Tx, f MoveFilter, without string) (map[string][]string, error) {
	f.Open = true
	moves, err := c.store.Moves().List(ctx, tx, f, record.Page{})
	out := map[string][]string{}
	for _, m := range moves {
		for _, end := range []string{m.SourceID, m.DestID} {
			if m.planned() && end != "" && end != without {
				out[m.ServerID] = append(out[m.ServerID], end)
			}
		}
	}
	return out, err
}

// reportedElsewhere lists the guests of a host's servers that other hosts tell, but for those that a planned move holds at its other
// end: an evacuation ends such a guest before it attaches the server anywhere.
func (s *Hosts) reportedElsewhere(ctx context.Context, hostID string) ([]GuestReport, error) {
	reports, err := s.store.GuestReports(ctx, nil, GuestReportFilter{OfHostID: hostID})
	if err != nil || len(reports) == 0 {
		return nil, err
	}
	ends, err := s.moveEnds(ctx, nil, MoveFilter{HostID: hostID}, hostID)
	return slices.DeleteFunc(reports, func(g GuestReport) bool {
		return g.Power != PowerOn && slices.Contains(ends[g.ServerID], g.HostID)
	}), err
}

// elsewhere tells of the servers of a host, by server, which guest of theirs another host or another boot tells.
func (s *Hosts) elsewhere(ctx context.Context, source *Host) (map[string]string, error) {
	reports, err := s.reportedElsewhere(ctx, source.ID)
	if err != nil {
		return nil, err
	}
	if source.Fenced {
		own, err := s.store.GuestReports(ctx, nil, GuestReportFilter{HostID: source.ID})
		if err != nil {
			return nil, err
		}
		reports = append(reports, slices.DeleteFunc(own, func(g GuestReport) bool { return g.BootID == source.BootID })...)
	}
	byServer := map[string][]GuestReport{}
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
			out[id] = heldMove(id, words, hosts)
		}
	}
	return out, nil
}

// staleGuest tells whether a guest that a host told is of before a finished move of its server, which is seen running where it lives
// now; then it gives what the host is told: to end the guest, and to leave its disks. Both guests must be of the current incarnation
// of the database. A release raises all epochs, so a move with a higher epoch than such a guest is of that incarnation too.
func (s *Hosts) staleGuest(ctx context.Context, hostID string, srv *Server) (*Clean, error) {
	if srv.HostID == "" || srv.HostID == hostID || srv.State == Deleted || srv.Task == Migrating {
		return nil, nil
	}
	reports, err := s.store.GuestReports(ctx, nil, GuestReportFilter{ServerID: srv.ID})
	if err != nil {
		return nil, err
	}
	var here, there *GuestReport
	for i := range reports {
		switch reports[i].HostID {
		case hostID:
			here = &reports[i]
		case srv.HostID:
			there = &reports[i]
		}
	}
	if here == nil || here.Epoch == 0 || there == nil || there.Power != PowerOn || there.Epoch <= here.Epoch {
		return nil, nil
	}
	if now := s.Incarnation(); now == "" || here.Incarnation != now || there.Incarnation != now {
		return nil, nil
	}
	if lives, err := s.isUp(ctx, srv.HostID); err != nil || !lives {
		return nil, err
	}
	moves, err := s.store.Moves().List(ctx, nil, MoveFilter{ServerID: srv.ID}, record.Page{})
	if err != nil {
		return nil, err
	}
	for _, m := range moves {
		done := m.State == MoveDone || m.State == MoveCompleted
		if done && m.Epoch > here.Epoch && m.Epoch <= there.Epoch {
			return &Clean{Do: CleanGuest, Epoch: m.Epoch, Incarnation: here.Incarnation, Spec: &Spec{ServerID: srv.ID, Epoch: m.Epoch}}, nil
		}
	}
	return nil, nil
}

// isUp tells whether a host lives.
func (s *Hosts) isUp(ctx context.Context, hostID string) (bool, error) {
	h, err := s.store.Hosts().Get(ctx, nil, hostID)
	if err != nil {
		return false, ignoreNotFound(err)
	}
	live, err := s.livenessSnapshot(ctx, nil)
	return err == nil && live.isUp(h), err
}

// hold refuses to begin the move of a server while a guest of it that is not proven off is told where it should not run (see heldBy).
func (s *Servers) hold(ctx context.Context, tx job.Tx, serverID string, receipt *Receipt, besides ...string) error {
	by, hosts, err := s.hosts.heldBy(ctx, tx, serverID, receipt, besides...)
	if err == nil && by != "" {
		err = problem.Conflictf("%s", heldMove(serverID, by, hosts))
	}
	return err
}

// holdChange refuses an action that may start, continue or change the disks of a server at its host while another host reports a guest of it
// that is not proven off. Only the error for an administrator names hosts and boots. problem.Conflict.
func (s *Servers) holdChange(ctx context.Context, tx job.Tx, srv *Server, admin bool) error {
	by, hosts, err := s.guestElsewhere(ctx, tx, srv)
	switch {
	case err != nil || by == "":
		return err
	case !admin:
		return problem.Conflictf("server %s may run already on another host, so it is neither started nor changed. Ask an administrator to run: salvor why server:%s", srv.ID, srv.ID)
	}
	return problem.Conflictf("%s", heldMove(srv.ID, by, hosts))
}

// guestElsewhere is heldBy for a server that stays at its host.
func (s *Servers) guestElsewhere(ctx context.Context, tx job.Tx, srv *Server) (words string, hosts []string, err error) {
	reports, err := s.store.GuestReports(ctx, tx, GuestReportFilter{ServerID: srv.ID})
	reports = slices.DeleteFunc(reports, func(g GuestReport) bool { return g.HostID == srv.HostID })
	if err != nil || len(reports) == 0 {
		return "", nil, err
	}
	besides, err := s.guestMayBeAt(ctx, tx, srv, reports)
	if err != nil {
		return "", nil, err
	}
	return s.hosts.heldBy(ctx, tx, srv.ID, nil, besides...)
}

// isOffElsewhere tells whether no other host reports a guest of the server that is not proven off.
func (s *Servers) isOffElsewhere(ctx context.Context, tx job.Tx, id string) (bool, error) {
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
func (s *Servers) guestMayBeAt(ctx context.Context, tx job.Tx, srv *Server, reports []GuestReport) ([]string, error) {
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
	moves, err := s.store.Moves().List(ctx, tx, MoveFilter{ServerID: srv.ID}, record.Page{})
	for _, m := range moves {
		if m.planned() && !m.EndedAt.IsZero() && s.now().Sub(m.EndedAt) < young {
			out = append(out, m.SourceID, m.DestID)
		}
		if slices.ContainsFunc(reports, m.leftHalf) {
			out = append(out, m.DestID)
		}
	}
	return out, err
}

// leftHalf tells whether a report is of a guest that a planned move was bringing to its destination when it failed, before it handed the
// server over. Such a guest is paused, has not got all of its memory, and does not run by itself.
func (m *Move) leftHalf(g GuestReport) bool {
	return m.planned() && m.State == MoveFailed && m.Clean == "" && g.HostID == m.DestID && g.Power == PowerPaused &&
		!g.SeenAt.Before(m.CreatedAt) && !g.SeenAt.After(m.EndedAt)
}

// holdAttach is hold of a move that goes on: it is asked again, within the bounds of its action.
func (s *Servers) holdAttach(ctx context.Context, tx job.Tx, m *Move, receipt *Receipt, besides ...string) error {
	err := s.hold(ctx, tx, m.ServerID, receipt, besides...)
	if problem.Is(err, problem.Conflict) {
		err = problem.Unavailablef("%w", err)
	}
	return err
}

// noteOnce writes once down, on a host and a server, what becomes of a guest there that a clean-up of that epoch is about.
func (s *Hosts) noteOnce(ctx context.Context, hostID, serverID string, epoch int64, text string) error {
	noted := false
	s.leases.with(hostID, func(h *hostSession) {
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
		for _, subject := range []job.Subject{HostSubject(hostID), Subject(serverID)} {
			if err := s.jobs.Append(tx, job.Event{Subject: subject, Type: "contact", Severity: "warning", Text: text}); err != nil {
				return err
			}
		}
		return nil
	})
}

// hasUnsettledGuests tells whether a host is to tell its guests again soon: one of them runs beside its server, or may be found to.
func hasUnsettledGuests(told map[string]Clean) bool {
	for _, c := range told {
		if c.Do == CleanGuest || c.Do == CleanAsk && c.Epoch != 0 {
			return true
		}
	}
	return false
}

// MisplacedGuests lists the guests that run where they should not: their server is deleted, lives on another host, or is known to
// nobody. Those are left out whose host is proven off, from or to whose host a move of the server goes on, or that were told only now.
func (s *Hosts) MisplacedGuests(ctx context.Context) ([]GuestReport, error) {
	all, err := s.store.GuestReports(ctx, nil, GuestReportFilter{Misplaced: true})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	open, err := s.store.Moves().List(ctx, nil, MoveFilter{Open: true}, record.Page{})
	if err != nil {
		return nil, err
	}
	var out []GuestReport
	for _, g := range all {
		moved := slices.ContainsFunc(open, func(m *Move) bool {
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
func (s *Hosts) Elsewhere(ctx context.Context, srv *Server) (words []string, hosts []*Host, err error) {
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
		words, hosts = append(words, g.describe(h, s.Incarnation())), append(hosts, h)
	}
	return words, hosts, nil
}
