package compute

import (
	"fmt"
	"maps"
	"slices"

	"salvor/job"
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

// Compare lists the differences of some servers. It includes servers that have an open job: the operator decides about the job.
func (h *HeldGuests) Compare(servers []*Server) []HeldGuest {
	var out []HeldGuest
	for _, srv := range servers {
		reports := h.Reports[srv.ID]
		delete(h.Reports, srv.ID)
		if d, differs := h.compare(srv, reports); differs {
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
func (h *HeldGuests) compare(srv *Server, reports []GuestReport) (HeldGuest, bool) {
	d := HeldGuest{Difference: record.Difference{Subject: Subject(srv.ID), Name: srv.Name, What: factGuest, Recorded: h.recorded(srv)}}
	home := h.Hosts[srv.HostID]
	if srv.State == Deleted {
		if len(reports) == 0 {
			return d, false
		}
	} else if home == nil || home.Kind != AgentHost {
		return d, false // jobs ask clusters and machines for their state before they start or end anything
	}
	if len(reports) > 0 {
		g := reports[0]
		d.Found, d.ReadAt = h.where(g), g.SeenAt
		switch {
		case len(reports) > 1, g.HostID != srv.HostID, srv.State == Deleted:
			d.Hold, d.Elsewhere, d.Release = true, true, "held: no guest of it is started or ended until someone asks for it; `salvor why` tells of it"
			return d, true
		case g.Power == PowerUnknown:
			d.Hold, d.Release = true, "held: nobody knows how it is, so it is neither started nor ended by itself until someone asks for that"
			return d, true
		case g.Epoch > srv.Epoch || g.Power != srv.Power:
			d.Take, d.Release = g.Power, "the power that was found is recorded: the guest is left as it is"
			return d, true
		}
		return d, false
	}
	if !h.Speaks[srv.HostID] { // a guest may run there even if the record says off
		d.Hold, d.Unreadable = true, fmt.Sprintf("host %s was not heard since the start", OrID(home))
		d.Release = "held: it is neither started nor ended by itself until someone asks for that"
		return d, true
	}
	if srv.Power.ProvenOff() || srv.Power == PowerUnknown && srv.Wanted != PowerOn {
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
	state := fmt.Sprintf("%s, epoch %d", orUnknownPower(srv.Power), srv.Epoch)
	if host := h.Hosts[srv.HostID]; host != nil {
		state += ", on host " + OrID(host)
	}
	return state
}

func (h *HeldGuests) where(g GuestReport) string {
	name := g.HostID
	if host := h.Hosts[g.HostID]; host != nil {
		name = OrID(host)
	}
	return fmt.Sprintf("%s, epoch %d, on host %s", g.power(), g.Epoch, name)
}

func orUnknownPower(p Power) string {
	if p == PowerUnknown {
		return "unknown"
	}
	return string(p)
}

// beforeLeaving are the actions of JobMigrate before the guest leaves its source.
var beforeLeaving = []string{"", MigrateChooses, MigratePrepares}

// EndsAtRelease gives the reason why an open job must not go on, even if the database is released as it is; empty: it may. Moves and migrations
// may go on, because they look for guests at both hosts themselves.
func EndsAtRelease(j *job.Job, g HeldGuest) string {
	if g.Elsewhere && j.Subject.Kind == Subject("").Kind && j.Kind != JobMove && j.Kind != JobMigrate {
		return "a guest of the server runs elsewhere (" + g.Found + "), and a second one may be started"
	}
	return ""
}

// GoesOnAtRelease gives the reason why an open job must not end, even if all operations are ended; empty: it may.
func GoesOnAtRelease(j *job.Job) string {
	if j.Kind == JobMigrate && !slices.Contains(beforeLeaving, j.Action) {
		return fmt.Sprintf("the guest may be at either host since %q, and the migration looks at both", LeaveSource)
	}
	return ""
}
