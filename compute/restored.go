package compute

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// While a restored database is held, hosts still report their guests. The functions here compare the reports with the records.

// HeldGuests are the hosts of a held database and the guests that they report.
type HeldGuests struct {
	// Reports holds the reports by server. Compare takes out those of the servers that it compared.
	Reports map[string][]GuestReport
	// Hosts holds the hosts by id. Speaks holds the ids of the hosts that reported since this process looked first.
	Hosts  map[string]*Host
	Speaks map[string]bool
}

// HeldGuest is a difference between a server and its guest, with the effect of the release.
type HeldGuest struct {
	record.Difference
	// Take is the power state that the release records; empty: the recorded one stays.
	Take Power
	// Hold: salvor neither starts nor ends the guest by itself after the release.
	Hold bool
	// Elsewhere: a guest runs on a host that is not the host of its server, or on two hosts.
	Elsewhere bool
}

const factGuest = "guest"

// HeldGuests reads hosts and their reports. The last report of a silent host is as old as the record, so it is left out.
func (s *Hosts) HeldGuests(ctx context.Context, tx job.Tx) (*HeldGuests, error) {
	out := &HeldGuests{Reports: map[string][]GuestReport{}, Hosts: map[string]*Host{}, Speaks: map[string]bool{}}
	hosts, err := s.store.Hosts().List(ctx, tx, HostFilter{}, record.Page{})
	if err != nil {
		return nil, err
	}
	for _, h := range hosts {
		out.Hosts[h.ID] = h
		w, _, known := s.ear.of(h.ID)
		out.Speaks[h.ID] = known && w.first.IsZero()
	}
	reports, err := s.store.GuestReports(ctx, tx, GuestReportFilter{})
	for _, g := range reports {
		if out.Speaks[g.HostID] {
			out.Reports[g.ServerID] = append(out.Reports[g.ServerID], g)
		}
	}
	return out, err
}

// HeldHost gives the name of a host, or its id if it has none. problem.NotFound.
func (s *Hosts) HeldHost(ctx context.Context, tx job.Tx, id string) (string, error) {
	h, err := s.store.Hosts().Get(ctx, tx, id)
	if err != nil {
		return "", err
	}
	return orID(h), nil
}

// EachHeld reads all servers of a held database, page by page.
func (s *Servers) EachHeld(ctx context.Context, tx job.Tx, do func([]*Server) error) error {
	return record.EachPage(func(p record.Page) ([]*Server, error) { return s.store.Servers().List(ctx, tx, ServerFilter{}, p) },
		func(srv *Server) string { return srv.ID }, do)
}

// Compare lists the differences of some servers. It includes servers that have an open job: the operator decides about the job.
func (h *HeldGuests) Compare(servers []*Server) []HeldGuest {
	var out []HeldGuest
	for _, srv := range servers {
		told := h.Reports[srv.ID]
		delete(h.Reports, srv.ID)
		if d, differs := h.compare(srv, told); differs {
			out = append(out, d)
		}
	}
	return out
}

// Unknown lists the guests whose server does not exist. It is for when all servers were compared.
func (h *HeldGuests) Unknown() []HeldGuest {
	var out []HeldGuest
	for _, id := range slices.Sorted(maps.Keys(h.Reports)) {
		for _, g := range h.Reports[id] {
			out = append(out, HeldGuest{Difference: record.Difference{Subject: Subject(g.ServerID), What: factGuest, Recorded: "no such server",
				Found: h.where(g), ReadAt: g.SeenAt, Release: "nothing: the guest runs on, and `salvor host show` lists it as misplaced"}})
		}
	}
	return out
}

// ForcedDown lists the hosts that are recorded as forced down. Such a host is told to end its guests when it speaks.
func (h *HeldGuests) ForcedDown() (out []HeldGuest) {
	for _, id := range slices.Sorted(maps.Keys(h.Hosts)) {
		host := h.Hosts[id]
		if !host.ForcedDown || host.Kind != AgentHost {
			continue
		}
		d := record.Difference{Subject: HostSubject(id), Name: host.Name, What: "liveness", Recorded: "forced down",
			Release: "not forced down any more: its guests are left as they are; force it down again if it is off"}
		if h.Speaks[id] {
			d.Found = "it renews its lease"
		} else {
			d.Unreadable = "it was not heard since the start"
		}
		out = append(out, HeldGuest{Difference: d})
	}
	return out
}

