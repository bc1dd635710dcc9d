package compute

import (
	"context"
	"fmt"
	"slices"

	"salvor/job"
	"salvor/record"
)

// While a restored database is held, hosts go on to report their guests, which are compared with the records here.

// HeldGuests are the servers of a held database and what the hosts report.
type HeldGuests struct {
	Servers []*Server
	Reports []GuestReport
	// Hosts by id. Speaks holds the ids of those that were heard since this process looked first.
	Hosts  map[string]*Host
	Speaks map[string]bool
}

// HeldGuest is a difference between a server and its guest, and what the release makes of it.
type HeldGuest struct {
	record.Difference
	// Take is the power that becomes the recorded one; empty: it stays.
	Take Power
	// Hold: nothing starts or ends the server by itself after the release.
	Hold bool
	// Elsewhere: a guest runs where the server does not live, or in two places.
	Elsewhere bool
}

const factGuest = "guest"

// HeldGuests reads what Compare compares.
func (s *Hosts) HeldGuests(ctx context.Context, tx job.Tx) (*HeldGuests, error) {
	out := &HeldGuests{Hosts: map[string]*Host{}, Speaks: map[string]bool{}}
	hosts, err := s.store.Hosts().List(ctx, tx, HostFilter{}, record.Page{})
	if err != nil {
		return nil, err
	}
	for _, h := range hosts {
		out.Hosts[h.ID] = h
		w, _, known := s.ear.of(h.ID)
		out.Speaks[h.ID] = known && w.first.IsZero()
	}
	if out.Reports, err = s.store.GuestReports(ctx, tx, GuestReportFilter{}); err != nil {
		return nil, err
	}
	out.Servers, err = s.store.Servers().List(ctx, tx, ServerFilter{}, record.Page{})
	return out, err
}

// Compare lists what differs. Servers on which a job works are compared too: the job is the operator's choice.
func (h *HeldGuests) Compare() []HeldGuest {
	reports := map[string][]GuestReport{}
	for _, g := range h.Reports {
		if h.Speaks[g.HostID] { // what a silent host told is as old as the record
			reports[g.ServerID] = append(reports[g.ServerID], g)
		}
	}
	var out []HeldGuest
	for _, srv := range h.Servers {
		told := reports[srv.ID]
		delete(reports, srv.ID)
		if d, differs := h.compare(srv, told); differs {
			out = append(out, d)
		}
	}
	for _, g := range h.Reports {
		if _, unknown := reports[g.ServerID]; unknown && h.Speaks[g.HostID] {
			out = append(out, HeldGuest{Difference: record.Difference{Subject: Subject(g.ServerID), What: factGuest, Recorded: "no such server",
				Found: h.where(g), ReadAt: g.SeenAt, Release: "nothing: the guest runs on, and `salvor host show` lists it as misplaced"}})
		}
	}
	return out
}

// compare judges one server; told are the guests of it that are not proven off.
func (h *HeldGuests) compare(srv *Server, told []GuestReport) (HeldGuest, bool) {
	d := HeldGuest{Difference: record.Difference{Subject: Subject(srv.ID), Name: srv.Name, What: factGuest, Recorded: h.recorded(srv)}}
	home := h.Hosts[srv.HostID]
	if srv.State == Deleted {
		if len(told) == 0 {
			return d, false
		}
	} else if home == nil || home.Kind != AgentHost {
		return d, false // clusters and machines are asked by their own jobs, which end and start nothing that they do not find
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
	if !h.Speaks[srv.HostID] { // a guest of a server that is recorded as off may run there
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

// epochStep is how far the epochs of servers jump at a release: whatever the lost history told a host is lower.
const epochStep = 1 << 20

// ReleaseServers makes what differs harmless, and raises the epochs of all servers so far that no epoch of the lost history comes again.
// Orders that hosts have not carried out are void.
func (s *Servers) ReleaseServers(ctx context.Context, tx job.Tx, found []HeldGuest) error {
	differs := make(map[string]HeldGuest, len(found))
	for _, d := range found {
		differs[d.Subject.ID] = d
	}
	all, err := s.store.Servers().List(ctx, tx, ServerFilter{}, record.Page{})
	if err != nil {
		return err
	}
	for _, srv := range all {
		if srv.State == Deleted {
			continue
		}
		d := differs[srv.ID]
		if d.Take != "" && srv.steady() {
			srv.Settle(d.Take)
			srv.Wanted = d.Take
		}
		if d.Hold {
			srv.Wanted = PowerUnknown
		}
		srv.Epoch += epochStep
		if err := s.store.Servers().Save(tx, srv); err != nil {
			return err
		}
		if err := s.store.VoidOrders(tx, srv.ID, srv.Epoch); err != nil {
			return err
		}
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

// ShowDropped shows on a server that a job of it was dropped: it failed, and no host was asked for anything. A deletion that waited for
// the job begins after the release.
func (s *Servers) ShowDropped(ctx context.Context, tx job.Tx, j job.Job) error {
	srv, err := s.store.Servers().Get(ctx, tx, j.Subject.ID)
	if err != nil || srv.State == Deleted {
		return ignoreNotFound(err)
	}
	if srv.Task == Deleting && plainKind(j.Kind) != JobDelete {
		return s.note(tx, srv.ID, record.Asker{}, "request", j.Problem)
	}
	// The lost history may have given its host a volume: as after a reset, that one is given to nobody before an operator has looked.
	if err := s.volumesReset(ctx, tx, srv, &j); err != nil {
		return err
	}
	if err := s.save(tx, srv); err != nil {
		return err
	}
	return s.Fail(ctx, tx, &j, nil)
}

// beforeLeaving are the actions of JobMigrate until which the guest is at the source.
var beforeLeaving = []string{"", MigrateChooses, MigratePrepares}

// CannotContinue tells why the open job of a held database must not go on; empty: it may. A move may find a guest at its destination, and
// asks by itself for others.
func CannotContinue(j *job.Job, g HeldGuest) string {
	if g.Elsewhere && CanDrop(j) {
		return "a guest of the server runs elsewhere (" + g.Found + "), and a second one may be started"
	}
	return ""
}

// CannotEnd tells why the open job of a held database must not be undone; empty: it may.
func CannotEnd(j *job.Job, g HeldGuest) string {
	switch {
	case j.Kind == JobMigrate && !slices.Contains(beforeLeaving, j.Action):
		return fmt.Sprintf("the guest may be at either host since %q", LeaveSource)
	case (j.Kind == JobMigrate || j.Kind == JobMove) && g.Elsewhere:
		return "the guest may have arrived already (" + g.Found + ")"
	}
	return ""
}

// CanDrop tells whether the job of a server is no more than that: plans, moves and fences have records of their own that wait for them.
func CanDrop(j *job.Job) bool {
	switch j.Kind {
	case JobMove, JobMigrate, JobEvacuate, JobDrain, JobFence, JobReadmit, JobRestore:
		return false
	}
	return j.Subject.Kind == Subject("").Kind
}
