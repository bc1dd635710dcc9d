package service

import (
	"context"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// HeldDatabase compares servers and hosts with the records of a database that is held, and releases them.
type HeldDatabase struct {
	*serviceCore
	cache *hostCache
}

// HeldGuests reads hosts and their reports. The last report of a silent host is as old as the record, so it is left out.
func (s *HeldDatabase) HeldGuests(ctx context.Context, tx job.Tx) (*compute.HeldGuests, error) {
	out := &compute.HeldGuests{Reports: map[string][]compute.GuestReport{}, Hosts: map[string]*compute.Host{}, Speaks: map[string]bool{}}
	hosts, err := s.store.Hosts().List(ctx, tx, compute.HostFilter{}, record.Page{})
	if err != nil {
		return nil, err
	}
	for _, h := range hosts {
		out.Hosts[h.ID] = h
		w, _, known := s.cache.hearing(h.ID)
		out.Speaks[h.ID] = known && w.first.IsZero()
	}
	reports, err := s.store.GuestReports(ctx, tx, compute.GuestReportFilter{})
	for _, g := range reports {
		if out.Speaks[g.HostID] {
			out.Reports[g.ServerID] = append(out.Reports[g.ServerID], g)
		}
	}
	return out, err
}

// HeldHost gives the name of a host, or its id if it has none. problem.NotFound.
func (s *HeldDatabase) HeldHost(ctx context.Context, tx job.Tx, id string) (string, error) {
	h, err := s.store.Hosts().Get(ctx, tx, id)
	if err != nil {
		return "", err
	}
	return compute.OrID(h), nil
}

// EachHeld reads all servers of a held database, page by page.
func (s *HeldDatabase) EachHeld(ctx context.Context, tx job.Tx, do func([]*compute.Server) error) error {
	return record.EachPage(func(p record.Page) ([]*compute.Server, error) {
		return s.store.Servers().List(ctx, tx, compute.ServerFilter{}, p)
	},
		func(srv *compute.Server) string { return srv.ID }, do)
}

// ReleaseServers applies the release to all servers; differs holds their differences by id. It raises the epochs of the servers so far that
// no epoch of the lost history comes again. Orders that hosts have not carried out become void. keep: no server is deleted any more that somebody
// wanted deleted before the release.
func (s *HeldDatabase) ReleaseServers(ctx context.Context, tx job.Tx, differs map[string]compute.HeldGuest, keep bool) error {
	err := s.EachHeld(ctx, tx, func(servers []*compute.Server) error {
		if err := s.releaseServers(tx, servers, differs, keep); err != nil {
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
func (s *HeldDatabase) releaseServers(tx job.Tx, servers []*compute.Server, differs map[string]compute.HeldGuest, keep bool) error {
	for _, srv := range servers {
		d := differs[srv.ID]
		if d.Take != "" && srv.IsSteady() {
			srv.Settle(d.Take)
			srv.Wanted = d.Take
		}
		if keep && srv.Task == compute.Deleting && srv.State != compute.Deleted {
			srv.Task = compute.NoTask
		}
		if d.Hold {
			srv.Wanted = compute.PowerUnknown
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
func (s *HeldDatabase) ReleaseHosts(ctx context.Context, tx job.Tx, former string) error {
	hosts, err := s.store.Hosts().List(ctx, tx, compute.HostFilter{WithLost: true}, record.Page{})
	if err != nil {
		return err
	}
	for _, h := range hosts {
		freed := h.ForcedDown && h.Kind == compute.AgentHost
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
	for _, f := range []compute.MoveFilter{{Open: true}, {Uncleaned: true}, {State: compute.MoveFailed}} { // failed moves may be cleaned up again
		read := func(p record.Page) ([]*compute.Move, error) { return s.store.Moves().List(ctx, tx, f, p) }
		err := record.EachPage(read, func(m *compute.Move) string { return m.ID }, func(moves []*compute.Move) error {
			return s.releaseMoves(tx, moves, former)
		})
		if err != nil {
			return err
		}
	}
	read := func(p record.Page) ([]*compute.Receipt, error) {
		return s.store.Receipts().List(ctx, tx, compute.ReceiptFilter{Open: true}, p)
	}
	return record.EachPage(read, func(r *compute.Receipt) string { return r.ID }, func(receipts []*compute.Receipt) error {
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

func (s *HeldDatabase) releaseMoves(tx job.Tx, moves []*compute.Move, former string) error {
	for _, m := range moves {
		if m.Incarnation != "" || m.State == compute.MoveFailed && m.Clean == "" {
			continue
		}
		m.Incarnation = former
		if err := s.saveMove(tx, m); err != nil {
			return err
		}
	}
	return nil
}