// compare compares one server with told, the reports of its guests that are not proven off.
func (h *HeldGuests) compare(srv *Server, told []GuestReport) (HeldGuest, bool) {
	d := HeldGuest{Difference: record.Difference{Subject: Subject(srv.ID), Name: srv.Name, What: factGuest, Recorded: h.recorded(srv)}}
	home := h.Hosts[srv.HostID]
	if srv.State == Deleted {
		if len(told) == 0 {
			return d, false
		}
	} else if home == nil || home.Kind != AgentHost {
		return d, false // jobs ask clusters and machines for their state before they start or end anything
	}
	if len(told) > 0 {
		g := told[0]
		d.Found, d.ReadAt = h.where(g), g.SeenAt
		switch {
		case len(told) > 1, g.HostID != srv.HostID, srv.State == Deleted:
			d.Hold, d.Elsewhere, d.Release = true, true, "held: no guest of it is started or ended until somebody asks for it; `salvor why` tells of it"
			return d, true
		case g.Power == PowerUnknown:
			d.Hold, d.Release = true, "held: nobody knows how it is, so it is neither started nor ended by itself until somebody asks for that"
			return d, true
		case g.Epoch > srv.Epoch || g.Power != srv.Power:
			d.Take, d.Release = g.Power, "the power that was found is recorded: the guest is left as it is"
			return d, true
		}
		return d, false
	}
	if !h.Speaks[srv.HostID] { // a guest may run there even if the record says off
		d.Hold, d.Unreadable = true, fmt.Sprintf("host %s was not heard since the start", orID(home))
		d.Release = "held: it is neither started nor ended by itself until somebody asks for that"
		return d, true
	}
	if srv.Power.provenOff() || srv.Power == PowerUnknown && srv.Wanted != PowerOn {
		return d, false
	}
	d.Found, d.Take, d.Hold = "no host reports it", PowerOff, true
	d.Release = "recorded as off, and not started by itself; start it when you know that it runs nowhere"
	return d, true
}

func (h *HeldGuests) recorded(srv *Server) string {
	if srv.State == Deleted {
		return "deleted"
	}
	words := fmt.Sprintf("%s, epoch %d", orUnknownPower(srv.Power), srv.Epoch)
	if host := h.Hosts[srv.HostID]; host != nil {
		words += ", on host " + orID(host)
	}
	return words
}

func (h *HeldGuests) where(g GuestReport) string {
	name := g.HostID
	if host := h.Hosts[g.HostID]; host != nil {
		name = orID(host)
	}
	return fmt.Sprintf("%s, epoch %d, on host %s", g.power(), g.Epoch, name)
}

func orUnknownPower(p Power) string {
	if p == PowerUnknown {
		return "unknown"
	}
	return string(p)
}

// ReleaseServers applies the release to all servers; differs holds their differences by id. It raises the epochs of the servers so far that
// no epoch of the lost history comes again. Orders that hosts have not carried out become void.
func (s *Servers) ReleaseServers(ctx context.Context, tx job.Tx, differs map[string]HeldGuest) error {
	err := s.EachHeld(ctx, tx, func(servers []*Server) error {
		if err := s.releaseServers(tx, servers, differs); err != nil {
			return err
		}
		return s.store.SaveServers(tx, servers)
	})
	if err != nil {
		return err
	}
	return s.store.VoidAllOrders(tx, problem.Conflictf("void: the restored database was released"))
}

// releaseServers changes servers and tells of their differences. It does not save them.
func (s *Servers) releaseServers(tx job.Tx, servers []*Server, differs map[string]HeldGuest) error {
	for _, srv := range servers {
		d := differs[srv.ID]
		if d.Take != "" && srv.steady() {
			srv.Settle(d.Take)
			srv.Wanted = d.Take
		}
		if d.Hold {
			srv.Wanted = PowerUnknown
		}
		srv.Epoch = record.NumberAfterRelease(srv.Epoch, s.now())
		if d.Release == "" {
			continue
		}
		text := "the restored database was released: recorded was " + d.Recorded + ", found was " + d.Found + d.Unreadable + "; " + d.Release
		if err := s.note(tx, srv.ID, record.Asker{}, "contact", text); err != nil {
			return err
		}
	}
	return nil
}

// ReleaseHosts raises the number of fences of all hosts, those that were removed as lost too, so far that no receipt has the number of
// one of the lost history. It marks what the release leaves open of hosts with the incarnation of the database that ends: moves with a
// clean-up and receipts. From then on a clean-up ends guests of that incarnation only, and a receipt proves nothing until its host is proven off again.
// For the same reason no host with an agent stays forced down. The nodes of a cluster do: taking that back is what closes their receipts.
func (s *Hosts) ReleaseHosts(ctx context.Context, tx job.Tx, former string) error {
	hosts, err := s.store.Hosts().List(ctx, tx, HostFilter{WithLost: true}, record.Page{})
	if err != nil {
		return err
	}
	for _, h := range hosts {
		freed := h.ForcedDown && h.Kind == AgentHost
		h.Fences = record.NumberAfterRelease(h.Fences, s.now())
		if freed {
			h.ForcedDown, h.ForcedDownBy, h.Unseen = false, "", true
		}
		if err := s.saveHost(tx, h); err != nil {
			return err
		}
		if !freed {
			continue
		}
		if err := s.noteHost(tx, h.ID, record.Asker{}, "the restored database was released: the host is not forced down any more"); err != nil {
			return err
		}
	}
	for _, f := range []MoveFilter{{Open: true}, {Uncleaned: true}, {State: MoveFailed}} { // failed moves may be cleaned up again
		read := func(p record.Page) ([]*Move, error) { return s.store.Moves().List(ctx, tx, f, p) }
		err := record.EachPage(read, func(m *Move) string { return m.ID }, func(moves []*Move) error {
			return s.releaseMoves(tx, moves, former)
		})
		if err != nil {
			return err
		}
	}
	read := func(p record.Page) ([]*Receipt, error) {
		return s.store.Receipts().List(ctx, tx, ReceiptFilter{Open: true}, p)
	}
	return record.EachPage(read, func(r *Receipt) string { return r.ID }, func(receipts []*Receipt) error {
		for _, r := range receipts {
			if r.Former() {
				continue
			}
			r.Incarnation = former
			if err := s.saveReceipt(tx, r); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Hosts) releaseMoves(tx job.Tx, moves []*Move, former string) error {
	for _, m := range moves {
		if m.Incarnation != "" || m.State == MoveFailed && m.Clean == "" {
			continue
		}
		m.Incarnation = former
		if err := s.saveMove(tx, m); err != nil {
			return err
		}
	}
	return nil
}

// ShowDropped shows on a server that its job was dropped: the job failed, and no host got an order. A deletion that waited for the
// job begins after the release.
func (s *Servers) ShowDropped(ctx context.Context, tx job.Tx, j job.Job) error {
	srv, err := s.store.Servers().Get(ctx, tx, j.Subject.ID)
	if err != nil || srv.State == Deleted {
		return ignoreNotFound(err)
	}
	if srv.Task == Deleting && plainKind(j.Kind) != JobDelete {
		return s.note(tx, srv.ID, record.Asker{}, "request", j.Problem)
	}
	// In the lost history a host may have got a volume of the server. As after a reset, that volume is not given to another server
	// before an operator has looked.
	if err := s.volumesReset(ctx, tx, srv, &j); err != nil {
		return err
	}
	if err := s.save(tx, srv); err != nil {
		return err
	}
	return s.Fail(ctx, tx, &j, nil)
}

// beforeLeaving are the actions of JobMigrate before the guest leaves its source.
var beforeLeaving = []string{"", MigrateChooses, MigratePrepares}

// CannotContinue gives the reason why the open job of a held database must not continue; empty: it may. Moves and migrations may
// continue, because they look for guests at both hosts themselves.
func CannotContinue(j *job.Job, g HeldGuest) string {
	if g.Elsewhere && CanDrop(j) {
		return "a guest of the server runs elsewhere (" + g.Found + "), and a second one may be started"
	}
	return ""
}

// CannotEnd gives the reason why the open job of a held database must not be undone; empty: it may.
func CannotEnd(j *job.Job, g HeldGuest) string {
	switch {
	case j.Kind == JobMigrate && !slices.Contains(beforeLeaving, j.Action):
		return fmt.Sprintf("the guest may be at either host since %q", LeaveSource)
	case (j.Kind == JobMigrate || j.Kind == JobMove) && g.Elsewhere:
		return "the guest may have arrived already (" + g.Found + ")"
	case g.Elsewhere && CanDrop(j):
		return "a guest of the server runs elsewhere (" + g.Found + "), and the undo works on its recorded host, where it may start a second one"
	}
	return ""
}

// CanDrop tells whether a job of a server can be dropped. Other records wait for plans, moves and fences, so those cannot.
func CanDrop(j *job.Job) bool {
	switch j.Kind {
	case JobMove, JobMigrate, JobEvacuate, JobDrain, JobFence, JobReadmit, JobRestore:
		return false
	}
	return j.Subject.Kind == Subject("").Kind
}
